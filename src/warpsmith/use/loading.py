"""`load`: from a bundle to an operator that is ready to be called."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from pathlib import Path

from warpsmith.backends.source import backend_named
from warpsmith.core.build import BuildFailure, Target
from warpsmith.core.contract import Contract
from warpsmith.core.errors import CandidateError, ToolMissing, UsageError
from warpsmith.core.task import Precision
from warpsmith.tasks.load import load_task
from warpsmith.tasks.program import Program
from warpsmith.use.arguments import examine
from warpsmith.use.bundle import MANIFEST, Bundle, declared, read_bundle
from warpsmith.use.coverage import Coverage
from warpsmith.use.library import LibraryKernel
from warpsmith.use.operator import Kernel, Operator, Runner, register

_LOCK = threading.Lock()
_LOADED: dict[str, tuple[Program, Coverage, Runner, object]] = {}  # torch's registry takes a name once


def load(path: str | os.PathLike[str], *, strict: bool = False, any_shape: bool = False) -> Operator:
    """The operator of a bundle: `op = load("best/softmax")`, then `op(x)` as one would call the reference.

    What the kernel does not cover (see `Operator.covers`) goes to the reference; with `strict` it is an error instead.
    A kernel that was not verified covers the shapes of its task's workloads alone, unless `any_shape` is given.

    The bundle's task file is executed and its kernel is native code that runs in this process, without a sandbox and
    with all your rights: load only bundles of people whose programs you would run. Hashes tell damage, not intent.
    """
    import torch

    bundle = read_bundle(_folder(Path(path)))
    manifest = bundle.manifest
    program = load_task(bundle.task_spec, Precision(manifest.precision_given) if manifest.precision_given else None)
    if program.task.digest != manifest.task_digest:
        raise UsageError(f"{bundle.folder}: its task file is not the task its kernel was judged on; export it again.")
    backend = backend_named(manifest.backend)
    contract = backend.contract(program.task, manifest.entry)
    if declared(contract) != manifest.contract:
        raise UsageError(
            f"{bundle.folder}: its kernel was written for another contract, by Warpsmith {manifest.warpsmith}; "
            "export it again with this version."
        )
    if strict and manifest.device == "cuda" and not torch.cuda.is_available():
        raise ToolMissing(f"{bundle.folder} holds a CUDA kernel, and PyTorch sees no GPU here.")
    covered = any_shape or bundle.any_shape
    name = _name(bundle, covered)
    with _LOCK:
        if name not in _LOADED:
            coverage = Coverage(program, manifest.device, any_shape=covered)
            kernel = _kernel(name, bundle, program, contract)
            kernel.prepare()
            runner = Runner(coverage, kernel)
            _LOADED[name] = (program, coverage, runner, register(name, program, coverage, runner))
        program, coverage, runner, registered = _LOADED[name]
    reference = examine(program)
    assert callable(registered), "register gives an operator"
    return Operator(bundle, program, reference, coverage, runner, registered, strict=strict)


def load_again(path: str, strict: bool, any_shape: bool) -> Operator:
    """What a pickled operator is read with."""
    return load(path, strict=strict, any_shape=any_shape)


def _folder(path: Path) -> Path:
    """The bundle itself; of a run, the bundle of its best kernel."""
    best = path / "best"
    return best if not (path / MANIFEST).exists() and (best / MANIFEST).exists() else path


def _name(bundle: Bundle, any_shape: bool) -> str:
    """What torch's registry calls it: the same for the same kernel and task, in every process."""
    manifest = bundle.manifest
    parts = (manifest.candidate_digest, manifest.task_digest, manifest.device, str(any_shape))
    mark = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:6]
    task = re.sub(r"\W", "_", manifest.task, flags=re.ASCII)
    return f"{task}_{manifest.candidate}_{mark}"


def _kernel(name: str, bundle: Bundle, program: Program, contract: Contract) -> Kernel:
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
        return LibraryKernel(program.task, contract, kind, build)
    from warpsmith.use.pythonic import PythonKernel

    return PythonKernel(name, program.task, contract, kind, build)
