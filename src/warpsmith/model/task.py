"""What to compute, as plain data: tensors, axes, workloads, precision, and the operations of the reference.

No torch object is held here, so that the supervising process need not import torch. The callables behind a task
(reference, input generation) are in `tasks.program.Program`, which only the judging process loads. The outline is
recorded by the judge (`tasks.outline`) on tensors without data, for proposers that have no torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from warpsmith.model.errors import TaskError

Dim = int | str
"""One extent of a tensor: a fixed number, or the name of an axis that a workload gives a value."""

DTYPE_BYTES: Mapping[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "complex64": 8,
    "complex128": 16,
}
"""The element types a task may use, with their size; the key is torch's own name."""


class Precision(StrEnum):
    """The arithmetic a candidate is allowed; it sets the tolerance and the baseline's flags together."""

    FP32 = "fp32"  # strict: the baseline runs with TF32 off
    TF32 = "tf32"  # the baseline runs with TF32 on, so that the comparison is fair
    FP16 = "fp16"
    BF16 = "bf16"
    FP64 = "fp64"


class TensorRole(StrEnum):
    """Where a tensor comes from and who may write it."""

    INPUT = "input"  # an argument of the operator
    STATE = "state"  # a parameter, buffer or constant of a module: fixed across calls, passed like an input
    OUTPUT = "output"


@dataclass(frozen=True)
class TensorSpec:
    """One named, typed, dense row-major tensor of a task."""

    name: str  # a valid C identifier, unique in the task
    dtype: str  # a key of DTYPE_BYTES
    dims: tuple[Dim, ...]  # () for a 0-d tensor
    role: TensorRole
    origin: str = ""  # its name in the task file where that differs, e.g. "layer1.0.conv.weight"

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise TaskError(f"tensor name {self.name!r} is not an identifier; rename it.")
        if self.dtype not in DTYPE_BYTES:
            known = ", ".join(DTYPE_BYTES)
            raise TaskError(f"tensor {self.name!r} has element type {self.dtype!r}; use one of {known}.")

    def shape(self, axes: Mapping[str, int]) -> tuple[int, ...]:
        """The concrete shape for one workload's axis values."""
        try:
            return tuple(axes[d] if isinstance(d, str) else d for d in self.dims)
        except KeyError as missing:
            raise TaskError(f"tensor {self.name!r} uses axis {missing} that the workload does not give.") from None

    def numel(self, axes: Mapping[str, int]) -> int:
        """How many elements it has in one workload."""
        return math.prod(self.shape(axes))

    def nbytes(self, axes: Mapping[str, int]) -> int:
        """How many bytes it has in one workload."""
        return self.numel(axes) * DTYPE_BYTES[self.dtype]


class ScalarKind(StrEnum):
    """The C type a Python scalar argument becomes."""

    INT = "int64_t"
    FLOAT = "double"
    BOOL = "bool"


@dataclass(frozen=True)
class ScalarSpec:
    """A Python number among the operator's inputs; it has one value for the whole task."""

    name: str
    kind: ScalarKind
    value: int | float | bool


@dataclass(frozen=True)
class Workload:
    """One set of axis values to check and time."""

    name: str
    axes: tuple[tuple[str, int], ...] = ()  # ordered, hashable; `sizes` gives it as a mapping

    @property
    def sizes(self) -> dict[str, int]:
        """Axis name to extent."""
        return dict(self.axes)


class TaskKind(StrEnum):
    """The kind of a task file, which decides how it is loaded."""

    NATIVE = "native"  # functions under `@task`
    KERNELBENCH = "kernelbench"  # `class Model` with `get_inputs`


@dataclass(frozen=True)
class Task:
    """What to compute. Its identity is `digest`: the content of its file, not its path."""

    name: str
    source: str  # the text of the task file, shown to proposers
    kind: TaskKind
    tensors: tuple[TensorSpec, ...]  # inputs and state in call order, then outputs
    scalars: tuple[ScalarSpec, ...]
    workloads: tuple[Workload, ...]
    precision: Precision
    digest: str
    description: str = ""
    allow: tuple[str, ...] = ()  # libraries a candidate may call, e.g. ("cublas",)
    notes: tuple[str, ...] = ()  # what the loader did that a reader should know, one sentence each
    held_out: tuple[Workload, ...] = ()  # shapes that only verification uses, besides those it makes up
    init: str = ""  # JSON: positional and keyword arguments its module is constructed with; "" where it has none
    call: str = ""  # JSON: those of `forward`, `{"$": "x"}` standing for the tensor or number x; "" for all in order

    def __post_init__(self) -> None:
        names = [t.name for t in self.tensors] + [s.name for s in self.scalars]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise TaskError(f"task {self.name!r} names {', '.join(twice)} more than once; give each its own name.")
        if not self.outputs:
            raise TaskError(f"task {self.name!r} has no tensor output, so there is nothing to check.")
        if not self.workloads:
            raise TaskError(f"task {self.name!r} declares no workload; give at least one.")
        for workload in (*self.workloads, *self.held_out):
            if set(workload.sizes) != set(self.axes):
                given, wanted = (", ".join(names) or "none" for names in (workload.sizes, self.axes))
                raise TaskError(
                    f"workload {workload.name!r} of task {self.name!r} gives the axes {given}, another one {wanted}; "
                    "give the same axes in all."
                )
            for tensor in self.tensors:
                tensor.shape(workload.sizes)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Everything a candidate reads: arguments first, then state."""
        return tuple(t for t in self.tensors if t.role is not TensorRole.OUTPUT)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Everything a candidate must write."""
        return tuple(t for t in self.tensors if t.role is TensorRole.OUTPUT)

    @property
    def axes(self) -> tuple[str, ...]:
        """Every axis name, in the order in which workloads give them."""
        return tuple(name for name, _ in self.workloads[0].axes)

    @property
    def fixed_axes(self) -> dict[str, int]:
        """Axes that have one value in all workloads: compile-time constants of the contract."""
        first = self.workloads[0].sizes
        everywhere = (*self.workloads, *self.held_out)
        return {a: v for a, v in first.items() if all(w.sizes[a] == v for w in everywhere)}


class Family(StrEnum):
    """The shape of an operator's work, as far as a template cares."""

    ELEMENTWISE = "elementwise"  # every output element hangs on one element of each (broadcast) input
    ROW_REDUCTION = "row_reduction"  # something is summed or compared along the last axis: softmax, norms, arg-max
    FULL_REDUCTION = "full_reduction"  # all elements into one number: losses
    MATMUL = "matmul"  # one product of two matrices, perhaps with an element-wise end
    OTHER = "other"  # nothing that a template knows

    @classmethod
    def of(cls, contractions: int, reductions: Sequence[bool]) -> Family:
        """The family of so many matrix products and these reductions: of each, whether its result is one number."""
        if contractions:
            return cls.MATMUL if contractions == 1 and not reductions else cls.OTHER
        if reductions:
            return cls.FULL_REDUCTION if any(reductions) else cls.ROW_REDUCTION
        return cls.ELEMENTWISE


CONTRACTIONS = frozenset(("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "linear", "matmul"))
"""Operators that multiply matrices, by their names in ATen."""
_REDUCTIONS = """
    sum mean amax amin max min prod argmax argmin logsumexp _softmax _log_softmax native_layer_norm
    native_batch_norm _native_batch_norm_legit var var_mean std std_mean linalg_vector_norm norm mse_loss
    smooth_l1_loss huber_loss nll_loss_forward all any _fused_rms_norm soft_margin_loss binary_cross_entropy
    binary_cross_entropy_with_logits
    aminmax dot vdot native_group_norm
"""
REDUCTIONS = frozenset(_REDUCTIONS.split())
"""Operators that sum or compare along an axis; some of these names also stand for element-wise operations."""
_MOVES = """
    slice select split split_with_sizes chunk unbind cat stack embedding index_select index gather repeat roll flip
    constant_pad_nd pixel_shuffle pixel_unshuffle upsample_nearest1d upsample_nearest2d upsample_nearest3d triu tril
    arange glu
"""
MOVES = frozenset(_MOVES.split())
"""Operators that read elements at other places than those of their result."""


@dataclass(frozen=True)
class OutlineValue:
    """A tensor on the way."""

    name: str  # a tensor of the task by its name; "%3" for what an operation made
    dtype: str  # torch's name of its element type
    # An axis of the task by name, a product such as "2*rows*cols", or a part such as "cols//2" or "(cols+1)//2"; a
    # number; "?" if unknown.
    dims: tuple[Dim, ...]


@dataclass(frozen=True)
class Operation:
    """One operation."""

    op: str  # e.g. "aten.add.Tensor"
    arguments: (
        str  # JSON: positional arguments; `{"$": "x"}` stands for a value, or for an extent as in `OutlineValue.dims`
    )
    keywords: str  # JSON: an object
    results: tuple[OutlineValue, ...]


@dataclass(frozen=True)
class Outline:
    """A reference, operation by operation."""

    family: Family
    inputs: tuple[OutlineValue, ...]
    nodes: tuple[Operation, ...]
    outputs: tuple[str, ...]  # for each output of the task the value it is
