"""The largest elements of rows (`row_top_k.cuh` and the form), on the emulated device."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.collection import test_long_scan
from tests.collection.test_forms import described
from tests.collection.test_long_scan import aligned, build, called
from tests.cuda_front_end import compile_errors
from tests.kernel_templates.bundle import problem_of
from warpsmith.backends.library import LIBRARY
from warpsmith.kernel_templates.in_parts import in_parts
from warpsmith.kernels.form_task import FormKernel, FormTask, NotThisForm
from warpsmith.kernels.form_top_k import top_k
from warpsmith.kernels.forms import form_kernel
from warpsmith.model.contract import Contract
from warpsmith.tasks.load import load_task

DEVICE = """
inline unsigned __float_as_uint(float x) { unsigned u; std::memcpy(&u, &x, 4); return u; }
inline float __uint_as_float(unsigned u) { float x; std::memcpy(&x, &u, 4); return x; }
inline unsigned __popc(unsigned v) { return unsigned(__builtin_popcount(v)); }
template <typename F> unsigned reduced(unsigned v, F f) {
  for (int s = 16; s; s /= 2) v = f(v, __shfl_xor_sync(~0u, v, s));
  return v;
}
inline unsigned plus(unsigned a, unsigned b) { return a + b; }
inline unsigned most(unsigned a, unsigned b) { return a > b ? a : b; }
inline unsigned least(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned __reduce_add_sync(unsigned, unsigned v) { return reduced(v, plus); }
inline unsigned __reduce_max_sync(unsigned, unsigned v) { return reduced(v, most); }
inline unsigned __reduce_min_sync(unsigned, unsigned v) { return reduced(v, least); }
inline int __syncthreads_count(bool p) {
  static thread_local int found;
  __syncthreads();
  found = 0;
  __syncthreads();
  found += p;
  __syncthreads();
  return found;
}
inline bool __syncthreads_or(bool p) { return __syncthreads_count(p) > 0; }
"""
X = 'x=normal("rows, cols")'
SIZES = '{"rows": 5, "cols": 150}'
CALLS = {  # what is asked for: the number of elements, and whether the largest are
    "torch.topk(x, 1)": (1, True),
    "torch.topk(x, 3, -1)": (3, True),
    "torch.topk(x, 8)": (8, True),
    "torch.topk(x, 50, dim=1)": (50, True),
    "torch.topk(x, 128)": (128, True),
    "torch.topk(x, 8, largest=False)": (8, False),
    "torch.topk(x, 64, largest=False)": (64, False),
}


def written(folder: Path, result: str, tensors: str = X, sizes: str = SIZES) -> tuple[FormKernel, Contract]:
    task, contract, recorded = described(folder, tensors, sizes, result)
    return top_k(FormTask(task, contract, recorded)), contract


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> tuple[ctypes.CDLL, list[Contract]]:
    """The kernels for all of `CALLS`."""
    folder = tmp_path_factory.mktemp("top_k")
    made = [written(folder, result) for result in CALLS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_long_scan, "DEVICE", test_long_scan.DEVICE + DEVICE)
        library = build(folder, ("packs.cuh", "row_top_k.cuh"), [kernel.source for kernel, _ in made], ())
    return library, [contract for _, contract in made]


def check(kernels: tuple[ctypes.CDLL, list[Contract]], result: str, x: Tensor) -> None:
    """The values are those of PyTorch; each place is named once and holds its value; the first of equals is taken."""
    library, contracts = kernels
    count, largest = CALLS[result]
    values = aligned(torch.full((x.shape[0], count), 77.0))
    indices = aligned(torch.full((x.shape[0], count), -1))

    sizes = {"rows": x.shape[0], "cols": x.shape[1]}
    called(library, list(CALLS).index(result), contracts[list(CALLS).index(result)], sizes, aligned(x), values, indices)

    expected = torch.sort(x, dim=1, descending=largest, stable=True)
    shape = tuple(x.shape)
    assert torch.equal(values.nan_to_num(123.0, 456.0, -456.0), topped(x, count, largest)), shape
    assert torch.equal(indices, expected.indices[:, :count]), shape


def topped(x: Tensor, count: int, largest: bool) -> Tensor:
    return torch.topk(x, count, dim=1, largest=largest).values.nan_to_num(123.0, 456.0, -456.0)


# Around the limits of the kernels; the longest are cut into parts where rows are few.
LENGTHS = (1, 7, 8, 9, 16, 31, 32, 33, 65, 129, 300, 777, 1025, 3001, 8190, 9001)


@pytest.mark.parametrize("result", CALLS)
def test_the_best_are_those_of_pytorch(kernels: tuple[ctypes.CDLL, list[Contract]], result: str) -> None:
    generator = torch.Generator().manual_seed(1)
    for length in {*LENGTHS, CALLS[result][0], CALLS[result][0] + 1}:
        if length >= CALLS[result][0]:
            rows = 1 if length > 1024 else 5
            check(kernels, result, torch.randn(rows, length, generator=generator))
    check(kernels, result, torch.empty(0, 200))


@pytest.mark.parametrize(
    "result", ["torch.topk(x, 3, -1)", "torch.topk(x, 50, dim=1)", "torch.topk(x, 64, largest=False)"]
)
@pytest.mark.parametrize("length", [64, 200, 700, 2501])
def test_equal_values_infinities_and_nan(kernels: tuple[ctypes.CDLL, list[Contract]], result: str, length: int) -> None:
    generator = torch.Generator().manual_seed(2)
    rows = torch.randint(-2, 3, (6, length), generator=generator).float()
    rows[1] = 0.25
    rows[2, ::3] = torch.nan
    rows[3] = torch.nan
    rows[3, 5] = 1.0
    rows[4, ::2], rows[4, 1::5] = -torch.inf, torch.inf
    rows[5] = -torch.inf
    for row in rows if length > 1024 else (rows,):
        check(kernels, result, row.view(-1, length))


@pytest.mark.parametrize("result", ["torch.topk(x, 50, dim=1)", "torch.topk(x, 64, largest=False)"])
def test_rows_in_which_every_element_is_better_than_those_before(
    kernels: tuple[ctypes.CDLL, list[Contract]], result: str
) -> None:
    for length in (3000, 9002):
        rising = torch.arange(float(length)) * 0.5 - 999.0
        check(kernels, result, rising.view(1, -1))
        check(kernels, result, rising.flip(0).view(1, -1))


@pytest.mark.slow  # 40 s
def test_many_long_rows_are_not_cut(kernels: tuple[ctypes.CDLL, list[Contract]]) -> None:
    x = torch.randn(1, 8193, generator=torch.Generator().manual_seed(3)).expand(264, -1).contiguous()
    x[:, 0] = torch.arange(264.0)

    check(kernels, "torch.topk(x, 3, -1)", x)


@pytest.mark.parametrize(
    ("tensors", "result", "parts"),
    [
        (X, "torch.topk(x, 4)[0]", ("top_of_rows<4, true>(x, out, nullptr, rows, cols",)),
        (X, "torch.topk(x, 4).indices", ("top_of_rows<4, true>(x, nullptr, out, rows, cols",)),
        (X, "torch.topk(x, 4, largest=False, sorted=False)[1]", ("top_of_rows<4, false>(x, nullptr, out, ",)),
        (X, "torch.topk(x, 4)[::-1]", ("(x, out1, out0, ",)),
        ('x=normal("n")', "torch.topk(x, 4).values", ("(x, out, nullptr, 1, n",)),
        ('x=normal("batch, rows, cols")', "torch.topk(x, 4).values", ("batch * rows, cols",)),
        ('x=normal("batch, rows, cols")', "torch.topk(x.view(-1, x.shape[2]), 4).values", ("out_dim0, cols",)),
        (X, "torch.topk(x, 4).indices.flatten()", ("(x, nullptr, out, ",)),
    ],
)
def test_what_is_claimed(tensors: str, result: str, parts: tuple[str, ...], tmp_path: Path) -> None:
    sizes = {'x=normal("n")': '{"n": 500}', X: SIZES}.get(tensors, '{"batch": 2, "rows": 5, "cols": 150}')
    task, contract, recorded = described(tmp_path, tensors, sizes, result)

    found = form_kernel(task, contract, recorded)

    assert found is not None
    for part in parts:
        assert part in found.source, found.source


@pytest.mark.parametrize(
    ("tensors", "result"),
    [
        (X, "torch.topk(x, 4, dim=0)"),
        (X, "torch.topk(x, 129)"),
        (X, "torch.topk(x, 4, sorted=False)"),
        (X, "torch.topk(x * 2, 4)"),
        (X, "torch.topk(x.t(), 4)"),
        (X, "torch.topk(x, 4).values.t()"),
        (X, "torch.sort(x)"),
        ('x=normal("rows, cols", dtype="float64")', "torch.topk(x, 4)"),
    ],
)
def test_what_is_almost_a_top_k_of_rows_is_not_claimed(tensors: str, result: str, tmp_path: Path) -> None:
    with pytest.raises(NotThisForm):
        written(tmp_path, result, tensors)


ROUTING = {
    "router": ("y = torch.softmax(x, -1)", "v, i = torch.topk(y, 8, dim=-1)", "v / v.sum(-1, keepdim=True), i"),
    "router, softmax after": ("v, i = torch.topk(x, 2, dim=-1)", "torch.softmax(v, -1), i"),
    "gates": ("v, i = torch.topk(torch.sigmoid(x), 4)", "v / (v.sum(-1, keepdim=True) + 1e-9)"),
    "smallest distances": ("d, i = torch.topk((x * x), 5, largest=False)", "torch.exp(-d), i"),
}


@pytest.mark.parametrize("name", ROUTING)
def test_a_top_k_is_a_part_of_a_chain(name: str, tmp_path: Path) -> None:
    *before, result = ROUTING[name]
    body = "\n    ".join([*before, f"return {result}"])
    (tmp_path / "mine.py").write_text(
        "import torch\nfrom warpsmith import normal, task\n"
        f'@task({X}, workloads=[{{"rows": 1000, "cols": 64}}])\ndef mine(x):\n    {body}\n'
    )

    found = in_parts(problem_of(load_task(tmp_path / "mine.py"), "cuda"))

    assert found is not None
    assert re.search(r"top \d of each row", found.form)
    assert "row_top_k.cuh" in found.source


@pytest.mark.nvcc
@pytest.mark.parametrize("result", ["torch.topk(x, 8)", "torch.topk(x, 50, largest=False).indices"])
def test_the_text_compiles(result: str, tmp_path: Path) -> None:
    found, contract = written(tmp_path, result)
    assert not compile_errors(found.source, contract, tmp_path)


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 8, 50, 128])
def test_the_kernels_keep_what_they_compute_in_registers(count: int, tmp_path: Path) -> None:
    found, _ = written(tmp_path, f"torch.topk(x, {count})")
    (tmp_path / "kernel.cu").write_text(found.source)
    flags = ["-std=c++17", "-arch=sm_90a", "-Xptxas", "-v", f"-I{LIBRARY}", "-c"]

    done = subprocess.run(["nvcc", *flags, "kernel.cu"], cwd=tmp_path, check=True, capture_output=True, text=True)

    assert done.stderr.count("0 bytes spill stores") == done.stderr.count("bytes spill stores") > 8
