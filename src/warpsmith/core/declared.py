"""Which names of a C++ or CUDA source are its own: variables, parameters and functions that it declares.

Renaming one of these everywhere changes nothing, and only that is claimed: a name is left out wherever it might also
mean something of a library, a member or a macro. Not a parser; a declaration it does not understand is no declaration.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class Word(NamedTuple):
    """A word of a source without its comments."""

    kind: str  # "name", "member" (behind `.`, `->` or `::`), "macro" (being defined), "tune", "include", "end", "other"
    text: str
    directive: bool  # whether it stands on a line of the preprocessor


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_KEYWORD_TYPES = _set("auto bool char double float int long short signed unsigned void wchar_t")
_LIBRARY_TYPES = re.compile(
    r"(?:u?int(?:8|16|32|64|ptr)|size|ssize|ptrdiff)_t|(?:u?(?:char|short|int|long|longlong)|float|double)[1-4]"
    r"|dim3|uint|uchar|ushort|ulong|(?:__)?half2?|(?:__)?nv_bfloat162?|__m(?:64|128|256|512)[di]?|cuda\w+_t|_Float16"
)
_POINTERS = frozenset(("*", "&", "&&"))
_QUALIFIERS = _set(
    "const volatile constexpr static inline register mutable restrict __restrict __restrict__ __device__ __host__ "
    "__shared__ __constant__ __global__ __forceinline__ __noinline__ * & && ..."
)
_KEYWORDS = _set(
    "alignas alignof and asm break case catch class const_cast continue decltype default delete do dynamic_cast else "
    "enum explicit export extern false for friend goto if namespace new noexcept not nullptr operator or private "
    "protected public reinterpret_cast return sizeof static_assert static_cast struct switch template this "
    "thread_local throw true try typedef typeid typename union using virtual while xor"
)
_FOLLOWERS = _set("= ; , [ ( ) { : >")
_LIST_FOLLOWERS = frozenset(("=", ";", ",", "["))
_BUILT_IN = _set("threadIdx blockIdx blockDim gridDim warpSize std task")
_MATH = re.compile(
    r"(?:f?(?:abs|max|min|mod|ma|dim)|a?(?:sin|cos|tan)h?|atan2|exp2?|exp10|expm1|log(?:2|10|1p|b)?|r?sqrt|r?cbrt|r?hypot"
    r"|pow|erfc?|floor|ceil|l?l?round|trunc|rint|[lt]gamma|copysign|nextafter|isnan|isinf|isfinite|swap|move|fill|copy"
    r"|clamp|malloc|calloc|free|mem(?:cpy|set|move)|printf|assert|sort|reduce|accumulate)[fl]?"
)
_PRAGMA_WORDS = _set(
    "dynamic guided runtime shared none min max to from tofrom alloc close spread primary master simd monotonic "
    "nonmonotonic"
)
_SELECTORS = frozenset(("#", "##", ".", "->", "::"))
_OPEN_NAMESPACES = _set("std nvcuda cooperative_groups")
_ATTRIBUTES = _set("__launch_bounds__ __align__ alignas __attribute__ __cluster_dims__")
_LONGEST_ATTRIBUTE = 40  # words


def declared_names(words: Sequence[Word], fixed: frozenset[str]) -> frozenset[str]:
    """Names that may be replaced by others; none where something in the source looks at names as text."""
    own_types = _own_types(words)
    types = frozenset(w.text for w in words if w.kind in ("name", "member") and _is_type(w.text, own_types))
    found, callables, at = _declarations(words, types)
    found |= _further_declarators(words, types, at)
    macros = {w.text for w in words if w.kind == "macro"}
    macros.update(name for w in words if w.kind == "tune" for name in _names(w.text))
    library_types = types - _KEYWORD_TYPES
    if library_types & (found | macros) or _names_are_text(words):
        return frozenset()
    kept = set(fixed) | macros | types | own_types | _BUILT_IN | _beside_colons(words) | _pragma_words(words)
    if any(w.text in ("struct", "class", "union") for w in words if w.kind == "name"):
        kept |= {w.text for w in words if w.kind == "member"}
    # Declared as a variable here and called as a function there: the other one may be a library's.
    called = {a.text for a, b in pairwise(words) if a.kind == "name" and b.text in ("(", "<<<")}
    kept |= called - callables
    return frozenset(n for n in found if n not in kept and not n.startswith("__") and not _MATH.fullmatch(n))


def _names(text: str) -> list[str]:
    return re.findall(r"[^\W\d]\w*", text)


def _is_type(text: str, own: frozenset[str]) -> bool:
    return text in _KEYWORD_TYPES or text in own or _LIBRARY_TYPES.fullmatch(text) is not None


def _own_types(words: Sequence[Word]) -> frozenset[str]:
    introducers = ("struct", "class", "union", "enum", "typename", "using")
    pairs = pairwise(words)
    return frozenset(b.text for a, b in pairs if a.text in introducers and b.kind == "name" and b.text not in _KEYWORDS)


def _declarations(words: Sequence[Word], types: frozenset[str]) -> tuple[set[str], set[str], set[int]]:
    """Names behind a type; those of them followed by `(`; and where they stand."""
    found: set[str] = set()
    callables: set[str] = set()
    at: set[int] = set()
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if word.directive or word.text not in types:
            continue
        if word.kind == "member" and words[index - 2].text != "::":
            continue  # `std::size_t n` declares, `v.half * n` does not
        pointer = False
        while index < len(words) and (words[index].text in _QUALIFIERS or words[index].text in types):
            pointer |= words[index].text in _POINTERS
            index += 1
        index = _behind_attribute(words, index)
        if index + 1 >= len(words):
            break
        name, follower = words[index], words[index + 1].text
        if name.kind != "name" or name.directive or name.text in _KEYWORDS or follower not in _FOLLOWERS:
            continue
        if follower == "(":
            if pointer and word.text not in _KEYWORD_TYPES:
                continue  # perhaps a product with a function's result
            callables.add(name.text)
        found.add(name.text)
        at.add(index)
    return found, callables, at


def _behind_attribute(words: Sequence[Word], index: int) -> int:
    """`void __launch_bounds__(256) kernel(...)`: the name comes after the bracket."""
    if index >= len(words) or words[index].text not in _ATTRIBUTES:
        return index
    depth = 0
    for end in range(index + 1, min(len(words), index + _LONGEST_ATTRIBUTE)):
        depth += (words[end].text == "(") - (words[end].text == ")")
        if depth == 0:
            return end + 1
    return index


def _further_declarators(words: Sequence[Word], types: frozenset[str], at: set[int]) -> set[str]:
    """`float a = 0, b = 1;`: the names behind commas, where the statement is a declaration to its end."""
    found: set[str] = set()
    not_names = _KEYWORDS | types
    levels: list[tuple[bool, list[str]]] = [(False, [])]  # per bracket: whether declaring, and names so far
    for index, word in enumerate(words):
        if word.directive:
            continue
        declaring, pending = levels[-1]
        if index in at:
            levels[-1] = (True, [])
        elif word.text in ("(", "[", "{"):
            levels.append((False, []))
        elif word.text in (")", "]", "}"):
            del levels[max(1, len(levels) - 1) :]
            if word.text == "}":
                levels[-1] = (False, [])
        elif word.text == ";":
            found.update(pending)
            levels[-1] = (False, [])
        elif word.text == "<":
            levels[-1] = (False, [])  # the commas that follow may be those of template arguments
        elif word.text == "," and declaring:
            after = index + 1
            while after < len(words) and words[after].text in _QUALIFIERS:
                after += 1
            name, follower = words[after : after + 2] if after + 1 < len(words) else (word, word)
            if name.kind == "name" and name.text not in not_names and follower.text in _LIST_FOLLOWERS:
                pending.append(name.text)
    return found


def _names_are_text(words: Sequence[Word]) -> bool:
    """Macros that paste, quote or select by name; named operands of assembly; whole namespaces opened."""
    function_like = opened = False
    for before, word in pairwise((Word("end", "", True), *words)):
        if opened and word.text not in _OPEN_NAMESPACES:
            return True
        opened = before.text == "using" and word.text == "namespace"
        if word.directive and word.text.startswith("#define"):
            function_like = word.text.endswith("(")
        elif word.kind == "end":
            function_like = False
        elif (
            (function_like and word.text in _SELECTORS)
            or (word.text in ("#", "##", "\\") and not word.directive)
            or ('"' in word.text and "%[" in word.text)
        ):
            return True
    return False


def _beside_colons(words: Sequence[Word]) -> set[str]:
    before = {a.text for a, b in pairwise(words) if b.text == "::"}
    after = {b.text for a, b in pairwise(words) if a.text == "::"}
    return before | after


def _pragma_words(words: Sequence[Word]) -> set[str]:
    """Words of directives that mean themselves; between the brackets of a clause stand variables."""
    found = set(_PRAGMA_WORDS)
    depth, pragma = 0, False
    for before, word in zip((Word("end", "", True), *words), words, strict=False):
        if not word.directive:
            continue
        if word.kind == "end":
            depth, pragma = 0, False
        elif before.text == "#":
            pragma = word.text == "pragma"
        elif pragma:
            depth += (word.text == "(") - (word.text == ")")
            if depth == 0 and word.kind == "name":
                found.add(word.text)
    return found
