"""Products with few rows and small products (small_product.cuh), on the emulated device."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.emulated_device import compile_and_load
from warpsmith.kernels import collection

ROOT = Path(__file__).resolve().parents[2]
HEADER = Path(collection.__file__).parent / "include/warpsmith/small_product.cuh"
# What the header takes from matmul.cuh, whose instructions the emulated device does not have.
NEEDED = """
namespace warpsmith {
struct Product { int64_t stack, rows, terms, columns; bool shared_b; };
namespace split {
struct Matrix {
  const float* data;
  int64_t row_step, term_step, stack_step;
  const float* row_at(int64_t stack, int64_t row) const { return data + stack * stack_step + row * row_step; }
  float at(int64_t stack, int64_t row, int64_t term) const { return row_at(stack, row)[term * term_step]; }
};
inline int multiprocessors() { return 2; }
}}
struct float4 { float x, y, z, w; };
"""
ENTRY = """
extern "C" __attribute__((visibility("default"))) int64_t small(
    const float* a, const float* b, const float* bias, float* out, int64_t stack, int64_t rows, int64_t terms,
    int64_t columns, int turned, float* workspace) {
  using namespace warpsmith;
  const Product p{stack, rows, terms, columns, false};
  if (!is_small(p)) return -1;
  if (!workspace) return small_bytes(p);
  const split::Matrix first =
      turned & 1 ? split::Matrix{a, 1, rows, rows * terms} : split::Matrix{a, terms, 1, rows * terms};
  const split::Matrix second =
      turned & 2 ? split::Matrix{b, 1, columns, columns * terms} : split::Matrix{b, terms, 1, columns * terms};
  return multiply_small(p, first, second, out, bias, workspace, nullptr);
}
"""
_LAUNCH = re.compile(r"(\w+(?:<[^<>;]*>)?)<<<(\w+), (\w+), (\w+), stream>>>\((.*?)\);")
Multiply = Callable[[Tensor, Tensor, Tensor | None, int], Tensor]


@pytest.fixture(scope="module")
def multiply(tmp_path_factory: pytest.TempPathFactory) -> Multiply:
    """The product by the header's kernels. `turned`: 1 for a first factor [terms, rows], 2 for [terms, columns]."""
    folder = tmp_path_factory.mktemp("small_product")
    body = re.sub(r"^#(include|pragma).*$", "", HEADER.read_text(encoding="utf-8"), flags=re.MULTILINE)
    body = re.sub(r"extern __shared__ .* x\[\];", "float* x = reinterpret_cast<float*>(emulated::dynamic_bytes);", body)
    body = _LAUNCH.sub(r"emulated::launch(\2, \3, \4, [=] { \1(\5); });", body)
    text = f'#include "{ROOT / "tests/kernel_templates/emulator.h"}"\n{NEEDED}{body}{ENTRY}'
    function = compile_and_load(text, folder, ("-Og",)).small
    function.restype = ctypes.c_int64
    function.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 4 + [ctypes.c_int, ctypes.c_void_p]

    def call(a: Tensor, b: Tensor, bias: Tensor | None, turned: int) -> Tensor:
        stack, rows, terms = a.shape if not turned & 1 else (a.shape[0], a.shape[2], a.shape[1])
        columns = b.shape[2] if turned & 2 else b.shape[1]
        out = torch.full((stack, rows, columns), torch.nan)
        pointers = (a.data_ptr(), b.data_ptr(), bias.data_ptr() if bias is not None else None, out.data_ptr())
        needed = function(*pointers, stack, rows, terms, columns, turned, None)
        assert needed >= 0, "not a small product"
        workspace = torch.full((needed // 4 + 1,), torch.nan)
        assert function(*pointers, stack, rows, terms, columns, turned, workspace.data_ptr()) == 0
        return out

    return call


@pytest.mark.parametrize("turned", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("stack", "rows", "terms", "columns"),
    [
        (1, 1, 300, 70),  # few rows, several slices
        (1, 3, 129, 600),
        (2, 5, 65, 33),
        (1, 17, 200, 530),
        (1, 24, 7, 40),
        (1, 600, 140, 2),  # few columns
        (3, 41, 63, 9),
        (1, 1, 1, 1),
        (1, 45, 77, 39),  # small
        (2, 33, 35, 31),
        (3, 64, 1, 65),
    ],
)
def test_the_product_is_that_of_pytorch(
    multiply: Multiply, stack: int, rows: int, terms: int, columns: int, turned: int
) -> None:
    generator = torch.Generator().manual_seed(rows * terms + columns)
    a, b = (torch.randn(stack, n, terms, generator=generator) for n in (rows, columns))
    bias = torch.randn(columns, generator=generator) if turned != 2 else None
    expected = a.double() @ b.double().transpose(1, 2) + (bias.double() if bias is not None else 0.0)

    given_a = a.transpose(1, 2).contiguous() if turned & 1 else a
    given_b = b.transpose(1, 2).contiguous() if turned & 2 else b
    result = multiply(given_a, given_b, bias, turned)

    assert torch.allclose(result.double(), expected, rtol=0, atol=1e-5 * terms**0.5)


def test_what_is_infinite_stays_in_its_row_and_column(multiply: Multiply) -> None:
    a, b = torch.ones(1, 3, 130), torch.ones(1, 70, 130)
    a[0, 1, 129], b[0, 69, 0] = torch.inf, torch.inf

    result = multiply(a, b, None, 0)

    expected = torch.full((1, 3, 70), 130.0)
    expected[0, 1, :] = expected[0, :, 69] = torch.inf
    assert torch.equal(result, expected)
