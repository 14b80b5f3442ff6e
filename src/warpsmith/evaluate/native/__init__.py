"""Small C pieces that are compiled on first use and loaded into the candidate's process.

`faults.c` turns a segmentation fault into an address, so that the verdict can say which buffer was overrun.
Without a C compiler the evaluator works as before, with less to say about a crash.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from warpsmith.backends.toolchain import find_cxx

_SOURCE = Path(__file__).with_name("faults.c")


def fault_library(cache: Path, environ: Mapping[str, str]) -> str:
    """The path of the compiled fault reporter; "" where it cannot be built."""
    compiler = find_cxx(environ)
    if compiler is None:
        return ""
    key = hashlib.sha256(_SOURCE.read_bytes() + compiler.identity.encode()).hexdigest()[:16]
    target = cache / "native" / f"faults-{key}.so"
    if target.exists():
        return str(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            built = Path(folder) / "faults.so"
            command = [*compiler.command, "-x", "c", "-O2", "-shared", "-fPIC", "-o", str(built), str(_SOURCE)]
            done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
            if done.returncode != 0:
                return ""
            os.replace(built, target)
    except (OSError, subprocess.TimeoutExpired):  # a full disk, or a compiler that has just gone
        return ""
    return str(target)
