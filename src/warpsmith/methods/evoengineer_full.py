"""EvoEngineer-Full: shows best kernel, parents and insights, with crossover and mutation on an elite."""

from __future__ import annotations

from warpsmith.methods.deviations import DIGESTS, ERRORS, INSIGHTS, PARENTS, RUNS, STEADY
from warpsmith.model.method import KernelFact, Method, MethodOperator, Move, PopulationSpec, Show, Stage, Until

GUIDANCE = frozenset({Show.BEST, Show.INSIGHTS, Show.PROFILE, Show.FAILURES})
FACTS = frozenset({KernelFact.NAME, KernelFact.MEASURED, KernelFact.THOUGHT})

INIT = MethodOperator("init", Move.INIT, "evoengineer/insight", shows=GUIDANCE, facts=FACTS, insights=3)
CROSSOVER = MethodOperator(
    "crossover",
    Move.CROSS,
    "evoengineer/crossover",
    shows=GUIDANCE | {Show.PARENTS},
    facts=FACTS,
    parents=2,
    insights=3,
    times=2,
)
MUTATION = MethodOperator(
    "mutation",
    Move.MUTATE,
    "evoengineer/mutation",
    shows=GUIDANCE | {Show.PARENTS},
    facts=FACTS,
    parents=1,
    insights=3,
    times=2,
)

PLUGIN = Method(
    name="evoengineer-full",
    title="EvoEngineer-Full",
    paper="EvoEngineer, arXiv 2510.03760",
    summary="Asks for new kernels until 2 are valid, then alternates 2 crossovers and 2 mutations over an elite of 5, "
    "with the best kernel, its profile and up to 3 insights always in view.",
    stages=(Stage((INIT,), Until(valid=2)), Stage((CROSSOVER, MUTATION))),
    population=PopulationSpec("elite", (("size", 5),)),
    deviations=(ERRORS, INSIGHTS, PARENTS, DIGESTS, STEADY, *RUNS),
)
