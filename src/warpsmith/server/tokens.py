"""Bearer tokens of a server: a file with the hash of each token, the name of its holder and the holder's quotas.

The name identifies the client: a new token under the same name sees the submissions of the old one. A token is random
and long, so that a plain SHA-256 protects it. The server reads the file again when the file changes.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from warpsmith.model.errors import UsageError
from warpsmith.model.text import plain_name
from warpsmith.system.files import put_in_place, read_file
from warpsmith.system.signatures import config_folder

PREFIX = "wsk_"  # lets scanners of secrets recognise a token
_BYTES = 32


@dataclass(frozen=True)
class TokenHolder:
    """A client of the server."""

    name: str
    pending: int = 2000  # candidates that may wait at once
    hourly: int = 0  # candidates accepted in an hour; 0: no limit


@dataclass(frozen=True)
class StoredToken:
    """One line of the file."""

    sha256: str
    holder: TokenHolder


_FILE = TypeAdapter(tuple[StoredToken, ...])


def default_token_file() -> Path:
    """The file of tokens where none is named."""
    return config_folder() / "serve_tokens.json"


class TokenStore:
    """The tokens of a server. Safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._guard = threading.Lock()
        self._stamp: tuple[int, int] | None = None
        self._stored: tuple[StoredToken, ...] = ()

    @property
    def holders(self) -> tuple[TokenHolder, ...]:
        """The holders of tokens, by name."""
        return tuple(sorted((each.holder for each in self._read()), key=lambda each: each.name))

    def create(self, holder: TokenHolder) -> str:
        """A new token; a token that the holder had is no longer valid."""
        try:
            plain_name(holder.name)
        except ValueError:
            raise UsageError(
                f"{holder.name!r} is no name for a client; use letters, digits, `_`, `-` and `.`."
            ) from None
        token = PREFIX + secrets.token_urlsafe(_BYTES)
        kept = [each for each in self._read() if each.holder.name != holder.name]
        self._write((*kept, StoredToken(_digest(token), replace(holder))))
        return token

    def revoke(self, name: str) -> None:
        """Make the token of a client invalid."""
        stored = self._read()
        kept = tuple(each for each in stored if each.holder.name != name)
        if len(kept) == len(stored):
            known = ", ".join(each.name for each in self.holders) or "none"
            raise UsageError(f"{self.path} has no token of {name!r}; it has those of {known}.")
        self._write(kept)

    def find(self, token: str) -> TokenHolder | None:
        """The holder of a token; None where nobody holds it."""
        digest = _digest(token)
        found = None
        for each in self._read():
            if secrets.compare_digest(each.sha256, digest):
                found = each.holder
        return found

    def _read(self) -> tuple[StoredToken, ...]:
        with self._guard:
            try:
                status = os.stat(self.path)
            except FileNotFoundError:
                return ()
            except OSError as refused:
                raise UsageError(f"{self.path} cannot be read ({refused.strerror}); name another file.") from None
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp != self._stamp:
                try:
                    self._stored = _FILE.validate_json(read_file(self.path))
                except (OSError, ValidationError):
                    raise UsageError(f"{self.path} is no file of tokens; remove it or name another file.") from None
                self._stamp = stamp
            return self._stored

    def _write(self, stored: tuple[StoredToken, ...]) -> None:
        try:
            put_in_place(self.path, _FILE.dump_json(stored, indent=1) + b"\n", mode=0o600)
        except OSError as refused:
            raise UsageError(f"{self.path} cannot be written ({refused.strerror}); name another file.") from None


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
