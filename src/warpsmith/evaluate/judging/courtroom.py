"""Where candidate after candidate is examined: prepared, loaded, checked, watched, timed.

Used by the judge's process only; `judge` speaks to the supervisor, `premises` holds what is the same for all
candidates, this module decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from warpsmith.core.contract import Contract
from warpsmith.core.evaluation import Status, WorkloadResult
from warpsmith.core.guarding import Clock, Recounted
from warpsmith.core.task import Task
from warpsmith.evaluate.judging.bench import Bench
from warpsmith.evaluate.judging.boarding import Boarding
from warpsmith.evaluate.judging.check import Checker, Measured
from warpsmith.evaluate.judging.findings import Condemned, Facts, Findings, face
from warpsmith.evaluate.judging.holdings import Holdings
from warpsmith.evaluate.judging.judge import JudgeConfig
from warpsmith.evaluate.judging.peer import HostFailed, Peer
from warpsmith.evaluate.judging.premises import Premises
from warpsmith.evaluate.judging.retrial import Retrial
from warpsmith.evaluate.judging.statistics import median
from warpsmith.evaluate.judging.timekeeper import Timekeeper
from warpsmith.evaluate.judging.tracing import Tracing
from warpsmith.evaluate.judging.vigil import Vigil
from warpsmith.evaluate.messages import Prepare, Prepared, Sample, Sampled
from warpsmith.evaluate.replay.ranges import rows
from warpsmith.evaluate.replay.stand import Stand, Unreplayable

_REPLAYED_CASES = 3  # checked once more where they are timed; every timed result is checked besides
_CLAIMS = 3
_FORGED = 1.5  # how much faster than it is when replayed a process may claim to be
_FORGED_SLACK_NS = 2_000
_MISCOMPUTED = (Status.WRONG, Status.UNWRITTEN)


class Courtroom:
    """Examines candidates of one task."""

    def __init__(self, config: JudgeConfig) -> None:
        self.premises = Premises(config)
        here = self.premises
        self._settings = config.settings
        limits = config.settings.limits
        self._boarding = Boarding(here.task, here.benches, here.device, here.driver, limits, here.arena)
        self._tracing = Tracing(here)
        self._timekeeper = Timekeeper(here)
        self._holdings = Holdings(here.driver, here.device, limits)
        self._stand = Stand(here.arena, here.driver, here.benches, limits) if here.driver is not None else None

    @property
    def task(self) -> Task:
        """What is computed."""
        return self.premises.task

    @property
    def facts(self) -> Facts:
        """For the environment block of every result."""
        return self.premises.facts

    def appraise(self, folder: str) -> str:
        """What is wrong with the results a process of its own left there; "" where they are right."""
        assert self.premises.samples is not None, "opened to verify"
        return self.premises.samples.appraise(Path(folder))

    def prepare(self, peer: Peer, scratch: str) -> None:
        """Let a host set itself up; does not wait for it."""
        if not self._holdings.has_room():
            self.premises.oracle.forget()
            self.premises.leave_room()
        config, limits, arena = self.premises.config, self._settings.limits, self.premises.arena
        on_cpu = self.premises.device.type == "cpu"
        peer.slots = self.premises.slots if on_cpu else ()
        peer.stage = "starting"
        request = Prepare(
            kind=config.kind,
            device=config.index,
            arena_bytes=arena.memory.numel(),
            ipc_handle=arena.handle,
            address=arena.window.address if arena.window else 0,
            window_bytes=arena.window.nbytes if arena.window else 0,
            pieces=rows(arena.pieces),
            slots=tuple((s.region_start, s.region_end, int(s.writable)) for s in peer.slots),
            flush_bytes=self.premises.flush_bytes,
            scratch=scratch,
            readable=(*config.readable, scratch),
            links=bool(self.task.allow),
            memory_bytes=limits.memory_bytes,
            scratch_bytes=limits.scratch_bytes,
            threads=config.threads,
            cupti="" if peer.trusted else self._tracing.cupti,
        )
        peer.tell(request, arena.descriptors())

    def check_device(self) -> None:
        """Raise where the device no longer answers us either: then a failure on it is not the candidate's."""
        if self.premises.device.type == "cuda":
            torch.zeros(1, device=self.premises.device).add_(1).item()

    def _await(self, peer: Peer) -> Prepared:
        if peer.useless is not None:  # it has said so before, and says no more
            raise peer.useless
        if peer.prepared is None:
            try:
                peer.prepared = peer.answer(Prepared, self._settings.limits.start_s)
            except (Condemned, HostFailed) as fate:
                peer.useless = fate
                raise
        return peer.prepared

    def examine(
        self,
        peer: Peer,
        replayer: Peer | None,
        library: str,
        contract: Contract,
        waiting: Sequence[Peer],
        report: Callable[[str], None],
    ) -> Findings:
        """The verdict on one candidate; raises Condemned for a failed one."""
        self.premises.make_sides()  # torch.compile may take a minute: not the candidate's
        if self.premises.samples is not None:
            return self._retry(peer, library, contract, report)
        layers = self._await(peer).layers
        peer.restrain()
        self.premises.mend()
        idle = self._timekeeper.idle(peer)
        taken_before = self._holdings.taken_bytes()
        vigil = Vigil(peer.pid, contract.backend, self._settings.without)
        report("load")
        self._tracing.remember(library)
        if self._stand is not None:
            self._stand.remember(library)
        wipe = self._boarding.board(peer, library, contract)
        new_checker = partial(Checker, self.premises.oracle, self._settings, wipe)
        checker = new_checker()
        measured: dict[str, Measured] = {}
        for bench in self.premises.benches:
            report("check")
            limit_s = self._timekeeper.call_limit_s(bench.workload)
            cases = self.premises.cases[bench.workload.name]
            measured[bench.workload.name] = checker.examine(peer, bench, cases, limit_s)
            self._holdings.check(taken_before)
        with peer.at_large():
            vigil.watch()
        if self._stand is not None:
            report("replay")
        why = self._taken_over(peer, replayer, new_checker())  # which may fail: nothing of it is carried over
        if not why:  # nothing of the candidate's host code lives on
            assert replayer is not None, "it has taken over"
            untraced = self._trace(peer, contract, checker)
            claims = {bench.workload.name: self._claimed_ns(peer, bench) for bench in self.premises.benches}
            replayer.waited_s += peer.waited_s
            peer.end()
            peer = replayer
        for other in waiting:  # a host that is still starting would disturb the clock
            if other.prepared is None:
                with suppress(Condemned, HostFailed):  # it will be told when its turn comes
                    self._await(other)
        results = []
        for bench in self.premises.benches:
            report("time")
            right = measured[bench.workload.name]
            results.append(self._timekeeper.measure(peer, bench, right, checker, wipe, idle))
            if peer.trusted:
                self._hold_against(claims[bench.workload.name], results[-1])
        if not peer.trusted:
            with peer.at_large():
                vigil.watch()
            untraced = self._trace(peer, contract, checker, self._stand.recorded if self._stand is not None else {})
        if not peer.trusted and self._stand is not None:
            peer.end()
            pairs = zip(self.premises.benches, results, strict=True)
            results = [self._timekeeper.sobered(bench, result, replayer, idle, peer.returns) for bench, result in pairs]
        outside = (f"timed from outside, an upper bound, because {why}",) if why and self._stand is not None else ()
        notes = (*self._notes(), *self.premises.dropped_baselines, *untraced, *outside)
        return Findings(Status.OK, "", tuple(results), notes, layers)

    def _taken_over(self, peer: Peer, replayer: Peer | None, checker: Checker) -> str:
        """Why a candidate's calls cannot be made by another process; "" where they can, and are right."""
        if self._stand is None or replayer is None:
            return "there is no process to replay it"
        captured = [side.capture() for side in self.premises.all_sides() if side is not None]
        if not all(captured):
            return "its baseline cannot be captured into a graph"
        try:
            self._await(replayer)
        except (Condemned, HostFailed) as fate:
            said = f"the process that replays calls did not start ({fate})"
            if self._holdings.has_room():  # by now: another candidate had taken it all
                raise Condemned(Status.NOT_JUDGED, f"{said}.") from None
            return said
        try:
            self._stand.take_over(peer, replayer, self._boarding.workspace, self._boarding.workspace_descriptors())
            for bench in self.premises.benches:
                cases = self.premises.cases[bench.workload.name][:_REPLAYED_CASES]
                checker.examine(replayer, bench, cases, self._timekeeper.call_limit_s(bench.workload))
        except Unreplayable as reason:
            return str(reason)
        except (Condemned, HostFailed) as fate:
            replayer.useless = fate  # whatever state it is in, nobody asks it anything more
            if isinstance(fate, Condemned) and fate.status in _MISCOMPUTED and self._stand.stateless:
                face(Recounted((), (), fate.reason), self._settings.without)
            return f"its recorded calls alone do not give its results ({str(fate) or 'no reason given'})"
        return ""

    def _trace(
        self, peer: Peer, contract: Contract, checker: Checker, recorded: Mapping[int, frozenset[str]] | None = None
    ) -> tuple[str, ...]:
        limit_s = self._timekeeper.call_limit_s
        return self._tracing.trace(peer, contract, checker, lambda bench: limit_s(bench.workload), recorded or {})

    def _claimed_ns(self, peer: Peer, bench: Bench) -> float:
        """What a candidate's process says that a call takes, while it still can."""
        request = Sample(tuple(bench.numbers))
        limit_s = self._timekeeper.call_limit_s(bench.workload) * len(bench.sets) + 1.0
        claims = [peer.ask(request, Sampled, limit_s).elapsed_ns for _ in range(_CLAIMS)]
        return median(claims) / len(bench.sets)

    def _hold_against(self, claimed_ns: float, result: WorkloadResult) -> None:
        """Condemn a process that said its calls take much less than they do when another makes them."""
        taken_ns = 1e6 * result.latency_ms
        allowed_ns = _FORGED * claimed_ns + _FORGED_SLACK_NS
        face(
            Clock(claimed_ns, 0.0, math.inf, replayed_ns=taken_ns, replayed_allowed_ns=allowed_ns),
            self._settings.without,
        )

    def _retry(self, peer: Peer, library: str, contract: Contract, report: Callable[[str], None]) -> Findings:
        """The harder examination of a winner; raises Condemned where it cannot even be loaded."""
        layers = self._await(peer).layers
        peer.restrain()
        self.premises.mend()
        vigil = Vigil(peer.pid, contract.backend, self._settings.without)
        report("load")
        wipe = self._boarding.board(peer, library, contract)
        trial = Retrial(
            self.premises,
            partial(Checker, self.premises.oracle, self._settings, wipe),
            lambda bench: self._timekeeper.call_limit_s(bench.workload),
        )
        found = trial.hold(peer, report)
        if found.status is Status.OK:
            try:
                with peer.at_large():
                    vigil.watch()
            except Condemned as fate:
                found = replace(found, status=fate.status, reason=fate.reason, died=fate.died)
        return replace(found, layers=layers)

    def _notes(self) -> tuple[str, ...]:
        dropped = sorted(set(self.premises.oracle.dropped))
        if not dropped:
            return ()
        return (f"input variants left out because PyTorch's own result is unusable on them: {', '.join(dropped)}",)
