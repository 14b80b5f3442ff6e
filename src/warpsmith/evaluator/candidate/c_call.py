"""Calls the C entry point of a built library. Standard library only: part of the process that loads a candidate."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

from warpsmith.model.contract import Argument, ArgumentKind

_NUMBERS = {"int64_t": "int", "double": "double", "bool": "bool"}
_CTYPES: dict[str, tuple[Any, Callable[[Any], Any]]] = {  # the type in C, and the conversion of a number from JSON
    "pointer": (ctypes.c_void_p, lambda address: address),
    "table": (ctypes.c_void_p, lambda address: address),
    "int": (ctypes.c_int64, int),
    "double": (ctypes.c_double, float),
    "bool": (ctypes.c_bool, bool),
}
_INTEGERS, _DOUBLES = 32, 8  # native/calls.c: call_t
_ROW = struct.Struct(f"P{_DOUBLES}d{_INTEGERS}q")


def argument_kind(argument: Argument) -> str:
    """How an argument is passed: "pointer", "table" (an array of pointers), "int", "double" or "bool"."""
    if argument.kind in (ArgumentKind.AXIS, ArgumentKind.SCALAR):
        return _NUMBERS[argument.ctype]
    return "table" if argument.kind is ArgumentKind.TABLE else "pointer"


def pointer_table(addresses: Sequence[int]) -> Any:
    """An array of pointers for a "table" argument; the caller keeps the array alive and passes its `addressof`."""
    return (ctypes.c_void_p * len(addresses))(*addresses)


class CallLoop:
    """Makes calls in a row in C (native/calls.c). Each call is a row: the entry point and its arguments."""

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)
        self._call_each: Any = library.warpsmith_call_each
        self._call_each.argtypes = [ctypes.c_char_p, ctypes.c_int64]
        self.no_call = _row(library.warpsmith_no_call, (), ())

    def call(self, rows: Sequence[bytes]) -> int:
        """Make these calls; the answers are joined by "or"."""
        return int(self._call_each(b"".join(rows), len(rows)))


def _row(function: Any, integers: Sequence[int], doubles: Sequence[float]) -> bytes:
    address = ctypes.cast(function, ctypes.c_void_p).value
    more = (0.0,) * (_DOUBLES - len(doubles)), (0,) * (_INTEGERS - len(integers))
    return _ROW.pack(address, *doubles, *more[0], *integers, *more[1])


class CLibrary:
    """A loaded library: its entry point and, where the library defines it, `workspace_bytes`."""

    def __init__(self, path: str, entry: str, kinds: Sequence[str], size_kinds: Sequence[str]) -> None:
        """Load the library; raises OSError or AttributeError. Kinds are those of `argument_kind`."""
        self.library = ctypes.CDLL(path)
        self._kinds, self._size_kinds = tuple(kinds), tuple(size_kinds)
        self.entry: Any = self._function(entry, self._kinds, ctypes.c_int)
        defined = hasattr(self.library, "workspace_bytes")
        self._workspace: Any = self._function("workspace_bytes", self._size_kinds, ctypes.c_int64) if defined else None

    def workspace_bytes(self, sizes: Sequence[Any]) -> int:
        """How much workspace the library asks for at these sizes; 0 if it defines no `workspace_bytes`."""
        return int(self._workspace(*_converted(self._size_kinds, sizes))) if self._workspace else 0

    def bind(self, values: Sequence[Any]) -> Callable[[], int]:
        """A call of the entry point; the arguments are converted once."""
        pairs = zip(self._kinds, _converted(self._kinds, values), strict=True)
        entry, arguments = self.entry, [_CTYPES[kind][0](value) for kind, value in pairs]
        return lambda: int(entry(*arguments))

    def row(self, values: Sequence[Any]) -> bytes | None:
        """The same call for a `CallLoop`; None if it has more arguments than a row."""
        pairs = list(zip(self._kinds, _converted(self._kinds, values), strict=True))
        doubles = [value for kind, value in pairs if kind == "double"]
        integers = [int(value or 0) for kind, value in pairs if kind != "double"]
        if len(doubles) > _DOUBLES or len(integers) > _INTEGERS:
            return None
        return _row(self.entry, integers, doubles)

    def _function(self, name: str, kinds: Sequence[str], returns: Any) -> Any:
        function = getattr(self.library, name)
        function.argtypes = [_CTYPES[kind][0] for kind in kinds]
        function.restype = returns
        return function


def _converted(kinds: Sequence[str], values: Sequence[Any]) -> list[Any]:
    return [_CTYPES[kind][1](value) for kind, value in zip(kinds, values, strict=True)]
