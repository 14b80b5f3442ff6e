"""The site of the documentation: it has every page and every public name, builds strictly, and fetches nothing."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import venv
from pathlib import Path
from typing import Any

import pytest

import warpsmith
from tests.docs.pages import PAGES, ROOT


def said_by_hooks(name: str) -> Any:
    """A constant of mkdocs_hooks.py, which needs mkdocs to be imported."""
    (value,) = (
        node.value
        for node in ast.parse((ROOT / "mkdocs_hooks.py").read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
    )
    return ast.literal_eval(value)


def test_the_navigation_has_every_page() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = re.findall(r"^ +- .+: (\w+\.md)$", text, re.MULTILINE)
    outside = said_by_hooks("PAGES")
    assert all((ROOT / file).is_file() for file in outside)
    assert sorted(named) == sorted([page.name for page in PAGES[1:]] + [*outside.values(), "reference.md"])


def test_the_reference_has_every_public_name() -> None:
    listed = [name for names in said_by_hooks("REFERENCE").values() for name in names]
    assert len(listed) == len(set(listed))
    assert set(warpsmith.__all__) - {"__version__"} == {name for name in listed if "." not in name}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_site_builds_strictly_and_fetches_nothing(tmp_path: Path) -> None:
    """`make docs` in an environment of its own; then once more with a link that leads nowhere."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for each in ROOT.iterdir():
        if each.name not in ("docs", "site", "src", ".venv", ".git"):
            (checkout / each.name).symlink_to(each)
    for folder in ("docs", "src"):
        shutil.copytree(ROOT / folder, checkout / folder, ignore=shutil.ignore_patterns("__pycache__"))
    venv.create(checkout / ".venv", with_pip=True)
    (checkout / ".venv" / "ready").touch()

    def make_docs() -> subprocess.CompletedProcess[str]:
        command = ["make", "--old-file=.venv/ready", "docs"]
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        return subprocess.run(command, cwd=checkout, env=environ, capture_output=True, text=True)

    built = make_docs()
    assert built.returncode == 0, built.stderr
    pages = {path: path.read_text(encoding="utf-8") for path in (checkout / "site").rglob("*.html")}
    for path, text in pages.items():
        assert not re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"?https?:", text), path
    reference = pages[checkout / "site" / "reference" / "index.html"]
    for name in set(warpsmith.__all__) - {"__version__"}:
        assert f'id="warpsmith.{name}"' in reference, name
    assert (checkout / "site" / "files" / "tests" / "attacks" / "cpu" / "zeros.cpp.txt").is_file()

    with (checkout / "docs" / "tasks.md").open("a", encoding="utf-8") as file:
        file.write("\n[nowhere](nowhere.md)\n")
    refused = make_docs()
    assert refused.returncode != 0
    assert "nowhere.md" in refused.stderr + refused.stdout
