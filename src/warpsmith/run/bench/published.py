"""Other systems' kernels under our evaluator: which file is for which task, what is claimed, and whether it holds.

A claim holds where it is within or below the interval that was measured here, by a kernel that is valid and verified.
One made elsewhere, on another device or by another clock, may fail to hold for that reason alone: a table of these
says what is true on this machine.
"""

from __future__ import annotations

import csv
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from warpsmith.backends.source import read_candidate
from warpsmith.core.candidate import Candidate
from warpsmith.core.errors import CandidateError, HarnessFault, TaskError, UsageError
from warpsmith.core.evaluation import Status
from warpsmith.core.task import Precision
from warpsmith.evaluate.evaluator import Evaluator
from warpsmith.evaluate.verification.verify import Event
from warpsmith.run.bench.folding import speedup_of
from warpsmith.run.bench.plan import slug
from warpsmith.run.bench.results import Speedup
from warpsmith.run.bench.selection import PlannedTask
from warpsmith.run.bench.winners import Examination, Winner, examine

ENDINGS = (".cu", ".cpp", ".cc", ".cxx", ".py")
_LEVEL = re.compile(r"level\d+-(\d+)")  # the tag of a task that is a published problem
_NUMBER = re.compile(r"(\d+)(?:_|$)")


class Holding(StrEnum):
    """What became of a claim."""

    HOLDS = "holds"
    TOO_HIGH = "too high"  # the kernel is right, and slower than claimed
    INVALID = "invalid"  # the kernel is not right, or not verified: it has no speedup
    UNKNOWN = "unknown"  # nothing was claimed, or we failed to judge it


@dataclass(frozen=True)
class Published:
    """A kernel file and the task it is for."""

    path: Path
    task: PlannedTask


@dataclass(frozen=True)
class Assessed:
    """What was found out about one file."""

    task: str
    file: str
    status: str  # a value of `Status`
    reason: str  # "" when valid
    eager: Speedup | None
    compile: Speedup | None
    share_of_floor: float | None  # of the speed of light, geometric mean over the workloads
    verified: bool | None  # None where nobody looked
    why_not: str
    claim: float | None
    against: str  # the baseline of the claim
    holding: Holding


def kernel_files(given: Sequence[str]) -> tuple[Path, ...]:
    """The files a user names, and those in folders that a user names."""
    found: list[Path] = []
    for name in given:
        path = Path(name)
        if path.is_dir():
            inside = sorted(each for each in path.iterdir() if each.suffix.lower() in ENDINGS)
            if not inside:
                raise UsageError(f"{path} holds no kernel; a kernel's name ends in {', '.join(ENDINGS)}.")
            found += [each for each in inside if each.name != "__init__.py"]
        elif path.is_file():
            found.append(path)
        else:
            raise UsageError(f"there is no file or folder {path}.")
    return tuple(dict.fromkeys(found))


def matched(files: Sequence[Path], tasks: Sequence[PlannedTask]) -> tuple[tuple[Published, ...], tuple[Path, ...]]:
    """Files with their tasks, those of one task together, and the files that are named after none."""
    names = _names(tasks)
    pairs = [(path, _task_of(path.stem, names)) for path in files]
    order = {task.name: place for place, task in enumerate(tasks)}
    found = [Published(path, task) for path, task in pairs if task is not None]
    found.sort(key=lambda each: order[each.task.name])
    return tuple(found), tuple(path for path, task in pairs if task is None)


def read_claims(path: Path, tasks: Sequence[PlannedTask]) -> dict[str, float]:
    """Speedups by task name, from a CSV file with the columns task and speedup."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
            head = list(rows[0]) if rows else []
    except (OSError, UnicodeDecodeError, csv.Error) as fault:
        why = fault.strerror if isinstance(fault, OSError) else str(fault)
        raise UsageError(
            f"the claims {path} cannot be read ({why}); name a CSV file with the columns task and speedup."
        ) from None
    if not {"task", "speedup"} <= set(head):
        raise UsageError(f"{path} needs a line of headings with task and speedup, and a line for each claim.")
    names = _names(tasks)
    claims: dict[str, float] = {}
    for line, row in enumerate(rows, start=2):
        task = _task_of((row["task"] or "").strip(), names)
        if task is None:
            raise UsageError(f"{path}:{line}: {row['task']!r} is no task of the suite.")
        try:
            claims[task.name] = float((row["speedup"] or "").strip().rstrip("x×"))
        except ValueError:
            raise UsageError(f"{path}:{line}: {row['speedup']!r} is no speedup; write a number such as 1.5.") from None
    return claims


def judge(
    evaluator: Evaluator,
    published: Sequence[Published],
    claims: Mapping[str, float],
    wanted: Examination,
    store: Path,
    *,
    against: str = "eager",
    entry: str = "",
    precision: Precision | None = None,
    on_event: Callable[[Published, Event | None], None] = lambda *_: None,
) -> Iterator[Assessed]:
    """One after the other; what is known in `store` is not found out again."""
    for each in published:
        on_event(each, None)
        claim = claims.get(each.task.name)
        try:
            candidate = read_candidate(each.path, entry=entry)
            folder = store / slug(each.task.name) / candidate.id
            found = _examined(evaluator, each, candidate, precision, wanted, folder, on_event)
        except (CandidateError, TaskError, HarnessFault) as fault:
            yield _not_judged(each, str(fault), claim, against)
            continue
        yield assessed(each, found, claim, against)


def _examined(
    evaluator: Evaluator,
    each: Published,
    candidate: Candidate,
    precision: Precision | None,
    wanted: Examination,
    folder: Path,
    on_event: Callable[[Published, Event | None], None],
) -> Winner:
    def say(event: Event) -> None:
        on_event(each, event)

    return examine(evaluator, each.task.source, candidate, precision, wanted, folder, say)


def assessed(each: Published, found: Winner, claim: float | None, against: str) -> Assessed:
    """What a judged file comes to."""
    evaluation, certificate = found.evaluation, found.certificate
    assert evaluation is not None, "it was just judged"
    if evaluation.status is Status.NOT_JUDGED:
        return _not_judged(each, evaluation.reason, claim, against)
    speedups = {name: speedup_of(evaluation, name) for name in ("eager", "compile")}
    shares = [workload.share_of_floor for workload in evaluation.workloads]
    verified = certificate.verified if certificate and evaluation.ok else None
    return Assessed(
        task=each.task.name,
        file=str(each.path),
        status=evaluation.status.value,
        reason=evaluation.reason,
        eager=speedups["eager"],
        compile=speedups["compile"],
        share_of_floor=statistics.geometric_mean(shares) if shares else None,
        verified=verified,
        why_not=certificate.reason if certificate and evaluation.ok else "",
        claim=claim,
        against=against,
        holding=held(claim, speedups[against], valid=evaluation.ok and verified is not False),
    )


def held(claim: float | None, measured: Speedup | None, *, valid: bool) -> Holding:
    """Whether a claim holds."""
    if claim is None:
        return Holding.UNKNOWN
    if not valid:
        return Holding.INVALID
    if measured is None:
        return Holding.UNKNOWN
    return Holding.HOLDS if claim <= measured.high else Holding.TOO_HIGH


def _not_judged(each: Published, reason: str, claim: float | None, against: str) -> Assessed:
    return Assessed(
        *(each.task.name, str(each.path), Status.NOT_JUDGED.value, reason, None, None, None, None, "", claim, against),
        holding=Holding.UNKNOWN,
    )


def _names(tasks: Sequence[PlannedTask]) -> dict[str, PlannedTask]:
    """Everything a task may be called by: its name, and the number of the published problem it is."""
    names: dict[str, PlannedTask] = {}
    for task in tasks:
        bare = task.name.partition("@")[0]
        names.setdefault(_plain(bare), task)
        tags = [found[1] for tag in task.tags if (found := _LEVEL.fullmatch(tag))]
        number = _NUMBER.match(bare)
        for each in (*tags, *((number[1],) if number else ())):
            names.setdefault(f"#{int(each)}", task)
    return names


def _task_of(name: str, names: Mapping[str, PlannedTask]) -> PlannedTask | None:
    exact = names.get(_plain(name.partition("@")[0]))
    if exact is not None:
        return exact
    number = _NUMBER.match(name)
    return names.get(f"#{int(number[1])}") if number else None


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
