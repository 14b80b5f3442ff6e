import ctypes, sys, torch, os, statistics
import torch.nn.functional as F
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tasks import *
torch.set_grad_enabled(False); torch.backends.cudnn.allow_tf32 = False
lib = ctypes.CDLL(os.path.join(os.path.dirname(os.path.abspath(__file__)), "streamed.so")); lib.need_sep.restype = ctypes.c_int64
P = lambda v: ctypes.c_void_p(v.data_ptr()); flush = torch.empty(64 << 20, dtype=torch.int32, device="cuda")
t = dict(next(x for x in TASKS if x["kind"] == "separable"))
def call(x, d, w, out, ws):
    ints, _ = form(t, (x.shape[0], *x.shape[2:])); return lib.separable((ctypes.c_int * len(ints))(*ints), P(x), P(d), P(w), P(out), P(ws), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
def refs(x, d, w): return F.conv2d(F.conv2d(x, d, padding=1, groups=64), w)
def timed(f, reps=10):
    f(); torch.cuda.synchronize(); ts = []
    for _ in range(reps):
        flush.zero_(); a = torch.cuda.Event(enable_timing=True); b = torch.cuda.Event(enable_timing=True)
        a.record(); f(); b.record(); torch.cuda.synchronize(); ts.append(a.elapsed_time(b))
    return statistics.median(ts)
def ws_for(x):
    ints, _ = form(t, (x.shape[0], *x.shape[2:])); return torch.empty(lib.need_sep((ctypes.c_int * len(ints))(*ints)), dtype=torch.uint8, device="cuda")
for sizes in (t["small"], t["held"], (2, 61, 67), (1, 128, 96)):
    for scale in (1, 0.01, 1e6):
        x = torch.randn(sizes[0], 64, *sizes[1:], device="cuda") * scale; d = torch.randn(64, 1, 3, 3, device="cuda") * .33; w = torch.randn(128, 64, 1, 1, device="cuda") * .12
        r = refs(x.double(), d.double(), w.double()); out = torch.full(r.shape, float("nan"), device="cuda")
        rc = call(x, d, w, out, ws_for(x)); torch.cuda.synchronize()
        e = lambda c: float((c.double() - r).pow(2).mean().sqrt() / r.pow(2).mean().sqrt())
        print(f"SEP {sizes} x{scale} rc={rc} err {e(out):.1e} torch {e(refs(x, d, w)):.1e}", flush=True)
sizes = t["sizes"]; x = torch.randn(sizes[0], 64, *sizes[1:], device="cuda"); out = torch.full((16, 128, 512, 512), float("nan"), device="cuda")
ws = ws_for(x); ms = timed(lambda: call(x, d, w, out, ws)); b = refs(x, d, w)
print(f"SEP full producers={os.environ.get('PRODUCERS')} ours {ms:.4f} diff {float((out - b).norm() / b.norm()):.1e} eager {timed(lambda: refs(x, d, w), 4):.4f}", flush=True)
