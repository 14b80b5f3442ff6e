"""The command line: junk arguments and junk files, as a user in a hurry would give them."""

from __future__ import annotations

import importlib
import os
from functools import cache
from pathlib import Path

from typer.testing import CliRunner

from tests.fuzz.engine import Target
from tests.fuzz.mutate import Mutator
from tests.fuzz.sources import kernels
from tests.fuzz.tasks import seeds, warm_up
from warpsmith import cli
from warpsmith.cli.main import app

_OPTIONS = (
    *(
        "--json",
        "--device",
        "cpu",
        "cuda:99",
        "cuda:-1",
        "--device=",
        "--precision",
        "fp32",
        "fp99",
        "--header",
        "--fresh",
    ),
    *(
        "--seeds",
        "0",
        "-1",
        "9" * 30,
        "--timeout",
        "nan",
        "inf",
        "1e400",
        "--time-budget",
        "-5",
        "--baseline",
        "eager,,x",
    ),
    *(
        "--backend",
        "cpu",
        "triton",
        "all",
        "",
        "--",
        "-",
        "--help",
        "--version",
        "-h",
        "--entry",
        "f(x",
        "--no-such",
        "\0",
    ),
    *(
        "\ud800",
        "é",
        "%s",
        "$(id)",
        "a b",
        "x" * 5000,
        "..",
        "/",
        "/dev/null",
        "/proc/self/mem",
        "--verify",
        "--calibrate",
    ),
    *(
        "--method",
        "eoh",
        "--proposer",
        "template",
        "replay:.",
        "command:",
        "openai:x",
        "openai:x=0",
        "--trials",
        "--cost",
    ),
    *("--run", "--resume", "last", "--only", "code", "--later", "--brief", "--parallel", "--budget", "--key-file"),
)
_SEARCHING = ("optimize", "ask", "tell", "step", "runs", "show", "tune")
_NEEDS_WORKERS = ("evaluate", "verify", *_SEARCHING)
"""Commands that start worker processes once their arguments are good: here they are never given a good task."""


@cache
def _import_commands() -> None:
    """Every command imports its own module when it runs: here once for all."""
    for path in Path(cli.__file__).parent.glob("*.py"):
        importlib.import_module(f"{cli.__name__}.{path.stem}")
    warm_up()


Given = tuple[tuple[str, ...], bytes, bytes]


def make_line(mutator: Mutator) -> Given:
    """Arguments, and the content of the files task.py and kernel.cpp that they may name."""
    rng = mutator.rng
    command = rng.choice(
        ("contract", "contract", "contract", "evaluate", "verify", "no-such", "", "--json", *_SEARCHING)
    )
    task = mutator.encoded(mutator.text(seeds()))
    # An evaluation of a file that no loader takes ends before any worker starts only if the file is missing.
    files: tuple[str, ...] = ("task.py", "task.py", "task.py::x", "missing.py", "kernel.cpp", ".", "task.py")
    if command in _NEEDS_WORKERS:
        files = ("missing.py", "kernel.cpp", ".", "missing.py::x")
    words = [rng.choice(files)] if rng.random() < 0.8 else []
    words += [rng.choice((*_OPTIONS, "kernel.cpp", "missing.cu")) for _ in range(rng.choice((0, 0, 1, 1, 2, 4)))]
    kernel = mutator.encoded(mutator.text(kernels()))
    return (command, *words), task, kernel


def feed_line(given: Given) -> str:
    """Whatever is asked, the answer is a status and words for a person."""
    arguments, task, kernel = given
    Path("task.py").write_bytes(task)
    Path("kernel.cpp").write_bytes(kernel)
    os.environ["WARPSMITH_CACHE"] = os.path.join(os.getcwd(), "cache")
    result = CliRunner().invoke(app, list(arguments), prog_name="warpsmith")
    said = result.output
    assert result.exit_code in (0, 1, 2), (result.exit_code, said)
    assert "Traceback" not in said, said
    assert "internal error" not in said, said
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return f"status {result.exit_code}"


TARGETS = (Target("command", make_line, feed_line, 0.004, limit_s=60.0, forked=True, prepare=_import_commands),)
