"""`open_engine`: evaluate on this machine (`local`), on a Ray cluster (`ray`, `ray://HOST:PORT`) or on a server.

    with open_engine("ray", "cuda", Settings()) as engine:
        for index, evaluation in engine.evaluate("softmax.py", candidates):
            ...

Commands, the search and the Python API know the `Engine` only. A verdict does not depend on the engine.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from warpsmith.backends.source import backend_named
from warpsmith.evaluator.supervisor.evaluator import Evaluator, Progress
from warpsmith.hardware.device import Device, select_device, visible_gpus
from warpsmith.model.brief import Problem
from warpsmith.model.build import Availability
from warpsmith.model.candidate import Candidate
from warpsmith.model.certificate import Calibration
from warpsmith.model.errors import UsageError
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.settings import Paths, Settings
from warpsmith.model.task import Precision, Task

LOCAL = "local"
KNOWN = "local, ray, ray://HOST:PORT or http://HOST:PORT"
_SITES = {  # by scheme: the module with `site(spec)`
    "ray": "warpsmith.engine.ray_site",
    "http": "warpsmith.server.http_site",
    "https": "warpsmith.server.http_site",
}


class Engine(Protocol):
    """Evaluates candidates on devices of one kind. A context manager. See `Evaluator` for what the methods do.

    An engine that makes the checks of a verification where its device is has a method `examine`
    (`verification.verify.ExaminesElsewhere`); one that profiles there has `profile` (`search.profiles`).
    """

    @property
    def device(self) -> Device:
        """The device, or one of several of the same kind."""

    @property
    def settings(self) -> Settings:
        """How evaluations are done; `renew` changes them."""

    @property
    def width(self) -> int:
        """From how many threads `evaluate` may be called at the same time."""

    def __enter__(self) -> Engine: ...

    def __exit__(self, *_: object) -> None: ...

    def close(self) -> None:
        """Give back devices and processes."""

    def describe(self, task: str | Path, precision: Precision | None = None) -> Task:
        """The task as the judge has read it."""

    def survey(self, task: str | Path, backend: str, precision: Precision | None = None) -> Problem:
        """Everything a proposer has to know."""

    def calibrate(
        self, task: str | Path, precision: Precision | None = None, *, fresh: bool = False
    ) -> tuple[Task, Calibration]:
        """Check whether a task can tell right results from wrong ones."""

    def evaluate_one(
        self, task: str | Path, candidate: Candidate, precision: Precision | None = None, *, fresh: bool = False
    ) -> Evaluation:
        """Evaluate one candidate."""

    def evaluate(
        self,
        task: str | Path,
        candidates: Sequence[Candidate],
        precision: Precision | None = None,
        *,
        fresh: bool = False,
    ) -> Iterator[tuple[int, Evaluation]]:
        """Evaluate many candidates; yields each position once with its evaluation, in the order of completion."""

    def prepare(self, task: str | Path, candidates: Sequence[Candidate], precision: Precision | None = None) -> None:
        """Start to build candidates that will be evaluated soon. Returns at once; may be called from any thread."""

    def renew(self, settings: Settings | None = None) -> None:
        """Use a new judge for the next evaluation, with other settings if they are given."""


def _silent(_: object) -> None:
    pass


@runtime_checkable
class EngineSite(Protocol):
    """What an engine offers, known before a task is opened; makes the engine."""

    @property
    def slots(self) -> int:
        """How many cells of a bench can be worked on at the same time with one device named."""

    @property
    def has_gpu(self) -> bool:
        """True if there is an NVIDIA GPU."""

    def select(self, spec: str) -> Device:
        """The device for "auto", "cpu", "cuda" or "cuda:N"; raises if there is none."""

    def available(self, backend: str) -> Availability:
        """Whether candidates of a backend can be built there."""

    def open(
        self,
        device: Device,
        settings: Settings,
        *,
        paths: Paths | None = None,
        name: str = "",  # of the run or command, for logs and dashboards
        on_progress: Callable[[Progress], None] = _silent,
        on_message: Callable[[str], None] = _silent,
    ) -> Engine:
        """The engine on one of these devices."""


class LocalSite:
    """This machine: the engine is an `Evaluator`."""

    slots = 1

    @property
    def has_gpu(self) -> bool:
        return bool(visible_gpus())

    def select(self, spec: str) -> Device:
        return select_device(spec)

    def available(self, backend: str) -> Availability:
        return backend_named(backend).available()

    def open(
        self,
        device: Device,
        settings: Settings,
        *,
        paths: Paths | None = None,
        name: str = "",
        on_progress: Callable[[Progress], None] = _silent,
        on_message: Callable[[str], None] = _silent,
    ) -> Engine:
        return Evaluator(device, settings, paths=paths, on_progress=on_progress, on_message=on_message)


def engine_site(spec: str) -> EngineSite:
    """The site that an engine's name stands for; connects to it."""
    scheme, colon, rest = spec.partition("://")
    if spec == LOCAL:
        return LocalSite()
    module = _SITES.get(scheme.partition("?")[0])
    if module is None or (colon and not rest) or (scheme.startswith("http") and not colon):
        raise UsageError(f"unknown engine {spec!r}; use {KNOWN}.")
    if "@" in rest:
        raise UsageError("--engine takes no user name and no password; leave out what stands before the @.")
    try:
        site = importlib.import_module(module).site(spec)
    except ModuleNotFoundError as missing:
        if missing.name is None or not module.startswith(missing.name):
            raise
        raise UsageError(f"the engine {scheme}:// does not exist in this version; use {KNOWN}.") from None
    assert isinstance(site, EngineSite), f"{module}.site gives a site"
    return site


def open_engine(
    spec: str,
    device: str | Device = "auto",
    settings: Settings | None = None,
    *,
    paths: Paths | None = None,
    name: str = "",
    on_progress: Callable[[Progress], None] = _silent,
    on_message: Callable[[str], None] = _silent,
) -> Engine:
    """The engine `spec` on a device; `local` is an `Evaluator`."""
    site = engine_site(spec)
    chosen = site.select(device) if isinstance(device, str) else device
    return site.open(
        chosen, settings or Settings(), paths=paths, name=name, on_progress=on_progress, on_message=on_message
    )
