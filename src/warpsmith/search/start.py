"""The starting kernel of a run: given by the caller, or written offline.

The starting kernel is judged before the search, spends no trial, and is a member of the population.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from warpsmith.backends.source import backend_named, read_candidate
from warpsmith.model.brief import Brief, Problem
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.errors import CandidateError, ProposerRefused, UsageError
from warpsmith.model.method import MethodOperator, Move
from warpsmith.model.strategy import Plan
from warpsmith.prompts.parser import parse
from warpsmith.proposers.templates import TemplateProposer

AUTO = "auto"
"""As a starting kernel: the first one that the offline proposer writes."""
PLAIN = "plain"
"""As a starting kernel: one without optimisations, of a template or `kernels.plain`; where none fits, as `AUTO`."""
OFFLINE = (AUTO, PLAIN)
"""Starting kernels that are written here."""

START = MethodOperator("start", Move.INIT, "evoengineer/init")
"""The operator of the starting kernel; nobody is asked."""


def read_start(given: str | Candidate | None, backend: str) -> Candidate | None:
    """The kernel that a caller gives as a file or a candidate; None for none and for those of `OFFLINE`."""
    if given is None or given in ("", *OFFLINE):
        return None
    start = given if isinstance(given, Candidate) else read_candidate(Path(given))
    if start.backend != backend:
        raise UsageError(
            f"--start {start.main.name} is a {start.backend} kernel, and the run proposes {backend} kernels; "
            "give a kernel of that language, or another --backend."
        )
    return start


def offline_start(problem: Problem, which: str) -> Candidate:
    """A starting kernel of `OFFLINE`."""
    if which == PLAIN:
        from warpsmith.kernel_templates import Unsupported, translate  # reading a run needs none of these
        from warpsmith.kernels.forms import last_kernel
        from warpsmith.kernels.plain import plain_kernel

        written = ""
        with suppress(Unsupported):
            written = translate(problem, Plan())
        if not written and problem.outline is not None:
            given = problem.task, problem.contract, problem.outline
            found = plain_kernel(*given) or last_kernel(*given)
            written = found.source if found else ""
        if written:
            name = f"plain{backend_named(problem.backend).suffixes[0]}"
            return Candidate((SourceFile(name, written),), problem.backend, strategy="none")
    return _first_offline(problem)


def _first_offline(problem: Problem) -> Candidate:
    """The first kernel that the offline proposer writes: of the collection, else of a template."""
    brief = Brief(1, START.name, START.move, START.wording, problem, seed=0)
    proposer = TemplateProposer()
    try:
        proposal = parse(proposer.propose(brief, proposer.prompt(brief)), brief)
    except ProposerRefused:
        from warpsmith.kernel_templates.in_parts import obstacle

        raise CandidateError(
            f"--start: the offline proposer has no kernel for {problem.task.name} in {problem.backend}: "
            f"{obstacle(problem)}; name a file with --start FILE."
        ) from None
    assert proposal.candidate is not None, "the offline proposer writes replies that can be read"
    return proposal.candidate
