"""Small C pieces that are compiled on first use and loaded into the candidate's process.

`faults.c` turns a segmentation fault into an address, so that the verdict can say which buffer was overrun; `heap.c`
lets a PyTorch module allocate where its calls can be replayed. Without a C compiler the evaluator works as before, with
less to say about a crash and with modules timed from outside.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from warpsmith.backends.toolchain import find_cxx

FAULTS, HEAP = "faults", "heap"


def native_library(name: str, cache: Path, environ: Mapping[str, str]) -> str:
    """The path of a compiled piece; "" where it cannot be built."""
    compiler = find_cxx(environ)
    if compiler is None:
        return ""
    source = Path(__file__).with_name(f"{name}.c")
    key = hashlib.sha256(source.read_bytes() + compiler.identity.encode()).hexdigest()[:16]
    target = cache / "native" / f"{name}-{key}.so"
    if target.exists():
        return str(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            built = Path(folder) / f"{name}.so"
            command = [*compiler.command, "-x", "c", "-O2", "-shared", "-fPIC", "-o", str(built), str(source)]
            done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
            if done.returncode != 0:
                return ""
            os.replace(built, target)
    except (OSError, subprocess.TimeoutExpired):  # a full disk, or a compiler that has just gone
        return ""
    return str(target)
