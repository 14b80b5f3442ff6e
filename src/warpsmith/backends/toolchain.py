"""Finds compilers and their exact versions; runs them with `--version` and `-print-file-name` only.

Build keys contain the version text, not the path: the same compiler in another folder gives the same build.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from warpsmith.system.processes import tool_answer

PROBE_S = 30.0
"""Longest wait for `--version`; a compiler on a network disk can take seconds."""

TOOLKIT = Path("/usr/local/cuda")
"""Where the CUDA installer puts the toolkit."""

NO_CXX = "no C++ compiler: install g++ (or clang++ with libomp), or set CXX"
NO_NVCC = "no nvcc: install the CUDA toolkit or warpsmith[nvcc], or set CUDA_HOME"


@dataclass(frozen=True)
class Compiler:
    """An installed compiler that answered `--version`."""

    command: tuple[str, ...]  # that starts the compiler
    family: str  # "gcc", "clang" or "nvcc"
    name: str  # for messages: "g++ 12.2.0"
    identity: str  # its whole version text, for build keys
    search_flags: tuple[str, ...] = ()  # the folders of its headers and libraries; no part of a key
    runtime: Path | None = None  # the CUDA runtime library to link, if nvcc cannot find it
    stdlib: Path | None = None  # the shared C++ library to link, if the compiler would link the static one


def find_cxx(environ: Mapping[str, str]) -> Compiler | None:
    """The C++ compiler: `$CXX`, else g++, else clang++; None if there is none."""
    choices = [shlex.split(environ["CXX"])] if environ.get("CXX") else []
    choices += [["g++"], ["clang++"]]
    for words in choices:
        found = shutil.which(words[0], path=environ.get("PATH")) if words else None
        if found is None:
            continue
        command = (found, *words[1:])
        version = _version(command, environ)
        if version is None:
            continue
        family = "clang" if "clang" in version else "gcc"
        name = f"{'clang++' if family == 'clang' else 'g++'} {_number(version)}"
        return Compiler(command, family, name, version, stdlib=_stdlib(command, environ))
    return None


def find_nvcc(
    environ: Mapping[str, str], site_folders: Sequence[str] | None = None, toolkit: Path = TOOLKIT
) -> Compiler | None:
    """The first nvcc in `$CUDA_HOME`, `$CUDA_PATH`, PATH, /usr/local/cuda and the packages of the `nvcc` extra."""
    folders = tuple(sys.path if site_folders is None else site_folders)
    for path in _nvcc_paths(environ, folders, toolkit):
        version = _version((str(path),), environ)
        if version is None:
            continue
        host = host_compiler(environ)
        identity = f"{version}\n{host.identity if host else 'no host compiler'}"
        flags, runtime = _layout(path)
        if host is not None:
            flags = ("-ccbin", host.command[0], *flags)
        stdlib = host.stdlib if host else None
        return Compiler((str(path),), "nvcc", f"nvcc {_number(version)}", identity, flags, runtime, stdlib)
    return None


def host_compiler(environ: Mapping[str, str]) -> Compiler | None:
    """The C++ compiler that nvcc uses for host code: `$NVCC_CCBIN`, else that of `find_cxx`."""
    chosen = environ.get("NVCC_CCBIN")
    return find_cxx({**environ, "CXX": shlex.quote(chosen)} if chosen else environ)


def _nvcc_paths(environ: Mapping[str, str], site_folders: tuple[str, ...], toolkit: Path) -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if environ.get(variable):
            yield Path(environ[variable]) / "bin" / "nvcc"
    on_path = shutil.which("nvcc", path=environ.get("PATH"))
    if on_path:
        yield Path(on_path)
    yield toolkit / "bin" / "nvcc"
    for folder in site_folders:
        nvidia = Path(folder or ".") / "nvidia"
        yield from sorted(nvidia.glob("cu[0-9]*/bin/nvcc"), reverse=True)
        yield nvidia / "cuda_nvcc" / "bin" / "nvcc"


def _layout(nvcc: Path) -> tuple[tuple[str, ...], Path | None]:
    """The flags and the runtime library that an nvcc needs because of its folders.

    The PyPI packages have libraries in `lib`, while nvcc searches `lib64`, and no plain `libcudart.so`.
    """
    root = nvcc.parent.parent
    if root.parent.name != "nvidia":
        # Only needed if torch has not loaded a runtime of the same version.
        return (_rpath(root / "lib64") if (root / "lib64" / "libcudart.so").exists() else ()), None
    parts = [root] if root.name != "cuda_nvcc" else [root.parent / n for n in ("cuda_runtime", "cuda_cccl")]
    flags: list[str] = []
    runtime: Path | None = None
    for part in parts:
        if part != root and (part / "include").is_dir():
            flags += ["-I", str(part / "include")]
        if (part / "lib").is_dir():
            flags += ["-L", str(part / "lib")]
            runtime = next(iter(sorted((part / "lib").glob("libcudart.so.*"))), runtime)
    if runtime is not None:
        flags += _rpath(runtime.parent)
    return tuple(flags), runtime


_SYSTEM_LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")


def _stdlib(command: tuple[str, ...], environ: Mapping[str, str]) -> Path | None:
    """The shared C++ library, for a compiler that does not find `libstdc++.so`; None for others.

    Such a compiler links the static library, whose imports (files, entropy, raw system calls) could then not be told
    from those of the candidate.
    """
    if os.path.isabs(_asked((*command, "-print-file-name=libstdc++.so"), environ)):
        return None
    own = Path(_asked((*command, "-print-file-name=libstdc++.so.6"), environ))
    places = [own, *(Path(folder) / "libstdc++.so.6" for folder in _SYSTEM_LIBRARIES)]
    return next((place for place in places if place.is_absolute() and place.is_file()), None)


def _asked(command: tuple[str, ...], environ: Mapping[str, str]) -> str:
    path = Path(command[0])
    return (_ask(command, path.stat().st_mtime_ns, environ.get("PATH", os.defpath)) or "").strip()


def _rpath(folder: Path) -> tuple[str, ...]:
    return ("-Xlinker", "-rpath", "-Xlinker", str(folder))


def _version(command: tuple[str, ...], environ: Mapping[str, str]) -> str | None:
    path = Path(command[0])
    if not os.access(path, os.X_OK):
        return None
    # With the time stamp, an upgrade of the compiler during a long run is noticed.
    answer = _ask((*command, "--version"), path.stat().st_mtime_ns, environ.get("PATH", os.defpath))
    # clang also prints its folder, which is no part of the version.
    lines = [line for line in (answer or "").splitlines() if not line.startswith("InstalledDir")]
    return "\n".join(lines) if lines else None


@cache
def _ask(command: tuple[str, ...], _changed_ns: int, path: str) -> str | None:
    """The output of a compiler command; None if it fails."""
    return tool_answer(command, limit_s=PROBE_S, environ={"PATH": path, "LC_ALL": "C"})


def _number(version: str) -> str:
    found = re.search(r"\bV(\d+\.\d+\.\d+)", version) or re.search(r"\b(\d+\.\d+\.\d+)\b", version)
    return found[1] if found else version.splitlines()[0]
