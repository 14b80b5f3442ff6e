"""Writes a report as one HTML file: the document, the long texts, the style and the script.

The file is shared with others and shows text of unknown origin. Therefore text is in the page as JSON that cannot end
its element, the script only makes text nodes, and a Content-Security-Policy allows this style and this script only,
and no connection.

Prompts, replies and code of a run repeat each other. `Texts` therefore stores each line once: a text is a list of line
numbers. The browser unpacks them when the first candidate is opened.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from jinja2 import Environment, StrictUndefined, Template

from warpsmith._version import __version__
from warpsmith.model.errors import UsageError
from warpsmith.model.text import printable
from warpsmith.report.document import BenchPage, RunPage, TrialView, to_json
from warpsmith.system.files import put_in_place


class Texts:
    """Collects texts and numbers them; text 0 is empty. A text is made printable when it is read."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {"": 0}
        self._texts = [""]

    def add(self, text: str) -> int:
        """The number of a text; equal texts have the same number."""
        number = self._numbers.setdefault(text, len(self._texts))
        if number == len(self._texts):
            self._texts.append(text)
        return number

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, number: int) -> str:
        return printable(self._texts[number].replace("\r\n", "\n"))

    def __iter__(self) -> Iterator[str]:
        """The texts in the order of their numbers."""
        return map(self.__getitem__, range(len(self)))

    def packed(self) -> str:
        """All texts as base64 of deflated JSON, `{"lines": [...], "texts": [[...]]}`."""
        lines: dict[str, int] = {"": 0}
        texts = [list(_steps(text, lines)) for text in self]
        document = json.dumps({"lines": list(lines), "texts": texts}, ensure_ascii=False, separators=(",", ":"))
        return base64.b64encode(zlib.compress(document.encode(), 9)).decode()


def _steps(text: str, lines: dict[str, int]) -> Iterator[int]:
    """The line numbers of a text as differences: a repeated passage is a series of ones. Adds lines that are new."""
    before = 0
    for line in text.split("\n") if text else ():
        number = lines.setdefault(line, len(lines))
        yield number - before
        before = number


ASSETS = Path(__file__).parent / "assets"
SCRIPTS = {
    "run": ("dom", "chart", "table", "code", "verdicts", "lineage", "runcharts", "roof", "candidate", "run", "start"),
    "bench": ("dom", "chart", "table", "benchcharts", "bench", "start"),
    "runs": ("dom", "chart", "table", "runs", "start"),
}
"""The scripts of each kind of page, in order: they share one scope."""

_WHAT = {"run": "run report", "bench": "bench report"}
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def html(page: RunPage[TrialView] | BenchPage, texts: Texts | None = None) -> str:
    """The whole file."""
    style, script = asset("page.css"), script_of(page.kind)
    return _template().render(
        policy=_policy(style, script),
        version=__version__,
        what=_WHAT[page.kind],
        title=page.title,
        subtitle=page.subtitle,
        figures=page.figures,
        remarks=page.remarks,
        style=style,
        script=script,
        data=_escaped(to_json(page)),
        texts=(texts or Texts()).packed(),
        home="",
    )


def live_html(kind: str, title: str, subtitle: str, data: str, home: str) -> str:
    """The same page from a server, which sends style and script under `home`; `data` is the document as JSON."""
    return _template().render(
        policy="",
        version=__version__,
        what="dashboard" if kind == "runs" else kind,
        title=title,
        subtitle=subtitle,
        figures=(),
        remarks=(),
        style=f"{home}/assets/page.css?v={version_of(asset('page.css'))}",
        script=f"{home}/assets/{kind}.js?v={version_of(script_of(kind, live=True))}",
        data=_escaped(data),
        texts="",
        home=home,
    )


LIVE_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""The Content-Security-Policy of pages from a server: nothing inline, nothing from elsewhere."""


@cache
def _template() -> Template:
    shown = Environment(autoescape=True, undefined=StrictUndefined, finalize=_printable)
    return shown.from_string(asset("page.html"))


def _printable(value: object) -> object:
    return printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def write(page: RunPage[TrialView] | BenchPage, path: Path, texts: Texts | None = None) -> int:
    """Write the file in one step; returns its size in bytes."""
    content = html(page, texts).encode("utf-8", "replace")
    try:
        put_in_place(path, content, mode=0o644)
    except OSError as refused:
        raise UsageError(f"the report cannot be written to {path} ({refused.strerror}); give another --out.") from None
    return len(content)


def _escaped(data: str) -> str:
    """JSON with every character escaped that has a meaning in HTML."""
    for sign, escape in _ESCAPES.items():
        data = data.replace(sign, escape)
    return data


def _policy(style: str, script: str) -> str:
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_digest(script)}'",
            f"style-src '{_digest(style)}'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def version_of(text: str) -> str:
    """A name for the contents of a style or a script, so that a browser may keep the file."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def script_of(kind: str, *, live: bool = False) -> str:
    """The script of a kind of page; a live one also follows its server."""
    *names, last = SCRIPTS[kind]
    parts = "\n".join(asset(f"{name}.js") for name in (*names, *(("live",) if live else ()), last))
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


@cache
def asset(name: str) -> str:
    """The text of a file in the folder of assets."""
    return (ASSETS / name).read_text(encoding="utf-8")
