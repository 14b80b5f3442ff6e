"""Has the code of Python candidates compiled, once, and stores the results in the build cache. Imports no torch.

The same sources with the same compilers are never compiled twice.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from warpsmith.backends.builder import Builder
from warpsmith.backends.cutlass import Cutlass, build_mark, find_cutlass, includes_cutlass, without_cutlass
from warpsmith.backends.diagnostics import errors_of
from warpsmith.backends.python_source import cache_key, package_version, python_name, python_traits
from warpsmith.backends.toolchain import find_cxx, find_nvcc
from warpsmith.evaluator.protocol.compile_request import CompileCall, CompileRequest, CompileStatus
from warpsmith.evaluator.protocol.messages import Compiled
from warpsmith.evaluator.protocol.wire import Channel, WireClosed, WireError, WireTimeout
from warpsmith.evaluator.supervisor.worker_pool import HostSpec
from warpsmith.model.build import EXTENSION_RECORD, EXTENSIONS, TRITON, Artifact, ArtifactKind, BuildFailure, Target
from warpsmith.model.candidate import Candidate
from warpsmith.model.contract import Contract
from warpsmith.model.errors import HarnessFault, ToolMissing
from warpsmith.model.settings import Limits, Paths
from warpsmith.model.task import Task
from warpsmith.system.files import FolderTooLarge, list_tree, remove_tree
from warpsmith.system.processes import check_stop

_LIMIT_FACTOR = 5.0  # an extension is several compiler runs, each through torch's headers
_GRACE_S = 30.0
_POLL_S = 0.1
_MOST_BYTES = 1 << 30
_MOST_LEFT = 20_000, 32  # files and folders that compiling may leave, and how deep
_NOBODY = 65534
_PAUSES_S = 1.0, 4.0  # before another attempt
_TRIED_AGAIN = frozenset((CompileStatus.NOT_SET_UP, CompileStatus.KILLED))


@dataclass(frozen=True)
class PythonCompiler:
    """Compiles Python candidates for one device."""

    hosts: Callable[[], HostSpec]  # how a compile worker is started
    paths: Paths
    limits: Limits
    target: Target
    device: int
    threads: int
    readable: tuple[str, ...]
    held: Callable[[], AbstractContextManager[None]]  # the device lock, for calls that run on the device

    def compile(
        self, candidate: Candidate, artifact: Artifact, contract: Contract, task: Task
    ) -> Artifact | BuildFailure:
        """The artifact with everything compiled."""
        traits = python_traits(candidate.main.text)
        extension = traits.extension or not candidate.main.name.endswith(".py")
        self._check_tools(extension)
        store = Builder(paths=self.paths).cache
        texts = [file.text for file in candidate.files]
        cutlass = find_cutlass(os.environ)
        key = self._key(artifact, contract, task, traits.triton, build_mark(texts, cutlass))
        known = store.load(key)
        if known is not None:
            return known
        try:
            with store.locked(key):
                known = store.load(key)
                if known is not None:
                    return known
                calls = _compile_calls(task) if traits.triton else ()
                with store.work_folder() as work, self.held() if calls else nullcontext():
                    began = time.monotonic()
                    used = cutlass if includes_cutlass(texts) else None
                    made = self._compile_in(work / "made", candidate, artifact, contract, calls, used)
                    if cutlass is None and isinstance(made, BuildFailure):
                        made = replace(made, reason=without_cutlass(made.reason))
                    seconds = time.monotonic() - began
                    if isinstance(made, Compiled):
                        return _failure(made, candidate, self._limit_s, seconds)
                    return store.publish(key, replace(made, seconds=seconds), work)
        except OSError as fault:
            raise HarnessFault(f"the build cache cannot be used ({fault.strerror}); free or unlock it.") from fault

    @property
    def _limit_s(self) -> float:
        return self.limits.build_s * _LIMIT_FACTOR

    def _check_tools(self, extension: bool) -> None:
        if extension and shutil.which("ninja", path=_search_path()) is None:
            raise ToolMissing("a torch extension is built with ninja, which is not installed; install ninja.")

    def _key(self, artifact: Artifact, contract: Contract, task: Task, triton: bool, mark: str) -> str:
        compiler = find_nvcc(os.environ) if self.target.kind == "cuda" else find_cxx(os.environ)
        parts = [artifact.library.parent.name, python_name(), package_version("torch"), package_version("triton")]
        parts += [compiler.identity if compiler else "", self.target.kind, self.target.arch, repr(contract.call)]
        if triton:  # Triton compiles for the sizes of the call
            parts += [task.digest, task.precision.value, repr([w.sizes for w in task.workloads])]
        return cache_key(["compiled", *parts, *([mark] if mark else [])])

    def _compile_in(
        self,
        made: Path,
        candidate: Candidate,
        artifact: Artifact,
        contract: Contract,
        calls: tuple[CompileCall, ...],
        cutlass: Cutlass | None,
    ) -> Artifact | BuildFailure | Compiled:
        """Compile in a scratch folder and copy the results to `made`. A `Compiled` is a failure that is not cached."""
        spec = self.hosts()
        folder = Path(tempfile.mkdtemp(prefix="compile-", dir=spec.scratch))
        try:
            shutil.copytree(artifact.library, folder, dirs_exist_ok=True, copy_function=shutil.copyfile)
            for name in (EXTENSIONS, TRITON, "tmp"):
                (folder / name).mkdir()
            if spec.drop_user and os.geteuid() == 0:
                for place in (folder, *folder.rglob("*")):
                    os.chown(place, _NOBODY, _NOBODY)
            outcome = self._outcome(spec, self._request(folder, contract, calls, spec, cutlass))
            if outcome.status == CompileStatus.BUILD_FAILED:
                files = [file.name for file in candidate.files]
                return BuildFailure(errors_of(outcome.text, files=(*files, "main.cpp", "cuda.cu")))
            built = [path for name in (EXTENSIONS, TRITON) for path in list_tree(folder / name, *_MOST_LEFT)]
            # What raises behind a built extension may need the device. Libraries of Triton are its own, for any kernel.
            has_extension = any(path.suffix == ".so" and path.is_relative_to(folder / EXTENSIONS) for path in built)
            if outcome.status != CompileStatus.OK and not (outcome.status == CompileStatus.RAISED and has_extension):
                return outcome
            _gather(artifact.library, folder, built, made)
            return replace(artifact, library=made, kind=ArtifactKind.MODULE, cached=False)
        except FolderTooLarge as too_large:
            return BuildFailure(f"compiling {candidate.main.name} left {too_large} behind; write fewer files.")
        finally:
            remove_tree(folder)

    def _request(
        self,
        folder: Path,
        contract: Contract,
        calls: tuple[CompileCall, ...],
        spec: HostSpec,
        cutlass: Cutlass | None,
    ) -> CompileRequest:
        assert contract.call is not None, "a Python contract has a call"
        return CompileRequest(
            folder=str(folder),
            call=asdict(contract.call),
            environ={**self._environ(folder), **(cutlass.environment if cutlass else {})},
            readable=(*self.readable, *_toolkit(), *(cutlass.readable if cutlass else ())),
            kind=self.target.kind,
            device=self.device,
            threads=self.threads,
            limit_s=self._limit_s,
            drop_user=spec.drop_user,
            calls=calls,
        )

    def _environ(self, folder: Path) -> Mapping[str, str]:
        kept = ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH", "CC", "CXX", "NVCC_CCBIN")
        found = re.fullmatch(r"sm_(\d+)(\d[af]?)", self.target.arch)  # "sm_90a" is torch's "9.0a"
        cuda = {"TORCH_CUDA_ARCH_LIST": f"{found[1]}.{found[2]}"} if found else {}
        return {
            **{name: os.environ[name] for name in kept if name in os.environ},
            **cuda,
            "PATH": _search_path(),
            "LANG": "C.UTF-8",
            "HOME": str(folder / "tmp"),
            "TMPDIR": str(folder / "tmp"),
            "TORCH_EXTENSIONS_DIR": str(folder / EXTENSIONS),
            "TRITON_CACHE_DIR": str(folder / TRITON),
            "MAX_JOBS": str(len(os.sched_getaffinity(0))),
            "OMP_NUM_THREADS": str(self.threads),
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        }

    def _outcome(self, spec: HostSpec, request: CompileRequest) -> Compiled:
        """How compiling ended; what another program on the device or machine may have caused is tried again."""
        tried_again = _TRIED_AGAIN | ({CompileStatus.OUT_OF_MEMORY} if request.calls else set())  # of the device
        for pause_s in _PAUSES_S:
            outcome = self._ask(spec, request)
            if outcome.status not in tried_again:
                return outcome
            time.sleep(pause_s)
        outcome = self._ask(spec, request)
        if outcome.status == CompileStatus.NOT_SET_UP:
            raise HarnessFault(f"the compiling process cannot be set up ({outcome.text[:500].rstrip('.')}).")
        return outcome

    def _ask(self, spec: HostSpec, request: CompileRequest) -> Compiled:
        ours, theirs = socket.socketpair()
        with theirs:
            worker = spec.server.spawn("compile", request.to_json(), [theirs.fileno()])
        channel = Channel(ours)
        deadline = time.monotonic() + request.limit_s + _GRACE_S
        try:
            while True:
                check_stop()
                try:
                    outcome, _ = channel.receive((Compiled,), _POLL_S)
                    assert isinstance(outcome, Compiled), "no other message is accepted"
                    return outcome
                except WireTimeout:
                    if time.monotonic() > deadline:
                        raise HarnessFault("the compiling process did not answer.") from None
        except (WireClosed, WireError) as error:
            raise HarnessFault(f"the compiling process was lost ({error}).") from None
        finally:
            channel.close()
            worker.kill()
            worker.wait(10.0)


def _search_path() -> str:
    """PATH with the interpreter's folder first: ninja may be installed there."""
    return os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])


def _failure(outcome: Compiled, candidate: Candidate, limit_s: float, seconds: float) -> BuildFailure:
    name = candidate.main.name
    if outcome.status == CompileStatus.TIMED_OUT:
        return BuildFailure(f"compiling and importing {name} took longer than {limit_s:g} s.", seconds)
    if outcome.status in (CompileStatus.DIED, CompileStatus.KILLED) and outcome.text:
        return BuildFailure(f"a signal ended {name} while it was imported ({outcome.text}).", seconds)
    if outcome.status == CompileStatus.DIED:
        return BuildFailure(f"{name} ended its process while it was imported: it must not exit.", seconds)
    return BuildFailure(outcome.text[:2000] or f"{name} cannot be imported.", seconds)


def _gather(sources: Path, compiled: Path, built: Sequence[Path], made: Path) -> None:
    """Copy to `made` our own copy of the sources and the plain files among those that compiling produced."""
    shutil.copytree(sources, made, copy_function=shutil.copyfile)
    total = 0
    for path in built:
        mode, relative = path.lstat(), path.relative_to(compiled)
        # Of extensions, the libraries whose imports will be checked, and the list of them; no other file can be loaded.
        kept = path.suffix == ".so" or relative == Path(EXTENSIONS, EXTENSION_RECORD)
        if not stat.S_ISREG(mode.st_mode) or (relative.parts[0] == EXTENSIONS and not kept):
            continue
        total += mode.st_size
        if total > _MOST_BYTES:
            raise FolderTooLarge(f"more than {_MOST_BYTES >> 30} GiB")
        target = made / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target, follow_symlinks=False)


def _compile_calls(task: Task) -> tuple[CompileCall, ...]:
    """One call per workload."""
    scalars = {s.name: s.value for s in task.scalars}
    specs = task.tensors
    return tuple(
        CompileCall(
            names=tuple(t.name for t in specs),
            roles=tuple(t.role.value for t in specs),
            origins=tuple(t.origin for t in specs),
            dtypes=tuple(t.dtype for t in specs),
            shapes=tuple(t.shape(w.sizes) for t in specs),
            numbers={**scalars, **w.sizes},
        )
        for w in task.workloads
    )


def _toolkit() -> tuple[str, ...]:
    """The folders of the compilers, with links resolved; they need not lie under /usr."""
    found = [compiler.command[0] for compiler in (find_nvcc(os.environ), find_cxx(os.environ)) if compiler]
    found += [path for name in ("CC", "CXX", "NVCC_CCBIN") if (path := shutil.which(os.environ.get(name, "")))]
    homes = [os.environ.get("CUDA_HOME", ""), *(str(Path(path).parent.parent) for path in found)]
    homes += [str(Path(os.path.realpath(path)).parent.parent) for path in found]
    real = [os.path.realpath(home) for home in homes if home]
    return tuple(dict.fromkeys(home for home in (*homes, *real) if home not in ("", "/")))
