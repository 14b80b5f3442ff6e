"""series.py SECONDS OUT LIB MODES... -- TASK...: one process for many tasks; a crash or a hang costs one task only."""
import subprocess, sys, time, os
limit, out, lib = float(sys.argv[1]), sys.argv[2], sys.argv[3]
cut = sys.argv.index("--"); modes, left = sys.argv[4:cut], sys.argv[cut+1:]
here = os.path.dirname(os.path.abspath(__file__)); end = time.time() + limit
while left and time.time() < end:
    with open(out + ".log", "wb") as log:
        p = subprocess.Popen([sys.executable, here + "/bench.py", ",".join(left), lib, *modes], stdout=log, stderr=subprocess.STDOUT)
        seen, since = -1, time.time()
        while p.poll() is None:
            time.sleep(0.2)
            size = os.path.getsize(out + ".log")
            if size != seen: seen, since = size, time.time()
            if time.time() - since > 20 or time.time() > end: p.kill(); break
        p.wait()
    text = open(out + ".log", errors="replace").read()
    with open(out, "a") as f: f.write(text)
    with open(os.path.dirname(out) + "/summary.txt", "a") as f:
        f.writelines(l + "\n" for l in text.splitlines() if l.split(" ")[0] in ("CHECK", "PLAIN", "TIME", "PROF", "OOM"))
    began = [l.split()[1] for l in text.splitlines() if l.startswith("BEGIN ")]
    if p.returncode == 0: break
    with open(os.path.dirname(out) + "/summary.txt", "a") as f: f.write(f"FAILED {began[-1] if began else '?'} {modes} rc={p.returncode} {text.splitlines()[-1][:200] if text.strip() else ''}\n")
    left = left[len(began):] if began else left[1:]
