"""The bytes that each ATen operator reads and the operations it computes, one rule per family of operators.

Reads are lower bounds: an operator without a rule reads all of its operands if all of its result is needed, and nothing
if only part is. Counts of operations are those of torch's FLOP counter, with formulas for contractions that it lacks;
`unavoidable` is a lower bound. This module handles single calls; `work` follows a graph.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import torch
from torch import Tensor
from torch.utils import flop_counter

from warpsmith.hardware.byte_regions import ByteRegion, NeededBytes, SlidingWindow, WindowCoverage, window_coverage


class PartialNeed(Enum):
    """How much of an operand is needed when only part of an operator's result is."""

    PROPORTIONAL = auto()  # at least the share of the result that is needed
    SPILL = auto()  # for results joined from several operands: what the other operands cannot have given
    NOTHING = auto()  # unknown


@dataclass(frozen=True)
class OperandRead:
    """One operand of a call, and the bytes of it that a complete result needs."""

    tensor: Tensor
    touch: NeededBytes
    partial: PartialNeed = PartialNeed.PROPORTIONAL
    keeps: bool = False  # every element has an element of the result: none is summed or dropped


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


COPIES = frozenset({"clone", "_to_copy", "copy", "copy_", "flip", "roll", "repeat", "contiguous", "_unsafe_view"})
_REGULAR = _words(
    "sum mean amax amin max min prod var std var_mean std_mean logsumexp norm linalg_vector_norm argmax argmin "
    "cumsum cumprod logcumsumexp cummax cummin topk sort median mode nansum aminmax"
)
NORMALISING = _words(
    "_softmax _log_softmax _safe_softmax native_layer_norm native_group_norm native_batch_norm cudnn_batch_norm "
    "_native_batch_norm_legit _native_batch_norm_legit_no_training _native_batch_norm_legit_functional "
    "_batch_norm_with_update _fused_rms_norm"
)
_LOOKUPS = frozenset({"embedding", "index_select", "gather", "index", "_unsafe_index", "take"})
GATHERS = _LOOKUPS | frozenset(
    {
        "masked_select",
        "_embedding_bag",
        "_embedding_bag_forward_only",
        "grid_sampler_2d",
        "grid_sampler_3d",
    }
)
SCATTERS = frozenset({"scatter", "index_put", "_unsafe_index_put", "index_copy", "masked_scatter", "put", "index_fill"})
_CONDITIONAL = frozenset(
    {"logical_and", "logical_or", "bitwise_and", "bitwise_or", "any", "all", "native_dropout", "bernoulli"}
)
PRODUCTS = frozenset({"mm", "bmm", "mv", "dot", "vdot", "addmm", "baddbmm", "addmv", "addbmm"})
CONVOLUTIONS = frozenset({"convolution", "_convolution", "cudnn_convolution"})


def name_of(func: Any) -> str:
    """The operator's name without namespace and overload, in-place variants included as "add_"."""
    return str(func._schema.name).split("::")[-1]


def bind(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of a call by name, with defaults."""
    bound = {}
    for position, argument in enumerate(func._schema.arguments):
        if position < len(args):
            bound[argument.name] = args[position]
        else:
            bound[argument.name] = kwargs.get(argument.name, argument.default_value)
    return bound


def tensors_in(value: Any) -> list[Tensor]:
    """Every tensor in an argument or result, also inside lists and tuples."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


def region_of(tensor: Tensor) -> ByteRegion:
    """The bytes that a strided tensor covers in its storage."""
    return ByteRegion.of(int(tensor.storage_offset()), tensor.stride(), tensor.shape, tensor.element_size())


def is_pointwise(func: Any) -> bool:
    """Whether each result element depends on one element of each operand."""
    return torch.Tag.pointwise in func.tags


def is_lookup(func: Any) -> bool:
    """Whether each result element is one element of the first operand, a table."""
    return name_of(func) in _LOOKUPS


def makes_sparse(func: Any, operands: Sequence[Tensor], results: Sequence[Tensor]) -> bool:
    """Whether a result may be mostly zeros by construction, so that a kernel may skip its factors in a product."""
    base = name_of(func).rstrip("_")
    masks = base in ("where", "masked_fill", "constant_pad_nd") or base in SCATTERS
    return masks or not operands or any(t.dtype == torch.bool for t in (*operands, *results))


def reads(func: Any, bound: Mapping[str, Any], results: Sequence[Tensor], sparse: Sequence[bool]) -> list[OperandRead]:
    """The bytes of each operand that a complete result needs. `sparse[i]`: operand i may be mostly zeros."""
    name = name_of(func)
    base = name.rstrip("_")
    operands = tensors_in(list(bound.values()))
    whole = [NeededBytes.all_of(region_of(tensor)) for tensor in operands]
    if base.endswith("_like") or base.startswith("new_") or base in _CONDITIONAL or name in ("fill_", "zero_"):
        return []
    if base in ("where", "masked_fill", "masked_scatter"):
        mask = bound.get("condition", bound.get("mask"))
        return [OperandRead(t, w) for t, w in zip(operands, whole, strict=True) if t is mask]
    if name == "copy_":
        return [OperandRead(bound["src"], NeededBytes.all_of(region_of(bound["src"])), keeps=True)]
    if is_pointwise(func) or base in COPIES:
        return _pointwise_reads(base, operands, whole, sparse)
    if base in CONVOLUTIONS:
        return _convolution_reads(bound, results[0])
    if "pool" in base and "kernel_size" in bound and not base.endswith("backward"):
        return [_pool_read(bound, results[0])]
    if base in ("tril", "triu"):
        return [OperandRead(bound["self"], NeededBytes(_triangle_bytes(bound["self"], bound["diagonal"], base)))]
    if base in GATHERS or base in ("nll_loss_forward", "nll_loss2d_forward"):
        return _gather_reads(base, bound, operands, whole)
    if base.startswith("upsample_") or (base.endswith("_copy") and base not in SCATTERS):
        # Each element of a smaller result comes from a different element.
        share = min(whole[0].nbytes, results[0].numel() * operands[0].element_size())
        return [OperandRead(operands[0], NeededBytes(share))]
    if base in ("cat", "stack", "constant_pad_nd", "diag_embed"):
        return [
            OperandRead(t, w, PartialNeed.SPILL, keeps=base != "diag_embed")
            for t, w in zip(operands, whole, strict=True)
        ]
    if base in SCATTERS:
        written = sum(w.nbytes for w in whole[1:])
        indices = tensors_in(bound.get("index", bound.get("indices")))
        first = OperandRead(operands[0], NeededBytes(max(0, whole[0].nbytes - written)), PartialNeed.NOTHING)
        return [first, *(OperandRead(t, NeededBytes.all_of(region_of(t)), PartialNeed.NOTHING) for t in indices)]
    return _dense_reads(base, bound, operands, whole, sparse)


def _pointwise_reads(
    base: str, operands: list[Tensor], whole: list[NeededBytes], sparse: Sequence[bool]
) -> list[OperandRead]:
    if base in ("mul", "addcmul") and any(sparse):  # the other factor of a zero is not needed
        return [OperandRead(t, w) for t, w, zeros in zip(operands, whole, sparse, strict=True) if zeros]
    return [OperandRead(t, w, keeps=True) for t, w in zip(operands, whole, strict=True)]


def _dense_reads(
    base: str, bound: Mapping[str, Any], operands: list[Tensor], whole: list[NeededBytes], sparse: Sequence[bool]
) -> list[OperandRead]:
    """The reads of contractions, reductions, normalisations, and operators without a rule."""
    skipped: list[Tensor | None] = []
    if base in PRODUCTS:
        left, right = (len(operands) - 2, len(operands) - 1)
        skipped += [operands[b] for a, b in ((left, right), (right, left)) if sparse[a]]
        if bound.get("beta", 1) == 0:
            skipped.append(bound.get("self"))
    elif "batch_norm" in base and bound.get("training", bound.get("train", True)):
        skipped += [bound.get("running_mean"), bound.get("running_var")]
    elif "attention" in base and (bound.get("attn_mask") is not None or bound.get("attn_bias") is not None):
        skipped += [bound.get("key"), bound.get("value")]  # the mask may exclude any of them
    known = base in _REGULAR or base in NORMALISING or _is_contraction(base) or "adaptive" in base
    partial = PartialNeed.PROPORTIONAL if known else PartialNeed.NOTHING
    return [
        OperandRead(t, w, partial, keeps=base in NORMALISING)
        for t, w in zip(operands, whole, strict=True)
        if not any(t is s for s in skipped)
    ]


def _gather_reads(
    base: str, bound: Mapping[str, Any], operands: list[Tensor], whole: list[NeededBytes]
) -> list[OperandRead]:
    """The reads of lookups in a table: all indices, and as little as one entry of the table.

    More of the table is certain only if the shapes guarantee one read in every line (a loss over classes, `gather`
    along a dimension).
    """
    table = operands[0]
    found = [OperandRead(t, w) for t, w in zip(operands[1:], whole[1:], strict=True) if not t.is_floating_point()]
    touch = NeededBytes(table.element_size() * (table.shape[-1] if base == "embedding" else 1))
    if base.startswith("nll_loss") and table.dim() >= 2:
        touch = _line_touch(table, 1)
    elif base == "gather" and table.dim() > 0:
        dim = bound["dim"] % table.dim()
        others = [d for d in range(table.dim()) if d != dim]
        if bound["index"].numel() and all(bound["index"].shape[d] == table.shape[d] for d in others):
            touch = _line_touch(table, dim)
    return [OperandRead(table, touch, PartialNeed.NOTHING), *found]


def _line_touch(table: Tensor, dim: int) -> NeededBytes:
    region = region_of(table)
    lines = region.nbytes // max(table.shape[dim], 1)
    return NeededBytes(lines, region, table.stride(dim) * table.element_size())


def line_stride(func: Any, bound: Mapping[str, Any], results: Sequence[Tensor]) -> int:
    """The byte stride along which one element of a softmax needs its whole line; 0 for other operators."""
    if name_of(func) not in ("_softmax", "_log_softmax", "_safe_softmax") or results[0].dim() == 0:
        return 0
    return int(results[0].stride(bound["dim"]) * results[0].element_size())


def _triangle_bytes(matrix: Tensor, diagonal: int, side: str) -> int:
    rows, columns = matrix.shape[-2:]
    lower = sum(min(max(row + diagonal + (side == "tril"), 0), columns) for row in range(rows))
    elements = lower if side == "tril" else rows * columns - lower
    return math.prod(matrix.shape[:-2]) * elements * matrix.element_size()


def _each(value: Any, count: int, default: Any = None) -> list[int]:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    values = values or (default if isinstance(default, list) else [default])
    return [int(v) for v in (values * count if len(values) == 1 else values)]


def conv_coverage(bound: Mapping[str, Any], result: Tensor) -> list[tuple[SlidingWindow, WindowCoverage]]:
    """The windows of a convolution and their coverage, by dimension."""
    source, weight = bound.get("input", bound.get("self")), bound["weight"]
    assert isinstance(source, Tensor), "a convolution has an input"
    count = weight.dim() - 2
    inner, outer = source.shape[-count:], result.shape[-count:]
    if bound.get("transposed"):  # a transposed convolution exchanges input and output
        inner, outer = outer, inner
    stride, padding, dilation = (_each(bound[k], count) for k in ("stride", "padding", "dilation"))
    windows = [
        SlidingWindow(int(inner[d]), int(outer[d]), int(weight.shape[2 + d]), stride[d], padding[d], dilation[d])
        for d in range(count)
    ]
    return [(window, window_coverage(window)) for window in windows]


def _convolution_reads(bound: Mapping[str, Any], result: Tensor) -> list[OperandRead]:
    covered = conv_coverage(bound, result)
    source, weight, bias = bound.get("input", bound.get("self")), bound["weight"], bound.get("bias")
    assert isinstance(source, Tensor), "a convolution has an input"
    if bound.get("transposed"):
        share = [(c.positions, w.positions) for w, c in covered]
    else:
        share = [(c.elements, w.extent) for w, c in covered]
    taps = [(c.taps, w.taps) for w, c in covered]
    found = [OperandRead(source, _share_of(source, share)), OperandRead(weight, _share_of(weight, taps))]
    return [*found, OperandRead(bias, NeededBytes.all_of(region_of(bias)))] if isinstance(bias, Tensor) else found


def _share_of(tensor: Tensor, parts: Sequence[tuple[int, int]]) -> NeededBytes:
    region = region_of(tensor)
    if all(some == all_ for some, all_ in parts):
        return NeededBytes.all_of(region)
    return NeededBytes(region.nbytes * math.prod(p[0] for p in parts) // max(1, math.prod(p[1] for p in parts)))


def _pool_read(bound: Mapping[str, Any], result: Tensor) -> OperandRead:
    source = bound.get("self", bound.get("input"))
    assert isinstance(source, Tensor), "pooling has an input"
    given = bound["kernel_size"]
    count = len(given) if isinstance(given, (list, tuple)) and len(given) > 1 else _pool_dims(bound, source)
    taps = _each(given, count)
    stride = _each(bound.get("stride"), count, taps) if bound.get("stride") else taps
    padding, dilation = _each(bound.get("padding", 0), count, 0), _each(bound.get("dilation", 1), count, 1)
    shapes = list(zip(source.shape[-count:], result.shape[-count:], strict=True))
    windows = [
        SlidingWindow(int(n), int(m), taps[d], stride[d], padding[d], dilation[d]) for d, (n, m) in enumerate(shapes)
    ]
    return OperandRead(source, _share_of(source, [(window_coverage(w).elements, w.extent) for w in windows]))


def _pool_dims(bound: Mapping[str, Any], source: Tensor) -> int:
    given = [len(v) for v in bound.values() if isinstance(v, (list, tuple)) and v]
    return max([1, *given, source.dim() - 2 if source.dim() > 2 else 1])


def _is_contraction(base: str) -> bool:
    return base in PRODUCTS or "attention" in base or "rnn" in base or base.startswith("_transformer_encoder")


_SUMMING = _words("sum mean var std var_mean std_mean logsumexp norm linalg_vector_norm nansum prod")
_WINOGRAD_OTHER = 2.25  # the factor of operations saved that is allowed for any convolution
_TRANSFORM_PRODUCTS = 1.5  # real products per output point that a tiled Fourier convolution still needs
_STRASSEN_TWICE = (8 / 7) ** 2


def contraction_flops(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
    """The operations of a matrix product, convolution, attention or recurrent layer; 0 for other operators."""
    base = name_of(func)
    formula = flop_counter.flop_registry.get(func._overloadpacket)
    if formula is not None:
        return int(formula(*args, **kwargs, out_val=result))
    bound = bind(func, args, kwargs)
    operands = tensors_in(list(bound.values()))
    if base in ("mv", "addmv"):
        return 2 * operands[-2].numel()
    if base in ("dot", "vdot"):
        return 2 * operands[0].numel()
    if base == "addbmm":
        return 2 * operands[-2].numel() * int(operands[-1].shape[-1])
    if base.startswith("_scaled_dot_product"):
        *batch, length, width = bound["query"].shape
        keys, out_width = bound["key"].shape[-2], bound["value"].shape[-1]
        return int(2 * math.prod(batch) * length * keys * (width + out_width))
    if "rnn" in base and not base.endswith("backward"):
        steps = operands[0].numel() // max(1, int(operands[0].shape[-1]))
        return 2 * steps * sum(t.numel() for t in operands[1:] if t.dim() == 2)
    if base.startswith(("_transformer_encoder_layer_fwd", "_native_multi_head_attention")):
        source = operands[0]
        tokens, length = source.numel() // int(source.shape[-1]), int(source.shape[-2])
        weights = sum(t.numel() for t in operands[1:] if t.dim() == 2)
        return 2 * tokens * weights + 4 * tokens * length * int(source.shape[-1])
    return 0


@dataclass(frozen=True)
class Contraction:
    """A contraction with operands and operations that may be unavoidable."""

    left: Tensor
    right: Tensor
    flops: int  # of the best known algorithm


def unavoidable(func: Any, bound: Mapping[str, Any], result: Tensor, flops: int) -> Contraction | None:
    """The operations that the best known algorithm needs, for plain products and convolutions; None for others.

    Allowed are Strassen twice for matrix products with no extent of 1, and for convolutions the larger of 2.25 and
    the factor that a tiled Fourier transform saves in each phase of the stride (6 for 3x3 at stride 1, where
    Winograd's F(4x4) saves 4); operations on padding are left out.
    """
    base = name_of(func)
    if base in PRODUCTS:
        operands = tensors_in(list(bound.values()))[-2:]
        extents = [*operands[0].shape[-2:], operands[1].shape[-1]] if base not in ("mv", "dot") else [1]
        allowance = 1.0 if 1 in extents or base in ("addmv", "vdot") else _STRASSEN_TWICE
        return Contraction(operands[0], operands[1], int(flops / allowance))
    if base not in CONVOLUTIONS:
        return None
    covered = conv_coverage(bound, result)
    per_phase = math.prod(math.ceil(w.taps / w.stride) for w, _ in covered)
    allowance = max(_WINOGRAD_OTHER, per_phase / _TRANSFORM_PRODUCTS)
    pairs = math.prod(c.pairs for _, c in covered)
    possible = math.prod(w.positions * w.taps for w, _ in covered)
    source = bound.get("input", bound.get("self"))
    assert isinstance(source, Tensor), "a convolution has an input"
    return Contraction(source, bound["weight"], int(flops * pairs / max(1, possible) / allowance))


def other_flops(func: Any, operands: Sequence[Tensor], results: Sequence[Tensor]) -> int:
    """One operation per element of the larger side of a floating-point operator; 0 for copies."""
    base = name_of(func).rstrip("_")
    moves = COPIES | GATHERS | SCATTERS | {"cat", "stack", "fill", "zero", "constant_pad_nd", "tril", "triu"}
    if not operands or base in moves or base.endswith("_like") or base.startswith("new_"):
        return 0
    return max((t.numel() for t in (*operands, *results) if t.is_floating_point()), default=0)


def summed_terms(func: Any, bound: Mapping[str, Any], results: Sequence[Tensor], flops: int) -> int:
    """The number of terms that one call sums into one element: K of a product, the extent of a reduction."""
    operands = tensors_in(list(bound.values()))
    if flops and results:
        return max(1, flops // max(1, 2 * results[0].numel()))
    base = name_of(func)
    if base in ("cumsum", "cumprod", "logcumsumexp", "_softmax", "_log_softmax") and operands[0].dim():
        return int(operands[0].shape[bound["dim"]])
    if base.startswith("nll_loss"):
        return max(1, operands[1].numel())
    if base in _SUMMING or base in NORMALISING or "avg_pool" in base or "loss" in base:
        sizes = [t.numel() for t in results if t.is_floating_point() and t.numel()]
        return max(1, operands[0].numel() // min(sizes, default=operands[0].numel() or 1))
    return 1
