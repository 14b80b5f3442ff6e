"""The trusted process of one task and one device: it holds the task, the reference, the baselines and the clocks.

The judge runs the user's own task file, never a candidate. Candidates run in hosts, which the judge drives over
channels and whose work it sees only through buffers that it owns. The supervisor starts the judge, hands it hosts, and
kills it when it does not answer; losing a judge loses nothing but time.
"""

from __future__ import annotations

import contextlib
import io
import os
import socket
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from pydantic import TypeAdapter

from warpsmith.evaluator.judge.examiner import Examiner
from warpsmith.evaluator.judge.host_client import HostClient, HostFailed
from warpsmith.evaluator.judge.memory_need import DeviceMemory, lacking_bytes
from warpsmith.evaluator.judge.records import (
    CONFIG,
    FACTS,
    REPORT,
    CandidateFailed,
    JudgeConfig,
    JudgeReport,
    dump_task,
)
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
from warpsmith.evaluator.protocol.wire import Channel, WireClosed
from warpsmith.model.contract import Contract
from warpsmith.model.errors import TooLittleMemory, WarpsmithError
from warpsmith.model.evaluation import Status

CONTRACT = TypeAdapter(Contract)
_PRINTED_LINES = 3


class Judge:
    """Answers the requests of the supervisor."""

    def __init__(self, channel: Channel, config: JudgeConfig) -> None:
        self._channel = channel
        self._hosts: dict[int, HostClient] = {}
        self._examiner = Examiner(config)

    def serve(self) -> None:
        """Answer until the supervisor closes the channel."""
        context = self._examiner.context
        self._channel.send(TaskOpened(dump_task(context.task).decode(), FACTS.dump_json(context.facts).decode()))
        while True:
            try:
                message, fds = self._channel.receive((AdoptHost, Examine, CheckResults, ReleaseMemory))
            except WireClosed:
                return
            if isinstance(message, AdoptHost):
                self._adopt(message, fds)
            elif isinstance(message, ReleaseMemory):
                self._channel.send(MemoryReleased(self._release_memory(message.more_than)))
            elif isinstance(message, CheckResults):
                assert context.input_files is not None, "the judge was opened to verify"
                self._channel.send(ResultsChecked(context.input_files.check_results(Path(message.folder))))
            else:
                host = self._hosts[message.host]
                report = replace(self._examine(message), published=host.published)
                self._channel.send(Examined(message.host, REPORT.dump_json(report).decode()))

    def _release_memory(self, more_than: int) -> bool:
        if self._examiner.context.held_bytes <= more_than:
            return False
        for host in self._hosts.values():
            host.close()
        self._hosts.clear()
        self._examiner.release_memory()
        return True

    def _adopt(self, message: AdoptHost, fds: tuple[int, ...]) -> None:
        channel_fd, fault_fd, scratch_fd = fds
        scratch = os.readlink(f"/proc/self/fd/{scratch_fd}")
        os.close(scratch_fd)
        host = HostClient(message.host, channel_fd, fault_fd, message.pid, trusted=message.trusted)
        self._hosts[message.host] = host
        with contextlib.suppress(CandidateFailed):  # the host has ended already: the request to examine it fails
            self._examiner.prepare(host, scratch)

    def _examine(self, message: Examine) -> JudgeReport:
        host, replayer = self._hosts[message.host], self._hosts.get(message.replayer)
        contract = CONTRACT.validate_json(message.contract)
        waiting = [other for other in self._hosts.values() if other not in (host, replayer)]

        def report_stage(stage: str) -> None:
            self._channel.send(StageReached(message.host, stage))

        try:
            return self._examiner.examine(host, replayer, message.library, contract, waiting, report_stage)
        except CandidateFailed as failure:
            self._examiner.check_device()
            if host.prepared is None and not failure.died:  # no code of the candidate was called
                return _not_set_up(failure)
            layers = host.prepared.layers if host.prepared else ()
            return JudgeReport(failure.status, failure.reason, stage=host.stage, died=failure.died, layers=layers)
        except HostFailed as error:
            self._examiner.check_device()
            if not host.candidate_called:
                return _not_set_up(error)
            said = f"the device reports an error while {host.stage}: {error}."
            return JudgeReport(Status.LAUNCH_FAILED, said)
        finally:
            for number in (message.host, message.replayer):
                if number in self._hosts:
                    self._hosts.pop(number).close()


def _not_set_up(error: Exception) -> JudgeReport:
    """The report on a candidate whose worker failed before the candidate was called: it can be evaluated again."""
    return JudgeReport(Status.NOT_JUDGED, f"a worker could not be set up: {error}")


class FirstLines(io.TextIOBase):
    """Passes the first lines that a task prints on, then says once that the rest is dropped."""

    def __init__(self, target: TextIO, task: str) -> None:
        self._target = target
        self._task = task
        self._left = _PRINTED_LINES

    def write(self, text: str) -> int:
        """Take text as `print` hands it over: often the end of a line is a call of its own."""
        for line in text.splitlines(keepends=True) if self._left >= 0 else ():
            if self._left > 0:
                self._target.write(line)
                self._left -= line.endswith("\n")
            elif self._left == 0:
                self._left = -1  # the note is written
                self._target.write(
                    f"note: {self._task} prints more than {_PRINTED_LINES} lines, which are not shown; printing counts "
                    "in the time of PyTorch: remove it.\n"
                )
        return len(text)

    def flush(self) -> None:
        """Flush what was passed on."""
        self._target.flush()


def main(payload: str, fds: list[int]) -> int:
    """Run the forked process of a judge. `fds`: the supervisor's channel."""
    channel = Channel(socket.socket(fileno=fds[0]))
    config = CONFIG.validate_json(payload)
    sys.path[:0] = [p for p in config.search_path if p not in sys.path]
    os.environ["WARPSMITH_CACHE"] = config.cache
    with contextlib.ExitStack() as stack:
        if not os.environ.get("WARPSMITH_DEBUG"):
            shown = FirstLines(sys.stderr, Path(config.task.partition("::")[0]).name)
            stack.enter_context(contextlib.redirect_stdout(shown))
            stack.enter_context(contextlib.redirect_stderr(shown))
        return _judge(channel, config)


def _judge(channel: Channel, config: JudgeConfig) -> int:
    begun = DeviceMemory.now(config)
    try:
        judge = Judge(channel, config)
    except TooLittleMemory as error:
        channel.send(JudgeRefused(str(error), error.needed))
        return 0
    except WarpsmithError as error:
        channel.send(JudgeRefused(str(error)))
        return 0
    except Exception:  # noqa: BLE001  the top frame of a worker: the task or torch may raise anything
        said = f"{Path(config.task).name}: the reference failed to run ({_describe_exception()})."
        channel.send(JudgeRefused(said, begun.needed_after(sys.exception())))
        return 0
    with contextlib.suppress(WireClosed):  # the supervisor has ended: so does the judge
        try:
            judge.serve()
        except WireClosed:
            raise
        except TooLittleMemory as error:
            channel.send(JudgeRefused(str(error), error.needed))
        except Exception:  # noqa: BLE001  the top frame of a worker: a lost device, or a fault of the judge
            said = f"the judging process failed: {_describe_exception()}."
            channel.send(JudgeRefused(said, begun.needed_after(sys.exception())))
    return 0


def _describe_exception() -> str:
    """One line for the exception being handled; WARPSMITH_DEBUG also prints the traceback."""
    if os.environ.get("WARPSMITH_DEBUG"):
        traceback.print_exc()
    error = sys.exception()
    name, said = type(error).__name__, str(error)
    if (lacked := lacking_bytes(error)) is not None:  # PyTorch says it at great length
        missing = f": {lacked / 2**30:.2f} GiB more were needed" if lacked else ""
        return f"the device has too little memory{missing}; end other processes on it, or take smaller workloads"
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["no message"]
    return f"{name}: {lines[0].rstrip(' .')}"
