"""Checks a method and describes its errors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from warpsmith.model.errors import UsageError
from warpsmith.model.method import KernelFact, Method, MethodOperator, Move, PopulationSpec, Product, Show, Stage, Until
from warpsmith.populations.create import create

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")  # it becomes part of file names and tables
_PACKAGED = re.compile(r"[A-Za-z0-9_-]+([./][A-Za-z0-9_-]+)*")  # the name of a template that comes with Warpsmith
_MOST = 1_000_000  # of anything that a method counts
ORDERS = ("best_first", "worst_first")


def method_errors(method: Method) -> Iterator[str]:
    """All errors, the most basic first; each a clause that follows "the method"."""
    shape = list(_shape(method))
    yield from shape
    if shape:  # the checks below need correct types
        return
    repeated = [name for name, times in Counter(each.name for each in method.operators).items() if times > 1]
    for name in repeated:
        yield f"has two different operators named {name!r}: give each a name of its own"
    for operator in method.operators:
        yield from (f"has an operator {operator.name!r} {fault}" for fault in _of_operator(operator))
    for number, stage in enumerate(method.stages, start=1):
        yield from (f"has a stage {number} {fault}" for fault in _of_until(stage.until))
    if method.stages[-1].until != Until():
        yield "has an `until` for its last stage, which no stage follows: leave it out"
    for field, least in (("repairs", 0), ("tries", 1), ("redirect_after", 0), ("restart_after", 0)):
        if not _whole(getattr(method, field), least):
            yield f"has {field} = {getattr(method, field)!r}: give a whole number of at least {least}"
    below = method.revise_below
    if isinstance(below, bool) or not isinstance(below, int | float) or not 0 <= below <= 1:
        yield f"has revise_below = {below!r}: give a number from 0 to 1"
    if method.revise is not None and (method.revise.move is not Move.REPAIR or not method.revise.is_trial):
        yield "has an operator that revises and does not repair kernels: give it Move.REPAIR and Product.KERNEL"
    if (method.redirect_after or method.restart_after) and method.population.name != "lineage":
        yield "redirects or restarts a line and keeps none: give it the population lineage"
    try:
        create(method.population)
    except UsageError as error:
        yield f"has no usable population: {str(error).rstrip('.')}"


def _shape(method: Method) -> Iterator[str]:
    """Errors in the types of a method's fields."""
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
    if method.revise is not None:
        yield from (f"has a way to revise {fault}" for fault in _shape_of_operator(method.revise))
    population = method.population
    if not _is(population, PopulationSpec) or not _is(population.name, str):
        yield "has a population that is no PopulationSpec with a name"
    elif not _are_options(population.options):
        yield "has population options that are not a tuple of pairs of a name and a number, each name once"


def _shape_of_stage(stage: Stage) -> Iterator[str]:
    if not _is(stage.until, Until):
        yield "whose end is no Until"
    if not _all_are(stage.operators, MethodOperator):
        yield "whose operators are not a tuple of Operator"
    elif not stage.operators:
        yield "without operators: give at least one"
    else:
        for operator in stage.operators:
            yield from _shape_of_operator(operator)


def _shape_of_operator(operator: MethodOperator) -> Iterator[str]:
    if not _is(operator, MethodOperator):
        yield "that is no Operator"
        return
    name = operator.name
    if not all(isinstance(text, str) and text.strip() for text in (name, operator.wording, operator.order)):
        yield f"with an operator {name!r} whose name, wording or order is empty or no text"
    if not _is(operator.role, str):
        yield f"with an operator {name!r} whose role is no text"
    if not _is(operator.move, Move):
        yield f"with an operator {name!r} whose move is no Move"
    if not _is(operator.product, Product):
        yield f"with an operator {name!r} whose product is no Product"
    if not _is(operator.shows, frozenset) or not all(isinstance(each, Show) for each in operator.shows):
        yield f"with an operator {name!r} that shows something else than a frozenset of Show"
    if not _is(operator.facts, frozenset) or not all(isinstance(each, KernelFact) for each in operator.facts):
        yield f"with an operator {name!r} whose facts are something else than a frozenset of KernelFact"
    if operator.then is not None:
        yield from _shape_of_operator(operator.then)


def _of_operator(operator: MethodOperator) -> Iterator[str]:
    for name, least in (("parents", 0), ("fewest_parents", 0), ("insights", 0), ("times", 1), ("yields", 1)):
        value = getattr(operator, name)
        if not _whole(value, least):
            yield f"with {name} = {value!r}: give a whole number of at least {least}"
            return
    for number, kind in ((operator.parents, Show.PARENTS), (operator.insights, Show.INSIGHTS)):
        if number and kind not in operator.shows:
            yield f"with {kind.value} = {number} that does not show them: add Show.{kind.name} to what it shows"
        if kind in operator.shows and not number:
            yield f"that shows {kind.value} and asks for none: give a number"
    if operator.fewest_parents > operator.parents:
        yield f"that needs {operator.fewest_parents} parents and takes {operator.parents}"
    if operator.order not in ORDERS:
        yield f"with the order {operator.order!r}: give {' or '.join(ORDERS)}"
    yield from _of_products(operator)


def _of_products(operator: MethodOperator) -> Iterator[str]:
    """Strategies need a translator, and only an alignment may follow a kernel."""
    then = operator.then
    if operator.product is Product.STRATEGIES and (then is None or then.product is not Product.KERNEL):
        yield "that asks for strategies and has nothing to carry them out: give it a `then` that asks for a kernel"
    if operator.product is Product.KERNEL and then is not None and then.product is not Product.ALIGNMENT:
        yield "that asks for a kernel, on which only an alignment can follow: give it such a `then`, or none"
    if operator.product in (Product.TEXT, Product.ALIGNMENT) and then is not None:
        yield f"that asks for {operator.product.value}, on which nothing can follow: leave its `then` out"


def _of_until(until: Until) -> Iterator[str]:
    for name, value in (("valid", until.valid), ("proposals", until.proposals)):
        if value is not None and not _whole(value, least=1):
            yield f"that lasts until {name} = {value!r}: give a whole number of at least 1"
    share = until.share
    if share is not None and not (isinstance(share, int | float) and 0 < share <= 1):
        yield f"that lasts until share = {share!r}: give a number above 0 and up to 1"


def _is(value: object, kind: type) -> bool:
    """isinstance, for values of a user's file that may not have their declared type."""
    return isinstance(value, kind)


def own_wordings(method: Method) -> tuple[str, ...]:
    """The prompt templates of a method that do not come with Warpsmith: paths of files."""
    return tuple(each.wording for each in method.operators if not _PACKAGED.fullmatch(each.wording))


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MOST


def _all_are(values: object, kind: type) -> bool:
    return isinstance(values, tuple) and all(isinstance(value, kind) for value in values)


def _are_options(options: object) -> bool:
    """True for pairs of a name and a value; the population checks the value."""
    if not _all_are(options, tuple):
        return False
    assert isinstance(options, tuple)
    pairs = [pair for pair in options if len(pair) == 2 and isinstance(pair[0], str)]
    return len(pairs) == len(options) == len({name for name, _ in pairs})
