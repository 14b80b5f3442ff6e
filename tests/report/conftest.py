"""Runs that several files look at: made once for each worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.report import browser
from tests.report.browser import Browser
from tests.report.synthetic import Maker, make_run


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty trials."""
    return make_run(tmp_path_factory.mktemp("small") / "run", 30, Maker(lines=8))


@pytest.fixture(scope="session")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trials whose authors want the page."""
    return make_run(tmp_path_factory.mktemp("hostile") / "run", 12, Maker(lines=8, hostile=True))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser, where there is one."""
    path = browser.find()
    if path is None:
        pytest.skip("no Chromium on this machine; install Debian's chromium package to run the browser tests")
    with Browser(path) as started:
        yield started
