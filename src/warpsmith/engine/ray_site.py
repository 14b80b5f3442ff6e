"""The engine `ray`: evaluations on the devices of a Ray cluster.

`ray` is the cluster of this machine (or of RAY_ADDRESS; one is started where there is none), `ray://HOST:PORT` another
one. Options stand behind a question mark: `ray?kind=H200&cores=8&sandbox=any`.

One run uses one kind of device: `kind` is a part of the device's name, otherwise the most numerous kind is taken.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import queue
import socket
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs

from warpsmith._version import __version__
from warpsmith.backends.source import backend_named, devices_of
from warpsmith.engine.ray_node import JudgeKey, NodeReport, TaskSource, node_report, source_digest
from warpsmith.engine.ray_pool import DEPTH, ActorCall, BuildOrder, NodePlan, RayPool
from warpsmith.evaluator.supervisor.evaluator import Progress
from warpsmith.hardware.device import Device
from warpsmith.model.brief import Problem
from warpsmith.model.build import Availability, DeviceKind, Target
from warpsmith.model.candidate import Candidate
from warpsmith.model.certificate import Calibration, CheckOutcome
from warpsmith.model.errors import ToolMissing, UsageError
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.settings import Paths, Settings
from warpsmith.model.task import Precision, Task
from warpsmith.model.text import one_line
from warpsmith.profiling.profiler import Profile

_BUILT_ELSEWHERE = ("cpu", "cuda")  # backends whose builds need no device
_PROBE_S = 120.0
_REACH_S = 10.0
_sites: dict[str, RaySite] = {}
_connecting = threading.Lock()
_numbers = itertools.count(1)


@dataclass(frozen=True)
class RaySpec:
    """What stands behind `--engine`."""

    address: str = ""  # "" for the cluster of this machine
    kind: str = ""  # a part of the device's name
    cores: int = 0  # of an evaluator on a CPU; 0 for all of the node
    any_sandbox: bool = False  # nodes that lack layers of the sandbox are used, too

    @staticmethod
    def parse(spec: str) -> RaySpec:
        """The parts of `ray://HOST:PORT?kind=…&cores=…&sandbox=any`."""
        address, _, options = spec.partition("?")
        given = {name: values[-1] for name, values in parse_qs(options, keep_blank_values=True).items()}
        kind, cores, sandbox = (given.pop(name, "") for name in ("kind", "cores", "sandbox"))
        if given or (cores and not cores.isdigit()) or sandbox not in ("", "any"):
            raise UsageError(f"--engine {spec!r}: behind the ? stand kind=NAME, cores=N and sandbox=any, joined by &.")
        return RaySpec("" if address == "ray" else address, kind, int(cores or 0), sandbox == "any")


@dataclass(frozen=True)
class Node:
    """A node of the cluster, and why it takes no part ("" if it does)."""

    id: str
    host: str
    cpus: float
    gpus: int
    report: NodeReport | None
    refused: str = ""


def site(spec: str) -> RaySite:
    """The site of a cluster; connects once."""
    with _connecting:
        if spec not in _sites:
            _sites[spec] = RaySite(RaySpec.parse(spec))
        return _sites[spec]


def forget_sites() -> None:
    """Close all pools and forget the clusters: another one can be connected to afterwards."""
    for each in list(_sites.values()):
        each.close()
    _sites.clear()


def import_ray() -> Any:
    """Ray, or a sentence that says how to install it."""
    try:
        import ray
        import ray.exceptions
        import ray.util.scheduling_strategies
    except ImportError:
        raise ToolMissing("the engine ray needs Ray; install it with `pip install 'warpsmith[ray]'`.") from None
    return ray


def connect(spec: RaySpec) -> Any:
    """Ray, connected to the cluster."""
    ray = import_ray()
    if ray.is_initialized():
        return ray
    options = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": "warpsmith"}
    address = spec.address or os.environ.get("RAY_ADDRESS", "")
    try:
        host, _, port = address.removeprefix("ray://").rpartition(":")
        if port.isdecimal():  # Ray by itself tries for minutes
            socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_S).close()
        if spec.address:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # what they say is in the exception, too
                ray.init(address=spec.address, **options)
            return ray
        try:
            ray.init(address="auto", **options)
        except ConnectionError:
            ray.init(**options)
    except ImportError:  # of grpc
        raise ToolMissing(
            "ray://HOST:PORT needs Ray's client; install it with `pip install 'warpsmith[ray]'`."
        ) from None
    except (ray.exceptions.RayError, OSError, RuntimeError, ValueError) as refused:
        raise UsageError(_why_no_cluster(address, refused)) from None
    return ray


def _why_no_cluster(address: str, refused: Exception) -> str:
    """Why there is no connection to a cluster, and what to do."""
    said = one_line(str(refused))[:300].rstrip(".") or type(refused).__name__
    if "ersion mismatch" in said:
        return f"{said}; install the same versions of Ray and Python here and on every node of the cluster."
    if not address:
        return f"no Ray cluster can be started ({said}); start one with `ray start --head` and look at what Ray says."
    advice = "check the address, start a cluster there with `ray start --head`"
    if os.environ.get("RAY_AUTH_MODE") != "token":
        advice += ", and set RAY_AUTH_MODE=token where the cluster asks for a token (Ray 2.59 and later does)"
    return f"no Ray cluster answers at {address} ({said}); {advice}."


class RaySite:
    """A Ray cluster: its nodes, and the pools of evaluators on them."""

    def __init__(self, spec: RaySpec) -> None:
        self._spec = spec
        self._ray = connect(spec)
        self._reports: dict[str, NodeReport | str] = {}  # by node; a text says why there is none
        self._pools: dict[str, tuple[RayPool, set[object]]] = {}
        self._guard = threading.Lock()
        self._chosen: dict[str, Device] = {}
        atexit.register(self.close)

    # --- nodes ---

    def nodes(self) -> tuple[Node, ...]:
        """The nodes that are alive, with reports; those that are new are asked now."""
        alive = [each for each in self._ray.nodes() if each["Alive"]]
        self._ask_nodes([each["NodeID"] for each in alive if each["NodeID"] not in self._reports])
        found = []
        for each in alive:
            known = self._reports[each["NodeID"]]
            resources = each["Resources"]
            report = known if isinstance(known, NodeReport) else None
            refused = known if isinstance(known, str) else self._why_refused(known)
            cpus, gpus = resources.get("CPU", 0.0), int(resources.get("GPU", 0))
            found.append(Node(each["NodeID"], each["NodeManagerHostname"], cpus, gpus, report, refused))
        return tuple(sorted(found, key=lambda node: (node.host, node.id)))

    def _ask_nodes(self, names: Sequence[str]) -> None:
        def ask() -> NodeReport | str:  # nested: sent by value, so that it runs on nodes without this package
            try:
                from warpsmith.engine.ray_node import node_report as there
            except ImportError:
                return "it has no Warpsmith, or another version of it"
            return there()

        ray = self._ray
        affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        task = ray.remote(num_cpus=0, max_retries=1, name="warpsmith node report")(ask)
        asked = {name: task.options(scheduling_strategy=affinity(name, soft=False)).remote() for name in names}
        for name, reference in asked.items():
            try:
                self._reports[name] = ray.get(reference, timeout=_PROBE_S)
            except ray.exceptions.RayError as lost:
                first = (str(lost).strip().splitlines() or ["no answer"])[0]
                self._reports[name] = f"it did not answer ({first[:120]})"

    def _why_refused(self, report: NodeReport) -> str:
        if report.lacking and not self._spec.any_sandbox:
            return f"its sandbox lacks {', '.join(report.lacking)}; --engine 'ray?sandbox=any' uses it all the same"
        return ""

    def check_versions(self, nodes: Sequence[Node]) -> None:
        """Raise if a node has another version than this machine."""
        for node in nodes:
            if node.report is None:
                continue
            there, here = node.report.version, __version__
            if there == here and node.report.source != source_digest():
                there, here = f"{there} with other files", f"{here} with its own"
            if there != here:
                raise UsageError(
                    f"the node {node.host} has Warpsmith {there}, this machine has {here}; install the same version "
                    "on every node."
                )

    def _usable(self) -> list[Node]:
        nodes = self.nodes()
        self.check_versions(nodes)
        usable = [node for node in nodes if node.report is not None and not node.refused]
        if not usable:
            why = "; ".join(f"{node.host}: {node.refused}" for node in nodes[:3])
            raise UsageError(f"no node of the cluster can be used ({why}); see `warpsmith doctor --engine ray`.")
        return usable

    # --- the site of an engine ---

    @property
    def slots(self) -> int:
        """One cell of a bench for each evaluator of the devices that were chosen last."""
        device = next(reversed(self._chosen.values()), None)
        if device is None:
            return 1
        return max(1, sum(plan.actors for plan in self._plans(device).values()))

    @property
    def has_gpu(self) -> bool:
        return any(node.gpus and node.report is not None and node.report.gpus for node in self._usable())

    def available(self, backend: str) -> Availability:
        """What the nodes say; the best of them counts."""
        found = [dict(node.report.backends)[backend] for node in self._usable() if node.report is not None]
        return next((each for each in found if each.build), found[0])

    def select(self, spec: str) -> Device:
        """A device of the kind that the run uses: the one asked for, or the most numerous."""
        kind = spec.partition(":")[0]
        if kind == "auto":
            kind = "cuda" if self.has_gpu else "cpu"
        if kind not in ("cpu", "cuda") or ":" in spec:
            raise UsageError(f"--device {spec} does not go with a cluster; use auto, cpu or cuda.")
        counts: Counter[str] = Counter()
        example: dict[str, Device] = {}
        for node in self._usable():
            assert node.report is not None, "only nodes with a report are usable"
            for device in node.report.devices(kind)[: node.gpus if kind == "cuda" else 1]:
                if self._spec.kind.lower() in device.name.lower():
                    counts[_model(device)] += 1
                    example.setdefault(_model(device), device)
        if not counts:
            named = f" with {self._spec.kind!r} in its name" if self._spec.kind else ""
            raise ToolMissing(f"no node has a {kind} device{named}; see `warpsmith doctor --engine ray`.")
        model, _ = max(counts.items(), key=lambda item: (item[1], item[0]))
        self._chosen[kind] = example[model]
        return example[model]

    def mixture(self, device: Device) -> str:
        """What of the cluster is left aside, in a sentence; "" if nothing is."""
        others = Counter(
            each.name
            for node in self._usable()
            if node.report is not None
            for each in node.report.devices(device.kind)
            if _model(each) != _model(device)
        )
        if not others:
            return ""
        listed = ", ".join(f"{count} x {name}" for name, count in others.items())
        return f"one run uses one kind of device: {device.name}; left aside: {listed} (choose with ray?kind=NAME)."

    def open(
        self,
        device: Device,
        settings: Settings,
        *,
        paths: Paths | None = None,
        name: str = "",
        on_progress: Callable[[Progress], None] = lambda _: None,
        on_message: Callable[[str], None] = lambda _: None,
    ) -> RayEngine:
        """An engine on the devices of the kind; engines of one process share the evaluators."""
        owner = object()
        model = _model(device)
        with self._guard:
            if model not in self._pools:
                pool = RayPool(
                    self._ray,
                    device.kind.value,
                    partial(self._plans, device),
                    cores=self._spec.cores,
                    name=f"warpsmith {name}".strip(),
                )
                self._pools[model] = (pool, set())
                if said := self.mixture(device):
                    on_message(said)
            pool, owners = self._pools[model]
            owners.add(owner)
        pool.listeners.append(on_message)
        return RayEngine(
            self._ray,
            pool,
            device,
            settings,
            name=name,
            on_progress=on_progress,
            on_message=on_message,
            on_close=partial(self._closed, model, owner, on_message),
        )

    def _closed(self, model: str, owner: object, listener: Callable[[str], None]) -> None:
        with self._guard:
            pool, owners = self._pools[model]
            owners.discard(owner)
            if listener in pool.listeners:
                pool.listeners.remove(listener)
            if owners:
                return
            del self._pools[model]
        pool.close()

    def close(self) -> None:
        """End all evaluators."""
        with self._guard:
            pools = [pool for pool, _ in self._pools.values()]
            self._pools.clear()
        for pool in pools:
            pool.close()
        atexit.unregister(self.close)

    def _plans(self, device: Device) -> Mapping[str, NodePlan]:
        """What each node does for a run on devices of this kind."""
        usable, kind = self._usable(), device.kind
        plans: dict[str, NodePlan] = {}
        judging = [node for node in usable if node.report and self._count(node, device)]
        wanted = judging[0].report.compilers if judging and judging[0].report else ()
        for node in usable:
            assert node.report is not None, "only nodes with a report are usable"
            actors = self._count(node, device)
            each = 1.0 if kind is DeviceKind.CUDA else float(self._spec.cores or node.cpus)
            each = min(each, node.cpus / actors) if actors else each
            compiler = node.report.compilers[kind is DeviceKind.CUDA]
            same = bool(wanted) and bool(compiler) and compiler == wanted[kind is DeviceKind.CUDA]
            same = same and (kind is DeviceKind.CUDA or _processor(node.report.cpu) == _processor(device))
            builds = same and node.cpus - actors * each >= 1.0
            if actors or builds:
                plans[node.id] = NodePlan(node.id, node.report, node.cpus - actors * each, actors, each, builds)
        return plans

    def _count(self, node: Node, device: Device) -> int:
        """The evaluators that a node gets."""
        assert node.report is not None, "only nodes with a report are usable"
        if device.kind is DeviceKind.CUDA:
            return min(node.gpus, sum(_model(each) == _model(device) for each in node.report.gpus))
        if _model(node.report.cpu) != _model(device) or node.cpus < 1:
            return 0
        for_builds = max(1.0, node.cpus // 4)
        return max(1, int((node.cpus - for_builds) // self._spec.cores)) if self._spec.cores else 1


def _model(device: Device) -> str:
    """Identifies devices with comparable measurements."""
    return f"cuda {device.name} {device.arch}" if device.kind is DeviceKind.CUDA else device.hardware


def _processor(device: Device) -> str:
    """The processor without the number of its cores: code for one runs on the other."""
    return "|".join(part for part in device.hardware.split("|") if not part.endswith(" cores"))


@dataclass(frozen=True)
class _Sent:
    """A task as it was sent."""

    reference: Any
    digest: str


@dataclass(frozen=True)
class _Known:
    """What this engine remembers of tasks."""

    sent: dict[str, _Sent] = field(default_factory=dict)
    described: dict[tuple[str, Precision | None], Task] = field(default_factory=dict)


class RayEngine:
    """Evaluates on the evaluators of a pool. `evaluate` may be called from several threads."""

    def __init__(
        self,
        ray: Any,
        pool: RayPool,
        device: Device,
        settings: Settings,
        *,
        name: str,
        on_progress: Callable[[Progress], None],
        on_message: Callable[[str], None],
        on_close: Callable[[], None],
    ) -> None:
        self.device = device
        self.settings = settings
        self._ray = ray
        self._pool = pool
        self._name = name
        self._on_progress = on_progress
        self._on_message = on_message
        self._on_close = on_close
        self._known = _Known()
        self._renewed = ""
        self._closed = False

    @property
    def width(self) -> int:
        """Candidates that the cluster can have in flight."""
        return DEPTH * self._pool.size

    def __enter__(self) -> RayEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the evaluators back; the last engine ends them."""
        if not self._closed:
            self._closed = True
            self._pool.use(self, None)
            self._on_close()

    def describe(self, task: str | Path, precision: Precision | None = None) -> Task:
        """The task as a judge has read it."""
        sent = self._send(task)
        known = self._known.described.get((sent.digest, precision))
        if known is None:
            known = cast(Task, self._ask(task, precision, "describe").result())
            self._known.described[sent.digest, precision] = known
        return known

    def survey(self, task: str | Path, backend: str, precision: Precision | None = None) -> Problem:
        """Everything a proposer has to know."""
        return cast(Problem, self._ask(task, precision, "survey", backend).result())

    def calibrate(
        self, task: str | Path, precision: Precision | None = None, *, fresh: bool = False
    ) -> tuple[Task, Calibration]:
        """Check whether a task can tell right results from wrong ones."""
        return cast("tuple[Task, Calibration]", self._ask(task, precision, "calibrate", fresh=fresh).result())

    def examine(self, task: str | Path, candidate: Candidate, precision: Precision | None = None) -> list[CheckOutcome]:
        """The checks of a verification that take no times."""
        work = self._work(task, precision, "examine", f"verify {candidate.id}", (candidate,))
        return cast("list[CheckOutcome]", self._pool.submit(work).result())

    def profile(
        self,
        task: str | Path,
        candidate: Candidate,
        problem: Problem,
        evaluation: Evaluation,
        precision: Precision | None = None,
    ) -> Profile:
        """Why a valid candidate is not faster."""
        work = self._work(task, precision, "profile", f"profile {candidate.id}", (candidate, problem, evaluation))
        return cast(Profile, self._pool.submit(work).result())

    def evaluate_one(
        self, task: str | Path, candidate: Candidate, precision: Precision | None = None, *, fresh: bool = False
    ) -> Evaluation:
        """Evaluate one candidate."""
        (_, evaluation), *_ = self.evaluate(task, [candidate], precision, fresh=fresh)
        return evaluation

    def evaluate(
        self,
        task: str | Path,
        candidates: Sequence[Candidate],
        precision: Precision | None = None,
        *,
        fresh: bool = False,
    ) -> Iterator[tuple[int, Evaluation]]:
        """Evaluate many candidates; yields each position once with its evaluation, in the order of completion."""
        described = self.describe(task, precision)
        for candidate in candidates:
            self._check_device(candidate)
        arrived: queue.SimpleQueue[int] = queue.SimpleQueue()
        futures: list[Future[Any]] = []
        try:
            for index, candidate in enumerate(candidates):
                self._on_progress(Progress(index, "build"))
                work = self._work(task, precision, "evaluate", self._label(candidate), (candidate, fresh))
                work.build = self._order(described, candidate)
                work.is_evaluation = True
                futures.append(self._pool.submit(work))
                futures[-1].add_done_callback(lambda _, index=index: arrived.put(index))  # type: ignore[misc]
            for _ in candidates:
                index = arrived.get()
                evaluation: Evaluation = futures[index].result()
                self._on_progress(Progress(index, "built"))
                self._on_progress(Progress(index, "judged"))
                yield index, evaluation
        finally:
            for future in futures:
                future.cancel()

    def prepare(self, task: str | Path, candidates: Sequence[Candidate], precision: Precision | None = None) -> None:
        """Start to build candidates that will be evaluated soon."""
        known = self._known.sent.get(str(task))
        described = self._known.described.get((known.digest, precision)) if known else None
        if described is None:
            return
        for candidate in candidates:
            order = self._order(described, candidate) if self.device.kind in devices_of(candidate) else None
            if order is not None:
                self._pool.prepare(order, self._label(candidate))

    def renew(self, settings: Settings | None = None) -> None:
        """Use a new judge for the next evaluation, with other settings if they are given."""
        if settings is None:
            self._renewed = f"{id(self)}-{next(_numbers)}"
        else:
            self.settings = settings

    # --- inside ---

    def _label(self, candidate: Candidate) -> str:
        return f"{self._name or 'warpsmith'}: {candidate.main.name} {candidate.id}"

    def _check_device(self, candidate: Candidate) -> None:
        devices = devices_of(candidate)
        if self.device.kind not in devices:
            raise UsageError(
                f"{candidate.main.name} ({candidate.backend}) runs on {devices[0]}, not on {self.device.label}; "
                f"choose --device {devices[0]} or another file."
            )

    def _order(self, task: Task, candidate: Candidate) -> BuildOrder | None:
        if candidate.backend not in _BUILT_ELSEWHERE:
            return None
        contract = backend_named(candidate.backend).contract(task, candidate.entry)
        return BuildOrder(candidate, contract, Target(self.device.kind, self.device.arch), self.settings.limits)

    def _send(self, task: str | Path) -> _Sent:
        known = self._known.sent.get(str(task))
        if known is None:
            source = TaskSource.read(task)
            known = _Sent(self._ray.put(source), source.digest + source.wanted)
            self._known.sent[str(task)] = known
        return known

    def _work(
        self, task: str | Path, precision: Precision | None, method: str, name: str, arguments: tuple[Any, ...] = ()
    ) -> ActorCall:
        sent = self._send(task)
        key = JudgeKey(sent.digest, precision, self.settings, self._renewed)
        self._pool.use(self, key)
        return ActorCall(key, sent.reference, name, method, arguments, on_message=self._on_message)

    def _ask(
        self, task: str | Path, precision: Precision | None, method: str, *arguments: Any, **options: Any
    ) -> Future[Any]:
        file = Path(str(task).partition("::")[0]).stem
        label = f"{self._name or 'warpsmith'}: {method} {file}"
        work = self._work(task, precision, "ask", label, (method, *arguments))
        work.options = options
        return self._pool.submit(work)


__all__ = ["RayEngine", "RaySite", "RaySpec", "connect", "forget_sites", "node_report", "site"]
