"""Is it right? Runs a candidate on the oracle's cases and judges what it left in the buffers.

The order of suspicion: an error it reported, memory it had no business with, elements it never wrote, and
only then the values.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from warpsmith.core.config import Settings
from warpsmith.core.evaluation import Status
from warpsmith.evaluate import cudadriver, evidence, numerics, poison
from warpsmith.evaluate.bench import Bench
from warpsmith.evaluate.findings import Condemned
from warpsmith.evaluate.indices import judge_indices
from warpsmith.evaluate.messages import Ran, Run
from warpsmith.evaluate.oracle import BASELINE, FULL, SLICED, Case, Oracle, Truth
from warpsmith.evaluate.peer import Peer

_COMPARE_ELEMENTS = 1 << 24  # timed outputs compared in one go
_REFUSED = (1, 9, 701)  # invalid value, invalid configuration, too many resources: the launch was refused
_WEAKEST_LAST = (FULL, SLICED, BASELINE)


@dataclass(frozen=True)
class Measured:
    """The numerical side of a valid workload."""

    error: float
    limit: float
    checks: int
    reference: str


class Checker:
    """Judges one candidate's results."""

    def __init__(self, oracle: Oracle, settings: Settings, wipe_workspace: Callable[[], None], deadline: float) -> None:
        self._oracle = oracle
        self._settings = settings
        self._wipe = wipe_workspace
        self._deadline = deadline

    def examine(self, peer: Peer, bench: Bench, cases: Sequence[Case], call_limit_s: float) -> Measured:
        """Every case of one workload."""
        worst: evidence.Verdict | None = None
        checks, how = 0, FULL
        for case in cases:
            truth = self._oracle.truth(case)
            if truth is None:
                continue
            if time.monotonic() > self._deadline:
                raise Condemned(
                    Status.TIMED_OUT,
                    f"checking took longer than {self._settings.limits.total_s:g} s in all: far too slow.",
                )
            verdict = self._call(peer, bench, truth, call_limit_s)
            checks += 1
            how = max(how, truth.how, key=_WEAKEST_LAST.index)
            if worst is None or verdict.share > worst.share:
                worst = verdict
        if worst is None:
            raise RuntimeError(
                f"no usable input for workload {bench.workload.name!r}: PyTorch's own result is unusable"
            )
        return Measured(worst.error, worst.limit, checks, how)

    def _call(self, peer: Peer, bench: Bench, truth: Truth, call_limit_s: float) -> evidence.Verdict:
        where = f"workload {bench.workload.name!r}, {truth.case.variant} inputs"
        bench.put(0, truth.inputs)
        bench.poison((0,))
        self._wipe()
        before = bench.seal()  # reading it back also waits for the device
        peer.stage = f"running on {where}"
        reply = peer.ask(Run(bench.first_set), Ran, call_limit_s)
        results = tuple(output.clone() for output in bench.sets[0].outputs)  # captured at once
        _launched(reply, where)
        bench.inspect((0,), before)
        return self._judge(truth, results, where)

    def _judge(self, truth: Truth, results: Sequence[torch.Tensor], where: str) -> evidence.Verdict:
        """The worst verdict over all outputs; Condemned for a wrong one."""
        specs = self._oracle.task.outputs
        worst: evidence.Verdict | None = None
        for position, (spec, result) in enumerate(zip(specs, results, strict=True)):
            expected = truth.expected[position]
            missing = poison.unwritten(result, expected, name=spec.name)
            if missing is not None:
                raise Condemned(Status.UNWRITTEN, f"{missing.reason} ({where})")
            limit = truth.limits[position]
            if limit is not None:
                verdict = numerics.judge_float(result, expected, truth.baseline[position], limit=limit, name=spec.name)
            else:
                verdict = self._judge_whole(truth, position, result, spec.name)
            if not verdict.ok:
                raise Condemned(Status.WRONG, f"{verdict.reason} ({where})")
            if worst is None or verdict.share > worst.share:
                worst = verdict
        assert worst is not None, "a task has at least one output"
        return worst

    def _judge_whole(self, truth: Truth, position: int, result: torch.Tensor, name: str) -> evidence.Verdict:
        """Integers and bools: exact, except that an index may name any of several equal values."""
        expected, ties = truth.expected[position], truth.ties[position]
        if ties is None:
            return numerics.judge_exact(result, expected, name=name)
        floating = [t.dtype for t in self._oracle.task.inputs if "float" in t.dtype]
        dtype = floating[0] if floating else evidence.dtype_name(ties.values)
        return judge_indices(result, expected, ties, dtype=dtype, name=name)

    def verify_timed(self, bench: Bench, indices: Sequence[int], baseline: Sequence[tuple[torch.Tensor, ...]]) -> None:
        """Every timed result must agree with the baseline's on the same data; a doubt goes to the oracle."""
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
                self._judge(truth, results, f"workload {bench.workload.name!r}, in a timed call")


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
