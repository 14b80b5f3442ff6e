"""The console script, and the commands that judge: evaluate, verify, contract, demo, doctor."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from warpsmith.cli import benching as benching  # registers its commands
from warpsmith.cli import report as report  # the same
from warpsmith.cli import searching as searching  # the same
from warpsmith.cli.app import app as app
from warpsmith.cli.app import named, reported, start
from warpsmith.cli.options import (
    Allow,
    AsJson,
    Baseline,
    DeviceHere,
    DeviceOfFiles,
    Entry,
    FileArgument,
    Fresh,
    PrecisionOption,
    TaskArgument,
    TimeBudget,
)
from warpsmith.core.errors import UsageError
from warpsmith.core.task import Precision


class BackendChoice(StrEnum):
    """What `contract --backend` takes."""

    CPU = "cpu"
    CUDA = "cuda"
    TRITON = "triton"
    TORCH_MODULE = "torch_module"
    ALL = "all"


def main() -> None:
    """Run the command line of this process."""
    start()


@app.command(short_help="Judge kernel files against PyTorch.")
def evaluate(
    task: TaskArgument,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE", help="Kernels: .cpp for the CPU, .cu for an NVIDIA GPU, .py for Triton or ModelNew."
        ),
    ] = None,
    device: DeviceOfFiles = "auto",
    entry: Entry = "",
    baseline: Baseline = "eager",
    allow: Allow = "",
    precision: PrecisionOption = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Random input sets per workload.  [default: 2]")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0.001, metavar="SECONDS", help="Longest one call of a kernel may take.  [default: 10]"),
    ] = None,
    time_budget: TimeBudget = None,
    fresh: Fresh = False,
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
    with reported():
        from warpsmith.cli.evaluate import Request, run

        if not files:
            raise UsageError("evaluate needs at least one kernel FILE after the task, or --calibrate and none.")
        status = run(
            Request(
                task=named(task),
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
    with reported():
        from warpsmith.cli.calibrate import Request, run

        return run(Request(named(task), tuple(files), device, precision, fresh=fresh, as_json=as_json))
    raise AssertionError("`reported` ends the command where an error is reported")


@app.command(short_help="Verify a kernel deeply and write a certificate.")
def verify(
    task: TaskArgument,
    file: FileArgument,
    device: DeviceOfFiles = "auto",
    entry: Entry = "",
    baseline: Baseline = "eager",
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
    with reported():
        from warpsmith.cli.verify import Request, run

        status = run(
            Request(
                task=named(task),
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


@app.command(short_help="Write a kernel as a bundle that `warpsmith.load` takes.")
def export(
    what: Annotated[str, typer.Argument(metavar="RUN|FILE", help="A run (its best kernel), or a kernel's file.")],
    task: Annotated[str, typer.Option(metavar="TASK", help="With a FILE: the task it is for.")] = "",
    out: Annotated[
        str, typer.Option(metavar="DIR", help="Where to write it.  [RUN/best; of a FILE: best/NAME-OF-THE-TASK]")
    ] = "",
    verify: Annotated[bool, typer.Option("--verify", help="Verify it first, and put its certificate in.")] = False,
    device: DeviceHere = None,
    entry: Annotated[
        str, typer.Option(metavar="CALL", help="With a FILE: the function to call, as `verify` takes it.")
    ] = "",
    precision: PrecisionOption = None,
    json: AsJson = False,
) -> None:
    """Write a folder with the kernel, its task and a manifest, for `op = warpsmith.load(DIR)`.

    Without --verify a loaded kernel is used at the shapes of its task's workloads alone.
    Exit status: 0 written, 1 not valid, or not verified where that was asked, 2 nothing could be judged.
    """
    with reported():
        from warpsmith.cli.export import Request, run

        status = run(
            Request(
                what=what,
                task=named(task) if task else "",
                out=out,
                verify=verify,
                device=device,
                entry=entry,
                precision=precision,
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
    with reported():
        from warpsmith.cli.contract import Request, run

        chosen = backend.value if backend else ""
        status = run(Request(tuple(map(named, tasks)), chosen, precision, header_only=header, as_json=json))
    raise typer.Exit(status)


@app.command(short_help="Optimise softmax on this machine, to see how it works.")
def demo(
    run: Annotated[str, typer.Option(metavar="DIR", help="The run's folder.  [default: under runs/]")] = "",
    json: AsJson = False,
) -> None:
    """Optimise softmax for this machine with the offline catalogue, in under two minutes."""
    with reported():
        from warpsmith.cli.demo import run as work

        status = work(folder=run, as_json=json)
    raise typer.Exit(status)


@app.command(short_help="Show what this machine can do.")
def doctor(json: AsJson = False) -> None:
    """Show what this machine can do: compilers, GPU, profiler rights, sandbox layers, keys."""
    with reported():
        from warpsmith.cli.doctor import run

        status = run(as_json=json)
    raise typer.Exit(status)
