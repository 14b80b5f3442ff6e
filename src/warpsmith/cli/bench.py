"""`warpsmith bench SUITE` and `warpsmith bench resume FOLDER`: compare methods on tasks under equal budgets.

`experiments.runner` carries a plan out; this module makes the plan and shows the progress.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from warpsmith._version import __version__
from warpsmith.cli import cards
from warpsmith.cli.bench_live import watching
from warpsmith.cli.bench_show import document, print_notes, print_tables, relative_path
from warpsmith.cli.checks import settings_with_timing, writable_paths
from warpsmith.cli.json_documents import print_document
from warpsmith.cli.options import (
    AcceptUncalibrated,
    AsJson,
    Backend,
    BaseUrl,
    Choice,
    ConfigFile,
    Cost,
    DeviceTime,
    Effort,
    EngineOption,
    EpochSize,
    Family,
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
    StepTime,
    StepTokens,
    StepTrials,
    StopAt,
    Structured,
    Tag,
    Temperature,
    Time,
    TimeBudget,
    Tokens,
    Trials,
    Trust,
    Tuning,
)
from warpsmith.cli.resume import confirm_bench
from warpsmith.engine.engine import LOCAL, engine_site
from warpsmith.experiments.as_published import Paper, PublishedSetup, setup
from warpsmith.experiments.plan import (
    BenchPlan,
    bench_lock,
    check_plan,
    check_tasks,
    default_folder,
    keep_plan,
    parse_proposers,
    read_plan,
    start_of,
)
from warpsmith.experiments.results import BenchResults, CellStatus
from warpsmith.experiments.runner import BenchRunner, check_proposers
from warpsmith.experiments.selection import select
from warpsmith.experiments.statistics import summaries
from warpsmith.experiments.tables import difference_table, search_table, speed_table
from warpsmith.hardware.device import Device
from warpsmith.methods.load import DEFAULT, HIDDEN, ablated, load, trials_of, with_population
from warpsmith.model.errors import UsageError
from warpsmith.model.method import Method
from warpsmith.proposers.choose import ProposerOptions, choose
from warpsmith.search import open_run
from warpsmith.search.options import RunOptions
from warpsmith.search.start import OFFLINE, PLAIN, read_start

Devices = Annotated[
    str, typer.Option(metavar="auto|cpu|cuda:0,…", help="Where to run; several devices of one kind share the work.")
]
Jobs = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Cells searched at a time on each device. One kernel is judged at a time, so this is for proposers that "
        "take long; on a CPU, compilers of one cell disturb the timing of another.  [1; with an engine, its own]",
    ),
]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Run failed cells again.")]


def bench_run(
    tasks: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SUITE|TASK]...",
            help="warpsmith-100, warpsmith-fused, kernelbench:PATH/level1, a folder; tasks as softmax, conv2d*, "
            "SUITE/NAME, or files. @small behind it takes small workloads.",
        ),
    ] = None,
    as_published: Annotated[
        Paper | None,
        typer.Option(
            help="The set-up of a paper: methods, trials, repeats, populations, starting kernels; no failures shown, "
            "no repairs, no tuning, no early stop. Options given beside it win; what differs is printed.",
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            metavar="A,B", help="Methods or files; cupilot-no-roofline is cupilot without the roofline.  [cupilot]"
        ),
    ] = None,
    proposers: Annotated[
        list[str] | None,
        typer.Option(metavar="A,B", help="As --proposer of optimize; repeatable for those with commas.  [auto]"),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Runs of each cell, with different seeds.  [1]")
    ] = None,
    family: Family = None,
    tag: Tag = None,
    trials: Trials = None,
    time: Time = None,
    tokens: Tokens = None,
    cost: Cost = None,
    device_time: DeviceTime = None,
    devices: Devices = "auto",
    engine: EngineOption = None,
    jobs: Jobs = None,
    backend: Backend = "",
    precision: PrecisionOption = None,
    time_budget: TimeBudget = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the first repeat.")] = 0,
    parallel: Parallel = None,
    repairs: Repairs = None,
    population: PopulationSize = None,
    epoch_size: EpochSize = None,
    stop_at: StopAt = None,
    start: Annotated[
        str,
        typer.Option(
            metavar="FILE|FOLDER|auto|plain",
            help="Kernels to start from: one file, a folder with TASK.cu or TASK.cpp each, or written offline: auto, "
            "or plain (without optimisations).",
        ),
    ] = "",
    double_scoring: Annotated[
        bool,
        typer.Option(
            "--double-scoring",
            help="Judge every kernel by the published rule, too (5 inputs, tolerance 1e-2). On with --as-published.",
        ),
    ] = False,
    accept_uncalibrated: AcceptUncalibrated = False,
    profiles: Profiles = True,
    tuning: Tuning = True,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Verify the best kernels; only verified ones count.")
    ] = True,
    compile_baseline: Annotated[
        bool | None,
        typer.Option(
            "--compile-baseline/--no-compile-baseline",
            help="Measure the best kernels against torch.compile.  [on a GPU]",
        ),
    ] = None,
    choice: Choice = "weighted",
    model: Model = None,
    base_url: BaseUrl = "",
    key_file: KeyFile = "",
    prices: Prices = "",
    temperature: Temperature = None,
    max_tokens: MaxTokens = None,
    effort: Effort = "",
    structured: Structured = False,
    batch: Annotated[
        bool,
        typer.Option("--batch", help="Send requests to models as batches: half the price, answers within a day."),
    ] = False,
    request_time: RequestTime = None,
    step_trials: StepTrials = None,
    step_time: StepTime = None,
    step_tokens: StepTokens = None,
    retry_failed: RetryFailed = False,
    out: Annotated[
        str,
        typer.Option(
            metavar="FOLDER", help="Where it is kept.  [default: a folder under benches/ named after the plan]"
        ),
    ] = "",
    config: ConfigFile = "",
    json: AsJson = False,
) -> int:
    """Run every method with every proposer on every task, each with the same budget, and verify the best kernels.

    The same command continues a bench that was interrupted. Exit status: 0 all is done, 1 some of it failed, 2 nothing
    could be done, 130 interrupted.
    """
    writable_paths()
    published = setup(as_published) if as_published else None
    if not tasks and published is None:
        raise UsageError("bench run needs a suite or tasks: warpsmith bench run warpsmith-100.")
    tasks = tasks or ["warpsmith-100"]
    targets, language = _devices(devices, backend, engine or LOCAL)
    kind = targets[0].kind
    options = ProposerOptions(
        base_url=base_url,
        key_file=key_file,
        prices=prices,
        temperature=temperature,
        max_tokens=max_tokens,
        effort=effort,
        structured=structured,
        batch=batch,
        request_s=request_time,
        step_trials=step_trials,
        step_s=step_time,
        step_tokens=step_tokens,
        choice=choice,
        models=tuple(model or ()),
    )
    asked = parse_proposers(tuple(proposers or ("auto",)))
    chosen = _methods(methods, population, published)
    if epoch_size is not None and trials is not None:
        raise UsageError("--epoch-size sets the number of trials; leave out --trials, or --epoch-size.")
    if epoch_size is not None:
        trials = max(trials_of(method, epoch_size) for method in chosen)
    if published is not None:
        trials, start = trials or published.trials, start or PLAIN
        stop_at, tuning = stop_at or 0.0, False
    limits = RunOptions(trials=trials, seconds=time, tokens=tokens, usd=cost, device_seconds=device_time)
    plan = BenchPlan(
        name=" ".join(tasks),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        tasks=select(tuple(tasks), families=tuple(family or ()), tags=tuple(tag or ())),
        methods=chosen,
        proposers=tuple(choose(each, replace(options, models=())).spec if each == "auto" else each for each in asked),
        repeats=repeats or (published.repeats if published else 1),
        seed=seed,
        budget=limits.budget(),
        settings=replace(settings_with_timing(time_budget), published_rule=double_scoring or published is not None),
        device=kind,
        backend=language,
        precision=precision.value if precision else "",
        repairs=repairs,
        enough_share=open_run.share_to_stop_at(stop_at),
        parallel=parallel,
        start=start if start in ("", *OFFLINE) else str(Path(start).resolve()),
        accept_uncalibrated=accept_uncalibrated,
        profile=profiles,
        tune=tuning,
        verify=verify,
        compile_baseline=kind == "cuda" if compile_baseline is None else compile_baseline,
        options=options,
        as_published=as_published or "",
    )
    plan = check_plan(plan)
    for task in plan.tasks:
        read_start(start_of(plan, task.name), plan.backend)  # raises before anything is spent
    console = cards.console(stderr=True)
    check_proposers(plan, lambda sentence: cards.say(console, f"Proposer: {sentence}"))
    folder = Path(out) if out else default_folder(plan)
    kept, spec = keep_plan(plan, folder), engine or LOCAL
    return _work(folder, kept, targets, console, engine=spec, jobs=jobs, retry_failed=retry_failed, as_json=json)


def bench_resume(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="The bench's folder.")],
    devices: Devices = "",
    engine: EngineOption = None,
    jobs: Jobs = None,
    retry_failed: RetryFailed = False,
    trust: Trust = False,
    json: AsJson = False,
) -> int:
    """Continue a bench that was interrupted. Finished cells are not repeated.

    This executes the bench's task files; for a bench that was planned elsewhere that needs --trust.
    """
    writable_paths()
    path = Path(folder)
    plan = read_plan(path)
    confirm_bench(path, plan, trust=trust)
    asked = {name.strip().partition(":")[0] for name in devices.split(",")}
    if asked & {"cpu", "cuda"} - {plan.device}:
        raise UsageError(f"{folder} is a bench on {plan.device}; it cannot continue on {devices}.")
    spec = engine or LOCAL
    targets, _ = _devices(devices or plan.device, plan.backend, spec)
    check_proposers(plan)
    console = cards.console(stderr=True)
    return _work(path, plan, targets, console, engine=spec, jobs=jobs, retry_failed=retry_failed, as_json=json)


def _work(
    folder: Path,
    plan: BenchPlan,
    devices: Sequence[Device],
    console: Console,
    *,
    engine: str,
    jobs: int | None,
    retry_failed: bool,
    as_json: bool,
) -> int:
    check_tasks(plan)
    slots = jobs or engine_site(engine).slots
    with bench_lock(folder):
        runner = BenchRunner(folder, plan, devices, engine=engine, slots=slots, retry_failed=retry_failed)
        cards.say(console, _first_line(runner, plan, folder, devices))
        with watching(console, plan, runner) as view, _interruptible(runner, view.message):
            bench = runner.run()
    if as_json:
        print_document(document(bench))
    _summary(console if as_json else cards.console(), bench, folder, runner)
    if runner.interrupted:
        return 130
    return 1 if bench.count(CellStatus.FAILED) or runner.tally.settled < runner.tally.total else 0


def _first_line(runner: BenchRunner, plan: BenchPlan, folder: Path, devices: Sequence[Device]) -> str:
    tally = runner.tally
    where = ", ".join(device.label for device in devices)
    cells = len(plan.cells)
    said = f"{cells} {'cell' if cells == 1 else 'cells'} in {relative_path(folder)} on {where}"
    if tally.settled or tally.begun:
        begun = f", {tally.begun} begun" if tally.begun else ""
        return f"Continuing: {tally.settled} of {said} are done{begun}."
    return f"{said}; each has {plan.budget.trials} trials."


def _summary(console: Console, bench: BenchResults, folder: Path, runner: BenchRunner) -> None:
    found = summaries(bench)
    print_tables(console, (speed_table(bench, found), search_table(bench, found)))
    if bench.differences:
        print_tables(console, (difference_table(bench),))
    print_notes(console, bench, unverified=False)
    failed = bench.count(CellStatus.FAILED)
    name = relative_path(folder)
    if failed:
        cards.say(console, f"\n{failed} cells failed; run them again with --retry-failed.", "yellow")
    left = runner.tally.total - runner.tally.settled
    if left and not runner.interrupted:
        said = f"\n{left} cells are not done; continue with: warpsmith bench resume {name}"
        cards.say(console, said, "yellow", whole=True)
    if runner.interrupted:
        cards.say(console, f"\nInterrupted. Continue with: warpsmith bench resume {name}", "bold", whole=True)
    else:
        cards.say(console, f"\nNext: warpsmith bench show {name}", whole=True)


def _methods(names: str | None, population: int | None, published: PublishedSetup | None) -> tuple[Method, ...]:
    """The methods named, else those of the paper, else the default."""
    if names is None and published is not None:
        found: tuple[Method, ...] = published.methods
    else:
        known = {method.name: method for method in published.methods} if published else {}
        parts = [name.strip() for name in (names or DEFAULT).split(",") if name.strip()]
        found = tuple(known.get(name) or _method(name) for name in parts)
    return tuple(with_population(method, population) for method in found)


def _method(name: str) -> Method:
    """A method by name or file; `cupilot-no-roofline` is cupilot without its part `roofline`."""
    base, missing = name, []
    while (part := next((p for p in HIDDEN if base.endswith(f"-no-{p}")), None)) is not None:
        base = base.removesuffix(f"-no-{part}")
        missing.append(part)
    return ablated(load(base), **dict.fromkeys(missing, False))


def _devices(text: str, backend: str, engine: str) -> tuple[tuple[Device, ...], str]:
    """The devices that share the work, and the backend; all of one model, so that measurements can be compared."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    found = [open_run.choose(name, backend, engine) for name in names]
    if not found:
        raise UsageError("--devices names no device; use auto, cpu, or cuda:0,cuda:1.")
    devices = tuple(device for device, _ in found)
    if len({device.spec for device in devices}) < len(devices):
        raise UsageError(f"--devices {text} names a device twice; name each once.")
    if len({device.name for device in devices}) > 1:
        named = ", ".join(device.label for device in devices)
        raise UsageError(f"--devices {text}: {named} are different; all devices of a bench must be of one model.")
    return devices, found[0][1]


@contextmanager
def _interruptible(runner: BenchRunner, say: Callable[[str], None]) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM close the bench after the trials under way; the second one ends it at once."""

    def stop(*_: object) -> None:
        if runner.interrupted:
            raise KeyboardInterrupt
        say("finishing the trials under way (Ctrl-C again to stop now; the bench can be resumed either way)")
        runner.interrupt()

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
