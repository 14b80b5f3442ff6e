"""Finds the headers of CUTLASS and CuTe: what CUDA candidates may include where somebody has installed them.

Warpsmith does not depend on CUTLASS and carries nothing of it. The place is the user's own: an environment variable of
the process, or an installed Python package, and never something that a run, a bundle or a candidate says. Nothing of
CUTLASS is executed here; its version is read from its headers.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "CUTLASS_PATH"
PACKAGE = "nvidia-cutlass"
INSTALL = (
    f"set {VARIABLE} to a checkout of github.com/NVIDIA/cutlass, or install the headers with "
    f"pip install --no-deps {PACKAGE}"
)
_IN_PACKAGE = Path("cutlass_library", "source")
_VERSION_HEADER = Path("cutlass", "version.h")
_TOOLS = Path("tools", "util", "include")
_HEADER = r"(?P<header>(?:cutlass|cute)/[\w./+-]+)"
_INCLUDE = re.compile(rf"#[ \t]*include[ \t]*[<\"]{_HEADER}[>\"]")  # anywhere: in Python, sources are strings
_OPTIONAL = re.compile(rf"__has_include[ \t]*\([ \t]*[<\"]{_HEADER}")
_NOT_FOUND = re.compile(
    rf"(?P<place>[\w.+-]+[:(]\d+)\S*: (?:fatal|catastrophic)? ?error: .*?['\"]?{_HEADER}['\"]?"
    r"(?:: No such file|' file not found|\" was not found)"
)


@dataclass(frozen=True)
class Cutlass:
    """Installed headers of CUTLASS."""

    version: str  # "4.2.0"
    folders: tuple[Path, ...]  # that compilers search: the first holds cutlass/ and cute/
    origin: str  # where the place is from: "CUTLASS_PATH" or "Python package nvidia-cutlass"

    @property
    def name(self) -> str:
        """As in messages and keys: "CUTLASS 4.2.0"."""
        return f"CUTLASS {self.version}"

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of g++, clang++ and nvcc with which its headers are found; their warnings are not shown."""
        return tuple(word for folder in self.folders for word in ("-isystem", str(folder)))

    @property
    def readable(self) -> tuple[str, ...]:
        """The folders that a compiler in a sandbox has to read, also behind links."""
        return tuple(dict.fromkeys([*map(str, self.folders), *map(os.path.realpath, self.folders)]))

    @property
    def environment(self) -> Mapping[str, str]:
        """The variable with which compilers that others start find its headers."""
        return {"CPLUS_INCLUDE_PATH": os.pathsep.join(map(str, self.folders))}


def find_cutlass(environ: Mapping[str, str], site_folders: Sequence[str] | None = None) -> Cutlass | None:
    """The headers in `$CUTLASS_PATH`, else those of the package; None if there are none.

    The variable names a checkout or the folder of headers itself. If it is set, no other place is searched.
    """
    given = environ.get(VARIABLE)
    if given:
        return _in_folder(Path(given).absolute(), VARIABLE)
    for folder in sys.path if site_folders is None else site_folders:
        found = _in_folder(Path(folder or ".").absolute() / _IN_PACKAGE, f"Python package {PACKAGE}")
        if found is not None:
            return found
    return None


def _in_folder(root: Path, origin: str) -> Cutlass | None:
    for include in (root / "include", root):
        version = _version(include / _VERSION_HEADER)
        if version:
            tools = (include.parent if include.name == "include" else root) / _TOOLS
            return Cutlass(version, (include, tools) if tools.is_dir() else (include,), origin)
    return None


def _version(header: Path) -> str:
    """The version that a header defines, e.g. "4.2.0"; "" if it cannot be read or defines none."""
    try:
        text = header.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    parts = [re.search(rf"^#define[ \t]+CUTLASS_{part}[ \t]+(\d+)", text, re.M) for part in ("MAJOR", "MINOR", "PATCH")]
    return ".".join(part[1] for part in parts if part) if all(parts) else ""


def includes_cutlass(texts: Iterable[str]) -> bool:
    """True if a source includes a header of CUTLASS or CuTe, whether it is installed or not."""
    return any(_INCLUDE.search(text) for text in texts)


def needs_cutlass(texts: Sequence[str]) -> bool:
    """True if sources include such a header without asking first if it is there (`__has_include`)."""
    return includes_cutlass(texts) and not any(_OPTIONAL.search(text) for text in texts)


def build_mark(texts: Iterable[str], cutlass: Cutlass | None) -> str:
    """What a build depends on because of CUTLASS; "" for sources that include nothing of it."""
    if not includes_cutlass(texts):
        return ""
    return cutlass.name if cutlass else "no CUTLASS"


def without_cutlass(reason: str) -> str:
    """The compiler's errors in one sentence, if they are that a header of CUTLASS is missing; else as they are.

    For machines without CUTLASS: where it is installed, the compiler's own words say which header it lacks.
    """
    missing = _NOT_FOUND.search(reason)
    if missing is None:
        return reason
    place = missing["place"].replace("(", ":")
    return f"{place}: error: CUTLASS is not installed here: write the kernel without <{missing['header']}>."


def contract_line(cutlass: Cutlass) -> str:
    """What the contract of a CUDA kernel says of CUTLASS."""
    with_cute = " with CuTe" if int(cutlass.version.partition(".")[0]) >= 3 else ""
    return (
        f"{cutlass.name}{with_cute}, whose templates count as your own code, too: `#include <cute/tensor.hpp>`, "
        "`#include <cutlass/...>`. The flags it needs, `-std=c++17` and `--expt-relaxed-constexpr`, are set. Its "
        "headers take time to compile: about 10 s for CuTe, a minute for a whole GEMM from collective builders."
    )
