"""Triton in the evaluator's processes: prepared in the fork server of Python candidates, its cache copied into a host.

Triton starts programs to find the version of ptxas, which is part of its cache keys, and the driver's library. A host
cannot start programs, so the fork server asks once and every host inherits the answers. Does nothing without Triton.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

AVAILABLE = importlib.util.find_spec("triton") is not None
_ARCHITECTURES = (75, 80, 86, 89, 90, 100, 103, 120)


def move_cache(source: Path, target: Path) -> None:
    """Copy a cache: Triton writes into it, and it contains the paths of its own files."""
    for path in sorted(source.rglob("*")):  # copytree would set modes and times, which the sandbox refuses
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            shutil.copyfile(path, place)
    for group in target.rglob("__grp__*"):
        with contextlib.suppress(ValueError, KeyError, AttributeError):  # the candidate wrote these files
            children = json.loads(group.read_text(encoding="utf-8"))["child_paths"]
            moved = {name: str(group.parent / Path(path).name) for name, path in children.items()}
            group.write_text(json.dumps({"child_paths": moved}), encoding="utf-8")


def watch_images() -> dict[int, str]:
    """A dictionary, filled from now on: the digest of the image of each kernel, by the kernel's handle."""
    seen: dict[int, str] = {}
    # Internals of Triton, which differ between releases. Without them, a kernel name that occurs twice is not replayed.
    with contextlib.suppress(ImportError, AttributeError, RuntimeError):
        utils = importlib.import_module("triton.runtime").driver.active.utils
        real = utils.load_binary

        def load_binary(name: str, kernel: bytes, *rest: object) -> tuple[object, ...]:
            made: tuple[object, ...] = real(name, kernel, *rest)
            if isinstance(made[1], int):
                seen[made[1]] = hashlib.sha256(kernel).hexdigest()
            return made

        utils.load_binary = load_binary
    return seen


def _ask_version(compiler: ModuleType, arch: int) -> object:
    return compiler.get_ptxas_version(arch)


def _prepare() -> None:
    compiler = importlib.import_module("triton.backends.nvidia.compiler")
    driver = importlib.import_module("triton.backends.nvidia.driver")
    questions: list[Callable[[], object]] = [
        *(partial(_ask_version, compiler, arch) for arch in _ARCHITECTURES),
        lambda: importlib.import_module("triton.knobs").nvidia.ptxas,
        lambda: driver.library_dirs(),
        lambda: importlib.import_module("triton.runtime.build").platform_key(),
        lambda: importlib.import_module("triton.runtime.cache").triton_key(),
    ]
    for ask in questions:
        # Internals of Triton, which differ between releases: an unknown question is skipped.
        with contextlib.suppress(Exception):
            ask()


if AVAILABLE:
    importlib.import_module("triton")
    with contextlib.suppress(ImportError):  # a build without the NVIDIA backend
        _prepare()
