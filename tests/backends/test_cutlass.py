"""CUTLASS for CUDA candidates: where it is looked for, what depends on it, and what is said where it is missing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from warpsmith.backends.builder import Builder
from warpsmith.backends.cuda import CudaBackend
from warpsmith.backends.cutlass import PACKAGE, VARIABLE, Cutlass, find_cutlass
from warpsmith.backends.elf import read_symbols
from warpsmith.backends.source import read_candidate
from warpsmith.backends.toolchain import find_nvcc
from warpsmith.evaluator.guards.imports import PLUGIN as IMPORTS
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model.build import Artifact, BuildFailure, DeviceKind, Target
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.evaluation import Status
from warpsmith.model.evidence import BuiltObject
from warpsmith.model.settings import Paths
from warpsmith.model.task import Task

ROOT = Path(__file__).resolve().parents[1]
HOPPER = Target(DeviceKind.CUDA, "sm_90a")
LAUNCH = "int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream)"
KERNEL = f"""
__global__ void twice(const float* x, float* out, int64_t n) {{
  const int64_t i = blockIdx.x * int64_t(256) + threadIdx.x;
  if (i < n) out[i] = FACTOR * x[i];
}}
{LAUNCH} {{
  twice<<<(rows * cols + 255) / 256, 256, 0, (cudaStream_t)stream>>>(x, out, rows * cols);
  return (int)cudaGetLastError();
}}
"""
PLAIN = f"#define FACTOR 2.0f\n{KERNEL}"
INCLUDING = f"#include <cutlass/factor.h>\n{KERNEL}"
ASKING = f"""
#if __has_include(<cutlass/factor.h>)
#include <cutlass/factor.h>
#else
#define FACTOR 2.0f
#endif
{KERNEL}"""
# A kernel as CuTe's tutorials write them: layouts, tiles, a copy through registers.
CUTE = """
#include <cute/tensor.hpp>
template <class In, class Out>
__global__ void copy_tiles(In x, Out out) {
  using namespace cute;
  auto tile = make_shape(Int<32>{}, Int<32>{});
  auto place = make_coord(blockIdx.x, blockIdx.y);
  auto threads = make_layout(make_shape(Int<8>{}, Int<32>{}), LayoutRight{});
  auto from = local_partition(local_tile(x, tile, place), threads, threadIdx.x);
  auto to = local_partition(local_tile(out, tile, place), threads, threadIdx.x);
  auto held = make_tensor_like(from);
  copy(from, held);
  copy(held, to);
}
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  using namespace cute;
  auto layout = make_layout(make_shape(int(rows), int(cols)), make_stride(int(cols), Int<1>{}));
  auto from = make_tensor(make_gmem_ptr(x), layout);
  auto to = make_tensor(make_gmem_ptr(out), layout);
  copy_tiles<<<dim3(rows / 32, cols / 32), 256, 0, (cudaStream_t)stream>>>(from, to);
  return (int)cudaGetLastError();
}
"""


def put_headers(include: Path, version: str = "4.2.0") -> Path:
    """Headers that can be told from CUTLASS by nothing but their size."""
    folder = include / "cutlass"
    folder.mkdir(parents=True)
    numbers = zip(("MAJOR", "MINOR", "PATCH"), version.split("."), strict=True)
    (folder / "version.h").write_text("".join(f"#define CUTLASS_{part} {number} \n" for part, number in numbers))
    (folder / "factor.h").write_text("#pragma once\n#define FACTOR 2.0f\n")
    return include


def candidate(text: str) -> Candidate:
    return Candidate((SourceFile("candidate.cu", text),), "cuda")


@pytest.fixture
def backend_with(tmp_path: Path) -> Callable[[Path | None], CudaBackend]:
    """A backend that finds CUTLASS in a folder, or nowhere; all share a build cache."""

    def made(root: Path | None) -> CudaBackend:
        environ = {"PATH": os.environ["PATH"], VARIABLE: str(root or tmp_path / "nowhere")}
        if find_nvcc(environ) is None:
            pytest.skip("no nvcc on this machine")
        return CudaBackend(Builder(Paths(tmp_path / "cache"), environment=environ))

    return made


# --- where it is ---


def test_the_variable_names_a_checkout_or_its_headers(tmp_path: Path) -> None:
    include = put_headers(tmp_path / "checkout" / "include")
    tools = tmp_path / "checkout" / "tools" / "util" / "include"
    tools.mkdir(parents=True)
    found = Cutlass("4.2.0", (include, tools), "CUTLASS_PATH")
    assert find_cutlass({VARIABLE: str(tmp_path / "checkout")}) == found
    assert find_cutlass({VARIABLE: str(include)}) == found
    loose = put_headers(tmp_path / "headers", "3.5.1")
    assert find_cutlass({VARIABLE: str(loose)}) == Cutlass("3.5.1", (loose,), "CUTLASS_PATH")


def test_the_package_is_found_where_the_variable_is_not_set(tmp_path: Path) -> None:
    include = put_headers(tmp_path / "site" / "cutlass_library" / "source" / "include")
    site = [str(tmp_path / "empty"), str(tmp_path / "site")]
    assert find_cutlass({}, site) == Cutlass("4.2.0", (include,), f"Python package {PACKAGE}")
    assert find_cutlass({VARIABLE: ""}, site) is not None
    assert find_cutlass({VARIABLE: str(tmp_path / "elsewhere")}, site) is None, "the user named another place"
    assert find_cutlass({}, site[:1]) is None


def test_headers_without_a_version_are_not_taken_for_cutlass(tmp_path: Path) -> None:
    include = put_headers(tmp_path / "include")
    (include / "cutlass" / "version.h").write_text("#define CUTLASS_MAJOR 4\n")
    assert find_cutlass({VARIABLE: str(tmp_path)}) is None


# --- what proposers read ---


def test_the_contract_names_it_where_it_is(softmax: Task, tmp_path: Path) -> None:
    def text(root: Path) -> str:
        return CudaBackend(Builder(environment={VARIABLE: str(root)})).contract(softmax).text

    without = text(tmp_path)
    assert "CUB and cooperative groups" in without
    assert "CUTLASS" not in without
    put_headers(tmp_path / "include")
    (line,) = (line for line in text(tmp_path).splitlines() if "CUTLASS" in line)
    assert line.startswith("- CUTLASS 4.2.0 with CuTe")
    assert "--expt-relaxed-constexpr" in line
    assert text(tmp_path).replace(f"{line}\n", "") == without
    put_headers(tmp_path / "old", "2.11.0")
    assert "CUTLASS 2.11.0, whose" in text(tmp_path / "old"), "CuTe came with 3.0"


# --- builds ---


@pytest.mark.nvcc
def test_only_builds_that_include_it_depend_on_it(
    backend_with: Callable[[Path | None], CudaBackend], softmax: Task, tmp_path: Path
) -> None:
    here, there, newer = tmp_path / "here", tmp_path / "there", tmp_path / "newer"
    put_headers(here / "include")
    put_headers(there)
    put_headers(newer, "4.3.0")

    def build(text: str, root: Path | None) -> Artifact | BuildFailure:
        backend = backend_with(root)
        return backend.build(candidate(text), backend.contract(softmax), HOPPER)

    missing = build(INCLUDING, None)
    assert isinstance(missing, BuildFailure)
    assert missing.reason == (
        "candidate.cu:1: error: CUTLASS is not installed here: write the kernel without <cutlass/factor.h>."
    )
    found = [build(INCLUDING, root) for root in (here, there, newer)]
    assert [made.cached for made in found if isinstance(made, Artifact)] == [False, True, False]
    assert isinstance(found[0], Artifact)
    assert found[0].compiler.endswith(", CUTLASS 4.2.0")
    plain = [build(PLAIN, root) for root in (None, here, newer)]
    assert [made.cached for made in plain if isinstance(made, Artifact)] == [False, True, True]
    assert isinstance(plain[0], Artifact)
    assert "CUTLASS" not in plain[0].compiler
    asking = [build(ASKING, root) for root in (None, here)]
    assert [made.cached for made in asking if isinstance(made, Artifact)] == [False, False], asking


@pytest.mark.nvcc
def test_a_header_that_the_installed_version_lacks_is_an_error_like_any_other(
    backend_with: Callable[[Path | None], CudaBackend], softmax: Task, tmp_path: Path
) -> None:
    put_headers(tmp_path)
    backend = backend_with(tmp_path)
    text = PLAIN.replace("#define", "#include <cutlass/of_tomorrow.h>\n#define", 1)
    made = backend.build(candidate(text), backend.contract(softmax), HOPPER)
    assert isinstance(made, BuildFailure)
    assert "cutlass/of_tomorrow.h: No such file" in made.reason


@pytest.mark.nvcc
def test_a_kernel_of_cute_builds_and_imports_nothing_that_is_refused(
    backend_with: Callable[[Path | None], CudaBackend], softmax: Task
) -> None:
    installed = find_cutlass({VARIABLE: os.environ["INSTALLED_CUTLASS_PATH"]})
    if installed is None:
        pytest.skip("CUTLASS is not installed on this machine")
    backend = backend_with(installed.folders[0])
    made = backend.build(candidate(CUTE), backend.contract(softmax), HOPPER)
    assert isinstance(made, Artifact), made.reason
    assert made.warnings == ""
    assert made.resources[0].kernel.startswith("copy_tiles<cute::Tensor<")
    symbols = read_symbols(made.library)
    assert IMPORTS.objection(BuiltObject("cuda", symbols.imports, symbols.needed)) is None


# --- torch extensions, which are compiled in a sandbox ---


@pytest.mark.slow
def test_an_extension_is_compiled_with_it_in_the_sandbox_and_judged_again_once_it_is_there(
    evaluator: Evaluator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT.parent / "examples" / "kernels" / "softmax_extension.cpp").read_text()
    file = tmp_path / "softmax_extension.cpp"
    file.write_text(f"#include <cutlass/factor.h>\nstatic_assert(FACTOR == 2.0f);\n{text}")
    candidate = read_candidate(file, entry="softmax_forward(x, 1)")
    task = ROOT / "kernels" / "tasks" / "softmax.py"
    missing = evaluator.evaluate_one(str(task), candidate)
    assert missing.status is Status.BUILD_ERROR
    assert missing.reason.startswith("softmax_extension.cpp:1")
    assert missing.reason.endswith("CUTLASS is not installed here: write the kernel without <cutlass/factor.h>.")
    put_headers(tmp_path / "private" / "include")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "private"))
    found = evaluator.evaluate_one(str(task), candidate)
    assert found.status is Status.OK, found.reason
    assert found.environment.compiler.endswith(", CUTLASS 4.2.0")
