"""cuPilot: strategies evolve, kernels follow. Strategist, translator, revisor and aligner are its operators."""

from __future__ import annotations

from warpsmith.methods.deviations import EFFECTS, EPOCHS, IDEAS, PROFILES, RUNS, STRATEGIES
from warpsmith.model.method import Method, MethodOperator, Move, PopulationSpec, Product, Show, Stage, Until

GUIDANCE = frozenset({Show.ROOFLINE, Show.STRATEGIES, Show.IDEAS, Show.EFFECTS, Show.RETRIEVED})
KERNELS = frozenset({Show.FAILURES, Show.PROFILE, Show.ROOFLINE, Show.CARDS})

ALIGN = MethodOperator("align", Move.ALIGN, "cupilot/align", role="aligner", product=Product.ALIGNMENT)
TRANSLATE = MethodOperator(
    *("translate", Move.TRANSLATE, "cupilot/translate"),
    shows=KERNELS | {Show.PARENTS},
    parents=2,
    role="translator",
    then=ALIGN,
)
REVISE = MethodOperator("revise", Move.REPAIR, "cupilot/revise", shows=KERNELS, role="revisor", then=ALIGN)
INITIALISE = MethodOperator(
    *("initialise", Move.INIT, "cupilot/initialise"),
    shows=GUIDANCE | {Show.START},
    role="strategist",
    product=Product.STRATEGIES,
    yields=6,
    then=TRANSLATE,
)
CROSS = MethodOperator(
    *("cross", Move.CROSS, "cupilot/cross"),
    shows=(GUIDANCE - {Show.RETRIEVED}) | {Show.PARENTS, Show.PROFILE},
    parents=2,
    role="strategist",
    product=Product.STRATEGIES,
    yields=3,
    then=TRANSLATE,
)
MUTATE = MethodOperator(
    *("mutate", Move.MUTATE, "cupilot/mutate"),
    shows=(GUIDANCE - {Show.RETRIEVED}) | {Show.PARENTS, Show.PROFILE},
    parents=1,
    role="strategist",
    product=Product.STRATEGIES,
    yields=2,
    then=TRANSLATE,
)

PLUGIN = Method(
    name="cupilot",
    title="cuPilot",
    paper="cuPilot, arXiv 2512.16465",
    summary="A strategist proposes strategies, guided by the roofline and by earlier measurements; a translator writes "
    "each as a kernel, a revisor repairs kernels that fail and revises slow ones, an aligner restates the strategy as "
    "the code has it. Over four epochs strategies, not code, are selected, crossed and mutated.",
    stages=(
        Stage((INITIALISE,), Until(share=1 / 4)),
        Stage((CROSS, MUTATE), Until(share=2 / 4)),
        Stage((CROSS, MUTATE), Until(share=3 / 4)),
        Stage((CROSS, MUTATE)),
    ),
    population=PopulationSpec("tournament", (("size", 5), ("rivals", 3))),
    repairs=2,
    tries=2,
    revise=REVISE,
    revise_below=0.25,
    deviations=(EPOCHS, IDEAS, EFFECTS, PROFILES, *STRATEGIES, *RUNS),
)
