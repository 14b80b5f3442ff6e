"""Input distributions besides the task's own, so that a kernel cannot be right for one kind of data only.

A tensor is changed only within its domain: a probability stays a probability and an index stays an index. A
variant may be bold; the judge drops one in which PyTorch itself overflows or loses all accuracy. Those of
`HELD_OUT` are kept for verifying winners: no ordinary evaluation uses them.

A tensor whose elements are all equal (a new module's weights of 1 and biases of 0) says nothing about a kernel that
ignores it. Every variant but "own" draws such a tensor at random, with the sign of its constant.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

OWN = "own"
CONSTANTS = "constants"
"""Constant tensors drawn at random, all others as usual."""
UNIT_CONSTANTS = "unit constants"
_FLIPPED = 1 / 8  # of a constant tensor: the share of booleans, and of signs where any sign is valid, that change
_FEW_TRUE = 0.1  # of booleans: how many are left as they are
_FEW = 4096  # values that "rare" leaves
_STRETCHES = 16  # of an "uneven" tensor, along each of two axes
_STEEP = 8  # how much larger than usual its large stretches are, where nothing bounds them
_SHORT_STRETCH, _STRETCH_SIZE = 1024, 64  # one such part of each row is so many times larger in "stretch"
_PATCH_PARTS = (1024, 2048, 4096, 8192)  # in one of so many parts of a whole tensor values are larger in "patch",
_PATCH_SIZE = 1 / 16  # by this times the number of parts
_LARGEST_SPIKE = 1e6  # times the scale: decides a mean of up to 100 million values
_MOVED, _SCALED = 0.25, 0.2  # the most by which inputs of timed calls are shifted (times their scale) and scaled
_SIMPLEX = {"large": 4.0, "small": 0.25}  # by how much rows of probabilities are sharpened or flattened
_BELOW_HALF: Mapping[torch.dtype, tuple[torch.dtype, int, int]] = {
    # Bits that follow the mantissa of a coarser type, set just below one half; float32 serves TF32 and bfloat16.
    torch.float64: (torch.int64, 0xF << 25, 0x7 << 25),
    torch.float32: (torch.int32, 0xFE00, 0x6E00),
    torch.float16: (torch.int16, 0x78, 0x38),
    torch.bfloat16: (torch.int16, 0xF, 0x7),
}
_SAMPLES = 1 << 16  # values looked at to infer a domain
_STRUCTURE_ZEROS = 0.3  # a share of exact zeros above this is a structure (triangle, mask), not chance


@dataclass(frozen=True)
class Domain:
    """The values a tensor may take: a range, possibly infinite, and the scale its own values have."""

    low: float = -math.inf
    high: float = math.inf
    centre: float = 0.0
    scale: float = 1.0
    guessed: bool = False  # inferred from a sample: nobody said that values beyond it are not meant
    simplex: bool = False  # rows that add up to one: whatever is done to them, they do so afterwards
    constant: float | None = None  # the value of all elements, if it is always the same
    signed: bool = False  # a constant that may as well be negative, e.g. the weight of a norm
    share: float | None = None  # of booleans: how many are true; another share is as valid

    @property
    def bounded(self) -> bool:
        """Whether a bound is nearer than infinity."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def has_zero(self) -> bool:
        """Whether zero may occur."""
        return self.low <= 0 <= self.high


def is_constrained(domain: Domain | None) -> bool:
    """True if values depend on each other, so that a kernel may rely on that; None is a structure that is not known."""
    return domain is None or domain.simplex or domain.share is not None


Change = Callable[[Tensor, Domain, torch.Generator], Tensor]
AnyChange = Callable[[Tensor, Domain | None, torch.Generator], Tensor]


def _large(x: Tensor, domain: Domain, generator: torch.Generator) -> Tensor:
    """A hundred times as large, or pushed to the edges of a bounded domain."""
    if not domain.bounded:
        return x * 100
    middle = (domain.low + domain.high) / 2
    return torch.where(x < middle, domain.low + (x - domain.low) * 0.01, domain.high - (domain.high - x) * 0.01)


def _small(x: Tensor, domain: Domain, generator: torch.Generator) -> Tensor:
    return x * 0.01


def _positive(x: Tensor, domain: Domain, generator: torch.Generator) -> Tensor:
    return x.abs()


def _negative(x: Tensor, domain: Domain, generator: torch.Generator) -> Tensor:
    return -x.abs()


def _sparse(x: Tensor, domain: Domain, generator: torch.Generator) -> Tensor:
    keep = torch.rand(x.shape, generator=generator, device=x.device) < 0.1
    return x * keep


def _ties(x: Tensor, domain: Domain, generator: torch.Generator) -> Tensor:
    """Rounded to a few levels, so that equal values are common."""
    step = (domain.high - domain.low) / 4 if domain.bounded else domain.scale or 1.0
    origin = domain.low if domain.bounded else domain.centre
    return torch.round((x - origin) / step) * step + origin


def _integers(x: Tensor, domain: Domain, generator: torch.Generator) -> Tensor:
    """Small whole numbers: sums of products of them are exact, so that any rounding shows."""
    low, high = math.ceil(max(-4.0, domain.low)), math.floor(min(4.0, domain.high))
    return torch.randint(low, high + 1, x.shape, generator=generator, device=x.device).to(x.dtype)


def _centred(x: Tensor, domain: Domain, generator: torch.Generator) -> Tensor:
    """Of both signs. Sums of positive values hide low precision, because their rounding errors average out."""
    return (x - domain.centre) * 2


def _rare(x: Tensor, domain: Domain, generator: torch.Generator) -> Tensor:
    """A few thousand values in all, so that no part of a sum can be guessed from the rest."""
    keep = torch.rand(x.shape, generator=generator, device=x.device) < min(0.1, _FEW / max(x.numel(), 1))
    return x * keep


def _uneven(x: Tensor, domain: Domain, generator: torch.Generator) -> Tensor:
    """Stretches of large and small values in turn, from first to last and within each row, so that none can be guessed
    from the one before it."""
    anchor = domain.low if domain.bounded else 0.0
    result = (x - anchor) * _stretches(x.numel(), domain, generator, x).view(x.shape)
    if x.dim() > 1:
        result *= _stretches(x.shape[-1], domain, generator, x)
    return result + anchor if anchor else result


def _stretches(count: int, domain: Domain, generator: torch.Generator, like: Tensor) -> Tensor:
    """So many factors, large and small in turn."""
    drawn = torch.rand(1 + _STRETCHES, generator=generator, device=like.device, dtype=like.dtype)
    turn = torch.arange(_STRETCHES, device=like.device) % 2 == (drawn[0] < 0.5)
    most = 1 if domain.bounded else _STEEP
    parts = torch.where(turn, most * (1 - 0.2 * drawn[1:]), 0.2 * drawn[1:])
    ends = [count * (number + 1) // _STRETCHES for number in range(_STRETCHES)]
    lengths = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    return torch.cat([part.expand(length) for part, length in zip(parts, lengths, strict=True)])


def _one_sided(x: Tensor, domain: Domain, generator: torch.Generator) -> Tensor:
    """Values that rounding to the next coarser type always makes smaller, so that its errors add up."""
    kind, mask, pattern = _BELOW_HALF[x.dtype]
    bits = (x.contiguous().view(kind) & ~mask) | pattern
    return torch.where(x == 0, x, bits.view(x.dtype))


def _stretch(x: Tensor, domain: Domain, generator: torch.Generator) -> Tensor:
    """As usual, but for one short stretch of each row, where values are much larger or at the upper bound: too short
    for samples to show it, and large enough to decide a sum."""
    if not x.dim():
        return x
    count = x.shape[-1]
    length = max(1, count // _SHORT_STRETCH)
    start = int(torch.randint(count - length + 1, (1,), generator=generator, device=x.device))
    part = x[..., start : start + length]
    part.copy_(torch.full_like(part, domain.high) if domain.high < math.inf else part * _STRETCH_SIZE)
    return x


def _spike(x: Tensor, domain: Domain, generator: torch.Generator) -> Tensor:
    """As usual, but for one value of each row, which decides a sum over it, and is the largest by far."""
    if not x.dim():
        return x
    where = torch.randint(x.shape[-1], (*x.shape[:-1], 1), generator=generator, device=x.device)
    size = min(max(x.shape[-1] / 4, 16.0), _LARGEST_SPIKE)
    value = domain.centre + size * (domain.scale or 1.0)
    return x.scatter_(-1, where, min(value, domain.high))


def _patch(x: Tensor, domain: Domain, generator: torch.Generator) -> Tensor:
    """As usual, but for one short stretch of the whole tensor from first to last: a few rows, or a part of one."""
    if not x.numel():
        return x
    rng = _place(generator)
    parts = rng.choice(_PATCH_PARTS)
    _enlarge(x.view(-1), parts, parts * _PATCH_SIZE, domain, rng)
    return x


def _row_patch(x: Tensor, domain: Domain, generator: torch.Generator) -> Tensor:
    """As usual, but for a short stretch of a single row: a look at some of the rows, however they are chosen, does not
    tell what is in the others."""
    if not x.numel():
        return x
    rng = _place(generator)
    rows = x.view(-1, x.shape[-1]) if x.dim() else x.view(1, 1)
    _enlarge(rows[rng.randrange(len(rows))], _SHORT_STRETCH, _PATCH_SIZE * max(_PATCH_PARTS), domain, rng)
    return x


def _place(generator: torch.Generator) -> random.Random:
    """Random numbers for a place, which do not follow from those of `_move`: a kernel may find out the latter."""
    return random.Random(generator.initial_seed() + 1)


def _enlarge(values: Tensor, parts: int, size: float, domain: Domain, rng: random.Random) -> None:
    """Multiply one of so many parts of these values, or raise it to the upper bound, in place."""
    length = max(1, len(values) // parts)
    start = rng.randrange(len(values) - length + 1)
    part = values[start : start + length]
    part.copy_(torch.full_like(part, domain.high) if domain.high < math.inf else part * size)


_CHANGES: Mapping[str, Change] = {
    "centred": _centred,
    "large": _large,
    "small": _small,
    "positive": _positive,
    "negative": _negative,
    "sparse": _sparse,
    "ties": _ties,
    "integers": _integers,
    "stretch": _stretch,
    "spike": _spike,
    "patch": _patch,
    "row patch": _row_patch,
}
HIDDEN = ("stretch", "spike", "patch", "row patch")
"""Variants that a sample of the values does not show. All else about them is as in usual timed calls (`move`): a kernel
that saw a difference could be careful in these calls only. The largest value of a bounded domain is then not the bound
either, which the largest of many values comes arbitrarily near to."""
_RESERVED: Mapping[str, Change] = {"rare": _rare, "uneven": _uneven, "one-sided": _one_sided}
NAMES = (OWN, *_CHANGES, CONSTANTS)
RESERVE = (*_RESERVED, UNIT_CONSTANTS)
"""Variants for tasks on which the others let a wrong result pass."""


def _heavy_tails(x: Tensor, domain: Domain, generator: torch.Generator) -> Tensor:
    """Most values as usual, a few hundreds of times larger; in a bounded domain, crowded at one end."""
    if domain.bounded:
        return domain.low + (domain.high - domain.low) * ((x - domain.low) / (domain.high - domain.low)) ** 8
    spread = torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
    return x * torch.exp(1.5 * spread)


def _sorted_rows(x: Tensor, domain: Domain, generator: torch.Generator) -> Tensor:
    return x.sort(dim=-1).values if x.dim() else x


def _constant_rows(x: Tensor, domain: Domain, generator: torch.Generator) -> Tensor:
    return x[..., :1].expand_as(x).contiguous() if x.dim() else x


def _offset(x: Tensor, domain: Domain, generator: torch.Generator) -> Tensor:
    """Far from zero, spread as usual: a difference of squares loses all its digits here."""
    return x + 300 * (domain.scale or 1.0)


def _spikes(x: Tensor, domain: Domain, generator: torch.Generator) -> Tensor:
    """One huge value in every row."""
    if not x.dim():
        return x
    where = torch.randint(x.shape[-1], (*x.shape[:-1], 1), generator=generator, device=x.device)
    huge = domain.high if domain.high < math.inf else domain.centre + 1e4 * (domain.scale or 1.0)
    return x.scatter(-1, where, huge)


def _alternating(x: Tensor, domain: Domain, generator: torch.Generator) -> Tensor:
    if not x.dim():
        return x
    signs = 1 - 2 * (torch.arange(x.shape[-1], device=x.device) % 2)
    return x.abs() * signs.to(x.dtype)


def _tiny(x: Tensor, domain: Domain, generator: torch.Generator) -> Tensor:
    """As small as normal numbers of the type get; `apply_variant` brings the size of the type."""
    return x / (domain.scale or 1.0)


def _two_points(x: Tensor, domain: Domain, generator: torch.Generator) -> Tensor:
    """Mean and variance as usual, and only two values."""
    up = torch.rand(x.shape, generator=generator, device=x.device) < 0.5
    return domain.centre + torch.where(up, domain.scale, -domain.scale).to(x.dtype)


def _box(x: Tensor, domain: Domain, generator: torch.Generator) -> Tensor:
    """Mean and variance as usual, and the same density everywhere between two bounds."""
    drawn = torch.rand(x.shape, generator=generator, device=x.device, dtype=x.dtype)
    return domain.centre + domain.scale * math.sqrt(12) * (drawn - 0.5)


def _mixture(x: Tensor, domain: Domain, generator: torch.Generator) -> Tensor:
    """Mean and variance as usual: a tenth of the values is twice as far from the mean, the others are nearer."""
    far = torch.rand(x.shape, generator=generator, device=x.device) < 0.1
    return domain.centre + (x - domain.centre) * torch.where(far, 2.0, math.sqrt(0.6 / 0.9)).to(x.dtype)


def _moved(x: Tensor, domain: Domain, generator: torch.Generator) -> Tensor:
    return _move(x.clone(), domain, generator)


def _move(x: Tensor, domain: Domain, generator: torch.Generator) -> Tensor:
    """Slightly shifted and scaled in place, within the domain; numbers that a GPU drew would have to be waited for."""
    rng = random.Random(generator.initial_seed())
    if math.isfinite(domain.low) or math.isfinite(domain.high):
        anchor = domain.low if math.isfinite(domain.low) else domain.high
        factor = 1 - _SCALED * rng.random()
        return x.mul_(factor).add_(anchor * (1 - factor)).clamp_(domain.low, domain.high)
    return x.mul_(1 + _SCALED * rng.uniform(-1, 1)).add_(_MOVED * rng.uniform(-1, 1) * domain.scale)


_HELD_OUT_CHANGES: Mapping[str, Change] = {
    "heavy-tailed": _heavy_tails,
    "sorted": _sorted_rows,
    "row-constant": _constant_rows,
    "offset": _offset,
    "spiked": _spikes,
    "alternating": _alternating,
    "tiny": _tiny,
    "two-point": _two_points,
    "box": _box,
    "mixture": _mixture,
    "moved": _moved,
}
HELD_OUT = tuple(_HELD_OUT_CHANGES)


def _on_simplex(variant: str, x: Tensor, generator: torch.Generator) -> Tensor:
    """Rows of probabilities as a variant wants them: sharper, flatter, in another order, in stretches."""
    if variant == "sorted":
        return _sorted_rows(x, Domain(), generator)
    if variant == "uneven":
        weighed = x * _stretches(x.shape[-1], Domain(), generator, x)
        return weighed / weighed.sum(dim=-1, keepdim=True)
    logits = x.clamp_min(torch.finfo(x.dtype).tiny).log_()
    if variant == "heavy-tailed":
        return torch.softmax(_heavy_tails(logits, Domain(), generator).clamp_min_(-60), dim=-1)
    return torch.softmax(logits.mul_(_SIMPLEX[variant]), dim=-1)


KNOWN = (*NAMES, *RESERVE, *HELD_OUT)


def applies(variant: str, domain: Domain | None) -> bool:
    """Whether a variant changes tensors of this domain; None is a domain that must be left alone."""
    if variant == OWN or domain is None:
        return False
    if domain.share is not None:
        return variant in ("sparse", "large")
    if domain.constant is not None or variant in (CONSTANTS, UNIT_CONSTANTS):
        return domain.constant is not None and variant in (CONSTANTS, UNIT_CONSTANTS)
    if domain.simplex:
        return variant in (*_SIMPLEX, "uneven", "sorted", "heavy-tailed")
    if variant == "centred":
        return domain.guessed and domain.low >= 0
    if variant in ("small", "sparse", "tiny", "rare"):
        return domain.has_zero
    if variant == "offset":
        return not math.isfinite(domain.high)
    if variant in ("positive", "negative", "alternating"):
        return domain.low < 0 < domain.high
    if variant == "integers":
        return math.floor(min(4.0, domain.high)) > math.ceil(max(-4.0, domain.low))
    return variant in KNOWN


def apply_variant(variant: str, tensor: Tensor, domain: Domain | None, generator: torch.Generator) -> Tensor:
    """The tensor as the variant wants it, inside its domain, in its own type; unchanged where it does not apply."""
    if domain is not None and domain.constant is not None and variant != OWN:
        return draw_constant(tensor.shape, tensor.dtype, domain, generator, unit=variant == UNIT_CONSTANTS)
    if variant in HIDDEN:
        tensor = move(tensor.clone(memory_format=torch.contiguous_format), domain, generator)
    if domain is None or not applies(variant, domain):
        return tensor
    if domain.share is not None:
        few = torch.rand(tensor.shape, generator=generator, device=tensor.device) < _FEW_TRUE
        return tensor & few if variant == "sparse" else tensor | ~few
    exact = tensor.to(torch.float32) if tensor.itemsize < 4 and variant != "one-sided" else tensor
    if domain.simplex:
        return (_on_simplex(variant, exact, generator) if exact.dim() else exact).to(tensor.dtype)
    change = _CHANGES.get(variant) or _RESERVED.get(variant) or _HELD_OUT_CHANGES[variant]
    changed = change(exact, domain, generator)
    if variant == "tiny":
        changed = changed * (64 * torch.finfo(tensor.dtype).tiny)
    elif variant == "spike":
        changed = changed.clamp_max(torch.finfo(tensor.dtype).max / 2)
    if variant != "centred" and (domain.low > -math.inf or domain.high < math.inf):
        changed = changed.clamp(domain.low, domain.high)
    return changed.to(tensor.dtype)


def draw_constant(
    shape: Sequence[int], dtype: torch.dtype, domain: Domain, generator: torch.Generator, *, unit: bool = False
) -> Tensor:
    """Random values for a constant tensor: as large as its constant (`unit`: at least about 1), normal ones for 0."""
    constant, device = domain.constant or 0.0, generator.device
    drawn = torch.rand(shape, generator=generator, device=device)
    if dtype is torch.bool:
        return (drawn < _FLIPPED) ^ bool(constant)
    if constant == 0.0:
        return torch.randn(shape, generator=generator, device=device).to(dtype)
    size = 1.0 if unit and abs(constant) < 1 else abs(constant)
    highest = min(1.5, 1 / size) if size < 1 else 1.5  # what may be a share or a probability stays below 1
    values = (0.5 + (highest - 0.5) * drawn) * math.copysign(size, constant)
    if domain.signed:
        values = torch.where(torch.rand(shape, generator=generator, device=device) < _FLIPPED, -values, values)
    return values.to(dtype)


def move(tensor: Tensor, domain: Domain | None, generator: torch.Generator) -> Tensor:
    """The tensor of a timed call, slightly shifted and scaled within its domain (in place), so that nothing about it is
    known in advance; a constant tensor drawn at random. What has a structure stays as it is."""
    if domain is not None and domain.constant is not None:
        return draw_constant(tensor.shape, tensor.dtype, domain, generator)
    if domain is None or domain.simplex:
        return tensor
    if domain.share is not None:
        rng = random.Random(generator.initial_seed())
        drawn = torch.rand(tensor.shape, generator=generator, device=tensor.device) < _SCALED * rng.random()
        return tensor | drawn if rng.random() < 0.5 else tensor & ~drawn
    return _move(tensor, domain, generator)


def timed_change(variant: str) -> AnyChange:
    """What is done to a tensor of a timed call."""
    return move if variant == OWN else partial(apply_variant, variant)


def constant_domain(tensor: Tensor, *, signed: bool = False) -> Domain | None:
    """The domain of a floating or boolean tensor whose elements are all equal; None for another tensor."""
    if not tensor.numel() or (tensor.itemsize == 1 and tensor.dtype is not torch.bool):
        return None
    if not tensor.is_floating_point() and tensor.dtype is not torch.bool:
        return None
    flat = tensor.reshape(-1)
    value = float(flat[0])
    if not math.isfinite(value) or not all(bool((part == flat[0]).all()) for part in (flat[:_FEW], flat)):
        return None
    return Domain(centre=value, scale=0.0, constant=value, signed=signed)


def variant_names(domains: Mapping[str, Domain | None], held_out: bool = False) -> tuple[str, ...]:
    """The variants that change at least one tensor of a task, after "own"."""
    kept = (*(HELD_OUT if held_out else _CHANGES), CONSTANTS)
    return (OWN, *(v for v in kept if any(applies(v, domain) for domain in domains.values())))


def infer_domain(tensor: Tensor) -> Domain | None:
    """The domain of a tensor nobody declared, judged by a sample of its values; None when it has a structure."""
    if not tensor.is_floating_point() or tensor.numel() == 0 or tensor.itemsize == 1:
        return None
    generator = torch.Generator().manual_seed(0)
    count = min(_SAMPLES, tensor.numel())
    where = torch.randint(tensor.numel(), (count,), generator=generator).to(tensor.device)
    values = tensor.reshape(-1)[where].to(torch.float64).cpu()
    low, high = float(values.min()), float(values.max())
    if not (math.isfinite(low) and math.isfinite(high)) or bool((values == values.round()).all()):
        return None  # a mask, a label, a constant, or something only its author understands
    if float((values == 0).double().mean()) > _STRUCTURE_ZEROS or _is_structured(tensor):
        return None
    if low >= 0 and _add_up(tensor, lambda rows: rows):
        return Domain(low=0.0, high=1.0, simplex=True, guessed=True)
    spread = float(values.std()) if count > 1 else 1.0
    centre = float(values.mean())
    if low < 0:
        return Domain(centre=centre, scale=spread)
    return Domain(low=0.0, high=1.0 if high <= 1 else high, centre=centre, scale=spread, guessed=True)


def _add_up(tensor: Tensor, meaning: Callable[[Tensor], Tensor]) -> bool:
    """Whether rows of what is meant by a tensor each add up to one."""
    if tensor.dim() == 0 or tensor.shape[-1] < 2:
        return False
    rows = meaning(_some_rows(tensor))
    return bool(((rows.sum(-1) - 1).abs() < (1e-5 if tensor.itemsize >= 4 else 1e-2)).all())


def _some_rows(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1, tensor.shape[-1])[:64].to(torch.float64)


def _is_structured(tensor: Tensor) -> bool:
    """Whether rows are logarithms of probabilities, or a matrix is symmetric."""
    if _add_up(tensor, torch.exp) and bool(_some_rows(tensor).max() <= 0):
        return True
    if tensor.dim() < 2 or tensor.shape[-1] != tensor.shape[-2]:
        return False
    side = min(64, tensor.shape[-1])
    corner = tensor[..., :side, :side].reshape(-1, side, side)[0]
    return bool((corner == corner.mT).all())
