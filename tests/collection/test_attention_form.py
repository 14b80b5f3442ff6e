"""Attention of heads of at most 128 columns: what the form claims, and its kernels on the emulated device.

The texts are those that the form writes. The emulated device finds wrong indices and sums, waits that are missing, and
memory that is reused too early; it finds no races between warps that need no wait in this order of execution.
"""

from __future__ import annotations

import ctypes
import math
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.collection.test_forms import described
from tests.emulated_device import compile_and_load
from warpsmith.backends.library import LIBRARY
from warpsmith.kernels.form_task import FormKernel
from warpsmith.kernels.forms import form_kernel

FOLDER = Path(__file__).parent
DEVICE = (FOLDER.parent / "kernel_templates/emulator.h", FOLDER / "convolution_device.h", FOLDER / "attention_device.h")
MOST_ERROR = 6e-7  # relative, root of the mean square
_LAUNCH = re.compile(r"(\w+(?:<[\w, ]+>)?)<<<(.*?), ([\w:]+), ([\w:]+), stream>>>\((.*?)\);")

FOUR = "; ".join(f'{name}=normal("batch, heads, {rows}, w")' for name, rows in (("q", "n"), ("k", "m"), ("v", "m")))
SAME = FOUR.replace("m, w", "n, w")
FIXED = SAME.replace("n, w", "n, 64")
BESIDE = "; ".join(f'{name}=normal("b, n, 512")' for name in "qkv")
TURNED = "{}.unflatten(2, (8, 64)).transpose(1, 2)"
SIZES = '{"b": 1, "batch": 1, "heads": 2, "n": 100, "m": 90, "w": 64}'
SDPA = "F.scaled_dot_product_attention(q, k, v{})"
ONES = "torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device)"
BY_HAND = "torch.softmax(({}).masked_fill({}, float('-inf')), dim=-1) @ v"
SCORES = "q @ k.transpose(-2, -1) * 0.125"


def sizes_for(tensors: str) -> str:
    wanted = {name: size for name, size in eval(SIZES).items() if re.search(rf"[\" ]{name}[,\"]", tensors)}
    return str(wanted)


def written(folder: Path, tensors: str, result: str, sizes: str = "") -> FormKernel | None:
    task, contract, recorded = described(folder, tensors, sizes or sizes_for(tensors), result)
    return form_kernel(task, contract, recorded)


@pytest.mark.parametrize(
    ("tensors", "result", "parts"),
    [
        (FOUR, SDPA.format(""), ("batch * heads, n, m, w, 1.f / sqrtf(float(w))", "1.f, true}", "attend<false>")),
        (
            FOUR,
            SDPA.format(", is_causal=True"),
            ("batch * heads, n, m, w, 1.f / sqrtf(float(w))", "1.f, true}", "attend<true>"),
        ),
        (FIXED, SDPA.format(", scale=0.25"), ("batch * heads, n, n, 64, float(0.25)", "1.f, true}", "attend<false>")),
        (
            FOUR,
            "torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1) @ v",
            ("m, w, 1.f / sqrtf", "1.f, false}", "attend<false>"),
        ),
        (FOUR, "((q * 0.5) @ (k * 0.25).mT).softmax(3) @ v", ("float(0.125)", "1.f, false}", "attend<false>")),
        (FOUR, "(q @ k.mT).softmax(-1) @ v", ("float(1.0)",)),
        (
            'q=normal("n, 64"); k=normal("m, 64"); v=normal("m, 64")',
            "((q @ k.T) / 8).softmax(1) @ v",
            ("1, n, m, 64, float(0.125)",),
        ),
        (
            'query=normal("b, n, 32"); v=normal("b, m, 32"); k=normal("b, m, 32")',
            "torch.bmm(torch.softmax(torch.bmm(query, k.transpose(1, 2)), 2), v)",
            ("{query, k, v, out, b, n, m, 32, float(1.0), false}",),
        ),
        (
            BESIDE,
            f"F.scaled_dot_product_attention({', '.join(map(TURNED.format, 'qkv'))}).transpose(1, 2).flatten(2)",
            ("b * 8, n, n, 64, float(0.125", "true, {8, 8, 8, 8}}", "attend<false>"),
        ),
        (FIXED, BY_HAND.format(SCORES, f"{ONES}.triu(1)"), ("float(0.125)", "1.f, false}", "attend<true>")),
        (FIXED, BY_HAND.format(SCORES, f"~{ONES}.tril()"), ("float(0.125)", "1.f, false}", "attend<true>")),
        (
            FIXED,
            BY_HAND.format(SCORES, "torch.ones(q.shape[2], q.shape[2]).tril() == 0"),
            (
                "1.f, false}",
                "attend<true>",
            ),
        ),
    ],
)
def test_attention_is_recognised(tensors: str, result: str, parts: tuple[str, ...], tmp_path: Path) -> None:
    kernel = written(tmp_path, tensors, result.replace("math.sqrt(q.shape[-1])", "q.shape[-1] ** 0.5"))

    assert kernel is not None
    assert kernel.form == ("causal attention" if "attend<true>" in kernel.source else "attention")
    for part in ("#include <warpsmith/attention_heads.cuh>", *parts):
        assert part in kernel.source


@pytest.mark.parametrize(
    ("tensors", "result"),
    [
        (f'{FIXED}; mask=normal("n, n")', SDPA.format(", attn_mask=mask")),
        (FIXED, BY_HAND.format(SCORES, f"{ONES}.triu()")),  # not the own key either
        (FIXED, BY_HAND.format(SCORES, f"{ONES}.tril()")),  # the later keys
        (FIXED, BY_HAND.format(SCORES, f"{ONES}.triu(1)").replace("'-inf'", "'-1e9'")),
        (FIXED, "torch.softmax(q @ k.mT, dim=-2) @ v"),
        (FIXED, "torch.softmax(q @ k.mT / q.shape[2], dim=-1) @ v"),
        (FIXED, "torch.softmax(q @ k.mT + 1, dim=-1) @ v"),
        (FIXED, "torch.softmax(q @ k.mT, dim=-1) @ v * 2"),
        (FIXED, "(torch.softmax(q @ k.mT, dim=-1) @ v).transpose(2, 3)"),
        (
            BESIDE.replace("512", "64"),
            f"F.scaled_dot_product_attention(q, k, {TURNED.format('v').replace('8, 64', '8, 8')}.reshape(v.shape))",
        ),
        (BESIDE, "F.scaled_dot_product_attention(" + ", ".join(f"{x}.unflatten(2, (8, 64)).mT" for x in "qkv") + ")"),
        (FIXED.replace("n, 64", "64, 64"), "torch.softmax(q @ k, dim=-1) @ v"),
        (FIXED.replace("n, 64", "64, 64"), "torch.softmax(q @ k.mT, dim=-1) @ v.mT"),
        (FIXED.replace("64", "160"), SDPA.format(", is_causal=True")),  # too wide
    ],
)
def test_what_is_almost_attention_is_not_claimed(tensors: str, result: str, tmp_path: Path) -> None:
    kernel = written(tmp_path, tensors, result)

    assert kernel is None or "attention_heads.cuh" not in kernel.source


def test_wide_heads_keep_the_file_of_the_suite(tmp_path: Path) -> None:
    kernel = written(tmp_path, SAME, SDPA.format(""), '{"batch": 1, "heads": 2, "n": 64, "w": 256}')

    assert kernel is not None
    assert kernel.form == "as warpsmith-100/attention"


class Attention:
    """A kernel that the form wrote, for the emulated device."""

    def __init__(self, folder: Path, result: str, tensors: str = FOUR, most_bytes: int = 256 << 20) -> None:
        folder.mkdir(exist_ok=True)
        task, contract, recorded = described(folder, tensors, sizes_for(tensors), result)
        kernel = form_kernel(task, contract, recorded)
        assert kernel is not None
        self.names = [each.name for each in contract.size_arguments]
        self.library = built(kernel.source, folder, most_bytes)
        self.library.workspace_bytes.restype = ctypes.c_int64
        self.plain_rows = ctypes.c_int64.in_dll(self.library, "plain_rows")  # lanes that computed one in the last call

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, beside: bool = False) -> Tensor:
        """`beside`: q and k are [batch, length, heads, width]."""
        lengths = [x.shape[1 if beside else 2] for x in (q, k)]
        sizes = dict(zip(("batch", "heads", "w"), (v.shape[0], v.shape[1], v.shape[3]), strict=True))
        sizes |= dict(zip(("n", "m"), lengths, strict=True))
        numbers = [ctypes.c_int64(sizes[name]) for name in self.names]
        space = aligned(torch.full((self.library.workspace_bytes(*numbers) // 4 + 1,), torch.nan), 0)
        guarded = torch.full((q.numel() + 8,), 7.5)
        out = guarded[4 : q.numel() + 4]
        out.fill_(torch.nan)
        pointers = [ctypes.c_void_p(each.data_ptr()) for each in (q, k, v, out)]
        self.plain_rows.value = 0
        assert self.library.launch(*pointers, *numbers, ctypes.c_void_p(space.data_ptr()), None) == 0
        assert (torch.cat((guarded[:4], guarded[q.numel() + 4 :])) == 7.5).all()
        return out.reshape(q.shape).clone()


def aligned(x: Tensor, offset: int) -> Tensor:
    """A copy that begins `offset` numbers after a multiple of 128 bytes."""
    memory = torch.full((x.numel() + 64 + offset,), torch.nan)
    first = (-memory.data_ptr() // 4) % 32 + offset
    copy = memory[first : first + x.numel()].view(x.shape)
    copy.copy_(x)
    return copy


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Attention]:
    """By whether it is causal."""
    folder = tmp_path_factory.mktemp("attention")
    return {
        causal: Attention(folder / str(causal), SDPA.format(", is_causal=True" if causal else ""))
        for causal in (False, True)
    }


def drawn(*sizes: int, offset: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v of [batch, heads, queries, keys, width]."""
    batch, heads, queries, keys, width = sizes
    generator = torch.Generator().manual_seed(sum(sizes))
    q, k, v = (torch.randn(batch, heads, n, width, generator=generator) for n in (queries, keys, keys))
    return aligned(q, offset), aligned(k, offset), aligned(v, offset)


def expected(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """In double precision. A causal query does not see later keys, whatever they hold."""
    out = torch.zeros(q.shape, dtype=torch.float64)
    q, k, v = q.double(), k.double(), v.double()
    if not causal:
        return torch._safe_softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1) @ v
    for row in range(q.shape[2]):
        seen = min(row + 1, k.shape[2])
        scores = q[:, :, row : row + 1] @ k[:, :, :seen].mT / math.sqrt(q.shape[-1])
        out[:, :, row : row + 1] = torch._safe_softmax(scores, -1) @ v[:, :, :seen]
    return out


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("sizes", "offset", "plain"),
    [
        ((1, 2, 1, 1, 64), 0, True),
        ((1, 1, 63, 63, 64), 0, False),
        ((1, 2, 64, 64, 64), 0, False),
        ((1, 1, 65, 65, 64), 1, False),  # not aligned
        ((1, 1, 130, 130, 64), 0, False),
        ((2, 1, 130, 200, 33), 3, False),  # two tiles of queries in a block; the third tile is alone
        ((1, 1, 330, 70, 64), 0, False),  # more queries than keys
        ((1, 1, 20, 260, 32), 0, False),
        ((1, 3, 5, 129, 7), 0, False),
        ((1, 2, 130, 66, 128), 0, False),
        ((1, 1, 300, 130, 100), 0, False),
        ((1, 1, 70, 129, 65), 1, False),
        ((3, 2, 9, 70, 64), 0, True),  # plain
        ((1, 1, 40, 35, 150), 0, True),  # plain, more than one stretch of columns
        ((1, 1, 17, 1, 1), 0, False),
    ],
)
def test_attention_has_the_accuracy_of_float32(
    kernels: dict[bool, Attention], sizes: tuple[int, ...], offset: int, plain: bool, causal: bool
) -> None:
    q, k, v = drawn(*sizes, offset=offset)
    wanted = expected(q, k, v, causal)

    found = kernels[causal](q, k, v)

    assert ((found.double() - wanted).norm() / wanted.norm()).item() < MOST_ERROR
    # Rows that are computed again would hide wrong ones.
    assert (kernels[causal].plain_rows.value > 0) == plain


@pytest.mark.parametrize("sizes", [(0, 2, 5, 5, 64), (1, 2, 0, 5, 64), (1, 2, 5, 5, 0), (2, 1, 70, 0, 64)])
def test_empty_tensors(kernels: dict[bool, Attention], sizes: tuple[int, ...]) -> None:
    for kernel in kernels.values():
        assert (kernel(*drawn(*sizes)) == 0).all()


@pytest.mark.parametrize("scale", [1e-12, 1e-25, 1e12, 30.0])
def test_any_magnitude(kernels: dict[bool, Attention], scale: float) -> None:
    q, k, v = drawn(1, 1, 70, 70, 64)
    for given in ((q, k, aligned(v * scale, 0)), (aligned(q * scale, 0), aligned(k / scale, 0), v)):
        wanted = expected(*given, False)
        error = (kernels[False](*given).double() - wanted).norm() / wanted.norm()
        assert error.item() < MOST_ERROR


def test_sharp_and_equal_scores(kernels: dict[bool, Attention]) -> None:
    q, k, v = drawn(1, 1, 130, 140, 64)
    q[0, 0, :60] *= 40.0
    q[0, 0, 60] = 0.0
    k[0, 0, 100] = k[0, 0, 3] * 20.0
    wanted = expected(q, k, v, False)
    limit = (F.scaled_dot_product_attention(q, k, v).double() - wanted).norm() * 2 + wanted.norm() * MOST_ERROR

    assert (kernels[False](q, k, v).double() - wanted).norm() < limit
    assert kernels[False].plain_rows.value == 0


@pytest.mark.parametrize("tensor", ["q", "k", "v"])
@pytest.mark.parametrize(
    ("special", "causal"), [(math.inf, True), (-math.inf, False), (math.nan, True), (3e38, False), (math.inf, False)]
)
def test_special_values_stay_where_they_are(
    kernels: dict[bool, Attention], tensor: str, special: float, causal: bool
) -> None:
    q, k, v = drawn(1, 1, 70, 75, 16)
    k[0, 0, :, 3] = k[0, 0, :, 3].abs() + 0.1
    {"q": q, "k": k, "v": v}[tensor][0, 0, 40, 3] = special
    wanted = expected(q, k, v, causal)

    found = kernels[causal](q, k, v)

    good = wanted.abs() < 1e37
    assert torch.allclose(found[good].double(), wanted[good], rtol=2e-5, atol=1e-5)
    assert (found[wanted.isnan()].isnan()).all()
    assert (found[wanted.isinf()] == wanted[wanted.isinf()].float()).all()


def test_heads_may_lie_side_by_side(tmp_path: Path) -> None:
    tensors = 'q=normal("batch, n, heads, w"); k=normal("batch, m, heads, w"); v=normal("batch, heads, m, w")'
    result = "F.scaled_dot_product_attention(q.transpose(1, 2), k.permute(0, 2, 1, 3), v).transpose(1, 2)"
    attention = Attention(tmp_path, result, tensors, most_bytes=500 << 10)  # two or three heads at a time
    for n, m, width in ((70, 140, 64), (130, 70, 31), (5, 9, 20)):
        q, k, v = drawn(2, 3, n, m, width)
        if n == 130:
            v[1, 1, 40, 2] = math.inf
        wanted = expected(q, k, v, False).transpose(1, 2)

        found = attention(aligned(q.transpose(1, 2), 0), aligned(k.transpose(1, 2), 0), v, beside=True)

        good = wanted.isfinite()
        assert (found[~good] == math.inf).all()
        assert ((found.double() - wanted)[good].norm() / wanted[good].norm()).item() < MOST_ERROR
        assert (attention.plain_rows.value == 0) == (n == 70)


def test_scores_that_are_all_minus_infinity_give_zeros(kernels: dict[bool, Attention]) -> None:
    q, k, v = drawn(1, 1, 70, 75, 16)
    q[0, 0, 5, 2] = -math.inf
    k[0, 0, :, 2] = 1.0

    found = kernels[False](q, k, v)

    assert (found[0, 0, 5] == 0).all()
    assert torch.equal(found.isfinite(), torch.ones_like(found, dtype=torch.bool))
    q[0, 0, 5] = 0.0
    wanted = expected(q, k, v, False)
    wanted[0, 0, 5] = 0.0
    assert ((found.double() - wanted).norm() / wanted.norm()).item() < MOST_ERROR
    assert kernels[False].plain_rows.value == 32


def built(source: str, folder: Path, most_bytes: int) -> ctypes.CDLL:
    emulator, *devices = (path.read_text(encoding="utf-8") for path in DEVICE)
    # Threads that look at a barrier in shared memory again and again stay runnable.
    runnable = "  for (int t = 0; t < count; ++t) if (threads[t].wait == RUNNABLE) return true;\n"
    emulator = replaced(
        emulator, "  if (any) return true;\n  bool block", f"  if (any) return true;\n{runnable}  bool block"
    )
    emulator = replaced(emulator, "__shared__ static thread_local", "__shared__ static thread_local\n#define __host__")
    text = emulator + "".join(devices) + translated(source, most_bytes)
    return compile_and_load(text, folder, ("-Og",))


def translated(source: str, most_bytes: int) -> str:
    """The form's text with the headers that it includes, as C++ for the emulated device."""
    split, flash, heads = (
        LIBRARY.joinpath("warpsmith", f"{name}.cuh").read_text(encoding="utf-8")
        for name in ("split_product", "flash_attention", "attention_heads")
    )
    # Sizes, layout, and how factors are split; attention_device.h has the instructions.
    split = split[: split.index("// Launches whichever of the two fits the matrix.")] + "}\n}\n"
    flash = flash[: flash.index("template <int GROUPS_, int STAGES_>")] + "}\n}\n"
    for name in ("float exp2_approximate", "void multiply_registers", "float2 load_pair"):
        flash, count = re.subn(rf"__device__ __forceinline__ {name}\(.*?\n}}\n", "", flash, flags=re.DOTALL)
        assert count == 1
    heads = replaced(
        heads, "  float top = -INFINITY, sum = 0.f, total", "  ++plain_rows;\n  float top = -INFINITY, sum = 0.f, total"
    )
    heads = replaced(heads, "256ll << 20", str(most_bytes))
    text = 'extern "C" { int64_t plain_rows; }\n' + split + flash + heads + source
    text = re.sub(r"#include <.*?>|#pragma once", "", text)
    text = replaced(
        text,
        "extern __shared__ __align__(128) char memory[];",
        "char* const memory = reinterpret_cast<char*>(emulated::dynamic_bytes);",
    )
    text = re.sub(r'asm volatile\("(fence[^"]*)?"[^;]*\);', ";", text)
    assert "asm" not in text
    text, count = _LAUNCH.subn(r"emulated::launch(dim3(\2), \3, \4, [=] { \1(\5); });", text)
    assert count == 3
    return text


def replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1
    return text.replace(old, new)
