"""Gathered convolutions and filters of single channels, as the form writes them, on the emulated device.

The emulated device finds wrong indices, wrong sums and copies that are not waited for. It finds no races between warps.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.collection.test_forms import described
from tests.emulated_device import compile_and_load
from warpsmith.backends.library import LIBRARY
from warpsmith.backends.tunables import tunables
from warpsmith.kernels.convolution_choice import Sizes, gathered_columns, gathered_microseconds, prefers_gathered
from warpsmith.kernels.form_convolution import read_convolution, sizes_of
from warpsmith.kernels.form_task import FormTask
from warpsmith.kernels.forms import form_kernel
from warpsmith.model.contract import Contract

HERE = Path(__file__).parent
EMULATOR = HERE.parent / "kernel_templates" / "emulator.h"
DEVICES = (HERE / "convolution_device.h", HERE / "mma_device.h")
MOST_ERROR = 7e-7  # relative, root of the mean square
GUARD = 64  # elements before and after the output
MACROS = (
    "#define __host__\n#define __grid_constant__\n#define __restrict__\n#define __noinline__\n"
    "#define __cvta_generic_to_shared(p) 0\n"
)
_LAUNCH = re.compile(r"(\w+(?:<[\w, ]+>)?)<<<(.*?), ([\w:]+), (\w+), stream>>>\((.*?)\);\n", re.DOTALL)
PLAN = """
int64_t repairs;
extern "C" int64_t repaired() { const int64_t found = repairs; repairs = 0; return found; }
extern "C" double planned(const int64_t* n) {
  using namespace warpsmith::conv;
  const Form f = make_form(n[0], int(n[1]), int(n[2]), int(n[3]), {1, int(n[4]), int(n[5])}, {1, int(n[6]), int(n[6])},
                           {1, int(n[7]), int(n[7])}, {0, int(n[8]), int(n[8])});
  return gathered::make_gathered_plan(f, int(n[9]), 132).microseconds;
}
"""
_PENDING = "emulated::copies[emulated::current]"


@dataclass(frozen=True)
class Case:
    """A convolution; the first sizes are those of its task, by which the form chooses."""

    result: str
    channels: int
    filters: tuple[int, ...]
    written: tuple[str, ...]
    sizes: tuple[tuple[int, ...], ...]  # images and extents
    bias: int = 0


GATHERED = {
    "padding": Case(
        "F.conv2d(x, weight, bias, padding=1)",
        5,
        (21, 5, 3, 3),
        ("Taps::few, false, false", "TUNE_COLUMNS = 24"),
        ((2, 9, 11), (1, 1, 1), (3, 8, 8)),
        bias=21,
    ),
    "several tiles": Case(
        "F.conv2d(x, weight, stride=(2, 1), padding=(0, 2), dilation=(1, 2))",
        6,
        (70, 6, 3, 2),
        ("Taps::few, true, false", "TUNE_COLUMNS = 24"),
        ((3, 15, 13), (1, 20, 30)),
    ),
    "slices": Case(
        "F.conv2d(x, weight, bias, padding=1)",
        70,
        (40, 70, 3, 3),
        ("Taps::few, false, false",),
        ((1, 7, 7),),
        bias=40,
    ),
    "patches": Case(
        "F.conv2d(x, weight, stride=8)", 3, (20, 3, 8, 8), ("Taps::many, true, false",), ((2, 33, 26), (1, 8, 8))
    ),
    "one tap, in fours": Case(
        "F.conv2d(x, weight, bias)", 36, (50, 36, 1, 1), ("Taps::one, true, false",), ((3, 6, 10), (2, 3, 3)), bias=50
    ),
    "one tap, strided": Case(
        "F.conv3d(x, weight, stride=2)", 34, (9, 34, 1, 1, 1), ("Taps::one, false, false",), ((2, 3, 8, 7),)
    ),
    "groups": Case(
        "F.conv2d(x, weight, bias, padding=(1, 2), groups=3)",
        33,
        (21, 11, 3, 5),
        ("Taps::few, false, false", "TUNE_COLUMNS = 8", "make_form(b, 3, 11, 7"),
        ((2, 9, 10),),
        bias=21,
    ),
    "one axis": Case(
        "F.conv1d(x, weight, padding=4, stride=2, groups=2)",
        20,
        (26, 10, 9),
        ("TUNE_COLUMNS = 16",),
        ((2, 201), (1, 3)),
    ),
    "transposed, strided": Case(
        "F.conv_transpose1d(x, weight, stride=11, output_padding=3)",
        40,
        (40, 24, 13),
        ("Taps::few, false, true",),
        ((2, 57),),
    ),
    "transposed, side by side": Case(
        "F.conv_transpose2d(x, weight, bias, stride=2)",
        20,
        (20, 18, 2, 2),
        ("Taps::one, false, true",),
        ((2, 5, 9), (1, 1, 1)),
        bias=18,
    ),
    "transposed, with gaps": Case(
        "F.conv_transpose2d(x, weight, bias, stride=(3, 2), dilation=2, groups=5, padding=1)",
        30,
        (30, 10, 3, 4),
        ("Taps::few, false, true",),
        ((2, 6, 7),),
        bias=50,
    ),
    "transposed, gaps that no tap reaches": Case(
        "F.conv_transpose3d(x, weight, bias, stride=(1, 3, 2))",
        4,
        (4, 7, 2, 1, 2),
        ("Taps::few, false, true",),
        ((1, 2, 3, 4),),
        bias=7,
    ),
    "transposed, phases of unequal taps": Case(
        "F.conv_transpose2d(x, weight, stride=2, padding=1, output_padding=1)",
        21,
        (21, 45, 3, 3),
        ("Taps::few, false, true", "TUNE_COLUMNS = 48"),
        ((2, 9, 11), (1, 1, 1)),
    ),
    "several tiles, weights in fours": Case(
        "F.conv2d(x, weight, bias, padding=2, dilation=2)",
        20,
        (95, 20, 3, 3),
        ("Taps::few, true, false", "TUNE_COLUMNS = 48"),
        ((2, 12, 13),),
        bias=95,
    ),
    "transposed, many taps": Case(
        "F.conv_transpose2d(x, weight, padding=3)", 3, (3, 5, 7, 6), ("Taps::many, false, true",), ((1, 8, 9),)
    ),
}
CHANNELS = {
    "strided": Case(
        "F.conv2d(x, weight, stride=2, padding=1, groups=24)",
        24,
        (24, 1, 3, 3),
        ("Options<3, 3, 2, 2, 1, 1, 1, 1, 1>",),
        ((2, 21, 30), (1, 112, 112), (3, 2, 1), (9, 7, 7)),
    ),
    "small images": Case(
        "F.conv2d(x, weight, padding=1, groups=18)",
        18,
        (18, 1, 3, 3),
        ("depthwise_any",),
        ((5, 7, 7), (2, 14, 15), (1, 1, 1)),
    ),
    "multiplied": Case(
        "F.conv2d(x, weight, bias, padding=1, groups=6)",
        6,
        (18, 1, 3, 3),
        ("1, 1, 3>",),
        ((2, 50, 50), (40, 3, 5)),
        bias=18,
    ),
    "bands": Case(
        "F.conv2d(x, weight, bias, padding=(3, 2), groups=2)",
        2,
        (2, 1, 7, 5),
        ("depthwise_any",),
        ((1, 90, 21), (1, 61, 1003), (1, 3, 20000)),
        bias=2,
    ),
    "a large filter": Case(
        "F.conv2d(x, weight, padding=(8, 3), stride=(1, 2), dilation=(2, 1), groups=3)",
        3,
        (3, 1, 9, 7),
        ("Options<9, 7,",),
        ((2, 19, 23), (1, 200, 40)),
    ),
    "dilation": Case(
        "F.conv2d(x, weight, padding=(9, 0), dilation=(9, 4), groups=5)",
        5,
        (5, 1, 3, 2),
        ("9, 4, 1>",),
        ((3, 8, 9), (1, 150, 70)),
    ),
    "one axis": Case(
        "F.conv1d(x, weight, bias, padding=4, stride=3, groups=4)",
        4,
        (8, 1, 9),
        ("Options<1, 9, 1, 3, 0, 4, 1, 1, 2>",),
        ((2, 301), (1, 40000), (3, 1)),
        bias=8,
    ),
}  # fmt: skip
FEW_TERMS = {
    "one channel": Case(
        "F.conv2d(x, weight, bias, padding=1)",
        1,
        (70, 1, 3, 3),
        ("launch_few_terms<1, 1, 3, 3>",),
        ((3, 9, 12), (2, 23, 25), (1, 1, 1)),
        bias=70,
    ),
    "strided": Case(
        "F.conv2d(x, weight, stride=2, padding=1)",
        3,
        (33, 3, 3, 3),
        ("launch_few_terms<3, 1, 3, 3>",),
        ((2, 16, 15), (1, 31, 40), (1, 5, 5)),
    ),
    "groups": Case(
        "F.conv1d(x, weight, bias, padding=3, dilation=2, groups=3)",
        12,
        (15, 4, 5),
        ("launch_few_terms<4, 1, 1, 5>", "make_form(b, 3, 4, 5"),
        ((2, 301), (1, 6)),
        bias=15,
    ),
    "three axes": Case(
        "F.conv3d(x, weight, stride=(1, 2, 2), padding=1, groups=5)",
        5,
        (10, 1, 3, 3, 3),
        ("launch_few_terms<1, 3, 3, 3>",),
        ((2, 3, 8, 7),),
    ),
    "one term": Case("F.conv1d(x, weight, padding=2)", 1, (3, 1, 1), ("launch_few_terms<1, 1, 1, 1>",), ((2, 9),)),
}
ALL = {("gathered", name): case for name, case in GATHERED.items()} | {
    ("channels", name): case for name, case in CHANNELS.items()
}
ALL |= {("few terms", name): case for name, case in FEW_TERMS.items()}


@dataclass(frozen=True)
class Built:
    """A case's functions in the library of its kind."""

    library: ctypes.CDLL
    number: int
    contract: Contract
    source: str


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Built]:
    """What the form writes for all cases, one library for all that include the same header."""
    folder = tmp_path_factory.mktemp("small_convolution")
    written: dict[tuple[str, str], tuple[Contract, str]] = {}
    for key, case in ALL.items():
        task, contract, recorded = described(folder, *tensors_of(case), case.result)
        kernel = form_kernel(task, contract, recorded)
        assert kernel is not None
        written[key] = contract, kernel.source
    found = {}
    for kind in ("gathered", "channels", "few terms"):
        sources = {key: text for key, (_, text) in written.items() if key[0] == kind}
        library = built(list(sources.values()), folder, kind)
        for number, key in enumerate(sources):
            found[key] = Built(library, number, *written[key])
    return found


def axes_of(case: Case) -> tuple[str, ...]:
    return ("d", "h", "w")[5 - len(case.filters) :]


def tensors_of(case: Case) -> tuple[str, str]:
    axes = axes_of(case)
    tensors = f'x=normal("b, {case.channels}, {", ".join(axes)}"); weight=normal("{", ".join(map(str, case.filters))}")'
    tensors += f'; bias=normal("{case.bias}")' if case.bias else ""
    return tensors, str(dict(zip(("b", *axes), case.sizes[0], strict=True)))


def inputs_of(case: Case, sizes: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor | None]:
    generator = torch.Generator().manual_seed(sum(sizes))
    x = torch.randn((sizes[0], case.channels, *sizes[1:]), generator=generator)
    weight = torch.randn(case.filters, generator=generator) * 0.1
    return x, weight, torch.randn(case.bias, generator=generator) if case.bias else None


def convolved(result: str, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    made: Tensor = eval(result, {"F": F, "x": x, "weight": weight, "bias": bias})
    return made


def wanted_of(case: Case, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return convolved(case.result, x.double(), weight.double(), None if bias is None else bias.double())


@pytest.mark.parametrize("key", ALL, ids=" ".join)
def test_a_convolution_has_the_accuracy_of_float32(key: tuple[str, str], kernels: dict[tuple[str, str], Built]) -> None:
    case, kernel = ALL[key], kernels[key]
    for part in case.written:
        assert part in kernel.source
    for sizes in case.sizes:
        x, weight, bias = inputs_of(case, sizes)
        wanted = wanted_of(case, x, weight, bias)

        found = launched(kernel, case, (x, weight, bias), wanted.shape)

        error = ((found.double() - wanted).norm() / wanted.norm()).item()
        assert error < MOST_ERROR, f"{sizes}: {error}"
        assert repairs_of(kernel) == 0, "the plain sum would hide wrong ones"


@pytest.mark.parametrize("key", ALL, ids=" ".join)
def test_what_is_not_finite_stays_where_it_is(key: tuple[str, str], kernels: dict[tuple[str, str], Built]) -> None:
    case = ALL[key]
    x, weight, bias = inputs_of(case, case.sizes[0])
    x = x.abs() + 0.5
    weight = weight.abs() + 0.5
    x.view(-1)[0], x.view(-1)[x.numel() // 2] = torch.inf, 3.4028e38
    wanted = convolved(case.result, x.double(), weight.double(), None if bias is None else bias.double()).float()

    found = launched(kernels[key], case, (x, weight, bias), wanted.shape)

    assert wanted.isinf().any()
    assert torch.equal(found.isinf(), wanted.isinf())
    assert not found.isnan().any()
    finite = ~wanted.isinf()
    assert torch.allclose(found[finite], wanted[finite], rtol=1e-5)
    assert repairs_of(kernels[key]) <= (~finite).sum() + (wanted > 1e30).sum()


def test_a_call_without_outputs_writes_nothing(kernels: dict[tuple[str, str], Built]) -> None:
    empty = {
        ("gathered", "padding"): (0, 9, 11),
        ("channels", "small images"): (0, 7, 7),
        ("few terms", "strided"): (0, 4, 4),
    }
    for key, sizes in empty.items():
        x, weight, bias = inputs_of(ALL[key], sizes)
        launched(kernels[key], ALL[key], (x, weight, bias), torch.Size((0, 0, *sizes[1:])))


def test_slices_of_the_terms_are_added(kernels: dict[tuple[str, str], Built]) -> None:
    kernel = kernels["gathered", "slices"]
    assert workspace_bytes(kernel, [1, 7, 7]) >= 2 * 40 * 49 * 4
    assert workspace_bytes(kernels["gathered", "padding"], [2, 9, 11]) == 0


# --- what the form chooses ---


@pytest.mark.parametrize(
    ("filters", "sizes", "result", "header"),
    [
        # Of the sweep: small images, few images, large strides.
        ((2048, 512, 1, 1), (32, 7, 7), "F.conv2d(x, weight)", "_gathered"),
        ((96, 16, 16, 16), (4, 224, 224), "F.conv2d(x, weight, stride=16)", "_gathered"),
        ((768, 3, 32, 32), (16, 224, 224), "F.conv2d(x, weight, stride=32)", "_gathered"),
        ((64, 64, 3, 3), (1, 56, 56), "F.conv2d(x, weight, padding=1)", "_gathered"),
        ((2, 64, 1, 1), (4, 388, 388), "F.conv2d(x, weight)", "_gathered"),
        # Many pixels of many channels: the general kernels.
        ((64, 64, 3, 3), (32, 56, 56), "F.conv2d(x, weight, padding=1)", ""),
        ((128, 64, 1, 1), (16, 512, 512), "F.conv2d(x, weight)", "_stream"),
        # More taps or phases than the gathered kernel has tables for.
        ((8, 4, 46, 46), (1, 50, 50), "F.conv2d(x, weight)", ""),
        ((4, 8, 9, 9), (1, 30, 30), "F.conv_transpose2d(x, weight, stride=9)", ""),
        # Few terms, and more than those.
        ((64, 1, 3, 3), (4, 572, 572), "F.conv2d(x, weight)", "_few_terms"),
        ((1, 1, 5, 5), (2, 333, 335), "F.conv2d(x, weight, padding=2)", "_few_terms"),
        ((16, 3, 5, 5), (2, 40, 40), "F.conv2d(x, weight, padding=2)", "_gathered"),
    ],
)
def test_the_sizes_of_a_task_decide(
    filters: tuple[int, ...], sizes: tuple[int, ...], result: str, header: str, tmp_path: Path
) -> None:
    channels = filters["transpose" not in result]
    tensors = f'x=normal("b, {channels}, h, w"); weight=normal("{", ".join(map(str, filters))}")'
    task, contract, recorded = described(tmp_path, tensors, str(dict(zip("bhw", sizes, strict=True))), result)
    kernel = form_kernel(task, contract, recorded)
    assert kernel is not None
    assert f"<warpsmith/convolution{header}.cuh>" in kernel.source


@pytest.mark.parametrize(
    ("width", "options", "header"),
    [
        (112, "padding=1", "depthwise"),
        (512, "padding=0", "depthwise"),
        (56, "padding=1", "depthwise_any"),
        (112, "padding=1, stride=2", "depthwise_any"),
        (512, "padding=2", "depthwise_any"),
        (512, "padding=1, dilation=2", "depthwise_any"),
    ],
)
def test_wide_images_keep_the_kernel_without_shared_memory(
    width: int, options: str, header: str, tmp_path: Path
) -> None:
    tensors = 'x=normal("b, 24, h, w"); weight=normal("24, 1, 3, 3")'
    task, contract, recorded = described(
        tmp_path, tensors, str({"b": 2, "h": 30, "w": width}), f"F.conv2d(x, weight, groups=24, {options})"
    )
    kernel = form_kernel(task, contract, recorded)
    assert kernel is not None
    assert kernel.form == "depthwise 2-d convolution"
    assert f"<warpsmith/{header}.cuh>" in kernel.source


def test_columns_of_a_tile_suit_the_output_channels() -> None:
    assert [gathered_columns(co)[0] for co in (1, 8, 10, 24, 64, 96, 512)] == [8, 8, 16, 24, 64, 48, 64]


@pytest.mark.parametrize(
    ("images", "groups", "ci", "co", "side", "kernel", "stride", "padding"),
    [
        (32, 1, 512, 512, 7, 3, 1, 1),  # slices
        (1, 1, 64, 64, 56, 3, 1, 1),
        (32, 1, 1024, 256, 14, 1, 1, 0),  # neighbouring pixels in fours
        (16, 32, 8, 8, 28, 3, 1, 1),
        (3, 3, 40, 33, 41, 5, 2, 0),
    ],
)
def test_the_estimate_is_that_of_the_header(
    images: int,
    groups: int,
    ci: int,
    co: int,
    side: int,
    kernel: int,
    stride: int,
    padding: int,
    kernels: dict[tuple[str, str], Built],
    tmp_path: Path,
) -> None:
    tensors = f'x=normal("b, {ci * groups}, h, w"); weight=normal("{co * groups}, {ci}, {kernel}, {kernel}")'
    options = f"stride={stride}, padding={padding}, groups={groups}"
    task, contract, recorded = described(
        tmp_path, tensors, str({"b": images, "h": side, "w": side}), f"F.conv2d(x, weight, {options})"
    )
    read = FormTask(task, contract, recorded)
    sizes = sizes_of(read, read_convolution(read, read.steps[0], read.tensor(read.steps[0].argument(0)).dims))
    columns = gathered_columns(co)[0]
    numbers = (images, groups, ci, co, side, side, kernel, stride, padding, columns)
    planned = kernels["gathered", "padding"].library.planned
    planned.restype = ctypes.c_double

    expected = planned((ctypes.c_int64 * len(numbers))(*numbers))

    assert gathered_microseconds(sizes) == pytest.approx(expected, rel=1e-6)


def test_few_tiles_take_slices_and_many_do_not() -> None:
    def sizes(**changed: Any) -> Sizes:
        usual: dict[str, Any] = {
            "images": 1,
            "groups": 1,
            "ci": 512,
            "co": 64,
            "inside": 49,
            "outside": 49,
            "phases": 1,
        }
        return Sizes(**{**usual, "pixels": 49, "taps": 9, "planes": 81, "wide": False, **changed})

    assert gathered_microseconds(sizes()) < 30  # 288 stages of one block would take 120
    assert gathered_microseconds(sizes(images=640)) > 60
    assert prefers_gathered(sizes(), 40)
    assert not prefers_gathered(sizes(), 5)


# --- the emulated device ---


def launched(kernel: Built, case: Case, tensors: tuple[Tensor | None, ...], shape: torch.Size) -> Tensor:
    """The output; what lies around it must stay as it was."""
    x = tensors[0]
    assert x is not None
    axes = axes_of(case)
    sizes = dict(zip(("b", *axes), (x.shape[0], *x.shape[2:]), strict=True))
    sizes |= {f"out_dim{n}": shape[n] for n in range(2, len(shape))}
    numbers = [sizes[each.name] for each in kernel.contract.size_arguments]
    size = workspace_bytes(kernel, numbers)
    workspace = aligned(torch.full((size // 4 + 1,), torch.nan))
    count = shape.numel()
    memory = aligned(torch.full((count + 2 * GUARD,), 77.0))
    begin = memory[GUARD : GUARD + count]
    begin.fill_(torch.nan)
    given = [aligned(each) for each in tensors if each is not None]
    pointers = [ctypes.c_void_p(each.data_ptr()) for each in (*given, begin)]
    integers = [ctypes.c_int64(each) for each in numbers]
    function = getattr(kernel.library, f"launch_{kernel.number}")
    assert function(*pointers, *integers, ctypes.c_void_p(workspace.data_ptr()), None) == 0
    assert (memory[:GUARD] == 77.0).all()
    assert (memory[GUARD + count :] == 77.0).all()
    return begin.clone().view(shape)


def repairs_of(kernel: Built) -> int:
    """Sums that were computed again since the last question."""
    if "convolution_gathered" not in kernel.source:
        return 0
    kernel.library.repaired.restype = ctypes.c_int64
    return int(kernel.library.repaired())


def workspace_bytes(kernel: Built, numbers: list[int]) -> int:
    if "workspace_bytes" not in kernel.source:
        return 0
    function = getattr(kernel.library, f"workspace_bytes_{kernel.number}")
    function.restype = ctypes.c_int64
    return int(function(*map(ctypes.c_int64, numbers)))


def aligned(values: Tensor) -> Tensor:
    """A copy that begins at a multiple of 256 bytes, with NaN around it."""
    memory = torch.full((values.numel() + 128,), torch.nan)
    begin = -memory.data_ptr() // 4 % 64 + 64 * (values.numel() == 0)
    return memory[begin : begin + values.numel()].view(values.shape).copy_(values)


def built(sources: list[str], folder: Path, name: str) -> ctypes.CDLL:
    parts = [replaced(EMULATOR.read_text(encoding="utf-8"), "__shared__ static thread_local", MACROS)]
    parts += [device.read_text(encoding="utf-8") for device in DEVICES]
    included: set[str] = {"bulk_copy.cuh", "wgmma_f16.cuh"}  # convolution_device.h has what they offer
    for number, source in enumerate(sources):
        headers = "".join(inlined(header, included) for header in re.findall(r"#include <warpsmith/(.*?)>", source))
        body = re.sub(r"^#include.*$", "", source, flags=re.MULTILINE)
        body = re.sub(r'extern "C" (\w+) (launch|workspace_bytes)\(', rf'extern "C" \1 \2_{number}(', body)
        macros = tunables(source)
        parts += [translated(headers), f"namespace case_{number} {{", translated(body), "}"]
        parts += [f"#undef {macro.name}" for macro in macros]
    if name == "gathered":  # repairs are counted
        parts.insert(0, "#include <cstdint>\nextern int64_t repairs;")
        repair = "const int64_t volume = f.out_volume(), channels = element / volume;\n"
        place = next(n for n, part in enumerate(parts) if repair in part)
        parts[place] = replaced(parts[place], repair, "++repairs;")
        parts.append(PLAN)
    own = folder / name
    own.mkdir()
    return compile_and_load("\n".join(parts), own, ("-Og",))


def replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1
    return text.replace(old, f"{old}\n{new}")


def inlined(header: str, included: set[str]) -> str:
    """A header of the library with those that it includes, each once."""
    if header in included:
        return ""
    included.add(header)
    text = LIBRARY.joinpath("warpsmith", header).read_text(encoding="utf-8")
    if header == "convolution.cuh":  # the form and the plain kernel; not the kernels of the general engine
        text = (
            text[: text.index("// --- the plan: ")] + text[text.index("template <class Epilogue>\nint launch_direct") :]
        )
        text = text[: text.index("// A convolution with tiles of `Columns` columns")] + "}\n}\n"
    text = re.sub(r"#include <cuda\w*\.h>|#pragma once", "", text)
    return re.sub(r"#include <warpsmith/(\w+\.cuh)>", lambda match: inlined(match[1], included), text)


def translated(text: str) -> str:
    """CUDA C++ as C++ for the emulated device. Until a copy is waited for, its place holds what is not a number."""
    text = re.sub(r"extern __shared__ .*?(\w+)\[\];", r"unsigned char* const \1 = emulated::dynamic_bytes;", text)
    for size, kind in ((4, "ca"), (16, "cg")):
        copied = f"std::memset(to, 0xff, {size}); {_PENDING}.add([=] {{ std::memset(to, 0, {size}); "
        copied += "std::memcpy(to, from, bytes); });"
        if size == 16:
            copied = "if (uintptr_t(to) % 16 || (bytes && uintptr_t(from) % 16)) std::abort(); " + copied
        text = re.sub(rf'asm volatile\("cp\.async\.{kind}[^;]*;".*?"memory"\);', copied, text, flags=re.DOTALL)
    text = re.sub(r'asm volatile\("cp\.async\.commit_group;"[^;]*;', f"{_PENDING}.commit();", text)
    text = re.sub(r'asm volatile\("cp\.async\.wait_all;"[^;]*;', f"{_PENDING}.commit(), {_PENDING}.wait(0);", text)
    text = re.sub(r'asm volatile\("cp\.async\.wait_group %0;"[^;]*;', f"{_PENDING}.wait(N);", text)
    text = re.sub(r'asm\("cvt\.rna[^;]*;"[^;]*;|asm\("cvt\.rna[^;]*;', "bits = emulated::tf32(x);", text)
    text = re.sub(r'asm\("mma\.sync.*?\)\);', "emulated::multiply(d, a, b);", text, flags=re.DOTALL)
    assert "asm" not in re.sub(r"//.*", "", text)
    text = re.sub(r"<<<132 \* 8, ", "<<<2, ", text)
    return _LAUNCH.sub(r"emulated::launch(dim3(\2), \3, \4, [=] { \1(\5); });\n", text)
