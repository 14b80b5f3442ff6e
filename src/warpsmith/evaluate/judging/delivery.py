"""What it costs to carry returned tensors into the judge's buffers, by the judge's own measure.

A candidate that returns its results has them copied after its clock has stopped and before it answers. The judge's
clock sees that time and must allow for it, but not for more: work put off until the copying would hide in it.
"""

from __future__ import annotations

import math
import time

import torch

from warpsmith.evaluate.hosts.pyresults import carry
from warpsmith.evaluate.judging.bench import Bench

_REPEATS = 8  # the best counts: it is held against the best of many samples, and load must not widen it
_PER_TENSOR_NS = {"cpu": 10_000, "cuda": 30_000}  # to check one and to start its copy, in Python
_COLD = 2.0  # a copy to memory that is in no cache, against one that is


def delivery_ns(bench: Bench) -> float:
    """An upper bound for the outputs of all sets of a bench."""
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
