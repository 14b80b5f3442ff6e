"""Passes over large tensors on a GPU, each one kernel: PyTorch's operations would read and write them several times.

The kernels are compiled by PyTorch's NVRTC, once per process, and compared with PyTorch's own operations before first
use. Every function returns None where it cannot be used (a CPU, a small tensor, an unknown type, no NVRTC): the caller
then uses PyTorch's operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

LEAST_ELEMENTS = 1 << 22  # below, launches cost more than passes
_THREADS, _BLOCKS = 256, 132 * 16
_HALF = 'float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y;'
_TYPES: dict[torch.dtype, tuple[str, str]] = {  # the C type, and how a value is widened
    torch.float64: ("double", "return x;"),
    torch.float32: ("float", "return x;"),
    torch.bfloat16: ("unsigned short", "return __uint_as_float((unsigned)x << 16);"),
    torch.float16: ("unsigned short", _HALF),
}
_BITS = {2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}

_COMMON = """
typedef unsigned long long u64;
template <typename T> __device__ T across(T value, T (*op)(T, T)) {
  __shared__ T cells[32];
  for (int step = 16; step; step /= 2) value = op(value, __shfl_xor_sync(0xffffffffu, value, step));
  if (threadIdx.x % 32 == 0) cells[threadIdx.x / 32] = value;
  __syncthreads();
  value = cells[0];
  for (int warp = 1; warp < blockDim.x / 32; ++warp) value = op(value, cells[warp]);
  __syncthreads();
  return value;
}
template <typename T> __device__ T sum_of(T a, T b) { return a + b; }
__device__ double max_of(double a, double b) { return a < b ? b : a; }
#define EACH(i, count) \\
  const u64 step_ = gridDim.x * (u64)blockDim.x; \\
  _Pragma("unroll 4") for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < count; i += step_)
"""

_COMPARED = """
__device__ double wide_c(@C x) { @WIDEN_C }
__device__ double wide_r(@R x) { @WIDEN_R }
extern "C" __global__ void compared(const @C* c, const @R* r, const double* numbers, double* parts) {
  const u64 count = (u64)numbers[0];
  const double scale = numbers[1];
  double squares = 0, worst = 0, peak = 0, bad = 0;
  EACH(i, count) {
    const double exact = wide_r(r[i]), apart = exact - wide_c(c[i]), size = fabs(exact);
    const double error = fabs(apart) / (size + scale);
    squares += apart * apart;
    worst = max_of(worst, error);
    peak = max_of(peak, size);
    if (!(isfinite(apart) && isfinite(error))) bad = 1;
  }
  squares = across(squares, sum_of<double>);
  worst = across(worst, max_of);
  peak = across(peak, max_of);
  bad = across(bad, max_of);
  if (threadIdx.x) return;
  double* mine = parts + 4 * blockIdx.x;
  mine[0] = squares; mine[1] = worst; mine[2] = peak; mine[3] = bad;
}
"""

_NORM = """
__device__ double wide_r(@R x) { @WIDEN_R }
extern "C" __global__ void magnitude(const @R* r, const double* numbers, double* parts) {
  const u64 count = (u64)numbers[0];
  double squares = 0, peak = 0, bad = 0;
  EACH(i, count) {
    const double exact = wide_r(r[i]), size = fabs(exact);
    squares += exact * exact;
    peak = max_of(peak, size);
    if (!isfinite(size)) bad = 1;
  }
  squares = across(squares, sum_of<double>);
  peak = across(peak, max_of);
  bad = across(bad, max_of);
  if (threadIdx.x) return;
  double* mine = parts + 4 * blockIdx.x;
  mine[0] = squares; mine[1] = 0; mine[2] = peak; mine[3] = bad;
}
"""

_WEIGHTED = """
extern "C" __global__ void weighted(
    const int4* words, const ulonglong2* weights, const u64* rows, const u64* numbers, u64* parts) {
  const u64 count = numbers[0], bits = numbers[1], last = (1ull << bits) - 1;  // in fours
  u64 sum = 0;
  EACH(i, count) {
    const int4 word = words[i];
    const ulonglong2 a = weights[2 * (i & last)], b = weights[2 * (i & last) + 1];
    sum += rows[i >> bits] * ((u64)(long long)word.x * a.x + (u64)(long long)word.y * a.y +
                              (u64)(long long)word.z * b.x + (u64)(long long)word.w * b.y);
  }
  sum = across(sum, sum_of<u64>);
  if (!threadIdx.x) parts[blockIdx.x] = sum;
}
"""

_EQUAL = """
extern "C" __global__ void equal(const @B* bits, const u64* numbers, u64* parts) {
  const u64 count = numbers[0];
  const @B pattern = (@B)numbers[1];
  u64 found = 0;
  EACH(i, count) { found += bits[i] == pattern; }
  found = across(found, sum_of<u64>);
  if (!threadIdx.x) parts[blockIdx.x] = found;
}
"""


class DifferenceNorms(NamedTuple):
    """How far a result is from its reference, all elements finite."""

    norm: float  # of the difference
    maximum: float  # of |difference| ÷ (|reference| + scale)
    peak: float  # the largest |reference|


def difference_norms(result: Tensor, reference: Tensor, scale: float) -> DifferenceNorms | None:
    """Compare a result with its reference; None also if an element is not finite."""
    if not (_large(result) and _large(reference)) or not {result.dtype, reference.dtype} <= _TYPES.keys():
        return None
    run = _compare(result.device.index, result.dtype, reference.dtype)
    return run(result, reference, scale) if run else None


def norm_and_peak(tensor: Tensor) -> tuple[float, float] | None:
    """The norm and the largest magnitude; None also if an element is not finite."""
    if not _large(tensor) or tensor.dtype not in _TYPES:
        return None
    run = _norm(tensor.device.index, tensor.dtype)
    return run(tensor) if run else None


def weighted_sum(words: Tensor, weights: Tensor, rows: Tensor) -> Tensor | None:
    """The sum of 32-bit words, each times the weight of its column and the number of its row, modulo 2**64."""
    length = weights.numel()
    if not _large(words) or words.numel() % length or words.data_ptr() % 16:
        return None
    if length < 4 or length & (length - 1):
        raise ValueError(f"rows of {length} words: their length must be a power of two from 4 on")
    run = _weigh(words.device.index)
    return run(words, weights, rows) if run else None


def count_equal(bits: Tensor, pattern: int) -> int | None:
    """How many elements of an integer tensor equal a number."""
    if not _large(bits) or bits.element_size() not in _BITS:
        return None
    run = _count(bits.device.index, bits.element_size())
    return run(bits, pattern) if run else None


def _large(tensor: Tensor) -> bool:
    return tensor.is_cuda and tensor.numel() >= LEAST_ELEMENTS and tensor.is_contiguous()


# --- compiling and launching ---


def source_of(template: str, **types: str) -> str:
    """The source of a kernel for these types."""
    for key, text in sorted(types.items(), reverse=True):  # the longer of two that begin alike comes first
        template = template.replace(f"@{key}", text)
    return _COMMON + template


def _kernel(template: str, name: str, **types: str) -> Any:
    """A compiled kernel that takes tensors; None if there is no compiler for it."""
    make = getattr(torch.cuda, "_compile_kernel", None)
    if make is None:
        return None
    try:
        return make(source_of(template, **types), name)
    except (RuntimeError, OSError, AttributeError, AssertionError):  # a private function of PyTorch, which may change
        return None


def _launch(kernel: Any, tensors: Sequence[Tensor], numbers: Sequence[float], dtype: torch.dtype, width: int) -> Tensor:
    """Launch a kernel; numbers are passed in a tensor, because passing plain ones has changed between releases."""
    device = tensors[0].device
    given = torch.tensor(list(numbers), dtype=dtype, device=device)
    parts = torch.zeros(_BLOCKS, width, dtype=dtype, device=device)
    kernel(grid=(_BLOCKS, 1, 1), block=(_THREADS, 1, 1), args=[*tensors, given, parts])
    return parts


def _collected(parts: Tensor) -> DifferenceNorms | None:
    squares, worst, peak, bad = torch.stack([parts[:, 0].sum(), *parts[:, 1:].amax(0)]).tolist()
    return None if bad or not math.isfinite(squares) else DifferenceNorms(math.sqrt(squares), worst, peak)


Run = TypeVar("Run", bound=Callable[..., Any])


def _verified(kernel: Any, run: Run, check: Callable[[], bool]) -> Run | None:
    """`run` if the kernel gives right results; else None."""
    if kernel is None:
        return None
    with suppress(RuntimeError, TypeError, ValueError, AttributeError):  # as above
        return run if check() else None
    return None


@cache
def _compare(
    device: int, result: torch.dtype, reference: torch.dtype
) -> Callable[[Tensor, Tensor, float], DifferenceNorms | None] | None:
    (c, by_c), (r, by_r) = _TYPES[result], _TYPES[reference]
    kernel = _kernel(_COMPARED, "compared", C=c, R=r, WIDEN_C=by_c, WIDEN_R=by_r)

    def run(ours: Tensor, theirs: Tensor, scale: float) -> DifferenceNorms | None:
        return _collected(_launch(kernel, (ours, theirs), (ours.numel(), scale), torch.float64, 4))

    def check() -> bool:
        exact = _noise(device).to(reference)
        close = (exact.double() * 1.001).to(result)
        apart, size = (exact.double() - close.double()).abs(), exact.double().abs()
        told = DifferenceNorms(float(apart.norm()), float((apart / (size + 0.5)).max()), float(size.max()))
        return _near(run(close, exact, 0.5), told)

    return _verified(kernel, run, check)


@cache
def _norm(device: int, dtype: torch.dtype) -> Callable[[Tensor], tuple[float, float] | None] | None:
    r, by_r = _TYPES[dtype]
    kernel = _kernel(_NORM, "magnitude", R=r, WIDEN_R=by_r)

    def run(tensor: Tensor) -> tuple[float, float] | None:
        found = _collected(_launch(kernel, (tensor,), (tensor.numel(), 0), torch.float64, 4))
        return (found.norm, found.peak) if found else None

    def check() -> bool:
        exact = _noise(device).to(dtype)
        return _near(run(exact), (float(exact.double().norm()), float(exact.double().abs().max())))

    return _verified(kernel, run, check)


@cache
def _weigh(device: int) -> Callable[[Tensor, Tensor, Tensor], Tensor] | None:
    kernel = _kernel(_WEIGHTED, "weighted")

    def run(words: Tensor, weights: Tensor, rows: Tensor) -> Tensor:
        numbers = (words.numel() // 4, weights.numel().bit_length() - 3)  # in fours, and as a power of two
        return _launch(kernel, (words, weights, rows), numbers, torch.int64, 1).sum()

    def check() -> bool:
        words = _noise(device).float().view(torch.int32)
        parts = words[:64], words[64 : 64 + words.numel() // 64]
        weights, rows = (part.to(torch.int64) * 0x7F4A7C159E37 for part in parts)
        told = ((words.view(-1, 64) * weights).sum(1) * rows).sum()
        return bool(run(words, weights, rows) == told)

    return _verified(kernel, run, check)


@cache
def _count(device: int, size: int) -> Callable[[Tensor, int], int] | None:
    kernel = _kernel(_EQUAL, "equal", B=_BITS[size])

    def run(bits: Tensor, pattern: int) -> int:
        return int(_launch(kernel, (bits,), (bits.numel(), pattern), torch.int64, 1).sum())

    def check() -> bool:
        bits = (_noise(device) * 4).to({2: torch.int16, 4: torch.int32, 8: torch.int64}[size])
        return all(run(bits, number) == int((bits == number).sum()) for number in (-3, 0, 2))

    return _verified(kernel, run, check)


def _noise(device: int) -> Tensor:
    """Data to verify a kernel with: more elements than threads, and not a multiple of them."""
    maker = torch.Generator(device=f"cuda:{device}").manual_seed(1)
    count = (_BLOCKS * _THREADS // 64 * 3 + 1) * 64
    return torch.randn(count, generator=maker, device=f"cuda:{device}", dtype=torch.float64)


def _near(found: Sequence[float] | None, told: Sequence[float]) -> bool:
    return found is not None and all(math.isclose(a, b, rel_tol=1e-9) for a, b in zip(found, told, strict=True))
