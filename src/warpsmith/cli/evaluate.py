"""`warpsmith evaluate TASK FILE...`: judge kernel files and show the verdicts.

Everything a user can get wrong is looked at before a worker starts. Judging itself is the evaluator's part.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from ctypes.util import find_library
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from warpsmith.backends.source import backend_named, backend_of, devices_of, read_candidate
from warpsmith.backends.toolchain import find_nvcc
from warpsmith.cli import jsonout, render
from warpsmith.core.candidate import Candidate
from warpsmith.core.config import Limits, Paths, Settings
from warpsmith.core.errors import CandidateError, TaskError, ToolMissing, UsageError
from warpsmith.core.evaluation import Evaluation, Status
from warpsmith.core.task import Precision
from warpsmith.evaluate.evaluator import Evaluator
from warpsmith.evaluate.evaluator import Progress as Event
from warpsmith.hardware.device import Device, gpus, select_device
from warpsmith.tasks.suites import SHIPPED, alike, resolve

if TYPE_CHECKING:
    from warpsmith.cli.verify import Certified  # which uses this module itself

BASELINES = ("eager", "compile")
_LIBRARIES = (  # names that the guards know; any other is taken if the linker finds it
    *("torch", "cublas", "cublasLt", "cudnn", "curand", "cufft", "cusparse", "cusolver", "nvrtc", "cuda"),
    *("openblas", "blas", "cblas", "lapack", "blis", "mkl"),
)


@dataclass(frozen=True)
class Request:
    """What the command line asked for, as written."""

    task: str
    files: tuple[str, ...]
    device: str = "auto"
    entry: str = ""  # which function of the files to call, and with what; "" for the contract's own
    baselines: str = "eager"
    allow: str = ""  # libraries the kernels may call, besides those that the task allows
    precision: Precision | None = None
    seeds: int | None = None
    launch_s: float | None = None
    timing_budget_s: float | None = None
    fresh: bool = False
    verify: bool = False
    as_json: bool = False


@dataclass(frozen=True)
class _Plan:
    """What will be judged: each program once, whatever number of files it came in."""

    candidates: tuple[Candidate, ...]
    places: tuple[int, ...]  # for each file given, its position in `candidates`


def run(request: Request) -> int:
    """Judge, show, and give the exit status."""
    check_task_file(request.task)
    plan = _plan(request.files, request.entry)
    device = choose_device(request.device, plan.candidates)
    settings = _settings(request)
    paths = Paths.from_environment()
    check_cache(paths.cache)
    errors = render.console(stderr=True)
    verdicts: dict[int, Evaluation] = {}
    shown = 0
    with _watched(errors, len(plan.candidates), Path(request.task).name) as watch:
        with Evaluator(
            device,
            settings,
            paths=paths,
            on_progress=watch.event,
            on_message=watch.message,
        ) as evaluator:
            for position, evaluation in evaluator.evaluate(
                request.task, plan.candidates, request.precision, fresh=request.fresh
            ):
                verdicts[position] = evaluation
                if request.as_json and not request.verify:  # a certificate belongs to the same line
                    shown = _print_ready(request, plan, device, verdicts, shown, {})
            certified = _certify(evaluator, paths, request, plan, verdicts, errors) if request.verify else {}
    pairs = zip(request.files, plan.places, strict=True)
    judged = [render.Judged(file, verdicts[place], fresh=True) for file, place in pairs]
    if request.as_json:
        _print_ready(request, plan, device, verdicts, shown, certified)
    else:
        render.show(render.console(), render.card(judged[0]) if len(judged) == 1 else render.overview(judged))
        _show_certificates(request.files, plan, certified)
    status = exit_status([j.evaluation.status for j in judged])
    return status or int(any(not each.certificate.verified for each in certified.values()))


def _certify(
    evaluator: Evaluator,
    paths: Paths,
    request: Request,
    plan: _Plan,
    verdicts: dict[int, Evaluation],
    console: Console,
) -> dict[int, Certified]:
    """Verify every valid candidate, the fastest first."""
    from warpsmith.cli.verify import Show, certify

    valid = [position for position, verdict in verdicts.items() if verdict.ok]
    valid.sort(key=lambda position: -(verdicts[position].speedup(jsonout.baseline_names(verdicts[position])[0]) or 0.0))
    found: dict[int, Certified] = {}
    show = Show(console)
    for position in valid:
        candidate = plan.candidates[position]
        if len(valid) > 1:
            show.message(f"{candidate.main.name}:")
        found[position] = certify(
            evaluator, paths, request.task, candidate, request.precision, show, first=verdicts[position]
        )
    return found


def _show_certificates(files: Sequence[str], plan: _Plan, certified: Mapping[int, Certified]) -> None:
    from warpsmith.cli import certcard

    shown = [
        (file, certified[place].certificate, str(certified[place].path))
        for file, place in zip(files, plan.places, strict=True)
        if place in certified
    ]
    if len(shown) == 1:
        render.show(render.console(), "", certcard.card(shown[0][1], shown[0][0], shown[0][2]))
    elif shown:
        render.show(render.console(), "", certcard.overview(shown))


def exit_status(statuses: Sequence[Status]) -> int:
    """0: all valid; 1: a candidate is invalid; 2: we failed to judge one."""
    if Status.NOT_JUDGED in statuses:
        return 2
    return 0 if all(status is Status.OK for status in statuses) else 1


def check_task_file(task: str) -> None:
    """Raise where TASK cannot be a task file; what is in it, only the judge can tell."""
    path = Path(task.partition("::")[0])
    try:
        folder, there = path.is_dir(), path.exists()
    except OSError as refused:  # e.g. a name that is too long
        raise TaskError(f"{path} cannot be read ({refused.strerror}); name a task file.") from None
    if folder:
        raise TaskError(f"{path} is a folder; name a task file in it.")
    if not there:
        raise TaskError(f"there is no task file {path}; {_meant(task)}.")
    if path.suffix == ".py":
        return
    try:
        backend_of(path)
    except CandidateError:
        return  # an odd name for a Python file, but the loader reads it
    raise UsageError(f"{path} is a kernel, not a task: the task file comes first, then the kernels.")


def _meant(task: str) -> str:
    """What to write instead of a TASK that is no file: the task of a suite that is called so, or what there is."""
    for suite in SHIPPED if Path(task).suffix != ".py" else ():
        with contextlib.suppress(TaskError):
            resolve(f"{suite}/{task}")
            return f"the task of that name in a suite is {suite}/{task}"
    meant = alike(Path(task).stem) if "/" not in task else ()
    if meant:
        return f"perhaps {' or '.join(meant)} is meant; `warpsmith suite list` shows all"
    return "TASK is a Python file, file.py::name for one of several, or one of `warpsmith suite list`, as SUITE/NAME"


def check_cache(folder: Path) -> None:
    """Raise where nothing could be kept there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as refused:
        raise UsageError(
            f"the cache folder {folder} cannot be made ({refused.strerror}); set WARPSMITH_CACHE."
        ) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"the cache folder {folder} cannot be written; set WARPSMITH_CACHE to one of yours.")


def choose_device(spec: str, candidates: Sequence[Candidate]) -> Device:
    """The device the files are for; raises where they do not fit it, or it or its compiler is missing."""
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
    there = [kind for kind in common if kind != "cuda" or gpus()]
    kind = wanted if wanted in common else there[0] if there else common[0]
    if kind == "cuda" and spec in ("auto", "cuda") and not gpus():
        raise ToolMissing(
            f"{example} needs an NVIDIA GPU and none is visible here; "
            "evaluate it on a machine with one, or write the kernel in C++ (.cpp) for the CPU."
        )
    device = select_device(kind if spec == "auto" else spec)
    for backend in dict.fromkeys(candidate.backend for candidate in candidates):
        available = backend_named(backend).available()
        if not available.build:
            raise ToolMissing(f"{example} cannot be built: {available.detail}.")
    return device


def _plan(files: Sequence[str], entry: str) -> _Plan:
    found: dict[str, Candidate] = {}
    ids = []
    for file in files:
        candidate = read_candidate(Path(file), entry=entry)
        found.setdefault(candidate.id, candidate)
        ids.append(candidate.id)
    order = list(found)
    return _Plan(tuple(found.values()), tuple(order.index(each) for each in ids))


def _settings(request: Request) -> Settings:
    limits = Limits()
    if request.launch_s is not None:
        # A longer call must not run into the limit for the whole evaluation instead.
        scale = max(1.0, request.launch_s / limits.launch_s)
        limits = replace(limits, launch_s=request.launch_s, total_s=limits.total_s * scale)
    default = Settings()
    return replace(
        default,
        baselines=parse_baselines(request.baselines),
        allow=parse_libraries(request.allow),
        seeds=default.seeds if request.seeds is None else request.seeds,
        timing_budget_s=default.timing_budget_s if request.timing_budget_s is None else request.timing_budget_s,
        limits=limits,
    )


def timed_for(seconds: float | None) -> Settings:
    """The usual settings, with another time for timing where one is given."""
    default = Settings()
    return default if seconds is None else replace(default, timing_budget_s=seconds)


def parse_baselines(text: str) -> tuple[str, ...]:
    """`eager,compile` as names, each once."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    unknown = [name for name in names if name not in BASELINES]
    if unknown or not names:
        what = f"unknown baseline {unknown[0]!r}" if unknown else "--baseline names no baseline"
        raise UsageError(f"{what}; known: {', '.join(BASELINES)}.")
    return names


def parse_libraries(text: str) -> tuple[str, ...]:
    """`cublas,cudnn` as names, each once."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9_+-]+", name):
            raise UsageError(f"--allow {name!r} is no library; name it as for the linker, e.g. cublas, or torch.")
        if name not in _LIBRARIES and not name.startswith("mkl") and not _is_installed(name):
            known = ", ".join(_LIBRARIES)
            raise UsageError(f"--allow {name}: the linker finds no library of that name here; known: {known}.")
    return names


def _is_installed(library: str) -> bool:
    """Whether the linker, or nvcc's, would find it."""
    if find_library(library):
        return True
    nvcc = find_nvcc(os.environ)
    root = Path(nvcc.command[0]).resolve().parents[1] if nvcc else None
    return root is not None and any((root / folder / f"lib{library}.so").exists() for folder in ("lib64", "lib"))


def _print_ready(
    request: Request,
    plan: _Plan,
    device: Device,
    verdicts: dict[int, Evaluation],
    shown: int,
    certified: Mapping[int, Certified],
) -> int:
    """Print every line whose turn has come: in the order given, and as early as that allows."""
    while shown < len(plan.places) and plan.places[shown] in verdicts:
        place = plan.places[shown]
        document = jsonout.evaluate_document(verdicts[place], file=request.files[shown], device=device.spec)
        if place in certified:
            kept = certified[place]
            document = replace(document, verified=kept.certificate.verified, certificate=str(kept.path))
        sys.stdout.write(jsonout.dumps(document) + "\n")
        sys.stdout.flush()
        shown += 1
    return shown


class _Watch:
    """Counts what has been built and judged, and shows it where somebody watches."""

    def __init__(self, console: Console, bar: Progress | None, total: int, task: str) -> None:
        self._console = console
        self._bar = bar
        self._total = total
        self._built = 0
        self._judged = 0
        self._row = bar.add_task(f"opening {task}", total=None) if bar else None

    def event(self, event: Event) -> None:
        """A candidate has got on; called from several threads."""
        self._built += event.stage == "built"
        self._judged += event.stage == "judged"
        if self._bar is None or self._row is None:
            return
        doing = {"build": "building", "built": "building", "check": "checking", "replay": "recording", "time": "timing"}
        said = doing.get(event.stage, "judging") if self._total == 1 else f"built {self._built}, judged"
        self._bar.update(self._row, description=said, completed=self._judged, total=self._total)

    def message(self, text: str) -> None:
        """Something worth a line."""
        render.say(self._console, text, "dim")


@contextlib.contextmanager
def _watched(console: Console, total: int, task: str) -> Iterator[_Watch]:
    """A progress bar on a terminal; elsewhere messages only."""
    if not console.is_terminal:
        yield _Watch(console, None, total, task)
        return
    counts = [] if total == 1 else [BarColumn(bar_width=24), TextColumn("{task.completed}/" + str(total))]
    columns = [SpinnerColumn(), TextColumn("{task.description}"), *counts, TimeElapsedColumn()]
    # Standard output is left alone: lines of JSON go there while the bar is shown.
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        yield _Watch(console, bar, total, task)
