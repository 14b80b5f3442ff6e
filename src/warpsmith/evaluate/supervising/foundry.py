"""The supervisor's side of the forge: has a Python candidate's code compiled once, and keeps what came out.

Content-addressed like every build: the same sources with the same compilers are never compiled twice. Imports no torch.
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
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from warpsmith.backends.build import Workshop
from warpsmith.backends.diagnostics import errors_of
from warpsmith.backends.pybuild import key_of, package_version, python_name, store_of
from warpsmith.backends.pysource import traits_of
from warpsmith.backends.stopping import check_stop
from warpsmith.backends.toolchain import find_cxx, find_nvcc
from warpsmith.core.build import EXTENSIONS, TRITON, Artifact, BuildFailure, Target
from warpsmith.core.candidate import Candidate
from warpsmith.core.config import Limits, Paths
from warpsmith.core.contract import Contract
from warpsmith.core.errors import HarnessFault, ToolMissing
from warpsmith.core.task import Task
from warpsmith.evaluate.messages import Forged
from warpsmith.evaluate.supervising.orders import Order, Trial, dump_order
from warpsmith.evaluate.supervising.workforce import Crew
from warpsmith.evaluate.wire import Channel, WireClosed, WireError, WireTimeout

_LIMIT_FACTOR = 5.0  # an extension is several compiler runs, each through torch's headers
_GRACE_S = 30.0
_LOOK_S = 0.1
_MOST_BYTES = 1 << 30
_NOBODY = 65534
_KEPT = (".so", ".json")  # of an extension's folder: no objects, no ninja files


@dataclass(frozen=True)
class Foundry:
    """Where and with what is compiled."""

    crew: Callable[[], Crew]
    paths: Paths
    limits: Limits
    target: Target
    device: int
    threads: int
    readable: tuple[str, ...]
    held: Callable[[], AbstractContextManager[None]]  # the device's lock, for what must run there

    def forge(
        self, candidate: Candidate, artifact: Artifact, contract: Contract, task: Task
    ) -> Artifact | BuildFailure:
        """The artifact with everything compiled; kept by content."""
        traits = traits_of(candidate.main.text)
        extension = traits.extension or not candidate.main.name.endswith(".py")
        self._check_tools(extension)
        store = store_of(Workshop(paths=self.paths))
        key = self._key(artifact, contract, task, traits.triton)
        known = store.load(key)
        if known is not None:
            return known
        try:
            with store.locked(key):
                known = store.load(key)
                if known is not None:
                    return known
                trials = _trials(task) if traits.triton else ()
                with store.work_folder() as work, self.held() if trials else nullcontext():
                    began = time.monotonic()
                    made = self._forge_in(work / "made", candidate, artifact, contract, trials)
                    seconds = time.monotonic() - began
                    if isinstance(made, Forged):
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

    def _key(self, artifact: Artifact, contract: Contract, task: Task, triton: bool) -> str:
        compiler = find_nvcc(os.environ) if self.target.kind == "cuda" else find_cxx(os.environ)
        parts = [artifact.library.parent.name, python_name(), package_version("torch"), package_version("triton")]
        parts += [compiler.identity if compiler else "", self.target.kind, self.target.arch, repr(contract.call)]
        if triton:  # Triton compiles for the sizes it is called with
            parts += [task.digest, task.precision.value, repr([w.sizes for w in task.workloads])]
        return key_of(["forged", *parts])

    def _forge_in(
        self, made: Path, candidate: Candidate, artifact: Artifact, contract: Contract, trials: tuple[Trial, ...]
    ) -> Artifact | BuildFailure | Forged:
        """Compile in a folder of the forge's; what it leaves goes to `made`. A `Forged` is a failure not to be kept."""
        crew = self.crew()
        folder = Path(tempfile.mkdtemp(prefix="forge-", dir=crew.scratch))
        try:
            shutil.copytree(artifact.library, folder, dirs_exist_ok=True, copy_function=shutil.copyfile)
            for name in (EXTENSIONS, TRITON, "tmp"):
                (folder / name).mkdir()
            if crew.drops and os.geteuid() == 0:
                for place in (folder, *folder.rglob("*")):
                    os.chown(place, _NOBODY, _NOBODY)
            outcome = self._ask(crew, self._order(folder, contract, trials, crew))
            if outcome.kind == "build":
                files = [file.name for file in candidate.files]
                return BuildFailure(errors_of(outcome.text, files=(*files, "main.cpp", "cuda.cu")))
            if outcome.kind != "ok" and not (outcome.kind == "raised" and any((folder / EXTENSIONS).rglob("*.so"))):
                return outcome
            _gather(artifact.library, folder, made)
            return replace(artifact, library=made, kind="module", cached=False)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _order(self, folder: Path, contract: Contract, trials: tuple[Trial, ...], crew: Crew) -> Order:
        assert contract.call is not None, "a Python contract has a call"
        return Order(
            folder=str(folder),
            call=asdict(contract.call),
            environ=self._environ(folder),
            readable=(*self.readable, *_toolkit()),
            kind=self.target.kind,
            device=self.device,
            threads=self.threads,
            limit_s=self._limit_s,
            drops=crew.drops,
            trials=trials,
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

    def _ask(self, crew: Crew, order: Order) -> Forged:
        ours, theirs = socket.socketpair()
        with theirs:
            worker = crew.zygote.spawn("forge", dump_order(order), [theirs.fileno()])
        channel = Channel(ours)
        deadline = time.monotonic() + order.limit_s + _GRACE_S
        try:
            while True:
                check_stop()
                try:
                    outcome, _ = channel.receive((Forged,), _LOOK_S)
                    assert isinstance(outcome, Forged), "nothing else is taken"
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
    """Where programs are looked for: the interpreter's own folder holds what was installed with it, ninja too."""
    return os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])


def _failure(outcome: Forged, candidate: Candidate, limit_s: float, seconds: float) -> BuildFailure:
    name = candidate.main.name
    if outcome.kind == "timeout":
        return BuildFailure(f"compiling and importing {name} took longer than {limit_s:g} s.", seconds)
    if outcome.kind == "died":
        return BuildFailure(f"{name} ended its process while it was imported: it must not exit.", seconds)
    return BuildFailure(outcome.text[:2000] or f"{name} cannot be imported.", seconds)


def _gather(sources: Path, forged: Path, made: Path) -> None:
    """What is kept of a forge's folder: our own copy of the sources, and plain files it made."""
    shutil.copytree(sources, made, copy_function=shutil.copyfile)
    total = 0
    for name in (EXTENSIONS, TRITON):
        for path in sorted((forged / name).rglob("*")):
            mode = path.lstat()
            if not stat.S_ISREG(mode.st_mode) or (name == EXTENSIONS and path.suffix not in _KEPT):
                continue
            total += mode.st_size
            if total > _MOST_BYTES:
                raise HarnessFault(f"a build left more than {_MOST_BYTES >> 30} GiB behind; it is not kept.")
            target = made / name / path.relative_to(forged / name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target, follow_symlinks=False)


def _trials(task: Task) -> tuple[Trial, ...]:
    """One call per workload."""
    scalars = {s.name: s.value for s in task.scalars}
    specs = task.tensors
    return tuple(
        Trial(
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
    """The folders of compilers, which may be links or scripts that lead elsewhere, and need not lie under /usr."""
    found = [compiler.command[0] for compiler in (find_nvcc(os.environ), find_cxx(os.environ)) if compiler]
    found += [path for name in ("CC", "CXX", "NVCC_CCBIN") if (path := shutil.which(os.environ.get(name, "")))]
    homes = [os.environ.get("CUDA_HOME", ""), *(str(Path(path).parent.parent) for path in found)]
    homes += [str(Path(os.path.realpath(path)).parent.parent) for path in found]
    real = [os.path.realpath(home) for home in homes if home]
    return tuple(dict.fromkeys(home for home in (*homes, *real) if home not in ("", "/")))
