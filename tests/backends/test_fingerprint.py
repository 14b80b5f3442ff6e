"""Duplicates are recognised, and only duplicates."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpsmith.backends.fingerprint import fingerprint
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.source_text import code_tokens, tokens

HONEST = Path(__file__).resolve().parent.parent / "honest"
SOURCES = [path.read_text() for path in sorted(HONEST.glob("*.cu")) + sorted(HONEST.glob("*.cpp"))]

CUDA = """
#include <cuda_runtime.h>
#include <cmath>
// tune: BLOCK = 128, 256
#define SCALE 2.0f
__device__ __forceinline__ float twice(float value) { return value * SCALE; }

/* one row per block */
__global__ void __launch_bounds__(256) rows_kernel(const float* __restrict__ in, float* result, int64_t count) {
    __shared__ float partial[32];
    float sum = 0.0f, largest = -1.0f;
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        sum += expf(in[i]);  // accumulate
        largest = fmaxf(largest, in[i]);
    }
    partial[threadIdx.x] = twice(sum) + largest;
    float4 v = reinterpret_cast<const float4*>(in)[0];
    float x = v.x;
    result[blockIdx.x] = partial[0] + x;
}

extern "C" int launch(const float* x, float* out, int64_t n, void* workspace, void* stream) {
    dim3 grid(1), block(BLOCK);
    rows_kernel<<<grid, block, 0, (cudaStream_t)stream>>>(x, out, n);
    return (int)cudaGetLastError();
}
"""
PYTHON = '''
"""A kernel."""
import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    tl.store(y_ptr + offsets, tl.exp(tl.load(x_ptr + offsets, mask=mask)), mask=mask)


def launch(x, out, n):
    """Launch it."""
    grid = (triton.cdiv(n, 256),)  # one program each
    add_kernel[grid](x, out, n, BLOCK=256)
'''


def of(text: str, name: str = "kernel.cu", backend: str = "cuda") -> str:
    return fingerprint(Candidate((SourceFile(name, text),), backend))


@pytest.mark.parametrize(
    "same",
    [
        re.sub(r"//(?! tune)[^\n]*|/\*.*?\*/", "", CUDA, flags=re.DOTALL),
        CUDA.replace("    ", "\t").replace("\n}", "\n\n}").replace("\n", "\r\n"),
        CUDA.replace(
            "#include <cuda_runtime.h>\n#include <cmath>", "#include  <cmath>\n# include <cuda_runtime.h> // x"
        ),
    ],
    ids=["comments", "white-space", "includes"],
)
def test_the_same_cuda_program_written_otherwise(same: str) -> None:
    assert same != CUDA
    assert of(same) == of(CUDA)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("0.0f", "0.1f"),
        ("expf(", "exp2f("),
        ("fmaxf(", "fminf("),
        ("i += blockDim.x", "i += gridDim.x"),
        ("v.x", "v.y"),
        ("float x = v.x; result", "float y = v.y; result"),
        ("int64_t count", "int count"),
        ("value * SCALE", "value + SCALE"),
        ("tune: BLOCK = 128, 256", "tune: BLOCK = 128, 512"),
        ("#define SCALE 2.0f", "#define SCALE 4.0f"),
        ("#define SCALE 2.0f", "#define SCALE (2.0f)"),
        ("<cmath>", "<cfloat>"),
        ("largest, in[i]", "sum, in[i]"),
        ("partial[0] + x", "x + partial[0]"),
        ("__shared__ float partial", "float partial"),
        ("(x, out, n)", "(x, out, 1)"),
        ("launch(const", "launcher(const"),
        ("__launch_bounds__(256)", "__launch_bounds__(128)"),
    ],
)
def test_a_small_difference_counts(old: str, new: str) -> None:
    base = CUDA.replace("float x = v.x;\n    result", "float x = v.x; result")
    assert old in base

    assert of(base.replace(old, new, 1)) != of(base)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # White space that means something.
        ("int x;\n// tune: B = 1, 2\n", "int x; // tune: B = 1, 2\n"),
        ("/*\n// tune: B = 1, 2\n*/", "/* // tune: B = 1, 2\n*/"),
        ("#define F(a) a\n", "#define F (a) a\n"),
        ("int f(int a, int b) { return a + +b; }", "int f(int a, int b) { return a ++b; }"),
        ('const char* s = "a b";', 'const char* s = "a  b";'),
        ('const char* s = "// a";', 'const char* s = "// b";'),
        ("#include <a/*b>\nint f() { return 1; }", "#include <a/*b>\nint f() { return 2; }"),
        ("int a\\\nb;", "int a b;"),
        ("#pragma omp for schedule(static)\n", "#pragma omp for schedule(dynamic)\n"),
        ('#include "a.h"\n#include "b.h"\n', '#include "b.h"\n#include "a.h"\n'),
    ],
)
def test_programs_that_only_look_alike(one: str, other: str) -> None:
    assert of(one) != of(other)


def test_everything_around_the_text_counts_but_the_main_files_name_and_the_origin() -> None:
    base = Candidate((SourceFile("kernel.cu", CUDA),), "cuda")
    same = [
        replace(base, files=(SourceFile("softmax.cu", CUDA),)),
        replace(base, thought="other", strategy="other", parents=("a",), operator="mutation"),
    ]
    different = [
        replace(base, backend="cpu"),
        replace(base, defines=(("BLOCK", "256"),)),
        replace(base, files=(*base.files, SourceFile("part.h", ""))),
        replace(base, entry="rows_kernel(x)"),
    ]

    assert {fingerprint(other) for other in same} == {fingerprint(base)}
    assert len({fingerprint(other) for other in (base, *different)}) == 1 + len(different)


@pytest.mark.parametrize(
    "same",
    [
        PYTHON.replace('"""A kernel."""', "").replace('    """Launch it."""\n', "").replace("  # one program each", ""),
        PYTHON.replace("tl.store(y_ptr + offsets, ", "tl.store(\n        (y_ptr + offsets),\n        "),
    ],
    ids=["docstrings-and-comments", "layout"],
)
def test_the_same_python_program_written_otherwise(same: str) -> None:
    assert same != PYTHON

    assert of(same, "kernel.py", "triton") == of(PYTHON, "kernel.py", "triton")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tl.exp", "tl.log"),
        ("cdiv(n, 256)", "cdiv(n, 128)"),
        ("BLOCK=256", "BLOCK=128"),
        ("offsets < count", "offsets <= count"),
        ("def launch", "def launched"),
        ("import torch\n", ""),
        ("x_ptr + offsets, mask", "y_ptr + offsets, mask"),
    ],
)
def test_a_small_difference_in_python_counts(old: str, new: str) -> None:
    assert old in PYTHON

    assert of(PYTHON.replace(old, new, 1), "kernel.py", "triton") != of(PYTHON, "kernel.py", "triton")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("if x:\n    a = 1\nb = 2\n", "if x:\n    a = 1\n    b = 2\n"),
        ("broken(:\n  1\n", "broken(:\n   1\n"),
    ],
)
def test_python_programs_that_only_look_alike(one: str, other: str) -> None:
    assert of(one, "k.py", "triton") != of(other, "k.py", "triton")


def test_thirty_honest_kernels_are_all_different() -> None:
    assert len({of(text) for text in SOURCES}) == len(SOURCES) > 50


@settings(max_examples=60)
@given(source=st.sampled_from(SOURCES), data=st.data())
def test_any_changed_word_changes_the_fingerprint(source: str, data: st.DataObject) -> None:
    words = list(code_tokens(source))
    word = data.draw(st.sampled_from([w for w in words if w.kind in ("number", "string", "sign")]))
    new = {"number": word.text + "1", "string": word.text[:-1] + "q" + word.text[-1:]}.get(word.kind, word.text + " ~ ")

    assert of(source[: word.start] + new + source[word.start + len(word.text) :]) != of(source)


@settings(max_examples=60)
@given(source=st.sampled_from(SOURCES), data=st.data())
def test_a_name_changed_in_one_place_only_changes_the_fingerprint(source: str, data: st.DataObject) -> None:
    names = [w for w in code_tokens(source) if w.kind == "name"]
    spelled = [w.text for w in names]
    word = data.draw(st.sampled_from([w for w in names if spelled.count(w.text) > 1]))
    other = data.draw(st.sampled_from(["other_name", *(s for s in sorted(set(spelled)) if s != word.text)]))

    assert of(source[: word.start] + other + source[word.start + len(word.text) :]) != of(source)


@settings(max_examples=40)
@given(source=st.sampled_from(SOURCES), filler=st.sampled_from([" ", "\t", " /* c */ ", " // c\n", "\r\n"]))
def test_space_and_comments_never_count(source: str, filler: str) -> None:
    parts = []
    directive = False
    for token in tokens(source):
        directive = (directive or token.text == "#") and token.kind != "newline"
        plain = token.kind == "space" and not directive
        parts.append(filler if plain else token.text)
        if token.kind == "newline":
            parts.append("\n")

    assert of("".join(parts)) == of(source)


@settings(max_examples=150)
@given(
    text=st.one_of(st.text(), st.text(alphabet="#\\\n\"'/*(){}<>:;,. \tdefineinclfloatx0R")),
    name=st.sampled_from(["k.cu", "k.py"]),
)
def test_any_text_has_a_fingerprint(text: str, name: str) -> None:
    assert re.fullmatch(r"[0-9a-f]{16}", of(text, name))
