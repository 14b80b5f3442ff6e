"""`warpsmith evaluate --calibrate TASK`: can kernels be judged by this task at all?

Calibrating itself is the judge's part, and done before every first evaluation anyway; this module shows what it found.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from warpsmith.cli import render
from warpsmith.cli.evaluate import check_cache, check_task_file
from warpsmith.cli.jsonout import CalibrateDocument, ImpostorDocument, dumps
from warpsmith.cli.lines import Sentence
from warpsmith.core.calibration import Calibration, Impostor
from warpsmith.core.config import Paths
from warpsmith.core.errors import UsageError
from warpsmith.core.task import Precision, Task
from warpsmith.evaluate.evaluator import Evaluator
from warpsmith.hardware.device import Device, select_device


@dataclass(frozen=True)
class Request:
    """What the command line asked for, as written."""

    task: str
    files: tuple[str, ...] = ()
    device: str = "auto"
    precision: Precision | None = None
    fresh: bool = False
    as_json: bool = False


def run(request: Request) -> int:
    """Calibrate, show, and give the exit status: 0 fit to judge by, 1 refused."""
    if request.files:
        raise UsageError(
            f"--calibrate looks at the task alone: leave out {request.files[0]}, or leave out --calibrate, because "
            "every evaluation calibrates its task anyway."
        )
    check_task_file(request.task)
    device = select_device(request.device)
    paths = Paths.from_environment()
    check_cache(paths.cache)
    errors = render.console(stderr=True)
    waiting = errors.status(f"calibrating {Path(request.task).name}") if errors.is_terminal else nullcontext()
    with waiting, Evaluator(device, paths=paths, on_message=lambda text: render.say(errors, text, "dim")) as evaluator:
        task, found = evaluator.calibrate(request.task, request.precision, fresh=request.fresh)
    if request.as_json:
        sys.stdout.write(dumps(document(task, found, file=request.task, device=device.spec)) + "\n")
    else:
        render.show(render.console(), card(task, found, file=request.task, device=device))
    return 0 if found.passed else 1


def document(task: Task, found: Calibration, *, file: str, device: str) -> CalibrateDocument:
    """The outcome for programs."""
    return CalibrateDocument(
        task=task.name,
        file=file,
        device=device,
        precision=task.precision.value,
        passed=found.passed,
        reason=found.reason,
        impostors=tuple(
            ImpostorDocument(i.name, i.output, i.applies, i.caught_by, i.share, i.detail) for i in found.impostors
        ),
        baseline_share=found.baseline_share,
        reserve=found.reserve,
        cached=found.cached,
        seconds=round(found.seconds, 3),
    )


def card(task: Task, found: Calibration, *, file: str, device: Device) -> RenderableType:
    """The outcome for people."""
    verdict = Text("✓ fit to judge by", "bold green") if found.passed else Text("✗ refused", "bold red")
    title = Text.assemble(verdict, "  ", (file, "bold"), "  ", (f"{task.name}, {task.precision}", "dim"))
    parts: list[RenderableType] = [Sentence(title), Text()]
    if found.reason:
        parts += [_indent(Text(f"{found.reason[:1].upper()}{found.reason[1:]}")), Text()]
    if found.impostors:
        parts += [_indent(_table(found, outputs=len(task.outputs) > 1)), Text()]
    return Group(*parts, _indent(_circumstances(found, device)))


def _table(found: Calibration, *, outputs: bool) -> Table:
    """A row per impostor. The column of outputs is left out where there is one only."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    table.add_column("impostor", no_wrap=True)
    if outputs:
        table.add_column("in", overflow="fold")
    table.add_column("caught on", overflow="fold")
    table.add_column("error ÷ limit", justify="right", no_wrap=True)
    for impostor in found.impostors:
        named = (impostor.name, impostor.output) if outputs else (impostor.name,)
        table.add_row(*_row(impostor, named))
    return table


def _row(impostor: Impostor, named: tuple[str, ...]) -> list[RenderableType]:
    if impostor.passes:
        cells: list[RenderableType] = [Text("✗", "bold red"), *named, Text("nothing: it passes", "bold red"), ""]
    elif impostor.applies:
        share = "exact" if impostor.share is None else render.number(impostor.share, 2)
        cells = [Text("✓", "green"), *named, impostor.caught_by, share]
    else:
        cells = [Text("–", "dim"), *named, Text(impostor.detail, "dim"), ""]
    return cells


def _circumstances(found: Calibration, device: Device) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    if found.baseline_share is not None:
        share = "exact" if found.baseline_share == 0 else f"within {render.percent(found.baseline_share)} of its limits"
        grid.add_row("PyTorch itself", share)
    if found.reserve:
        grid.add_row("also checked on", f"{', '.join(found.reserve)} inputs, which this task needs")
    grid.add_row("device", device.label)
    grid.add_row("time", f"{render.number(found.seconds)} s" + (", from the cache" if found.cached else ""))
    return grid


def _indent(body: RenderableType) -> Padding:
    return Padding(body, (0, 0, 0, 2), expand=False)
