"""`pool_ahead.cuh` on the emulated device: the kernels that the form writes give what PyTorch gives."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests.collection.test_forms import X2, described
from tests.emulated_device import compile_and_load
from warpsmith.backends.library import LIBRARY
from warpsmith.kernels.forms import form_kernel

SIZES = '{"b": 2, "h": 20, "w": 128}'  # rows that fill the columns of a warp
EMULATOR = Path(__file__).parents[1] / "kernel_templates" / "emulator.h"
DEVICE = """
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) float2 { float x, y; };
inline float4 make_float4(float a, float b, float c, float d) { return {a, b, c, d}; }
inline float2 make_float2(float a, float b) { return {a, b}; }
inline int min(int a, int b) { return a < b ? a : b; }
template <typename T> T __ldcs(const T* from) { return *from; }
template <typename T> void __stcg(T* to, T value) { *to = value; }
inline float shuffled(float value, int lane) {
  const int me = emulated::current;
  std::memcpy(emulated::cells[me], &value, sizeof value);
  emulated::wait_for(emulated::WARP);
  std::memcpy(&value, emulated::cells[me / 32 * 32 + lane], sizeof value);
  emulated::wait_for(emulated::WARP);
  return value;
}
inline float __shfl_up_sync(unsigned, float v, int d) {
  const int lane = emulated::current % 32;
  return shuffled(v, lane >= d ? lane - d : lane);
}
inline float __shfl_down_sync(unsigned, float v, int d) {
  const int lane = emulated::current % 32;
  return shuffled(v, lane + d < 32 ? lane + d : lane);
}
"""
_ASM = {
    "max.NaN": "c = a != a || b != b ? NAN : a > b ? a : b;",
    "min.NaN": "c = a != a || b != b ? NAN : a < b ? a : b;",
}
_LAUNCH = re.compile(r"(\w+<[^<>;]*>)\s*<<<(.*?), ([^,]*), 0, [^;]*?>>>\(\s*(.*?)\);", re.DOTALL)


def translated(text: str) -> str:
    """CUDA C++ of the library as C++ for the emulator."""
    for operation, plain in _ASM.items():
        text = re.sub(rf'asm\("{operation}[^;]*;"[^;]*\);', plain, text)
    text = re.sub(r"^#include .*$|^#pragma (unroll|once).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"asm( volatile)?\([^;]*;[^;]*\);", "", text)  # functions that pooling does not call
    return _LAUNCH.sub(r"emulated::launch(\2, \3, 0, [=] { \1(\4); });", text)


def built(source: str, folder: Path, macros: tuple[str, ...]) -> ctypes.CDLL:
    """The library of a kernel."""
    headers = ("packs.cuh", "pool.cuh", "pool_ahead.cuh")
    pieces = [LIBRARY.joinpath("warpsmith", name).read_text(encoding="utf-8") for name in headers]
    # Pooling along one and three axes, and of windows side by side, is no part of this test.
    pieces[1] = pieces[1][: pieces[1].index("// Two axes, windows of K x K side by side")] + "}\n"
    text = f'#include "{EMULATOR}"\n#define __host__\n#define __grid_constant__\n{DEVICE}'
    text += "".join(map(translated, (*pieces, source))).replace(
        'extern "C"', 'extern "C" __attribute__((visibility("default")))'
    )
    return compile_and_load(text, folder, ("-Og", "-fvisibility=hidden"), macros)


def aligned(values: torch.Tensor) -> torch.Tensor:
    """A copy that begins at a multiple of 256 bytes."""
    memory = torch.empty(values.numel() + 64)
    begin = -memory.data_ptr() // 4 % 64
    return memory[begin : begin + values.numel()].view(values.shape).copy_(values)


@pytest.mark.parametrize(
    ("kernel", "padding", "macros"),
    [
        pytest.param(2, 0, ("TUNE_STRIP=8",), marks=pytest.mark.slow),
        pytest.param(2, 1, (), marks=pytest.mark.slow),
        (3, 1, ("TUNE_STRIP=6", "TUNE_WARPS=8")),
        (4, 1, ()),
        pytest.param(4, 2, ("TUNE_STRIP=8",), marks=pytest.mark.slow),
        pytest.param(5, 2, ("TUNE_STRIP=10",), marks=pytest.mark.slow),
    ],
)
def test_the_largest_of_windows_is_that_of_pytorch(
    kernel: int, padding: int, macros: tuple[str, ...], tmp_path: Path
) -> None:
    task, contract, recorded = described(tmp_path, X2, SIZES, f"F.max_pool2d(x, {kernel}, stride=1, padding={padding})")
    written = form_kernel(task, contract, recorded)
    assert written is not None
    assert "pool2_ahead" in written.source
    library = built(written.source, tmp_path, macros)
    generator = torch.Generator().manual_seed(kernel)
    # One tile and several, rows of the output that begin anywhere, strips that end early, a width of no whole pack.
    for shape in ((2, 24, 32, 40), (1, 24, 29, 61), (1, 24, 7, 260), (1, 24, 70, 128), (1, 24, 5, 8)):
        x = torch.randn(shape, generator=generator)
        x.view(-1)[7], x[0, 1], x[0, 2, 3, 4] = float("nan"), float("-inf"), float("inf")
        wanted = F.max_pool2d(x, kernel, 1, padding)
        given, found = aligned(x), aligned(torch.full_like(wanted, 77.0))
        sizes = {"b": shape[0], "h": shape[2], "w": shape[3], "out_dim2": wanted.shape[2], "out_dim3": wanted.shape[3]}
        numbers = [ctypes.c_int64(sizes[each.name]) for each in contract.size_arguments]

        status = library.launch(
            ctypes.c_void_p(given.data_ptr()), ctypes.c_void_p(found.data_ptr()), *numbers, None, None
        )

        assert status == 0
        assert torch.allclose(found, wanted, rtol=0, atol=0, equal_nan=True), f"{shape}"
