"""Makes the document of a bench's page from the results of the bench.

Statistics come from `experiments.statistics`; only the progress by trial, which no table has, is computed here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from warpsmith.evaluator.judge.timing.statistics import classify
from warpsmith.experiments.formats import figure
from warpsmith.experiments.results import BenchResults, BenchTask, Cell, CellStatus
from warpsmith.experiments.statistics import (
    Estimate,
    Means,
    MethodComparison,
    TaskResult,
    compare_methods,
    counted_best,
    fast_curve,
    pooled,
    summary,
)
from warpsmith.experiments.tables import Table, refused_table, tables
from warpsmith.model import numbers
from warpsmith.model.evaluation import Interval
from warpsmith.report.document import (
    BenchPage,
    CellView,
    DuelView,
    EstimateView,
    Fact,
    FamilyView,
    Figure,
    GroupView,
    PlainTableView,
    RunView,
    TaskView,
)

_OTHER = "other"
_MOST_ROWS = 200  # of such a table
_IN_WORDS = ("baselines", "rules", "refused", "tokens", "epochs", "products", "differences")  # tables as they are


def bench_page(bench: BenchResults, reports: Mapping[str, str] | None = None) -> BenchPage:
    """The page of a bench. `reports`: addresses of the reports of its runs, by the folder of the run."""
    unverified = not bench.verify  # a bench without verification counts all winners
    groups = tuple(_group(bench, place, unverified) for place in range(len(bench.groups)))
    return BenchPage(
        title=bench.name,
        subtitle=_subtitle(bench),
        figures=tuple(_figures(bench, groups)),
        remarks=tuple(_remarks(bench, unverified)),
        facts=tuple(_facts(bench)),
        counts_unverified=unverified,
        groups=groups,
        tasks=tuple(_task(bench, task, unverified) for task in bench.tasks),
        families=tuple(_families(bench, unverified)),
        duels=tuple(_duel(bench, each) for each in compare_methods(bench, unverified=unverified)),
        runs=tuple(_run(bench, cell, reports or {}) for cell in bench.cells),
        tables=tuple(
            _words(table)
            for table in (*tables(bench, unverified=unverified), refused_table(bench))
            if table.key in _IN_WORDS and table.rows
        ),
    )


def _words(table: Table) -> PlainTableView:
    left = len(table.rows) - _MOST_ROWS
    more = f"{left} more rows: warpsmith bench show --part {table.key}." if left > 0 else ""
    rows = tuple(
        tuple(figure(value, column.kind) for value, column in zip(row, table.columns, strict=True))
        for row in table.rows[:_MOST_ROWS]
    )
    return PlainTableView(
        table.title, tuple(column.name for column in table.columns), rows, f"{table.note} {more}".strip()
    )


# --- the top ---


def _subtitle(bench: BenchResults) -> str:
    devices = " and ".join(bench.devices) or "no device yet"
    parts = (
        _plural(len(bench.methods), "method"),
        _plural(len(bench.proposers), "proposer") if len(bench.proposers) > 1 else "",
        _plural(len(bench.tasks), "task"),
        _plural(bench.repeats, "repeat"),
    )
    return f"{' × '.join(filter(None, parts))} on {devices}"


def _plural(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _figures(bench: BenchResults, groups: Sequence[GroupView]) -> Iterator[Figure]:
    known = [group for group in groups if group.or_pytorch is not None]
    if known:
        first = max(known, key=lambda group: group.or_pytorch.value if group.or_pytorch else 0.0)
        assert first.or_pytorch is not None, "groups without a mean were left out"
        mean = first.or_pytorch
        interval = f", {_bounds(mean.low, mean.high)}" if mean.low and mean.high else ""
        note = f"{first.name}, mean of all tasks{interval}"
        verdict = classify(Interval(mean.low, mean.high)) if mean.low and mean.high else None
        yield Figure(f"{numbers.ratio(mean.value)}×", "over PyTorch eager", note, verdict)
        faster = [share for p, share in first.fast if p <= 1.0]
        yield Figure(numbers.percent(faster[-1] if faster else 0.0), "faster than PyTorch", f"{first.name}, fast₁")
        if first.share:
            yield Figure(numbers.percent(first.share.value), "of roofline", f"{first.name}, where it won")
    else:
        yield Figure("–", "speedup", "no kernel yet")
    winners, cells = sum(group.winners for group in groups), len(bench.cells)
    yield Figure(
        f"{winners}", "best kernels that count", f"of {_plural(cells, 'run')}, {bench.count(CellStatus.DONE)} done"
    )
    tokens, prices = sum(cell.tokens for cell in bench.cells), [cell.usd for cell in bench.cells]
    known_prices = [price for price in prices if price is not None]
    if tokens:
        unknown = len(prices) - len(known_prices)
        note = f"{numbers.count(tokens)} tokens" + (f", {unknown} runs without a known price" if unknown else "")
        yield Figure(numbers.dollars(sum(known_prices)), "spent", note)
    device_s = sum(cell.device_seconds for cell in bench.cells)
    wall_s = sum(cell.wall_seconds for cell in bench.cells)
    yield Figure(
        numbers.elapsed(device_s), "on the device", f"{numbers.elapsed(wall_s)} of searching, all runs together"
    )


def _bounds(low: float, high: float) -> str:
    return f"{numbers.ratio(low)}× to {numbers.ratio(high)}×"


def _remarks(bench: BenchResults, unverified: bool) -> Iterator[str]:
    if unverified:
        yield "The best kernels were not verified in this bench; all of them count."
    else:
        yield "Only verified kernels count; the others are shown in brackets and listed separately."
    for status, words in ((CellStatus.UNFINISHED, "not finished yet"), (CellStatus.FAILED, "failed")):
        if count := bench.count(status):
            yield f"{count} of {_plural(len(bench.cells), 'run')} {words}."


def _facts(bench: BenchResults) -> Iterator[Fact]:
    yield Fact("Methods", ", ".join(bench.methods))
    yield Fact("Proposers", ", ".join(bench.proposers))
    yield Fact("Devices", ", ".join(bench.devices))
    yield Fact("Language", bench.backend)
    yield Fact("Budget of a run", ", ".join(_budget(bench)))
    yield Fact("Repeats", f"{bench.repeats}, seeds from {bench.seed}")
    yield Fact("Begun", bench.date)
    used = bench.versions
    versions = (
        f"torch {used.torch}" if used.torch else "",
        used.compiler,
        f"driver {used.driver}" if used.driver else "",
    )
    yield Fact("Measured with", ", ".join(filter(None, versions)) or "nothing yet")
    yield Fact("Written by", f"Warpsmith {used.warpsmith}, bench {bench.id}")


def _budget(bench: BenchResults) -> Iterator[str]:
    budget = bench.budget
    yield f"{budget.trials} trials"
    if budget.seconds is not None:
        yield numbers.elapsed(budget.seconds)
    if budget.tokens is not None:
        yield f"{numbers.count(budget.tokens)} tokens"
    if budget.usd is not None:
        yield numbers.dollars(budget.usd)
    if budget.device_seconds is not None:
        yield f"{numbers.elapsed(budget.device_seconds)} of the device"


# --- methods ---


def _name(bench: BenchResults, method: str, proposer: str) -> str:
    if len(bench.proposers) == 1:
        return method
    return proposer if len(bench.methods) == 1 else f"{method}, {proposer}"


def _group(bench: BenchResults, place: int, unverified: bool) -> GroupView:
    method, proposer = bench.groups[place]
    cells = list(bench.of_group(method, proposer))
    said = summary((method, proposer), cells, unverified=unverified)
    return GroupView(
        name=_name(bench, method, proposer),
        method=method,
        proposer=proposer,
        cells=said.cells,
        done=said.done,
        failed=said.failed,
        winners=said.winners,
        unverified=said.unverified,
        or_pytorch=_estimated(said.or_pytorch),
        eager=_mean(said.eager),
        median=_estimated(said.eager.median if said.eager else None),
        compile=_mean(said.compile),
        start=_mean(said.start),
        validity=_estimated(said.validity),
        compile_rate=_estimated(said.compile_rate),
        share=_estimated(said.share_of_floor),
        tokens=said.tokens,
        prompt_tokens=said.prompt_tokens,
        usd=said.usd,
        device_s=said.device_seconds,
        wall_s=said.wall_seconds,
        fast=fast_curve(cells, unverified=unverified),
        progress=_progress([cell for cell in cells if cell.done], bench.budget.trials),
    )


def _mean(means: Means | None) -> EstimateView | None:
    return _estimated(means.geometric) if means else None


def _estimated(estimate: Estimate | None) -> EstimateView | None:
    if estimate is None:
        return None
    interval: Interval | None = estimate.interval
    return EstimateView(estimate.value, interval.low if interval else None, interval.high if interval else None)


def _progress(cells: Sequence[Cell], trials: int) -> tuple[float, ...]:
    """The best speedup after each trial, geometric mean over runs; 1 for a run with no kernel faster than PyTorch."""
    if not cells:
        return ()
    sums = [0.0] * trials
    for cell in cells:
        ends = [point.trial for point in cell.curve[1:]] + [trials + 1]
        for point, end in zip(cell.curve, ends, strict=False):
            for trial in range(max(point.trial, 1), min(end, trials + 1)):
                sums[trial - 1] += max(0.0, math.log(point.speedup))
    return tuple(math.exp(total / len(cells)) for total in sums)


# --- tasks ---


def _task(bench: BenchResults, task: BenchTask, unverified: bool) -> TaskView:
    own = list(bench.of_task(task.name))
    cells = tuple(
        _cell([cell for cell in own if (cell.method, cell.proposer) == group], unverified) for group in bench.groups
    )
    found = [(cell.speedup.value, -place) for place, cell in enumerate(cells) if cell.speedup]
    return TaskView(
        name=task.name,
        family=task.family or _OTHER,
        zone=task.zone,
        precision=task.precision,
        floor_ms=task.floor_ms,
        eager_ms=task.eager_ms,
        compile_ms=task.compile_ms,
        cells=cells,
        best=-max(found)[1] if found else -1,
    )


def _cell(cells: Sequence[Cell], unverified: bool) -> CellView:
    winners = [best for cell in cells if (best := counted_best(cell, unverified=unverified)) is not None]
    lost = [cell.best for cell in cells if cell.best is not None and counted_best(cell, unverified=unverified) is None]
    speedup = pooled([best.eager for best in winners])
    over_compile = pooled([best.compile for best in winners if best.compile])
    shares = [best.share_of_floor for best in winners]
    return CellView(
        speedup=EstimateView(speedup.value, speedup.low, speedup.high) if speedup else None,
        unverified=max((best.eager.value for best in lost), default=None),
        compile=over_compile.value if over_compile else None,
        share=sum(shares) / len(shares) if shares else None,
        done=sum(cell.done for cell in cells),
        failed=sum(cell.status is CellStatus.FAILED for cell in cells),
        note=_note(cells, bool(winners)),
    )


def _note(cells: Sequence[Cell], won: bool) -> str:
    if won or not cells:
        return ""
    for cell in cells:
        if cell.best is not None and cell.best.why_not:
            return cell.best.why_not
    return cells[0].reason


def _families(bench: BenchResults, unverified: bool) -> Iterator[FamilyView]:
    names = dict.fromkeys(task.family or _OTHER for task in bench.tasks)
    for name in names:
        tasks = {task.name for task in bench.tasks if (task.family or _OTHER) == name}
        means = []
        for group in bench.groups:
            cells = [cell for cell in bench.of_group(*group) if cell.task in tasks]
            means.append(_estimated(summary(group, cells, unverified=unverified).or_pytorch))
        yield FamilyView(name, len(tasks), tuple(means))


def _duel(bench: BenchResults, each: MethodComparison) -> DuelView:
    return DuelView(
        one=bench.groups.index(each.one),
        other=bench.groups.index(each.other),
        wins=each.count(TaskResult.WIN),
        ties=each.count(TaskResult.TIE),
        losses=each.count(TaskResult.LOSS),
        neither=each.count(TaskResult.NEITHER),
        ratio=_estimated(each.ratio),
    )


def _run(bench: BenchResults, cell: Cell, reports: Mapping[str, str]) -> RunView:
    best = cell.best
    return RunView(
        task=cell.task,
        group=bench.groups.index((cell.method, cell.proposer)),
        seed=cell.seed,
        status=cell.status.value,
        reason=cell.reason,
        trials=cell.trials,
        valid=cell.valid,
        speedup=best.eager.value if best else None,
        low=best.eager.low if best else None,
        high=best.eager.high if best else None,
        verified=best.verified if best else None,
        why_not=best.why_not if best else "",
        candidate=best.candidate if best else "",
        strategy=best.strategy if best else "",
        tokens=cell.tokens,
        usd=cell.usd,
        device_s=cell.device_seconds,
        report=reports.get(cell.run, ""),
    )
