"""Arithmetic one step coarser than a task's precision allows, to compute impostors with.

`round_mantissa` rounds values; `CoarseProducts` rounds the operands of every matrix product and convolution.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from warpsmith.model.task import Precision

_BLOCK_ELEMENTS = 1 << 22  # rounded at a time, so that temporaries stay small
_PAIR, _AFTER_SUMMAND, _THREE = (0, 1), (1, 2), (0, 1, 2)
_PRODUCTS: Mapping[str, tuple[int, ...]] = {  # the arguments that are multiplied
    **dict.fromkeys(("mm", "bmm", "linear", "_cdist_forward", "_euclidean_dist"), _PAIR),
    **dict.fromkeys(("addmm", "baddbmm", "addbmm"), _AFTER_SUMMAND),
    **dict.fromkeys(("convolution", "_convolution", "mkldnn_convolution", "convolution_overrideable"), _PAIR),
    **dict.fromkeys(("cudnn_convolution", "cudnn_convolution_transpose"), _PAIR),
    **dict.fromkeys(("_trilinear", "_cudnn_rnn"), _THREE),
    "mkldnn_rnn_layer": (0, 1, 2, 5),
}
_ATTENTION = "_scaled_dot_product"


@dataclass(frozen=True)
class CoarserPrecision:
    """An arithmetic with fewer bits."""

    name: str
    bits: int  # of the mantissa, without the leading one

    @property
    def roundoff(self) -> float:
        """The largest relative error of rounding to it."""
        return float(2.0 ** -(self.bits + 1))


NEXT_COARSER: Mapping[Precision, CoarserPrecision] = {
    Precision.FP64: CoarserPrecision("fp32", 23),
    Precision.FP32: CoarserPrecision("tf32", 10),
    Precision.TF32: CoarserPrecision("bf16", 7),
    Precision.FP16: CoarserPrecision("fp8", 3),
    Precision.BF16: CoarserPrecision("fp8", 3),
}
"""For each precision the next coarser arithmetic that hardware offers."""


def round_mantissa(tensor: Tensor, bits: int) -> Tensor:
    """The values rounded to nearest with this many bits of mantissa; integers, NaN and Inf do not change."""
    if tensor.is_complex():
        return torch.view_as_complex(round_mantissa(torch.view_as_real(tensor).contiguous(), bits))
    if not tensor.is_floating_point():
        return tensor
    result = tensor.contiguous().clone()
    flat = result.view(-1)
    for start in range(0, flat.numel(), _BLOCK_ELEMENTS):
        block = flat[start : start + _BLOCK_ELEMENTS]
        wide = block.double()
        mantissa, exponent = torch.frexp(wide)
        coarse = torch.ldexp(torch.round(mantissa * 2.0 ** (bits + 1)), exponent - (bits + 1))
        block.copy_(torch.where(wide.isfinite(), coarse, wide))
    return result


class CoarseProducts(TorchDispatchMode):
    """Rounds the operands of products while it is active, as tensor cores do; all other arithmetic is unchanged."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: telling torch.compile to skip this mode would import torch.compile, which costs seconds."""
        return False

    def __init__(self, bits: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._bits = bits
        self.seen = 0  # how many products were called

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator; a product with rounded operands."""
        name = func._schema.name.removeprefix("aten::")
        multiplied = _THREE if name.startswith(_ATTENTION) else _PRODUCTS.get(name, ())
        if multiplied:
            self.seen += 1
            args = tuple(self._operand(value) if i in multiplied else value for i, value in enumerate(args))
        return func(*args, **(kwargs or {}))

    def _operand(self, value: object) -> object:
        if isinstance(value, Tensor):
            return round_mantissa(value, self._bits)
        if isinstance(value, list | tuple) and value and all(isinstance(each, Tensor) for each in value):
            return [round_mantissa(each, self._bits) for each in value]
        return value
