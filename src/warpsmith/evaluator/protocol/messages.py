"""Every message between processes of the evaluator, grouped by sender and receiver.

Fields are plain (see `wire`). The standard library is enough to import this module. What a host replies is a claim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from warpsmith.evaluator.protocol.wire import NumbersMessage

MOST_CALLS = 128  # of one sample on the CPU

# --- supervisor <-> fork server -------------------------------------------------------------------------


@dataclass(frozen=True)
class Spawn:
    """Fork a worker; the message carries its file descriptors."""

    role: str
    payload: str  # JSON; its form depends on the role


@dataclass(frozen=True)
class Kill:
    """SIGKILL a worker's process group, if it still exists."""

    pid: int


@dataclass(frozen=True)
class Spawned:
    """The worker's process id."""

    pid: int


@dataclass(frozen=True)
class Exited:
    """A worker ended; the status is that of wait(2)."""

    pid: int
    status: int


# --- supervisor <-> judge --------------------------------------------------------------------------


@dataclass(frozen=True)
class AdoptHost:
    """Take over a host and prepare it; the message carries the host's channel."""

    host: int
    pid: int
    trusted: bool  # a replayer, which runs no host code of a candidate


@dataclass(frozen=True)
class Examine:
    """Judge a candidate in this host."""

    host: int
    library: str
    contract: str  # JSON of a Contract
    replayer: int  # the process that may replay the candidate's calls; 0 if there is none


@dataclass(frozen=True)
class CheckResults:
    """Check the results that a standalone process left in this folder."""

    folder: str


@dataclass(frozen=True)
class ResultsChecked:
    """What is wrong with the results; "" if they are right."""

    reason: str


@dataclass(frozen=True)
class TaskOpened:
    """The judge has opened the task: the task and what the judge knows of the device, as JSON."""

    task: str
    facts: str


@dataclass(frozen=True)
class JudgeRefused:
    """The task cannot be judged; the reason is a sentence for the user."""

    reason: str
    needed_bytes: int = 0  # not 0: the task can be judged once so much memory of the device is free


@dataclass(frozen=True)
class ReleaseMemory:
    """Release the buffers, if they are larger than this; those hosts that wait are given up with them."""

    more_than: int


@dataclass(frozen=True)
class MemoryReleased:
    """Whether the buffers were released; they are allocated again for the next host."""

    released: bool


@dataclass(frozen=True)
class Examined:
    """The result of an examination: JSON of `records.JudgeReport`."""

    host: int
    body: str


@dataclass(frozen=True)
class StageReached:
    """The examination has reached a stage; for the progress display."""

    host: int
    name: str


# --- supervisor <-> compile worker -----------------------------------------------------------------


@dataclass(frozen=True)
class Compiled:
    """How compiling a Python candidate ended; the text comes from the candidate or a compiler."""

    status: str  # a `compile_request.CompileStatus`
    text: str


# --- judge <-> host --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prepare:
    """Map the judge's buffers (the arena) and enter the sandbox.

    Descriptors: read-only and read-write (CPU); one for each shared block (CUDA), or none and an IPC handle.
    """

    kind: str
    device: int
    ipc_handle: str  # hex; "" on the CPU and with shared blocks
    address: int  # the virtual address of the shared memory
    shared_bytes: int
    blocks: tuple[tuple[int, ...], ...]  # start in the shared memory, bytes, writable
    slots: tuple[tuple[int, ...], ...]  # region_start, region_end, writable: what a host on the CPU maps
    flush_bytes: int
    scratch: str
    readable: tuple[str, ...]
    links: bool  # the task allows libraries, which must then be readable
    memory_bytes: int
    scratch_bytes: int
    threads: int
    cupti: str  # path of libcupti, which names calls and kernels; "" if there is none


@dataclass(frozen=True)
class HostReady:
    """The host is ready: its sandbox layers, and the addresses of the slots (CPU) or of the arena (CUDA)."""

    layers: tuple[str, ...]
    bases: tuple[int, ...]


@dataclass(frozen=True)
class LoadLibrary:
    """Load the library; `kinds` are those of the entry point's arguments (`c_call.argument_kind`)."""

    library: str
    entry: str
    kinds: tuple[str, ...]  # "pointer", "table", "int", "double", "bool"
    sizes: tuple[str, ...]  # the arguments of workspace_bytes, as kinds
    size_values: tuple[float | int, ...]  # for all workloads, one after the other


@dataclass(frozen=True)
class CandidateLoaded:
    """The candidate is loaded; how much workspace it asks for (0 if it does not ask)."""

    workspace_bytes: int


@dataclass(frozen=True)
class MapWorkspace:
    """Map the workspace (descriptor or IPC handle)."""

    nbytes: int
    ipc_handle: str
    region_start: int  # where the data begins in the mapping (on the CPU, the data ends at a guard page)
    block: tuple[int, ...]  # start in the shared memory, bytes, writable; () with an IPC handle and on the CPU


@dataclass(frozen=True)
class BindArguments:
    """The arguments of one set: numbers, or [arena offset] for pointers; -1 is the workspace, -2 the stream."""

    index: int
    values: tuple[float | int, ...]
    table: tuple[int, ...]


@dataclass(frozen=True)
class RunCall:
    """Call the entry point once on a set, and wait for the device."""

    index: int


@dataclass(frozen=True)
class CallResult:
    """What the call returned; a device error of 0 means none."""

    returned: int
    device_error: int
    device_text: str
    elapsed_ns: int


@dataclass(frozen=True)
class FlushCaches:
    """Overwrite the CPU's caches; on CUDA the flush is part of each sample."""


@dataclass(frozen=True)
class WakeThreads:
    """CPU: wake the threads of this process, and spend at most this long on it."""

    most_ms: int


@dataclass(frozen=True)
class CallSets(NumbersMessage):
    """CPU: make one call on each of these sets, while the judge's clock runs. Calls on negative numbers do nothing."""

    CODE: ClassVar[int] = 1
    LISTED: ClassVar[bool] = True
    indices: tuple[int, ...]


@dataclass(frozen=True)
class CallsMade(NumbersMessage):
    """The calls of `CallSets` were made. The host's own time is a claim: no result is computed from it."""

    CODE: ClassVar[int] = 2
    elapsed_ns: int
    returned: int


@dataclass(frozen=True)
class TimeCalls:
    """CUDA: time one call on each of these sets."""

    indices: tuple[int, ...]
    flush: bool = True  # begin with a cold cache


@dataclass(frozen=True)
class CallTimes:
    """The host's own measurement: a claim that the judge compares with its own clock."""

    elapsed_ns: int
    returned: int
    device_error: int
    device_text: str


@dataclass(frozen=True)
class RecordCalls:
    """Record what one call on each of these sets launches (CUDA)."""

    indices: tuple[int, ...]


@dataclass(frozen=True)
class RecordedCalls:
    """A claim: encoded calls (`cuda_replay.call_data`), and variables of the device code as JSON [name, hex]."""

    calls: tuple[str, ...]
    deliveries: tuple[str, ...]  # encoded copies of each result into the judge's buffers; () if nothing is returned
    variables: tuple[str, ...]
    text: str  # why the calls are missing; "" if they are present


@dataclass(frozen=True)
class StartTrace:
    """From now on, list everything that calls on this set call. Answered by Acknowledged."""

    index: int


@dataclass(frozen=True)
class StopTrace:
    """Stop tracing; nothing is timed afterwards. Answered by TraceReport."""


@dataclass(frozen=True)
class TraceReport:
    """The names that were seen, each once."""

    calls: tuple[str, ...]  # of the CUDA runtime and driver
    kernels: tuple[str, ...]
    elsewhere: tuple[str, ...]  # kernels launched on other streams than the given one
    operators: tuple[str, ...]  # of torch, by a Python candidate
    operators_ns: int  # for how long the call was inside of them; 0 where that was not measured
    problem: str  # why calls and kernels are missing; "" if they are present


@dataclass(frozen=True)
class Ping:
    """Answer at once."""


@dataclass(frozen=True)
class Acknowledged:
    """Done, nothing to report."""


@dataclass(frozen=True)
class RequestFailed:
    """The host could not do what was asked; for LoadLibrary, the loader's message."""

    text: str


# --- judge <-> replayer ------------------------------------------------------------------------------


@dataclass(frozen=True)
class SetUpReplay:
    """What may be replayed: device images, concatenated in the descriptor's file, and memory."""

    sizes: tuple[int, ...]
    most_shared_bytes: int
    regions: tuple[tuple[int, ...], ...]  # address, bytes, writable


@dataclass(frozen=True)
class AssignCalls:
    """The recorded call of each of these sets; `variables` are set first. Answered by CallsAssigned."""

    indices: tuple[int, ...]
    calls: tuple[str, ...]
    deliveries: tuple[str, ...]
    variables: tuple[str, ...]


@dataclass(frozen=True)
class CallsAssigned:
    """Whether the calls can be replayed; the text completes "because ..."."""

    ok: bool
    text: str


# --- judge <-> the host of a Python candidate --------------------------------------------------------


@dataclass(frozen=True)
class ImportModule:
    """Import a Python candidate from a folder. Answered by CandidateLoaded, without a workspace."""

    folder: str
    call: str  # JSON of a PythonCall


@dataclass(frozen=True)
class BindTensors:
    """The tensors and numbers of one set; the first five run parallel. Answered by Acknowledged."""

    index: int
    names: tuple[str, ...]
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    starts: tuple[int, ...]  # arena offsets
    roles: tuple[str, ...]  # "input", "state", "weights" or "output", see NamedTensor
    origins: tuple[str, ...]  # names inside a module, e.g. "layer1.0.weight"; "" where there is none
    numbers: str  # JSON: scalars and axes by name


@dataclass(frozen=True)
class PythonFailed:
    """Sent instead of any other answer if a Python candidate failed; the text is its own and can only harm itself."""

    kind: str  # "import", "raised", "memory", "lazy" or "mismatch"
    text: str
