"""Tasks in parts on the CPU: chains around convolutions and products, and what their kernels compute."""

from __future__ import annotations

from pathlib import Path

from tests.kernel_templates.bundle import MOST_ERROR, Case, errors_of, problem_of
from warpsmith.kernel_templates.in_parts import in_parts
from warpsmith.model.strategy import Plan
from warpsmith.tasks.load import load_task

CHAINS = """
import torch
import torch.nn.functional as F

from warpsmith import normal, task, uniform

IMAGES = [{"b": 2, "h": 9, "w": 12}, {"b": 1, "h": 14, "w": 10}]
ROWS = [{"rows": 5, "cols": 24, "width": 33}, {"rows": 3, "cols": 16, "width": 64}]


@task(x=normal("b, 8, h, w"), f=normal("16, 8, 3, 3", std=0.2), g=normal("16"), workloads=IMAGES)
def convolution_relu_pool(x, f, g):
    return F.max_pool2d(F.relu(F.conv2d(x, f, g, padding=1)), 2)


@task(
    x=normal("b, 8, h, w"),
    f=normal("16, 8, 3, 3", std=0.2),
    m=normal("16"),
    v=uniform("16", low=0.5, high=2.0),
    workloads=IMAGES,
)
def residual_of_norms(x, f, m, v):
    y = F.relu(F.batch_norm(F.conv2d(x, f, padding=1), m, v))
    return torch.cat((y, F.mish(y)), 1)


@task(x=normal("2, 8, 7, 6"), f=normal("8, 8, 4, 4", std=0.2), g=normal("8"), s=normal("8"), workloads=[{}])
def transposed_groups(x, f, g, s):
    y = torch.tanh(F.conv_transpose2d(x, f, stride=2, padding=1))
    return F.group_norm(F.max_pool2d(y, 2), 4, g, s), y.mean((2, 3))


@task(x=normal("rows, cols"), f=normal("width, cols"), g=normal("width"), workloads=ROWS)
def linear_of_rows(x, f, g):
    y = torch.logsumexp(F.linear(x, f, g) * 0.5, 1, keepdim=True)
    return y * F.mish(y)


@task(x=normal("rows, cols"), f=normal("width, cols"), g=normal("width, width"), workloads=ROWS)
def two_layers(x, f, g):
    return torch.softmax(F.linear(torch.sigmoid(F.linear(x, f)), g), 1)
"""
NAMES = ("convolution_relu_pool", "residual_of_norms", "transposed_groups", "linear_of_rows", "two_layers")


def test_chains_are_right(tmp_path: Path) -> None:
    file = tmp_path / "chains.py"
    file.write_text(CHAINS)
    cases = []
    for name in NAMES:
        program = load_task(f"{file}::{name}")
        problem = problem_of(program, "cpu")
        made = in_parts(problem)
        assert made is not None, name
        assert made.form.startswith("in parts: "), name
        cases.append(Case(program, problem, Plan(), made.source))

    found = dict(zip(NAMES, errors_of(cases, tmp_path), strict=True))

    assert {name: errors for name, errors in found.items() if max(errors) > MOST_ERROR} == {}
