"""`warpsmith bench SUITE` and `bench resume FOLDER`: methods × proposers × tasks × repeats under equal budgets.

Carrying a plan out is the part of `run.bench.runner`; this module makes the plan, and shows how far it is.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from warpsmith._version import __version__
from warpsmith.archive.events import Budget
from warpsmith.cli import render
from warpsmith.cli.benchlive import watching
from warpsmith.cli.benchshow import document, open_path, print_notes, print_tables
from warpsmith.cli.evaluate import check_cache, timed_for
from warpsmith.core.config import Paths
from warpsmith.core.errors import UsageError
from warpsmith.core.method import Method
from warpsmith.core.task import Precision
from warpsmith.hardware.device import Device
from warpsmith.methods.ablation import ablated
from warpsmith.methods.loading import DEFAULT, load
from warpsmith.propose.making import Options, choose
from warpsmith.run import opening
from warpsmith.run.bench.plan import (
    Plan,
    check,
    check_tasks,
    default_folder,
    held,
    parse_proposers,
    read_plan,
    settle,
)
from warpsmith.run.bench.results import Bench, CellStatus
from warpsmith.run.bench.runner import Runner, check_proposers
from warpsmith.run.bench.selection import select
from warpsmith.run.bench.statistics import summaries
from warpsmith.run.bench.tables import search_table, speed_table
from warpsmith.run.budgets import check as checked_budget

_PARTS = ("roofline", "retrieval", "alignment")


@dataclass(frozen=True)
class RunRequest:
    """What the command line asked for; None where it said nothing."""

    words: tuple[str, ...]
    families: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    methods: str = DEFAULT
    proposers: tuple[str, ...] = ("auto",)
    repeats: int = 1
    seed: int = 0
    trials: int | None = None
    seconds: float | None = None
    tokens: int | None = None
    usd: float | None = None
    device_seconds: float | None = None
    devices: str = "auto"
    backend: str = ""
    precision: Precision | None = None
    timing_budget_s: float | None = None
    parallel: int | None = None
    repairs: int | None = None
    stop_at: float | None = None  # 0: never
    profile: bool = True
    tune: bool = True
    verify: bool = True
    compile_baseline: bool | None = None  # None: on a GPU only
    retry_failed: bool = False
    out: str = ""
    options: Options = field(default_factory=Options)
    as_json: bool = False


@dataclass(frozen=True)
class ResumeRequest:
    """Which bench to go on with."""

    folder: str
    devices: str = ""  # "": one of the bench's kind
    retry_failed: bool = False
    as_json: bool = False


def run(request: RunRequest) -> int:
    """Plan, work, show, and give the exit status."""
    check_cache(Paths.from_environment().cache)
    devices, backend = _devices(request.devices, request.backend)
    plan = check(_plan(request, devices[0].kind, backend))
    console = render.console(stderr=True)
    check_proposers(plan, lambda sentence: render.say(console, f"Proposer: {sentence}"))
    folder = Path(request.out) if request.out else default_folder(plan)
    plan = settle(plan, folder)
    return _work(folder, plan, devices, console, retry_failed=request.retry_failed, as_json=request.as_json)


def resume(request: ResumeRequest) -> int:
    """Go on with a bench."""
    check_cache(Paths.from_environment().cache)
    folder = Path(request.folder)
    plan = read_plan(folder)
    asked = {name.strip().partition(":")[0] for name in request.devices.split(",")}
    if asked & {"cpu", "cuda"} - {plan.device}:
        raise UsageError(f"{folder} is a bench of {plan.device}; it cannot go on with {request.devices}.")
    devices, _ = _devices(request.devices or plan.device, plan.backend)
    console = render.console(stderr=True)
    check_proposers(plan)
    return _work(folder, plan, devices, console, retry_failed=request.retry_failed, as_json=request.as_json)


def _work(
    folder: Path, plan: Plan, devices: Sequence[Device], console: Console, *, retry_failed: bool, as_json: bool
) -> int:
    check_tasks(plan)
    with held(folder):
        runner = Runner(folder, plan, devices, retry_failed=retry_failed)
        render.say(console, _opening(runner, plan, folder, devices))
        with watching(console, plan, runner) as view, _interruptible(runner, view.message):
            bench = runner.run()
    if as_json:
        sys.stdout.write(document(bench) + "\n")
    _summary(console, bench, folder, runner)
    if runner.interrupted:
        return 130
    return 1 if bench.count(CellStatus.FAILED) or runner.tally.settled < runner.tally.total else 0


def _opening(runner: Runner, plan: Plan, folder: Path, devices: Sequence[Device]) -> str:
    tally = runner.tally
    where = ", ".join(device.label for device in devices)
    said = f"{len(plan.cells)} cells in {open_path(folder)} on {where}"
    if tally.settled or tally.begun:
        begun = f", {tally.begun} begun" if tally.begun else ""
        return f"Going on: {tally.settled} of {said} are done{begun}."
    return f"{said}; each has {plan.budget.trials} trials."


def _summary(console: Console, bench: Bench, folder: Path, runner: Runner) -> None:
    found = summaries(bench)
    print_tables(console, (speed_table(bench, found), search_table(bench, found)))
    print_notes(console, bench, unverified=False)
    failed = bench.count(CellStatus.FAILED)
    name = open_path(folder)
    if failed:
        render.say(console, f"\n{failed} cells failed; try them again with --retry-failed.", "yellow")
    left = runner.tally.total - runner.tally.settled
    if left and not runner.interrupted:
        said = f"\n{left} cells are not settled; go on with: warpsmith bench resume {name}"
        render.say(console, said, "yellow", whole=True)
    if runner.interrupted:
        render.say(console, f"\nInterrupted. Go on with: warpsmith bench resume {name}", "bold", whole=True)
    else:
        render.say(console, f"\nNext: warpsmith bench show {name}", whole=True)


def _plan(request: RunRequest, kind: str, backend: str) -> Plan:
    methods = tuple(_method(name.strip()) for name in request.methods.split(",") if name.strip())
    proposers = parse_proposers(request.proposers)
    plain = replace(request.options, models=())
    return Plan(
        name=" ".join(request.words),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        tasks=select(request.words, families=request.families, tags=request.tags),
        methods=methods,
        proposers=tuple(choose(each, plain).spec if each == "auto" else each for each in proposers),
        repeats=request.repeats,
        seed=request.seed,
        budget=checked_budget(
            opening.extended(
                Budget(),
                trials=request.trials,
                seconds=request.seconds,
                tokens=request.tokens,
                usd=request.usd,
                device_seconds=request.device_seconds,
            )
        ),
        settings=timed_for(request.timing_budget_s),
        device=kind,
        backend=backend,
        precision=request.precision.value if request.precision else "",
        repairs=request.repairs,
        enough_share=opening.enough(request.stop_at),
        parallel=request.parallel,
        profile=request.profile,
        tune=request.tune,
        verify=request.verify,
        compile_baseline=kind == "cuda" if request.compile_baseline is None else request.compile_baseline,
        options=request.options,
    )


def _method(name: str) -> Method:
    """A method by name or file; `cupilot-no-roofline` is one with a part taken away."""
    base, missing = name, []
    while (part := next((p for p in _PARTS if base.endswith(f"-no-{p}")), None)) is not None:
        base = base.removesuffix(f"-no-{part}")
        missing.append(part)
    return ablated(load(base), **dict.fromkeys(missing, False))


def _devices(text: str, backend: str) -> tuple[tuple[Device, ...], str]:
    """The devices to share the work, all of one kind: what is measured on others cannot be compared."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    found = [opening.choose(name, backend) for name in names]
    if not found:
        raise UsageError("--devices names no device; use auto, cpu, or cuda:0,cuda:1.")
    devices = tuple(device for device, _ in found)
    if len({device.spec for device in devices}) < len(devices):
        raise UsageError(f"--devices {text} names a device twice; name each once.")
    if len({device.name for device in devices}) > 1:
        named = ", ".join(device.label for device in devices)
        raise UsageError(f"--devices {text}: {named} are different; figures of one bench must come from like devices.")
    return devices, found[0][1]


@contextmanager
def _interruptible(runner: Runner, say: Callable[[str], None]) -> Iterator[None]:
    """Ctrl-C and a request to end close the bench; the second time it is left as it is."""

    def stop(*_: object) -> None:
        if runner.interrupted:
            raise KeyboardInterrupt
        say("finishing what is under way (Ctrl-C again to leave it; it can be gone on with either way)")
        runner.interrupt()

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
