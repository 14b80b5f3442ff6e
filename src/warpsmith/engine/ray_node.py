"""What runs on the nodes of a Ray cluster: a report on the node, builds, and the actor that owns an evaluator.

Nothing here imports Ray: the driver (`ray_pool`) makes tasks and an actor of these functions and of `EvaluatorActor`.
"""

from __future__ import annotations

import hashlib
import os
import platform
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from warpsmith._version import __version__
from warpsmith.backends.build_cache import BuildCache
from warpsmith.backends.cutlass import find_cutlass
from warpsmith.backends.source import backend_named
from warpsmith.backends.toolchain import find_cxx, find_nvcc
from warpsmith.evaluator.sandbox.policy import ESSENTIAL_LAYERS, probe
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.hardware.device import Device, cpu_info, select_device, visible_gpus
from warpsmith.model.brief import Problem
from warpsmith.model.build import Availability, Target
from warpsmith.model.candidate import Candidate
from warpsmith.model.certificate import CheckOutcome
from warpsmith.model.contract import Contract
from warpsmith.model.errors import HarnessFault, TaskError, WarpsmithError
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.settings import Limits, Paths, Settings
from warpsmith.model.task import Precision
from warpsmith.profiling.profiler import Profile, Profiler
from warpsmith.system.files import put_in_place
from warpsmith.system.locks import open_lock_file, try_lock
from warpsmith.tasks.local_imports import local_modules
from warpsmith.verification.verify import Verifier

_FOLDER = "ray"  # in the cache folder of a node
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_OMP = "OMP_NUM_THREADS"
_PREPARED = ("cpu", "cuda")
BACKENDS = ("cpu", "cuda", "triton", "torch_module")
"""What a node is asked about."""

Built = Mapping[str, Mapping[str, bytes]]
"""Finished builds by key, as files by name: see `BuildCache.entries`."""


# --- the report on a node ---


@dataclass(frozen=True)
class NodeReport:
    """What one node has."""

    host: str
    version: str  # of Warpsmith
    source: str  # digest of the package's files
    python: str
    torch: str  # "" if it is missing
    cpu: Device
    gpus: tuple[Device, ...]
    compilers: tuple[str, ...]  # digests of the versions of the C++ compiler, and of nvcc with CUTLASS; "" for none
    backends: tuple[tuple[str, Availability], ...]
    layers: tuple[str, ...]  # of the sandbox, that can be used
    lacking: tuple[str, ...]  # essential layers that cannot

    def devices(self, kind: str) -> tuple[Device, ...]:
        """The devices of a kind; a node is one CPU device."""
        return self.gpus if kind == "cuda" else (self.cpu,)


@cache
def source_digest() -> str:
    """Identifies the files of this package: nodes with the same version may have different ones."""
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def node_report() -> NodeReport:
    """The report on this node."""
    with _all_gpus():
        gpus = tuple(select_device(f"cuda:{gpu.index}") for gpu in visible_gpus())
        backends = tuple((name, backend_named(name).available()) for name in BACKENDS)
    try:
        layers = probe()
    except HarnessFault:
        layers = ()
    known = {layer.name for layer in layers if layer.available}
    lacking = tuple(name for name in ESSENTIAL_LAYERS if not any(each.startswith(name) for each in known))
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = ""
    found = (find_cxx(os.environ), find_nvcc(os.environ))
    cutlass = find_cutlass(os.environ)
    versions = (found[0] and found[0].identity, found[1] and found[1].identity + (cutlass.name if cutlass else ""))
    with _threads(""):
        cpu = select_device("cpu")
    return NodeReport(
        host=socket.gethostname(),
        version=__version__,
        source=source_digest(),
        python=platform.python_version(),
        torch=torch,
        cpu=cpu,
        gpus=gpus,
        compilers=tuple(hashlib.sha256(each.encode()).hexdigest()[:12] if each else "" for each in versions),
        backends=backends,
        layers=tuple(sorted(known)),
        lacking=lacking,
    )


@contextmanager
def _all_gpus() -> Iterator[None]:
    """Show the GPUs that Ray hides from a task which asks for none."""
    before = os.environ.pop(_VISIBLE, None)
    visible_gpus.cache_clear()
    try:
        yield
    finally:
        if before is not None:
            os.environ[_VISIBLE] = before
        visible_gpus.cache_clear()


@contextmanager
def _threads(said: str) -> Iterator[None]:
    """Another number of OpenMP threads for a while: Ray sets the variable to the CPUs that a task asks for."""
    before = os.environ.get(_OMP)
    set_threads(said)
    try:
        yield
    finally:
        set_threads(before or "")


def set_threads(said: str) -> None:
    """The number of OpenMP threads for this process and those that it starts; "" for no limit."""
    os.environ.pop(_OMP, None)
    if said:
        os.environ[_OMP] = said


# --- what goes to a node ---


@dataclass(frozen=True)
class TaskSource:
    """A task file with the modules that it imports from its folder, by content."""

    name: str  # of the file
    wanted: str  # what stands behind the file's name: "::softmax@small"
    files: tuple[tuple[str, bytes], ...]  # by path below the folder, the task file first

    @staticmethod
    def read(task: str | Path) -> TaskSource:
        """The content of a task file."""
        file, mark, wanted = str(task).partition("::")
        path = Path(file)
        try:
            text = path.read_bytes()
        except OSError as refused:
            raise TaskError(f"{path} cannot be read ({refused.strerror}).") from None
        modules = [(name, body.encode("utf-8", "surrogateescape")) for name, body in local_modules(path).items()]
        return TaskSource(path.name, mark + wanted, ((path.name, text), *modules))

    @property
    def digest(self) -> str:
        """Identifies the content."""
        found = hashlib.sha256()
        for name, content in self.files:
            found.update(f"{name}\0{len(content)}\0".encode() + content)
        return found.hexdigest()[:24]

    def write(self, cache: Path) -> str:
        """Write the files below a cache folder, unless they are there; returns the task as an evaluator takes it."""
        folder = cache / _FOLDER / "tasks" / self.digest
        for name, content in self.files:
            path = folder / name
            if not path.exists() or path.read_bytes() != content:
                path.parent.mkdir(parents=True, exist_ok=True)
                put_in_place(path, content, mode=0o644)
        return f"{folder / self.name}{self.wanted}"


@dataclass(frozen=True)
class JudgeKey:
    """Candidates with the same key are judged by one judge: an actor that has it open takes them first."""

    task: str  # digest of the task's source, and what is wanted of it
    precision: Precision | None
    settings: Settings
    renewed: str = ""  # another text asks for a new judge


@dataclass(frozen=True)
class ActorAnswer:
    """What an actor answers: a value, or the error that a local evaluator would have raised."""

    value: Any = None
    error: WarpsmithError | None = None
    messages: tuple[str, ...] = ()


@dataclass(frozen=True)
class ActorReport:
    """What an actor is, once it runs."""

    device: Device
    place: str  # node and device, as evaluations name them
    cpus: tuple[int, ...]  # that it is confined to; () for all
    pid: int


# --- builds ---


def build_candidate(
    candidate: Candidate, contract: Contract, target: Target, limits: Limits, taken: tuple[int, ...]
) -> tuple[str, Built]:
    """Build a candidate on this node; returns an error of this node ("" for none) and the build.

    `taken` are the CPUs that evaluators of the node are confined to.
    """
    if taken:
        with suppress(OSError):  # evaluators have all of them
            os.sched_setaffinity(0, set(range(os.cpu_count() or 1)) - set(taken))
    with tempfile.TemporaryDirectory(prefix="warpsmith-build-") as folder:
        paths = Paths(Path(folder))
        try:
            backend_named(candidate.backend).configured(paths, limits).build(candidate, contract, target)
        except (WarpsmithError, OSError) as fault:
            return str(fault) or type(fault).__name__, {}
        return "", BuildCache(paths.cache / "builds").entries()


# --- the actor ---


@dataclass
class _Opened:
    """The evaluator of an actor, and what it has open."""

    evaluator: Evaluator
    renewed: str = ""
    messages: list[str] = field(default_factory=list)


class EvaluatorActor:
    """Owns one device of a node and one evaluator. Calls may overlap; one of them uses the evaluator at a time."""

    def __init__(self, kind: str, node: str, cores: int, threads: str) -> None:
        self._lock = threading.Lock()
        self._count = threading.Lock()
        self._waiting = 0  # candidates that wait for the evaluator
        self._paths = Paths.from_environment()
        self._held: list[int] = []  # lock files of the cores
        cpus: tuple[int, ...] = ()
        set_threads(threads)
        if kind == "cpu":
            cpus = self._confine(cores)
        self._device = select_device(kind)
        unique = next((gpu.uuid for gpu in visible_gpus()), "") if kind == "cuda" else f"CPUs {_ranges(cpus)}"
        self._report = ActorReport(self._device, f"{node}, {unique}", cpus, os.getpid())
        self._opened: _Opened | None = None

    def __repr__(self) -> str:  # Ray shows this in its logs
        return f"EvaluatorActor({self._report.place})"

    def ready(self) -> ActorReport:
        """Returns as soon as the actor runs."""
        return self._report

    def evaluate(
        self, key: JudgeKey, task: TaskSource, candidate: Candidate, fresh: bool, built: Built | None, more: int
    ) -> ActorAnswer:
        """Evaluate one candidate; `built` is its build, made elsewhere, and `more` how many of the same task follow
        besides those that are here already."""
        with self._count:
            self._waiting += 1
        waits = True
        try:
            if built:
                self._adopt(built)
            else:
                self._prepare(key, task, candidate)
            with self._lock:
                with self._count:
                    self._waiting -= 1
                waits = False
                more += self._waiting
                return self._answer(key, lambda each: self._evaluated(each, key, task, candidate, fresh, more))
        finally:
            if waits:
                with self._count:
                    self._waiting -= 1

    def ask(self, key: JudgeKey, task: TaskSource, method: str, *arguments: object, **options: object) -> ActorAnswer:
        """Call `describe`, `survey` or `calibrate` of the evaluator."""

        def call(evaluator: Evaluator) -> object:
            return getattr(evaluator, method)(task.write(self._paths.cache), *arguments, key.precision, **options)

        with self._lock:
            return self._answer(key, call)

    def examine(self, key: JudgeKey, task: TaskSource, candidate: Candidate) -> ActorAnswer:
        """The checks of a verification that take no times."""

        def examined(evaluator: Evaluator) -> list[CheckOutcome]:
            verifier = Verifier(evaluator, paths=self._paths)
            return verifier.examine(task.write(self._paths.cache), candidate, key.precision)

        with self._lock:
            return self._answer(key, examined)

    def profile(
        self, key: JudgeKey, task: TaskSource, candidate: Candidate, problem: Problem, evaluation: Evaluation
    ) -> ActorAnswer:
        """Why a valid candidate is not faster."""

        def profiled(evaluator: Evaluator) -> Profile:
            with Profiler(self._device, paths=self._paths, limits=key.settings.limits) as profiler:
                path = task.write(self._paths.cache)
                return profiler.profile(path, candidate, problem, evaluation, key.precision)

        with self._lock:
            return self._answer(key, profiled)

    def close(self) -> None:
        """End the evaluator's processes."""
        with self._lock:
            if self._opened is not None:
                self._opened.evaluator.close()
                self._opened = None

    # --- inside ---

    def _evaluated(
        self, evaluator: Evaluator, key: JudgeKey, task: TaskSource, candidate: Candidate, fresh: bool, more: int
    ) -> Evaluation:
        path = task.write(self._paths.cache)
        found = evaluator.evaluate_one(path, candidate, key.precision, fresh=fresh, more=more)
        return replace(found, environment=replace(found.environment, node=self._report.place))

    def _answer(self, key: JudgeKey, call: Callable[[Evaluator], object]) -> ActorAnswer:
        """Call with the evaluator that a key asks for. The caller holds the lock."""
        opened = self._evaluator_for(key)
        opened.messages.clear()
        try:
            return ActorAnswer(call(opened.evaluator), None, tuple(opened.messages))
        except WarpsmithError as error:
            return ActorAnswer(None, error, tuple(opened.messages))

    def _evaluator_for(self, key: JudgeKey) -> _Opened:
        if self._opened is None:
            messages: list[str] = []
            evaluator = Evaluator(self._device, key.settings, paths=self._paths, on_message=messages.append)
            self._opened = _Opened(evaluator, key.renewed, messages)
        opened = self._opened
        if opened.evaluator.settings != key.settings or opened.renewed != key.renewed:
            opened.evaluator.renew(key.settings)
            opened.renewed = key.renewed
        return opened

    def _prepare(self, key: JudgeKey, task: TaskSource, candidate: Candidate) -> None:
        """Begin to build in this process what was not built elsewhere, while another candidate is judged."""
        opened = self._opened
        if opened is not None and self._waiting > 1 and opened.evaluator.settings == key.settings:
            opened.evaluator.prepare(task.write(self._paths.cache), [candidate], key.precision)

    def _adopt(self, built: Built) -> None:
        cache = BuildCache(self._paths.cache / "builds")
        for build, files in built.items():
            try:
                cache.adopt(build, files)
            except OSError:
                return  # the evaluator builds it, and says what is wrong with the cache

    def _confine(self, cores: int) -> tuple[int, ...]:
        """Take a group of cores that no other evaluator of this machine has; () if the whole node is used.

        Each group has its own cache folder: evaluations exclude each other only if they share one.
        """
        usable = sorted(os.sched_getaffinity(0))
        if not cores or cores >= len(usable):
            return ()
        root = self._paths.cache / _FOLDER
        (root / "cores").mkdir(parents=True, exist_ok=True)
        groups = [tuple(usable[at : at + cores]) for at in range(0, len(usable) - cores + 1, cores)]
        chosen = groups[0]  # where all are taken, evaluators share this one and wait for each other
        for group in groups:
            handle = open_lock_file(root / "cores" / f"{group[0]}-{cores}.lock")
            if try_lock(handle):
                self._held.append(handle)
                os.set_inheritable(handle, False)
                chosen = group
                break
            os.close(handle)
        os.sched_setaffinity(0, chosen)
        cpu_info.cache_clear()
        shared, own = self._paths.cache / "peaks", root / f"cpus-{chosen[0]}-{cores}"
        own.mkdir(parents=True, exist_ok=True)
        shared.mkdir(exist_ok=True)
        if not (own / "peaks").exists():
            (own / "peaks").symlink_to(shared)
        self._paths = Paths(own)
        return chosen


def _ranges(cpus: tuple[int, ...]) -> str:
    found = cpus or tuple(sorted(os.sched_getaffinity(0)))
    return f"{found[0]}-{found[-1]}" if len(found) > 1 else str(found[0])
