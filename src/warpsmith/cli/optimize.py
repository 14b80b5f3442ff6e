"""`warpsmith optimize TASK`: evolve a kernel until the budget is spent; `warpsmith demo`: the same on an example."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from warpsmith.cli import cards
from warpsmith.cli.checks import check_task_file, parse_baselines, writable_paths
from warpsmith.cli.json_documents import optimize_document, print_document
from warpsmith.cli.live import LiveRun, best_line, rates, spending, watching
from warpsmith.cli.options import (
    AcceptUncalibrated,
    AsJson,
    Backend,
    BaseUrl,
    Choice,
    ConfigFile,
    Cost,
    DeviceOfSearch,
    DeviceTime,
    Effort,
    EngineOption,
    EpochSize,
    KeyFile,
    MaxTokens,
    Model,
    Parallel,
    PopulationSize,
    PrecisionOption,
    Prices,
    Profiles,
    Repairs,
    RequestTime,
    Start,
    StepTime,
    StepTokens,
    StepTrials,
    StopAt,
    Structured,
    Temperature,
    Time,
    TimeBudget,
    Tokens,
    Trials,
    Trust,
    Tuning,
)
from warpsmith.cli.pool import harvest
from warpsmith.cli.resume import check_unchanged, confirm_task
from warpsmith.engine.engine import Engine
from warpsmith.evaluator.supervisor.evaluator import Progress
from warpsmith.model import numbers
from warpsmith.model.errors import UsageError, WarpsmithError
from warpsmith.proposers.choose import ChosenProposer, ProposerOptions, choose
from warpsmith.run_log.events import FAILURES, StopReason
from warpsmith.search import open_run
from warpsmith.search.active_run import ActiveRun
from warpsmith.search.best_kernel import check_output, why_no_best
from warpsmith.search.budget import check_countable, check_trials_left, doubled_option
from warpsmith.search.loop import SearchObserver
from warpsmith.search.options import RunOptions
from warpsmith.search.session import Session
from warpsmith.search.trust import allow_proposer, proposer_of, task_of
from warpsmith.strategies import pool
from warpsmith.tasks.suites import resolve_task


def optimize(
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="TASK",
            help="A task file, file.py::name, or a task of a suite (softmax, SUITE/NAME); none with --resume.",
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="How to search, or a file with your own method.  [cupilot]"),
    ] = None,
    proposer: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="Who proposes: auto, template, openai:MODEL, anthropic:MODEL, several as A:M=2,B:N=1, command:CMD, "
            "agent:CMD, agent:openai:MODEL, recorded:RUN.  [auto]",
        ),
    ] = None,
    trials: Trials = None,
    time: Time = None,
    tokens: Tokens = None,
    cost: Cost = None,
    device_time: DeviceTime = None,
    device: DeviceOfSearch = None,
    backend: Backend = "",
    engine: EngineOption = None,
    precision: PrecisionOption = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="NAMES", help="What to compare with: eager, or eager,compile.  [eager]")
    ] = None,
    time_budget: TimeBudget = None,
    run: Annotated[str, typer.Option(metavar="DIR", help="The new run's folder.  [default: under runs/]")] = "",
    resume: Annotated[
        str,
        typer.Option(
            metavar="RUN",
            help="Continue this run. Limits, --proposer, --device and --parallel may change; how it searches and "
            "measures may not.",
        ),
    ] = "",
    seed: Annotated[int | None, typer.Option(metavar="N", help="Seed of all random choices.  [default: 0]")] = None,
    parallel: Parallel = None,
    repairs: Repairs = None,
    population: PopulationSize = None,
    epoch_size: EpochSize = None,
    stop_at: StopAt = None,
    choice: Choice = "weighted",
    model: Model = None,
    roofline: Annotated[
        bool | None, typer.Option("--roofline/--no-roofline", help="Guide by the roofline.  [default: roofline]")
    ] = None,
    retrieval: Annotated[
        bool | None, typer.Option("--retrieval/--no-retrieval", help="Show similar kernels.  [default: retrieval]")
    ] = None,
    alignment: Annotated[
        bool | None,
        typer.Option("--alignment/--no-alignment", help="Align strategies with code.  [default: alignment]"),
    ] = None,
    failures: Annotated[
        bool | None,
        typer.Option("--failures/--no-failures", help="Show why recent kernels failed.  [default: failures]"),
    ] = None,
    start: Start = "",
    accept_uncalibrated: AcceptUncalibrated = False,
    profiles: Profiles = True,
    tuning: Tuning = True,
    keep: Annotated[bool, typer.Option("--pool/--no-pool", help="Add the kernels found to the pool.")] = True,
    base_url: BaseUrl = "",
    key_file: KeyFile = "",
    prices: Prices = "",
    temperature: Temperature = None,
    max_tokens: MaxTokens = None,
    effort: Effort = "",
    structured: Structured = False,
    request_time: RequestTime = None,
    step_trials: StepTrials = None,
    step_time: StepTime = None,
    step_tokens: StepTokens = None,
    out: Annotated[
        str, typer.Option(metavar="FILE|DIR", help="The best kernel's source, or its bundle.  [RUN/best.*, RUN/best]")
    ] = "",
    log: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Log figures of each trial: mlflow, wandb or tensorboard, or NAME:WHERE; again for more.",
        ),
    ] = None,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Serve a page that follows the run, on this machine.")
    ] = False,
    trust: Trust = False,
    config: ConfigFile = "",
    json: AsJson = False,
) -> int:
    """Evolve a kernel: propose, compile, check, time, keep the best; until a limit is reached.

    Without a model the offline catalogue proposes. Ctrl-C closes the run; --resume continues it.
    Exit status: 0 a valid kernel was found, 1 none was, 2 nothing could be done or --out was not written, 130
    interrupted.
    """
    models = ProposerOptions(
        base_url=base_url,
        key_file=key_file,
        prices=prices,
        temperature=temperature,
        max_tokens=max_tokens,
        effort=effort,
        structured=structured,
        request_s=request_time,
        step_trials=step_trials,
        step_s=step_time,
        step_tokens=step_tokens,
        choice=choice,
        models=tuple(model or ()),
    )
    options = RunOptions(
        method=method,
        proposer=proposer,
        trials=trials,
        seconds=time,
        tokens=tokens,
        usd=cost,
        device_seconds=device_time,
        device=device,
        backend=backend or None,
        engine=engine,
        precision=precision,
        baselines=None if baseline is None else parse_baselines(baseline),
        timing_budget_s=time_budget,
        seed=seed,
        parallel=parallel,
        repairs=repairs,
        stop_at=stop_at,
        roofline=roofline,
        retrieval=retrieval,
        alignment=alignment,
        failures=failures,
        population=population,
        epoch_size=epoch_size,
        start=start or None,
        accept_uncalibrated=accept_uncalibrated,
        profile=profiles,
        tune=tuning,
        remember=keep,
        models=models,
    )
    name = resolve_task(task) if task else None
    request = OptimizeRequest(
        name,
        options,
        run=run,
        resume=resume,
        out=out,
        log=tuple(log or ()),
        dashboard=dashboard,
        trust=trust,
        as_json=json,
    )
    return run_search(request)


@dataclass(frozen=True)
class OptimizeRequest:
    """The options of the run, and those of the command alone."""

    task: str | None = None
    options: RunOptions = field(default_factory=RunOptions)
    run: str = ""
    resume: str = ""
    out: str = ""
    log: tuple[str, ...] = ()  # loggers that get the figures of each trial
    dashboard: bool = False  # serve a page that follows the run
    trust: bool = False  # execute the task of a run that somebody else created
    as_json: bool = False


def run_search(request: OptimizeRequest) -> int:
    """Start or resume a run, show the outcome, and return the exit status."""
    if request.task and request.resume:
        raise UsageError(f"--resume continues the task of {request.resume}; leave out TASK, or --resume.")
    if not request.task and not request.resume:
        raise UsageError("optimize needs a TASK to start a run, or --resume RUN to continue one.")
    check_output(request.out)
    if request.log:
        from warpsmith.loggers.logged_search import check_loggers

        check_loggers(request.log)
    writable_paths()
    return _resume(request) if request.resume else _start(request)


def _start(request: OptimizeRequest) -> int:
    assert request.task is not None, "checked before"
    check_task_file(request.task)
    console = cards.console(stderr=True)
    relay = _Relay(console)
    folder = Path(request.run) if request.run else None
    new = open_run.prepare(request.task, request.options, folder=folder)
    with new.open_engine(relay.progress, relay.message) as evaluator:
        with _opening(console, Path(request.task).name):
            session = new.begin(evaluator)
        with session:
            cards.say(console, f"Proposer: {new.choice.sentence}")
            cards.say(console, f"Method: {new.method.title}. Run: {session.folder}. Device: {evaluator.device.label}.")
            return _work(request, session, evaluator, new.choice, relay, console)


def _resume(request: OptimizeRequest) -> int:
    folder = open_run.find(request.resume)
    begun = open_run.config_of(folder)
    options = request.options
    if request.run and Path(request.run).resolve() != folder.resolve():
        raise UsageError(f"--run {request.run} names the folder of a new run; leave it out to continue {folder}.")
    check_unchanged(options, folder, begun)
    console = cards.console(stderr=True)
    relay = _Relay(console)
    with Session.read(folder) as before:
        check_trials_left(options.trials, before.state.totals.trials, folder)
        spec, given = options.proposer or proposer_of(folder, begun, before.proposer), before.recorded_trials
        budget = options.budget(before.budget)
    choice = choose(spec, options.models, skip=given, roles=begun.method.roles)
    check_countable(budget, choice)
    confirm_task(folder, begun, trust=request.trust)
    opened = open_run.evaluator_for(folder, begun, options.device, relay.progress, relay.message, options.engine)
    with opened as evaluator:
        with Session.resume(folder, choice.spec, budget, enough_share=options.stop_at) as session:
            allow_proposer(folder, begun, choice.spec)
            done = f"{(count := session.state.totals.trials)} trial{'' if count == 1 else 's'} done"
            cards.say(console, f"Proposer: {choice.sentence}")
            cards.say(console, f"Resuming {folder}: {done}, {best_line(session.state)}.")
            return _work(request, session, evaluator, choice, relay, console)


def _work(
    request: OptimizeRequest,
    session: Session,
    evaluator: Engine,
    choice: ChosenProposer,
    relay: _Relay,
    console: Console,
) -> int:
    options = request.options
    active = ActiveRun(
        session, evaluator, choice, profile=options.profile, tune=options.tune, parallel=options.parallel
    )
    try:
        with ExitStack() as stack:
            if request.dashboard:
                from warpsmith.cli.dashboard import serving_run

                stack.enter_context(serving_run(session.folder, console))
            relay.view = stack.enter_context(watching(console, session))
            stack.enter_context(active.interruptible())
            observer: SearchObserver = relay.view
            if request.log:
                from warpsmith.loggers.logged_search import logging_run

                observer = stack.enter_context(logging_run(session, relay.view, request.log))
            ending = active.search(observer, out=request.out)
    finally:
        relay.view = None
    best, reason = ending.best, ending.reason
    if options.remember and best is not None and reason is not StopReason.INTERRUPTED:
        _remember(session, console)
    if request.as_json:
        print_document(optimize_document(session, best, ending.bundle, reason))
    # Progress is on standard error, the outcome on standard output, which with --json holds the document alone.
    outcome = console if request.as_json else cards.console()
    _summary(outcome, session, best, reason, ending.detail, ending.bundle)
    if fault := ending.write_fault:
        found = f" It is in {best}." if best else f" It is in the log: warpsmith show {session.folder} best --only code"
        cards.say(console, f"{fault[:1].upper()}{fault[1:]}{found}", "yellow")
        return 2
    if reason is StopReason.INTERRUPTED:
        return 130
    if best is None and reason in FAILURES:
        return 2
    return 0 if best is not None else 1


def _remember(session: Session, console: Console) -> None:
    """Add the kernels of the run to the pool; the run is kept even if that fails."""
    try:
        pool.add_to_pool(harvest(session))
    except (OSError, WarpsmithError) as fault:
        cards.say(console, f"The kernels of this run could not be added to the pool ({fault}).", "yellow")


def _summary(
    console: Console, session: Session, best: Path | None, reason: StopReason, detail: str, bundle: Path
) -> None:
    state = session.state
    cards.say(console, "")
    why = detail.rstrip(".") if detail else reason.words
    style = "yellow" if reason in FAILURES else ""
    cards.say(console, f"Stopped: {why}.", style)
    said = (rates(state.totals), spending(state.totals), f"time: {state.totals.seconds:.0f} s")
    cards.say(console, ", ".join(part for part in said if part) + ".")
    if not state.best:
        _say_none(console, session, reason)
        return
    evaluation = session.evaluation(state.best)
    assert evaluation is not None, "the best was measured"
    shown = cards.JudgedFile(str(best or session.folder), evaluation)
    cards.show(cards.console(stderr=console.stderr), "", cards.card(shown))
    speedup, interval = evaluation.speedup(), evaluation.interval()
    again = f"warpsmith evaluate {_task(session)} {best or session.folder} --fresh"
    advice = cards.advice(speedup, interval, again) if speedup is not None and interval is not None else ""
    if advice:
        cards.say(console, f"\n{advice}", "bold", whole=True)
    if state.over_start is not None:
        cards.say(console, f"\n{numbers.ratio(state.over_start)}x the starting kernel.")
    if best is None:  # it could not be written
        return
    steps = [f"warpsmith verify {_task(session)} {best}"]
    if reason not in (StopReason.SPEED_OF_LIGHT, StopReason.PROPOSER_REFUSED):
        steps.insert(0 if interval is not None and interval.high < 1 else 1, _more(session, reason))
    cards.say(console, "")
    for lead, command in zip(("Next", "  or"), steps, strict=False):
        cards.say(console, f"{lead}: {command}", whole=True)
    if not advice:
        cards.say(console, f"Use it: from warpsmith import load; op = load({str(bundle)!r})", whole=True)


def _say_none(console: Console, session: Session, reason: StopReason) -> None:
    if session.state.totals.valid:
        cards.say(console, why_no_best(session), "bold")
    else:
        cards.say(console, "No valid kernel was found.", "bold")
    if session.state.confirmation.waiting:
        cards.say(console, f"Measure them again and continue: {_more(session, reason)}", whole=True)
    cards.say(console, f"See what was tried: warpsmith show {session.folder}", whole=True)


def _more(session: Session, reason: StopReason) -> str:
    """The command that continues a run with twice its limit, or twice what it has used if that is more."""
    budget, totals = session.budget, session.state.totals
    budget = replace(
        budget,
        trials=max(budget.trials, totals.trials),
        seconds=budget.seconds and max(budget.seconds, math.ceil(session.elapsed())),
        tokens=budget.tokens and max(budget.tokens, totals.tokens),
        usd=budget.usd and max(budget.usd, math.ceil(100 * totals.cost_usd) / 100),
        device_seconds=budget.device_seconds and max(budget.device_seconds, math.ceil(totals.device_seconds)),
    )
    return f"warpsmith optimize --resume {session.folder} {doubled_option(reason, budget)}".rstrip()


def _task(session: Session) -> str:
    task = task_of(session.folder, session.state.setup.config)
    try:
        return str(Path(task).relative_to(Path.cwd()))
    except ValueError:
        return task


class _Relay:
    """Passes what the evaluator says to the display once there is one, and to the console before that."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.view: LiveRun | None = None

    def progress(self, progress: Progress) -> None:
        """A candidate has reached another stage."""
        if self.view is not None:
            self.view.progress(progress)

    def message(self, text: str) -> None:
        """Print a line of the evaluator."""
        if self.view is not None:
            self.view.message(text)
        else:
            cards.say(self._console, text, "dim")


@contextmanager
def _opening(console: Console, task: str) -> Iterator[None]:
    if not console.is_terminal:
        yield
        return
    with console.status(f"opening {task}"):
        yield


_TRIALS = 24
_TIMING_S = 0.3  # per workload: more trials are worth more here than narrower intervals
_SECONDS = 75.0  # opening the task and the last verdicts come on top; together under two minutes


def demo(
    run: Annotated[str, typer.Option(metavar="DIR", help="The run's folder.  [default: under runs/]")] = "",
    json: AsJson = False,
) -> int:
    """Optimise residual + RMSNorm for this machine with the offline catalogue, in under two minutes.

    Exit status: 0 a valid kernel was found, faster than PyTorch or not, 1 none was found.
    """
    if not json:
        console = cards.console(stderr=True)
        budget = f"{_TRIALS} trials or {_SECONDS:.0f} s"
        console.print(f"Optimising residual + RMSNorm for this machine: {budget}, no model needed.")
    options = RunOptions(proposer="template", trials=_TRIALS, seconds=_SECONDS, timing_budget_s=_TIMING_S)
    task = str(Path(str(files("warpsmith.examples"))) / "residual_rms_norm.py")
    return run_search(OptimizeRequest(task, options, run=run, as_json=json))
