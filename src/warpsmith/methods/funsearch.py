"""FunSearch: shows the code of earlier programs, worse to better, and asks for the next one. Diversity by islands."""

from __future__ import annotations

from warpsmith.methods.deviations import ERRORS, PARENTS, RUNS
from warpsmith.model.method import Method, MethodOperator, Move, PopulationSpec, Show, Stage

EVOLVE = MethodOperator(
    "evolve",
    Move.MUTATE,
    "funsearch/evolve",
    shows=frozenset({Show.PARENTS, Show.FAILURES}),
    facts=frozenset(),
    parents=2,
    order="worst_first",
)

PLUGIN = Method(
    name="funsearch",
    title="FunSearch",
    paper="FunSearch, Nature 625 (2024); on kernels: EvoEngineer, arXiv 2510.03760",
    summary="Shows the code of up to 2 kernels of one island, the worse first, and asks for the next better one; 5 "
    "islands breed apart, and the weaker half of them is reset from time to time.",
    stages=(Stage((EVOLVE,)),),
    population=PopulationSpec("islands", (("islands", 5),)),
    deviations=(
        ERRORS,
        PARENTS,
        "Clusters and temperature go by speedup relative to the island's best; by run time itself the "
        "temperature would depend on the unit of time.",
        "Islands are reset after a number of valid kernels, and the temperature falls from one reset to the next; "
        "the published period is in hours, which differ from model to model and machine to machine.",
        "A chat model is asked for the next version of a whole file; the paper has a model complete a function.",
        *RUNS,
    ),
)
