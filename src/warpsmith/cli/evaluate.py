"""`warpsmith evaluate TASK FILE...`: judge kernel files and show the verdicts.

Everything a user can get wrong is looked at before a worker starts. Judging itself is the evaluator's part.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from warpsmith.backends.source import backend_named, backend_of, read_candidate
from warpsmith.cli import jsonout, render
from warpsmith.core.candidate import Candidate
from warpsmith.core.config import Limits, Paths, Settings
from warpsmith.core.errors import CandidateError, TaskError, ToolMissing, UsageError
from warpsmith.core.evaluation import Evaluation, Status
from warpsmith.core.task import Precision
from warpsmith.evaluate.evaluator import Evaluator
from warpsmith.evaluate.evaluator import Progress as Event
from warpsmith.hardware.device import Device, gpus, select_device

BASELINES = ("eager", "compile")


@dataclass(frozen=True)
class Request:
    """What the command line asked for, as written."""

    task: str
    files: tuple[str, ...]
    device: str = "auto"
    baselines: str = "eager"
    precision: Precision | None = None
    seeds: int | None = None
    launch_s: float | None = None
    timing_budget_s: float | None = None
    fresh: bool = False
    as_json: bool = False


@dataclass(frozen=True)
class _Plan:
    """What will be judged: each program once, whatever number of files it came in."""

    candidates: tuple[Candidate, ...]
    places: tuple[int, ...]  # for each file given, its position in `candidates`


def run(request: Request) -> int:
    """Judge, show, and give the exit status."""
    check_task_file(request.task)
    plan = _plan(request.files)
    device = choose_device(request.device, plan.candidates)
    settings = _settings(request)
    paths = Paths.from_environment()
    _check_cache(paths.cache)
    errors = render.console(stderr=True)
    verdicts: dict[int, Evaluation] = {}
    shown = 0
    with _watched(errors, len(plan.candidates), Path(request.task).name) as watch:
        with Evaluator(
            device,
            settings,
            paths=paths,
            use_cache=not request.fresh,
            on_progress=watch.event,
            on_message=watch.message,
        ) as evaluator:
            for position, evaluation in evaluator.evaluate(request.task, plan.candidates, request.precision):
                verdicts[position] = evaluation
                if request.as_json:
                    shown = _print_ready(request, plan, device, verdicts, shown)
    judged = [render.Judged(file, verdicts[place]) for file, place in zip(request.files, plan.places, strict=True)]
    if not request.as_json:
        render.console().print(render.card(judged[0]) if len(judged) == 1 else render.overview(judged))
    return exit_status([j.evaluation.status for j in judged])


def exit_status(statuses: Sequence[Status]) -> int:
    """0: all valid; 1: a candidate is invalid; 2: we failed to judge one."""
    if Status.NOT_JUDGED in statuses:
        return 2
    return 0 if all(status is Status.OK for status in statuses) else 1


def check_task_file(task: str) -> None:
    """Raise where TASK cannot be a task file; what is in it, only the judge can tell."""
    path = Path(task.partition("::")[0])
    if path.is_dir():
        raise TaskError(f"{path} is a folder; name a task file in it.")
    if not path.exists():
        raise TaskError(f"there is no task file {path}; TASK is a Python file, or file.py::name for one of several.")
    if path.suffix == ".py":
        return
    try:
        backend_of(path)
    except CandidateError:
        return  # an odd name for a Python file, but the loader reads it
    raise UsageError(f"{path} is a kernel, not a task: the task file comes first, then the kernels.")


def _check_cache(folder: Path) -> None:
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
    kinds: dict[str, str] = {}
    for candidate in candidates:
        kinds.setdefault(backend_named(candidate.backend).device, candidate.main.name)
    if len(kinds) > 1:
        example = " and ".join(f"{name} ({kind})" for kind, name in kinds.items())
        raise UsageError(f"these files run on different devices: {example}; evaluate each kind by itself.")
    kind, example = next(iter(kinds.items()))
    wanted = spec.partition(":")[0]
    if wanted in ("cpu", "cuda") and wanted != kind:
        raise UsageError(f"{example} runs on {kind}, not on {spec}; leave out --device or choose {kind}.")
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


def _plan(files: Sequence[str]) -> _Plan:
    found: dict[str, Candidate] = {}
    ids = []
    for file in files:
        candidate = read_candidate(Path(file))
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
        seeds=default.seeds if request.seeds is None else request.seeds,
        timing_budget_s=default.timing_budget_s if request.timing_budget_s is None else request.timing_budget_s,
        limits=limits,
    )


def parse_baselines(text: str) -> tuple[str, ...]:
    """`eager,compile` as names, each once."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    unknown = [name for name in names if name not in BASELINES]
    if unknown or not names:
        what = f"unknown baseline {unknown[0]!r}" if unknown else "--baseline names no baseline"
        raise UsageError(f"{what}; known: {', '.join(BASELINES)}.")
    return names


def _print_ready(request: Request, plan: _Plan, device: Device, verdicts: dict[int, Evaluation], shown: int) -> int:
    """Print every line whose turn has come: in the order given, and as early as that allows."""
    while shown < len(plan.places) and plan.places[shown] in verdicts:
        document = jsonout.evaluate_document(
            verdicts[plan.places[shown]], file=request.files[shown], device=device.spec
        )
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
        doing = {"build": "building", "built": "building", "check": "checking", "time": "timing"}
        said = doing.get(event.stage, "judging") if self._total == 1 else f"built {self._built}, judged"
        self._bar.update(self._row, description=said, completed=self._judged, total=self._total)

    def message(self, text: str) -> None:
        """Something worth a line."""
        self._console.print(text, style="dim", soft_wrap=True)


@contextmanager
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
