"""The Python API: `optimize`, `evaluate`, `verify` and `Run`. `import warpsmith` offers these names.

    import warpsmith as ws

    result = ws.optimize(softmax, trials=24)
    op = result.load()

A task is a function under `@task`, a path, "suite/name", or a plain function with `example_inputs`. Whatever can be
wrong raises a `WarpsmithError` of one sentence.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakValueDictionary

from warpsmith.backends.source import backend_named, devices_of, read_candidate
from warpsmith.engine.engine import LOCAL, Engine, engine_site
from warpsmith.model.brief import Brief, Reply, TrialOutcome, TrialRecord
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.certificate import Certificate
from warpsmith.model.errors import CandidateError, RunError, UsageError
from warpsmith.model.evaluation import Evaluation, Interval, Status
from warpsmith.model.settings import Paths, Settings
from warpsmith.model.task import Precision
from warpsmith.prompts.renderer import render
from warpsmith.proposers.choose import choose as choose_proposer
from warpsmith.search import open_run
from warpsmith.search.active_run import ActiveRun
from warpsmith.search.best_kernel import bundle_folder, why_no_best, write_best
from warpsmith.search.budget import check_trials_left
from warpsmith.search.loop import PassingObserver, SearchObserver, judge_pending
from warpsmith.search.options import BY_HAND, RunOptions
from warpsmith.search.profiles import kernel_profiler, profile_next
from warpsmith.search.session import Session
from warpsmith.search.start import OFFLINE
from warpsmith.search.trust import allow_proposer, allow_task, proposer_of, task_to_execute
from warpsmith.tasks.capture import ExampleInputs, task_file

if TYPE_CHECKING:
    import pandas

    from warpsmith.runtime.operator import Operator

TaskLike = Callable[..., object] | str | os.PathLike[str]
"""A function (under `@task`, or plain with example inputs), a path, or "suite/name"."""

KernelLike = str | os.PathLike[str] | Candidate
"""A kernel: the path of its file, its source as text, or a candidate."""

CAPTURED = "captured_tasks"  # the folder in the cache for task files written from functions


@dataclass(frozen=True)
class TrialResult:
    """One trial of a run: a proposed kernel and its outcome."""

    number: int
    outcome: TrialOutcome
    status: Status | None  # None where nothing was judged: a duplicate, or a reply without a kernel
    speedup: float | None  # over PyTorch eager; None where the kernel is not valid
    interval: Interval | None  # of the speedup
    reason: str  # why the kernel is not valid, or was not judged
    strategy: str
    source: str = field(repr=False)
    evaluation: Evaluation | None = field(repr=False)
    is_best: bool  # the best kernel of the run so far


Callback = Callable[["Run", TrialResult], None]
"""Called after each judged trial, in the thread that runs the search; `run.stop()` ends the search."""


@dataclass(frozen=True)
class BestKernel:
    """The best kernel of a run."""

    trial: int
    speedup: float  # over PyTorch eager
    over_start: float | None  # speedup over the starting kernel; None where the run has none
    interval: Interval | None
    source: str = field(repr=False)
    file: Path
    bundle: Path  # what `load` takes
    evaluation: Evaluation = field(repr=False)


@dataclass(frozen=True)
class Result:
    """What a search found. Nothing has to be closed; the run can be opened again with `Run.open(result.folder)`."""

    folder: Path
    stopped_because: str
    trials: tuple[TrialResult, ...]
    kernel: BestKernel | None

    @property
    def best(self) -> BestKernel:
        """The best kernel; raises where no valid kernel was found."""
        if self.kernel is None:
            raise RunError(
                f"no valid kernel was found in {len(self.trials)} trials; see `warpsmith show {self.folder}`."
            )
        return self.kernel

    def load(self) -> Operator:
        """The best kernel as an operator that takes the place of the PyTorch function."""
        from warpsmith.runtime.load import load

        return load(self.best.bundle)

    def to_dataframe(self) -> pandas.DataFrame:
        """The trials as a table, one row each; needs pandas."""
        try:
            import pandas
        except ImportError:
            raise UsageError("a table of trials needs pandas; install it with `pip install pandas`.") from None
        rows = [
            {
                "trial": each.number,
                "status": each.status.value if each.status else each.outcome.value,
                "speedup": each.speedup,
                "low": each.interval.low if each.interval else None,
                "high": each.interval.high if each.interval else None,
                "strategy": each.strategy,
                "reason": each.reason,
                "best": each.is_best,
            }
            for each in self.trials
        ]
        return pandas.DataFrame(rows)


class Run:
    """One search with its log, open for work: ask for a brief and tell a kernel, or let a proposer search.

    Use it with `with`, or call `close`. What was judged is in the folder at once; a run that was broken off is opened
    again with `Run.open`.
    """

    _opened: ClassVar[WeakValueDictionary[Path, Run]] = WeakValueDictionary()  # of this process, by folder

    def __init__(self, session: Session, options: RunOptions, stack: ExitStack) -> None:
        self._opened[session.folder.resolve()] = self
        self._session = session
        self._options = options
        self._stack = stack
        self._evaluator: Engine | None = None
        self._active: ActiveRun | None = None

    @classmethod
    def create(
        cls,
        task: TaskLike,
        folder: str | os.PathLike[str] | None = None,
        *,
        example_inputs: ExampleInputs | Sequence[ExampleInputs] | None = None,
        method: str | None = None,
        proposer: str | None = None,
        trials: int | None = None,
        device: str | None = None,
        engine: str | None = None,
        start: KernelLike | None = None,
        options: RunOptions | None = None,
    ) -> Run:
        """Start a run. `options` has the rarer options; what is given beside it wins."""
        given = _merged(
            options,
            method=method,
            proposer=proposer,
            trials=trials,
            device=device,
            engine=engine,
            start=_start(start),
        )
        with ExitStack() as stack:
            new = open_run.prepare(_file(task, example_inputs), given, folder=None if folder is None else Path(folder))
            evaluator = stack.enter_context(new.open_engine())
            run = cls(stack.enter_context(new.begin(evaluator)), given, stack)
            run._evaluator = evaluator
            run._stack = stack.pop_all()
        return run

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, options: RunOptions | None = None, trust: bool = False) -> Run:
        """Open an existing run, exactly as its log left it; `options` may give new limits or another proposer.

        Judging executes the task file in the folder. Where this user did not create the run on this machine, `tell`
        and `optimize` refuse that, unless `trust` is given: read the file first. Then `options` must name the proposer.
        A run that is open in this process is returned as it is.
        """
        given = options or RunOptions()
        path = open_run.find(str(folder))
        known = cls._opened.get(path.resolve())
        if known is not None and options is not None:
            raise RunError(f"{path} is open in this process; close it before you open it with other options.")
        if known is not None:
            return known
        with Session.read(path) as before:
            budget, setup = given.budget(before.budget), before.state.setup
            check_trials_left(given.trials, before.state.totals.trials, path)
        if trust:
            allow_task(path, setup)
        if given.proposer:
            allow_proposer(path, setup, given.proposer)
        with ExitStack() as stack:
            session = stack.enter_context(Session.resume(path, given.proposer, budget, keep=True))
            return cls(session, given, stack.pop_all())

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, trials={len(self._session.state.trials)})"

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the processes of the evaluator and close the log."""
        self._opened.pop(self.folder.resolve(), None)
        self._stack.close()
        self._evaluator = None

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self._session.folder

    @property
    def trials(self) -> tuple[TrialResult, ...]:
        """The trials so far."""
        return tuple(_trial(self._session, number) for number in sorted(self._session.state.trials))

    @property
    def result(self) -> Result:
        """What was found so far."""
        session = self._session
        closed = session.state.closed
        return Result(session.folder, closed.reason if closed else "", self.trials, _best(session))

    @property
    def best(self) -> BestKernel:
        """The best kernel so far; raises where there is none."""
        found = _best(self._session)
        if found is None:
            raise RunError(why_no_best(self._session))
        return found

    def ask(self) -> Brief:
        """The next brief: all that a proposer may know. `prompt` words it for a model."""
        waiting = sorted(self._session.state.in_flight)
        brief = self._session.brief(waiting[0]) if waiting else self._session.ask()
        if brief is None:
            why = self._session.stop_reason or "kernels are waiting to be judged"
            raise RunError(f"{self.folder} asks for nothing more: {why}.")
        if not waiting:
            self._session.sent(brief, render(brief))
        return brief

    def prompt(self, brief: Brief) -> str:
        """The brief as a prompt for a language model."""
        return "\n\n".join(message.text for message in render(brief).messages)

    def tell(self, brief: Brief, kernel: str | os.PathLike[str]) -> TrialResult:
        """Hand in a kernel for a brief and judge it: its source, a model's reply that holds it, or a file."""
        text, name = _kernel_text(kernel, self._session.state.setup.config.backend)
        task_to_execute(self.folder, self._session.state.setup)
        record = self._session.answer(brief, Reply(text, BY_HAND, file=name))
        if record.outcome is TrialOutcome.PENDING:
            evaluator = self._running_evaluator()
            judge_pending(self._session, open_run.task_evaluator(self._session, evaluator), lambda *_: None)
            with kernel_profiler(self._session, evaluator) as look:
                profile_next(self._session, look)
            write_best(self._session)
        if not record.trial:
            raise CandidateError(record.reason or "this brief asks for words, not for a kernel; they were kept.")
        return _trial(self._session, record.trial)

    def optimize(
        self,
        *,
        callbacks: Sequence[Callback] = (),
        log: str | Sequence[str] = (),
        progress: bool | None = None,
        out: str | os.PathLike[str] = "",
    ) -> Result:
        """Let the proposer of the run search until a budget is spent, Ctrl-C, or `stop`; `log`: see `optimize`."""
        options, session = self._options, self._session
        loggers = _checked_loggers(log)
        begun = session.state.setup
        task_to_execute(session.folder, begun)  # refused before anything is spent
        spec = options.proposer or proposer_of(session.folder, begun, session.proposer)
        choice = choose_proposer(spec, options.models, skip=session.recorded_trials, roles=begun.method.roles)
        self._active = ActiveRun(
            session,
            self._running_evaluator(),
            choice,
            profile=options.profile,
            tune=options.tune,
            parallel=options.parallel,
        )
        try:
            with ExitStack() as stack:
                view = stack.enter_context(_watching(session, progress))
                stack.enter_context(self._active.interruptible())
                observer = stack.enter_context(_logging(session, view, loggers))
                ending = self._active.search(_Calling(self, observer, callbacks), out=os.fspath(out))
        finally:
            self._active = None
        return replace(self.result, stopped_because=ending.reason)

    def stop(self) -> None:
        """End the search that is under way, soon; from a callback or another thread."""
        if self._active is not None:
            self._active.interrupt()

    def _running_evaluator(self) -> Engine:
        if self._evaluator is None:
            made = open_run.evaluator_for(
                self.folder, self._session.state.setup, self._options.device, engine=self._options.engine
            )
            self._evaluator = self._stack.enter_context(made)
        return self._evaluator


def optimize(
    task: TaskLike,
    *,
    example_inputs: ExampleInputs | Sequence[ExampleInputs] | None = None,
    trials: int | None = None,
    seconds: float | None = None,
    method: str | None = None,
    proposer: str | None = None,
    device: str | None = None,
    backend: str | None = None,
    engine: str | None = None,
    precision: Precision | str | None = None,
    seed: int | None = None,
    start: KernelLike | None = None,
    folder: str | os.PathLike[str] | None = None,
    callbacks: Sequence[Callback] = (),
    log: str | Sequence[str] = (),
    progress: bool | None = None,
    options: RunOptions | None = None,
) -> Result:
    """Evolve a kernel for a task until a budget is spent, and return the best with the evidence.

    `trials` is the number of kernels to try (45 where nothing is said), `proposer` who writes them ("auto": a model
    where a key is found, else the offline catalogue), `start` a kernel to start from ("auto": an offline one; judged
    first, spends no trial), `engine` where kernels are judged ("local", "ray", "ray://HOST:PORT", "http://HOST:PORT"),
    `folder` where the run is kept. `progress` shows a live view; by default on a terminal and in a notebook. `options`
    has the rarer options; what is given beside it wins.
    """
    given = _merged(
        options,
        trials=trials,
        seconds=seconds,
        method=method,
        proposer=proposer,
        device=device,
        backend=backend,
        engine=engine,
        precision=None if precision is None else _precision(precision),
        seed=seed,
        start=_start(start, backend),
    )
    loggers = _checked_loggers(log)  # refused before anything is spent
    with Run.create(task, folder, example_inputs=example_inputs, options=given) as run:
        return run.optimize(callbacks=callbacks, log=loggers, progress=progress)


def evaluate(
    task: TaskLike,
    kernel: KernelLike,
    *,
    example_inputs: ExampleInputs | Sequence[ExampleInputs] | None = None,
    backend: str | None = None,
    device: str = "auto",
    engine: str = LOCAL,
    precision: Precision | str | None = None,
    baselines: tuple[str, ...] = ("eager",),
) -> Evaluation:
    """Judge one kernel: a file, or its source as text (then `backend` says the language; cpu where nothing is said)."""
    (found,) = evaluate_all(
        task,
        [kernel],
        example_inputs=example_inputs,
        backend=backend,
        device=device,
        engine=engine,
        precision=precision,
        baselines=baselines,
    )
    return found


def evaluate_all(
    task: TaskLike,
    kernels: Sequence[KernelLike],
    *,
    example_inputs: ExampleInputs | Sequence[ExampleInputs] | None = None,
    backend: str | None = None,
    device: str = "auto",
    engine: str = LOCAL,
    precision: Precision | str | None = None,
    baselines: tuple[str, ...] = ("eager",),
) -> list[Evaluation]:
    """Judge several kernels of one task; they are compiled side by side and timed one after the other."""
    candidates = [_candidate(each, backend) for each in kernels]
    if not candidates:
        return []
    wanted = None if precision is None else _precision(precision)
    path = _file(task, example_inputs)
    settings = replace(Settings(), baselines=RunOptions(baselines=baselines).checked_baselines())
    with _engine_for(candidates, device, settings, engine) as evaluator:
        found = dict(evaluator.evaluate(path, candidates, wanted))
    return [found[number] for number in range(len(candidates))]


def verify(
    task: TaskLike,
    kernel: KernelLike,
    *,
    example_inputs: ExampleInputs | Sequence[ExampleInputs] | None = None,
    backend: str | None = None,
    device: str = "auto",
    engine: str = LOCAL,
    precision: Precision | str | None = None,
) -> Certificate:
    """Try a kernel as hard as this machine can: held-out inputs and shapes, sanitizers, a second measurement."""
    from warpsmith.verification.verify import Verifier

    candidate = _candidate(kernel, backend)
    wanted = None if precision is None else _precision(precision)
    path = _file(task, example_inputs)
    with _engine_for([candidate], device, Settings(), engine) as evaluator:
        return Verifier(evaluator, paths=Paths.from_environment()).verify(path, candidate, wanted)


# --- what the functions above share ---


class _Calling(PassingObserver):
    """Passes events on to a view, and calls the user's callbacks."""

    def __init__(self, run: Run, view: SearchObserver, callbacks: Sequence[Callback]) -> None:
        super().__init__(view)
        self._run = run
        self._callbacks = callbacks

    def recorded(self, record: TrialRecord, evaluation: Evaluation | None) -> None:
        super().recorded(record, evaluation)
        if record.trial and evaluation is not None and record.outcome is not TrialOutcome.PENDING:
            trial = _trial(self._run._session, record.trial)
            for call in self._callbacks:
                call(self._run, trial)


def _checked_loggers(log: str | Sequence[str]) -> tuple[str, ...]:
    specs = (log,) if isinstance(log, str) else tuple(log)
    if specs:
        from warpsmith.loggers.logged_search import check_loggers

        check_loggers(specs)
    return specs


def _logging(session: Session, view: SearchObserver, specs: Sequence[str]) -> AbstractContextManager[SearchObserver]:
    if not specs:
        return nullcontext(view)
    from warpsmith.loggers.logged_search import logging_run

    return logging_run(session, view, specs)


@contextmanager
def _watching(session: Session, wanted: bool | None) -> Iterator[SearchObserver]:
    """A live view on a terminal or in a notebook, or none."""
    if wanted is False:
        yield SearchObserver()
        return
    from warpsmith.cli.cards import console
    from warpsmith.cli.live import watching

    screen = console(stderr=True)
    if wanted is None and not (screen.is_terminal or screen.is_jupyter):
        yield SearchObserver()
        return
    with watching(screen, session) as view:
        yield view


def _merged(options: RunOptions | None, **given: Any) -> RunOptions:
    return replace(options or RunOptions(), **{name: value for name, value in given.items() if value is not None})


def _file(task: TaskLike, example_inputs: ExampleInputs | Sequence[ExampleInputs] | None) -> str:
    if isinstance(task, os.PathLike):
        task = os.fspath(task)
    found = task_file(task, Paths.from_environment().cache / CAPTURED, example_inputs)
    path = Path(found.partition("::")[0])
    if not path.is_file():
        raise UsageError(f"there is no task file {path}; give a path, 'suite/name', or a function under @task.")
    return found


def _precision(given: Precision | str) -> Precision:
    try:
        return Precision(given)
    except ValueError:
        known = ", ".join(each.value for each in Precision)
        raise UsageError(f"unknown precision {given!r}; known: {known}.") from None


def _kernel_text(kernel: str | os.PathLike[str], backend: str) -> tuple[str, str]:
    """The text of a kernel and the name of its file; "" as the name of a text that is read like a model's reply."""
    suffixes = backend_named(backend).suffixes
    if isinstance(kernel, os.PathLike) or ("\n" not in kernel and kernel.endswith(tuple(suffixes))):
        path = Path(kernel)
        if path.suffix not in suffixes:
            raise CandidateError(f"this run takes {backend} kernels ({', '.join(suffixes)}), not {path.name}.")
        try:
            return path.read_text(encoding="utf-8"), path.name
        except (OSError, UnicodeDecodeError) as refused:
            raise CandidateError(f"{path} cannot be read ({refused}); name a file with a kernel.") from None
    return kernel, "" if "```" in kernel else f"kernel{suffixes[0]}"


def _candidate(kernel: KernelLike, backend: str | None) -> Candidate:
    if isinstance(kernel, Candidate):
        return kernel
    if isinstance(kernel, str) and "\n" in kernel:
        language = backend or "cpu"
        name = f"kernel{backend_named(language).suffixes[0]}"
        return Candidate(files=(SourceFile(name, kernel),), backend=language)
    return read_candidate(Path(kernel), backend or None)


def _start(kernel: KernelLike | None, backend: str | None = None) -> str | Candidate | None:
    """A starting kernel as an option; "auto" and "plain" stay."""
    return kernel if kernel is None or kernel in OFFLINE else _candidate(kernel, backend)


def _engine_for(candidates: Sequence[Candidate], wanted: str, settings: Settings, engine: str) -> Engine:
    """An engine on a device that all candidates run on."""
    site = engine_site(engine)
    kinds = [kind for kind in devices_of(candidates[0]) if all(kind in devices_of(each) for each in candidates)]
    if not kinds:
        raise UsageError("these kernels run on different devices; evaluate each kind by itself.")
    if wanted == "auto":
        wanted = next((kind for kind in kinds if kind != "cuda" or site.has_gpu), kinds[0])
    if wanted.partition(":")[0] not in kinds:
        raise UsageError(f"{candidates[0].main.name} runs on {kinds[0]}, not on {wanted}.")
    return site.open(site.select(wanted), settings, name=candidates[0].main.name)


def _trial(session: Session, number: int) -> TrialResult:
    known, record = session.state.trials[number], session.record(number)
    proposed = session.proposed(number)
    evaluation = session.evaluation(number) if known.status else None
    return TrialResult(
        number=number,
        outcome=record.outcome,
        status=record.status,
        speedup=record.speedup,
        interval=evaluation.interval() if evaluation and evaluation.ok else None,
        reason=record.reason,
        strategy=known.strategy,
        source=proposed.candidate.main.text if proposed and proposed.candidate else "",
        evaluation=evaluation,
        is_best=record.best,
    )


def _best(session: Session) -> BestKernel | None:
    number = session.state.best
    evaluation = session.evaluation(number) if number else None
    speedup = evaluation.speedup() if evaluation else None
    if evaluation is None or speedup is None:
        return None
    candidate = session.candidate(number)
    return BestKernel(
        trial=number,
        speedup=speedup,
        over_start=session.state.over_start,
        interval=evaluation.interval(),
        source=candidate.main.text,
        file=session.folder / f"best{Path(candidate.main.name).suffix}",
        bundle=bundle_folder(session),
        evaluation=evaluation,
    )
