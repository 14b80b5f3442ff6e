"""Tasks with the operations of a suite's task: which ones get its file, and how the file is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collection.test_forms import described
from tests.cuda_front_end import compile_errors
from warpsmith.backends.source import backend_named
from warpsmith.kernels import collection, form_file
from warpsmith.kernels.form_file import same_operations
from warpsmith.kernels.form_task import FormKernel, FormTask, NotThisForm
from warpsmith.kernels.forms import form_kernel
from warpsmith.tasks.load import load_task
from warpsmith.tasks.outline import outline

X, SIZES = 'x=normal("rows, cols")', '{"rows": 8, "cols": 300}'
NORM = 'x=normal("n, 64, h, w"); gain=normal("64"); shift=normal("64")'
NORM_SIZES = '{"n": 2, "h": 5, "w": 7}'


def written(folder: Path, tensors: str, sizes: str, result: str) -> FormKernel:
    return same_operations(FormTask(*described(folder, tensors, sizes, result)))


def test_the_operations_are_those_of_the_tasks() -> None:
    """If this fails: `form_file.OPERATIONS.write_bytes(collection.written_operations())`."""
    assert form_file.OPERATIONS.read_bytes() == collection.written_operations()


@pytest.mark.parametrize(
    ("tensors", "sizes", "result", "name"),
    [
        ('logits=normal("n, c")', '{"n": 8, "c": 300}', "logits.softmax(-1)", "softmax"),
        ('p=normal("n, c"); q=normal("n, c")', '{"n": 8, "c": 300}', "(p - q).pow(2).mean()", "mse_loss"),
        ('x=normal("a, b, c")', '{"a": 2, "b": 30, "c": 9}', "x.mean(-2)", "mean_reduction"),
        (X, SIZES, "x / torch.norm(x, p=2, dim=-1, keepdim=True)", "l2_norm"),
        ('a=normal("m, k"); b=normal("k, 1")', '{"m": 8, "k": 9}', "a @ b", "matvec"),
    ],
)
def test_other_names_and_sizes_get_the_file_as_it_is(
    tensors: str, sizes: str, result: str, name: str, tmp_path: Path
) -> None:
    found = written(tmp_path, tensors, sizes, result)

    assert found.form == f"as warpsmith-100/{name}"
    assert found.source == (collection.SOURCES / f"{name}.cu").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("tensors", "sizes", "result", "call"),
    [
        ('x=normal("a, b, c")', '{"a": 2, "b": 3, "c": 9}', "torch.relu(x)", "(x, out, a * b, c, workspace, stream)"),
        ('x=normal("n")', '{"n": 9}', "F.gelu(x)", "(x, out, 1, n, workspace, stream)"),
        ('x=normal("b, 7, 300")', '{"b": 2}', "F.elu(x, 0.5)", "(x, out, 0.5, b * 7, 300, workspace, stream)"),
        (X, SIZES, "F.leaky_relu(x, 0.2)", "(x, out, 0.2, rows, cols, workspace, stream)"),
        (
            NORM,
            NORM_SIZES,
            "F.group_norm(x, 16, gain, shift, eps=1e-6)",
            "(x, gain, shift, out, 16, 1e-06, n, 64, h, w, workspace, stream)",
        ),
        (
            'bias=normal("cols"); x=normal("rows, cols")',
            SIZES,
            "F.gelu(x + bias)",
            "(x, bias, out, rows, cols, workspace, stream)",
        ),
    ],
)
def test_where_the_contract_differs_a_launch_calls_that_of_the_file(
    tensors: str, sizes: str, result: str, call: str, tmp_path: Path
) -> None:
    found = written(tmp_path, tensors, sizes, result)

    assert f"return launch_file{call};" in found.source
    assert found.source.count('extern "C" int launch(') == 1
    assert found.source.count('extern "C" int64_t workspace_bytes(') == found.source.count("workspace_bytes_file(") // 2


@pytest.mark.parametrize(
    ("tensors", "sizes", "result"),
    [
        (X, SIZES, "x.softmax(0)"),
        (X, SIZES, "x / torch.norm(x, p=1, dim=1, keepdim=True)"),
        (X, SIZES, "x / torch.norm(x, p=2, dim=0, keepdim=True)"),
        ('x=normal("a, b, c")', '{"a": 2, "b": 30, "c": 9}', "x.mean(2)"),
        ('x=normal("a, b, c")', '{"a": 2, "b": 30, "c": 9}', "x.mean(1, keepdim=True)"),
        (X, SIZES, "F.gelu(x, approximate='tanh')"),
        ('p=normal("n"); q=normal("n")', '{"n": 9}', "F.smooth_l1_loss(p, q, beta=0.5)"),
        # The kernels of the suite rely on triangular and symmetric inputs, which no operation shows.
        ('a=normal("n, n"); b=normal("n, n")', '{"n": 8}', "torch.tril(a @ b)"),
        ('a=normal("n, n"); b=normal("n, n")', '{"n": 8}', "a @ b"),
        (NORM, NORM_SIZES, "F.group_norm(x, 16, shift, gain)[:, :, 1:].contiguous()"),
    ],
)
def test_what_is_almost_the_same_is_not_claimed(tensors: str, sizes: str, result: str, tmp_path: Path) -> None:
    with pytest.raises(NotThisForm):
        written(tmp_path, tensors, sizes, result)


@pytest.mark.parametrize(("rate", "claimed"), [("1e-1", True), ("0.3", False)])
def test_no_other_scalar_where_some_numbers_were_computed_from_scalars(
    rate: str, claimed: bool, tmp_path: Path
) -> None:
    """Adam has 1 - 0.9 among its numbers, and the operations do not show where that comes from."""
    text = (Path(collection.__file__).parents[1] / "suites/warpsmith_fused/adam_step.py").read_text(encoding="utf-8")
    assert "rate=scalar(1e-1)" in text
    (tmp_path / "mine.py").write_text(text.replace("rate=scalar(1e-1)", f"rate=scalar({rate})"))
    program = load_task(tmp_path / "mine.py")
    task = FormTask(program.task, backend_named("cuda").contract(program.task), outline(program))
    if claimed:
        assert same_operations(task).form == "as warpsmith-fused/adam_step"
    else:
        with pytest.raises(NotThisForm):
            same_operations(task)


@pytest.mark.nvcc
def test_the_added_launch_compiles(tmp_path: Path) -> None:
    task, contract, recorded = described(tmp_path, NORM, NORM_SIZES, "F.group_norm(x, 16, gain, shift, eps=1e-6)")
    found = same_operations(FormTask(task, contract, recorded))
    assert not compile_errors(found.source, contract, tmp_path)


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_files_with_three_products_are_for_float32(precision: str, tmp_path: Path) -> None:
    tensors = 'x=normal("r, c"); g=normal("w, c"); u=normal("w, c")'
    task, contract, made = described(
        tmp_path, tensors, '{"r": 8, "c": 64, "w": 32}', "F.silu(x @ g.T) * (x @ u.T)", precision
    )
    found = form_kernel(task, contract, made)

    assert (found.form if found else None) == ("as warpsmith-fused/swiglu" if precision == "fp32" else None)
