"""Duplicates are recognised, and only duplicates."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpsmith.core.candidate import Candidate, SourceFile
from warpsmith.core.sameness import fingerprint
from warpsmith.core.tokens import meaningful, tokens

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
CPU = """
#include <cmath>
#include <omp.h>
extern "C" int launch(const float* a, float* out, int64_t n, void* workspace, void* stream) {
    double total = 0.0;
    #pragma omp parallel for reduction(+ : total) schedule(static)
    for (int64_t i = 0; i < n; ++i) { total += std::sqrt(a[i]); }
    auto half_of = [](double number) { return number / 2; };
    out[0] = half_of(total);
    return 0;
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


def renamed(text: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        assert re.search(rf"\b{old}\b", text), old
        text = re.sub(rf"\b{old}\b", new, text)
    return text


@pytest.mark.parametrize(
    "same",
    [
        re.sub(r"//(?! tune)[^\n]*|/\*.*?\*/", "", CUDA, flags=re.DOTALL),
        CUDA.replace("    ", "\t").replace("\n}", "\n\n}").replace("\n", "\r\n"),
        CUDA.replace(
            "#include <cuda_runtime.h>\n#include <cmath>", "#include  <cmath>\n# include <cuda_runtime.h> // x"
        ),
        renamed(
            CUDA, ("sum", "acc"), ("partial", "cache"), ("rows_kernel", "k2"), ("twice", "double_it"), ("value", "t")
        ),
        renamed(CUDA, ("largest", "top"), ("grid", "blocks"), ("i", "idx"), ("n", "elements"), ("result", "dst")),
        renamed(CUDA, ("sum", "SWAP"), ("largest", "sum"), ("SWAP", "largest")),
    ],
    ids=["comments", "white-space", "includes", "names", "more-names", "names-exchanged"],
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
        # A name of one's own here, a library's there.
        (
            "void f() { float max2 = 1; } int g() { return max2(1, 2); }",
            "void f() { float min2 = 1; } int g() { return min2(1, 2); }",
        ),
        (
            "void f() { float max = 1; } int g() { return max(1, 2); }",
            "void f() { float min = 1; } int g() { return min(1, 2); }",
        ),
        (
            "void f() { dim3 ceil(1); } int g(int a) { return ceil(a); }",
            "void f() { dim3 floor(1); } int g(int a) { return floor(a); }",
        ),
        (
            "using lib::one; using lib::two; void f() { int one; } int g() { return one; }",
            "using lib::one; using lib::two; void f() { int two; } int g() { return two; }",
        ),
        (
            "enum { half = 1 }; float f(float q) { return half * sinpi(q); }",
            "enum { half = 1 }; float f(float q) { return half * cospi(q); }",
        ),
        ("int shared;\n#pragma omp parallel default(shared)\n", "int none;\n#pragma omp parallel default(none)\n"),
        ("int unroll;\n#pragma unroll\n", "int nounroll;\n#pragma nounroll\n"),
        # Members: where they stand decides.
        (
            "struct P { float a; float b; }; float f(P p) { return p.a; }",
            "struct P { float b; float a; }; float f(P p) { return p.a; }",
        ),
        # A product with a library function is no declaration.
        (
            "float f(float delta_t, float q) { return delta_t * sinpi(q); }",
            "float f(float delta_t, float q) { return delta_t * cospi(q); }",
        ),
        ("#define half 0.5f\nfloat f() { return half * M_PI; }", "#define half 0.5f\nfloat f() { return half * M_E; }"),
        # Names as text.
        ("#define S(v) #v\nvoid f() { int a; g(S(a)); }", "#define S(v) #v\nvoid f() { int b; g(S(b)); }"),
        (
            "#define G(v, m) v.m\nfloat f(float4 v) { float x = G(v, x); return x; }",
            "#define G(v, m) v.m\nfloat f(float4 v) { float y = G(v, y); return y; }",
        ),
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
        ("int shared; \n#pragma omp x shared(shared)\n", "int lastly; \n#pragma omp x lastly(lastly)\n"),
        ('#include "a.h"\n#include "b.h"\n', '#include "b.h"\n#include "a.h"\n'),
    ],
)
def test_programs_that_only_look_alike(one: str, other: str) -> None:
    assert of(one) != of(other)


def test_clauses_of_pragmas_follow_their_variables() -> None:
    assert of(renamed(CPU, ("total", "acc"), ("i", "row"), ("number", "z")), "k.cpp", "cpu") == of(CPU, "k.cpp", "cpu")
    assert of(CPU.replace("(+ : total)", "(* : total)"), "k.cpp", "cpu") != of(CPU, "k.cpp", "cpu")


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


def test_a_name_declared_in_one_file_is_followed_into_another() -> None:
    def pair(name: str) -> str:
        header = f"inline float {name}(float q) {{ return q; }}"
        main = f'#include "part.h"\nextern "C" int launch(float* out) {{ out[0] = {name}(1); return 0; }}'
        return fingerprint(Candidate((SourceFile("k.cpp", main), SourceFile("part.h", header)), "cpu"))

    assert pair("first") == pair("second")


@pytest.mark.parametrize(
    "same",
    [
        PYTHON.replace('"""A kernel."""', "").replace('    """Launch it."""\n', "").replace("  # one program each", ""),
        renamed(PYTHON, ("offsets", "offs"), ("add_kernel", "kernel"), ("count", "n_elements")),
        PYTHON.replace("tl.store(y_ptr + offsets, ", "tl.store(\n        (y_ptr + offsets),\n        "),
    ],
    ids=["docstrings-and-comments", "names", "layout"],
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
        ("def f(a):\n    return g('a', a)\n", "def f(b):\n    return g('b', b)\n"),
        (
            "class C:\n    a = 1\n    def f(self):\n        return self.a\n",
            "class C:\n    b = 1\n    def f(self):\n        return self.a\n",
        ),
        (
            "def f():\n    max = 1\ndef g():\n    return max(1, 2)\n",
            "def f():\n    min = 1\ndef g():\n    return min(1, 2)\n",
        ),
        ("def f(a, b):\n    pass\nf(a=1, b=2)\n", "def f(b, a):\n    pass\nf(a=1, b=2)\n"),
        (
            "from t import *\ndef f():\n    sin = 1\ndef g():\n    return sin(1)\n",
            "from t import *\ndef f():\n    cos = 1\ndef g():\n    return cos(1)\n",
        ),
        ("x = 1\nprint(locals()['x'])\n", "y = 1\nprint(locals()['x'])\n"),
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
    words = list(meaningful(source))
    word = data.draw(st.sampled_from([w for w in words if w.kind in ("number", "string", "sign")]))
    new = {"number": word.text + "1", "string": word.text[:-1] + "q" + word.text[-1:]}.get(word.kind, word.text + " ~ ")

    assert of(source[: word.start] + new + source[word.start + len(word.text) :]) != of(source)


@settings(max_examples=60)
@given(source=st.sampled_from(SOURCES), data=st.data())
def test_a_name_changed_in_one_place_only_changes_the_fingerprint(source: str, data: st.DataObject) -> None:
    names = [w for w in meaningful(source) if w.kind == "name"]
    spelled = [w.text for w in names]
    word = data.draw(st.sampled_from([w for w in names if spelled.count(w.text) > 1]))
    other = data.draw(st.sampled_from(["other_name", *(s for s in sorted(set(spelled)) if s != word.text)]))

    assert of(source[: word.start] + other + source[word.start + len(word.text) :]) != of(source)


OWN = ("sum", "largest", "partial", "rows_kernel", "twice", "value", "in", "result", "count", "i", "v", "grid", "n")


@settings(max_examples=40)
@given(new=st.permutations([*OWN, *(f"other{number}" for number in range(len(OWN)))]))
def test_own_names_may_be_exchanged_at_will(new: list[str]) -> None:
    chosen = dict(zip(OWN, new, strict=False))
    text = re.sub(r"(?<!\.)\b\w+\b", lambda found: chosen.get(found[0], found[0]), CUDA)

    assert of(text) == of(CUDA)


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
