"""The catalogue's best kernel for each task of the suites that its templates cover: a short run each, verified.

    python -m benchmarks.suite_best --json benchmarks/h200/suite_best.json --limit-s 500
    python -m benchmarks.suite_best --json benchmarks/h200/suite_best.json --no-verify
    python -m benchmarks.suite_best --json benchmarks/h200/suite_best.json --verify-only --faster
    python -m benchmarks.suite_best --json benchmarks/h200/suite_best.json --again --only softmax
    python -m benchmarks.suite_best --json /tmp/cpu.json --device cpu --small --only relu --trials 3

Several GPUs share the work with `--part 1/3` and so on, each sitting with a `--device` of its own. On one GPU that does
not pay: judging is what takes the time, and the buffers of several large tasks do not fit beside each other.

One of every family after the other, so that a run that is cut off has reached them all. Writes after every task and
leaves out what the file has already: run it again until nothing is left. With `--again` what the file has is searched
anew and replaced, better or not. A kernel counts where it is verified; one that is not is kept with what stands against
it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

from benchmarks.suite_figures import BestFigures, BestRecord, chosen, in_turn, read_best, write
from benchmarks.suite_sitting import Common, alone, check_same, common_of, common_parser, deaf, ended, merged, versions

from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.hardware.device import Device
from warpsmith.methods.load import load
from warpsmith.model.build import DeviceKind
from warpsmith.model.errors import HarnessFault, TaskError
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.settings import Settings
from warpsmith.model.task import Precision
from warpsmith.proposers.templates import TemplateProposer
from warpsmith.run_log.events import Budget, RunConfig
from warpsmith.search import open_run
from warpsmith.search.loop import SearchLoop, SearchObserver
from warpsmith.search.session import Session
from warpsmith.tasks import suites
from warpsmith.tasks.suites import SuiteTask
from warpsmith.verification.verify import Verifier

_REASON = 300  # characters
_SHORTEST_S = 10.0  # with less time than this left, no task is begun


@dataclass(frozen=True)
class Options:
    """The command line."""

    common: Common
    precision: Precision
    method: str
    trials: int
    seconds: float
    parallel: int
    search: bool
    again: bool
    verify: bool
    faster: bool
    settings: Settings
    part: int  # of `parts`: this sitting takes every so many-th task
    parts: int


def parsed(arguments: Sequence[str]) -> Options:
    """The command line, read."""
    parser = common_parser(__doc__, device="auto", limit_s=500.0)
    parser.add_argument("--precision", choices=("fp32", "tf32"), default="fp32")
    parser.add_argument("--method", default="cupilot")
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=45.0, help="for the search on one task")
    parser.add_argument("--parallel", type=int, default=6)
    parser.add_argument("--time-budget", type=float, default=0.3, help="seconds of timing per workload")
    parser.add_argument("--seeds", type=int, default=2, help="input sets of a task's own distribution")
    parser.add_argument(
        "--faster", action="store_true", help="verify only kernels whose whole interval is faster than eager"
    )
    parser.add_argument(
        "--part", type=_part, default=(1, 1), metavar="K/N", help="only every N-th task, from the K-th on"
    )
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--no-verify", action="store_true", help="search only; verify later")
    either.add_argument("--verify-only", action="store_true", help="verify what was found before")
    either.add_argument("--again", action="store_true", help="search anew what the file has already")
    given = parser.parse_args(arguments)
    return Options(
        common=common_of(given),
        precision=Precision(given.precision),
        method=given.method,
        trials=given.trials,
        seconds=given.seconds,
        parallel=given.parallel,
        search=not given.verify_only,
        again=given.again,
        verify=not given.no_verify,
        faster=given.faster,
        settings=Settings(timing_budget_s=given.time_budget, seeds=given.seeds),
        part=given.part[0],
        parts=given.part[1],
    )


def _part(text: str) -> tuple[int, int]:
    number, _, parts = text.partition("/")
    if not (number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r} is not like 1/3")
    return int(number), int(parts)


def covered(backend: str, precision: Precision) -> tuple[str, ...]:
    """The tasks that a template can write a kernel for. Imports torch: to be called in a process of its own."""
    from warpsmith.backends.source import backend_named
    from warpsmith.model.brief import Problem
    from warpsmith.tasks.load import load_task
    from warpsmith.tasks.outline import outline

    found = []
    for entry in suites.select_tasks():
        if precision not in entry.precisions:
            continue
        program = load_task(entry.spec(), precision)
        contract = backend_named(backend).contract(program.task)
        problem = Problem(program.task, contract, backend, "", DeviceKind(backend), "", (), outline(program))
        if TemplateProposer.supports(problem):
            found.append(entry.title)
    return tuple(found)


class Sitting:
    """One call of this script."""

    def __init__(self, options: Options, evaluator: Evaluator, backend: str, began: float) -> None:
        self._options = options
        self._evaluator = evaluator
        self._backend = backend
        self._began = began
        self.versions: dict[str, str] = {}  # of what built and judged, once something was

    @property
    def left_s(self) -> float:
        """Until no task is begun any more."""
        return self._options.common.limit_s - (time.monotonic() - self._began)

    def search(self, entry: SuiteTask) -> BestFigures:
        """A short run, and its best kernel verified."""
        options = self._options
        with tempfile.TemporaryDirectory() as folder:
            config = RunConfig(
                task=entry.spec(options.common.size),
                device=options.common.device,
                backend=self._backend,
                proposer=TemplateProposer.name,
                budget=Budget(trials=options.trials, seconds=min(options.seconds, max(self.left_s, _SHORTEST_S))),
                settings=options.settings,
                precision=options.precision.value,
                parallel=options.parallel,
            )
            with open_run.begin(
                config,
                load(options.method),
                self._evaluator,
                folder=Path(folder) / "run",
            ) as session:
                bench = open_run.task_evaluator(session, self._evaluator)
                loop = SearchLoop(
                    session,
                    TemplateProposer(),
                    bench,
                    SearchObserver(),
                    parallel=options.parallel,
                    prepare=bench.prepare,
                )
                found = self._figures(entry, session, loop.run())
                evaluation = session.evaluation(session.state.best) if session.state.best else None
        return self.verify(entry, found, evaluation) if options.verify else found

    def _figures(self, entry: SuiteTask, session: Session, stopped: str) -> BestFigures:
        state = session.state
        figures = BestFigures(
            task=entry.title,
            family=entry.family,
            method=self._options.method,
            trials=state.totals.trials,
            valid=state.totals.valid,
            compiled=state.totals.compiled,
            seconds=round(session.elapsed(), 1),
            stopped=stopped,
        )
        for trial in state.trials:
            told = session.evaluation(trial)
            if told is None:
                continue
            if not told.ok:
                figures.refused.setdefault(told.status.value, told.reason[:_REASON])
            elif speedup := told.speedup():
                figures.tried.setdefault(state.trials[trial].strategy, round(speedup, 4))
        evaluation = session.evaluation(state.best) if state.best else None
        if evaluation is None:
            return figures
        self.versions = {"torch": evaluation.environment.torch, "compiler": evaluation.environment.compiler}
        return replace(
            measured(figures, evaluation),
            strategy=state.trials[state.best].strategy,
            kernel=session.candidate(state.best),
        )

    def wants_verifying(self, found: BestFigures) -> bool:
        """Whether there is a kernel that nobody has verified yet, and should."""
        quick = found.low is not None and found.low > 1.0
        return found.kernel is not None and found.verified is None and (quick or not self._options.faster)

    def verify(self, entry: SuiteTask, found: BestFigures, evaluation: Evaluation | None = None) -> BestFigures:
        """The same with what verification said, measured as it measured it."""
        if found.kernel is None or not self.wants_verifying(found):
            return found
        spec = entry.spec(self._options.common.size)
        certificate = Verifier(self._evaluator).verify(spec, found.kernel, self._options.precision, first=evaluation)
        took = round(certificate.seconds, 1)
        verdict = True if certificate.verified else False if certificate.failed else None
        return replace(found, verified=verdict, objection=certificate.reason, verify_seconds=took)


def measured(figures: BestFigures, evaluation: Evaluation) -> BestFigures:
    """The figures with what an evaluation measured."""
    interval = evaluation.interval()
    return replace(
        figures,
        speedup=evaluation.speedup(),
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        latency_ms={w.workload: w.latency_ms for w in evaluation.workloads},
        share_of_floor=min(w.share_of_floor for w in evaluation.workloads),
    )


def begun(options: Options, device: Device, known: BestRecord | None, titles: Sequence[str]) -> BestRecord:
    """The record to go on with, or a new one."""
    size, precision = options.common.size, options.precision.value
    if known is not None:
        check_same((known.device, known.size, known.precision), (device.label, size, precision))
    return BestRecord(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        device=device.label,
        versions=(known.versions if known else {}) | versions(device),
        size=size,
        precision=precision,
        seconds=known.seconds if known else 0.0,
        covered=len(titles) if titles or known is None else known.covered,
        tasks=known.tasks if known else (),
    )


def work(options: Options, began: float) -> int:
    """Search, verify, write; 0 where nothing is left, 1 where another sitting is needed."""
    common = options.common
    device, backend = open_run.choose(common.device, "")
    known = common.record(read_best)
    titles: tuple[str, ...] = ()
    if options.search:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as other:
            with deaf():
                asked = other.submit(covered, backend, options.precision)
            titles = asked.result()
    record = begun(options, device, known, titles)
    left = 0
    with Evaluator(device, options.settings, on_message=_complain) as evaluator:
        sitting = Sitting(options, evaluator, backend, began)
        for entry in in_turn(chosen(suites.select_tasks(), common.only))[options.part - 1 :: options.parts]:
            found = next((task for task in record.tasks if task.task == entry.title and not task.failure), None)
            found = None if options.again else found
            if not _is_due(options, sitting, entry, found, titles):
                continue
            if sitting.left_s < _SHORTEST_S:
                left += 1
                continue
            start = time.monotonic()
            figures = _attempt(options, sitting, entry, found)
            left += bool(figures.failure)
            with alone(common.json):
                record = read_best(common.json) or record  # others may have added to it
                record = replace(
                    record,
                    date=datetime.now(UTC).isoformat(timespec="seconds"),
                    covered=len(titles) or record.covered,
                    tasks=merged(record.tasks, figures),
                    seconds=round(record.seconds + time.monotonic() - start, 1),
                    versions=record.versions | sitting.versions,
                )
                write(common.json, record)
            print(_line(figures, time.monotonic() - start), flush=True)
    took = time.monotonic() - began
    print(f"{len(record.tasks)} of {record.covered} tasks in {common.json}, {left} left, {took:.0f} s", file=sys.stderr)
    return 1 if left else 0


def _is_due(
    options: Options, sitting: Sitting, entry: SuiteTask, found: BestFigures | None, titles: Sequence[str]
) -> bool:
    if found is None:
        return options.search and entry.title in titles
    return options.verify and sitting.wants_verifying(found)


def _attempt(options: Options, sitting: Sitting, entry: SuiteTask, found: BestFigures | None) -> BestFigures:
    try:
        return sitting.search(entry) if found is None else sitting.verify(entry, found)
    except (TaskError, HarnessFault) as fault:  # one task that does not work here must not cost the others
        if found is not None:
            return replace(found, objection=str(fault))
        return BestFigures(entry.title, entry.family, options.method, 0, 0, 0, 0.0, "", failure=str(fault))


def _line(figures: BestFigures, seconds: float) -> str:
    if figures.failure:
        return f"{figures.task:42} {figures.failure}"
    if figures.speedup is None:
        none = f"none of {figures.valid} valid kernels measured twice" if figures.valid else "nothing valid"
        return f"{figures.task:42} {none} in {figures.trials} trials, {seconds:.0f} s"
    waits = f"not verified: {figures.objection}" if figures.objection else "not verified yet"
    state = {None: waits, True: "verified", False: f"refused: {figures.objection}"}[figures.verified]
    reached = f"{figures.speedup:.3f}x [{figures.low:.3f}, {figures.high:.3f}]"
    return f"{figures.task:42} {reached} {figures.valid}/{figures.trials} valid, {state}, {seconds:.0f} s"


def _complain(message: str) -> None:
    print(message, file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Search and verify."""
    began = time.monotonic()
    options = parsed(sys.argv[1:] if arguments is None else arguments)
    return ended(lambda: work(options, began), options.common.json)


if __name__ == "__main__":
    sys.exit(main())
