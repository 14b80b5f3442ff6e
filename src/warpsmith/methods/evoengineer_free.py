"""EvoEngineer-Free: shows the task and the code of the best kernel so far (I1), nothing else."""

from __future__ import annotations

from warpsmith.methods.deviations import ERRORS, RUNS, STEADY
from warpsmith.model.method import Method, MethodOperator, Move, PopulationSpec, Show, Stage

INIT = MethodOperator(
    "init", Move.INIT, "evoengineer/init", shows=frozenset({Show.BEST, Show.FAILURES}), facts=frozenset()
)

PLUGIN = Method(
    name="evoengineer-free",
    title="EvoEngineer-Free",
    paper="EvoEngineer, arXiv 2510.03760",
    summary="Asks for a better kernel than the best so far, shows nothing but its code, and keeps the single best.",
    stages=(Stage((INIT,)),),
    population=PopulationSpec("best"),
    deviations=(ERRORS, STEADY, *RUNS),
)
