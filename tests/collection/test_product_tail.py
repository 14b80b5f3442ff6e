"""Element-wise operations after a product: which tasks the form claims, and what its source computes.

The sources are compiled for the host with plain stand-ins for `matmul.cuh` and `packs.cuh`, which call the end of the
kernel as the header does: in pairs of neighbouring columns, also for rows and columns outside the result.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pytest
import torch

from tests.collection.test_forms import described
from tests.cuda_front_end import compile_errors
from warpsmith.backends.library import LIBRARY
from warpsmith.kernels.forms import form_kernel

MATMUL = """
#pragma once
#include <cmath>
#include <cstdint>
#define __device__
#define __forceinline__ inline
using cudaStream_t = void*;
template <class T> T __ldg(const T* at) { return *at; }
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
namespace warpsmith {
struct Product { int64_t stack, rows, terms, columns; bool shared_b; };
struct Float32 {};
struct Tf32 {};
namespace split {
struct Store {
  float* out;
  int64_t row_step, stack_step;
  int columns;
  bool by_rows() const { return columns % 4 == 0; }
  float* row_at(int64_t slice, int row) const { return out + slice * stack_step + row * row_step; }
  void store(int64_t slice, int64_t, int row, int column, float u, float v) const {
    row_at(slice, row)[column] = u;
    if (column + 1 < columns) row_at(slice, row)[column + 1] = v;
  }
};
struct Matrix { const float* data; int64_t rows, terms; bool turned; };
}  // namespace split
inline split::Store dense(float* out, const Product& p) { return {out, p.columns, p.rows * p.columns, int(p.columns)}; }
inline split::Matrix plain(const float* a, int64_t rows, int64_t terms) { return {a, rows, terms, false}; }
inline split::Matrix transposed(const float* a, int64_t rows, int64_t terms) { return {a, rows, terms, true}; }
template <class Class = Float32> int64_t multiply_bytes(const Product&) { return 0; }
inline float at(const split::Matrix& a, int64_t stack, int64_t row, int64_t term) {
  const float* from = a.data + stack * a.rows * a.terms;
  if (row >= a.rows) return NAN;
  return a.turned ? from[term * a.rows + row] : from[row * a.terms + term];
}
template <class Class = Float32, class End>
int multiply(const Product& p, const split::Matrix& a, const split::Matrix& b, const End& end, void*, cudaStream_t) {
  for (int64_t s = 0; s < p.stack; ++s)
    for (int r = 0; r < p.rows + 3; ++r)
      for (int c = 0; c < p.columns + 3; c += 2) {
        double u = 0, v = 0;
        for (int64_t t = 0; t < p.terms; ++t) {
          u += double(at(a, s, r, t)) * at(b, p.shared_b ? 0 : s, c, t);
          v += double(at(a, s, r, t)) * at(b, p.shared_b ? 0 : s, c + 1, t);
        }
        float x = float(u), y = float(v);
        if (end.by_rows()) {  // rows of a tile are finished first and stored afterwards
          end.finish(s, r, c, x, y);
          if (r < p.rows && c < p.columns) end.row_at(s, r)[c] = x, end.row_at(s, r)[c + 1] = y;
        } else if (r < p.rows && c < p.columns) {
          end.store(s, s, r, c, x, y);
        }
      }
  return 0;
}
}  // namespace warpsmith
"""
PACKS = """
#pragma once
namespace warpsmith {
inline float max_nan(float a, float b) { return a != a || b != b ? NAN : std::fmax(a, b); }
inline float min_nan(float a, float b) { return a != a || b != b ? NAN : std::fmin(a, b); }
}  // namespace warpsmith
"""
LARGE = '{"b": 64, "l": 700, "k": 512, "n": 515}'  # too large for the kernels of modest products
LARGE_ROWS = '{"l": 40000, "k": 512, "n": 515}'
SMALL = {"b": 2, "l": 5, "k": 7, "n": 9}
EVEN = {"b": 3, "l": 4, "k": 6, "n": 12}
LINEAR, ROWS = 'x=normal("b, l, k"); w=normal("n, k")', 'x=normal("l, k"); w=normal("k, n")'
STACKS = 'x=normal("b, l, k"); w=normal("b, k, n")'
TAILS = {
    "F.gelu(F.linear(x, w, bias))": f'{LINEAR}; bias=normal("n")',
    'F.gelu(F.linear(x, w), approximate="tanh")': LINEAR,
    "r + F.linear(x, w, bias)": f'{LINEAR}; bias=normal("n"); r=normal("b, l, n")',
    "r + g * F.relu(torch.where(m[..., None], F.linear(x, w) + bias, 0.0))": (
        f'{LINEAR}; bias=normal("n"); r=normal("b, l, n"); g=normal("n"); m=booleans("b, l")'
    ),
    "(F.linear(x, w) * s[:, None, None]).sigmoid()": f'{LINEAR}; s=normal("b")',
    "torch.clamp(F.mish((x @ w) * s / 1.5), -0.5, 2)": f'{ROWS}; s=normal("n")',
    "F.silu(x @ w) * (1 - torch.sigmoid(g))": f'{ROWS}; g=normal("l, 1")',
    "(x @ w) * y[:, :1] + torch.arange(y.shape[1])": f'{ROWS}; y=normal("l, n")',
    "(x @ w).tril() * 2": ROWS,
    "(x @ w).relu() * torch.cat((y, -y), 0)[: y.shape[0]]": f'{ROWS}; y=normal("l, n")',
    "torch.tanh(torch.bmm(x, w) * 0.125 + r[:, None, :])": f'{STACKS}; r=normal("b, n")',
    "F.softplus(torch.bmm(x, w)) - (r * r + 1).rsqrt()": f'{STACKS}; r=normal("l, n")',
}


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("sizes", [SMALL, EVEN], ids=["odd", "even"])
def test_values(tail: str, sizes: dict[str, int], tmp_path: Path) -> None:
    task, contract, made = described(tmp_path, TAILS[tail], _large(TAILS[tail]), tail)
    kernel = form_kernel(task, contract, made)
    assert kernel
    assert kernel.form.endswith("then element-wise operations")

    generator = torch.Generator().manual_seed(7)
    given = {}
    for spec in task.inputs:
        drawn = torch.randn(spec.shape(sizes), generator=generator)
        given[spec.name] = drawn > 0 if spec.dtype == "bool" else drawn
    wanted = eval(tail, {"F": torch.nn.functional, "torch": torch, **given})  # a tail of this file
    found = torch.full(wanted.shape, float("nan"))

    run = _compiled(kernel.source, tmp_path)
    arguments: list[object] = []
    for argument in contract.arguments:
        if argument.source in given:
            arguments.append(ctypes.c_void_p(given[argument.source].data_ptr()))
        elif argument.source == task.outputs[0].name:
            arguments.append(ctypes.c_void_p(found.data_ptr()))
        elif argument.source in sizes:
            arguments.append(ctypes.c_int64(sizes[argument.source]))
        else:
            arguments.append(None)

    assert run.launch(*arguments) == 0
    torch.testing.assert_close(found, wanted, rtol=2e-6, atol=2e-6)


def test_nan_and_infinity_stay(tmp_path: Path) -> None:
    task, contract, made = described(tmp_path, ROWS, _large(ROWS), "F.relu(x @ w).clamp(max=3.0)")
    kernel = form_kernel(task, contract, made)
    assert kernel
    x, w = torch.eye(2), torch.tensor([[float("nan"), 1.0, float("inf")], [-1.0, 5.0, -float("inf")]])
    out = torch.empty(2, 3)
    pointers = [ctypes.c_void_p(each.data_ptr()) for each in (x, w, out)]

    assert _compiled(kernel.source, tmp_path).launch(*pointers, *map(ctypes.c_int64, (2, 2, 3)), None, None) == 0
    torch.testing.assert_close(out, torch.relu(x @ w).clamp(max=3.0), equal_nan=True)


@pytest.mark.parametrize(
    ("inputs", "result"),
    [
        (f'{LINEAR}; bias=normal("n")', "F.linear(x, w) + bias"),
        (f'{LINEAR}; bias=normal("n")', "bias + F.linear(x, w)"),
        (f'{ROWS}; bias=normal("n")', "x @ w + bias"),
    ],
)
def test_an_added_vector_is_a_bias(inputs: str, result: str, tmp_path: Path) -> None:
    small = '{"b": 2, "l": 50, "k": 64, "n": 30}' if "b, l" in inputs else '{"l": 50, "k": 64, "n": 30}'
    kernel = form_kernel(*described(tmp_path, inputs, small, result))

    assert kernel
    assert kernel.form == "product with bias"


@pytest.mark.parametrize(
    ("inputs", "result"),
    [
        (LINEAR, "F.gelu(F.linear(x, w)).transpose(1, 2).contiguous()"),  # not stored as the product writes it
        (LINEAR, "F.linear(x, w).softmax(-1)"),
        (LINEAR, "F.linear(x, w) + F.linear(x, w).mean(-1, keepdim=True)"),
        (f'{LINEAR}; r=normal("4, b, l, n")', "r + F.linear(x, w)"),  # wider than the product
        (f'{LINEAR}; r=normal("b, l, n", dtype="float16")', "r + F.linear(x, w)"),
        (f'{LINEAR}; i=integers("b, l, n", high=9)', "i + F.linear(x, w)"),
    ],
)
def test_what_is_almost_a_tail_is_not_claimed_as_one(inputs: str, result: str, tmp_path: Path) -> None:
    kernel = form_kernel(*described(tmp_path, inputs, LARGE, result))

    assert kernel is None or "then element-wise" not in kernel.form


def test_modest_products_leave_what_follows_to_another_kernel(tmp_path: Path) -> None:
    small = '{"b": 2, "l": 50, "k": 64, "n": 30}'

    assert form_kernel(*described(tmp_path, LINEAR, small, "F.gelu(F.linear(x, w))")) is None


@pytest.mark.parametrize(
    "tail",
    [
        "r + g * F.relu(torch.where(m[..., None], F.linear(x, w) + bias, 0.0))",
        *(pytest.param(tail, marks=pytest.mark.slow) for tail in list(TAILS)[4:]),
    ],
)
@pytest.mark.nvcc
def test_sources_compile(tail: str, tmp_path: Path) -> None:
    task, contract, made = described(tmp_path, TAILS[tail], _large(TAILS[tail]), tail)
    kernel = form_kernel(task, contract, made)
    assert kernel
    assert not compile_errors(kernel.source, contract, tmp_path)


def _large(tensors: str) -> str:
    """Sizes for which the form takes `matmul.cuh`."""
    return LARGE if "b" in re.findall(r"\b\w\b", tensors) else LARGE_ROWS


def _compiled(source: str, folder: Path) -> ctypes.CDLL:
    (folder / "warpsmith").mkdir()
    (folder / "warpsmith/matmul.cuh").write_text(MATMUL)
    (folder / "warpsmith/packs.cuh").write_text(PACKS)
    (folder / "kernel.cpp").write_text(source)
    command = ["g++", "-std=c++17", "-Wall", "-Werror", "-shared", "-fPIC", "-I.", "-o", "kernel.so", "kernel.cpp"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "kernel.so"))


def test_the_header_that_is_replaced_here_calls_the_end_as_here() -> None:
    header = (LIBRARY / "warpsmith/split_product.cuh").read_text(encoding="utf-8")

    assert "epilogue.finish(work.stack, row, column + 8 * j, sum[4 * j], sum[4 * j + 1]);" in header
    assert "epilogue.store(slice, work.stack, row, column + 8 * j, sum[4 * j], sum[4 * j + 1]);" in header
