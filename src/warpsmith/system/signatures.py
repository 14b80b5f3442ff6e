"""Signatures of this user on folders that hold runs and benches.

A run's folder may come from a stranger. What was created or confirmed here is signed with a key that lies outside the
folder, in the user's configuration (`WARPSMITH_CONFIG`, else the XDG folder), and that only this user can read. The
file `signatures` in the folder has one line for each statement; the lines of other users and machines stay there.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from warpsmith.system.files import put_in_place, read_file

SIGNATURES = "signatures"
_KEY_BYTES = 32
_MOST_LINES = 256
_LINE = re.compile(rb"[0-9a-f]{64}")


def config_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Where this user's configuration is kept."""
    env = os.environ if environ is None else environ
    if env.get("WARPSMITH_CONFIG"):
        return Path(env["WARPSMITH_CONFIG"]).expanduser()
    return Path(env.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "warpsmith"


def sign(folder: Path, *statements: Sequence[str]) -> None:
    """Sign statements about a folder. An OSError if the folder cannot be written."""
    known = _lines(folder)
    fresh = [line for each in statements if (line := _mark(each)) not in known]
    if fresh:
        put_in_place(folder / SIGNATURES, b"\n".join([*known, *fresh][-_MOST_LINES:]) + b"\n", mode=0o644)


def is_signed(folder: Path, statement: Sequence[str]) -> bool:
    """True if this user signed the statement about the folder."""
    mark = _mark(statement)
    return any(hmac.compare_digest(mark, line) for line in _lines(folder))


def canonical(value: object) -> object:
    """A value as JSON has it, the same before and after writing and reading: sets sorted, integers as floats."""
    if value is None or isinstance(value, str | bool | float):  # most values; to ask for a Mapping takes long
        return value
    if isinstance(value, Mapping):
        return {str(key): canonical(each) for key, each in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(str(each) for each in value)
    if isinstance(value, int):
        return float(value) if abs(value) < 1 << 53 else str(value)
    return [canonical(each) for each in value] if isinstance(value, list | tuple) else value


def digest(value: object) -> str:
    """The hash of a value in its canonical form."""
    return hashlib.sha256(json.dumps(canonical(value), sort_keys=True).encode()).hexdigest()


def _lines(folder: Path) -> list[bytes]:
    try:
        lines = read_file(folder / SIGNATURES, 1 << 20).split()
    except OSError:
        return []
    return [line for line in lines if _LINE.fullmatch(line)][-_MOST_LINES:]


def _mark(statement: Sequence[str]) -> bytes:
    text = json.dumps(list(statement)).encode()
    return hmac.new(_key(config_folder()), text, hashlib.sha256).hexdigest().encode()


@cache
def _key(folder: Path) -> bytes:
    """This user's key, made on first use; a key of this process alone where none can be stored."""
    path, fresh = folder / "key", secrets.token_bytes(_KEY_BYTES)
    if not os.path.lexists(path):
        staged = folder / f".key-{fresh.hex()[:16]}"
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            put_in_place(staged, fresh)
            os.link(staged, path)  # fails where another process was first
        with suppress(OSError):
            staged.unlink()
    with suppress(OSError):
        known, found = read_file(path, _KEY_BYTES), path.lstat()
        private = found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o077
        if private and len(known) == _KEY_BYTES:
            return known
    return fresh
