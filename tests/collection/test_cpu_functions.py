"""`cpu/functions.h`: errors against double precision, special values, and loops that compilers vectorise."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from warpsmith.backends import cpu
from warpsmith.backends.library import LIBRARY
from warpsmith.backends.toolchain import find_cxx
from warpsmith.lowering.math_functions import HEADER, MATH_FUNCTIONS

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "vector_exp": torch.exp,
    "vector_expm1": torch.expm1,
    "vector_tanh": torch.tanh,
    "vector_erf": torch.erf,
    "vector_log": torch.log,
    "vector_log1p": torch.log1p,
}
BELOW = ("vector_exp_below", "vector_expm1_below")
MOST = 4e-7  # relative error
SMALLEST = 2e-38  # what is smaller may be zero
OTHER = "aarch64" if platform.machine() == "x86_64" else "x86_64"
CROSS = f"{OTHER}-linux-gnu-g++"
CROSS_FLAGS = {"aarch64": (), "x86_64": ("-march=x86-64-v3",)}


def program() -> str:
    """A loop over an array for each function."""
    loops = [
        f'extern "C" __attribute__((visibility("default"))) void {name}_of(const float* x, float* y, int64_t n) {{\n'
        f"#pragma omp simd\n  for (int64_t i = 0; i < n; ++i) y[i] = warpsmith::{name}(x[i]);\n}}"
        for name in (*FUNCTIONS, *BELOW)
    ]
    return "\n".join(["#include <warpsmith/cpu/functions.h>", *loops]) + "\n"


def compiled(compiler: tuple[str, ...], folder: Path, *flags: str) -> str:
    """Compile the program to `functions.so`; the compiler's messages."""
    (folder / "functions.cpp").write_text(program(), encoding="utf-8")
    command = [*compiler, *cpu._FLAGS, *flags, f"-I{LIBRARY}", "functions.cpp", "-o", "functions.so"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def native() -> tuple[str, ...]:
    compiler = find_cxx(os.environ)
    assert compiler is not None
    return compiler.command


def inputs() -> Tensor:
    """Floats of every size and sign, the ranges that users' values have, and special values."""
    every = torch.arange(-(2**31), 2**31, 4099, dtype=torch.int64).to(torch.int32).view(torch.float32)
    usual = torch.linspace(-20, 20, 400_001)
    special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        1e-40,
        -1e-40,
        88.7,
        88.73,
        3.3e38,
        -3.3e38,
        float("inf"),
        float("-inf"),
        float("nan"),
    ]
    return torch.cat([every, usual, torch.tensor(special)])


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("functions")
    compiled(native(), folder, "-march=native")
    return ctypes.CDLL(str(folder / "functions.so"))


def computed(library: ctypes.CDLL, name: str, x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    getattr(library, f"{name}_of")(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_int64(len(x)))
    return y.double()


def assert_close(found: Tensor, x: Tensor, wanted: Tensor) -> None:
    assert torch.equal(found.isnan(), wanted.isnan())
    infinite = wanted.float().isinf()
    assert torch.equal(found[infinite], wanted[infinite].float().double())
    error = (found - wanted).abs() / (wanted.abs() * MOST + SMALLEST)
    error[infinite | wanted.isnan()] = 0
    worst = int(error.argmax())
    assert error[worst] <= 1, f"{found[worst]} at {x[worst]}, not {wanted[worst]}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_are_below_a_few_units_in_the_last_place(name: str, library: ctypes.CDLL) -> None:
    x = inputs()

    assert_close(computed(library, name, x), x, FUNCTIONS[name](x.double()))


@pytest.mark.parametrize("name", BELOW)
def test_functions_of_limited_arguments_are_right_there(name: str, library: ctypes.CDLL) -> None:
    x = inputs()
    x = x[~(x > 88)]

    assert_close(computed(library, name, x), x, FUNCTIONS[name.removesuffix("_below")](x.double()))


def vectorised(report: str) -> int:
    """The number of loops that a report of GCC says were vectorised."""
    return len(set(re.findall(r"functions\.cpp:(\d+):\d+: optimized: loop vectorized", report)))


def test_loops_are_vectorised_here(tmp_path: Path) -> None:
    compiler = find_cxx(os.environ)
    assert compiler is not None
    if compiler.family != "gcc":
        pytest.skip("only GCC writes the report of vectorised loops that this test reads")

    report = compiled(native(), tmp_path, "-march=native", "-fopt-info-vec-optimized")

    assert vectorised(report) == len(FUNCTIONS) + len(BELOW)


@pytest.mark.skipif(shutil.which(CROSS) is None, reason=f"{CROSS} is not installed")
def test_loops_are_vectorised_on_the_other_architecture(tmp_path: Path) -> None:
    report = compiled((CROSS,), tmp_path, *CROSS_FLAGS[OTHER], "-fopt-info-vec-optimized")

    assert vectorised(report) == len(FUNCTIONS) + len(BELOW)


def test_templates_copy_every_function_of_the_header() -> None:
    text = HEADER.read_text(encoding="utf-8")

    assert text.count("\ninline ") == len(MATH_FUNCTIONS) - 1  # `fast_tanh` is for CUDA
    for name, (needs, _) in MATH_FUNCTIONS.items():
        assert list(MATH_FUNCTIONS).index(name) > max((list(MATH_FUNCTIONS).index(n) for n in needs), default=-1)
    assert MATH_FUNCTIONS["vector_tanh"][0] == ("exp_parts",)
    assert "\nINLINE float vector_tanh(float x) {\n" in MATH_FUNCTIONS["vector_tanh"][1]
