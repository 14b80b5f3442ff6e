"""Tasks for the tests of strategies and templates."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernel_templates.operators import write_tasks


@pytest.fixture(scope="session")
def operators_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file with all operators of `operators`."""
    return write_tasks(tmp_path_factory.mktemp("operators"))
