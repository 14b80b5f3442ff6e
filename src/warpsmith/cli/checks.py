"""What commands check before any work starts: task file, cache folder, device, baselines, libraries."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Sequence
from ctypes.util import find_library
from dataclasses import replace
from pathlib import Path

from warpsmith.backends.source import backend_of, devices_of
from warpsmith.backends.toolchain import find_nvcc
from warpsmith.engine.engine import LOCAL, engine_site
from warpsmith.hardware.device import Device
from warpsmith.model.candidate import Candidate
from warpsmith.model.errors import CandidateError, TaskError, ToolMissing, UsageError
from warpsmith.model.evaluation import Status
from warpsmith.model.settings import Paths, Settings
from warpsmith.tasks.suites import check_syntax, resolve_task, similar_titles

BASELINES = ("eager", "compile")
_LIBRARIES = (  # names that the guards know; any other is accepted if the linker finds it
    *("torch", "cublas", "cublasLt", "cudnn", "curand", "cufft", "cusparse", "cusolver", "nvrtc", "cuda"),
    *("openblas", "blas", "cblas", "lapack", "blis", "mkl"),
)


def find_task(text: str) -> str:
    """The task that a user names, as the loader takes it: `suite/name` becomes the file of that task."""
    task = resolve_task(text)
    check_task_file(task)
    return task


def check_task_file(task: str) -> None:
    """Raise if TASK cannot be a task file. Only the judge executes the file and sees what is in it."""
    path = Path(task.partition("::")[0])
    try:
        folder, exists = path.is_dir(), path.exists()
    except OSError as refused:  # e.g. a name that is too long
        raise TaskError(f"{path} cannot be read ({refused.strerror}); name a task file.") from None
    if folder:
        raise TaskError(f"{path} is a folder; name a task file in it.")
    if not exists:
        raise TaskError(f"there is no task file {path}; {_suggestion(task)}")
    if path.suffix == ".py":
        check_syntax(task)
        return
    try:
        backend_of(path)
    except CandidateError:
        return  # an odd name for a Python file, but the loader reads it
    raise UsageError(f"{path} is a kernel, not a task: the task file comes first, then the kernels.")


def _suggestion(task: str) -> str:
    """What to write instead of a TASK that is no file."""
    path = Path(task)
    beside = {each.stem: each for each in path.parent.glob("*.py")}
    if near := difflib.get_close_matches(path.stem, beside, n=3, cutoff=0.75):
        return f"did you mean {' or '.join(str(beside[name]) for name in near)}?"
    similar = similar_titles(path.stem) if "/" not in task else ()
    if similar:
        return f"did you mean {' or '.join(similar)}? `warpsmith suite list` shows all."
    return "TASK is a Python file, file.py::name for one of several, or SUITE/NAME from `warpsmith suite list`."


def writable_paths() -> Paths:
    """The folders of this user; raises if the cache cannot be written."""
    paths = Paths.from_environment()
    check_cache(paths.cache)
    return paths


def check_cache(folder: Path) -> None:
    """Raise if the cache folder cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as refused:
        raise UsageError(
            f"the cache folder {folder} cannot be made ({refused.strerror}); set WARPSMITH_CACHE."
        ) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"the cache folder {folder} cannot be written; set WARPSMITH_CACHE to one of yours.")


def choose_device(spec: str, candidates: Sequence[Candidate], engine: str = LOCAL) -> Device:
    """The device for these files; raises if the files do not fit it, or if it or its compiler is missing."""
    site = engine_site(engine)
    example = candidates[0].main.name
    common = devices_of(candidates[0])
    for candidate in candidates[1:]:
        shared = tuple(kind for kind in common if kind in devices_of(candidate))
        if not shared:
            other = f"{candidate.main.name} ({devices_of(candidate)[0]})"
            both = f"{example} ({common[0]}) and {other}"
            raise UsageError(f"these files run on different devices: {both}; evaluate each kind by itself.")
        example, common = (candidate.main.name, shared) if len(shared) < len(common) else (example, common)
    wanted = spec.partition(":")[0]
    if wanted in ("cpu", "cuda") and wanted not in common:
        raise UsageError(f"{example} runs on {common[0]}, not on {spec}; leave out --device or choose {common[0]}.")
    present = [kind for kind in common if kind != "cuda" or site.has_gpu]
    kind = wanted if wanted in common else present[0] if present else common[0]
    if kind == "cuda" and spec in ("auto", "cuda") and not site.has_gpu:
        raise ToolMissing(
            f"{example} needs an NVIDIA GPU and none is visible here; "
            "evaluate it on a machine with one, or write the kernel in C++ (.cpp) for the CPU."
        )
    device = site.select(kind if spec == "auto" else spec)
    for backend in dict.fromkeys(candidate.backend for candidate in candidates):
        available = site.available(backend)
        if not available.build:
            raise ToolMissing(f"{example} cannot be built: {available.detail}.")
    return device


def evaluation_settings(
    *, baseline: str, allow: str, seeds: int | None, timeout: float | None, time_budget: float | None
) -> Settings:
    """The settings of an evaluation or a verification, from the options that both commands take."""
    settings = replace(
        settings_with_timing(time_budget), baselines=parse_baselines(baseline), allow=parse_libraries(allow)
    )
    if seeds is not None:
        settings = replace(settings, seeds=seeds)
    if timeout is None:
        return settings
    # A longer call must not run into the limit for the whole evaluation instead.
    limits = settings.limits
    scale = max(1.0, timeout / limits.launch_s)
    return replace(settings, limits=replace(limits, launch_s=timeout, total_s=limits.total_s * scale))


def settings_with_timing(seconds: float | None) -> Settings:
    """The usual settings, with another time for timing if one is given."""
    return Settings() if seconds is None else replace(Settings(), timing_budget_s=seconds)


def parse_baselines(text: str) -> tuple[str, ...]:
    """`eager,compile` as names, each once."""
    names = _names(text)
    unknown = [name for name in names if name not in BASELINES]
    if unknown or not names:
        what = f"unknown baseline {unknown[0]!r}" if unknown else "--baseline names no baseline"
        raise UsageError(f"{what}; known: {', '.join(BASELINES)}.")
    return names


def parse_libraries(text: str) -> tuple[str, ...]:
    """`cublas,cudnn` as names, each once."""
    names = _names(text)
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9_+-]+", name):
            raise UsageError(f"--allow {name!r} is no library; name it as for the linker, e.g. cublas, or torch.")
        if name not in _LIBRARIES and not name.startswith("mkl") and not _is_installed(name):
            known = ", ".join(_LIBRARIES)
            raise UsageError(f"--allow {name}: the linker finds no library of that name here; known: {known}.")
    return names


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _is_installed(library: str) -> bool:
    """True if the linker, or that of nvcc, would find the library."""
    if find_library(library):
        return True
    nvcc = find_nvcc(os.environ)
    root = Path(nvcc.command[0]).resolve().parents[1] if nvcc else None
    return root is not None and any((root / folder / f"lib{library}.so").exists() for folder in ("lib64", "lib"))


def exit_status(statuses: Sequence[Status]) -> int:
    """0 if all candidates are valid, 1 if one is invalid, 2 if one could not be judged."""
    if Status.NOT_JUDGED in statuses:
        return 2
    return 0 if all(status is Status.OK for status in statuses) else 1
