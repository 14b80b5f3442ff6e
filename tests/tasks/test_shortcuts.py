"""What we answer for meta tensors must be what torch itself computes on real ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from warpsmith.tasks.meta_tracing import FastMetaOperators

CASES: dict[str, Callable[[Tensor, Tensor], object]] = {
    "unary": lambda x, i: torch.sigmoid(x),
    "integer becomes float": lambda x, i: torch.exp(i),
    "comparison": lambda x, i: x > 0,
    "promotion": lambda x, i: i + 1.5,
    "zero-dimensional operand": lambda x, i: i * torch.ones((), dtype=torch.float64, device=i.device),
    "broadcast": lambda x, i: x[:, :1] + x[:1],
    "broadcast promotion": lambda x, i: x.half() * i,
    "where": lambda x, i: torch.where(x > 0, x, 0.0),
    "alpha": lambda x, i: torch.add(x, x, alpha=2),
    "in place": lambda x, i: x.clone().mul_(2).add_(x[0]),
    "strides kept": lambda x, i: torch.relu(x.t()),
    "made contiguous": lambda x, i: x.t().contiguous().view(-1),
    "gelu": lambda x, i: F.gelu(x, approximate="tanh"),
    "hardswish": lambda x, i: F.hardswish(x),
    "triangle": lambda x, i: torch.tril(x, 1),
    "linear": lambda x, i: F.linear(x, x, x[:, 0]),
    "batch norm": lambda x, i: F.batch_norm(x, None, None, x[0], x[0], training=True),
    "layer norm": lambda x, i: F.layer_norm(x, (6,), x[0]),
    "group norm": lambda x, i: F.group_norm(x, 3),
    "softmax": lambda x, i: torch.softmax(x, 0),
    "softmax of half to float": lambda x, i: torch.softmax(x.half(), 0, dtype=torch.float32),
    "log softmax": lambda x, i: torch.log_softmax(x, -1),
    "cat": lambda x, i: torch.cat([x, x[:2]], 0),
    "cat of two types": lambda x, i: torch.cat([x, i], 1),
    "cumsum": lambda x, i: (x.cumsum(1), i.cumsum(0), (x > 0).cumsum(0)),
    "logsumexp": lambda x, i: torch.logsumexp(x, dim=1, keepdim=True),
    "mean": lambda x, i: (x.mean(), x.mean(dim=(0, 1)), x.mean(-1, keepdim=True), x.mean(0, dtype=torch.float64)),
    "norm": lambda x, i: (x.norm(), torch.linalg.vector_norm(x, 1, dim=1)),
    "pooling": lambda x, i: F.adaptive_avg_pool2d(x.reshape(1, 4, 2, 3), (1, 2)),
    "cross entropy": lambda x, i: (F.cross_entropy(x, i[:, 0]), F.cross_entropy(x, i[:, 0], reduction="none")),
}


def run(case: Callable[[Tensor, Tensor], object], device: str) -> list[tuple[object, ...]]:
    x = torch.ones(4, 6, device=device)
    index = torch.ones(4, 6, dtype=torch.int64, device=device)
    result = case(x, index)
    results = result if isinstance(result, tuple) else (result,)
    return [(tuple(t.shape), t.dtype, t.stride()) for t in results]


@pytest.mark.parametrize("name", CASES)
def test_shape_type_and_strides_agree_with_real_tensors(name: str) -> None:
    with FastMetaOperators():
        answered = run(CASES[name], "meta")
    assert answered == run(CASES[name], "cpu")


@pytest.mark.parametrize(
    "mistake",
    [
        lambda x: F.linear(x, x, x[0]),
        lambda x: F.batch_norm(x, None, None, x[:, 0], training=True),
        lambda x: torch.softmax(x, 2),
        lambda x: torch.cumsum(x, 2),
        lambda x: torch.cat([x, x[:, :2]], 0),
        lambda x: x + x[:, :2],
        lambda x: x[:1].clone().add_(x),
        lambda x: x.long().add_(0.5),
    ],
)
def test_a_mistake_is_still_a_mistake(mistake: Callable[[Tensor], Tensor]) -> None:
    for device in ("cpu", "meta"):
        with pytest.raises((RuntimeError, IndexError)), FastMetaOperators():
            mistake(torch.ones(4, 6, device=device))
