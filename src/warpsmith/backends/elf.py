"""Reads the dynamic symbols of a shared object: functions it defines, symbols it imports, libraries it needs.

Reads 64-bit little-endian ELF, the only kind that the supported compilers write. Guards decide which imports may be.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from warpsmith.model.errors import HarnessFault

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC = struct.Struct("<qQ")
_SHT_DYNAMIC, _SHT_DYNSYM = 6, 11
_STT_FUNC, _STT_GNU_IFUNC = 2, 10
_STB_LOCAL = 0
_DT_NULL, _DT_NEEDED = 0, 1


@dataclass(frozen=True)
class ElfSymbols:
    """The dynamic symbols and needed libraries of a shared object."""

    functions: tuple[str, ...]  # defined and visible, sorted
    imports: tuple[str, ...]  # taken from other libraries when loaded, weak ones included, sorted
    needed: tuple[str, ...]  # libraries that the loader loads with it, e.g. "libcudart.so.13"


def read_symbols(path: Path) -> ElfSymbols:
    """The symbols of a shared object; raises a HarnessFault if the file is damaged."""
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise HarnessFault(f"{path.name} is not a 64-bit ELF object; rebuild it.")
    try:
        return _parse(data)
    except (struct.error, IndexError, ValueError, OverflowError) as broken:
        raise HarnessFault(f"{path.name} is a damaged ELF object ({broken}); rebuild it.") from broken


def imported_symbols(path: Path) -> tuple[str, ...]:
    """The symbols that a shared object takes from other libraries, without versions."""
    return read_symbols(path).imports


def _parse(data: bytes) -> ElfSymbols:
    (section_offset,) = struct.unpack_from("<Q", data, 0x28)
    entry_size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [_SECTION.unpack_from(data, section_offset + i * entry_size) for i in range(count)]
    functions: set[str] = set()
    imports: set[str] = set()
    needed: list[str] = []
    for _, kind, _, _, offset, size, link, _, _, _ in sections:
        if kind not in (_SHT_DYNAMIC, _SHT_DYNSYM):
            continue
        strings = sections[link]
        names = data[strings[4] : strings[4] + strings[5]]
        if kind == _SHT_DYNAMIC:
            needed += _needed(data[offset : offset + size], names)
            continue
        for name_at, info, _, section, _, _ in _SYMBOL.iter_unpack(data[offset : offset + size]):
            name = _string(names, name_at)
            if not name:
                continue
            if section == 0:
                imports.add(name)
            elif info >> 4 != _STB_LOCAL and info & 0xF in (_STT_FUNC, _STT_GNU_IFUNC):
                functions.add(name)
    return ElfSymbols(tuple(sorted(functions)), tuple(sorted(imports)), tuple(needed))


def _needed(table: bytes, names: bytes) -> list[str]:
    found: list[str] = []
    for tag, value in _DYNAMIC.iter_unpack(table):
        if tag == _DT_NULL:
            break
        if tag == _DT_NEEDED:
            found.append(_string(names, value))
    return found


def _string(table: bytes, start: int) -> str:
    return table[start : table.index(b"\0", start)].decode("utf-8", "replace")
