"""The ways in which a sample of a candidate and one of its baseline are taken on a GPU, and whose clock counts.

A replayer makes the candidate's calls (`replay`), and its clock is ours. A candidate that cannot be replayed is asked
for one call at a time, and the judge's clock around the request, until the device is idle, is what counts; the
baseline's clock then includes the same journey. The CPU's way is `oncpu`; what a sample is for is `contest`'s part.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from warpsmith.core.config import Settings
from warpsmith.core.evaluation import Status
from warpsmith.core.guarding import Clock, Objection
from warpsmith.evaluate.judging.baselines import Side, take_back
from warpsmith.evaluate.judging.bench import Bench
from warpsmith.evaluate.judging.findings import Condemned
from warpsmith.evaluate.judging.peer import Peer
from warpsmith.evaluate.judging.statistics import median
from warpsmith.evaluate.messages import Sample, Sampled
from warpsmith.guards import panel

Pairs = list[tuple[float, float]]  # nanoseconds: baseline, candidate
_CLOCK_SLACK_NS = 2_000_000  # to hand a GPU over
_CLOCK_SLACK_SHARE = 0.5
_MOST_OUTSIDE = 8  # calls of a sample that is timed from outside: each is a request


@dataclass(frozen=True)
class Idle:
    """What an empty request costs by our clock, in nanoseconds, before any code of the candidate is there."""

    usual_ns: float
    credible_ns: float  # the same, but not much above the least ever seen: all that is taken off a time
    main_ns: float = 0.0  # on the CPU: the least that the answering thread uses of a processor where threads are woken
    waking_ns: float = 0.0  # on the CPU: how much longer such a request took than an empty one, at the worst


@dataclass(frozen=True)
class Parties:
    """Who is timed, on what."""

    peer: Peer
    bench: Bench
    side: Side
    settings: Settings
    limit_s: float  # for all sets
    idle: Idle
    delivery_ns: float = 0.0  # on a GPU, for a candidate that returns tensors: what carrying those of a call may take

    def ask(self, request: Sample) -> Sampled:
        """A sample of the candidate."""
        reply = self.peer.ask(request, Sampled, self.limit_s)
        if reply.returned or reply.device_error:
            said = reply.device_text or f"the entry point returned {reply.returned}"
            raise Condemned(Status.LAUNCH_FAILED, f"a timed call failed: {said}.")
        return reply

    def numbers(self, called: Sequence[int]) -> tuple[int, ...]:
        """Sets of the bench, as the candidate's process knows them."""
        return tuple(self.bench.numbers[index] for index in called)


class Way(Protocol):
    """How both sides of a pair are timed. Times are nanoseconds for all calls of a sample."""

    mode: str
    guarded: bool  # whether the candidate's process lives on, and could write where it should not

    def calls(self) -> int:
        """How many sets of the bench a sample calls. Some are always left out, if there are several."""
        ...

    def rouse(self) -> None:
        """Before there is anything new to see: whatever else the candidate's process is asked around its calls."""
        ...

    def renew(self) -> None:
        """When new state is there, and the arguments are not."""
        ...

    def candidate(self, called: Sequence[int]) -> int:
        """One call of the candidate on each of these sets."""
        ...

    def baseline(self, called: Sequence[int]) -> int:
        """The same for the baseline."""
        ...

    def discard(self) -> None:
        """The last pair does not count."""
        ...

    def believed(self, pairs: Pairs) -> Pairs:
        """What the pairs that count stand for: all of them."""
        ...

    def objection(self, pairs: Pairs) -> Objection | None:
        """What speaks against what the candidate's process said about them."""
        ...


def most_calls(bench: Bench) -> int:
    """Of a sample that leaves some sets out: work done for another call than the present one then shows."""
    count = len(bench.sets)
    return count if count == 1 else count - max(1, count // 8)


class _Claims:
    """What a candidate's process says, against our own clock around it.

    Whoever is found out is called a cheat, so every doubt is decided for the candidate: the claim is not used in any
    case. The best case of (our clock - its claim) must be about what an idle request costs.
    """

    def __init__(self, parties: Parties) -> None:
        self._parties = parties
        self.excess_ns = math.inf  # the least that our clock exceeded a claim by
        self._claims: list[float] = []

    def note(self, claimed_ns: float, outer_ns: float) -> None:
        self._claims.append(claimed_ns)
        self.excess_ns = min(self.excess_ns, outer_ns - claimed_ns)

    def objection(self) -> Objection | None:
        parties, without = self._parties, self._parties.settings.without
        if "clock" in without:
            return None
        claimed_ns = median(self._claims)
        allowed_ns = _CLOCK_SLACK_NS + _CLOCK_SLACK_SHARE * claimed_ns + parties.delivery_ns
        return panel.objection(Clock(claimed_ns, self.excess_ns - parties.idle.usual_ns, allowed_ns), without)


class Replayed:
    """A process of ours makes the candidate's calls; both sides are chains of graphs, made anew for each sample."""

    mode = "replayed"
    guarded = False  # nothing of it lives on, and its inputs are mapped to be read only

    def __init__(self, parties: Parties) -> None:
        self._parties = parties

    def calls(self) -> int:
        return most_calls(self._parties.bench)

    def rouse(self) -> None:
        pass

    def renew(self) -> None:
        pass

    def candidate(self, called: Sequence[int]) -> int:
        return max(1, self._parties.ask(Sample(self._parties.numbers(called))).elapsed_ns)

    def baseline(self, called: Sequence[int]) -> int:
        self._parties.ask(
            Sample(())
        )  # the candidate finds the device fresh from another process: so shall the baseline
        return max(1, self._parties.side.sample(True, called))

    def discard(self) -> None:
        pass

    def believed(self, pairs: Pairs) -> Pairs:
        return pairs

    def objection(self, pairs: Pairs) -> Objection | None:
        return None  # nobody claims anything


class FromOutside:
    """One call per request, by our own clock, until the device is idle and ours again.

    The candidate's process cannot know which set is next, and what it says about its times is not used. The baseline's
    time is PyTorch's at its best, by the device's clock, with the same journey added: an empty request to the same
    process, and copying its results where the candidate's are copied. What a launch and a wait cost is left out there,
    and is in the candidate's time. So differences look smaller than they are: whoever is slower than PyTorch comes
    close to it, and nobody gets ahead by the way of measuring.
    """

    mode = "outside"
    guarded = True

    def __init__(self, parties: Parties, spares: Sequence[torch.Tensor] = ()) -> None:
        self._parties = parties
        self._device = parties.bench.sets[0].outputs[0].device
        self._claims = _Claims(parties)
        self._spares = spares  # where results are copied to, for a candidate that returns them
        self._journey_ns = 0

    def calls(self) -> int:
        return min(most_calls(self._parties.bench), _MOST_OUTSIDE)

    def rouse(self) -> None:
        self._journey_ns = self._journeyed_ns(self.calls())

    def renew(self) -> None:
        pass

    def candidate(self, called: Sequence[int]) -> int:
        total_ns = 0
        for number in self._parties.numbers(called):
            start_ns = self._start()
            reply = self._parties.ask(Sample((number,), flush=False))
            take_back(self._device)
            taken_ns = time.perf_counter_ns() - start_ns
            self._claims.note(reply.elapsed_ns, taken_ns)
            total_ns += taken_ns
        return max(1, total_ns)

    def baseline(self, called: Sequence[int]) -> int:
        return max(1, self._journey_ns + self._worked_ns(called))

    def baseline_alone(self, called: Sequence[int]) -> int:
        """The same without the candidate's process: the journey is one to another, or else what it was before any code
        of the candidate was there."""
        lost = self._parties.peer.useless is not None  # it replayed calls of the candidate, and did not survive it
        journey_ns = round(self._parties.idle.usual_ns * len(called)) if lost else self._journeyed_ns(len(called))
        return max(1, journey_ns + self._worked_ns(called))

    def _journeyed_ns(self, times: int) -> int:
        total_ns = 0
        for _ in range(times):
            start_ns = self._start()
            self._parties.ask(Sample((), flush=False))
            take_back(self._device)
            total_ns += time.perf_counter_ns() - start_ns
        return total_ns

    def _worked_ns(self, called: Sequence[int]) -> int:
        side = self._parties.side
        return side.sample(True, called) + self._copied_ns(side.outputs())

    def _copied_ns(self, results: Sequence[tuple[torch.Tensor, ...]]) -> int:
        """What copying the results takes the device."""
        if not self._spares:
            return 0
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for outputs in results:
            for result, spare in zip(outputs, self._spares, strict=True):
                spare.copy_(result)
        stop.record()
        torch.cuda.synchronize(self._device)
        return round(float(start.elapsed_time(stop)) * 1e6)

    def _start(self) -> int:
        self._parties.side.flush()
        torch.cuda.synchronize(self._device)
        return time.perf_counter_ns()

    def discard(self) -> None:
        pass

    def believed(self, pairs: Pairs) -> Pairs:
        return pairs

    def objection(self, pairs: Pairs) -> Objection | None:
        return self._claims.objection()
