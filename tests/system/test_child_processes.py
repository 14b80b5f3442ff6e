"""What the programs that are started import: nothing from the folder in which the user happens to be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import warpsmith
from warpsmith.cli.doctor import OK, check_torch

SOURCES = Path(warpsmith.__file__).parent
_STARTED = re.compile(r'(?:sys\.executable|\[python), (?P<options>(?:"-\w+", )*)"-[mc]"', re.S)


def test_the_current_folder_is_not_imported_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -c` and `python -m` put it first on their path: a folder of a stranger would be executed."""
    (tmp_path / "torch.py").write_text("from pathlib import Path\nPath('executed').touch()\n")
    monkeypatch.chdir(tmp_path)
    assert check_torch().state == OK
    assert not (tmp_path / "executed").exists()


def test_every_python_that_is_started_leaves_the_current_folder_out() -> None:
    found = {}
    for path in SOURCES.rglob("*.py"):
        text = re.sub(r"\s+", " ", path.read_text(encoding="utf-8"))
        for started in _STARTED.finditer(text):
            found[path.relative_to(SOURCES).as_posix()] = {"-P", "-I"} & set(re.findall(r"-\w", started["options"]))
    assert len(found) >= 8
    assert not [name for name, safe in found.items() if not safe]
