"""The command line in the process of the tests: what starts no worker takes a hundredth of the time there."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from warpsmith.cli.main import main


def run_here(folder: Path, environ: Mapping[str, str], *words: str) -> tuple[int, str, str]:
    """The exit status, standard output and messages of a command in a folder, with these variables and no others."""
    out, err = io.StringIO(), io.StringIO()
    terminated = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in [name for name in os.environ if name not in environ]:
            patch.delenv(name)
        for name, value in environ.items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["warpsmith", *words])
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
                main()
        finally:
            signal.signal(signal.SIGTERM, terminated)
    status = ended.value.code
    assert isinstance(status, int | None), status
    return status or 0, out.getvalue(), err.getvalue()
