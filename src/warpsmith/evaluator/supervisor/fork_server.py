"""A parent process that has done its imports and forks workers in milliseconds.

The server half runs as `python -m warpsmith.evaluator.supervisor.fork_server`. It imports what its workers need, starts
no thread, touches no device, and forks one child per request. Each child leads its own process group and dies with
the server (PDEATHSIG); the server ends when the supervisor's end of the socket closes. So `kill -9` of any of these
processes leaves nothing running. The client half is used by the supervisor.

An evaluator has a server with torch for judges, and one with the standard library only for hosts of native candidates,
which then find no torch, no BLAS and no reference in their address space. Python candidates get a third one with torch.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NoReturn

from warpsmith.evaluator.protocol.messages import Exited, Kill, Spawn, Spawned
from warpsmith.evaluator.protocol.wire import Channel, WireClosed, WireError, WireTimeout
from warpsmith.model.errors import HarnessFault
from warpsmith.system.files import remove_tree

_PR_SET_PDEATHSIG = 1
_CANNOT_IMPORT = 3  # the server's exit status
_SIGACTION_BYTES, _SIGACTION_FLAGS, _SA_NOCLDSTOP = 152, 136, 1  # glibc's struct: handler, 128 bytes of mask, flags
ROLES: Mapping[str, str] = {
    "host": "warpsmith.evaluator.candidate.native_host:main",
    "judge": "warpsmith.evaluator.judge.process:main",
    "python_host": "warpsmith.evaluator.candidate.python_host:main",
    "compile": "warpsmith.evaluator.candidate.compile_worker:main",
    "replayer": "warpsmith.evaluator.cuda_replay.replayer:main",
}
"""The programs of workers: functions (payload: str, fds: list[int]) -> exit status."""


# --- server ----------------------------------------------------------------------------------------


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel to kill this process when its parent dies; exit if the parent is dead already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def _serve(control: socket.socket, preload: Sequence[str], remove_at_end: str, later: Sequence[str] = ()) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor handles Ctrl-C
    # Python 3.12 warns at every fork of a process with threads. The threads here are OpenBLAS's, idle and fork-safe.
    warnings.filterwarnings("ignore", ".*use of fork", DeprecationWarning)
    libc = ctypes.CDLL(None)

    def abandon(*_: object) -> NoReturn:
        if remove_at_end:
            remove_tree(Path(remove_at_end))
        os._exit(1)

    signal.signal(signal.SIGTERM, abandon)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)  # the socket is not read during the slow imports
    gc.disable()  # what is imported is never freed: looking for garbage is a tenth of the time of the imports
    try:
        for module in preload:
            importlib.import_module(module)
        libc.prctl(_PR_SET_PDEATHSIG, 0, 0, 0, 0)  # from here on, the socket tells when the supervisor ends
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    except ImportError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(_CANNOT_IMPORT)
    gc.freeze()  # nor do workers look at it, which would copy its pages
    gc.enable()
    channel = Channel(control)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    _ignore_stops(libc)
    children: set[int] = set()
    forked = 0
    try:
        channel.send(Spawned(os.getpid()))  # ready
        while True:
            wait_s = 0 if channel.buffered else None
            ready, _, _ = select.select([control.fileno(), wake_read], [], [], wait_s)
            if wake_read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake_read, 4096)
                _reap(channel, children)
            if control.fileno() in ready or channel.buffered:
                message, fds = channel.receive((Spawn, Kill))
                if isinstance(message, Kill):
                    if message.pid in children:
                        _kill_group(message.pid)
                    continue
                if forked == 1:  # a second worker often means many
                    for module in later:
                        with contextlib.suppress(ImportError):
                            importlib.import_module(module)
                pid = _fork_worker(message, fds, control, (wake_read, wake_write))
                forked += 1
                children.add(pid)
                for fd in fds:
                    os.close(fd)
                channel.send(Spawned(pid))
    except WireClosed:
        pass  # the supervisor has ended
    finally:
        for pid in children:
            _kill_group(pid)
        for pid in children:  # they must end before their folders are removed
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        if remove_at_end:
            remove_tree(Path(remove_at_end))


def _ignore_stops(libc: ctypes.CDLL) -> None:
    """No SIGCHLD when a host is stopped or continued: this process would wake up in the middle of a timed call."""
    action = (ctypes.c_char * _SIGACTION_BYTES)()
    libc.sigaction(signal.SIGCHLD, None, action)
    flags = ctypes.c_int.from_buffer(action, _SIGACTION_FLAGS)
    flags.value |= _SA_NOCLDSTOP
    libc.sigaction(signal.SIGCHLD, action, None)


def _reap(channel: Channel, children: set[int]) -> None:
    while children:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        children.discard(pid)
        channel.send(Exited(pid, status))


def _kill_group(pid: int) -> None:
    for kill in (os.killpg, os.kill):  # right after the fork, the group may not exist yet
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def _fork_worker(message: Spawn, fds: Sequence[int], control: socket.socket, wake: Sequence[int]) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        die_with_parent(parent)
        control.close()
        for fd in wake:
            os.close(fd)
        module, function = ROLES[message.role].split(":")
        status = getattr(importlib.import_module(module), function)(message.payload, list(fds))
    finally:
        # No clean-up code of the server may run in a child.
        if sys.exc_info()[0] is not None:
            sys.excepthook(*sys.exc_info())
        _exit_now(status)


def _exit_now(status: int) -> NoReturn:
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


# --- client ----------------------------------------------------------------------------------------


class CannotImport(HarnessFault):
    """The server lacks a package that its workers need."""


class ForkedWorker:
    """A forked process."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid = pid
        self._server = server
        self._gone = threading.Event()
        self.status: int | None = None  # as wait(2) gives it; None while alive, or if the server was lost

    def kill(self) -> None:
        """SIGKILL the whole process group; harmless if it has ended."""
        self._server.kill(self.pid)

    def wait(self, timeout_s: float) -> bool:
        """True if the worker ended within the time."""
        return self._gone.wait(timeout_s)

    @property
    def alive(self) -> bool:
        """True until the worker's end is reported."""
        return not self._gone.is_set()

    def _set_ended(self, status: int | None) -> None:
        self.status = status
        self._gone.set()


class ForkServer:
    """Starts the server and forks workers from it. Safe to use from several threads."""

    def __init__(
        self,
        preload: Sequence[str],
        environ: Mapping[str, str],
        *,
        start_timeout_s: float = 120.0,
        later: Sequence[str] = (),  # imported before the second worker is forked
        remove_at_end: Path | None = None,  # a folder that the server removes at its end, even if we are killed
    ) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",  # nothing is imported from the current folder, which may be a stranger's
                    "-m",
                    "warpsmith.evaluator.supervisor.fork_server",
                    str(theirs.fileno()),
                    json.dumps(list(preload)),
                    str(remove_at_end or ""),
                    json.dumps(list(later)),
                ],
                pass_fds=[theirs.fileno()],
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=2,  # only the result of the command goes to its stdout
            )
        self._channel = Channel(ours)
        self._lock = threading.Lock()
        self._spawned: SimpleQueue[int] = SimpleQueue()
        self._workers: dict[int, ForkedWorker] = {}
        self._early: dict[int, int] = {}  # exit statuses reported before the worker was registered
        self._registry = threading.Lock()  # over _workers, _early and _lost
        self._lost = False
        try:
            self._channel.receive((Spawned,), start_timeout_s)
        except (WireClosed, WireTimeout, WireError) as error:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=1.0)  # its exit status says why
            kind = CannotImport if self._end() == _CANNOT_IMPORT else HarnessFault
            raise kind(f"a fork server did not start ({error}); see the messages above.") from None
        except BaseException:  # Ctrl-C: do not leave the server running
            self._end()
            raise
        self._reader = threading.Thread(target=self._read, daemon=True, name="fork-server-reader")
        self._reader.start()

    def _end(self) -> int:
        """Kill a server that did not start; returns its exit status."""
        self._process.kill()
        self._channel.close()
        return self._process.wait()

    @property
    def alive(self) -> bool:
        """True if the server can still fork."""
        return self._reader.is_alive() and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    def spawn(self, role: str, payload: str, fds: Sequence[int]) -> ForkedWorker:
        """Fork one worker."""
        with self._lock:
            try:
                self._channel.send(Spawn(role, payload), fds)
                pid = self._spawned.get(timeout=30.0)
            except (WireClosed, WireTimeout, Empty):
                raise HarnessFault("a fork server has ended.") from None
            if pid < 0:
                raise HarnessFault("a fork server has ended.")
            worker = ForkedWorker(self, pid)
            with self._registry:
                if pid in self._early:
                    worker._set_ended(self._early.pop(pid))
                elif self._lost:
                    worker._set_ended(None)
                else:
                    self._workers[pid] = worker
            return worker

    def kill(self, pid: int) -> None:
        """SIGKILL one worker's group; the server knows whether the pid is still its child."""
        with contextlib.suppress(WireClosed, WireTimeout), self._lock:
            self._channel.send(Kill(pid))

    def shut_down(self) -> None:
        """Tell the server to end with all its workers; returns at once."""
        with self._lock, contextlib.suppress(OSError):
            self._channel._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the server and all its workers."""
        self.shut_down()
        try:
            self._process.wait(timeout=10.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(timeout=10.0)
        self._channel.close()

    def _read(self) -> None:
        while True:
            try:
                message, _ = self._channel.receive((Spawned, Exited))
            except (WireClosed, WireError, OSError, ValueError):
                break
            if isinstance(message, Spawned):
                self._spawned.put(message.pid)
                continue
            with self._registry:
                worker = self._workers.pop(message.pid, None)
                if worker is None:
                    self._early[message.pid] = message.status
                else:
                    worker._set_ended(message.status)
        self._spawned.put(-1)
        with self._registry:
            self._lost = True
            for worker in self._workers.values():
                worker._set_ended(None)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])), json.loads(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4]))
    os._exit(0)  # destroying all imported modules would take a second
