"""`warpsmith optimize TASK`: evolve a kernel until the budget is spent, and hand back the best with the evidence."""

from __future__ import annotations

import math
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from warpsmith.archive.events import Budget
from warpsmith.cli import render, searchjson
from warpsmith.cli.evaluate import check_cache, check_task_file, parse_baselines, timed_for
from warpsmith.cli.live import View, best_line, rates, spending, watching
from warpsmith.cli.pool import harvest
from warpsmith.cli.resuming import check_unchanged
from warpsmith.core.config import Paths
from warpsmith.core.errors import UsageError, WarpsmithError
from warpsmith.core.search import Proposer
from warpsmith.core.task import Precision
from warpsmith.evaluate.evaluator import Evaluator, Progress
from warpsmith.methods.ablation import ablated
from warpsmith.methods.loading import DEFAULT, load
from warpsmith.propose.making import Choice, Options, choose
from warpsmith.run import opening
from warpsmith.run.best import bundle_folder, check_out, none_yet, write_best
from warpsmith.run.budgets import REASONS, check, check_counted, twice
from warpsmith.run.finishing import can_be_tuned, finish
from warpsmith.run.loop import Loop
from warpsmith.run.profiling import looking, pays
from warpsmith.run.recalling import recall
from warpsmith.run.session import Session
from warpsmith.strategies import pool


@dataclass(frozen=True)
class Request:
    """What the command line asked for; None where it said nothing."""

    task: str | None = None
    method: str | None = None
    proposer: str | None = None
    trials: int | None = None
    seconds: float | None = None
    tokens: int | None = None
    usd: float | None = None
    device_seconds: float | None = None
    device: str | None = None
    backend: str = ""
    precision: Precision | None = None
    baselines: str | None = None
    timing_budget_s: float | None = None
    run: str = ""
    resume: str = ""
    seed: int | None = None
    parallel: int | None = None
    repairs: int | None = None
    stop_at: float | None = None  # 0: never
    roofline: bool | None = None
    retrieval: bool | None = None
    alignment: bool | None = None
    profile: bool = True  # kernels that become parents
    tune: bool = True  # the best kernel, at the end
    keep: bool = True  # what it found out goes into the pool
    out: str = ""
    options: Options = field(default_factory=Options)
    as_json: bool = False


def run(request: Request) -> int:
    """Work, show, and give the exit status."""
    if request.task and request.resume:
        raise UsageError(f"--resume goes on with the task of {request.resume}; leave out TASK, or --resume.")
    if not request.task and not request.resume:
        raise UsageError("optimize needs a TASK to start a run, or --resume RUN to go on with one.")
    check_out(request.out)
    check_cache(Paths.from_environment().cache)
    return _resume(request) if request.resume else _start(request)


def _start(request: Request) -> int:
    assert request.task is not None, "checked before"
    check_task_file(request.task)
    method = ablated(
        load(request.method or DEFAULT),
        roofline=request.roofline is not False,
        retrieval=request.retrieval is not False,
        alignment=request.alignment is not False,
    )
    budget = check(_budget(request, Budget()))
    baselines = parse_baselines(request.baselines or "eager")
    if baselines[0] != "eager":
        raise UsageError("--baseline must begin with eager: kernels are ranked by their speedup over it.")
    folder = Path(request.run) if request.run else None
    if folder is not None and (folder / "run.db").exists():
        raise UsageError(f"{folder} holds a run already; continue it with --resume {folder}, or choose another.")
    device, backend = opening.choose(request.device or "auto", request.backend)
    choice = choose(request.proposer or "auto", request.options, roles=method.roles)
    check_counted(budget, choice)
    console = render.console(stderr=True)
    render.say(console, f"Proposer: {choice.sentence}")
    settings = replace(timed_for(request.timing_budget_s), baselines=baselines)
    order = opening.Order(
        task=request.task,
        method=method,
        proposer=choice.spec,
        budget=budget,
        folder=folder,
        device=request.device or "auto",
        settings=settings,
        seed=request.seed or 0,
        precision=request.precision,
        repairs=request.repairs,
        enough_share=opening.enough(request.stop_at),
        parallel=request.parallel,
    )
    relay = _Relay(console)
    with Evaluator(device, settings, on_progress=relay.progress, on_message=relay.message) as evaluator:
        with _opening(console, Path(request.task).name):
            session = opening.begin(order, evaluator, backend, recall)
        with session:
            render.say(console, f"Method: {method.title}. Run: {session.folder}. Device: {evaluator.device.label}.")
            return _work(request, session, evaluator, choice, relay, console)


def _resume(request: Request) -> int:
    folder = opening.find(request.resume)
    begun = opening.config_of(folder)
    check_unchanged(request, folder, begun)
    console = render.console(stderr=True)
    relay = _Relay(console)
    with Session.peek(folder) as before:
        spec, given = request.proposer or before.proposer, before.replayed
        budget = _budget(request, before.budget)
    choice = choose(spec, request.options, skip=given, roles=begun.method.roles)
    check_counted(budget, choice)
    with opening.evaluator_for(begun.config, request.device, relay.progress, relay.message) as evaluator:
        with Session.resume(folder, choice.spec, budget, enough_share=request.stop_at) as session:
            totals = session.ledger.totals
            render.say(console, f"Proposer: {choice.sentence}")
            render.say(console, f"Resuming {folder}: {totals.trials} trials done, {best_line(session.ledger)}.")
            return _work(request, session, evaluator, choice, relay, console)


def _budget(request: Request, known: Budget) -> Budget:
    return opening.extended(
        known,
        trials=request.trials,
        seconds=request.seconds,
        tokens=request.tokens,
        usd=request.usd,
        device_seconds=request.device_seconds,
    )


def _work(
    request: Request, session: Session, evaluator: Evaluator, choice: Choice, relay: _Relay, console: Console
) -> int:
    proposer: Proposer = choice.open()
    parallel = request.parallel or session.ledger.begun.config.parallel
    bench = opening.bench_of(session, evaluator)
    try:
        with ExitStack() as stack:
            view = stack.enter_context(watching(console, session))
            relay.view = view
            profiled = request.profile and pays(session.method, choice.spec)
            look = stack.enter_context(looking(session, evaluator)) if profiled else None
            loop = Loop(session, proposer, bench, view, parallel=parallel, look=look, prepare=bench.prepare)
            with _interruptible(loop.interrupt):
                reason = loop.run() or "told"
            if request.tune and can_be_tuned(session, reason):
                _tune(session, evaluator, view)
    finally:
        relay.view = None
        proposer.close()
    best, bundle, fault = _written(session, request.out)
    session.end(reason, loop.refused)
    if request.keep and best is not None and reason != "interrupted":
        _remember(session, console)
    if request.as_json:
        sys.stdout.write(searchjson.dumps(searchjson.optimize_document(session, best, bundle, reason)) + "\n")
    _summary(console, session, best, reason, loop.refused, bundle)
    if fault:
        found = f" It is in {best}." if best else f" It is in the log: warpsmith show {session.folder} best --only code"
        render.say(console, f"{fault[:1].upper()}{fault[1:]}{found}", "yellow")
        return 2
    if reason == "interrupted":
        return 130
    if best is None and reason in ("proposer_refused", "proposer_failed", "evaluator_failed"):
        return 2
    return 0 if best is not None else 1


def _written(session: Session, out: str) -> tuple[Path | None, Path, str]:
    """The best kernel and its bundle, with the run where they cannot be put where asked; and what went wrong."""
    fault = ""
    for place in dict.fromkeys((out, "")):
        try:
            return write_best(session, place), bundle_folder(session, place), fault
        except WarpsmithError as refused:
            fault = fault or str(refused)
    return None, bundle_folder(session), fault


def _tune(session: Session, evaluator: Evaluator, view: View) -> None:
    """The best kernel's own values; Ctrl-C ends that, and the run keeps what it has."""
    before, stopped = session.ledger.best, False

    def stop() -> None:
        nonlocal stopped
        stopped = True

    view.message("trying values of the best kernel's tunables (Ctrl-C to leave it as it is)")
    with _interruptible(stop):
        tuned = finish(session, evaluator, lambda: stopped)
    values = ", ".join(f"{name}={value}" for name, value in tuned.best.defines) if tuned.best else ""
    found = f"better with {values}" if session.ledger.best != before else "none is surely better"
    view.message(f"{tuned.tried} of {tuned.total} points tried: {found}")


def _remember(session: Session, console: Console) -> None:
    """Into the pool; a run is not lost because that fails."""
    try:
        pool.add(harvest(session))
    except (OSError, WarpsmithError) as fault:
        render.say(console, f"What this run found out could not be added to the pool ({fault}).", "yellow")


def _summary(console: Console, session: Session, best: Path | None, reason: str, detail: str, bundle: Path) -> None:
    ledger = session.ledger
    render.say(console, "")
    why = detail.rstrip(".") if detail else REASONS.get(reason, reason)
    style = "yellow" if reason in ("proposer_refused", "proposer_failed", "evaluator_failed") else ""
    render.say(console, f"Stopped: {why}.", style)
    said = (rates(ledger.totals), spending(ledger.totals), f"time: {ledger.totals.seconds:.0f} s")
    render.say(console, ", ".join(part for part in said if part) + ".")
    if not ledger.best:
        _say_none(console, session, reason)
        return
    evaluation = session.evaluation(ledger.best)
    assert evaluation is not None, "the best was measured"
    shown = render.Judged(str(best or session.folder), evaluation)
    render.show(render.console(stderr=console.stderr), "", render.card(shown))
    interval = evaluation.interval()
    if interval is not None and interval.low <= 1.0:
        render.say(console, "\nNo kernel found here is surely faster than PyTorch; this is the best that was.", "bold")
    if best is None:  # nowhere to write it
        return
    render.say(console, f"\nNext: warpsmith verify {_task(session)} {best}", whole=True)
    if reason not in ("speed_of_light", "proposer_refused"):
        render.say(console, f"  or: {_more(session, reason)}", whole=True)
    render.say(console, f"Use it: from warpsmith import load; op = load({str(bundle)!r})", whole=True)


def _say_none(console: Console, session: Session, reason: str) -> None:
    if session.ledger.totals.valid:
        render.say(console, none_yet(session), "bold")
    else:
        render.say(console, "No valid kernel was found.", "bold")
    if session.ledger.contenders:
        render.say(console, f"To search on, beginning with that: {_more(session, reason)}", whole=True)
    render.say(console, f"See what was tried: warpsmith show {session.folder}", whole=True)


def _more(session: Session, reason: str) -> str:
    """The command that goes on with a run: with twice what it was given, or what it has spent where that is more."""
    budget, totals = session.budget, session.ledger.totals
    budget = replace(
        budget,
        trials=max(budget.trials, totals.trials),
        seconds=budget.seconds and max(budget.seconds, math.ceil(session.elapsed())),
        tokens=budget.tokens and max(budget.tokens, totals.tokens),
        usd=budget.usd and max(budget.usd, math.ceil(100 * totals.cost_usd) / 100),
        device_seconds=budget.device_seconds and max(budget.device_seconds, math.ceil(totals.device_seconds)),
    )
    return f"warpsmith optimize --resume {session.folder} {twice(reason, budget)}".rstrip()


def _task(session: Session) -> str:
    task = opening.task_of(session.folder, session.ledger.begun.config)
    try:
        return str(Path(task).relative_to(Path.cwd()))
    except ValueError:
        return task


class _Relay:
    """The evaluator is there before the view: what it says goes to whoever listens by then."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.view: View | None = None

    def progress(self, progress: Progress) -> None:
        """A candidate got on."""
        if self.view is not None:
            self.view.progress(progress)

    def message(self, text: str) -> None:
        """Something worth a line."""
        if self.view is not None:
            self.view.message(text)
        else:
            render.say(self._console, text, "dim")


@contextmanager
def _interruptible(interrupt: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C and a request to end close the run instead of breaking it off."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda *_: interrupt())
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _opening(console: Console, task: str) -> Iterator[None]:
    if not console.is_terminal:
        yield
        return
    with console.status(f"opening {task}"):
        yield
