"""Where the best kernel of a run may be put is known before anything is spent."""

from __future__ import annotations

from pathlib import Path

import pytest

from warpsmith.model.errors import UsageError
from warpsmith.runtime.bundle import MANIFEST
from warpsmith.search.best_kernel import check_output


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a file, an old bundle, and things that are neither."""
    for name in ("bundle", "full", "dotted.d"):
        (tmp_path / name).mkdir()
    (tmp_path / "bundle" / MANIFEST).write_text("{}")
    (tmp_path / "full" / "thesis.tex").write_text("")
    (tmp_path / "old.cpp").write_text("")
    return tmp_path


@pytest.mark.parametrize("out", ["old.cpp", "new.cpp", "a/b/new.cpp", "bundle", "a/b/new"])
def test_a_place_that_can_be_written_is_left_as_it_is(place: Path, out: str) -> None:
    before = sorted(place.rglob("*"))
    check_output(str(place / out))
    check_output("")
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("old.cpp/best.cpp", r"cannot be written \(Not a directory\); give another"),
        ("dotted.d", "is a folder; name a file in it"),
        ("full", "is there already and is no bundle; give another"),
        ("old", None),
        ("/proc/x/best.cpp", "cannot be written"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused(place: Path, out: str, said: str | None) -> None:
    if said is None:
        check_output(str(place / out))
        return
    with pytest.raises(UsageError, match=f"--out .*{out}.* ?{said}"):
        check_output(str(place / out))
