"""Makes the suites' tables in README.md and docs/suites.md from the records, so that no figure is written by hand.

    python -m benchmarks.readme_table
    python -m benchmarks.readme_table --check

README has a line per family, docs/suites.md a line per workload, each between two marks. Only verified kernels count;
those that are not are named apart. Where there is no record yet, the tables say so. It measures nothing.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks.suite_figures import (
    BestFigures,
    BestRecord,
    SuiteRecord,
    TaskFigures,
    WorkloadFigures,
    read_best,
    read_suite,
)

from warpsmith.model.errors import UsageError, WarpsmithError
from warpsmith.system.files import put_in_place

ROOT = Path(__file__).resolve().parent.parent
SUITE = ROOT / "benchmarks" / "h200" / "suite.json"
BEST = ROOT / "benchmarks" / "h200" / "suite_best.json"
BEGIN, END = "<!-- suite table -->", "<!-- /suite table -->"
_PRECISION = "fp32"  # what the tables compare in; docs/suites.md has PyTorch's tf32 times too
_NONE = "–"
_NOTHING = (
    "Not measured yet. On a machine with a GPU, `python -m benchmarks.suite_record --json benchmarks/h200/suite.json` "
    "makes the record of PyTorch's times, and `python -m benchmarks.readme_table` writes this table from it."
)


# --- figures ---


def mean(values: Iterable[float]) -> float | None:
    """The geometric mean; None of nothing."""
    logs = [math.log(value) for value in values if value > 0]
    return math.exp(sum(logs) / len(logs)) if logs else None


def gain(task: TaskFigures) -> float | None:
    """How much faster torch.compile is than eager, over the task's workloads."""
    return _ratio(task, lambda w: (w.ms("eager", _PRECISION), w.ms("compile", _PRECISION)))


def share(task: TaskFigures) -> float | None:
    """Of the hardware limit: what eager reaches."""
    return _ratio(task, lambda w: (_floor_ms(w), w.ms("eager", _PRECISION)))


def over_compile(task: TaskFigures, best: BestFigures) -> float | None:
    """How much faster a kernel is than torch.compile."""
    return _ratio(task, lambda w: (w.ms("compile", _PRECISION), best.latency_ms.get(w.workload)))


def best_share(task: TaskFigures, best: BestFigures) -> float | None:
    """Of the hardware limit: what a kernel reaches."""
    return _ratio(task, lambda w: (_floor_ms(w), best.latency_ms.get(w.workload)))


def _ratio(task: TaskFigures, pair: Callable[[WorkloadFigures], tuple[float | None, float | None]]) -> float | None:
    """The mean over the workloads of one time divided by another; None where one of them is missing somewhere."""
    pairs = [pair(workload) for workload in task.workloads]
    found = [above / below for above, below in pairs if above and below]
    return mean(found) if len(found) == len(pairs) else None


def _floor_ms(workload: WorkloadFigures) -> float | None:
    bound = workload.bound(_PRECISION)
    return bound.floor_ms if bound else None


# --- the table of families ---


def families(suite: SuiteRecord | None, best: BestRecord | None) -> str:
    """A line per family, for README."""
    if suite is None or not suite.tasks:
        return _NOTHING
    found = {each.task: each for each in best.tasks} if best else {}
    kinds = list(dict.fromkeys(task.family for task in suite.tasks))
    rows = [(kind, [task for task in suite.tasks if task.family == kind]) for kind in sorted(kinds)]
    rows.append(("all", list(suite.tasks)))
    lines = [
        "| family | tasks | eager, of roofline | torch.compile over eager "
        "| kernels of the catalogue, verified | over eager | over torch.compile | of roofline |",
        "|---|---|---|---|---|---|---|---|",
        *(_family(kind, tasks, found) for kind, tasks in rows),
    ]
    return "\n".join([_measured(suite), "", *lines, "", *_searched(best)])


def _family(kind: str, tasks: Sequence[TaskFigures], found: dict[str, BestFigures]) -> str:
    kernels = [(task, found[task.task]) for task in tasks if task.task in found and found[task.task].verified]
    cells = [
        kind,
        str(len(tasks)),
        _percent(mean(filter(None, map(share, tasks)))),
        _times(mean(filter(None, map(gain, tasks)))),
        str(len(kernels)) if kernels else _NONE,
        _times(mean(best.speedup for _, best in kernels if best.speedup)),
        _times(mean(filter(None, (over_compile(task, best) for task, best in kernels)))),
        _percent(mean(filter(None, (best_share(task, best) for task, best in kernels)))),
    ]
    return f"| {' | '.join(cells)} |"


def _measured(suite: SuiteRecord) -> str:
    versions = ", ".join(f"{name} {value}" for name, value in suite.versions.items() if value)
    small = "" if suite.size == "full" else f" at the {suite.size} size"
    return (
        f"{len(suite.tasks)} tasks on {suite.device}{small}, {suite.date[:10]}; {versions}; {_PRECISION}; "
        "geometric means over the tasks of a family."
    )


def _searched(best: BestRecord | None) -> list[str]:
    if best is None or not best.tasks:
        return ["The catalogue has not been run on these tasks yet (`python -m benchmarks.suite_best`)."]
    kernels = [task for task in best.tasks if task.verified]
    faster = sum(task.low is not None and task.low > 1.0 for task in kernels)
    trials = max(task.trials for task in best.tasks)
    ran = "all" if len(best.tasks) == best.covered else str(len(best.tasks))
    right = "all" if len(kernels) == len(best.tasks) else str(len(kernels))
    said = [
        f"The catalogue's templates cover {best.covered} of the tasks; {ran} had a run of at most {trials} trials "
        f"without a model ({best.tasks[0].method}, {best.date[:10]}), {right} of the kernels found are verified, and "
        f"{faster} of those are faster than eager beyond their intervals. A family without a figure there has none."
    ]
    apart: dict[str, list[str]] = {}
    for task in best.tasks:
        if not task.verified:
            apart.setdefault(_against(task), []).append(f"`{task.name}`")
    listed = "; ".join(f"{why}: {', '.join(names)}" for why, names in apart.items())
    return [*said, "", f"Not counted: {listed}."] if apart else said


def _against(task: BestFigures) -> str:
    """Why a kernel does not count, in few words; the record has all of them."""
    if task.failure:
        return "could not be judged"
    if task.speedup is None:
        return "nothing valid found"
    return "not verified yet" if task.verified is None else "not verified, with a reason against it"


# --- the table of workloads ---


def workloads(suite: SuiteRecord | None, best: BestRecord | None) -> str:
    """A line per workload, for docs/suites.md."""
    if suite is None or not suite.tasks:
        return _NOTHING
    found = {each.task: each for each in best.tasks} if best else {}
    lines = [
        "| task | zone | floor | eager | torch.compile | eager, tf32 | torch.compile, tf32 | catalogue | over eager |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_workload(task, each, found.get(task.task)) for task in suite.tasks for each in task.workloads),
    ]
    left = [f"`{t.name}`: {why}" for t in suite.tasks for w in t.workloads for why in w.missing]
    left += [f"`{t.name}`: {t.failure}" for t in suite.tasks if t.failure]
    said = f"{_measured(suite).partition(';')[0]}; times in ms. Timing: {suite.timing}."
    return "\n".join([said, "", *lines, *(["", f"Missing: {'; '.join(left)}."] if left else [])])


def _workload(task: TaskFigures, workload: WorkloadFigures, best: BestFigures | None) -> str:
    bound = workload.bound(_PRECISION)
    several = len(task.workloads) > 1
    ours = best.latency_ms.get(workload.workload) if best and best.verified else None
    cells = [
        f"{task.name} {workload.workload}" if several else task.name,
        bound.zone if bound else _NONE,
        _ms(bound.floor_ms if bound else None),
        *(_ms(workload.ms(side, precision)) for precision in ("fp32", "tf32") for side in ("eager", "compile")),
        _ms(ours),
        _times(best.speedup if best and ours else None),
    ]
    return f"| {' | '.join(cells)} |"


def _ms(value: float | None) -> str:
    if value is None:
        return _NONE
    return f"{value:.3f}" if value >= 0.1 else f"{value:.4f}"


def _times(value: float | None) -> str:
    return _NONE if value is None else f"{value:.2f}×"


def _percent(value: float | None) -> str:
    return _NONE if value is None else f"{value:.0%}".replace("%", " %")


# --- files ---


def filled(text: str, table: str, name: str) -> str:
    """The text with the table between its marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UsageError(f"{name} lacks {BEGIN} or {END}; put both where the table belongs.")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def documents(suite: SuiteRecord | None, best: BestRecord | None) -> dict[Path, str]:
    """Every file with a table, as it should read."""
    tables = {ROOT / "README.md": families(suite, best), ROOT / "docs" / "suites.md": workloads(suite, best)}
    return {path: filled(path.read_text(encoding="utf-8"), table, path.name) for path, table in tables.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the tables, or say whether they are as they should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit status 1 where a table is out of date"
    )
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    try:
        wanted = documents(read_suite(SUITE), read_best(BEST))
    except WarpsmithError as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 2
    stale = [path for path, text in wanted.items() if path.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{path.name} is out of date" if options.check else f"wrote {path.name}")
        if not options.check:
            put_in_place(path, wanted[path].encode(), 0o644)
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
