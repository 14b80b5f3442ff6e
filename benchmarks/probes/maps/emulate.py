"""Runs the candidates of this folder on the emulated device, with small blocks, and compares them with PyTorch.

    python benchmarks/probes/maps/emulate.py [columns map_ring ...]

The device is that of ../memory_bound/emulate.py: what is said there of its limits holds here.
"""

import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
base = HERE.parent / "memory_bound" / "emulate.py"
text = base.read_text()
device = {"__file__": str(base)}
exec(compile(text[: text.index("def cross_entropy():")], str(base), "exec"), device)  # all but its checks
aligned, call, out_of, near, function_body = (device[n] for n in ("aligned", "call", "out_of", "near", "function_body"))
ANCHOR = "emulated::cluster.anchors[rank] + (reinterpret_cast<char*>(p) - &emulated::anchor)"
translate = device["translate"]


def translated(t):
    t = function_body(t, "in_block", f"return reinterpret_cast<T*>({ANCHOR});")
    t = function_body(t, "bulk_store", "if (bytes % 16 || uintptr_t(to) % 16 || uintptr_t(from) % 16) std::abort(); std::memcpy(to, from, bytes);")
    t = function_body(t, "bulk_store_hinted", "bulk_store(to, from, bytes);")
    t = function_body(t, "barrier_expect", "emulated::mb_arrive(barrier, int(bytes));")
    for name in ("stores_begun", "stores_read", "stores_done", "writes_seen"):
        t = function_body(t, name, "")
    return translate(t)


device["translate"] = translated
for header in device["HEADERS"].glob("*.cuh"):
    (device["WORK"] / "warpsmith" / header.name).write_text(translated(header.read_text()))
if "struct alignas(4) uchar4" not in device["EMU"]:
    with (device["WORK"] / "cuda_runtime.h").open("a") as runtime:
        runtime.write("struct alignas(4) uchar4 { unsigned char x, y, z, w; };\n")
device["HERE"] = HERE
build = device["build"]
WRONG = 0


def report(right, *what):
    global WRONG
    if not right:
        WRONG += 1
        print("WRONG", *what, flush=True)


def columns():
    small = ("TUNE_THREADS=64", "TUNE_PACKS=4", "TUNE_STAGES=3")
    ways = [
        (*small, "TUNE_PART=2", "TUNE_SPLIT=1"),
        (*small, "TUNE_PART=4", "TUNE_SPLIT=2"),
        (*small, "TUNE_PART=1", "TUNE_SPLIT=4"),
        (*small, "TUNE_WAY=0", "TUNE_SPLIT=1"),
        (*small, "TUNE_WAY=0", "TUNE_SPLIT=2"),
    ]
    shapes = ((2, 40, 63), (2, 100, 16), (1, 48, 255), (2, 21, 100), (1, 3, 4), (1, 66, 30), (1, 64, 1000))
    for kind in range(6):
        for defines in ways if kind % 2 == 0 else ways[:1]:
            library = build("columns", f"TUNE_KIND={kind}", *defines)
            for shape in shapes:
                for values in ("integers", "nan", "infinite", "all least") if kind > 1 else ("own", "nan", "shifted"):
                    x = torch.randn(shape)
                    if values == "integers":
                        x = x.round()
                    elif values == "nan":
                        x[0, shape[1] // 2, 0] = x[-1, shape[1] - 1, shape[2] - 1] = float("nan")
                        x[-1, shape[1] // 3, shape[2] - 1] = float("nan")
                    elif values == "infinite":
                        x[0, shape[1] // 2, 0], x[-1, 0, shape[2] - 1] = float("inf"), -float("inf")
                    elif values == "all least":
                        x = torch.full_like(x, float("inf" if kind in (3, 5) else "-inf"))
                    elif values == "shifted":
                        x = x + 1000
                    x = aligned(x)
                    if kind < 4:
                        found = out_of(shape[0], shape[2])
                        function = (torch.sum, torch.mean, torch.amax, torch.amin)[kind]
                        call(library, (x, found), shape)
                        wanted, eager = function(x.double(), dim=1), function(x, dim=1)
                        right = torch.equal(found.isinf(), eager.isinf()) and near(
                            found.nan_to_num(0, 0, 0), wanted.nan_to_num(0, 0, 0), eager.nan_to_num(0, 0, 0), 2e-7
                        )
                        right &= torch.equal(found.isnan(), eager.isnan())
                    else:
                        found = out_of(shape[0], shape[2], dtype=torch.int64)
                        call(library, (x, found), shape)
                        function = torch.argmax if kind == 4 else torch.argmin
                        wanted = function(x, dim=1)
                        # The first one; PyTorch may name another of equal elements.
                        best = x.gather(1, wanted[:, None])
                        same = (x == best) | (x.isnan() & best.isnan())
                        right = torch.equal(found, same.int().argmax(dim=1))
                    report(right, "columns", kind, defines, shape, values)


def softmax():
    small = ("TUNE_CLUSTER=300", "TUNE_HELD_THREADS=64", "TUNE_HELD_PACKS=2", "TUNE_HELD_SLOTS=5")
    small += ("TUNE_KEPT_THREADS=64", "TUNE_KEPT_PACKS=2", "TUNE_KEPT=3")
    ways = [
        (*small, "TUNE_BLOCKS=2"),
        (*small, "TUNE_BLOCKS=4", "TUNE_LOG=1"),
        (*small, "TUNE_BLOCKS=2", "TUNE_LATER=0", "TUNE_STAGGER=100"),
    ]
    for defines in ways:
        library = build("softmax", *defines)
        for rows, cols in ((9, 2000), (7, 1023), (5, 2045), (2, 1022), (1, 800), (3, 200)):
            for values in ("own", "large", "shifted", "nan", "infinite"):
                x = device["shaped"](torch.randn(rows, cols), values)
                if values == "infinite":
                    x[0, : cols // 2] = float("-inf")
                x, found = aligned(x), out_of(rows, cols)
                call(library, (x, found), (rows, cols))
                function = torch.log_softmax if "TUNE_LOG=1" in defines else torch.softmax
                wanted, eager = function(x.double(), -1), function(x, -1)
                right = torch.equal(found.isinf(), eager.isinf()) and torch.equal(found.isnan(), eager.isnan())
                right &= near(found.nan_to_num(0, 0, 0), wanted.nan_to_num(0, 0, 0), eager.nan_to_num(0, 0, 0), 3e-7)
                report(right, "softmax", defines, rows, cols, values)


def map_ring():
    small = ("TUNE_RING_THREADS=64", "TUNE_TILE=2", "TUNE_RESIDENT=1")
    ways = [
        (*small, "TUNE_STAGES=4", "TUNE_HINTS=2"),
        (*small, "TUNE_STAGES=3", "TUNE_OUT=0", "TUNE_HINTS=1"),
        (*small, "TUNE_STAGES=2", "TUNE_F=2"),
        (*small, "TUNE_STAGES=3", "TUNE_OUT=0"),
        (*small, "TUNE_OUT=2", "TUNE_HINTS=1"),
    ]
    for defines in ways:
        library = build("map_ring", *defines)
        for rows, cols in ((3, 1000), (7, 1023), (1, 3), (1, 512), (11, 1024), (1, 5)):
            x, found = aligned(torch.randn(rows, cols)), out_of(rows, cols)
            call(library, (x, found), (rows, cols))
            wanted = torch.nn.functional.gelu(x.double()).float() if "TUNE_F=2" in defines else x.relu()
            report(torch.allclose(found, wanted, rtol=1e-6, atol=5e-7), "map_ring", defines, rows, cols)


def cumsum_masked():
    for defines in (("TUNE_THREADS=64", "TUNE_PACKS=2"), ("TUNE_THREADS=128", "TUNE_PACKS=4"), ("TUNE_THREADS=32",)):
        library = build("cumsum_masked", *defines)
        for rows, cols in ((3, 2000), (2, 4096), (2, 999), (1, 4), (2, 516)):
            for values in ("own", "large", "infinite"):
                x, mask = device["shaped"](torch.randn(rows, cols), values), aligned(torch.rand(rows, cols) < 0.6)
                if values == "infinite":
                    x[0, cols // 2] = float("inf")
                x, found = aligned(x), out_of(rows, cols)
                call(library, (x, mask, found), (rows, cols))
                wanted, eager = (x.double() * mask).cumsum(1), (x * mask).cumsum(1)
                right = torch.equal(found.isnan(), eager.isnan()) and torch.equal(found.isinf(), eager.isinf())
                right &= near(found.nan_to_num(0, 0, 0), wanted.nan_to_num(0, 0, 0), eager.nan_to_num(0, 0, 0), 1e-6)
                report(right, "cumsum_masked", defines, rows, cols, values)


CHECKS = (columns, softmax, map_ring, cumsum_masked)
if __name__ == "__main__":
    torch.manual_seed(0)
    for check in CHECKS:
        if len(sys.argv) == 1 or check.__name__ in sys.argv[1:]:
            before = WRONG
            check()
            device["KEPT"].clear()
            print(check.__name__, "right" if WRONG == before else "wrong", flush=True)
    sys.exit(WRONG > 0)
