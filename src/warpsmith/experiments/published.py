"""Evaluates kernels of other systems: which file is for which task, which speedup is claimed, and whether it holds.

A claim holds if it is within or below the interval measured here, for a kernel that is valid and verified. A claim made
on another device or with another clock may fail for that reason alone: the result is true for this machine.
"""

from __future__ import annotations

import csv
import io
import math
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from warpsmith.backends.source import read_candidate
from warpsmith.engine.engine import Engine
from warpsmith.experiments.best_kernels import KernelChecks, WantedChecks, run_checks
from warpsmith.experiments.collect import speedup_of
from warpsmith.experiments.plan import slug
from warpsmith.experiments.results import MeasuredSpeedup
from warpsmith.experiments.selection import PlannedTask
from warpsmith.model.candidate import Candidate
from warpsmith.model.errors import CandidateError, HarnessFault, TaskError, UsageError
from warpsmith.model.evaluation import Status
from warpsmith.model.task import Precision
from warpsmith.system.files import read_file
from warpsmith.verification.verify import VerificationEvent

_MOST_CLAIM_BYTES = 1 << 20
ENDINGS = (".cu", ".cpp", ".cc", ".cxx", ".py")
_LEVEL = re.compile(r"level\d+-(\d+)")  # the tag of a task that is a published problem
_NUMBER = re.compile(r"(\d+)(?:_|$)")


class ClaimStatus(StrEnum):
    """The result of checking a claim."""

    HOLDS = "holds"
    TOO_HIGH = "too high"  # the kernel is valid, but slower than claimed
    INVALID = "invalid"  # the kernel is not valid, or not verified: it has no speedup
    UNKNOWN = "unknown"  # there is no claim, or the evaluation failed


@dataclass(frozen=True)
class PublishedKernel:
    """A kernel file and the task it is for."""

    path: Path
    task: PlannedTask


@dataclass(frozen=True)
class CheckedClaim:
    """The results for one file."""

    task: str
    file: str
    status: str  # a value of `Status`
    reason: str  # "" when valid
    eager: MeasuredSpeedup | None
    compile: MeasuredSpeedup | None
    share_of_floor: float | None  # of the hardware limit, geometric mean over the workloads
    verified: bool | None  # None if not verified
    why_not: str
    claim: float | None
    against: str  # the baseline of the claim
    holding: ClaimStatus


def kernel_files(given: Sequence[str]) -> tuple[Path, ...]:
    """The kernel files that a user names, directly or by folder."""
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


def matched(
    files: Sequence[Path], tasks: Sequence[PlannedTask]
) -> tuple[tuple[PublishedKernel, ...], tuple[Path, ...]]:
    """Files with their tasks, grouped by task, and the files that are named after no task."""
    names = _names(tasks)
    pairs = [(path, _task_of(path.stem, names)) for path in files]
    order = {task.name: place for place, task in enumerate(tasks)}
    found = [PublishedKernel(path, task) for path, task in pairs if task is not None]
    found.sort(key=lambda each: order[each.task.name])
    return tuple(found), tuple(path for path, task in pairs if task is None)


def read_claims(path: Path, tasks: Sequence[PlannedTask]) -> dict[str, float]:
    """Speedups by task name, from a CSV file with the columns task and speedup."""
    try:
        text = read_file(path.resolve(), _MOST_CLAIM_BYTES).decode("utf-8-sig")
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
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
            if not 0 < claims[task.name] < math.inf:
                raise ValueError
        except ValueError:
            raise UsageError(f"{path}:{line}: {row['speedup']!r} is no speedup; write a number such as 1.5.") from None
    return claims


def check_claims(
    evaluator: Engine,
    published: Sequence[PublishedKernel],
    claims: Mapping[str, float],
    wanted: WantedChecks,
    store: Path,
    *,
    against: str = "eager",
    entry: str = "",
    precision: Precision | None = None,
    on_event: Callable[[PublishedKernel, VerificationEvent | None], None] = lambda *_: None,
) -> Iterator[CheckedClaim]:
    """Check files one after the other; results in `store` are used again."""
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
    evaluator: Engine,
    each: PublishedKernel,
    candidate: Candidate,
    precision: Precision | None,
    wanted: WantedChecks,
    folder: Path,
    on_event: Callable[[PublishedKernel, VerificationEvent | None], None],
) -> KernelChecks:
    def say(event: VerificationEvent) -> None:
        on_event(each, event)

    return run_checks(evaluator, each.task.source, candidate, precision, wanted, folder, say)


def assessed(each: PublishedKernel, checks: KernelChecks, claim: float | None, against: str) -> CheckedClaim:
    """The results of a file that was evaluated."""
    evaluation, certificate = checks.evaluation, checks.certificate
    assert evaluation is not None, "the file was evaluated"
    if evaluation.status is Status.NOT_JUDGED:
        return _not_judged(each, evaluation.reason, claim, against)
    speedups = {name: speedup_of(evaluation, name) for name in ("eager", "compile")}
    shares = [workload.share_of_floor for workload in evaluation.workloads]
    verified = certificate.verified if certificate and evaluation.ok else None
    return CheckedClaim(
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
        holding=claim_status(claim, speedups[against], valid=evaluation.ok and verified is not False),
    )


def claim_status(claim: float | None, measured: MeasuredSpeedup | None, *, valid: bool) -> ClaimStatus:
    """Whether a claim holds."""
    if claim is None:
        return ClaimStatus.UNKNOWN
    if not valid:
        return ClaimStatus.INVALID
    if measured is None:
        return ClaimStatus.UNKNOWN
    return ClaimStatus.HOLDS if claim <= measured.high else ClaimStatus.TOO_HIGH


def _not_judged(each: PublishedKernel, reason: str, claim: float | None, against: str) -> CheckedClaim:
    return CheckedClaim(
        *(each.task.name, str(each.path), Status.NOT_JUDGED.value, reason, None, None, None, None, "", claim, against),
        holding=ClaimStatus.UNKNOWN,
    )


def _names(tasks: Sequence[PlannedTask]) -> dict[str, PlannedTask]:
    """Tasks by their name, and by "#" with the number of the published problem."""
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
