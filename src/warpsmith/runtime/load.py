"""`load`: from a bundle, or from the collection, to an operator."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from warpsmith._version import __version__
from warpsmith.backends.cpu import CpuBackend
from warpsmith.backends.cuda import CudaBackend
from warpsmith.backends.cutlass import INSTALL, find_cutlass, needs_cutlass
from warpsmith.backends.source import backend_named
from warpsmith.kernels.collection import DeviceState, collected
from warpsmith.kernels.facts import KernelState
from warpsmith.model.build import BuildFailure, Target
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.contract import Contract
from warpsmith.model.errors import CandidateError, ToolMissing, UsageError
from warpsmith.model.evaluation import Environment
from warpsmith.model.task import Precision
from warpsmith.runtime.arguments import inspect_reference
from warpsmith.runtime.bundle import MANIFEST, Bundle, Manifest, contract_line, read_bundle
from warpsmith.runtime.coverage import KernelCoverage, NoCoverage
from warpsmith.runtime.gradients import differentiable
from warpsmith.runtime.native_kernel import NativeKernel
from warpsmith.runtime.operator import CheckedKernel, LoadedKernel, Operator, register
from warpsmith.tasks.load import load_task
from warpsmith.tasks.local_imports import importing_beside
from warpsmith.tasks.program import Program
from warpsmith.tasks.suites import SHIPPED, resolve_task, suite_tasks

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_LOCK = threading.Lock()
_LOADED: dict[
    str, tuple[Program, KernelCoverage, CheckedKernel, object]
] = {}  # by name: torch's registry takes a name only once
_SAID: set[tuple[str, str]] = set()  # what was said of a task of a suite


def load(path: str | os.PathLike[str], *, strict: bool = False, any_shape: bool = False) -> Operator:
    """The operator of a bundle: `op = load("best/softmax")`; then call `op(x)` like the reference.

    `load("warpsmith-100/softmax")` gives the collection's kernel for that task if it is verified on the GPU that is
    here, and PyTorch's own implementation otherwise; one line on standard error says which and why.

    A kernel that includes CUTLASS is built where CUTLASS is installed; elsewhere the reference is used, and one line
    says so. A call that the kernel does not cover (see `Operator.covers`) goes to the reference; with `strict` it is an
    error.
    A kernel that was not verified covers only the shapes of its task's workloads, unless `any_shape` is given.

    The bundle's task file is executed and its kernel is native code; both run in this process, without a sandbox and
    with all your rights. Load only bundles of people whose programs you would run: hashes show damage, not intent.
    """
    import torch

    if _names_suite_task(path):
        return _load_collected(str(path), strict=strict, any_shape=any_shape)
    bundle = read_bundle(_folder(Path(path)))
    manifest = bundle.manifest
    if manifest.precision_given and manifest.precision_given not in list(Precision):
        raise UsageError(
            f"{bundle.folder} names an unknown precision {manifest.precision_given[:50]!r}; export it again."
        )
    with importing_beside(Path(bundle.task_spec.partition("::")[0])):
        program = load_task(bundle.task_spec, Precision(manifest.precision_given) if manifest.precision_given else None)
    if program.task.digest != manifest.task_digest:
        raise UsageError(
            f"{bundle.folder}: its task file is not the one that its kernel was judged with; export it again."
        )
    backend = backend_named(manifest.backend)
    contract = backend.contract(program.task, manifest.entry)
    if contract_line(contract) != manifest.contract:
        raise UsageError(
            f"{bundle.folder}: its kernel was written for another contract, by Warpsmith {manifest.warpsmith}; "
            "export it again with this version."
        )
    if strict and manifest.device == "cuda" and not torch.cuda.is_available():
        raise ToolMissing(f"{bundle.folder} holds a CUDA kernel, but PyTorch sees no GPU here; leave out strict.")
    if needs_cutlass([file.text for file in bundle.candidate.files]) and find_cutlass(os.environ) is None:
        if strict:
            raise ToolMissing(f"the kernel of {bundle.folder} needs CUTLASS, which is not found here; {INSTALL}.")
        return _with_pytorch(bundle, program, f"its kernel needs CUTLASS, which is not found here ({INSTALL})")
    return _operator(bundle, program, contract, any_shape or bundle.any_shape, strict=strict)


def _operator(
    bundle: Bundle, program: Program, contract: Contract, covered: bool, *, strict: bool, path: str = ""
) -> Operator:
    """The operator of a kernel, built for the device that is here; `covered`: shapes that no workload has, too."""
    name = _name(bundle, covered)
    with _LOCK:
        if name not in _LOADED:
            coverage = KernelCoverage(
                program, bundle.manifest.device, any_shape=covered, gradients=differentiable(inspect_reference(program))
            )
            kernel = _kernel(name, bundle, program, contract)
            kernel.prepare()
            runner = CheckedKernel(coverage, kernel)
            _LOADED[name] = (program, coverage, runner, register(name, program, coverage, runner))
        program, coverage, runner, registered = _LOADED[name]
    reference = inspect_reference(program)
    assert callable(registered), "register gives an operator"
    return Operator(bundle, program, reference, coverage, runner, registered, strict=strict, path=path)


def load_pickled(path: str, strict: bool, any_shape: bool) -> Operator:
    """Loads an operator that was pickled."""
    return load(path, strict=strict, any_shape=any_shape)


def _names_suite_task(path: str | os.PathLike[str]) -> bool:
    return isinstance(path, str) and path.partition("/")[0] in SHIPPED and not Path(path).exists()


def _load_collected(title: str, *, strict: bool, any_shape: bool) -> Operator:
    """The collection's kernel for a task of a suite where it is verified, else PyTorch's implementation."""
    import torch

    program = load_task(resolve_task(title))
    suite, _, name = title.partition("@")[0].partition("/")
    kernel = next((collected(task) for task in suite_tasks(suite) if task.name == name), None)
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else ""
    state = kernel.state_on(gpu) if kernel else None
    if kernel is None or state is None:
        why = "the collection has no kernel for this task"
    elif not gpu:
        why = "PyTorch sees no GPU here"
    elif state.state is not KernelState.VERIFIED or state.facts is None:
        why = f"the collection's kernel is not verified on {gpu} ({state.state.value})"
    else:
        contract = backend_named(kernel.candidate.backend).contract(program.task)
        bundle = _as_bundle(title, program, kernel.candidate, contract_line(contract), "cuda", state)
        try:
            made = _operator(bundle, program, contract, any_shape or state.facts.any_shape, strict=strict, path=title)
            _say_once(title, f"the collection's kernel {kernel.candidate.id}, verified on {gpu}")
            return made
        except (ToolMissing, CandidateError) as missing:
            why = str(missing).rstrip(".")
    if strict:
        raise ToolMissing(f"no kernel of the collection can be used for {title}: {why}; leave out strict.")
    reference = Candidate((SourceFile(f"{program.task.name}.py", program.task.source),), "torch")
    bundle = _as_bundle(title, program, reference, "", "cpu", DeviceState(KernelState.NOT_JUDGED))
    return _with_pytorch(bundle, program, why, path=title)


def _with_pytorch(bundle: Bundle, program: Program, why: str, path: str = "") -> Operator:
    """The reference in the place of a kernel: the same interface, and no call is covered. Says why, once."""
    _say_once(path or str(bundle.folder), f"PyTorch: {why}")
    coverage = NoCoverage(program, why)
    runner = CheckedKernel(coverage, _NoKernel())
    return Operator(bundle, program, inspect_reference(program), coverage, runner, program.run, strict=False, path=path)


class _NoKernel:
    """Stands where an operator has no kernel; never called, because nothing is covered."""

    def prepare(self) -> None:
        """Nothing to build."""

    def plan(self, sizes: dict[str, int], device: torch.device) -> None:
        """No plan."""

    def run(self, tensors: Sequence[Tensor], plan: object) -> None:
        """No outputs."""


def _as_bundle(
    title: str, program: Program, candidate: Candidate, contract: str, device: str, state: DeviceState
) -> Bundle:
    """A kernel of the collection as a bundle that lies in no folder."""
    task, versions = program.task, dict(state.versions)
    manifest = Manifest(
        task=task.name,
        task_spec=title,
        task_digest=task.digest,
        precision=task.precision.value,
        precision_given="",
        candidate=candidate.id,
        candidate_digest=candidate.digest,
        backend=candidate.backend,
        files=tuple(file.name for file in candidate.files),
        defines=candidate.defines,
        entry=candidate.entry,
        contract=contract,
        device=device,
        workloads=task.workloads,
        verified=state.state is KernelState.VERIFIED,
        measurement=None,
        environment=Environment(
            state.device, candidate.backend, versions.get("compiler", ""), versions.get("torch", "")
        ),
        warpsmith=__version__,
        python=platform.python_version(),
        sha256={},
    )
    return Bundle(Path(title), manifest, candidate, None)


def _say_once(title: str, what: str) -> None:
    if (title, what) not in _SAID:
        _SAID.add((title, what))
        sys.stderr.write(f"warpsmith: {title} is computed by {what}.\n")


def _folder(path: Path) -> Path:
    """The folder of a bundle; for the folder of a run, that of its best kernel."""
    best = path / "best"
    return best if not (path / MANIFEST).exists() and (best / MANIFEST).exists() else path


def _name(bundle: Bundle, any_shape: bool) -> str:
    """The name in torch's registry: the same for the same kernel and task in every process."""
    manifest = bundle.manifest
    parts = [manifest.candidate_digest, manifest.task_digest, manifest.device, str(any_shape)]
    if bundle.library is not None:  # its headers belong to the kernel
        parts.append(str(sorted(manifest.sha256.items())))
    mark = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:6]
    task = re.sub(r"\W", "_", manifest.task, flags=re.ASCII)
    return f"{task}_{manifest.candidate}_{mark}"


def _kernel(name: str, bundle: Bundle, program: Program, contract: Contract) -> LoadedKernel:
    candidate, kind = bundle.candidate, bundle.manifest.device
    backend = backend_named(candidate.backend)
    if kind not in backend.devices:
        raise UsageError(f"{bundle.folder}: a {candidate.backend} kernel does not run on {kind!r}.")
    if bundle.library is not None and isinstance(backend, (CpuBackend, CudaBackend)):
        backend = backend.with_library(bundle.library)

    def build(target: Target) -> Path:
        made = backend.build(candidate, contract, target)
        if isinstance(made, BuildFailure):
            raise CandidateError(f"the kernel of {bundle.folder} does not build for {target.arch} here: {made.reason}")
        return made.library

    if contract.call is None:
        return NativeKernel(program.task, contract, kind, build)
    from warpsmith.runtime.python_kernel import PythonKernel

    return PythonKernel(name, program.task, contract, kind, build)
