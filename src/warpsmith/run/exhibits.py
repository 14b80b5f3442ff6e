"""Candidates as a brief shows them, put together from what the archive holds."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from warpsmith.archive.events import Judged, Profiled, Proposed, Replied
from warpsmith.archive.log import Archive
from warpsmith.core.candidate import SourceFile
from warpsmith.core.evaluation import Evaluation, Resources, Status
from warpsmith.core.search import Exhibit, Insight
from warpsmith.run.ledger import Ledger

_KEPT = 64  # exhibits held in memory; the rest is read again
_REPLY_CHARS = 6000  # of a reply that could not be read, for whoever is to write it better


class Gallery:
    """Reads trials back. Holds a few, never all."""

    def __init__(self, archive: Archive, ledger: Ledger) -> None:
        self._archive = archive
        self._ledger = ledger
        self._kept: OrderedDict[tuple[int, int, bool], Exhibit] = OrderedDict()
        self._standing: dict[tuple[int, int], Evaluation] = {}  # earlier than the latest: by trial, times measured

    def show(self, trial: int) -> Exhibit:
        """One trial with its code."""
        known = self._ledger.trials[trial]
        key = (trial, known.measured, known.aligned)
        if key not in self._kept:
            self._kept[key] = self._read(trial)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    def evaluation(self, trial: int) -> Evaluation | None:
        """The verdict on a trial: the latest, but for one that we failed to reach after a valid one, which stands."""
        judged, known = self._archive.of_trial(trial, Judged), self._ledger.trials.get(trial)
        if judged is None or known is None:
            return None
        if judged.evaluation.status is not Status.NOT_JUDGED or known.score is None:
            return judged.evaluation
        if (trial, known.measured) not in self._standing:
            self._find_standing()
        return self._standing[trial, known.measured]

    def _find_standing(self) -> None:
        """Of all that were valid before we failed to measure them again: few, but the whole log is read for it."""
        again = {number: known.measured for number, known in self._ledger.trials.items() if known.measured > 1}
        valid: dict[int, Evaluation] = {}
        for entry in self._archive.entries():
            event = entry.event
            if isinstance(event, Judged) and event.trial in again:
                if event.evaluation.ok:
                    valid[event.trial] = event.evaluation
                elif event.evaluation.status is Status.NOT_JUDGED and event.trial in valid:
                    self._standing[event.trial, again[event.trial]] = valid[event.trial]

    def label(self, trial: int) -> Exhibit:
        """One trial without its code."""
        return replace(self.show(trial), files=())

    def forget(self, trial: int) -> None:
        """Something new is known about a trial."""
        for key in [key for key in self._kept if key[0] == trial]:
            del self._kept[key]

    def insight(self, trial: int) -> Insight:
        """What a trial thought, and what came of it."""
        exhibit, known = self.show(trial), self._ledger.trials[trial]
        return Insight(exhibit.id, exhibit.thought, known.score or 0.0, known.effect)

    def unread(self, brief: int) -> Exhibit:
        """A reply that could not be read, though it was no trial."""
        proposed = self._archive.of_brief(brief, Proposed)
        assert proposed is not None, "what could not be read was looked at"
        return self._unread(proposed)

    def _unread(self, proposed: Proposed) -> Exhibit:
        replied = self._archive.of_brief(proposed.brief, Replied)
        text = replied.reply.text[:_REPLY_CHARS] if replied else ""
        files = (SourceFile("reply.txt", text),)
        return Exhibit("", proposed.name, files, "", "", Status.BUILD_ERROR, proposed.failure, proposed.trial)

    def _read(self, trial: int) -> Exhibit:
        proposed = self._archive.of_trial(trial, Proposed)
        assert proposed is not None, "a trial begins with a proposal"
        candidate, known = proposed.candidate, self._ledger.trials[trial]
        if candidate is None:
            return self._unread(proposed)
        evaluation = self.evaluation(trial)
        profiled = self._archive.of_trial(trial, Profiled)
        bare = Exhibit(
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
        return measured(bare, evaluation) if evaluation else bare


def measured(exhibit: Exhibit, evaluation: Evaluation) -> Exhibit:
    """The exhibit with what an evaluation found."""
    shares = [workload.share_of_floor for workload in evaluation.workloads]
    return replace(
        exhibit,
        status=evaluation.status,
        reason=evaluation.reason,
        latency_ms=tuple((workload.workload, workload.latency_ms) for workload in evaluation.workloads),
        speedup=evaluation.speedup(),
        interval=evaluation.interval(),
        share_of_floor=min(shares) if shares else None,
        resources=tuple(_line(each) for each in evaluation.resources),
    )


def _line(used: Resources) -> str:
    spilled = f", {used.spill_bytes} bytes spilled" if used.spill_bytes else ""
    return f"{used.kernel}: {used.registers} registers, {used.shared_bytes} bytes of shared memory{spilled}"
