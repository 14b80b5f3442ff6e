"""C and C++ parts compile for the architecture that this machine is not, and assume nothing about alignment.

Where no cross compiler is installed, the tests are skipped and say what to install.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OTHER = "aarch64" if platform.machine() == "x86_64" else "x86_64"
COMPILER = f"{OTHER}-linux-gnu-g++"
NATIVE = sorted((ROOT / "src/warpsmith/evaluator/native").glob("*.c"))
EMULATOR = ROOT / "tests/kernel_templates/emulator.h"
KERNELS = sorted((ROOT / "src/warpsmith/examples").glob("*.cpp"))
LIBRARY = ROOT / "src/warpsmith/kernels/include"
HEADERS = sorted((LIBRARY / "warpsmith/cpu").glob("*.h"))

needs_compiler = pytest.mark.skipif(
    shutil.which(COMPILER) is None,
    reason=f"{COMPILER} is not installed (apt-get install g++-{OTHER.replace('_', '-')}-linux-gnu)",
)


def compiled(language: str, text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Compile a text for the other architecture; nothing is linked."""
    source = folder / ("part.c" if language == "c" else "part.cpp")
    source.write_text(text, encoding="utf-8")
    standard = "-std=c11" if language == "c" else "-std=c++17"
    command = [COMPILER, "-x", language, standard, "-O1", "-fPIC", "-fopenmp", "-Wall", "-Wcast-align=strict", "-c"]
    command.append(f"-I{LIBRARY}")
    return subprocess.run(
        [*command, str(source), "-o", str(folder / "part.o")], capture_output=True, text=True, timeout=120, check=False
    )


@needs_compiler
@pytest.mark.parametrize("path", NATIVE, ids=lambda path: path.name)
def test_parts_of_the_candidates_process_compile(path: Path, tmp_path: Path) -> None:
    done = compiled("c", path.read_text(encoding="utf-8"), tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@needs_compiler
def test_the_emulated_device_compiles_and_its_memory_is_aligned_for_every_pack(tmp_path: Path) -> None:
    text = (
        f'#include "{EMULATOR}"\n'
        + """
struct alignas(32) Widest { double values[4]; };
static_assert(alignof(decltype(emulated::dynamic_bytes[0])) == 1);
int main() {
  const auto dynamic = reinterpret_cast<uintptr_t>(emulated::dynamic_bytes);
  const auto cells = reinterpret_cast<uintptr_t>(emulated::cells);
  return (dynamic % alignof(Widest) || cells % alignof(Widest)) ? 1 : 0;
}
"""
    )
    done = compiled("c++", text, tmp_path)

    assert done.returncode == 0, done.stderr


@needs_compiler
@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.name)
def test_examples_compile(path: Path, tmp_path: Path) -> None:
    prelude = "#include <algorithm>\n#include <cmath>\n#include <cstdint>\n#include <cstring>\n#include <limits>\n"
    done = compiled("c++", prelude + path.read_text(encoding="utf-8"), tmp_path)

    assert done.returncode == 0, done.stderr


@needs_compiler
def test_headers_of_the_library_compile(tmp_path: Path) -> None:
    done = compiled("c++", "".join(f'#include "{path}"\n' for path in HEADERS), tmp_path)

    assert HEADERS
    assert done.returncode == 0, done.stderr


def test_shared_memory_of_the_emulated_device_is_aligned_here_too() -> None:
    declared = [
        line for line in EMULATOR.read_text(encoding="utf-8").splitlines() if "thread_local unsigned char" in line
    ]

    assert declared
    assert all("alignas(128)" in line for line in declared)


def test_messages_and_caches_have_one_byte_order() -> None:
    assert sys.byteorder == "little"  # of every architecture that Warpsmith supports; buffers are shared as they are
