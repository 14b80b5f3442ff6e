"""Runs the kernels of this folder on the emulated device of the tests and compares them with PyTorch.

    python benchmarks/probes/norms/emulate.py [group_norm instance_norm layer_norm batch_norm]

The emulation is that of ../memory_bound/emulate.py, with small blocks. It finds wrong indices, sums, barriers and
parities; it finds no races. It takes some minutes for a task.
"""

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
OTHER = FOLDER.parent / "memory_bound" / "emulate.py"
chosen = sys.argv[1:]
names = {"__file__": str(OTHER)}
text = OTHER.read_text().partition("def cross_entropy")[0]
# A thread that waits for a word of another block lets the other threads of its own block go on.
slept = "inline void __nanosleep(int) { std::this_thread::yield(); }"
assert slept in text
text = text.replace(slept, "inline void __nanosleep(int) { emulated::yield(); std::this_thread::yield(); }")
exec(compile(text, str(OTHER), "exec"), names)
torch, F, build, call, report, near = (names[each] for each in ("torch", "F", "build", "call", "report", "near"))
aligned, shaped, slack_of, out_of, PATHS = (
    names[each] for each in ("aligned", "shaped", "slack_of", "out_of", "PATHS")
)
KINDS = ("own", "large", "small", "shifted", "spike", "constant", "nan")
for name in ("group_norm", "layer_norm", "batch_norm"):
    PATHS[name] = FOLDER / f"{name}.cu"


def group_norm(instance=False):
    small = ("TUNE_SHORTEST=1", f"TUNE_INSTANCE={int(instance)}")
    for defines in (
        ("TUNE_READERS=1", "TUNE_WRITERS=2", "TUNE_LISTENERS=2", "TUNE_CHUNK=64", "TUNE_ROOM=5", "TUNE_HOLD=3"),
        ("TUNE_READERS=2", "TUNE_WRITERS=1", "TUNE_LISTENERS=1", "TUNE_CHUNK=128", "TUNE_ROOM=3", "TUNE_HINTS=2"),
        ("TUNE_READERS=1", "TUNE_WRITERS=1", "TUNE_LISTENERS=3", "TUNE_CHUNK=32", "TUNE_ROOM=10", "TUNE_HINTS=1", "TUNE_HOLD=7"),
    ):
        library = build("group_norm", *small, *defines)
        for *shape, groups in (
            (3, 8, 16, 20, 1),
            (2, 8, 12, 13, 1),
            (5, 4, 16, 16, 2),
            (3, 4, 16, 16, 1),
            (7, 3, 3, 4, 1),
            (2, 4, 32, 32, 4),
            (2, 6, 9, 7, 2),
        ):
            for kind in KINDS:
                x = aligned(shaped(torch.randn(shape) + 0.5, kind))
                w, b, found = torch.randn(shape[1]) * 0.1 + 1, torch.randn(shape[1]) * 0.1, out_of(*shape)
                if instance:
                    call(library, (x, found), (1e-5, *shape))
                    wanted, eager = F.instance_norm(x.double()), F.instance_norm(x)
                else:
                    call(library, (x, w, b, found), (groups, 1e-5, *shape))
                    wanted = F.group_norm(x.double(), groups, w.double(), b.double(), 1e-5)
                    eager = F.group_norm(x, groups, w, b, 1e-5)
                report(near(found, wanted, eager, slack_of(kind)), "group_norm", instance, defines, shape, kind)


def instance_norm():
    group_norm(True)


def layer_norm():
    small = ("TUNE_SHORT=300", "TUNE_REGISTERS=0")
    for defines in (
        (
            "TUNE_WRITERS=2",
            "TUNE_STEP=2",
            "TUNE_CHUNKS=3",
            "TUNE_SLOTS=4",
            "TUNE_READERS=2",
            "TUNE_BATCH=1",
            "TUNE_BIASES=1",
            "TUNE_AHEAD=1",
        ),
        (
            "TUNE_WRITERS=1",
            "TUNE_STEP=3",
            "TUNE_CHUNKS=5",
            "TUNE_SLOTS=9",
            "TUNE_READERS=1",
            "TUNE_BATCH=3",
            "TUNE_BIASES=0",
            "TUNE_AHEAD=3",
        ),
        (
            "TUNE_WRITERS=3",
            "TUNE_STEP=1",
            "TUNE_CHUNKS=4",
            "TUNE_SLOTS=4",
            "TUNE_READERS=1",
            "TUNE_BATCH=3",
            "TUNE_BIASES=4",
            "TUNE_HINTS=0",
        ),
    ):
        library = build("layer_norm", *small, *defines)
        for shape in (
            (5, 4, 15, 20),
            (1, 3, 28, 20),
            (7, 2, 16, 32),
            (16, 2, 25, 32),
            (2, 8, 16, 16),
            (3, 9, 31, 40),
            (4, 5, 9, 7),
            (9, 1, 16, 20),
        ):
            for kind in KINDS:
                x = aligned(shaped(torch.randn(shape) + 0.5, kind))
                w, b = aligned(torch.randn(shape[1:]) * 0.1 + 1), aligned(torch.randn(shape[1:]) * 0.1)
                found = out_of(*shape)
                call(library, (x, w, b, found), (1e-5, *shape))
                wanted = F.layer_norm(x.double(), shape[1:], w.double(), b.double(), 1e-5)
                eager = F.layer_norm(x, shape[1:], w, b, 1e-5)
                report(near(found, wanted, eager, slack_of(kind)), "layer_norm", defines, shape, kind)


def batch_norm():
    small = ("TUNE_REGISTERS=0", "TUNE_THREADS=64", "TUNE_HELD=1", "TUNE_KEPT=1")
    for defines in (
        (
            "TUNE_CHUNK=64",
            "TUNE_WRITERS=2",
            "TUNE_SCOUTS=1",
            "TUNE_READERS=1",
            "TUNE_BATCH=2",
            "TUNE_SLOTS=2",
            "TUNE_OWN=2",
            "TUNE_AHEAD=2",
            "TUNE_EARLY=2",
        ),
        (
            "TUNE_CHUNK=32",
            "TUNE_WRITERS=1",
            "TUNE_SCOUTS=1",
            "TUNE_READERS=1",
            "TUNE_BATCH=1",
            "TUNE_SLOTS=3",
            "TUNE_OWN=1",
            "TUNE_AHEAD=1",
            "TUNE_EARLY=3",
        ),
        (
            "TUNE_CHUNK=64",
            "TUNE_WRITERS=1",
            "TUNE_SCOUTS=2",
            "TUNE_READERS=2",
            "TUNE_BATCH=1",
            "TUNE_SLOTS=5",
            "TUNE_OWN=1",
            "TUNE_AHEAD=3",
            "TUNE_EARLY=0",
        ),
    ):
        library = build("batch_norm", *small, *defines)
        for shape in (
            (3, 4, 16, 16),
            (5, 7, 16, 32),
            (9, 5, 32, 32),
            (1, 3, 16, 32),
            (15, 3, 16, 16),
            (4, 3, 20, 24),
            (3, 3, 9, 7),
        ):
            for kind in KINDS:
                x = aligned(shaped(torch.randn(shape) + 0.5, kind))
                w, b, found = torch.randn(shape[1]) * 0.1 + 1, torch.randn(shape[1]) * 0.1, out_of(*shape)
                call(library, (x, w, b, found), (1e-5, *shape))
                wanted = F.batch_norm(x.double(), None, None, w.double(), b.double(), True, 0.0, 1e-5)
                eager = F.batch_norm(x, None, None, w, b, True, 0.0, 1e-5)
                report(near(found, wanted, eager, slack_of(kind)), "batch_norm", defines, shape, kind)


torch.manual_seed(0)
checks = {each.__name__: each for each in (group_norm, instance_norm, layer_norm, batch_norm)}
for name in chosen or checks:
    before = names["WRONG"]
    checks[name]()
    names["KEPT"].clear()
    print(name, "right" if names["WRONG"] == before else "wrong", flush=True)
sys.exit(names["WRONG"] > 0)
