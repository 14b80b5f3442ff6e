from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.report.benches import make_bench
from tests.report.synthetic import NASTY
from warpsmith.model.errors import UsageError
from warpsmith.model.text import printable
from warpsmith.report import page as pages
from warpsmith.report.bench_page import bench_page
from warpsmith.report.page import ASSETS, SCRIPTS
from warpsmith.report.run_page import run_page


class Elements(HTMLParser):
    """The elements of a page with their attributes, and what scripts and styles hold."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._open = ""
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": []}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._open = tag
        if tag in self.inside:
            self.inside[tag].append("")

    def handle_data(self, data: str) -> None:
        if self._open in self.inside:
            self.inside[self._open][-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._open = ""


@pytest.fixture(scope="module")
def hostile(hostile_run: Path) -> str:
    page, texts = run_page(hostile_run)
    return pages.html(page, texts)


@pytest.fixture(scope="module")
def bench() -> str:
    return pages.html(bench_page(make_bench(("cupilot", NASTY), repeats=1, suffix=NASTY)))


@pytest.mark.parametrize("name", ["hostile", "bench"])
def test_nothing_that_others_wrote_becomes_an_element(name: str, request: pytest.FixtureRequest) -> None:
    text: str = request.getfixturevalue(name)
    elements = Elements(text)
    tags = [tag for tag, _ in elements.found]

    assert tags.count("script") == 3  # data, texts and our own
    assert tags.count("style") == 1
    assert not {"img", "svg", "iframe", "object", "form"} & set(tags)
    assert not any(key.startswith("on") for _, attributes in elements.found for key in attributes)
    shown = json.dumps(json.loads(elements.inside["script"][0]), ensure_ascii=False).replace('\\"', '"')
    assert printable(NASTY) in shown


@pytest.mark.parametrize("name", ["hostile", "bench"])
def test_the_policy_allows_this_style_and_this_script_alone(name: str, request: pytest.FixtureRequest) -> None:
    elements = Elements(request.getfixturevalue(name))
    policies = [a["content"] for tag, a in elements.found if tag == "meta" and "http-equiv" in a]
    (policy,) = policies
    assert policy is not None

    for directive, text in (("script-src", elements.inside["script"][2]), ("style-src", elements.inside["style"][0])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


@pytest.mark.parametrize("name", ["hostile", "bench"])
def test_it_refers_to_nothing_outside_itself(name: str, request: pytest.FixtureRequest) -> None:
    elements = Elements(request.getfixturevalue(name))
    addresses = [a[key] for _, a in elements.found for key in ("src", "href", "action", "data") if key in a]

    assert set(addresses) <= {"#main", "data:,"}
    assert not re.search(r"url\(|@import", elements.inside["style"][0])


@pytest.mark.parametrize("path", sorted(ASSETS.glob("*.js")), ids=lambda path: path.stem)
def test_scripts_never_turn_text_into_code_or_elements(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
        assert way not in text
    if path.stem == "live":  # in no file: it asks its own server alone
        assert set(re.findall(r"(?:fetch\(|address = runs\s*\? )(.{12})", text)) <= {"`/dashboard/", '"/dashboard/'}
    else:
        assert not re.search(r"fetch\(|EventSource|XMLHttpRequest|WebSocket|sendBeacon", text)
    assert "</script" not in text.lower()
    assert len(text.splitlines()) <= 400
    assert path.stem in {"live", *(name for names in SCRIPTS.values() for name in names)}


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(UsageError, match="give another --out"):
        pages.write(bench_page(make_bench(("cupilot",), repeats=1)), tmp_path / "file" / "report.html")
