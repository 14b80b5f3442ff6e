"""`warpsmith ask`, `tell` and `step`: a coding agent or a person proposes kernels.

    warpsmith ask softmax.py --run runs/mine      start a run; print the first brief
    warpsmith tell runs/mine kernel.cu            answer it; the kernel is judged
    warpsmith ask runs/mine                       print the next brief, which includes the verdict

`tell --later` leaves judging to `step`: the run's folder can be copied to a machine with the device and back.
"""

from __future__ import annotations

import errno
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from warpsmith.backends.source import backend_named
from warpsmith.cli import cards
from warpsmith.cli.checks import check_task_file, exit_status, writable_paths
from warpsmith.cli.json_documents import ask_document, next_step, print_document, trial_document
from warpsmith.cli.live import best_line, verdict_line
from warpsmith.cli.options import (
    AcceptUncalibrated,
    AsJson,
    DeviceHere,
    JsonLines,
    RunArgument,
    TimeBudget,
    Trust,
)
from warpsmith.cli.resume import confirm_task
from warpsmith.cli.terminal import write
from warpsmith.engine.engine import LOCAL, Engine, open_engine
from warpsmith.model.brief import Brief, Prompt, Reply, Role, TrialOutcome, TrialRecord
from warpsmith.model.errors import CandidateError, RunError, UsageError
from warpsmith.model.evaluation import Evaluation
from warpsmith.prompts.renderer import render as render_prompt
from warpsmith.run_log.log import LOG_FILE
from warpsmith.search import open_run
from warpsmith.search.best_kernel import write_best
from warpsmith.search.loop import judge_pending
from warpsmith.search.next_brief import find_precedents
from warpsmith.search.options import BY_HAND, RunOptions
from warpsmith.search.profiles import kernel_profiler, profile_next
from warpsmith.search.session import Session
from warpsmith.system.files import read_file
from warpsmith.tasks.suites import resolve_task

_REPLIES = (".md", ".txt", "")  # endings of files that hold a reply with a kernel in it, not a source
_MOST_BYTES = 4 << 20
_METHOD = "evoengineer-full"  # each of its briefs asks for a kernel, never for a strategy


def ask(
    what: Annotated[str, typer.Argument(metavar="RUN|TASK", help="A run, or a task file to start one with.")],
    run: Annotated[str, typer.Option(metavar="DIR", help="With a TASK: the new run's folder.")] = "",
    method: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="With a TASK: how to search.  [evoengineer-full]")
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="auto|cpu|cuda[:n]", help="With a TASK: where to run.  [auto]")
    ] = None,
    backend: Annotated[str, typer.Option(metavar="cuda|cpu|triton", help="With a TASK: the kernels' language.")] = "",
    trials: Annotated[int | None, typer.Option(metavar="N", help="With a TASK: proposals at most.  [45]")] = None,
    time_budget: TimeBudget = None,
    stop_at: Annotated[
        float | None,
        typer.Option(
            min=0.0, metavar="SHARE", help="With a TASK: stop at this share of the roofline; 0 never.  [0.95]"
        ),
    ] = None,
    accept_uncalibrated: AcceptUncalibrated = False,
    json: AsJson = False,
) -> int:
    """Print the next brief: everything a coding agent or a person needs to propose a kernel.

    The brief is on standard output. Answer it with `warpsmith tell`. Exit status: 1 if there is nothing to ask.
    """
    of_new_runs = {
        "--run": run or None,
        "--method": method,
        "--device": device,
        "--backend": backend or None,
        "--trials": trials,
        "--time-budget": time_budget,
        "--stop-at": stop_at,
        "--accept-uncalibrated": accept_uncalibrated or None,
    }
    given = next((name for name, value in of_new_runs.items() if value is not None), "")
    session = _existing_run(what, given)
    if session is None:
        what = resolve_task(what)
        _check_new_run(what, run)
        options = RunOptions(
            method=method or _METHOD,
            trials=trials,
            device=device,
            backend=backend or None,
            timing_budget_s=time_budget,
            stop_at=stop_at,
            accept_uncalibrated=accept_uncalibrated,
        )
        chosen, language = open_run.choose(device or "auto", backend)
        config = open_run.resolve(what, options, proposer=BY_HAND, device=chosen, backend=language)
        with open_engine(LOCAL, chosen, config.settings) as evaluator:
            session = open_run.begin(
                config,
                open_run.method_for(options),
                evaluator,
                folder=Path(run) if run else None,
                recall=find_precedents,
                options=options,
            )
    with session:
        waiting = sorted(session.state.in_flight)
        brief = session.brief(waiting[0]) if waiting else session.ask()
        if brief is None:
            _say_nothing_to_ask(session)
            return 1
        prompt = render_prompt(brief)
        if not waiting:
            session.sent(brief, prompt)
        _show(session, brief, prompt, as_json=json)
    return 0


def tell(
    run: RunArgument,
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A kernel, or a reply that holds one (.md, .txt, - for standard input)."),
    ],
    brief: Annotated[int | None, typer.Option(metavar="N", help="Which brief, if several are open.")] = None,
    later: Annotated[
        bool, typer.Option("--later", help="Only keep it; `warpsmith step` judges it, here or elsewhere.")
    ] = False,
    device: DeviceHere = None,
    trust: Trust = False,
    json: AsJson = False,
) -> int:
    """Answer a brief with a kernel. The kernel is judged, and the next brief includes the verdict.

    Exit status: 0 valid (or kept for later), 1 not valid, 2 it could not be judged.
    """
    folder = open_run.find(run)
    setup = open_run.config_of(folder)
    reply = _reply(file, setup.config.backend)
    if not later:
        confirm_task(folder, setup, trust=trust)
    with Session.resume(folder, keep=True) as session:
        answered = _brief(session, brief)
        session.received(answered, reply)
        record = session.answer(answered, reply)
        if record.outcome is TrialOutcome.PENDING and not later:
            record = _judge(session, device, record.trial)
        _report(session, record, as_json=json)
    if record.outcome in (TrialOutcome.PENDING, TrialOutcome.WRITTEN):
        return 0
    return exit_status([record.status]) if record.status else 1


def step(run: RunArgument, device: DeviceHere = None, trust: Trust = False, json: JsonLines = False) -> int:
    """Judge what `tell --later` left. The run's folder can be copied to a GPU machine and back.

    Judging executes the run's task.py; for a run that was created elsewhere that needs --trust.
    Exit status: 0 everything pending is judged. A run that was closed is closed again afterwards.
    """
    folder = open_run.find(run)
    with Session.read(folder) as seen:
        closed = seen.state.closed
        if seen.state.pending:
            confirm_task(folder, seen.state.setup, trust=trust)
    with Session.resume(folder, keep=True) as session, ExitStack() as afterwards:
        if closed is not None:
            afterwards.callback(session.end, closed.reason, closed.detail)
        count = 0
        if session.pending():
            with open_run.evaluator_for(session.folder, session.state.setup, device) as evaluator:

                def judged(record: TrialRecord, evaluation: Evaluation) -> None:
                    _print_record(session, record, evaluation, as_json=json)

                count = judge_pending(session, open_run.task_evaluator(session, evaluator), judged)
                _profile(session, evaluator)
        best = write_best(session)
        console = cards.console(stderr=True)
        reached = f"{count} verdict{'s' * (count > 1)} reached" if count else "nothing is pending"
        cards.say(console, f"{reached}; {best_line(session.state)}.")
        if best:
            cards.say(console, f"The best kernel is in {best}.")
        if not count:
            cards.say(console, f"Get the next brief: warpsmith ask {folder}", whole=True)
            cards.say(console, f"Hand in a kernel: warpsmith tell {folder} FILE", whole=True)
    return 0


def _existing_run(what: str, given: str) -> Session | None:
    """The run that a user names, opened; None if it is no run. `given` is an option that only a new run takes."""
    folder = open_run.find(what)
    if not (folder / LOG_FILE).exists():
        return None
    if given:
        raise UsageError(f"{what} is a run already; {given} is for starting one with a task: leave it out.")
    return Session.resume(folder, keep=True)


def _check_new_run(task: str, folder: str) -> None:
    if open_run.find(task).is_dir() or not task.partition("::")[0].endswith(".py"):
        raise RunError(f"{task} is neither the folder of a run nor a task file; `warpsmith runs` lists runs.")
    check_task_file(task)
    if folder and (Path(folder) / LOG_FILE).exists():
        raise UsageError(
            f"{folder} holds a run already; `warpsmith ask {folder}` continues it, or choose another folder."
        )
    writable_paths()


def _say_nothing_to_ask(session: Session) -> None:
    reason = session.stop_reason
    if reason:
        said = f"nothing more to ask: {reason.words}; {best_line(session.state)}."
    elif session.state.pending:
        said = f"verdicts are pending; run `warpsmith step {session.folder}`, then ask again."
    else:
        said = "there is no new brief until an open one is answered."
    cards.say(cards.console(stderr=True), said)


def _show(session: Session, brief: Brief, prompt: Prompt, *, as_json: bool) -> None:
    if as_json:
        print_document(ask_document(session, brief, prompt))
        return
    for message in prompt.messages:
        if message.role is not Role.ASSISTANT:
            write(message.text.rstrip() + "\n\n")
    hint = f"Brief {brief.number} ({brief.operator}). Answer with: warpsmith tell {session.folder} FILE"
    cards.say(cards.console(stderr=True), hint, "bold", whole=True)


def _brief(session: Session, number: int | None) -> Brief:
    """The brief that is answered: the one named, the only open one, or a new one if none is open."""
    waiting = sorted(session.state.in_flight)
    if number is not None:
        return session.brief(number)
    if len(waiting) > 1:
        listed = ", ".join(map(str, waiting))
        raise UsageError(f"several briefs wait for an answer ({listed}); say which one with --brief N.")
    if waiting:
        return session.brief(waiting[0])
    brief = session.ask()
    if brief is None:
        reason = session.stop_reason
        why = reason.words if reason else "verdicts are pending: `warpsmith step` first"
        raise RunError(f"{session.folder} takes no more proposals: {why}.")
    return brief


def _reply(file: str, backend: str) -> Reply:
    """The content of FILE: a source file, or a reply that is parsed like that of a model."""
    try:
        if file == "-":
            data, suffix, name = sys.stdin.buffer.read(_MOST_BYTES + 1), "", ""
            if len(data) > _MOST_BYTES:
                raise OSError(errno.EFBIG, f"it has more than {_MOST_BYTES} bytes")
        else:
            path = Path(file)
            suffix, name = path.suffix.lower(), path.name
            if suffix not in (*_REPLIES, *backend_named(backend).suffixes):
                wanted = ", ".join(backend_named(backend).suffixes)
                raise CandidateError(f"this run takes {backend} kernels ({wanted}) or replies (.md, .txt), not {file}.")
            data = read_file(path.resolve(), _MOST_BYTES)
    except OSError as refused:
        raise CandidateError(f"{file} cannot be read ({refused.strerror}); name a kernel or a reply.") from None
    text = data.decode("utf-8", "replace")
    return Reply(text, "person", file="" if suffix in _REPLIES else name)


def _judge(session: Session, device: str | None, trial: int) -> TrialRecord:
    with open_run.evaluator_for(session.folder, session.state.setup, device) as evaluator:
        judge_pending(session, open_run.task_evaluator(session, evaluator), lambda record, evaluation: None)
        _profile(session, evaluator)
    write_best(session)
    return session.record(trial)


def _profile(session: Session, evaluator: Engine) -> None:
    """Profile the next parent now: the next `ask` may run on a machine without the device."""
    with kernel_profiler(session, evaluator) as look:
        profile_next(session, look)


def _report(session: Session, record: TrialRecord, *, as_json: bool) -> None:
    evaluation = session.evaluation(record.trial) if record.trial else None
    if as_json:
        print_document(trial_document(session, record))
    elif record.outcome is TrialOutcome.WRITTEN:
        write("the text is kept.\n")
    elif record.outcome is TrialOutcome.PENDING:
        write(f"trial {record.trial} is kept; judge it with `warpsmith step {session.folder}`.\n")
    elif evaluation is not None:
        proposed = session.proposed(record.trial)
        assert proposed is not None, "it was just told"
        name = proposed.candidate.main.name if proposed.candidate else record.candidate
        cards.show(cards.console(), cards.card(cards.JudgedFile(name, evaluation)))
        _say_place(session, record)
    else:
        _print_record(session, record, evaluation, as_json=False)
        _say_place(session, record)


def _say_place(session: Session, record: TrialRecord) -> None:
    """Say which trial this was, where it ranks, and what to do next."""
    rank = session.state.rank(record.trial)
    place = f"rank {rank[0]} of {rank[1]} valid kernel{'s' * (rank[1] != 1)}" if rank else ""
    place = place or (record.status or record.outcome).value.replace("_", " ")
    console, budget = cards.console(), session.budget
    cards.say(console, f"\nTrial {record.trial} of {budget.trials}: {place}; {best_line(session.state)}.")
    step = next_step(session, record)
    if step:
        cards.say(console, f"Next: {step}", whole=True)
    elif session.stop_reason:
        cards.say(console, f"Nothing more to ask: {session.stop_reason.words}.")


def _print_record(session: Session, record: TrialRecord, evaluation: Evaluation | None, *, as_json: bool) -> None:
    if as_json:
        print_document(trial_document(session, record))
        return
    line = verdict_line(record, evaluation, session.state)
    if line is not None:
        cards.say(cards.console(), line)
