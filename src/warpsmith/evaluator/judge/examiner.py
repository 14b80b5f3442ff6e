"""Examines one candidate after the other: sets up its host, loads it, checks its results, watches it, times it.

Used by the judge's process only. `process` talks to the supervisor, `task_context` holds what is the same for all
candidates of a task, this module decides.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from warpsmith.evaluator.cuda_driver import Driver
from warpsmith.evaluator.cuda_replay.handover import Handover
from warpsmith.evaluator.cuda_replay.rules import Unreplayable
from warpsmith.evaluator.cuda_replay.shared_memory import encode_blocks
from warpsmith.evaluator.guards.attack_classes import title
from warpsmith.evaluator.judge.binding import CandidateBinder
from warpsmith.evaluator.judge.check import Checker, CheckResult
from warpsmith.evaluator.judge.held_out_checks import HeldOutChecks
from warpsmith.evaluator.judge.host_client import HostClient, HostFailed
from warpsmith.evaluator.judge.idle_check import IdleCheck
from warpsmith.evaluator.judge.published_rule import PublishedRule
from warpsmith.evaluator.judge.records import CandidateFailed, JudgeConfig, JudgeReport, check_guards
from warpsmith.evaluator.judge.task_context import TaskContext
from warpsmith.evaluator.judge.timing.measure import Timer
from warpsmith.evaluator.judge.timing.statistics import median
from warpsmith.evaluator.judge.tracing import Tracing
from warpsmith.evaluator.judge.workload_buffers import WorkloadBuffers
from warpsmith.evaluator.protocol.messages import CallTimes, Prepare, TimeCalls
from warpsmith.hardware.device import process_gpu_memory
from warpsmith.model.contract import Contract
from warpsmith.model.evaluation import Status, WorkloadResult
from warpsmith.model.evidence import ClaimedTime, RecordingComparison
from warpsmith.model.settings import Limits
from warpsmith.system.files import FolderTooLarge, list_tree

_REPLAYED_CASES = 3  # checked again when replayed; every timed result is checked as well
_CLAIM_SAMPLES = 3
_MORE_REPLAYS = 20  # tried before a process is said to have reported too little time: others may use the device
_LONGER_S = 0.05  # each of these begins so much later after the one before it than that one did: 10 s in all
_FORGED = 1.5  # how much faster than when replayed a process may claim to be
_FORGED_SLACK_NS = 2_000
_HOST_BYTES = 4 << 30  # device memory for the contexts and flush buffers of the hosts that start next
_MOST_ENTRIES, _DEEPEST = 20_000, 32  # of a scratch folder
_FILES_OF_FULL_SIZE = 4
_MISCOMPUTED = (Status.WRONG, Status.UNWRITTEN)

ReportStage = Callable[[str], None]


class Examiner:
    """Examines candidates of one task."""

    def __init__(self, config: JudgeConfig) -> None:
        context = self.context = TaskContext(config)
        self._settings = config.settings
        self._limits = config.settings.limits
        self._tracing = Tracing(context)
        self._timer = Timer(context)
        self._published = PublishedRule(context.reference) if self._settings.published_rule else None
        self._gpu_memory = GpuMemory(context.driver, context.device, self._limits)
        self._quotas: dict[int, ScratchQuota] = {}  # by host
        self._set_up_buffers()

    def _set_up_buffers(self) -> None:
        """What works on the buffers of the task, which may just have been allocated again."""
        context = self.context
        self._has_buffers = True
        self._binder = CandidateBinder(context)
        self._handover: Handover | None = None
        if context.driver is not None:
            self._handover = Handover(context.arena, context.driver, context.workload_buffers, self._limits)

    def release_memory(self) -> None:
        """Release the buffers until a host is prepared; all hosts must have been given up."""
        if self._has_buffers:
            self._has_buffers = False
            self._quotas.clear()
            self._binder.close()
            self._handover = None
            self.context.release_buffers()

    def check_device(self) -> None:
        """Raise if the device no longer works for the judge either: then a failure is not the candidate's."""
        if self.context.device.type == "cuda":
            torch.zeros(1, device=self.context.device).add_(1).item()

    def prepare(self, host: HostClient, scratch: str) -> None:
        """Ask a host to set itself up, without waiting for it."""
        if not self._has_buffers:
            self.context.restore_buffers()
            self._set_up_buffers()
        if not self._gpu_memory.has_room():
            self.context.reference.release_memory()
            self.context.release_cached_memory()
        config, limits, arena = self.context.config, self._limits, self.context.arena
        self._quotas[host.number] = ScratchQuota(Path(scratch), limits.scratch_bytes)
        host.slots = self.context.slots if self.context.device.type == "cpu" else ()
        request = Prepare(
            kind=config.kind,
            device=config.index,
            ipc_handle=arena.handle,
            address=arena.window.address if arena.window else 0,
            shared_bytes=arena.window.nbytes if arena.window else 0,
            blocks=encode_blocks(arena.pieces),
            slots=tuple((s.region_start, s.region_end, int(s.writable)) for s in host.slots),
            flush_bytes=self.context.flush_bytes,
            scratch=scratch,
            readable=(*config.readable, scratch),
            links=bool(self.context.task.allow),
            memory_bytes=limits.memory_bytes,
            scratch_bytes=limits.scratch_bytes,
            threads=config.threads,
            cupti="" if host.trusted else self._tracing.cupti,
        )
        host.send(request, arena.descriptors())

    def examine(
        self,
        host: HostClient,
        replayer: HostClient | None,
        library: str,
        contract: Contract,
        waiting: Sequence[HostClient],
        report_stage: ReportStage,
    ) -> JudgeReport:
        """Check and time one candidate; raises CandidateFailed for a failed one."""
        context = self.context
        context.baseline_runners()  # torch.compile may take a minute, which is not the candidate's time
        if context.input_files is not None:
            return self._verify(host, library, contract, report_stage)
        layers = self._begin(host)
        quota = self._quotas.pop(host.number)
        quota.begin()
        cost = self._timer.measure_request_cost(host)
        idle_check = IdleCheck(host.pid, contract.backend, self._settings.without)
        taken_before = self._gpu_memory.taken_bytes()
        report_stage("load")
        self._tracing.read_objects(library)
        if self._handover is not None:
            self._handover.read_device_code(library)
        wipe = self._binder.bind(host, library, contract)
        if self._published is not None:
            host.published = False  # until all its results are near
            host.published = self._published.accepts(host, context.workload_buffers, wipe, self._call_limit_s)
        new_checker = partial(Checker, context.reference, self._settings, wipe)
        checker = new_checker()
        checked: dict[str, CheckResult] = {}
        for buffers in context.workload_buffers:
            report_stage("check")
            name, limit_s = buffers.workload.name, self._timer.call_limit_s(buffers.workload)
            checked[name] = checker.check_cases(host, buffers, context.cases[name], limit_s)
            self._gpu_memory.check(host, taken_before)
        with host.while_running():
            idle_check.check(host.late_ns)
        quota.check()
        if self._handover is not None:
            report_stage("replay")
        why_not = self._replay(host, replayer, new_checker())  # with its own checker: replaying may fail
        claims: dict[str, float] = {}
        if not why_not:
            assert replayer is not None, "the calls were handed over to a replayer"
            untraced = self._trace(host, contract, checker)
            claims = {buffers.workload.name: self._reported_ns(host, buffers) for buffers in context.workload_buffers}
            replayer.waited_s += host.waited_s
            host.end()  # from here on no host code of the candidate runs
            host = replayer
        for other in waiting:  # a host that is still starting would disturb the clock
            with suppress(CandidateFailed, HostFailed):  # raised again when its turn comes
                other.wait_ready(self._limits.start_s)
        results = []
        for buffers in context.workload_buffers:
            report_stage("time")
            name = buffers.workload.name
            results.append(self._timer.measure(host, buffers, checked[name], checker, cost))
            if host.trusted:
                self._check_claim(host, buffers, claims[name], results[-1])
        quota.check()
        if not host.trusted:
            with host.while_running():
                idle_check.check(host.late_ns)
            untraced = self._trace(host, contract, checker, self._handover.recorded if self._handover else {})
        notes = (*self._reference_notes(), *context.dropped_baselines, *untraced)
        if not host.trusted and self._handover is not None:
            host.end()
            results = [
                self._timer.measure_baselines_again(buffers, result, replayer, cost, host.returns_tensors)
                for buffers, result in zip(context.workload_buffers, results, strict=True)
            ]
            notes = (*notes, f"timed from outside, an upper bound, because {why_not}")
        return JudgeReport(Status.OK, "", tuple(results), notes, layers)

    def _begin(self, host: HostClient) -> tuple[str, ...]:
        """Wait for the host, pause it and restore the buffers; returns the layers of its sandbox."""
        layers = host.wait_ready(self._limits.start_s).layers
        host.pause_between_requests()
        for buffers in self.context.workload_buffers:
            buffers.restore_red_zones()
        return layers

    def _replay(self, host: HostClient, replayer: HostClient | None, checker: Checker) -> str:
        """Hand the candidate's calls over to the replayer and check its results; the reason if that is not possible."""
        if self._handover is None or replayer is None:
            return "there is no process to replay it"
        captured = [runner.capture() for runner in self.context.baseline_runners()]
        if not all(captured):
            return "its baseline cannot be captured into a graph"
        try:
            replayer.wait_ready(self._limits.start_s)
        except (CandidateFailed, HostFailed) as failure:
            said = f"the process that replays calls did not start ({failure})"
            if self._gpu_memory.has_room():  # by now: another candidate had taken all of it
                raise CandidateFailed(Status.NOT_JUDGED, f"{said}.") from None
            return said
        try:
            self._handover.take_over(host, replayer, self._binder.workspace, self._binder.workspace_descriptors())
            for buffers in self.context.workload_buffers:
                cases = self.context.cases[buffers.workload.name][:_REPLAYED_CASES]
                checker.check_cases(replayer, buffers, cases, self._timer.call_limit_s(buffers.workload))
        except Unreplayable as reason:
            return str(reason)
        except (CandidateFailed, HostFailed) as failure:
            replayer.failure = failure  # its state is unknown: nothing more is asked of it
            miscomputed = isinstance(failure, CandidateFailed) and failure.status in _MISCOMPUTED
            if miscomputed and self._handover.stateless:
                check_guards(RecordingComparison((), (), str(failure)), self._settings.without)
            return f"its recorded calls alone do not give its results ({str(failure) or 'no reason given'})"
        return ""

    def _trace(
        self,
        host: HostClient,
        contract: Contract,
        checker: Checker,
        recorded: Mapping[int, frozenset[str]] | None = None,
    ) -> tuple[str, ...]:
        return self._tracing.trace(host, contract, checker, self._call_limit_s, recorded or {})

    def _call_limit_s(self, buffers: WorkloadBuffers) -> float:
        return self._timer.call_limit_s(buffers.workload)

    def _reported_ns(self, host: HostClient, buffers: WorkloadBuffers) -> float:
        """The time of one call that a process reports: the candidate's own, or the one that replays its calls."""
        request = TimeCalls(tuple(buffers.set_numbers))
        limit_s = self._call_limit_s(buffers) * len(buffers.sets) + 1.0
        claims = [host.ask(request, CallTimes, limit_s).elapsed_ns for _ in range(_CLAIM_SAMPLES)]
        return median(claims) / len(buffers.sets)

    def _check_claim(
        self, replayer: HostClient, buffers: WorkloadBuffers, claimed_ns: float, result: WorkloadResult
    ) -> None:
        """Raise CandidateFailed for a process that reported much less time than its calls take when they are replayed.

        The fastest of several replays counts: another program may have used the device during the others, for seconds.
        """
        allowed_ns = _FORGED * claimed_ns + _FORGED_SLACK_NS
        replayed_ns = 1e6 * result.latency_ms
        for number in range(_MORE_REPLAYS):
            if replayed_ns <= allowed_ns:
                break
            time.sleep(number * _LONGER_S)
            replayed_ns = min(replayed_ns, self._reported_ns(replayer, buffers))
        evidence = ClaimedTime(claimed_ns, 0.0, math.inf, replayed_ns=replayed_ns, replayed_allowed_ns=allowed_ns)
        check_guards(evidence, self._settings.without)

    def _verify(self, host: HostClient, library: str, contract: Contract, report_stage: ReportStage) -> JudgeReport:
        """Check a winner on held-out inputs; raises CandidateFailed if it cannot even be loaded."""
        layers = self._begin(host)
        idle_check = IdleCheck(host.pid, contract.backend, self._settings.without)
        report_stage("load")
        wipe = self._binder.bind(host, library, contract)
        new_checker = partial(Checker, self.context.reference, self._settings, wipe)
        found = HeldOutChecks(self.context, new_checker, self._call_limit_s).run(host, report_stage)
        if found.status is Status.OK:
            try:
                with host.while_running():
                    idle_check.check()
            except CandidateFailed as failure:
                found = replace(found, status=failure.status, reason=failure.reason, died=failure.died)
        return replace(found, layers=layers)

    def _reference_notes(self) -> tuple[str, ...]:
        dropped = sorted(set(self.context.reference.dropped))
        if not dropped:
            return ()
        return (f"input variants left out because PyTorch's own result is unusable on them: {', '.join(dropped)}",)


class ScratchQuota:
    """What a candidate may leave in its scratch folder: files, folders and bytes that the harness must remove."""

    def __init__(self, folder: Path, file_bytes: int) -> None:
        self._folder = folder
        self._file_bytes = file_bytes
        self._begun_bytes = 0

    def begin(self) -> None:
        """The candidate's own files are in the folder, and none of its code has run."""
        self._begun_bytes = self._bytes()

    def check(self) -> None:
        """Raise CandidateFailed for a candidate that left more than it may."""
        left = self._bytes() - 2 * self._begun_bytes  # Triton needs a second copy of its kernels
        if left > _FILES_OF_FULL_SIZE * self._file_bytes:
            raise _overfull(f"{left >> 20} MiB")

    def _bytes(self) -> int:
        try:
            return sum(path.lstat().st_size for path in list_tree(self._folder, _MOST_ENTRIES, _DEEPEST))
        except FolderTooLarge as too_large:
            raise _overfull(str(too_large)) from None
        except OSError:  # a file vanished: a thread of the candidate is at work, and the next check sees the rest
            return 0


def _overfull(what: str) -> CandidateFailed:
    return CandidateFailed(Status.REJECTED, f"{title(22)}: its folder holds {what}; a kernel needs no files.")


class GpuMemory:
    """The memory of the device that candidates take; on the CPU the system sets limits and nothing is checked."""

    def __init__(self, driver: Driver | None, device: torch.device, limits: Limits) -> None:
        self._driver = driver
        self._device = device
        self._limit = limits.memory_bytes + limits.workspace_bytes

    def has_room(self) -> bool:
        """True if another host can start."""
        return self._driver is None or self._driver.memory()[0] >= _HOST_BYTES

    def taken_bytes(self) -> int:
        """Device memory in use, except by the judge's own PyTorch."""
        if self._driver is None:
            return 0
        free, total = self._driver.memory()
        return total - free - torch.cuda.memory_reserved(self._device)

    def check(self, host: HostClient, taken_before: int) -> None:
        """Raise CandidateFailed for a candidate that holds more memory than it may.

        Other programs may have taken memory meanwhile, so the driver is asked what the candidate's process holds. Where
        the driver does not say, the process is ended, and what becomes free was its own. If that was not too much,
        CandidateFailed says that the candidate was not judged, and it is judged again.
        """
        if self.taken_bytes() - taken_before <= self._limit:
            return
        held = process_gpu_memory(self._device.index or 0, host.pid)
        if held is None:
            taken = self.taken_bytes()
            host.end()
            held = taken - self.taken_bytes()
            if held <= self._limit:
                raise CandidateFailed(
                    Status.NOT_JUDGED, "other programs took memory of the device meanwhile; end them, or try later."
                )
        if held > self._limit:
            raise CandidateFailed(
                Status.OUT_OF_MEMORY,
                f"the candidate holds {held / 1e9:.1f} GB of device memory; the limit is {self._limit / 1e9:.1f} GB.",
            )
