"""The experiments of the papers as set-ups of a bench, and where a bench still differs from them.

What a paper does not say, or what cannot be known from public material, is one of the differences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from warpsmith.experiments.plan import BenchPlan
from warpsmith.methods.deviations import ERRORS, STARTS, STOPS, TUNES
from warpsmith.methods.load import ablated, load, trials_of, with_population
from warpsmith.model.errors import RunError
from warpsmith.model.method import Method
from warpsmith.search.start import PLAIN


class Paper(StrEnum):
    """The papers."""

    EVOENGINEER = "evoengineer"
    CUPILOT = "cupilot"


@dataclass(frozen=True)
class PublishedSetup:
    """The experiment of a paper."""

    title: str
    methods: tuple[Method, ...]
    trials: int
    repeats: int
    device: str
    models: str
    tasks: str  # what is known of the selection, and what is taken here
    unknown: tuple[str, ...]  # what else cannot be known or repeated


def setup(paper: Paper) -> PublishedSetup:
    """The experiment of a paper."""
    return _evoengineer() if paper is Paper.EVOENGINEER else _cupilot()


def _evoengineer() -> PublishedSetup:
    names = ("ai-cuda-engineer", "funsearch", "eoh", "evoengineer-free", "evoengineer-insight", "evoengineer-full")
    return PublishedSetup(
        title="EvoEngineer, arXiv 2510.03760",
        methods=tuple(ablated(load(name), failures=False, repairs=False) for name in names),
        trials=45,
        repeats=3,
        device="an RTX 4090",
        models="GPT-4.1 and Claude Sonnet 4, among others",
        tasks="The paper takes 91 problems of KernelBench level 1 and public material does not name them: this bench "
        "takes those of its tasks for which there is a valid starting kernel; cells without one fail.",
        unknown=(
            "The paper reports an average of medians and public material does not say over how many runs: 3 are taken.",
            "Generations: the paper has 10 of them; here results count one by one.",
        ),
    )


def _cupilot() -> PublishedSetup:
    method = with_population(ablated(load("cupilot"), failures=False), 50)
    return PublishedSetup(
        title="cuPilot, arXiv 2512.16465",
        methods=(method,),
        trials=trials_of(method, 50),
        repeats=1,
        device="an A100 with locked clocks",
        models="DeepSeek-R1 and Gemini-2.5-Pro",
        tasks="The paper takes the 100 problems of KernelBench level 1: here those of them for which there is a valid "
        "starting kernel; cells without one fail.",
        unknown=(
            "Population and epoch have 50 members each, as in the paper's ablations, over its four epochs; those of "
            "its main experiment and the number of repeats are unknown.",
        ),
    )


def differences(plan: BenchPlan, devices: Sequence[str] = ()) -> tuple[str, ...]:
    """All that a bench does otherwise than the paper it follows; () if it follows none."""
    if not plan.as_published:
        return ()
    if plan.as_published not in set(Paper):
        raise RunError("the plan of the bench follows a paper that is not known; it was changed, or update Warpsmith.")
    return tuple(_differences(plan, setup(Paper(plan.as_published)), devices))


def _differences(plan: BenchPlan, published: PublishedSetup, devices: Sequence[str]) -> Iterator[str]:
    yield f"Tasks: {published.tasks} Chosen: {len(plan.tasks)}."
    yield f"Device: {published.device} in the paper, {', '.join(devices) or plan.device} here."
    yield f"Models: {published.models} in the paper, {', '.join(plan.proposers)} here."
    if plan.start == PLAIN:
        yield (
            "Starting kernels: not those of the paper; here they are written without optimisations, by templates or "
            "by hand. Where there is neither, the collection's kernel is the start."
        )
    else:
        yield f"Starting kernels: not those of the paper, but {plan.start or 'none'}."
    for what, theirs, ours in (
        ("Trials of a run", published.trials, plan.budget.trials),
        ("Runs of each method on a task", published.repeats, plan.repeats),
    ):
        if theirs != ours:
            yield f"{what}: {theirs} in the paper, {ours} here."
    wanted = {method.name for method in published.methods}
    for text, names in ((", ".join(sorted(wanted - _names(plan))), "missing here"), (_extra(plan, wanted), "added")):
        if text:
            yield f"Methods {names}: {text}."
    changed = [
        method.name for method in published.methods if method.name in _names(plan) and method not in plan.methods
    ]
    if changed:
        yield f"Methods with another population than published: {', '.join(changed)}."
    if plan.repairs:
        yield f"Failed kernels are given back up to {plan.repairs} times."
    yield from published.unknown
    yield (
        "Correctness: the published rule compares 5 inputs with a tolerance of 1e-2; here a kernel must be as accurate "
        "as its precision class on more inputs, and pass the checks against cheating. Only verified kernels count."
    )
    said = [text for method in plan.methods for text in method.deviations]
    for text in dict.fromkeys(text for text in said if text not in _removed(plan)):
        yield text


def _names(plan: BenchPlan) -> set[str]:
    return {method.name for method in plan.methods}


def _extra(plan: BenchPlan, wanted: set[str]) -> str:
    return ", ".join(sorted(_names(plan) - wanted))


def _removed(plan: BenchPlan) -> set[str]:
    """The deviations of methods that the options of a plan take away."""
    without = all("-no-failures-no-repairs" in method.name for method in plan.methods)
    return {
        *((ERRORS,) if without else ()),
        *((STOPS,) if plan.enough_share is None else ()),
        *(() if plan.tune else (TUNES,)),
        *((STARTS,) if plan.start else ()),
    }
