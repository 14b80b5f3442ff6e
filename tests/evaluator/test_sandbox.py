from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import mmap
import os
import platform
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from warpsmith.evaluator.sandbox import landlock, seccomp
from warpsmith.evaluator.sandbox import policy as sandbox
from warpsmith.model.errors import HarnessFault

ORDINARY_UID = 1234 if os.geteuid() == 0 else os.geteuid()
IDENTITIES = ("dropped", "ordinary") if os.geteuid() == 0 else ("ordinary",)
ABI = landlock.kernel_abi()
MACHINE = seccomp.MACHINES.get(platform.machine())
LIBC = ctypes.CDLL(None, use_errno=True)

needs_landlock = pytest.mark.skipif(ABI == 0, reason="this kernel offers no Landlock")
needs_seccomp = pytest.mark.skipif(MACHINE is None, reason="no filter for this machine")

LIBRARY = r"""
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
extern "C" int parallel_sum(int n) {
    int sum = 0;
    #pragma omp parallel for num_threads(2) reduction(+:sum)
    for (int i = 0; i < n; ++i) sum += omp_get_num_threads() == 2;
    return sum;
}
extern "C" long eat(long most) {
    const long chunk = 16l << 20;
    long total = 0;
    while (total < most) {
        void* p = malloc(chunk);
        if (!p) return total;
        memset(p, 1, chunk);
        total += chunk;
    }
    return total;
}
static void* nothing(void*) { return nullptr; }
extern "C" int pinned_thread() {
    cpu_set_t set; CPU_ZERO(&set); CPU_SET(0, &set);
    pthread_attr_t attr; pthread_attr_init(&attr);
    pthread_attr_setaffinity_np(&attr, sizeof set, &set);
    pthread_t thread;
    int failed = pthread_create(&thread, &attr, nothing, nullptr);
    return failed ? failed : pthread_join(thread, nullptr);
}
"""


@dataclass(frozen=True)
class Place:
    """A folder that the candidate's user can reach, with a scratch folder and things to keep it from."""

    identity: str
    uid: int
    policy: sandbox.SandboxPolicy
    secret: Path  # belongs to the candidate's user: only the sandbox stands before it
    library: Path

    @property
    def scratch(self) -> Path:
        return self.policy.scratch


@dataclass(frozen=True)
class Report:
    """What became of a confined child."""

    layers: tuple[str, ...]
    value: Any
    error: str  # name of the errno or of the exception; "" when the act succeeded
    signal: int  # that ended the child; 0 when it reported


@pytest.fixture(scope="module")
def library() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="sandbox-library-"))
    folder.chmod(0o755)
    source, built = folder / "probe.cpp", folder / "libprobe.so"
    source.write_text(LIBRARY)
    subprocess.run(["g++", "-O1", "-shared", "-fPIC", "-fopenmp", "-o", built, source], check=True)
    yield built
    shutil.rmtree(folder)


@pytest.fixture(params=IDENTITIES)
def place(request: pytest.FixtureRequest, library: Path) -> Iterator[Place]:
    uid = sandbox.NOBODY[0] if request.param == "dropped" else ORDINARY_UID
    top = Path(tempfile.mkdtemp(prefix="sandbox-"))
    top.chmod(0o755)
    scratch, secret = top / "scratch", top / "secret"
    scratch.mkdir()
    secret.write_text("hidden")
    if os.geteuid() == 0:
        for path in (top, scratch, secret):
            os.chown(path, uid, uid)
    policy = sandbox.SandboxPolicy(
        scratch=scratch,
        readable=(*sandbox.default_readable(), library.parent),
        memory_bytes=1 << 30,
        file_bytes=1 << 20,
        open_files=64,
        threads=16,
        cpu_seconds=20,
        parent_pid=os.getpid(),
    )
    yield Place(request.param, uid, policy, secret, library)
    shutil.rmtree(top)


def fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a test runner may have threads of its own
        return os.fork()


def become(place: Place) -> None:
    if place.identity == "ordinary" and os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(place.uid, place.uid, place.uid)
        os.setresuid(place.uid, place.uid, place.uid)
        LIBC.prctl(4, 1, 0, 0, 0)  # as in a process that was started by this user


def attempt(act: Callable[[], Any]) -> tuple[Any, str]:
    try:
        return act(), ""
    except OSError as refused:
        return None, errno.errorcode[refused.errno or 0]
    except (MemoryError, ValueError) as refused:
        return None, type(refused).__name__


def in_child(place: Place, body: Callable[[], tuple[tuple[str, ...], Any, str]]) -> Report:
    """Run `body` as the place's user in a forked child and hear from it."""
    reader, writer = os.pipe()
    child = fork()
    if child == 0:
        try:
            become(place)
            os.write(writer, json.dumps(body()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    text = b""
    while select.select([reader], [], [], 20)[0] and (part := os.read(reader, 65536)):
        text += part
    os.close(reader)
    if not text:
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    layers, value, error = json.loads(text) if text else ((), None, "")
    return Report(tuple(layers), value, error, os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0)


def confined(place: Place, act: Callable[[], Any], *, landlock_abi: int | None = None, **changes: Any) -> Report:
    """What `act` comes to in a child that has entered the sandbox."""
    policy = replace(place.policy, **changes)

    def body() -> tuple[tuple[str, ...], Any, str]:
        early = sandbox.isolate_early()
        return (sandbox.enter(policy, early=early, landlock_abi=landlock_abi), *attempt(act))

    return in_child(place, body)


def call(number: int, *arguments: int) -> int:
    """A raw system call; raises OSError."""
    result = int(LIBC.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments)))
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result


def named(name: str, *arguments: int) -> int:
    assert MACHINE is not None
    number = {**seccomp.SYSCALLS, **seccomp.CONDITIONAL_SYSCALLS}[name][MACHINE.column]
    assert number is not None
    return call(number, *arguments)


PARENT = os.getpid()

REFUSED_FILES: dict[str, Callable[[Place], object]] = {
    "read a secret": lambda p: p.secret.read_text(),
    "overwrite a secret": lambda p: p.secret.write_text("changed"),
    "truncate a secret": lambda p: os.truncate(p.secret, 0),
    "remove a secret": lambda p: p.secret.unlink(),
    "list a foreign folder": lambda p: os.listdir(p.scratch.parent),
    "write beside the scratch folder": lambda p: (p.scratch.parent / "new").write_text(""),
    "move a secret into the scratch folder": lambda p: p.secret.rename(p.scratch / "s"),
    "read a secret through a link": lambda p: os.link(p.secret, p.scratch / "s"),
    "read the parent's environment": lambda p: Path(f"/proc/{PARENT}/environ").read_bytes(),
    "read the parent's memory": lambda p: open(f"/proc/{PARENT}/mem", "rb").close(),
    "read /etc/passwd": lambda p: Path("/etc/passwd").read_text(),
    "write shared memory": lambda p: Path("/dev/shm/left").write_text(""),
}

REFUSED_CALLS: dict[str, Callable[[Place], object]] = {
    "internet socket": lambda p: socket.socket(socket.AF_INET),
    "unix socket": lambda p: socket.socket(socket.AF_UNIX),
    "socket pair": lambda p: socket.socketpair(),
    "fork": lambda p: os.fork(),
    "run a program": lambda p: os.execv("/bin/true", ["true"]),
    "spawn a program": lambda p: os.posix_spawn("/bin/true", ["true"], {}),
    "signal the parent": lambda p: os.kill(PARENT, 0),
    "signal its group": lambda p: os.kill(0, 0),
    "signal everyone": lambda p: os.kill(-1, 0),
    "limit the parent": lambda p: resource.prlimit(PARENT, resource.RLIMIT_CORE, (0, 0)),
    "have the parent signalled": lambda p: fcntl.fcntl(os.pipe()[0], fcntl.F_SETOWN, PARENT),
    "leave the process group": lambda p: os.setpgid(0, 0),
    "leave the session": lambda p: os.setsid(),
    "change a mode": lambda p: p.secret.chmod(0o777),
    "change a time": lambda p: os.utime(p.secret, (0, 0)),
    "outlive the parent": lambda p: named("prctl", 1, 0),
    "become dumpable": lambda p: named("prctl", 4, 1),
    "attach to the parent": lambda p: named("ptrace", 16, PARENT),
    "change priority": lambda p: os.setpriority(os.PRIO_PROCESS, PARENT, 19),
}


@needs_landlock
@pytest.mark.parametrize("act", REFUSED_FILES, ids=lambda a: a.replace(" ", "-"))
def test_files_outside_the_policy_are_out_of_reach(place: Place, act: str) -> None:
    report = confined(place, lambda: bool(REFUSED_FILES[act](place)))
    assert report.error in ("EACCES", "EPERM", "EXDEV"), report
    assert place.secret.read_text() == "hidden"
    assert f"landlock-{ABI}" in report.layers


@needs_seccomp
@pytest.mark.parametrize("act", REFUSED_CALLS, ids=lambda a: a.replace(" ", "-"))
def test_calls_that_reach_outside_are_refused(place: Place, act: str) -> None:
    report = confined(place, lambda: bool(REFUSED_CALLS[act](place)))
    assert report.error == "EPERM", report
    assert "seccomp" in report.layers


@needs_seccomp
def test_every_listed_call_is_refused(place: Place) -> None:
    assert MACHINE is not None
    names = [n for n, numbers in seccomp.SYSCALLS.items() if numbers[MACHINE.column] is not None]
    names = [n for n in names if n not in ("fork", "vfork")]  # no arguments could make these harmless

    def outcomes() -> dict[str, str]:
        return {name: attempt(partial(named, name, 0, 0, 0, 0, 0))[1] for name in names}

    assert confined(place, outcomes).value == dict.fromkeys(names, "EPERM")


@needs_seccomp
def test_processes_cannot_be_cloned_and_other_number_spaces_are_shut(place: Place) -> None:
    assert confined(place, lambda: named("clone", signal.SIGCHLD, 0)).error == "EPERM"
    assert confined(place, lambda: named("clone3", 0, 0)).error == "ENOSYS"
    if platform.machine() == "x86_64":
        assert confined(place, lambda: call(0x40000000 + 39)).error == "EPERM"  # x32 getpid


def test_what_a_kernel_needs_still_works(place: Place) -> None:
    def work() -> list[str]:
        target = place.scratch / "a"
        target.write_text("kept")
        (place.scratch / "folder").mkdir()
        target.rename(place.scratch / "folder" / "b")
        done: list[str] = []
        threads = [threading.Thread(target=lambda: done.append("ran")) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        heard: list[int] = []
        signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
        os.kill(os.getpid(), signal.SIGUSR1)
        assert heard == [signal.SIGUSR1]
        Path("/dev/null").write_text("gone")
        os.close(os.memfd_create("own"))
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("renamed")
        assert b"libc" in Path("/proc/self/maps").read_bytes()
        assert Path("/proc/cpuinfo").read_text()
        assert os.listdir("/usr/lib")
        assert len(os.urandom(8)) == 8
        assert time.time() > 0
        time.sleep(0.001)
        assert len(bytearray(64 << 20)) == 64 << 20
        return done

    report = confined(place, work)
    assert (report.error, report.value, report.signal) == ("", ["ran"] * 4, 0)
    assert (place.scratch / "folder" / "b").read_text() == "kept"


@pytest.mark.parametrize("bind", [None, "close"])
def test_a_library_with_openmp_loads_and_runs_on_two_threads(place: Place, bind: str | None) -> None:
    def work() -> list[int]:
        if bind is not None:
            os.environ["OMP_PROC_BIND"] = bind
        before = os.sched_getaffinity(0)
        loaded = ctypes.CDLL(str(place.library))
        results = [loaded.parallel_sum(1000), loaded.pinned_thread()]
        os.sched_setaffinity(0, {min(before)})
        return [*results, int(os.sched_getaffinity(0) == before)]

    assert confined(place, work).value == [1000, 0, 1]


def test_a_memory_bomb_gets_no_memory(place: Place) -> None:
    limit = 256 << 20
    eaten = confined(place, lambda: ctypes.CDLL(str(place.library)).eat(ctypes.c_long(1 << 30)), memory_bytes=limit)
    assert 0 < eaten.value <= 2 * limit  # address space reserved earlier (malloc arenas) may be filled too
    assert confined(place, lambda: len(bytearray(2 * limit)), memory_bytes=limit).error == "MemoryError"


def test_a_thread_bomb_is_bounded(place: Place) -> None:
    def spread() -> int:
        threading.stack_size(256 << 10)  # the least that every machine takes
        stop = threading.Event()
        for count in range(20_000):
            try:
                threading.Thread(target=stop.wait, daemon=True).start()
            except RuntimeError:
                return count
        return -1

    running = sum(
        p.info["num_threads"] or 0
        for p in psutil.process_iter(["uids", "num_threads"])
        if p.info["uids"] and p.info["uids"].real == place.uid
    )
    most = running + place.policy.threads + sandbox.SHARED_UID_MARGIN
    count = confined(place, spread, memory_bytes=None).value
    assert place.policy.threads <= count <= most + 200  # others of the same user may come and go


def test_file_size_and_descriptors_are_bounded(place: Place) -> None:
    size = place.policy.file_bytes
    assert confined(place, lambda: (place.scratch / "big").write_bytes(bytes(size + 1))).error == "EFBIG"
    assert (place.scratch / "big").stat().st_size <= size
    assert confined(place, lambda: [os.pipe() for _ in range(40)]).error == "EMFILE"
    raised = confined(place, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size * 2)))
    assert raised.error == "ValueError"  # how Python names a limit that may not be raised


def test_cpu_time_is_bounded(place: Place) -> None:
    def spin() -> None:
        while True:
            pass

    assert confined(place, spin, cpu_seconds=0).signal in (signal.SIGXCPU, signal.SIGKILL)


def test_the_network_namespace_alone_cuts_the_loopback(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def connect() -> bool:
            with socket.socket() as own:
                own.settimeout(5)
                own.connect(("127.0.0.1", port))
            return True

        def body() -> tuple[tuple[str, ...], Any, str]:
            layers = sandbox.isolate_early()
            return (layers, *attempt(connect))

        assert in_child(place, lambda: ((), *attempt(connect))).value is True
        report = in_child(place, body)
    if "no-network" not in report.layers:
        pytest.skip("namespaces are not allowed here")
    assert report.error in ("ENETUNREACH", "ECONNREFUSED", "EHOSTUNREACH"), report


@needs_seccomp
def test_a_socket_made_before_cannot_connect_after(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as own:
        report = confined(place, lambda: own.connect(server.getsockname()))
    assert report.error == "EPERM"


def test_open_descriptors_and_shared_memory_stay_usable(place: Place) -> None:
    with mmap.mmap(-1, 4096) as shared, place.secret.open() as held:

        def work() -> str:
            shared[:4] = b"done"
            return held.read()

        assert confined(place, work).value == "hidden"
        assert shared[:4] == b"done"


def test_a_user_namespace_leaves_no_capability_behind(place: Place) -> None:
    def body() -> tuple[tuple[str, ...], Any, str]:
        layers = sandbox.isolate_early()
        return layers, "CapEff:\t" + "0" * 16 in Path("/proc/self/status").read_text(), ""

    assert in_child(place, body).value == (place.identity == "ordinary")  # root keeps its own until `enter`


def test_the_layers_named_are_those_the_identity_allows(place: Place) -> None:
    def state() -> list[Any]:
        status = Path("/proc/self/status").read_text()
        capabilities = re.findall(r"Cap(?:Prm|Eff):\s*(\w+)", status)
        return [list(os.getresuid()), os.getgroups() if place.identity == "dropped" else [], capabilities]

    report = confined(place, state)
    assert len(set(report.layers)) == len(report.layers)
    assert report.value == [[place.uid] * 3, [], ["0" * 16] * 2]
    assert ("uid-65534" in report.layers) == (place.identity == "dropped")
    assert "rlimits" in report.layers


def test_without_landlock_the_rest_holds_and_landlock_is_not_claimed(place: Place) -> None:
    report = confined(place, place.secret.read_text, landlock_abi=0)
    assert report.value == "hidden"
    assert not [layer for layer in report.layers if layer.startswith("landlock")]
    assert confined(place, lambda: os.kill(PARENT, 0), landlock_abi=0).error == "EPERM"


@needs_landlock
def test_every_older_landlock_still_keeps_files_apart(place: Place) -> None:
    for abi in range(1, ABI + 1):

        def work(name: str = f"by-{abi}") -> str:
            (place.scratch / name).write_text("")
            return attempt(place.secret.read_text)[1]

        report = confined(place, work, landlock_abi=abi)
        assert (report.value, report.error) == ("EACCES", "")
        assert f"landlock-{abi}" in report.layers


@needs_landlock
@needs_seccomp
@pytest.mark.parametrize("early", [False, True])
def test_threads_that_ran_before_are_covered_or_the_name_says_not(place: Place, early: bool) -> None:
    def body() -> tuple[tuple[str, ...], Any, str]:
        first = sandbox.isolate_early(place.policy if early else None)
        entered, seen = threading.Event(), []

        def driver() -> None:
            entered.wait()
            seen.append(attempt(place.secret.read_text)[1])
            seen.append(attempt(lambda: socket.socket().close())[1])

        thread = threading.Thread(target=driver)
        thread.start()
        layers = sandbox.enter(place.policy, early=first)
        entered.set()
        thread.join()
        return layers, seen, ""

    report = in_child(place, body)
    assert report.value == ["EACCES" if early else "", "EPERM"]
    assert (f"landlock-{ABI}" in report.layers) == early
    assert (f"landlock-{ABI}-partial" in report.layers) == (not early)
    assert "seccomp" in report.layers


def test_a_child_dies_with_its_parent_and_not_later(place: Place) -> None:
    orphan = confined(place, lambda: "alive", parent_pid=os.getpid() + 1)
    assert (orphan.value, orphan.signal) == (None, signal.SIGKILL)
    reader, writer = os.pipe()
    middle = fork()
    if middle == 0:
        parent = os.getpid()
        if fork() == 0:
            become(place)
            sandbox.enter(replace(place.policy, parent_pid=parent))
            os.write(writer, b"in")
            time.sleep(60)
            os._exit(0)
        os.close(writer)
        time.sleep(60)
    os.close(writer)
    assert os.read(reader, 2) == b"in"
    os.kill(middle, signal.SIGKILL)
    os.waitpid(middle, 0)
    assert select.select([reader], [], [], 10)[0], "the grandchild still holds the pipe"
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_a_missing_scratch_folder_is_our_own_fault(place: Place) -> None:
    with pytest.raises(HarnessFault, match="scratch folder"):
        sandbox.enter(replace(place.policy, scratch=place.scratch / "nowhere"))


def test_probe_tells_what_enter_would_do_and_leaves_the_caller_free() -> None:
    layers = sandbox.probe()
    found = {layer.name: layer for layer in layers}
    assert len(layers) == 6
    assert "rlimits" in found
    assert all(layer.detail for layer in layers)
    assert (f"landlock-{ABI}" in found) == (ABI > 0)
    assert ("uid-65534" in found) <= (os.geteuid() == 0)
    socket.socket().close()
    assert subprocess.run(["true"], check=False).returncode == 0
