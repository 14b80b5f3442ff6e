"""Reads the device code of a candidate's file: its fat binaries and the kernels and variables that they define.

A shared object holds its device code in one section, as fat binaries. A driver loads each of them as a whole, in any
process, without running host code of the object. The file is read before the candidate runs, so the judge knows the
kernels independently of the candidate's process. Parts that are compressed or not cubins can be loaded by a driver,
but their names stay unknown (`legible` is then false). Standard library only; no driver needed.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_ELF = b"\x7fELF\x02\x01"
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_FAT_HEADER = struct.Struct("<IHHQ")  # magic, version, its own size, size of what follows
_PART_HEADER = struct.Struct("<HHIQ")  # kind, version, its own size, size of what follows
_PART_FLAGS_AT = 40
_MAGIC = 0xBA55ED50
_CUBIN = 2
_COMPRESSED = 0x2000 | 0x8000  # by either of the two methods compilers have used
_CODE_SECTION = ".nv_fatbin"
_SYMTAB, _NOBITS = 2, 8
_OBJECT, _FUNCTION = 1, 2
_ENTRY = 0x10  # in a symbol's `other`: can be launched, and not only called
_MACHINE_CUDA = 190
_PADDING = 8
_MOST_IMAGES = 256


class MalformedImage(Exception):
    """The device code of a file does not have the form that compilers write; the text says where."""


@dataclass(frozen=True)
class Variable:
    """A global variable of device code."""

    name: str
    nbytes: int
    constant: bool  # declared `__constant__`


@dataclass(frozen=True)
class DeviceImage:
    """Device code that a driver loads as one module."""

    digest: str  # SHA-256 of the data, by which processes refer to the image
    data: bytes  # a fat binary with its header, or a cubin
    kernels: tuple[str, ...]  # mangled names for all architectures, sorted
    variables: tuple[Variable, ...]  # sorted by name
    legible: bool  # whether the names in all parts could be read


def read_images(data: bytes) -> tuple[DeviceImage, ...]:
    """The images of a shared object, in their order, or the one image of a cubin; () if there is none."""
    try:
        if _is_cubin(data):
            return (_image(data, [data], legible=True),)
        images = tuple(_of_fat_binary(fat) for fat in _fat_binaries(data))
    except (struct.error, IndexError, ValueError, OverflowError) as broken:
        raise MalformedImage(f"its device code cannot be read ({broken})") from broken
    return tuple(image for image in images if image.kernels or image.variables or not image.legible)


def read_image(data: bytes) -> DeviceImage:
    """The image with this data, which comes from `read_images`."""
    try:
        return _image(data, [data], legible=True) if _is_cubin(data) else _of_fat_binary(data)
    except (struct.error, IndexError, ValueError, OverflowError) as broken:
        raise MalformedImage(f"its device code cannot be read ({broken})") from broken


def _is_cubin(data: bytes) -> bool:
    return data[:6] == _ELF and struct.unpack_from("<H", data, 18)[0] == _MACHINE_CUDA


def _fat_binaries(data: bytes) -> Iterator[bytes]:
    """Every fat binary of a shared object, with its header."""
    if data[:6] != _ELF:
        raise ValueError("not a 64-bit ELF object")
    found = 0
    for name, section in _sections(data):
        if name != _CODE_SECTION:
            continue
        start, end = section[4], section[4] + section[5]
        while start + _FAT_HEADER.size <= end:
            magic, _version, header, size = _FAT_HEADER.unpack_from(data, start)
            if magic == 0:  # padding between two fat binaries
                start += _PADDING
                continue
            if magic != _MAGIC or header < _FAT_HEADER.size or start + header + size > end:
                raise ValueError(f"no fat binary at byte {start}")
            found += 1
            if found > _MOST_IMAGES:
                raise ValueError(f"more than {_MOST_IMAGES} fat binaries")
            yield data[start : start + header + size]
            start += header + size


def _of_fat_binary(fat: bytes) -> DeviceImage:
    cubins: list[bytes] = []
    legible = True
    position = _FAT_HEADER.unpack_from(fat)[2]
    while position + _PART_HEADER.size <= len(fat):
        kind, _version, header, size = _PART_HEADER.unpack_from(fat, position)
        body = position + header
        if header < _PART_FLAGS_AT + 8 or body + size > len(fat):
            raise ValueError(f"a part at byte {position} does not end inside its fat binary")
        (flags,) = struct.unpack_from("<Q", fat, position + _PART_FLAGS_AT)
        cubin = fat[body : body + size]
        # A part that is no plain cubin (compressed, PTX, an intermediate form) may contain kernels too.
        if kind == _CUBIN and not flags & _COMPRESSED and _is_cubin(cubin):
            cubins.append(cubin)
        else:
            legible = False
        position = body + size
    return _image(fat, cubins, legible)


def _image(data: bytes, cubins: list[bytes], legible: bool) -> DeviceImage:
    kernels: set[str] = set()
    variables: dict[str, Variable] = {}
    for cubin in cubins:
        names, found = _definitions(cubin)
        kernels |= names
        for variable in found:
            known = variables.setdefault(variable.name, variable)
            if known != variable:
                # Different variables of the same name in two architectures: it is unclear which one to copy.
                raise ValueError(f"two different variables are called {variable.name!r}")
    ordered = tuple(variables[name] for name in sorted(variables))
    return DeviceImage(hashlib.sha256(data).hexdigest(), data, tuple(sorted(kernels)), ordered, legible)


def _definitions(cubin: bytes) -> tuple[set[str], list[Variable]]:
    """Names of kernels, and the variables, that a cubin defines."""
    kernels: set[str] = set()
    variables: list[Variable] = []
    sections = _sections(cubin)
    for _name, table in sections:
        if table[1] != _SYMTAB:
            continue
        strings = _content(cubin, sections[table[6]][1])
        for name_at, info, other, place, _value, nbytes in _SYMBOL.iter_unpack(_content(cubin, table)):
            if not 0 < place < len(sections):  # not defined in a section of this file
                continue
            name, section = _string(strings, name_at), sections[place][0]
            if info & 0xF == _FUNCTION and other & _ENTRY:
                kernels.add(name)
            elif info & 0xF == _OBJECT and nbytes and section.startswith((".nv.global", ".nv.constant")):
                variables.append(Variable(name, nbytes, section.startswith(".nv.constant")))
    return kernels, variables


def _sections(data: bytes) -> list[tuple[str, tuple[int, ...]]]:
    """Every section of an ELF object: its name, and its header."""
    (offset,) = struct.unpack_from("<Q", data, 0x28)
    entry_bytes, count, names_at = struct.unpack_from("<HHH", data, 0x3A)
    headers = [_SECTION.unpack_from(data, offset + i * entry_bytes) for i in range(count)]
    if not headers:
        return []
    names = _content(data, headers[names_at])
    return [(_string(names, header[0]), header) for header in headers]


def _content(data: bytes, header: tuple[int, ...]) -> bytes:
    start, size = header[4], header[5]
    if header[1] == _NOBITS or start + size > len(data):
        raise ValueError("a section lies outside of its file")
    return data[start : start + size]


def _string(table: bytes, start: int) -> str:
    return table[start : table.index(b"\0", start)].decode("utf-8", "replace")
