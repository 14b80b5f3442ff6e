"""Confines the process that is about to load a candidate: no network, no other files, no other processes.

For: the forked child, in two steps that cannot be undone. `isolate_early` runs while the process still has
one thread (before CUDA starts its own); `enter` runs once its memory is set up, before the library is loaded.
Both do what this kernel and user allow and name the layers that hold; a layer that is not possible is
left out, never an error. `probe` says what is possible here.

| layer | what it takes away |
|---|---|
| no-network | a network namespace without devices (sockets are refused by seccomp as well) |
| no-ipc | an IPC namespace of its own (System V objects are refused by seccomp as well) |
| landlock-N | every path but the policy's; N is the kernel's interface: 4 adds TCP, 5 devices, 6 signals |
| uid-N | root: identity, groups and capabilities, in every thread |
| rlimits | address space, file size, descriptors, core files, CPU time; threads where they can be counted |
| seccomp | the system calls of `seccomp.SYSCALLS`: sockets, programs, other processes, mounts and more |

A `-partial` name (`landlock-7-partial`) covers the calling thread but not threads that ran before, such as
a driver's. To have Landlock cover those too, give `isolate_early` the policy.

What the caller must do, because nothing here can: close descriptors the candidate should not have (what
is open stays usable), scrub the environment, import every Python module the child will need (as another
user it may not reach an interpreter in a home folder), give the scratch folder to `drop_to` and have every
folder above it and above the library searchable by that user, and bound the wall time and what the scratch
folder holds in total. On a GPU resident memory is not bounded here, since RLIMIT_AS breaks CUDA.
"""

from __future__ import annotations

import ctypes
import errno
import json
import math
import os
import resource
import select
import signal
import struct
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from warpsmith.evaluator.sandbox import landlock, seccomp
from warpsmith.model.errors import HarnessFault

NOBODY = (65534, 65534)
"""The user and group without rights of their own, on every Linux."""

SHARED_UID_MARGIN = 256
"""Threads beyond the policy's: the kernel counts all processes of the user, and others come and go."""

SYSTEM_READABLE = tuple(
    Path(p)
    for p in (
        "/etc/ld.so.cache",
        "/etc/localtime",
        "/dev/urandom",
        "/dev/random",
        "/proc/cpuinfo",
        "/proc/meminfo",
        "/proc/stat",
        "/proc/devices",
        "/proc/driver/nvidia",
        "/proc/driver/nvidia-uvm",
        "/proc/sys/vm",  # malloc asks for overcommit_memory
        "/sys/bus/pci",
        "/sys/devices",  # processor topology and caches; PCI devices behind their links
        "/sys/module/nvidia",
    )
)
"""What runtimes (malloc, OpenMP, the CUDA driver) look up about the machine; always readable."""

SYSTEM_DEVICES = (Path("/dev/null"), Path("/dev/zero"), Path("/dev/full"))
"""Device nodes that hold no state; always writable."""

_CLONE_NEWUSER, _CLONE_NEWIPC, _CLONE_NEWNET = 0x10000000, 0x08000000, 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 1, 4, 24
_CAPABILITY_VERSION = 0x20080522
_PROBE_TIMEOUT_S = 5.0


@dataclass(frozen=True, kw_only=True)
class SandboxPolicy:
    """What a candidate's process may still do."""

    scratch: Path  # the only folder it may write; exists, and belongs to `drop_to` where we are root
    readable: tuple[Path, ...]  # files and folders it may read and map; missing ones are ignored
    memory_bytes: int | None  # address space beyond what is mapped now; None on a GPU
    file_bytes: int  # the largest file it may write
    open_files: int  # descriptors it may have
    threads: int  # threads it may have (plus SHARED_UID_MARGIN); root without `drop_to` has no limit
    cpu_seconds: int  # of all its threads together, from now on: a backstop behind the wall limit
    writable_devices: tuple[Path, ...] = ()  # nodes it may open and control, e.g. /dev/nvidia0
    drop_to: tuple[int, int] | None = NOBODY  # user and group to become when root
    parent_pid: int | None = None  # die when this process does; None: do not watch
    programs: bool = False  # may start programs it can read: for compilers, which then run inside the same walls


ESSENTIAL_LAYERS = ("no-network", "landlock", "seccomp")
"""The first words of the names of layers without which a candidate is hardly confined."""


@dataclass(frozen=True)
class Layer:
    """One layer of the sandbox, as tried."""

    name: str
    available: bool
    detail: str  # what it covers, or why it is not there


def default_readable() -> tuple[Path, ...]:
    """The system's libraries and the running interpreter's; the caller adds the candidate's own folder."""
    prefixes = {Path(sys.base_prefix), Path(sys.prefix)}
    return (Path("/usr"), Path("/lib"), Path("/lib64"), *sorted(prefixes))


def isolate_early(policy: SandboxPolicy | None = None, *, landlock_abi: int | None = None) -> tuple[str, ...]:
    """Take the process off the network, while it has one thread; give the result to `enter`.

    With a policy, Landlock and the thread limit are applied now as well, so that threads started from here
    on (a CUDA driver's) are confined too; the policy must then name the devices. `landlock_abi` caps the
    interface to use (0: do without).
    """
    layers = _isolate()
    if policy is not None:
        _check(policy)
        layers += _confine_files(policy, landlock_abi)
    return _active(layers)


def enter(policy: SandboxPolicy, *, early: tuple[str, ...] = (), landlock_abi: int | None = None) -> tuple[str, ...]:
    """Confine this process for good and name the layers that hold, those of `early` first.

    `early` is what `isolate_early` returned: a layer named there is not applied again. `landlock_abi` caps
    the interface to use (0: do without). Kills this process if `parent_pid` is gone.
    """
    held = [Layer(name, True, "applied early") for name in early]
    return _active([*held, *_enter(policy, early, landlock_abi)])


def probe() -> tuple[Layer, ...]:
    """Every layer, tried in a child that is thrown away: what a sandbox on this machine would consist of."""
    scratch = Path(tempfile.gettempdir())
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Python warns of forking a process with threads; this child only makes system calls.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            policy = SandboxPolicy(
                scratch=scratch,
                readable=(),
                memory_bytes=1 << 30,
                file_bytes=1 << 20,
                open_files=256,
                threads=16,
                cpu_seconds=10,
            )
            found = [asdict(layer) for layer in (*_isolate(), *_enter(policy, (), None))]
            os.write(writer, json.dumps(found).encode())
        finally:
            os._exit(0)
    os.close(writer)
    return _collect(child, reader)


def _collect(child: int, reader: int) -> tuple[Layer, ...]:
    """The layers the probing child reports, and its end."""
    text = b""
    deadline = time.monotonic() + _PROBE_TIMEOUT_S
    while select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(reader, 65536)
        if not part:
            break
        text += part
    os.close(reader)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if not text:
        raise HarnessFault("the child that probes the sandbox died without a report; run the command again.")
    return tuple(Layer(item["name"], item["available"], item["detail"]) for item in json.loads(text))


def _active(layers: list[Layer]) -> tuple[str, ...]:
    return tuple(layer.name for layer in layers if layer.available)


def _check(policy: SandboxPolicy) -> None:
    if not policy.scratch.is_dir():
        raise HarnessFault(f"the scratch folder {policy.scratch} does not exist; make it before the sandbox.")


def _enter(policy: SandboxPolicy, early: tuple[str, ...], landlock_abi: int | None) -> list[Layer]:
    _check(policy)
    layers: list[Layer] = []
    if not any(name.startswith("landlock") for name in early):
        layers += _confine_files(policy, landlock_abi)
    layers.append(_attempt("uid", lambda: _drop_identity(policy.drop_to)))
    layers.append(_attempt("rlimits", lambda: _limit(policy)))
    _prctl(_PR_SET_DUMPABLE, 0)
    if policy.parent_pid is not None:
        # A change of identity has cleared the death signal, and the parent may have died in between.
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != policy.parent_pid:
            os.kill(os.getpid(), signal.SIGKILL)
    layers.append(_attempt("seccomp", lambda: _filter_calls(policy.programs)))  # last: it refuses what others need
    return layers


def _attempt(name: str, step: Callable[[], tuple[str, str]]) -> Layer:
    """The layer with the name and detail that `step` gives, or the reason why it cannot be."""
    try:
        achieved, detail = step()
    except OSError as refused:
        return Layer(name, False, refused.strerror or str(refused))
    return Layer(achieved, True, detail)


def _prctl(option: int, value: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.prctl(ctypes.c_int(option), *map(ctypes.c_ulong, (value, 0, 0, 0))))


def _single_threaded() -> bool:
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False  # without /proc nobody can tell, so nothing is claimed


# --- namespaces ---------------------------------------------------------------------------------------------


def _unshare(flags: int, what: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "unshare"):
        raise OSError(errno.ENOSYS, "namespaces exist on Linux alone")
    if libc.unshare(ctypes.c_int(flags)) != 0:
        reason = ctypes.get_errno()
        raise OSError(reason, f"unshare {what}: {os.strerror(reason)}")


def _isolate() -> list[Layer]:
    """Network and IPC namespaces; mount and PID namespaces are left alone, since CUDA minds them."""
    layers = [_attempt("no-network", _leave_network)]
    if layers[0].available:
        layers.append(_attempt("no-ipc", _leave_ipc))
    else:
        layers.append(Layer("no-ipc", False, layers[0].detail))
    if os.geteuid() != 0:
        _drop_capabilities()  # those a user namespace gave: with them it could bring devices up
    return layers


def _leave_network() -> tuple[str, str]:
    uid, gid = os.geteuid(), os.getegid()
    try:
        _unshare(_CLONE_NEWNET, "network")
    except PermissionError:
        # Root that may not is in a container: in a user namespace it could no longer change identity.
        if uid == 0:
            raise
        _unshare(_CLONE_NEWUSER | _CLONE_NEWNET, "user and network")
        _keep_own_ids(uid, gid)
        return "no-network", "network namespace inside a user namespace"
    return "no-network", "network namespace"


def _leave_ipc() -> tuple[str, str]:
    _unshare(_CLONE_NEWIPC, "IPC")
    return "no-ipc", "IPC namespace"


def _keep_own_ids(uid: int, gid: int) -> None:
    """Map the user to itself, so that it sees its own name; where that is refused it looks like nobody."""
    with suppress(OSError):
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


# --- files --------------------------------------------------------------------------------------------------


def _confine_files(policy: SandboxPolicy, abi_limit: int | None) -> list[Layer]:
    # Before Landlock, since counting the user's threads reads /proc of other processes.
    with suppress(OSError):
        _limit_threads(policy)
    return [_attempt("landlock", lambda: _restrict_paths(policy, abi_limit))]


def _restrict_paths(policy: SandboxPolicy, abi_limit: int | None) -> tuple[str, str]:
    abi = landlock.kernel_abi()
    if abi_limit is not None:
        abi = min(abi, abi_limit)
    if abi < 1:
        raise OSError(errno.ENOSYS, "this kernel offers no Landlock (Linux 5.13, enabled at boot)")
    rights = landlock.RUN if policy.programs else landlock.READ
    rules = [landlock.Rule(path, rights) for path in (*SYSTEM_READABLE, *policy.readable)]
    rules += [landlock.Rule(path, landlock.DEVICE) for path in (*SYSTEM_DEVICES, *policy.writable_devices)]
    # The CUDA driver names its threads through /proc/<pid>/task/<tid>/comm and reads its own maps.
    rules.append(landlock.Rule(Path("/proc") / str(os.getpid()), landlock.READ_WRITE))
    # Whoever may write no byte has no use for empty files either.
    rules.append(landlock.Rule(policy.scratch, landlock.FULL if policy.file_bytes else landlock.READ))
    whole = _single_threaded()
    landlock.restrict(rules, abi)
    return f"landlock-{abi}" + ("" if whole else "-partial"), f"Landlock ABI {abi}"


# --- identity -----------------------------------------------------------------------------------------------


def _drop_identity(drop_to: tuple[int, int] | None) -> tuple[str, str]:
    if os.geteuid() != 0 or drop_to is None:
        _drop_capabilities()
        raise OSError(errno.EPERM, f"the candidate keeps this user (uid {os.geteuid()})")
    uid, gid = drop_to
    capability = 0
    while _prctl(_PR_CAPBSET_DROP, capability) == 0:
        capability += 1
    with suppress(PermissionError):  # some containers forbid setgroups and allow the rest
        os.setgroups([])
    # Through the C library, which changes every thread; leaving uid 0 clears the capabilities of each.
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _drop_capabilities()
    return f"uid-{uid}", f"runs as uid {uid}, gid {gid}"


def _drop_capabilities() -> None:
    """Give up what this thread holds: giving up is always allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "capset"):
        libc.capset(struct.pack("=Ii", _CAPABILITY_VERSION, 0), bytes(24))


# --- limits -------------------------------------------------------------------------------------------------


def _lower(limit: int, value: int) -> None:
    _, hard = resource.getrlimit(limit)
    bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (bound, bound))


def _limit(policy: SandboxPolicy) -> tuple[str, str]:
    bounds = {
        resource.RLIMIT_FSIZE: policy.file_bytes,
        resource.RLIMIT_NOFILE: policy.open_files,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: math.ceil(time.process_time()) + policy.cpu_seconds,
    }
    if policy.memory_bytes is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        bounds[resource.RLIMIT_AS] = pages * resource.getpagesize() + policy.memory_bytes
    for limit, value in bounds.items():
        _lower(limit, value)
    names = "files, descriptors, core, CPU time" + (", memory" if policy.memory_bytes is not None else "")
    return "rlimits", names


def _limit_threads(policy: SandboxPolicy) -> None:
    """RLIMIT_NPROC bounds all threads of a user together (never root's), so what runs now is added."""
    uid = os.geteuid()
    if uid == 0:
        if policy.drop_to is None:
            return
        uid = policy.drop_to[0]
    _lower(resource.RLIMIT_NPROC, _threads_of(uid) + policy.threads + SHARED_UID_MARGIN)


def _threads_of(uid: int) -> int:
    mark = b"\nUid:\t%d\t" % uid  # the real user, which is the one the kernel counts
    total = 0
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        try:
            status = Path("/proc", entry, "status").read_bytes()
        except OSError:
            continue  # it ended meanwhile
        if mark in status:
            total += int(status.partition(b"\nThreads:\t")[2].split(None, 1)[0])
    return total


# --- system calls -------------------------------------------------------------------------------------------


def _filter_calls(programs: bool) -> tuple[str, str]:
    everywhere = seccomp.install(programs=programs)
    return "seccomp" + ("" if everywhere else "-partial"), f"{len(seccomp.SYSCALLS)} system calls refused"
