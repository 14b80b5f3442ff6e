"""Proposes the programs of a recorded run again, so that they are evaluated on this machine.

The programs come in their recorded order, whatever the brief asks; replies without a program are left out. So a run of
an expensive model can be measured on another device at no cost.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from warpsmith.model.brief import Brief, Message, Prompt, Reply, Role, TrialOutcome
from warpsmith.model.candidate import Candidate
from warpsmith.model.errors import ProposerRefused, RunError
from warpsmith.model.method import Move, Product
from warpsmith.run_log.events import ProposalRead
from warpsmith.run_log.log import RunLog

RECORDED = "recorded"
"""The model name of the replies."""


def is_recording(proposer: str) -> bool:
    """True for `recorded:RUN`, and for `replay:RUN`, its earlier name."""
    return proposer.startswith(("recorded:", "replay:"))


class RecordedProposer:
    """A `Proposer` that replies with the programs of another run."""

    concurrency = 1

    def __init__(self, run: Path, skip: int = 0) -> None:
        self.name = f"recorded:{run}"
        self._run = run
        self._log = RunLog.read(run)
        self._lock = threading.Lock()
        self._proposals = _proposals(self._log)
        self._log.setup()  # raises if the folder holds no run
        for _ in range(skip):  # programs that a resumed run has already used
            next(self._proposals, None)

    def prompt(self, brief: Brief) -> Prompt:
        """A prompt for the log; no model is asked."""
        return Prompt((Message(Role.USER, f"The next program of {self._run}."),))

    def propose(self, brief: Brief, prompt: Prompt) -> Reply:
        """The next program of the recording."""
        if brief.move is Move.WRITE:
            return Reply(brief.problem.task.source, RECORDED)
        if brief.product is Product.STRATEGIES:
            return Reply(_placeholders(brief), RECORDED)
        if brief.product is Product.ALIGNMENT:
            strategy = _one_line(brief.subject.strategy) if brief.subject else ""
            return Reply(f"strategy: {strategy or 'plain'}", RECORDED)
        with self._lock:
            found = next(self._proposals, None)
        if found is None:
            raise ProposerRefused(f"all programs of {self._run} have been proposed.")
        name, candidate = found
        if candidate.backend != brief.problem.backend:
            raise ProposerRefused(
                f"the recording holds {candidate.backend} kernels and this run wants {brief.problem.backend} ones; "
                f"run it with --backend {candidate.backend}."
            )
        return Reply(_text(name, candidate), RECORDED)

    def close(self) -> None:
        """Close the log of the recorded run."""
        self._log.close()


def _proposals(log: RunLog) -> Iterator[tuple[str, Candidate]]:
    try:
        for entry in log.entries():
            event = entry.event
            if isinstance(event, ProposalRead) and event.candidate and event.outcome is not TrialOutcome.DUPLICATE:
                yield event.name, event.candidate
    except RunError as fault:
        raise ProposerRefused(str(fault)) from None


def _placeholders(brief: Brief) -> str:
    """Strategies for a method that asks for strategies first, different for every brief."""
    first = 1000 * brief.number
    return "\n".join(f"strategy: recorded program {first + each}" for each in range(max(1, brief.wanted)))


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("```", "'''")


def _text(name: str, candidate: Candidate) -> str:
    """A program as a reply with its fields, each on one line, so that no field is read as code."""
    thought, strategy = _one_line(candidate.thought), _one_line(candidate.strategy)
    fence = "```" if "```" not in candidate.main.text else "~~~~"
    code = f"{fence}cpp\n{candidate.main.text.rstrip()}\n{fence}"
    return f"name: {name or candidate.id}\nstrategy: {strategy}\nthought: {thought}\ncode:\n{code}\n"
