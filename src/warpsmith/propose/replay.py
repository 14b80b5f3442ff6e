"""The proposals of a recorded run once more: same programs, judged anew on this machine.

What was read out of each reply then is proposed now, in the same order, whatever is asked; replies that held no program
are left out. So a recording made with an expensive model can be measured on any device for nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from warpsmith.archive.events import Proposed
from warpsmith.archive.log import Archive
from warpsmith.core.candidate import Candidate
from warpsmith.core.errors import ProposerRefused, RunError
from warpsmith.core.method import Move, Product
from warpsmith.core.search import Brief, Message, Outcome, Prompt, Reply, Role


class ReplayProposer:
    """Answers with what another run was answered."""

    concurrency = 1

    def __init__(self, run: Path, skip: int = 0) -> None:
        self.name = f"replay:{run}"
        self._archive = Archive.read(run)
        self._lock = threading.Lock()
        self._proposals = _proposals(self._archive)
        backend = self._archive.begun().config.backend
        for _ in range(skip):  # what a run that is resumed was given already
            next(self._proposals, None)
        self.backend = backend

    def prompt(self, brief: Brief) -> Prompt:
        """Nobody is asked; the log says where the answer comes from."""
        return Prompt((Message(Role.USER, f"The next program of {self.name.removeprefix('replay:')}."),))

    def propose(self, brief: Brief, prompt: Prompt) -> Reply:
        """The next program of the recording."""
        if brief.move is Move.WRITE:
            return Reply(brief.problem.task.source, "replay")
        if brief.product is Product.STRATEGIES:
            return Reply(_placeholders(brief), "replay")
        if brief.product is Product.ALIGNMENT:
            said = _one_line(brief.subject.strategy) if brief.subject else ""
            return Reply(f"strategy: {said or 'plain'}", "replay")  # as it was told then, which may be nothing
        with self._lock:
            found = next(self._proposals, None)
        if found is None:
            raise ProposerRefused(f"every program of {self.name.removeprefix('replay:')} was replayed.")
        name, candidate = found
        if candidate.backend != brief.problem.backend:
            raise ProposerRefused(
                f"the recording holds {candidate.backend} kernels and this run wants {brief.problem.backend} ones; "
                f"run it with --backend {candidate.backend}."
            )
        return Reply(_text(name, candidate), "replay")

    def close(self) -> None:
        """Close the recording."""
        self._archive.close()


def _proposals(archive: Archive) -> Iterator[tuple[str, Candidate]]:
    try:
        for entry in archive.entries():
            event = entry.event
            if isinstance(event, Proposed) and event.candidate and event.outcome is not Outcome.DUPLICATE:
                yield event.name, event.candidate
    except RunError as fault:
        raise ProposerRefused(str(fault)) from None


def _placeholders(brief: Brief) -> str:
    """Strategies for a method that asks for them first: programs come in their recorded order, whatever they say."""
    first = 1000 * brief.number  # unlike those of any other brief
    return "\n".join(f"strategy: recorded program {first + each}" for each in range(max(1, brief.wanted)))


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("```", "'''")


def _text(name: str, candidate: Candidate) -> str:
    """A program in the form every reply is asked for; one line each, so that nothing in it is taken for code."""
    thought, strategy = _one_line(candidate.thought), _one_line(candidate.strategy)
    fence = "```" if "```" not in candidate.main.text else "~~~~"
    code = f"{fence}cpp\n{candidate.main.text.rstrip()}\n{fence}"
    return f"name: {name or candidate.id}\nstrategy: {strategy}\nthought: {thought}\ncode:\n{code}\n"
