"""The pool of improvements that earlier runs measured: kernels before and after, the strategy, and its effect.

The pool is one file of JSON lines per user (`WARPSMITH_POOL`, else in the XDG data folder), appended to under a lock.
Invalid lines are skipped; of two records with one key the later counts. Two more sources are searched: records that
ship with the package (`seed_pool.jsonl`, written by `benchmarks/seed_pool.py`), and entries of the catalogue, marked as
not measured. Tasks are compared by shared words, so that equal searches give equal results.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from warpsmith.backends.fingerprint import fingerprint
from warpsmith.model.brief import Problem
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.errors import UsageError
from warpsmith.model.strategy import Strategy, arch_number
from warpsmith.model.task import Family
from warpsmith.strategies.catalogue import named_strategies, strategies, work_families
from warpsmith.system.files import put_in_place
from warpsmith.system.locks import lock

NOTABLE = 1.10
"""The least speedup over its parent with which a kernel is added: less may be noise."""

MOST = 6
"""The most records that one run adds: its best kernel and the largest steps to it."""

SHIPPED = Path(__file__).with_name("seed_pool.jsonl")
"""Records that ship with the package. A kernel without text is the file of that name in the collection."""

_MOST_WORDS = 400  # of a task, for comparing
_MOST_CHARS = 60_000  # of one kernel, which is shown in prompts
_WORD = re.compile(r"[A-Za-z_]\w+")
_SEPARATOR = re.compile(r"[._]")
_SAYS_NOTHING = (
    "aten default def return import from torch warpsmith task self float int tensor the of and for in class nn as "
    "workloads precision name normal uniform randn init forward get inputs model module list"
)
_COMMON = frozenset(_SAYS_NOTHING.split())  # words that every task has
_SUFFIX = {"cpu": ".cpp", "cuda": ".cu"}


@dataclass(frozen=True)
class PoolRecord:
    """One improvement, or one entry of the catalogue."""

    key: str  # of kernel, task and device
    task: str  # its name; "" for an entry of the catalogue
    strategy: str  # a plan or prose
    backend: str
    kernel: tuple[SourceFile, ...]  # the optimised kernel; for an entry of the catalogue an example
    start: tuple[SourceFile, ...] = ()  # the kernel before, or the reference in Python; () if there was none
    measured: bool = True
    speedup: float | None = None  # over PyTorch eager
    effect: float | None = None  # over `start`
    note: str = ""  # the expected effect of an entry of the catalogue; what to know of a measurement
    device: str = ""
    arch: str = ""
    families: tuple[str, ...] = ()  # as `catalogue.work_families` names the work; () for any
    zones: tuple[str, ...] = ()
    precision: str = ""
    dtypes: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()  # of the tensors
    words: tuple[str, ...] = ()  # operations and words of the reference
    operations: tuple[str, ...] = ()  # of the reference
    task_digest: str = ""
    run: str = ""  # that added the record
    date: str = ""  # ISO, UTC


@dataclass(frozen=True)
class Improvement:
    """A valid kernel of a run and the kernel it was derived from."""

    kernel: Candidate
    strategy: str
    speedup: float  # over PyTorch eager
    start: Candidate | None = None
    effect: float | None = None  # over `start`
    best: bool = False  # of its run


@dataclass(frozen=True)
class PoolSubmission:
    """The improvements of one run."""

    problem: Problem
    improvements: tuple[Improvement, ...]
    run: str = ""


@dataclass(frozen=True)
class PoolMatch:
    """A record and its score for a problem."""

    record: PoolRecord
    score: float


@cache
def _record_format() -> TypeAdapter[PoolRecord]:
    """How a record is stored; made at its first use, because making it takes time."""
    return TypeAdapter(PoolRecord)


def pool_path(environ: Mapping[str, str] | None = None) -> Path:
    """The path of the pool: `WARPSMITH_POOL`, else in the XDG data folder."""
    env = os.environ if environ is None else environ
    if env.get("WARPSMITH_POOL"):
        return Path(env["WARPSMITH_POOL"]).expanduser()
    base = env.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "warpsmith" / "pool.jsonl"


def add_to_pool(harvest: PoolSubmission, path: Path | None = None) -> tuple[PoolRecord, ...]:
    """Add the best kernel of a run and its largest improvements; returns the new records."""
    path = path or pool_path()
    offered = [record_of(harvest, each) for each in _worth(harvest.improvements)]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+", encoding="utf-8") as file:
            lock(file.fileno())
            known = {record.key: record for record in _read(path)}
            fresh = {record.key: record for record in offered if _better(record, known.get(record.key))}
            if _torn(path):
                file.write("\n")  # a process was killed while it wrote a line
            file.writelines(_record_format().dump_json(record).decode() + "\n" for record in fresh.values())
    except OSError as refused:
        raise UsageError(f"the pool {path} cannot be written ({refused.strerror}); set WARPSMITH_POOL.") from None
    return tuple(record for record in fresh.values() if record.key not in known)


def remove_from_pool(name: str, path: Path | None = None) -> tuple[PoolRecord, ...]:
    """Remove the record with this key, or all records of this run; returns what was removed."""
    path = path or pool_path()
    try:
        with path.open("r+", encoding="utf-8") as file:
            lock(file.fileno())
            known = _read(path)
            kept = [record for record in known if name not in (record.key, record.run)]
            if len(kept) < len(known):
                file.writelines(_record_format().dump_json(record).decode() + "\n" for record in kept)
                file.truncate()
    except FileNotFoundError:
        return ()
    except OSError as refused:
        raise UsageError(f"the pool {path} cannot be written ({refused.strerror}); set WARPSMITH_POOL.") from None
    gone = {record.key: record for record in known if name in (record.key, record.run)}
    return tuple(gone.values())


def pool_records(path: Path | None = None) -> tuple[PoolRecord, ...]:
    """The records of the user's own runs."""
    found: dict[str, PoolRecord] = {}
    for record in _read(path or pool_path()):
        found[record.key] = record
    return tuple(found.values())


@cache
def shipped_records() -> tuple[PoolRecord, ...]:
    """The measured records that ship with the package."""
    from warpsmith.kernels.collection import SOURCES  # reading a run needs no collection

    def whole(file: SourceFile) -> SourceFile:
        return file if file.text else SourceFile(file.name, (SOURCES / file.name).read_text(encoding="utf-8"))

    return tuple(replace(each, kernel=tuple(map(whole, each.kernel))) for each in _read(SHIPPED))


_PRODUCTS = frozenset({Family.MATMUL.value, "convolution"})  # work whose strategies say nothing of other work


def measured_strategies(problem: Problem) -> dict[str, float]:
    """Strategies of shipped kernels for other tasks of the same kind: the mean speedup over PyTorch eager, by name.

    The kind is the finest one with records. The user's own pool does not count, so that equal runs are asked equally.
    """
    words = work_families(problem) - {Family.OTHER.value}
    others = [each for each in shipped_records() if each.backend == problem.backend and each.task != problem.task.name]
    others = [each for each in others if not _PRODUCTS & set(each.families) - words]
    alike = [each for each in others if (words - set(Family)) & set(each.families)]
    found: dict[str, list[float]] = {}
    for record in alike or [each for each in others if words & set(each.families)]:
        for name in named_strategies(record.strategy):
            found.setdefault(name, []).append(record.speedup or 1.0)
    return {name: statistics.geometric_mean(speedups) for name, speedups in found.items()}


def search_pool(
    problem: Problem, limit: int, path: Path | None = None, *, apart_from: str = "", catalogue: bool = True
) -> tuple[PoolRecord, ...]:
    """The records that fit a problem best, the best first; without `catalogue` measured ones only.

    `apart_from` is the digest of the problem's task, whose records are left out, for a fair comparison of methods on
    that task. Left out with them are shipped records of a task with the same operations, which may be the same task in
    another suite.
    """
    matches = pool_matches(problem, limit, path, apart_from=apart_from, catalogue=catalogue)
    return tuple(match.record for match in matches)


def pool_matches(
    problem: Problem, limit: int, path: Path | None = None, *, apart_from: str = "", catalogue: bool = True
) -> tuple[PoolMatch, ...]:
    """The records that fit a problem best, with their scores."""
    known = (*pool_records(path), *shipped_records(), *(catalogue_records() if catalogue else ()))
    rated = [PoolMatch(each, _score(each, problem)) for each in known if _usable(each, problem, apart_from)]
    rated.sort(key=lambda match: (-match.score, match.record.key))
    found: dict[tuple[str, str], PoolMatch] = {}
    for match in rated:  # only the best record of each strategy and task
        found.setdefault((match.record.strategy, match.record.task), match)
    return tuple(list(found.values())[:limit])


def copy_pool(to: Path) -> None:
    """Copy the pool to a file, unless the file exists: what the pool learns later does not change the copy."""
    if to.exists():
        return
    source = pool_path()
    try:
        put_in_place(to, source.read_bytes() if source.exists() else b"", mode=0o644)
    except OSError as refused:
        raise UsageError(f"the pool {source} cannot be copied to {to} ({refused.strerror}).") from None


def catalogue_records() -> tuple[PoolRecord, ...]:
    """The catalogue as records: each strategy with its example and expected effect, not measured."""
    return tuple(_seed(each, backend) for each in strategies().values() for backend in each.backends)


# --- adding ---


def _worth(improvements: Iterable[Improvement]) -> list[Improvement]:
    """The best kernel of a run, then large improvements that name a strategy, the largest first.

    A kernel that is not faster than PyTorch is no example to follow, whatever its parent was.
    """
    offered = [each for each in improvements if math.isfinite(each.speedup) and each.speedup > 1]
    best = [each for each in offered if each.best][:1]
    steps = [e for e in offered if e.effect is not None and e.effect >= NOTABLE and e.strategy.strip() and not e.best]
    steps.sort(key=lambda each: (-(each.effect or 0.0), each.kernel.id))
    return [*best, *steps][:MOST]


def record_of(harvest: PoolSubmission, improvement: Improvement) -> PoolRecord:
    """The record of one improvement."""
    problem, kernel = harvest.problem, improvement.kernel
    task = problem.task
    device = re.sub(r"\s*\((?:cpu|cuda:\d+)\)$", "", problem.device)  # without the device's number
    identity = "\0".join((fingerprint(kernel), task.digest, device))
    return PoolRecord(
        key=hashlib.sha256(identity.encode()).hexdigest()[:16],
        task=task.name,
        strategy=improvement.strategy.strip() or kernel.strategy.strip() or kernel.thought.strip(),
        backend=problem.backend,
        kernel=_short(kernel),
        start=_short(improvement.start) if improvement.start else (),
        speedup=improvement.speedup,
        effect=improvement.effect,
        device=device,
        arch=problem.arch,
        families=tuple(sorted(work_families(problem))),
        zones=(problem.zone,) if problem.zone else (),
        precision=task.precision.value,
        dtypes=tuple(sorted({tensor.dtype for tensor in task.tensors})),
        ranks=tuple(sorted({len(tensor.dims) for tensor in task.tensors})),
        words=_words(problem),
        operations=operations(problem),
        task_digest=task.digest,
        run=harvest.run,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _short(candidate: Candidate) -> tuple[SourceFile, ...]:
    return tuple(
        file if len(file.text) <= _MOST_CHARS else replace(file, text=file.text[:_MOST_CHARS])
        for file in candidate.files
    )


def _better(record: PoolRecord, known: PoolRecord | None) -> bool:
    """Whether a record has a larger speedup than the known one of the same kernel."""
    return known is None or (record.speedup or 0.0) > (known.speedup or 0.0)


def _read(path: Path) -> list[PoolRecord]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")  # JSON strings may contain U+2028
    except FileNotFoundError:
        return []
    except OSError as refused:
        raise UsageError(f"the pool {path} cannot be read ({refused.strerror}); set WARPSMITH_POOL.") from None
    found = []
    for line in lines:
        try:
            found.append(_record_format().validate_json(line))
        except ValidationError:
            continue  # a cut line, or one of a release with other fields
    return found


def _torn(path: Path) -> bool:
    data = path.read_bytes()[-1:]
    return bool(data) and data != b"\n"


def _seed(strategy: Strategy, backend: str) -> PoolRecord:
    return PoolRecord(
        key=f"catalogue-{strategy.name}-{backend}",
        task="",
        strategy=f"{strategy.name}: {strategy.advice}",
        backend=backend,
        kernel=(SourceFile(f"{strategy.name}{_SUFFIX.get(backend, '.py')}", strategy.example),),
        measured=False,
        note=strategy.effect,
        arch=f"sm_{strategy.least_arch}" if strategy.least_arch else "",
        families=strategy.families,
        zones=strategy.zones,
        words=tuple(sorted(set(_plain(strategy.title)))),
        precision=" ".join(strategy.precisions),
    )


# --- searching ---


def _usable(record: PoolRecord, problem: Problem, apart_from: str) -> bool:
    """Whether a record fits the backend, device and precision of a problem and is not of the task `apart_from`."""
    if record.backend != problem.backend:
        return False
    if apart_from and (record.task_digest == apart_from or record.task == problem.task.name):
        return False
    if apart_from and record.operations and record.operations == operations(problem):
        return False
    if not record.measured:
        wanted, zone = set(record.families), problem.zone
        fits = not wanted or bool(wanted & work_families(problem))
        near = not record.zones or not zone or zone in record.zones or zone == "middle"
        allowed = not record.precision or problem.task.precision.value in record.precision.split()
        return fits and near and allowed and arch_number(record.arch) <= arch_number(problem.arch)
    return max(record.effect or 0.0, record.speedup or 0.0) > 1.0


def _score(record: PoolRecord, problem: Problem) -> float:
    """How well a record fits a problem: by kind of work, similarity of the tasks, and measured effect; no unit."""
    score = 3.0 * _overlap(record.families, work_families(problem)) + (1.5 if problem.zone in record.zones else 0.0)
    if not record.measured:
        return score  # below measured records of similar tasks
    task = problem.task
    score += 4.0 * _overlap(record.words, _words(problem))
    score += 0.5 * _overlap(record.dtypes, {tensor.dtype for tensor in task.tensors})
    score += 0.5 * _overlap(map(str, record.ranks), {str(len(tensor.dims)) for tensor in task.tensors})
    score += 0.5 * (record.precision == task.precision.value) + 0.5 * (
        arch_number(record.arch) == arch_number(problem.arch)
    )
    brought = record.effect or record.speedup or 1.0
    return score + 1.0 + min(1.0, max(0.0, math.log2(brought)) / 3.0)


def operations(problem: Problem) -> tuple[str, ...]:
    """The names of the reference's operations; () if they are unknown."""
    return tuple(node.op for node in problem.outline.nodes) if problem.outline else ()


def _words(problem: Problem) -> tuple[str, ...]:
    """The words of a reference: its operations and the words of its source, sorted."""
    found = dict.fromkeys(word for text in (*operations(problem), problem.task.source) for word in _plain(text))
    return tuple(sorted(list(found)[:_MOST_WORDS]))


def _plain(text: str) -> Iterable[str]:
    for word in _WORD.findall(text):
        for part in _SEPARATOR.split(word.lower()):
            if len(part) > 1 and part not in _COMMON:
                yield part


def _overlap(one: Iterable[str], other: Iterable[str]) -> float:
    left, right = set(one), set(other)
    return len(left & right) / len(left | right) if left or right else 0.0
