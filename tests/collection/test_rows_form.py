"""The form of rows: which tasks it claims, and what its kernels give for many lengths on the emulated device."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.collection.test_forms import described
from tests.emulated_device import compile_and_load
from warpsmith.backends.library import LIBRARY
from warpsmith.backends.source import backend_named
from warpsmith.kernels.form_rows import rows, short_rows
from warpsmith.kernels.form_task import FormKernel, FormTask, NotThisForm
from warpsmith.model.build import Artifact, DeviceKind, Target
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.contract import ArgumentKind, Contract

EMULATOR = Path(__file__).parents[1] / "kernel_templates" / "emulator.h"
DEVICE = """
struct alignas(16) float4 { float x, y, z, w; };
inline float4 make_float4(float a, float b, float c, float d) { return {a, b, c, d}; }
template <typename T> T __ldcs(const T* from) { return *from; }
template <typename T> void __stcg(T* to, T value) { *to = value; }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
struct cudaLaunchAttribute { int id; struct { dim3 clusterDim; } val; };
enum { cudaLaunchAttributeClusterDimension = 1, cudaFuncAttributeNonPortableClusterSizeAllowed };
struct cudaLaunchConfig_t { dim3 gridDim, blockDim; cudaStream_t stream; cudaLaunchAttribute* attrs; int numAttrs; };
template <typename K, typename... A>
cudaError_t cudaLaunchKernelEx(cudaLaunchConfig_t* config, K kernel, A... given) {
  const int blocks = config->numAttrs ? config->attrs[0].val.clusterDim.x : 1;
  const auto body = [=] { kernel(given...); };
  if (blocks == 1) emulated::launch(config->gridDim, config->blockDim.x, 0, body);
  else emulated::launch_clusters(blocks, config->gridDim, config->blockDim.x, 0, body);
  return cudaSuccess;
}
#define INFINITE (1 << 20)
"""
# What lagged.cuh offers for the longest rows, which are no part of this test.
LONGEST = """
namespace warpsmith {
constexpr int64_t longest_kept(int, int, int, int) { return 0; }
template <typename P> int64_t rows_workspace(int64_t, int64_t) { return 0; }
template <int, int, int> bool can_spread(int64_t) { return false; }
template <typename P, int, int, int, int> int launch_lagged(const P&, int64_t, int64_t, void*, void*) { return -1; }
}
#define TUNE_CLUSTER 65536
#define TUNE_KEPT 0
#define TUNE_SPREAD 0
#define TUNE_THREADS 256
#define TUNE_PACKS 8
#define TUNE_SLOTS 2
#define TUNE_RESIDENT 3
"""
_ASM = {
    r'asm\("max\.NaN[^;]*;"[^;]*\);': "c = a != a || b != b ? NAN : a > b ? a : b;",
    r'asm\("min\.NaN[^;]*;"[^;]*\);': "c = a != a || b != b ? NAN : a < b ? a : b;",
    r'asm\("ex2\.approx(?:\.ftz)?\.f32 %0, %1;" : "=f"\(e\) : "f"\((\w+)\)\);': r"e = exp2f(\1);",
    r'asm volatile\("barrier\.cluster\.arrive[^;]*;" ::: "memory"\);': "emulated::arrive();",
    r'asm volatile\("barrier\.cluster\.wait[^;]*;" ::: "memory"\);': "emulated::wait();",
}
_LAUNCH = re.compile(
    r"(\w+(?:<[^<>;]*>)?)\s*<<<(.*?), ([^,]*), ([^,]*), static_cast<cudaStream_t>\(stream\)>>>\(\s*(.*?)\);", re.DOTALL
)


@dataclass(frozen=True)
class Case:
    """A task of the form."""

    tensors: str
    result: str
    sizes: tuple[str, ...] = ("rows", "cols")  # the names of the axes, the row's own last
    leading: Mapping[str, int] = field(default_factory=dict)  # extents of all but the first and the last of them
    long: bool = False  # whether rows are tried that belong to a block or to several


X, XY = 'x=normal("rows, cols")', 'x=normal("rows, cols"); y=normal("rows, cols")'
CASES = {
    "softmax": Case(X, "x.softmax(-1)", long=True),
    "norm with a limit": Case(X, "F.normalize(x, dim=-1)"),
    "layer norm": Case(
        'x=normal("b, l, d"); w=normal("d"); bias=normal("d")',
        "F.layer_norm(x, (x.shape[-1],), w, bias)",
        ("b", "l", "d"),
        {"l": 3},
        long=True,
    ),
    "masked softmax": Case(
        'x=normal("b, h, l, k"); mask=booleans("b, 1, l, k"); s=normal("h, 1, 1")',
        "torch.softmax((x * s).masked_fill(mask, -1e4), -1)",
        ("b", "h", "l", "k"),
        {"h": 2, "l": 3},
    ),
    "sum and normalised sum": Case(
        'x=normal("rows, cols"); r=normal("rows, cols"); w=normal("cols")',
        "r + (x + r) * torch.rsqrt(((x + r)**2).mean(-1, keepdim=True) + 1e-6) * w",
    ),
    "sum of a function": Case(X, "(F.gelu(x) + 1.0).sum(-1)"),
    "smallest to largest": Case(
        X, "(x - x.amin(1, keepdim=True)) / (x.amax(1, keepdim=True) - x.amin(1, keepdim=True))"
    ),
    "a row beside a row": Case(
        'x=normal("b, c, h"); g=normal("b, 1, h")', "torch.log_softmax(x * 0.5, -1) + g", ("b", "c", "h"), {"c": 5}
    ),
}
FEW = 3  # so many rows are spread over the blocks of clusters; on a GPU, 264
LENGTHS = (1, 2, 3, 4, 7, 8, 16, 19, 20, 33, 64, 66, 127, 132, 190, 193, 333, 512, 1001, 1024, 1030, 2048, 2049)


@dataclass(frozen=True)
class Library:
    """The kernels of all cases."""

    loaded: ctypes.CDLL
    contracts: Mapping[str, Contract]

    def call(self, name: str, tensors: Mapping[str, Tensor], extents: Mapping[str, int], out: torch.Size) -> Tensor:
        """The output of a case. What lies around the tensors is not a number, or must not change."""
        number = list(CASES).index(name)
        given = {each: placed(values) for each, values in tensors.items()}
        memory = torch.full((math.prod(out) + 192,), 77.0)
        begin = -memory.data_ptr() // 4 % 64 + 64
        found = memory[begin : begin + math.prod(out)]
        passed: list[object] = []
        for argument in self.contracts[name].arguments:
            if argument.kind is ArgumentKind.INPUT:
                passed.append(ctypes.c_void_p(given[argument.name].data_ptr()))
            elif argument.kind is ArgumentKind.OUTPUT:
                passed.append(ctypes.c_void_p(found.data_ptr()))
            elif argument.kind is ArgumentKind.AXIS:
                passed.append(ctypes.c_int64(extents[argument.name]))
            else:
                passed.append(None)
        assert getattr(self.loaded, f"launch_{number}")(*passed) == 0
        assert (memory[:begin] == 77).all()
        assert (memory[begin + found.numel() :] == 77).all()
        return found.reshape(out)


def placed(values: Tensor) -> Tensor:
    """A copy that begins at a multiple of 256 bytes, among numbers that are none."""
    step = values.element_size()
    memory = torch.full(
        (values.numel() + 768 // step,), math.nan if values.is_floating_point() else True, dtype=values.dtype
    )
    begin = -memory.data_ptr() // step % (256 // step) + 256 // step
    view = memory[begin : begin + values.numel()]
    KEPT.append(memory)
    return view.copy_(values.flatten())


KEPT: list[Tensor] = []  # the memory behind pointers


def write(case: Case, folder: Path) -> tuple[FormKernel, Contract]:
    """The kernel for a task, and its contract."""
    sizes = ", ".join(f'"{axis}": {case.leading.get(axis, 8)}' for axis in case.sizes)
    task, contract, recorded = described(folder, case.tensors, f"{{{sizes}}}", case.result)
    return rows(FormTask(task, contract, recorded)), contract


def translated(text: str) -> str:
    """CUDA C++ of the library as C++ for the emulated device."""
    for instruction, plain in _ASM.items():
        text = re.sub(instruction, plain, text)
    text = re.sub(r"^#include .*$|^#pragma (unroll|once).*$", "", text, flags=re.MULTILINE)
    text = re.sub(
        r"extern __shared__ .*? memory\[\];",
        "float4* memory = reinterpret_cast<float4*>(emulated::dynamic_bytes);",
        text,
    )
    text = _LAUNCH.sub(r"emulated::launch(\2, \3, \4, [=] { \1(\5); });", text)
    assert "<<<" not in text
    return text


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    folder = tmp_path_factory.mktemp("rows")
    headers = {
        each: LIBRARY.joinpath("warpsmith", f"{each}.cuh").read_text() for each in ("packs", "rows", "short_rows")
    }
    parts = [
        f'#include "{EMULATOR}"\n#include <type_traits>\n#define __host__\n#define __grid_constant__\n',
        *(
            DEVICE,
            translated(headers["packs"]),
            translated(headers["rows"]),
            LONGEST,
            translated(headers["short_rows"]),
        ),
    ]
    assert parts[-1].count("rows <= 264") == 1
    parts[-1] = parts[-1].replace("rows <= 264", f"rows <= {FEW}")
    parts[2] = re.sub(r"asm volatile\([^;]*;[^;]*;", ";", parts[2])  # loads of another kind than the one taken
    contracts = {}
    for number, (name, case) in enumerate(CASES.items()):
        place = folder / str(number)
        place.mkdir()
        kernel, contracts[name] = write(case, place)
        text = translated(kernel.source).replace('extern "C"', 'extern "C" __attribute__((visibility("default")))')
        text = text.replace("Policy", f"Policy{number}")
        parts.append(re.sub(r"\b(launch|workspace_bytes)\(", rf"\1_{number}(", text))
    return Library(compile_and_load("".join(parts), folder, ("-O0", "-fvisibility=hidden")), contracts)


@pytest.mark.parametrize("name", CASES)
def test_rows_of_any_length_are_those_of_pytorch(name: str, library: Library) -> None:
    case = CASES[name]
    few = {**case.leading, case.sizes[0]: 3}
    lengths = [(length, few) for length in LENGTHS]
    # Several blocks, the last one not full; rows that begin anywhere.
    lengths += [(length, {**few, case.sizes[0]: 2100 // length + 7}) for length in (1, 3, 19, 24, 37, 65)]
    if case.long:  # the blocks of a cluster share a row; where there are more rows, each has a block of its own
        few = {**few, case.sizes[0]: FEW // math.prod(case.leading.values())}
        many = {**few, case.sizes[0]: FEW + 1}
        lengths += [(4500, few), (8194, few), *((length, many) for length in (2051, 4102, 8200))]
    for length, extents in lengths:
        check(name, library, {**extents, case.sizes[-1]: length}, seed=length)


def check(name: str, library: Library, extents: dict[str, int], seed: int) -> None:
    case = CASES[name]
    generator = torch.Generator().manual_seed(seed)
    tensors = inputs(case.tensors, extents, generator)
    wanted, eager = (evaluated(case.result, tensors, dtype) for dtype in (torch.float64, torch.float32))

    found = library.call(name, tensors, extents, wanted.shape)

    assert torch.equal(found.isnan(), eager.isnan()), extents
    assert near(found, wanted, eager), extents


def inputs(tensors: str, extents: Mapping[str, int], generator: torch.Generator) -> dict[str, Tensor]:
    made = {}
    for name, kind, dims in re.findall(r'(\w+)=(\w+)\("([^"]*)"\)', tensors):
        shape = [int(d) if d.isdigit() else extents[d] for d in dims.split(", ")]
        values = torch.randn(shape, generator=generator)
        made[name] = values > 0.5 if kind == "booleans" else values
    return made


def evaluated(result: str, tensors: Mapping[str, Tensor], dtype: torch.dtype) -> Tensor:
    given = {name: v if v.dtype is torch.bool else v.to(dtype) for name, v in tensors.items()}
    made: Tensor = eval(result, {"F": F, "torch": torch, **given})
    return made


def near(found: Tensor, wanted: Tensor, eager: Tensor) -> bool:
    """Whether the error is at most three times PyTorch's, or a millionth of the largest result."""
    finite = wanted.isfinite() & eager.isfinite()
    if not torch.equal(found[wanted.isinf()].double(), wanted[wanted.isinf()]):
        return False
    error, usual = ((each.double() - wanted)[finite].abs() for each in (found, eager))
    largest = wanted[finite].abs().max().item() if finite.any() else 0.0
    return not finite.any() or error.max().item() <= 3 * usual.max().item() + 1e-6 * largest


@pytest.mark.parametrize("name", ["softmax", "layer norm", "smallest to largest", "sum of a function"])
def test_what_is_not_finite_stays_in_its_row(name: str, library: Library) -> None:
    case = CASES[name]
    for length in (5, 19, 24, 45, 333, 1024):
        extents = {**case.leading, case.sizes[0]: 9, case.sizes[-1]: length}
        tensors = inputs(case.tensors, extents, torch.Generator().manual_seed(length))
        x = tensors["x"].view(-1, length)
        x[1, 3], x[3, 0], x[5, 2], x[7, :] = torch.inf, -torch.inf, torch.nan, -torch.inf
        wanted, eager = (evaluated(case.result, tensors, dtype) for dtype in (torch.float64, torch.float32))

        found = library.call(name, tensors, extents, wanted.shape)

        assert torch.equal(found.isnan(), wanted.isnan()), length
        assert near(found, wanted, eager), length
        kept = [row for row in range(x.shape[0]) if row not in (1, 3, 5, 7)]
        assert found.view(x.shape[0], -1)[kept].isfinite().all()


def test_large_numbers_and_a_large_mean_keep_their_accuracy(library: Library) -> None:
    norm = "layer norm"
    for name, scale, shift in (("softmax", 30.0, 0.0), (norm, 1.0, 1000.0), (norm, 1e4, 0.0), (norm, 0.0, 123.456)):
        case = CASES[name]
        for length in (19, 24, 100, 333, 1030):
            extents = {**case.leading, case.sizes[0]: 9, case.sizes[-1]: length}
            tensors = inputs(case.tensors, extents, torch.Generator().manual_seed(length))
            tensors["x"] = tensors["x"] * scale + shift
            wanted, eager = (evaluated(case.result, tensors, dtype) for dtype in (torch.float64, torch.float32))
            found = library.call(name, tensors, extents, wanted.shape)
            # A mean near 1000 is known to 6e-5, which PyTorch may hit by chance.
            assert near(found, wanted, eager) or (found.double() - wanted).abs().max() < 1e-4, (name, length)


def test_nothing_to_compute(library: Library) -> None:
    shape = {"rows": 0, "cols": 7}
    assert library.call("softmax", {"x": torch.ones(0, 7)}, shape, torch.Size((0, 7))).numel() == 0
    shape = {"rows": 130, "cols": 0}
    assert library.call("softmax", {"x": torch.ones(130, 0)}, shape, torch.Size((130, 0))).numel() == 0
    sums = library.call("sum of a function", {"x": torch.ones(130, 0)}, shape, torch.Size((130,)))
    assert torch.equal(sums, torch.zeros(130))


@dataclass(frozen=True)
class Switches:
    """What the text of a policy says."""

    name: str
    raw: bool  # the input itself is kept
    tiles: bool
    stored: int = 1
    parts: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("tensors", "result", "said"),
    [
        (X, "x.softmax(-1)", Switches("softmax", True, True, parts=("fill = -INFINITY",))),
        (X, "torch.logsumexp(x, 1)", Switches("softmax", True, True, 0, ("kRowResults = true",))),
        (X, "x.log_softmax(1) * 2", Switches("softmax", True, True)),
        (X, "x / x.norm(dim=1, keepdim=True)", Switches("sum", True, True, parts=("= 1.0f / t",))),
        (X, "torch.floor(x / x.amax(1, keepdim=True))", Switches("max", True, True, parts=("v_ / r_.",))),
        (X, "x.abs().amax(1)", Switches("max", True, True, 0)),
        (X, "x.prod(1)", Switches("prod", True, True, 0)),
        (X, "x.var(1)", Switches("mean and variance", True, True, 0)),
        (X, "F.layer_norm(x, (x.shape[1],))", Switches("mean and variance", True, True)),
        (X, "F.gelu(x).softmax(1)", Switches("softmax", False, True, parts=("v_[e_] = mask_",))),
        (XY, "(x * y).sum(1)", Switches("sum", False, True, 0)),
        (XY, "x.softmax(1) * y", Switches("softmax", True, True, parts=("given.y[row_ * cols_ + column_]",))),
        ('x=normal("rows, cols"); y=normal("cols")', "(x * y).softmax(1)", Switches("softmax", False, False)),
        ('x=normal("rows, cols"); y=normal("rows, 1")', "(x * y).softmax(1)", Switches("softmax", False, False)),
        (
            'x=normal("a, b, c, d")',
            "x - x.mean((2, 3), keepdim=True)",
            Switches("sum", True, True, parts=("policy, a * b, c * d, ",)),
        ),
    ],
)  # fmt: skip
def test_what_the_form_writes(tensors: str, result: str, said: Switches, tmp_path: Path) -> None:
    names = re.findall(r"(\w+)=", tensors)
    axes = dict.fromkeys(re.findall(r"[a-z]\w*", " ".join(re.findall(r'"([^"]*)"', tensors))))
    kernel, _ = write(Case(tensors, result, tuple(axes)), tmp_path)

    assert kernel.form == f"rows: {said.name}"
    assert f"kRaw = {str(said.raw).lower()}, kTiles = {str(said.tiles).lower()}" in kernel.source
    assert f"kStored = {said.stored};" in kernel.source
    for part in (*said.parts, *(f"given.{name}" for name in names)):
        assert part in kernel.source


@pytest.mark.parametrize(
    ("tensors", "result"),
    [
        (X, "x.softmax(0)"),  # along the columns
        (X, "x.sum()"),
        (X, "x.exp()"),
        (X, "x.argmax(1)"),
        (X, "x.softmax(1).sum(1)"),  # a reduction of what depends on another one
        (X, "x.softmax(1).softmax(1)"),
        (X, "x.t().softmax(1)"),
        (X, "x[:, :1] * x.sum(1, keepdim=True)"),  # an element of another place
        (X, "x.view(torch.int32).to(torch.float32).softmax(1)"),  # the bits of the numbers
        (XY, "F.cosine_similarity(x, y, 1)"),  # two numbers for each element
        (XY, "(x * y).sum()"),
        (X, "(x > 0).sum(1)"),
        ('x=normal("rows, cols"); y=normal("cols")', "x @ y"),
        ('x=normal("rows, cols"); y=normal("cols, n")', "x @ y"),
        ('x=normal("rows, cols", dtype="float16")', "x.softmax(1)"),
        ('x=normal("rows, cols", dtype="float64")', "x.softmax(1)"),
        ('x=normal("a, b, c")', "x.sum(1)"),
        ('x=normal("a, b, c")', "x.sum((0, 2))"),
    ],
)
def test_what_is_almost_of_the_form_is_not_claimed(tensors: str, result: str, tmp_path: Path) -> None:
    axes = dict.fromkeys(re.findall(r"[a-z]\w*", " ".join(re.findall(r'\("([^"]*)"', tensors))))
    with pytest.raises(NotThisForm):
        write(Case(tensors, result, tuple(axes)), tmp_path)


@pytest.mark.parametrize(("cols", "short"), [(2048, True), (2049, False)])
def test_short_rows_are_those_of_one_warp(cols: int, short: bool, tmp_path: Path) -> None:
    task = FormTask(*described(tmp_path, X, f'{{"rows": 9, "cols": {cols}}}', "x.softmax(1)"))
    if short:
        assert short_rows(task) == rows(task)
    else:
        with pytest.raises(NotThisForm):
            short_rows(task)


def test_rows_too_long_for_a_cluster_are_claimed_as_they_are(tmp_path: Path) -> None:
    sizes = '{"rows": 2, "cols": 500000}'
    assert rows(FormTask(*described(tmp_path, X, sizes, "x.softmax(1)"))).form == "rows: softmax"
    with pytest.raises(NotThisForm):
        rows(FormTask(*described(tmp_path, XY, sizes, "(x + y).softmax(1)")))


@pytest.mark.nvcc
@pytest.mark.slow  # half a minute
@pytest.mark.parametrize("name", ["softmax", "masked softmax", "sum of a function"])
def test_the_source_compiles(name: str, tmp_path: Path) -> None:
    kernel, contract = write(CASES[name], tmp_path)
    candidate = Candidate((SourceFile("kernel.cu", kernel.source),), "cuda")

    made = backend_named("cuda").build(candidate, contract, Target(DeviceKind.CUDA, "sm_90a"))

    assert isinstance(made, Artifact), made.reason
