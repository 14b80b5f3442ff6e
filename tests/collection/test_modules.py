"""Files in KernelBench's form, a module with fixed sizes, get the kernels of the suite's tasks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from warpsmith.backends.source import backend_named
from warpsmith.kernels.collection import SOURCES, find_kernel
from warpsmith.kernels.form_task import FormKernel
from warpsmith.kernels.forms import form_kernel
from warpsmith.tasks.load import load_task
from warpsmith.tasks.outline import outline

MODULE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = {layer}

    def forward(self, x):
        return self.layer(x)


def get_inputs():
    return [torch.rand({shape})]


def get_init_inputs():
    return []
"""


def kernel_of(layer: str, shape: str, folder: Path) -> FormKernel | None:
    (folder / "module.py").write_text(MODULE.format(layer=layer, shape=shape))
    program = load_task(folder / "module.py")
    return form_kernel(program.task, backend_named("cuda").contract(program.task), outline(program))


@pytest.mark.parametrize(
    ("name", "layer", "shape"),
    [
        ("conv1d_dilated_strided", "nn.Conv1d(64, 128, 3, stride=3, dilation=4, bias=False)", "1, 64, 524280"),
        ("conv2d", "nn.Conv2d(16, 128, 3, bias=False)", "1, 16, 512, 512"),
        ("conv2d_stem", "nn.Conv2d(3, 96, 11, stride=4, padding=2)", "16, 3, 224, 224"),
        ("conv2d_pointwise", "nn.Conv2d(64, 128, 1, bias=False)", "1, 64, 512, 512"),
        ("conv2d_depthwise", "nn.Conv2d(64, 64, 3, groups=64, bias=False)", "1, 64, 512, 512"),
        ("conv3d", "nn.Conv3d(3, 64, 3, bias=False)", "2, 3, 64, 64, 64"),
        ("conv_transpose1d", "nn.ConvTranspose1d(128, 128, 3, bias=False)", "1, 128, 65536"),
        (
            "conv_transpose2d_grouped",
            "nn.ConvTranspose2d(32, 64, (3, 5), stride=(2, 3), padding=(1, 2), dilation=(2, 1), groups=4, bias=False)",
            "1, 32, 128, 256",
        ),
        (
            "conv_transpose3d_strided",
            "nn.ConvTranspose3d(32, 32, 3, stride=2, padding=1, bias=False)",
            "1, 32, 16, 64, 128",
        ),
        ("max_pool2d", "nn.MaxPool2d(4, stride=1, padding=1)", "2, 32, 256, 256"),
    ],
)
def test_a_module_gets_the_kernel_of_the_task(name: str, layer: str, shape: str, tmp_path: Path) -> None:
    found = kernel_of(layer, shape, tmp_path)

    assert found is not None
    wanted = parts_of(find_kernel(name).source)
    assert len(wanted) >= 3
    assert parts_of(found.source) == wanted


def parts_of(source: str) -> list[str]:
    """Headers, constants and template arguments: what a text says without the sizes and names of its task."""
    form = re.findall(r"make_form\((?:[^{}]*?)(\d+, \d+, \d+), \{[^}]*\}(.*?)\);", source)
    return [
        *re.findall(r"#include <.*>", source),
        *re.findall(r"(?:constexpr|#define) .*", source),
        *re.findall(r"(?:launch|pool)\w*<[^>]*>", source),
        *map(str, form),
    ]


def test_a_module_with_parameters_gets_the_file_of_the_task(tmp_path: Path) -> None:
    found = kernel_of("nn.GroupNorm(8, 64)", "4, 64, 128, 128", tmp_path)

    assert found is not None
    assert found.form == "as warpsmith-100/group_norm"
    assert "launch_file(x, layer_weight, layer_bias, out, 8, 1e-05, 4, 64, 128, 128, workspace, stream)" in found.source
    body = (SOURCES / "group_norm.cu").read_text(encoding="utf-8").partition('extern "C"')[0]
    assert found.source.startswith(body)


WRITTEN = """
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = {layer}

    def forward(self, {names}):
        return {result}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
TANH_GELU = "(x * 0.5) * (torch.tanh((x + x.pow({power}) * 0.044715) * {factor}) + {one})"
ROOT = 0.7978845608028654


def written(layer: str, inputs: dict[str, str], result: str, folder: Path) -> FormKernel | None:
    """The kernel of a module that computes this from tensors of these shapes."""
    drawn = ", ".join(f"torch.rand({shape})" for shape in inputs.values())
    text = WRITTEN.format(layer=layer or "None", names=", ".join(inputs), result=result, inputs=drawn)
    (folder / "module.py").write_text(text)
    program = load_task(folder / "module.py")
    return form_kernel(program.task, backend_named("cuda").contract(program.task), outline(program))


UPWARDS = "nn.ConvTranspose2d(32, 64, 3, stride=5, padding=1, dilation=2, bias=False)"
HEADS = dict.fromkeys("qkv", "2, 3, 40, 256")
FILES = {
    "conv_transpose2d_strided_dilated": (
        UPWARDS,
        {"x": "2, 32, 9, 20"},
        "self.layer(x)",
        "(x, layer_weight, out, 2, 9, 20, 43, 98, workspace, stream)",
    ),
    "gelu_tanh": (
        "",
        {"x": "30, 70"},
        TANH_GELU.format(power="3.0", factor=ROOT, one="1.0"),
        "(x, out, 30, 70, workspace, stream)",
    ),
    "batch_norm": (
        "nn.BatchNorm2d(48, eps=1e-3)",
        {"x": "32, 48, 400, 480"},
        "self.layer(x)",
        "(x, layer_weight, layer_bias, out, 0.001, 32, 48, 400, 480, workspace, stream)",
    ),
    "matmul_diagonal": (
        "",
        {"d": "40", "m": "40, 30"},
        "torch.diag(d) @ m",
        "(d, m, out, 40, 30, workspace, stream)",
    ),
    "attention": (
        "",
        HEADS,
        "F.scaled_dot_product_attention(q, k, v)",
        "(q, k, v, out, 2, 3, 40, 256, workspace, stream)",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_module_that_says_it_differently_gets_the_file_of_the_task(name: str, tmp_path: Path) -> None:
    layer, inputs, result, call = FILES[name]

    found = written(layer, inputs, result, tmp_path)

    assert found is not None
    assert found.form == f"as warpsmith-100/{name}"
    assert f"return launch_file{call};" in found.source


@pytest.mark.parametrize(
    ("layer", "inputs", "result", "form"),
    [
        (UPWARDS.replace("stride=5", "stride=4"), {"x": "2, 32, 9, 20"}, "self.layer(x)", "transposed 2-d convolution"),
        (
            UPWARDS.replace("bias=False", "bias=True"),
            {"x": "2, 32, 9, 20"},
            "self.layer(x)",
            "transposed 2-d convolution",
        ),
        (UPWARDS, {"x": "2, 32, 9, 20"}, "torch.selu(self.layer(x))", ""),
        ("", {"x": "30, 70"}, TANH_GELU.format(power="3.0", factor="0.79", one="1.0"), ""),
        ("", {"x": "30, 70"}, TANH_GELU.format(power="2.0", factor=ROOT, one="1.0"), ""),
        ("", {"x": "30, 70"}, TANH_GELU.format(power="3.0", factor=ROOT, one="True"), ""),
        ("nn.BatchNorm2d(12)", {"x": "5, 12, 20, 23"}, "self.layer(x)", "batch normalisation"),
        ("nn.BatchNorm2d(12)", {"x": "5, 12, 20, 23"}, "F.relu(self.layer(x))", "batch normalisation"),
        ("nn.BatchNorm2d(12).eval()", {"x": "5, 12, 20, 23"}, "self.layer(x)", ""),
        ("nn.BatchNorm2d(48).eval()", {"x": "32, 48, 400, 480"}, "self.layer(x)", ""),
        ("nn.BatchNorm2d(1)", {"x": "5, 1, 20, 23"}, "self.layer(x) + self.layer.running_mean", ""),
        ("", {"d": "40", "m": "30, 40"}, "m @ torch.diag(d)", ""),
        ("", {"d": "39", "m": "40, 30"}, "torch.diag(d, 1) @ m", ""),
        ("", {"d": "40", "m": "40"}, "torch.diag(d) @ m", ""),
        ("", HEADS, "F.scaled_dot_product_attention(q, k, v, scale=0.07)", ""),
        ("", HEADS, "F.scaled_dot_product_attention(q, k, v, scale=1.00001 / 16)", ""),
        ("", HEADS, "F.scaled_dot_product_attention(q, k, v, is_causal=True)", ""),
    ],
)
def test_what_is_almost_the_same_keeps_what_it_had(
    layer: str, inputs: dict[str, str], result: str, form: str, tmp_path: Path
) -> None:
    found = written(layer, inputs, result, tmp_path)

    assert (found.form if found else "") == form


def test_narrow_heads_keep_the_form_of_their_own(tmp_path: Path) -> None:
    found = written("", dict.fromkeys("qkv", "2, 3, 40, 128"), "F.scaled_dot_product_attention(q, k, v)", tmp_path)

    assert found is not None
    assert "attention_heads.cuh" in found.source


def test_running_statistics_make_no_difference_to_the_text(tmp_path: Path) -> None:
    shape = {"x": "5, 12, 20, 23"}
    kept = written("nn.BatchNorm2d(12, momentum=0.3)", shape, "self.layer(x)", tmp_path)
    without = written("nn.BatchNorm2d(12, track_running_stats=False)", shape, "self.layer(x)", tmp_path)

    assert kept is not None
    assert without is not None
    assert kept.source.partition('extern "C" int launch')[0] == without.source.partition('extern "C" int launch')[0]
    assert "(x, layer_weight, layer_bias, out, 1e-05, 5, 12, 20 * 23, workspace" in kept.source
