"""What a reference computes, as plain data: the ATen operations it makes, in order.

Recorded by the judge (`tasks.outline`) on tensors without data, so that whoever has no torch, the template proposer
above all, can still tell a softmax from a matrix product. It says what is computed, never how fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from warpsmith.core.task import Dim


class Family(StrEnum):
    """The shape of an operator's work, as far as a template cares."""

    ELEMENTWISE = "elementwise"  # every output element hangs on one element of each (broadcast) input
    ROW_REDUCTION = "row_reduction"  # something is summed or compared along the last axis: softmax, norms, arg-max
    FULL_REDUCTION = "full_reduction"  # all elements into one number: losses
    MATMUL = "matmul"  # one product of two matrices, perhaps with an element-wise end
    OTHER = "other"  # nothing that a template knows


@dataclass(frozen=True)
class Value:
    """A tensor on the way."""

    name: str  # a tensor of the task by its name; "%3" for what an operation made
    dtype: str  # torch's name of its element type
    dims: tuple[Dim, ...]  # an axis of the task by name or a product such as "2*rows*cols"; a number; "?" if unknown


@dataclass(frozen=True)
class Node:
    """One operation."""

    op: str  # e.g. "aten.add.Tensor"
    arguments: str  # JSON: positional arguments; `{"$": "x"}` stands for a value, or for an extent as in `Value.dims`
    keywords: str  # JSON: an object
    results: tuple[Value, ...]


@dataclass(frozen=True)
class Outline:
    """A reference, operation by operation."""

    family: Family
    inputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]  # for each output of the task the value it is
