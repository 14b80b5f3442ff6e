"""Forms on the CPU: which tasks they claim, and that what they write computes what PyTorch computes."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F

from tests.kernel_templates.bundle import MOST_ERROR, Case, errors_of, problem_of
from warpsmith.kernels.forms import form_kernel, last_kernel
from warpsmith.model.strategy import Plan
from warpsmith.proposers.templates import TemplateProposer
from warpsmith.tasks.load import load_task
from warpsmith.tasks.suites import SHIPPED, suite_tasks

HEAD = "import torch\nimport torch.nn.functional as F\nfrom warpsmith import booleans, integers, normal, task\n"
KINDS = {"mask": "booleans", "labels": "integers"}  # by name of the tensor; others are normal
FORM_FAMILIES = ("convolution", "pooling", "scan")
CONVOLUTIONS = (  # extents of the input, of the weights, the operation, other extents for the names
    ("16, h, w", "12, 16, 3, 3", "F.conv2d(x, weight, bias, stride=2, padding=1)", (7, 9), (20, 31)),
    ("16, h, w", "14, 8, 3, 2", "F.conv2d(x, weight, None, (1, 2), (2, 0), (2, 1), 2)", (7, 9), (5, 2)),
    ("6, h, w", "12, 1, 3, 5", "F.conv2d(x, weight, bias, padding=(1, 2), groups=6)", (7, 9), (1, 60)),
    ("5, h, w", "5, 1, 3, 3", "F.conv2d(x, weight, groups=5)", (9, 14), (3, 70)),
    ("7, h, w", "21, 7, 1, 1", "F.conv2d(x, weight, bias)", (8, 9), (1, 5)),
    ("3, h, w", "9, 3, 1, 1", "F.conv2d(x, weight, stride=3)", (8, 9), (40, 41)),
    ("300, n", "5, 300, 3", "F.conv1d(x, weight, dilation=3, stride=2, padding=4)", (11,), (130,)),
    ("4, n", "4, 4, 2", "F.conv1d(x, weight, bias, stride=5)", (11,), (300,)),
    ("4, d, h, w", "10, 4, 2, 3, 1", "F.conv3d(x, weight, bias, (1, 2, 1), (1, 0, 0))", (4, 5, 6), (2, 7, 30)),
    ("16, n", "16, 5, 4", "F.conv_transpose1d(x, weight, bias, stride=4, padding=1, output_padding=2)", (9,), (1,)),
    ("8, n", "8, 3, 1", "F.conv_transpose1d(x, weight, bias, stride=3)", (9,), (200,)),
    ("8, h, w", "8, 3, 3, 2", "F.conv_transpose2d(x, weight, None, (2, 3), (1, 0), 0, 4, (1, 2))", (6, 7), (2, 40)),
    ("8, h, w", "8, 9, 3, 3", "F.conv_transpose2d(x, weight, padding=2)", (6, 7), (30, 50)),
    (
        "4, d, h, w",
        "4, 3, 2, 3, 2",
        "F.conv_transpose3d(x, weight, bias, (1, 2, 9), 0, 0, 1, (2, 1, 1))",
        (4, 5, 6),
        (),
    ),
    ("6, h, w", "6, 1, 3, 3", "F.conv2d(F.conv2d(x, weight, padding=1, groups=6), mixture, bias)", (6, 7), (9, 30)),
)
POOLINGS = (  # extents, the operation, two sets of extents for the names
    ("3, n", "F.max_pool1d(x, 8, 1, 4, 3)", (40,), (17,)),
    ("3, n", "F.avg_pool1d(x, 3, 2, 1, ceil_mode=True)", (10,), (2500,)),
    ("n, w", "F.avg_pool1d(x, 40, 7)", (3, 41), (1, 4000)),
    ("3, h, w", "F.avg_pool2d(x, (3, 5), (2, 3), (1, 2), count_include_pad=False)", (7, 9), (1, 60)),
    ("3, h, w", "F.avg_pool2d(x, 3, 2, 1, ceil_mode=True)", (8, 10), (7, 9)),
    ("3, h, w", "F.avg_pool2d(x, 3, 1, 1, divisor_override=7)", (5, 8), (2, 3)),
    ("3, h, w", "F.max_pool2d(x, 3, 2, 1, 2, ceil_mode=True)", (8, 10), (5, 40)),
    ("3, h, w", "F.max_pool2d(x, 2)", (9, 11), (2, 2)),
    ("3, d, h, w", "F.avg_pool3d(x, 2)", (4, 6, 9), (2, 3, 5)),
    ("3, d, h, w", "F.max_pool3d(x, (1, 2, 3), (2, 1, 3), (0, 1, 1))", (5, 4, 9), (1, 2, 3)),
)
SCANS = (
    ("torch.cumsum(x, -1)", (3, 50), (1, 9001), (5, 1)),
    ("torch.cumprod(x, 1)", (3, 37), (2, 8), (4, 3)),
    ("torch.cumsum(x.flip(-1), -1).flip(-1)", (3, 50), (1, 9001), (2, 8)),
    ("torch.cumsum(F.pad(x, (1, 0)), -1)[..., :-1].clone()", (3, 50), (1, 9001), (2, 8)),
    ("torch.cumsum(F.pad(x.flip(-1), (1, 0)), -1)[..., :-1].flip(-1)", (3, 50), (1, 9001), (2, 1)),
    ("torch.cumsum(x * mask, -1)", (3, 50), (1, 9001), (2, 9)),
)


CHAINS = (  # tensors, the result, sizes
    (
        {"q": "b, 3, n, w", "k": "b, 3, n, w", "v": "b, 3, n, w"},
        "F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        ({"b": 2, "n": 7, "w": 5}, {"b": 1, "n": 50, "w": 17}),
    ),
    ({"a": "m, k", "b": "k, n"}, "torch.triu(a @ b, 1)", ({"m": 5, "k": 9, "n": 7}, {"m": 60, "k": 2, "n": 51})),
    (
        {"x": "b, 12, h, w", "gain": "12", "shift": "12"},
        "F.silu(F.group_norm(x, 4, gain, shift))",
        ({"b": 2, "h": 3, "w": 5}, {"b": 1, "h": 1, "w": 1}),
    ),
    (
        {"x": "b, 6, h, w", "gain": "6", "shift": "6"},
        "F.batch_norm(x, None, None, gain, shift, True)",
        ({"b": 3, "h": 3, "w": 5}, {"b": 2, "h": 1, "w": 2}),
    ),
    (
        {"x": "b, k", "gain": "k", "shift": "k"},
        "F.batch_norm(x.tanh(), None, None, gain, shift, True) - F.group_norm(x.abs(), 1, gain, shift)",
        ({"b": 300, "k": 67}, {"b": 5, "k": 3}),
    ),
    (
        {"x": "b, 4, n, w", "gain": "4, 1, 1", "shift": "4, 1, 1"},
        "F.group_norm(F.mish(x) * gain + F.softplus(shift) + F.elu(x * 0.5, 0.7) + F.gelu(x, approximate='tanh'), 2)",
        ({"b": 2, "n": 3, "w": 5}, {"b": 1, "n": 1, "w": 19}),
    ),
    (
        {"x": "4, n, w", "gain": "4, 1, 1", "shift": "w"},
        "torch.cat((x, (x * gain).erf() + x.pow(2) + shift, (x + gain).clamp(min=0.1).log()), 0)",
        ({"n": 3, "w": 5}, {"n": 1, "w": 19}),
    ),
    (
        {"x": "m, k", "gain": "k", "shift": "k", "weight": "n, k", "bias": "n"},
        "F.gelu(F.linear(F.layer_norm(x, (x.shape[1],), gain, shift), weight, bias))",
        ({"m": 5, "k": 9, "n": 7},),
    ),
    ({"x": "m, k"}, "torch.topk(x, 3)", ({"m": 5, "k": 9}, {"m": 2, "k": 3})),
    ({"x": "m, k", "labels": "m"}, "x.gather(1, labels[:, None]).squeeze(1)", ({"m": 5, "k": 9}, {"m": 2, "k": 3})),
    ({"labels": "m", "x": "k, n"}, "F.embedding(labels, x) + x[1]", ({"m": 5, "k": 9, "n": 7},)),
    ({"x": "m, n, 8"}, "torch.cat((x[..., 4:], -x[..., :4]), -1) * x.sin()", ({"m": 5, "n": 9},)),
    ({"x": "m, k"}, "torch.cat((x, x.abs()), 0).mean(-1)", ({"m": 5, "k": 9},)),
)


def test_every_task_of_the_suites_has_a_kernel() -> None:
    tasks = [entry for suite in SHIPPED for entry in suite_tasks(suite)]
    problems = {entry.title: problem_of(load_task(entry.spec("small")), "cpu") for entry in tasks}

    assert [title for title, problem in problems.items() if not TemplateProposer.supports(problem)] == []
    of_forms = [problems[entry.title] for entry in tasks if entry.family in FORM_FAMILIES]
    assert len(of_forms) == 46
    assert all(form_kernel(each.task, each.contract, each.outline, each.arch) for each in of_forms if each.outline)


def convolution_tasks() -> list[str]:
    written = []
    for number, (extents, filters, result, first, second) in enumerate(CONVOLUTIONS):
        tensors = {"x": f"b, {extents}", "weight": filters}
        weights = [int(part) for part in filters.split(", ")]
        if "mixture" in result:
            tensors["mixture"] = f"10, {weights[0]}, 1, 1"
        if "bias" in result:
            channels = 10 if "mixture" in result else weights["transpose" in result]
            tensors["bias"] = str(channels)
        sizes = named(["b", *axis_names(extents)], [(2, *each) for each in (first, second) if each])
        written.append(task_text(f"mine{number}", tensors, sizes, result))
    return written


def named(names: Sequence[str], sizes: Sequence[Sequence[int]]) -> list[dict[str, int]]:
    return [dict(zip(names, each, strict=True)) for each in sizes]


def axis_names(extents: str) -> list[str]:
    return [part for part in extents.split(", ") if part.isalpha()]


def task_text(name: str, tensors: dict[str, str], sizes: Sequence[dict[str, int]], result: str) -> str:
    drawn = ", ".join(
        f'{tensor}={KINDS.get(tensor, "normal")}("{dims}"{", high=3" if tensor == "labels" else ""})'
        for tensor, dims in tensors.items()
    )
    head = f"@task({drawn}, workloads={list(sizes)!r}, precision='fp32')"
    return f"{head}\ndef {name}({', '.join(tensors)}):\n    return {result}\n"


def cases_of(tasks: Sequence[str], folder: Path) -> list[Case]:
    file = folder / "tasks.py"
    file.write_text("\n\n".join([HEAD, *tasks]))
    cases = []
    for number in range(len(tasks)):
        program = load_task(f"{file}::mine{number}")
        problem = problem_of(program, "cpu")
        assert problem.outline is not None
        given = program.task, problem.contract, problem.outline
        written = form_kernel(*given) or last_kernel(*given)
        assert written is not None, tasks[number]
        cases.append(Case(program, problem, Plan(), written.source))
    return cases


def test_convolutions_are_those_of_pytorch(tmp_path: Path) -> None:
    tasks = convolution_tasks()

    errors = errors_of(cases_of(tasks, tmp_path), tmp_path)

    assert {tasks[n]: each for n, each in enumerate(errors) if not max(each) < MOST_ERROR} == {}


def test_poolings_and_scans_are_those_of_pytorch(tmp_path: Path) -> None:
    tasks = [
        task_text(f"mine{n}", {"x": f"b, {extents}"}, named(["b", *axis_names(extents)], [(2, *a), (1, *b)]), result)
        for n, (extents, result, a, b) in enumerate(POOLINGS)
    ]
    for result, *sizes in SCANS:
        tensors = {"x": "r, n", **({"mask": "r, n"} if "mask" in result else {})}
        tasks.append(task_text(f"mine{len(tasks)}", tensors, named(["r", "n"], sizes), result))

    errors = errors_of(cases_of(tasks, tmp_path), tmp_path)

    assert {tasks[n]: each for n, each in enumerate(errors) if not max(each) < MOST_ERROR} == {}
    library = ctypes.CDLL(str(tmp_path / "kernel.so"))
    x, out = torch.randn(2, 3, 40), torch.zeros(2, 3, 27)  # of the first pooling
    x[0, 1, 20] = x[1, 2, 39] = math.nan
    numbers = [ctypes.c_int64(number) for number in (2, 40, 27)]
    assert library.launch_0(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), *numbers, None, None) == 0
    assert torch.equal(out.isnan(), F.max_pool1d(x, 8, 1, 4, 3).isnan())


def test_other_references_are_computed_operation_by_operation(tmp_path: Path) -> None:
    tasks = [task_text(f"mine{n}", tensors, sizes, result) for n, (tensors, result, sizes) in enumerate(CHAINS)]

    errors = errors_of(cases_of(tasks, tmp_path), tmp_path)

    assert {tasks[n]: each for n, each in enumerate(errors) if not max(each) < MOST_ERROR} == {}


def test_what_the_last_form_does_not_know_it_leaves(tmp_path: Path) -> None:
    for number, result in enumerate(
        ("torch.linalg.inv(x)", "torch.sort(x)[0]", "F.gelu(x, approximate='tanh').cumsum(0)")
    ):
        (tmp_path / f"{number}.py").write_text("\n".join([HEAD, task_text("mine", {"x": "n, n"}, [{"n": 5}], result)]))
        problem = problem_of(load_task(tmp_path / f"{number}.py"), "cpu")
        assert problem.outline is not None
        assert last_kernel(problem.task, problem.contract, problem.outline) is None
