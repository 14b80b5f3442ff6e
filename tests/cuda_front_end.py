"""Compiles CUDA sources to PTX without optimising: what most of a build is spent on says nothing about their text.

The tests that run on a GPU build kernels as users do, and so do most slow tests.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from warpsmith.backends.builder import CUDA_NAMES, HEADER, missing_headers
from warpsmith.backends.library import LIBRARY
from warpsmith.backends.toolchain import find_nvcc
from warpsmith.backends.tunables import macros
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.contract import Contract

FLAGS = ("-std=c++17", "-arch=sm_90a", "--extended-lambda", "--expt-relaxed-constexpr", "-ptx", "-G")


def compile_errors(source: str, contract: Contract, folder: Path) -> str:
    """What nvcc says against a kernel of a contract; "" if it says nothing."""
    compiler = find_nvcc(os.environ)
    assert compiler is not None, "tests that call this have the marker nvcc"
    (folder / HEADER).write_text(contract.header, encoding="utf-8")
    (folder / "kernel.cu").write_text(source, encoding="utf-8")
    headers = (HEADER, *missing_headers([source], CUDA_NAMES))
    includes = (f"-I{LIBRARY}", *(word for header in headers for word in ("-include", header)))
    defines = [f"-D{name}={value}" for name, value in macros(Candidate((SourceFile("kernel.cu", source),), "cuda"))]
    command = (*compiler.command, *compiler.search_flags, *FLAGS, *defines, *includes, "kernel.cu", "-o", "kernel.ptx")
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        return done.stderr or f"status {done.returncode}"
    made = (folder / "kernel.ptx").read_text(encoding="utf-8")
    return "" if ".entry " in made or "__global__" not in source else "the kernel of the source is not in what was made"
