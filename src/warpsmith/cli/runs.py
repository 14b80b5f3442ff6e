"""`warpsmith runs` and `warpsmith show RUN [ID]`: list runs, and show one run or one of its candidates."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from warpsmith.cli import cards
from warpsmith.cli.json_documents import RunDocument, print_document
from warpsmith.cli.live import best_line, rates, spending, verdict_line
from warpsmith.cli.options import AsJson, RunArgument
from warpsmith.cli.terminal import print_columns, write
from warpsmith.model import numbers
from warpsmith.model.errors import RunError, UsageError
from warpsmith.run_log.events import StopReason
from warpsmith.search import open_run
from warpsmith.search.best_kernel import why_no_best
from warpsmith.search.options import BY_HAND
from warpsmith.search.session import Session
from warpsmith.system.locks import is_locked

OPEN, RUNNING = "open", "running"
"""The states of a run that was not closed: without a process that works on it, and with one."""


class TrialPart(StrEnum):
    """What `show --only` takes."""

    CODE = "code"
    DIFF = "diff"
    PROMPT = "prompt"
    REPLY = "reply"


def runs(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="The folder of runs.  [default: runs]")] = "",
    json: AsJson = False,
) -> int:
    """List the runs in a folder, the latest last."""
    root = Path(folder or open_run.RUNS)
    if folder and not root.is_dir():
        raise UsageError(f"there is no folder {root}; name a folder of runs, or none for {open_run.RUNS}.")
    folders = open_run.run_folders(root)
    errors = cards.console(stderr=True)
    if not folders and not json:
        cards.say(errors, f"there are no runs in {root} yet; start one: warpsmith optimize TASK")
        return 0
    listed = []
    for each in folders:
        try:
            document = _summary(each)
        except RunError as error:
            cards.say(errors, str(error), "yellow")
            continue
        listed.append(document)
    if json:
        print_document({"runs": listed})
    elif listed:
        print_runs(cards.console(), listed)
    return 0


def print_runs(console: Console, listed: Sequence[RunDocument]) -> None:
    """Print a table of runs. A narrow terminal leaves columns out, first the task if the runs' names contain it."""
    named = all(document.task in Path(document.run).name for document in listed)
    optional = [*(["task"] if named else []), "valid", "proposer", "method", "task", "date"]
    print_columns(console, list(map(_row, listed)), optional=optional, right=("trials", "valid", "best"))


def _row(document: RunDocument) -> dict[str, str]:
    return {
        "run": document.run,
        "date": _local(document.date),
        "task": document.task,
        "method": document.method,
        "proposer": document.proposer if document.proposer != BY_HAND else "by hand",
        "trials": f"{document.trials}/{document.budget}",
        "valid": str(document.valid),
        "best": f"{numbers.ratio(document.speedup['eager'])}x" if document.speedup else "–",
        "state": document.state.replace("_", " ") if document.state != OPEN else "can be resumed",
    }


def _local(date: str) -> str:
    """A date as the clock on the wall shows it."""
    return datetime.fromisoformat(date).astimezone().strftime("%Y-%m-%d %H:%M")


def _summary(folder: Path) -> RunDocument:
    with Session.read(folder) as session:
        state = session.state
        best = state.trials.get(state.best)
        return RunDocument(
            run=str(folder),
            date=datetime.fromtimestamp(session.began, UTC).isoformat(timespec="seconds"),
            task=state.setup.problem.task.name,
            method=state.setup.method.name,
            proposer=session.proposer,
            device=state.setup.problem.device,
            trials=state.totals.trials,
            budget=session.budget.trials,
            valid=state.totals.valid,
            speedup={"eager": best.score} if best and best.score else {},
            cost_usd=state.totals.cost_usd,
            tokens=state.totals.tokens,
            pending=len(state.pending),
            state=state.closed.reason if state.closed else RUNNING if is_locked(folder) else OPEN,
        )


def show(
    run: RunArgument,
    id: Annotated[str, typer.Argument(metavar="ID", help="A trial's number, a candidate's id, or best.")] = "",
    only: Annotated[TrialPart | None, typer.Option(help="Only this, on standard output.")] = None,
) -> int:
    """Show a run's trials; with ID one of them: verdict and code, or its diff to its parent, prompt or reply."""
    with Session.read(open_run.find(run)) as session:
        if not id:
            if only:
                raise UsageError(f"--only {only} needs a candidate; name one, e.g. best or a trial's number.")
            _show_run(session)
            return 0
        trial = _trial(session, id)
        if only:
            _show_part(session, trial, only)
        else:
            _show_trial(session, trial)
    return 0


def _trial(session: Session, name: str) -> int:
    state = session.state
    if name == "best":
        if not state.best:
            raise RunError(why_no_best(session))
        return state.best
    if name.isdigit() and int(name) in state.trials:
        return int(name)
    found = [t.number for t in state.trials.values() if t.candidate and t.candidate.startswith(name)]
    if not found:
        raise RunError(
            f"{session.folder} has no trial or candidate {name!r}; `warpsmith show {session.folder}` lists them."
        )
    return found[0]


def _show_run(session: Session) -> None:
    state, console = session.state, cards.console()
    setup = state.setup
    cards.say(console, str(session.folder), "bold")
    about = f"{setup.problem.task.name} on {setup.problem.device}, method {setup.method.name}, " + (
        f"proposer {session.proposer}" if session.proposer != BY_HAND else "by hand"
    )
    cards.say(console, about)
    cards.say(console, "; ".join(filter(None, (best_line(state), rates(state.totals), spending(state.totals)))))
    running = state.closed is None and is_locked(session.folder)
    ended = state.closed.words if state.closed else "running" if running else "can be resumed"
    waiting = f", {len(state.pending)} verdict{'s' if len(state.pending) > 1 else ''} pending" if state.pending else ""
    console.print(Text(f"{ended}{waiting}"))
    if not running and (state.closed is None or state.closed.reason is StopReason.INTERRUPTED):
        by_hand = session.proposer == BY_HAND
        cards.say(console, f"Next: warpsmith {'ask' if by_hand else 'optimize --resume'} {session.folder}")
    console.print()
    for number in state.trials:
        record = session.record(number)
        line = verdict_line(record, session.evaluation(number), state)
        if line is None:
            line = Text(f"{number:>4} … pending")
        trial = state.trials[number]
        origin = f"  <- {', '.join(map(str, trial.parents))}" if trial.parents else ""
        cards.say(console, Text.assemble(line, (f"  [{trial.candidate or 'no candidate'}]{origin}", "dim")))


def _show_trial(session: Session, trial: int) -> None:
    console = cards.console()
    proposed, evaluation = session.proposed(trial), session.evaluation(trial)
    assert proposed is not None, "a trial begins with a proposal"
    known = session.state.trials[trial]
    named = "  ".join(dict.fromkeys(filter(None, (proposed.name, known.candidate)))) or "no name"
    cards.say(console, f"trial {trial}: {named}", "bold")
    if known.parents:
        cards.say(console, f"parents: trials {', '.join(map(str, known.parents))}")
    candidate = proposed.candidate
    if candidate is None:
        cards.say(console, proposed.failure)
        return
    for label, text in (("strategy", candidate.strategy), ("thought", candidate.thought)):
        if text:
            cards.say(console, f"{label}: {text}")
    if evaluation is not None:
        cards.show(console, "", cards.card(cards.JudgedFile(candidate.main.name, evaluation)))
    console.print()
    _print_code(candidate.main.text, candidate.backend)


def _show_part(session: Session, trial: int, part: TrialPart) -> None:
    proposed = session.proposed(trial)
    assert proposed is not None, "a trial begins with a proposal"
    if part in (TrialPart.PROMPT, TrialPart.REPLY):
        prompt, reply = session.conversation(proposed.brief)
        if part is TrialPart.REPLY:
            write(reply.text.rstrip() + "\n" if reply else "")
        elif prompt:
            for message in prompt.messages:
                write(f"--- {message.role.value}\n{message.text.rstrip()}\n")
        return
    if proposed.candidate is None:
        raise RunError(f"trial {trial} has no code: {proposed.failure}")
    if part is TrialPart.CODE:
        write(proposed.candidate.main.text, exact=True)
        return
    parents = session.state.trials[trial].parents
    if not parents:
        raise RunError(f"trial {trial} has no parent to compare with.")
    before = session.candidate(parents[0])
    lines = difflib.unified_diff(
        before.main.text.splitlines(),
        proposed.candidate.main.text.splitlines(),
        f"trial {parents[0]} ({before.id})",
        f"trial {trial} ({proposed.candidate.id})",
        lineterm="",
    )
    _print_code("\n".join(lines) + "\n", "diff")


def _print_code(text: str, backend: str) -> None:
    """Print code, with colours on a terminal."""
    console = cards.console()
    language = {"diff": "diff", "triton": "python", "torch_module": "python"}.get(backend, "cpp")
    if console.is_terminal:
        console.print(Syntax(text, language, background_color="default", word_wrap=True))
    else:
        write(text)
