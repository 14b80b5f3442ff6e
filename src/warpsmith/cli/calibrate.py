"""`warpsmith evaluate --calibrate TASK`: show whether a task's checks reject wrong results.

Every first evaluation of a task calibrates the task as well; this module only shows the outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from warpsmith.cli import cards
from warpsmith.cli.checks import find_task, writable_paths
from warpsmith.cli.json_documents import calibrate_document, print_document
from warpsmith.cli.terminal import Sentence, indented, plain_table
from warpsmith.engine.engine import LOCAL, open_engine
from warpsmith.hardware.device import Device
from warpsmith.model import numbers
from warpsmith.model.certificate import Calibration, Impostor
from warpsmith.model.errors import UsageError
from warpsmith.model.task import Precision, Task


def calibrate(
    task: str,
    files: Sequence[str],
    device: str,
    precision: Precision | None,
    *,
    fresh: bool,
    as_json: bool,
    engine: str = LOCAL,
) -> int:
    """Calibrate a task and show the outcome. Exit status: 0 passed, 1 not calibrated."""
    if files:
        raise UsageError(
            f"--calibrate takes a task and no kernel: leave out {files[0]}, or leave out --calibrate, because "
            "every evaluation calibrates its task anyway."
        )
    file = find_task(task)
    paths = writable_paths()
    errors = cards.console(stderr=True)
    waiting = errors.status(f"calibrating {Path(file).name}") if errors.is_terminal else nullcontext()
    opened = open_engine(engine, device, paths=paths, on_message=lambda text: cards.say(errors, text, "dim"))
    with waiting, opened as evaluator:
        target = evaluator.device
        described, found = evaluator.calibrate(file, precision, fresh=fresh)
    if as_json:
        print_document(calibrate_document(described, found, file=file, device=target.spec))
    else:
        cards.show(cards.console(), card(described, found, file=file, device=target))
    return 0 if found.passed else 1


def card(task: Task, found: Calibration, *, file: str, device: Device) -> RenderableType:
    """The outcome for a person."""
    verdict = Text("✓ calibrated", "bold green") if found.passed else Text("✗ not calibrated", "bold red")
    title = Text.assemble(verdict, "  ", (file, "bold"), "  ", (f"{task.name}, {task.precision}", "dim"))
    parts: list[RenderableType] = [Sentence(title), Text()]
    if found.reason:
        parts += [indented(Text(f"{found.reason[:1].upper()}{found.reason[1:]}")), Text()]
    if found.impostors:
        parts += [indented(_table(found, outputs=len(task.outputs) > 1)), Text()]
    return Group(*parts, indented(_circumstances(found, device)))


def _table(found: Calibration, *, outputs: bool) -> Table:
    """A row per impostor, with a column of outputs if the task has several."""
    table = plain_table()
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
        share = "exact" if impostor.share is None else numbers.number(impostor.share, 2)
        cells = [Text("✓", "green"), *named, impostor.caught_by, share]
    else:
        cells = [Text("–", "dim"), *named, Text(impostor.detail, "dim"), ""]
    return cells


def _circumstances(found: Calibration, device: Device) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    if found.baseline_share is not None:
        share = (
            "exact" if found.baseline_share == 0 else f"within {numbers.percent(found.baseline_share)} of its limits"
        )
        grid.add_row("PyTorch itself", share)
    if found.reserve:
        grid.add_row("also checked on", f"{', '.join(found.reserve)} inputs, which this task needs")
    grid.add_row("device", device.label)
    grid.add_row("time", f"{numbers.number(found.seconds)} s" + (", from the cache" if found.cached else ""))
    return grid
