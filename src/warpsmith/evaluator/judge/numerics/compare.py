"""Compares a result with its reference: scaled errors, missing numbers, and where the bad elements lie.

The rules of `tolerance`, `index_ties` and `poison` use it. In the usual case, all elements finite, a comparison takes
few passes and reads nothing back in between: on a GPU each read waits for the device. Only if that fails every block is
examined closely. Works on CPU and CUDA tensors in blocks, so that temporary memory does not grow with the tensors
(126 MB measured).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from warpsmith.evaluator.judge.numerics import gpu_passes
from warpsmith.model.evaluation import Status

BLOCK_ELEMENTS = 1 << 19  # a float64 temporary of this size is 4 MB; on a CPU larger blocks are no faster
CUDA_BLOCKS = 16  # that many of them at once on a GPU, where each operation costs a launch


@dataclass(frozen=True)
class OutputComparison:
    """Whether one output is right, and how near its error is to the limit."""

    status: Status  # OK, WRONG or UNWRITTEN
    error: float  # of the metric that is nearest to its limit; for exact rules the share of wrong elements
    limit: float
    share: float  # error ÷ limit
    reason: str = ""  # "" if the output is right

    @property
    def ok(self) -> bool:
        """True if the output is right."""
        return self.status is Status.OK

    @staticmethod
    def exact(wrong: int, count: int, reason: str, status: Status = Status.WRONG) -> OutputComparison:
        """The comparison by a rule without tolerance, which `wrong` of `count` elements break."""
        if not wrong:
            return OutputComparison(Status.OK, 0.0, 0.0, 0.0)
        return OutputComparison(status, wrong / count, 0.0, math.inf, reason)


def blocks(*tensors: Tensor, offset: int = 0) -> Iterator[tuple[int, tuple[Tensor, ...]]]:
    """Tensors of one shape in flat row-major blocks, each with the flat index of its first element."""
    shape, count = tensors[0].shape, tensors[0].numel()
    size = BLOCK_ELEMENTS * (CUDA_BLOCKS if tensors[0].is_cuda else 1)
    if count <= size:
        if count:
            yield offset, tuple(t.reshape(-1) for t in tensors)
    elif all(t.is_contiguous() for t in tensors):
        flat = [t.view(-1) for t in tensors]
        for start in range(0, count, size):
            yield offset + start, tuple(t[start : start + size] for t in flat)
    elif shape[0] == 1:
        yield from blocks(*(t[0] for t in tensors), offset=offset)
    else:  # slices of the first axis, so that reshape copies a block and never the whole tensor
        row = count // shape[0]
        step = max(1, size // row)
        for start in range(0, shape[0], step):
            yield from blocks(*(t[start : start + step] for t in tensors), offset=offset + start * row)


class BadElements:
    """Where the bad elements of a tensor lie: how many, the first, and their bounding box."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.count = 0
        self.first = -1  # flat index
        self._low = list(shape)
        self._high = [-1] * len(shape)

    def add(self, offset: int, bad: Tensor) -> None:
        """Add the elements of one block's mask."""
        self.add_positions(bad.nonzero().flatten() + offset)

    def add_positions(self, found: Tensor) -> None:
        """Add elements by flat indices, in rising order."""
        if not found.numel():
            return
        self.count += found.numel()
        if self.first < 0:
            self.first = int(found[0])
        for axis, along in enumerate(torch.unravel_index(found, self.shape) if self.shape else ()):
            self._low[axis] = min(self._low[axis], int(along.min()))
            self._high[axis] = max(self._high[axis], int(along.max()))

    def share_text(self, noun: str = "elements") -> str:
        """E.g. "12.5 % of the elements"; a handful is given as "3 of 4096 elements"."""
        total = math.prod(self.shape)
        if self.count < 10:
            return f"{self.count} of {total} {noun}"
        return f"{100 * self.count / total:.3g} % of the {noun}"

    def at(self, flat: int) -> str:
        """E.g. " at [3, 1023]"; nothing for a 0-d tensor."""
        return f" at {unravel(flat, self.shape)}" if self.shape else ""

    def box_text(self, name: str) -> str:
        """E.g. "; all of them lie in out[:, 1000:1024]" where that is a strict part of the tensor."""
        full = [(0, n - 1) for n in self.shape]
        box = list(zip(self._low, self._high, strict=True))
        if self.count < 2 or box == full:
            return ""
        parts = [
            ":" if b == f else f"{b[0]}:{b[1] + 1}" if b[1] > b[0] else f"{b[0]}"
            for b, f in zip(box, full, strict=True)
        ]
        return f"; all of them lie in {name}[{', '.join(parts)}] of shape {list(self.shape)}"


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors hold the same bytes; a NaN is equal to itself."""
    return torch.equal(*(t.contiguous().view(-1).view(torch.uint8) for t in (a, b)))


def dtype_name(tensor: Tensor) -> str:
    """Torch's own name without the prefix: a key of `model.task.DTYPE_BYTES`."""
    return str(tensor.dtype).removeprefix("torch.")


def real_views(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Detached, complex as pairs of reals; all of one shape."""
    out = tuple((torch.view_as_real(t) if t.is_complex() else t).detach() for t in tensors)
    if any(t.shape != out[0].shape for t in out):
        raise ValueError(f"compared tensors differ in shape: {[list(t.shape) for t in out]}")
    return out


def element(tensor: Tensor, flat: int) -> float | int:
    """One element by its flat index."""
    value: float | int = tensor[tuple(unravel(flat, tuple(tensor.shape)))].item()
    return value


def unravel(flat: int, shape: tuple[int, ...]) -> list[int]:
    """The index of a flat position, without a tensor."""
    index: list[int] = []
    for extent in reversed(shape):
        index.append(flat % extent)
        flat //= extent
    return index[::-1]


ROUNDOFF: Mapping[str, float] = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float8_e4m3fn": 2.0**-4,
    "float8_e5m2": 2.0**-3,
    "complex64": 2.0**-24,
    "complex128": 2.0**-53,
}
_LARGE = 1e100  # squares of numbers up to this, and down to its inverse, are neither infinite nor lost in float64


@dataclass(frozen=True)
class Errors:
    """Scaled errors of one output against its fp64 reference."""

    maximum: float
    rms: float
    scale: float = 0.0  # the s they are relative to; 0 where no reference was at hand


def magnitude(reference: Tensor, dtype: torch.dtype) -> float:
    """The scale s: the rms of the elements that are finite in the output's type.

    Without any magnitude to relate to (all zero) it is 1: an absolute rule, under which only
    rounding-size residues pass. It is never so small that results flushed to zero, or rounded to a
    subnormal number, would count as errors.
    """
    info = torch.finfo(dtype)
    norm, count = _plain_norm(reference, min(info.max, _LARGE)), reference.numel()
    if norm is None:
        norm, count = _careful_norm(reference, dtype)
    if norm == 0.0:
        return 1.0
    name = str(dtype).removeprefix("torch.")
    # Kernels may flush float32 subnormals to zero (-ftz, -ffast-math); half and fp8 keep theirs.
    smallest = info.tiny if name in ("float64", "float32", "bfloat16") else info.smallest_normal * info.eps
    return max(norm / math.sqrt(count), smallest / ROUNDOFF[name])


def _plain_norm(reference: Tensor, largest: float) -> float | None:
    """The norm, without intermediate reads from the device; None if an element is not finite or squares would
    overflow or vanish."""
    found = gpu_passes.norm_and_peak(reference) or _norm_and_peak(reference)
    if found is None:
        return 0.0
    norm, peak = found
    return norm if 1 / _LARGE <= peak <= largest or peak == 0.0 else None


def _norm_and_peak(reference: Tensor) -> tuple[float, float] | None:
    """`gpu_passes.norm_and_peak` in PyTorch's operations; None if there is no element."""
    norms, peaks = [], []
    for _, (r,) in blocks(reference):
        exact = r.double()
        norms.append(torch.linalg.vector_norm(exact))
        peaks.append(torch.linalg.vector_norm(exact, math.inf))
    if not norms:
        return None
    norm, peak = torch.stack([torch.linalg.vector_norm(torch.stack(norms)), torch.stack(peaks).max()]).tolist()
    return float(norm), float(peak)


def _careful_norm(reference: Tensor, dtype: torch.dtype) -> tuple[float, int]:
    """The norm of the elements that are finite in the output's type, and how many these are."""
    info = torch.finfo(dtype)
    norm, count = 0.0, 0
    for _, (r,) in blocks(reference):
        size = r.double().abs()
        peak, finite = float(size.max()), r.numel()
        if not peak <= info.max:  # NaN, Inf or overflow among them
            mask = r.to(dtype).double().isfinite()
            size = torch.where(mask, size, 0.0)
            peak, finite = float(size.max()), int(mask.sum())
        if peak > 0.0:  # divided by it, squares of no representable number overflow or vanish
            norm = math.hypot(norm, peak * float(torch.linalg.vector_norm(size / peak)))
        count += finite
    return norm, count


@dataclass(frozen=True)
class _ComparedBlock:
    """One block of a comparison."""

    offset: int  # flat index of its first element
    difference: Tensor  # |c - r| ÷ s; 0 for an element that is not compared by value
    denominator: Tensor  # (|r| + s) ÷ s
    by_value: int  # elements compared by value
    violated: Tensor | None  # NaN or Inf that should not be there, or is missing; None: nowhere


@dataclass(frozen=True)
class ComparedTensors:
    """The tensors of one comparison, as real tensors of one shape, and the scale of the reference."""

    result: Tensor
    reference: Tensor
    baseline: Tensor  # the result itself if there is no baseline
    has_baseline: bool
    scale: float

    @staticmethod
    def of(result: Tensor, reference: Tensor, baseline: Tensor | None, scale: float = 0.0) -> ComparedTensors:
        c, r, b = real_views(result, reference, result if baseline is None else baseline)
        return ComparedTensors(c, r, b, baseline is not None, scale or magnitude(r, c.dtype))

    def compare(self) -> Iterator[_ComparedBlock]:
        """Compare block by block."""
        largest = torch.finfo(self.result.dtype).max
        for offset, (c, r, b) in blocks(self.result, self.reference, self.baseline):
            result, exact = c.double(), r.double()
            difference, size = (result - exact).abs_(), exact.abs()
            if float(size.max()) <= largest and float(difference.max()) < math.inf:  # the usual case: all finite
                yield _ComparedBlock(offset, difference / self.scale, size / self.scale + 1.0, c.numel(), None)
                continue
            rounded = r.to(self.result.dtype).double()  # what a perfect result of this type would hold
            by_value = rounded.isfinite() & result.isfinite()
            allowed = by_value | (result == rounded) | (result.isnan() & rounded.isnan())
            if self.has_baseline:
                base = b.double()
                same = (result == base) | (result.isnan() & base.isnan())
                overflow = exact.isfinite() & ~rounded.isfinite()
                allowed |= same & (overflow | (rounded.isfinite() & ~base.isfinite()))
            difference = torch.where(by_value, difference / self.scale, 0.0)
            denominator = torch.where(by_value, size / self.scale + 1.0, 1.0)
            yield _ComparedBlock(offset, difference, denominator, int(by_value.sum()), ~allowed)


@dataclass(frozen=True)
class Scan:
    """The errors found in one pass over a comparison."""

    errors: Errors
    worst: int  # flat index of the largest scaled error; -1 if the pass did not look for it
    violations: int


def scan(pair: ComparedTensors, enough: float = math.inf) -> Scan:
    """Scan the whole comparison, or stop at a scaled error larger than `enough`."""
    plain = _plain_scan(pair) if enough == math.inf and 1 / _LARGE < pair.scale < _LARGE else None
    return plain or careful_scan(pair, enough)


def _plain_scan(pair: ComparedTensors) -> Scan | None:
    """Scan in few passes without intermediate reads from the device; None if an element is not finite."""
    found = gpu_passes.difference_norms(pair.result, pair.reference, pair.scale) or _compared(pair)
    if found is None:
        return None
    norm, maximum, peak = found
    if not (math.isfinite(norm) and math.isfinite(maximum) and peak <= torch.finfo(pair.result.dtype).max):
        return None
    rms = norm / math.sqrt(pair.result.numel()) / pair.scale
    return Scan(Errors(maximum, rms, pair.scale), -1, 0)


def _compared(pair: ComparedTensors) -> gpu_passes.DifferenceNorms | None:
    """`gpu_passes.difference_norms` in PyTorch's operations; None if there is no element."""
    norms, errors, peaks = [], [], []
    for _, (c, r, _) in blocks(pair.result, pair.reference, pair.baseline):
        exact = r.double()
        difference = exact - c
        norms.append(torch.linalg.vector_norm(difference))
        peaks.append(torch.linalg.vector_norm(exact, math.inf))
        errors.append(torch.linalg.vector_norm(difference.div_(exact.abs().add_(pair.scale)), math.inf))
    if not norms:
        return None
    found = [torch.linalg.vector_norm(torch.stack(norms)), torch.stack(errors).max(), torch.stack(peaks).max()]
    return gpu_passes.DifferenceNorms(*torch.stack(found).tolist())


def careful_scan(pair: ComparedTensors, enough: float = math.inf) -> Scan:
    """Scan block by block, with NaN and Inf, and find the worst element."""
    maximum, worst, squares, count, violations = 0.0, 0, 0.0, 0, 0
    for block in pair.compare():
        violations += 0 if block.violated is None else int(block.violated.sum())
        squares += float(block.difference.square().sum())
        count += block.by_value
        largest, at = (block.difference / block.denominator).max(dim=0)
        if float(largest) > maximum:
            maximum, worst = float(largest), block.offset + int(at)
        if maximum > enough or (violations and enough < math.inf):
            break
    rms = math.sqrt(squares / count) if count else 0.0
    return Scan(Errors(maximum, rms, pair.scale), worst, violations)


def nonfinite_reason(pair: ComparedTensors, name: str) -> str:
    """A sentence about NaN and Inf that should not be there, or are missing."""
    kinds: dict[str, BadElements] = {}
    masks = (block.violated for block in pair.compare())
    same_blocks = blocks(pair.result, pair.reference, pair.baseline)  # layout decides where they end
    for (offset, (c, r, _)), violated in zip(same_blocks, masks, strict=True):
        if violated is None:
            continue
        rounded = r.to(pair.result.dtype).double()
        result = c.double()
        finite = rounded.isfinite()
        for text, mask in (
            ("NaN where the reference is finite", finite & result.isnan()),
            ("Inf where the reference is finite", finite & result.isinf()),
            ("elements that should be NaN and are not", rounded.isnan()),
            ("elements that should be Inf (with its sign) and are not", rounded.isinf()),
        ):
            kinds.setdefault(text, BadElements(tuple(pair.result.shape))).add(offset, mask & violated)
    found = [
        f"{region.count} {text}, first{region.at(region.first)}{region.box_text(name)}"
        for text, region in kinds.items()
        if region.count
    ]
    return f"{name} has {'; and '.join(found)}."
