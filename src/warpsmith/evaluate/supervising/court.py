"""The supervisor's handle on one judge: start it, hand it hosts, wait for its findings, kill what hangs.

Holds no device state itself. Everything that can go wrong with the judge is a HarnessFault, which the
evaluator answers with a new judge; everything that goes wrong with a host becomes a finding.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from warpsmith.core.build import Artifact
from warpsmith.core.contract import Contract
from warpsmith.core.errors import HarnessFault, TaskError
from warpsmith.core.evaluation import Status
from warpsmith.core.task import Task
from warpsmith.evaluate.judging.findings import Facts, Findings
from warpsmith.evaluate.judging.judge import CONFIG, FACTS, FINDINGS, JudgeConfig
from warpsmith.evaluate.messages import Adopt, Appraise, Appraised, Examine, Finding, Opened, Refused, Stage
from warpsmith.evaluate.supervising.workforce import Crew
from warpsmith.evaluate.supervising.zygote import Worker, Zygote
from warpsmith.evaluate.wire import Channel, WireClosed, WireError, WireTimeout

_OPEN_S = 600.0  # loading a large task, measuring peaks and timing its baseline
_COMPILING_S = 600.0  # torch.compile as a baseline, for all workloads
_GRACE_S = 60.0  # beyond a candidate's own limits and as much again for the judge's part of one stage
_AHEAD = {False: 1, True: 3}  # hosts that wait for their turn on a GPU, native or Python
_NOBODY = 65534
REPLAYER = "replayer"
_CONTRACT = TypeAdapter(Contract)


@contextmanager
def _pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two connected sockets; both ends are closed here once they have been handed over."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


class HostHandle:
    """A host that waits for its candidate."""

    def __init__(self, number: int, worker: Worker, scratch: Path, replayer: HostHandle | None = None) -> None:
        self.number = number
        self.worker = worker
        self.scratch = scratch
        self.replayer = replayer  # the process that may take its calls over

    def end(self) -> int | None:
        """Kill it if it still runs, remove its folder; its wait status where it is known."""
        if self.replayer is not None:
            self.replayer.worker.kill()
        self.worker.kill()
        self.worker.wait(10.0)
        shutil.rmtree(self.scratch, ignore_errors=True)
        if self.replayer is not None:  # not waited for: it is ours, and its folder is empty
            shutil.rmtree(self.replayer.scratch, ignore_errors=True)
        return self.worker.status


class Court:
    """One judge with its task."""

    def __init__(
        self,
        judges: Zygote,
        config: JudgeConfig,
        *,
        hosts: Callable[[], Crew],
        python_hosts: Callable[[], Crew],
        natives: Mapping[str, str],
    ) -> None:
        self._crews = {False: hosts, True: python_hosts}
        self._natives = natives  # pieces of C that hosts load, by name; "" for one that could not be built
        self._count = 0
        self._spare: dict[bool, list[HostHandle]] = {False: [], True: []}  # by whether they are for Python
        self._config = config
        ours, theirs = socket.socketpair()
        with theirs:
            self._worker = judges.spawn("judge", CONFIG.dump_json(config).decode(), [theirs.fileno()])
        self._channel = Channel(ours)
        try:
            message, _ = self._channel.receive((Opened, Refused), _OPEN_S)
        except (WireClosed, WireTimeout, WireError) as error:
            self.close()
            raise HarnessFault(f"the judging process failed while opening the task ({error}).") from None
        if isinstance(message, Refused):
            self.close()
            raise TaskError(message.reason)
        from warpsmith.tasks.codec import parse_task

        self.task: Task = parse_task(message.task.encode())
        self.facts: Facts = FACTS.validate_json(message.facts)

    def close(self) -> None:
        """End the judge."""
        for spare in self._spare.values():
            for host in spare:
                host.end()
            spare.clear()
        self._channel.close()
        self._worker.kill()
        self._worker.wait(10.0)

    def take_host(self, wanted: int, python: bool = False) -> HostHandle:
        """A host for the next candidate, native or Python, of `wanted` still to come.

        A context takes long on a GPU, and the judge lets none start while it is timing. The next native host starts
        while this candidate is checked; Python ones take longer than that, so several start at once, now and then.
        """
        spare = self._spare[python]
        if not spare or not python:
            ahead = _AHEAD[python] if self._config.kind == "cuda" else 0
            crew = self._crews[python]()
            while len(spare) < max(1, min(wanted, 1 + ahead)):
                spare.append(self._start_host(crew, self._start_replayer()))
        return spare.pop(0)

    def _start_replayer(self) -> HostHandle | None:
        """On a GPU, where something is timed: the process in which it is."""
        if self._config.kind != "cuda" or self._config.samples:
            return None
        return self._start_host(replace(self._crews[False](), role=REPLAYER))

    def _start_host(self, crew: Crew, replayer: HostHandle | None = None) -> HostHandle:
        """Fork a host and let the judge prepare it."""
        self._count += 1
        number = self._count
        scratch = crew.scratch / f"{os.getpid()}-{self._worker.pid}-{number}"
        try:
            scratch.mkdir(mode=0o700)
            if os.geteuid() == 0 and crew.drops:  # as root, the host drops to this user
                os.chown(scratch, _NOBODY, _NOBODY)
        except OSError as fault:
            raise HarnessFault(_no_room(crew.scratch, fault)) from None
        page = os.memfd_create("warpsmith-fault", os.MFD_CLOEXEC)
        folder = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.ftruncate(page, mmap.PAGESIZE)
            with _pair() as (ours, theirs):
                environ = {**crew.environ, "HOME": str(scratch), "TMPDIR": str(scratch)}
                payload = json.dumps({"environ": environ, "drops": crew.drops, **self._natives})
                worker = crew.zygote.spawn(crew.role, payload, [theirs.fileno(), page])
                self._send(Adopt(number, worker.pid, crew.role == REPLAYER), [ours.fileno(), page, folder])
        finally:
            os.close(page)
            os.close(folder)
        return HostHandle(number, worker, scratch, replayer)

    def examine(
        self,
        host: HostHandle,
        library: Path,
        contract: Contract,
        report: Callable[[str], None] = lambda _: None,
    ) -> Findings:
        """Let the judge examine the candidate in this host; the host is gone afterwards."""
        copy = host.scratch / ("candidate" if library.is_dir() else "candidate.so")
        try:
            if library.is_dir():  # readable by all, writable by us alone: it can change nothing of itself
                shutil.copytree(library, copy, copy_function=shutil.copyfile)
            else:
                shutil.copyfile(library, copy)
            copy.chmod(0o555)
        except OSError as fault:
            host.end()
            raise HarnessFault(_no_room(host.scratch.parent, fault)) from None
        settings = self._config.settings
        limit_s = 2 * settings.limits.total_s + settings.limits.start_s + _GRACE_S  # between two signs of life
        if "compile" in settings.baselines:
            limit_s += _COMPILING_S
        deadline = time.monotonic() + limit_s
        try:
            replayer = host.replayer.number if host.replayer is not None else 0
            self._send(Examine(host.number, str(copy), _CONTRACT.dump_json(contract).decode(), replayer), [])
            while True:
                try:
                    message, _ = self._channel.receive((Stage, Finding, Refused), max(0.1, deadline - time.monotonic()))
                except (WireClosed, WireError) as error:
                    raise HarnessFault(f"the judging process was lost ({error}).") from None
                except WireTimeout:
                    raise HarnessFault(f"the judging process said nothing for {limit_s:.0f} s.") from None
                if isinstance(message, Refused):
                    raise HarnessFault(message.reason)
                if isinstance(message, Finding):
                    break
                report(message.name)
                deadline = time.monotonic() + limit_s
        finally:
            if host.worker.alive and not host.worker.wait(0.05):
                pass  # it may be about to report its own end; otherwise it is killed next
            status = host.end()
        findings = FINDINGS.validate_json(message.body)
        return _with_exit(findings, status) if findings.died else findings

    def appraise(self, folder: Path) -> str:
        """What the judge finds wrong with results a process of its own left there; "" where they are right."""
        self._send(Appraise(str(folder)), [])
        try:
            message, _ = self._channel.receive((Appraised, Refused), _OPEN_S)
        except (WireClosed, WireError, WireTimeout) as error:
            raise HarnessFault(f"the judging process was lost ({error}).") from None
        if isinstance(message, Refused):
            raise HarnessFault(message.reason)
        reason: str = message.reason
        return reason

    def _send(self, message: object, fds: list[int]) -> None:
        try:
            self._channel.send(message, fds)
        except (WireClosed, WireTimeout) as error:
            raise HarnessFault(f"the judging process was lost ({error}).") from None


@dataclass(frozen=True)
class Reopened:
    """What it takes to examine a valid candidate once more."""

    court: Court
    task: Task
    contract: Contract
    artifact: Artifact


def _no_room(folder: Path, fault: OSError) -> str:
    return f"a candidate's folder in {folder} cannot be filled ({fault.strerror}); free some space or set TMPDIR."


def _with_exit(findings: Findings, status: int | None) -> Findings:
    """Word the reason for a host that ended by itself, from what wait(2) says."""
    if status is None:
        return replace(findings, status=Status.NOT_JUDGED, reason="the worker parent process was lost.")
    if findings.stage == "starting":
        return replace(findings, status=Status.NOT_JUDGED, reason="a worker process ended before it was ready.")
    if findings.reason:
        return findings
    doing = f"while {findings.stage}"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGKILL:
            reason = f"killed by the system {doing}: probably out of memory."
            return replace(findings, reason=reason, killed=True)
        if number == signal.SIGXFSZ:
            return replace(findings, reason=f"stopped {doing}: it wrote a larger file than it may.")
        return replace(findings, reason=f"{signal.strsignal(number) or number} {doing}.")
    code = os.WEXITSTATUS(status)
    return replace(
        findings,
        reason=f"the candidate ended its own process with status {code} {doing}: it must return instead.",
    )
