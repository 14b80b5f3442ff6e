"""Evaluates kernels of other systems: which file is for which task, which speedup is claimed, and whether it holds.

A claim holds if it is within or below the interval measured here, for a kernel that is valid and verified. A claim made
on another device or with another clock may fail for that reason alone: the result is true for this machine.
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from warpsmith.backends.python_contract import parse_entry
from warpsmith.backends.source import read_candidate
from warpsmith.engine.engine import Engine
from warpsmith.experiments.best_kernels import KernelChecks, WantedChecks, read_checks, run_checks
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

_MOST_CSV_BYTES = 1 << 20
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
class FileCall:
    """What a table says of one file; where it says nothing, the options of the command count."""

    line: int  # of the table
    entry: str = ""
    task: str = ""  # its name, or the number of the published problem
    allow: tuple[str, ...] = ()


CALL_COLUMNS = ("task", "allow")
"""The columns that a table of calls may have besides `file` and `entry`."""


@dataclass(frozen=True)
class PublishedKernel:
    """A kernel file and the task it is for."""

    path: Path
    task: PlannedTask
    entry: str = ""  # the call of its function; "" where it has the contract's entry point
    allow: tuple[str, ...] = ()  # libraries that it may call, besides those that the task allows


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
    entry: str = ""  # the call that was judged


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
    files: Sequence[Path],
    tasks: Sequence[PlannedTask],
    calls: Mapping[Path, FileCall] | None = None,
    *,
    entry: str = "",
    allow: tuple[str, ...] = (),
) -> tuple[tuple[PublishedKernel, ...], tuple[Path, ...]]:
    """Files with their tasks, grouped by task, and the files that are named after no task.

    `entry` and `allow` are for the files of which `calls` does not say another.
    """
    names = _names(tasks)
    order = {task.name: place for place, task in enumerate(tasks)}
    found, strangers = [], []
    for path in files:
        call = (calls or {}).get(path, FileCall(0))
        task = _task_of(call.task or path.stem, names)
        if task is None:
            strangers.append(path)
        else:
            found.append(PublishedKernel(path, task, call.entry or entry, call.allow or allow))
    found.sort(key=lambda each: order[each.task.name])
    return tuple(found), tuple(strangers)


def read_claims(path: Path, tasks: Sequence[PlannedTask]) -> dict[str, float]:
    """Speedups by task name, from a CSV file with the columns task and speedup."""
    head, rows = _read_table(path, "claims", "task and speedup")
    if not rows or not {"task", "speedup"} <= set(head):
        raise UsageError(f"{path} needs a line of headings with task and speedup, and a line for each claim.")
    names = _names(tasks)
    claims: dict[str, float] = {}
    for line, row in rows:
        task = _task_of(row["task"], names)
        if task is None:
            raise UsageError(f"{path}:{line}: {row['task']!r} is no task of the suite.")
        try:
            claims[task.name] = float(row["speedup"].rstrip("x×"))
            if not 0 < claims[task.name] < math.inf:
                raise ValueError
        except ValueError:
            raise UsageError(f"{path}:{line}: {row['speedup']!r} is no speedup; write a number such as 1.5.") from None
    return claims


def read_calls(
    path: Path,
    files: Sequence[Path],
    *,
    columns: Sequence[str] = CALL_COLUMNS,
    tasks: Sequence[PlannedTask] = (),
    libraries: Callable[[str], tuple[str, ...]] = lambda text: tuple(re.findall(r"[^\s,]+", text)),
) -> dict[Path, FileCall]:
    """How each file is called, from a CSV file with the columns file and entry, and any of `columns`.

    A file is named by the end of its path: `softmax.cu`, or `second/softmax.cu` where there are several. An empty cell
    says nothing. Cells are data: a call is parsed as that of `--entry` is. `libraries` checks a list of libraries.
    """
    head, rows = _read_table(path, "calls", "file and entry")
    known = ("file", "entry", *columns)
    if not {"file", "entry"} <= set(head):
        raise UsageError(f"{path}:1: the line of headings lacks file or entry; known columns: {', '.join(known)}.")
    if unknown := [name for name in head if name not in known] or [name for name in head if head.count(name) > 1]:
        raise UsageError(f"{path}:1: {unknown[0]!r} cannot be a column here; known columns: {', '.join(known)}.")
    names = _names(tasks)
    calls: dict[Path, FileCall] = {}
    for line, row in rows:
        file = _file_named(row["file"], files, f"{path}:{line}")
        if file in calls:
            raise UsageError(f"{path}:{line}: {file} is in line {calls[file].line} already; keep one of the two.")
        task = row.get("task", "")
        if task and _task_of(task, names) is None:
            raise UsageError(f"{path}:{line}: {task!r} is no task of the suite.")
        try:
            if row["entry"]:
                parse_entry(row["entry"])
            allow = libraries(row.get("allow", ""))
        except UsageError as wrong:
            raise UsageError(f"{path}:{line}: {str(wrong).removeprefix('--')}") from None
        calls[file] = FileCall(line, row["entry"], task, allow)
    return calls


def _file_named(name: str, files: Collection[Path], where: str) -> Path:
    """The file whose path ends in this name."""
    parts = Path(os.path.normpath(name)).parts if name else ()
    exact = [file for file in files if file == Path(os.path.normpath(name))]
    found = exact or [file for file in files if parts and file.absolute().parts[-len(parts) :] == parts]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"{where}: {name!r} is none of the files to judge; write a name or the end of a path.")
    several = " and ".join(map(str, found[:2]))
    raise UsageError(f"{where}: {name!r} can be {several}; write more of the path.")


def _read_table(path: Path, what: str, columns: str) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """The headings of a CSV file, and its rows by heading with the numbers of their lines; empty lines are left out."""
    try:
        text = read_file(path.resolve(), _MOST_CSV_BYTES).decode("utf-8-sig")
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        lines = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(map(str.strip, row))]
    except (OSError, UnicodeDecodeError, csv.Error) as fault:
        why = fault.strerror if isinstance(fault, OSError) else str(fault)
        where = f"{path}:{reader.line_num}" if isinstance(fault, csv.Error) else str(path)
        raise UsageError(
            f"the {what} {where} cannot be read ({why}); name a CSV file with the columns {columns}."
        ) from None
    head = lines[0][1] if lines else []
    for line, cells in lines[1:]:
        if any(cells[len(head) :]):
            cure = 'put a cell with commas between double quotes, "softmax(x, 1)"'
            raise UsageError(f"{path}:{line}: {len(cells)} cells for {len(head)} columns; {cure}.")
    rows = [(line, dict(zip(head, [*cells, *[""] * len(head)], strict=False))) for line, cells in lines[1:]]
    return head, rows


def check_claims(
    evaluator: Engine,
    published: Sequence[PublishedKernel],
    claims: Mapping[str, float],
    wanted: WantedChecks,
    store: Path,
    *,
    against: str = "eager",
    precision: Precision | None = None,
    on_event: Callable[[PublishedKernel, VerificationEvent | None], None] = lambda *_: None,
) -> Iterator[CheckedClaim]:
    """Check files one after the other; results in `store` are used again.

    They are kept by task, kernel with its entry, libraries and precision class. A call that does not fit its task is a
    file that is not judged: the others go on. The evaluator's settings are the same afterwards.
    """
    usual = evaluator.settings
    try:
        for each in published:
            on_event(each, None)
            claim = claims.get(each.task.name)
            try:
                candidate = read_candidate(each.path, entry=each.entry)
                folder = store / slug(each.task.name) / _kept_as(candidate, each.allow, precision)
                if each.allow != evaluator.settings.allow and not _is_settled(folder, wanted):
                    evaluator.renew(replace(usual, allow=each.allow))
                found = _examined(evaluator, each, candidate, precision, wanted, folder, on_event)
            except (CandidateError, TaskError, HarnessFault) as fault:
                yield _not_judged(each, str(fault), claim, against)
                continue
            except UsageError as wrong:
                if not each.entry:
                    raise
                yield _not_judged(each, str(wrong), claim, against)
                continue
            yield assessed(each, found, claim, against)
    finally:
        if evaluator.settings != usual:
            evaluator.renew(usual)


def _is_settled(folder: Path, wanted: WantedChecks) -> bool:
    """True if everything that is wanted of a file is known."""
    known = read_checks(folder)
    return known.evaluation is not None and (known.certificate is not None or not wanted.verify)


def _kept_as(candidate: Candidate, allow: tuple[str, ...], precision: Precision | None) -> str:
    """The folder of a file's verdict: what is judged under other rules has another one."""
    return "-".join([candidate.id, *sorted(allow), *([precision.value] if precision else [])])


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
        entry=each.entry,
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
        entry=each.entry,
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
