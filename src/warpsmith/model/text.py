"""Text of strangers, made fit to be printed. Every command prints foreign words through `printable`."""

from __future__ import annotations

import re

_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, with the escape that begins terminal commands
    "\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"  # bidirectional and invisible characters
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
    "\ud800-\udfff]"  # halves of a pair, which no encoding has
)

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}")


def printable(text: str) -> str:
    """The same text with a visible sign for each character that would steer a terminal; line feeds and tabs stay."""
    return _UNPRINTABLE.sub(_sign, text)


def one_line(text: str) -> str:
    """The same, in one line."""
    return " ".join(printable(text).split())


def plain_name(name: str) -> str:
    """The same name; a ValueError unless it is a single path component that neither a shell nor a compiler reads."""
    if not _PLAIN_NAME.fullmatch(name):
        raise ValueError(f"{name[:100]!r} is no plain file name")
    return name


def _sign(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"
