"""What it costs to carry returned tensors into the judge's buffers, by the judge's own measure.

A candidate that returns its results has them copied after its clock has stopped and before it answers. The judge's
clock sees that time and must allow for it, but work put off until the copying hides in whatever is allowed. So what is
taken off a time is the least that such a copy has cost us beside the samples, in the same state of the caches; the
upper bound serves only to say that something cannot be explained.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence

import torch

from warpsmith.evaluate.hosts.pyresults import carry
from warpsmith.evaluate.judging.bench import Bench

_REPEATS = 8  # the best counts: it is held against the best of many samples, and load must not widen it
_PER_TENSOR_NS = {"cpu": 10_000, "cuda": 30_000}  # to check one and to start its copy, in Python
_COLD = 2.0  # a copy to memory that is in no cache, against one that is; on the CPU: releasing the results besides


def delivery_ns(bench: Bench) -> float:
    """An upper bound for the outputs of all sets of a bench, where nothing is known of the samples."""
    tensors = [output for group in bench.sets for output in group.outputs]
    copies = [torch.empty_like(output) for output in bench.sets[0].outputs] * len(bench.sets)
    least = math.inf
    for _ in range(_REPEATS):
        start = time.perf_counter_ns()
        for tensor, copy in zip(tensors, copies, strict=True):
            carry(tensor, copy)
        if tensors[0].is_cuda:
            torch.cuda.synchronize()
        least = min(least, time.perf_counter_ns() - start)
    return _COLD * least + _PER_TENSOR_NS[tensors[0].device.type] * len(tensors)


class Delivery:
    """On the CPU, the copying of one sample's results, done by us after each sample of the baseline: its results are
    as warm as a candidate's, and what they are copied to has been pushed out of the caches, as the judge's buffers."""

    def __init__(self, bench: Bench, calls: int) -> None:
        self._spares = [torch.zeros_like(output) for group in bench.sets[:calls] for output in group.outputs]
        self._least_ns = math.inf

    def measure(self, results: Iterable[Sequence[torch.Tensor]]) -> None:
        """Copy what the calls of one sample gave."""
        tensors = [tensor.contiguous() for outputs in results for tensor in outputs]
        start_ns = time.perf_counter_ns()
        for tensor, spare in zip(tensors, self._spares, strict=True):
            carry(tensor, spare)
        self._least_ns = min(self._least_ns, time.perf_counter_ns() - start_ns)

    @property
    def least_ns(self) -> float:
        """Surely spent on a delivery; nothing, as long as nothing was measured."""
        return self._least_ns if math.isfinite(self._least_ns) else 0.0

    @property
    def most_ns(self) -> float:
        """More than that is no delivery."""
        return _COLD * self.least_ns + _PER_TENSOR_NS["cpu"] * len(self._spares)
