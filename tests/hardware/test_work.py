"""Counting a task's work on fake tensors: what must be read, what must be computed."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from warpsmith.hardware.work import Work, count_work


@dataclass(frozen=True)
class Typed:
    """A shape with an element type other than float32."""

    shape: tuple[int, ...]
    dtype: torch.dtype


Shape = tuple[int, ...] | Typed


def count(function: Callable[..., Any], *, structured: tuple[str, ...] = (), **shapes: Shape) -> Work:
    with FakeTensorMode():
        inputs = {
            name: torch.empty(s.shape, dtype=s.dtype) if isinstance(s, Typed) else torch.empty(s)
            for name, s in shapes.items()
        }

        def run(given: Any) -> tuple[torch.Tensor, ...]:
            result = function(**given)
            return result if isinstance(result, tuple) else (result,)

        return count_work(run, inputs, structured=structured)


def indices(*shape: int) -> Typed:
    return Typed(shape, torch.int64)


def test_relu_reads_and_writes_once() -> None:
    work = count(F.relu, input=(64, 32))
    assert work == Work(8192, 8192, 2048, 8192, 0, 1)


def test_softmax_sums_along_its_axis() -> None:
    work = count(lambda x: torch.softmax(x, -1), x=(64, 32))
    assert (work.essential_read_bytes, work.flops, work.reduction) == (8192, 2048, 32)


@pytest.mark.parametrize("batch", [(), (4,)])
def test_matmul(batch: tuple[int, ...]) -> None:
    work = count(torch.matmul, input=(*batch, 64, 32), other=(*batch, 32, 16))
    flops = math.prod(batch) * 2 * 64 * 32 * 16
    assert work.flops == flops
    assert work.essential_flops == int(flops / (8 / 7) ** 2)
    assert work.essential_read_bytes == work.read_bytes
    assert work.reduction == 32


def test_linear_with_an_activation_keeps_its_flops() -> None:
    work = count(lambda x, w, b: F.gelu(F.linear(x, w, b)), x=(8, 64, 32), w=(16, 32), b=(16,))
    assert work.essential_flops == int(2 * 8 * 64 * 32 * 16 / (8 / 7) ** 2)
    assert work.essential_read_bytes == work.read_bytes


def test_inference_mode_counts_the_same() -> None:
    def inferred(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return torch.matmul(a, b)

    assert count(inferred, a=(4, 8, 32), b=(32, 16)) == count(torch.matmul, input=(4, 8, 32), other=(32, 16))


def test_matrix_times_vector_has_no_fast_algorithm() -> None:
    work = count(torch.mv, input=(64, 32), vec=(32,))
    assert work.essential_flops == work.flops == 2 * 64 * 32


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda a, b: torch.diag(a) @ b, {"a": (64,), "b": (64, 16)}),
        (lambda a, b: torch.tril(a) @ b, {"a": (64, 64), "b": (64, 64)}),
        (lambda a, b: torch.triu(a @ b), {"a": (64, 64), "b": (64, 64)}),
        (lambda a, b: (a @ b).sum(), {"a": (64, 64), "b": (64, 64)}),
        (lambda a, b: torch.logsumexp(a @ b, 1), {"a": (64, 64), "b": (64, 64)}),
        (lambda a, b: (a[:, None] * a[None, :]) @ b, {"a": (64,), "b": (64, 16)}),
        (lambda a, b: a.expand(64, 64) @ b, {"a": (1, 64), "b": (64, 16)}),
        (lambda a, b: (a * torch.ones(64, 64).tril()) @ b, {"a": (64, 64), "b": (64, 64)}),
        (lambda a, b: (a @ b) @ b, {"a": (64, 64), "b": (64, 64)}),
        (lambda a, b: F.conv2d(a, b, padding=1).mean((2, 3)), {"a": (2, 8, 16, 16), "b": (4, 8, 3, 3)}),
    ],
)
def test_products_with_a_shortcut_are_not_essential(
    function: Callable[..., Any], shapes: dict[str, tuple[int, ...]]
) -> None:
    work = count(function, a=shapes["a"], b=shapes["b"])
    assert work.flops > 0
    assert work.essential_flops == 0


def test_a_product_with_itself_is_symmetric() -> None:
    work = count(lambda x: x @ x.T, x=(64, 32))
    assert work.essential_flops == int(work.flops / (8 / 7) ** 2) // 2


def test_of_several_products_one_counts() -> None:
    """a @ b + a @ c is a @ (b + c)."""
    one = count(lambda a, b: a @ b, a=(64, 32), b=(32, 16))
    two = count(lambda a, b, c: a @ b + a @ c, a=(64, 32), b=(32, 16), c=(32, 16))
    assert two.essential_flops == one.essential_flops


def test_part_of_a_product_needs_part_of_the_flops() -> None:
    whole = count(lambda a, b: a @ b, a=(64, 32), b=(32, 16))
    part = count(lambda a, b: (a @ b)[:16], a=(64, 32), b=(32, 16))
    assert part.essential_flops == whole.essential_flops // 4


def test_a_triangle_is_half_a_matrix() -> None:
    work = count(torch.tril, input=(64, 64))
    assert work.essential_read_bytes == 64 * 65 // 2 * 4
    work = count(lambda x: torch.triu(x, 1), x=(3, 8, 5))
    assert work.essential_read_bytes == int(torch.ones(3, 8, 5).triu(1).sum()) * 4


def test_triangular_product_reads_half_of_one_side() -> None:
    work = count(lambda a, b: torch.tril(a) @ b, a=(64, 64), b=(64, 64))
    assert work.essential_read_bytes == 64 * 65 // 2 * 4 + 64 * 64 * 4


def test_diagonal_product_reads_everything() -> None:
    work = count(lambda a, b: torch.diag(a) @ b, a=(64,), b=(64, 16))
    assert work.essential_read_bytes == work.read_bytes


def test_diagonal_of_a_matrix() -> None:
    assert count(lambda a: torch.diag(a) * 2, a=(64, 64)).essential_read_bytes == 64 * 4


def test_structured_inputs_are_not_essential() -> None:
    work = count(torch.matmul, structured=("input",), input=(64, 64), other=(64, 64))
    assert work.essential_flops == 0
    assert work.essential_read_bytes == 0  # zeros in one side may make the other unneeded


def test_strided_pointwise_convolution_skips_three_quarters() -> None:
    work = count(lambda x, w: F.conv2d(x, w, stride=2), x=(2, 8, 16, 16), w=(4, 8, 1, 1))
    assert work.essential_read_bytes == 2 * 8 * 8 * 8 * 4 + 4 * 8 * 4


def test_convolution_allowance_and_padding() -> None:
    plain = count(lambda x, w: F.conv2d(x, w), x=(2, 8, 16, 16), w=(4, 8, 3, 3))
    assert plain.essential_flops == plain.flops // 6
    padded = count(lambda x, w: F.conv2d(x, w, padding=1), x=(2, 8, 16, 16), w=(4, 8, 3, 3))
    assert padded.essential_flops == int(padded.flops * (46 / 48) ** 2 / 6)
    assert padded.essential_read_bytes == padded.read_bytes
    assert padded.reduction == 72


def test_taps_that_only_see_padding_are_not_read() -> None:
    work = count(lambda x, w: F.conv1d(x, w, padding=4), x=(1, 1, 1), w=(1, 1, 9))
    assert work.essential_read_bytes == 4 + 4  # one window, and only its middle tap meets the one element


def test_transposed_convolution() -> None:
    work = count(lambda x, w: F.conv_transpose2d(x, w, stride=2), x=(2, 8, 16, 16), w=(8, 4, 3, 3))
    assert work.essential_read_bytes == work.read_bytes
    assert 0 < work.essential_flops <= work.flops / 2.25


def test_pooling_with_gaps() -> None:
    work = count(lambda x: F.max_pool2d(x, 2, stride=4), x=(2, 8, 16, 16))
    assert work.essential_read_bytes == work.read_bytes // 4
    assert count(lambda x: F.avg_pool1d(x, 2, stride=4), x=(2, 8, 16)).essential_read_bytes == 2 * 8 * 8 * 4


def test_embedding_may_hit_one_row() -> None:
    work = count(F.embedding, input=indices(100), weight=(1000, 16))
    assert work.essential_read_bytes == 100 * 8 + 16 * 4
    assert work.essential_read_bytes <= work.written_bytes
    assert work.read_bytes == 100 * 8 + 100 * 16 * 4  # no more than was looked up


def test_a_table_is_read_once_at_most() -> None:
    whole = 1000 * 16 * 4
    assert count(F.embedding, input=indices(5000), weight=(1000, 16)).read_bytes == 5000 * 8 + whole
    twice = count(lambda i, w: F.embedding(i, w) + w[i].exp(), i=indices(100), w=(1000, 16))
    assert twice.read_bytes == 100 * 8 + 2 * 100 * 16 * 4
    also = count(lambda i, w: F.embedding(i, w) + w.sum(0), i=indices(100), w=(1000, 16))
    assert also.read_bytes == 100 * 8 + whole


def test_one_hot_product_is_an_embedding() -> None:
    work = count(lambda i, w: F.one_hot(i, 1000).float() @ w, i=indices(100), w=(1000, 16))
    assert work.essential_read_bytes == 100 * 8
    assert work.essential_flops == 0


def test_argmax_reads_everything() -> None:
    work = count(lambda x: x.argmax(1), x=(64, 32))
    assert (work.essential_read_bytes, work.written_bytes, work.flops) == (8192, 64 * 8, 2048)


@pytest.mark.parametrize(("x", "t"), [((64, 32), (64,)), ((4, 8, 16), (4, 16)), ((2, 5, 8, 9), (2, 8, 9))])
def test_cross_entropy_needs_every_class(x: tuple[int, ...], t: tuple[int, ...]) -> None:
    work = count(F.cross_entropy, input=x, target=indices(*t))
    assert work.essential_read_bytes == work.read_bytes


@pytest.mark.parametrize("layer", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_recurrent_layers_count_as_one(layer: Callable[..., torch.nn.Module]) -> None:
    with FakeTensorMode():
        module = layer(8, 16, num_layers=2, batch_first=True, bidirectional=True)
        names = dict(module.named_parameters())
        inputs = {"x": torch.empty(4, 5000, 8), **names}
        outputs: list[torch.Tensor] = []

        def run(given: Any) -> tuple[torch.Tensor, ...]:
            result, hidden = module(given["x"])
            outputs.extend([result, *(hidden if isinstance(hidden, tuple) else [hidden])])
            return (result,)

        work = count_work(run, inputs)
    assert [tuple(o.shape) for o in outputs] == [(4, 5000, 32)] + [(4, 4, 16)] * (len(outputs) - 1)
    assert work.flops == 2 * 4 * 5000 * sum(p.numel() for p in names.values() if p.dim() == 2)
    assert work.essential_read_bytes == work.read_bytes


def test_slices_of_an_input() -> None:
    assert count(lambda x: F.relu(x[:, :8]), x=(64, 32)).essential_read_bytes == 64 * 8 * 4
    assert count(lambda x: F.relu(x)[:, :8], x=(64, 32)).essential_read_bytes == 64 * 8 * 4
    assert count(lambda x: x[::2] + 1, x=(64, 32)).essential_read_bytes == 32 * 32 * 4


@pytest.mark.parametrize("dim", [0, 1])
def test_disjoint_slices_add_up(dim: int) -> None:
    def gate(x: torch.Tensor) -> torch.Tensor:
        a, b = x.clone().chunk(2, dim)
        return a * torch.sigmoid(b)

    assert count(gate, x=(64, 32)).essential_read_bytes == 64 * 32 * 4


def test_overlapping_slices_do_not() -> None:
    work = count(lambda x: x[:48] + x[16:], x=(64, 32))
    assert 48 * 32 * 4 <= work.essential_read_bytes <= 64 * 32 * 4


def test_expanded_input_is_read_once() -> None:
    work = count(lambda x, y: x.expand(64, 32) + y, x=(1, 32), y=(64, 32))
    assert work.essential_read_bytes == work.read_bytes == 32 * 4 + 64 * 32 * 4


@pytest.mark.parametrize(
    "function", [lambda x, y: x + 1, lambda x, y: x + torch.ones_like(y), lambda x, y: x * y.shape[0]]
)
def test_inputs_nobody_looks_at_are_free(function: Callable[..., Any]) -> None:
    assert count(function, x=(64, 32), y=(64, 32)).essential_read_bytes == 64 * 32 * 4


def test_results_nobody_wants_are_free() -> None:
    def batch_norm(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(x, mean.clone(), var.clone(), training=True)

    work = count(batch_norm, x=(8, 4, 16), mean=(4,), var=(4,))
    assert work.essential_read_bytes == 8 * 4 * 16 * 4
    assert work.reduction == 8 * 16


def test_masks_may_hide_everything_behind_them() -> None:
    mask = Typed((64, 32), torch.bool)
    assert count(lambda m, x, y: torch.where(m, x, y), m=mask, x=(64, 32), y=(64, 32)).essential_read_bytes == 2048
    assert count(lambda m, x: (x * m).cumsum(1), m=mask, x=(64, 32)).essential_read_bytes == 2048
    assert count(lambda m, x: x.masked_fill(m, 0.0), m=mask, x=(64, 32)).essential_read_bytes == 2048


def test_in_place_code_counts_like_its_plain_form() -> None:
    def in_place(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = torch.empty(64, 32)
        out[:, :16] = x
        out[:, 16:] = y
        return out.mul_(2.0)

    assert count(in_place, x=(64, 16), y=(64, 16)).essential_read_bytes == 64 * 32 * 4


def test_overwritten_values_are_not_needed() -> None:
    def overwrite(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = x.clone()
        out[:, :16] = y
        return out

    assert count(overwrite, x=(64, 32), y=(64, 16)).essential_read_bytes == 64 * 32 * 4
    assert count(lambda x: x.clone().zero_(), x=(64, 32)).essential_read_bytes == 0


def test_attention_counts_both_products() -> None:
    work = count(F.scaled_dot_product_attention, query=(2, 4, 64, 32), key=(2, 4, 64, 32), value=(2, 4, 64, 32))
    assert work.flops >= 2 * 2 * 2 * 4 * 64 * 64 * 32
    assert work.essential_read_bytes == work.read_bytes


def test_several_outputs_are_all_written() -> None:
    work = count(lambda x: tuple(torch.max(x, 1)), x=(64, 32))
    assert work.written_bytes == 64 * 4 + 64 * 8
    assert work.essential_read_bytes == 64 * 32 * 4


def test_meta_tensors_do_without_a_mode_and_without_the_compiler() -> None:
    code = (
        "import sys, torch; from warpsmith.hardware.work import count_work; "
        "x = torch.empty(64, 32, device='meta'); "
        "work = count_work(lambda i: [torch.softmax(i['x'] @ i['x'].T, -1)], {'x': x}); "
        "print(work.essential_read_bytes, work.essential_flops, 'torch._dynamo' in sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    fake = count(lambda x: torch.softmax(x @ x.T, -1), x=(64, 32))
    assert done.stdout.split() == [str(fake.essential_read_bytes), str(fake.essential_flops), "False"]


def test_huge_tensors_cost_nothing() -> None:
    work = count(F.relu, input=(1 << 20, 1 << 14))
    assert work.read_bytes == 1 << 36


UNARY: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    torch.relu,
    lambda x: x.transpose(-1, -2),
    lambda x: x[..., : max(1, x.shape[-1] // 2)],
    lambda x: x.clone(),
    lambda x: F.pad(torch.softmax(F.pad(x, (1, 0), value=1.0), -1), (-1, 0)),  # never over one element only
    lambda x: x.cumsum(-1),
    lambda x: x.sum(-1, keepdim=True),
    lambda x: torch.tril(x),
    lambda x: x.unsqueeze(0).expand(2, *x.shape).reshape(-1, x.shape[-1]),
    lambda x: torch.cat((x, x), 0),
    lambda x: x @ x.transpose(-1, -2),
    lambda x: x.flip(0),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(UNARY), max_size=4), st.integers(1, 6), st.integers(1, 6))
def test_essential_reads_are_what_the_gradient_reaches_at_most(
    chain: list[Callable[[torch.Tensor], torch.Tensor]], rows: int, columns: int
) -> None:
    """An element with a gradient must be read, so the bound may not exceed the number of those."""

    def run(x: torch.Tensor) -> torch.Tensor:
        for step in chain:
            x = step(x)
        return x

    work = count(run, x=(rows, columns))
    real = torch.rand(rows, columns, dtype=torch.float64).add(0.5).requires_grad_()
    out = run(real)
    reached = torch.zeros(rows, columns, dtype=torch.bool)
    for element in out.clone().reshape(-1)[:400]:
        (gradient,) = torch.autograd.grad(element, real, retain_graph=True)
        reached |= gradient != 0
    assert work.essential_read_bytes <= int(reached.sum()) * 4
    assert 0 <= work.essential_read_bytes <= work.read_bytes
    assert 0 <= work.essential_flops <= work.flops
