"""From what a user asks for to a run that can be worked on: new, or taken up again.

Everything that can be wrong with the request is found before anything is spent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from warpsmith._version import __version__
from warpsmith.backends.source import backend_named
from warpsmith.hardware.device import Device
from warpsmith.methods.load import DEFAULT, ablated, load, trials_of, with_population
from warpsmith.model.brief import Problem
from warpsmith.model.candidate import Candidate
from warpsmith.model.errors import CandidateError, HarnessFault, RunError, TaskError, ToolMissing, UsageError
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.method import Method
from warpsmith.model.settings import Settings
from warpsmith.model.task import Precision
from warpsmith.proposers.choose import ChosenProposer
from warpsmith.proposers.choose import choose as choose_proposer
from warpsmith.run_log.events import RunConfig, RunCreated
from warpsmith.run_log.log import LOG_FILE, RunLog
from warpsmith.search.best_kernel import BUNDLE
from warpsmith.search.budget import check_budget, check_countable
from warpsmith.search.loop import judge_pending
from warpsmith.search.next_brief import find_precedents
from warpsmith.search.options import RunOptions, precision_of, write_config
from warpsmith.search.session import FindPrecedents, Session, no_precedents
from warpsmith.search.start import OFFLINE, offline_start, read_start
from warpsmith.search.trust import TASK_FILE, settings_of, sign_run, task_to_execute
from warpsmith.system.files import put_in_place, remove_tree
from warpsmith.tasks.local_imports import local_modules
from warpsmith.tasks.suites import check_syntax

if TYPE_CHECKING:
    from warpsmith.engine.engine import Engine
    from warpsmith.evaluator.supervisor.evaluator import Progress

RUNS = "runs"
ENOUGH = 0.95
"""Share of the hardware limit at which a run stops that is given no other."""
_NATIVE = ("cuda", "cpu")


def choose(device: str, backend: str, engine: str = "local") -> tuple[Device, str]:
    """Where to run and in which language; raises where that cannot be built or run there."""
    from warpsmith.engine.engine import engine_site  # reading a run needs none

    site = engine_site(engine)
    if backend and backend not in ("cuda", "cpu", "triton"):
        backend_named(backend)  # an unknown one is said to be that
        raise UsageError(f"--backend {backend}: kernels are proposed in cuda, cpu or triton.")
    kind = device.partition(":")[0]
    if kind == "auto":
        kind = "cuda" if backend in ("cuda", "triton") else backend or default_backend(engine)
    if kind not in _NATIVE:
        raise UsageError(f"unknown device {device!r}; use auto, cpu, cuda or cuda:N.")
    language = backend or kind
    if kind not in backend_named(language).devices:
        raise UsageError(f"--backend {language} does not run on {kind}; leave one of the two options out.")
    if kind == "cuda" and not site.has_gpu:
        raise ToolMissing("no NVIDIA GPU is visible here; choose --device cpu, or run on a machine with one.")
    available = site.available(language)
    if not available.build:
        raise ToolMissing(f"{language} kernels cannot be built here: {available.detail}.")
    return site.select(kind if device == "auto" else device), language


def default_backend(engine: str = "local") -> str:
    """The language of kernels where nobody names one: CUDA with a GPU and its compiler, else C++."""
    from warpsmith.engine.engine import engine_site  # reading a run needs none

    site = engine_site(engine)
    return "cuda" if site.has_gpu and site.available("cuda").build else "cpu"


def begin(
    config: RunConfig,
    method: Method,
    evaluator: Engine,
    *,
    folder: Path | None = None,
    recall: FindPrecedents = no_precedents,
    options: RunOptions | None = None,
    check: Callable[[Problem], None] = lambda _: None,
    start: Candidate | None = None,
) -> Session:
    """Begin a new run: read the task, then make the folder (a fresh one under `runs` where none is named).

    `recall` gives what earlier runs learnt about such tasks; `check` raises for a problem that cannot be proposed for.
    A starting kernel (`start`, or an offline one where the configuration says "auto" or "plain") is judged at once;
    where it is not valid, no run begins.
    """
    check_budget(config.budget)
    path, mark, name = config.task.partition("::")
    problem = evaluator.survey(config.task, config.backend, precision_of(config))
    check(problem)
    if problem.uncalibrated and not config.accept_uncalibrated:
        raise TaskError(f"{problem.uncalibrated.rstrip('.')}; or search all the same with --accept-uncalibrated.")
    start = offline_start(problem, config.start) if config.start in OFFLINE else start
    config = replace(config, task=f"{Path(path).resolve()}{mark}{name}")
    modules = _modules(Path(path))
    folder = folder or fresh_folder(Path(RUNS), problem.task.name)
    session = Session.create(folder, RunCreated(config, method, problem, __version__), recall, start)
    try:
        put_in_place(folder / TASK_FILE, _source(config.task), mode=0o644)
        for name, text in modules.items():
            put_in_place(folder / name, text.encode(), mode=0o644)
        write_config(folder, config, method.name, options or RunOptions())
        sign_run(folder, session.state.setup)
    except OSError as refused:
        raise RunError(f"{folder} cannot be written ({refused.strerror}); choose another folder.") from None
    if start is not None:
        try:
            _judge_start(session, evaluator)
        except BaseException:
            session.__exit__(None, None, None)
            remove_tree(folder)  # nothing was spent
            raise
    return session


def _judge_start(session: Session, evaluator: Engine) -> None:
    """Judge the starting kernel, twice like every kernel that may be the best; raises where it is not valid."""
    judge_pending(session, task_evaluator(session, evaluator), lambda *_: None)
    record, task = session.record(session.state.starting), session.state.setup.problem.task.name
    if record.status is Status.NOT_JUDGED:
        raise HarnessFault(f"the starting kernel for {task} could not be judged: {record.reason}")
    if session.state.best != session.state.starting:
        raise CandidateError(
            f"the starting kernel for {task} is not valid ({record.status}): {record.reason.rstrip('.')}; mend the "
            "kernel, or leave out --start."
        )


@dataclass(frozen=True)
class NewRun:
    """A run that can begin: everything that a caller can get wrong was checked, nothing was spent."""

    config: RunConfig
    method: Method
    choice: ChosenProposer
    device: Device
    folder: Path | None  # None: a fresh one under `runs`
    start: Candidate | None = None  # the starting kernel that the caller gave
    options: RunOptions = field(default_factory=RunOptions)

    def open_engine(
        self,
        on_progress: Callable[[Progress], None] = lambda _: None,
        on_message: Callable[[str], None] = lambda _: None,
    ) -> Engine:
        """The engine that the run's candidates are evaluated with."""
        from warpsmith.engine.engine import open_engine  # reading a run needs none

        name = self.folder.name if self.folder else Path(self.config.task.partition("::")[0]).stem
        config = self.config
        return open_engine(
            config.engine, self.device, config.settings, name=name, on_progress=on_progress, on_message=on_message
        )

    def begin(self, evaluator: Engine) -> Session:
        """Begin it, with what the pool knows about such tasks."""
        return begin(
            self.config,
            self.method,
            evaluator,
            folder=self.folder,
            recall=find_precedents,
            options=self.options,
            check=self.choice.check,
            start=self.start,
        )


def prepare(task: str, options: RunOptions, *, folder: Path | None = None) -> NewRun:
    """Check the options of a new run and decide its device, backend, method and proposer."""
    check_syntax(task)
    method = method_for(options)
    if options.epoch_size is not None:
        if options.trials is not None:
            raise UsageError("--epoch-size sets the number of trials; leave out --trials, or --epoch-size.")
        options = replace(options, trials=trials_of(method, options.epoch_size))
    budget = options.budget()
    options.checked_baselines()
    if folder is not None and (folder / LOG_FILE).exists():
        raise UsageError(f"{folder} holds a run already; continue it with --resume {folder}, or choose another.")
    device, backend = choose(options.device or "auto", options.backend or "", options.engine or "local")
    choice = choose_proposer(options.proposer or "auto", options.models, roles=method.roles)
    check_countable(budget, choice)
    config = resolve(task, options, proposer=choice.spec, device=device, backend=backend)
    return NewRun(config, method, choice, device, folder, read_start(options.start, backend), options)


def resolve(task: str, options: RunOptions, *, proposer: str, device: Device, backend: str) -> RunConfig:
    """The configuration of a new run from what a caller asked for: every default is decided here."""
    timing_s = options.timing_budget_s
    usual = Settings()
    settings = replace(
        usual,
        baselines=options.checked_baselines(),
        timing_budget_s=usual.timing_budget_s if timing_s is None else timing_s,
    )
    return RunConfig(
        task=task,
        device=options.device or "auto",
        backend=backend,
        proposer=proposer,
        budget=options.budget(),
        settings=settings,
        seed=options.seed or 0,
        precision=options.precision.value if options.precision else "",
        repairs=options.repairs,
        enough_share=share_to_stop_at(options.stop_at),
        parallel=options.parallel or default_parallel(device.kind),
        start=options.start.main.name if isinstance(options.start, Candidate) else options.start or "",
        accept_uncalibrated=options.accept_uncalibrated,
        engine=options.engine or "local",
    )


def method_for(options: RunOptions) -> Method:
    """The method that the options name, without the parts that they leave out, with the population they want."""
    found = ablated(
        load(options.method or DEFAULT),
        roofline=options.roofline is not False,
        retrieval=options.retrieval is not False,
        alignment=options.alignment is not False,
        failures=options.failures is not False,
    )
    return with_population(found, options.population)


def share_to_stop_at(given: float | None) -> float | None:
    """The share of the roofline at which a run stops: the default where none is given, None (never) for 0."""
    return ENOUGH if given is None else given or None


def default_parallel(kind: str) -> int:
    """How many proposals are in flight where nobody says: a GPU judges faster than the CPU."""
    return 4 if kind == "cuda" else 2


def fresh_folder(parent: Path, task: str, clock: time.struct_time | None = None) -> Path:
    """A folder that is not there yet, named after the task and the time."""
    stamp = time.strftime("%Y%m%d-%H%M%S", clock or time.localtime())
    for number in range(1, 1000):
        folder = parent / (f"{task}-{stamp}" if number == 1 else f"{task}-{stamp}-{number}")
        if not folder.exists():
            return folder
    raise RunError(f"{parent} is full of runs of this very second; try again.")


def find(name: str) -> Path:
    """The folder of a run, given as a path, or by its name under `runs`, or as "last"."""
    if name == "last":
        runs = run_folders(Path(RUNS))
        if not runs:
            raise RunError(f"there is no run under {RUNS} yet; start one with `warpsmith optimize TASK`.")
        return runs[-1]
    path = Path(name)
    return path if path.exists() or not (Path(RUNS) / name).exists() else Path(RUNS) / name


def run_folders(parent: Path) -> list[Path]:
    """The folders of runs in a folder, the latest last."""
    times = {}
    for log in parent.glob(f"*/{LOG_FILE}"):
        with suppress(OSError):  # a link to nothing, or removed meanwhile
            times[log.parent] = log.stat().st_mtime
    return sorted(times, key=lambda folder: times[folder])


def evaluator_for(
    folder: Path,
    setup: RunCreated,
    device: str | None = None,
    on_progress: Callable[[Progress], None] = lambda _: None,
    on_message: Callable[[str], None] = lambda _: None,
    engine: str | None = None,
) -> Engine:
    """An engine for a run, wherever the run was begun: the one given, else the run's own."""
    config, kind = setup.config, (device or "").partition(":")[0]
    if kind in _NATIVE and kind not in backend_named(config.backend).devices:
        raise UsageError(
            f"this run's kernels are {config.backend} kernels, which do not run on {kind}; leave out --device."
        )
    from warpsmith.engine.engine import open_engine  # reading a run needs none

    spec = engine or config.engine
    chosen, _ = choose(device or config.device, config.backend, spec)
    check_same_kind(folder, setup, chosen, spec)
    settings = settings_of(folder, setup)
    return open_engine(spec, chosen, settings, name=folder.name, on_progress=on_progress, on_message=on_message)


def check_same_kind(folder: Path, setup: RunCreated, device: Device, engine: str) -> None:
    """Raise if a cluster would go on with a run on another kind of device: figures of one run come from one kind."""
    begun = setup.problem.device.rpartition(" (")[0] or setup.problem.device
    if engine.startswith("ray") and begun != device.name:
        raise UsageError(
            f"{folder} was begun on {begun}, and the cluster's choice is {device.name}; choose the kind with --engine "
            "'ray?kind=NAME', or start a new run."
        )


@dataclass(frozen=True)
class TaskEvaluator:
    """Judges candidates of one run's task: what `search.loop` calls."""

    evaluator: Engine
    task: str
    precision: Precision | None

    def __call__(self, candidates: Sequence[Candidate], *, fresh: bool) -> Iterator[tuple[int, Evaluation]]:
        """See `evaluation_thread.Evaluate`."""
        return self.evaluator.evaluate(self.task, candidates, self.precision, fresh=fresh)

    def prepare(self, candidates: Sequence[Candidate]) -> None:
        """Begin to build candidates that will be judged soon."""
        self.evaluator.prepare(self.task, candidates, self.precision)


def task_evaluator(session: Session, evaluator: Engine) -> TaskEvaluator:
    """The evaluator bound to the task and precision of a run."""
    setup = session.state.setup
    return TaskEvaluator(evaluator, task_to_execute(session.folder, setup), precision_of(setup.config))


def config_of(folder: Path) -> RunCreated:
    """How a run was set up, without opening it for work."""
    with RunLog.read(folder) as log:
        return log.setup()


def _modules(path: Path) -> dict[str, str]:
    """The modules that a task file imports from its folder; a run's folder has them, too."""
    found = local_modules(path)
    for name in found:
        if name.partition("/")[0].removesuffix(".py") in (Path(TASK_FILE).stem, BUNDLE):
            raise TaskError(f"{path.name} imports {name} from its folder, a name that a run's folder uses; rename it.")
    return found


def _source(task: str) -> bytes:
    path = Path(task.partition("::")[0])
    try:
        return path.read_bytes()
    except OSError as refused:
        raise TaskError(f"{path} cannot be read ({refused.strerror}).") from None
