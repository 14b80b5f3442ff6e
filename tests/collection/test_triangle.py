"""One triangle of a product (`triangle_product.cuh`, the form): tiles and zeros on the host; which tasks have it."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from tests.collection.test_forms import described
from tests.cuda_front_end import compile_errors
from warpsmith.backends.library import LIBRARY
from warpsmith.kernels.form_task import FormKernel, FormTask, NotThisForm
from warpsmith.kernels.form_triangle import triangle_of_product
from warpsmith.kernels.forms import form_kernel

FACTORS = 'a=normal("m, k"); b=normal("k, n")'
SIZES = '{"m": 600, "k": 70, "n": 500}'

HOST = """
#include <algorithm>
#include <cstdint>
#define __device__
#define __forceinline__ inline
using std::min;
struct int2 { int x, y; };
inline int2 make_int2(int x, int y) { return {x, y}; }
struct Extent { int first, last; };
struct Store {
  float* out;
  bool by_rows() const { return true; }
  float* row_at(int64_t, int) const { return out; }
  void store(int64_t, int64_t, int, int, float u, float v) const { out[0] = u, out[1] = v; }
};
struct Shape { static constexpr int TILE_M = 128, TILE_N = 192; };
"""
CALLS = """
extern "C" void tile(int group, int index, int rows, int columns, int* found) {
  const int2 at = OfTriangle<Triangle::UPPER, true>{1, group}.tile(index, rows, columns);
  found[0] = at.x, found[1] = at.y;
}
extern "C" void extent(int lower, int tile_m, int tile_n, int splits, int split, int chunks, int* found) {
  const OfTriangle<Triangle::UPPER, false> above{splits, 8};
  const OfTriangle<Triangle::LOWER, false> below{splits, 8};
  const Extent part = lower ? below.template extent<Shape>(tile_m, tile_n, split, chunks)
                            : above.template extent<Shape>(tile_m, tile_n, split, chunks);
  found[0] = part.first, found[1] = part.last;
}
extern "C" void stored(int lower, int row, int column, float* found) {
  if (lower)
    StoreTriangle<Triangle::LOWER>{Store{found}}.store(0, 0, row, column, 7.0f, 8.0f);
  else
    StoreTriangle<Triangle::UPPER>{Store{found}}.store(0, 0, row, column, 7.0f, 8.0f);
}
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """What the header says about tiles, compiled for the host."""
    folder = tmp_path_factory.mktemp("triangle")
    header = (LIBRARY / "warpsmith/triangle_product.cuh").read_text(encoding="utf-8")
    inside = header.partition("namespace split {")[2].partition("}  // namespace split")[0]
    (folder / "tiles.cpp").write_text(HOST + inside + CALLS)
    command = ["g++", "-std=c++17", "-shared", "-fPIC", "-o", "tiles.so", "tiles.cpp"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "tiles.so"))


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (8, 5), (9, 4), (23, 32), (3, 40)])
def test_every_tile_has_one_thread_block(rows: int, columns: int, host: ctypes.CDLL) -> None:
    place = (ctypes.c_int * 2)()
    tiles = set()
    for index in range(rows * columns):
        host.tile(8, index, rows, columns, place)
        tiles.add(tuple(place))

    assert tiles == {(row, column) for row in range(rows) for column in range(columns)}


@pytest.mark.parametrize("lower", [0, 1])
def test_tiles_without_an_element_of_the_triangle_add_up_nothing(lower: int, host: ctypes.CDLL) -> None:
    part = (ctypes.c_int * 2)()
    for tile_m in range(9):
        for tile_n in range(9):
            rows, columns = (tile_m * 128, tile_m * 128 + 127), (tile_n * 192, tile_n * 192 + 191)
            inside = columns[0] <= rows[1] if lower else columns[1] >= rows[0]
            found = list[int]()
            for split in range(3):
                host.extent(lower, tile_m, tile_n, 3, split, 10, part)
                found += range(*part)
            assert found == (list(range(10)) if inside else [])


@pytest.mark.parametrize("lower", [0, 1])
def test_elements_of_the_other_triangle_are_zero(lower: int, host: ctypes.CDLL) -> None:
    pair = (ctypes.c_float * 2)()
    for row in range(5):
        for column in range(0, 6, 2):
            host.stored(lower, row, column, pair)
            kept = [c <= row if lower else c >= row for c in (column, column + 1)]
            assert list(pair) == [value if keep else 0.0 for value, keep in zip((7.0, 8.0), kept, strict=True)]


def written(folder: Path, tensors: str, result: str, sizes: str = SIZES, precision: str = "fp32") -> FormKernel:
    return triangle_of_product(FormTask(*described(folder, tensors, sizes, result, precision)))


@pytest.mark.parametrize(
    ("tensors", "result", "call"),
    [
        (
            FACTORS,
            "torch.triu(a @ b)",
            "Triangle::UPPER>(p, warpsmith::plain(a, p.rows, p.terms), warpsmith::transposed(b, p.columns, p.terms)",
        ),
        (
            'a=normal("k, m"); b=normal("n, k")',
            "(a.T @ b.T).tril()",
            "Triangle::LOWER>(p, warpsmith::transposed(a, p.rows, p.terms), warpsmith::plain(b, p.columns, p.terms)",
        ),
    ],
)
def test_a_triangle_of_a_product_has_a_form(tensors: str, result: str, call: str, tmp_path: Path) -> None:
    found = written(tmp_path, tensors, result)

    assert f"multiply_triangle<warpsmith::split::{call}" in found.source
    assert "return {1, m, k, n, true};" in found.source
    assert form_kernel(*described(tmp_path, tensors, SIZES, result)) == found


def test_a_large_one_is_no_product_with_an_end(tmp_path: Path) -> None:
    sizes = '{"m": 4096, "k": 4096, "n": 4096}'
    found = form_kernel(*described(tmp_path, FACTORS, sizes, "torch.triu(a @ b)"))

    assert found is not None
    assert found.form == "upper triangle of a product"


def test_the_tf32_class_has_it_too(tmp_path: Path) -> None:
    found = written(tmp_path, FACTORS, "torch.triu(a @ b)", precision="tf32")

    assert "triangle_bytes<warpsmith::Tf32>(" in found.source
    assert "Triangle::UPPER, warpsmith::Tf32>(" in found.source


@pytest.mark.parametrize(
    ("tensors", "result"),
    [
        (FACTORS, "torch.triu(a @ b, 1)"),
        (FACTORS, "torch.tril(a @ b, -1)"),
        (FACTORS, "a @ b"),
        (FACTORS, "torch.triu(a) @ b"),
        (FACTORS, "torch.triu(a @ b).T.contiguous()"),
        (FACTORS, "torch.triu((a @ b).T)"),
        (FACTORS, "torch.triu(a @ b) + 1"),
        (f'{FACTORS}; c=normal("n")', "torch.triu(torch.addmm(c, a, b))"),
        ('a=normal("2, m, k"); b=normal("2, k, n")', "torch.triu(a @ b)"),
        ('a=normal("2, m, k"); b=normal("k, n")', "torch.triu(a @ b)"),
        ('a=normal("m, n"); b=normal("m, n")', "torch.triu(a * b)"),
    ],
)
def test_what_is_almost_a_triangle_of_a_product_is_not_claimed(tensors: str, result: str, tmp_path: Path) -> None:
    with pytest.raises(NotThisForm):
        written(tmp_path, tensors, result)


@pytest.mark.nvcc
def test_the_text_compiles(tmp_path: Path) -> None:
    task, contract, recorded = described(tmp_path, FACTORS, SIZES, "torch.triu(a @ b)")
    found = form_kernel(task, contract, recorded)
    assert found is not None
    assert not compile_errors(found.source, contract, tmp_path)
