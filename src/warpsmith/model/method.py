"""A method of search as plain data: stages of operators over a population.

An operator names what a proposer is shown, how many parents it gets and how the request is worded. There is no
control flow in a method: `search.session` reads it, `prompts` words it, `populations` keeps what it bred.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Show(StrEnum):
    """A kind of information a brief may carry. The task and the contract are always there."""

    BEST = "best"  # the best kernel so far, with its code and what was measured
    START = "start"  # the starting kernel of the run, with its code
    PARENTS = "parents"  # kernels picked from the population
    INSIGHTS = "insights"  # what earlier proposals thought, tied to what was measured
    STRATEGIES = "strategies"  # advice of the catalogue for this zone and family
    ROOFLINE = "roofline"  # zone, floor, and how much of the hardware limit was reached
    PROFILE = "profile"  # where the time of the kernels shown goes
    FAILURES = "failures"  # what went wrong lately, so that it is not done again
    RETRIEVED = "retrieved"  # kernels of this and other runs that resemble the best
    NOTES = "notes"  # what earlier operators wrote that is no kernel
    IDEAS = "ideas"  # the strategies thought of so far, with what became of their kernels
    CARDS = "cards"  # instructions for the strategies that the strategy to be carried out names
    EFFECTS = "effects"  # what each strategy of the catalogue has brought in this run
    LINEAGE = "lineage"  # the accepted versions that the parent comes from, without their code
    PRECEDENTS = "precedents"  # what helped in other runs, also where kernels are asked for


class KernelFact(StrEnum):
    """What a brief may say of a kernel that it shows, besides its code. Profiles are a `Show`."""

    NAME = "name"
    MEASURED = "run time"  # latency and speedup
    STRATEGY = "strategy"
    THOUGHT = "thought"
    RESOURCES = "compiler report"  # registers, shared memory, spills


class Move(StrEnum):
    """What an operator does to a program; a proposer that is no language model goes by this."""

    INIT = "init"  # a new kernel, from the best so far where that is shown
    MUTATE = "mutate"  # change one parent
    CROSS = "cross"  # combine parents
    TUNE = "tune"  # keep the algorithm, change its numbers
    DIVERGE = "diverge"  # something other than the parents
    REPAIR = "repair"  # mend what failed
    WRITE = "write"  # not a kernel: text for later operators
    TRANSLATE = "translate"  # carry out a strategy as it is given
    ALIGN = "align"  # say what a kernel really does


class Product(StrEnum):
    """What a reply to an operator holds. Only kernels are trials."""

    KERNEL = "kernel"
    TEXT = "text"  # for the notes
    STRATEGIES = "strategies"  # ideas to be carried out, each one by `then`
    ALIGNMENT = "alignment"  # the strategy of a valid kernel, as its code has it


@dataclass(frozen=True)
class MethodOperator:
    """One way to ask for a program."""

    name: str  # "crossover"
    move: Move
    wording: str  # the template in prompts/templates that says what is wanted, without its ending
    shows: frozenset[Show] = frozenset()
    facts: frozenset[KernelFact] = frozenset(KernelFact)  # said of each kernel shown; its code always is
    parents: int = 0  # how many, all different; fewer where the population has fewer
    fewest_parents: int = 0  # with fewer valid kernels than this, the stage's first operator asks instead
    insights: int = 0  # how many at most
    order: str = "best_first"  # of the parents shown: or "worst_first"
    times: int = 1  # how often it is used in one generation
    role: str = ""  # who is asked, where a method has several: "strategist", "translator"
    product: Product = Product.KERNEL  # what the reply holds; with the move WRITE it is text in any case
    yields: int = 1  # strategies asked for in one reply
    then: MethodOperator | None = (
        None  # what follows on each product: on a strategy at once, on a kernel once it is valid
    )

    @property
    def is_trial(self) -> bool:
        """Whether its replies count against the trials of a run."""
        return self.product is Product.KERNEL

    @property
    def recalls(self) -> bool:
        """Whether it is shown what helped in other runs."""
        return Show.PRECEDENTS in self.shows or (Show.RETRIEVED in self.shows and self.product is Product.STRATEGIES)

    @property
    def chain(self) -> tuple[MethodOperator, ...]:
        """This operator and the operators that follow it, in order."""
        return (self, *(self.then.chain if self.then else ()))


@dataclass(frozen=True)
class Until:
    """When a stage ends; the earliest of what is given. With nothing given it lasts."""

    valid: int | None = None  # different valid kernels found in the run
    proposals: int | None = None  # replies received in this stage
    share: float | None = None  # of the run's trials


@dataclass(frozen=True)
class Stage:
    """Operators taken in turn."""

    operators: tuple[MethodOperator, ...]
    until: Until = Until()


@dataclass(frozen=True)
class PopulationSpec:
    """Which population, and its options by name."""

    name: str  # a plugin of `warpsmith.populations`
    options: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Method:
    """A way to search."""

    name: str  # "evoengineer-full"
    title: str
    paper: str  # where it comes from
    summary: str  # what it does, in a sentence or two
    stages: tuple[Stage, ...]
    population: PopulationSpec
    repairs: int = 1  # how often a failed kernel is given back with its error; 0 for methods that never do
    deviations: tuple[str, ...] = field(default=())  # where we do otherwise than the paper, and why
    revise: MethodOperator | None = None  # how a failed kernel is given back; None for the words all methods share
    revise_below: float = 0.0  # a strategy's first valid kernel is given back if it is below this share of the limit
    tries: int = 1  # kernels written for one strategy until one of them is valid; repairs are not counted
    redirect_after: int = 0  # turns without a faster kernel after which a brief names another direction; 0: never
    restart_after: int = 0  # such turns after which a new line begins at an earlier version; 0: never

    @property
    def operators(self) -> tuple[MethodOperator, ...]:
        """All operators, each once: those of the stages with the ones that follow them, then the one that revises."""
        first = [each for stage in self.stages for operator in stage.operators for each in operator.chain]
        return tuple(dict.fromkeys([*first, *(self.revise.chain if self.revise else ())]))

    @property
    def roles(self) -> tuple[str, ...]:
        """Who is asked, where it has several."""
        return tuple(dict.fromkeys(each.role for each in self.operators if each.role))
