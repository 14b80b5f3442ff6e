import ctypes, sys, torch, os, statistics
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tasks import *
torch.set_grad_enabled(False); torch.backends.cudnn.allow_tf32 = False
lib = ctypes.CDLL(os.path.join(os.path.dirname(os.path.abspath(__file__)), "dw.so"))
P = lambda v: ctypes.c_void_p(v.data_ptr()); flush = torch.empty(64 << 20, dtype=torch.int32, device="cuda"); L = ctypes.c_int64
def timed(f, reps=10):
    f(); torch.cuda.synchronize(); ts = []
    for _ in range(reps):
        flush.zero_(); a = torch.cuda.Event(enable_timing=True); b = torch.cuda.Event(enable_timing=True)
        a.record(); f(); b.record(); torch.cuda.synchronize(); ts.append(a.elapsed_time(b))
    return statistics.median(ts)
for t in TASKS:
    if t["kind"] != "depthwise": continue
    kh, kw = t["w"][2:]
    def call(rows, x, w, out): return lib.dw(kh, kw, rows, P(x), P(w), P(out), L(x.shape[0]), L(x.shape[1]), L(x.shape[2]), L(x.shape[3]), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
    for rows in (4, 8, 16 if kw < 7 else 14):
        es = []
        for sizes in (t["small"], t["held"], (3, 40, 64), (2, 67, 129), (2, 65, 130)):
            x = torch.randn(sizes[0], t["ci"], *sizes[1:], device="cuda"); w = torch.randn(*t["w"], device="cuda")
            r = ref(t, x.double(), w.double(), None); out = torch.full(r.shape, float("nan"), device="cuda")
            rc = call(rows, x, w, out); torch.cuda.synchronize()
            es.append(float((out - r).pow(2).mean().sqrt() / r.std()))
        sizes = t["sizes"]; x = torch.randn(sizes[0], t["ci"], *sizes[1:], device="cuda")
        out = torch.full(form(t, sizes)[1], float("nan"), device="cuda")
        ms = timed(lambda: call(rows, x, w, out)); diff = float((out[:1] - ref(t, x[:1], w, None)).norm() / out[:1].norm())
        print(f"DW {t['name']} rows={rows} rc={rc} err={max(es):.1e} {'OK' if max(es) < 5e-7 else 'BAD'} ours {ms:.4f} ms diff {diff:.1e}", flush=True)
    print(f"DW {t['name']} eager {timed(lambda: ref(t, x, w, None), 4):.4f}", flush=True)
    del x, out; torch.cuda.empty_cache()
