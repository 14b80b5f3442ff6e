"""The trusted process: holds the task, the reference, the baselines and the verdict for one task and device.

It runs the user's own task file, never a candidate. Candidates live in hosts, which it drives over a channel
and whose work it sees only through buffers that it owns itself. The supervisor starts it, hands it hosts,
and kills it when it does not come back; losing it loses nothing but time.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from warpsmith.core.config import Settings
from warpsmith.core.contract import Contract
from warpsmith.core.errors import WarpsmithError, lacks_memory
from warpsmith.core.evaluation import Status
from warpsmith.evaluate.judging.findings import Condemned, Facts, Findings
from warpsmith.evaluate.judging.peer import HostFailed, Peer
from warpsmith.evaluate.messages import Adopt, Appraise, Appraised, Examine, Finding, Opened, Refused, Stage
from warpsmith.evaluate.wire import Channel, WireClosed


@dataclass(frozen=True)
class JudgeConfig:
    """What a judge is started with."""

    task: str  # path of the task file, with ::name where it holds several
    precision: str  # "" for the task's own
    kind: str
    index: int
    device_key: str
    device_name: str
    cache: str
    threads: int
    settings: Settings
    readable: tuple[str, ...]  # what hosts may read
    search_path: tuple[str, ...]
    calibrate: str = ""  # "": refuse an unfit task; "show" or "again": report on it, with or without the cache
    samples: str = ""  # where samples of inputs are put, to verify a winner; "" for an ordinary evaluation


CONFIG = TypeAdapter(JudgeConfig)
FINDINGS = TypeAdapter(Findings)
FACTS = TypeAdapter(Facts)
CONTRACT = TypeAdapter(Contract)


class Judge:
    """Answers the supervisor."""

    def __init__(self, channel: Channel, config: JudgeConfig) -> None:
        from warpsmith.evaluate.judging.courtroom import Courtroom

        self._channel = channel
        self._peers: dict[int, Peer] = {}
        self._room = Courtroom(config)

    def serve(self) -> None:
        """Until the supervisor hangs up."""
        from warpsmith.tasks.codec import dump_task

        facts = FACTS.dump_json(self._room.facts).decode()
        self._channel.send(Opened(dump_task(self._room.task).decode(), facts))
        while True:
            try:
                message, fds = self._channel.receive((Adopt, Examine, Appraise))
            except WireClosed:
                return
            if isinstance(message, Adopt):
                self._adopt(message, fds)
            elif isinstance(message, Appraise):
                self._channel.send(Appraised(self._room.appraise(message.folder)))
            else:
                self._examine(message)

    def _adopt(self, message: Adopt, fds: tuple[int, ...]) -> None:
        channel_fd, fault_fd, scratch_fd = fds
        scratch = os.readlink(f"/proc/self/fd/{scratch_fd}")
        os.close(scratch_fd)
        peer = Peer(message.host, channel_fd, fault_fd, message.pid)
        peer.trusted = message.trusted
        self._peers[message.host] = peer
        with contextlib.suppress(Condemned):  # gone already: it will be noticed when its turn comes
            self._room.prepare(peer, scratch)

    def _dismiss(self, host: int) -> None:
        peer = self._peers.pop(host, None)
        if peer is not None:
            peer.close()

    def _examine(self, message: Examine) -> None:
        peer = self._peers[message.host]
        contract = CONTRACT.validate_json(message.contract)

        def report(stage: str) -> None:
            self._channel.send(Stage(message.host, stage))

        replayer = self._peers.get(message.replayer)
        waiting = [p for number, p in self._peers.items() if number not in (message.host, message.replayer)]
        try:
            findings = self._room.examine(peer, replayer, message.library, contract, waiting, report)
        except Condemned as fate:
            self._room.check_device()
            unborn = peer.prepared is None and not fate.died  # no code of the candidate was called: ours to repeat
            findings = Findings(
                Status.NOT_JUDGED if unborn else fate.status,
                f"a worker could not be set up: {fate.reason}" if unborn else fate.reason,
                stage=peer.stage,
                died=fate.died,
                layers=peer.prepared.layers if peer.prepared else (),
            )
        except HostFailed as error:
            self._room.check_device()
            if peer.stage in ("starting", "being loaded"):  # no code of the candidate was called: ours to repeat
                findings = Findings(Status.NOT_JUDGED, f"a worker could not be set up: {error}")
            else:
                findings = Findings(Status.LAUNCH_FAILED, f"the device reports an error while {peer.stage}: {error}.")
        finally:
            self._dismiss(message.host)
            self._dismiss(message.replayer)
        self._channel.send(Finding(message.host, FINDINGS.dump_json(findings).decode()))


def main(payload: str, fds: list[int]) -> int:
    """Entry of the forked process. Descriptor: the supervisor's channel."""
    channel = Channel(socket.socket(fileno=fds[0]))
    config = CONFIG.validate_json(payload)
    sys.path[:0] = [p for p in config.search_path if p not in sys.path]
    os.environ["WARPSMITH_CACHE"] = config.cache
    try:
        judge = Judge(channel, config)
    except WarpsmithError as error:
        channel.send(Refused(str(error)))
        return 0
    except Exception:  # noqa: BLE001  a worker's top frame: whatever a task or torch raised becomes a sentence
        channel.send(Refused(f"{Path(config.task).name}: the reference failed to run ({_last_words()})."))
        return 0
    with contextlib.suppress(WireClosed):  # the supervisor is gone in the middle of a candidate: so are we
        try:
            judge.serve()
        except WireClosed:
            raise
        except Exception:  # noqa: BLE001  a worker's top frame: a device that is lost, or a fault of ours
            channel.send(Refused(f"the judging process failed: {_last_words()}."))
    return 0


def _last_words() -> str:
    """One line for the exception being handled; the traceback is for those who ask."""
    if os.environ.get("WARPSMITH_DEBUG"):
        traceback.print_exc()
    kind, error, _ = sys.exc_info()
    name, said = kind.__name__ if kind else "unknown", str(error)
    if name in ("OutOfMemoryError", "MemoryError") or lacks_memory(said):  # PyTorch says it at great length
        wanted = re.search(r"ried to allocate ([\d.]+) ([KMGT]iB|bytes)", said)
        amount, unit = wanted.groups() if wanted else ("", "")
        lacking = f"{int(amount) / 2**30:.2f} GiB" if unit == "bytes" else f"{amount} {unit}"
        missing = f": {lacking} more were needed" if wanted else ""
        return f"the device has too little memory{missing}; end other processes on it, or take smaller workloads"
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["no message"]
    return f"{name}: {lines[0].rstrip(' .')}"


def parse_facts(text: str) -> Facts:
    """The judge's facts from its opening message."""
    return FACTS.validate_python(json.loads(text))
