"""Running sums and products along an axis that is not the last (`axis_scan.cuh`), on the emulated device and a CPU."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.collection import test_long_scan
from tests.collection.test_forms import described
from tests.collection.test_long_scan import aligned, build, called
from tests.kernel_templates.bundle import problem_of
from warpsmith.backends.library import LIBRARY
from warpsmith.backends.source import backend_named
from warpsmith.backends.toolchain import find_cxx
from warpsmith.kernel_templates.in_parts import in_parts
from warpsmith.kernels.form_scan import scan
from warpsmith.kernels.form_task import FormTask
from warpsmith.kernels.forms import form_kernel
from warpsmith.model.build import Artifact, DeviceKind, Target
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.contract import Contract
from warpsmith.tasks.load import load_task

PAIRS = """
struct alignas(8) float2 { float x, y; };
inline float2 make_float2(float a, float b) { return {a, b}; }
"""
WAY = """
extern "C" int launch(int64_t batch, int64_t rows, int64_t cols) {
  using namespace warpsmith::axis_scan;
  return walks(batch, rows, cols) ? 0 : int(cut_of(batch, rows, cols).parts);
}
"""
X = 'x=normal("batch, rows, cols")'
SIZES = '{"batch": 5, "rows": 70, "cols": 65}'
PAD = "torch.nn.functional.pad"
SCANS = {
    "sum": "x.cumsum(1)",
    "reverse sum": "x.flip(1).cumsum(-2).flip(1)",
    "exclusive sum": f"{PAD}(x, (0, 0, 1, 0)).cumsum(1)[:, :-1]",
    "exclusive reverse sum": f"{PAD}(x.flip(-2), (0, 0, 1, 0)).cumsum(dim=1)[:, :-1].flip(-2)",
    "product": "x.cumprod(dim=1)",
    "reverse product": "x.flip(1).cumprod(dim=1).flip(1)",
}
SHAPES = (
    *((1, 1, 3), (3, 5, 8), (2, 32, 7), (7, 33, 1), (2, 40, 4), (3, 129, 8), (2, 65, 13), (1, 300, 34), (2, 257, 32)),
    *((1, 2049, 3), (1, 3001, 6), (1, 2500, 33), (2, 2048, 36), (1, 4100, 10), (0, 40, 8), (3, 0, 8), (3, 40, 0)),
)


def reference(kind: str, x: Tensor) -> Tensor:
    """What PyTorch gives."""
    x = x.flip(1) if "reverse" in kind else x
    if "exclusive" in kind:
        x = torch.nn.functional.pad(x, (0, 0, 1, 0)).cumsum(dim=1)[:, :-1]
    else:
        x = x.cumprod(dim=1) if "product" in kind else x.cumsum(dim=1)
    return x.flip(1) if "reverse" in kind else x


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> tuple[ctypes.CDLL, list[Contract]]:
    """The kernels for all of `SCANS`."""
    folder = tmp_path_factory.mktemp("axis_scan")
    written, contracts = [], []
    for result in SCANS.values():
        task, contract, recorded = described(folder, X, SIZES, result)
        kernel = form_kernel(task, contract, recorded)
        assert kernel is not None
        assert "axis_scan.cuh" in kernel.source
        written.append(kernel.source)
        contracts.append(contract)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(test_long_scan, "DEVICE", test_long_scan.DEVICE + PAIRS)
        library = build(folder, ("packs.cuh", "scan.cuh", "long_scan.cuh", "axis_scan.cuh"), [*written, WAY], ())
    return library, contracts


def scanned(scans: tuple[ctypes.CDLL, list[Contract]], kind: str, x: Tensor) -> Tensor:
    """The kernel's result."""
    library, contracts = scans
    number = list(SCANS).index(kind)
    found = aligned(torch.full(x.shape, 77.0))
    called(
        library,
        number,
        contracts[number],
        dict(zip(("batch", "rows", "cols"), x.shape, strict=True)),
        aligned(x),
        found,
    )
    assert torch.as_strided(found, (16,), (1,), found.storage_offset() + found.numel()).eq(0).all(), "wrote behind"
    return found


@pytest.mark.parametrize("kind", SCANS)
def test_the_scan_is_that_of_pytorch(scans: tuple[ctypes.CDLL, list[Contract]], kind: str) -> None:
    generator = torch.Generator().manual_seed(1)
    for shape in SHAPES:
        x = torch.randn(shape, generator=generator)
        if "product" in kind:
            x = 1 + x * 0.003

        found = scanned(scans, kind, x)

        assert torch.allclose(found.double(), reference(kind, x.double()), rtol=2e-7, atol=1e-12), shape


def test_the_shapes_take_every_way(scans: tuple[ctypes.CDLL, list[Contract]]) -> None:
    way = getattr(scans[0], f"launch_{len(SCANS)}")
    ways = {shape: way(*map(ctypes.c_int64, shape)) for shape in SHAPES if 0 not in shape}

    assert ways[(1, 1, 3)] == ways[(2, 32, 7)] == 0
    assert ways[(7, 33, 1)] == ways[(1, 300, 34)] == 1
    assert ways[(1, 2049, 3)] == ways[(2, 2048, 36)] == 2
    assert ways[(1, 4100, 10)] == 4
    assert way(*map(ctypes.c_int64, (16, 2048, 1024))) == 1
    assert way(*map(ctypes.c_int64, (1024, 2048, 1024))) == 0
    assert way(*map(ctypes.c_int64, (1, 1_000_000, 4))) == 64


@pytest.mark.parametrize("shape", [(2, 20, 8), (1, 150, 34), (1, 2500, 5)])
def test_infinities_and_nan_stay_where_they_are(
    scans: tuple[ctypes.CDLL, list[Contract]], shape: tuple[int, ...]
) -> None:
    x = torch.ones(shape)
    x[0, 17, 0], x[0, 3, 1], x[0, -1, 2], x[0, 9, 3] = torch.inf, -torch.inf, torch.nan, torch.nan

    for kind in ("sum", "exclusive reverse sum"):
        expected = reference(kind, x)
        assert torch.equal(scanned(scans, kind, x).nan_to_num(-7), expected.nan_to_num(-7)), kind


def test_a_sum_of_many_elements_keeps_what_is_small(scans: tuple[ctypes.CDLL, list[Contract]]) -> None:
    x = torch.full((1, 60_000, 2), 0.1)
    expected = x.double().cumsum(dim=1)

    assert ((scanned(scans, "sum", x).double() - expected) / expected).abs().max() < 7e-8


@pytest.mark.parametrize(
    ("tensors", "sizes", "result", "extents"),
    [
        (X, SIZES, "x.cumsum(0)", "1, batch, rows * cols, workspace"),
        ('x=normal("b, h, l, d")', '{"b": 2, "h": 3, "l": 20, "d": 5}', "x.cumsum(2)", "b * h, l, d, workspace"),
        ('x=normal("rows, cols")', '{"rows": 70, "cols": 65}', "x.cumsum(0)", "1, rows, cols, workspace"),
    ],
)
def test_any_axis(tensors: str, sizes: str, result: str, extents: str, tmp_path: Path) -> None:
    task, contract, recorded = described(tmp_path, tensors, sizes, result)

    found = form_kernel(task, contract, recorded)

    assert found is not None
    assert extents in found.source


def test_an_axis_before_axes_of_extent_one_is_as_the_last_one(tmp_path: Path) -> None:
    task, contract, recorded = described(
        tmp_path, 'x=normal("rows, cols, 1")', '{"rows": 70, "cols": 65}', "x.cumsum(1)"
    )

    found = form_kernel(task, contract, recorded)

    assert found is not None
    assert "<warpsmith/scan.cuh>" in found.source
    assert "rows, cols, stream" in found.source


@pytest.mark.parametrize("result", ["torch.cumsum(x * y, 1)", "torch.exp(x.flip(1).cumsum(1).flip(1)) * y"])
@pytest.mark.parametrize("backend", ["cuda", "cpu"])
def test_a_scan_is_a_part_of_a_chain(result: str, backend: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\nfrom warpsmith import normal, task\n"
        f'@task({X}, y=normal("batch, rows, cols"), workloads=[{SIZES}])\ndef mine(x, y):\n    return {result}\n'
    )

    found = in_parts(problem_of(load_task(tmp_path / "mine.py"), backend))

    assert found is not None
    assert "cumsum over an axis that is not the last" in found.form


@pytest.mark.parametrize(
    "kind",
    [
        kind if "exclusive" in kind or "product" in kind else pytest.param(kind, marks=pytest.mark.slow)
        for kind in SCANS
    ],
)
def test_the_scan_on_the_cpu(kind: str, tmp_path: Path) -> None:
    described(tmp_path, X, SIZES, SCANS[kind])
    problem = problem_of(load_task(tmp_path / "mine.py"), "cpu")
    assert problem.outline is not None
    source = scan(FormTask(problem.task, problem.contract, problem.outline)).source
    (tmp_path / "kernel.cpp").write_text(source)
    compiler = find_cxx(os.environ)
    assert compiler is not None
    flags = ["-std=c++17", "-O2", "-fopenmp", "-shared", "-fPIC", f"-I{LIBRARY}"]
    subprocess.run([*compiler.command, *flags, "kernel.cpp", "-o", "kernel.so"], cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "kernel.so"))
    for shape in ((3, 50, 65), (1, 1, 1), (2, 7, 128), (4, 2000, 70), (0, 3, 3)):
        x = 1 + torch.randn(shape, generator=torch.Generator().manual_seed(4)) * 0.01
        found = torch.full(shape, 77.0)

        assert (
            library.launch(*(ctypes.c_void_p(t.data_ptr()) for t in (x, found)), *map(ctypes.c_int64, shape), None) == 0
        )

        assert torch.allclose(found.double(), reference(kind, x.double()), rtol=2e-7, atol=1e-12), shape


@pytest.mark.nvcc
@pytest.mark.parametrize("kind", ["exclusive reverse sum", pytest.param("sum", marks=pytest.mark.slow)])
def test_the_text_compiles_and_keeps_what_it_computes_in_registers(kind: str, tmp_path: Path) -> None:
    task, contract, recorded = described(tmp_path, X, SIZES, SCANS[kind])
    found = form_kernel(task, contract, recorded)
    assert found is not None
    candidate = Candidate((SourceFile("kernel.cu", found.source),), "cuda")
    (tmp_path / "kernel.cu").write_text(found.source)

    made = backend_named("cuda").build(candidate, contract, Target(DeviceKind.CUDA, "sm_90a"))
    command = ["nvcc", "-std=c++17", "-arch=sm_90a", "-Xptxas", "-v", f"-I{LIBRARY}", "-c", "kernel.cu"]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)

    assert isinstance(made, Artifact), made
    assert set(re.findall(r"(\d+) bytes spill stores", done.stderr)) == {"0"}
