"""The JSON documents of `--json`: one line each, with stable field names.

A command prints one document; `evaluate`, `contract`, `step` and `bench judge` print one per result.

A document is built from the records of the other rooms. Fields may be added; a field that is here keeps its name and
its meaning. Numbers are finite or null, because NaN and Infinity are not JSON.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from warpsmith.model.brief import Brief, Prompt, Role, TrialOutcome, TrialRecord
from warpsmith.model.certificate import Calibration
from warpsmith.model.contract import Contract
from warpsmith.model.evaluation import Evaluation, WorkloadResult
from warpsmith.model.task import Task
from warpsmith.search.session import Session

if TYPE_CHECKING:
    from warpsmith.search.tuning import TuningResult

Document = Mapping[str, object]


def dumps(document: object) -> str:
    """One line of strict JSON."""
    return json.dumps(_plain(document), allow_nan=False)


def print_document(document: object) -> None:
    """Write one line to standard output, at once."""
    sys.stdout.write(dumps(document) + "\n")
    sys.stdout.flush()


def _plain(value: object) -> object:
    """The same in types of JSON, with null for numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


# --- evaluate ---


def evaluate_document(evaluation: Evaluation, *, file: str, device: str) -> dict[str, object]:
    """`evaluate --json`, one per file. With several workloads, times are geometric means.

    `verified` and `certificate` are null without `--verify`.
    """
    worst = worst_error(evaluation)
    environment = asdict(evaluation.environment)
    return {
        "task": evaluation.task,
        "file": file,  # as given
        "candidate": evaluation.candidate,
        "device": device,  # as torch writes it: "cpu", "cuda:0"
        "status": evaluation.status,
        "reason": evaluation.reason,  # "" when ok
        "latency_ms": latency_ms(evaluation),
        "baseline_ms": {name: baseline_ms(evaluation, name) for name in baseline_names(evaluation)},
        "candidate_ms": {name: candidate_ms(evaluation, name) for name in baseline_names(evaluation)},
        **speedups(evaluation),
        "error": worst.error if worst else None,  # in the workload where it came nearest to its limit
        "error_limit": worst.error_limit if worst else None,
        "precision": evaluation.precision,
        "floor_ms": floor_ms(evaluation),
        "share_of_floor": share_of_floor(evaluation),
        "resources": evaluation.resources,
        "sandbox": environment.pop("sandbox"),
        "workloads": [_workload(result) for result in evaluation.workloads],
        "notes": evaluation.notes,
        "without": evaluation.without,  # guards that were left out; then nothing here can be trusted
        "calibrated": not evaluation.uncalibrated,
        "uncalibrated": evaluation.uncalibrated,  # what wrong results the task cannot tell from right ones; "" if none
        "cached": evaluation.cached,
        "seconds": round(evaluation.seconds, 3),
        "environment": environment,
        "verified": None,
        "certificate": None,
    }


def _workload(result: WorkloadResult) -> Document:
    body = asdict(result)
    del body["workload"], body["baselines"]
    return {
        **body,
        "name": result.workload,
        "axes": dict(result.axes),
        "share_of_floor": result.share_of_floor,
        "baseline_ms": {b.name: b.latency_ms for b in result.baselines},
        "candidate_ms": {b.name: b.candidate_ms for b in result.baselines},  # in the pairs with that baseline
        "speedup": {b.name: b.speedup for b in result.baselines},
        "speedup_interval": {b.name: (b.interval.low, b.interval.high) for b in result.baselines},
        "samples": {b.name: b.samples for b in result.baselines},
    }


def speedups(evaluation: Evaluation | None) -> Document:
    """Speedups and their intervals, by baseline."""
    speedups, intervals = {}, {}
    for name in baseline_names(evaluation) if evaluation else ():
        speedup, interval = evaluation.speedup(name), evaluation.interval(name)  # type: ignore[union-attr]
        if speedup is not None and interval is not None:
            speedups[name], intervals[name] = speedup, (interval.low, interval.high)
    return {"speedup": speedups, "speedup_interval": intervals}


def calibrate_document(task: Task, found: Calibration, *, file: str, device: str) -> Document:
    """`evaluate --calibrate --json`."""
    return {
        "task": task.name,
        "file": file,
        "device": device,
        "precision": task.precision,
        **asdict(found),
        "seconds": round(found.seconds, 3),
    }


def contract_document(contract: Contract, task: Task, *, file: str, declaration: str) -> Document:
    """`contract --json`, one per task and backend."""
    return {
        "task": contract.task,
        "file": file,
        "backend": contract.backend,
        "precision": task.precision,
        "entry": contract.entry,
        "declaration": declaration,
        "arguments": [
            {"name": a.name, "kind": a.kind, "ctype": a.ctype, "meaning": a.meaning} for a in contract.arguments
        ],
        "table": contract.table,  # the tensors behind the table argument, in order
        "header": contract.header,
        "text": contract.text,
        "workloads": [{"name": w.name, "axes": w.sizes} for w in task.workloads],
    }


# --- runs ---


@dataclass(frozen=True)
class RunDocument:
    """One run of `runs --json`."""

    run: str
    date: str  # when it was begun, ISO 8601, UTC
    task: str
    method: str
    proposer: str
    device: str
    trials: int
    budget: int
    valid: int
    speedup: Mapping[str, float]  # of the best kernel, by baseline; empty if there is none
    cost_usd: float
    tokens: int
    pending: int
    state: str  # why the run was closed; "running", or "open" if no process works on it


def optimize_document(session: Session, best: Path | None, bundle: Path, reason: str) -> Document:
    """`optimize --json`.

    `status` is "ok", "nothing_valid", or "unconfirmed": there are valid kernels, but none was measured twice.
    """
    totals, setup = session.state.totals, session.state.setup
    counts = ("trials", "valid", "compiled", "duplicates", "unreadable", "tokens", "prompt_tokens", "completion_tokens")
    return {
        "run": str(session.folder),
        "task": setup.problem.task.name,
        "method": setup.method.name,
        "proposer": session.proposer,
        "device": setup.problem.device,
        "calibrated": not setup.problem.uncalibrated,
        "status": "ok" if best else "unconfirmed" if totals.valid else "nothing_valid",
        "start": _start(session) if session.state.starting else None,  # the starting kernel
        "best": _best(session, best, bundle) if best else None,
        **{name: getattr(totals, name) for name in counts},
        "cost_usd": None if totals.unpriced else totals.cost_usd,  # null where a price is not known
        "seconds": round(totals.seconds, 3),
        "device_seconds": round(totals.device_seconds, 3),
        "stopped_because": reason,
    }


def _start(session: Session) -> Document:
    trial = session.state.trials[session.state.starting]
    evaluation = session.evaluation(trial.number)
    assert evaluation is not None, "the starting kernel was judged before the search"
    return {"id": trial.candidate, "trial": trial.number, **speedups(evaluation)}


def _best(session: Session, path: Path, bundle: Path) -> Document:
    trial = session.state.trials[session.state.best]
    evaluation = session.evaluation(trial.number)
    assert evaluation is not None, "the best kernel was measured"
    worst = worst_error(evaluation)
    return {
        "id": trial.candidate,
        "trial": trial.number,
        "file": str(path),
        "bundle": str(bundle),  # the folder that `warpsmith.load` takes
        **speedups(evaluation),
        "speedup_over_start": session.state.over_start,  # null where the run has no starting kernel
        "share_of_floor": share_of_floor(evaluation),
        "error": worst.error if worst else None,
        "error_limit": worst.error_limit if worst else None,
        "strategy": trial.strategy,
        "verified": False,  # a certificate says so; `warpsmith verify` makes one
    }


def tune_document(task: str, file: str, written: str, tuned: TuningResult) -> Document:
    """`tune --json`."""
    return {
        "task": task,
        "file": file,
        "status": "ok" if tuned.best else "nothing_valid",
        "values": dict(tuned.best.defines) if tuned.best else {},
        **speedups(tuned.evaluation),
        "gain": tuned.gain,  # over the kernel as given
        "improved": tuned.improved,  # the interval of the gain lies above 1
        "tried": tuned.tried,
        "discarded": tuned.discarded,
        "points": tuned.total,
        "written": written or None,
    }


def ask_document(session: Session, brief: Brief, prompt: Prompt) -> Document:
    """`ask --json`: a brief to answer."""
    return {
        "run": str(session.folder),
        "brief": brief.number,
        "operator": brief.operator,
        "move": brief.move,
        "system": "\n\n".join(m.text for m in prompt.messages if m.role is Role.SYSTEM),
        "prompt": "\n\n".join(m.text for m in prompt.messages if m.role is not Role.SYSTEM),
        "answer_with": f"warpsmith tell {session.folder} FILE --brief {brief.number}",
    }


def trial_document(session: Session, record: TrialRecord) -> Document:
    """`tell --json`, and each line of `step --json`."""
    body = asdict(record)
    if twin := body.pop("twin"):
        body["reason"] = f"the same kernel as {twin}, so it was not judged again; hand in another one."
    evaluation = session.evaluation(record.trial) if record.speedup is not None else None
    rank = session.state.rank(record.trial)
    return {
        "run": str(session.folder),
        **body,
        **speedups(evaluation),
        "calibrated": not session.state.setup.problem.uncalibrated,
        "rank": rank[0] if rank else None,  # among the valid kernels of the run, by the lower end of the speedup
        "valid": rank[1] if rank else None,
        "next": next_step(session, record),
    }


def next_step(session: Session, record: TrialRecord) -> str:
    """The command that goes on after `tell`; "" where the run is over."""
    if record.outcome is TrialOutcome.PENDING or session.state.pending:
        return f"warpsmith step {session.folder}"
    return "" if session.stop_reason else f"warpsmith ask {session.folder}"


# --- several workloads in one number ---


def baseline_names(evaluation: Evaluation) -> tuple[str, ...]:
    """Every baseline that was measured, in the order measured."""
    return tuple(dict.fromkeys(b.name for w in evaluation.workloads for b in w.baselines))


def latency_ms(evaluation: Evaluation) -> float | None:
    """Geometric mean over the workloads; None when invalid."""
    return _mean([w.latency_ms for w in evaluation.workloads])


def baseline_ms(evaluation: Evaluation, name: str) -> float:
    """Geometric mean of one baseline's times; 0 where it was not measured."""
    return _mean([b.latency_ms for w in evaluation.workloads for b in w.baselines if b.name == name]) or 0.0


def candidate_ms(evaluation: Evaluation, name: str) -> float:
    """Geometric mean of the candidate's times in the pairs with one baseline; 0 where it was not measured."""
    return _mean([b.candidate_ms for w in evaluation.workloads for b in w.baselines if b.name == name]) or 0.0


def floor_ms(evaluation: Evaluation) -> float | None:
    """Geometric mean of the floors; None when invalid."""
    return _mean([w.floor_ms for w in evaluation.workloads])


def share_of_floor(evaluation: Evaluation) -> float | None:
    """Geometric mean of the shares of the roofline; None when invalid."""
    return _mean([w.share_of_floor for w in evaluation.workloads])


def worst_error(evaluation: Evaluation) -> WorkloadResult | None:
    """The workload whose error came nearest to its limit; None when invalid."""
    return max(evaluation.workloads, key=_share_of_limit, default=None)


def _share_of_limit(result: WorkloadResult) -> float:
    if result.error_limit > 0:
        return result.error / result.error_limit
    return math.inf if result.error > 0 else 0.0


def _mean(values: list[float]) -> float | None:
    if not values:
        return None
    if any(value <= 0 for value in values):
        return 0.0  # the logarithm of a floor of zero does not exist
    return math.exp(sum(math.log(value) for value in values) / len(values))
