"""What a person sees: the card of one verdict, the table of several, the list of `doctor`.

Laid out for 80 columns, and nothing is said by colour alone, so that a log file or NO_COLOR loses nothing.
Not for programs: their fields are in `jsonout`.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from warpsmith.cli.jsonout import (
    CheckDocument,
    baseline_ms,
    baseline_names,
    floor_ms,
    latency_ms,
    share_of_floor,
    worst_error,
)
from warpsmith.cli.lines import Sentence
from warpsmith.cli.lines import say as say  # with `show`, all that a command needs to print something
from warpsmith.cli.lines import show as show
from warpsmith.cli.reason import Reason
from warpsmith.core.evaluation import Evaluation, Interval, Resources, Status, WorkloadResult
from warpsmith.evaluate.judging.statistics import Comparison, verdict

_BASELINES = {"eager": "PyTorch eager", "compile": "torch.compile", "start": "the starting kernel"}
_STYLES = {Comparison.FASTER: "bold green", Comparison.SLOWER: "bold red"}
_MARKS = {"ok": ("✓", "green"), "missing": ("✗", "red"), "absent": ("–", "dim")}
_SHORT_REASON = 150  # characters of a reason in a table
_KERNELS_SHOWN = 6
_NAME_WIDTH = 48
_WORKLOAD_WIDTH = 16  # where a terminal is narrow, intervals go to another line first


@dataclass(frozen=True)
class Judged:
    """A file with its verdict."""

    file: str  # as given
    evaluation: Evaluation
    fresh: bool = False  # whether the command that shows it has --fresh


def console(*, stderr: bool = False) -> Console:
    """Where a person reads; the width of the terminal, 80 without one."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


# --- numbers ---


def number(value: float, digits: int = 3) -> str:
    """Significant digits, without an exponent between 0.001 and a million."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    if not 1e-3 <= abs(value) < 1e6:
        return f"{value:.{digits - 1}e}"
    rounded = float(f"{value:.{digits - 1}e}")  # first, since 999.96 has one digit more afterwards
    before = math.floor(math.log10(abs(rounded))) + 1
    return f"{rounded:.{max(digits - before, 0)}f}"


def duration(milliseconds: float) -> str:
    """A time with the unit that keeps it readable."""
    for limit, factor, unit in ((1e-3, 1e6, "ns"), (1.0, 1e3, "µs"), (1e3, 1.0, "ms")):
        if milliseconds < limit:
            return f"{number(milliseconds * factor, 4)} {unit}"
    return f"{number(milliseconds / 1e3, 4)} s"


def size(count: int) -> str:
    """Bytes with a binary unit."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{number(value) if unit != 'B' else count} {unit}"
        value /= 1024
    return f"{number(value)} TiB"


def percent(share: float) -> str:
    """A share of one."""
    return f"{number(100 * share, 3 if share < 1 else 4)} %"


def ratio(value: float) -> str:
    """A speedup; near one, where each digit matters, with three decimals."""
    return f"{value:.3f}" if 0.9 <= value < 1.1 else number(value)


def _bounds(interval: Interval) -> str:
    return f"[{ratio(interval.low)}, {ratio(interval.high)}]"


# --- one verdict ---


def card(judged: Judged) -> RenderableType:
    """Everything about one file."""
    evaluation = judged.evaluation
    parts: list[RenderableType] = [Sentence(_title(judged)), Text()]
    if evaluation.ok:
        parts += [_indent(line) for line in _headlines(evaluation)]
        parts += [Text(), _indent(_figures(evaluation))]
        if len(evaluation.workloads) > 1:
            parts += [Text(), _indent(_workloads(evaluation))]
    else:
        parts.append(_indent(Reason(evaluation.reason.rstrip())))
    return Group(*parts, Text(), _indent(_circumstances(judged)))


def _title(judged: Judged) -> Text:
    evaluation = judged.evaluation
    about = f"{evaluation.task}, {evaluation.precision}, {evaluation.environment.backend}"
    return Text.assemble(_status(evaluation), "  ", (judged.file, "bold"), "  ", (about, "dim"))


def _status(evaluation: Evaluation) -> Text:
    word = evaluation.status.value.replace("_", " ")
    if evaluation.ok:
        return Text(f"✓ {word}", "bold green")
    if evaluation.status is Status.NOT_JUDGED:
        return Text(f"– {word}", "bold magenta")
    return Text(f"✗ {word}", "bold red")


def _headlines(evaluation: Evaluation) -> list[Text]:
    """One line per baseline: the number, what may be said about it, and its interval."""
    lines = []
    for name in baseline_names(evaluation):
        speedup, interval = evaluation.speedup(name), evaluation.interval(name)
        if speedup is None or interval is None:
            continue
        lines.append(compared(name, speedup, interval))
    return lines or [Text("No baseline could be measured, so there is no speedup.", "yellow")]


def compared(name: str, speedup: float, interval: Interval) -> Text:
    """`1.84x faster than PyTorch eager  [1.81, 1.87]`; only what the interval supports is claimed."""
    other = _BASELINES.get(name, name)
    said = verdict(interval)
    words = {
        Comparison.FASTER: f"{ratio(speedup)}x faster than {other}",
        Comparison.SLOWER: f"{ratio(speedup)}x, slower than {other}",
        Comparison.SAME: f"{ratio(speedup)}x, same speed as {other}",
        Comparison.UNCLEAR: f"{ratio(speedup)}x, no clear difference from {other}",
    }[said]
    return Text.assemble((words, _STYLES.get(said, "bold")), "  ", (_bounds(interval), "dim"))


def _figures(evaluation: Evaluation) -> Table:
    """Latency, speed of light and error: value and what it is to be seen beside."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(style="dim", overflow="fold")
    latency, floor, share = latency_ms(evaluation), floor_ms(evaluation), share_of_floor(evaluation)
    worst = worst_error(evaluation)
    if latency is None or floor is None or share is None or worst is None:
        return grid
    others = [f"{name} {duration(baseline_ms(evaluation, name))}" for name in baseline_names(evaluation)]
    several = len(evaluation.workloads) > 1
    what = "geometric mean" if several else _sizes(evaluation.workloads[0])
    grid.add_row("latency", duration(latency), "; ".join([", ".join(others), what]).strip("; "))
    reached = "reached, geometric mean" if several else "reached"
    grid.add_row("speed of light", percent(share), f"{reached}; the floor is {duration(floor)}")
    grid.add_row("error", number(worst.error), f"{_of_limit(worst)} {number(worst.error_limit)}")
    references = ", ".join(dict.fromkeys(w.reference for w in evaluation.workloads))
    checks = sum(w.checks for w in evaluation.workloads)
    grid.add_row("checked", f"{checks} inputs", f"against {references}")
    return grid


def _of_limit(result: WorkloadResult) -> str:
    if result.error_limit <= 0 or not math.isfinite(result.error_limit):
        return "limit"
    return f"{percent(result.error / result.error_limit)} of the limit"


def _sizes(result: WorkloadResult) -> str:
    return ", ".join(f"{axis}={value}" for axis, value in result.axes)


def _workloads(evaluation: Evaluation) -> Table:
    """A row per workload; intervals only where there is room for them."""
    names = baseline_names(evaluation)
    table = _plain_table()
    longest = max(len(result.workload) for result in evaluation.workloads)
    table.add_column("workload", overflow="fold", min_width=min(longest, _WORKLOAD_WIDTH))
    table.add_column("latency", justify="right", no_wrap=True)
    for name in names:
        table.add_column(f"vs {name}")
    table.add_column("of light", justify="right", no_wrap=True)
    table.add_column("error/limit", justify="right", no_wrap=True)
    for result in evaluation.workloads:
        found = {b.name: b for b in result.baselines}
        cells: list[RenderableType] = [result.workload, duration(result.latency_ms)]
        for name in names:
            if name not in found:
                cells.append("–")
                continue
            interval = found[name].interval
            text = Text(f"{ratio(found[name].speedup)}x", _STYLES.get(verdict(interval), ""))
            if len(names) == 1:
                text.append(f" {_bounds(interval)}", "dim")
            cells.append(text)
        table.add_row(*cells, percent(result.share_of_floor), _strain(result))
    return table


def _strain(result: WorkloadResult) -> str:
    if result.error_limit <= 0:
        return "exact" if result.error == 0 else "–"
    return percent(result.error / result.error_limit)


def _circumstances(judged: Judged) -> Table:
    """How it was judged: device, tools, sandbox, notes."""
    evaluation = judged.evaluation
    env = evaluation.environment
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for index, kernel in enumerate(evaluation.resources[:_KERNELS_SHOWN]):
        grid.add_row("kernels" if index == 0 else "", _usage(kernel))
    if len(evaluation.resources) > _KERNELS_SHOWN:
        grid.add_row("", f"and {len(evaluation.resources) - _KERNELS_SHOWN} more")
    driver = f", driver {env.driver}" if env.driver else ""
    used = f", {env.threads} thread{'s' * (env.threads > 1)}" if env.threads and env.backend == "cpu" else ""
    grid.add_row("device", f"{env.device}{driver}{used}")
    tools = [env.compiler, f"torch {env.torch}" if env.torch else ""]
    grid.add_row("tools", ", ".join(tool for tool in tools if tool))
    if env.sandbox:
        grid.add_row("sandbox", ", ".join(env.sandbox))
    for index, note in enumerate(evaluation.notes):
        grid.add_row("notes" if index == 0 else "", note)
    grid.add_row("time", f"{number(evaluation.seconds)} s" + _cached(judged))
    return grid


def _cached(judged: Judged) -> str:
    hint = " (--fresh judges it again)" if judged.fresh else ""
    return f", from the cache{hint}" if judged.evaluation.cached else ""


def _usage(kernel: Resources) -> str:
    used = [f"{kernel.registers} registers"] if kernel.registers else []
    used.append(f"{size(kernel.spill_bytes)} spilled" if kernel.spill_bytes else "no spills")
    if kernel.shared_bytes:
        used.append(f"{size(kernel.shared_bytes)} shared")
    if kernel.stack_bytes:
        used.append(f"{size(kernel.stack_bytes)} stack")
    name = kernel.kernel.partition("(")[0]  # overloads differ in their template arguments, which stay
    return f"{name if len(name) <= _NAME_WIDTH else name[: _NAME_WIDTH - 1] + '…'}: {', '.join(used)}"


# --- several verdicts ---


def overview(judged: Sequence[Judged]) -> RenderableType:
    """A row per file: valid ones by speedup, then the others with a short reason."""
    names = _short_names([j.file for j in judged])
    valid = sorted((j for j in judged if j.evaluation.ok), key=_rank)
    failed = [j for j in judged if not j.evaluation.ok]
    first = judged[0].evaluation
    about = f"{first.task}, {first.precision}, on {first.environment.device}"
    parts: list[RenderableType] = [Text(about, "bold"), Text()]
    if valid:
        parts += [_indent(_ranking(valid, names)), Text()]
    if failed:
        parts += [_indent(_failures(failed, names)), Text()]
    return Group(*parts, Sentence(_summary(judged, valid)))


def _rank(judged: Judged) -> tuple[float, float]:
    """Fastest first: by speedup over the first baseline, by latency where none was measured."""
    names = baseline_names(judged.evaluation)
    speedup = judged.evaluation.speedup(names[0]) if names else None
    return (-(speedup or 0.0), latency_ms(judged.evaluation) or 0.0)


def _short_names(files: Sequence[str]) -> Mapping[str, str]:
    """Without folders, as long as that leaves different files different names."""
    plain = {file: file.rsplit("/", 1)[-1] for file in files}
    return plain if len(set(plain.values())) == len(plain) else {file: file for file in files}


def _ranking(valid: Sequence[Judged], shown: Mapping[str, str]) -> Table:
    names = tuple(dict.fromkeys(n for j in valid for n in baseline_names(j.evaluation)))
    table = _plain_table()
    table.add_column("", no_wrap=True)
    table.add_column("file", overflow="fold")
    for name in names:
        table.add_column(f"vs {name}", justify="right", no_wrap=True)
        if len(names) == 1:  # with more there is no room
            table.add_column("±", justify="right", no_wrap=True, style="dim")
    for heading in ("latency", "of light", "error"):
        table.add_column(heading, justify="right", no_wrap=True)
    for judged in valid:
        evaluation, worst = judged.evaluation, worst_error(judged.evaluation)
        cells: list[RenderableType] = [_word(evaluation, names), shown[judged.file]]
        for name in names:
            speedup, interval = evaluation.speedup(name), evaluation.interval(name)
            style = _STYLES.get(verdict(interval), "") if interval else ""
            cells.append(Text(f"{ratio(speedup)}x" if speedup else "–", style))
            if len(names) == 1:
                cells.append(_margin(speedup, interval) if speedup and interval else "")
        latency, share = latency_ms(evaluation) or 0.0, share_of_floor(evaluation) or 0.0
        table.add_row(*cells, duration(latency), percent(share), number(worst.error if worst else 0.0, 2))
    return table


def _margin(speedup: float, interval: Interval) -> str:
    """The wider side of the interval, relative to the speedup: the table has no room for both ends."""
    return f"{number(100 * max(interval.high - speedup, speedup - interval.low) / speedup, 2)} %"


def _word(evaluation: Evaluation, names: Sequence[str]) -> Text:
    """What may be said about it against the first baseline."""
    interval = evaluation.interval(names[0]) if names else None
    if interval is None:
        return Text("✓", "green")
    said = verdict(interval)
    return Text(said.value, _STYLES.get(said, ""))


def _failures(failed: Sequence[Judged], shown: Mapping[str, str]) -> Table:
    table = _plain_table()
    table.add_column("", no_wrap=True)
    table.add_column("file", overflow="fold")
    table.add_column("status", no_wrap=True)
    table.add_column("reason", overflow="fold", ratio=1)
    for judged in failed:
        evaluation = judged.evaluation
        mine = evaluation.status is Status.NOT_JUDGED
        word = evaluation.status.value.replace("_", " ")
        mark = Text("–" if mine else "✗", "magenta" if mine else "red")
        table.add_row(mark, shown[judged.file], Text(word, "red" if not mine else "magenta"), short(evaluation.reason))
    return table


def short(reason: str) -> str:
    """The beginning of a reason on one line, cut between words."""
    return textwrap.shorten(reason, _SHORT_REASON, placeholder=" …")


def _summary(judged: Sequence[Judged], valid: Sequence[Judged]) -> Text:
    text = Text(f"{len(valid)} of {len(judged)} valid.")
    if not valid:
        return text
    best = valid[0]
    names = baseline_names(best.evaluation)
    speedup, interval = (
        (best.evaluation.speedup(names[0]), best.evaluation.interval(names[0])) if names else (None, None)
    )
    if speedup is None or interval is None:
        return text
    return Text.assemble(text, " Best: ", (best.file, "bold"), ": ", compared(names[0], speedup, interval))


# --- doctor ---


def checklist(groups: Sequence[tuple[str, Sequence[CheckDocument]]]) -> RenderableType:
    """What this machine can do, with what to do about the rest."""
    parts: list[RenderableType] = []
    for heading, checks in groups:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True, min_width=18)
        grid.add_column(overflow="fold")
        for check in checks:
            mark, style = _MARKS[check.state]
            said = Text(check.detail, "dim" if check.state == "absent" else "")
            if check.advice:
                said.append(f"\n→ {check.advice}", "yellow" if check.state == "missing" else "dim")
            grid.add_row(Text(mark, style), check.name, said)
        parts += [Text(heading, "bold"), _indent(grid), Text()]
    return Group(*parts[:-1])


# --- shared ---


def _plain_table() -> Table:
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")


def _indent(body: RenderableType) -> Padding:
    return Padding(body, (0, 0, 0, 2), expand=False)
