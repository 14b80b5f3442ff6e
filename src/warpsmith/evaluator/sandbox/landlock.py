"""Landlock: which paths a process may open, for good, without any privilege.

For: confining one process that is already set up. Not for: files already open (they stay open), stat and
path lookup (not covered by Landlock), and threads that already run (Landlock confines the calling thread
and what it starts afterwards).

The kernel's version of the interface is negotiated: rights a kernel does not know are left out.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every machine
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_FILE, _REFER = 1 << 4, 1 << 5, 1 << 7, 1 << 8, 1 << 13
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE  # all that a rule for a file may name

# Mapping a library for execution needs READ_FILE alone, so only a compiling process may execute.
READ = _READ_FILE | _READ_DIR
"""Open and map files, list folders."""
RUN = READ | _EXECUTE
"""Also start programs."""
READ_WRITE = READ | _WRITE_FILE | _TRUNCATE
"""Also change files that are there."""
DEVICE = READ_WRITE | _IOCTL_DEVICE
"""A device node: read, write and control."""
FULL = READ_WRITE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_FILE | _REFER
"""A folder of its own: plain files and folders made, moved and removed; no sockets, links or devices."""

_MAKE_OTHER = 0b1111101 << 6  # character devices, plain files, sockets, FIFOs, block devices, symbolic links
_WRITES = _WRITE_FILE | _TRUNCATE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_OTHER | _REFER
_SCOPE_SIGNALS = 0b10

_HANDLED_PER_ABI = ((1, 13), (2, 14), (3, 15), (5, 16))  # from this ABI on, this many file rights exist
_ABI_NETWORK, _ABI_SCOPE = 4, 6
NEWEST_ABI = 7
"""The newest interface this module knows; later ones accept everything it uses."""


@dataclass(frozen=True)
class Rule:
    """What may be done at and beneath one path."""

    path: Path
    rights: int


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def _checked(result: int, what: str) -> int:
    if result < 0:
        reason = ctypes.get_errno()
        raise OSError(reason, f"{what}: {os.strerror(reason)}")
    return result


def kernel_abi() -> int:
    """The version of Landlock this kernel offers; 0 where there is none or it is switched off."""
    if not sys.platform.startswith("linux"):
        return 0
    version = _libc().syscall(
        ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint32(_CREATE_RULESET_VERSION)
    )
    return max(0, int(version))


def _handled_rights(abi: int) -> int:
    bits = max(count for since, count in _HANDLED_PER_ABI if abi >= since)
    return (1 << bits) - 1


def _ruleset_attribute(abi: int) -> bytes:
    words = [_handled_rights(abi)]
    if abi >= _ABI_NETWORK:
        words.append(0b11)  # TCP bind and connect, with no rule to allow either
    if abi >= _ABI_SCOPE:
        words.append(0b11)  # abstract unix sockets and signals of processes outside
    return struct.pack(f"={len(words)}Q", *words)


def _add_rule(libc: ctypes.CDLL, ruleset: int, rule: Rule, handled: int) -> None:
    try:
        descriptor = os.open(rule.path, os.O_PATH | os.O_CLOEXEC)
    except OSError as missing:
        if missing.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
            return  # what is not there, or not ours to reach, needs no permission
        raise
    try:
        rights = rule.rights & handled
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _FILE_RIGHTS
        attribute = struct.pack("=Qi", rights, descriptor)
        added = libc.syscall(
            ctypes.c_long(_ADD_RULE),
            ctypes.c_int(ruleset),
            ctypes.c_int(_RULE_PATH_BENEATH),
            attribute,
            ctypes.c_uint32(0),
        )
        _checked(added, f"landlock_add_rule {rule.path}")
    finally:
        os.close(descriptor)


def restrict(rules: Iterable[Rule], abi: int) -> None:
    """Confine the calling thread, and all it starts, to these rules; raises OSError and changes nothing else.

    `abi` is at least 1 and at most `kernel_abi()`. Rules for paths that do not exist are skipped. Sets
    no_new_privs, which the kernel asks for.
    """
    known = min(abi, NEWEST_ABI)
    _restrict(rules, _ruleset_attribute(known), _handled_rights(known))


def restrict_writes(folders: Iterable[Path], abi: int) -> None:
    """Let the calling thread, and all it starts, write in these folders and to devices only, and signal only itself.

    Reading, programs and the network stay as they are; signals are restricted from ABI 6 on.
    """
    known = min(abi, NEWEST_ABI)
    handled = _WRITES & _handled_rights(known)
    words = [handled, *([0] if known >= _ABI_NETWORK else []), *([_SCOPE_SIGNALS] if known >= _ABI_SCOPE else [])]
    rules = [*(Rule(folder, _WRITES) for folder in folders), Rule(Path("/dev"), _WRITE_FILE | _TRUNCATE)]
    _restrict(rules, struct.pack(f"={len(words)}Q", *words), handled)


def _restrict(rules: Iterable[Rule], attribute: bytes, handled: int) -> None:
    libc = _libc()
    created = libc.syscall(
        ctypes.c_long(_CREATE_RULESET), attribute, ctypes.c_size_t(len(attribute)), ctypes.c_uint32(0)
    )
    ruleset = _checked(created, "landlock_create_ruleset")
    try:
        for rule in rules:
            _add_rule(libc, ruleset, rule, handled)
        libc.prctl(ctypes.c_int(_PR_SET_NO_NEW_PRIVS), *map(ctypes.c_ulong, (1, 0, 0, 0)))
        restricted = libc.syscall(ctypes.c_long(_RESTRICT_SELF), ctypes.c_int(ruleset), ctypes.c_uint32(0))
        _checked(restricted, "landlock_restrict_self")
    finally:
        os.close(ruleset)
