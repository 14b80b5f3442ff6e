"""Makes the suites' tables in README.md and docs/suites.md from the records, so that no figure is written by hand.

    python -m benchmarks.readme_table
    python -m benchmarks.readme_table --check

README has a line per family, docs/suites.md a line per workload, each between two marks. PyTorch's times come from
`benchmarks/h200/suite.json`, the kernels of the collection from `src/warpsmith/kernels/facts/h200.json`. Where there is
no record yet, the tables say so. It measures nothing.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks.suite_figures import SuiteRecord, TaskFigures, WorkloadFigures, read_suite

from warpsmith.kernels.facts import (
    FACTS,
    DeviceFacts,
    KernelFacts,
    over_best_of_pytorch,
    over_compile,
    over_eager,
    read_device,
)
from warpsmith.model.errors import UsageError, WarpsmithError
from warpsmith.system.files import put_in_place

ROOT = Path(__file__).resolve().parent.parent
SUITE = ROOT / "benchmarks" / "h200" / "suite.json"
KERNELS = FACTS / "h200.json"
BEGIN, END = "<!-- suite table -->", "<!-- /suite table -->"
_PRECISION = "fp32"  # what the tables compare in; docs/suites.md has PyTorch's tf32 times too
_SPLIT = 3.0  # products of fp16 parts that together give one of the fp32 class
_NONE = "–"
_NOTHING = (
    "Not measured yet. On a machine with a GPU, `python -m benchmarks.suite_record --json benchmarks/h200/suite.json` "
    "makes the record of PyTorch's times, and `python -m benchmarks.readme_table` writes this table from it."
)


# --- figures ---


def mean(values: Iterable[float | None]) -> float | None:
    """The geometric mean of what is known; None of nothing."""
    logs = [math.log(value) for value in values if value]
    return math.exp(sum(logs) / len(logs)) if logs else None


class Figures:
    """What the table says of one task."""

    def __init__(self, suite: SuiteRecord, task: TaskFigures, kernel: KernelFacts | None) -> None:
        self._suite, self._task = suite, task
        self._pytorch = task.pytorch(_PRECISION)
        self.kernel = kernel if kernel and over_eager(kernel) else None

    @property
    def compile(self) -> float | None:
        """How much faster torch.compile is than eager."""
        return self._pytorch.compile_speedup.value if self._pytorch else None

    @property
    def best_of_pytorch(self) -> float | None:
        """How much faster the faster of both is than eager."""
        return max(1.0, self.compile or 1.0)

    @property
    def eager_share(self) -> float | None:
        """What eager reaches of the hardware's limit."""
        return self._ratio(lambda w: (self.limit_ms(w), w.ms("eager", _PRECISION)))

    @property
    def over_eager(self) -> float | None:
        """How much faster the kernel is than eager, both measured in one run."""
        return self.kernel.speedup if self.kernel else None

    @property
    def over_compile(self) -> float | None:
        """How much faster the kernel is than torch.compile."""
        found = over_compile(self.kernel, self._pytorch) if self.kernel else None
        return found.value if found else None

    @property
    def over_best_of_pytorch(self) -> float | None:
        """How much faster the kernel is than the faster of both; than eager where torch.compile was not timed."""
        found = over_best_of_pytorch(self.kernel, self._pytorch) if self.kernel else None
        return found.value if found else self.over_eager

    @property
    def share(self) -> float | None:
        """What the kernel reaches of the hardware's limit."""
        times = self.latencies()
        return self._ratio(lambda w: (self.limit_ms(w), times.get(w.workload)))

    def latencies(self) -> dict[str, float]:
        """The kernel's time on each workload."""
        names = [workload.workload for workload in self._task.workloads]
        return dict(zip(names, self.kernel.latency_ms, strict=False)) if self.kernel else {}

    def limit_ms(self, workload: WorkloadFigures) -> float:
        """The larger of bytes ÷ bandwidth and flops ÷ the rate of fp32-class products on tensor cores."""
        rates = self._suite.flops_s
        flops_s = max(rates[_PRECISION], rates.get("fp16", 0.0) / _SPLIT)
        return 1e3 * max(workload.bytes / self._suite.bandwidth_bytes_s, workload.flops / flops_s)

    def _ratio(self, pair: Callable[[WorkloadFigures], tuple[float | None, float | None]]) -> float | None:
        """The mean over the workloads of one time divided by another; None where one of them is missing."""
        pairs = [pair(workload) for workload in self._task.workloads]
        found = [above / below for above, below in pairs if above and below]
        return mean(found) if len(found) == len(pairs) else None


# --- the table of families ---


def families(suite: SuiteRecord | None, facts: DeviceFacts | None) -> str:
    """A line per family, for README."""
    if suite is None or not suite.tasks:
        return _NOTHING
    known = facts.kernels if facts else {}
    kinds = sorted({task.family for task in suite.tasks})
    figures = {task.task: Figures(suite, task, known.get(task.task)) for task in suite.tasks}
    rows = [(kind, [figures[task.task] for task in suite.tasks if task.family == kind]) for kind in kinds]
    rows.append(("all", list(figures.values())))
    lines = [
        "| family | tasks | eager, of the limit | torch.compile | best of PyTorch | kernels valid | verified "
        "| over eager | over torch.compile | over the best of PyTorch | of the limit |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *(_family(kind, tasks) for kind, tasks in rows),
    ]
    return "\n".join([_measured(suite), "", *lines, "", *_judged(facts)])


def _family(kind: str, tasks: Sequence[Figures]) -> str:
    kernels = [task for task in tasks if task.kernel]
    cells = [
        kind,
        str(len(tasks)),
        _percent(mean(task.eager_share for task in tasks)),
        _times(mean(task.compile for task in tasks)),
        _times(mean(task.best_of_pytorch for task in tasks)),
        str(len(kernels)) if kernels else _NONE,
        str(sum(task.kernel.verified is True for task in kernels if task.kernel)) if kernels else _NONE,
        _times(mean(task.over_eager for task in kernels)),
        _times(mean(task.over_compile for task in kernels)),
        _times(mean(task.over_best_of_pytorch for task in kernels)),
        _percent(mean(task.share for task in kernels)),
    ]
    return f"| {' | '.join(cells)} |"


def _measured(suite: SuiteRecord) -> str:
    versions = ", ".join(f"{name} {value}" for name, value in suite.versions.items() if value)
    small = "" if suite.size == "full" else f" at the {suite.size} size"
    return (
        f"{len(suite.tasks)} tasks on {suite.device}{small}, {suite.date[:10]}; {versions}; {_PRECISION}; "
        "geometric means over the tasks of a family. The limit counts fp32-class products at the rate of tensor cores."
    )


def _judged(facts: DeviceFacts | None) -> list[str]:
    if facts is None or not facts.kernels:
        return ["The kernels of the collection have not been judged on this device (`benchmarks.collection_record`)."]
    valid = [kernel for kernel in facts.kernels.values() if kernel.status == "ok"]
    verified = sum(kernel.verified is True for kernel in valid)
    faster = sum(kernel.interval is not None and kernel.interval[0] > 1.0 for kernel in valid)
    said = [
        f"{len(valid)} kernels of the collection are valid on {facts.device} ({facts.date[:10]}), {faster} of them "
        f"faster than eager beyond their intervals; {verified} are verified. The figures are those of the kernels as "
        "they were judged; `warpsmith kernels list` says which of them have changed since."
    ]
    refused = [f"`{each.task}` ({each.status})" for each in facts.kernels.values() if each.status != "ok"]
    return [*said, "", f"Not valid: {', '.join(refused)}."] if refused else said


# --- the table of workloads ---


def workloads(suite: SuiteRecord | None, facts: DeviceFacts | None) -> str:
    """A line per workload, for docs/suites.md."""
    if suite is None or not suite.tasks:
        return _NOTHING
    known = facts.kernels if facts else {}
    figures = [(task, Figures(suite, task, known.get(task.task))) for task in suite.tasks]
    lines = [
        "| task | zone | limit | eager | torch.compile | eager, tf32 | torch.compile, tf32 | collection | over eager |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_workload(task, each, ours) for task, ours in figures for each in task.workloads),
    ]
    left = [f"`{t.name}`: {why}" for t in suite.tasks for w in t.workloads for why in w.missing]
    left += [f"`{t.name}`: {t.failure}" for t in suite.tasks if t.failure]
    said = f"{_measured(suite).partition(';')[0]}; times in ms. Timing: {suite.timing}."
    return "\n".join([said, "", *lines, *(["", f"Missing: {'; '.join(left)}."] if left else [])])


def _workload(task: TaskFigures, workload: WorkloadFigures, ours: Figures) -> str:
    bound = workload.bound(_PRECISION)
    several = len(task.workloads) > 1
    kernel_ms = ours.latencies().get(workload.workload)
    cells = [
        f"{task.name} {workload.workload}" if several else task.name,
        bound.zone if bound else _NONE,
        _ms(ours.limit_ms(workload)),
        *(_ms(workload.ms(side, precision)) for precision in ("fp32", "tf32") for side in ("eager", "compile")),
        _ms(kernel_ms),
        _times(ours.over_eager if kernel_ms else None),
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


def documents(suite: SuiteRecord | None, facts: DeviceFacts | None) -> dict[Path, str]:
    """Every file with a table, as it should read."""
    tables = {ROOT / "README.md": families(suite, facts), ROOT / "docs" / "suites.md": workloads(suite, facts)}
    return {path: filled(path.read_text(encoding="utf-8"), table, path.name) for path, table in tables.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the tables, or say whether they are as they should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit status 1 where a table is out of date"
    )
    options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    try:
        wanted = documents(read_suite(SUITE), read_device(KERNELS))
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
