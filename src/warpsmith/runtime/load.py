"""`load`: from a bundle to an operator."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from pathlib import Path

from warpsmith.backends.source import backend_named
from warpsmith.model.build import BuildFailure, Target
from warpsmith.model.contract import Contract
from warpsmith.model.errors import CandidateError, ToolMissing, UsageError
from warpsmith.model.task import Precision
from warpsmith.runtime.arguments import inspect_reference
from warpsmith.runtime.bundle import MANIFEST, Bundle, contract_line, read_bundle
from warpsmith.runtime.coverage import KernelCoverage
from warpsmith.runtime.native_kernel import NativeKernel
from warpsmith.runtime.operator import CheckedKernel, LoadedKernel, Operator, register
from warpsmith.tasks.load import load_task
from warpsmith.tasks.program import Program

_LOCK = threading.Lock()
_LOADED: dict[
    str, tuple[Program, KernelCoverage, CheckedKernel, object]
] = {}  # by name: torch's registry takes a name only once


def load(path: str | os.PathLike[str], *, strict: bool = False, any_shape: bool = False) -> Operator:
    """The operator of a bundle: `op = load("best/softmax")`; then call `op(x)` like the reference.

    A call that the kernel does not cover (see `Operator.covers`) goes to the reference; with `strict` it is an error.
    A kernel that was not verified covers only the shapes of its task's workloads, unless `any_shape` is given.

    The bundle's task file is executed and its kernel is native code; both run in this process, without a sandbox and
    with all your rights. Load only bundles of people whose programs you would run: hashes show damage, not intent.
    """
    import torch

    bundle = read_bundle(_folder(Path(path)))
    manifest = bundle.manifest
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
    covered = any_shape or bundle.any_shape
    name = _name(bundle, covered)
    with _LOCK:
        if name not in _LOADED:
            coverage = KernelCoverage(program, manifest.device, any_shape=covered)
            kernel = _kernel(name, bundle, program, contract)
            kernel.prepare()
            runner = CheckedKernel(coverage, kernel)
            _LOADED[name] = (program, coverage, runner, register(name, program, coverage, runner))
        program, coverage, runner, registered = _LOADED[name]
    reference = inspect_reference(program)
    assert callable(registered), "register gives an operator"
    return Operator(bundle, program, reference, coverage, runner, registered, strict=strict)


def load_pickled(path: str, strict: bool, any_shape: bool) -> Operator:
    """Loads an operator that was pickled."""
    return load(path, strict=strict, any_shape=any_shape)


def _folder(path: Path) -> Path:
    """The folder of a bundle; for the folder of a run, that of its best kernel."""
    best = path / "best"
    return best if not (path / MANIFEST).exists() and (best / MANIFEST).exists() else path


def _name(bundle: Bundle, any_shape: bool) -> str:
    """The name in torch's registry: the same for the same kernel and task in every process."""
    manifest = bundle.manifest
    parts = (manifest.candidate_digest, manifest.task_digest, manifest.device, str(any_shape))
    mark = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:6]
    task = re.sub(r"\W", "_", manifest.task, flags=re.ASCII)
    return f"{task}_{manifest.candidate}_{mark}"


def _kernel(name: str, bundle: Bundle, program: Program, contract: Contract) -> LoadedKernel:
    candidate, kind = bundle.candidate, bundle.manifest.device
    backend = backend_named(candidate.backend)
    if kind not in backend.devices:
        raise UsageError(f"{bundle.folder}: a {candidate.backend} kernel does not run on {kind!r}.")

    def build(target: Target) -> Path:
        made = backend.build(candidate, contract, target)
        if isinstance(made, BuildFailure):
            raise CandidateError(f"the kernel of {bundle.folder} does not build for {target.arch} here: {made.reason}")
        return made.library

    if contract.call is None:
        return NativeKernel(program.task, contract, kind, build)
    from warpsmith.runtime.python_kernel import PythonKernel

    return PythonKernel(name, program.task, contract, kind, build)
