"""Batch normalisation of channels that are not large (`channel_norm.cuh` and the form), on the emulated device."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.collection import test_long_scan
from tests.collection.test_forms import described
from tests.collection.test_long_scan import aligned, build, called
from warpsmith.backends.source import backend_named
from warpsmith.kernels.form_channel_norm import channel_norm
from warpsmith.kernels.form_task import FormKernel, FormTask, NotThisForm
from warpsmith.model.contract import Contract
from warpsmith.tasks.load import load_task
from warpsmith.tasks.outline import outline

X = 'x=normal("b, c, h, w"); weight=normal("c"); bias=normal("c")'
SIZES = '{"b": 33, "c": 100, "h": 57, "w": 59}'
NORM = "F.batch_norm(x, None, None, weight, bias, True, 0.0, 1e-5)"


def written(folder: Path, tensors: str, sizes: str, result: str) -> tuple[FormKernel, Contract]:
    task, contract, recorded = described(folder, tensors, sizes, result)
    return channel_norm(FormTask(task, contract, recorded)), contract


def without_clusters(text: str) -> str:
    """`rows.cuh` without the kernels: what policies need."""
    begin, end = text.index("constexpr int kMostBlocks"), text.index("// Parts of policies.")
    return text[:begin] + text[end:]


@pytest.fixture(scope="module")
def norms(tmp_path_factory: pytest.TempPathFactory) -> tuple[ctypes.CDLL, list[Contract]]:
    """The kernels with weights, and without but with a ReLU."""
    folder = tmp_path_factory.mktemp("norms")
    kernels = [
        written(folder, X, SIZES, NORM),
        written(folder, 'x=normal("b, c, h, w")', SIZES, "F.relu(F.batch_norm(x, None, None, None, None, True))"),
    ]
    plain = test_long_scan.translated
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            test_long_scan,
            "translated",
            lambda text: plain(without_clusters(text) if "row_cluster(" in text else text),
        )
        extra = "inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }\n"
        patch.setattr(
            test_long_scan, "DEVICE", f"{test_long_scan.DEVICE}{extra}enum {{ cudaErrorInvalidValue = 1 }};\n"
        )
        headers = ("packs.cuh", "divisor.cuh", "rows.cuh", "channel_norm.cuh")
        library = build(folder, headers, [kernel.source for kernel, _ in kernels], ())
    return library, [contract for _, contract in kernels]


def normalised(norms: tuple[ctypes.CDLL, list[Contract]], number: int, x: Tensor, *others: Tensor) -> Tensor:
    """The kernel's result."""
    library, contracts = norms
    found = aligned(torch.full(x.shape, 77.0))
    # What lies behind the input is NaN: it must not be used.
    given = aligned(torch.cat((x.reshape(-1), torch.full((8,), torch.nan))))
    sizes = dict(zip(("b", "c", "h", "w"), x.shape, strict=True))
    called(library, number, contracts[number], sizes, given, *map(aligned, others), found)
    assert torch.as_strided(found, (8,), (1,), found.storage_offset() + found.numel()).eq(0).all()
    return found


# Planes that begin anywhere, of less than a pack, several parts, one part.
SHAPES = ((3, 4, 16, 20), (2, 3, 13, 17), (5, 17, 7, 7), (9, 2, 37, 31), (40, 1, 3, 1), (2, 5, 1, 2), (1, 2, 95, 97))


@pytest.mark.parametrize("kind", ["shifted", "spike", "constant"])
def test_the_result_is_that_of_pytorch(norms: tuple[ctypes.CDLL, list[Contract]], kind: str) -> None:
    generator = torch.Generator().manual_seed(3)
    for shape in SHAPES:
        x = torch.randn(shape, generator=generator) + (1000 if kind == "shifted" else 0.5)
        if kind == "spike":
            x.view(-1)[7] = 1e6
        elif kind == "constant":
            x = torch.full(shape, 123.456)
        weight, bias = torch.randn(shape[1], generator=generator), torch.randn(shape[1], generator=generator)

        found = normalised(norms, 0, x, weight, bias)
        plain = normalised(norms, 1, x)

        expected = F.batch_norm(x.double(), None, None, weight.double(), bias.double(), True, 0.0, 1e-5)
        eager = F.batch_norm(x, None, None, weight, bias, True, 0.0, 1e-5)
        allowed = 3 * (eager - expected).abs().max() + 3e-6
        assert (found - expected).abs().max() <= allowed, f"{shape}"
        if kind != "constant":
            without = F.relu(F.batch_norm(x.double(), None, None, None, None, True))
            assert (plain - without).abs().max() <= 1e-3 if kind == "shifted" else 2e-5, f"{shape}"


def test_what_is_not_finite_stays_in_its_channel(norms: tuple[ctypes.CDLL, list[Contract]]) -> None:
    x = torch.randn(4, 5, 9, 11, generator=torch.Generator().manual_seed(4))
    x[2, 1, 3, 3], x[0, 4, 8, 10] = torch.inf, torch.nan

    found = normalised(norms, 0, x, torch.ones(5), torch.zeros(5))

    assert found[:, [1, 4]].isnan().all()
    assert found[:, [0, 2, 3]].isfinite().all()


@pytest.mark.parametrize(
    ("tensors", "sizes", "result", "call"),
    [
        (X, SIZES, NORM, "AsItIs>(x, weight, bias, out, 1e-05, b, c, h * w, workspace"),
        (X, SIZES, f"F.relu({NORM})", "NotNegative>(x, weight, bias, out, 1e-05, b, c, h * w, workspace"),
        (
            'x=normal("b, 8, n")',
            '{"b": 9, "n": 50}',
            "F.batch_norm(x, None, None, None, None, True)",
            "out, 1e-05, b, 8, n",
        ),
        (X, '{"b": 33, "c": 64, "h": 56, "w": 56}', NORM, "out, 1e-05, b, c, h * w"),
        (X, '{"b": 64, "c": 64, "h": 511, "w": 511}', NORM, "out, 1e-05, b, c, h * w"),
    ],
)
def test_the_form_claims_batch_normalisation_of_channels_that_are_not_large(
    tensors: str, sizes: str, result: str, call: str, tmp_path: Path
) -> None:
    kernel, _ = written(tmp_path, tensors, sizes, result)

    assert call in kernel.source
    assert "channel_norm_bytes(b, " in kernel.source


def test_the_number_that_is_added_to_the_variance_may_be_a_parameter(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "import torch.nn.functional as F\nfrom warpsmith import normal, scalar, task\n\n"
        '@task(x=normal("b, c, n"), eps=scalar(1e-3), workloads=[{"b": 9, "c": 5, "n": 50}], precision="fp32")\n'
        "def mine(x, eps):\n    return F.batch_norm(x, None, None, None, None, True, 0.1, eps)\n"
    )
    program = load_task(path)
    task = FormTask(program.task, backend_named("cuda").contract(program.task), outline(program))

    assert "(x, nullptr, nullptr, out, eps, b, c, n, workspace" in channel_norm(task).source


@pytest.mark.parametrize(
    ("tensors", "sizes", "result"),
    [
        (X, '{"b": 64, "c": 64, "h": 512, "w": 512}', NORM),  # large channels
        ('x=normal("b, c"); weight=normal("c"); bias=normal("c")', '{"b": 33, "c": 100}', NORM),  # no planes
        (X, SIZES, f"F.silu({NORM})"),
        (X, SIZES, f"{NORM} + x"),
        (X, SIZES, "F.batch_norm(x, bias, weight, None, None, False)"),
        (X, SIZES, "F.batch_norm(x + 1, None, None, weight, bias, True)"),
        (X, SIZES, "F.instance_norm(x)"),
        (X, SIZES, "F.group_norm(x, 10, weight, bias)"),
    ],
)
def test_the_form_leaves_alone_what_is_almost_one(tensors: str, sizes: str, result: str, tmp_path: Path) -> None:
    task, contract, recorded = described(tmp_path, tensors, sizes, result)

    with pytest.raises(NotThisForm):
        channel_norm(FormTask(task, contract, recorded))
