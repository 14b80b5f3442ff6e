"""A folder that all processes of one test run share, such as for what need be compiled only once.

The process that starts the others makes it and removes it at the end: `conftest.py` calls `make` and `remove`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

_VARIABLE = "SHARED_TEST_FOLDER"
_made = pytest.StashKey[Path]()


def make(config: pytest.Config) -> None:
    """Make the folder, unless this is a process that another one started for a part of its tests."""
    if not hasattr(config, "workerinput"):
        config.stash[_made] = Path(tempfile.mkdtemp(prefix="test-shared-"))
        os.environ[_VARIABLE] = str(config.stash[_made])


def remove(config: pytest.Config) -> None:
    """Remove it: by now the other processes have ended."""
    folder = config.stash.get(_made, None)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def shared_folder() -> Path:
    """That folder."""
    return Path(os.environ[_VARIABLE])
