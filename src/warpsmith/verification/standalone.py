"""A process that calls a built candidate on inputs from files, without a judge: sanitizers and profilers need that.

    python -m warpsmith.verification.standalone PLAN.json

Every buffer is an allocation of exactly its size, so that a sanitizer detects the first byte outside. The process
enters the sandbox before the candidate is loaded and is untrusted from then on. It writes the outputs to files in the
scratch folder; the judge checks them. Standard library only, except for Python candidates (`standalone_python`).

On a GPU, the process becomes another user before it loads the driver or imports torch: if it changes its user later,
kernels under a sanitizer never end (seen with compute-sanitizer 2025.3 on an H200).
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import secrets
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpsmith.evaluator.candidate.c_call import CLibrary, pointer_table
from warpsmith.evaluator.cuda_driver import CudaError, Driver
from warpsmith.evaluator.protocol.buffer_layout import CPU_ALIGN
from warpsmith.evaluator.sandbox import policy as sandbox

STATUS = "status.json"
FAILED = 3  # exit status if the candidate reported an error; the text is in STATUS
_EXTRA_FILE_BYTES = 16 << 20
_CPU_SECONDS = 3600


class _CpuMemory:
    """Memory of the C library, whose allocator the sanitizer replaces."""

    stream = 0

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)

    def allocate(self, nbytes: int) -> int:
        pointer = ctypes.c_void_p()
        if self._libc.posix_memalign(ctypes.byref(pointer), ctypes.c_size_t(CPU_ALIGN), ctypes.c_size_t(nbytes)):
            raise MemoryError
        return int(pointer.value or 0)

    def fill(self, pointer: int, nbytes: int) -> None:
        ctypes.memset(pointer, 1 + secrets.randbelow(255), nbytes)

    def upload(self, pointer: int, data: bytes) -> None:
        ctypes.memmove(pointer, data, len(data))

    def download(self, pointer: int, nbytes: int) -> bytes:
        return ctypes.string_at(pointer, nbytes)

    def synchronize(self) -> str:
        return ""


class _CudaMemory:
    """Memory of a GPU; each buffer is an allocation of its own."""

    def __init__(self, index: int) -> None:
        self._driver = Driver(index)
        self.stream = self._driver.stream()

    def allocate(self, nbytes: int) -> int:
        return self._driver.allocate(max(1, nbytes))

    def fill(self, pointer: int, nbytes: int) -> None:
        self.upload(pointer, bytes([1 + secrets.randbelow(255)]) * nbytes)

    def upload(self, pointer: int, data: bytes) -> None:
        self._driver.upload(pointer, data)

    def download(self, pointer: int, nbytes: int) -> bytes:
        return self._driver.download(pointer, nbytes)

    def synchronize(self) -> str:
        code, text = self._driver.synchronize()
        return text if code else ""


@dataclass(frozen=True)
class StandaloneInputs:
    """A plan and its inputs, read before the process changes its user."""

    plan: dict[str, Any]
    inputs: dict[tuple[str, str], bytes]
    layers: tuple[str, ...]

    @staticmethod
    def of(plan: dict[str, Any]) -> StandaloneInputs:
        """Read the inputs; on a GPU, then become another user."""
        inputs: dict[tuple[str, str], bytes] = {}
        for case in plan["cases"]:
            for name in case["inputs"]:
                inputs[case["name"], name] = (Path(case["folder"]) / f"{name}.bin").read_bytes()
        return StandaloneInputs(plan, inputs, drop_user(plan) if plan["kind"] == "cuda" else ())


def drop_user(plan: dict[str, Any]) -> tuple[str, ...]:
    """If we are root, become the user nobody; returns the sandbox layer."""
    if os.geteuid() != 0 or not plan["drop_user"]:
        return ()
    user, group = sandbox.NOBODY
    with suppress(PermissionError):  # some containers forbid setgroups and allow the rest
        os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    return (f"uid-{user}",)


class StandaloneProcess(ABC):
    """Carries out one plan; the subclasses load libraries or Python files."""

    def __init__(self, start: StandaloneInputs) -> None:
        self.plan = start.plan
        self._inputs = start.inputs
        self._identity = start.layers

    def run(self) -> int:
        """Carry out the plan; returns the exit status."""
        self.prepare()
        layers = self._confine() if self.plan["confine"] else self._limit_resources()
        self._say(layers, "", done=False)  # from here on, failures are the candidate's
        said = self.call_all()
        if not said:
            for case in self.plan["cases"]:
                for name in case["outputs"]:
                    self._write(f"{case['name']}/{name}.bin", self.result(case["name"], name))
        self._say(layers, said, done=True)
        return FAILED if said else 0

    @abstractmethod
    def prepare(self) -> None:
        """Allocate and fill the buffers, before the sandbox is entered."""
        ...

    @abstractmethod
    def call_all(self) -> str:
        """Load the candidate and call it on every case; returns its error, "" if there is none."""
        ...

    @abstractmethod
    def result(self, case: str, output: str) -> bytes:
        """The contents of an output."""
        ...

    def _say(self, layers: tuple[str, ...], said: str, *, done: bool) -> None:
        self._write(STATUS, json.dumps({"layers": layers, "said": said, "done": done}).encode())

    def _file_bytes(self) -> int:
        """The largest file that the process may write: a result, or a moderate amount of text."""
        sizes = (nbytes for case in self.plan["cases"] for nbytes in case["outputs"].values())
        return max(sizes, default=0) + _EXTRA_FILE_BYTES

    def input(self, case: str, name: str) -> bytes:
        """The bytes of an input; can be called once per input."""
        return self._inputs.pop((case, name))

    def _limit_resources(self) -> tuple[str, ...]:
        """Minimal limits, for tools that cannot run in the sandbox: another user, bounded time and files."""
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_FSIZE, (self._file_bytes(), self._file_bytes()))
        return ("rlimits", *(self._identity or drop_user(self.plan)))

    def _confine(self) -> tuple[str, ...]:
        plan = self.plan
        on_cpu = plan["kind"] == "cpu"
        policy = sandbox.SandboxPolicy(
            scratch=Path(plan["scratch"]),
            readable=tuple(Path(p) for p in plan["readable"]),
            writable_devices=() if on_cpu else tuple(Path("/dev").glob("nvidia*")),
            memory_bytes=plan["memory_bytes"] if on_cpu else None,
            file_bytes=self._file_bytes(),
            open_files=1024,
            threads=4 * plan["threads"] + 64,
            cpu_seconds=_CPU_SECONDS,
            drop_to=sandbox.NOBODY if plan["drop_user"] else None,
            parent_pid=os.getppid(),
        )
        # A GPU sanitizer is connected to its program by a socket: no network namespace of its own.
        early = sandbox.isolate_early(policy) if on_cpu else ()
        return (*self._identity, *sandbox.enter(policy, early=early))

    def _write(self, name: str, data: bytes) -> None:
        path = Path(self.plan["scratch"]) / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)


class StandaloneNative(StandaloneProcess):
    """Calls a native library."""

    def __init__(self, start: StandaloneInputs) -> None:
        super().__init__(start)
        plan = start.plan
        self._memory: _CpuMemory | _CudaMemory = _CudaMemory(plan["device"]) if plan["kind"] == "cuda" else _CpuMemory()
        self._pointers: dict[str, dict[str, int]] = {}  # of the tensors of each case
        self._keep: list[Any] = []

    def prepare(self) -> None:
        for case in self.plan["cases"]:
            pointers = self._pointers[case["name"]] = {}
            for name, nbytes in case["inputs"].items():
                pointers[name] = self._memory.allocate(nbytes)
                self._memory.upload(pointers[name], self.input(case["name"], name))
            for name, nbytes in case["outputs"].items():
                pointers[name] = self._memory.allocate(nbytes)
                if self.plan["fill"]:  # not for a tool that detects reads of uninitialised memory
                    self._memory.fill(pointers[name], nbytes)

    def call_all(self) -> str:
        plan = self.plan
        library = CLibrary(plan["library"], plan["entry"], plan["kinds"], plan["size_kinds"])
        for case in plan["cases"]:
            nbytes = library.workspace_bytes(case["sizes"])
            workspace = self._memory.allocate(nbytes) if nbytes > 0 else 0
            returned = library.bind(self._values(case, self._pointers[case["name"]], workspace))()
            said = self._memory.synchronize()
            if said:
                return f"the device reports: {said} (workload {case['workload']!r})."
            if returned:
                return f"the entry point returned {returned} instead of 0 (workload {case['workload']!r})."
        return ""

    def _values(self, case: dict[str, Any], pointers: dict[str, int], workspace: int) -> list[Any]:
        values: list[Any] = []
        for what, value in case["arguments"]:
            if what == "tensor":
                values.append(pointers[value])
            elif what == "table":
                table = pointer_table([pointers[name] for name in value])
                self._keep.append(table)
                values.append(ctypes.addressof(table))
            elif what == "number":
                values.append(value)
            else:
                values.append({"workspace": workspace, "stream": self._memory.stream}[what])
        return values

    def result(self, case: str, output: str) -> bytes:
        nbytes = next(c["outputs"][output] for c in self.plan["cases"] if c["name"] == case)
        return self._memory.download(self._pointers[case][output], nbytes)


def make_process(start: StandaloneInputs) -> StandaloneProcess:
    """The process for a plan."""
    if start.plan["call"] is None:
        return StandaloneNative(start)
    from warpsmith.verification.standalone_python import StandalonePython  # imports torch: not earlier, see above

    return StandalonePython(start)


def main(arguments: Sequence[str], make: Callable[[StandaloneInputs], StandaloneProcess] = make_process) -> int:
    """Carry out the plan in a file."""
    plan = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    os.chdir(plan["scratch"])
    try:
        return make(StandaloneInputs.of(plan)).run()
    except (OSError, CudaError, MemoryError, AttributeError) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
