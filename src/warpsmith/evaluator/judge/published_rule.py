"""The rule by which published systems call a kernel valid: five random inputs, tolerance 1e-2, PyTorch's own results.

The answer is counted beside the evaluation and never decides it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

import torch

from warpsmith.evaluator.judge.host_client import HostClient
from warpsmith.evaluator.judge.numerics.reference import Case, Reference
from warpsmith.evaluator.judge.workload_buffers import WorkloadBuffers
from warpsmith.evaluator.protocol.messages import CallResult, RunCall
from warpsmith.tasks.variants import OWN

INPUTS = 5
TOLERANCE = 1e-2
"""Absolute and relative, as in `torch.allclose`."""


class PublishedRule:
    """Judges candidates of one task by the published rule; all of them get the same inputs."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._seeds = [secrets.randbits(62) for _ in range(INPUTS)]

    def accepts(
        self,
        host: HostClient,
        workload_buffers: Sequence[WorkloadBuffers],
        wipe_workspace: Callable[[], None],
        call_limit_s: Callable[[WorkloadBuffers], float],
    ) -> bool:
        """True if all results are near those of PyTorch; raises CandidateFailed if a call ends the host."""
        host.stage = "running on the inputs of the published rule"
        for buffers in workload_buffers:
            for seed in self._seeds:
                expected = self._reference.result_for(Case(buffers.workload, OWN, seed))
                if expected is None:  # PyTorch's own result is unusable
                    continue
                buffers.write_inputs(0, expected.inputs)
                buffers.poison((0,))
                wipe_workspace()
                reply = host.ask(RunCall(buffers.first_set), CallResult, call_limit_s(buffers))
                results = buffers.copy_outputs(0)
                if reply.device_error or reply.returned or not all(map(near, results, expected.baseline)):
                    return False
        return True


def near(result: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether two tensors agree by the published rule."""
    if not expected.is_complex():
        result, expected = result.double(), expected.double()
    return torch.allclose(result, expected, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
