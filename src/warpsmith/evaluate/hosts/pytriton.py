"""Triton inside our processes: made ready in the parent of Python candidates, its cache moved to where a host is.

Triton keys its cache by the version of ptxas and looks for the driver's library, and starts programs for both. Asked
here, once, the answers are inherited by every host, which could start none. Without Triton this does nothing.
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
    """Copy a cache: Triton wants to write in it, and it holds the paths of its own files."""
    for path in sorted(source.rglob("*")):  # by hand: copytree sets modes and times too, which is refused in here
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            shutil.copyfile(path, place)
    for group in target.rglob("__grp__*"):
        with contextlib.suppress(ValueError, KeyError, AttributeError):  # what a candidate left there may be anything
            children = json.loads(group.read_text(encoding="utf-8"))["child_paths"]
            moved = {name: str(group.parent / Path(path).name) for name, path in children.items()}
            group.write_text(json.dumps({"child_paths": moved}), encoding="utf-8")


def watch_images() -> dict[int, str]:
    """Which image each kernel comes from, by its handle, from now on: several may hold kernels of the same name."""
    seen: dict[int, str] = {}
    # Internals of Triton, which differ between releases: without them a name that occurs twice is not replayed.
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
        # Internals of Triton, which differ between releases: a question it does not know costs nothing.
        with contextlib.suppress(Exception):
            ask()


if AVAILABLE:
    importlib.import_module("triton")
    with contextlib.suppress(ImportError):  # a build without the NVIDIA backend
        _prepare()
