"""Every message that crosses a process border inside the evaluator, by direction.

Supervisor to zygote, supervisor to judge, judge to host. Plain fields only (see `wire`); a host's replies
are claims, not facts.
"""

from __future__ import annotations

from dataclasses import dataclass

# --- supervisor <-> zygote -------------------------------------------------------------------------


@dataclass(frozen=True)
class Spawn:
    """Fork a worker; its descriptors come with the message."""

    role: str
    payload: str  # JSON, understood by the role


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
    """A worker is gone, as wait(2) reports it."""

    pid: int
    status: int


# --- supervisor <-> judge --------------------------------------------------------------------------


@dataclass(frozen=True)
class Adopt:
    """Take over a host whose channel comes with the message, and let it prepare itself."""

    host: int
    pid: int  # of its process, to watch it from outside
    trusted: bool  # a replayer: no host code of a candidate will run in it


@dataclass(frozen=True)
class Examine:
    """Judge the candidate that this host is to load."""

    host: int
    library: str
    contract: str  # JSON of the argument list
    replayer: int  # the trusted process that may take its calls over; 0 where there is none


@dataclass(frozen=True)
class Appraise:
    """Judge results for the samples of inputs that a process without a judge left in this folder."""

    folder: str


@dataclass(frozen=True)
class Appraised:
    """What is wrong with them; "" where they are right."""

    reason: str


@dataclass(frozen=True)
class Opened:
    """The judge has the task: the description and what the device can do, as JSON."""

    task: str
    facts: str


@dataclass(frozen=True)
class Refused:
    """The task cannot be judged; the sentence is for the user."""

    reason: str


@dataclass(frozen=True)
class Finding:
    """The judge's verdict on one candidate, as JSON (see `findings`)."""

    host: int
    body: str


@dataclass(frozen=True)
class Stage:
    """Where the judge is with a candidate: for the progress display and for blaming a death."""

    host: int
    name: str


# --- forge -> supervisor ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Forged:
    """How compiling a Python candidate went; the text is the candidate's or a compiler's."""

    kind: str  # "ok", "build", "raised", "memory", "timeout" or "died"
    text: str


# --- judge <-> host --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prepare:
    """Map the arena and enter the sandbox.

    Descriptors: read-only, read-write (CPU); one for each piece (CUDA), or an IPC handle where there are none.
    """

    kind: str
    device: int
    arena_bytes: int
    ipc_handle: str  # hex; "" on the CPU, and where there are pieces
    address: int  # where the window with all pieces is to begin
    window_bytes: int
    pieces: tuple[tuple[int, ...], ...]  # start in the window, bytes, writable
    slots: tuple[tuple[int, ...], ...]  # region_start, region_end, writable: what the CPU host maps
    flush_bytes: int
    scratch: str
    readable: tuple[str, ...]
    links: bool  # whether the task lets a candidate link libraries, which then must be readable
    memory_bytes: int
    scratch_bytes: int
    threads: int
    cupti: str  # the library that names calls and kernels; "" where there is none


@dataclass(frozen=True)
class Prepared:
    """Ready: the sandbox layers, and where each slot was mapped (CPU) or the arena's base (CUDA)."""

    layers: tuple[str, ...]
    bases: tuple[int, ...]


@dataclass(frozen=True)
class Load:
    """Load the library; `kinds` are the entry point's argument types in order."""

    library: str
    entry: str
    kinds: tuple[str, ...]  # "pointer", "table", "int", "double", "bool"
    sizes: tuple[str, ...]  # the arguments of workspace_bytes, as kinds
    size_values: tuple[float | int, ...]


@dataclass(frozen=True)
class Loaded:
    """The library is loaded; what it asks for as workspace (0 when it does not say)."""

    workspace_bytes: int


@dataclass(frozen=True)
class MapWorkspace:
    """Map the workspace (descriptor or IPC handle)."""

    nbytes: int
    ipc_handle: str
    region_start: int  # of the data inside the mapping (CPU: it ends at a guard page)
    piece: tuple[int, ...]  # start in the window, bytes, writable; () where it has no place there


@dataclass(frozen=True)
class Bind:
    """The arguments of one set: numbers, or [arena offset] for pointers; -1 is the workspace, -2 the stream."""

    index: int
    values: tuple[float | int, ...]
    table: tuple[int, ...]


@dataclass(frozen=True)
class Run:
    """Call the entry point once on a set, and wait for the device."""

    index: int


@dataclass(frozen=True)
class Ran:
    """What the call returned; device error 0 means none."""

    returned: int
    device_error: int
    device_text: str
    elapsed_ns: int


@dataclass(frozen=True)
class Flush:
    """Push everything out of the CPU's caches; on CUDA the flush is part of each sample."""


@dataclass(frozen=True)
class Sample:
    """Time one call on each of these sets."""

    indices: tuple[int, ...]
    wake_ms: int = 0  # CPU: for how long at most to wake the threads up first, by code of ours
    flush: bool = True  # CUDA: whether it begins with a cold cache


@dataclass(frozen=True)
class Sampled:
    """The host's own measurement: a claim that the judge holds against its own clock."""

    elapsed_ns: int
    returned: int
    device_error: int
    device_text: str


@dataclass(frozen=True)
class Record:
    """Say what one call on each of these sets launches, as data (CUDA)."""

    indices: tuple[int, ...]


@dataclass(frozen=True)
class Recorded:
    """A claim: one call after the other (`replay.callgraph`), and variables of the device code as [name, hex]."""

    calls: tuple[str, ...]
    deliveries: tuple[str, ...]  # copies of what each returned into the judge's buffers; () where nothing is returned
    variables: tuple[str, ...]
    text: str  # why not; "" where they are there


@dataclass(frozen=True)
class TraceOn:
    """Name everything that the next call on this set calls. Answered by Acknowledged."""

    index: int


@dataclass(frozen=True)
class TraceOff:
    """No more of that; nothing is timed afterwards."""


@dataclass(frozen=True)
class TraceReport:
    """What was seen, each name once."""

    calls: tuple[str, ...]  # of the CUDA runtime and driver
    kernels: tuple[str, ...]
    elsewhere: tuple[str, ...]  # kernels launched on another stream than the harness's
    operators: tuple[str, ...]  # of torch, by a Python candidate
    problem: str  # why calls and kernels are missing; "" where they are not


@dataclass(frozen=True)
class Ping:
    """Answer at once."""


@dataclass(frozen=True)
class Acknowledged:
    """Done, nothing to report."""


@dataclass(frozen=True)
class Failed:
    """The host's own machinery could not do what was asked (for Load: the loader's message)."""

    text: str


# --- judge <-> replayer ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Equip:
    """What may be replayed: device images, one behind the other in the descriptor, and memory."""

    sizes: tuple[int, ...]
    most_shared_bytes: int
    regions: tuple[tuple[int, ...], ...]  # address, bytes, writable


@dataclass(frozen=True)
class Assign:
    """The call that belongs to each of these sets; `variables` come first. Answered by Assigned."""

    indices: tuple[int, ...]
    calls: tuple[str, ...]
    deliveries: tuple[str, ...]
    variables: tuple[str, ...]


@dataclass(frozen=True)
class Assigned:
    """Whether they can be replayed; the text completes "because ..."."""

    ok: bool
    text: str


# --- judge <-> the host of a Python candidate --------------------------------------------------------


@dataclass(frozen=True)
class Import:
    """Import a Python candidate from a folder; answered by Loaded, without a workspace."""

    folder: str
    call: str  # JSON of a core.contract.PythonCall


@dataclass(frozen=True)
class Offer:
    """The tensors and numbers of one set; the first five run parallel. Answered by Acknowledged."""

    index: int
    names: tuple[str, ...]
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    starts: tuple[int, ...]  # arena offsets
    roles: tuple[str, ...]  # "input", "state" or "output"
    origins: tuple[str, ...]  # names inside a module, e.g. "layer1.0.weight"; "" where there is none
    numbers: str  # JSON: scalars and axes by name


@dataclass(frozen=True)
class Faulted:
    """The answer in place of any other when a Python candidate failed: its own words, which only condemn itself."""

    kind: str  # "import", "raised", "memory", "lazy" or "mismatch"
    text: str
