"""Writes kernels from plans of strategies, for element-wise chains, row and full reductions and matrix products.

A small compiler: `lower` turns an outline into expressions over loop axes, `stages` groups expressions into stages, and
`cpu` and `cuda` write each stage as the plan's strategies say. Nothing is run or timed here.
"""

from __future__ import annotations

import json
from functools import lru_cache

from warpsmith.kernel_templates import abilities as _abilities
from warpsmith.kernel_templates import cpu, cuda, pointwise, reduction
from warpsmith.kernel_templates.abilities import strategies_in_source
from warpsmith.kernel_templates.expressions import CTYPES, NO_AXIS, Unsupported
from warpsmith.kernel_templates.lowering import Lowered, Lowering, OperationCall, Term
from warpsmith.kernel_templates.plan_switches import PlanSwitches
from warpsmith.kernel_templates.stages import KernelLayout, plan_stages
from warpsmith.model.brief import Problem
from warpsmith.model.strategy import Plan, Strategy, StrategyChoice
from warpsmith.model.task import Family, Outline, Task

__all__ = ["Unsupported", "abilities", "plan_in_source", "risky_strategies", "strategies_in_source", "translate"]

BACKENDS = ("cpu", "cuda")


@lru_cache(maxsize=64)
def abilities(problem: Problem) -> tuple[Strategy, ...]:
    """The strategies that the templates can carry out for a problem; () where no template fits."""
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


def risky_strategies(problem: Problem) -> frozenset[str]:
    """The strategies that the first kernel of a search leaves out: they may cost more than they gain."""
    layout = _layout(problem)
    return frozenset() if layout is None else _abilities.risky_strategies(problem, layout)


def translate(problem: Problem, plan: Plan) -> str:
    """The source of a kernel that carries out a plan; strategies that `abilities` lacks are left out."""
    layout = _layout(problem)
    able = abilities(problem)
    if layout is None or not able:
        raise Unsupported(f"no template fits {problem.task.name}")
    return _write(problem, layout, PlanSwitches(plan, able))


def plan_in_source(problem: Problem, source: str) -> Plan | None:
    """The plan that a generated source carries out, read from its code; None where no template fits the problem."""
    able = abilities(problem)
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


_SAME = frozenset(("clone", "contiguous", "detach", "lift_fresh", "alias", "positive", "lift_fresh_copy"))
_VIEWS = frozenset(("view", "_unsafe_view", "reshape", "_reshape_copy", "unsqueeze", "squeeze", "flatten", "view_copy"))
_FILLS = {"zeros": 0.0, "zeros_like": 0.0, "ones": 1.0, "ones_like": 1.0, "new_zeros": 0.0, "new_ones": 1.0}


def lower(task: Task, outline: Outline) -> Lowered:
    """The expressions of a task's outputs; `Unsupported` where an operation is not known.

    Views and constants are read here, reductions in `reduction`, element-wise operators in `pointwise`.
    """
    lowering = Lowering(task, outline)
    for node in outline.nodes:
        name = node.op.removeprefix("aten.").rpartition(".")[0]
        name = name[:-1] if name.endswith("_") and not name.endswith("__") else name
        call = OperationCall(lowering, node, name, json.loads(node.arguments), json.loads(node.keywords))
        made = _structural(call) or reduction.apply(call) or pointwise.apply(call)
        if made is None:
            raise Unsupported(node.op)
        lowering.define(node, made)
    return lowering.finish()


def _structural(call: OperationCall) -> list[Term] | None:
    """The result of a view, a copy or a constant; None for other operators."""
    lowering = call.lowering
    name, dims = call.name, call.result.dims
    if name in _SAME:
        return [call.term(0)]
    if name == "_to_copy" or name == "copy":
        source = call.term(0 if name == "_to_copy" else 1)
        return [Term(lowering.cast(source.expr, CTYPES.get(call.result.dtype)), source.axes)]
    if name in _VIEWS:
        return [lowering.view(call.term(0), dims)]
    if name in ("t", "numpy_T"):
        return [Term(call.term(0).expr, call.term(0).axes[::-1])]
    if name == "transpose":
        axes = list(call.term(0).axes)
        first, second = call.number(1), call.number(2)
        axes[first], axes[second] = axes[second], axes[first]
        return [Term(call.term(0).expr, tuple(axes))]
    if name == "permute":
        axes = list(call.term(0).axes)
        return [Term(call.term(0).expr, tuple(axes[d] for d in call.args[1]))]
    if name in ("expand", "expand_copy"):
        term = call.term(0)
        padded = (NO_AXIS,) * (len(dims) - len(term.axes)) + term.axes
        fresh = tuple(lowering.axes.fresh(d) if a == NO_AXIS else a for a, d in zip(padded, dims, strict=True))
        return [Term(term.expr, fresh)]
    if name == "empty" and 0 in dims:  # a batch norm creates such a tensor for its backward pass
        return [Term(lowering.pool.const(0, "int64_t"), (NO_AXIS,) * len(dims))]
    if name in _FILLS or name in ("full", "full_like", "scalar_tensor"):
        number = _FILLS.get(name, call.args[0 if name == "scalar_tensor" else 1] if name not in _FILLS else 0.0)
        if not isinstance(number, int | float) or call.result.dtype not in CTYPES:
            raise Unsupported("a constant that depends on the sizes")
        value = lowering.pool.const(number, CTYPES[call.result.dtype])
        return [Term(value, tuple(lowering.axes.fresh(d) for d in dims))]
    return None
