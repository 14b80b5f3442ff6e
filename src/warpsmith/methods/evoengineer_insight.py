"""EvoEngineer-Insight: shows the best kernel so far and thoughts behind kernels of the population (I1 and I3)."""

from __future__ import annotations

from warpsmith.methods.deviations import DIGESTS, ERRORS, INSIGHT_POPULATION, INSIGHTS, RUNS, STEADY
from warpsmith.model.method import KernelFact, Method, MethodOperator, Move, PopulationSpec, Show, Stage

INIT = MethodOperator(
    "init",
    Move.INIT,
    "evoengineer/insight",
    shows=frozenset({Show.BEST, Show.INSIGHTS, Show.PROFILE, Show.FAILURES}),
    facts=frozenset({KernelFact.NAME, KernelFact.MEASURED, KernelFact.THOUGHT}),
    insights=3,
)

PLUGIN = Method(
    name="evoengineer-insight",
    title="EvoEngineer-Insight",
    paper="EvoEngineer, arXiv 2510.03760",
    summary="Asks for a better kernel than the best so far, shows that one with its profile and up to 3 insights drawn "
    "at random from the 5 best.",
    stages=(Stage((INIT,)),),
    population=PopulationSpec("elite", (("size", 5),)),
    deviations=(ERRORS, INSIGHTS, INSIGHT_POPULATION, DIGESTS, STEADY, *RUNS),
)
