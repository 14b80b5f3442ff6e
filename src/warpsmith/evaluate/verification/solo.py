"""A process that calls a built candidate on inputs from files, with no judge: sanitizers want a whole process.

    python -m warpsmith.evaluate.verification.solo PLAN.json

Every buffer is an allocation of exactly its size, so that the sanitizer sees the first byte outside. The sandbox
closes before the candidate's library is loaded; what the candidate left in its outputs goes to files in the scratch
folder, and whether that is right is for the judge to say. Untrusted from then on, and standard library only, except
for a Python candidate (`pysolo`).

On a GPU the process becomes another user before the driver is loaded, which importing torch does: in one that changes
its user later, kernels under a sanitizer never end (seen with 2025.3 on an H200).
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpsmith.evaluate.confinement import sandbox
from warpsmith.evaluate.cudadriver import CudaError, Driver
from warpsmith.evaluate.layout import CANARY, CPU_ALIGN

STATUS = "status.json"
FAILED = 3  # exit status where the candidate reported an error; the words are in STATUS
_KINDS: dict[str, Any] = {
    "pointer": ctypes.c_void_p,
    "table": ctypes.c_void_p,
    "int": ctypes.c_int64,
    "double": ctypes.c_double,
    "bool": ctypes.c_bool,
}
_EXTRA_FILE_BYTES = 16 << 20
_CPU_SECONDS = 3600


class _Host:
    """Memory of the C library, whose allocator is the sanitizer's own."""

    stream = 0

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)

    def allocate(self, nbytes: int) -> int:
        pointer = ctypes.c_void_p()
        if self._libc.posix_memalign(ctypes.byref(pointer), ctypes.c_size_t(CPU_ALIGN), ctypes.c_size_t(nbytes)):
            raise MemoryError
        return int(pointer.value or 0)

    def fill(self, pointer: int, nbytes: int) -> None:
        ctypes.memset(pointer, CANARY, nbytes)

    def upload(self, pointer: int, data: bytes) -> None:
        ctypes.memmove(pointer, data, len(data))

    def download(self, pointer: int, nbytes: int) -> bytes:
        return ctypes.string_at(pointer, nbytes)

    def settle(self) -> str:
        return ""


class _Device:
    """Memory of a GPU, each buffer an allocation of its own."""

    def __init__(self, index: int) -> None:
        self._driver = Driver(index)
        self.stream = self._driver.stream()

    def allocate(self, nbytes: int) -> int:
        return self._driver.allocate(max(1, nbytes))

    def fill(self, pointer: int, nbytes: int) -> None:
        self.upload(pointer, bytes([CANARY]) * nbytes)

    def upload(self, pointer: int, data: bytes) -> None:
        self._driver.upload(pointer, data)

    def download(self, pointer: int, nbytes: int) -> bytes:
        return self._driver.download(pointer, nbytes)

    def settle(self) -> str:
        code, text = self._driver.synchronize()
        return text if code else ""


@dataclass(frozen=True)
class Start:
    """A plan with its inputs; on a GPU, the rights to read them are given up by now."""

    plan: dict[str, Any]
    inputs: dict[tuple[str, str], bytes]
    layers: tuple[str, ...]

    @staticmethod
    def of(plan: dict[str, Any]) -> Start:
        """As whoever we are, read; then become nobody."""
        inputs: dict[tuple[str, str], bytes] = {}
        for case in plan["cases"]:
            for name in case["inputs"]:
                inputs[case["name"], name] = (Path(case["folder"]) / f"{name}.bin").read_bytes()
        return Start(plan, inputs, become_nobody(plan) if plan["kind"] == "cuda" else ())


def become_nobody(plan: dict[str, Any]) -> tuple[str, ...]:
    """As root, give up what root may do."""
    if os.geteuid() != 0 or not plan["drops"]:
        return ()
    user, group = sandbox.NOBODY
    with suppress(PermissionError):  # some containers forbid setgroups and allow the rest
        os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    return (f"uid-{user}",)


class Solo(ABC):
    """One plan, carried out; what differs between libraries and Python files is in its subclasses."""

    def __init__(self, start: Start) -> None:
        self.plan = start.plan
        self._inputs = start.inputs
        self._identity = start.layers

    def run(self) -> int:
        """The exit status."""
        self.prepare()
        layers = self._confine() if self.plan["confine"] else self._bounded()
        self._say(layers, "", done=False)  # from here on, what goes wrong is the candidate's
        said = self.call_all()
        if not said:
            for case in self.plan["cases"]:
                for name in case["outputs"]:
                    self._write(f"{case['name']}/{name}.bin", self.result(case["name"], name))
        self._say(layers, said, done=True)
        return FAILED if said else 0

    @abstractmethod
    def prepare(self) -> None:
        """Lay out the buffers, before the sandbox closes."""
        ...

    @abstractmethod
    def call_all(self) -> str:
        """Load the candidate and call it on every case; what it reported, "" where all went well."""
        ...

    @abstractmethod
    def result(self, case: str, output: str) -> bytes:
        """What it left in an output."""
        ...

    def _say(self, layers: tuple[str, ...], said: str, *, done: bool) -> None:
        self._write(STATUS, json.dumps({"layers": layers, "said": said, "done": done}).encode())

    def _file_bytes(self) -> int:
        """The largest file it may write: a result, or a moderate amount of words."""
        sizes = (nbytes for case in self.plan["cases"] for nbytes in case["outputs"].values())
        return max(sizes, default=0) + _EXTRA_FILE_BYTES

    def input(self, case: str, name: str) -> bytes:
        """An input's bytes; they can be had once."""
        return self._inputs.pop((case, name))

    def _bounded(self) -> tuple[str, ...]:
        """The least there is, for a tool that cannot live in the sandbox: no rights of ours, and an end."""
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_FSIZE, (self._file_bytes(), self._file_bytes()))
        return ("rlimits", *(self._identity or become_nobody(self.plan)))

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
            drop_to=sandbox.NOBODY if plan["drops"] else None,
            parent_pid=os.getppid(),
        )
        # A sanitizer of a GPU has connected to its program by now; a network of its own would cut that.
        early = sandbox.isolate_early(policy) if on_cpu else ()
        return (*self._identity, *sandbox.enter(policy, early=early))

    def _write(self, name: str, data: bytes) -> None:
        path = Path(self.plan["scratch"]) / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)


class NativeSolo(Solo):
    """With a library."""

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        plan = start.plan
        self._side: _Host | _Device = _Device(plan["device"]) if plan["kind"] == "cuda" else _Host()
        self._pointers: dict[str, dict[str, int]] = {}  # of the tensors of each case
        self._keep: list[Any] = []

    def prepare(self) -> None:
        for case in self.plan["cases"]:
            pointers = self._pointers[case["name"]] = {}
            for name, nbytes in case["inputs"].items():
                pointers[name] = self._side.allocate(nbytes)
                self._side.upload(pointers[name], self.input(case["name"], name))
            for name, nbytes in case["outputs"].items():
                pointers[name] = self._side.allocate(nbytes)
                if self.plan["fill"]:  # not where reading what nobody wrote is to be seen
                    self._side.fill(pointers[name], nbytes)

    def call_all(self) -> str:
        plan = self.plan
        library = ctypes.CDLL(plan["library"])
        function = getattr(library, plan["entry"])
        function.argtypes = [_KINDS[kind] for kind in plan["kinds"]]
        function.restype = ctypes.c_int
        for case in plan["cases"]:
            values = self._values(case, self._pointers[case["name"]], self._workspace(library, case))
            returned = int(function(*values))
            said = self._side.settle()
            if said:
                return f"the device reports: {said} (workload {case['workload']!r})."
            if returned:
                return f"the entry point returned {returned} instead of 0 (workload {case['workload']!r})."
        return ""

    def _workspace(self, library: ctypes.CDLL, case: dict[str, Any]) -> int:
        ask = getattr(library, "workspace_bytes", None)
        if ask is None:
            return 0
        ask.argtypes = [_KINDS[kind] for kind in self.plan["size_kinds"]]
        ask.restype = ctypes.c_int64
        nbytes = int(ask(*case["sizes"]))
        return self._side.allocate(nbytes) if nbytes > 0 else 0

    def _values(self, case: dict[str, Any], pointers: dict[str, int], workspace: int) -> list[Any]:
        values: list[Any] = []
        for what, value in case["arguments"]:
            if what == "tensor":
                values.append(pointers[value])
            elif what == "table":
                table = (ctypes.c_void_p * len(value))(*(pointers[name] for name in value))
                self._keep.append(table)
                values.append(ctypes.addressof(table))
            elif what == "number":
                values.append(value)
            else:
                values.append({"workspace": workspace, "stream": self._side.stream}[what])
        return values

    def result(self, case: str, output: str) -> bytes:
        nbytes = next(c["outputs"][output] for c in self.plan["cases"] if c["name"] == case)
        return self._side.download(self._pointers[case][output], nbytes)


def made(start: Start) -> Solo:
    """What its plan asks for."""
    if start.plan["call"] is None:
        return NativeSolo(start)
    from warpsmith.evaluate.verification.pysolo import PythonSolo  # not before: see above

    return PythonSolo(start)


def main(arguments: Sequence[str], make: Callable[[Start], Solo] = made) -> int:
    """Carry out the plan in this file."""
    plan = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    os.chdir(plan["scratch"])
    try:
        return make(Start.of(plan)).run()
    except (OSError, CudaError, MemoryError, AttributeError) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
