"""The supervisor's connection to one judge: start it, give it hosts, wait for its report, kill what hangs.

Holds no device state. Every failure of the judge is a HarnessFault, which the evaluator answers with a new judge; every
failure of a host becomes a finding.
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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from warpsmith.evaluator.judge.records import CONFIG, FACTS, REPORT, JudgeConfig, JudgeReport, TaskFacts
from warpsmith.evaluator.protocol.messages import (
    AdoptHost,
    CheckResults,
    Examine,
    Examined,
    JudgeRefused,
    MemoryReleased,
    ReleaseMemory,
    ResultsChecked,
    StageReached,
    TaskOpened,
)
from warpsmith.evaluator.protocol.wire import Channel, WireClosed, WireError, WireTimeout
from warpsmith.evaluator.supervisor.fork_server import ForkedWorker, ForkServer
from warpsmith.evaluator.supervisor.worker_pool import HostSpec
from warpsmith.model.build import Artifact
from warpsmith.model.contract import Contract
from warpsmith.model.errors import HarnessFault, TaskError, TooLittleMemory
from warpsmith.model.evaluation import Status
from warpsmith.model.task import Task
from warpsmith.system.files import remove_tree

_OPEN_S = 600.0  # loading a large task, measuring peaks and timing its baseline
_TORCH_COMPILE_S = 600.0  # as a baseline, for all workloads
_RELEASE_S = 60.0
_LAST_WORD_S = 0.1
KEPT_BYTES = 1 << 30  # buffers of this size stay on a device that several evaluators use
_GRACE_S = 60.0  # beyond a candidate's limits and the same again for the judge's part of a stage
_HOSTS_AHEAD = {False: 1, True: 3}  # hosts started early on a GPU: native, Python
_NOBODY = 65534
_KILLED_OPENING = (
    "the judging process was killed while opening the task, probably for lack of memory; "
    "end other programs or take smaller workloads."
)
_LEFT_BEHIND = "the candidate's folder {folder} could not be removed in time; a later start removes the rest"
REPLAYER = "replayer"
_CONTRACT = TypeAdapter(Contract)


@contextmanager
def _pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two connected sockets, both closed at the end: the receiving processes have copies."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


class HostProcess:
    """The process of a host or replayer, and its scratch folder."""

    def __init__(self, number: int, worker: ForkedWorker, scratch: Path, replayer: HostProcess | None = None) -> None:
        self.number = number
        self.worker = worker
        self.scratch = scratch
        self.replayer = replayer  # the process that may replay its calls
        self.removed = False  # its folder, with all that it left there

    def end(self) -> int | None:
        """Kill the process and remove its folder; returns its wait status if it is known."""
        if self.replayer is not None:
            self.replayer.worker.kill()
        self.worker.kill()
        self.worker.wait(10.0)
        self.removed = remove_tree(self.scratch)
        if self.replayer is not None:  # not waited for: it is trusted, and its folder is empty
            remove_tree(self.replayer.scratch)
        return self.worker.status


class JudgeClient:
    """One judge process with its task."""

    def __init__(
        self,
        judge_server: ForkServer,
        config: JudgeConfig,
        *,
        native_hosts: Callable[[], HostSpec],
        python_hosts: Callable[[], HostSpec],
        natives: Mapping[str, str],
    ) -> None:
        self._specs = {False: native_hosts, True: python_hosts}
        self._natives = natives  # paths of C libraries that hosts load, by name; "" if one could not be built
        self._count = 0
        self._spare: dict[bool, list[HostProcess]] = {False: [], True: []}  # started ahead; True: for Python candidates
        self._config = config
        self._holds_buffers = True
        ours, theirs = socket.socketpair()
        with theirs:
            self._worker = judge_server.spawn("judge", CONFIG.dump_json(config).decode(), [theirs.fileno()])
        self._channel = Channel(ours)
        try:
            message, _ = self._channel.receive((TaskOpened, JudgeRefused), _OPEN_S)
        except (WireClosed, WireTimeout, WireError) as error:
            self._worker.wait(0.5)  # a process that was killed gets its own exit status
            status = self._worker.status
            self.close()
            if isinstance(error, WireClosed) and status == signal.SIGKILL:  # as wait(2) gives it
                raise HarnessFault(_KILLED_OPENING) from None
            raise HarnessFault(f"the judging process failed while opening the task ({error}).") from None
        if isinstance(message, JudgeRefused):
            self.close()
            if message.needed_bytes:
                raise TooLittleMemory(message.reason, message.needed_bytes)
            raise TaskError(message.reason)
        from warpsmith.evaluator.judge.records import parse_task

        self.task: Task = parse_task(message.task.encode())
        self.facts: TaskFacts = FACTS.validate_json(message.facts)

    def release_memory(self, more_than: int = KEPT_BYTES) -> None:
        """Release the judge's buffers, if they are larger than `more_than` bytes, and end the hosts started ahead.

        The judge allocates buffers again when the next host is started.
        """
        if not self._holds_buffers:
            return
        self._send(ReleaseMemory(more_than), [])
        try:
            message, _ = self._channel.receive((MemoryReleased, JudgeRefused), _RELEASE_S)
        except (WireClosed, WireError, WireTimeout) as error:
            raise HarnessFault(f"the judging process was lost ({error}).") from None
        if isinstance(message, JudgeRefused):
            raise HarnessFault(message.reason)
        self._holds_buffers = False  # or so little that it may keep them
        if message.released:
            self._end_spare_hosts()

    def _end_spare_hosts(self) -> None:
        for spare in self._spare.values():
            for host in spare:
                host.end()
            spare.clear()

    def close(self) -> None:
        """End the judge."""
        self._end_spare_hosts()
        self._channel.close()
        self._worker.kill()
        self._worker.wait(10.0)

    def take_host(self, wanted: int, python: bool = False) -> HostProcess:
        """A host for the next candidate, native or Python; `wanted` candidates are still to come.

        Creating a CUDA context takes long, and the judge lets no host start while it measures. So the next native host
        starts while this candidate is checked. Python hosts take longer than that: several are started at once.
        """
        spare = self._spare[python]
        if not spare or not python:
            ahead = _HOSTS_AHEAD[python] if self._config.kind == "cuda" else 0
            spec = self._specs[python]()
            while len(spare) < max(1, min(wanted, 1 + ahead)):
                spare.append(self._start_host(spec, self._start_replayer()))
        return spare.pop(0)

    def _start_replayer(self) -> HostProcess | None:
        """On a GPU, unless this judge is for verification: the process that replays and times the calls."""
        if self._config.kind != "cuda" or self._config.inputs_folder:
            return None
        return self._start_host(replace(self._specs[False](), role=REPLAYER))

    def _start_host(self, spec: HostSpec, replayer: HostProcess | None = None) -> HostProcess:
        """Fork a host and have the judge prepare it."""
        self._holds_buffers = True
        self._count += 1
        number = self._count
        scratch = spec.scratch / f"{os.getpid()}-{self._worker.pid}-{number}"
        try:
            scratch.mkdir(mode=0o700)
            if os.geteuid() == 0 and spec.drop_user:  # the host becomes this user
                os.chown(scratch, _NOBODY, _NOBODY)
        except OSError as fault:
            raise HarnessFault(_full_disk(spec.scratch, fault)) from None
        page = os.memfd_create("warpsmith-fault", os.MFD_CLOEXEC)
        folder = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.ftruncate(page, mmap.PAGESIZE)
            with _pair() as (ours, theirs):
                environ = {**spec.environ, "HOME": str(scratch), "TMPDIR": str(scratch)}
                payload = json.dumps({"environ": environ, "drop_user": spec.drop_user, **self._natives})
                worker = spec.server.spawn(spec.role, payload, [theirs.fileno(), page])
                self._send(AdoptHost(number, worker.pid, spec.role == REPLAYER), [ours.fileno(), page, folder])
        finally:
            os.close(page)
            os.close(folder)
        return HostProcess(number, worker, scratch, replayer)

    def examine(
        self,
        host: HostProcess,
        library: Path,
        contract: Contract,
        report_stage: Callable[[str], None] = lambda _: None,
    ) -> JudgeReport:
        """Have the judge examine a candidate in this host; the host is ended afterwards."""
        copy = host.scratch / ("candidate" if library.is_dir() else "candidate.so")
        try:
            if library.is_dir():  # readable by all, writable by us alone: the candidate cannot change itself
                shutil.copytree(library, copy, copy_function=shutil.copyfile)
            else:
                shutil.copyfile(library, copy)
            copy.chmod(0o555)
        except OSError as fault:
            host.end()
            raise HarnessFault(_full_disk(host.scratch.parent, fault)) from None
        settings = self._config.settings
        limit_s = 2 * settings.limits.total_s + settings.limits.start_s + _GRACE_S  # between two messages
        if "compile" in settings.baselines:
            limit_s += _TORCH_COMPILE_S
        deadline = time.monotonic() + limit_s
        try:
            replayer = host.replayer.number if host.replayer is not None else 0
            self._send(Examine(host.number, str(copy), _CONTRACT.dump_json(contract).decode(), replayer), [])
            while True:
                try:
                    message, _ = self._channel.receive(
                        (StageReached, Examined, JudgeRefused), max(0.1, deadline - time.monotonic())
                    )
                except (WireClosed, WireError) as error:
                    raise HarnessFault(f"the judging process was lost ({error}).") from None
                except WireTimeout:
                    raise HarnessFault(f"the judging process said nothing for {limit_s:.0f} s.") from None
                if isinstance(message, JudgeRefused):
                    raise _refusal(message)
                if isinstance(message, Examined):
                    break
                report_stage(message.name)
                deadline = time.monotonic() + limit_s
        finally:
            host.worker.wait(0.05)  # a host that just died gets its own exit status; one that lives is killed next
            status = host.end()
        report = REPORT.validate_json(message.body)
        if not host.removed:
            report = replace(report, notes=(*report.notes, _LEFT_BEHIND.format(folder=host.scratch)))
        return _with_exit(report, status) if report.died else report

    def check_results(self, folder: Path) -> str:
        """What is wrong with the results that a standalone process left in this folder; "" if they are right."""
        self._send(CheckResults(str(folder)), [])
        try:
            message, _ = self._channel.receive((ResultsChecked, JudgeRefused), _OPEN_S)
        except (WireClosed, WireError, WireTimeout) as error:
            raise HarnessFault(f"the judging process was lost ({error}).") from None
        if isinstance(message, JudgeRefused):
            raise HarnessFault(message.reason)
        reason: str = message.reason
        return reason

    def _send(self, message: object, fds: list[int]) -> None:
        try:
            self._channel.send(message, fds)
        except (WireClosed, WireTimeout) as error:
            with suppress(WireClosed, WireError, WireTimeout):  # it may have said why it ended
                while True:
                    said, _ = self._channel.receive((JudgeRefused, StageReached), _LAST_WORD_S)
                    if isinstance(said, JudgeRefused):
                        raise _refusal(said) from None
            raise HarnessFault(f"the judging process was lost ({error}).") from None


@dataclass(frozen=True)
class VerificationSetup:
    """Everything needed to examine a valid candidate once more."""

    judge: JudgeClient
    task: Task
    contract: Contract
    artifact: Artifact


def _refusal(message: JudgeRefused) -> HarnessFault | TooLittleMemory:
    """The error of a judge that cannot go on."""
    if message.needed_bytes:
        return TooLittleMemory(message.reason, message.needed_bytes)
    return HarnessFault(message.reason)


def _full_disk(folder: Path, fault: OSError) -> str:
    return f"a candidate's folder in {folder} cannot be filled ({fault.strerror}); free some space or set TMPDIR."


def _with_exit(report: JudgeReport, status: int | None) -> JudgeReport:
    """Give the reason for a host that ended by itself, from its wait status."""
    if status is None:
        return replace(report, status=Status.NOT_JUDGED, reason="the fork server of the candidate's process has ended.")
    if report.stage == "starting":
        return replace(report, status=Status.NOT_JUDGED, reason="a worker process ended before it was ready.")
    if report.reason:
        return report
    doing = f"while {report.stage}"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGKILL:
            reason = f"killed by the system {doing}: probably out of memory."
            return replace(report, reason=reason, killed=True)
        if number == signal.SIGXFSZ:
            return replace(report, reason=f"stopped {doing}: it wrote a larger file than it may.")
        return replace(report, reason=f"{signal.strsignal(number) or number} {doing}.")
    code = os.WEXITSTATUS(status)
    return replace(
        report,
        reason=f"the candidate ended its own process with status {code} {doing}: it must return instead.",
    )
