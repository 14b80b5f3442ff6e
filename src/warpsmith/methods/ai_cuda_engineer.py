"""The AI CUDA Engineer: convert the reference, translate it, evolve the kernel, then learn from kernels like it."""

from __future__ import annotations

from warpsmith.methods.deviations import DIGESTS, ERRORS, RUNS, STEADY
from warpsmith.model.method import KernelFact, Method, MethodOperator, Move, PopulationSpec, Show, Stage, Until

CONVERT = MethodOperator("convert", Move.WRITE, "ai-cuda-engineer/convert")
TRANSLATE = MethodOperator(
    "translate", Move.INIT, "ai-cuda-engineer/translate", shows=frozenset({Show.NOTES, Show.FAILURES})
)
EVOLVE = MethodOperator(
    "evolve",
    Move.CROSS,
    "ai-cuda-engineer/evolve",
    shows=frozenset({Show.BEST, Show.PARENTS, Show.PROFILE, Show.FAILURES}),
    facts=frozenset({KernelFact.MEASURED}),
    parents=5,
    order="worst_first",
)
RETRIEVE = MethodOperator(
    "retrieve",
    Move.INIT,
    "ai-cuda-engineer/retrieve",
    shows=frozenset({Show.BEST, Show.RETRIEVED, Show.PROFILE, Show.FAILURES}),
    facts=frozenset({KernelFact.MEASURED}),
)

PLUGIN = Method(
    name="ai-cuda-engineer",
    title="AI CUDA Engineer",
    paper="The AI CUDA Engineer (Sakana AI, 2025); on kernels: EvoEngineer, arXiv 2510.03760",
    summary="Has the module rewritten as a function, translates that into a first kernel, evolves it with up to 5 of "
    "the best in view, slow to fast, and ends with kernels retrieved by similarity.",
    stages=(
        Stage((CONVERT,), Until(proposals=1)),
        Stage((TRANSLATE,), Until(valid=1)),
        Stage((EVOLVE,), Until(share=8 / 9)),  # 40 of the paper's 45 trials; the last 5 are retrieval-augmented
        Stage((RETRIEVE,)),
    ),
    population=PopulationSpec("elite", (("size", 5),)),
    deviations=(
        ERRORS,
        DIGESTS,
        STEADY,
        "The converted function is shown to the translation and never run; candidates are always checked against the "
        "task's own reference, so that an error of the conversion cannot become the yardstick.",
        "Similar kernels come from this run, all judged by this evaluator, and not from an archive apart from the run.",
        *RUNS,
    ),
)
