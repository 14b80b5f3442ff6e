from __future__ import annotations

import gc
import json
import mmap
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from tests.processes import KilledProcess

from warpsmith.evaluator.protocol.messages import Acknowledged, CandidateLoaded, LoadLibrary, Ping, RequestFailed
from warpsmith.evaluator.protocol.wire import Channel, WireClosed, WireTimeout
from warpsmith.evaluator.supervisor.fork_server import ForkedWorker, ForkServer
from warpsmith.model.errors import HarnessFault

PAYLOAD = json.dumps({"environ": {"MARK": "host"}, "faults": ""})
DEAD_WITHIN_S = 5.0


@contextmanager
def started() -> Iterator[ForkServer]:
    server = ForkServer((), os.environ, start_timeout_s=60.0)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with started() as shared:
        yield shared


def new_host(server: ForkServer) -> tuple[ForkedWorker, Channel]:
    """A host and the judge's end of its channel."""
    page = os.memfd_create("fault-page")
    try:
        os.ftruncate(page, mmap.PAGESIZE)
        ours, theirs = socket.socketpair()
        with theirs:
            worker = server.spawn("host", PAYLOAD, [theirs.fileno(), page])
    finally:
        os.close(page)
    return worker, Channel(ours)


def ping(channel: Channel, timeout_s: float = 20.0) -> object:
    channel.send(Ping())
    return channel.receive((Acknowledged,), timeout_s)[0]


def running(pid: int) -> bool:
    """Whether a process still does anything: one that waits for init to collect it does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def eventually(condition: Callable[[], bool], within_s: float = DEAD_WITHIN_S) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


# --- a worker's life -------------------------------------------------------------------------------


def test_a_host_answers_and_ends_when_its_judge_hangs_up(server: ForkServer) -> None:
    worker, channel = new_host(server)

    assert ping(channel) == Acknowledged()
    before = (worker.alive, worker.status)
    channel.close()
    assert worker.wait(20.0)
    assert [before, (worker.alive, worker.status)] == [(True, None), (False, 0)]
    assert not psutil.pid_exists(worker.pid)  # collected, not left as a zombie


def test_a_host_is_the_fork_servers_child_and_leads_a_group_of_its_own(server: ForkServer) -> None:
    worker, channel = new_host(server)
    ping(channel)

    assert psutil.Process(worker.pid).ppid() == server.pid
    assert os.getpgid(worker.pid) == os.getsid(worker.pid) == worker.pid
    channel.close()
    assert worker.wait(20.0)


def test_a_host_holds_no_descriptor_of_the_fork_server(server: ForkServer) -> None:
    worker, channel = new_host(server)
    ping(channel)

    # Standard streams, its channel, the fault page: the server's control socket would let it fork and kill.
    assert psutil.Process(worker.pid).num_fds() <= 6
    sockets = [
        fd for fd in os.listdir(f"/proc/{worker.pid}/fd") if "socket" in os.readlink(f"/proc/{worker.pid}/fd/{fd}")
    ]
    assert len(sockets) == 1
    channel.close()
    assert worker.wait(20.0)


def test_starting_one_costs_well_under_a_second(server: ForkServer) -> None:
    seconds = []
    for _ in range(5):
        start = time.monotonic()
        worker, channel = new_host(server)
        ping(channel)
        seconds.append(time.monotonic() - start)
        channel.close()
        assert worker.wait(20.0)

    assert min(seconds) < 0.5  # the best of five: the machine may be busy with something else


def test_thirty_hosts_at_once(server: ForkServer) -> None:
    hosts = [new_host(server) for _ in range(30)]
    for _, channel in hosts:
        channel.send(Ping())

    assert all(channel.receive((Acknowledged,), 60.0)[0] == Acknowledged() for _, channel in hosts)
    assert len({worker.pid for worker, _ in hosts}) == 30
    for _, channel in hosts:
        channel.close()
    assert all(worker.wait(20.0) for worker, _ in hosts)
    assert [worker.status for worker, _ in hosts] == [0] * 30
    assert psutil.Process(server.pid).children() == []


def test_threads_may_share_it(server: ForkServer) -> None:
    ended: list[int | None] = []

    def use() -> None:
        for _ in range(5):
            worker, channel = new_host(server)
            channel.close()  # it may end before its start has been reported
            worker.wait(20.0)
            ended.append(worker.status)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)

    assert ended == [0] * 20


def test_a_worker_that_fails_at_once_is_reported_and_harms_nobody(server: ForkServer) -> None:
    worker = server.spawn("host", "not JSON", [])

    assert worker.wait(20.0)
    assert worker.status is not None
    assert os.waitstatus_to_exitcode(worker.status) == 1
    another, channel = new_host(server)
    assert ping(channel) == Acknowledged()
    channel.close()
    assert another.wait(20.0)


def test_only_known_roles_are_played(server: ForkServer) -> None:
    worker = server.spawn("os:system", "true", [])

    assert worker.wait(20.0)
    assert worker.status is not None
    assert os.waitstatus_to_exitcode(worker.status) == 1


# --- killing ---------------------------------------------------------------------------------------

STUBBORN = r"""
#include <signal.h>
#include <unistd.h>
__attribute__((constructor)) static void stay(void) {
    for (int n = 1; n < 32; ++n) signal(n, SIG_IGN);
    fork();                       /* and a child of its own that stays too */
    volatile unsigned long i = 0;
    for (;;) { ++i; if (i % 1000000 == 0) usleep(1000); }
}
"""


@pytest.fixture(scope="module")
def stubborn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that never returns from loading and ignores every signal that can be ignored."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    assert compiler, "the tests need a C++ compiler"
    folder = tmp_path_factory.mktemp("stubborn")
    (folder / "stay.c").write_text(STUBBORN)
    command = [compiler, "-x", "c", "-shared", "-fPIC", "-o", str(folder / "stay.so"), str(folder / "stay.c")]
    subprocess.run(command, check=True, timeout=60)
    return folder / "stay.so"


def test_kill_ends_a_host_that_ignores_everything_and_its_children(server: ForkServer, stubborn: Path) -> None:
    worker, channel = new_host(server)
    ping(channel)
    channel.send(LoadLibrary(str(stubborn), "launch", (), (), ()))
    host = psutil.Process(worker.pid)
    assert eventually(lambda: len(host.children()) == 1, 20.0)
    grandchild = host.children()[0].pid
    os.kill(worker.pid, signal.SIGTERM)
    with pytest.raises(WireTimeout):
        channel.receive((CandidateLoaded, RequestFailed), 0.1)
    assert worker.alive

    worker.kill()

    assert worker.wait(DEAD_WITHIN_S)
    assert worker.status is not None
    assert os.waitstatus_to_exitcode(worker.status) == -signal.SIGKILL
    assert eventually(lambda: not running(grandchild))
    channel.close()


def test_kill_ends_a_stopped_host(server: ForkServer) -> None:
    worker, channel = new_host(server)
    ping(channel)
    os.kill(worker.pid, signal.SIGSTOP)
    worker.kill()

    assert worker.wait(DEAD_WITHIN_S)
    with pytest.raises(WireClosed):
        channel.receive((Acknowledged,), 5.0)
    channel.close()


def test_killing_twice_and_killing_strangers_is_harmless(server: ForkServer) -> None:
    worker, channel = new_host(server)
    worker.kill()
    assert worker.wait(DEAD_WITHIN_S)
    worker.kill()
    with KilledProcess([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        server.kill(stranger.pid)
        another, other = new_host(server)
        assert ping(other) == Acknowledged()  # the server handled the request before this
        assert stranger.poll() is None
    for end in (channel, other):
        end.close()
    assert another.wait(20.0)


# --- deaths of our own -----------------------------------------------------------------------------


def test_closing_ends_every_worker() -> None:
    with started() as server:
        hosts = [new_host(server) for _ in range(3)]
        for _, channel in hosts:
            ping(channel)
        server.close()

        assert not server.alive
        assert eventually(lambda: not any(running(worker.pid) for worker, _ in hosts))
        assert all(worker.wait(5.0) for worker, _ in hosts)
        assert not psutil.pid_exists(server.pid)
        for _, channel in hosts:
            channel.close()


def test_a_killed_fork_server_takes_its_workers_along_and_is_an_error_of_ours() -> None:
    with started() as server:
        hosts = [new_host(server) for _ in range(3)]
        for _, channel in hosts:
            ping(channel)
        os.kill(server.pid, signal.SIGKILL)

        assert all(worker.wait(DEAD_WITHIN_S) for worker, _ in hosts)
        assert [worker.status for worker, _ in hosts] == [None] * 3  # nobody was there to see them end
        assert eventually(lambda: not any(running(worker.pid) for worker, _ in hosts))
        assert eventually(lambda: not server.alive)
        for _ in range(2):
            with pytest.raises(HarnessFault, match="has ended"):
                server.spawn("host", PAYLOAD, [])
        hosts[0][0].kill()  # harmless
        for _, channel in hosts:
            channel.close()
    assert not psutil.pid_exists(server.pid)  # collected


SUPERVISOR = """
    import mmap, os, socket, sys, time
    from pathlib import Path
    from warpsmith.evaluator.protocol.messages import Acknowledged, Ping
    from warpsmith.evaluator.protocol.wire import Channel
    from warpsmith.evaluator.supervisor.fork_server import ForkServer
    server = ForkServer((), os.environ, remove_at_end=Path(sys.argv[2]))
    ends, pids = [], [server.pid]
    for _ in range(3):
        page = os.memfd_create("fault-page")
        os.ftruncate(page, mmap.PAGESIZE)
        ours, theirs = socket.socketpair()
        pids.append(server.spawn("host", sys.argv[1], [theirs.fileno(), page]).pid)
        ends.append((Channel(ours), theirs))
        ends[-1][0].send(Ping())
        ends[-1][0].receive((Acknowledged,), 60.0)
    print(*pids, flush=True)
    time.sleep(120)
"""


def test_a_killed_supervisor_leaves_nothing_running_and_no_folder(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "candidate.so").write_bytes(b"x")
    command = [sys.executable, "-c", textwrap.dedent(SUPERVISOR), PAYLOAD, str(folder)]
    with KilledProcess(command, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        pids = [int(word) for word in supervisor.stdout.readline().split()]
        assert len(pids) == 4
        assert all(running(pid) for pid in pids)
        assert folder.exists()

    assert eventually(lambda: not any(running(pid) for pid in pids)), [pid for pid in pids if running(pid)]
    assert eventually(lambda: not folder.exists())


def test_a_fork_server_that_cannot_import_what_it_should_is_an_error_of_ours() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(HarnessFault, match="did not start") as caught:
        ForkServer(("no_such_module_of_ours",), os.environ, start_timeout_s=60.0)

    left = len(os.listdir("/proc/self/fd")) - before
    with warnings.catch_warnings():
        # Collected here, so that a socket left open fails this test and not the next one.
        warnings.simplefilter("ignore", ResourceWarning)
        del caught
        gc.collect()
    assert left == 0
