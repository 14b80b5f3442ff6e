"""Checks that a candidate's results are right: calls it on input cases and compares the buffers with the reference.

Failures are looked for in this order: an error that the call reported, writes outside the outputs, elements that were
never written, wrong values.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import torch

from warpsmith.evaluator import cuda_driver
from warpsmith.evaluator.judge.host_client import HostClient
from warpsmith.evaluator.judge.numerics import tolerance
from warpsmith.evaluator.judge.numerics.compare import OutputComparison
from warpsmith.evaluator.judge.numerics.poison import PoisonPattern
from warpsmith.evaluator.judge.numerics.reference import (
    BASELINE,
    FULL,
    SLICED,
    Case,
    Reference,
    ReferenceResult,
    compare_output,
)
from warpsmith.evaluator.judge.records import CandidateFailed
from warpsmith.evaluator.judge.workload_buffers import OutputSnapshot, UsedMemory, WorkloadBuffers
from warpsmith.evaluator.protocol.messages import CallResult, RunCall
from warpsmith.model.evaluation import Status
from warpsmith.model.settings import Settings
from warpsmith.tasks.variants import HIDDEN, OWN

_REFUSED = (1, 9, 701)  # invalid value, invalid configuration, too many resources: the launch was refused
_MANY_ELEMENTS = 1 << 22  # of inputs
_UNUSUAL_OF_LARGE = 2  # calls with unusual inputs, where inputs are that large, in a pair of samples that has any
_LATE_S = 0.02  # how long to wait for writes by a thread that the candidate left running
_NEARLY_RIGHT = 1000.0  # times its limit: a larger error is not due to ill-conditioned inputs
_WEAKEST_LAST = (FULL, SLICED, BASELINE)


@dataclass(frozen=True)
class CheckResult:
    """The largest error, relative to its limit, over all checks of a workload that passed."""

    error: float
    limit: float
    checks: int
    reference: str


class Checker:
    """Checks the results of one candidate."""

    def __init__(self, reference: Reference, settings: Settings, wipe_workspace: Callable[[], None]) -> None:
        self._reference = reference
        self._settings = settings
        self.wipe_workspace = wipe_workspace
        self._snapshot: OutputSnapshot | None = None  # the outputs of the last call, right after the call
        self._last = 0  # the set of that call
        self._usable: dict[str, list[str]] = {}  # by workload: variants with a usable reference
        self._rng = random.SystemRandom()  # a candidate cannot predict what it is given
        self._pending: dict[str, list[str]] = {}  # by workload: those of them that no timed call has had yet

    def check_cases(
        self,
        host: HostClient,
        buffers: WorkloadBuffers,
        cases: Sequence[Case],
        call_limit_s: float,
        *,
        first_set: bool = False,
    ) -> CheckResult:
        """Check the usable cases of one workload, on the first two sets in turn: a result kept from the last call is
        then in the wrong set."""
        rotating = 1 if first_set else min(2, len(buffers.sets))
        limit_s = self._settings.limits.total_s
        worst: OutputComparison | None = None
        checks, how = 0, FULL
        kinds = self._rng.sample(list(UsedMemory), min(len(UsedMemory), len(cases) // 2))  # for some of the later calls
        earlier: Sequence[torch.Tensor] = ()
        for number, case in enumerate(cases):
            expected = self._reference.result_for(case)
            if expected is None:
                continue
            if host.waited_s > limit_s:
                raise CandidateFailed(
                    Status.TIMED_OUT,
                    f"its calls took longer than {limit_s:g} s in all while they were checked: far too slow.",
                )
            at = checks % rotating
            used = None
            if kinds and checks and self._rng.random() * (len(cases) - number) < len(kinds):
                used = kinds.pop()
            comparison = self.check_call(host, buffers, expected, call_limit_s, at=at, used=used, earlier=earlier)
            earlier = expected.baseline
            self._usable.setdefault(buffers.workload.name, []).append(case.variant)
            checks += 1
            how = max(how, expected.how, key=_WEAKEST_LAST.index)
            if worst is None or comparison.share > worst.share:
                worst = comparison
        self._check_last_call(buffers)
        if worst is None:
            raise RuntimeError(
                f"no usable input for workload {buffers.workload.name!r}: PyTorch's own result is unusable"
            )
        return CheckResult(worst.error, worst.limit, checks, how)

    def check_call(
        self,
        host: HostClient,
        buffers: WorkloadBuffers,
        expected: ReferenceResult,
        call_limit_s: float,
        *,
        at: int = 0,
        used: UsedMemory | None = None,
        earlier: Sequence[torch.Tensor] = (),
    ) -> OutputComparison:
        """Make one call on the set at this index; raises CandidateFailed for a wrong result.

        `used`: what the outputs hold instead of a pattern; `earlier`: the result of an earlier call.
        """
        where = f"workload {buffers.workload.name!r}, {expected.case.variant} inputs"
        self._check_last_call(buffers)
        buffers.write_inputs(at, expected.inputs)
        if used is not None:
            buffers.fill_outputs(at, used, earlier, expected.baseline)
        else:
            buffers.poison((at,))
        self.wipe_workspace()
        checksum = buffers.inputs_checksum()  # reading it back also waits for the device
        host.stage = f"running on {where}"
        reply = host.ask(RunCall(buffers.first_set + at), CallResult, call_limit_s)
        results = buffers.copy_outputs(at)
        self._snapshot, self._last = buffers.snapshot_of(results), at
        _check_reported_error(reply, where)
        buffers.check_memory((at,), checksum)
        try:
            return self._compare(expected, results, where, buffers.poison_of(at))
        except CandidateFailed:
            check_late_writes(host, buffers, (at,))
            raise

    def _check_last_call(self, buffers: WorkloadBuffers) -> None:
        """Raise CandidateFailed if an output changed after the last call had returned."""
        if self._snapshot is not None:
            buffers.check_unchanged((self._last,), self._snapshot)
            self._snapshot = None

    def _compare(
        self, expected: ReferenceResult, results: Sequence[torch.Tensor], where: str, poison: PoisonPattern | None
    ) -> OutputComparison:
        """The comparison of the worst output; raises CandidateFailed if one is wrong."""
        worst: OutputComparison | None = None
        for position, result in enumerate(results):
            found = compare_output(self._reference.task, expected, position, result, poison)
            if found.status is Status.WRONG and 1.0 < found.share <= _NEARLY_RIGHT:
                expected = self._reference.with_wider_limits(expected)
                found = compare_output(self._reference.task, expected, position, result, poison)
            if found.status is Status.WRONG:
                found = self._reference.compare_with_other_rounding(expected, position, result) or found
            if not found.ok:
                raise CandidateFailed(found.status, f"{found.reason} ({where})")
            if worst is None or found.share > worst.share:
                worst = found
        assert worst is not None, "a task has at least one output"
        return worst

    def unusual_calls(self, buffers: WorkloadBuffers) -> int:
        """How many timed calls are to get inputs of other variants than the task's own."""
        return _UNUSUAL_OF_LARGE if _is_large(buffers) else len(self._unusual_variants(buffers))

    def _unusual_variants(self, buffers: WorkloadBuffers) -> list[str]:
        """The variants besides the task's own in the order in which timed calls get them: shuffled, with those that no
        sample of the values shows twice each. With large inputs few are used: every other one is of that kind."""
        found = [v for v in self._usable.get(buffers.workload.name, ()) if v != OWN]
        hidden, others = [v for v in found if v in HIDDEN], [v for v in found if v not in HIDDEN]
        self._rng.shuffle(hidden)
        self._rng.shuffle(others)
        if _is_large(buffers):
            pairs = zip_longest(hidden, others[: len(hidden)] if hidden else others)
            return [variant for pair in pairs for variant in pair if variant]
        mixed = [*others, *hidden, *hidden]
        self._rng.shuffle(mixed)
        return mixed

    def choose_unusual(self, buffers: WorkloadBuffers, called: Sequence[int]) -> dict[int, str]:
        """For some of these sets, at random, another variant than the task's own.

        Timed calls usually get the task's own distribution: without this a kernel could be careful only while it is
        checked. Each result takes as long as a reference: with large inputs there are few.
        """
        pending = self._pending.get(buffers.workload.name, [])
        if not pending:
            pending = self._pending[buffers.workload.name] = self._unusual_variants(buffers)
        most = min(len(pending), len(called), _UNUSUAL_OF_LARGE if _is_large(buffers) else len(pending))
        return {index: pending.pop(0) for index in self._rng.sample(called, most)}

    def check_unusual(self, buffers: WorkloadBuffers, variants: Mapping[int, str]) -> None:
        """Check the results of timed calls on inputs of these variants.

        The reference is computed now: before the calls, it would take a time by which a candidate could tell that
        they are unusual.
        """
        for index, variant in variants.items():
            try:
                expected = self._reference.result_for_inputs(buffers.workload, buffers.sets[index].inputs, variant)
            except torch.OutOfMemoryError:  # all buffers are in use by now
                break
            if expected is not None:
                where = f"workload {buffers.workload.name!r}, {variant} inputs in a timed call"
                where += " though right when checked: a special case"
                self._compare(expected, buffers.copy_outputs(index), where, buffers.poison_of(index))

    def check_timed(
        self, buffers: WorkloadBuffers, indices: Sequence[int], baseline: Mapping[int, tuple[torch.Tensor, ...]]
    ) -> None:
        """Compare timed results with the baseline's on the same inputs; where they differ, with the reference."""
        if not indices:
            return
        outputs = {index: buffers.sets[index].outputs for index in indices}
        different: set[int] = set()
        for position, orders in enumerate(self._reference.own_orders(buffers.workload)):
            agrees = tolerance.agree_with_baseline(
                [outputs[index][position] for index in indices],
                [baseline[index][position] for index in indices],
                precision=self._reference.task.precision,
                reduction=self._reference.reduction(buffers.workload),
                orders=orders,
                selects=self._reference.selects,
            )
            different |= {index for index, same in zip(indices, agrees, strict=True) if not same}
        where = f"workload {buffers.workload.name!r}, in a timed call though right when checked: "
        for index in sorted(different):
            results = buffers.copy_outputs(index)
            expected = self._reference.result_for_inputs(buffers.workload, buffers.sets[index].inputs)
            if expected is not None:
                said = where + "a kept result, skipped work or a race"
                self._compare(expected, results, said, buffers.poison_of(index))


def _is_large(buffers: WorkloadBuffers) -> bool:
    """Whether a reference result takes long."""
    return sum(tensor.numel() for tensor in buffers.sets[0].inputs.values()) > _MANY_ELEMENTS


def check_late_writes(host: HostClient, buffers: WorkloadBuffers, indices: Sequence[int]) -> None:
    """Let the host run after a wrong result, and raise CandidateFailed for background work if the outputs change."""
    snapshot = buffers.snapshot(indices)
    with host.while_running():
        time.sleep(_LATE_S)
    if snapshot is not None:
        buffers.check_unchanged(indices, snapshot)


def _check_reported_error(reply: CallResult, where: str) -> None:
    """Raise CandidateFailed for a call that reported an error."""
    error, text = reply.device_error, reply.device_text
    if error == cuda_driver.ILLEGAL_ADDRESS:
        raise CandidateFailed(Status.OUT_OF_BOUNDS, f"a kernel touched memory that is not its own: {text} ({where}).")
    if error == cuda_driver.OUT_OF_MEMORY:
        raise CandidateFailed(Status.OUT_OF_MEMORY, f"the device is out of memory: {text} ({where}).")
    if error:
        hint = "; check the grid, the block and the shared memory of the launch" if error in _REFUSED else ""
        raise CandidateFailed(Status.LAUNCH_FAILED, f"the device reports: {text}{hint} ({where}).")
    if reply.returned:
        said = f"the entry point returned {reply.returned} instead of 0"
        raise CandidateFailed(Status.LAUNCH_FAILED, f"{said} ({where}).")
