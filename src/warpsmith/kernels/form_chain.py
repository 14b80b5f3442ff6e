"""C++ for the CPU, operation by operation, for references that no other form and no template covers.

Views, gathers and element-wise operations are kept as expressions of an index and become part of the loop that needs
them. Products, row operations and values that are used twice are stored in the workspace.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from warpsmith.kernels.form_task import FormKernel, FormTask, NotThisForm, require, text
from warpsmith.lowering.emitter import WIDE_VECTORS, Context, Emitter, nest, wide
from warpsmith.lowering.expressions import Axes, Unsupported
from warpsmith.lowering.pointwise import function_of_one
from warpsmith.lowering.stages import KernelLayout
from warpsmith.model.brief import Problem
from warpsmith.model.build import DeviceKind
from warpsmith.model.task import MOVES, Operation, OutlineValue

_CTYPES = {"float32": "float", "int64": "int64_t", "int32": "int32_t", "int8": "int8_t", "bool": "bool"}
_BYTES = {"float": 4, "int64_t": 8, "int32_t": 4, "int8_t": 1, "bool": 1}
_SAME = ("clone", "contiguous", "detach", "alias", "lift_fresh", "positive")
_RESHAPES = ("view", "_unsafe_view", "reshape")
_BINARY = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "rsub": "{1} - {0}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "maximum": "warpsmith::ops::larger({0}, {1})",
    "minimum": "warpsmith::ops::smaller({0}, {1})",
    "ldexp": "std::ldexp({0}, {1})",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
}
_ARITHMETIC = ("add", "sub", "rsub", "mul", "div", "maximum", "minimum")
_CONSTANTS = {"ones": 1, "ones_like": 1, "zeros": 0, "zeros_like": 0}
_ROOT_OF_SCALE = "1.f / std::sqrt(std::sqrt(static_cast<float>({})))"  # of attention: half of it to each factor

_SHORT = 128  # elements of an inner loop that ends before vectors are worth much
_LONG = 1 << 14  # elements of an inner loop that leaves too little for other threads

At = Callable[[Sequence[str]], str]


@dataclass(frozen=True)
class Value:
    """A tensor: its extents in C++, and the expression of the element at an index.

    The last number of an index may count through up to `merges` of the last axes together.
    """

    dims: tuple[str, ...]
    ctype: str
    at: At
    buffer: str = ""  # the name of the dense array that holds it; "" if it is an expression
    heavy: bool = False  # the expression computes something
    turned: str = ""  # the dense array that holds it with the last two axes exchanged
    merges: int = 1

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.dims)


def chain(task: FormTask) -> FormKernel:
    """Any chain of the known operations."""
    return FormKernel("operation by operation", _Writer(task).source())


def chain_of_moved(task: FormTask) -> FormKernel:
    """A chain that reads elements at other places (slices, joins, gathers): faster than the loop of a template."""
    names = {node.op.split(".")[1] for node in task.outline.nodes if node.op.count(".") > 1}
    require(not names.isdisjoint(MOVES))
    return chain(task)


@dataclass
class _Writer:
    task: FormTask
    lines: list[str] = field(default_factory=list)
    sizes: list[str] = field(default_factory=list)  # bytes of the arrays in the workspace
    values: dict[str, Value] = field(default_factory=dict)
    scratch: list[str] = field(default_factory=list)  # bytes that products need besides
    turned: set[str] = field(default_factory=set)  # values with the last two axes exchanged
    functions: dict[str, str] = field(default_factory=dict)  # of one number: their texts, and their names

    def source(self) -> str:
        """The whole file."""
        task, outline = self.task, self.task.outline
        require(len(outline.outputs) == len(task.task.outputs) and bool(outline.nodes))
        for given in outline.inputs:
            dims = tuple(task.extent(dim) for dim in given.dims)
            self.values[given.name] = _dense(task.pointer({"$": given.name}), dims, _ctype(given))
        nodes = self._needed(outline.nodes)
        self._uses = Counter(name for node in nodes for name in _names(json.loads(node.arguments)))
        self._uses.update(outline.outputs)
        self._targets = self._output_names(nodes)
        self._attends = any(node.op.startswith("aten._safe_softmax.") for node in nodes)
        for node in nodes:
            self._write(node)
        for name, spec in zip(outline.outputs, task.task.outputs, strict=True):
            pointer = task.parameter(spec.name)
            if self._value(name).buffer != pointer:
                self._store(self._value(name), pointer, _CTYPES.get(spec.dtype, ""))
        count = len(self.sizes)
        more = f"std::max<int64_t>({{0, {', '.join(self.scratch)}}})" if self.scratch else "0"
        layout = [
            f"int64_t layout({', '.join(['int64_t* at_', *([task.size_parameters] if task.sizes else [])])}) {{",
            "  at_[0] = 0;",
            *(f"  at_[{n + 1}] = at_[{n}] + ({size} + 63) / 64 * 64;" for n, size in enumerate(self.sizes)),
            f"  return at_[{count}] + {more};",
            "}",
        ]
        functions = [f"inline float {name}{body}" for body, name in self.functions.items()]
        functions = ["using namespace warpsmith;", *functions] if functions else []
        head = ["#include <warpsmith/cpu/operations.h>", *([WIDE_VECTORS.strip()] if functions else [])]
        call = f"layout({', '.join(['at_', *([task.size_names] if task.sizes else [])])})"
        start = [f"int64_t at_[{count + 1}];", f"{call};", f"char* base_ = static_cast<char*>({task.workspace});"]
        body = [line.replace("at_[LAST]", f"at_[{count}]") for line in self.lines]
        return text(
            "// Operation by operation: element-wise operations and views are parts of the loops that use them.",
            "\n".join(head),
            "\n".join(["namespace {", *functions, *layout, "}  // namespace"]),
            task.workspace_bytes(f"int64_t at_[{count + 1}]; return {call};"),
            task.launch(*start, *body, "(void)base_;", "return 0;"),
        )

    # --- which operations, and where their results go ---

    def _needed(self, nodes: Sequence[Operation]) -> list[Operation]:
        wanted, found = set(self.task.outline.outputs), []
        for node in reversed(nodes):
            parts = node.op.split(".")
            require(len(parts) == 3 and parts[0] == "aten")
            if any(result.name in wanted for result in node.results):
                require(not parts[1].endswith("_"))
                found.append(node)
                wanted |= set(_names(json.loads(node.arguments)))
        return found[::-1]

    def _output_names(self, nodes: Sequence[Operation]) -> dict[str, str]:
        """The output that each value is, itself or through views of all of it."""
        outline = self.task.outline
        found = {
            name: self.task.parameter(spec.name)
            for name, spec in zip(outline.outputs, self.task.task.outputs, strict=True)
            if outline.outputs.count(name) == 1 and name.startswith("%")
        }
        for node in reversed(nodes):
            name = node.op.split(".")[1]
            if name in (*_SAME, *_RESHAPES) and node.results[0].name in found:
                (source, *_) = _names(json.loads(node.arguments))
                if self._uses[source] == 1 and source.startswith("%"):
                    found[source] = found[node.results[0].name]
        return found

    # --- arrays ---

    def _value(self, name: str) -> Value:
        require(name in self.values)
        return self.values[name]

    def _array(self, dims: Sequence[str], ctype: str, target: str = "") -> Value:
        """A new array, or that of an output."""
        if target:
            return _dense(target, dims, ctype)
        name = f"v{len(self.sizes)}_"
        self.lines.append(f"{ctype}* {name} = reinterpret_cast<{ctype}*>(base_ + at_[{len(self.sizes)}]);")
        self.sizes.append(_product([*dims, str(_BYTES[ctype])]))
        return _dense(name, dims, ctype)

    def _store(self, value: Value, target: str = "", ctype: str = "") -> Value:
        """The value in an array: a loop over its index."""
        made = self._array(value.dims, ctype or value.ctype, target)
        dims = _merged(value)
        index = [f"i{n}_" for n in range(len(dims))]
        loops = [f"for (int64_t {i} = 0; {i} < {dim}; ++{i})" for i, dim in zip(index, dims, strict=True)]
        cast = f"static_cast<{made.ctype}>({value.at(index)})" if made.ctype != value.ctype else value.at(index)
        line = f"{made.at(index)} = {cast};"
        if value.rank == 0:
            self.lines.append(line)
            return made
        simd = ["#pragma omp simd"] if len(dims) > 1 else []
        self.lines += ["{", _threads(value, len(dims) - 1), *loops[:-1], *simd, f"{loops[-1]} {line}", "}"]
        return made

    def _is_last_use(self, value: Value) -> bool:
        """Whether an array of the workspace is read once only, so that it may be overwritten."""
        names = [name for name, each in self.values.items() if each.buffer and each.buffer == value.buffer]
        own = re.fullmatch(r"v\d+_", value.buffer) is not None
        return own and value.ctype == "float" and all(self._uses[name] == 1 for name in names)

    def _dense(self, value: Value) -> Value:
        if value.buffer or not value.turned:
            return value if value.buffer else self._store(value)
        made = self._array(value.dims, "float")
        sizes = f"{_product(value.dims[:-2])}, {value.dims[-1]}, {value.dims[-2]}"
        self.lines.append(f"warpsmith::ops::transpose({value.turned}, {made.buffer}, {sizes});")
        return made

    # --- operations ---

    def _write(self, node: Operation) -> None:
        name = node.op.split(".")[1]
        arguments = json.loads(node.arguments)
        keywords = {key: value for key, value in json.loads(node.keywords).items() if value is not None}
        used = [n for n, result in enumerate(node.results) if self._uses[result.name]]
        made = self._made(_Call(node, name, arguments, keywords, used))
        if name == "transpose":
            self.turned.add(node.results[0].name)
        for place, value in made.items():
            result = node.results[place]
            if not self._uses[result.name]:
                continue
            if value.heavy and self._uses[result.name] > 1:
                value = self._store(value, self._targets.get(result.name, ""), _ctype(result))
            self.values[result.name] = value
        require(all(node.results[place].name in self.values for place in used))

    def _made(self, call: _Call) -> dict[int, Value]:
        """The results of an operation, by their places."""
        for group in (self._views, self._rows):
            made = group(call)
            if made is not None:
                return made if isinstance(made, dict) else {0: made}
        made = self._elements(call)
        return made if isinstance(made, dict) else {0: made}

    def _operand(self, value: object) -> Value:
        """A tensor or a number."""
        if isinstance(value, dict):
            if value["$"] in self.values:
                return self.values[value["$"]]
            require(value["$"] not in ("?",) and not value["$"].startswith("%"))
            said = f"({self.task.extent(value['$'])})"
            return Value((), "int64_t", lambda index: said)
        require(isinstance(value, int | float))
        assert isinstance(value, int | float)
        return Value((), "float" if isinstance(value, float) else "int64_t", lambda index: _literal(value))

    def _whole(self, value: object) -> str:
        """A whole number or an extent, in C++."""
        if isinstance(value, dict):
            return f"({self.task.extent(value['$'])})"
        require(type(value) is int)
        return str(value)

    def _views(self, call: _Call) -> Value | dict[int, Value] | None:
        name, arguments = call.name, call.arguments
        if name == "cat":
            parts, axis = [self._operand(each) for each in arguments[0]], call.number(1, 0)
            return self._joined(parts, axis % parts[0].rank, self._dims(call.results[0])[axis])
        if name == "arange":
            require(len(arguments) == 1)
            return Value((self._whole(arguments[0]),), call.ctype, lambda index: index[0])
        if name in _CONSTANTS or name in ("full", "scalar_tensor"):
            number = arguments[0 if name == "scalar_tensor" else 1] if name not in _CONSTANTS else _CONSTANTS[name]
            said = f"static_cast<{call.ctype}>({_literal(number)})"
            dims = self._dims(call.results[0])
            return Value(dims, call.ctype, lambda index: said, merges=len(dims))
        if name not in (*_SAME, *_RESHAPES, "split", "unbind", *_VIEWS):
            return None
        value = self._operand(arguments[0])
        if name in _SAME:
            return value
        if name in _RESHAPES:
            source = self._dense(value)
            return _dense(source.buffer, self._dims(call.results[0]), source.ctype)
        if name == "split":
            axis = call.number(2, 0) % value.rank
            lengths = [self._dims(result)[axis] for result in call.results]
            begins = [" + ".join(["0", *lengths[:n]]) for n in range(len(lengths))]
            return {n: _cut(value, axis, length, begins[n]) for n, length in enumerate(lengths)}
        if name == "unbind":
            axis = call.number(1, 0) % value.rank
            return {n: _selected(value, axis, str(n)) for n in range(len(call.results))}
        return _VIEWS[name](self, value, call)

    def _joined(self, parts: Sequence[Value], axis: int, whole: str) -> Value:
        """Values one after the other along an axis."""
        first = parts[0]
        ends = [" + ".join(part.dims[axis] for part in parts[: n + 1]) for n in range(len(parts))]

        def at(index: Sequence[str]) -> str:
            said = ""
            for n in reversed(range(len(parts))):
                begin = f"{index[axis]} - ({ends[n - 1]})" if n else index[axis]
                moved = [*index[:axis], begin, *index[axis + 1 :]]
                said = f"({index[axis]} < {ends[n]} ? {parts[n].at(moved)} : {said})" if said else parts[n].at(moved)
            return said

        dims = (*first.dims[:axis], whole, *first.dims[axis + 1 :])
        return Value(dims, first.ctype, at, heavy=any(part.heavy for part in parts))

    def _elements(self, call: _Call) -> Value | dict[int, Value]:
        name, arguments = call.name, call.arguments
        if name == "frexp":
            (value,) = self._broadcast([self._operand(arguments[0])])
            value = self._dense(value)
            return {
                0: _mapped("warpsmith::ops::mantissa_of({0})", [value], "float"),
                1: _mapped("warpsmith::ops::exponent_of({0})", [value], "int32_t"),
            }
        if name in ("tril", "triu"):
            value, shift = self._operand(arguments[0]), call.number(1, 0)
            sign = "<=" if name == "tril" else ">="
            return Value(
                value.dims,
                value.ctype,
                lambda index: (
                    f"({index[-1]} {sign} {index[-2]} + {shift} ? {value.at(index)} : static_cast<{value.ctype}>(0))"
                ),
                heavy=True,
            )
        if name == "embedding":
            table, places = self._operand(arguments[0]), self._operand(arguments[1])
            return Value(
                (*places.dims, *table.dims[1:]),
                table.ctype,
                lambda index: table.at([places.at(index[: places.rank]), *index[places.rank :]]),
                heavy=True,
            )
        if name == "gather":
            value, places, axis = self._operand(arguments[0]), self._operand(arguments[2]), call.number(1, 0)
            axis %= value.rank
            value = self._dense(value)
            return Value(
                places.dims,
                value.ctype,
                lambda index: value.at([*index[:axis], places.at(index), *index[axis + 1 :]]),
                heavy=True,
            )
        operands, pattern = self._pattern(call)
        return _mapped(pattern, self._broadcast(operands), call.ctype)

    def _pattern(self, call: _Call) -> tuple[list[Value], str]:
        """The operands of an element-wise operation, and its expression."""
        name, arguments = call.name, call.arguments
        if name == "_to_copy":
            return [self._operand(arguments[0])], f"static_cast<{call.ctype}>({{0}})"
        if name == "where":
            return [self._operand(each) for each in arguments], "({0} ? {1} : {2})"
        if name in _BINARY:
            require(len(arguments) == 2 and not call.keywords)
            first = self._operand(arguments[0])
            scale = isinstance(arguments[1], dict) and arguments[1]["$"] == "?" and name == "mul"
            if scale:  # the usual scale of attention: the outline does not say numbers that depend on the sizes
                require(self._attends)
                width = first.dims[-2 if arguments[0]["$"] in self.turned else -1]
                return [first], f"{{0}} * ({_ROOT_OF_SCALE.format(width)})"
            operands = [first, self._operand(arguments[1])]
            if name in _ARITHMETIC:
                operands = [_cast(value, call.ctype) for value in operands]
            return operands, _BINARY[name]
        return [self._operand(arguments[0])], f"{self._function(call)}({{0}})"

    def _function(self, call: _Call) -> str:
        """The name of a function of one number, which the file then contains: written as templates write it."""
        task, node = self.task, call.node
        tensors = [value for value in (*call.arguments, *call.keywords.values()) if isinstance(value, dict)]
        require(tensors == call.arguments[:1] and self._operand(tensors[0]).ctype == call.ctype == "float")
        bare = replace(task.contract, arguments=())
        try:
            pool, x, made = function_of_one(task.task, node)
            layout = KernelLayout(pool, Axes(), {})
            problem = Problem(task.task, bare, "cpu", "", DeviceKind.CPU, "", ())
            emitter = Emitter(Context(problem, layout, device=False, vector=True), lambda load: "x", {x: "x"})
            value = emitter.value(made)
        except Unsupported as error:
            raise NotThisForm from error
        body = "\n".join(["(float x) {", *nest([*emitter.lines, f"return {value};"]), "}"])
        return self.functions.setdefault(body, f"{call.name}{len(self.functions)}_")

    def _broadcast(self, operands: Sequence[Value]) -> list[Value]:
        """Operands of the same extents; what is computed for fewer elements is stored first."""
        rank = max(value.rank for value in operands)
        dims = ["1"] * rank
        for value in operands:
            for place, dim in enumerate(value.dims, rank - value.rank):
                dims[place] = dim if dims[place] == "1" else dims[place]
        return [_expanded(self._dense(v) if v.heavy and list(v.dims) != dims else v, dims) for v in operands]

    def _rows(self, call: _Call) -> Value | dict[int, Value] | None:
        name, arguments = call.name, call.arguments
        target = self._targets.get(call.results[0].name, "")
        if name in ("mm", "bmm", "addmm"):
            return self._multiplied(call, target)
        if name in ("_softmax", "_log_softmax", "_safe_softmax"):
            value = self._operand(arguments[0])
            require(call.number(1, -1) in (-1, value.rank - 1) and call.argument(2, False) is False)
            made = value if not target and self._is_last_use(value) else self._store(value, target)
            switches = f"{'true' if 'log' in name else 'false'}, {'true' if 'safe' in name else 'false'}"
            self.lines.append(
                f"warpsmith::ops::softmax_rows({made.buffer}, {_product(made.dims[:-1])}, {made.dims[-1]}, {switches});"
            )
            return made
        if name in ("native_layer_norm", "native_group_norm", "native_batch_norm"):
            require(call.used == [0])
            return self._norm(call, target)
        if name in ("amax", "amin", "sum", "mean"):
            return self._reduced(call)
        if name == "topk":
            value = self._dense(self._operand(arguments[0]))
            count, largest = call.number(1), call.argument(3, True)
            require(call.number(2, -1) in (-1, value.rank - 1) and type(largest) is bool)
            dims = (*value.dims[:-1], str(count))
            values = self._array(dims, "float", target)
            places = self._array(dims, "int64_t", self._targets.get(call.results[1].name, ""))
            self.lines.append(
                f"warpsmith::ops::top_rows({value.buffer}, {_product(dims[:-1])}, {value.dims[-1]}, {count}, "
                f"{'true' if largest else 'false'}, {values.buffer}, {places.buffer});"
            )
            return {0: values, 1: places}
        return None

    def _multiplied(self, call: _Call, target: str) -> Value:
        """A product, whose factors are read as they lie; a bias of the columns is added by its end."""
        left, right = (self._operand(each) for each in call.arguments[-2:])
        require(len(call.arguments) == (3 if call.name == "addmm" else 2) and not call.keywords)
        bias = self._operand(call.arguments[0]) if call.name == "addmm" else None
        columns = right.dims[-1]
        ends = bias is not None and bool(bias.buffer) and bias.dims == (columns,) and bias.ctype == "float"
        stack = left.dims[0] if call.name == "bmm" else "1"
        factors, unknown = [], []
        for value, lines, turned in ((left, left.dims[-2], "across"), (right, columns, "along")):
            if value.buffer or not value.turned:
                value, how = self._dense(value), "along" if turned == "across" else "across"
            else:
                how = turned
            factors.append(f"warpsmith::ops::{how}({value.buffer or value.turned}, {lines}, {left.dims[-1]})")
            unknown.append(f"warpsmith::ops::{how}(nullptr, {lines}, {left.dims[-1]})")
        made = self._array((*left.dims[:-1], columns), "float", target if bias is None or ends else "")
        sizes = f"{{{stack}, {left.dims[-2]}, {left.dims[-1]}, {columns}}}"
        self.scratch.append(f"warpsmith::ops::product_bytes({sizes}, {', '.join(unknown)})")
        end = f", warpsmith::products::Bias{{{bias.buffer}}}" if bias is not None and ends else ""
        self.lines.append(
            f"warpsmith::ops::multiply({sizes}, {', '.join(factors)}, {made.buffer}, base_ + at_[LAST]{end});"
        )
        if bias is None or ends:
            return made
        return _mapped("{0} + {1}", self._broadcast([bias, made]), "float")

    def _norm(self, call: _Call, target: str) -> Value:
        arguments = call.arguments
        value = self._dense(self._operand(arguments[0]))
        layer = call.name == "native_layer_norm"
        gain, bias = (self._pointer(each) for each in (arguments[2:4] if layer else arguments[1:3]))
        made = self._array(value.dims, "float", target)
        pointers = f"{value.buffer}, {gain}, {bias}, {made.buffer}"
        if layer:
            require(len(arguments[1]) == 1)
            sizes = f"{_product(value.dims[:-1])}, {value.dims[-1]}"
        else:
            sizes = f"{value.dims[0]}, {value.dims[1]}, {_product(value.dims[2:])}"
        if call.name == "native_batch_norm":
            require(arguments[3:6] == [None, None, True])  # of this batch, without running averages
        if call.name == "native_group_norm":
            sizes += f", {call.number(6)}"
        name = call.name.removeprefix("native_")
        self.lines.append(f"warpsmith::ops::{name}({pointers}, {sizes}, {_literal(float(arguments[-1]), 'double')});")
        return made

    def _pointer(self, value: object) -> str:
        return "nullptr" if value is None else self._dense(self._operand(value)).buffer

    def _reduced(self, call: _Call) -> Value:
        """A reduction along the last axis."""
        value = self._operand(call.arguments[0])
        axes, keeps = call.argument(1, []), call.argument(2, False)
        require(value.ctype == "float" and axes in ([-1], [value.rank - 1]) and not call.keywords)
        made = self._array((*value.dims[:-1], *(["1"] if keeps else [])), "float")
        index = [f"i{n}_" for n in range(value.rank)]
        start = {"amax": "-INFINITY", "amin": "INFINITY"}.get(call.name, "0.f")
        step = {"amax": "larger", "amin": "smaller"}.get(call.name)
        element = value.at(index)
        line = f"total_ = warpsmith::ops::{step}(total_, {element});" if step else f"total_ += {element};"
        end = f" / static_cast<float>({value.dims[-1]})" if call.name == "mean" else ""
        loops = [f"for (int64_t {i} = 0; {i} < {dim}; ++{i})" for i, dim in zip(index, value.dims, strict=True)]
        self.lines += [
            "{",
            *([_threads(value, value.rank - 1)] if value.rank > 1 else []),
            *loops[:-1],
            "{",
            f"float total_ = {start};",
            *([] if step else ["#pragma omp simd reduction(+ : total_)"]),
            f"{loops[-1]} {line}",
            f"{made.at([*index[:-1], *(['0'] if keeps else [])])} = total_{end};",
            "}",
            "}",
        ]
        return made

    def _dims(self, result: OutlineValue) -> tuple[str, ...]:
        return tuple(self.task.extent(dim) for dim in result.dims)


@dataclass(frozen=True)
class _Call:
    """One operation."""

    node: Operation
    name: str
    arguments: list[Any]
    keywords: dict[str, Any]
    used: list[int]  # places of the results that are used

    @property
    def results(self) -> tuple[OutlineValue, ...]:
        return self.node.results

    def argument(self, place: int, default: object = None) -> Any:
        return self.arguments[place] if place < len(self.arguments) else default

    def number(self, place: int, default: int | None = None) -> int:
        value = self.argument(place, default)
        require(type(value) is int)
        assert isinstance(value, int)
        return value

    @property
    def ctype(self) -> str:
        return _ctype(self.results[0])


def _ctype(value: OutlineValue) -> str:
    require(value.dtype in _CTYPES)
    return _CTYPES[value.dtype]


def _names(arguments: object) -> list[str]:
    """The values that arguments name."""
    if isinstance(arguments, dict):
        return [str(arguments["$"])]
    if isinstance(arguments, list):
        return [name for each in arguments for name in _names(each)]
    return []


def _product(dims: Sequence[str]) -> str:
    return wide(" * ".join(dim for dim in dims if dim != "1") or "1")


def _merged(value: Value) -> tuple[str, ...]:
    """The extents of the loops over a value: one loop over all axes, or short last ones together for long vectors."""
    dims, inner = value.dims, 1
    if value.merges >= value.rank > 0:
        return (_product(dims),)
    lengths = [int(dim) if dim.isdigit() else _LONG for dim in dims]
    while inner < value.merges and math.prod(lengths[-inner:]) < _SHORT and math.prod(lengths[-inner - 1 :]) < _LONG:
        inner += 1
    return (*dims[:-inner], _product(dims[-inner:])) if dims else ()


def _threads(value: Value, loops: int) -> str:
    """The pragma before loops that threads share, unless there is little to do."""
    kind = f" collapse({loops})" if loops > 1 else ("" if loops else " simd")
    many = f"{_product(value.dims)} > warpsmith::ops::kAlone"
    return f"#pragma omp parallel for{kind} schedule(static) if (parallel : {many})"


def _literal(number: float, kind: str = "float") -> str:
    if isinstance(number, bool):
        return "true" if number else "false"
    if isinstance(number, int):
        return f"{number}"
    if number != number or number in (float("inf"), float("-inf")):
        return "NAN" if number != number else ("INFINITY" if number > 0 else "-INFINITY")
    return f"{number!r}f" if kind == "float" else repr(number)


def _dense(buffer: str, dims: Sequence[str], ctype: str) -> Value:
    def at(index: Sequence[str]) -> str:
        place = ""
        outer = len(index) - 1
        lengths = dims if len(index) == len(dims) else (*dims[:outer], _product(dims[outer:]))
        for i, dim in zip(index, lengths, strict=True):
            if dim == "1":
                continue
            place = f"({place}) * ({dim}) + {i}" if place else i
        return f"{buffer}[{place or 0}]"

    return Value(tuple(dims), ctype, at, buffer, merges=len(dims))


def _mapped(pattern: str, operands: Sequence[Value], ctype: str) -> Value:
    dims = max((value.dims for value in operands), key=len)
    return Value(
        dims,
        ctype,
        lambda index: f"({pattern.format(*(f'({v.at(index if v.rank else ())})' for v in operands))})",
        heavy=True,
        merges=min((value.merges for value in operands if value.rank), default=1),
    )


def _cast(value: Value, ctype: str) -> Value:
    if value.ctype == ctype:
        return value
    return replace(
        value, ctype=ctype, at=lambda index: f"static_cast<{ctype}>({value.at(index)})", buffer="", turned=""
    )


def _expanded(value: Value, dims: Sequence[str]) -> Value:
    """The same value for every index along the axes that it lacks."""
    if list(value.dims) == list(dims) or not value.dims:
        return value
    skipped = len(dims) - value.rank
    same = [dim != "1" or dims[skipped + n] == "1" for n, dim in enumerate(value.dims)]
    last = len(list(takewhile(lambda each: each == same[-1], reversed(same))))  # axes alike at the end

    def at(index: Sequence[str]) -> str:
        before = [(i if same[n] else "0") for n, i in enumerate(index[skipped:-1])]
        return value.at([*before, *([index[-1]] if same[-1] else ["0"] * (value.rank - len(before)))])

    merges = min(last, value.merges) if same[-1] else last
    return Value(tuple(dims), value.ctype, at, heavy=value.heavy, merges=merges)


def _cut(value: Value, axis: int, length: str, begin: str) -> Value:
    dims = (*value.dims[:axis], length, *value.dims[axis + 1 :])
    return Value(
        dims,
        value.ctype,
        lambda index: value.at([*index[:axis], f"({index[axis]} + {begin})", *index[axis + 1 :]]),
        heavy=value.heavy,
    )


def _selected(value: Value, axis: int, place: str) -> Value:
    dims = (*value.dims[:axis], *value.dims[axis + 1 :])
    return Value(dims, value.ctype, lambda index: value.at([*index[:axis], place, *index[axis:]]), heavy=value.heavy)


def _ordered(value: Value, order: Sequence[int]) -> Value:
    """The axes in another order."""

    def at(index: Sequence[str]) -> str:
        own = [""] * value.rank
        for new, old in enumerate(order):
            own[old] = index[new]
        return value.at(own)

    exchanged = [*range(value.rank - 2), value.rank - 1, value.rank - 2]
    turned = value.buffer if value.rank > 1 and list(order) == exchanged and value.ctype == "float" else ""
    return Value(tuple(value.dims[old] for old in order), value.ctype, at, heavy=value.heavy, turned=turned)


def _swapped(value: Value, one: int, other: int) -> Value:
    order = list(range(value.rank))
    order[one], order[other] = order[other], order[one]
    return _ordered(value, order)


def _with_one(value: Value, place: int) -> Value:
    place %= value.rank + 1
    dims = (*value.dims[:place], "1", *value.dims[place:])
    return Value(dims, value.ctype, lambda index: value.at([*index[:place], *index[place + 1 :]]), heavy=value.heavy)


def _slice(writer: _Writer, value: Value, call: _Call) -> Value:
    axis, begin, step = call.number(1, 0) % value.rank, call.number(2, 0), call.number(4, 1)
    end = call.argument(3)
    require(begin >= 0 and step == 1)
    dim = value.dims[axis]
    if end is None or (type(end) is int and end >= 1 << 62):
        return _cut(value, axis, f"({dim} - {begin})", str(begin))
    said = writer._whole(end)
    if type(end) is int and end < 0:
        return _cut(value, axis, f"({dim} - {begin - end})", str(begin))
    return _cut(
        value,
        axis,
        f"(std::min<int64_t>({said}, {dim}) - {begin})" if begin or not said.isdigit() else said,
        str(begin),
    )


def _expand(writer: _Writer, value: Value, call: _Call) -> Value:
    given = call.arguments[1]
    dims = []
    for place, each in enumerate(given, value.rank - len(given)):
        dims.append(
            value.dims[place] if each == -1 or (place >= 0 and value.dims[place] != "1") else writer._whole(each)
        )
    return _expanded(value, dims)


def _squeezed(value: Value, axis: int) -> Value:
    axis %= value.rank
    return _selected(value, axis, "0") if value.dims[axis] == "1" else value


_VIEWS: dict[str, Callable[[_Writer, Value, _Call], Value]] = {
    "slice": _slice,
    "select": lambda writer, value, call: _selected(value, call.number(1) % value.rank, str(call.number(2))),
    "expand": _expand,
    "unsqueeze": lambda writer, value, call: _with_one(value, call.number(1)),
    "squeeze": lambda writer, value, call: _squeezed(value, call.number(1)),
    "permute": lambda writer, value, call: _ordered(value, [axis % value.rank for axis in call.arguments[1]]),
    "transpose": lambda writer, value, call: _swapped(value, call.number(1) % value.rank, call.number(2) % value.rank),
    "t": lambda writer, value, call: _swapped(value, 0, value.rank - 1),
}
