"""The JSON documents of the commands that search; field names are a promise to programs. See `jsonout`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from warpsmith.cli.jsonout import baseline_names, share_of_floor, worst_error
from warpsmith.core.evaluation import Evaluation
from warpsmith.core.search import Brief, Prompt, Record
from warpsmith.run.session import Session
from warpsmith.run.tuning import Tuned


@dataclass(frozen=True)
class BestDocument:
    """The best kernel of a run."""

    id: str
    trial: int
    file: str
    bundle: str  # the folder that `warpsmith.load` takes
    speedup: Mapping[str, float]
    speedup_interval: Mapping[str, tuple[float, float]]
    share_of_floor: float | None
    error: float | None
    error_limit: float | None
    strategy: str
    verified: bool  # a certificate says so; `warpsmith verify` makes one


@dataclass(frozen=True)
class OptimizeDocument:
    """`warpsmith optimize --json`."""

    run: str
    task: str
    method: str
    proposer: str
    device: str
    status: str  # "ok", "nothing_valid", or "unconfirmed": there are valid kernels, none of them measured twice
    best: BestDocument | None
    trials: int
    valid: int
    compiled: int
    duplicates: int
    unreadable: int
    tokens: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None  # null where a price is not known
    seconds: float
    device_seconds: float
    stopped_because: str


@dataclass(frozen=True)
class AskDocument:
    """`warpsmith ask --json`: a brief to answer."""

    run: str
    brief: int
    operator: str
    move: str
    system: str
    prompt: str
    answer_with: str  # the command that tells the answer


@dataclass(frozen=True)
class RecordDocument:
    """`warpsmith tell --json` and each line of `warpsmith step --json`."""

    run: str
    trial: int
    brief: int
    outcome: str
    candidate: str
    status: str | None
    reason: str
    speedup: float | None
    best: bool


@dataclass(frozen=True)
class RunDocument:
    """One run of `warpsmith runs --json`."""

    run: str
    task: str
    method: str
    proposer: str
    device: str
    trials: int
    budget: int
    valid: int
    speedup: float | None
    cost_usd: float
    tokens: int
    pending: int
    state: str  # why it was closed, or "open"


@dataclass(frozen=True)
class TuneDocument:
    """`warpsmith tune --json`."""

    task: str
    file: str
    status: str  # "ok" or "nothing_valid"
    values: Mapping[str, str]  # of the best
    speedup: Mapping[str, float]
    speedup_interval: Mapping[str, tuple[float, float]]
    gain: float | None  # over the kernel as it came
    improved: bool  # whether that is certain
    tried: int
    discarded: int
    points: int
    written: str | None


Document = OptimizeDocument | AskDocument | RecordDocument | RunDocument | TuneDocument


def dumps(document: Document) -> str:
    """One line."""
    return json.dumps(asdict(document), ensure_ascii=False, allow_nan=False)


def optimize_document(session: Session, best: Path | None, bundle: Path, reason: str) -> OptimizeDocument:
    """The outcome of a run."""
    ledger = session.ledger
    totals, begun = ledger.totals, ledger.begun
    return OptimizeDocument(
        run=str(session.folder),
        task=begun.problem.task.name,
        method=begun.method.name,
        proposer=session.proposer,
        device=begun.problem.device,
        status="ok" if best else "unconfirmed" if totals.valid else "nothing_valid",
        best=_best(session, best, bundle) if best else None,
        trials=totals.trials,
        valid=totals.valid,
        compiled=totals.compiled,
        duplicates=totals.duplicates,
        unreadable=totals.unreadable,
        tokens=totals.tokens,
        prompt_tokens=totals.prompt_tokens,
        completion_tokens=totals.completion_tokens,
        cost_usd=None if totals.unpriced else totals.cost_usd,
        seconds=round(totals.seconds, 3),
        device_seconds=round(totals.device_seconds, 3),
        stopped_because=reason,
    )


def _best(session: Session, path: Path, bundle: Path) -> BestDocument:
    trial = session.ledger.trials[session.ledger.best]
    evaluation = session.evaluation(trial.number)
    assert evaluation is not None, "the best was measured"
    speedups, intervals = _against(evaluation)
    worst = worst_error(evaluation)
    return BestDocument(
        id=trial.candidate,
        trial=trial.number,
        file=str(path),
        bundle=str(bundle),
        speedup=speedups,
        speedup_interval=intervals,
        share_of_floor=share_of_floor(evaluation),
        error=worst.error if worst else None,
        error_limit=worst.error_limit if worst else None,
        strategy=trial.strategy,
        verified=False,
    )


def tune_document(task: str, file: str, written: str, tuned: Tuned) -> TuneDocument:
    """What tuning found."""
    speedups, intervals = _against(tuned.evaluation) if tuned.evaluation else ({}, {})
    return TuneDocument(
        task=task,
        file=file,
        status="ok" if tuned.best else "nothing_valid",
        values=dict(tuned.best.defines) if tuned.best else {},
        speedup=speedups,
        speedup_interval=intervals,
        gain=tuned.gain,
        improved=tuned.improved,
        tried=tuned.tried,
        discarded=tuned.discarded,
        points=tuned.total,
        written=written or None,
    )


def _against(evaluation: Evaluation) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
    """Speedups and their intervals, by baseline."""
    speedups, intervals = {}, {}
    for name in baseline_names(evaluation):
        speedup, interval = evaluation.speedup(name), evaluation.interval(name)
        if speedup is not None and interval is not None:
            speedups[name], intervals[name] = speedup, (interval.low, interval.high)
    return speedups, intervals


def ask_document(session: Session, brief: Brief, prompt: Prompt) -> AskDocument:
    """A brief to answer."""
    system = "\n\n".join(m.text for m in prompt.messages if m.role == "system")
    user = "\n\n".join(m.text for m in prompt.messages if m.role != "system")
    return AskDocument(
        run=str(session.folder),
        brief=brief.number,
        operator=brief.operator,
        move=brief.move,
        system=system,
        prompt=user,
        answer_with=f"warpsmith tell {session.folder} FILE --brief {brief.number}",
    )


def record_document(session: Session, record: Record) -> RecordDocument:
    """What became of a proposal."""
    return RecordDocument(
        run=str(session.folder),
        trial=record.trial,
        brief=record.brief,
        outcome=record.outcome,
        candidate=record.candidate,
        status=record.status.value if record.status else None,
        reason=record.reason,
        speedup=record.speedup,
        best=record.best,
    )
