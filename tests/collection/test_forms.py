"""Forms: which tasks they claim, what they write, and what they leave alone."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cuda_front_end import compile_errors
from warpsmith.backends.library import LIBRARY
from warpsmith.backends.source import backend_named
from warpsmith.kernels.collection import SOURCES, collected, collection
from warpsmith.kernels.form_convolution import (
    Convolution,
    _out_step,
    longest_sum,
    streams,
    strides_become_channels,
    tile_columns,
)
from warpsmith.kernels.form_task import FormKernel
from warpsmith.kernels.forms import form_kernel
from warpsmith.model.contract import Contract
from warpsmith.model.task import Precision, Task
from warpsmith.tasks.load import load_task
from warpsmith.tasks.outline import outline
from warpsmith.tasks.suites import suite_tasks

TILED, STREAM = "launch_convolution<kColumns, {}, kRows>", "launch_stream<kColumns, {}, kRows, 256>"
HELD = "launch_held<kColumns, {}, kRows, kTriple, kFold>"
HELD_64 = ("kColumns = 64", "kRows = 2", "kTriple = true")
PRODUCT = (
    "multiply(p, warpsmith::{}(a, p.rows, p.terms), warpsmith::{}(b, p.columns, p.terms), warpsmith::dense(out, p)"
)
SUITE = {  # what the form writes for each task: the values that were tuned by hand
    "conv1d": (STREAM.format(1), "kColumns = 128, kRows = 1"),
    "conv1d_dilated_strided": (STREAM.format(1), "kColumns = 128, kRows = 1", "{1, 1, 3}, {0, 0, 0}, {1, 1, 4}"),
    "conv2d": (HELD.format(1), *HELD_64, "kFold = 0"),
    "conv2d_5x9": (TILED.format(1), "kColumns = 64", "TUNE_ROWS = 4, 3", "{1, 5, 9}"),
    "conv2d_5x9_dilated": (TILED.format(1), "kColumns = 64", "TUNE_ROWS = 4, 3", "{1, 1, 1}, {0, 2, 4}, {1, 2, 3}"),
    "conv2d_depthwise": ("launch<3, 3, TUNE_ROWS>", "TUNE_ROWS = 16, 8"),
    "conv2d_depthwise_3x1": ("launch<3, 1, TUNE_ROWS>", "TUNE_ROWS = 8, 16"),
    "conv2d_depthwise_3x7": ("launch<3, 7, TUNE_ROWS>", "TUNE_ROWS = 6, 8"),
    "conv2d_depthwise_oblong": ("launch<3, 3, TUNE_ROWS>", "TUNE_ROWS = 16, 8"),
    "conv2d_depthwise_separable": ("launch_separable<kColumns, kRows, 256>", "kColumns = 128, kRows = 1"),
    "conv2d_oblong": (TILED.format(1), "kColumns = 64", "TUNE_ROWS = 4, 3"),
    "conv2d_oblong_5x7": (TILED.format(1), "kColumns = 64", "TUNE_ROWS = 4, 3"),
    "conv2d_pointwise": (STREAM.format(1), "kColumns = 128, kRows = 1"),
    "conv2d_stem": (
        "launch_strided<kColumns, kRows, kTriple>",
        *("kColumns = 48", "kRows = 2", "kTriple = false", "x, weight, bias, out", "{1, 4, 4}, {0, 2, 2}"),
    ),
    "conv3d": (HELD.format(1), *HELD_64, "kFold = 0"),
    "conv3d_3x3x1": ("launch_flat(form_of(", "{3, 3, 1}"),
    "conv3d_3x5x7": (TILED.format(1), "kColumns = 64", "TUNE_ROWS = 3, 4", "{3, 5, 7}"),
    "conv3d_oblong_3x5x7": (TILED.format(1), "kColumns = 64", "TUNE_ROWS = 3, 4", "{3, 5, 7}"),
    "conv_transpose1d": (HELD.format(1), *HELD_64, "kFold = 0", "{1, 1, 1}, true"),
    "conv_transpose1d_dilated": (STREAM.format(1), "kColumns = 64, kRows = 2"),
    "conv_transpose1d_strided_dilated": (STREAM.format(2), "kColumns = 64, kRows = 2"),
    "conv_transpose2d": (TILED.format(1), "kColumns = 64", "TUNE_ROWS = 4, 3"),
    "conv_transpose2d_3x7": (TILED.format(1), "kColumns = 64", "TUNE_ROWS = 4, 3"),
    "conv_transpose2d_3x7_padded": (TILED.format(1), "kColumns = 32"),
    "conv_transpose2d_grouped": (TILED.format(3), "kColumns = 48", "make_form(batch, 4, 8, 16"),
    "conv_transpose2d_oblong": (HELD.format(1), "kColumns = 32", "TUNE_ROWS = 3, 4", "kTriple = false", "kFold = 0"),
    "conv_transpose2d_oblong_3x5": (TILED.format(1), "kColumns = 64", "TUNE_ROWS = 3, 4"),
    "conv_transpose3d": (TILED.format(1), "kColumns = 48"),
    "conv_transpose3d_3x5x5": (TILED.format(1), "kColumns = 64", "TUNE_ROWS = 4, 3"),
    "conv_transpose3d_grouped": (HELD.format(2), "kColumns = 16", "TUNE_ROWS = 4, 2", "kFold = 0", "true, {1, 1, 1})"),
    "conv_transpose3d_large": (HELD.format(1), "kColumns = 24", "TUNE_ROWS = 4, 3", "kTriple = false", "kFold = 27"),
    "conv_transpose3d_oblong_3x5x7": (TILED.format(1), "kColumns = 16"),
    "conv_transpose3d_strided": (TILED.format(2), "kColumns = 64"),
    "conv_transpose3d_strided_dilated": (TILED.format(2), "kColumns = 64"),
    "matmul": (PRODUCT.format("plain", "transposed"), "{1, m, k, n, true}"),
    "matmul_3d": (PRODUCT.format("plain", "transposed"), "{1, batch * m, k, n, true}"),
    "matmul_4d": (PRODUCT.format("plain", "transposed"), "{1, batch * height * width, k, n, true}"),
    "matmul_batched": (PRODUCT.format("plain", "transposed"), "{batch, m, k, n, false}"),
    "matmul_irregular": (PRODUCT.format("plain", "transposed"),),
    "matmul_large_k": (PRODUCT.format("plain", "transposed"),),
    "matmul_small_k": (PRODUCT.format("plain", "transposed"),),
    "matmul_square": (PRODUCT.format("plain", "transposed"), "{1, n, n, n, true}"),
    "matmul_tall_skinny": (PRODUCT.format("plain", "transposed"),),
    "matmul_transposed_a": (PRODUCT.format("transposed", "transposed"),),
    "matmul_transposed_b": (PRODUCT.format("plain", "plain"),),
    "matmul_transposed_both": (PRODUCT.format("transposed", "plain"),),
    "cumsum": ("scan<warpsmith::Plus, false, false, false, TUNE_THREADS, TUNE_PACKS>(x, nullptr, out, rows, cols",),
    "cumprod": ("scan<warpsmith::Times, false, false, false,",),
    "cumsum_exclusive": ("scan<warpsmith::Plus, false, true, false,",),
    "cumsum_masked": ("scan<warpsmith::Plus, false, false, true,", "(x, mask, out,"),
    "cumsum_reverse": ("scan<warpsmith::Plus, true, false, false,",),
    "avg_pool1d": ("pool1<warpsmith::AvgPool, 8, 4, 1, TUNE_THREADS, TUNE_UNROLL>", "TUNE_THREADS = 256"),
    "avg_pool2d": ("pool2_side_by_side<warpsmith::AvgPool, 11, TUNE_THREADS>", "TUNE_THREADS = 512"),
    "avg_pool3d": ("pool3<warpsmith::AvgPool, 1, TUNE_WARPS, TUNE_BLOCKS>", "TUNE_WARPS = 8", "TUNE_BLOCKS = 4"),
    "max_pool1d": ("pool1<warpsmith::MaxPool, 8, 4, 3,", "batch * channels, length, out_dim2, stream"),
    "max_pool2d": (
        "pool2_ahead<warpsmith::MaxPool, 4, 1, TUNE_WARPS, TUNE_STRIP, 4, TUNE_BLOCKS>",
        "TUNE_WARPS = 4",
        "TUNE_STRIP = 64",
        "TUNE_BLOCKS = 4",
    ),
    "max_pool3d": ("pool3<warpsmith::MaxPool, 3, TUNE_WARPS, TUNE_BLOCKS>",),
}
NOT_BY_A_FORM = {  # structure of the inputs that no operation of the reference shows, and what templates write as well
    *("matmul_diagonal", "matmul_lower_triangular", "matmul_upper_triangular", "matmul_symmetric"),
    *("matrix_scalar", "matvec"),
    "conv_transpose2d_strided_dilated",  # every output has one input pixel or none: a kernel of its own
}

HEAD = "import torch\nimport torch.nn.functional as F\nfrom warpsmith import booleans, integers, normal, task\n\n"
X1, X2, X3 = 'x=normal("b, 24, n")', 'x=normal("b, 24, h, w")', 'x=normal("b, 24, d, h, w")'
SIDES = '{"m": 8, "k": 9, "n": 7}'
L1, L2 = '{"b": 64, "n": 40000}', '{"b": 64, "h": 500, "w": 500}'  # large enough for the general kernels
S1, S2, S3 = '{"b": 2, "n": 50}', '{"b": 2, "h": 20, "w": 30}', '{"b": 2, "d": 6, "h": 9, "w": 10}'
S2_WIDE = '{"b": 2, "h": 20, "w": 128}'
Written = Callable[[str, str, str], FormKernel | None]


@pytest.fixture
def write(tmp_path: Path) -> Written:
    """The form's kernel for a user's task: its tensors, its sizes, its result."""

    def written(tensors: str, sizes: str, result: str) -> FormKernel | None:
        task, contract, recorded = described(tmp_path, tensors, sizes, result)
        return form_kernel(task, contract, recorded)

    return written


def described(
    folder: Path, tensors: str, sizes: str, result: str, precision: str = "fp32"
) -> tuple[Task, Contract, Any]:
    names = ", ".join(part.partition("=")[0] for part in tensors.split("; "))
    path = folder / "mine.py"
    path.write_text(
        f"{HEAD}@task({tensors.replace('; ', ', ')}, workloads=[{sizes}], precision={precision!r})\n"
        f"def mine({names}):\n    return {result}\n"
    )
    program = load_task(path)
    return program.task, backend_named("cuda").contract(program.task), outline(program)


def test_every_task_of_these_families_has_the_kernel_that_was_tuned_for_it() -> None:
    found = {kernel.task.name: kernel for kernel in collection() if kernel.form}

    assert found.keys() == SUITE.keys()
    for name, parts in SUITE.items():
        for part in parts:
            assert part in found[name].source, f"{name}: {part}"
        assert not (SOURCES / f"{name}.cu").exists()
    families = {"convolution", "matmul", "pooling", "scan"}
    rest = {t.name for t in suite_tasks("warpsmith-100") if t.family in families} - SUITE.keys()
    assert rest == NOT_BY_A_FORM


@pytest.mark.parametrize(
    ("tensors", "sizes", "result", "form", "parts"),
    [
        (
            f'{X2}; weight=normal("40, 24, 3, 3"); bias=normal("40")',
            L2,
            "F.conv2d(x, weight, bias, stride=2, padding=1)",
            "2-d convolution",
            (
                "launch_gathered",
                "TUNE_COLUMNS = 48",
                "{1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}, false",
                "x, weight, bias",
            ),
        ),
        (
            f'{X2}; weight=normal("10, 12, 5, 1")',
            L2,
            'F.conv2d(x, weight, groups=2, padding="same")',
            "2-d convolution",
            ("make_form(b, 2, 12, 5, {1, int(h), int(w)}, {1, 5, 1}", "{0, 2, 0}", "kColumns = 8"),
        ),
        (
            f'{X1}; weight=normal("24, 130, 4")',
            L1,
            "F.conv_transpose1d(x, weight, stride=4, padding=1, output_padding=2)",
            "transposed 1-d convolution",
            ("launch_convolution<kColumns, 4, kRows>", "kColumns = 64", "true, {0, 0, 2}"),
        ),
        (
            f'{X3}; weight=normal("24, 3, 2, 2, 2")',
            S3,
            "F.conv_transpose3d(x, weight, stride=(1, 2, 9), dilation=(2, 1, 1))",
            "transposed 3-d convolution",
            ("launch_gathered<kColumns, gathered::Taps::few, false, true>", "{1, 2, 9}"),  # nine phases of an axis
        ),
        (
            f'{X2}; weight=normal("64, 24, 1, 1"); bias=normal("64")',
            S2,
            "F.conv2d(x, weight, bias)",
            "2-d convolution",
            ("launch_stream<kColumns, 1, kRows, 256>", "kColumns = 64, kRows = 2", "x, weight, bias, out"),
        ),
        (
            f'{X2}; weight=normal("24, 1, 5, 5")',
            L2,
            "F.conv2d(x, weight, padding=2, groups=24)",
            "depthwise 2-d convolution",
            ("depthwise::launch_padded<5, 5, TUNE_ROWS>(x, weight, out, b, 24, h, w, stream)",),
        ),
        (
            f'{X2}; weight=normal("24, 1, 3, 3"); bias=normal("24")',
            S2,
            "F.conv2d(x, weight, bias, stride=2, groups=24)",
            "depthwise 2-d convolution",
            ("depthwise_any::Options<3, 3, 2, 2, 0, 0, 1, 1, 1>", "(x, weight, bias, out, b, 24, h, w, stream)"),
        ),
        (
            f'{X2}; weight=normal("24, 1, 3, 3"); bias=normal("24")',
            S2,
            "F.conv_transpose2d(x, weight, bias, stride=2, groups=24)",
            "transposed 2-d convolution",
            ("launch_direct(f, x, weight, bias, out, nullptr", "make_form(b, 24, 1, 1"),
        ),
        (
            'x=normal("rows, 96"); weight=normal("40, 96"); bias=normal("40")',
            '{"rows": 33}',
            "F.linear(x, weight, bias)",
            "product with bias",
            (
                "plain(x, p.rows, p.terms)",
                "plain(weight,",
                "Biased{warpsmith::dense(out, p), bias}",
                "{1, rows, 96, 40",
            ),
        ),
        (
            'q=normal("b, heads, n, 64"); k=normal("b, heads, m, 64")',
            '{"b": 2, "heads": 3, "n": 10, "m": 12}',
            "q @ k.transpose(-1, -2)",
            "batched product",
            ("plain(q, p.rows, p.terms)", "plain(k, p.columns, p.terms)", "{b * heads, n, 64, m, false}"),
        ),
        (
            'x=normal("b, c, n")',
            '{"b": 2, "c": 3, "n": 10}',
            "torch.flip(torch.cumprod(torch.flip(x, [-1]), -1), [2])",
            "reverse cumprod",
            ("scan<warpsmith::Times, true, false, false,", "out, b * c, n, stream"),
        ),
        (
            'x=normal("b, n"); keep=booleans("b, n")',
            '{"b": 2, "n": 10}',
            "(keep * x).cumsum(1)",
            "masked cumsum",
            ("(x, keep, out, b, n, stream)",),
        ),
        (
            'x=normal("b, c, h, w")',
            '{"b": 2, "c": 3, "h": 20, "w": 30}',
            "F.max_pool2d(x, 3, stride=2, padding=1)",
            "max pooling, 2-d",
            ("{1, 3, 3}, stride[3] = {1, 2, 2}, padding[3] = {0, 1, 1}", "b * c, 1, h, w, 1, out_dim2, out_"),
        ),
        (
            'x=normal("b, c, h, w")',
            '{"b": 2, "c": 3, "h": 20, "w": 128}',
            "F.avg_pool2d(x, 3, stride=1)",
            "average pooling, 2-d",
            ("pool2<warpsmith::AvgPool, 3, 0, TUNE_WARPS, TUNE_STRIP, 3>", "TUNE_STRIP = 63, 30"),
        ),
        (
            X2,
            S2_WIDE,
            "F.max_pool2d(x, 3, stride=1, padding=1)",
            "max pooling, 2-d",
            ("<warpsmith/pool_ahead.cuh>", "pool2_ahead<warpsmith::MaxPool, 3, 1, TUNE_WARPS, TUNE_STRIP, 3,"),
        ),
        (
            X2,
            S2_WIDE,
            "F.max_pool2d(x, 5, stride=1, padding=1)",  # three columns to the right
            "max pooling, 2-d",
            ("<warpsmith/pool.cuh>", "pool2<warpsmith::MaxPool, 5, 1,"),
        ),
        (
            X2,
            S2,
            "F.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)",
            "average pooling, 2-d",
            ("counts_padding = false", "pool_bands<warpsmith::AvgPool, Shape,"),
        ),
        (X2, S2, "F.max_pool2d(x, 3, stride=2, ceil_mode=True)", "max pooling, 2-d", ("rounds_up = true",)),
        (X2, S2, "F.max_pool2d(x, (2, 3))", "max pooling, 2-d", ("{1, 2, 3}, stride[3] = {1, 2, 3}, pad",)),
        (X1, S1, "F.max_pool1d(x, 3)", "max pooling, 1-d", ("{1, 1, 3}, stride[3] = {1, 1, 3}, pad",)),
        (X3, S3, "F.avg_pool3d(x, 2)", "average pooling, 3-d", ("{2, 2, 2}, stride[3] = {2, 2, 2},",)),
    ],
)
def test_other_shapes_and_options_get_the_same_kernels(
    tensors: str, sizes: str, result: str, form: str, parts: tuple[str, ...], write: Written
) -> None:
    found = write(tensors, sizes, result)

    assert found is not None
    assert found.form == form
    for part in parts:
        assert part in found.source


@pytest.mark.parametrize(
    ("tensors", "sizes", "result"),
    [
        (f'{X2}; w_=normal("8, 24, 3, 3")', S2, 'F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), w_)'),
        (f'{X2}; w_=normal("8, 24, 3, 3")', S2, "F.relu(F.conv2d(x, w_))"),
        (f'{X2}; w_=normal("8, 24, 3, 3")', S2, "F.conv2d(x.contiguous(memory_format=torch.channels_last), w_)"),
        (f'{X2}; w_=normal("8, 24, 3, 3")', S2, "F.conv2d(x.half().float(), w_)"),
        (f'{X2}; w_=normal("8, 24, 3, 3")', S2, "F.conv2d(x, w_ * 2)"),
        ('x=normal("24, h, w"); w_=normal("8, 24, 3, 3")', '{"h": 9, "w": 9}', "F.conv2d(x, w_)"),
        ('a=normal("m, k", dtype="float16"); b=normal("k, n", dtype="float16")', '{"m": 8, "k": 8, "n": 8}', "a @ b"),
        ('a=normal("m, k", dtype="float64"); b=normal("k, n", dtype="float64")', '{"m": 8, "k": 8, "n": 8}', "a @ b"),
        ('a=normal("m, k"); b=normal("k, n")', SIDES, "(a @ b).t()"),
        ('a=normal("m, k"); b=normal("k, n"); c=normal("m, n")', SIDES, "a @ b + c"),
        (
            'a=normal("m, k"); b=normal("k, n"); c=normal("n")',
            SIDES,
            "torch.addmm(c, a, b, beta=2)",
        ),
        ('a=normal("m, k"); b=normal("k, n")', SIDES, "torch.triu(a @ b, 1)"),
        ('a=normal("n, n"); b=normal("n, n")', '{"n": 8}', "a @ b @ a"),
        ('a=normal("m, 4, k"); b=normal("m, k, n")', SIDES, "a[:, 1:3] @ b"),
        (
            'a=normal("m, k, j"); b=normal("j, m, n")',
            '{"m": 8, "k": 9, "j": 5, "n": 7}',
            "torch.bmm(a, b.transpose(0, 1))",
        ),
        ('x=normal("m, n"); keep=booleans("m, n")', '{"m": 8, "n": 9}', "(x * keep).cumsum(0)"),
        ('x=normal("m, n")', '{"m": 8, "n": 9}', "x.cumsum(1) - x"),
        ('x=normal("m, n")', '{"m": 8, "n": 9}', "x.cumsum(1, dtype=torch.float64).float()"),
        ('x=normal("m, n")', '{"m": 8, "n": 9}', "torch.flip(torch.flip(x, [0]).cumsum(1), [0])"),
        ('x=normal("m, n")', '{"m": 8, "n": 9}', "F.pad(x, (1, 0)).cumprod(1)[:, :-1].clone()"),
        ('x=normal("m, n"); y=normal("m, n")', '{"m": 8, "n": 9}', "(x * y).cumsum(1)"),
        (X2, S2, "F.max_pool2d(x, 3, return_indices=True)[1]"),
        (X2, S2, "F.adaptive_avg_pool2d(x, 2)"),
    ],
)
def test_what_is_almost_of_a_form_is_not_claimed(tensors: str, sizes: str, result: str, write: Written) -> None:
    assert write(tensors, sizes, result) is None


def test_other_classes_and_devices_are_not_claimed(tmp_path: Path) -> None:
    task, contract, recorded = described(tmp_path, 'a=normal("m, k"); b=normal("k, n")', SIDES, "a @ b")

    assert form_kernel(task, contract, recorded) is not None
    assert form_kernel(task, contract, recorded, "sm_80") is None
    assert form_kernel(replace(task, precision=Precision.BF16), contract, recorded) is None
    on_cpu = form_kernel(task, backend_named("cpu").contract(task), recorded)
    assert on_cpu is not None
    assert "<warpsmith/cpu/product.h>" in on_cpu.source


def test_a_product_in_the_tf32_class_is_one_product_instead_of_three() -> None:
    task = next(each for each in suite_tasks("warpsmith-100") if each.name == "matmul_symmetric")
    exact, coarse, file = collected(task), collected(task, Precision.TF32), SOURCES / "matmul_symmetric.cu"
    assert exact is not None
    assert coarse is not None
    assert exact.source == file.read_text()
    assert "multiply<warpsmith::Tf32>(p" in coarse.source
    assert "multiply_bytes<warpsmith::Tf32>(" in coarse.source


@pytest.mark.parametrize(
    ("sizes", "registers"),
    [
        ('{"m": 17, "k": 60000, "n": 9000}', True),
        ('{"m": 90000, "k": 20000, "n": 24}', True),
        ('{"m": 250, "k": 250, "n": 250}', True),
        ('{"m": 90000, "k": 16, "n": 90000}', True),
        ('{"m": 25, "k": 60000, "n": 9000}', False),
        ('{"m": 2048, "k": 2048, "n": 2048}', False),
        ('{"m": 2048, "k": 2048, "n": 2048}, {"m": 1, "k": 512, "n": 512}', True),
    ],
)
def test_products_that_are_small_or_thin_have_kernels_of_their_own(sizes: str, registers: bool, write: Written) -> None:
    found = write('a=normal("m, k"); b=normal("k, n")', sizes, "a @ b")

    assert found is not None
    assert ("if (warpsmith::by_registers(p, TUNE_WAY))" in found.source) is registers
    assert ("multiply_in_registers<false, true>(" in found.source) is registers
    assert ("register_product.cuh" in found.source) is registers


def test_families_without_a_form_have_no_task_of_a_form() -> None:
    """`collected` loads tasks of four families only."""
    skipped = [t for suite in ("warpsmith-100", "warpsmith-fused") for t in suite_tasks(suite) if collected(t) is None]
    for entry in skipped:
        program = load_task(entry.spec())
        assert form_kernel(program.task, backend_named("cuda").contract(program.task), outline(program)) is None


@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("tensors", "sizes", "result"),
    [
        (
            f'{X2}; weight=normal("10, 12, 3, 3"); bias=normal("10")',
            S2,
            "F.conv2d(x, weight, bias, stride=2, padding=1, groups=2)",
        ),
        (X2, S2, "F.max_pool2d(x, 3, stride=2, padding=1)"),
    ],
)
def test_the_source_compiles(tensors: str, sizes: str, result: str, tmp_path: Path) -> None:
    task, contract, recorded = described(tmp_path, tensors, sizes, result)
    found = form_kernel(task, contract, recorded)
    assert found is not None

    assert not compile_errors(found.source, contract, tmp_path)


PLANS = """
#include <warpsmith/convolution_stream.cuh>
#include <warpsmith/convolution_strided.cuh>
#include <cstdio>
using namespace warpsmith::conv;
static bool strided_ok(const Form& f, int columns) {
  return (columns == 16 && make_strided_plan<16, 4>(f).ok) || (columns == 24 && make_strided_plan<24, 4>(f).ok) ||
         (columns == 32 && make_strided_plan<32, 3>(f).ok) || (columns == 48 && make_strided_plan<48, 2>(f).ok) ||
         (columns == 64 && make_strided_plan<64, 2>(f).ok);
}
int main() {
  int a[28];
  for (;;) {
    for (int i = 0; i < 28; ++i)
      if (scanf("%d", a + i) != 1) return 0;
    const Form f = make_form(a[0], a[1], a[2], a[3], {a[4], a[5], a[6]}, {a[7], a[8], a[9]}, {a[10], a[11], a[12]},
                             {a[13], a[14], a[15]}, {a[16], a[17], a[18]}, a[19], {a[20], a[21], a[22]});
    const Plan widest = best_plan(f, 64), chosen = best_plan(f, a[23]);
    const bool planned = f.out_volume() && widest.ok;
    const bool tiles = !planned || (chosen.ok && chosen.columns == a[23] && chosen.product.ostep[2] == a[24]);
    const bool streams = (f.co == 64 || f.co == 128) && make_stream_plan(f, f.co, f.co == 128 ? 1 : 2).ok;
    const bool steps = !planned || longest_sum(chosen) <= a[26];
    const bool blocks = !f.out_volume() || !a[27] || strided_ok(f, a[23]);
    printf("%d\\n", tiles && steps && blocks && (!f.out_volume() || streams == bool(a[25])));
  }
}
"""


@pytest.mark.nvcc
def test_the_rules_of_the_form_are_those_of_the_header(tmp_path: Path) -> None:
    """1200 convolutions: the tile that the form chooses is the one that the library's own plan asks for."""
    (tmp_path / "plans.cu").write_text(PLANS)
    flags = ["-std=c++17", "-arch=sm_90a", "--expt-relaxed-constexpr", f"-I{LIBRARY}"]
    subprocess.run(["nvcc", *flags, "plans.cu", "-o", "plans"], cwd=tmp_path, check=True, capture_output=True)
    rng = random.Random(7)
    stems = [replace(_drawn(rng), **_stem(rng)) for _ in range(200)]
    lines = [_line(found) for found in (*(_drawn(rng) for _ in range(1000)), *stems)]
    assert sum(map(strides_become_channels, stems)) > 50

    done = subprocess.run([tmp_path / "plans"], input="\n".join(lines), capture_output=True, text=True, check=True)

    wrong = [line for line, same in zip(lines, done.stdout.split(), strict=True) if same != "1"]
    assert wrong == []


def _drawn(rng: random.Random) -> Convolution:
    axes, transposed = rng.choice((1, 2, 3)), rng.random() < 0.5
    one_tap = rng.random() < 0.3
    kernel = [1 if one_tap else rng.choice((1, 2, 3, 5, 7, 11)) for _ in range(axes)]
    stride = [1 if one_tap else rng.choice((1, 1, 2, 3, 5, 9)) for _ in range(axes)]
    dilation = [rng.choice((1, 1, 2, 3)) for _ in range(axes)]
    groups, ci = rng.choice((1, 1, 1, 4)), rng.choice((1, 3, 16, 17, 32, 64, 128, 256))
    return Convolution(
        *(None, None, None),
        stride=stride,
        padding=[0 if one_tap else rng.randrange(3) for _ in range(axes)],
        dilation=dilation,
        transposed=transposed,
        output_padding=[rng.randrange(max(s, d)) if transposed else 0 for s, d in zip(stride, dilation, strict=True)],
        groups=groups,
        batch=2,
        channels=ci * groups,
        extents=[rng.choice((20, 37, 64)) for _ in range(axes)],
        ci=ci,
        co=rng.choice((1, 3, 8, 20, 33, 48, 64, 64, 96, 128, 128, 192)),
        kernel=kernel,
    )


def _stem(rng: random.Random) -> dict[str, Any]:
    """A forward 2-d convolution of few channels with a stride."""
    return {
        "transposed": False,
        "groups": 1,
        "ci": rng.choice((1, 3, 4, 7)),
        "kernel": [rng.choice((3, 4, 5, 7, 11)) for _ in range(2)],
        "stride": [rng.choice((2, 3, 4)) for _ in range(2)],
        "padding": [rng.randrange(4) for _ in range(2)],
        "dilation": [1, 1],
        "output_padding": [0, 0],
        "extents": [rng.choice((20, 37, 64)) for _ in range(2)],
    }


def _line(found: Convolution) -> str:
    missing = 3 - found.axes
    ones, zeros = [1] * missing, [0] * missing
    values = [2, found.groups, found.ci, found.co, *ones, *found.extents, *ones, *found.kernel, *ones, *found.stride]
    values += [*zeros, *found.padding, *ones, *found.dilation, found.transposed, *zeros, *found.output_padding]
    chosen = (
        tile_columns(found),
        _out_step(found),
        streams(found),
        longest_sum(found),
        strides_become_channels(found),
    )
    return " ".join(str(int(each)) for each in (*values, *chosen))
