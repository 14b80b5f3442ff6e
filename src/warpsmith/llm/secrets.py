"""Reads keys, and keeps them out of all text that is shown or stored.

A key comes from the environment or from a key file that only its owner can read. A `Secret` has the key, which no
`repr`, format string or pickle shows, and `redact` removes it from every text that an endpoint returns. A key that an
endpoint returns in another form (reversed, encoded) is not removed.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from warpsmith.model.errors import UsageError

KEY_FILE_VARIABLE = "WARPSMITH_KEY_FILE"
MASK = "[key]"
_SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD")  # endings of the names of variables with secrets
_SHORTEST = 6  # characters; a placeholder such as "none" is no secret and would be masked in every text


class Secret:
    """A secret text that only `reveal` returns."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The secret text."""
        return self._text

    def redact(self, text: str) -> str:
        """A text with the secret replaced by `MASK`."""
        return text.replace(self._text, MASK) if len(self._text) >= _SHORTEST else text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __repr__(self) -> str:
        return "Secret(...)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be pickled; pass the name of its variable instead")


NO_SECRET = Secret("")


@dataclass(frozen=True)
class Keyring:
    """The variables of the environment and of a key file; the file takes precedence. Its repr shows no values."""

    _values: Mapping[str, Secret] = field(default_factory=dict, repr=False)
    file: Path | None = None

    @staticmethod
    def load(environ: Mapping[str, str], file: Path | None = None) -> Keyring:
        """The variables of an environment, and of the file given or named by `WARPSMITH_KEY_FILE`."""
        named = environ.get(KEY_FILE_VARIABLE, "").strip()
        path = file or (Path(named) if named else None)
        values = dict(environ)
        if path is not None:
            path = path.expanduser()
            values.update(read_key_file(path))
        return Keyring({name: Secret(value.strip()) for name, value in values.items()}, path)

    def secret(self, name: str) -> Secret:
        """A key; an empty secret if it is not set."""
        found = self._values.get(name, NO_SECRET)
        if not all(32 < ord(letter) < 127 for letter in found.reveal()):
            raise UsageError(
                f"{name} has characters that no key has (a line break, a space?); set it to the key alone."
            )
        return found

    def plain(self, name: str) -> str:
        """A setting that is no secret; "" if it is not set."""
        return self._values.get(name, NO_SECRET).reveal()

    def redact(self, text: str) -> str:
        """A text without the values of all variables whose names end like those of secrets."""
        for name, value in self._values.items():
            if name.upper().endswith(_SECRET_NAMES):
                text = value.redact(text)
        return text


def read_key_file(path: Path) -> dict[str, str]:
    """The variables in a file of lines `NAME=value`, blank lines and comments. Only its owner may read the file."""
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(f"cannot read the key file {path}: {reason}; give a text file of lines NAME=value.") from None
    if stat.S_IMODE(mode) & 0o077:
        raise UsageError(f"the key file {path} can be read by other users; run `chmod 600 {path}`.")
    values = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip().removeprefix("export ").strip()
        if not stripped or stripped.startswith("#"):
            continue
        name, sign, value = stripped.partition("=")
        if not sign or not name.strip().isidentifier():
            # The line is not shown: it may be a key without a name.
            raise UsageError(f"line {number} of the key file {path} is not NAME=value; write e.g. OPENAI_API_KEY=...")
        values[name.strip()] = value.strip().strip("\"'")
    return values
