"""The fork servers of one evaluator, the folders their hosts write in, and the environment of each kind of worker.

Started on first use and ended together.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from warpsmith import evaluator
from warpsmith.backends.toolchain import TOOLKIT, find_cxx, find_nvcc
from warpsmith.evaluator.sandbox import landlock
from warpsmith.evaluator.sandbox.policy import default_readable
from warpsmith.evaluator.supervisor.fork_server import CannotImport, ForkServer
from warpsmith.model.errors import ToolMissing
from warpsmith.system.files import OwnedFolder, sweep

_TORCH_PRELOAD = (
    "torch",
    "warpsmith.evaluator.judge.process",
    "warpsmith.tasks.load",
    "warpsmith.hardware.work",
)
_TORCH_LATER = ("torch.fx.experimental.symbolic_shapes",)  # most references need it, and it takes most of a second
_NATIVE_PRELOAD = ("warpsmith.evaluator.candidate.native_host",)
_PYTHON_PRELOAD = (
    "torch",
    "warpsmith.evaluator.candidate.python_host",
    "warpsmith.evaluator.candidate.compile_worker",
    "warpsmith.evaluator.candidate.triton_support",
)
_COMPILER_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CC", "CXX", "NVCC_CCBIN")
# References in fp64 can be nearly as large as the device's memory, which fixed segments would fragment.
_CUDA_ALLOCATOR = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
# On the CPU, the allocator keeps freed memory. A result that PyTorch allocates then costs what it costs in a loop, and
# not the kernel's time to find and clear pages. Candidates write to pages that exist already; without these settings
# they would seem faster than PyTorch for that reason alone. PyTorch uses mimalloc on Arm.
_CPU_ALLOCATOR = {"MIMALLOC_PURGE_DELAY": "-1", "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
_INHERITED = (
    "PATH",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "LANG",
    "TMPDIR",
)
_PREFIX = "warpsmith-"
FAULTS, HEAP, CALLS, LINES = "faults", "heap", "calls", "lines"
"""C sources that hosts and judges load as libraries (see `native_library`)."""


@dataclass(frozen=True)
class HostSpec:
    """How hosts of one kind are started."""

    server: ForkServer
    role: str
    scratch: Path  # each host gets a folder in this folder
    environ: Mapping[str, str]
    drop_user: bool = True  # if we are root, hosts become another user


class WorkerPool:
    """The fork servers of judges, native hosts and Python hosts, and the scratch folders of hosts."""

    def __init__(self, kind: str, cache: Path, threads: int) -> None:
        self._kind = kind
        self._cache = cache
        self._threads = threads
        self._servers: list[ForkServer] = []
        self._scratch: OwnedFolder | None = None
        self._python: tuple[ForkServer, OwnedFolder] | None = None
        self._starting = threading.Lock()  # several threads ask for the Python server

    @property
    def lost(self) -> bool:
        """True if a fork server has ended unexpectedly."""
        return not all(server.alive for server in self._servers)

    @property
    def scratch(self) -> Path:
        """The folder of the native hosts' folders; created and removed with their fork server."""
        assert self._scratch is not None, "start() comes first"
        return self._scratch.path

    def start(self) -> tuple[ForkServer, ForkServer]:
        """The fork servers of judges and of native hosts, started if needed."""
        if not self._servers:
            if importlib.util.find_spec("torch") is None:
                raise ToolMissing(f"PyTorch is not installed for {sys.executable}; install torch >= 2.6.")
            threads = self._server_environ()
            compiled = {"TORCHINDUCTOR_CACHE_DIR": str(self._cache / "inductor")}
            inherited = {k: v for k, v in os.environ.items() if "API_KEY" not in k}
            judge_environ = _CUDA_ALLOCATOR | inherited | threads | compiled
            native_environ = {k: os.environ[k] for k in _INHERITED if k in os.environ} | threads
            try:
                self._servers.append(ForkServer(_TORCH_PRELOAD, judge_environ, later=_TORCH_LATER))
                self._scratch = make_scratch_folder()  # the next fork server removes it
                self._servers.append(ForkServer(_NATIVE_PRELOAD, native_environ, remove_at_end=self.scratch))
            except CannotImport as error:
                self.stop()
                raise ToolMissing(
                    f"PyTorch cannot be imported by {sys.executable}: install torch >= 2.6 ({error})"
                ) from None
            except BaseException:
                self.stop()
                raise
        judges, hosts = self._servers
        return judges, hosts

    def native_hosts(self) -> HostSpec:
        """How hosts of native candidates are started."""
        return HostSpec(self.start()[1], "host", self.scratch, host_environ(self._threads))

    def python_hosts(self) -> HostSpec:
        """How hosts of Python candidates are started. The first call starts their fork server, which takes seconds."""
        with self._starting:
            if self._python is not None and not self._python[0].alive:
                self._stop_python()
            if self._python is None:
                scratch = make_scratch_folder()
                kept = {k: os.environ[k] for k in (*_INHERITED, *_COMPILER_VARIABLES) if k in os.environ}
                kept |= {"CUDA_HOME": home} if (home := _cuda_home()) else {}
                environ = {**kept, **self._server_environ(), **_spinning()}
                try:
                    self._python = (ForkServer(_PYTHON_PRELOAD, environ, remove_at_end=scratch.path), scratch)
                except BaseException:
                    scratch.remove()
                    raise
            server, scratch = self._python
            return HostSpec(
                server, "python_host", scratch.path, host_environ(self._threads), drop_user=python_hosts_drop_user()
            )

    def close(self) -> None:
        """End all processes."""
        self.stop()
        with self._starting:
            self._stop_python()

    def _stop_python(self) -> None:
        if self._python is not None:
            server, scratch = self._python
            server.close()
            scratch.remove()
            self._python = None

    def stop(self) -> None:
        """End judges and native hosts and remove their folder; Python hosts and compile workers go on."""
        for server in self._servers:
            server.shut_down()  # all of them end at the same time
        for server in self._servers:
            server.close()
        self._servers.clear()
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None

    def _server_environ(self) -> dict[str, str]:
        """Variables that keep a server fit for forking: no threads of numpy, no CUDA context from a query."""
        return {
            "OMP_NUM_THREADS": str(self._threads),
            "OPENBLAS_NUM_THREADS": "1",
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the devices were numbered by NVML, which uses this order
            **(_CPU_ALLOCATOR if self._kind == "cpu" else {}),
        }


def readable_paths(kind: str) -> tuple[str, ...]:
    """The files and folders that hosts on a kind of device may read."""
    libraries = [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
    toolkit = ["/usr/local/cuda"] if kind == "cuda" else []
    return tuple(dict.fromkeys([*map(str, default_readable()), *libraries, *toolkit]))


def host_environ(threads: int) -> Mapping[str, str]:
    """The environment of a host: of the user's variables, only those that are needed to find the device."""
    kept = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": str(threads),
        "OMP_DYNAMIC": "false",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_CACHE_DISABLE": "1",
        **_spinning(),
    }


def _spinning() -> dict[str, str]:
    """How long OpenMP threads of a host spin after their work, if this is not root. They delay the moment at which the
    judge sees a reply, unless the judge may take a CPU from them (`cpu_affinity`), which only root may."""
    return {"GOMP_SPINCOUNT": "2000"} if os.geteuid() else {}


def _cuda_home() -> str:
    """The CUDA toolkit with which torch compiles extensions; torch reads CUDA_HOME once, when it is imported."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            return os.environ[name]
    nvcc = find_nvcc(os.environ)
    homes = [TOOLKIT, *([Path(nvcc.command[0]).resolve().parent.parent] if nvcc else [])]
    return next((str(home) for home in homes if (home / "include" / "cuda_runtime.h").is_file()), "")


def python_hosts_drop_user() -> bool:
    """True if a Python candidate becomes another user when we are root.

    If that user cannot read the interpreter (in a home folder, for example), the candidate keeps its user, without
    capabilities, and only Landlock protects files from it.
    """
    torch = importlib.util.find_spec("torch")
    homes = {Path(p).resolve() for p in (sys.base_prefix, sys.prefix, (torch and torch.origin) or sys.prefix)}
    open_to_all = all(place.stat().st_mode & 0o001 or place.is_file() for h in homes for place in (h, *h.parents))
    return open_to_all or landlock.kernel_abi() < 1


def make_scratch_folder() -> OwnedFolder:
    """A folder for the hosts' folders. If we are root, hosts run as another user, who must be able to enter it."""
    for parent in (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"):
        path = Path(parent)
        if path.is_dir() and (os.geteuid() != 0 or all(p.stat().st_mode & 0o001 for p in (path, *path.parents))):
            sweep(path, _PREFIX)
            return OwnedFolder(path, _PREFIX, mode=0o711)
    raise ToolMissing("no temporary folder can be entered by other users: set TMPDIR to one that can.")


def native_library(name: str, cache: Path, environ: Mapping[str, str]) -> str:
    """The path of `evaluator/native/<name>.c` as a library, compiled on first use; "" if it cannot be built.

    Without `faults.c`, the reason of a crash does not name the buffer that was overrun. Without `heap.c`, calls of
    PyTorch modules cannot be replayed. Without `calls.c`, an interpreter makes the calls of a sample one by one.
    Without `lines.c`, the caches of the CPU are overwritten before every sample.
    """
    compiler = find_cxx(environ)
    if compiler is None:
        return ""
    source = Path(evaluator.__file__).parent / "native" / f"{name}.c"
    key = hashlib.sha256(source.read_bytes() + compiler.identity.encode()).hexdigest()[:16]
    target = cache / "native" / f"{name}-{key}.so"
    if target.exists():
        return str(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            built = Path(folder) / f"{name}.so"
            command = [*compiler.command, "-x", "c", "-O2", "-shared", "-fPIC", "-o", str(built), str(source)]
            done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
            if done.returncode != 0:
                return ""
            os.replace(built, target)
    except (OSError, subprocess.TimeoutExpired):  # a full disk, or a compiler that was just removed
        return ""
    return str(target)
