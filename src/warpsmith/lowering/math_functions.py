"""Scalar functions that generated files contain: those of the header `warpsmith/cpu/functions.h`, which vectorise.

A template copies the functions that it calls, so that a proposer can read and change them. `INLINE` is replaced by the
qualifier of an inline function in C++ or CUDA.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from warpsmith.backends.library import LIBRARY

HEADER = LIBRARY / "warpsmith" / "cpu" / "functions.h"

_DEFINITION = re.compile(r"^((?://.*\n)*)inline (float (\w+)\([\s\S]*?^}\n)", re.MULTILINE)

_FAST_TANH = """
INLINE float fast_tanh(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
"""


def _read(header: str) -> dict[str, tuple[tuple[str, ...], str]]:
    """The functions of a header by name: the functions before them that they call, and their definition."""
    found: dict[str, tuple[tuple[str, ...], str]] = {}
    for comment, definition, name in _DEFINITION.findall(header):
        called = set(re.findall(r"\b\w+(?=\()", definition))
        found[name] = tuple(other for other in found if other in called), f"\n{comment}INLINE {definition}"
    return found


MATH_FUNCTIONS: Mapping[str, tuple[tuple[str, ...], str]] = {
    **_read(HEADER.read_text(encoding="utf-8")),
    "fast_tanh": ((), _FAST_TANH),
}
"""Functions by name: the functions they call, and their definition."""
