"""The JSON documents of `--json`: field names are a promise to programs, so each is written out here.

A document is one line. Numbers are finite or null: NaN and Infinity are not JSON. Not for people (`render`),
and not for our own storage, which keeps whole objects.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from warpsmith.core.contract import Contract
from warpsmith.core.evaluation import Environment, Evaluation, WorkloadResult
from warpsmith.core.task import Task


@dataclass(frozen=True)
class ResourcesDocument:
    """What the compiler says one kernel uses."""

    kernel: str
    registers: int
    spill_bytes: int
    shared_bytes: int
    stack_bytes: int


@dataclass(frozen=True)
class WorkloadDocument:
    """One workload of a valid candidate."""

    name: str
    axes: Mapping[str, int]
    latency_ms: float
    timing: str
    baseline_ms: Mapping[str, float]
    speedup: Mapping[str, float]
    speedup_interval: Mapping[str, tuple[float, float]]
    samples: Mapping[str, int]
    error: float
    error_limit: float
    floor_ms: float
    share_of_floor: float
    bytes: int
    flops: int
    checks: int
    reference: str


@dataclass(frozen=True)
class EnvironmentDocument:
    """Where and with what it was measured."""

    device: str
    backend: str
    compiler: str
    torch: str
    driver: str
    threads: int
    harness: str


@dataclass(frozen=True)
class EvaluateDocument:
    """`warpsmith evaluate --json`, one per file. With several workloads times are geometric means."""

    task: str
    file: str  # as given
    candidate: str
    device: str  # as torch writes it: "cpu", "cuda:0"
    status: str
    reason: str  # "" when ok
    latency_ms: float | None
    baseline_ms: Mapping[str, float]
    speedup: Mapping[str, float]
    speedup_interval: Mapping[str, tuple[float, float]]
    error: float | None  # with its limit: of the workload where it came nearest to the limit
    error_limit: float | None
    precision: str
    floor_ms: float | None
    share_of_floor: float | None
    resources: tuple[ResourcesDocument, ...]
    sandbox: tuple[str, ...]
    workloads: tuple[WorkloadDocument, ...]
    notes: tuple[str, ...]
    cached: bool
    seconds: float
    environment: EnvironmentDocument
    verified: bool | None = None  # with --verify: whether a certificate says so; null where none was asked for
    certificate: str | None = None  # the file it is in


@dataclass(frozen=True)
class ArgumentDocument:
    """One parameter of the entry point."""

    name: str
    kind: str
    ctype: str
    meaning: str


@dataclass(frozen=True)
class SizesDocument:
    """One workload of a task."""

    name: str
    axes: Mapping[str, int]


@dataclass(frozen=True)
class ContractDocument:
    """`warpsmith contract --json`, one per task and backend."""

    task: str
    file: str  # as given
    backend: str
    precision: str
    entry: str
    declaration: str
    arguments: tuple[ArgumentDocument, ...]
    table: tuple[str, ...]  # names behind the table argument, in order
    header: str
    text: str
    workloads: tuple[SizesDocument, ...]


@dataclass(frozen=True)
class CheckDocument:
    """One line of `doctor`."""

    name: str
    state: str  # "ok", "missing" or "absent" (which nothing needs)
    detail: str
    advice: str


@dataclass(frozen=True)
class DoctorDocument:
    """`warpsmith doctor --json`."""

    version: str
    ready: bool  # at least one backend can build and run here
    backends: tuple[str, ...]  # those that can
    checks: tuple[CheckDocument, ...]


@dataclass(frozen=True)
class ImpostorDocument:
    """One wrong result that was tried on a task."""

    name: str
    output: str
    applies: bool
    caught_by: str  # "variant/workload"; "" where nothing catches it, or where it does not apply
    share: float | None  # error ÷ limit; null for exact rules
    detail: str


@dataclass(frozen=True)
class CalibrateDocument:
    """`warpsmith evaluate --calibrate --json`."""

    task: str
    file: str  # as given
    device: str
    precision: str
    passed: bool
    reason: str  # "" when passed
    impostors: tuple[ImpostorDocument, ...]
    baseline_share: float | None  # of its limits that PyTorch's own results use
    reserve: tuple[str, ...]  # input variants this task needs besides the usual ones
    cached: bool
    seconds: float


Document = EvaluateDocument | CalibrateDocument | ContractDocument | DoctorDocument


def dumps(document: Document) -> str:
    """One line of strict JSON, in the order of the fields."""
    return json.dumps(_finite(asdict(document)), allow_nan=False)


def evaluate_document(evaluation: Evaluation, *, file: str, device: str) -> EvaluateDocument:
    """The verdict on one file."""
    names = baseline_names(evaluation)
    intervals = {name: evaluation.interval(name) for name in names}
    worst = worst_error(evaluation)
    return EvaluateDocument(
        task=evaluation.task,
        file=file,
        candidate=evaluation.candidate,
        device=device,
        status=evaluation.status.value,
        reason=evaluation.reason,
        latency_ms=latency_ms(evaluation),
        baseline_ms={name: baseline_ms(evaluation, name) for name in names},
        speedup={name: s for name in names if (s := evaluation.speedup(name)) is not None},
        speedup_interval={name: (i.low, i.high) for name, i in intervals.items() if i is not None},
        error=worst.error if worst else None,
        error_limit=worst.error_limit if worst else None,
        precision=evaluation.precision,
        floor_ms=floor_ms(evaluation),
        share_of_floor=share_of_floor(evaluation),
        resources=tuple(
            ResourcesDocument(r.kernel, r.registers, r.spill_bytes, r.shared_bytes, r.stack_bytes)
            for r in evaluation.resources
        ),
        sandbox=evaluation.environment.sandbox,
        workloads=tuple(_workload(result) for result in evaluation.workloads),
        notes=evaluation.notes,
        cached=evaluation.cached,
        seconds=round(evaluation.seconds, 3),
        environment=_environment(evaluation.environment),
    )


def contract_document(contract: Contract, task: Task, *, file: str, declaration: str) -> ContractDocument:
    """The contract of one task for one backend."""
    return ContractDocument(
        task=contract.task,
        file=file,
        backend=contract.backend,
        precision=task.precision.value,
        entry=contract.entry,
        declaration=declaration,
        arguments=tuple(ArgumentDocument(a.name, a.kind.value, a.ctype, a.meaning) for a in contract.arguments),
        table=contract.table,
        header=contract.header,
        text=contract.text,
        workloads=tuple(SizesDocument(w.name, w.sizes) for w in task.workloads),
    )


# --- several workloads in one number ---


def baseline_names(evaluation: Evaluation) -> tuple[str, ...]:
    """Every baseline it was measured against, in the order measured."""
    return tuple(dict.fromkeys(b.name for w in evaluation.workloads for b in w.baselines))


def latency_ms(evaluation: Evaluation) -> float | None:
    """Geometric mean over the workloads; None when invalid."""
    return _mean([w.latency_ms for w in evaluation.workloads])


def baseline_ms(evaluation: Evaluation, name: str) -> float:
    """Geometric mean of one baseline's times; 0 where it was not measured."""
    return _mean([b.latency_ms for w in evaluation.workloads for b in w.baselines if b.name == name]) or 0.0


def floor_ms(evaluation: Evaluation) -> float | None:
    """Geometric mean of the floors; None when invalid."""
    return _mean([w.floor_ms for w in evaluation.workloads])


def share_of_floor(evaluation: Evaluation) -> float | None:
    """Geometric mean of the shares of speed of light; None when invalid."""
    return _mean([w.share_of_floor for w in evaluation.workloads])


def worst_error(evaluation: Evaluation) -> WorkloadResult | None:
    """The workload whose error came nearest to its limit; None when invalid."""
    return max(evaluation.workloads, key=_strain, default=None)


def _strain(result: WorkloadResult) -> float:
    if result.error_limit > 0:
        return result.error / result.error_limit
    return math.inf if result.error > 0 else 0.0


def _mean(values: list[float]) -> float | None:
    if not values:
        return None
    if any(value <= 0 for value in values):
        return 0.0  # a floor of nothing: the logarithm has none
    return math.exp(sum(math.log(value) for value in values) / len(values))


def _workload(result: WorkloadResult) -> WorkloadDocument:
    return WorkloadDocument(
        name=result.workload,
        axes=dict(result.axes),
        latency_ms=result.latency_ms,
        timing=result.timing,
        baseline_ms={b.name: b.latency_ms for b in result.baselines},
        speedup={b.name: b.speedup for b in result.baselines},
        speedup_interval={b.name: (b.interval.low, b.interval.high) for b in result.baselines},
        samples={b.name: b.samples for b in result.baselines},
        error=result.error,
        error_limit=result.error_limit,
        floor_ms=result.floor_ms,
        share_of_floor=result.share_of_floor,
        bytes=result.bytes,
        flops=result.flops,
        checks=result.checks,
        reference=result.reference,
    )


def _environment(environment: Environment) -> EnvironmentDocument:
    return EnvironmentDocument(
        device=environment.device,
        backend=environment.backend,
        compiler=environment.compiler,
        torch=environment.torch,
        driver=environment.driver,
        threads=environment.threads,
        harness=environment.harness,
    )


def _finite(value: object) -> object:
    """The same with null for what JSON cannot say."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
