"""Deviations from the papers that several methods share, in one wording each."""

from __future__ import annotations

ERRORS = (
    "Recent failures are shown, and a kernel that failed is given back once with its error; in the implementation "
    "behind the paper's comparison no error reaches a later prompt, so that models repeat the same mistake. "
    "`--no-failures` and `--repairs 0` (in a bench `METHOD-no-failures-no-repairs`) take both away."
)
STEADY = (
    "Operators are taken in turn and each result counts at once; a generation is a round of operators and the search "
    "does not wait for its end, so that proposals and evaluations can overlap."
)
INSIGHTS = (
    "Insights come only from kernels of the population, which were parsed and measured, and each carries its "
    "measured effect; the published implementation also draws them from replies that failed or could not be read."
)
INSIGHT_POPULATION = (
    "Every kernel starts from the single best, as in the paper; insights are drawn from the 5 best kernels, because a "
    "population of one has one insight."
)
PARENTS = "Parents are always different kernels; the published implementation can draw the same one twice."
EPOCHS = (
    "An epoch is an equal share of the run's trials, and the search does not wait for its end: a strategy can be "
    "crossed once its kernel is measured, so that proposals and evaluations overlap. The number of strategies of an "
    "epoch in the paper is unknown."
)
IDEAS = (
    "A strategy and its kernels are kept apart: when a kernel cannot be repaired its strategy is written once more, "
    "after all untried strategies; strategies with equal plans or nearly equal words are written once."
)
EFFECTS = (
    "The strategist is shown the effect of each known strategy in this run, as a mean over the kernels that added or "
    "dropped it, with the number of comparisons."
)
PROFILES = (
    "A kernel is profiled once, when it is about to be a parent, and the prompt has a digest; a kernel that failed "
    "cannot be profiled, so that the revisor gets the reason of the failure only."
)
