"""EvoEngineer-Insight: shows the best kernel so far and thoughts of earlier proposals with their measured effect."""

from __future__ import annotations

from warpsmith.methods.deviations import ERRORS, INSIGHTS, STEADY
from warpsmith.model.method import Method, MethodOperator, Move, PopulationSpec, Show, Stage

INIT = MethodOperator(
    "init",
    Move.INIT,
    "evoengineer/insight",
    shows=frozenset({Show.BEST, Show.INSIGHTS, Show.PROFILE, Show.FAILURES}),
    insights=3,
)

PLUGIN = Method(
    name="evoengineer-insight",
    title="EvoEngineer-Insight",
    paper="EvoEngineer, arXiv 2510.03760",
    summary="Asks for a better kernel than the best so far, shows that one with its profile and up to 3 insights drawn "
    "at random, and keeps the single best.",
    stages=(Stage((INIT,)),),
    population=PopulationSpec("best"),
    deviations=(ERRORS, INSIGHTS, STEADY),
)
