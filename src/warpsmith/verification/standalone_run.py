"""Starts standalone processes: a candidate alone with a few input sets, under a command of the caller's choice.

Runs in the supervisor's process. Reports how a run ended and where its results are.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from warpsmith.evaluator.candidate.c_call import argument_kind
from warpsmith.evaluator.sandbox.policy import NOBODY
from warpsmith.evaluator.supervisor.worker_pool import host_environ, readable_paths
from warpsmith.hardware.device import Device, cpu_threads
from warpsmith.model.contract import ArgumentKind, Contract
from warpsmith.model.errors import HarnessFault
from warpsmith.model.settings import Limits
from warpsmith.model.task import Task
from warpsmith.system.processes import ProcessResult, run_watched
from warpsmith.verification.standalone import STATUS

_STATUS_BYTES = 64 << 10


@dataclass(frozen=True)
class InputFiles:
    """One input set in files: `<folder>/<tensor>.bin`, and the sizes of tensors in bytes."""

    folder: str
    workload: str
    sizes: dict[str, int]
    inputs: dict[str, int]
    outputs: dict[str, int]


@dataclass(frozen=True)
class StandaloneStatus:
    """What a standalone process reports: a claim, because a candidate runs in it."""

    layers: tuple[str, ...] = ()
    said: str = ""  # the error of the candidate
    done: bool = False


@dataclass(frozen=True)
class StandaloneResult:
    """How a run ended."""

    ended: ProcessResult
    status: StandaloneStatus | None  # None if the candidate was not reached
    scratch: Path  # contains the results as `<case>/<output>.bin`

    @property
    def finished(self) -> bool:
        """True if the process claims that the candidate returned from every call."""
        return self.ended.status == 0 and self.status is not None and self.status.done and not self.status.said


@dataclass(frozen=True)
class StandaloneSettings:
    """What all standalone runs on a device share."""

    kind: str
    device: int
    threads: int
    environ: Mapping[str, str]
    readable: tuple[str, ...]
    memory_bytes: int
    limit_s: float
    folder: Path  # the folder of all runs; other users may enter it

    @staticmethod
    def for_device(device: Device, limits: Limits, folder: Path, limit_s: float) -> StandaloneSettings:
        """The settings for runs under a tool, which needs as much memory again as the candidate."""
        return StandaloneSettings(
            kind=device.kind,
            device=device.index,
            threads=cpu_threads(),
            environ=host_environ(cpu_threads()),
            readable=readable_paths(device.kind),
            memory_bytes=2 * limits.memory_bytes,
            limit_s=limit_s,
            folder=folder,
        )


@dataclass(frozen=True)
class StandaloneCandidate:
    """A built candidate with its contract and inputs."""

    library: Path
    contract: Contract
    task: Task
    samples: tuple[InputFiles, ...]
    folder: Path  # of the samples
    scalars: Mapping[str, float | int | bool] = field(default_factory=dict)  # override those of the task
    drop_user: bool = True  # if we are root, the process becomes another user

    @property
    def python(self) -> bool:
        """True for a Python candidate, whose `library` is a folder."""
        return self.contract.call is not None


_SAMPLES = TypeAdapter(tuple[InputFiles, ...])
_STATUS = TypeAdapter(StandaloneStatus)


def read_samples(path: Path) -> tuple[InputFiles, ...]:
    """The input sets that a judge has written."""
    try:
        return _SAMPLES.validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise HarnessFault(f"the judging process wrote no input files ({error}).") from None


def run_standalone(
    settings: StandaloneSettings,
    standalone: StandaloneCandidate,
    name: str,
    *,
    command: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    fill: bool = True,
    confine: bool = True,
) -> StandaloneResult:
    """Run the candidate once under `command`; `name` becomes the name of the run's folder."""
    folder = settings.folder / name
    scratch = folder / "scratch"
    try:
        scratch.mkdir(parents=True)
        folder.chmod(0o711)
        library = scratch / ("candidate" if standalone.python else "candidate.so")
        if standalone.python:
            shutil.copytree(standalone.library, library, copy_function=shutil.copyfile)
        else:
            shutil.copyfile(standalone.library, library)
        library.chmod(0o555)
        if os.geteuid() == 0 and standalone.drop_user:  # as root, the process becomes this user
            os.chown(scratch, *NOBODY)
        plan = folder / "plan.json"
        plan.write_text(json.dumps(_plan(settings, standalone, library, scratch, fill, confine)), encoding="utf-8")
    except OSError as fault:
        raise HarnessFault(f"{settings.folder} cannot be filled ({fault.strerror}); free some space.") from None
    whole = [*command, sys.executable, "-P", "-m", "warpsmith.verification.standalone", str(plan)]
    variables = {**settings.environ, **_own_environ(), "HOME": str(scratch), "TMPDIR": str(scratch), **(environ or {})}
    ended = run_watched(whole, folder=scratch, environ=variables, limit_s=settings.limit_s, log=folder / "output.txt")
    return StandaloneResult(ended, _read_status(scratch / STATUS), scratch)


def _own_environ() -> dict[str, str]:
    kept = {key: os.environ[key] for key in ("PYTHONPATH",) if key in os.environ}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1"}


def _plan(
    settings: StandaloneSettings,
    standalone: StandaloneCandidate,
    library: Path,
    scratch: Path,
    fill: bool,
    confine: bool,
) -> dict[str, object]:
    contract = standalone.contract
    scalars = {s.name: s.value for s in standalone.task.scalars} | dict(standalone.scalars)
    cases = []
    for sample in standalone.samples:
        numbers = scalars | sample.sizes
        cases.append(
            {
                "name": sample.folder,
                "folder": str(standalone.folder / sample.folder),
                "workload": sample.workload,
                "arguments": [] if standalone.python else _arguments(contract, numbers),
                "sizes": [] if standalone.python else [numbers[a.source] for a in contract.size_arguments],
                "inputs": sample.inputs,
                "outputs": sample.outputs,
                "shapes": {t.name: t.shape(sample.sizes) for t in standalone.task.tensors},
                "numbers": numbers,
            }
        )
    call = contract.call
    return {
        "kind": settings.kind,
        "device": settings.device,
        "library": str(library),
        "entry": contract.entry,
        "kinds": [] if standalone.python else [argument_kind(a) for a in contract.arguments],
        "size_kinds": [] if standalone.python else [argument_kind(a) for a in contract.size_arguments],
        "cases": cases,
        "scratch": str(scratch),
        "readable": [*settings.readable, str(scratch)],
        "memory_bytes": settings.memory_bytes,
        "threads": settings.threads,
        "fill": fill,
        "confine": confine,
        "drop_user": standalone.drop_user,
        "call": asdict(call) if call else None,
        "tensors": [
            {"name": t.name, "dtype": t.dtype, "role": t.role.value, "origin": t.origin}
            for t in standalone.task.tensors
        ],
    }


def _arguments(contract: Contract, numbers: Mapping[str, float | int | bool]) -> list[tuple[str, object]]:
    return [_argument(contract, a.kind, a.source, numbers) for a in contract.arguments]


def _argument(
    contract: Contract, kind: ArgumentKind, source: str, numbers: Mapping[str, float | int | bool]
) -> tuple[str, object]:
    if kind in (ArgumentKind.INPUT, ArgumentKind.OUTPUT):
        return "tensor", source
    if kind is ArgumentKind.TABLE:
        return "table", contract.table
    if kind in (ArgumentKind.AXIS, ArgumentKind.SCALAR):
        return "number", numbers[source]
    return kind.value, None


def read_untrusted(path: Path, most_bytes: int) -> bytes:
    """The beginning of a file that a candidate could have written or replaced; raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        return file.read(most_bytes)


def _read_status(path: Path) -> StandaloneStatus | None:
    try:
        return _STATUS.validate_json(read_untrusted(path, _STATUS_BYTES))
    except (OSError, ValidationError):
        return None
