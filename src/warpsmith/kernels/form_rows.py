"""Rows: element-wise operations around reductions over the last axes, such as softmax, norms and sums of rows.

The lowering of the templates says what is computed. Here it becomes a policy for the kernels of `short_rows.cuh`, which
keep one number for each element of a row: the input itself, or what the operations before the reductions make of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from warpsmith.kernels.form_task import FormKernel, FormTask, NotThisForm, require, text, tunable
from warpsmith.lowering.cuda_packs import split
from warpsmith.lowering.emitter import COSTLY, Context, Emitter, Load, nest, wide
from warpsmith.lowering.expressions import (
    NO_AXIS,
    Expr,
    ExpressionPool,
    Unsupported,
    loads,
    needed_loads,
    reduces,
    subexpressions,
    without,
)
from warpsmith.lowering.lower import lower
from warpsmith.lowering.stages import KernelLayout, StageKind, TemplateStage, plan_stages
from warpsmith.model.brief import Problem
from warpsmith.model.build import DeviceKind
from warpsmith.model.contract import ArgumentKind
from warpsmith.model.task import Family

SHORT = 2048
"""Rows of at most so many elements belong to one warp."""

_KEPT = 65536  # longer rows stay in shared memory, where only an input as it is can be fetched
_LONGEST = 16 * 1024 * 6 * 4 - 4  # elements that the registers of a cluster keep: longer rows would be computed twice
_NOT_BESIDE = ("pick", "index", "element")  # what is no function of the elements at the same place
_PLAIN = {"sum": "0.0f", "prod": "1.0f", "max": "-INFINITY", "min": "INFINITY"}
_DEVICE = "__device__ __forceinline__"
_DECLARED = re.compile(r"^const (\w+) (\w+) = ")


def rows(task: FormTask) -> FormKernel:
    """Element-wise operations around reductions over the last axes."""
    return _written(task, longest=None)


def _written(task: FormTask, longest: int | None) -> FormKernel:
    require(not task.on_cpu and task.outline.family is Family.ROW_REDUCTION)
    require(all(spec.dtype in ("float32", "bool") for spec in task.task.tensors))
    problem = Problem(task.task, task.contract, "cuda", "", DeviceKind.CUDA, "sm_90a", (), task.outline)
    try:
        layout = plan_stages(lower(task.task, task.outline))
        require(len(layout.stages) == 1 and not layout.slots)
        context = Context(problem, layout, device=True)
        policy = _RowPolicy(task, context, layout, layout.stages[0])
        require(longest is None or max(policy.lengths) <= longest)
        return policy.kernel()
    except Unsupported as error:
        raise NotThisForm from error


def short_rows(task: FormTask) -> FormKernel:
    """The same where all rows are so short that a warp has several of them, or one."""
    return _written(task, longest=SHORT)


@dataclass(frozen=True)
class _Softmax:
    """The largest value of a row, and the sum of the exponentials of the distances to it."""

    value: Expr
    most: Expr
    total: Expr


@dataclass(frozen=True)
class _Moments:
    """The mean of a row, and the sum of the squared distances to it."""

    value: Expr
    total: Expr
    mean: Expr
    squares: Expr


class _RowEmitter(Emitter):
    """Writes expressions as `Emitter` does; NaN stays NaN, and exponentials of a softmax are those of its sum."""

    pair: _Softmax | None = None

    def child(self, load: Load) -> Emitter:
        """An emitter for an inner scope, in which all values known here are known."""
        inner = _RowEmitter(self.context, load, self.known)
        inner.inverse = dict(self.inverse)
        inner.pair = self.pair
        return inner

    def _text(self, expr: Expr) -> str:
        if expr.op in ("max", "min") and expr.ctype == "float":
            return f"{expr.op}_nan({self.value(expr.args[0])}, {self.value(expr.args[1])})"
        if self.pair and expr.op == "exp":
            (shifted,) = expr.args
            if shifted.op == "sub" and shifted.args == (self.pair.value, self.pair.most):
                return f"QuickSoftmax::power({self.value(self.pair.value)}, {self.value(self.pair.most)})"
        return super()._text(expr)


class _RowPolicy:
    """Writes the policy of one stage, and the functions of the contract."""

    def __init__(self, task: FormTask, context: Context, layout: KernelLayout, stage: TemplateStage) -> None:
        require(stage.kind is StageKind.ROWS and not stage.inner and bool(stage.reduces) and bool(stage.outer))
        self.task = task
        self.context = context
        self.pool: ExpressionPool = layout.pool
        self.stage = stage
        self.bound = frozenset(stage.along)
        context.names = {source: f"given.{name}" for source, name in context.names.items()}
        self.where = [(group, f"o{n}_") for n, group in enumerate(stage.outer)]
        self.order = (*(axis for group in stage.outer for axis in group), *stage.along)
        self.wide = [s for s in stage.stores if set(s.axes) & self.bound]
        self.narrow = [s for s in stage.stores if not set(s.axes) & self.bound]
        for store in stage.stores:
            require(store.dtype == "float32" and store.expr.ctype == "float")
        require(all(store.axes == self.order for store in self.wide))
        every = list(subexpressions(*(s.expr for s in stage.stores)))
        require(all(e.op not in _NOT_BESIDE and e.ctype != "double" for e in every))
        require(all(self._is_beside(e) for e in every if e.op == "load"))
        self.softmax = self._find_softmax()
        self.moments = self._find_moments()
        self.plain = [r for r in stage.reduces if r not in self._paired]
        require(all(r.name in _PLAIN and r.ctype == "float" and not reduces(*r.args) for r in self.plain))
        self.value = self._choose_value()

    # --- what is reduced ---

    def _find_softmax(self) -> _Softmax | None:
        for total in self.stage.reduces:
            (operand,) = total.args
            if total.name == "sum" and operand.op == "exp" and operand.args[0].op == "sub":
                value, most = operand.args[0].args
                if most.op == "reduce" and most.name == "max" and most.args[0] is value and not reduces(value):
                    return _Softmax(value, most, total)
        return None

    def _find_moments(self) -> _Moments | None:
        for squares in self.stage.reduces:
            (operand,) = squares.args
            if squares.name != "sum" or operand.op != "mul" or operand.args[0] is not operand.args[1]:
                continue
            centred = operand.args[0]
            if centred.op != "sub" or centred.args[1].op != "div":
                continue
            value, mean = centred.args
            total, count = mean.args
            counts_row = count.op == "extent" and frozenset(count.axes) == self.bound
            sums_row = total.op == "reduce" and total.name == "sum" and total.args[0] is value
            if counts_row and sums_row and not reduces(value):
                return _Moments(value, total, mean, squares)
        return None

    @property
    def _paired(self) -> tuple[Expr, ...]:
        softmax = (self.softmax.most, self.softmax.total) if self.softmax else ()
        return (*softmax, *((self.moments.total, self.moments.squares) if self.moments else ()))

    @cached_property
    def operands(self) -> list[Expr]:
        """What is reduced, without the parts of pairs that depend on the row's own results."""
        pairs = [pair.value for pair in (self.softmax, self.moments) if pair]
        return [*(r.args[0] for r in self.plain), *pairs]

    def _choose_value(self) -> Expr:
        """The number that is kept of each element: all operands are functions of it alone, without parameters."""
        found: list[Expr] = []
        for each in subexpressions(*self.operands):
            if each.op == "const" or each.ctype != "float" or not each.free & self.bound or reduces(each):
                continue
            rest = list(subexpressions(*without(self.pool, self.operands, each)))
            inside = [load for load in loads(each) if self._is_whole(load)]
            if inside and not any(e.op in ("load", "extent") for e in rest):
                found.append(each)
        require(bool(found))
        value = found[0]
        lengths = self.lengths
        if any(e.op in COSTLY for e in subexpressions(*self.operands)) and max(lengths) <= _KEPT:
            # What is costly is computed once, if nothing else needs what it is made of.
            stored = [s.expr for s in self.wide]
            for each in found[1:]:
                known = dict.fromkeys((each, *self.stage.reduces), "")
                if not any(self._is_whole(e) for e in needed_loads(stored, known)):
                    value = each
        require(self._is_whole(value) or max(lengths) <= _LONGEST)
        return value

    @cached_property
    def lengths(self) -> list[int]:
        """The elements of a row, in each workload."""
        extents = [self.context.layout.axes.extent(axis) for axis in self.stage.along]
        return [math.prod(self.task.size(e, each) for e in extents) for each in self.task.task.workloads]

    # --- loads ---

    def _is_whole(self, load: Expr) -> bool:
        """Whether a load has the shape of all rows."""
        return load.op == "load" and tuple(a for a in load.axes if a != NO_AXIS) == self.order

    def _is_beside(self, load: Expr) -> bool:
        """Whether neighbours along the row are neighbours in memory, or the load is the same for the whole row."""
        if load.ctype not in ("float", "bool"):
            return False
        return not load.free & self.bound or self.context.stride(load.axes, self.stage.along) == "1"

    def _fixed(self, load: Expr) -> str:
        """The load of what is the same for a whole row."""
        if load.free & self.bound:
            raise Unsupported("an element of a row before the row")
        name = self.context.names.get(load.name, load.name)
        return f"{name}[{self.context.offset(load.axes, self.where)}]"

    def _sides(self, exprs: Sequence[Expr]) -> list[Expr]:
        """The loads of elements that expressions need beside the kept value."""
        known = dict.fromkeys((self.value, *self.stage.reduces), "")
        return sorted((e for e in needed_loads(exprs, known) if e.free & self.bound), key=lambda e: e.name)

    def _packs(self, sides: Sequence[Expr], base: Callable[[Expr], str]) -> tuple[list[str], Load]:
        """Lines that load packs of the sides, and the loads of element e_ of these packs."""
        names = {side: self.context.fresh("pack") for side in sides}
        lines = []
        for side, name in names.items():
            pointer = self.context.names.get(side.name, side.name)
            if self._is_whole(side) and side.ctype == "float":
                lines.append(f"const float4 {name} = load_masked({pointer}, p_, mask_, 0.0f);")
            else:
                at = "p_ * 4" if self._is_whole(side) else _sum(base(side), "column_")
                lines.append(f"const float4 {name} = load_beside({pointer}, {at}, mask_);")

        def load(expr: Expr) -> str:
            if expr not in names:
                return self._fixed(expr)
            return f"part({names[expr]}, e_)" + (" != 0.0f" if expr.ctype == "bool" else "")

        return lines, load

    def _emitter(self, load: Load) -> _RowEmitter:
        made = _RowEmitter(self.context, load)
        made.pair = self.softmax
        return made

    def _indexed(self, lines: Sequence[str]) -> list[str]:
        """Lines after those that compute the indices which they use from the number of the row."""
        used = set(re.findall(r"\bo\d+_", " ".join(lines)))
        if not used:
            return list(lines)
        parts = [
            line for line in split(self.context, self.stage.outer) if not (m := _DECLARED.match(line)) or m[2] in used
        ]
        return ["int64_t o_ = row_;", *parts, *lines]

    # --- the parts of the policy ---

    @cached_property
    def fill(self) -> float:
        """What stands in for elements that do not exist; it leaves reductions as they are where a number can."""
        if self.softmax and self.softmax.value is self.value:
            return -math.inf
        found = {{"max": -math.inf, "min": math.inf}.get(r.name, 0.0) for r in self.plain}
        return found.pop() if len(found) == 1 and not (self.softmax or self.moments) else 0.0

    def _is_neutral(self, kind: str, operand: Expr) -> bool:
        wanted = {"max": -math.inf, "min": math.inf, "prod": 1.0}.get(kind, 0.0)
        return _at(operand, self.value, self.fill) == wanted

    def _local(self) -> list[str]:
        """`local`: what is known of some elements."""
        plain = [(f"a{n}_", r.name, r.args[0]) for n, r in enumerate(self.plain)]
        if self.softmax:
            plain.append(("most_", "max", self.softmax.value))
        if self.moments:
            plain.append(("sum_", "sum", self.moments.value))
        lines = [f"float {name}[4] = {{{', '.join([_PLAIN[kind]] * 4)}}};" for name, kind, _ in plain]
        inner = self._inside(needs_mask=any(not self._is_neutral(kind, operand) for _, kind, operand in plain))
        each = self._emitter(_no_load)
        each.known[self.value] = "v_"
        for name, kind, operand in plain:
            made = each.value(operand)
            if not self._is_neutral(kind, operand):
                made = f"(in_ ? {made} : {_PLAIN[kind]})"
            each.lines.append(f"{name}[e] = {_merged(kind, f'{name}[e]', made)};")
        lines += _elements([*inner, *each.lines])
        lines.append("Stat s;")
        for name, kind, _ in plain:
            halves = [_merged(kind, f"{name}[{a}]", f"{name}[{a + 1}]") for a in (0, 2)]
            whole = _merged(kind, *(f"({half})" if kind in ("sum", "prod") else half for half in halves))
            target = {"most_": "s.softmax.most", "sum_": "const float all_"}.get(name, f"s.{name}")
            lines.append(f"{target} = {whole};")
        if self.softmax:
            lines += self._second_softmax(self.softmax)
        if self.moments:
            lines += self._second_moments(self.moments)
        lines.append("return s;")
        head = f"static {_DEVICE} Stat local(const float4 (&v)[PACKS], unsigned long long bits) {{"
        return ["template <int PACKS>", head, *nest(lines), "}"]

    def _inside(self, *, needs_mask: bool) -> list[str]:
        mask = ["const bool in_ = bits >> (4 * p + e) & 1ull;"] if needs_mask else []
        return ["const float v_ = part(v[p], e);", *mask]

    def _second_softmax(self, pair: _Softmax) -> list[str]:
        masked = not self._is_neutral("max", pair.value)
        each = self._emitter(_no_load)
        each.known[self.value] = "v_"
        power = f"QuickSoftmax::power({each.value(pair.value)}, low_)"
        added = f"(in_ ? {power} : 0.0f)" if masked else power
        return [
            "const float low_ = s.softmax.most == -INFINITY ? 0.0f : s.softmax.most;",
            "float powers_[4] = {0.0f, 0.0f, 0.0f, 0.0f};",
            *_elements([*self._inside(needs_mask=masked), *each.lines, f"powers_[e] += {added};"]),
            "s.softmax.sum = (powers_[0] + powers_[1]) + (powers_[2] + powers_[3]);",
        ]

    def _second_moments(self, pair: _Moments) -> list[str]:
        each = self._emitter(_no_load)
        each.known[self.value] = "v_"
        sums = ("squares_[e] = fmaf(d_, d_, squares_[e]);", "apart_[e] += d_;")
        apart = f"const float d_ = in_ ? {each.value(pair.value)} - s.moments.mean : 0.0f;"
        return [
            "s.moments.count = float(__popcll(bits));",
            "s.moments.mean = s.moments.count > 0.0f ? __fdividef(all_, s.moments.count) : 0.0f;",
            "float squares_[4] = {0.0f, 0.0f, 0.0f, 0.0f}, apart_[4] = {0.0f, 0.0f, 0.0f, 0.0f};",
            *_elements([*self._inside(needs_mask=True), *each.lines, apart, *sums]),
            "// The mean was rounded: how far it is off is known from the distances to it.",
            "const float off_ = (apart_[0] + apart_[1]) + (apart_[2] + apart_[3]);",
            "const float shift_ = s.moments.count > 0.0f ? __fdividef(off_, s.moments.count) : 0.0f;",
            "s.moments.mean += shift_;",
            "const float square_ = (squares_[0] + squares_[1]) + (squares_[2] + squares_[3]);",
            "s.moments.square = max_nan(square_ - off_ * shift_, 0.0f);",
        ]

    def _stat(self) -> list[str]:
        """The struct of what is known of elements, with `none` and `merge`."""
        fields = [f"float a{n}_;" for n in range(len(self.plain))]
        none = [_PLAIN[r.name] for r in self.plain]
        merged = [_merged(r.name, f"a.a{n}_", f"b.a{n}_") for n, r in enumerate(self.plain)]
        for name, kind, pair in (("softmax", "QuickSoftmax", self.softmax), ("moments", "Moments", self.moments)):
            if pair:
                fields.append(f"{kind}::Stat {name};")
                none.append(f"{kind}::none()")
                merged.append(f"{kind}::merge(a.{name}, b.{name})")
        return [
            "struct Stat {",
            *nest(fields),
            "};",
            f"static {_DEVICE} Stat none() {{ return {{{', '.join(none)}}}; }}",
            f"static {_DEVICE} Stat merge(const Stat& a, const Stat& b) {{ return {{{', '.join(merged)}}}; }}",
        ]

    def _results(self, scope: Emitter) -> None:
        """Make the results of the reductions known."""
        for n, r in enumerate(self.plain):
            scope.known[r] = f"s_.a{n}_"
        if self.softmax:
            scope.known |= {self.softmax.most: "s_.softmax.most", self.softmax.total: "s_.softmax.sum"}
        if self.moments:
            scope.known[self.moments.mean] = "s_.moments.mean"
            scope.known[self.moments.total] = "(s_.moments.mean * s_.moments.count)"
            scope.known[self.moments.squares] = "s_.moments.square"

    def _load(self) -> list[str]:
        """`load`: the kept value of the elements of a pack."""
        simple = f"{_DEVICE} float4 load(int64_t p_, unsigned mask_) const {{"
        if self._is_raw:
            return [f"{simple} return load_masked(x, p_, mask_, fill); }}"]
        scope = self._emitter(self._fixed)
        scope.hoist([self.value], self.bound)
        sides = [e for e in loads(self.value) if e.free & self.bound]
        bases = self._bases(scope, sides)
        packs, load = self._packs(sides, lambda side: bases.get(side, "0"))
        each = scope.child(load)
        made = each.value(self.value)
        each.lines.append(f"v_[e_] = mask_ >> e_ & 1u ? {made} : fill;")
        body = [*packs, "float v_[4];", *_four(each.lines), "return make_float4(v_[0], v_[1], v_[2], v_[3]);"]
        if self._tiles:
            return [simple, *nest([*scope.lines, *body]), "}"]
        kinds, named = _members(scope.lines, body, "at_")
        members = [f"{kind} {name};" for name, kind in kinds.items()]
        return [
            "struct Place {",
            *nest(members),
            "};",
            f"{_DEVICE} Place place(int64_t row_) const {{",
            *nest([*self._indexed(scope.lines), f"return {{{', '.join(kinds)}}};"]),
            "}",
            f"{_DEVICE} float4 load_at(const Place& at_, int64_t p_, unsigned mask_, int64_t column_) const {{",
            *nest([named(line) for line in body]),
            "}",
            simple,
            "  const int64_t row_ = (p_ * 4 + (__ffs(int(mask_)) - 1)) / cols_;",
            "  return load_at(place(row_), p_, mask_, p_ * 4 - row_ * cols_);",
            "}",
        ]

    def _bases(self, scope: Emitter, sides: Sequence[Expr]) -> dict[Expr, str]:
        """Where the part of each side begins that belongs to a row; adds the lines that compute it."""
        bases: dict[Expr, str] = {}
        for side in sides:
            offset = self.context.offset(side.axes, self.where)
            if not self._is_whole(side) and offset != "0":
                bases[side] = self.context.fresh("base")
                scope.lines.append(f"const int64_t {bases[side]} = {offset};")
        return bases

    @property
    def _is_raw(self) -> bool:
        return self.value.op == "load"

    def _after(self, exprs: Sequence[Expr]) -> list[Expr]:
        """The parts of expressions that are computed for each element from the kept value."""
        ends = (self.value, *self.stage.reduces)
        return list(
            subexpressions(
                *(self.pool.rewrite(e, lambda p: self.pool.const(0, p.ctype) if p in ends else None) for e in exprs)
            )
        )

    @property
    def _tiles(self) -> bool:
        """Whether the kept value needs neither the row nor the column."""
        return all(self._is_whole(e) or not e.free for e in loads(self.value))

    def _wide_parts(self) -> list[str]:
        """`Ready`, `prepare`, `finish` and `store`."""
        exprs = [s.expr for s in self.wide]
        sides = self._sides(exprs)
        scope = self._emitter(self._fixed)
        self._results(scope)
        scope.known[self.value] = "v_"
        scope.hoist(exprs, self.bound)
        if any(e.op in ("floor", "ceil") or e.ctype == "bool" for e in self._after(exprs)):
            scope.inverse.clear()  # the product with a reciprocal may lie on the other side of a limit
        bases = self._bases(scope, sides)

        def lines_of(load: Load) -> tuple[list[str], list[str]]:
            each = scope.child(load)
            each.lines = []
            made = [each.value(e) for e in exprs]
            return each.lines, made

        def single(side: Expr) -> str:
            pointer = self.context.names.get(side.name, side.name)
            if not side.free & self.bound:
                return self._fixed(side)
            if self._is_whole(side):
                return f"{pointer}[row_ * cols_ + column_]"
            return f"{pointer}[{_sum(bases.get(side, '0'), 'column_')}]"

        one_lines, one = lines_of(single)
        packs, load = self._packs(sides, lambda side: bases.get(side, "0"))
        four_lines, four = lines_of(load)
        ready, declared = _members(scope.lines, [*one_lines, *one, *four_lines, *four, *packs], "r_")
        # Results of reductions that are used as they are.
        stats = sorted(set(re.findall(r"\bs_\.[\w.]+", " ".join([*one_lines, *one]))))
        fields = {result: self.context.fresh("stat") for result in stats}

        def named(line: str) -> str:
            return declared(re.sub(r"\bs_\.[\w.]+", lambda m: f"r_.{fields[m[0]]}", line))

        members = [
            *(f"{kind} {name};" for name, kind in ready.items()),
            *(f"float {name};" for name in fields.values()),
        ]
        values = ", ".join([*ready, *fields])
        prepare = self._indexed(scope.lines)
        finish = [*map(named, one_lines), *(f"results[{n}] = {named(made)};" for n, made in enumerate(one))]
        loop = [
            "const float v_ = part(v, e_);",
            *map(named, four_lines),
            *(f"to{n}_[e_] = {named(made)};" for n, made in enumerate(four)),
        ]
        store = [named(line) for line in packs]
        store += [f"float to{n}_[4];" for n in range(len(four))] + (_four(loop) if four else [])
        for n, each in enumerate(self.wide):
            vector = f"make_float4({', '.join(f'to{n}_[{e}]' for e in range(4))})"
            store.append(f"store_masked({self.context.names[each.target]}, p_, {vector}, mask_);")
        tiles = [
            f"{_DEVICE} void finish(float v_, const Ready& r_, int64_t row_, int64_t column_, "
            f"float (&results)[{len(self.wide)}]) const {{",
            *nest(finish),
            "}",
            self._result(),
        ]
        return [
            "struct Ready {",
            *nest(members),
            "};",
            f"{_DEVICE} Ready prepare(const Stat& s_, int64_t row_) const {{",
            *nest([*prepare, f"return {{{values}}};"]),
            "}",
            *(tiles if self._tiles and self.wide else []),
            f"{_DEVICE} void store(int64_t p_, unsigned mask_, const float4& v, const Ready& r_, int64_t row_, "
            "int64_t column_) const {",
            *nest(store),
            "}",
        ]

    def _result(self) -> str:
        names = [self.context.names[s.target] for s in self.wide]
        chosen = "nullptr"
        for n, name in reversed(list(enumerate(names))):
            chosen = name if n == len(names) - 1 else f"i == {n} ? {name} : {chosen}"
        return f"{_DEVICE} float* result(int i) const {{ return {chosen}; }}"

    def _once(self) -> list[str]:
        head = f"{_DEVICE} void once(const Stat& s_, const Ready&, int64_t row_) const {{"
        if not self.narrow:
            return [f"{head}}}"]
        scope = self._emitter(self._fixed)
        self._results(scope)
        for store in self.narrow:
            made = scope.value(store.expr)
            at = self.context.offset(store.axes, self.where)
            scope.lines.append(f"{self.context.names[store.target]}[{at}] = {made};")
        return [head, *nest(self._indexed(scope.lines)), "}"]

    def kernel(self) -> FormKernel:
        """The source."""
        context, task = self.context, self.task
        raw = self._is_raw
        kinds = (ArgumentKind.INPUT, ArgumentKind.OUTPUT, ArgumentKind.AXIS, ArgumentKind.SCALAR)
        given = [a for a in task.contract.arguments if a.kind in kinds]
        switches = {
            "kRaw": "true" if raw else "false",
            "kTiles": "true" if self._tiles else "false",
            "kPlaces": "false" if self._tiles else "true",
            "kRowResults": "true" if self.narrow else "false",
        }
        fill = {-math.inf: "-INFINITY", math.inf: "INFINITY"}.get(self.fill, "0.0f")
        members = [
            "struct Given {",
            *nest([f"{a.ctype} {a.name};" for a in given]),
            "} given;",
            *(["const float* x;"] if raw else []),
            "int64_t cols_;",
            f"static constexpr float fill = {fill};",
            f"static constexpr int kStored = {len(self.wide)};",
            f"static constexpr bool {', '.join(f'{name} = {value}' for name, value in switches.items())};",
            *self._stat(),
            *self._local(),
            *self._load(),
            *self._wide_parts(),
            *self._once(),
        ]
        groups = (_wrapped(context.extent(g), len(self.stage.outer) == 1) for g in self.stage.outer)
        rows_ = wide(" * ".join(groups).replace("given.", ""))
        cols = context.extent(self.stage.along).replace("given.", "")
        start = [f"policy.given = {{{', '.join(a.name for a in given)}}};", f"policy.cols_ = {cols};"]
        if raw:
            start.append(f"policy.x = policy.{context.names[self.value.name]};")
        call = f"return reduce_all_rows(policy, {rows_}, {cols}, {task.workspace}, {task.stream});"
        tuned = {"TUNE_STORE": (1, 0), **({"TUNE_TILE_COLS": (192, 64, 320)} if self._tiles else {})}
        policy = "\n".join(["struct Policy {", *nest(members), "};"])
        return FormKernel(
            self._name,
            text(
                f"// {self._name[0].upper()}{self._name[1:]}.",
                "\n".join(tunable(name, values) for name, values in tuned.items()),
                "#include <warpsmith/short_rows.cuh>",
                f"namespace {{\nusing namespace warpsmith;\n{policy}\n}}  // namespace",
                task.workspace_bytes(f"return all_rows_workspace<Policy>({rows_}, {cols});"),
                task.launch("Policy policy;", *start, call),
            ),
        )

    @property
    def _name(self) -> str:
        parts = [r.name for r in self.plain]
        parts += ["softmax"] * bool(self.softmax) + ["mean and variance"] * bool(self.moments)
        return f"rows: {', '.join(dict.fromkeys(parts))}"


def _wrapped(extent: str, alone: bool) -> str:
    return f"({extent})" if " " in extent and not alone else extent


def _sum(first: str, second: str) -> str:
    return second if first == "0" else f"{first} + {second}"


def _members(lines: Sequence[str], uses: Sequence[str], owner: str) -> tuple[dict[str, str], Callable[[str], str]]:
    """The types of what lines declare and others use; and a function that writes a line with them as members."""
    used = set(re.findall(r"\w+", " ".join(uses)))
    kinds = {m[2]: m[1] for line in lines if (m := _DECLARED.match(line)) and m[2] in used}

    def named(line: str) -> str:
        return re.sub(r"\b\w+\b", lambda m: f"{owner}.{m[0]}" if m[0] in kinds else m[0], line)

    return kinds, named


def _no_load(expr: Expr) -> str:
    raise Unsupported(f"a load of {expr.name} among the elements of a thread")


def _merged(kind: str, one: str, other: str) -> str:
    if kind in ("sum", "prod"):
        return f"{one} {'+' if kind == 'sum' else '*'} {other}"
    return f"{kind}_nan({one}, {other})"


def _elements(lines: Sequence[str]) -> list[str]:
    """A loop over the elements of PACKS packs."""
    return [
        "#pragma unroll",
        "for (int p = 0; p < PACKS; ++p) {",
        "#pragma unroll",
        "  for (int e = 0; e < 4; ++e) {",
        *nest(nest(lines)),
        "  }",
        "}",
    ]


def _four(lines: Sequence[str]) -> list[str]:
    """A loop over the elements of a pack."""
    return ["#pragma unroll", "for (int e_ = 0; e_ < 4; ++e_) {", *nest(lines), "}"]


def _at(expr: Expr, value: Expr, number: float) -> float | None:
    """A function of the kept value at a number; None where that is not known."""
    if expr is value:
        return number
    if expr.op == "const":
        return float(expr.number)
    args = [_at(a, value, number) for a in expr.args]
    known = [a for a in args if a is not None]
    if len(known) < len(args) or expr.op not in _ARITHMETIC:
        return None
    try:
        return _ARITHMETIC[expr.op](*known)
    except (ArithmeticError, ValueError, TypeError):
        return None


_ARITHMETIC: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "abs": abs,
    "neg": lambda a: -a,
    "max": lambda a, b: max(a, b) if a == a and b == b else math.nan,
    "min": lambda a, b: min(a, b) if a == a and b == b else math.nan,
    "exp": math.exp,
    "tanh": math.tanh,
    "erf": math.erf,
    "sqrt": math.sqrt,
}
