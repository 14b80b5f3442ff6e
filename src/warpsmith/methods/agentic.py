"""Agentic: an agent with tools varies the latest version of a line; a line that stalls is redirected, then left."""

from __future__ import annotations

from warpsmith.methods.deviations import AGENTS, DIGESTS, ERRORS, RUNS
from warpsmith.model.method import KernelFact, Method, MethodOperator, Move, PopulationSpec, Show, Stage

VARY = MethodOperator(
    "vary",
    Move.MUTATE,
    "agentic/vary",
    shows=frozenset(
        {
            *(Show.BEST, Show.PARENTS, Show.LINEAGE, Show.PROFILE, Show.ROOFLINE),
            *(Show.FAILURES, Show.STRATEGIES, Show.PRECEDENTS),
        }
    ),
    facts=frozenset(KernelFact),
    parents=1,
)

PLUGIN = Method(
    name="agentic",
    title="Agentic",
    paper="AVO, arXiv 2603.24517",
    summary="One step after the other varies the latest version of a line, best by an agent that evaluates and "
    "profiles on the way; after 2 steps without a faster kernel a brief names another direction, after 4 the search "
    "goes back to an earlier version.",
    stages=(Stage((VARY,)),),
    population=PopulationSpec("lineage"),
    deviations=(ERRORS, DIGESTS, *AGENTS, *RUNS),
    redirect_after=2,
    restart_after=4,
)
