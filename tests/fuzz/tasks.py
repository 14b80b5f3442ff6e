"""Task files: Python that is executed, so every batch runs in a child with limits.

Inputs change what a task declares; they hold no loop and no call that a task would not hold.
"""

from __future__ import annotations

import importlib
import os
from functools import cache
from pathlib import Path

from tests.fuzz.engine import Target, one_line
from tests.fuzz.mutate import Mutator
from warpsmith.model.errors import TaskError
from warpsmith.model.task import Precision
from warpsmith.tasks.load import load_task

ROOT = Path(__file__).resolve().parent.parent.parent
_WORDS = (
    *(
        "normal",
        "uniform",
        "workloads",
        "precision",
        '"fp32"',
        '"fp99"',
        "None",
        "True",
        "[]",
        "{}",
        "()",
        '""',
        "lambda: 0",
    ),
    *(
        '"rows"',
        '"rows", "cols"',
        "{'rows': 4}",
        "[{}]",
        "torch.float16",
        "torch",
        "task",
        "x=normal(4)",
        "**{}",
        "*[]",
    ),
    *(
        "@task",
        "@task()",
        "@task(x=1)",
        "class Model(torch.nn.Module):",
        "def get_inputs():",
        "return",
        "self",
        "import",
    ),
    *(
        "raise",
        "raise SystemExit",
        "1 / 0",
        "assert False",
        "yield",
        "async",
        "del x",
        "global x",
        "x = x",
        "pass",
        "...",
    ),
    *(
        "float('inf')",
        "torch.zeros(0)",
        "torch.zeros(2, 3)",
        "torch.randn",
        ".to('meta')",
        ".half()",
        ".T",
        "[0]",
        "[::2]",
    ),
)


@cache
def seeds() -> tuple[str, ...]:
    """Every task file the project has."""
    files = [*(ROOT / "tests/kernels/tasks").glob("*.py"), *(ROOT / "examples/tasks").glob("*.py")]
    return tuple(path.read_text(encoding="utf-8") for path in sorted(files))


@cache
def warm_up() -> None:
    """Load good tasks, so that no child pays for torch's lazy imports; a bad one needs the largest."""
    importlib.import_module("torch._dynamo")
    for name in ("softmax", "kernelbench_linear"):
        load_task(ROOT / f"tests/kernels/tasks/{name}.py")


def make_task(mutator: Mutator) -> tuple[bytes, str, Precision | None]:
    """A file, what follows its path, and a precision to load it in."""
    rng = mutator.rng
    wanted = rng.choice(("", "", "", "", "::softmax", "::relu", "::", "::é", "::a::b"))
    precision = rng.choice((None, None, None, *Precision))
    return mutator.encoded(mutator.text(seeds(), _WORDS)), wanted, precision


def feed_task(given: tuple[bytes, str, Precision | None]) -> str:
    """A Program, or one line that says why not."""
    data, wanted, precision = given
    path = Path(os.getcwd()) / "task.py"
    path.write_bytes(data)
    try:
        program = load_task(f"{path}{wanted}", precision)
    except TaskError as error:
        return one_line(error)
    assert program.task.workloads, "a task has a workload"
    return "accepted"


TARGETS = (Target("task", make_task, feed_task, 0.11, limit_s=10.0, forked=True, prepare=warm_up),)
