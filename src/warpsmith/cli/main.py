"""The console script: options, and the one place where an error becomes a line and an exit status.

Every command imports its own module when it runs, so that `--help` costs no more than typer does.
Exit status: 0 done and valid, 1 a candidate is invalid, 2 wrong usage, a missing tool or our own fault,
130 interrupted.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from enum import StrEnum
from types import FrameType
from typing import Annotated, NoReturn

import typer

from warpsmith._version import __version__
from warpsmith.core.errors import UsageError, WarpsmithError
from warpsmith.core.task import Precision

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)  # a disk that is full or broken

app = typer.Typer(
    name="warpsmith",
    help="Judges kernels against PyTorch: right or wrong, how fast, and how near to the hardware's limit.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


class BackendChoice(StrEnum):
    """What `contract --backend` takes."""

    CPU = "cpu"
    CUDA = "cuda"
    TRITON = "triton"
    TORCH_MODULE = "torch_module"
    ALL = "all"


AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output, all else on standard error.")]
PrecisionOption = Annotated[
    Precision | None,
    typer.Option("--precision", help="Judge in this precision class instead of the task's own."),
]


def main() -> None:
    """Run the command line of this process."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Unicode shows ? instead of failing
    signal.signal(signal.SIGTERM, _terminated)
    try:
        try:
            app(prog_name="warpsmith")
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _give_up_output(1)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        where = error.filename or "standard output"
        sys.stderr.write(f"error: {where} cannot be written ({error.strerror}); free some space and run again.\n")
        _give_up_output(2)


def _give_up_output(status: int) -> NoReturn:
    """End although standard output cannot be written: Python would try once more, and print a traceback."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(status)


def _terminated(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signal.SIGTERM)  # so that `with` blocks end workers and remove folders


@contextlib.contextmanager
def _reported() -> Iterator[None]:
    """Say what went wrong in one line."""
    try:
        yield
    except WarpsmithError as error:
        _complain(f"error: {error}")
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        _complain("interrupted.")
        raise typer.Exit(130) from None
    except BrokenPipeError:
        raise  # the reader of our output has left; typer ends quietly
    except (typer.Exit, SystemExit):
        raise
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise  # the machine's fault: `main` says so
        _own_up(error)
    except Exception as error:  # noqa: BLE001 - the top frame: what is left is a fault of ours
        _own_up(error)


def _own_up(error: Exception) -> NoReturn:
    """A fault of ours, in one line."""
    if os.environ.get("WARPSMITH_DEBUG"):
        traceback.print_exc()
    said = " ".join(str(error).split()) or "no message"
    hint = "" if os.environ.get("WARPSMITH_DEBUG") else " Run again with WARPSMITH_DEBUG=1 for the traceback."
    _complain(f"internal error: {type(error).__name__}: {said}.{hint}")
    raise typer.Exit(2) from None


def _complain(line: str) -> None:
    sys.stdout.flush()
    sys.stderr.write(line + "\n")


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"warpsmith {__version__}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


@app.command(short_help="Judge kernel files against PyTorch.")
def evaluate(
    task: Annotated[
        str,
        typer.Argument(metavar="TASK", help="A task file, or file.py::name for one of several tasks in it."),
    ],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE", help="Kernels: .cpp for the CPU, .cu for an NVIDIA GPU, .py for Triton or ModelNew."
        ),
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="auto|cpu|cuda[:n]", help="Where to run; auto follows the files' endings.")
    ] = "auto",
    entry: Annotated[
        str,
        typer.Option(
            metavar="CALL",
            help="Call this function of a Python file or torch extension: NAME, or NAME(ARG, ...) with names of the "
            "task and numbers.",
        ),
    ] = "",
    baseline: Annotated[
        str, typer.Option(metavar="NAMES", help="What to compare with: eager, compile, or eager,compile.")
    ] = "eager",
    allow: Annotated[
        str,
        typer.Option(
            metavar="LIBS", help="Libraries the kernels may call, besides those the task allows: cublas, cudnn, torch."
        ),
    ] = "",
    precision: PrecisionOption = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Random input sets per workload.  [default: 2]")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0.001, metavar="SECONDS", help="Longest one call of a kernel may take.  [default: 10]"),
    ] = None,
    time_budget: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="SECONDS", help="Time for timing, per workload and baseline.  [default: 1]"),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Judge again even where a verdict is in the cache.")] = False,
    verify_too: Annotated[
        bool, typer.Option("--verify", help="Verify every valid file afterwards, as `warpsmith verify` does.")
    ] = False,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Only show whether wrong results fail the task; takes no FILE.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Judge kernel files: is each right, how fast against PyTorch, how near to the hardware's limit?

    Exit status: 0 all valid, 1 at least one is not (--calibrate: the task is refused), 2 nothing could be judged.
    """
    if calibrate:
        raise typer.Exit(_calibrate(task, files or [], device, precision, fresh=fresh, as_json=json))
    with _reported():
        from warpsmith.cli.evaluate import Request, run

        if not files:
            raise UsageError("evaluate needs at least one kernel FILE after the task, or --calibrate and none.")
        status = run(
            Request(
                task=task,
                files=tuple(files),
                device=device,
                entry=entry,
                baselines=baseline,
                allow=allow,
                precision=precision,
                seeds=seeds,
                launch_s=timeout,
                timing_budget_s=time_budget,
                fresh=fresh,
                verify=verify_too,
                as_json=json,
            )
        )
    raise typer.Exit(status)


def _calibrate(
    task: str, files: list[str], device: str, precision: Precision | None, *, fresh: bool, as_json: bool
) -> int:
    with _reported():
        from warpsmith.cli.calibrate import Request, run

        return run(Request(task, tuple(files), device, precision, fresh=fresh, as_json=as_json))
    raise AssertionError("_reported ends the command where an error is reported")


@app.command(short_help="Verify a kernel deeply and write a certificate.")
def verify(
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task file, or file.py::name.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="The kernel.")],
    device: Annotated[
        str, typer.Option(metavar="auto|cpu|cuda[:n]", help="Where to run; auto follows the file's ending.")
    ] = "auto",
    entry: Annotated[str, typer.Option(metavar="CALL", help="As for `warpsmith evaluate`.")] = "",
    baseline: Annotated[
        str, typer.Option(metavar="NAMES", help="What to compare with: eager, compile, or eager,compile.")
    ] = "eager",
    precision: PrecisionOption = None,
    certificate: Annotated[
        str, typer.Option(metavar="FILE", help="Where to write the certificate.  [default: in the cache folder]")
    ] = "",
    json: AsJson = False,
) -> None:
    """Try a kernel as hard as this machine can: other seeds, distributions and shapes, repeated runs, sanitizers, a
    second measurement. What came of it is written to a certificate.

    Exit status: 0 verified, 1 not verified, 2 nothing could be judged.
    """
    with _reported():
        from warpsmith.cli.verify import Request, run

        status = run(
            Request(
                task=task,
                file=file,
                device=device,
                entry=entry,
                baselines=baseline,
                precision=precision,
                certificate=certificate,
                as_json=json,
            )
        )
    raise typer.Exit(status)


@app.command(short_help="Show the entry point a kernel must offer.")
def contract(
    tasks: Annotated[list[str], typer.Argument(metavar="TASK", help="Task files, or file.py::name.")],
    backend: Annotated[
        BackendChoice | None,
        typer.Option(help="For which language.  [default: cuda where there is a GPU or nvcc, else cpu]"),
    ] = None,
    precision: PrecisionOption = None,
    header: Annotated[bool, typer.Option("--header", help="Only the header included before a kernel.")] = False,
    json: AsJson = False,
) -> None:
    """Show the entry point a kernel must offer for a task: ready to paste into a prompt or a file."""
    with _reported():
        from warpsmith.cli.contract import Request, run

        chosen = backend.value if backend else ""
        status = run(Request(tuple(tasks), chosen, precision, header_only=header, as_json=json))
    raise typer.Exit(status)


@app.command(short_help="Judge three packaged kernels, to see how it works.")
def demo(json: AsJson = False) -> None:
    """Judge three packaged softmax kernels on this machine: a plain one, a fast one and a wrong one."""
    with _reported():
        from warpsmith.cli.demo import run

        status = run(as_json=json)
    raise typer.Exit(status)


@app.command(short_help="Show what this machine can do.")
def doctor(json: AsJson = False) -> None:
    """Show what this machine can do: compilers, GPU, profiler rights, sandbox layers, keys."""
    with _reported():
        from warpsmith.cli.doctor import run

        status = run(as_json=json)
    raise typer.Exit(status)
