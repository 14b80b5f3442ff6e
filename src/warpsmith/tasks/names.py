"""Names that can be written in C: every tensor, scalar and axis of a task becomes a C++ parameter."""

from __future__ import annotations

import re
from collections.abc import Collection

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")

# C++20 and CUDA keywords, and the names the contract itself uses.
_WORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class
    co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype
    default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline
    int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
    reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct switch
    template this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile
    wchar_t while xor xor_eq half main std NULL INFINITY NAN
    blockIdx blockDim threadIdx gridDim warpSize
    int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t
    launch workspace workspace_bytes stream state
"""
RESERVED = frozenset(_WORDS.split())


def usable(name: str) -> bool:
    """Whether a name can stand in C++ and in the contract as it is."""
    return bool(_PLAIN.match(name)) and "__" not in name and name not in RESERVED


def as_identifier(text: str, taken: Collection[str]) -> str:
    """The nearest usable name to `text` that is not taken yet: "layer1.0.weight" gives "layer1_0_weight"."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")
    if not name or not name[0].isalpha():
        name = f"t_{name}".rstrip("_")
    if name in RESERVED:
        name += "_"
    unique, count = name, 2
    while unique in taken or unique in RESERVED:
        unique, count = f"{name.rstrip('_')}_{count}", count + 1
    return unique
