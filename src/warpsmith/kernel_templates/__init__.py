"""Writes kernels from plans of strategies, for element-wise chains, row and full reductions and matrix products.

`warpsmith.lowering` turns an outline into expressions over loop axes and groups these into stages; `cpu` and `cuda`
write each stage as the plan's strategies say. Where a form of the collection can write a task's kernel in several ways,
`ways` makes strategies of them. Nothing is run or timed here.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from warpsmith.kernel_templates import abilities as _abilities
from warpsmith.kernel_templates import cpu, cuda
from warpsmith.kernel_templates.abilities import strategies_in_source
from warpsmith.kernel_templates.ways import expected_times, translated_way, way_in_source, way_strategies
from warpsmith.lowering.expressions import Unsupported
from warpsmith.lowering.lower import lower
from warpsmith.lowering.plan_switches import PlanSwitches
from warpsmith.lowering.stages import KernelLayout, plan_stages
from warpsmith.model.brief import Problem
from warpsmith.model.strategy import Plan, Strategy, StrategyChoice
from warpsmith.model.task import Family, Outline, Task

__all__ = [
    "Unsupported",
    "abilities",
    "expected_times",
    "plan_in_source",
    "risky_strategies",
    "stage_count",
    "strategies_in_source",
    "translate",
]

BACKENDS = ("cpu", "cuda")


@lru_cache(maxsize=64)
def abilities(problem: Problem) -> tuple[Strategy, ...]:
    """The strategies that the templates and the ways of a form can carry out for a problem; () where none can.

    A way is a whole kernel: it excludes the other ways and all strategies of the templates.
    """
    ways, others = way_strategies(problem), _template_strategies(problem)
    names = tuple(s.name for s in others)
    return (*(replace(way, excludes=(*way.excludes, *names)) for way in ways), *others)


@lru_cache(maxsize=64)
def _template_strategies(problem: Problem) -> tuple[Strategy, ...]:
    layout = _layout(problem)
    if layout is None:
        return ()
    known = _abilities.able_strategies(problem, layout)
    try:  # some unsupported stages are found only while they are written
        _write(problem, layout, PlanSwitches(Plan(), known))
        # A strategy that makes no difference to the code of this kernel is not listed.
        shown = {s.name for s in known if _shows(problem, layout, known, s)}
    except Unsupported:
        return ()
    return tuple(s for s in known if s.name in shown and shown.issuperset(s.needs))


def stage_count(problem: Problem) -> int:
    """The stages that the templates divide a problem into: passes over memory; 0 where no template fits."""
    layout = _layout(problem)
    return 0 if layout is None else len(layout.stages)


def risky_strategies(problem: Problem) -> frozenset[str]:
    """The strategies that the first kernel of a search leaves out: they may cost more than they gain."""
    layout = _layout(problem)
    return frozenset() if layout is None else _abilities.risky_strategies(problem, layout)


def translate(problem: Problem, plan: Plan) -> str:
    """The source of a kernel that carries out a plan; strategies that `abilities` lacks are left out."""
    layout = _layout(problem)
    able = _template_strategies(problem)
    ways = {each.name for each in way_strategies(problem)}
    if ways and (ways & {*plan.names} or not able):
        written = translated_way(problem, plan)
        assert written is not None, "a form with several ways writes each of them"
        return written
    if layout is None or not able:
        raise Unsupported(f"no template fits {problem.task.name}")
    return _write(problem, layout, PlanSwitches(plan, able))


def plan_in_source(problem: Problem, source: str) -> Plan | None:
    """The plan that a generated source carries out, read from its code; None where no template fits the problem."""
    able = _template_strategies(problem)
    way = way_in_source(problem, source)
    if way is not None and (way.choices or not able):
        return way
    return _abilities.plan_in_source(problem.backend, source, able) if able else None


def _shows(problem: Problem, layout: KernelLayout, known: tuple[Strategy, ...], strategy: Strategy) -> bool:
    """Whether `plan_in_source` finds a strategy in the code written for it and the strategies it needs."""
    wanted, names = [strategy.name], {s.name: s for s in known}
    for name in wanted:
        wanted += [need for need in names[name].needs if need not in wanted]
    source = _write(problem, layout, PlanSwitches(Plan(tuple(StrategyChoice(name) for name in wanted)), known))
    return strategy.name in _abilities.plan_in_source(problem.backend, source, (strategy,)).names


def _write(problem: Problem, layout: KernelLayout, switches: PlanSwitches) -> str:
    if problem.backend == "cpu":
        return cpu.translate(problem, layout, switches)
    return cuda.translate(problem, layout, switches)


def _layout(problem: Problem) -> KernelLayout | None:
    outline = problem.outline
    if outline is None or outline.family is Family.OTHER or problem.backend not in BACKENDS:
        return None
    return _planned(problem.task, outline)


@lru_cache(maxsize=64)
def _planned(task: Task, outline: Outline) -> KernelLayout | None:
    try:
        return plan_stages(lower(task, outline))
    except Unsupported:
        return None
