"""One attack, how a batch of them is judged, and how the outcome is counted.

Shared by the CPU, CUDA and Python corpora, by the record of `benchmarks` and by the table of docs/trust.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from warpsmith.backends.source import read_candidate
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model.candidate import Candidate
from warpsmith.model.evaluation import Evaluation, Status

FOLDER = Path(__file__).resolve().parent
_TASKS = (FOLDER / "tasks", FOLDER.parent / "kernels" / "tasks", FOLDER.parent / "kernels" / "large")
_GAIN = 1.1  # between the medians of two measurements on a GPU: their noise is far smaller
_SHARED = re.compile(r'^#include "(shared/[\w.]+)"\n', re.MULTILINE)
OUTCOME = "attack-outcome"  # the property of a test report that the summary line is made from


@dataclass(frozen=True)
class Attack:
    """A candidate that must not pass, and an honest one that looks alike and must."""

    name: str
    number: int  # its class in `warpsmith.evaluator.guards.attack_classes`
    backend: str  # cpu, cuda, triton or torch_module
    file: str  # beneath tests/attacks
    task: str  # a file of tests/attacks/tasks or tests/kernels/{tasks,large}, without .py
    says: str  # a regular expression found in the reason: it names the class, or what was seen
    twin: str  # the honest file, beneath tests/attacks
    statuses: tuple[Status, ...] = (Status.REJECTED,)  # those that are right, with all guards on
    # The same with the imports guard left out: what the dynamic defence says alone. () where the static filter is
    # the whole defence, which `note` then explains; None where `statuses` and `says` hold in both cases.
    unfiltered: tuple[Status, ...] | None = None
    unfiltered_says: str | None = None
    note: str = ""

    @property
    def path(self) -> Path:
        """The attack's file."""
        return FOLDER / self.file

    @property
    def twin_path(self) -> Path:
        """The honest one's."""
        return FOLDER / self.twin

    @property
    def task_path(self) -> Path:
        """The task's file."""
        return next(folder / f"{self.task}.py" for folder in _TASKS if (folder / f"{self.task}.py").is_file())

    @property
    def has_dynamic_defence(self) -> bool:
        """Whether something besides the static filter stops it."""
        return self.unfiltered != ()

    def gains_nothing(self, verdict: Evaluation, twin: Evaluation) -> bool:
        """On a GPU: whether it is timed like the honest one beside it, and no better; it need not be found out then.

        Medians, not intervals: a wide interval is no excuse. What is timed from outside looks closer to PyTorch than
        it is, so that there a slow one may come up to it, and not beyond.
        """
        for ours, theirs in zip(verdict.workloads, twin.workloads, strict=False):
            reached = theirs.baselines[0].speedup
            if ours.timing == "outside":
                reached = max(reached, 1.0 / _GAIN)
            if ours.baselines[0].speedup > _GAIN * reached:
                return False
        return verdict.ok and twin.ok

    def failings(self, verdict: Evaluation, *, filtered: bool = True) -> str:
        """What is wrong with a verdict on the attack; "" where it is rejected as it should be."""
        statuses, says = self.statuses, self.says
        if not filtered:
            statuses = self.statuses if self.unfiltered is None else self.unfiltered
            says = self.says if self.unfiltered_says is None else self.unfiltered_says
        if verdict.status not in statuses:
            wanted = " or ".join(statuses)
            return f"{self.name}: expected {wanted}, got {verdict.status} ({verdict.reason or _speedups(verdict)})"
        if not re.search(says, verdict.reason):
            return f"{self.name}: the reason does not say {says!r}: {verdict.reason}"
        return ""

    @staticmethod
    def filtered(verdict: Evaluation) -> bool:
        """Whether the static filter alone gave it this verdict."""
        return re.search("the (?:object|source) imports", verdict.reason) is not None

    def twin_failings(self, verdict: Evaluation) -> str:
        """The same for the honest one."""
        return "" if verdict.status is Status.OK else f"{self.twin}: {verdict.status} ({verdict.reason})"


def _speedups(verdict: Evaluation) -> str:
    return ", ".join(f"{w.workload}: {b.speedup:.2f}x" for w in verdict.workloads for b in w.baselines)


def candidate_of(file: Path) -> Candidate:
    """The candidate in a file of the corpus, as one text: what several have in common lies in `shared`."""
    found = read_candidate(file)
    whole = _SHARED.sub(lambda line: (FOLDER / line[1]).read_text(encoding="utf-8"), found.main.text)
    return replace(found, files=(replace(found.main, text=whole),))


def judge(evaluator: Evaluator, jobs: Iterable[tuple[Path, Path]]) -> dict[tuple[Path, Path], Evaluation]:
    """Verdicts on (task, candidate) pairs, each judged once, task by task."""
    by_task: dict[Path, list[Path]] = {}
    for task, file in dict.fromkeys(jobs):
        by_task.setdefault(task, []).append(file)
    found: dict[tuple[Path, Path], Evaluation] = {}
    for task, files in by_task.items():
        for index, verdict in evaluator.evaluate(task, [candidate_of(file) for file in files]):
            found[task, files[index]] = verdict
    return found


def record_attack(record_property: Callable[[str, object], None], failings: str) -> None:
    """Count one attack in the summary line: call it before asserting."""
    record_property(OUTCOME, "through" if failings else "rejected")


def record_honest(record_property: Callable[[str, object], None], failings: str) -> None:
    """Count one honest twin."""
    record_property(OUTCOME, "failed" if failings else "passed")


def summary_line(outcomes: Sequence[str]) -> str:
    """The one line at the end of a test run."""
    names = ("rejected", "through", "passed", "failed")
    count: Mapping[str, int] = {name: outcomes.count(name) for name in names}
    attacks = count["rejected"] + count["through"]
    honest = f"{count['passed']} passed of {count['passed'] + count['failed']}"
    return f"attacks: {count['rejected']} rejected of {attacks}, honest: {honest}"
