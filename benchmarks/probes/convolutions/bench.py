"""One task per process: bench.py TASK LIB MODE.. prints result lines. Modes: check (small sizes, distributions), time (full)."""
import ctypes, sys, torch, os, statistics
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tasks import *
torch.backends.cuda.matmul.allow_tf32 = False; torch.backends.cudnn.allow_tf32 = False
torch.set_grad_enabled(False)
names, libname = sys.argv[1].split(","), sys.argv[2]
modes = sys.argv[3:]
lib = ctypes.CDLL(os.path.join(os.path.dirname(os.path.abspath(__file__)), libname))
lib.need.restype = ctypes.c_int64
P = lambda v: ctypes.c_void_p(v.data_ptr() if v is not None else None)
flush = torch.empty(64 << 20, dtype=torch.int32, device='cuda')
def task(name):
  t = next(x for x in TASKS if x['name'] == name)
  cols, ostep = columns_of(t)
  code = int(os.environ.get("COLUMNS_CODE", cols))
  def call(ints, x, w, b, out, ws, plain=False):
      arr = (ctypes.c_int * len(ints))(*ints); s = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
      if plain: return lib.plain(arr, P(x), P(w), P(b), P(out), s)
      return lib.run(arr, code, ostep, P(x), P(w), P(b), P(out), P(ws), s)
  def draw(sizes, osh, kind="own"):
      x = torch.randn(sizes[0], t["ci"], *sizes[1:], device="cuda"); w = torch.randn(*t["w"], device="cuda") * 0.05
      b = torch.randn(osh[1], device="cuda") * 0.1 if t["bias"] else None
      if kind == "large": x *= 100; w *= 100
      if kind == "small": x *= 0.01; w *= 0.01
      if kind == "heavy": x *= torch.exp(1.5 * torch.randn_like(x)); w *= torch.exp(1.5 * torch.randn_like(w))
      if kind == "positive": x.abs_(); w.abs_()
      if kind == "integers": x = torch.randint(-4, 5, x.shape, device="cuda").float(); w = torch.randint(-4, 5, w.shape, device="cuda").float()
      if kind == "spiked": x[..., 3] = 1e4; w[..., 0] = 500.0
      if kind == "offset": x += 300; w += 15
      if kind == "huge": x *= 1e5
      if kind == "tiny": x *= 1e-7
      if kind == "sparse": x *= (torch.rand_like(x) < 0.1)
      return x, w, b
  def errors(c, r):
      d = c.double() - r; s = r.pow(2).mean().sqrt()
      return float(d.pow(2).mean().sqrt() / s), float((d.abs() / (r.abs() + s)).max())
  K = t["ci"] // t["groups"]
  for k in t["w"][2:]: K *= k
  floor = 2.0**-24 * (1 + 1.5 * (K + 16) ** 0.5 + K / 800)
  def ws_for(ints):
      n = lib.need((ctypes.c_int * len(ints))(*ints), cols)
      return torch.empty(max(n, 16), dtype=torch.uint8, device="cuda")
  if "check" in modes:
      line = []; bad = 0
      mid = (min(t["sizes"][0], 2), *[min(s, {1: 5003, 2: 71, 3: 27}[len(t["sizes"]) - 1] + 2 * i) for i, s in enumerate(t["sizes"][1:])])
      for sizes, kinds in ((t["small"], ("own", "integers", "huge")), (t["held"], ("own", "spiked")), (mid, ("own", "large", "small", "heavy", "positive", "integers", "spiked", "offset", "sparse", "tiny"))):
          ints, osh = form(t, sizes)
          for kind in kinds:
              x, w, b = draw(sizes, osh, kind); out = torch.full(osh, float("nan"), device="cuda")
              rc = call(ints, x, w, b, out, ws_for(ints)); torch.cuda.synchronize()
              r = ref(t, x.double(), w.double(), b.double() if b is not None else None); base = ref(t, x, w, b)
              e, m = errors(out, r); be, bm = errors(base, r)
              import math
              ex = 2 * math.sqrt(2 * math.log(out.numel() + 1))
              share = max(e / (3 * be + floor), m / (3 * bm + ex * floor))
              ok = rc == 0 and share <= 1
              bad += not ok
              line.append(f"{kind}:{e:.1e}/{be:.1e}={share:.2f}{'' if ok else '!!'}")
      print(f"CHECK {name} {'OK' if not bad else 'BAD %d' % bad} rc={rc} " + " ".join(line), flush=True)
  if "plain" in modes:
      ints, osh = form(t, t["held"]); x, w, b = draw(t["held"], osh); out = torch.full(osh, float("nan"), device="cuda")
      rc = call(ints, x, w, b, out, None, True); torch.cuda.synchronize()
      e, m = errors(out, ref(t, x.double(), w.double(), b.double() if b is not None else None))
      print(f"PLAIN {name} rc={rc} {e:.1e} {m:.1e}", flush=True)
  def timed(f, reps):
      f(); torch.cuda.synchronize(); ts = []
      for _ in range(reps):
          flush.zero_(); a = torch.cuda.Event(enable_timing=True); b = torch.cuda.Event(enable_timing=True)
          a.record(); f(); b.record(); torch.cuda.synchronize(); ts.append(a.elapsed_time(b))
      return statistics.median(ts)
  if "time" in modes:
      ints, osh = form(t, t["sizes"]); x, w, b = draw(t["sizes"], osh); out = torch.full(osh, float("nan"), device="cuda"); ws = ws_for(ints)
      ours = timed(lambda: call(ints, x, w, b, out, ws), 10)
      eager = float("nan"); diff = float("nan")
      if "eager" in modes:
          base = ref(t, x, w, b)
          d = 0.0; n = 0.0
          for i in range(0, osh[0], max(1, osh[0] // 8)):
              o = out[i:i + 1]; q = base[i:i + 1]; d += float((o - q).double().pow(2).sum()); n += float(q.double().pow(2).sum())
          diff = (d / n) ** 0.5; del base
          eager = timed(lambda: ref(t, x, w, b), 3 if len(t["sizes"]) == 4 else 5)
      print(f"TIME {name} ours {ours:.4f} ms eager {eager:.4f} ms speedup {eager / ours:.2f} diff {diff:.1e} ws {ws.numel() >> 20} MiB", flush=True)
  if "prof" in modes:
      from torch.profiler import profile, ProfilerActivity
      with profile(activities=[ProfilerActivity.CUDA]) as pr:
          call(ints, x, w, b, out, ws); torch.cuda.synchronize()
      print("PROF", name, " ".join(f"{e.key.split(chr(40))[0].split(chr(60))[0][-14:]}={e.device_time_total/1000:.3f}" for e in pr.key_averages() if e.device_time_total > 3), flush=True)
import json
for name in names:
    print("BEGIN", name, flush=True)
    try: task(name)
    except torch.OutOfMemoryError as e: print("OOM", name, flush=True)
    torch.cuda.empty_cache()
