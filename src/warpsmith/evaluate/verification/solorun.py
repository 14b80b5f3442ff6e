"""Starts `solo` processes: a candidate alone with a few input sets, under a command of the caller's choice.

The supervisor's side. Says how a run ended and where its results lie, not what that means.
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

from warpsmith.core.contract import ArgumentKind, Contract
from warpsmith.core.errors import HarnessFault
from warpsmith.core.task import Task
from warpsmith.evaluate.confinement.sandbox import NOBODY
from warpsmith.evaluate.supervising.instrument import Ended, run_watched
from warpsmith.evaluate.verification.solo import STATUS

_STATUS_BYTES = 64 << 10
_NUMBER_OF = {"int64_t": "int", "double": "double", "bool": "bool"}


@dataclass(frozen=True)
class Sample:
    """One input set in files; what `heldout.Dumped` says of it."""

    folder: str
    workload: str
    sizes: dict[str, int]
    inputs: dict[str, int]
    outputs: dict[str, int]


@dataclass(frozen=True)
class Status:
    """What a solo process says of itself: a claim, like everything a candidate's process says."""

    layers: tuple[str, ...] = ()
    said: str = ""  # what the candidate reported
    done: bool = False


@dataclass(frozen=True)
class SoloEnd:
    """How a run ended."""

    ended: Ended
    status: Status | None  # None: it did not get as far as the candidate
    scratch: Path  # results are `<case>/<output>.bin` in here

    @property
    def finished(self) -> bool:
        """Whether the candidate returned from every call, as far as its process says."""
        return self.ended.status == 0 and self.status is not None and self.status.done and not self.status.said


@dataclass(frozen=True)
class Stage:
    """What all runs of one verification share."""

    kind: str
    device: int
    threads: int
    environ: Mapping[str, str]
    readable: tuple[str, ...]
    memory_bytes: int
    limit_s: float
    folder: Path  # of the supervisor's own; others may pass through it


@dataclass(frozen=True)
class Part:
    """What is run: a built library with its contract and its inputs."""

    library: Path
    contract: Contract
    task: Task
    samples: tuple[Sample, ...]
    folder: Path  # of the samples
    scalars: Mapping[str, float | int | bool] = field(default_factory=dict)  # instead of the task's own
    drops: bool = True  # as root, whether its process becomes another user

    @property
    def python(self) -> bool:
        """Whether it is a folder with a Python file."""
        return self.contract.call is not None


_SAMPLES = TypeAdapter(tuple[Sample, ...])
_STATUS = TypeAdapter(Status)


def read_samples(path: Path) -> tuple[Sample, ...]:
    """The samples that a judge has written."""
    try:
        return _SAMPLES.validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise HarnessFault(f"the judging process left no samples of inputs ({error}).") from None


def run_solo(
    stage: Stage,
    part: Part,
    name: str,
    *,
    command: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    fill: bool = True,
    confine: bool = True,
) -> SoloEnd:
    """Run the part once under `command`; `name` is that of its folder."""
    folder = stage.folder / name
    scratch = folder / "scratch"
    try:
        scratch.mkdir(parents=True)
        folder.chmod(0o711)
        library = scratch / ("candidate" if part.python else "candidate.so")
        if part.python:
            shutil.copytree(part.library, library, copy_function=shutil.copyfile)
        else:
            shutil.copyfile(part.library, library)
        library.chmod(0o555)
        if os.geteuid() == 0 and part.drops:  # as root, the process becomes this user
            os.chown(scratch, *NOBODY)
        plan = folder / "plan.json"
        plan.write_text(json.dumps(_plan(stage, part, library, scratch, fill, confine)), encoding="utf-8")
    except OSError as fault:
        raise HarnessFault(f"{stage.folder} cannot be filled ({fault.strerror}); free some space.") from None
    whole = [*command, sys.executable, "-m", "warpsmith.evaluate.verification.solo", str(plan)]
    surroundings = {**stage.environ, **_own_environ(), "HOME": str(scratch), "TMPDIR": str(scratch), **(environ or {})}
    ended = run_watched(whole, folder=scratch, environ=surroundings, limit_s=stage.limit_s, log=folder / "output.txt")
    return SoloEnd(ended, _read_status(scratch / STATUS), scratch)


def _own_environ() -> dict[str, str]:
    kept = {key: os.environ[key] for key in ("PYTHONPATH",) if key in os.environ}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1"}


def _plan(stage: Stage, part: Part, library: Path, scratch: Path, fill: bool, confine: bool) -> dict[str, object]:
    contract = part.contract
    scalars = {s.name: s.value for s in part.task.scalars} | dict(part.scalars)
    cases = []
    for sample in part.samples:
        numbers = scalars | sample.sizes
        cases.append(
            {
                "name": sample.folder,
                "folder": str(part.folder / sample.folder),
                "workload": sample.workload,
                "arguments": [] if part.python else _arguments(contract, numbers),
                "sizes": [] if part.python else [numbers[a.source] for a in contract.size_arguments],
                "inputs": sample.inputs,
                "outputs": sample.outputs,
                "shapes": {t.name: t.shape(sample.sizes) for t in part.task.tensors},
                "numbers": numbers,
            }
        )
    call = contract.call
    return {
        "kind": stage.kind,
        "device": stage.device,
        "library": str(library),
        "entry": contract.entry,
        "kinds": [] if part.python else [_kind(a.kind, a.ctype) for a in contract.arguments],
        "size_kinds": [] if part.python else [_NUMBER_OF[a.ctype] for a in contract.size_arguments],
        "cases": cases,
        "scratch": str(scratch),
        "readable": [*stage.readable, str(scratch)],
        "memory_bytes": stage.memory_bytes,
        "threads": stage.threads,
        "fill": fill,
        "confine": confine,
        "drops": part.drops,
        "call": asdict(call) if call else None,
        "tensors": [
            {"name": t.name, "dtype": t.dtype, "role": t.role.value, "origin": t.origin} for t in part.task.tensors
        ],
    }


def _kind(kind: ArgumentKind, ctype: str) -> str:
    if kind in (ArgumentKind.AXIS, ArgumentKind.SCALAR):
        return _NUMBER_OF[ctype]
    return "table" if kind is ArgumentKind.TABLE else "pointer"


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


def _read_status(path: Path) -> Status | None:
    """The candidate could have written this file: it is read like any stranger's."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            return _STATUS.validate_json(file.read(_STATUS_BYTES))
    except (OSError, ValidationError):
        return None
