"""`cpu/product.h`: products of any sizes and layouts against double precision, and the tasks that become its calls."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor

from tests.collection.test_cpu_forms import HEAD, task_text
from tests.kernel_templates.bundle import MOST_ERROR, Case, errors_of, problem_of
from tests.processes import KilledProcess
from warpsmith import kernel_templates as templates
from warpsmith.backends import cpu
from warpsmith.backends.library import LIBRARY
from warpsmith.backends.toolchain import find_cxx
from warpsmith.backends.tunables import tunables
from warpsmith.kernels.forms import form_kernel
from warpsmith.model.strategy import Plan
from warpsmith.tasks.load import load_task

PROGRAM = """
#include <warpsmith/cpu/product.h>
#define OPEN extern "C" __attribute__((visibility("default")))
using namespace warpsmith::products;

struct Factors {
  Factor a, b;
};
// Bits of the layout: the first factor transposed, the second one, the second one the same in the whole stack.
Factors factors(const float* a, const float* b, const Product& p, int layout) {
  const bool shared = layout & 4;
  return {layout & 1 ? across(a, p.rows, p.terms) : along(a, p.rows, p.terms),
          layout & 2 ? along(b, p.columns, p.terms, shared) : across(b, p.columns, p.terms, shared)};
}
struct Rest {
  const float* rest;
  int64_t rows, columns;
  float operator()(float sum, int64_t matrix, int64_t row, int64_t column) const {
    return max_nan(sum, 0.f) + rest[(matrix * rows + row) * columns + column];
  }
};
OPEN int64_t bytes(int64_t stack, int64_t rows, int64_t terms, int64_t columns, int layout) {
  const Product p{stack, rows, terms, columns};
  const Factors both = factors(nullptr, nullptr, p, layout);
  return product_bytes(p, both.a, both.b);
}
OPEN int run(const float* a, const float* b, const float* rest, float* out, void* workspace, int64_t stack,
             int64_t rows, int64_t terms, int64_t columns, int layout) {
  const Product p{stack, rows, terms, columns};
  const Factors both = factors(a, b, p, layout);
  return rest ? multiply(p, both.a, both.b, out, workspace, Rest{rest, rows, columns})
              : multiply(p, both.a, both.b, out, workspace);
}
// A pair of matrices whose rows, terms and columns all have steps.
OPEN int run_apart(const float* a, const float* b, float* out, void* workspace, int64_t rows, int64_t terms,
                   int64_t columns) {
  return multiply({1, rows, terms, columns}, {a, 3 * terms, 3, 0}, {b, 2, 2 * columns, 0}, out, workspace);
}
OPEN void parts(int64_t stack, int64_t rows, int64_t terms, int64_t columns, int layout, int64_t* found) {
  const Product p{stack, rows, terms, columns};
  const Factors both = factors(nullptr, nullptr, p, layout);
  const Plan plan = plan_of(p, both.a, both.b);
  found[0] = plan.dots, found[1] = plan.packs, found[2] = plan.row_blocks * plan.column_blocks, found[3] = plan.parts;
  found[4] = plan.threads;
}
OPEN void dimensions(int64_t* found) { found[0] = kRows, found[1] = kWidth, found[2] = kTerms; }
"""
EXTENTS = (0, 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 47, 48, 49, 65, 97, 130, 257, 513)
CASES = 160
MOST_PRODUCTS = 3e6
MOST = 1e-5  # of an error, in units of the root of the terms
GUARD = 64  # elements behind an array that nothing may write


class Library:
    """The products of the header, compiled once."""

    def __init__(self, path: Path) -> None:
        self.calls = ctypes.CDLL(str(path))
        number, pointer = ctypes.c_int64, ctypes.c_void_p
        self.calls.bytes.restype = number
        self.calls.bytes.argtypes = [*[number] * 4, ctypes.c_int]
        self.calls.run.argtypes = [*[pointer] * 5, *[number] * 4, ctypes.c_int]
        self.calls.run_apart.argtypes = [*[pointer] * 4, *[number] * 3]
        self.calls.parts.argtypes = [*[number] * 4, ctypes.c_int, pointer]

    def multiply(self, a: Tensor, b: Tensor, layout: int, rest: Tensor | None = None) -> Tensor:
        """The product of two stacks as they lie in memory."""
        stack, rows, terms = a.shape if not layout & 1 else (a.shape[0], a.shape[2], a.shape[1])
        columns = b.shape[1] if layout & 2 else b.shape[2]
        sizes = stack, rows, terms, columns, layout
        out = torch.full((math.prod((stack, rows, columns)) + GUARD,), 77.0)
        needed = self.calls.bytes(*sizes)
        workspace = torch.full((needed // 4 + GUARD,), 55.0)
        a, b = before_forbidden_page(a), before_forbidden_page(b)
        pointers = a.data_ptr(), b.data_ptr(), None if rest is None else rest.data_ptr(), out.data_ptr()
        assert self.calls.run(*pointers, workspace.data_ptr(), *sizes) == 0
        assert bool((workspace[needed // 4 :] == 55).all()), sizes
        assert bool((out[out.numel() - GUARD :] == 77).all()), sizes
        return out[: out.numel() - GUARD].reshape(stack, rows, columns)

    def plan(self, *sizes: int) -> dict[str, int]:
        found = (ctypes.c_int64 * 5)()
        self.calls.parts(*sizes, found)
        return dict(zip(("dots", "packs", "blocks", "parts", "threads"), found, strict=True))


def before_forbidden_page(tensor: Tensor) -> Tensor:
    """A copy behind whose last element memory cannot be read: a read past the end kills the process."""
    size = tensor.nbytes
    if not size:
        return tensor
    usable = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, usable + mmap.PAGESIZE)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(begin + usable), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    copy = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel(), offset=usable - size)
    return copy.reshape(tensor.shape).copy_(tensor)


def compiled(folder: Path, *flags: str) -> Path:
    compiler = find_cxx(os.environ)
    assert compiler is not None
    source, library = folder / "products.cpp", folder / "products.so"
    source.write_text(PROGRAM)
    options = [each for each in cpu._FLAGS if each != "-O3"]
    command = [*compiler.command, "-O1", *options, *flags, f"-I{LIBRARY}", str(source), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    return library


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(compiled(tmp_path_factory.mktemp("products"), "-march=native"))


def drawn_sizes() -> Iterator[tuple[int, int, int, int, int]]:
    """Stack, rows, terms, columns and layout: some of every kind."""
    yield from ((1, *sizes, layout) for sizes in ((3, 2500, 5), (40, 9, 2000), (1, 0, 3)) for layout in range(4))
    random, found = Random(7), 0
    while found < CASES:
        stack, (rows, terms, columns) = random.choice((1, 1, 1, 2, 5)), random.choices(EXTENTS, k=3)
        if stack * rows * terms * columns <= MOST_PRODUCTS:
            found += 1
            yield stack, rows, terms, columns, random.randrange(8)


def factors(stack: int, rows: int, terms: int, columns: int, layout: int) -> tuple[Tensor, Tensor]:
    a = torch.randn(stack, *((terms, rows) if layout & 1 else (rows, terms)))
    return a, torch.randn(1 if layout & 4 else stack, *((columns, terms) if layout & 2 else (terms, columns)))


def reference(a: Tensor, b: Tensor, layout: int) -> Tensor:
    first, second = a.double(), b.double()
    return (first.mT if layout & 1 else first) @ (second.mT if layout & 2 else second)


def test_products_of_any_sizes_are_right(library: Library) -> None:
    torch.manual_seed(1)
    wrong = []
    for sizes in drawn_sizes():
        a, b = factors(*sizes)
        expected = reference(a, b, sizes[-1])
        found = library.multiply(a, b, sizes[-1])
        rest = torch.randn(found.shape)
        ended = library.multiply(a, b, sizes[-1], rest)
        limit = MOST * max(1.0, math.sqrt(sizes[2]))
        error = (found - expected).abs().max() if found.numel() else torch.zeros(())
        if not error <= limit or not torch.equal(ended, found.clamp(min=0) + rest):
            wrong.append((sizes, float(error)))

    assert wrong == []


def test_every_path_is_among_the_sizes(library: Library) -> None:
    plans = [library.plan(*sizes) for sizes in drawn_sizes() if math.prod(sizes[:4])]

    assert {bool(each["dots"]) for each in plans} == {bool(each["packs"]) for each in plans} == {True, False}
    assert any(each["blocks"] > 1 for each in plans) or plans[0]["threads"] == 1
    assert any(each["parts"] > 1 for each in plans) or max(each["threads"] for each in plans) == 1


def test_factors_whose_elements_are_apart(library: Library) -> None:
    for rows, terms, columns in ((5, 9, 20), (9, 300, 3), (50, 17, 70)):
        a, b, out = torch.randn(rows, terms, 3), torch.randn(terms, columns, 2), torch.zeros(rows, columns)
        workspace = torch.zeros(1 << 18)
        pointers = a.data_ptr(), b.data_ptr(), out.data_ptr(), workspace.data_ptr()
        assert library.calls.run_apart(*pointers, rows, terms, columns) == 0

        error = (out - a[..., 0].double() @ b[..., 0].double()).abs().max()

        assert error <= MOST * math.sqrt(terms)


def test_special_values_stay_in_their_rows_and_columns(library: Library) -> None:
    for layout, (rows, terms, columns) in product(range(4), ((9, 20, 50), (70, 300, 21), (3, 40, 7))):
        a, b = torch.randn(1, rows, terms), torch.randn(1, terms, columns)
        a[0, 1, 2], b[0, 5, columns - 1], a[0, rows - 1, 7] = math.nan, math.inf, -math.inf
        given = a.mT.contiguous() if layout & 1 else a, b.mT.contiguous() if layout & 2 else b

        found, expected = library.multiply(*given, layout), a.double() @ b.double()

        assert torch.equal(found.isnan(), expected.isnan()), (layout, rows, terms, columns)
        assert torch.equal(found.isinf(), expected.isinf())
        ended = library.multiply(*given, layout, torch.zeros(1, rows, columns))
        assert torch.equal(ended.isnan(), expected.isnan())


def test_calls_give_the_same_bits_and_few_terms_exact_sums(library: Library) -> None:
    for sizes in ((1, 32, 4096, 32, 0), (1, 130, 200, 97, 3), (1, 4, 3000, 9, 2)):
        a, b = factors(*sizes)
        first = library.multiply(a, b, sizes[-1])
        assert all(torch.equal(first, library.multiply(a, b, sizes[-1])) for _ in range(3))
        whole = a.round(), b.round()
        assert torch.equal(library.multiply(*whole, sizes[-1]).double(), reference(*whole, sizes[-1]))


_OTHER_THREADS = """
import ctypes, math, sys
from array import array
library = ctypes.CDLL(sys.argv[1])
library.bytes.restype = ctypes.c_int64
for stack, rows, terms, columns, layout in ((1, 32, 2100, 33, 0), (3, 90, 70, 101, 1), (1, 5, 3000, 40, 2)):
    a = array("f", (math.sin(n) for n in range(stack * rows * terms)))
    b = array("f", (math.cos(n) for n in range(stack * terms * columns)))
    out = array("f", bytes(4 * stack * rows * columns))
    sizes = [ctypes.c_int64(n) for n in (stack, rows, terms, columns)]
    workspace = array("b", bytes(library.bytes(*sizes, layout)))
    pointers = [ctypes.c_void_p(each.buffer_info()[0]) for each in (a, b)]
    ends = [ctypes.c_void_p(each.buffer_info()[0]) for each in (out, workspace)]
    library.run(*pointers, None, *ends, *sizes, layout)
    places = [(0, 0, 0), (stack - 1, rows - 1, columns - 1), (0, rows // 2, columns // 3)]
    for s, i, j in places:
        left = [a[s * rows * terms + (k * rows + i if layout & 1 else i * terms + k)] for k in range(terms)]
        right = [b[s * terms * columns + (j * terms + k if layout & 2 else k * columns + j)] for k in range(terms)]
        error = abs(out[(s * rows + i) * columns + j] - math.fsum(x * y for x, y in zip(left, right)))
        assert error < 1e-5 * math.sqrt(terms), (rows, s, i, j, error)
print("right")
"""


@pytest.mark.parametrize("threads", [1, 3, 8])
def test_any_number_of_threads(library: Library, threads: int) -> None:
    command = [sys.executable, "-c", _OTHER_THREADS, library.calls._name]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    with KilledProcess(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        told, _ = process.communicate(timeout=60)

    assert told == "right\n"


@pytest.mark.skipif(shutil.which("aarch64-linux-gnu-g++") is None, reason="no compiler for aarch64")
def test_sums_are_vectors_on_aarch64(tmp_path: Path) -> None:
    (tmp_path / "products.cpp").write_text(PROGRAM)
    command = ["aarch64-linux-gnu-g++", "-std=c++17", "-O2", "-fopenmp", "-ffp-contract=fast", f"-I{LIBRARY}", "-S"]
    done = subprocess.run(
        [*command, str(tmp_path / "products.cpp"), "-o", "-"], capture_output=True, text=True, timeout=120, check=True
    )

    assert done.stdout.count("fmla") > 100


# --- the form ---

TASKS = (  # tensors, sizes, the result, what the form calls it
    ({"a": "m, k", "b": "k, n"}, "a @ b", "product"),
    ({"a": "k, m", "b": "n, k"}, "a.T @ b.T", "product"),
    ({"a": "b, m, k", "c": "b, k, n"}, "torch.bmm(a, c)", "batched product"),
    ({"a": "b, m, k", "c": "n, k"}, "F.linear(a, c)", "product"),
    ({"a": "m, k", "c": "n, k", "d": "n"}, "F.linear(a, c, d)", "product with bias"),
    ({"a": "m, k", "c": "n, k", "d": "n"}, "F.gelu(F.linear(a, c, d))", "product with bias, then"),
    ({"a": "m, k", "c": "n, k", "d": "m, n"}, "torch.relu(F.linear(a, c)) * d + d", "product, then"),
    ({"a": "b, m, k", "c": "b, k, n", "d": "b, m, 1"}, "(a @ c).clamp(min=0.5).maximum(d)", "batched product, then"),
    ({"a": "m, k", "c": "k, n"}, "torch.triu(a @ c, 1)", "product, then"),
)
SIZES = {"b": 3, "m": 37, "k": 19, "n": 53}, {"b": 1, "m": 9, "k": 65, "n": 5}


def written(tasks: list[str], folder: Path) -> list[Case]:
    file = folder / "tasks.py"
    file.write_text("\n\n".join([HEAD, *tasks]))
    cases = []
    for number in range(len(tasks)):
        program = load_task(f"{file}::mine{number}")
        problem = problem_of(program, "cpu")
        assert problem.outline is not None
        found = form_kernel(problem.task, problem.contract, problem.outline)
        assert found is not None, tasks[number]
        assert "<warpsmith/cpu/product.h>" in found.source
        assert found.form.startswith(TASKS[number][2])
        cases.append(Case(program, problem, Plan(), found.source))
    return cases


def test_products_and_what_follows_them_are_those_of_pytorch(tmp_path: Path) -> None:
    texts = []
    for number, (tensors, result, _) in enumerate(TASKS):
        names = {name for dims in tensors.values() for name in dims.split(", ") if name.isalpha()}
        sizes = [{name: each[name] for name in sorted(names)} for each in SIZES]
        texts.append(task_text(f"mine{number}", tensors, sizes, result))
    cases = written(texts, tmp_path)

    errors = errors_of(cases, tmp_path)

    assert {texts[n]: each for n, each in enumerate(errors) if not max(each) < MOST_ERROR} == {}
    assert {"TUNE_SUM_TERMS", "TUNE_BLOCK_KB"} == {each.name for each in tunables(cases[0].source)}


def test_a_search_still_finds_the_templates_strategies(tmp_path: Path) -> None:
    texts = [task_text("mine0", TASKS[0][0], [{"m": 64, "k": 64, "n": 64}], TASKS[0][1])]
    (case,) = written(texts, tmp_path)

    assert {"register-tile", "packed-panels", "cache-blocking"} <= {s.name for s in templates.abilities(case.problem)}


@pytest.mark.parametrize(
    "result", ["a.double() @ b.double()", "(a @ b).sum(1)", "a @ b @ b", "torch.softmax(a @ b, 1)"]
)
def test_what_is_not_one_product_is_left(result: str, tmp_path: Path) -> None:
    tensors = {"a": "m, k", "b": "k, k"}
    (tmp_path / "task.py").write_text(f"{HEAD}\n{task_text('mine0', tensors, [{'m': 5, 'k': 9}], result)}")
    problem = problem_of(load_task(f"{tmp_path / 'task.py'}::mine0"), "cpu")
    assert problem.outline is not None

    found = form_kernel(problem.task, problem.contract, problem.outline)

    assert found is None or "product" not in found.form
