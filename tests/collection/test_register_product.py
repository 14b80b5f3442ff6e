"""Products whose factors are split in registers (register_product.cuh), on the emulated device.

The emulated device is strictly in order: it finds wrong indices and sums, waits that are missing, and copies that are
read before they have arrived, but no races between warps.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.collection.test_forms import described
from tests.emulated_device import compile_and_load
from warpsmith.backends.library import LIBRARY
from warpsmith.kernels.forms import form_kernel

ROOT = Path(__file__).resolve().parents[2]
EMULATOR = ROOT / "tests/kernel_templates/emulator.h"
DEVICE = ROOT / "tests/collection/mma_device.h"
# What the headers take from CUDA and from split_product.cuh, whose instructions the emulated device does not have.
NEEDED = """
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) float2 { float x, y; };
inline float4 make_float4(float a, float b, float c, float d) { return {a, b, c, d}; }
inline float2 make_float2(float a, float b) { return {a, b}; }
inline unsigned __float_as_uint(float v) { unsigned u; std::memcpy(&u, &v, 4); return u; }
inline float __uint_as_float(unsigned v) { float u; std::memcpy(&u, &v, 4); return u; }
namespace emulated {
// Copies that a thread has begun and not waited for, in groups; they happen when the thread waits for them. Until then
// their place holds what is not a number.
struct Copy { unsigned char* to; const float* from; int floats, bytes; };
inline std::vector<std::vector<Copy>> copies[1024];
inline void copy_later(uint32_t address, const float* from, int floats, int bytes) {
  unsigned char* const to = dynamic_bytes + address;
  if (address + 4 * floats > sizeof(dynamic_bytes)) std::abort();
  if (reinterpret_cast<uintptr_t>(to) % (4 * floats) || reinterpret_cast<uintptr_t>(from) % (4 * floats)) std::abort();
  if (bytes < 0 || bytes > 4 * floats) std::abort();
  std::memset(to, 0xff, 4 * floats);
  if (copies[current].empty()) copies[current].emplace_back();
  copies[current].back().push_back({to, from, floats, bytes});
}
inline void copies_begun() {
  if (copies[current].empty()) copies[current].emplace_back();
  copies[current].emplace_back();
}
inline void copies_arrived(int left) {
  auto& groups = copies[current];
  while (int(groups.size()) > left + 1) {
    for (const Copy& each : groups.front()) {
      std::memcpy(each.to, each.from, each.bytes);
      std::memset(each.to + each.bytes, 0, 4 * each.floats - each.bytes);
    }
    groups.erase(groups.begin());
  }
}
inline int multiprocessors = 2;
inline int64_t repaired = 0;  // elements that were computed again
}  // namespace emulated
inline size_t __cvta_generic_to_shared(const void* at) {
  return static_cast<const unsigned char*>(at) - emulated::dynamic_bytes;
}
namespace warpsmith::split {
struct Matrix {
  const float* data;
  int64_t row_step, term_step, stack_step;
  const float* row_at(int64_t stack, int64_t row) const { return data + stack * stack_step + row * row_step; }
  float at(int64_t stack, int64_t row, int64_t term) const { return row_at(stack, row)[term * term_step]; }
};
inline int multiprocessors() { return emulated::multiprocessors; }
constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
"""
ENTRY = """
#define EXPORTED extern "C" __attribute__((visibility("default")))
using namespace warpsmith;
// tile: -1 for the plan of the header. Without a workspace, returns the bytes that are needed.
template <bool A, bool B, class Class>
int64_t product(const Product& p, const float* a, const float* b, const float* bias, float* out, int tile,
                int64_t slices, void* workspace) {
  namespace r = register_product;
  const int64_t step_a = p.rows * p.terms, step_b = p.columns * p.terms;
  const split::Matrix first = A ? split::Matrix{a, 1, p.rows, step_a} : split::Matrix{a, p.terms, 1, step_a};
  const split::Matrix second = B ? split::Matrix{b, 1, p.columns, step_b} : split::Matrix{b, p.terms, 1, step_b};
  if (tile < 0) {
    if (!workspace) return register_bytes<Class>(p);
    return multiply_in_registers<A, B, Class>(p, first, second, out, bias, workspace, nullptr);
  }
  const int64_t chunks = (p.terms + 31) / 32, slice = chunks ? (chunks + slices - 1) / slices : 0;
  slices = slice ? (chunks + slice - 1) / slice : 1;
  if (!workspace) return slices * p.stack * p.rows * p.columns * 4;
  const r::Plan plan{r::Tile(tile), slices, slice * 32, 0.0};
  return r::multiply_by<A, B, r::exact<Class>()>(plan, p, first, second, out, bias, workspace, nullptr);
}
EXPORTED int64_t multiply(const float* a, const float* b, const float* bias, float* out, int64_t stack,
                          int64_t rows, int64_t terms, int64_t columns, int turned, int coarse, int tile,
                          int64_t slices, void* workspace) {
  const Product p{stack, rows, terms, columns, false};
  if (coarse) return product<false, true, Tf32>(p, a, b, bias, out, tile, slices, workspace);
  switch (turned) {
    case 0: return product<false, false, Float32>(p, a, b, bias, out, tile, slices, workspace);
    case 1: return product<true, false, Float32>(p, a, b, bias, out, tile, slices, workspace);
    case 2: return product<false, true, Float32>(p, a, b, bias, out, tile, slices, workspace);
    default: return product<true, true, Float32>(p, a, b, bias, out, tile, slices, workspace);
  }
}
EXPORTED int64_t repaired() { return emulated::repaired; }
// The way on an H200: 0 for matmul.cuh, 1 for small_product.cuh, 2 for few terms, 10 + tile with its slices.
EXPORTED int way(int64_t stack, int64_t rows, int64_t terms, int64_t columns, int shared, int64_t* slices,
                 double* times) {
  namespace r = register_product;
  emulated::multiprocessors = 132;
  const Product p{stack, rows, terms, columns, shared != 0};
  const r::Plan plan = r::plan_for(p, true);
  warpsmith::Plan other = {Way::NARROW, 1};
  double best = 1e30;
  warpsmith::consider<Float32::Wide>(p, Way::WIDE, Float32::WIDE_CYCLES, 132, other, best);
  warpsmith::consider<Float32::Narrow>(p, Way::NARROW, Float32::NARROW_CYCLES, 132, other, best);
  *slices = plan.slices, times[0] = plan.time, times[1] = best;
  const int found = !by_registers(p) ? 0 : r::has_few_terms(p) ? 2 : r::has_few_rows(p) ? 1 : 10 + int(plan.tile);
  emulated::multiprocessors = 2;
  return found;
}
"""
MOST_ERROR = 4e-7  # relative, root of the mean square
TILES = ("square", "large", "tall", "wide", "narrow", "flat", "tiny", "long", "fine", "broad")
_LAUNCH = re.compile(r"(\w+(?:<[^<>;]*>)?)<<<(\w+|unsigned\(\w+\)), ([\w:]+), (\w+), stream>>>\((.*?)\);")
Multiply = Callable[..., Tensor]


def header(name: str) -> str:
    return LIBRARY.joinpath("warpsmith", name).read_text(encoding="utf-8")


def between(text: str, first: str, last: str) -> str:
    begin = text.index(first)
    return text[begin : text.index(last, begin)]


def replaced(text: str, pattern: str, new: str, count: int = 1) -> str:
    text, found = re.subn(pattern, new, text, flags=re.DOTALL)
    assert found == count, pattern
    return text


def translated(text: str) -> str:
    """The text of a header as C++ for the emulated device."""
    text = re.sub(r"^#(include|pragma once).*$", "", text, flags=re.MULTILINE)
    text = re.sub(
        r"extern __shared__ .*?(\w+)\[\];", r"float* \1 = reinterpret_cast<float*>(emulated::dynamic_bytes);", text
    )
    return _LAUNCH.sub(r"emulated::launch(dim3(\2), \3, \4, [=] { \1(\5); });", text)


def source() -> str:
    """The headers, with what they need of the emulated device, and the functions that the tests call."""
    matmul, split = header("matmul.cuh"), header("split_product.cuh")
    mma = replaced(header("mma_tf32.cuh"), r'asm\("cvt\.rna.*?\);', "bits = emulated::tf32(x);")
    mma = replaced(mma, r'asm\("mma\.sync.*?\);', "emulated::multiply(d, a, b);")
    product = replaced(
        header("register_product.cuh"), r'asm volatile\("cp\.async\.commit.*?\);', "emulated::copies_begun();"
    )
    product = replaced(product, r'asm volatile\("cp\.async\.wait.*?\);', "emulated::copies_arrived(LEFT);")
    product = replaced(
        product, r"  if \(UNIT == 4\)\s+asm volatile.*?;\n}", "  emulated::copy_later(to, from, UNIT, bytes);\n}"
    )
    product = replaced(product, r"(float in_plain_arithmetic\(.*?\{)", r"\1 ++emulated::repaired;")
    product = replaced(product, r"kMostBlocks = .*?;", "kMostBlocks = 7;")  # several launches for a stack
    return "".join(
        (
            f'#include "{EMULATOR}"\n#define __restrict__\n#include "{DEVICE}"\n',
            NEEDED,
            between(split, "template <int TILE_N_", "constexpr int64_t round_up"),
            "}\nnamespace warpsmith {\n",
            between(matmul, "struct Product", "template <class Class>\ninline Plan plan_for"),
            "}\n",
            *(translated(each) for each in (mma, header("small_product.cuh"), product)),
        )
    )


def built(text: str, folder: Path) -> ctypes.CDLL:
    return compile_and_load(text, folder, ("-Og",))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernels, built for the processor."""
    return built(source() + ENTRY, tmp_path_factory.mktemp("register_product"))


@pytest.fixture(scope="module")
def multiply(library: ctypes.CDLL) -> Multiply:
    """The product by one tile or by the header's own plan."""
    function = library.multiply
    function.restype = library.repaired.restype = ctypes.c_int64
    numbers = [ctypes.c_int64] * 4 + [ctypes.c_int] * 3 + [ctypes.c_int64]
    function.argtypes = [ctypes.c_void_p] * 4 + numbers + [ctypes.c_void_p]

    def call(
        a: Tensor,
        b: Tensor,
        bias: Tensor | None = None,
        turned: int = 0,
        tile: str = "",
        slices: int = 1,
        coarse: bool = False,
        away: int = 0,
        repairs: bool = False,
    ) -> Tensor:
        """`turned`: 1 for a first factor stored [terms, rows], 2 for a second one stored [terms, columns].

        `away`: floats from a multiple of 16 bytes to the factors and the result. `repairs`: whether elements are to
        be computed again, which would hide wrong ones.
        """
        (stack, rows, terms), columns = a.shape, b.shape[1]
        stored = (a.transpose(1, 2) if turned & 1 else a, b.transpose(1, 2) if turned & 2 else b)
        first, second = (placed(each, away) for each in stored)
        around = 16
        room = placed(torch.full((stack * rows * columns + 2 * around,), torch.nan), away)
        out = room[around : around + stack * rows * columns]
        arguments = (
            *(each.data_ptr() for each in (first, second)),
            bias.data_ptr() if bias is not None else None,
            out.data_ptr(),
            *(stack, rows, terms, columns, turned, int(coarse), TILES.index(tile) if tile else -1, slices),
        )
        needed = function(*arguments, None)
        workspace = placed(torch.full((needed // 4 + 4,), torch.nan))
        before = library.repaired()
        assert function(*arguments, workspace.data_ptr()) == 0
        assert (library.repaired() > before) == repairs
        assert room[:around].isnan().all(), "written before the result"
        assert room[around + out.numel() :].isnan().all(), "written behind the result"
        return out.reshape(stack, rows, columns)

    return call


def placed(tensor: Tensor, away: int = 0) -> Tensor:
    """A dense copy that begins at a multiple of 16 bytes, or some floats behind it."""
    room = torch.full((tensor.numel() + 8,), torch.nan)
    begin = (-(room.data_ptr() // 4)) % 4 + away
    copy = room[begin : begin + tensor.numel()].reshape(tensor.shape)
    copy.copy_(tensor)
    return copy


def factors(stack: int, rows: int, terms: int, columns: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows * terms + columns)
    a, b = (torch.randn(stack, n, terms, generator=generator) for n in (rows, columns))
    return a, b, torch.randn(columns, generator=generator)


def error_of(result: Tensor, expected: Tensor) -> float:
    return float((result.double() - expected).norm() / expected.norm())


def product_of(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    product = a.double() @ b.double().transpose(1, 2)
    return product if bias is None else product + bias.double()


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("turned", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("sizes", "slices"),
    [
        ((1, 70, 65, 67), 1),  # nothing is aligned
        ((1, 37, 102, 46), 2),  # pairs
        ((2, 84, 36, 68), 1),  # fours
        ((1, 129, 3, 81), 1),
    ],
)
def test_every_tile_has_the_accuracy_of_float32(
    multiply: Multiply, tile: str, turned: int, sizes: tuple[int, int, int, int], slices: int
) -> None:
    a, b, bias = factors(*sizes)

    result = multiply(a, b, bias, turned, tile, slices)

    assert error_of(result, product_of(a, b, bias)) < MOST_ERROR


@pytest.mark.parametrize("turned", [0, 1, 2, 3])
@pytest.mark.parametrize(
    "sizes",
    [
        (1, 300, 7, 1003),  # few terms
        (3, 33, 1, 129),
        (1, 130, 16, 128),
        (2, 65, 3, 260),
        (1, 1, 300, 70),  # few rows
        (1, 90, 140, 2),
        (1, 17, 300, 90),  # tiles
        (5, 33, 35, 31),
        (1, 20, 2000, 18),  # slices
        (1, 1, 1, 1),
        (2, 65, 0, 70),  # sums of nothing
        (0, 65, 65, 70),
        (2, 0, 65, 70),
    ],
)
def test_the_plan_of_the_header_is_right_for_all_sizes(
    multiply: Multiply, turned: int, sizes: tuple[int, int, int, int]
) -> None:
    a, b, bias = factors(*sizes)
    given = bias if turned != 2 else None

    result = multiply(a, b, given, turned)

    expected = product_of(a, b, given)
    assert torch.allclose(result.double(), expected, rtol=0, atol=3e-6 * max(sizes[2], 1) ** 0.5)


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("away", [1, 2, 3])
def test_factors_and_results_may_lie_anywhere(multiply: Multiply, tile: str, away: int) -> None:
    a, b, _ = factors(2, 36, 44, 40)

    result = multiply(a, b, turned=away, tile=tile, away=away)

    assert error_of(result, product_of(a, b)) < MOST_ERROR


@pytest.mark.parametrize("sizes", [(1, 20, 65, 40), (1, 20, 700, 24)])
def test_sums_of_positive_terms_do_not_drift(multiply: Multiply, sizes: tuple[int, int, int, int]) -> None:
    a, b, _ = (each.abs() for each in factors(*sizes))

    result = multiply(a, b, tile="square")

    assert error_of(result, product_of(a, b)) < 8e-7


@pytest.mark.parametrize(("tile", "slices"), [("square", 1), ("tall", 3), ("tiny", 1), ("wide", 1)])
@pytest.mark.parametrize("columns", [68, 67])
def test_what_is_not_finite_stays_in_its_row_and_column(
    multiply: Multiply, columns: int, tile: str, slices: int
) -> None:
    a, b, bias = torch.ones(1, 70, 130), torch.ones(1, columns, 130), torch.full((columns,), 2.0)
    a[0, 1, 129], b[0, 66, 0], a[0, 69, 3] = torch.inf, -torch.inf, torch.nan
    a[0, 5, 7], b[0, 9, 7] = torch.finfo(torch.float32).max, 0.25  # finite, but not when it is rounded
    a[0, 6, 8] = 1e38

    result = multiply(a, b, bias, tile=tile, slices=slices, repairs=True)

    expected = a @ b.transpose(1, 2) + bias
    assert torch.equal(result.isnan(), expected.isnan())
    assert torch.equal(result.isinf(), expected.isinf())
    assert torch.allclose(result, expected, rtol=1e-6, equal_nan=True)


def test_in_the_tf32_class_one_product_is_enough(multiply: Multiply) -> None:
    a, b, bias = factors(1, 70, 65, 67)
    a[0, 2, 3] = torch.inf
    a.view(torch.int32)[0, 4, 5] = 0x7FFFFFFF  # a NaN whose bits become those of -0 if they are rounded as a number

    for tile, slices in (("square", 1), ("wide", 2)):
        result = multiply(a, b, bias, 2, tile, slices, coarse=True, repairs=True)

        finite = [row for row in range(70) if row not in (2, 4)]
        assert 1e-5 < error_of(result[:, finite], product_of(a, b, bias)[:, finite]) < 1e-3
        assert torch.equal(result[0, 2], (a @ b.transpose(1, 2))[0, 2])
        assert result[0, 4].isnan().all()


# Products that are fast by matmul.cuh, as timed on an H200, and others with the way that is estimated for them.
WAYS = {
    "matmul.cuh": [
        (1, 2050, 2050, 2050, 1),
        (1, 1009, 1013, 1019, 1),
        (1, 1023, 4097, 1025, 1),
        (1, 513, 511, 5119, 1),
        (1, 320, 20_011, 300, 1),
        (7, 1025, 513, 769, 0),
        (1, 1001, 1531, 3067, 1),
        (1, 2560, 2560, 640, 1),
        (1, 20_000, 512, 96, 1),
    ],
    "few rows": [(1, 1, 4099, 4001, 1), (1, 15, 4093, 4091, 1), (1, 3, 8190, 8186, 1)],
    "few terms": [(1, 5001, 7, 5003, 1), (1, 4097, 1, 4095, 1)],
    "long": [(48, 197, 65, 197, 0)],
    "large": [(96, 577, 64, 577, 0), (1, 96, 65_537, 130, 1)],
    "tall": [(1, 100_003, 65, 67, 1), (1, 70, 40_001, 74, 1)],
    "wide": [(1, 67, 65, 100_003, 1), (1, 77, 4100, 11_007, 1)],
    "narrow": [(1000, 33, 35, 31, 0)],
    "flat": [(1, 17, 2047, 9001, 1)],
    "tiny": [(1, 250, 250, 250, 1)],
}


@pytest.mark.parametrize("way", WAYS)
def test_the_way_follows_from_the_sizes(library: ctypes.CDLL, way: str) -> None:
    slices, times = ctypes.c_int64(), (ctypes.c_double * 2)()
    library.way.argtypes = [ctypes.c_int64] * 4 + [ctypes.c_int] + [ctypes.c_void_p] * 2

    for sizes in WAYS[way]:
        found = library.way(*sizes, ctypes.byref(slices), times)
        named = ("matmul.cuh", "few rows", "few terms")[found] if found < 10 else TILES[found - 10]
        assert named == way, (sizes, list(times))
        assert 1 <= slices.value <= max(1, (sizes[2] + 31) // 32)


def test_the_text_of_the_form_passes_on_what_the_header_needs(tmp_path: Path) -> None:
    task, contract, recorded = described(
        tmp_path,
        'a=normal("count, k, m"); b=normal("count, k, n")',
        '{"count": 2, "m": 40, "k": 70, "n": 36}',
        "a.mT @ b",
    )
    kernel = form_kernel(task, contract, recorded)
    assert kernel is not None
    large = """
namespace warpsmith {
namespace split { struct Store {}; }
template <class C = Float32> int64_t multiply_bytes(const Product&) { std::abort(); }
template <class C = Float32, class E>
int multiply(const Product&, split::Matrix, split::Matrix, E, void*, void*) { std::abort(); }
inline split::Store dense(float*, const Product&) { return {}; }
"""
    matmul = header("matmul.cuh")
    factors_of = matmul[matmul.index("// A factor [stack, rows, terms] or") :]
    library = built(source() + large + factors_of + translated(kernel.source), tmp_path)
    library.workspace_bytes.restype = ctypes.c_int64
    for stack, rows, terms, columns in ((2, 40, 70, 36), (1, 35, 600, 30), (3, 33, 9, 131)):
        a, b, _ = factors(stack, rows, terms, columns)
        first, second = (placed(each.transpose(1, 2)) for each in (a, b))
        out = torch.full((stack, rows, columns), torch.nan)
        sizes = {"count": stack, "m": rows, "k": terms, "n": columns}
        numbers = [ctypes.c_int64(sizes[each.name]) for each in contract.size_arguments]
        workspace = placed(torch.full((library.workspace_bytes(*numbers) // 4 + 4,), torch.nan))
        pointers = [ctypes.c_void_p(each.data_ptr()) for each in (first, second, out)]

        assert library.launch(*pointers, *numbers, ctypes.c_void_p(workspace.data_ptr()), None) == 0

        assert error_of(out, product_of(a, b)) < MOST_ERROR
