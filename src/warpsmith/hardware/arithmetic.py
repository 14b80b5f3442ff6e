"""How much each ATen operator computes: the other half of the knowledge behind `work`.

Counts follow torch's own FLOP counter, with formulas for the contractions it does not know. What cannot be
avoided (`unavoidable`) is a lower bound; the plain counts are the textbook's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils import flop_counter

from warpsmith.hardware.operators import (
    CONVOLUTIONS,
    COPIES,
    GATHERS,
    NORMALISING,
    PRODUCTS,
    SCATTERS,
    bind,
    conv_coverage,
    name_of,
    tensors_in,
)

_SUMMING = frozenset(
    {
        "sum",
        "mean",
        "var",
        "std",
        "var_mean",
        "std_mean",
        "logsumexp",
        "norm",
        "linalg_vector_norm",
        "nansum",
        "prod",
    }
)
_WINOGRAD_OTHER = 2.25  # allowance for any convolution, whatever its shape
_TRANSFORM_PRODUCTS = 1.5  # real products per output point that a tiled Fourier convolution still needs
_STRASSEN_TWICE = (8 / 7) ** 2


def contraction_flops(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
    """Operations of a matrix product, convolution, attention or recurrent layer; 0 for anything else."""
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
    """A contraction whose operations might be unavoidable."""

    left: Tensor
    right: Tensor
    flops: int  # after allowing for the best known algorithm


def unavoidable(func: Any, bound: Mapping[str, Any], result: Tensor, flops: int) -> Contraction | None:
    """The operations no known algorithm saves, for plain products and convolutions; None for the rest.

    Allowances: Strassen twice for matrix products with no extent of 1. For convolutions the larger of 2.25
    and what a tiled Fourier transform saves in each phase of the stride (6 for 3x3 at stride 1, where
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
    """One per element of the larger side of a floating-point operation; none for moves."""
    base = name_of(func).rstrip("_")
    moves = COPIES | GATHERS | SCATTERS | {"cat", "stack", "fill", "zero", "constant_pad_nd", "tril", "triu"}
    if not operands or base in moves or base.endswith("_like") or base.startswith("new_"):
        return 0
    return max((t.numel() for t in (*operands, *results) if t.is_floating_point()), default=0)


def summed_terms(func: Any, bound: Mapping[str, Any], results: Sequence[Tensor], flops: int) -> int:
    """How many terms one call sums into one element: K of a product, the reduced extent of a reduction."""
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
