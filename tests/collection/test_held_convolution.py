"""Convolutions with sums held in registers, of blocks and in one pass, on the emulated device.

The texts are those that the form writes. The emulated device finds wrong indices and sums, waits that are missing, and
memory that is reused too early; it finds no races between warps that need no wait in this order of execution.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.collection.test_forms import described
from tests.emulated_device import compile_and_load
from warpsmith.backends.library import LIBRARY
from warpsmith.kernels import form_convolution
from warpsmith.kernels.collection import SOURCES
from warpsmith.kernels.forms import form_kernel

EMULATOR = Path(__file__).parents[1] / "kernel_templates" / "emulator.h"
DEVICE = Path(__file__).parent / "convolution_device.h"
MOST_ERROR = 7e-7  # relative, root of the mean square
PLAIN_ERROR = 1e-6  # of the plain kernel, which adds 1800 terms one after the other
SEEN = 6  # range flags after a call whose values lie within the range: the plain kernel has computed nothing
_LAUNCH = re.compile(
    r"(\w+(?:<[\w, ]+>)?)<<<(.*?), ([\w+* ]+), ([\w.]+), [^>]*(?:<\w+>[^>]*)?>>>\((.*?)\);\n", re.DOTALL
)


@dataclass(frozen=True)
class Case:
    """A convolution and what the form must have written for it."""

    result: str
    channels: int
    filters: tuple[int, ...]
    written: tuple[str, ...]
    sizes: tuple[tuple[int, ...], ...]  # images and extents
    bias: int = 0


CASES = {
    "short": Case("F.conv2d(x, weight)", 16, (128, 16, 3, 3), ("<kColumns, 1,", "kFold = 0"), ((1, 16, 38), (2, 7, 9))),
    "few channels": Case(
        "F.conv3d(x, weight, bias, padding=1)",
        3,
        (64, 3, 3, 3, 3),
        ("launch_held<kColumns, 1,", "kFold = 0"),
        ((2, 4, 5, 9),),
        bias=64,
    ),
    "one axis": Case(
        "F.conv_transpose1d(x, weight)", 128, (128, 128, 3), ("<kColumns, 1,", "kFold = 0"), ((1, 300), (3, 51))
    ),
    "32 columns": Case(
        "F.conv_transpose2d(x, weight)", 32, (32, 32, 3, 3), ("kColumns = 32", "kFold = 0"), ((2, 13, 31),)
    ),
    "forward with a stride": Case(
        "F.conv2d(x, weight, bias, stride=2, padding=1)",
        20,
        (30, 20, 3, 3),
        ("launch_held<kColumns, 1,", "kColumns = 32"),
        ((1, 21, 30),),
        bias=30,
    ),
    "24 columns": Case(
        "F.conv_transpose3d(x, weight)", 48, (48, 24, 3, 3, 3), ("kColumns = 24", "kFold = 27"), ((1, 3, 5, 9),)
    ),
    "a long sum": Case(
        "F.conv2d(x, weight, padding=(1, 0), dilation=(1, 2))",
        200,
        (24, 200, 3, 3),
        ("kColumns = 24", "kFold = 27"),
        ((1, 9, 26),),
    ),
    "one phase": Case(
        "F.conv_transpose2d(x, weight, stride=2, padding=1, dilation=2)",
        48,
        (48, 64, 3, 3),
        ("launch_held<kColumns, 2,", "kFold = 0"),
        ((1, 9, 11),),
    ),
    "groups": Case(
        "F.conv_transpose3d(x, weight, stride=2, padding=(1, 2, 3), output_padding=1, groups=4)",
        32,
        (32, 8, 3, 5, 7),
        ("kColumns = 16", "kFold = 0"),
        ((1, 3, 4, 7),),
    ),
    "blocks": Case(
        "F.conv2d(x, weight, bias, stride=4, padding=2)",
        3,
        (96, 3, 11, 11),
        ("launch_strided<", "kColumns = 48"),
        ((2, 47, 39), (1, 14, 23)),
        bias=96,
    ),
    "oblong blocks": Case(
        "F.conv2d(x, weight, stride=(2, 3), padding=(1, 0))",
        3,
        (40, 3, 5, 4),
        ("launch_strided<", "kColumns = 48"),
        ((1, 30, 31), (1, 5, 4)),
    ),
    "blocks along one axis": Case(
        "F.conv1d(x, weight, stride=8, padding=4)", 2, (64, 2, 17), ("launch_strided<", "true"), ((2, 1003),)
    ),
    # The second sizes are too wide for one pass, the others are not.
    "one pass": Case(
        "F.conv3d(x, weight, bias)",
        3,
        (64, 3, 3, 3, 1),
        ("launch_flat(",),
        ((2, 12, 14, 6), (1, 4, 4, 90), (1, 11, 9, 5), (1, 12, 20, 10)),
        bias=64,
    ),
    "one pass along one axis": Case(
        "F.conv1d(x, weight, dilation=2)", 5, (64, 5, 4), ("launch_flat(",), ((3, 301), (1, 7))
    ),
}


# Axes and widths of which another case has the code, too: seconds of a compiler each.
_SLOW = ("short", "one axis", "32 columns", "oblong blocks", "blocks along one axis", "one pass along one axis")


@pytest.fixture(autouse=True)
def _without_gathered_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the form writes for many pixels: the sizes here are small."""
    monkeypatch.setattr(form_convolution, "_gathers", lambda task, found: False)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in _SLOW else name for name in CASES]
)
def test_a_convolution_has_the_accuracy_of_float32(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    axes = ("d", "h", "w")[4 - len(case.filters) + 1 :]
    tensors = f'x=normal("b, {case.channels}, {", ".join(axes)}"); weight=normal("{", ".join(map(str, case.filters))}")'
    tensors += f'; bias=normal("{case.bias}")' if case.bias else ""
    task, contract, recorded = described(
        tmp_path, tensors, str(dict(zip(("b", *axes), case.sizes[0], strict=True))), case.result
    )
    kernel = form_kernel(task, contract, recorded)
    assert kernel is not None
    for part in case.written:
        assert part in kernel.source
    library = built(kernel.source, tmp_path)
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(case.filters, generator=generator) * 0.05
    bias = torch.randn(case.bias, generator=generator) if case.bias else None
    for number, (images, *extents) in enumerate(case.sizes):
        for scale in (1.0, 1e5) if number + 1 == len(case.sizes) else (1.0,):
            x = torch.randn((images, case.channels, *extents), generator=generator) * scale
            wanted = convolved(case.result, x, weight, bias)
            sizes = dict(zip(("b", *axes), (images, *extents), strict=True))
            sizes |= {f"out_dim{n}": wanted.shape[n] for n in range(2, wanted.dim())}

            found, flags = launched(
                library, (x, weight, bias), wanted.shape, [sizes[a.name] for a in contract.size_arguments]
            )

            error = ((found.double() - wanted).norm() / wanted.norm()).item()
            assert error < (MOST_ERROR if scale == 1.0 else PLAIN_ERROR), f"{extents}, times {scale}"
            # Within the range the plain kernel has computed nothing: its results would hide wrong ones.
            assert (flags == SEEN) == (scale == 1.0)


@pytest.fixture(scope="module")
def scattering(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    source = (SOURCES / "conv_transpose2d_strided_dilated.cu").read_text(encoding="utf-8")
    return built(source, tmp_path_factory.mktemp("scattering"))


@pytest.mark.parametrize("sizes", [(2, 5, 40), (1, 3, 9), (1, 2, 129)])
def test_pixels_that_do_not_overlap_are_scattered(sizes: tuple[int, int, int], scattering: ctypes.CDLL) -> None:
    x, weight = torch.randn(sizes[0], 32, *sizes[1:]) * 1e5, torch.randn(32, 64, 3, 3)
    wanted = convolved("F.conv_transpose2d(x, weight, stride=5, padding=1, dilation=2)", x, weight, None)

    found, _ = launched(scattering, (x, weight, None), wanted.shape, [*sizes, *wanted.shape[2:]])

    assert ((found.double() - wanted).norm() / wanted.norm()).item() < MOST_ERROR


def convolved(result: str, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    values = {"x": x.double(), "weight": weight.double(), "bias": None if bias is None else bias.double()}
    made: Tensor = eval(result, {"F": F, **values})
    return made


def launched(
    library: ctypes.CDLL, tensors: tuple[Tensor | None, ...], shape: torch.Size, sizes: list[int]
) -> tuple[Tensor, int]:
    """The output, and the range flags at the beginning of the workspace."""
    numbers = [ctypes.c_int64(each) for each in sizes]
    size = 0
    if hasattr(library, "workspace_bytes"):
        library.workspace_bytes.restype = ctypes.c_int64
        size = library.workspace_bytes(*numbers)
    workspace = torch.full((size + 256,), 0xAB, dtype=torch.uint8)
    begin = ctypes.c_void_p((workspace.data_ptr() + 127) // 128 * 128)
    out = torch.full(shape, torch.nan)
    pointers = [ctypes.c_void_p(each.data_ptr()) for each in (*tensors, out) if each is not None]
    assert library.launch(*pointers, *numbers, begin, None) == 0
    assert begin.value is not None
    return out, ctypes.c_uint32.from_address(begin.value).value


def built(source: str, folder: Path) -> ctypes.CDLL:
    emulator = EMULATOR.read_text(encoding="utf-8")
    # Threads that look at a barrier in shared memory again and again stay runnable.
    runnable = "  for (int t = 0; t < count; ++t) if (threads[t].wait == RUNNABLE) return true;\n"
    emulator = replaced(
        emulator, "  if (any) return true;\n  bool block", f"  if (any) return true;\n{runnable}  bool block"
    )
    macros = "\n#define __host__\n#define __grid_constant__\n#define __restrict__"
    emulator = replaced(emulator, "__shared__ static thread_local", f"__shared__ static thread_local{macros}")
    text = emulator + DEVICE.read_text(encoding="utf-8") + translated(source)
    return compile_and_load(text, folder, ("-Og",))


def replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1
    return text.replace(old, new)


def translated(text: str) -> str:
    """CUDA C++ with the headers that it includes, as C++ for the emulated device."""
    included = {"bulk_copy.cuh", "wgmma_f16.cuh"}  # convolution_device.h has what they offer

    def include(match: re.Match[str]) -> str:
        name = match[1]
        if name in included:
            return ""
        included.add(name)
        return inlined(LIBRARY.joinpath("warpsmith", name).read_text(encoding="utf-8"))

    def inlined(text: str) -> str:
        text = re.sub(r"#include <cuda\w*\.h>|#pragma once", "", text)
        return re.sub(r"#include <warpsmith/(\w+\.cuh)>", include, text)

    text = inlined(text)
    text = re.sub(r"extern __shared__ .*?(\w+)\[\];", r"unsigned char* const \1 = emulated::dynamic_bytes;", text)
    text = re.sub(r'asm volatile\("bar\.sync[^;]*;"[^;]*;', "emulated::bar_named(id, threads);", text)
    text = re.sub(r'asm volatile\("(setmaxnreg|fence\.proxy|wgmma\.fence)[^;]*;".*?\);', ";", text)
    for instruction, kind in (("wgmma", "products"), (r"cp\.async", "copies")):
        pending = f"emulated::{kind}[emulated::current]"
        text = re.sub(rf'asm volatile\("{instruction}\.commit.*?\);', f"{pending}.commit();", text)
        wait = rf'asm volatile\("{instruction}\.wait[^"]*" ::"n"\((.*?)\) : "memory"\);'
        text = re.sub(wait, rf"{pending}.wait(\1);", text)
    # Until a copy is waited for, its place holds what is not a number.
    copied = "std::memset(to, 0xff, 4); emulated::copies[emulated::current].add([=] { *to = exists ? *from : 0.0f; });"
    text = re.sub(r'asm volatile\("cp\.async\.ca.*?"memory"\);', copied, text, flags=re.DOTALL)
    assert "asm volatile" not in text
    text = re.sub(r"<<<(132|264)( \* 8)?, ", "<<<4, ", text)  # loops over all elements: fewer blocks do the same sooner
    return _LAUNCH.sub(r"emulated::launch(dim3(\2), \3, \4, [=] { \1(\5); });\n", text)
