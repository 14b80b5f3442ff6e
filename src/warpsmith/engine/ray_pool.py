"""The evaluator actors of a Ray cluster, seen from the driver: who gets which candidate, and what happens to losses.

One thread with an event loop owns all of this; engines hand in calls from any thread and wait for futures. What an
actor, a node or a build loses is done again elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from warpsmith.engine.ray_node import (
    ActorAnswer,
    ActorReport,
    EvaluatorActor,
    JudgeKey,
    NodeReport,
    TaskSource,
    build_candidate,
)
from warpsmith.model.build import Target
from warpsmith.model.candidate import Candidate
from warpsmith.model.contract import Contract
from warpsmith.model.errors import HarnessFault, WarpsmithError
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.settings import Limits

DEPTH = 2
"""Candidates in flight per actor: one is judged, the next one is there already."""
_MOST_LOSSES = 5  # of one piece of work
_STRIKES = 3  # losses of a node after which it gets no more actors
_SICK = 3  # candidates in a row that an actor could not judge, after which its node gets no more
_TAKE_OVER_S = 10.0  # an actor idle for so long is given the waiting candidates of another task
_TICK_S = 1.0
_LOOK_S = 5.0  # between two looks at the nodes of the cluster
_PATIENCE_S = 600.0  # without any actor, before work is given up
_REMIND_S = 30.0
_KEPT_BUILDS = 128


@dataclass(frozen=True)
class BuildOrder:
    """What a node needs to build a candidate."""

    candidate: Candidate
    contract: Contract
    target: Target
    limits: Limits

    @property
    def key(self) -> tuple[str, str, str]:
        """Identifies the build."""
        return self.candidate.digest, self.contract.header, self.target.arch


@dataclass(frozen=True)
class NodePlan:
    """A node of the cluster that takes part."""

    node: str  # Ray's id
    report: NodeReport
    cpus: float  # for builds, as Ray counts them
    actors: int  # evaluators to start there
    cpus_each: float  # that an evaluator asks for
    builds: bool  # it may build for the others


@dataclass(eq=False)
class _Actor:
    handle: Any
    node: str
    report: ActorReport | None = None
    key: JudgeKey | None = None
    in_flight: int = 0
    idle_since: float = field(default_factory=time.monotonic)
    failed: int = 0  # candidates in a row that it could not judge
    gone: bool = False

    @property
    def idle(self) -> bool:
        return self.in_flight == 0


@dataclass(eq=False)
class _Waiter:
    avoid: frozenset[str]  # nodes that lost this work before
    future: asyncio.Future[_Actor]


@dataclass(eq=False)
class ActorCall:
    """A call of an actor."""

    key: JudgeKey
    task: Any  # an object reference to the `TaskSource`
    name: str  # in Ray's dashboard and logs
    method: str
    arguments: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    build: BuildOrder | None = None
    is_evaluation: bool = False
    on_message: Callable[[str], None] = lambda _: None
    done: Future[Any] = field(default_factory=Future)


class RayPool:
    """The evaluator actors for one kind of device."""

    def __init__(
        self,
        ray: Any,
        kind: str,
        look: Callable[[], Mapping[str, NodePlan]],  # the nodes of the cluster that take part, now
        *,
        cores: int,
        name: str,
    ) -> None:
        self._ray = ray
        self._kind = kind
        self._look = look
        self._cores = cores
        self._name = name
        self._plans: Mapping[str, NodePlan] = {}
        self._actors: list[_Actor] = []
        self._waiting: dict[JudgeKey, deque[_Waiter]] = {}
        self._unfinished: Counter[JudgeKey] = Counter()  # evaluations, by judge
        self._wanted: dict[object, JudgeKey] = {}  # by engine: the judge that it uses now
        self._strikes: dict[str, int] = {}
        self._builds: OrderedDict[tuple[str, str, str], Any] = OrderedDict()
        self._building: dict[str, int] = {}  # builds under way by node
        self._said: dict[str, float] = {}
        self._without_since = time.monotonic()
        self._count = 0
        self.listeners: list[Callable[[str], None]] = []
        self._absences = (ray.exceptions.RayError, ConnectionError)  # the latter from Ray's client
        self._actor_class = ray.remote(EvaluatorActor)
        self._build_task = ray.remote(num_returns=2, max_retries=3)(build_candidate)
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="ray-pool", daemon=True)
        self._refresh(look())
        self._thread.start()
        self._spawn(self._tick())

    # --- for engines, from any thread ---

    @property
    def size(self) -> int:
        """The number of evaluators, those included that are starting."""
        return max(1, sum(not actor.gone for actor in self._actors))

    @property
    def actors(self) -> tuple[ActorReport, ...]:
        """The evaluators that run."""
        return tuple(actor.report for actor in self._actors if actor.report is not None and not actor.gone)

    def submit(self, work: ActorCall) -> Future[Any]:
        """Have work done; the future gives what the actor's evaluator returned, or raises what it raised."""
        self._spawn(self._carry_out(work))
        return work.done

    def use(self, engine: object, key: JudgeKey | None) -> None:
        """An engine uses this judge now; None when it is closed."""

        def note() -> None:
            self._wanted.pop(engine, None)
            if key is not None:
                self._wanted[engine] = key

        self._call(note)

    def prepare(self, order: BuildOrder, name: str) -> None:
        """Begin a build that will be needed soon."""

        async def begin() -> None:
            await self._built(order, name)

        self._spawn(begin())

    def close(self) -> None:
        """End the actors and give back what they hold."""

        async def end() -> None:
            self._closing = True
            ended = [actor.handle.close.remote() for actor in self._actors if actor.report is not None and actor.idle]
            if ended:
                await asyncio.wait([asyncio.ensure_future(self._ended(each)) for each in ended], timeout=10.0)
            for actor in self._actors:
                actor.gone = True
                self._kill(actor)
            for task in list(self._tasks):
                task.cancel()
            await asyncio.sleep(0)
            self._loop.stop()

        if self._closing:
            return
        self._call(lambda: self._loop.create_task(end()))
        self._thread.join(timeout=15.0)
        if not self._thread.is_alive():
            self._loop.close()

    # --- in the loop's thread ---

    def _call(self, act: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(act)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        def start() -> None:
            task = self._loop.create_task(coroutine)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self._call(start)

    async def _carry_out(self, work: ActorCall) -> None:
        losses, avoid = 0, frozenset[str]()
        self._unfinished[work.key] += work.is_evaluation
        try:
            while not work.done.cancelled():
                built = await self._built(work.build, work.name) if work.build is not None else None
                actor = await self._acquire(work.key, avoid)
                if work.done.cancelled():
                    self._release(actor)
                    return
                arguments = (*work.arguments, built, self._unsent(work.key)) if work.is_evaluation else work.arguments
                call = getattr(actor.handle, work.method).options(name=work.name)
                try:
                    answer: ActorAnswer = await self._reply(
                        call.remote(work.key, work.task, *arguments, **work.options)
                    )
                except self._ray.exceptions.RayError as lost:
                    losses += 1
                    avoid |= {actor.node}
                    self._release(actor)
                    if work.build is None or built is None or isinstance(lost, self._ray.exceptions.RayActorError):
                        self._lose(actor, lost)
                    else:
                        self._builds.pop(work.build.key, None)  # the build may be what was lost
                    if losses >= _MOST_LOSSES:
                        raise HarnessFault(
                            f"{work.name} was lost {losses} times with its node or evaluator ({_line(lost)}); look at "
                            "Ray's logs."
                        ) from None
                    continue
                self._release(actor)
                for message in answer.messages:
                    work.on_message(message)
                if self._judged_elsewhere(work, actor, answer, losses):
                    losses += 1
                    avoid |= {actor.node}
                    continue
                if not work.done.cancelled():
                    if answer.error is not None:
                        work.done.set_exception(answer.error)
                    else:
                        work.done.set_result(answer.value)
                return
        except asyncio.CancelledError:
            work.done.cancel()
            raise
        except ConnectionError as lost:  # of Ray's client
            if not work.done.done():
                work.done.set_exception(
                    HarnessFault(f"the connection to the cluster is lost ({_line(lost)}); start the command again.")
                )
        except BaseException as error:  # noqa: BLE001  (the engine's thread raises it)
            if not work.done.done():
                work.done.set_exception(error)
        finally:
            self._unfinished[work.key] -= work.is_evaluation

    def _unsent(self, key: JudgeKey) -> int:
        """How many evaluations of a judge no actor has got yet. If there are some, an actor starts the process for the
        next candidate while it judges one."""
        return max(0, self._unfinished[key] - sum(actor.in_flight for actor in self._actors if actor.key == key))

    def _judged_elsewhere(self, work: ActorCall, actor: _Actor, answer: ActorAnswer, losses: int) -> bool:
        """True if an evaluation failed through no fault of the candidate and another node can try it."""
        failed = isinstance(answer.value, Evaluation) and answer.value.status is Status.NOT_JUDGED
        failed = failed or isinstance(answer.error, HarnessFault)
        if not failed:
            actor.failed = 0
            return False
        actor.failed += 1
        if actor.failed >= _SICK and len({each.node for each in self._actors if not each.gone}) > 1:
            self._strikes[actor.node] = _STRIKES
            self._lose(actor, f"could not judge {actor.failed} candidates in a row")
        others = any(each.node != actor.node and not each.gone for each in self._actors)
        return work.is_evaluation and others and losses + 1 < _STRIKES

    # --- who gets which candidate ---

    async def _acquire(self, key: JudgeKey, avoid: frozenset[str]) -> _Actor:
        waiter = _Waiter(avoid, self._loop.create_future())
        self._waiting.setdefault(key, deque()).append(waiter)
        self._schedule(key)
        return await waiter.future

    def _release(self, actor: _Actor) -> None:
        actor.in_flight -= 1
        if actor.idle:
            actor.idle_since = time.monotonic()
        if actor.key is not None:
            self._schedule(actor.key)
        if actor.idle:
            for key in list(self._waiting):
                self._schedule(key)

    def _schedule(self, key: JudgeKey) -> None:
        """Hand waiting work of one judge to actors."""
        queue = self._waiting.get(key)
        while queue:
            waiter = queue[0]
            if waiter.future.cancelled():
                queue.popleft()
                continue
            actor = self._actor_for(key, waiter.avoid)
            if actor is None:
                return
            queue.popleft()
            actor.key = key
            actor.in_flight += 1
            waiter.future.set_result(actor)
        self._waiting.pop(key, None)

    def _actor_for(self, key: JudgeKey, avoid: frozenset[str]) -> _Actor | None:
        """An actor for work of a judge: one that has the judge open, else one that nobody needs.

        An actor that has another task open, of an engine that still uses the task, is taken only if no actor serves
        this judge, or if the actor has been idle for a while: opening a task takes seconds.
        """
        there = [actor for actor in self._actors if actor.report is not None and not actor.gone]
        usable = [actor for actor in there if actor.node not in avoid] or there
        serving = [actor for actor in usable if actor.key == key]
        free = next((actor for actor in serving if actor.idle), None)
        if free is not None:
            return free
        needed = set(self._wanted.values())
        idle = sorted((a for a in usable if a.idle and a.key != key), key=lambda actor: actor.idle_since)
        spare = next((actor for actor in idle if actor.key is None or actor.key not in needed), None)
        if spare is not None:
            return spare
        if serving:
            least = min(serving, key=lambda actor: actor.in_flight)
            if least.in_flight < DEPTH:
                return least
        if not idle or (serving and time.monotonic() - idle[0].idle_since < _TAKE_OVER_S):
            return None
        return idle[0]

    # --- builds ---

    async def _built(self, order: BuildOrder, name: str) -> Any:
        """A reference to a build made on some node; None if the actor has to build."""
        nodes = [plan for plan in self._plans.values() if plan.builds and self._strikes.get(plan.node, 0) < _STRIKES]
        if not nodes:
            return None
        if order.key in self._builds:
            self._builds.move_to_end(order.key)
        else:
            self._builds[order.key] = asyncio.ensure_future(self._build(order, name, nodes))
            while len(self._builds) > _KEPT_BUILDS:
                self._builds.popitem(last=False)
        return await self._builds[order.key]

    async def _build(self, order: BuildOrder, name: str, nodes: list[NodePlan]) -> Any:
        plan = min(nodes, key=lambda each: (self._building.get(each.node, 0) + 1) / max(1.0, each.cpus))
        self._building[plan.node] = self._building.get(plan.node, 0) + 1
        taken = {cpu for actor in self._actors if actor.node == plan.node and actor.report for cpu in actor.report.cpus}
        strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(plan.node, soft=True)
        call = self._build_task.options(num_cpus=1, name=f"build {name}", scheduling_strategy=strategy)
        try:
            status, content = call.remote(
                order.candidate, order.contract, order.target, order.limits, tuple(sorted(taken))
            )
            fault = await self._reply(status)
        except self._absences:
            fault = "lost"  # several times: the actor builds
        finally:
            self._building[plan.node] -= 1
        if fault:
            self._builds.pop(order.key, None)
            return None
        return content

    # --- actors ---

    async def _tick(self) -> None:
        looked = time.monotonic()
        while not self._closing:
            await asyncio.sleep(_TICK_S)
            if time.monotonic() - looked > _LOOK_S or not any(not actor.gone for actor in self._actors):
                plans = await self._loop.run_in_executor(None, self._looked)
                if plans is not None:
                    self._refresh(plans)
                looked = time.monotonic()
            for key in list(self._waiting):
                self._schedule(key)
            self._check_alive()

    def _looked(self) -> Mapping[str, NodePlan] | None:
        try:
            return self._look()
        except (*self._absences, WarpsmithError):  # the head of the cluster may answer again soon
            return None

    def _refresh(self, plans: Mapping[str, NodePlan]) -> None:
        """Start actors on new nodes and in the place of lost ones; forget those of nodes that are gone."""
        self._plans = plans
        for actor in list(self._actors):
            if actor.node not in plans and not actor.gone:
                self._lose(actor, "its node is gone")
        for plan in plans.values():
            here = sum(actor.node == plan.node and not actor.gone for actor in self._actors)
            if self._strikes.get(plan.node, 0) < _STRIKES:
                for _ in range(plan.actors - here):
                    self._start(plan)

    def _start(self, plan: NodePlan) -> None:
        self._count += 1
        name = f"{self._name} {plan.report.host} {plan.node[:6]} {os.getpid()}-{self._count}"
        strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(plan.node, soft=False)
        handle = self._actor_class.options(
            name=name,
            num_cpus=plan.cpus_each,
            num_gpus=1 if self._kind == "cuda" else 0,
            max_concurrency=DEPTH + 1,
            max_restarts=0,
            scheduling_strategy=strategy,
        ).remote(
            self._kind,
            f"{plan.report.host} {plan.node[:6]}",
            self._cores,
            os.environ.get("OMP_NUM_THREADS", ""),
        )
        actor = _Actor(handle, plan.node)
        self._actors.append(actor)
        self._spawn(self._until_ready(actor))

    async def _until_ready(self, actor: _Actor) -> None:
        try:
            actor.report = await self._reply(actor.handle.ready.remote())
        except self._absences as lost:
            self._lose(actor, lost)
            return
        for key in list(self._waiting):
            self._schedule(key)

    def _lose(self, actor: _Actor, why: object) -> None:
        """An actor is lost; `_refresh` starts another one."""
        if actor.gone:
            return
        actor.gone = True
        self._kill(actor)
        self._actors.remove(actor)
        if self._closing:
            return
        plan = self._plans.get(actor.node)
        if plan is not None:
            self._strikes[actor.node] = self._strikes.get(actor.node, 0) + 1
        left = sum(not each.gone for each in self._actors)
        where = actor.report.place if actor.report else actor.node[:6]
        self._say(f"the evaluator on {where} is lost ({_line(why)}); its work goes on elsewhere, {left} are left.")
        if not left:
            self._without_since = time.monotonic()

    def _check_alive(self) -> None:
        """Say that work waits for actors; give work up if none comes."""
        if any(actor.report is not None and not actor.gone for actor in self._actors):
            self._without_since = time.monotonic()
            return
        without_s = time.monotonic() - self._without_since
        if without_s > _REMIND_S and self._waiting:
            self._say("waiting: no device of the cluster is free.")
        if without_s > _PATIENCE_S:
            for queue in self._waiting.values():
                for waiter in queue:
                    if not waiter.future.done():
                        waiter.future.set_exception(
                            HarnessFault(
                                f"no node of the cluster could start an evaluator for {_PATIENCE_S:.0f} s; see "
                                "`ray status` and `warpsmith doctor --engine ray`."
                            )
                        )
            self._waiting.clear()

    def _say(self, text: str) -> None:
        now = time.monotonic()
        if now - self._said.get(text, -_REMIND_S) < _REMIND_S:
            return
        self._said[text] = now
        for tell in dict.fromkeys(self.listeners):
            tell(text)

    def _kill(self, actor: _Actor) -> None:
        try:
            self._ray.kill(actor.handle)
        except self._absences:  # the actor is dead, or the cluster is
            return

    async def _ended(self, reference: Any) -> None:
        try:
            await self._reply(reference)
        except self._absences:  # the actor is killed next
            return

    async def _reply(self, reference: Any) -> Any:
        """What a reference stands for.

        Awaiting the reference itself would cancel Ray's future together with the waiting task, and Ray's client ends
        its connection when it finds a cancelled future.
        """
        arrived: asyncio.Future[None] = self._loop.create_future()
        future: Future[Any] = reference.future()

        def hand_over() -> None:
            if not arrived.done():
                arrived.set_result(None)

        future.add_done_callback(lambda _: self._call(hand_over))
        await arrived
        return future.result()


def _line(why: object) -> str:
    """The first line of an error."""
    text = str(why).strip().splitlines() or [type(why).__name__]
    return text[0].rstrip(".")[:200]


__all__ = ["DEPTH", "ActorCall", "BuildOrder", "NodePlan", "RayPool", "TaskSource"]
