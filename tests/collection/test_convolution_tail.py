"""Convolutions followed by element-wise operations: what the form claims, what it writes, and that this is right."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests.collection import test_held_convolution
from tests.collection.test_cpu_forms import HEAD, task_text
from tests.collection.test_forms import described
from tests.kernel_templates.bundle import MOST_ERROR, Case, errors_of, problem_of
from warpsmith.backends.source import backend_named
from warpsmith.kernels.form_task import FormKernel
from warpsmith.kernels.forms import form_kernel, form_ways
from warpsmith.model.build import Artifact, DeviceKind, Target
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.strategy import Plan
from warpsmith.tasks.load import load_task

MANY = '{"n": 32, "h": 56, "w": 56}'  # pixels enough for the general kernels
FEW = '{"n": 1, "h": 14, "w": 14}'
X, WEIGHT = 'x=normal("n, 64, h, w")', 'weight=normal("64, 64, 3, 3")'
CONVOLVED = "F.conv2d(x, weight, padding=1)"
BIASES = (  # declarations, and how they are added
    ('bias=normal("64")', "{} + bias.view(1, 64, 1, 1)"),
    ('bias=normal("64")', "bias[:, None, None] + {}"),
    ('bias=normal("64, 1, 1")', "{} + bias"),
    ('bias=normal("1, 64, 1, 1")', "torch.add({}, bias)"),
)


def written(folder: Path, tensors: str, sizes: str, result: str) -> FormKernel | None:
    return form_kernel(*described(folder, tensors, sizes, result))


@pytest.mark.parametrize(("declared", "added"), BIASES)
def test_an_added_vector_over_the_channels_is_the_bias(declared: str, added: str, tmp_path: Path) -> None:
    tensors = f"{X}; {WEIGHT}; {declared}"
    for sizes in (MANY, FEW):
        usual = written(tmp_path, f'{X}; {WEIGHT}; bias=normal("64")', sizes, "F.conv2d(x, weight, bias, padding=1)")
        found = written(tmp_path, tensors, sizes, added.format(CONVOLVED))
        assert found is not None
        assert found == usual


@pytest.mark.parametrize(
    "result",
    [
        f"{CONVOLVED} + 2 * bias.view(1, 64, 1, 1)",  # not the vector itself
        f"{CONVOLVED} - bias.view(1, 64, 1, 1)",
        f"torch.add({CONVOLVED}, bias.view(1, 64, 1, 1), alpha=2)",
        f"{CONVOLVED} + bias",  # along the width
        f"F.relu({CONVOLVED}) * {CONVOLVED}.sigmoid()",  # two convolutions
        f"{CONVOLVED} * bias.view(1, 64, 1, 1)",  # needs more than the value
        f"{CONVOLVED}.relu().sum(1)",
        f"{CONVOLVED}.relu().transpose(2, 3).contiguous()",  # lies otherwise in memory
    ],
)
def test_what_needs_more_than_the_value_is_not_claimed(result: str, tmp_path: Path) -> None:
    sizes = '{"n": 32, "h": 64, "w": 64}'
    assert written(tmp_path, f'{X}; {WEIGHT}; bias=normal("64")', sizes, result) is None


@pytest.mark.parametrize(
    "tail",
    [
        "F.relu({})",
        "F.leaky_relu({}, 0.2)",
        "F.gelu({})",
        "F.silu({}) * 2.5",
        "torch.sigmoid({})",
        "torch.tanh({} + 1)",
        "F.hardswish({})",
        "F.mish({})",
        "torch.clamp({}, -0.5, 0.75)",
        "(lambda y: y * torch.sigmoid(y) / 2)({})",
    ],
)
def test_functions_of_the_value_become_the_end_of_the_kernel(tail: str, tmp_path: Path) -> None:
    biased = f"{CONVOLVED} + bias.view(1, 64, 1, 1)"
    found = written(tmp_path, f'{X}; {WEIGHT}; bias=normal("64")', MANY, tail.format(f"({biased})"))

    assert found is not None
    assert found.form == "2-d convolution, then element-wise operations"
    assert "launch_convolution<kColumns, 1, kRows>(form_of(n, h, w), x, weight, bias, out" in found.source
    assert "End()" in found.source


def test_where_another_kernel_and_a_pass_are_faster_the_form_leaves_the_task(tmp_path: Path) -> None:
    assert written(tmp_path, f"{X}; {WEIGHT}", MANY, f"F.relu({CONVOLVED})") is not None
    assert written(tmp_path, f"{X}; {WEIGHT}", FEW, f"F.relu({CONVOLVED})") is None  # gathered pixels
    depthwise = 'x=normal("n, 64, h, w"); weight=normal("64, 1, 3, 3")'
    assert written(tmp_path, depthwise, MANY, "F.relu(F.conv2d(x, weight, padding=1, groups=64))") is None


def test_both_kernels_that_take_a_function_are_ways(tmp_path: Path) -> None:
    tensors = 'x=normal("n, 64, h, w"); weight=normal("128, 64, 1, 1")'
    given = described(tmp_path, tensors, '{"n": 16, "h": 512, "w": 512}', "F.gelu(F.conv2d(x, weight))")
    ways = form_ways(*given)

    assert [way.name for way in ways] == ["one-pass-convolution", "shifted-taps"]
    assert all("erff(" in way.source() and way.settings_in(way.source()) is not None for way in ways)


TAILS = {  # tensors, sizes, the result, what the source has
    "rows and phases": (
        'x=normal("n, 32, h, w"); weight=normal("32, 24, 4, 4"); bias=normal("24")',
        '{"n": 16, "h": 96, "w": 96}',
        "F.mish(F.conv_transpose2d(x, weight, stride=2, padding=1) + bias.view(-1, 1, 1)) * scale",
        "launch_convolution<kColumns, 2,",
    ),
    "one pass": (
        'x=normal("n, 64, h, w"); weight=normal("128, 64, 1, 1")',
        '{"n": 16, "h": 512, "w": 512}',
        "F.gelu(F.conv2d(x, weight))",
        "launch_stream<",
    ),
}


@pytest.mark.nvcc
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in TAILS])
def test_the_source_compiles(name: str, tmp_path: Path) -> None:
    tensors, sizes, result, part = TAILS[name]
    result = result.replace("scale", "0.125")
    task, contract, recorded = described(tmp_path, tensors, sizes, result)
    found = form_kernel(task, contract, recorded)
    assert found is not None
    assert part in found.source
    candidate = Candidate((SourceFile("kernel.cu", found.source),), "cuda")

    made = backend_named("cuda").build(candidate, contract, Target(DeviceKind.CUDA, "sm_90a"))

    assert isinstance(made, Artifact), made.reason


EXTREMES = """
inline float max_nan(float a, float b) { return a > b || a != a ? a : b; }
inline float min_nan(float a, float b) { return a < b || a != a ? a : b; }
"""


@pytest.mark.parametrize(
    ("result", "filters"),
    [
        ("F.hardswish(F.conv2d(x, weight, padding=1) + bias.view(1, -1, 1, 1)) * 0.5", (40, 24, 3, 3)),
        pytest.param(
            "torch.tanh(F.conv_transpose2d(x, weight, stride=2) + bias[:, None, None])",
            (24, 20, 3, 2),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_end_is_applied_to_every_element(result: str, filters: tuple[int, ...], tmp_path: Path) -> None:
    channels, co = (filters[0], filters[1])[::-1] if "transpose" not in result else filters[:2]
    tensors = f'x=normal("n, {channels}, h, w"); weight=normal("{", ".join(map(str, filters))}"); bias=normal("{co}")'
    task, contract, recorded = described(tmp_path, tensors, '{"n": 64, "h": 400, "w": 400}', result)
    (way,) = (each for each in form_ways(task, contract, recorded) if each.name == "shifted-taps")
    # The emulated device does not know all of packs.cuh.
    extremes = "namespace warpsmith { using ::max_nan, ::min_nan; }"
    source = way.source().replace("#include <warpsmith/packs.cuh>", extremes)
    library = test_held_convolution.built(EXTREMES + source, tmp_path)
    generator = torch.Generator().manual_seed(3)
    bias = torch.randn(co, generator=generator)
    for scale in (1.0, 1e5):  # beyond the range of fp16 the plain kernel computes, with the same end
        x = torch.randn((2, channels, 7, 26), generator=generator) * scale
        weight = torch.randn(filters, generator=generator) * 0.05 / scale
        exact = {"x": x.double(), "weight": weight.double(), "bias": bias.double()}
        wanted = eval(result, {"F": F, "torch": torch, **exact})
        sizes = {"n": 2, "h": 7, "w": 26, **{f"out_dim{n}": wanted.shape[n] for n in (2, 3)}}

        found, flags = test_held_convolution.launched(
            library, (x, weight, bias), wanted.shape, [sizes[each.name] for each in contract.size_arguments]
        )

        assert ((found.double() - wanted).norm() / wanted.norm()).item() < 1e-6
        assert (flags == test_held_convolution.SEEN) == (scale == 1.0)


def test_on_the_cpu_an_added_vector_is_the_bias_too(tmp_path: Path) -> None:
    tensors = {"x": "b, 6, h, w", "weight": "10, 6, 3, 2", "bias": "10, 1, 1"}
    sizes = [{"b": 2, "h": 7, "w": 9}, {"b": 1, "h": 3, "w": 40}]
    (tmp_path / "tasks.py").write_text(
        "\n".join([HEAD, task_text("mine", tensors, sizes, "F.conv2d(x, weight, stride=2) + bias")])
    )
    program = load_task(f"{tmp_path / 'tasks.py'}::mine")
    problem = problem_of(program, "cpu")
    assert problem.outline is not None
    ways = form_ways(program.task, problem.contract, problem.outline)
    assert [way.name for way in ways][:2] == ["direct-convolution", "im2col"]

    errors = errors_of([Case(program, problem, Plan(), way.source()) for way in ways[:2]], tmp_path)

    assert [each for each in errors if not max(each) < MOST_ERROR] == []
