"""Deviations from the papers that several methods share, in one wording each."""

from __future__ import annotations

ERRORS = (
    "Recent failures are shown, and a kernel that failed is given back once with its error; in the implementation "
    "behind the paper's comparison no error reaches a later prompt, so that models repeat the same mistake. "
    "`--no-failures` and `--repairs 0` (in a bench `METHOD-no-failures-no-repairs`) take both away."
)
STOPS = "A run stops early near the roofline; `--stop-at 0` turns that off."
TUNES = "A run tunes the tunables of its best kernel at the end; `--no-tune` turns that off."
STARTS = (
    "A run begins without a kernel unless `--start` gives one; in the papers every run has a starting kernel, and "
    "speedups are over it."
)
RUNS = (
    "A kernel that would be the best is measured a second time, and kernels are ranked by the lower end of their "
    "speedup; a reply that repeats a kernel is not evaluated again, and a call without a reply spends no trial.",
    STOPS,
    TUNES,
    STARTS,
    "The prompt has the contract of this evaluator: an entry point in C, its rules, the figures of the device, and "
    "those headers of the device library that tasks of this kind need.",
)
"""What every method here does otherwise."""
DIGESTS = (
    "Of a profile the prompt has a digest (the bottleneck, two or three figures, what to try) in place of raw "
    "counters; `--no-profile` leaves it out."
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
AGENTS = (
    "A step is one agent with a budget of trials and seconds, and everything that it evaluates is a trial of the run; "
    "the paper reports 7 days of continuous work.",
    "Whether a line stalls, which direction comes next and where a restart begins follow from fixed rules over the "
    "log, so that a run can be resumed and repeated.",
)
PARENTS = "Parents are always different kernels; the published implementation can draw the same one twice."
EPOCHS = (
    "An epoch is an equal share of the run's trials, and the search does not wait for its end: a strategy can be "
    "crossed once its kernel is measured, so that proposals and evaluations overlap. The number of strategies of an "
    "epoch in the paper is unknown."
)
STRATEGIES = (
    "Mutation of strategies is an operator of our own: epochs after the first mutate strategies, too; the paper names "
    "crossover alone.",
    "Precedents come from the user's own runs and from records that ship with Warpsmith, with the kernels before and "
    "after, not from the pool of the authors, which is not public; a bench leaves out what was learnt on the task "
    "itself.",
    "The revisor gets valid kernels, too, with their profile: the first kernel of a strategy, once, if it reaches less "
    "than a quarter of the hardware's limit in its worst workload. The paper's bound is unknown.",
    "Advice for the zone of the roofline is five strategies of Warpsmith's catalogue for the kind of work, and two "
    "more that change from brief to brief; the authors' texts are not public.",
    "Translator and revisor get the catalogue's instructions for the strategies that the plan names.",
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
    "A kernel is profiled once, when it is about to be a parent or to be revised, and the prompt has a digest; a "
    "kernel that failed cannot be profiled, so that the revisor gets the reason of the failure only."
)
