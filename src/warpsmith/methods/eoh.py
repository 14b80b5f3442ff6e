"""Evolution of Heuristics: thoughts and code evolve together, by two ways to explore and two to modify."""

from __future__ import annotations

from warpsmith.methods.deviations import ERRORS, PARENTS, RUNS, STEADY
from warpsmith.model.method import KernelFact, Method, MethodOperator, Move, PopulationSpec, Show, Stage, Until

KIN = frozenset({Show.PARENTS, Show.FAILURES})
FACTS = frozenset({KernelFact.MEASURED, KernelFact.THOUGHT})

I1 = MethodOperator("i1", Move.INIT, "eoh/i1", shows=frozenset({Show.FAILURES}))
E1 = MethodOperator("e1", Move.DIVERGE, "eoh/e1", shows=KIN, facts=FACTS, parents=2)
E2 = MethodOperator("e2", Move.CROSS, "eoh/e2", shows=KIN, facts=FACTS, parents=2, fewest_parents=2)
M1 = MethodOperator("m1", Move.MUTATE, "eoh/m1", shows=KIN, facts=FACTS, parents=1, fewest_parents=1)
M2 = MethodOperator("m2", Move.TUNE, "eoh/m2", shows=KIN, facts=FACTS, parents=1, fewest_parents=1)

PLUGIN = Method(
    name="eoh",
    title="EoH (EvoEngineer's “Solution”)",
    paper="Evolution of Heuristics, arXiv 2401.02051; on kernels: EvoEngineer, arXiv 2510.03760",
    summary="Asks for new kernels until an elite of 5 is full, then in turn for one unlike its parents (E1), one that "
    "puts their shared idea in a new form (E2), a changed one (M1) and one with other parameters (M2).",
    stages=(Stage((I1,), Until(valid=5)), Stage((E1, E2, M1, M2))),
    population=PopulationSpec("elite", (("size", 5),)),
    deviations=(
        ERRORS,
        PARENTS,
        "E1 and E2 get 2 parents, M1 and M2 get 1; the published numbers were not available here. Run times of parents "
        "are shown, as EvoEngineer's historical solutions have them, beside code and description.",
        STEADY,
        *RUNS,
    ),
)
