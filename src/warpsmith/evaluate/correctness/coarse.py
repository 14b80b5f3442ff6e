"""Arithmetic one step coarser than a task's class allows, to see whether the task would notice.

`rounded` cuts the mantissa of values; `CoarseProducts` does so to the operands of every matrix product and
convolution while it is active, as tensor cores do. Only impostors are computed with this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from warpsmith.core.task import Precision

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
class Step:
    """A coarser arithmetic."""

    name: str
    bits: int  # of the mantissa, without the leading one

    @property
    def roundoff(self) -> float:
        """The largest relative error of rounding to it."""
        return float(2.0 ** -(self.bits + 1))


BELOW: Mapping[Precision, Step] = {
    Precision.FP64: Step("fp32", 23),
    Precision.FP32: Step("tf32", 10),
    Precision.TF32: Step("bf16", 7),
    Precision.FP16: Step("fp8", 3),
    Precision.BF16: Step("fp8", 3),
}
"""The next coarser arithmetic of each class that hardware offers."""


def rounded(tensor: Tensor, bits: int) -> Tensor:
    """The same values with so many bits of mantissa, to nearest; whole numbers, NaN and Inf stay as they are."""
    if tensor.is_complex():
        return torch.view_as_complex(rounded(torch.view_as_real(tensor).contiguous(), bits))
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
    """Rounds what goes into products; sums and all else stay exact."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: telling torch.compile to skip this mode would import it, which costs seconds per process."""
        return False

    def __init__(self, bits: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._bits = bits
        self.seen = 0  # products met

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs the operator, a product on rounded operands."""
        name = func._schema.name.removeprefix("aten::")
        multiplied = _THREE if name.startswith(_ATTENTION) else _PRODUCTS.get(name, ())
        if multiplied:
            self.seen += 1
            args = tuple(self._operand(value) if i in multiplied else value for i, value in enumerate(args))
        return func(*args, **(kwargs or {}))

    def _operand(self, value: object) -> object:
        if isinstance(value, Tensor):
            return rounded(value, self._bits)
        if isinstance(value, list | tuple) and value and all(isinstance(each, Tensor) for each in value):
            return [rounded(each, self._bits) for each in value]
        return value
