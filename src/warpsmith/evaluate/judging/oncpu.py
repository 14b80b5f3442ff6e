"""How a sample is taken on the CPU, and what a candidate's claim of its time is worth.

The candidate's process says how long its calls took: it alone knows when they began and ended. It is stopped except
between a request and its answer, so three figures that it cannot forge bound what it says.

- Our clock around the request. Less what an empty request costs, and the least that carrying results over costs, this
  is an upper bound of its time. A claim below the smallest of these bounds counts as that bound; one far below it, as
  what our clock says of that very sample: so that on a busy machine, where samples differ, a forger does not get the
  best of them beside the baseline's usual. No claim is called forged on this ground, since other work on the machine
  adds to our clock.
- The processor time of the thread that answers (`meter`), to which other work adds next to nothing. A claim must be at
  least that, less what the thread does outside its clock, which is about the same in every request unless it waits for
  another to wake up. A clock that is forged to any purpose claims less in most samples; so where the difference cannot
  be explained in three quarters of them, it is forged.
- The processor time of all its threads, for work that is handed to another thread. Threads of OpenMP also spin while
  nobody works, on a busy machine above all: it must be too much in every sample.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from warpsmith.core.guarding import Clock, Objection
from warpsmith.evaluate.judging.baselines import CPU_SETTLE_S
from warpsmith.evaluate.judging.delivery import Delivery
from warpsmith.evaluate.judging.meter import Meter
from warpsmith.evaluate.judging.peer import Peer
from warpsmith.evaluate.judging.seats import Seats
from warpsmith.evaluate.judging.statistics import lower_quartile, median
from warpsmith.evaluate.judging.ways import Idle, Pairs, Parties, most_calls
from warpsmith.evaluate.messages import Acknowledged, Flush, Sample, Sampled
from warpsmith.guards import panel

_WAKE_BRIEFLY_MS = 1
_WAKE_MS = 10
_IDLE_SAMPLES = 4
_MAIN_SLACK_NS = 3_000_000  # waking others, where the last of them waits for a processor; releasing results
_SLACK_NS = 2_000_000  # for threads that spin
_SLACK_SHARE = 0.15
_WAKING_SLACK = 3.0  # of what waking threads took before the candidate was there: a busy machine gets busier
_GROSS_SHARE = 1.5  # a busy machine makes a short claim look false, but not by that and the slack in every sample


def with_waking(idle: Idle, peer: Peer, limit_s: float) -> Idle:
    """What an idle request costs, together with one in which threads are woken: on a machine with other work that may
    be milliseconds by our clock. To be measured before any code of the candidate is there."""
    meter, seats, outer, used = Meter(peer.pid), Seats(), [idle.usual_ns], []
    for _ in range(_IDLE_SAMPLES):
        before = meter.read()
        with seats.aside():
            peer.ask(Sample((), wake_ms=_WAKE_BRIEFLY_MS), Sampled, limit_s)
        outer.append(peer.outer_ns)
        used.append(meter.read().main_since(before))
        time.sleep(CPU_SETTLE_S)
    return replace(idle, main_ns=min(used), waking_ns=max(outer) - idle.usual_ns)


@dataclass(frozen=True)
class _Sample:
    """One sample of the candidate, in nanoseconds."""

    claimed_ns: int
    outer_ns: int  # by our clock
    main_ns: int  # of a processor, used by the thread that answers
    least_ns: float  # in which all its threads can have used what they did


class OnCpu:
    """Both sides call all sets of a sample in one go, each in its own process."""

    guarded = False  # it stands still whenever it is not asked, and its inputs are mapped to be read only

    def __init__(self, parties: Parties) -> None:
        self._parties = parties
        self._meter = Meter(parties.peer.pid)
        self._seats = Seats()
        self._processors = len(os.sched_getaffinity(0))
        self._samples: list[_Sample] = []  # one for each pair that counts
        self._delivery = Delivery(parties.bench, self.calls()) if parties.peer.returns else None
        self.mode = "batched" if self.calls() > 1 else "single"

    def calls(self) -> int:
        return most_calls(self._parties.bench)

    def rouse(self) -> None:
        # Its threads have slept; the host wakes them, as the baseline does. That can take long, and whatever our own
        # clock shows beyond a claim is room for a forged one: so the long part is a request apart.
        with self._seats.called_in(self._parties.peer.pid):
            self._parties.ask(Sample((), wake_ms=_WAKE_MS))

    def renew(self) -> None:
        if self._parties.peer.renews:
            self._parties.peer.ask(Flush(), Acknowledged, self._parties.limit_s)

    def candidate(self, called: Sequence[int]) -> int:
        parties = self._parties
        parties.side.flush()  # here, not in the candidate's process: it must not run between data and clock
        time.sleep(CPU_SETTLE_S)
        before = self._meter.read()
        # A Python host has more to hide behind already: it is not woken inside.
        brief_ms = 0 if parties.peer.renews else _WAKE_BRIEFLY_MS
        self._seats.part(parties.peer.pid, before.threads_ns)
        with self._seats.aside():
            reply = parties.ask(Sample(parties.numbers(called), wake_ms=brief_ms))
        outer_ns, after = parties.peer.outer_ns, self._meter.read()
        self._samples.append(
            _Sample(reply.elapsed_ns, outer_ns, after.main_since(before), after.least_since(before, self._processors))
        )
        return max(1, reply.elapsed_ns)

    def baseline(self, called: Sequence[int]) -> int:
        taken_ns = self._parties.side.sample(False, called)
        if self._delivery is not None:
            self._delivery.measure(self._parties.side.outputs())
        return max(1, taken_ns)

    def discard(self) -> None:
        self._samples.pop()

    def believed(self, pairs: Pairs) -> Pairs:
        """The pairs, with no candidate's time below the fastest sample by our own clock."""
        if "clock" in self._parties.settings.without:
            return pairs
        delivery_ns = self._delivery.least_ns if self._delivery is not None else 0.0
        explained_ns = self._parties.idle.credible_ns + delivery_ns
        limits_ns = [sample.outer_ns - explained_ns for sample in self._samples]
        least_ns = min(limits_ns)
        return [
            (baseline_ns, most_ns if _is_gross(claimed_ns, least_ns) else max(claimed_ns, least_ns))
            for (baseline_ns, claimed_ns), most_ns in zip(pairs, limits_ns, strict=True)
        ]

    def objection(self, pairs: Pairs) -> Objection | None:
        idle, without = self._parties.idle, self._parties.settings.without
        if "clock" in without:
            return None
        claimed_ns = median([sample.claimed_ns for sample in self._samples])
        shared_ns = _SLACK_SHARE * claimed_ns + (self._delivery.most_ns if self._delivery is not None else 0.0)
        main_ns = lower_quartile([sample.main_ns - sample.claimed_ns for sample in self._samples])
        allowed_ns = idle.main_ns + _MAIN_SLACK_NS + shared_ns
        found = panel.objection(Clock(claimed_ns, main_ns, allowed_ns, processor=True), without)
        if found is not None:
            return found
        any_ns = min(sample.least_ns - sample.claimed_ns for sample in self._samples)
        allowed_ns = idle.usual_ns + _WAKING_SLACK * idle.waking_ns + _SLACK_NS + shared_ns
        return panel.objection(Clock(claimed_ns, any_ns, allowed_ns, processor=True), without)


def _is_gross(claimed_ns: float, least_ns: float) -> bool:
    """Whether a claim is so far below what is possible that nothing of it can be used."""
    return claimed_ns * _GROSS_SHARE < least_ns and claimed_ns + _SLACK_NS < least_ns
