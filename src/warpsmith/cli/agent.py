"""`ask`, `tell` and `step`: a coding agent or a person proposes kernels, on one machine or across two.

    warpsmith ask softmax.py --run runs/mine      start a run; print the first brief
    warpsmith tell runs/mine kernel.cu            hand in an answer and have it judged
    warpsmith ask runs/mine                       the next brief, which knows the verdict

A run's folder can travel: `tell --later` leaves the verdict to `step`, on a machine with the device.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from warpsmith.archive.events import Budget
from warpsmith.archive.log import FILE
from warpsmith.backends.source import backend_named
from warpsmith.cli import render, searchjson
from warpsmith.cli.evaluate import check_cache, check_task_file, exit_status, timed_for
from warpsmith.cli.live import best_line, verdict_line
from warpsmith.core.config import Paths
from warpsmith.core.errors import CandidateError, RunError, UsageError
from warpsmith.core.evaluation import Evaluation
from warpsmith.core.search import Brief, Outcome, Prompt, Record, Reply, Role
from warpsmith.evaluate.evaluator import Evaluator
from warpsmith.methods.loading import load
from warpsmith.prompts.renderer import render as render_prompt
from warpsmith.run import opening
from warpsmith.run.best import write_best
from warpsmith.run.budgets import REASONS
from warpsmith.run.loop import judge_pending
from warpsmith.run.profiling import looking, profile_next
from warpsmith.run.recalling import recall
from warpsmith.run.session import Session

_REPLIES = (".md", ".txt", "")  # endings of files that are answers to be read, not sources
_MOST_BYTES = 4 << 20
_METHOD = "evoengineer-full"  # it only ever asks for kernels: whoever brings one is asked for nothing else


@dataclass(frozen=True)
class AskRequest:
    """What `ask` was asked; None or "" where nothing was said."""

    what: str  # a run's folder, or a task to start one with
    run: str = ""
    method: str | None = None
    device: str | None = None
    backend: str = ""
    trials: int | None = None
    timing_budget_s: float | None = None
    stop_at: float | None = None  # 0: never
    as_json: bool = False


@dataclass(frozen=True)
class TellRequest:
    """What `tell` was told."""

    run: str
    file: str  # a source file, or a reply to be read; "-" for standard input
    brief: int | None = None
    later: bool = False
    device: str | None = None
    as_json: bool = False


@dataclass(frozen=True)
class StepRequest:
    """What `step` is to judge."""

    run: str
    device: str | None = None
    as_json: bool = False


def ask(request: AskRequest) -> int:
    """Print the next brief; 1 where there is none."""
    with _opened(request) as session:
        waiting = sorted(session.ledger.in_flight)
        brief = session.brief(waiting[0]) if waiting else session.ask()
        if brief is None:
            _say_nothing_to_ask(session)
            return 1
        prompt = render_prompt(brief)
        if not waiting:
            session.sent(brief, prompt)
        _show(session, brief, prompt, as_json=request.as_json)
    return 0


def tell(request: TellRequest) -> int:
    """Take an answer, and have it judged unless that is for later.

    0 valid or left for later, 1 not valid, 2 it could not be judged.
    """
    folder = opening.find(request.run)
    with Session.resume(folder, keep=True) as session:
        reply = _reply(request.file, session.ledger.begun.config.backend)
        brief = _brief(session, request.brief)
        session.received(brief, reply)
        record = session.answer(brief, reply)
        if record.outcome is Outcome.PENDING and not request.later:
            record = _judge(session, request.device, record.trial)
        _report(session, record, as_json=request.as_json)
    if record.outcome in (Outcome.PENDING, Outcome.WRITTEN):
        return 0
    return exit_status([record.status]) if record.status else 1


def step(request: StepRequest) -> int:
    """Judge what is pending; 0 where something was, or nothing had to be. A run that had ended has ended afterwards."""
    folder = opening.find(request.run)
    with Session.peek(folder) as seen:
        closed = seen.ledger.closed
    with Session.resume(folder, keep=True) as session, ExitStack() as afterwards:
        if closed is not None:
            afterwards.callback(session.end, closed.reason, closed.detail)
        config = session.ledger.begun.config
        count = 0
        if session.pending():
            with opening.evaluator_for(config, request.device) as evaluator:
                bench = opening.bench_of(session, evaluator)

                def shown(record: Record, evaluation: Evaluation) -> None:
                    _print_record(session, record, evaluation, as_json=request.as_json)

                count = judge_pending(session, bench, shown)
                _profile(session, evaluator)
        best = write_best(session)
        console = render.console(stderr=True)
        reached = f"{count} verdict{'s' * (count > 1)} reached" if count else "nothing is pending"
        render.say(console, f"{reached}; {best_line(session.ledger)}.")
        if best:
            render.say(console, f"The best kernel is in {best}.")
        if not count:
            render.say(console, f"Get the next brief: warpsmith ask {folder}", whole=True)
            render.say(console, f"Hand in a kernel: warpsmith tell {folder} FILE", whole=True)
    return 0


def _opened(request: AskRequest) -> Session:
    folder = opening.find(request.what)
    if (folder / FILE).exists():
        if given := _for_a_task(request):
            raise UsageError(f"{request.what} is a run already; {given} is for starting one with a task: leave it out.")
        return Session.resume(folder, keep=True)
    if folder.is_dir() or not request.what.partition("::")[0].endswith(".py"):
        raise RunError(f"{request.what} is neither the folder of a run nor a task file; `warpsmith runs` lists runs.")
    check_task_file(request.what)
    if request.run and (Path(request.run) / FILE).exists():
        raise UsageError(
            f"{request.run} holds a run already; `warpsmith ask {request.run}` goes on with it, or choose another."
        )
    check_cache(Paths.from_environment().cache)
    device, backend = opening.choose(request.device or "auto", request.backend)
    budget = opening.extended(Budget(), trials=request.trials)
    order = opening.Order(
        task=request.what,
        method=load(request.method or _METHOD),
        proposer="person",
        budget=budget,
        folder=Path(request.run) if request.run else None,
        device=request.device or "auto",
        settings=timed_for(request.timing_budget_s),
        enough_share=opening.enough(request.stop_at),
    )
    with Evaluator(device, order.settings) as evaluator:
        return opening.begin(order, evaluator, backend, recall)


def _for_a_task(request: AskRequest) -> str:
    """The first option given that only a new run takes; "" where there is none."""
    options = {
        "--run": request.run or None,
        "--method": request.method,
        "--device": request.device,
        "--backend": request.backend or None,
        "--trials": request.trials,
        "--time-budget": request.timing_budget_s,
        "--stop-at": request.stop_at,
    }
    return next((name for name, value in options.items() if value is not None), "")


def _say_nothing_to_ask(session: Session) -> None:
    reason = session.stopped_because
    if reason:
        said = f"nothing more to ask: {REASONS.get(reason, reason)}; {best_line(session.ledger)}."
    elif session.ledger.pending:
        said = f"verdicts are pending; reach them with `warpsmith step {session.folder}`, then ask again."
    else:
        said = "nothing can be asked until an open brief is answered."
    render.say(render.console(stderr=True), said)


def _show(session: Session, brief: Brief, prompt: Prompt, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(searchjson.dumps(searchjson.ask_document(session, brief, prompt)) + "\n")
        return
    for message in prompt.messages:
        if message.role is not Role.ASSISTANT:
            sys.stdout.write(message.text.rstrip() + "\n\n")
    hint = f"Brief {brief.number} ({brief.operator}). Answer with: warpsmith tell {session.folder} FILE"
    render.say(render.console(stderr=True), hint, "bold", whole=True)


def _brief(session: Session, number: int | None) -> Brief:
    """The brief that is answered: the one named, the only one open, or a new one for an answer nobody asked for."""
    waiting = sorted(session.ledger.in_flight)
    if number is not None:
        return session.brief(number)
    if len(waiting) > 1:
        listed = ", ".join(map(str, waiting))
        raise UsageError(f"several briefs wait for an answer ({listed}); say which one with --brief N.")
    if waiting:
        return session.brief(waiting[0])
    brief = session.ask()
    if brief is None:
        reason = session.stopped_because
        why = REASONS.get(reason, "verdicts are pending") if reason else "verdicts are pending: `warpsmith step` first"
        raise RunError(f"{session.folder} takes no more proposals: {why}.")
    return brief


def _reply(file: str, backend: str) -> Reply:
    """What was handed in: a source file as it is, or a text to be read like a model's."""
    try:
        if file == "-":
            data, suffix, name = sys.stdin.buffer.read(_MOST_BYTES + 1), "", ""
        else:
            path = Path(file)
            suffix, name = path.suffix.lower(), path.name
            if suffix not in (*_REPLIES, *backend_named(backend).suffixes):
                wanted = ", ".join(backend_named(backend).suffixes)
                raise CandidateError(f"this run takes {backend} kernels ({wanted}) or replies (.md, .txt); not {file}.")
            with path.open("rb") as opened:
                data = opened.read(_MOST_BYTES + 1)
    except OSError as refused:
        raise CandidateError(f"{file} cannot be read ({refused.strerror}); name a kernel or a reply.") from None
    if len(data) > _MOST_BYTES:
        raise CandidateError(f"{file} is larger than {_MOST_BYTES >> 20} MiB; a kernel is not.")
    text = data.decode("utf-8", "replace")
    return Reply(text, "person", file="" if suffix in _REPLIES else name)


def _judge(session: Session, device: str | None, trial: int) -> Record:
    with opening.evaluator_for(session.ledger.begun.config, device) as evaluator:
        judge_pending(session, opening.bench_of(session, evaluator), lambda record, evaluation: None)
        _profile(session, evaluator)
    write_best(session)
    return session.record(trial)


def _profile(session: Session, evaluator: Evaluator) -> None:
    """The device is here now; whoever asks next may be somewhere else."""
    with looking(session, evaluator) as look:
        profile_next(session, look)


def _report(session: Session, record: Record, *, as_json: bool) -> None:
    evaluation = session.evaluation(record.trial) if record.trial else None
    if as_json:
        sys.stdout.write(searchjson.dumps(searchjson.record_document(session, record)) + "\n")
    elif record.outcome is Outcome.WRITTEN:
        sys.stdout.write("kept.\n")
    elif record.outcome is Outcome.PENDING:
        sys.stdout.write(f"trial {record.trial} is kept; judge it with `warpsmith step {session.folder}`.\n")
    elif evaluation is not None:
        proposed = session.proposed(record.trial)
        assert proposed is not None, "it was just told"
        name = proposed.candidate.main.name if proposed.candidate else record.candidate
        render.show(render.console(), render.card(render.Judged(name, evaluation)))
    else:
        _print_record(session, record, evaluation, as_json=False)


def _print_record(session: Session, record: Record, evaluation: Evaluation | None, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(searchjson.dumps(searchjson.record_document(session, record)) + "\n")
        sys.stdout.flush()
        return
    line = verdict_line(record, evaluation, session.ledger)
    if line is not None:
        render.say(render.console(), line)
