"""Reads trials back from the run log, in the form in which a brief shows them."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from functools import lru_cache

from warpsmith.model.brief import Insight, ShownCandidate
from warpsmith.model.candidate import SourceFile
from warpsmith.model.evaluation import Evaluation, Resources, Status
from warpsmith.run_log.events import ProposalRead, ReplyReceived, TrialJudged, TrialProfiled
from warpsmith.run_log.log import RunLog
from warpsmith.search.run_state import RunState

_CACHED = 64  # exhibits held in memory; others are read from the log again
_MOST_WITHOUT_CODE = 1024  # of all runs: each is shown in several briefs
_REPLY_CHARS = 6000  # of an unreadable reply, shown when it is asked for again


class TrialReader:
    """Reads trials of one run, with a small cache."""

    def __init__(self, log: RunLog, state: RunState) -> None:
        self._log = log
        self._state = state
        self._cache: OrderedDict[tuple[int, int, bool], ShownCandidate] = OrderedDict()
        self._earlier: dict[tuple[int, int], Evaluation] = {}  # valid evaluations before a failed one: see `evaluation`

    def read(self, trial: int) -> ShownCandidate:
        """One trial with its code."""
        known = self._state.trials[trial]
        key = (trial, known.measured, known.aligned)
        if key not in self._cache:
            self._cache[key] = self._read(trial)
            if len(self._cache) > _CACHED:
                self._cache.popitem(last=False)
        self._cache.move_to_end(key)
        return self._cache[key]

    def read_without_code(self, trial: int) -> ShownCandidate:
        """One trial without its code."""
        return _without_code(self.read(trial))

    def forget(self, trial: int) -> None:
        """Remove a trial from the cache, because something new is known about it."""
        for key in [key for key in self._cache if key[0] == trial]:
            del self._cache[key]

    def evaluation(self, trial: int) -> Evaluation | None:
        """The latest evaluation of a trial. If that one failed (NOT_JUDGED) after a valid one, the valid one."""
        judged, known = self._log.of_trial(trial, TrialJudged), self._state.trials.get(trial)
        if judged is None or known is None:
            return None
        if judged.evaluation.status is not Status.NOT_JUDGED or known.score is None:
            return judged.evaluation
        if (trial, known.measured) not in self._earlier:
            self._find_earlier()
        return self._earlier[trial, known.measured]

    def _find_earlier(self) -> None:
        """Find all valid evaluations that were followed by a failed one. Rare, so the whole log is read."""
        again = {number: known.measured for number, known in self._state.trials.items() if known.measured > 1}
        valid: dict[int, Evaluation] = {}
        for entry in self._log.entries():
            event = entry.event
            if isinstance(event, TrialJudged) and event.trial in again:
                if event.evaluation.ok:
                    valid[event.trial] = event.evaluation
                elif event.evaluation.status is Status.NOT_JUDGED and event.trial in valid:
                    self._earlier[event.trial, again[event.trial]] = valid[event.trial]

    def insight(self, trial: int) -> Insight:
        """The reason that the author of a trial gave, with the measured effect."""
        exhibit, known = self.read(trial), self._state.trials[trial]
        return Insight(exhibit.id, exhibit.thought, known.score or 0.0, known.effect)

    def unreadable_reply(self, brief: int) -> ShownCandidate:
        """A reply that was no trial and could not be read."""
        proposed = self._log.of_brief(brief, ProposalRead)
        assert proposed is not None, "a reply that could not be read was parsed"
        return self._unreadable(proposed)

    def _unreadable(self, proposed: ProposalRead) -> ShownCandidate:
        replied = self._log.of_brief(proposed.brief, ReplyReceived)
        text = replied.reply.text[:_REPLY_CHARS] if replied else ""
        files = (SourceFile("reply.txt", text),)
        return ShownCandidate("", proposed.name, files, "", "", Status.BUILD_ERROR, proposed.failure, proposed.trial)

    def _read(self, trial: int) -> ShownCandidate:
        proposed = self._log.of_trial(trial, ProposalRead)
        assert proposed is not None, "a trial begins with a proposal"
        candidate, known = proposed.candidate, self._state.trials[trial]
        if candidate is None:
            return self._unreadable(proposed)
        evaluation = self.evaluation(trial)
        profiled = self._log.of_trial(trial, TrialProfiled)
        exhibit = ShownCandidate(
            id=candidate.id,
            name=proposed.name,
            files=candidate.files,
            thought=candidate.thought,
            strategy=known.strategy if known.aligned else candidate.strategy,
            status=Status.NOT_JUDGED,
            reason="not judged yet",
            trial=trial,
            profile=profiled.digest if profiled else "",
        )
        return with_evaluation(exhibit, evaluation) if evaluation else exhibit


@lru_cache(maxsize=_MOST_WITHOUT_CODE)
def _without_code(exhibit: ShownCandidate) -> ShownCandidate:
    return replace(exhibit, files=())


def with_evaluation(exhibit: ShownCandidate, evaluation: Evaluation) -> ShownCandidate:
    """The exhibit with the results of an evaluation."""
    shares = [workload.share_of_floor for workload in evaluation.workloads]
    errors = [(w.error / w.error_limit if w.error_limit > 0 else 0.0, w.error_limit) for w in evaluation.workloads]
    error_share, error_limit = max(errors, default=(None, None))
    return replace(
        exhibit,
        status=evaluation.status,
        reason=evaluation.reason,
        latency_ms=tuple((workload.workload, workload.latency_ms) for workload in evaluation.workloads),
        speedup=evaluation.speedup(),
        interval=evaluation.interval(),
        share_of_floor=min(shares) if shares else None,
        error_share=error_share,
        error_limit=error_limit,
        resources=tuple(_resource_line(each) for each in evaluation.resources),
    )


def _resource_line(used: Resources) -> str:
    spilled = f", {used.spill_bytes} bytes spilled" if used.spill_bytes else ""
    return f"{used.kernel}: {used.registers} registers, {used.shared_bytes} bytes of shared memory{spilled}"
