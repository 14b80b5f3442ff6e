"""A method with parts of it taken away, to measure what they are worth: the ablations of the cuPilot paper.

Works on any method; what it does not have cannot be taken from it. Not a method of its own.
"""

from __future__ import annotations

from dataclasses import replace

from warpsmith.core.method import Method, Operator, Product, Show, Stage

ROOFLINE = frozenset({Show.ROOFLINE, Show.STRATEGIES, Show.PROFILE})
"""Zone and floor, and what is chosen by zone: the catalogue's advice, and what a profile looks at."""
RETRIEVAL = frozenset({Show.RETRIEVED})


def ablated(method: Method, *, roofline: bool = True, retrieval: bool = True, alignment: bool = True) -> Method:
    """The method without what is False, under a name that says so; the same where nothing is."""
    parts = (("roofline", roofline), ("retrieval", retrieval), ("alignment", alignment))
    missing = [name for name, kept in parts if not kept]
    if not missing:
        return method
    hidden = (frozenset() if roofline else ROOFLINE) | (frozenset() if retrieval else RETRIEVAL)

    def without(operator: Operator) -> Operator:
        then = operator.then
        if then is not None and then.product is Product.ALIGNMENT and not alignment:
            then = then.then
        return replace(operator, shows=operator.shows - hidden, then=without(then) if then else None)

    return replace(
        method,
        name="-no-".join([method.name, *missing]),
        summary=f"{method.summary} Ablated: without {', '.join(missing)}.",
        stages=tuple(Stage(tuple(map(without, stage.operators)), stage.until) for stage in method.stages),
        revise=without(method.revise) if method.revise else None,
    )
