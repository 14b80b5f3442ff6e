"""The kernels of the collection: which tasks have one, its source, and what is known of it.

Most sources are written by forms (`kernels.forms`) from the operations of a task's reference, so looking at them loads
the suites' tasks, with torch. A file `cuda/NAME.cu` is a kernel for the task NAME alone and comes before a form.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from warpsmith.backends.build_cache import content_key
from warpsmith.backends.library import library_headers
from warpsmith.backends.source import backend_named, read_candidate
from warpsmith.kernels import form_file
from warpsmith.kernels.facts import (
    DeviceFacts,
    KernelFacts,
    KernelState,
    MeasuredRatio,
    PytorchRecord,
    PytorchTimes,
    over_best_of_pytorch,
    over_compile,
    over_eager,
    read_facts,
    state_of,
)
from warpsmith.kernels.forms import form_kernel
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.errors import UsageError
from warpsmith.model.settings import Paths
from warpsmith.model.task import Precision
from warpsmith.system.files import put_in_place
from warpsmith.tasks.suites import SHIPPED, SuiteTask, suite_tasks

PACKAGE = Path(__file__).resolve().parents[1]
SOURCES = Path(__file__).resolve().parent / "cuda"
"""Kernels written for one task each: `cuda/NAME.cu` for the task NAME of a suite."""

_FORM_FAMILIES = ("convolution", "matmul", "pooling", "scan")  # families of the suites with tasks of a form


@dataclass(frozen=True)
class DeviceState:
    """What is known of a kernel on one device."""

    state: KernelState
    device: str = ""  # "": on no device
    facts: KernelFacts | None = None
    date: str = ""
    versions: tuple[tuple[str, str], ...] = ()
    pytorch: PytorchRecord | None = None  # torch.compile on that device

    @property
    def over_eager(self) -> MeasuredRatio | None:
        """How much faster it is than PyTorch eager; None if it is not valid, or not judged."""
        return over_eager(self.facts) if self.facts else None

    @property
    def over_compile(self) -> MeasuredRatio | None:
        """How much faster it is than torch.compile; None where that was not timed."""
        return over_compile(self.facts, self._times) if self.facts else None

    @property
    def over_best_of_pytorch(self) -> MeasuredRatio | None:
        """How much faster it is than the faster of both; None where torch.compile was not timed."""
        return over_best_of_pytorch(self.facts, self._times) if self.facts else None

    @property
    def best_of_pytorch(self) -> str:
        """The faster of both: "eager" or "compile"; "" where torch.compile was not timed."""
        if self._times is None:
            return ""
        return "compile" if self._times.compile_speedup.value > 1.0 else "eager"

    @property
    def _times(self) -> PytorchTimes | None:
        return self.pytorch.tasks.get(self.facts.task) if self.pytorch and self.facts else None


@dataclass(frozen=True)
class CollectedKernel:
    """One kernel of the collection."""

    task: SuiteTask
    candidate: Candidate
    form: str  # what it computes, whatever the sizes: "2-d convolution"; "" for a kernel of its task alone

    @property
    def precision(self) -> str:
        """The precision class it is for."""
        return self.task.precisions[0].value if self.task.precisions else ""

    @property
    def source(self) -> str:
        """Its text."""
        return self.candidate.main.text

    @property
    def headers(self) -> tuple[str, ...]:
        """The headers of the device library that it includes, directly or through others."""
        return tuple(library_headers(self.source))

    def states(self, known: tuple[DeviceFacts, ...] | None = None) -> tuple[DeviceState, ...]:
        """What is known of it, one entry per device on which it was judged; one without a device if on none."""
        found = []
        for each in read_facts() if known is None else known:
            facts = each.kernels.get(self.task.title)
            if facts is not None:
                versions = tuple((facts.versions or each.versions).items())
                state = state_of(self.candidate, facts)
                found.append(DeviceState(state, each.device, facts, facts.date or each.date, versions, each.pytorch))
        return tuple(found) or (DeviceState(KernelState.NOT_JUDGED),)

    def state_on(self, device: str, known: tuple[DeviceFacts, ...] | None = None) -> DeviceState:
        """What is known of it on one kind of GPU, by the GPU's name."""
        return next((s for s in self.states(known) if s.device == device), DeviceState(KernelState.NOT_JUDGED))


@cache
def collection() -> tuple[CollectedKernel, ...]:
    """All kernels, in the order of the suites' tasks.

    What the forms wrote is kept in the cache, under a key of the whole package and of torch: loading the tasks takes
    seconds. `load` does not use it.
    """
    tasks = [task for suite in SHIPPED for task in suite_tasks(suite)]
    file = _kept_file()
    kept = _read_kept(file)
    if kept is not None:
        return tuple(kernel for task in tasks if (kernel := _from_kept(task, kept)))
    found = tuple(kernel for task in tasks if (kernel := collected(task)))
    if file is not None:
        written = {kernel.task.title: (kernel.form, kernel.source) for kernel in found if kernel.form}
        with suppress(OSError):
            put_in_place(file, json.dumps(written).encode())
    return found


def _kept_file() -> Path | None:
    """Where the texts are kept that the forms write; None without torch."""
    try:
        parts = [metadata.version("torch"), sys.version]
    except metadata.PackageNotFoundError:
        return None
    for path in sorted(PACKAGE.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            parts += [path.relative_to(PACKAGE).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest()]
    return Paths.from_environment().cache / "collection" / f"{content_key(parts)}.json"


def _read_kept(file: Path | None) -> dict[str, tuple[str, str]] | None:
    try:
        kept = json.loads(file.read_bytes()) if file else None
        return {title: (form, source) for title, (form, source) in kept.items()} if kept is not None else None
    except (OSError, ValueError, AttributeError, TypeError):
        return None


def _from_kept(task: SuiteTask, kept: Mapping[str, tuple[str, str]]) -> CollectedKernel | None:
    path = SOURCES / f"{task.name}.cu"
    if path.is_file():
        return CollectedKernel(task, read_candidate(path), "")
    if task.title not in kept:
        return None
    form, source = kept[task.title]
    return CollectedKernel(task, Candidate((SourceFile(path.name, source),), "cuda"), form)


def collected(task: SuiteTask, precision: Precision | None = None) -> CollectedKernel | None:
    """The kernel for a task of a suite; None if the collection has none.

    `precision`: a class that the task declares beside its own. A form may then write a faster kernel; a file is the
    same in all of them.
    """
    path = SOURCES / f"{task.name}.cu"
    file = CollectedKernel(task, read_candidate(path), "") if path.is_file() else None
    if file and precision is None:
        return file
    if task.family not in _FORM_FAMILIES:
        return file  # without loading the task
    from warpsmith.tasks.load import load_task
    from warpsmith.tasks.outline import outline

    program = load_task(task.spec(), precision)
    written = form_kernel(program.task, backend_named("cuda").contract(program.task), outline(program))
    if written is None:
        return file
    return CollectedKernel(task, Candidate((SourceFile(path.name, written.source),), "cuda"), written.form)


def written_operations() -> bytes:
    """What `cuda/operations.json` has to be: the operations of the tasks that have a file, read from the tasks."""
    from warpsmith.tasks.load import load_task
    from warpsmith.tasks.outline import outline

    entries = []
    for task in (task for suite in SHIPPED for task in suite_tasks(suite)):
        if (SOURCES / f"{task.name}.cu").is_file() and task.name not in form_file.STRUCTURED:
            program = load_task(task.spec())
            contract = backend_named("cuda").contract(program.task)
            entries.append(form_file.described(task.title, program.task, outline(program), contract.arguments))
    return form_file.write_operations(entries)


def find_kernel(name: str) -> CollectedKernel:
    """The kernel of a task, by "matmul" or "warpsmith-100/matmul"."""
    known = collection()
    for kernel in known:
        if name in (kernel.task.title, kernel.task.name):
            return kernel
    near = difflib.get_close_matches(name, [k.task.name for k in known] + [k.task.title for k in known], n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "`warpsmith kernels list` shows all."
    raise UsageError(f"the collection has no kernel {name!r}; {hint}")
