"""Drawing the inputs of a native task from their declarations."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from warpsmith.core.errors import TaskError
from warpsmith.core.task import TensorSpec
from warpsmith.tasks import declare
from warpsmith.tasks import variants as distributions
from warpsmith.tasks.program import DTYPES, dtype_name
from warpsmith.tasks.usercode import Attempt


def drawn(
    declared: declare.TensorDeclaration,
    spec: TensorSpec,
    sizes: Mapping[str, int],
    generator: torch.Generator,
    path: Path,
) -> Tensor:
    """One input as declared, before any variant."""
    name, shape, dtype, device = spec.name, spec.shape(sizes), DTYPES[spec.dtype], generator.device
    if not isinstance(declared, declare.Custom):
        return _draw(declared, shape, dtype, sizes, generator)
    with Attempt(path) as attempt:
        tensor = declared.fill(shape, generator, device)
    if isinstance(attempt.error, torch.OutOfMemoryError | MemoryError):
        raise attempt.error  # the judge's business: it goes on with a smaller workload
    attempt.complain(f"the function that fills {name!r}")
    if not isinstance(tensor, Tensor) or tuple(tensor.shape) != shape:
        got = list(tensor.shape) if isinstance(tensor, Tensor) else repr(tensor)
        raise TaskError(f"{path}: {name!r} must be filled with a tensor of shape {list(shape)}, not {got}.")
    if declared.dtype is None and not tensor.is_floating_point():
        kind = dtype_name(tensor)
        raise TaskError(f"{path}: {name!r} is filled with {kind} values; say so with dtype={kind!r}.")
    return tensor.to(device=device, dtype=dtype)


def _draw(
    declared: declare.TensorDeclaration,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    sizes: Mapping[str, int],
    generator: torch.Generator,
) -> Tensor:
    """One tensor from its distribution; narrow types are drawn in float32 and rounded."""
    device = generator.device
    wide = dtype if dtype in (torch.float64, torch.complex64, torch.complex128) else torch.float32
    match declared:
        case declare.Normal(mean=mean, std=std):
            values = torch.randn(shape, generator=generator, device=device, dtype=wide)
            if std != 1 or mean != 0:
                values = values * std + mean
        case declare.Uniform(low=low, high=high):
            values = torch.rand(shape, generator=generator, device=device, dtype=wide)
            if (low, high) != (0.0, 1.0):
                values = (values * (high - low) + low).clamp(low, high)
        case declare.Integers(low=low, high=high):
            first, last = (sizes[bound] if isinstance(bound, str) else bound for bound in (low, high))
            return torch.randint(first, last, shape, generator=generator, device=device).to(dtype)
        case declare.Booleans(p=p):
            return torch.rand(shape, generator=generator, device=device) < p
        case declare.Probabilities():
            values = torch.softmax(torch.randn(shape, generator=generator, device=device, dtype=wide), dim=-1)
        case _:
            raise AssertionError(f"no way to draw {declared!r}")
    return values.to(dtype)


def domain_of(declared: declare.TensorDeclaration, dtype: str) -> distributions.Domain | None:
    """What a variant may do to a declared tensor."""
    if dtype in declare.COMPLEX or dtype.startswith("float8"):
        return None
    match declared:
        case declare.Normal(mean=mean, std=std):
            return distributions.Domain(centre=mean, scale=std)
        case declare.Uniform(low=low, high=high):
            return distributions.Domain(low, high, (low + high) / 2, (high - low) / 4)
        case declare.Probabilities():
            return distributions.Domain(low=0.0, high=1.0, simplex=True)
        case _:
            return None
