"""`pool_bands.cuh` on the emulated device: the kernels that the form writes for any windows give what PyTorch gives."""

from __future__ import annotations

import ctypes
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.collection.test_forms import X1, X2, X3, described
from tests.collection.test_pool_ahead import DEVICE, EMULATOR, aligned, translated
from tests.cuda_front_end import compile_errors
from tests.emulated_device import compile_and_load
from warpsmith.backends.library import LIBRARY
from warpsmith.kernels.forms import form_kernel

S1, S2, S3 = '{"b": 2, "n": 90}', '{"b": 2, "h": 90, "w": 90}', '{"b": 2, "d": 6, "h": 9, "w": 10}'
CHANNELS = 23  # so that the last pack of a tensor is not always whole
TASKS = {axes: (x.replace("24", "23"), s) for axes, x, s in ((1, X1, S1), (2, X2, S2), (3, X3, S3))}
COPIES = """
template <typename T> T min(T a, T b) { return b < a ? b : a; }
template <typename T> T max(T a, T b) { return a < b ? b : a; }
static const char *given_from, *given_to;  // the input
static int64_t shared_bytes, kernels_used;
static void fail(const char* why) { std::fprintf(stderr, "%s\\n", why), std::abort(); }
namespace warpsmith {  // what bulk_copy.cuh has: copies are there at once, barriers count
struct Barrier { int32_t arrivals, bytes; };
inline Barrier& at(uint64_t* barrier) { return *reinterpret_cast<Barrier*>(barrier); }
inline void barrier_init(uint64_t* barrier, unsigned count) { at(barrier) = {int32_t(count), 0}; }
inline void barriers_initialised() {}
inline void barrier_expect(uint64_t* barrier, unsigned bytes) { --at(barrier).arrivals, at(barrier).bytes += bytes; }
inline void barrier_wait(uint64_t* barrier, unsigned) {
  if (at(barrier).arrivals != 0 || at(barrier).bytes != 0) fail("a barrier that does not complete");
}
inline void bulk_copy(void* to, const void* from, unsigned bytes, uint64_t* barrier) {
  const char* source = static_cast<const char*>(from);
  const int64_t place = static_cast<unsigned char*>(to) - emulated::dynamic_bytes;
  if (bytes == 0 || bytes % 16 || reinterpret_cast<uintptr_t>(from) % 16 || place % 16) fail("not aligned");
  if (source < given_from || source + bytes > given_to) fail("read beyond the input");
  if (place < 0 || place + bytes > shared_bytes) fail("written beyond shared memory");
  std::memcpy(to, from, bytes);
  at(barrier).bytes -= bytes;
}
}  // namespace warpsmith
#define __host__
#define __grid_constant__
enum { cudaErrorInvalidValue = 1 };
"""
KERNELS = ("<P, S, bands::STRETCH", "<P, S, bands::SLICES", "<P, S, bands::ROWS", "<P, S, 32>", "<P, S, 256>")
_LAUNCH = re.compile(r"(bands::pool_\w+<[^<>;]*>)\s*<<<(.*?), (\w+), (\w+), s>>>\((.*?)\);", re.DOTALL)


def _launched(match: re.Match[str]) -> str:
    kernel, grid, threads, shared, arguments = match.groups()
    bit = 1 << next(n for n, part in enumerate(KERNELS) if part in kernel)
    return (
        f"{{ shared_bytes = {shared}, kernels_used |= {bit}; "
        f"emulated::launch({grid}, {threads}, {shared}, [=] {{ {kernel}({arguments}); }}); }}"
    )


def _header(name: str, room: int) -> str:
    text = LIBRARY.joinpath("warpsmith", name).read_text(encoding="utf-8")
    if name == "pool.cuh":
        return text[: text.index("// Two axes, stride one, square windows")] + "}\n"
    if name == "pool_bands.cuh":
        for was, becomes in (("kFew = 264;", "kFew = 12;"), ("kMostBytes = 49000;", f"kMostBytes = {room};")):
            assert was in text
            text = text.replace(was, becomes)
        text = re.sub(r'asm volatile\("" : "\+[rl]"\(value\)\);', "", text)
        text = text.replace(
            "extern __shared__ float4 packs[];", "auto packs = reinterpret_cast<float4*>(emulated::dynamic_bytes);"
        )
        text, count = _LAUNCH.subn(_launched, text)
        assert count == 5
    return text.replace("__host__ __device__", "")


@dataclass(frozen=True)
class Case:
    """A pooling: the operation on x, and extents that the kernel is called with."""

    call: str
    shapes: tuple[tuple[int, ...], ...]

    @property
    def axes(self) -> int:
        return len(self.shapes[0])


CASES = (
    Case("F.max_pool1d(x, 2)", ((3001,), (7,), (2,), (1026,))),
    Case("F.max_pool1d(x, 3, stride=2, padding=1, dilation=2, ceil_mode=True)", ((601,), (5,), (4,))),
    Case("F.avg_pool1d(x, 40, stride=8, padding=20, count_include_pad=False)", ((40,), (1500,), (1,))),
    Case("F.max_pool2d(x, 2)", ((13, 31), (2, 2), (9, 1027), (40, 64))),
    Case("F.avg_pool2d(x, 7)", ((15, 56), (7, 7), (9, 58))),
    Case("F.avg_pool2d(x, 3, stride=1, padding=1)", ((20, 23), (1, 1), (37, 67), (18, 1026), (2, 401))),
    Case("F.max_pool2d(x, 5, stride=1, padding=2)", ((21, 22), (3, 3), (1, 1), (19, 205))),
    Case("F.max_pool2d(x, 3, stride=2, padding=1)", ((23, 30), (1, 1), (64, 57), (9, 801))),
    Case("F.avg_pool2d(x, 5, stride=3, padding=2)", ((25, 31), (2, 1), (31, 301))),
    Case("F.avg_pool2d(x, (4, 6), stride=(1, 4), padding=(2, 1), ceil_mode=True)", ((9, 30), (2, 4), (14, 207))),
    Case("F.avg_pool2d(x, 4, stride=4, divisor_override=3)", ((17, 60), (4, 4))),
    Case("F.max_pool2d(x, (3, 20), stride=(2, 1), padding=(0, 10), dilation=(3, 1))", ((15, 41), (7, 20), (16, 300))),
    Case("F.max_pool2d(x, 12, ceil_mode=True)", ((13, 30), (12, 12), (25, 49))),
    Case("F.max_pool2d(x, 23)", ((24, 47), (23, 25))),
    Case("F.avg_pool2d(x, 40, stride=36, padding=3)", ((40, 40), (75, 41))),
    Case("F.max_pool2d(x, (70, 3), stride=(1, 2), padding=(0, 1))", ((72, 9), (80, 60))),
    Case("F.max_pool2d(x, (5, 30), stride=(1, 9), dilation=(17, 2))", ((70, 70),)),
    Case("F.max_pool3d(x, 2)", ((5, 6, 7), (2, 2, 2), (4, 9, 33))),
    Case("F.max_pool3d(x, 3, stride=2, padding=1)", ((7, 9, 11), (1, 1, 1), (5, 20, 33), (3, 5, 130), (8, 40, 41))),
    Case("F.avg_pool3d(x, (2, 3, 3), stride=1, padding=(1, 1, 0))", ((4, 7, 9), (2, 3, 3), (3, 6, 131))),
    Case("F.max_pool3d(x, (1, 2, 2), stride=(2, 2, 2))", ((5, 6, 7), (1, 3, 131))),
    Case("F.avg_pool3d(x, (1, 3, 1), stride=(1, 1, 2))", ((3, 5, 6),)),
)
CHECK = """
// Whether the plan of such sizes covers every output and keeps within its memory: 0, or the number of what is wrong.
extern "C" __attribute__((visibility("default"))) int checked_{place}(
    int64_t planes, int64_t d, int64_t h, int64_t w, int64_t od, int64_t oh, int64_t ow, int64_t room) {{
  using namespace warpsmith;
  using W = bands::Known<Shape>;
  bands::Planner<Shape> planner{{planes, {{d, h, w}}, {{od, oh, ow}}}};
  if (W::flat) planner.planes *= d, planner.in[0] = planner.out[0] = 1;
  if (W::line) planner.planes *= h, planner.in[1] = planner.out[1] = 1;
  const bands::Plan p = planner.best(room);
  if (p.loaded == 0) return 0;  // another kernel is taken
  if (p.bytes > room * 4) return 1;
  int64_t blocks = ceil_div(p.planes, p.group);
  for (int a = 0; a < 3; ++a) {{
    if (p.band[a] < 1 || p.band[a] > p.out[a]) return 2;
    blocks *= ceil_div(p.out[a], p.band[a]);
  }}
  if (blocks != p.grid) return 3;
  if (p.group > 1 && (p.band[0] != p.out[0] || p.band[1] != p.out[1] || p.band[2] != p.out[2])) return 4;
  const int64_t slices = planner.reach(0, p.band[0]), rows = planner.reach(1, p.band[1]);
  const int64_t columns = planner.reach(2, p.band[2]);
  const int64_t needed = p.layout == bands::ROWS     ? columns
                         : p.layout == bands::SLICES ? rows * w
                         : p.group > 1               ? p.group * p.in[0] * p.in[1] * w
                         : slices > 1                ? slices * p.in[1] * w
                                                     : rows * w;
  const int64_t pieces = p.layout == bands::ROWS ? slices * rows : p.layout == bands::SLICES ? slices : 1;
  if (pieces > 1 && (p.pitch % 4 || p.pitch < needed + 3)) return 5;
  if ((pieces - 1) * p.pitch + (needed + 6) / 4 * 4 > p.nothing) return 6;
  if (W::cut && !W::line && (p.nothing + (p.layout == bands::ROWS ? columns : w)) * 4 > p.bytes) return 7;
  if (p.layout == bands::STRETCH && p.band[2] != p.out[2]) return 8;
  return 0;
}}
"""


@dataclass(frozen=True)
class Built:
    """All cases as one library."""

    library: ctypes.CDLL
    sizes: list[list[str]]  # the names of the sizes that each case's kernel takes


@pytest.fixture(scope="module", params=[49000, 4096], ids=["as it is", "little shared memory"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder, room = tmp_path_factory.mktemp("pooling"), request.param
    headers = ("packs.cuh", "divisor.cuh", "pool.cuh", "pool_bands.cuh")
    text = f'#include <cstdio>\n#include "{EMULATOR}"\n{DEVICE}{COPIES}'
    text += "".join(translated(_header(name, room)) for name in headers)
    sizes = []
    for place, case in enumerate(CASES):
        task, contract, recorded = described(folder, *TASKS[case.axes], case.call)
        written = form_kernel(task, contract, recorded)
        assert written is not None
        assert "pool_bands<" in written.source, case.call
        sizes.append([each.name for each in contract.size_arguments])
        threads = 64 if room < 49000 else 128
        source = "\n".join(line for line in written.source.splitlines() if not line.startswith("#include"))
        source = source.replace("launch(", f"launch_{place}(").replace(
            'extern "C"', 'extern "C" __attribute__((visibility("default")))'
        )
        text += f"\n#undef TUNE_THREADS\n#undef TUNE_BYTES\n#define TUNE_THREADS {threads}\n"
        if room < 49000:
            text += f"#define TUNE_BYTES {room}\n"
        text += f"namespace case_{place} {{\n{source}{CHECK.format(place=place)}}}\n"
    text += """
extern "C" __attribute__((visibility("default"))) void begin_case(const char* from, int64_t bytes) {
  given_from = from, given_to = from + bytes, kernels_used = 0;
}
extern "C" __attribute__((visibility("default"))) int64_t used_kernels() { return kernels_used; }
"""
    library = compile_and_load(text, folder, ("-O0", "-fvisibility=hidden"))
    library.used_kernels.restype = ctypes.c_int64
    return Built(library, sizes)


def _guarded(values: torch.Tensor, beside: float) -> tuple[torch.Tensor, torch.Tensor]:
    """A copy with 64 elements on both sides: all of it, and the part that is the copy."""
    around = aligned(torch.full((values.numel() + 128,), beside))
    inner = around[64 : 64 + values.numel()].view(values.shape)
    inner.copy_(values)
    return around, inner


def _computed(built: Built, place: int, x: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    around, given = _guarded(x, float("nan"))
    beside, found = _guarded(torch.full(shape, 55.0), 77.0)
    names = ["n"] if x.dim() == 3 else ["h", "w"] if x.dim() == 4 else ["d", "h", "w"]
    values = {"b": x.shape[0], **dict(zip(names, x.shape[2:], strict=True))}
    values |= {f"out_dim{axis}": shape[axis] for axis in range(2, x.dim())}
    numbers = [ctypes.c_int64(values[name]) for name in built.sizes[place]]
    built.library.begin_case(ctypes.c_void_p(given.data_ptr()), ctypes.c_int64(x.numel() * 4))

    status = getattr(built.library, f"launch_{place}")(
        ctypes.c_void_p(given.data_ptr()), ctypes.c_void_p(found.data_ptr()), *numbers, None, None
    )

    assert status == 0
    assert around.isnan()[:64].all()
    assert (beside[:64] == 77.0).all()
    assert (beside[64 + found.numel() :] == 77.0).all()
    return found


def _inputs(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    x = torch.randn(shape, generator=generator)
    flat = x.view(-1)
    if flat.numel() > 200:
        flat[[3, flat.numel() // 2, -1]] = torch.tensor([float("inf"), float("nan"), float("-inf")])
        x[0, 1] = float("-inf")
    return x


def test_every_pooling_is_that_of_pytorch(built: Built) -> None:
    generator, used = torch.Generator().manual_seed(5), 0
    for place, case in enumerate(CASES):
        for number, extents in enumerate(case.shapes):
            # Of 23 planes or 46: several blocks, a last one that is not full, and few planes of many elements.
            x = _inputs((2 if number % 2 else 1, CHANNELS, *extents), generator)
            wanted = eval(case.call, {"F": F, "x": x})
            found = _computed(built, place, x, wanted.shape)
            used |= built.library.used_kernels()
            error = 0.0 if "max" in case.call else 1e-5
            assert torch.allclose(found, wanted, rtol=error, atol=error, equal_nan=True), f"{case.call} of {extents}"
    # Every kernel was one that was called: the three layouts, a warp for each output; a block for each output.
    assert used == 31


def test_no_planes_are_nothing_to_do(built: Built) -> None:
    place = 3
    found = _computed(built, place, torch.empty(0, CHANNELS, 8, 9), torch.Size((0, CHANNELS, 4, 4)))
    assert found.numel() == 0
    assert built.library.used_kernels() == 0


def test_a_row_that_is_too_long_for_an_int_is_an_error(built: Built) -> None:
    given, found = (_guarded(torch.zeros(CHANNELS), 0.0)[1] for _ in range(2))
    pointers = [ctypes.c_void_p(each.data_ptr()) for each in (given, found)]
    sizes = {"b": 1, "n": 2**31 + 10, "out_dim2": 1}
    numbers = [ctypes.c_int64(sizes[name]) for name in built.sizes[0]]

    assert built.library.launch_0(*pointers, *numbers, None, None) != 0


def test_bands_cover_all_outputs_and_keep_within_their_memory(built: Built) -> None:
    chosen = random.Random(3)
    for place, case in enumerate(CASES):
        numbers = _options(case)
        for _ in range(60):
            planes, extents = chosen.choice((1, 7, 300, 5_000, 2**24)), []
            for axis in range(3):
                few = axis < 3 - case.axes
                extents.append(1 if few else chosen.choice((1, 2, 3, 8, 31, 57, 224, 1025, 40_000, 2**26)))
            out = [
                (size + 2 * padding - (kernel - 1) * dilation - 1) // stride + 1
                for size, (kernel, stride, padding, dilation) in zip(extents, numbers, strict=True)
            ]
            if min(out) < 1:
                continue
            values = [ctypes.c_int64(each) for each in (planes, *extents, *out, 7000)]
            assert getattr(built.library, f"checked_{place}")(*values) == 0, f"{case.call}: {planes}, {extents}"


def _options(case: Case) -> list[tuple[int, int, int, int]]:
    """Kernel, stride, padding and dilation along three axes."""

    def three(value: Any, missing: int) -> list[int]:
        values = [value] * case.axes if isinstance(value, int) else list(value)
        return [missing] * (3 - case.axes) + values

    def read(x: None, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, **_: Any) -> Any:
        lists = (three(kernel, 1), three(stride or kernel, 1), three(padding, 0), three(dilation, 1))
        return list(zip(*lists, strict=True))

    found: list[tuple[int, int, int, int]] = eval(re.sub(r"F\.\w+", "read", case.call), {"read": read, "x": None})
    return found


@pytest.mark.parametrize(
    ("tensors", "sizes", "call", "part"),
    [
        (X2, '{"b": 2, "h": 512, "w": 512}', "F.max_pool2d(x, 3, stride=1, padding=1)", "pool2_ahead<"),
        (X2, '{"b": 2, "h": 512, "w": 132}', "F.max_pool2d(x, 3, stride=1, padding=1)", "pool_bands<"),
        (X2, '{"b": 2, "h": 512, "w": 510}', "F.avg_pool2d(x, 3, stride=1)", "pool_bands<"),
        (X2, '{"b": 2, "h": 512, "w": 2048}', "F.avg_pool2d(x, 11)", "pool2_side_by_side<"),
        (X2, '{"b": 2, "h": 512, "w": 2048}', "F.avg_pool2d(x, 2)", "pool_bands<"),
        (X2, '{"b": 2, "h": 512, "w": 224}', "F.avg_pool2d(x, 11)", "pool_bands<"),
        (X2, '{"b": 2, "h": 512, "w": 512}', "F.max_pool2d(x, 3, stride=1, padding=1, ceil_mode=True)", "pool_bands<"),
        (X1, '{"b": 2, "n": 30001}', "F.max_pool1d(x, 5, stride=1, padding=2)", "pool1<"),
        (X1, '{"b": 2, "n": 100}', "F.max_pool1d(x, 5, stride=1, padding=2)", "pool_bands<"),
        (X1, '{"b": 2, "n": 30001}', "F.max_pool1d(x, 2)", "pool_bands<"),
        (X3, '{"b": 2, "d": 17, "h": 96, "w": 100}', "F.avg_pool3d(x, 3, stride=2, padding=1)", "pool3<"),
        (X3, '{"b": 2, "d": 17, "h": 96, "w": 55}', "F.avg_pool3d(x, 3, stride=2, padding=1)", "pool_bands<"),
    ],
)
def test_sizes_decide_which_kernel_is_written(tensors: str, sizes: str, call: str, part: str, tmp_path: Path) -> None:
    written = form_kernel(*described(tmp_path, tensors, sizes, call))
    assert written is not None
    assert part in written.source


@pytest.mark.nvcc
def test_the_source_compiles(tmp_path: Path) -> None:
    task, contract, recorded = described(tmp_path, X2, S2, "F.avg_pool2d(x, 3, stride=2, padding=1)")
    written = form_kernel(task, contract, recorded)
    assert written is not None

    assert not compile_errors(written.source, contract, tmp_path)
