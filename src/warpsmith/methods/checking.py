"""Whether a method makes sense: what is wrong with it, in words. It reads the method only, not how a run goes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from warpsmith.core.errors import UsageError
from warpsmith.core.method import Method, Move, Operator, PopulationSpec, Show, Stage, Until
from warpsmith.populations.making import create

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")  # it becomes part of file names and tables
ORDERS = ("best_first", "worst_first")


def faults(method: Method) -> Iterator[str]:
    """All that is wrong, the most basic first; each a clause that follows "the method"."""
    shape = list(_shape(method))
    yield from shape
    if shape:  # what follows would stumble over it
        return
    repeated = [name for name, times in Counter(each.name for each in method.operators).items() if times > 1]
    for name in repeated:
        yield f"has two different operators named {name!r}: give each a name of its own"
    for operator in method.operators:
        yield from (f"has an operator {operator.name!r} {fault}" for fault in _of_operator(operator))
    for number, stage in enumerate(method.stages, start=1):
        yield from (f"has a stage {number} {fault}" for fault in _of_until(stage.until))
    if method.stages[-1].until != Until():
        yield "has an end for its last stage, and nothing follows it: leave that out"
    if not _whole(method.repairs, least=0):
        yield f"has repairs = {method.repairs!r}: give a whole number of at least 0"
    try:
        create(method.population)
    except UsageError as error:
        yield f"has no usable population: {str(error).rstrip('.')}"


def _shape(method: Method) -> Iterator[str]:
    """What a type checker would have said."""
    for field in ("name", "title", "paper", "summary"):
        if not isinstance(getattr(method, field), str):
            yield f"has a {field} that is no text"
    if isinstance(method.name, str) and not NAME.fullmatch(method.name):
        yield f"has the name {method.name!r}: give one of lower-case letters, digits and hyphens"
    if not _all_are(method.deviations, str):
        yield "has deviations that are not a tuple of texts"
    if not _all_are(method.stages, Stage):
        yield "has stages that are not a tuple of Stage"
    elif not method.stages:
        yield "has no stages: give at least one"
    else:
        for number, stage in enumerate(method.stages, start=1):
            yield from (f"has a stage {number} {fault}" for fault in _shape_of_stage(stage))
    population = method.population
    if not _is(population, PopulationSpec) or not _is(population.name, str):
        yield "has a population that is no PopulationSpec with a name"
    elif not _are_options(population.options):
        yield "has population options that are not a tuple of pairs of a name and a number, each name once"


def _shape_of_stage(stage: Stage) -> Iterator[str]:
    if not _is(stage.until, Until):
        yield "whose end is no Until"
    if not _all_are(stage.operators, Operator):
        yield "whose operators are not a tuple of Operator"
    elif not stage.operators:
        yield "without operators: give at least one"
    else:
        for operator in stage.operators:
            texts = (operator.name, operator.wording, operator.order)
            if not all(isinstance(text, str) and text.strip() for text in texts):
                yield f"with an operator {operator.name!r} whose name, wording or order is empty or no text"
            if not _is(operator.move, Move):
                yield f"with an operator {operator.name!r} whose move is no Move"
            if not _is(operator.shows, frozenset) or not all(isinstance(each, Show) for each in operator.shows):
                yield f"with an operator {operator.name!r} that shows something else than a frozenset of Show"


def _of_operator(operator: Operator) -> Iterator[str]:
    for name, least in (("parents", 0), ("fewest_parents", 0), ("insights", 0), ("times", 1)):
        value = getattr(operator, name)
        if not _whole(value, least):
            yield f"with {name} = {value!r}: give a whole number of at least {least}"
            return
    for number, kind in ((operator.parents, Show.PARENTS), (operator.insights, Show.INSIGHTS)):
        if number and kind not in operator.shows:
            yield f"with {kind.value} = {number} that does not show them: add Show.{kind.name} to what it shows"
        if kind in operator.shows and not number:
            yield f"that shows {kind.value} and asks for none: say how many"
    if operator.fewest_parents > operator.parents:
        yield f"that needs {operator.fewest_parents} parents and takes {operator.parents}"
    if operator.order not in ORDERS:
        yield f"with the order {operator.order!r}: give {' or '.join(ORDERS)}"


def _of_until(until: Until) -> Iterator[str]:
    for name, value in (("valid", until.valid), ("proposals", until.proposals)):
        if value is not None and not _whole(value, least=1):
            yield f"that lasts until {name} = {value!r}: give a whole number of at least 1"
    share = until.share
    if share is not None and not (isinstance(share, int | float) and 0 < share <= 1):
        yield f"that lasts until share = {share!r}: give a number above 0 and up to 1"


def _is(value: object, kind: type) -> bool:
    """As isinstance, for values of which a type checker believes it already."""
    return isinstance(value, kind)


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _all_are(values: object, kind: type) -> bool:
    return isinstance(values, tuple) and all(isinstance(value, kind) for value in values)


def _are_options(options: object) -> bool:
    """Pairs of a name and something; whether the value is possible is for the population to say."""
    if not _all_are(options, tuple):
        return False
    assert isinstance(options, tuple)
    pairs = [pair for pair in options if len(pair) == 2 and isinstance(pair[0], str)]
    return len(pairs) == len(options) == len({name for name, _ in pairs})
