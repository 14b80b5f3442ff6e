"""From what a user asks for to a run that can be worked on: new, or taken up again.

Everything that can be wrong with the request is found before anything is spent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from warpsmith._version import __version__
from warpsmith.archive.events import Begun, Budget, RunConfig
from warpsmith.archive.log import FILE, Archive
from warpsmith.backends.source import backend_named
from warpsmith.core.candidate import Candidate
from warpsmith.core.config import Settings
from warpsmith.core.errors import RunError, TaskError, ToolMissing, UsageError
from warpsmith.core.evaluation import Evaluation
from warpsmith.core.method import Method
from warpsmith.core.task import Precision
from warpsmith.evaluate.evaluator import Evaluator, Progress
from warpsmith.hardware.device import Device, gpus, select_device
from warpsmith.run.budgets import check
from warpsmith.run.session import Recall, Session, no_memory

TASK_FILE = "task.py"
RUNS = "runs"
ENOUGH = 0.95
"""Share of the speed of light at which a run stops that is given no other."""
_NATIVE = ("cuda", "cpu")


@dataclass(frozen=True)
class Order:
    """A new run, as asked for."""

    task: str
    method: Method
    proposer: str
    budget: Budget
    folder: Path | None = None  # None: a fresh one under `runs`
    device: str = "auto"
    backend: str = ""  # "": the device's own language
    settings: Settings = field(default_factory=Settings)
    seed: int = 0
    precision: Precision | None = None
    repairs: int | None = None
    enough_share: float | None = ENOUGH
    parallel: int | None = None  # None: what suits the device


def enough(given: float | None) -> float | None:
    """The share at which a run stops, from what its user said: nothing is the usual, and 0 is never."""
    return ENOUGH if given is None else given or None


def choose(device: str, backend: str) -> tuple[Device, str]:
    """Where to run and in which language; raises where that cannot be built or run here."""
    if backend and backend not in ("cuda", "cpu", "triton"):
        backend_named(backend)  # an unknown one is said to be that
        raise UsageError(f"--backend {backend}: kernels are proposed in cuda, cpu or triton.")
    kind = device.partition(":")[0]
    if kind == "auto":
        there = bool(gpus()) and (backend == "triton" or backend_named("cuda").available().build)
        kind = "cpu" if backend == "cpu" or not (there or backend) else "cuda"
    if kind not in _NATIVE:
        raise UsageError(f"unknown device {device!r}; use auto, cpu, cuda or cuda:N.")
    language = backend or kind
    if kind not in backend_named(language).devices:
        raise UsageError(f"--backend {language} does not run on {kind}; leave one of the two options out.")
    if kind == "cuda" and not gpus():
        raise ToolMissing("no NVIDIA GPU is visible here; choose --device cpu, or run on a machine with one.")
    available = backend_named(language).available()
    if not available.build:
        raise ToolMissing(f"{language} kernels cannot be built here: {available.detail}.")
    return select_device(kind if device == "auto" else device), language


def begin(order: Order, evaluator: Evaluator, backend: str, recall: Recall = no_memory) -> Session:
    """A new run: the task is opened and looked at, then the folder is made. `recall`: what other runs know of it."""
    check(order.budget)
    problem = evaluator.survey(order.task, backend, order.precision)
    config = RunConfig(
        task=str(Path(order.task.partition("::")[0]).resolve()) + order.task[len(order.task.partition("::")[0]) :],
        device=order.device,
        backend=backend,
        proposer=order.proposer,
        budget=order.budget,
        settings=order.settings,
        seed=order.seed,
        precision=order.precision.value if order.precision else "",
        repairs=order.repairs,
        enough_share=order.enough_share,
        parallel=order.parallel or (4 if evaluator.device.kind == "cuda" else 2),
    )
    folder = order.folder or fresh_folder(Path(RUNS), problem.task.name)
    session = Session.begin(folder, Begun(config, order.method, problem, __version__), recall)
    (folder / TASK_FILE).write_bytes(_source(order.task))
    return session


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
        runs = sorted(Path(RUNS).glob(f"*/{FILE}"), key=lambda path: path.stat().st_mtime)
        if not runs:
            raise RunError(f"there is no run under {RUNS} yet; start one with `warpsmith optimize TASK`.")
        return runs[-1].parent
    path = Path(name)
    return path if path.exists() or not (Path(RUNS) / name).exists() else Path(RUNS) / name


def task_of(folder: Path, config: RunConfig) -> str:
    """The task file of a run: where it was, if it still says the same, else the copy kept with the run."""
    path, mark, name = config.task.partition("::")
    copy = folder / TASK_FILE
    if not copy.exists():
        if not Path(path).exists():
            raise RunError(f"neither {path} nor {copy} exists; put the task file back to go on with this run.")
        return config.task
    try:
        same = Path(path).read_bytes() == copy.read_bytes()
    except OSError:
        same = False
    return config.task if same else f"{copy}{mark}{name}"


def evaluator_for(
    config: RunConfig,
    device: str | None = None,
    on_progress: Callable[[Progress], None] = lambda _: None,
    on_message: Callable[[str], None] = lambda _: None,
) -> Evaluator:
    """An evaluator for a run on this machine, wherever the run was begun."""
    kind = (device or "").partition(":")[0]
    if kind in _NATIVE and kind not in backend_named(config.backend).devices:
        raise UsageError(
            f"this run's kernels are {config.backend} kernels, which do not run on {kind}; leave out --device."
        )
    chosen, _ = choose(device or config.device, config.backend)
    return Evaluator(chosen, config.settings, on_progress=on_progress, on_message=on_message)


@dataclass(frozen=True)
class Bench:
    """Judges candidates of one run's task: what `run.loop` calls."""

    evaluator: Evaluator
    task: str
    precision: Precision | None

    def __call__(self, candidates: Sequence[Candidate], *, fresh: bool) -> Iterator[tuple[int, Evaluation]]:
        """See `judging.Evaluate`."""
        return self.evaluator.evaluate(self.task, candidates, self.precision, fresh=fresh)

    def prepare(self, candidates: Sequence[Candidate]) -> None:
        """Begin to build what will be judged soon."""
        self.evaluator.prepare(self.task, candidates, self.precision)


def bench_of(session: Session, evaluator: Evaluator) -> Bench:
    """How the candidates of a run are judged."""
    config = session.ledger.begun.config
    precision = Precision(config.precision) if config.precision else None
    return Bench(evaluator, task_of(session.folder, config), precision)


def extended(
    budget: Budget,
    *,
    trials: int | None = None,
    seconds: float | None = None,
    tokens: int | None = None,
    usd: float | None = None,
    device_seconds: float | None = None,
) -> Budget:
    """A budget with what a user gives anew; None leaves a limit as it is."""
    return check(
        replace(
            budget,
            trials=budget.trials if trials is None else trials,
            seconds=budget.seconds if seconds is None else seconds,
            tokens=budget.tokens if tokens is None else tokens,
            usd=budget.usd if usd is None else usd,
            device_seconds=budget.device_seconds if device_seconds is None else device_seconds,
        )
    )


def config_of(folder: Path) -> Begun:
    """How a run was set up, without opening it for work."""
    with Archive.read(folder) as archive:
        return archive.begun()


def _source(task: str) -> bytes:
    path = Path(task.partition("::")[0])
    try:
        return path.read_bytes()
    except OSError as refused:
        raise TaskError(f"{path} cannot be read ({refused.strerror}).") from None
