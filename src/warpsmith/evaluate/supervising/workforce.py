"""The parents of one evaluator's workers, the folder their hosts write in, and the environment each kind is given.

Started on first use, ended together. Judging is not done here.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from warpsmith.backends.toolchain import TOOLKIT, find_nvcc
from warpsmith.core.errors import ToolMissing
from warpsmith.core.owned import OwnedFolder, sweep
from warpsmith.evaluate.confinement import landlock
from warpsmith.evaluate.confinement.sandbox import default_readable
from warpsmith.evaluate.supervising.zygote import CannotImport, Zygote

_TORCH_PRELOAD = (
    "torch",
    "warpsmith.evaluate.judging.judge",
    "warpsmith.evaluate.judging.courtroom",
    "warpsmith.tasks.load",
    "warpsmith.hardware.work",
)
_TORCH_LATER = ("torch.fx.experimental.symbolic_shapes",)  # most references need it, and it takes most of a second
_LEAN_PRELOAD = ("warpsmith.evaluate.hosts.host",)
_PYTHON_PRELOAD = (
    "torch",
    "warpsmith.evaluate.hosts.pyhost",
    "warpsmith.evaluate.hosts.forge",
    "warpsmith.evaluate.hosts.pytriton",
)
_FOR_COMPILERS = ("CUDA_HOME", "CUDA_PATH", "CC", "CXX", "NVCC_CCBIN")
# References in fp64 come and go in sizes near the device's own: in fixed segments their room would be lost in pieces.
_ALLOCATING = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
# On the CPU, memory that is freed stays with the process: a result that PyTorch allocates then costs what it does in a
# loop that uses the last one's memory again, and not the system's time to find and clear pages. A kernel writes where
# there are pages already; without this its gain would be theirs. mimalloc is what PyTorch brings for Arm.
_KEEPING = {"MIMALLOC_PURGE_DELAY": "-1", "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
_PASSED_ON = (
    "PATH",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "LANG",
    "TMPDIR",
)
_PREFIX = "warpsmith-"


@dataclass(frozen=True)
class Crew:
    """Where hosts of one kind come from."""

    zygote: Zygote
    role: str
    scratch: Path  # the folder of their folders
    environ: Mapping[str, str]
    drops: bool = True  # as root, whether they become another user


class Workforce:
    """The torch zygote (judges), the lean one (hosts), one for Python candidates, and the hosts' scratch folders."""

    def __init__(self, kind: str, cache: Path, threads: int) -> None:
        self._kind = kind
        self._cache = cache
        self._threads = threads
        self._zygotes: list[Zygote] = []
        self._scratch: OwnedFolder | None = None
        self._python: tuple[Zygote, OwnedFolder] | None = None
        self._starting = threading.Lock()  # builders and judging ask for the Python zygote at the same time

    @property
    def lost(self) -> bool:
        """Whether it was started and one of its processes is gone."""
        return not all(zygote.alive for zygote in self._zygotes)

    @property
    def scratch(self) -> Path:
        """The folder of the hosts' folders; made and removed with their zygote."""
        assert self._scratch is not None, "start() comes first"
        return self._scratch.path

    def start(self) -> tuple[Zygote, Zygote]:
        """The parent of judges and the parent of hosts, as they run or new."""
        if not self._zygotes:
            threads = self._for_parents()
            compiled = {"TORCHINDUCTOR_CACHE_DIR": str(self._cache / "inductor")}
            inherited = {k: v for k, v in os.environ.items() if "API_KEY" not in k}
            judge_environ = _ALLOCATING | inherited | threads | compiled
            lean_environ = {k: os.environ[k] for k in _PASSED_ON if k in os.environ} | threads
            try:
                self._zygotes.append(Zygote(_TORCH_PRELOAD, judge_environ, later=_TORCH_LATER))
                self._scratch = new_scratch()  # not before: from here on its zygote sees to its end
                self._zygotes.append(Zygote(_LEAN_PRELOAD, lean_environ, remove_at_end=self.scratch))
            except CannotImport as error:
                self.stop()
                raise ToolMissing(
                    f"PyTorch cannot be imported by {sys.executable}: install torch >= 2.6 ({error})"
                ) from None
            except BaseException:
                self.stop()
                raise
        judges, hosts = self._zygotes
        return judges, hosts

    def hosts(self) -> Crew:
        """The crew of native candidates."""
        return Crew(self.start()[1], "host", self.scratch, self.host_environ())

    def python(self) -> Crew:
        """The crew of Python candidates, started when the first of them comes: it costs seconds."""
        with self._starting:
            if self._python is not None and not self._python[0].alive:
                self._stop_python()
            if self._python is None:
                scratch = new_scratch()
                kept = {k: os.environ[k] for k in (*_PASSED_ON, *_FOR_COMPILERS) if k in os.environ}
                kept |= {"CUDA_HOME": home} if (home := _cuda_home()) else {}
                environ = {**kept, **self._for_parents()}
                try:
                    self._python = (Zygote(_PYTHON_PRELOAD, environ, remove_at_end=scratch.path), scratch)
                except BaseException:
                    scratch.remove()
                    raise
            zygote, scratch = self._python
            return Crew(zygote, "pyhost", scratch.path, self.host_environ(), drops=drops())

    def close(self) -> None:
        """End everything, for good."""
        self.stop()
        with self._starting:
            self._stop_python()

    def _stop_python(self) -> None:
        if self._python is not None:
            zygote, scratch = self._python
            zygote.close()
            scratch.remove()
            self._python = None

    def stop(self) -> None:
        """End judges and native hosts and remove their folder; compilers of Python candidates go on."""
        for zygote in self._zygotes:
            zygote.hang_up()  # they end side by side
        for zygote in self._zygotes:
            zygote.close()
        self._zygotes.clear()
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None

    def readable(self) -> tuple[str, ...]:
        """What hosts may read."""
        libraries = [p for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
        toolkit = ["/usr/local/cuda"] if self._kind == "cuda" else []
        return tuple(dict.fromkeys([*map(str, default_readable()), *libraries, *toolkit]))

    def host_environ(self) -> Mapping[str, str]:
        """The environment of a host: nothing of the user's but what finds the device."""
        kept = {
            k: os.environ[k]
            for k in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LD_LIBRARY_PATH")
            if k in os.environ
        }
        return {
            **kept,
            "PATH": "/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": str(self._threads),
            "OMP_DYNAMIC": "false",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_CACHE_DISABLE": "1",
        }

    def _for_parents(self) -> dict[str, str]:
        """What keeps a parent fit to be forked from: no threads of numpy's, no device touched by asking for it."""
        return {
            "OMP_NUM_THREADS": str(self._threads),
            "OPENBLAS_NUM_THREADS": "1",
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # NVML, which numbered the devices, counts in the order of the bus
            **(_KEEPING if self._kind == "cpu" else {}),
        }


def _cuda_home() -> str:
    """The toolkit that torch compiles extensions with: it asks for this once, when it is imported."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            return os.environ[name]
    nvcc = find_nvcc(os.environ)
    homes = [TOOLKIT, *([Path(nvcc.command[0]).resolve().parent.parent] if nvcc else [])]
    return next((str(home) for home in homes if (home / "include" / "cuda_runtime.h").is_file()), "")


def drops() -> bool:
    """Whether a Python candidate becomes another user where we are root.

    Where that user cannot read the interpreter (in a home folder, say) it could import nothing; then it stays who it
    is, without capabilities, and Landlock alone keeps files from it.
    """
    torch = importlib.util.find_spec("torch")
    homes = {Path(p).resolve() for p in (sys.base_prefix, sys.prefix, (torch and torch.origin) or sys.prefix)}
    open_to_all = all(place.stat().st_mode & 0o001 or place.is_file() for h in homes for place in (h, *h.parents))
    return open_to_all or landlock.kernel_abi() < 1


def new_scratch() -> OwnedFolder:
    """A folder for the hosts' folders. As root, hosts run as another user, who must be able to pass through."""
    for parent in (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"):
        path = Path(parent)
        if path.is_dir() and (os.geteuid() != 0 or all(p.stat().st_mode & 0o001 for p in (path, *path.parents))):
            sweep(path, _PREFIX)
            return OwnedFolder(path, _PREFIX, mode=0o711)
    raise ToolMissing("no temporary folder can be entered by other users: set TMPDIR to one that can.")
