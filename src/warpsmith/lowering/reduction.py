"""ATen operators that sum or compare along axes, as expressions: reductions, norms, losses, products.

Forms are chosen for float32: softmax subtracts the maximum, a variance is taken around the mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from warpsmith.lowering.expressions import NO_AXIS, Expr, Unsupported
from warpsmith.lowering.pointwise import Algebra
from warpsmith.lowering.terms import OperationCall, Term

_MEAN, _SUM = 1, 2  # torch's numbers of a loss's "reduction"


def apply(call: OperationCall) -> list[Term] | None:
    """The results of a reducing operator; None for other operators."""
    if call.name in ("max", "min") and call.overload in ("other",):
        return None
    handler = _HANDLERS.get(call.name)
    return handler(call) if handler else None


def reduce_over(call: OperationCall, kind: str, expr: Expr, axes: Sequence[int], ctype: str = "") -> Expr:
    """A reduction along axes; the operand itself where all axes have extent one."""
    real = tuple(a for a in axes if a != NO_AXIS)
    if not real:
        if kind.startswith("arg"):
            return call.pool.const(0, "int64_t")
        return expr
    return call.pool.make("reduce", ctype or expr.ctype, (expr,), name=kind, axes=real)


def _places(call: OperationCall, rank: int, dims: Any) -> list[int]:
    """The dimensions that a `dim` argument names, counted from 0; all dimensions where it names none."""
    if dims is None or dims == []:
        return list(range(rank))
    listed = dims if isinstance(dims, list) else [dims]
    if any(not isinstance(d, int) for d in listed):
        raise Unsupported(call.name)
    return sorted(d % rank for d in listed) if rank else []


def _rest(axes: Sequence[int], places: Sequence[int], keep: bool) -> tuple[int, ...]:
    if keep:
        return tuple(NO_AXIS if place in places else a for place, a in enumerate(axes))
    return tuple(a for place, a in enumerate(axes) if place not in places)


def element_count(call: OperationCall, axes: Sequence[int], ctype: str) -> Expr:
    """The number of elements along axes, as an expression."""
    return call.pool.make("extent", ctype, axes=tuple(a for a in axes if a != NO_AXIS))


def _simple(kind: str) -> Callable[[OperationCall], list[Term]]:
    """A handler for sum, mean, max, min, prod, argmax or argmin along some or all dimensions."""

    def handle(call: OperationCall) -> list[Term]:
        x = call.term(0)
        whole = call.overload == "default" and call.name not in ("amax", "amin", "argmax", "argmin")
        places = _places(call, len(x.axes), None if whole else call.number(1, "dim"))
        keep = bool(call.number(2, "keepdim", False)) and not whole
        along = [x.axes[p] for p in places]
        axes = _rest(x.axes, places, keep)
        if kind.startswith("arg"):
            if len([a for a in along if a != NO_AXIS]) > 1:
                raise Unsupported("a position in several dimensions")
            return [Term(reduce_over(call, kind, x.expr, along, "int64_t"), axes)]
        do = Algebra(call.pool, call.ctype)
        made = _sum_of_logarithms(call, do, do.cast(x.expr), along) if kind == "sum" else None
        made = made or reduce_over(call, "sum" if kind == "mean" else kind, do.cast(x.expr), along)
        if kind == "mean":
            made = do("div", made, element_count(call, along, do.ctype))
        results = [Term(made, axes)]
        if len(call.node.results) == 2:
            results.append(Term(reduce_over(call, f"arg{kind}", x.expr, along, "int64_t"), axes))
        return results

    return handle


def _sum_of_logarithms(call: OperationCall, do: Algebra, x: Expr, along: Sequence[int]) -> Expr | None:
    """The sum of a log-softmax along its axis: distances to the maximum are summed in the same pass as exponentials."""
    axes = tuple(a for a in along if a != NO_AXIS)
    if x.op != "sub" or x.args[1].op != "log" or do.ctype not in ("float", "double"):
        return None
    shifted, total = x.args[0], x.args[1].args[0]
    if total.op != "reduce" or total.name != "sum" or total.axes != axes or total.args[0].op != "exp":
        return None
    if total.args[0].args[0] is not shifted:
        return None
    common = do("mul", element_count(call, along, do.ctype), x.args[1])
    return do("sub", reduce_over(call, "sum", shifted, along), common)


def _softmax(call: OperationCall) -> list[Term]:
    x = call.term(0)
    do = Algebra(call.pool, call.ctype)
    along = [x.axes[int(call.number(1)) % len(x.axes)]] if x.axes else []
    shifted = do("sub", do.cast(x.expr), reduce_over(call, "max", do.cast(x.expr), along))
    total = reduce_over(call, "sum", do("exp", shifted), along)
    if call.name == "_softmax":
        return [Term(do("div", do("exp", shifted), total), x.axes)]
    return [Term(do("sub", shifted, do("log", total)), x.axes)]


def _logsumexp(call: OperationCall) -> list[Term]:
    x = call.term(0)
    do = Algebra(call.pool, call.ctype)
    places = _places(call, len(x.axes), call.number(1, "dim"))
    along = [x.axes[p] for p in places]
    largest = reduce_over(call, "max", do.cast(x.expr), along)
    total = reduce_over(call, "sum", do("exp", do("sub", do.cast(x.expr), largest)), along)
    infinite = do("eq", do("abs", largest), math.inf, ctype="bool")  # then differences to it are NaN
    made = do("select", infinite, largest, do("add", do("log", total), largest))
    return [Term(made, _rest(x.axes, places, bool(call.number(2, "keepdim", False))))]


def _moments(call: OperationCall, do: Algebra, x: Expr, along: Sequence[int], correction: float) -> tuple[Expr, Expr]:
    """The mean and the variance along axes."""
    terms = element_count(call, along, do.ctype)
    mean = do("div", reduce_over(call, "sum", x, along), terms)
    centred = do("sub", x, mean)
    squares = reduce_over(call, "sum", do("mul", centred, centred), along)
    return mean, do("div", squares, do("max", do("sub", terms, correction), 0.0) if correction else terms)


def _variance(call: OperationCall) -> list[Term]:
    x = call.term(0)
    do = Algebra(call.pool, call.ctype)
    if call.overload == "correction":
        dims, correction = call.number(1, "dim"), call.number(2, "correction", 1)
    elif call.overload == "dim":
        dims, correction = call.number(1, "dim"), int(call.number(2, "unbiased", True))
    else:
        dims, correction = None, int(call.number(1, "unbiased", True))
    places = _places(call, len(x.axes), dims)
    keep = bool(call.number(3 if call.overload == "dim" else -1, "keepdim", False))
    mean, variance = _moments(call, do, do.cast(x.expr), [x.axes[p] for p in places], float(correction or 0))
    if call.name.startswith("std"):
        variance = do("sqrt", variance)
    axes = _rest(x.axes, places, keep)
    return [Term(variance, axes), *([Term(mean, axes)] if call.name.endswith("mean") else [])]


def _layer_norm(call: OperationCall) -> list[Term]:
    x = call.term(0)
    do = Algebra(call.pool, call.ctype)
    rank = len(call.args[1]) if isinstance(call.args[1], list) else 1
    split = len(x.axes) - rank
    along = x.axes[split:]
    rms = call.name == "_fused_rms_norm"
    eps = call.number(3 if rms else 4, "eps", None)
    eps = float(eps) if eps is not None else 1.1920929e-07
    value = do.cast(x.expr)
    if rms:
        mean = call.pool.const(0.0, do.ctype)
        variance = do(
            "div", reduce_over(call, "sum", do("mul", value, value), along), element_count(call, along, do.ctype)
        )
        centred = value
    else:
        mean, variance = _moments(call, do, value, along, 0.0)
        centred = do("sub", value, mean)
    rstd = do("rsqrt", do("add", variance, eps))
    made, terms = do("mul", centred, rstd), [x]
    for place, op in ((2, "mul"), *(() if rms else ((3, "add"),))):
        if call.is_tensor(place):
            made = do(op, made, do.cast(call.term(place).expr))
            terms.append(call.term(place))
    kept = (*x.axes[:split], *((NO_AXIS,) * rank))
    axes = call.broadcast(terms)
    rest = [Term(rstd, kept)] if rms else [Term(mean, kept), Term(rstd, kept)]
    return [Term(made, axes), *rest]


def _batch_norm(call: OperationCall) -> list[Term]:
    """Batch norm with the statistics of the batch or with running ones; instance norm has a channel per instance."""
    legit = call.name == "_native_batch_norm_legit"
    if legit and call.overload != "no_stats":
        raise Unsupported("running statistics of a batch norm")
    training, eps = (call.number(3), call.number(5)) if legit else (call.number(5), call.number(7))
    running = not legit and (call.is_tensor(3) or call.is_tensor(4))
    if training == running or (running and not (call.is_tensor(3) and call.is_tensor(4))):
        raise Unsupported("a batch norm that changes its running statistics, or has only one of them")
    x = call.term(0)
    do = Algebra(call.pool, call.ctype)
    value, terms = do.cast(x.expr), [x]

    def of_channels(place: int) -> Expr:
        each = call.term(place)
        terms.append(Term(each.expr, (*each.axes, *((NO_AXIS,) * (len(x.axes) - 2)))))
        return do.cast(each.expr)

    if running:
        mean, variance = of_channels(3), of_channels(4)
    else:
        mean, variance = _moments(call, do, value, [axis for place, axis in enumerate(x.axes) if place != 1], 0.0)
    rstd = do("rsqrt", do("add", variance, float(eps)))
    made = do("mul", do("sub", value, mean), rstd)
    for place, op in ((1, "mul"), (2, "add")):
        if call.is_tensor(place):
            made = do(op, made, of_channels(place))
    result = Term(made, call.broadcast(terms))
    return [result] if running else [result, Term(mean, (x.axes[1],)), Term(rstd, (x.axes[1],))]


def _norm(call: OperationCall) -> list[Term]:
    x = call.term(0)
    do = Algebra(call.pool, call.ctype)
    vector = call.name == "linalg_vector_norm"
    order = call.number(1, "ord" if vector else "p", 2)
    order = 2 if order is None else order
    dims = call.number(2, "dim") if vector or "dim" in call.overload else None
    keep = bool(call.number(3, "keepdim", False)) if vector or "dim" in call.overload else False
    places = _places(call, len(x.axes), dims)
    along = [x.axes[p] for p in places]
    value, axes = do.cast(x.expr), _rest(x.axes, places, keep)
    if order == 2:
        return [Term(do("sqrt", reduce_over(call, "sum", do("mul", value, value), along)), axes)]
    if order == 1:
        return [Term(reduce_over(call, "sum", do("abs", value), along), axes)]
    if order == math.inf:
        return [Term(reduce_over(call, "max", do("abs", value), along), axes)]
    raise Unsupported(f"the norm of order {order}")


def _loss(call: OperationCall) -> list[Term]:
    x, y = call.term(0), call.term(1)
    do = Algebra(call.pool, call.ctype)
    a, b = do.cast(x.expr), do.cast(y.expr)
    reduction = call.number(2, "reduction", _MEAN)
    if call.name == "mse_loss":
        difference = do("sub", a, b)
        made = do("mul", difference, difference)
    elif call.name == "binary_cross_entropy":
        if call.is_tensor(2):
            raise Unsupported("weights of a loss")
        reduction = call.number(3, "reduction", _MEAN)
        yes = do("mul", b, do("max", do("log", a), -100.0))
        made = do("neg", do("add", yes, do("mul", do("sub", 1.0, b), do("max", do("log1p", do("neg", a)), -100.0))))
    elif call.name == "binary_cross_entropy_with_logits":
        if call.is_tensor(2) or call.is_tensor(3):
            raise Unsupported("weights of a loss")
        reduction = call.number(4, "reduction", _MEAN)
        rest = do("log1p", do("exp", do("neg", do("abs", a))))
        made = do("add", do("sub", do("max", a, 0.0), do("mul", a, b)), rest)
    elif call.name == "soft_margin_loss":
        made = do("log1p", do("exp", do("neg", do("mul", a, b))))
    else:
        far = do("abs", do("sub", a, b))
        limit = float(call.number(3, "beta" if call.name == "smooth_l1_loss" else "delta", 1.0))
        if limit == 0:
            raise Unsupported("a smooth loss without a limit")
        square = do("mul", do("mul", far, far), 0.5 / (limit if call.name == "smooth_l1_loss" else 1.0))
        line = do("mul", do("sub", far, 0.5 * limit), 1.0 if call.name == "smooth_l1_loss" else limit)
        made = do("select", do("lt", far, limit, ctype="bool"), square, line)
    axes = call.broadcast([x, y])
    return [_reduced(call, do, made, axes, reduction)]


def _reduced(call: OperationCall, do: Algebra, made: Expr, axes: tuple[int, ...], reduction: int) -> Term:
    if reduction not in (_MEAN, _SUM):
        return Term(made, axes)
    total = reduce_over(call, "sum", made, axes)
    return Term(do("div", total, element_count(call, axes, do.ctype)) if reduction == _MEAN else total, ())


def _nll(call: OperationCall) -> list[Term]:
    """The negative log-likelihood loss: in each row the negative of the element at the label."""
    logs, labels = call.term(0), call.term(1)
    if call.is_tensor(2) or len(logs.axes) not in (1, 2):
        raise Unsupported("weights or further dimensions of a loss")
    do = Algebra(call.pool, call.ctype)
    reduction, ignored = call.number(3), call.number(4)
    axes = call.broadcast([Term(logs.expr, logs.axes[:-1]), labels])
    label = labels.expr
    ignore = call.pool.make("eq", "bool", (label, call.pool.const(ignored, "int64_t")))
    inside = call.pool.make("select", "int64_t", (ignore, call.pool.const(0, "int64_t"), label))
    picked = call.pool.make("pick", do.ctype, (do.cast(logs.expr), inside), axes=logs.axes[-1:])
    loss = do("select", ignore, 0.0, do("neg", picked))
    weight = reduce_over(call, "sum", do("select", ignore, 0.0, 1.0), axes)
    if reduction == _MEAN:
        return [Term(do("div", reduce_over(call, "sum", loss, axes), weight), ()), Term(weight, ())]
    if reduction == _SUM:
        return [Term(reduce_over(call, "sum", loss, axes), ()), Term(weight, ())]
    return [Term(loss, axes)]


def _product(call: OperationCall) -> list[Term]:
    """A matrix product, with the matrix or vector that addmm, baddbmm and addmv add."""
    adds = call.name in ("addmm", "baddbmm", "addmv")
    first = 1 if adds else 0
    left = call.term(first)
    right = call.lowering.copy(call.term(first + 1))  # both operands may be the same tensor
    do = Algebra(call.pool, call.ctype)
    join = call.lowering.axes.join
    batch: tuple[int, ...] = ()
    if call.name in ("bmm", "baddbmm"):
        batch = (join(left.axes[0], right.axes[0]),)
    inner = join(left.axes[-1], right.axes[len(batch)])
    made = reduce_over(call, "sum", do("mul", do.cast(left.expr), do.cast(right.expr)), [inner])
    axes = (*batch, *left.axes[len(batch) : -1], *right.axes[len(batch) + 1 :])
    if not adds:
        return [Term(made, axes)]
    alpha, beta = call.number(3, "alpha", 1), call.number(4, "beta", 1)
    made = made if alpha == 1 else do("mul", made, float(alpha))
    extra = do.cast(call.term(0).expr)
    extra = extra if beta == 1 else do("mul", extra, float(beta))
    return [Term(do("add", made, extra), call.broadcast([Term(made, axes), call.term(0)]))]


def _any(call: OperationCall) -> list[Term]:
    x = call.term(0)
    places = _places(call, len(x.axes), None if call.overload == "default" else call.number(1, "dim"))
    keep = bool(call.number(2, "keepdim", False)) and call.overload != "default"
    do = Algebra(call.pool, "int64_t")
    truth = x.expr if x.expr.ctype == "bool" else do("ne", x.expr, 0, ctype="bool")
    found = reduce_over(call, "max" if call.name == "any" else "min", do.cast(truth), [x.axes[p] for p in places])
    return [Term(do.cast(found, call.ctype), _rest(x.axes, places, keep))]


_HANDLERS: Mapping[str, Callable[[OperationCall], list[Term]]] = {
    **{name: _simple(name) for name in ("sum", "mean", "max", "min", "prod", "argmax", "argmin")},
    "amax": _simple("max"),
    "amin": _simple("min"),
    "any": _any,
    "all": _any,
    "_softmax": _softmax,
    "_log_softmax": _softmax,
    "logsumexp": _logsumexp,
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), _variance),
    **dict.fromkeys(("native_layer_norm", "_fused_rms_norm"), _layer_norm),
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit"), _batch_norm),
    **dict.fromkeys(("norm", "linalg_vector_norm"), _norm),
    **dict.fromkeys(("mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss"), _loss),
    **dict.fromkeys(("binary_cross_entropy", "binary_cross_entropy_with_logits"), _loss),
    "nll_loss_forward": _nll,
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot"), _product),
}
