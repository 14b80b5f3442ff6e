"""Is it right? Runs a candidate on the oracle's cases and judges what it left in the buffers.

The order of suspicion: an error it reported, memory it had no business with, elements it never wrote, and
only then the values.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from warpsmith.core.config import Settings
from warpsmith.core.evaluation import Status
from warpsmith.evaluate import cudadriver
from warpsmith.evaluate.correctness import evidence, numerics
from warpsmith.evaluate.correctness.oracle import BASELINE, FULL, SLICED, Case, Oracle, Truth
from warpsmith.evaluate.correctness.ruling import rule
from warpsmith.evaluate.judging.bench import Bench, Capture
from warpsmith.evaluate.judging.findings import Condemned
from warpsmith.evaluate.judging.peer import Peer
from warpsmith.evaluate.messages import Ran, Run

_COMPARE_ELEMENTS = 1 << 24  # timed outputs compared in one go
_REFUSED = (1, 9, 701)  # invalid value, invalid configuration, too many resources: the launch was refused
_MANY_ELEMENTS = 1 << 22  # of inputs
_LATE_S = 0.02  # for work that was left to a thread
_NEARLY = 100.0  # times its limit: beyond it a result is not wrong by bad luck
_WEAKEST_LAST = (FULL, SLICED, BASELINE)


@dataclass(frozen=True)
class Measured:
    """The numerical side of a valid workload."""

    error: float
    limit: float
    checks: int
    reference: str


@dataclass(frozen=True)
class Surprise:
    """Other data than a timed call usually meets, by set, and what judges the results."""

    inputs: Mapping[int, Mapping[str, torch.Tensor]]
    verify: Callable[[], None]


class Checker:
    """Judges one candidate's results."""

    def __init__(self, oracle: Oracle, settings: Settings, wipe_workspace: Callable[[], None]) -> None:
        self._oracle = oracle
        self._settings = settings
        self._wipe = wipe_workspace
        self._captured: Capture | None = None  # the outputs of the last call, right after it
        self._last = 0  # the set of that call
        self._usable: dict[str, list[str]] = {}  # variants that can be judged, by workload
        self._pending: dict[str, list[str]] = {}  # those of them that no timed call has met

    def examine(
        self, peer: Peer, bench: Bench, cases: Sequence[Case], call_limit_s: float, *, first_set: bool = False
    ) -> Measured:
        """Every case of one workload, in turn on the first two sets: what was kept from the last call is elsewhere."""
        rotating = 1 if first_set else min(2, len(bench.sets))
        worst: evidence.Verdict | None = None
        checks, how = 0, FULL
        for case in cases:
            truth = self._oracle.truth(case)
            if truth is None:
                continue
            if peer.waited_s > self._settings.limits.total_s:
                raise Condemned(
                    Status.TIMED_OUT,
                    f"its calls took longer than {self._settings.limits.total_s:g} s in all while they were checked: "
                    "far too slow.",
                )
            verdict = self.call(peer, bench, truth, call_limit_s, at=checks % rotating)
            self._usable.setdefault(bench.workload.name, []).append(case.variant)
            checks += 1
            how = max(how, truth.how, key=_WEAKEST_LAST.index)
            if worst is None or verdict.share > worst.share:
                worst = verdict
        self._compare_late(bench)
        if worst is None:
            raise RuntimeError(
                f"no usable input for workload {bench.workload.name!r}: PyTorch's own result is unusable"
            )
        return Measured(worst.error, worst.limit, checks, how)

    def call(self, peer: Peer, bench: Bench, truth: Truth, call_limit_s: float, *, at: int = 0) -> evidence.Verdict:
        """One call on the set at this place; Condemned for a wrong result."""
        where = f"workload {bench.workload.name!r}, {truth.case.variant} inputs"
        self._compare_late(bench)
        bench.put(at, truth.inputs)
        bench.poison((at,))
        self._wipe()
        before = bench.seal()  # reading it back also waits for the device
        peer.stage = f"running on {where}"
        reply = peer.ask(Run(bench.first_set + at), Ran, call_limit_s)
        results = tuple(output.clone() for output in bench.sets[at].outputs)  # captured at once
        self._captured, self._last = bench.capture_of(results), at
        _launched(reply, where)
        bench.inspect((at,), before)
        try:
            return self._judge(truth, results, where)
        except Condemned:
            blame_late_work(peer, bench, (at,))
            raise

    def _compare_late(self, bench: Bench) -> None:
        """Condemn a candidate that wrote to an output after its last call had returned."""
        if self._captured is not None:
            bench.compare((self._last,), self._captured)
            self._captured = None

    def _judge(self, truth: Truth, results: Sequence[torch.Tensor], where: str) -> evidence.Verdict:
        """The worst verdict over all outputs; Condemned for a wrong one."""
        worst: evidence.Verdict | None = None
        for position, result in enumerate(results):
            ruling = rule(self._oracle.task, truth, position, result)
            if ruling.status is Status.WRONG and 1.0 < ruling.verdict.share <= _NEARLY:
                truth = self._oracle.relented(truth)
                ruling = rule(self._oracle.task, truth, position, result)
            verdict = ruling.verdict
            if not verdict.ok:
                raise Condemned(ruling.status, f"{verdict.reason} ({where})")
            if worst is None or verdict.share > worst.share:
                worst = verdict
        assert worst is not None, "a task has at least one output"
        return worst

    def variants(self, bench: Bench) -> list[str]:
        """The kinds of data, besides the task's own, that it was checked on and can be surprised with.

        Each needs a reference of its own: where that is dear, one of them must do.
        """
        found = [v for v in self._usable.get(bench.workload.name, ()) if v != "own"]
        dear = sum(tensor.numel() for tensor in bench.sets[0].inputs.values()) > _MANY_ELEMENTS
        return random.SystemRandom().sample(found, min(1, len(found))) if dear else found

    def surprise(self, bench: Bench, indices: Sequence[int]) -> Surprise:
        """For some of these sets, inputs of other distributions than the task's own, never seen before.

        Calls that are timed get the task's own: without this a kernel could be careful only while it is checked.
        """
        pending = self._pending.get(bench.workload.name, [])
        if not pending:
            pending = self._pending[bench.workload.name] = self.variants(bench)
            random.SystemRandom().shuffle(pending)
        truths: dict[int, Truth] = {}
        for index in indices[: len(pending)]:
            variant = pending.pop()
            try:
                truth = self._oracle.unkept(Case(bench.workload, variant, secrets.randbits(62)))
            except torch.OutOfMemoryError:  # all buffers are in use by now: then without
                break
            if truth is not None:
                truths[index] = truth

        def verify() -> None:
            for index, truth in truths.items():
                results = tuple(output.clone() for output in bench.sets[index].outputs)
                where = f"workload {bench.workload.name!r}, {truth.case.variant} inputs in a timed call"
                self._judge(truth, results, f"{where} though right when checked: a special case")

        return Surprise({index: truth.inputs for index, truth in truths.items()}, verify)

    def verify_timed(
        self, bench: Bench, indices: Sequence[int], baseline: Mapping[int, tuple[torch.Tensor, ...]]
    ) -> None:
        """Every timed result must agree with the baseline's on the same data; a doubt goes to the oracle."""
        if not indices:
            return
        columns = zip(*(bench.sets[i].outputs for i in indices), strict=True)
        others = zip(*(baseline[i] for i in indices), strict=True)
        for ours, theirs in zip(columns, others, strict=True):
            if not self._agree(bench, ours, theirs):
                self._appeal(bench, indices)
                return

    def _agree(self, bench: Bench, ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor]) -> bool:
        """Whether one output agrees in all sets; small sets are compared in one go."""
        step = max(1, _COMPARE_ELEMENTS // max(1, ours[0].numel()))
        for start in range(0, len(ours), step):
            mine, other = ours[start : start + step], theirs[start : start + step]
            agreed = numerics.agree(
                torch.stack(tuple(mine)) if len(mine) > 1 else mine[0],
                torch.stack(tuple(other)) if len(other) > 1 else other[0],
                precision=self._oracle.task.precision,
                reduction=self._oracle.reduction(bench.workload),
            )
            if not agreed:
                return False
        return True

    def _appeal(self, bench: Bench, indices: Sequence[int]) -> None:
        """The full rule, set by set: condemns what is really wrong."""
        for index in indices:
            group = bench.sets[index]
            results = tuple(output.clone() for output in group.outputs)
            truth = self._oracle.truth_of(bench.workload, group.inputs)
            if truth is not None:
                where = f"workload {bench.workload.name!r}, in a timed call though right when checked: "
                self._judge(truth, results, where + "a kept result, skipped work or a race")


def blame_late_work(peer: Peer, bench: Bench, indices: Sequence[int]) -> None:
    """For results that are wrong: condemn for what is worse, if they change once the process may run again."""
    captured = bench.capture(indices)
    with peer.at_large():
        time.sleep(_LATE_S)
    if captured is not None:
        bench.compare(indices, captured)


def _launched(reply: Ran, where: str) -> None:
    """Condemn a call that reported an error."""
    if reply.device_error == cudadriver.ILLEGAL_ADDRESS:
        raise Condemned(
            Status.OUT_OF_BOUNDS,
            f"a kernel touched memory that is not its own: {reply.device_text} ({where}).",
        )
    if reply.device_error == cudadriver.OUT_OF_MEMORY:
        raise Condemned(Status.OUT_OF_MEMORY, f"the device is out of memory: {reply.device_text} ({where}).")
    if reply.device_error:
        hint = (
            "; check the grid, the block and the shared memory of the launch" if reply.device_error in _REFUSED else ""
        )
        raise Condemned(Status.LAUNCH_FAILED, f"the device reports: {reply.device_text}{hint} ({where}).")
    if reply.returned:
        raise Condemned(Status.LAUNCH_FAILED, f"the entry point returned {reply.returned} instead of 0 ({where}).")
