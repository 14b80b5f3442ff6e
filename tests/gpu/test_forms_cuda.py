"""What users' own tasks get without a model, judged on a GPU: sizes at which indices or tiles end badly."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.shape_sweep import kernel_for
from benchmarks.sweep_entries import OTHERS, Entry, write_entry

from warpsmith.backends.source import backend_named
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model.candidate import Candidate
from warpsmith.model.certificate import CheckStatus
from warpsmith.model.settings import Settings
from warpsmith.model.task import Precision
from warpsmith.tasks.load import load_task
from warpsmith.verification.verify import Verifier

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

MATRICES = {"a": 'normal("m, k")', "b": 'normal("k, n")'}
ATTENTION = dict.fromkeys(("q", "k", "v"), 'normal("batch, heads, length, width")')
LONG = {"x": 'normal("n")'}
ROWS = {"x": 'normal("rows, cols")'}


def entry(name: str, tensors: dict[str, str], result: str, **sizes: int) -> Entry:
    return write_entry(name, OTHERS, name, tensors, result, sizes)


TRIANGLES = [
    entry("upper", MATRICES, "torch.triu(a @ b)", m=1001, k=777, n=1003),
    entry("lower", MATRICES, "torch.tril(a @ b)", m=1003, k=777, n=1001),
    entry("upper_wide", MATRICES, "torch.triu(a @ b)", m=130, k=4099, n=2050),
    entry("lower_wide", MATRICES, "torch.tril(a @ b)", m=2050, k=4099, n=130),
    entry("upper_square", MATRICES, "torch.triu(a @ b)", m=4096, k=4096, n=4096),
]
ATTENTIONS = [
    entry(
        name,
        ATTENTION,
        f"torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal={causal})",
        batch=batch,
        heads=heads,
        length=length,
        width=width,
    )
    for name, causal, batch, heads, length, width in (
        ("attention", False, 2, 8, 4096, 64),
        ("causal", True, 1, 4, 1000, 128),
        ("causal_narrow", True, 3, 5, 333, 40),
    )
]
LARGE = [
    entry("sum_of_more_than_2_31", LONG, "torch.sum(x)", n=2**31 + 7),
    entry("largest_of_more_than_2_31", LONG, "torch.argmax(x)", n=2**31 + 7),
    entry("running_sum_of_one_row", ROWS, "torch.cumsum(x, 1)", rows=1, cols=10**8 + 3),
    entry("softmax_of_short_rows", ROWS, "torch.softmax(x, 1)", rows=30_000_001, cols=5),
    entry(
        "pooling_of_odd_planes",
        {"x": 'normal("batch, planes, height, width")'},
        "torch.nn.functional.max_pool2d(x, 3, 2, 1)",
        batch=64,
        planes=64,
        height=111,
        width=113,
    ),
]


def kernel_of(each: Entry, folder: Path, precision: Precision | None) -> tuple[Path, Candidate]:
    path = folder / f"{each.name}.py"
    path.write_text(each.text)
    program = load_task(path, precision)
    kernel = kernel_for(each, program, backend_named("cuda").contract(program.task))
    assert kernel is not None, "no form and no template fits"
    return path, kernel.candidate


@pytest.mark.parametrize("each", [*TRIANGLES, *ATTENTIONS, *LARGE], ids=lambda each: each.name)
def test_the_first_kernel_is_valid(each: Entry, tmp_path: Path, gpu_evaluator: Evaluator) -> None:
    task, candidate = kernel_of(each, tmp_path, None)
    verdict = gpu_evaluator.evaluate_one(task, candidate)
    assert verdict.ok, verdict.reason


@pytest.mark.parametrize("each", TRIANGLES, ids=lambda each: each.name)
def test_a_triangle_is_valid_in_tf32(each: Entry, tmp_path: Path, gpu_evaluator: Evaluator) -> None:
    task, candidate = kernel_of(each, tmp_path, Precision.TF32)
    verdict = gpu_evaluator.evaluate_one(task, candidate, Precision.TF32)
    assert verdict.ok, verdict.reason


@pytest.mark.parametrize("each", [TRIANGLES[0], *ATTENTIONS[1:], LARGE[-1]], ids=lambda each: each.name)
def test_sanitizers_find_nothing(each: Entry, tmp_path: Path, gpu: None, gpu_settings: Settings) -> None:
    task, candidate = kernel_of(each, tmp_path, None)
    with Evaluator("cuda", gpu_settings, shared=True) as evaluator:
        outcomes = Verifier(evaluator).examine(task, candidate)
    assert outcomes
    fine = (CheckStatus.PASSED, CheckStatus.NOT_APPLICABLE)
    assert not [f"{found.name}: {found.detail}" for found in outcomes if found.outcome not in fine]
