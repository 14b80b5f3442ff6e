"""`triangle_product.cuh` on the emulated device: whole products, whose other triangle is zero."""

from __future__ import annotations

import ctypes
import math
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.collection.test_attention_form import DEVICE, aligned, replaced
from tests.emulated_device import compile_and_load
from warpsmith.backends.library import LIBRARY

FOLDER = Path(__file__).parent
MOST_ERROR = {False: 6e-7, True: 1e-3}  # relative, root of the mean square; by whether it is the TF32 class
_ASM = {  # instructions, and what they do
    r'asm volatile\("(?:fence|setmaxnreg)[^;]*;"[^;]*\);': ";",
    r'asm volatile\("ld\.shared\.f32 [^;]*;" : "=f"\((\w+)\) : "r"\(([^;]*?)\) : "memory"\);': (
        r"\1 = shared_float(\2);"
    ),
    r'asm volatile\("ld\.shared\.v2[^;]*;" : "=f"\((\w+)\), "=f"\((\w+)\) : "r"\(([^;]*?)\)\);': (
        r"\1 = shared_float(\3), \2 = shared_float(\3 + 4);"
    ),
    r'asm volatile\("st\.shared\.v2[^;]*;" ::"r"\(([^;]*?)\), "f"\((sum[^;]*?\])\),\s*"f"\((sum[^;]*?\])\)[^;]*\);': (
        r"put_shared(\1, \2, \3);"
    ),
    r'asm volatile\("ld\.shared\.v4[^;]*;"\s*: "=f"[^;]*?: "r"\(([^;]*?)\)\s*: "memory"\);': (
        r"v = {shared_float(\1), shared_float(\1 + 4), shared_float(\1 + 8), shared_float(\1 + 12)};"
    ),
}  # fmt: skip
_LAUNCH = re.compile(r"((?:split::)?\w+(?:<[^<>;]*>)?)\s*<<<([^;]*?), 256, 0, stream>>>\(\s*(.*?)\);", re.DOTALL)
CALLS = """
static cudaError_t started(dim3 grid, std::function<void()> kernel) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return failed = cudaErrorInvalidValue;
  return emulated::launch(grid, 256, 0, std::move(kernel)), cudaSuccess;
}
"""
RUN = """
using namespace warpsmith;
template <class Class, split::Triangle SIDE>
int by(int way, int splits, const Product& p, const split::Matrix& a, const split::Matrix& b, float* out,
       void* memory) {
  if (way == 0) return triangle_by<typename Class::Narrow, SIDE>(p, splits, a, b, out, memory, nullptr);
  if (way == 1) return triangle_by<typename Class::Wide, SIDE>(p, splits, a, b, out, memory, nullptr);
  return multiply_triangle<SIDE, Class>(p, a, b, out, memory, nullptr);
}
template <class Class>
int64_t bytes_for(int way, int splits, const Product& p) {
  if (way == 0) return bytes_of<typename Class::Narrow>(p, splits);
  return way == 1 ? bytes_of<typename Class::Wide>(p, splits) : triangle_bytes<Class>(p);
}
extern "C" int64_t bytes(int tf32, int way, int splits, int64_t m, int64_t k, int64_t n) {
  const Product p{1, m, k, n, true};
  return tf32 ? bytes_for<Tf32>(way, splits, p) : bytes_for<Float32>(way, splits, p);
}
extern "C" int run(int lower, int tf32, int way, int splits, int turned, const float* a, const float* b, float* out,
                   int64_t m, int64_t k, int64_t n, void* memory) {
  const Product p{1, m, k, n, true};
  const split::Matrix x = turned ? transposed(a, m, k) : plain(a, m, k);
  const split::Matrix y = turned ? plain(b, n, k) : transposed(b, n, k);
  constexpr auto UPPER = split::Triangle::UPPER, LOWER = split::Triangle::LOWER;
  failed = cudaSuccess;
  const int error = tf32 ? (lower ? by<Tf32, LOWER>(way, splits, p, x, y, out, memory)
                                  : by<Tf32, UPPER>(way, splits, p, x, y, out, memory))
                         : (lower ? by<Float32, LOWER>(way, splits, p, x, y, out, memory)
                                  : by<Float32, UPPER>(way, splits, p, x, y, out, memory));
  return error ? error : int(failed);
}
"""
NARROW, WIDE, CHOSEN = range(3)


@dataclass(frozen=True)
class Case:
    """A product and how it is computed."""

    rows: int
    terms: int
    columns: int
    lower: bool = False
    way: int = CHOSEN
    splits: int = 1
    turned: bool = False  # the first factor is stored transposed, and the second one is not
    tf32: bool = False


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("triangle")
    emulator, *devices = (path.read_text(encoding="utf-8") for path in (*DEVICE, FOLDER / "triangle_device.h"))
    runnable = "  for (int t = 0; t < count; ++t) if (threads[t].wait == RUNNABLE) return true;\n"
    emulator = replaced(
        emulator, "  if (any) return true;\n  bool block", f"  if (any) return true;\n{runnable}  bool block"
    )
    emulator = replaced(emulator, "__shared__ static thread_local", "__shared__ static thread_local\n#define __host__")
    text = "".join((emulator, *devices, "static cudaError_t failed;", CALLS, translated(), RUN))
    built = compile_and_load(text, folder, ("-O0",))
    built.bytes.restype = ctypes.c_int64
    return built


def translated() -> str:
    """The headers as C++ for the emulated device; attention_device.h has the instructions of split_product.cuh."""
    split, product, triangle = (
        LIBRARY.joinpath("warpsmith", f"{name}.cuh").read_text(encoding="utf-8")
        for name in ("split_product", "matmul", "triangle_product")
    )
    begin = split.index("__device__ __forceinline__ uint32_t shared_address")
    end = split.index("// What part of the sum a tile of the result needs")
    split, count = re.subn(
        r"inline int multiprocessors\(\) \{.*?\n\}\n", "", split[:begin] + split[end:], flags=re.DOTALL
    )
    assert count == 1
    text = re.sub(r"#include <.*?>|#pragma once", "", split + product + triangle)
    text = replaced(
        text,
        "extern __shared__ __align__(128) char memory[];",
        "char* const memory = reinterpret_cast<char*>(emulated::dynamic_bytes);",
    )
    for instruction, plain in _ASM.items():
        text = re.sub(instruction, plain, text)
    assert "asm" not in text
    text, count = _LAUNCH.subn(r"started(dim3(\2), [=] { \1(\3); });", text)
    assert count == 5
    return text


def computed(library: ctypes.CDLL, case: Case, a: Tensor, b: Tensor) -> Tensor:
    sizes = [ctypes.c_int64(each) for each in (case.rows, case.terms, case.columns)]
    needed = library.bytes(case.tf32, case.way, case.splits, *sizes)
    memory = aligned(torch.full((needed // 4 + 32,), math.nan), 0)
    count = case.rows * case.columns
    out = aligned(torch.full((count + 8,), 7.5), 0)
    out[:count] = math.nan
    given = [aligned(x.T.contiguous() if case.turned else x, 0) for x in (a, b)]
    pointers = [ctypes.c_void_p(each.data_ptr()) for each in (*given, out)]
    options = (case.lower, case.tf32, case.way, case.splits, case.turned)

    assert library.run(*options, *pointers, *sizes, ctypes.c_void_p(memory.data_ptr())) == 0

    assert (out[count:] == 7.5).all()
    return out[:count].view(case.rows, case.columns)


def factors(case: Case) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(case.rows + case.columns)
    return (
        torch.randn(case.rows, case.terms, generator=generator),
        torch.randn(case.terms, case.columns, generator=generator),
    )


def expected(case: Case, a: Tensor, b: Tensor) -> Tensor:
    product = a.double() @ b.double()
    return product.tril() if case.lower else product.triu()


@pytest.mark.parametrize(
    "case",
    [
        Case(1, 1, 1),
        Case(130, 40, 130),
        Case(260, 70, 300, lower=True, way=NARROW, turned=True),
        Case(300, 70, 260, way=WIDE),
        Case(131, 300, 129, way=NARROW, splits=2),
        Case(131, 300, 201, lower=True, way=WIDE, splits=3),
        Case(140, 520, 260, lower=True, way=NARROW, splits=2, tf32=True),
        Case(140, 70, 260, way=WIDE, tf32=True),
        Case(700, 33, 300, lower=True),
    ],
)
def test_the_triangle_is_that_of_the_product(library: ctypes.CDLL, case: Case) -> None:
    a, b = factors(case)
    wanted = expected(case, a, b)

    found = computed(library, case, a, b)

    assert ((found.double() - wanted).norm() / wanted.norm()).item() < MOST_ERROR[case.tf32]
    assert (found[wanted == 0] == 0).all()


@pytest.mark.parametrize("splits", [1, 2])
def test_what_is_not_finite_stays_where_it_is(library: ctypes.CDLL, splits: int) -> None:
    case = Case(140, 300, 150, way=NARROW, splits=splits)
    a, b = factors(case)
    a[3, 2], a[100, 5], b[7, 9] = math.inf, math.nan, -math.inf
    wanted = expected(case, a, b)

    found = computed(library, case, a, b)

    assert torch.equal(found.isnan(), wanted.isnan())
    assert torch.equal(found[wanted.isinf()].double(), wanted[wanted.isinf()])
    assert (found[wanted == 0] == 0).all()


@pytest.mark.parametrize("case", [Case(0, 5, 6), Case(5, 6, 0), Case(5, 0, 7), Case(200, 0, 9, lower=True)])
def test_products_without_elements_or_terms(library: ctypes.CDLL, case: Case) -> None:
    assert (computed(library, case, *factors(case)) == 0).all()
