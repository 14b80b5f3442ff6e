"""`runs` and `show`: what was tried before, word for word."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from warpsmith.archive.log import FILE
from warpsmith.cli import render, searchjson
from warpsmith.cli.columns import print_columns
from warpsmith.cli.live import best_line, rates, spending, verdict_line
from warpsmith.cli.searchjson import RunDocument
from warpsmith.core.errors import RunError, UsageError
from warpsmith.run import opening
from warpsmith.run.best import none_yet
from warpsmith.run.budgets import REASONS
from warpsmith.run.session import Session


@dataclass(frozen=True)
class ShowRequest:
    """What `show` is to show."""

    run: str
    id: str = ""  # a trial's number or a candidate's id; "best"; "" for the whole run
    part: str = ""  # "code", "diff", "prompt", "reply"; "" for the card and the code


def runs(folder: str, *, as_json: bool) -> int:
    """List runs, the latest last."""
    root = Path(folder or opening.RUNS)
    if folder and not root.is_dir():
        raise UsageError(f"there is no folder {root}; name one that holds runs, or none for {opening.RUNS}.")
    paths = sorted(root.glob(f"*/{FILE}"), key=lambda path: path.stat().st_mtime)
    if not paths and not as_json:
        render.say(render.console(stderr=True), f"there are no runs in {root} yet; start one: warpsmith optimize TASK")
        return 0
    listed = []
    for path in paths:
        try:
            document = _summary(path.parent)
        except RunError as fault:
            render.say(render.console(stderr=True), str(fault), "yellow")
            continue
        if as_json:
            sys.stdout.write(searchjson.dumps(document) + "\n")
        listed.append(document)
    if listed and not as_json:
        print_runs(render.console(), listed)
    return 0


def print_runs(console: Console, listed: Sequence[RunDocument]) -> None:
    """A table of runs. Their names stay whole, to be copied; where a terminal is too narrow, other columns go."""
    rows = [_row(document) for document in listed]
    told = all(document.task in Path(document.run).name for document in listed)  # the run's name tells the task
    going = [*(["task"] if told else []), "valid", "proposer", "method", "task"]
    print_columns(console, rows, going=going, right=("trials", "valid", "best"))


def _row(document: RunDocument) -> dict[str, str]:
    """The cells of one run, by column."""
    return {
        "run": document.run,
        "task": document.task,
        "method": document.method,
        "proposer": document.proposer,
        "trials": f"{document.trials}/{document.budget}",
        "valid": str(document.valid),
        "best": f"{render.ratio(document.speedup)}x" if document.speedup else "–",
        "state": document.state,
    }


def _summary(folder: Path) -> RunDocument:
    with Session.peek(folder) as session:
        ledger = session.ledger
        best = ledger.trials.get(ledger.best)
        return RunDocument(
            run=str(folder),
            task=ledger.begun.problem.task.name,
            method=ledger.begun.method.name,
            proposer=session.proposer,
            device=ledger.begun.problem.device,
            trials=ledger.totals.trials,
            budget=session.budget.trials,
            valid=ledger.totals.valid,
            speedup=best.score if best else None,
            cost_usd=ledger.totals.cost_usd,
            tokens=ledger.totals.tokens,
            pending=len(ledger.pending),
            state=ledger.closed.reason if ledger.closed else "open",
        )


def show(request: ShowRequest) -> int:
    """Show a run, or one of its trials."""
    with Session.peek(opening.find(request.run)) as session:
        if not request.id:
            if request.part:
                raise UsageError(f"--{request.part} is about one candidate; name it, e.g. best or a trial's number.")
            _show_run(session)
            return 0
        trial = _trial(session, request.id)
        if request.part:
            _show_part(session, trial, request.part)
        else:
            _show_trial(session, trial)
    return 0


def _trial(session: Session, name: str) -> int:
    ledger = session.ledger
    if name == "best":
        if not ledger.best:
            raise RunError(none_yet(session))
        return ledger.best
    if name.isdigit() and int(name) in ledger.trials:
        return int(name)
    found = [t.number for t in ledger.trials.values() if t.candidate and t.candidate.startswith(name)]
    if not found:
        raise RunError(
            f"{session.folder} has no trial or candidate {name!r}; `warpsmith show {session.folder}` lists them."
        )
    return found[0]


def _show_run(session: Session) -> None:
    ledger, console = session.ledger, render.console()
    begun = ledger.begun
    render.say(console, str(session.folder), "bold")
    about = (
        f"{begun.problem.task.name} on {begun.problem.device}, method {begun.method.name}, proposer {session.proposer}"
    )
    render.say(console, about)
    render.say(console, "; ".join(filter(None, (best_line(ledger), rates(ledger.totals), spending(ledger.totals)))))
    state = REASONS.get(ledger.closed.reason, ledger.closed.reason) if ledger.closed else "it is open"
    waiting = (
        f", {len(ledger.pending)} verdict{'s' if len(ledger.pending) > 1 else ''} pending" if ledger.pending else ""
    )
    console.print(Text(f"{state}{waiting}\n"))
    for number in ledger.trials:
        record = session.record(number)
        line = verdict_line(record, session.evaluation(number), ledger)
        if line is None:
            line = Text(f"{number:>4} … pending")
        trial = ledger.trials[number]
        origin = f"  <- {', '.join(map(str, trial.parents))}" if trial.parents else ""
        told = Text.assemble(line, (f"  [{trial.candidate or 'no candidate'}]{origin}", "dim"))
        render.say(console, told)


def _show_trial(session: Session, trial: int) -> None:
    console = render.console()
    proposed, evaluation = session.proposed(trial), session.evaluation(trial)
    assert proposed is not None, "a trial begins with a proposal"
    known = session.ledger.trials[trial]
    name = proposed.name or known.candidate or "no name"
    render.say(console, f"trial {trial}: {name}  {known.candidate}", "bold")
    if known.parents:
        render.say(console, f"parents: trials {', '.join(map(str, known.parents))}")
    candidate = proposed.candidate
    if candidate is None:
        render.say(console, proposed.failure)
        return
    for label, text in (("strategy", candidate.strategy), ("thought", candidate.thought)):
        if text:
            render.say(console, f"{label}: {text}")
    if evaluation is not None:
        render.show(console, "", render.card(render.Judged(candidate.main.name, evaluation)))
    console.print()
    _print_code(candidate.main.text, candidate.backend)


def _show_part(session: Session, trial: int, part: str) -> None:
    proposed = session.proposed(trial)
    assert proposed is not None, "a trial begins with a proposal"
    if part in ("prompt", "reply"):
        prompt, reply = session.conversation(proposed.brief)
        if part == "reply":
            sys.stdout.write(reply.text.rstrip() + "\n" if reply else "")
        elif prompt:
            for message in prompt.messages:
                sys.stdout.write(f"--- {message.role.value}\n{message.text.rstrip()}\n")
        return
    if proposed.candidate is None:
        raise RunError(f"trial {trial} has no code: {proposed.failure}")
    if part == "code":
        sys.stdout.write(proposed.candidate.main.text)
        return
    parents = session.ledger.trials[trial].parents
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
    """With colours on a terminal; as it is elsewhere."""
    console = render.console()
    language = {"diff": "diff", "triton": "python", "torch_module": "python"}.get(backend, "cpp")
    if console.is_terminal:
        console.print(Syntax(text, language, background_color="default", word_wrap=True))
    else:
        sys.stdout.write(text)
