"""Reductions over any axis (`axis_reduction.cuh` and the form), on the emulated device."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.collection import test_long_scan
from tests.collection.test_forms import described
from tests.collection.test_long_scan import aligned, build, called
from warpsmith.kernels.form_reduction import reduction
from warpsmith.kernels.form_task import FormKernel, FormTask, NotThisForm
from warpsmith.model.contract import Contract

WAY = """
extern "C" int launch(int64_t batch, int64_t rows, int64_t cols) {
  warpsmith::AxisCut cut;
  const int way = int(warpsmith::axis_way(batch, rows, cols, cut, true));
  return cut.parts > 1 ? -way : way;
}
"""
X = 'x=normal("batch, rows, cols")'
SIZES = '{"batch": 5, "rows": 70, "cols": 65}'
OPERATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "x.sum(dim=1)": lambda x: x.sum(dim=1),
    "x.amin(dim=1)": lambda x: x.amin(dim=1),
    "x.argmax(dim=1)": lambda x: first_place(x, x.amax(dim=1, keepdim=True)),
}


def first_place(x: Tensor, best: Tensor) -> Tensor:
    """Where an element is the best one or NaN, for the first time."""
    return ((x == best) | (x.isnan() & best.isnan())).int().argmax(dim=1)


def written(folder: Path, tensors: str, sizes: str, result: str) -> tuple[FormKernel, Contract]:
    task, contract, recorded = described(folder, tensors, sizes, result)
    return reduction(FormTask(task, contract, recorded)), contract


def without_streams(text: str) -> str:
    """`columns.cuh` without the kernel whose instructions the emulated device does not have."""
    begin, end = text.index("// THREADS threads take the packs"), text.index("// How `column_stream` cuts the matrices")
    text = text[:begin] + text[end:]
    begin, end = text.index("  if (cut.steps > 0) {\n"), text.index("  if (batch * ceil_div(cols, 128) >= 528) {\n")
    return f"{text[:begin]}  if (cut.steps > 0) std::abort();\n{text[end:]}"


@pytest.fixture(scope="module")
def reductions(tmp_path_factory: pytest.TempPathFactory) -> tuple[ctypes.CDLL, list[Contract]]:
    """The kernels for all of `OPERATIONS`, with stretches of 64 packs in flat_columns."""
    folder = tmp_path_factory.mktemp("reductions")
    kernels = [written(folder, X, SIZES, result) for result in OPERATIONS]
    headers = ("packs.cuh", "columns.cuh", "axis_reduction.cuh")
    plain = test_long_scan.translated
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            test_long_scan,
            "translated",
            lambda text: plain(without_streams(text) if "column_stream(const" in text else text),
        )
        library = build(
            folder,
            headers,
            [*(kernel.source for kernel, _ in kernels), WAY],
            ("TUNE_FLAT_THREADS=32", "TUNE_FLAT_PACKS=2"),
        )
    return library, [contract for _, contract in kernels]


def reduced(reductions: tuple[ctypes.CDLL, list[Contract]], result: str, x: Tensor) -> Tensor:
    """The kernel's result."""
    library, contracts = reductions
    number = list(OPERATIONS).index(result)
    batch, rows, cols = x.shape
    kind = torch.int64 if "arg" in result else torch.float32
    found = aligned(torch.full((batch, cols), 77, dtype=kind))
    # What lies behind the input is NaN: it must not be used.
    given = aligned(torch.cat((x.reshape(-1), torch.full((8,), torch.nan))))
    called(library, number, contracts[number], {"batch": batch, "rows": rows, "cols": cols}, given, found)
    assert torch.as_strided(found, (8,), (1,), found.storage_offset() + found.numel()).eq(0).all()
    return found


SHAPES = (
    *(
        (5, 70, 65),
        (1, 2001, 3),
        (2, 1203, 21),
        (12, 1203, 7),
        (3, 33, 63),
        (1, 1, 5),
        (2, 5, 1023),
    ),  # narrow matrices, several parts, rows anywhere
    *((2, 130, 66), (1, 700, 128), (7, 9, 12), (1, 64, 256), (4, 2, 2)),
    *((1, 150, 259), (2, 67, 1001), (1, 200, 516), (1, 9, 2050)),  # wide matrices
    *((700, 3, 7), (300, 5, 64), (1, 1, 9000)),  # a thread for each result
    *((9, 1, 1), (11, 3, 1), (40, 77, 1), (3, 512, 1), (5, 130, 1)),  # short rows
    *((70, 700, 1), (1, 60_001, 1), (3, 9001, 1), (2, 16_384, 1), (1, 513, 1)),  # long rows
    *((0, 4, 4), (3, 4, 0), (0, 9, 1)),
)


@pytest.mark.parametrize("values", ["own", "ties", "nan"])
@pytest.mark.parametrize("result", OPERATIONS)
def test_the_result_is_that_of_pytorch(
    reductions: tuple[ctypes.CDLL, list[Contract]], result: str, values: str
) -> None:
    generator = torch.Generator().manual_seed(len(result))
    for shape in SHAPES:
        x = torch.randn(shape, generator=generator)
        if values == "ties":
            x = x.round().clamp(-1, 1)
        elif values == "nan" and x.numel():
            x[0, shape[1] // 2, 0], x[-1, 0, -1], x[-1, -1, shape[2] // 2] = torch.nan, torch.inf, -torch.inf

        found = reduced(reductions, result, x)

        expected = OPERATIONS[result](x.double())
        if "sum" in result:
            assert torch.allclose(found.double(), expected, rtol=1e-6, atol=2e-5, equal_nan=True), f"{shape}"
        else:
            assert torch.equal(found.double().nan_to_num(-9), expected.double().nan_to_num(-9)), f"{shape}"


def test_the_shapes_reach_every_kernel(reductions: tuple[ctypes.CDLL, list[Contract]]) -> None:
    library, _ = reductions

    ways = {library.launch_3(*map(ctypes.c_int64, shape)) for shape in SHAPES if 0 not in shape}

    each, flat, wide, short, long = 1, 2, 3, 4, 5  # negative: matrices are cut into parts
    assert ways == {each, flat, -flat, wide, -wide, short, long, -long}


def test_rows_that_are_all_the_least_have_their_first_place(
    reductions: tuple[ctypes.CDLL, list[Contract]],
) -> None:
    for shape in ((3, 33, 63), (1, 301, 3), (2, 67, 259), (9, 77, 1), (1, 9001, 1), (300, 5, 7)):
        x = torch.full(shape, -torch.inf)

        assert reduced(reductions, "x.argmax(dim=1)", x).eq(0).all(), f"{shape}"


def test_a_sum_of_no_elements_is_zero(reductions: tuple[ctypes.CDLL, list[Contract]]) -> None:
    for shape in ((3, 0, 5), (3, 0, 1), (2, 0, 300)):
        assert reduced(reductions, "x.sum(dim=1)", torch.zeros(shape)).eq(0).all()


AXIS, LAST = "reduce_axis(x, batch, rows, cols, Policy", "reduce_last_axis(x, "


@pytest.mark.parametrize(
    ("result", "policy", "call"),
    [
        ("x.sum(dim=1)", "SumOver", AXIS + "{{out, 1.0f}}"),
        ("x.sum(dim=1, dtype=torch.float32)", "SumOver", AXIS),
        ("x.mean(dim=1, keepdim=True)", "SumOver", AXIS + "{{out, 1.0f / float(rows)}}"),
        ("x.sum(dim=(0, 1))", "SumOver", "reduce_axis(x, 1, batch * rows, cols, "),
        ("x.mean(dim=0)", "SumOver", "reduce_axis(x, 1, batch, rows * cols, Policy{{out, 1.0f / float(batch)}}"),
        ("x.mean()", "SumOver", LAST + "1, batch * rows * cols, Policy{{out, 1.0f / float(batch * rows * cols)}}"),
        ("x.sum(-1)", "SumOver", LAST + "batch * rows, cols, Policy{{out, 1.0f}}"),
        ("x.sum(dim=(1, 2))", "SumOver", LAST + "batch, rows * cols, "),
        ("x.flatten(1).sum(1)", "SumOver", LAST + "batch, rows * cols, "),
        ("x.unsqueeze(2).sum(dim=(1, 2)).unsqueeze(0)", "SumOver", AXIS),
        ("x.prod(dim=1)", "ProductOver", AXIS + "{out}"),
        ("x.amax(dim=1)", "ExtremeOver<true>", AXIS + "{{out}}"),
        ("x.amin(dim=(0, 1, 2))", "ExtremeOver<false>", LAST + "1, batch * rows * cols, "),
        ("x.max(dim=1).values", "ExtremeOver<true>", AXIS),
        ("x.min(dim=1, keepdim=True)[0]", "ExtremeOver<false>", AXIS),
        ("x.max()", "ExtremeOver<true>", LAST + "1, batch * rows * cols, "),
        ("x.max(dim=1)[1]", "PlaceOver<true>", AXIS),
        ("x.argmin(dim=-1, keepdim=True)", "PlaceOver<false>", LAST + "batch * rows, cols, "),
        ("x.argmax()", "PlaceOver<true>", LAST + "1, batch * rows * cols, "),
    ],
)
def test_the_form_claims_reductions_over_neighbouring_axes(result: str, policy: str, call: str, tmp_path: Path) -> None:
    kernel, _ = written(tmp_path, X, SIZES, result)

    assert f"using Policy = warpsmith::{policy};" in kernel.source
    assert call in kernel.source


@pytest.mark.parametrize(
    "result",
    [
        "x.sum(dim=(0, 2))",
        "x.transpose(1, 2).sum(dim=1)",
        "x.sum(dim=1) * 2",
        "x.exp().sum(dim=1)",
        "x.sum(dim=1).sum(dim=1)",
        "x.sum(dim=1, dtype=torch.float64)",
        "x.nansum(dim=1)",
        "x.std(dim=1)",
        "x.median(dim=1).values",
        "x.cumsum(dim=1)",
        "x.flatten(1)",
    ],
)
def test_the_form_leaves_alone_what_is_almost_a_reduction(result: str, tmp_path: Path) -> None:
    task, contract, recorded = described(tmp_path, X, SIZES, result)

    with pytest.raises(NotThisForm):
        reduction(FormTask(task, contract, recorded))
