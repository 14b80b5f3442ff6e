"""Puts a file in its place in one step: a reader never sees half of it, an interruption leaves the old one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def put_in_place(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write beside the file, then replace it; folders are made. An OSError where that fails leaves nothing behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
