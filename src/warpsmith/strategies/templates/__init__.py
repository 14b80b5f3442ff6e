"""Templates: a plan of strategies as source code, for element-wise chains, row and full reductions, matrix products.

A small compiler: an outline becomes expressions over loop axes (`lower`), those become stages (`stages`), and each
stage is written for the CPU or for CUDA with the plan's switches thrown. It never runs or times anything.
"""

from __future__ import annotations

from functools import lru_cache

from warpsmith.core.outline import Family, Outline
from warpsmith.core.search import Problem
from warpsmith.core.strategy import Choice, Plan, Strategy
from warpsmith.core.task import Task
from warpsmith.strategies.templates import abilities as _abilities
from warpsmith.strategies.templates import cpu, cuda
from warpsmith.strategies.templates.graph import Unsupported
from warpsmith.strategies.templates.lower import lower
from warpsmith.strategies.templates.stages import Layout, plan_stages
from warpsmith.strategies.templates.switches import Switches

__all__ = ["Unsupported", "abilities", "carried", "translate", "wary"]

BACKENDS = ("cpu", "cuda")


@lru_cache(maxsize=64)
def abilities(problem: Problem) -> tuple[Strategy, ...]:
    """The strategies that can be carried out for this problem; () where no template fits."""
    layout = _layout(problem)
    if layout is None:
        return ()
    known = _abilities.able(problem, layout)
    try:  # a stage may still turn out to be beyond the templates when it is written
        _write(problem, layout, Switches(Plan(), known))
        # What is listed must show in the code: some switches make no difference to some kernels.
        shown = {s.name for s in known if _shows(problem, layout, known, s)}
    except Unsupported:
        return ()
    return tuple(s for s in known if s.name in shown and shown.issuperset(s.needs))


def wary(problem: Problem) -> frozenset[str]:
    """The abilities that are better left out of the first kernel of a search."""
    layout = _layout(problem)
    return frozenset() if layout is None else _abilities.wary(problem, layout)


def translate(problem: Problem, plan: Plan) -> str:
    """The source of a kernel that carries out a plan, as far as it can be; `Unsupported` where `abilities` is ()."""
    layout = _layout(problem)
    able = abilities(problem)
    if layout is None or not able:
        raise Unsupported(f"no template fits {problem.task.name}")
    return _write(problem, layout, Switches(plan, able))


def carried(problem: Problem, source: str) -> Plan | None:
    """The plan that a generated source contains, by its code; None where no template fits the problem."""
    able = abilities(problem)
    return _abilities.contained(problem.backend, source, able) if able else None


def _shows(problem: Problem, layout: Layout, known: tuple[Strategy, ...], strategy: Strategy) -> bool:
    """Whether a strategy, with what it builds on, can be read back from the code it gives."""
    wanted, names = [strategy.name], {s.name: s for s in known}
    for name in wanted:
        wanted += [need for need in names[name].needs if need not in wanted]
    source = _write(problem, layout, Switches(Plan(tuple(Choice(name) for name in wanted)), known))
    return strategy.name in _abilities.contained(problem.backend, source, (strategy,)).names


def _write(problem: Problem, layout: Layout, switches: Switches) -> str:
    if problem.backend == "cpu":
        return cpu.translate(problem, layout, switches)
    return cuda.translate(problem, layout, switches)


def _layout(problem: Problem) -> Layout | None:
    outline = problem.outline
    if outline is None or outline.family is Family.OTHER or problem.backend not in BACKENDS:
        return None
    return _planned(problem.task, outline)


@lru_cache(maxsize=64)
def _planned(task: Task, outline: Outline) -> Layout | None:
    try:
        return plan_stages(lower(task, outline))
    except Unsupported:
        return None
