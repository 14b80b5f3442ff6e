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
