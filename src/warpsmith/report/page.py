"""One HTML file that holds everything it shows: the document, the long texts, the style and the script.

The file is given to strangers and shows what strangers wrote, so three things are kept to: text reaches the page as
JSON that cannot end its element, the script makes elements of text nodes only, and a Content-Security-Policy allows
exactly this style and this script and no connection at all.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from warpsmith._version import __version__
from warpsmith.core.errors import UsageError
from warpsmith.core.inplace import put_in_place
from warpsmith.report.benchdocument import BenchPage
from warpsmith.report.document import RunPage, to_json
from warpsmith.report.texts import Texts

ASSETS = Path(__file__).parent / "assets"
SCRIPTS = {
    "run": ("dom", "chart", "table", "code", "verdicts", "lineage", "runcharts", "roof", "candidate", "run", "start"),
    "bench": ("dom", "chart", "table", "benchcharts", "bench", "start"),
}
"""The scripts of each kind of page, in order: they share one scope."""

_WHAT = {"run": "run report", "bench": "bench report"}
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def html(page: RunPage | BenchPage, texts: Texts | None = None) -> str:
    """The whole file."""
    style, script = _asset("page.css"), _script(SCRIPTS[page.kind])
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(_asset("page.html"))
    return template.render(
        policy=_policy(style, script),
        version=__version__,
        what=_WHAT[page.kind],
        title=page.title,
        subtitle=page.subtitle,
        figures=page.figures,
        remarks=page.remarks,
        style=style,
        script=script,
        data=_inert(to_json(page)),
        texts=(texts or Texts()).packed(),
    )


def write(page: RunPage | BenchPage, path: Path, texts: Texts | None = None) -> int:
    """Put the file in place in one step; its size in bytes."""
    content = html(page, texts).encode("utf-8", "replace")
    try:
        put_in_place(path, content, mode=0o644)
    except OSError as refused:
        raise UsageError(f"the report cannot be written to {path} ({refused.strerror}); give another --out.") from None
    return len(content)


def _inert(data: str) -> str:
    """JSON that means the same and holds nothing that an HTML parser looks for."""
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


def _script(names: Sequence[str]) -> str:
    parts = "\n".join(_asset(f"{name}.js") for name in names)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


@cache
def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
