"""Element-wise ATen operators as expressions of a few scalar functions.

Activations have a form that keeps its accuracy in float32; `emitter` writes each scalar function in C++ and CUDA.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from warpsmith.lowering.expressions import Expr, ExpressionPool, Unsupported, wider
from warpsmith.lowering.terms import Lowering, OperationCall, Term
from warpsmith.model.task import Family, Operation, Outline, OutlineValue, Task

Unary = Callable[["Algebra", Expr], Expr]


class Algebra:
    """Arithmetic on expressions of one C type; numbers become constants."""

    def __init__(self, pool: ExpressionPool, ctype: str) -> None:
        self._pool = pool
        self.ctype = ctype

    def __call__(self, op: str, *args: Expr | float | bool, ctype: str = "") -> Expr:
        """The expression of a scalar function of expressions or numbers."""
        kind = ctype or self.ctype
        exprs = [a if isinstance(a, Expr) else self._pool.const(a, self.ctype) for a in args]
        return self._pool.make(op, kind, exprs)

    def cast(self, expr: Expr, ctype: str = "") -> Expr:
        """An expression converted to the type of this algebra, or to another type."""
        kind = ctype or self.ctype
        if expr.ctype == kind:
            return expr
        if expr.op == "const":
            return self._pool.const(expr.number, kind)
        return self._pool.make("cast", kind, (expr,))


def sigmoid(do: Algebra, x: Expr) -> Expr:
    """1 / (1 + e^-x)."""
    return do("div", 1.0, do("add", do("exp", do("neg", x)), 1.0))


def silu(do: Algebra, x: Expr) -> Expr:
    """x / (1 + e^-x)."""
    return do("div", x, do("add", do("exp", do("neg", x)), 1.0))


def gelu(do: Algebra, x: Expr, approximate: str) -> Expr:
    """GELU with erf, or its tanh approximation, written with the equivalent logistic function."""
    if approximate == "tanh":
        inner = do("mul", do("add", do("mul", do("mul", do("mul", x, x), x), 0.044715), x), 2 * math.sqrt(2 / math.pi))
        return do("div", x, do("add", do("exp", do("neg", inner)), 1.0))
    return do("mul", do("mul", x, 0.5), do("add", do("erf", do("mul", x, math.sqrt(0.5))), 1.0))


def clamp(do: Algebra, x: Expr, low: float | Expr | None, high: float | Expr | None) -> Expr:
    """x limited to two bounds; NaN stays NaN."""
    x = x if low is None else do("max", x, low)
    return x if high is None else do("min", x, high)


def elu(do: Algebra, x: Expr, alpha: float, scale: float, input_scale: float) -> Expr:
    """x above zero, alpha (e^x - 1) below."""
    inner = x if input_scale == 1 else do("mul", x, input_scale)
    below = do("mul", do("expm1", do("min", inner, 0.0)), alpha * scale)
    above = x if scale == 1 else do("mul", x, scale)
    return do("select", do("gt", x, 0.0, ctype="bool"), above, below)


def softplus(do: Algebra, x: Expr, beta: float, threshold: float) -> Expr:
    """log(1 + e^(beta x)) / beta."""
    inner = x if beta == 1 else do("mul", x, beta)
    soft = do("log1p", do("exp", do("min", inner, threshold)))
    return do("select", do("gt", inner, threshold, ctype="bool"), x, soft if beta == 1 else do("div", soft, beta))


def log_sigmoid(do: Algebra, x: Expr) -> Expr:
    """min(x, 0) - log(1 + e^-|x|)."""
    return do("sub", do("min", x, 0.0), do("log1p", do("exp", do("neg", do("abs", x)))))


def mish(do: Algebra, x: Expr) -> Expr:
    """x tanh(log(1 + e^x)), with the tanh of a logarithm written as a quotient."""
    e = do("exp", do("min", x, 20.0))
    n = do("mul", e, do("add", e, 2.0))
    return do("select", do("gt", x, 20.0, ctype="bool"), x, do("div", do("mul", x, n), do("add", n, 2.0)))


def power(do: Algebra, x: Expr, exponent: float) -> Expr:
    """x to a constant power: products for small whole exponents, sqrt for 0.5."""
    if exponent == 1:
        return x
    if exponent == 0.5:
        return do("sqrt", x)
    if exponent == -0.5:
        return do("rsqrt", x)
    if exponent == -1:
        return do("div", 1.0, x)
    if exponent in (2, 3, 4):
        square = do("mul", x, x)
        return {2: square, 3: do("mul", square, x), 4: do("mul", square, square)}[int(exponent)]
    return do("pow", x, float(exponent))


def sign(do: Algebra, x: Expr) -> Expr:
    """The sign of x: 1, 0 or -1."""
    return do("sub", do("cast", do("gt", x, 0.0, ctype="bool")), do("cast", do("lt", x, 0.0, ctype="bool")))


def _plain(name: str) -> Unary:
    return lambda do, x: do(name, x)


def _elu(do: Algebra, x: Expr, call: OperationCall) -> Expr:
    if call.name == "selu":
        return elu(do, x, 1.6732632423543772, 1.0507009873554805, 1.0)
    alpha = float(call.number(1, "alpha", 1))
    if call.name == "celu":
        return elu(do, x, alpha, 1.0, 1 / alpha)
    return elu(do, x, alpha, float(call.number(2, "scale", 1)), float(call.number(3, "input_scale", 1)))


def _softplus(do: Algebra, x: Expr, call: OperationCall) -> Expr:
    return softplus(do, x, float(call.number(1, "beta", 1)), float(call.number(2, "threshold", 20)))


_PLAIN = ("neg", "abs", "exp", "log", "log1p", "log2", "exp2", "expm1", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf")
_RARE = ("log10", "erfc", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh")
_UNARY: Mapping[str, Unary] = {
    **{name: _plain(name) for name in (*_PLAIN, *_RARE, "floor", "ceil", "trunc")},
    "round": _plain("rint"),
    "sigmoid": sigmoid,
    "silu": silu,
    "mish": mish,
    "relu": lambda do, x: do("max", x, 0.0),
    "relu6": lambda do, x: clamp(do, x, 0.0, 6.0),
    "square": lambda do, x: do("mul", x, x),
    "reciprocal": lambda do, x: do("div", 1.0, x),
    "sign": sign,
    "sgn": sign,
    "hardsigmoid": lambda do, x: do("mul", clamp(do, do("add", x, 3.0), 0.0, 6.0), 1 / 6),
    "hardswish": lambda do, x: do("mul", do("mul", x, clamp(do, do("add", x, 3.0), 0.0, 6.0)), 1 / 6),
    "log_sigmoid": log_sigmoid,
    "log_sigmoid_forward": log_sigmoid,
}
_OPTIONED: Mapping[str, Callable[[Algebra, Expr, OperationCall], Expr]] = {
    "gelu": lambda do, x, call: gelu(do, x, call.number(1, "approximate", "none")),
    "leaky_relu": lambda do, x, call: do(
        "select", do("gt", x, 0.0, ctype="bool"), x, do("mul", x, float(call.number(1, "negative_slope", 0.01)))
    ),
    "elu": _elu,
    "celu": _elu,
    "selu": _elu,
    "softplus": _softplus,
    "hardtanh": lambda do, x, call: clamp(do, x, call.number(1, "min_val", -1.0), call.number(2, "max_val", 1.0)),
    "clamp_min": lambda do, x, call: clamp(do, x, _operand(do, call, 1), None),
    "clamp_max": lambda do, x, call: clamp(do, x, None, _operand(do, call, 1)),
    "threshold": lambda do, x, call: do(
        "select", do("gt", x, float(call.number(1)), ctype="bool"), x, float(call.number(2))
    ),
    "softshrink": lambda do, x, call: do(
        "sub", x, clamp(do, x, -float(call.number(1, "lambd", 0.5)), float(call.number(1, "lambd", 0.5)))
    ),
    "hardshrink": lambda do, x, call: do(
        "select", do("le", do("abs", x), float(call.number(1, "lambd", 0.5)), ctype="bool"), 0.0, x
    ),
}
_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "div": "div", "maximum": "max", "minimum": "min", "pow": "pow"}
_BINARY |= {"max": "max", "min": "min", "rsub": "sub", "true_divide": "div"}
_COMPARE = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
_LOGIC = {"logical_and": "and", "logical_or": "or", "bitwise_and": "and", "bitwise_or": "or"}
_LOGIC |= {"__and__": "and", "__or__": "or"}


def apply(call: OperationCall) -> list[Term] | None:
    """The result of an element-wise operator; None for other operators."""
    name = call.name
    if name in _UNARY or name in _OPTIONED:
        do = Algebra(call.pool, call.ctype)
        terms = [call.term(place) for place in range(len(call.args)) if call.is_tensor(place)]
        x = do.cast(terms[0].expr)
        made = _UNARY[name](do, x) if name in _UNARY else _OPTIONED[name](do, x, call)
        return [Term(made, call.broadcast(terms))]
    if name == "clamp":
        return _clamp(call)
    if name in ("where", "masked_fill"):
        return _select(call)
    if name in ("logical_not", "bitwise_not"):
        if call.ctype != "bool":
            return None
        do = Algebra(call.pool, "bool")
        return [Term(do("not", do.cast(call.term(0).expr)), call.term(0).axes)]
    if name in _LOGIC and call.ctype == "bool":
        return _binary(call, _LOGIC[name])
    if name in _COMPARE or name in _BINARY:
        return _binary(call, _COMPARE.get(name) or _BINARY[name])
    if name in ("addcmul", "addcdiv", "lerp", "xlogy", "prelu", "_prelu_kernel"):
        return _ternary(call)
    return None


def function_of_one(task: Task, node: Operation) -> tuple[ExpressionPool, Expr, Expr]:
    """An element-wise operator of one float tensor and numbers: the operand and the result, as expressions."""
    arguments, operand = json.loads(node.arguments), OutlineValue("x", "float32", ())
    lowering = Lowering(task, Outline(Family.ELEMENTWISE, (operand,), (node,), ()))
    given = [{"$": operand.name}, *arguments[1:]]
    call = OperationCall(lowering, node, node.op.split(".")[1], given, json.loads(node.keywords))
    made = apply(call)
    if made is None:
        raise Unsupported(node.op)
    return lowering.pool, lowering.term(operand.name).expr, made[0].expr


def _operand(do: Algebra, call: OperationCall, place: int, key: str = "") -> Expr | float | None:
    """An argument as an expression or a number; None if it is missing."""
    if call.is_tensor(place):
        return do.cast(call.term(place).expr)
    if place < len(call.args) and isinstance(call.args[place], dict):
        number, divides, dim = str(call.args[place]["$"]).partition("/")
        if divides and not dim.startswith("/"):  # "0.1/cols"
            return do("div", float(number), call.pool.make("extent", do.ctype, axes=(call.lowering.axes.fresh(dim),)))
        axis = call.lowering.axes.fresh(call.args[place]["$"])  # an extent of the task used as a number
        return call.pool.make("extent", do.ctype, axes=(axis,))
    value = call.number(place, key)
    return None if value is None else float(value) if do.ctype in ("float", "double") else value


def _clamp(call: OperationCall) -> list[Term]:
    do = Algebra(call.pool, call.ctype)
    terms = [call.term(place) for place in range(len(call.args)) if call.is_tensor(place)]
    bounds = [_operand(do, call, 1, "min"), _operand(do, call, 2, "max")]
    return [Term(clamp(do, do.cast(terms[0].expr), *bounds), call.broadcast(terms))]


def _select(call: OperationCall) -> list[Term]:
    do = Algebra(call.pool, call.ctype)
    order = (0, 1, 2) if call.name == "where" else (1, 2, 0)
    terms = [call.term(place) for place in range(len(call.args)) if call.is_tensor(place)]
    condition = call.term(order[0]).expr
    if condition.ctype != "bool":
        raise Unsupported("a condition that is no bool")
    values = [_operand(do, call, place) for place in order[1:]]
    if any(value is None for value in values):
        raise Unsupported("a choice of nothing")
    return [Term(do("select", condition, *(v for v in values if v is not None)), call.broadcast(terms))]


def _binary(call: OperationCall, op: str) -> list[Term]:
    terms = [call.term(place) for place in (0, 1) if call.is_tensor(place)]
    rounding = call.kwargs.get("rounding_mode")
    if not terms or (rounding and call.ctype not in ("float", "double")):
        raise Unsupported(f"{call.name} of this kind")
    compares = op in _COMPARE
    kind = call.ctype
    if compares:
        kind = terms[0].expr.ctype
        for term in terms[1:]:
            kind = wider(kind, term.expr.ctype)
        if len(terms) == 1 and isinstance(call.number(1), float):
            kind = wider(kind, "float")
    do = Algebra(call.pool, kind)
    left, right = _operand(do, call, 0), _operand(do, call, 1)
    if left is None or right is None:
        raise Unsupported(f"{call.name} of nothing")
    if call.name == "rsub":
        left, right = right, left
    alpha: Any = call.number(2, "alpha", 1)
    if alpha != 1:
        scaled = left if call.name == "rsub" else right
        scaled = do("mul", scaled, alpha) if isinstance(scaled, Expr) else scaled * alpha
        left, right = (scaled, right) if call.name == "rsub" else (left, scaled)
    if op == "pow" and isinstance(right, int | float) and isinstance(left, Expr) and kind in ("float", "double"):
        return [Term(power(do, left, right), call.broadcast(terms))]
    if op == "pow" and kind not in ("float", "double"):
        raise Unsupported("powers of integers")
    made = do(op, left, right, ctype="bool" if compares else "")
    return [Term(do(rounding, made) if rounding else made, call.broadcast(terms))]


def _ternary(call: OperationCall) -> list[Term]:
    do = Algebra(call.pool, call.ctype)
    terms = [call.term(place) for place in range(len(call.args)) if call.is_tensor(place)]
    a, b, c = [*(_operand(do, call, place) for place in range(len(call.args))), None][:3]
    axes = call.broadcast(terms)
    if a is None or b is None:
        raise Unsupported(call.name)
    if call.name == "xlogy":
        zero = do("eq", a, 0.0, ctype="bool")
        return [Term(do("select", zero, 0.0, do("mul", a, do("log", b))), axes)]
    if call.name in ("prelu", "_prelu_kernel"):
        return [Term(do("select", do("gt", a, 0.0, ctype="bool"), a, do("mul", a, b)), axes)]
    if c is None:
        raise Unsupported(call.name)
    if call.name == "lerp":
        return [Term(do("add", a, do("mul", c, do("sub", b, a))), axes)]
    scaled = do("mul" if call.name == "addcmul" else "div", b, c)
    value = float(call.number(-1, "value", 1))
    return [Term(do("add", a, scaled if value == 1 else do("mul", scaled, value)), axes)]
