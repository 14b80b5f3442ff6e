"""Deviations from the papers that several methods share, in one wording each."""

from __future__ import annotations

ERRORS = (
    "Recent failures are shown, and a kernel that failed is given back once with its error; in the implementation "
    "behind the paper's comparison no error reaches a later prompt, and the same mistake is paid for again."
)
STEADY = (
    "Operators are taken in turn and each result counts at once; a generation is a round of operators and nobody "
    "waits for its end, so that proposals and evaluations can overlap."
)
INSIGHTS = (
    "Insights come only from kernels that were parsed and measured, and each carries its measured effect; the "
    "published implementation also draws them from replies that failed or could not be read."
)
PARENTS = "Parents are always different kernels; the published implementation can draw the same one twice."
EPOCHS = (
    "An epoch is an equal share of the run's trials, and nobody waits for its end: a strategy can be crossed once "
    "its kernel is measured, so that proposals and evaluations overlap. How many strategies make an epoch in the paper "
    "is not known to us."
)
IDEAS = (
    "A strategy and its kernels are kept apart: when a kernel cannot be mended its strategy is written once more, "
    "behind those nobody has tried; strategies that say the same are written once."
)
EFFECTS = (
    "What each known strategy has brought in this run, as a mean over the kernels that added or dropped it, is told to "
    "the strategist with the number of comparisons."
)
PROFILES = (
    "A kernel is profiled when it is about to be a parent, once, and told as a digest; one that failed has nothing "
    "to profile, so that the revisor goes by what was found wrong."
)
