"""Evaluations for people: the card of one, the table of several.

Laid out for 80 columns. Colour alone says nothing, so that a log file and NO_COLOR lose nothing.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from warpsmith.cli.json_documents import (
    baseline_ms,
    baseline_names,
    candidate_ms,
    floor_ms,
    latency_ms,
    share_of_floor,
    worst_error,
)
from warpsmith.cli.terminal import Reason, Sentence, indented, plain_table
from warpsmith.cli.terminal import console as console  # with `say` and `show`, all that a command prints with
from warpsmith.cli.terminal import say as say
from warpsmith.cli.terminal import show as show
from warpsmith.evaluator.judge.timing.statistics import SpeedupClass, classify
from warpsmith.model import numbers
from warpsmith.model.evaluation import Evaluation, Interval, Resources, Status, WorkloadResult

_BASELINES = {"eager": "PyTorch eager", "compile": "torch.compile", "start": "the starting kernel"}
_STYLES = {SpeedupClass.FASTER: "bold green", SpeedupClass.SLOWER: "bold red"}
_SHORT_REASON = 150  # characters of a reason in a table
_KERNELS_SHOWN = 6
_NAME_WIDTH = 48
_WORKLOAD_WIDTH = 16  # least width of a workload's name; on a narrow terminal intervals wrap first


@dataclass(frozen=True)
class JudgedFile:
    """A file with its verdict."""

    file: str  # as given
    evaluation: Evaluation
    fresh: bool = False  # the command that shows it has the option --fresh


def _bounds(interval: Interval) -> str:
    return f"[{numbers.ratio(interval.low)}, {numbers.ratio(interval.high)}]"


# --- one verdict ---


def card(judged: JudgedFile) -> RenderableType:
    """Everything about one file."""
    evaluation = judged.evaluation
    parts: list[RenderableType] = [Sentence(_title(judged)), Text()]
    if evaluation.warning:
        style = "bold red" if evaluation.without else "yellow"
        parts += [indented(Sentence(Text(evaluation.warning, style))), Text()]
    if evaluation.ok:
        parts += [indented(line) for line in _headlines(evaluation)]
        parts += [Text(), indented(_figures(evaluation))]
        if len(evaluation.workloads) > 1:
            parts += [Text(), indented(_workloads(evaluation))]
    else:
        parts.append(indented(Reason(evaluation.reason.rstrip())))
    return Group(*parts, Text(), indented(_environment(judged)))


def _title(judged: JudgedFile) -> Text:
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
    """A line for each baseline."""
    lines = []
    for name in baseline_names(evaluation):
        speedup, interval = evaluation.speedup(name), evaluation.interval(name)
        if speedup is None or interval is None:
            continue
        lines.append(compared(name, speedup, interval))
    return lines or [Text("No baseline could be measured, so there is no speedup.", "yellow")]


def compared(name: str, speedup: float, interval: Interval) -> Text:
    """`1.84x faster than PyTorch eager  [1.81, 1.87]`; "faster" and "slower" only if the interval excludes 1."""
    other = _BASELINES.get(name, name)
    found = classify(interval)
    words = {
        SpeedupClass.FASTER: f"{numbers.ratio(speedup)}x faster than {other}",
        SpeedupClass.SLOWER: f"{numbers.ratio(speedup)}x, slower than {other}",
        SpeedupClass.SAME: f"{numbers.ratio(speedup)}x, same speed as {other}",
        SpeedupClass.UNCLEAR: f"inconclusive: {numbers.ratio(interval.low)}x to {numbers.ratio(interval.high)}x "
        f"(median {numbers.ratio(speedup)}x) against {other}",
    }[found]
    if found is SpeedupClass.UNCLEAR:
        return Text(words, "bold")
    return Text.assemble((words, _STYLES.get(found, "bold")), "  ", (_bounds(interval), "dim"))


def advice(speedup: float, interval: Interval, again: str) -> str:
    """What a user should do whose best kernel is not known to be faster than PyTorch; "" if it is.

    `again` is the command that measures the kernel again.
    """
    if classify(interval) is SpeedupClass.FASTER:
        return ""
    if speedup > 1.0 and classify(interval) is SpeedupClass.UNCLEAR:
        return (
            "The times varied too much to say whether a kernel beats PyTorch here. Measure the best one again when the "
            f"machine is idle: {again}"
        )
    return f"No kernel beat PyTorch here. Best: {numbers.ratio(speedup)}x. Keep PyTorch."


def _figures(evaluation: Evaluation) -> Table:
    """Latency, share of the roofline, error and number of checks."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(style="dim", overflow="fold")
    latency, floor, share = latency_ms(evaluation), floor_ms(evaluation), share_of_floor(evaluation)
    worst = worst_error(evaluation)
    if latency is None or floor is None or share is None or worst is None:
        return grid
    several = len(evaluation.workloads) > 1
    what = "geometric mean" if several else _sizes(evaluation.workloads[0])
    names = baseline_names(evaluation)
    if not names:
        grid.add_row("latency", numbers.duration(latency), what)
    for place, name in enumerate(names):  # times of the pairs that give the ratio: each baseline has pairs of its own
        about = f"{name} {numbers.duration(baseline_ms(evaluation, name))}"
        about += "; measured apart" if place else f"; {what}".rstrip("; ")
        grid.add_row("" if place else "latency", numbers.duration(candidate_ms(evaluation, name)), about)
    mean = ", geometric mean" if several else ""
    known = f"{numbers.duration(floor)} at best{mean}"
    if share > 1:
        known = f"more than {known}: the peaks were measured on a busy machine, or the data fit in a cache"
    grid.add_row("of roofline", numbers.percent(share), known)
    grid.add_row("error", numbers.number(worst.error), f"{_of_limit(worst)} {numbers.number(worst.error_limit)}")
    references = ", ".join(dict.fromkeys(w.reference for w in evaluation.workloads))
    checks = sum(w.checks for w in evaluation.workloads)
    grid.add_row("checked", f"{checks} inputs", f"against {references}")
    return grid


def _of_limit(result: WorkloadResult) -> str:
    if result.error_limit <= 0 or not math.isfinite(result.error_limit):
        return "limit"
    return f"{numbers.percent(result.error / result.error_limit)} of the limit"


def _sizes(result: WorkloadResult) -> str:
    return ", ".join(f"{axis}={value}" for axis, value in result.axes)


def _workloads(evaluation: Evaluation) -> Table:
    """A row for each workload, with intervals if there is one baseline."""
    names = baseline_names(evaluation)
    table = plain_table()
    longest = max(len(result.workload) for result in evaluation.workloads)
    table.add_column("workload", overflow="fold", min_width=min(longest, _WORKLOAD_WIDTH))
    table.add_column("latency", justify="right", no_wrap=True)
    for name in names:
        table.add_column(f"vs {name}")
    table.add_column("of roofline", justify="right", no_wrap=True)
    table.add_column("error/limit", justify="right", no_wrap=True)
    for result in evaluation.workloads:
        found = {b.name: b for b in result.baselines}
        cells: list[RenderableType] = [result.workload, numbers.duration(result.latency_ms)]
        for name in names:
            if name not in found:
                cells.append("–")
                continue
            interval = found[name].interval
            text = Text(f"{numbers.ratio(found[name].speedup)}x", _STYLES.get(classify(interval), ""))
            if len(names) == 1:
                text.append(f" {_bounds(interval)}", "dim")
            cells.append(text)
        table.add_row(*cells, numbers.percent(result.share_of_floor), _error_share(result))
    return table


def _error_share(result: WorkloadResult) -> str:
    if result.error_limit <= 0:
        return "exact" if result.error == 0 else "–"
    return numbers.percent(result.error / result.error_limit)


def _environment(judged: JudgedFile) -> Table:
    """Kernels, device, tools, sandbox, notes and time."""
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
    grid.add_row("time", f"{numbers.number(evaluation.seconds)} s" + _cached(judged))
    return grid


def _cached(judged: JudgedFile) -> str:
    hint = " (--fresh judges it again)" if judged.fresh else ""
    return f", from the cache{hint}" if judged.evaluation.cached else ""


def _usage(kernel: Resources) -> str:
    used = [f"{kernel.registers} registers"] if kernel.registers else []
    used.append(f"{numbers.memory_size(kernel.spill_bytes)} spilled" if kernel.spill_bytes else "no spills")
    if kernel.shared_bytes:
        used.append(f"{numbers.memory_size(kernel.shared_bytes)} shared")
    if kernel.stack_bytes:
        used.append(f"{numbers.memory_size(kernel.stack_bytes)} stack")
    name = kernel.kernel.partition("(")[0]  # without parameters; overloads still differ in template arguments
    return f"{name if len(name) <= _NAME_WIDTH else name[: _NAME_WIDTH - 1] + '…'}: {', '.join(used)}"


# --- several verdicts ---


def overview(judged: Sequence[JudgedFile]) -> RenderableType:
    """A row for each file: valid ones by speedup, then the others with a short reason."""
    names = _short_names([j.file for j in judged])
    valid = sorted((j for j in judged if j.evaluation.ok), key=_rank)
    failed = [j for j in judged if not j.evaluation.ok]
    first = judged[0].evaluation
    about = f"{first.task}, {first.precision}, on {first.environment.device}"
    parts: list[RenderableType] = [Text(about, "bold"), Text()]
    if valid:
        parts += [indented(_ranking(valid, names)), Text()]
    if failed:
        parts += [indented(_failures(failed, names)), Text()]
    return Group(*parts, Sentence(_summary(judged, valid)))


def _rank(judged: JudgedFile) -> tuple[float, float]:
    """Sort key, fastest first: by speedup over the first baseline, by latency if none was measured."""
    names = baseline_names(judged.evaluation)
    speedup = judged.evaluation.speedup(names[0]) if names else None
    return (-(speedup or 0.0), latency_ms(judged.evaluation) or 0.0)


def _short_names(files: Sequence[str]) -> Mapping[str, str]:
    """File names without folders, unless two files would have the same name."""
    plain = {file: file.rsplit("/", 1)[-1] for file in files}
    return plain if len(set(plain.values())) == len(plain) else {file: file for file in files}


def _ranking(valid: Sequence[JudgedFile], shown: Mapping[str, str]) -> Table:
    names = tuple(dict.fromkeys(n for j in valid for n in baseline_names(j.evaluation)))
    table = plain_table()
    table.add_column("", no_wrap=True)
    table.add_column("file", overflow="fold")
    for name in names:
        table.add_column(f"vs {name}", justify="right", no_wrap=True)
        if len(names) == 1:  # there is no room for more
            table.add_column("±", justify="right", no_wrap=True, style="dim")
    for heading in ("latency", "of roofline", "error"):
        table.add_column(heading, justify="right", no_wrap=True)
    for judged in valid:
        evaluation, worst = judged.evaluation, worst_error(judged.evaluation)
        mark = f" ({evaluation.mark})" if evaluation.mark else ""
        cells: list[RenderableType] = [_comparison(evaluation, names), f"{shown[judged.file]}{mark}"]
        for name in names:
            speedup, interval = evaluation.speedup(name), evaluation.interval(name)
            style = _STYLES.get(classify(interval), "") if interval else ""
            cells.append(Text(f"{numbers.ratio(speedup)}x" if speedup else "–", style))
            if len(names) == 1:
                cells.append(_margin(speedup, interval) if speedup and interval else "")
        latency, share = latency_ms(evaluation) or 0.0, share_of_floor(evaluation) or 0.0
        table.add_row(
            *cells, numbers.duration(latency), numbers.percent(share), numbers.number(worst.error if worst else 0.0, 2)
        )
    return table


def _margin(speedup: float, interval: Interval) -> str:
    """The wider side of the interval, relative to the speedup; the table has no room for both ends."""
    return f"{numbers.number(100 * max(interval.high - speedup, speedup - interval.low) / speedup, 2)} %"


def _comparison(evaluation: Evaluation, names: Sequence[str]) -> Text:
    """Faster, slower, same or unclear against the first baseline."""
    interval = evaluation.interval(names[0]) if names else None
    if interval is None:
        return Text("✓", "green")
    found = classify(interval)
    return Text(found.value, _STYLES.get(found, ""))


def _failures(failed: Sequence[JudgedFile], shown: Mapping[str, str]) -> Table:
    table = plain_table()
    table.add_column("", no_wrap=True)
    table.add_column("file", overflow="fold")
    table.add_column("status", no_wrap=True)
    table.add_column("reason", overflow="fold", ratio=1)
    for judged in failed:
        evaluation = judged.evaluation
        mark, style = ("–", "magenta") if evaluation.status is Status.NOT_JUDGED else ("✗", "red")
        word = evaluation.status.value.replace("_", " ")
        table.add_row(Text(mark, style), shown[judged.file], Text(word, style), short(evaluation.reason))
    return table


def short(reason: str) -> str:
    """The beginning of a reason on one line, cut between words."""
    return textwrap.shorten(reason, _SHORT_REASON, placeholder=" …")


def _summary(judged: Sequence[JudgedFile], valid: Sequence[JudgedFile]) -> Text:
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
