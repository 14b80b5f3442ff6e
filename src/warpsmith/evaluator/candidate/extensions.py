"""torch.utils.cpp_extension inside a candidate's processes: built by the compile worker, only loaded by the host.

Both replace `load` and `load_inline` before the candidate is imported. This is convenience, not security: a host
cannot start a compiler anyway.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from warpsmith.backends.toolchain import find_cxx
from warpsmith.evaluator.candidate.light_headers import write_light_headers
from warpsmith.evaluator.candidate.python_module import PythonFault
from warpsmith.model.build import EXTENSION_RECORD


def _import_without_a_device() -> Any:
    """Import torch.utils.cpp_extension without starting CUDA, which it does to look for a device: no forked process
    could use CUDA afterwards."""
    ask = torch.cuda.is_available
    torch.cuda.is_available = lambda: True
    try:
        return importlib.import_module("torch.utils.cpp_extension")
    finally:
        torch.cuda.is_available = ask


cpp_extension = _import_without_a_device()


def build_into(folder: Path) -> None:
    """In the compile worker: build extensions below this folder and list them in its record."""
    built: dict[str, list[str]] = {}
    original: dict[str, Callable[..., Any]] = {"load": cpp_extension.load, "load_inline": cpp_extension.load_inline}

    def building(load: Callable[..., Any]) -> Callable[..., Any]:
        known = inspect.signature(load)

        def build(*args: Any, **kwargs: Any) -> Any:
            given = known.bind(*args, **kwargs).arguments
            name = str(given["name"])
            place = folder / name
            place.mkdir(parents=True, exist_ok=True)
            linked = [*(given.get("extra_ldflags") or []), *_shared_stdlib()]
            settled = {**given, "extra_ldflags": linked, "build_directory": str(place), "verbose": False}
            made = _load_light(load, settled, folder.parent / f"headers-{len(built)}-{name}")
            made = load(**settled) if made is None else made
            library = made if isinstance(made, str) else made.__file__
            built.setdefault(name, []).append(os.path.relpath(library, folder))
            (folder / EXTENSION_RECORD).write_text(json.dumps(built), encoding="utf-8")
            return made

        return build

    for name, load in original.items():
        setattr(cpp_extension, name, building(load))


def _load_light(load: Callable[..., Any], settled: Mapping[str, Any], headers: Path) -> Any:
    """The extension, built with short forms of PyTorch's headers; None if that is not possible."""
    if not write_light_headers(headers, Path(torch.__file__).parent / "include", _texts(settled)):
        return None
    included = [str(headers), *(settled.get("extra_include_paths") or [])]
    copies = {name: list(value) if isinstance(value, list) else value for name, value in settled.items()}
    try:  # `load_inline` adds to the lists that it is given
        return load(**{**copies, "extra_include_paths": included})
    except RuntimeError:  # perhaps of the short forms: PyTorch's own decide
        return None


def _texts(given: Mapping[str, Any]) -> Iterator[str]:
    """The sources of an extension, whether they are given as files or as texts."""
    for name in ("sources", "cpp_sources", "cuda_sources"):
        found = given.get(name) or []
        for source in [found] if isinstance(found, str) else found:
            yield Path(source).read_text(encoding="utf-8", errors="replace") if name == "sources" else str(source)


def _shared_stdlib() -> list[str]:
    """Link the shared C++ library (see `toolchain`): the imports of an extension must show what its source calls."""
    compiler = find_cxx(os.environ)
    if compiler is None or compiler.stdlib is None:
        return []
    return ["-Wl,--no-as-needed", str(compiler.stdlib), "-Wl,--as-needed"]


def load_from(folder: Path) -> None:
    """In the host: load what the compile worker built, in the same order."""
    record = folder / EXTENSION_RECORD
    built: dict[str, list[str]] = json.loads(record.read_text(encoding="utf-8")) if record.is_file() else {}

    def load(name: str, *_args: Any, is_python_module: bool = True, **_kwargs: Any) -> Any:
        libraries = built.get(name, [])
        if not libraries:
            raise PythonFault("import", f"the extension {name!r} was not built when the file was first imported.")
        library = folder / (libraries.pop(0) if len(libraries) > 1 else libraries[0])
        if not is_python_module:
            torch.ops.load_library(str(library))
            return str(library)
        spec = importlib.util.spec_from_file_location(library.name.partition(".")[0], library)
        assert spec is not None, "a library has a loader"
        assert spec.loader is not None, "a library has a loader"
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    for name in ("load", "load_inline"):
        setattr(cpp_extension, name, load)
