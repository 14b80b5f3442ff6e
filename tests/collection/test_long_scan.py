"""Running sums and products of long rows (`long_scan.cuh`), on the emulated device."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.collection.test_forms import described
from tests.emulated_device import compile_and_load
from warpsmith.backends.library import LIBRARY
from warpsmith.kernels.form_scan import is_long
from warpsmith.kernels.forms import form_kernel
from warpsmith.model.contract import Contract

EMULATOR = Path(__file__).parents[1] / "kernel_templates" / "emulator.h"
DEVICE = """
#define __host__
#define __grid_constant__
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(4) uchar4 { unsigned char x, y, z, w; };
inline float4 make_float4(float a, float b, float c, float d) { return {a, b, c, d}; }
template <typename T> T __ldcs(const T* from) { return *from; }
template <typename T> void __stcg(T* to, T value) { *to = value; }
template <typename T> T shuffled(T value, int lane) {
  const int me = emulated::current;
  std::memcpy(emulated::cells[me], &value, sizeof value);
  emulated::wait_for(emulated::WARP);
  std::memcpy(&value, emulated::cells[me / 32 * 32 + lane], sizeof value);
  emulated::wait_for(emulated::WARP);
  return value;
}
template <typename T> T __shfl_sync(unsigned, T v, int lane) { return shuffled(v, lane % 32); }
template <typename T> T __shfl_up_sync(unsigned, T v, int d) {
  const int lane = emulated::current % 32;
  return shuffled(v, lane >= d ? lane - d : lane);
}
inline unsigned __ballot_sync(unsigned all, bool p) {
  unsigned v = p ? 1u << (emulated::current % 32) : 0;
  for (int s = 16; s; s /= 2) v |= __shfl_xor_sync(all, v, s);
  return v;
}
inline bool __any_sync(unsigned all, bool p) { return __ballot_sync(all, p) != 0; }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline long long __double_as_longlong(double x) { long long u; std::memcpy(&u, &x, 8); return u; }
inline double __longlong_as_double(long long u) { double x; std::memcpy(&x, &u, 8); return x; }
// What another block has told may be seen late: a share of the loads finds nothing.
inline unsigned long long seen_late(const unsigned long long* from) {
  static unsigned state = 1;
  state = state * 1664525u + 1013904223u;
  const char* share = std::getenv("SEEN_LATE");
  return share && int(state >> 16) % 100 < std::atoi(share) ? 0 : *from;
}
"""
_PLAIN = {  # instructions, and what they do
    "max.NaN": "c = a != a || b != b ? NAN : a > b ? a : b;",
    "min.NaN": "c = a != a || b != b ? NAN : a < b ? a : b;",
    "ld.relaxed": "word = seen_late(from);",
    "st.relaxed": "*to = word;",
}
_LAUNCH = re.compile(r"(\w+(?:<[^<>;]*>)?)\s*<<<([^;]*?), ([^,;]*), 0, [^;]*?>>>\(\s*(.*?)\);", re.DOTALL)


def translated(text: str) -> str:
    """CUDA C++ of the library as C++ for the emulator."""
    for instruction, plain in _PLAIN.items():
        text = re.sub(rf'asm(?: volatile)?\("{re.escape(instruction)}.*?\);\n', f"{plain}\n", text)
    text = re.sub(r"^#include .*$|^#pragma (unroll|once).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"asm( volatile)?\([^;]*;[^;]*\);", "", text)  # functions that are not called here
    return _LAUNCH.sub(r"emulated::launch(dim3(\2), \3, 0, [=] { \1(\4); });", text)


def build(folder: Path, headers: Sequence[str], sources: Sequence[str], macros: Sequence[str]) -> ctypes.CDLL:
    """One library of several kernels: `launch_0`, `workspace_bytes_0`, `launch_1`, …"""
    pieces = [LIBRARY.joinpath("warpsmith", name).read_text(encoding="utf-8") for name in headers]
    for number, source in enumerate(sources):
        named = source.replace("Policy", f"Policy_{number}")
        named = re.sub(r'extern "C" (\w+) (launch|workspace_bytes)\(', rf"\1 \2_{number}(", named)
        pieces.append(re.sub(r"^(\w+) (?=launch_|workspace_)", r'extern "C" VISIBLE \1 ', named, flags=re.MULTILINE))
    text = f'#include "{EMULATOR}"\n#define VISIBLE __attribute__((visibility("default")))\n{DEVICE}'
    options = ("-Og", "-fvisibility=hidden", "-ffp-contract=off")
    return compile_and_load(text + "".join(map(translated, pieces)), folder, options, macros)


def aligned(values: Tensor) -> Tensor:
    """A copy that begins at a multiple of 256 bytes, with space behind it that must not be used."""
    size = values.element_size()
    memory = torch.zeros(values.numel() + 512 // size, dtype=values.dtype)
    begin = -memory.data_ptr() % 256 // size
    return memory[begin : begin + values.numel()].view(values.shape).copy_(values)


def called(library: ctypes.CDLL, number: int, contract: Contract, sizes: dict[str, int], *tensors: Tensor) -> None:
    """Calls one of the kernels; its workspace holds no zeros before."""
    numbers = [ctypes.c_int64(sizes[each.name]) for each in contract.size_arguments]
    needed = 0
    if hasattr(library, f"workspace_bytes_{number}"):
        bytes_of = getattr(library, f"workspace_bytes_{number}")
        bytes_of.restype = ctypes.c_int64
        needed = bytes_of(*numbers)
    workspace = aligned(torch.full((needed + 256,), 0xA5, dtype=torch.uint8))
    pointers = [ctypes.c_void_p(each.data_ptr()) for each in tensors]
    launch = getattr(library, f"launch_{number}")
    assert launch(*pointers, *numbers, ctypes.c_void_p(workspace.data_ptr()), None) == 0
    assert workspace[needed:].eq(0xA5).all(), "wrote behind the workspace"


MASKED = 'x=normal("rows, cols"); mask=booleans("rows, cols")'
PAD = "torch.nn.functional.pad"
TASKS = {
    "cumsum": ('x=normal("rows, cols")', "x.cumsum(dim=1)"),
    "exclusive reverse": ('x=normal("rows, cols")', f"{PAD}(x.flip(1), (1, 0)).cumsum(dim=1)[:, :-1].flip(1)"),
    "masked": (MASKED, "(x * mask).cumsum(dim=1)"),
    "product": ('x=normal("rows, cols")', "x.cumprod(dim=1)"),
}
LONG = '{"rows": 3, "cols": 1000001}'


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> tuple[ctypes.CDLL, list[Contract]]:
    """The kernels for all of `TASKS`, with small tiles: 256 elements, so that 8192 make a group."""
    folder = tmp_path_factory.mktemp("long_scan")
    written, contracts = [], []
    for tensors, result in TASKS.values():
        task, contract, recorded = described(folder, tensors, LONG, result)
        kernel = form_kernel(task, contract, recorded)
        assert kernel is not None
        assert "scan_any" in kernel.source
        written.append(kernel.source)
        contracts.append(contract)
    headers = ("packs.cuh", "scan.cuh", "long_scan.cuh")
    small = ("TUNE_LONG_THREADS=64", "TUNE_LONG_PACKS=1")
    return build(folder, headers, written, small), contracts


def scanned(scans: tuple[ctypes.CDLL, list[Contract]], kind: str, x: Tensor, mask: Tensor) -> Tensor:
    """The kernel's result."""
    library, contracts = scans
    number = list(TASKS).index(kind)
    found = aligned(torch.full(x.shape, 77.0))
    tensors = [aligned(x), *([aligned(mask)] if "masked" in kind else []), found]
    called(library, number, contracts[number], {"rows": x.shape[0], "cols": x.shape[1]}, *tensors)
    base = found.storage_offset() + found.numel()
    behind = torch.as_strided(found, (16,), (1,), base)
    assert behind.eq(0).all(), "wrote behind the result"
    return found


def reference(kind: str, x: Tensor, mask: Tensor) -> Tensor:
    """What PyTorch gives."""
    x = x * mask if "masked" in kind else x
    x = x.flip(1) if "reverse" in kind else x
    if "exclusive" in kind:
        x = torch.nn.functional.pad(x, (1, 0)).cumsum(dim=1)[:, :-1]
    else:
        x = x.cumprod(dim=1) if kind == "product" else x.cumsum(dim=1)
    return x.flip(1) if "reverse" in kind else x


SHAPES = ((1, 8193), (3, 8450), (2, 20_003), (1, 25_600), (2, 16_384), (3, 8192), (4, 777), (1, 1), (2, 0), (0, 9000))


@pytest.mark.parametrize("kind", TASKS)
def test_the_scan_is_that_of_pytorch(scans: tuple[ctypes.CDLL, list[Contract]], kind: str) -> None:
    generator = torch.Generator().manual_seed(1)
    shared = 0
    for shape in SHAPES:
        x = torch.randn(shape, generator=generator)
        if kind == "product":
            x = 1 + x * 0.003
        mask = torch.rand(shape, generator=generator) < 0.6

        found = scanned(scans, kind, x, mask)

        expected = reference(kind, x.double(), mask)
        assert torch.allclose(found.double(), expected, rtol=3e-6, atol=2e-4), f"{shape}"
        shared += is_long(*shape)
    assert shared >= 3


def test_what_is_seen_late_does_not_change_a_bit(
    scans: tuple[ctypes.CDLL, list[Contract]], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn((1, 50_001), generator=torch.Generator().manual_seed(2)).exp()
    first = scanned(scans, "cumsum", x, x > 0)

    monkeypatch.setenv("SEEN_LATE", "85")
    again = scanned(scans, "cumsum", x, x > 0)

    assert torch.equal(first, again)


def test_infinities_stay_where_they_are(scans: tuple[ctypes.CDLL, list[Contract]]) -> None:
    x = torch.ones(3, 20_001)
    x[0, 9000], x[1, 20_000], x[2, 0] = torch.inf, -torch.inf, torch.nan

    for kind in ("cumsum", "exclusive reverse"):
        expected = reference(kind, x, x > 0)
        assert torch.equal(scanned(scans, kind, x, x > 0).nan_to_num(-7), expected.nan_to_num(-7)), kind


def test_a_sum_of_many_elements_keeps_what_is_small(scans: tuple[ctypes.CDLL, list[Contract]]) -> None:
    x = torch.full((1, 60_000), 0.1)
    expected = x.double().cumsum(dim=1)

    found = scanned(scans, "cumsum", x, x > 0)

    assert ((found.double() - expected) / expected).abs().max() < 3e-7


@pytest.mark.parametrize(
    ("sizes", "long"),
    [
        ('{"rows": 3, "cols": 10000001}', True),
        ('{"rows": 90, "cols": 250007}', True),
        ('{"rows": 1, "cols": 20000}', True),
        ('{"rows": 5000, "cols": 4999}', False),
        ('{"rows": 257, "cols": 65536}', False),
        ('{"rows": 1000003, "cols": 17}', False),
        ('{"rows": 5000, "cols": 4999}, {"rows": 1, "cols": 10000000}', True),
    ],
)
def test_the_form_writes_the_kernel_for_long_rows_where_a_workload_has_them(
    sizes: str, long: bool, tmp_path: Path
) -> None:
    task, contract, recorded = described(tmp_path, 'x=normal("rows, cols")', sizes, "x.cumsum(dim=1)")

    written = form_kernel(task, contract, recorded)

    assert written is not None
    assert ("long_scan.cuh" in written.source) == long
    assert ("workspace_bytes" in written.source) == long


def test_rows_with_a_mask_are_shared_earlier(tmp_path: Path) -> None:
    task, contract, recorded = described(tmp_path, MASKED, '{"rows": 2047, "cols": 12289}', TASKS["masked"][1])

    written = form_kernel(task, contract, recorded)

    assert written is not None
    assert "scan_any<warpsmith::Plus, false, false, true, " in written.source
    assert not is_long(2047, 12289)


def test_a_vector_is_one_long_row(tmp_path: Path) -> None:
    task, contract, recorded = described(tmp_path, 'x=normal("n")', '{"n": 10000000}', "x.cumsum(dim=0)")

    written = form_kernel(task, contract, recorded)

    assert written is not None
    assert "(x, nullptr, out, 1, n, workspace, stream)" in written.source
    assert "TUNE_LONG_PACKS>(1, n)" in written.source
