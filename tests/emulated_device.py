"""Compiles C++ that uses the emulated device of kernel_templates/emulator.h.

Reading the headers of the standard library takes longer than what most of these sources need besides: they are compiled
once in a test run for each set of options.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.shared_folder import shared_folder
from warpsmith.backends.toolchain import find_cxx

_STANDARD = (
    "setjmp.h",
    "ucontext.h",
    "algorithm",
    "array",
    "cmath",
    "condition_variable",
    "cstdint",
    "cstdio",
    "cstdlib",
    "cstring",
    "functional",
    "mutex",
    "thread",
    "type_traits",
    "vector",
)
# Fortified, a jump from one coroutine to another is an error: it goes up the stack.
_COMPILED = ("-std=c++17", "-w", "-fPIC", "-pthread", "-fmax-errors=3", "-fno-strict-aliasing", "-U_FORTIFY_SOURCE")


def compile_library(
    text: str, folder: Path, options: Sequence[str], macros: Sequence[str] = (), headers: Sequence[str] = ()
) -> Path:
    """The library of a source, written to a folder. `macros`: NAME=VALUE; `headers`: further ones of the compiler."""
    source, library = folder / "kernel.cpp", folder / "kernel.so"
    source.write_text(text, encoding="utf-8")
    compiler = find_cxx(os.environ)
    assert compiler is not None
    # What has the same name in two libraries of one process, such as a kernel's shared memory, stays apart.
    apart = ("-fno-gnu-unique",) if compiler.family == "gcc" else ()
    flags = (*_COMPILED, *apart, *options)
    header = _compiled_header((*compiler.command, *flags), (*_STANDARD, *headers))
    command = [*compiler.command, *flags, "-include", str(header), "-shared", *(f"-D{macro}" for macro in macros)]
    done = subprocess.run([*command, str(source), "-o", str(library)], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr[:3000]
    return library


def compile_and_load(text: str, folder: Path, options: Sequence[str], macros: Sequence[str] = ()) -> ctypes.CDLL:
    """The same, loaded into this process."""
    return ctypes.CDLL(str(compile_library(text, folder, options, macros)))


def _compiled_header(command: Sequence[str], headers: Sequence[str]) -> Path:
    """A header that includes others; g++ reads the compiled file beside it instead."""
    text = "".join(f"#include <{name}>\n" for name in headers)
    key = hashlib.sha256("\0".join((*command, text)).encode()).hexdigest()[:16]
    folder = shared_folder() / f"headers-{key}"
    folder.mkdir(exist_ok=True)
    header = folder / "headers.h"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not header.exists():
            made = folder / "made.h"
            made.write_text(text, encoding="utf-8")
            # Where the compiler cannot do that, it reads the header itself.
            subprocess.run([*command, "-x", "c++-header", str(made), "-o", f"{header}.gch"], capture_output=True)
            header.write_text(text, encoding="utf-8")
    return header
