"""Attention: softmax(q @ k^T * scale) @ v for heads of at most 128 columns, causal or not.

`F.scaled_dot_product_attention` without a mask or with `is_causal=True` is recognised as outlines record it, and the
same written by hand: products, a factor or divisor of the scores, a triangular mask by `masked_fill`, a softmax. The
inputs are [..., length, width] or [batch, length, heads, width] as they lie in memory, or views of that; queries and
keys may differ in number.

A factor that was computed from sizes has no value in the outline. It is taken for 1 / sqrt(width), as
`scaled_dot_product_attention` computes it; a task that computes another one gets a kernel that the evaluator refuses.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from warpsmith.kernels.form_task import FormKernel, FormTask, require, text, value_name
from warpsmith.model.task import Dim, OutlineValue

MOST_WIDTH = 128
"""The widest head for which the kernel uses tensor cores."""

_VIEWS = ("view", "_unsafe_view", "reshape", "expand", "clone", "contiguous", "detach", "alias")
_PRODUCTS = ("bmm", "mm")
_KEYWORDS = {"ones": {"dtype"}, "scalar_tensor": {"dtype"}, "clone": {"memory_format"}}
"""Keywords that change nothing here, by operation."""
_FACTORS = ("mul", "div")


@dataclass(frozen=True)
class _Call:
    """An operation of the outline, with its one result."""

    name: str  # "bmm"
    arguments: list[Any]
    result: OutlineValue

    def argument(self, place: int, default: object = None) -> Any:
        return self.arguments[place] if place < len(self.arguments) else default


@dataclass(frozen=True)
class _Tensor:
    """An input, or the output, as [..., length, width]."""

    name: str  # of the task
    dims: tuple[Dim, ...]
    turned: bool  # it lies in memory as [batch, length, heads, width]

    @property
    def beside(self) -> Dim:
        """How many heads lie side by side at each position."""
        return self.dims[1] if self.turned else 1


@dataclass(frozen=True)
class _Attention:
    query: _Tensor
    key: _Tensor
    value: _Tensor
    out: _Tensor
    scale: float | None  # None: 1 / sqrt(width)
    causal: bool
    safe: bool  # a row of scores that are all -inf gives zeros

    @property
    def width(self) -> Dim:
        return self.query.dims[-1]


def attention(task: FormTask) -> FormKernel:
    """Attention of every head by one kernel, after one that splits the inputs."""
    require(not task.on_cpu)
    require(all(spec.dtype == "float32" for spec in task.task.tensors))
    require(len(task.task.outputs) == 1 and len(task.outline.outputs) == 1)
    found = _Reader(task).attention()
    q, k, v = (each.dims for each in (found.query, found.key, found.value))
    require(not found.out.turned or found.out.dims == q)
    require(len(q) >= 2 and k == v and q[:-2] == k[:-2] and q[-1] == k[-1])
    require(found.scale is not None or isinstance(found.width, str))
    require(all(task.size(found.width, workload) <= MOST_WIDTH for workload in task.task.workloads))
    return FormKernel("causal attention" if found.causal else "attention", _source(task, found))


class _Reader:
    """Reads the operations from the output back to the inputs. Raises `NotThisForm` at the first one that differs."""

    def __init__(self, task: FormTask) -> None:
        self.task = task
        self.calls: dict[str, _Call] = {}
        self.dims = {each.name: each.dims for each in task.outline.inputs}
        for node in task.outline.nodes:
            parts = node.op.split(".")
            require(len(parts) == 3 and parts[0] == "aten" and not parts[1].endswith("_"))
            for result in node.results:
                self.dims[result.name] = result.dims
            given = {key for key, value in json.loads(node.keywords).items() if value is not None}
            if len(node.results) == 1 and given <= _KEYWORDS.get(parts[1], set()):
                result = node.results[0]
                self.calls[result.name] = _Call(parts[1], json.loads(node.arguments), result)

    def attention(self) -> _Attention:
        last, out = self._last()
        weights = self._call(last.argument(0), "_softmax", "_safe_softmax")
        value = self._input(last.argument(1))
        rank = len(weights.result.dims)
        require(weights.argument(1) in (-1, rank - 1) and weights.argument(2) in (None, False))
        scores, causal = self._without_mask(weights.argument(0))
        scores, factor = self._without_factor(scores)
        product = self._call(scores, *_PRODUCTS)
        query, of_query = self._without_factor(product.argument(0))
        key, of_key = self._key(product.argument(1))
        return _Attention(
            self._input(query),
            self._input(key),
            value,
            out,
            _together(factor, of_query, of_key),
            causal,
            weights.name == "_safe_softmax",
        )

    def _bare(self, value: object) -> dict[str, str]:
        """The value without views that put leading axes together or apart."""
        name = value_name(value)
        while (source := self._viewed(name)) is not None and self.dims[source][-2:] == self.dims[name][-2:]:
            name = source
        return {"$": name}

    def _viewed(self, name: str) -> str | None:
        """The value that another one has the elements of, in the same order."""
        call = self.calls.get(name)
        if call is None or call.name not in _VIEWS:
            return None
        source = value_name(call.argument(0))
        return source if call.name != "expand" or self.dims[source] == self.dims[name] else None

    def _flat(self, name: str) -> str:
        """The value without any views."""
        while (source := self._viewed(name)) is not None:
            name = source
        return name

    def _turned(self, name: str) -> str | None:
        """The value whose second and third of four axes another one exchanges."""
        call = self.calls.get(name)
        if call is None or call.name not in ("transpose", "permute") or len(call.result.dims) != 4:
            return None
        axes = call.argument(1) if call.name == "permute" else call.arguments[1:]
        wanted = [0, 2, 1, 3] if call.name == "permute" else [1, 2]
        axes = [axis % 4 for axis in axes]
        return value_name(call.argument(0)) if wanted in (axes, axes[::-1]) else None

    def _input(self, value: object) -> _Tensor:
        """The input that a value with heads is, maybe after views and with its axes exchanged."""
        name = value_name(self._bare(value))
        dims, source = self.dims[name], self._turned(name)
        name = self._flat(source or name)
        return _Tensor(self.task.tensor({"$": name}).name, dims, source is not None)

    def _last(self) -> tuple[_Call, _Tensor]:
        """The product that gives the output, and the output."""
        name = self._flat(self.task.outline.outputs[0])
        source = self._turned(name)
        call = self._call({"$": source or name}, *_PRODUCTS)
        return call, _Tensor(self.task.task.outputs[0].name, self.dims[source or name], source is not None)

    def _call(self, value: object, *names: str) -> _Call:
        call = self.calls.get(value_name(self._bare(value)))
        require(call is not None and call.name in names)
        assert call is not None
        return call

    def _is(self, value: object, *names: str) -> bool:
        call = self.calls.get(value_name(self._bare(value)))
        return call is not None and call.name in names

    def _without_factor(self, value: object) -> tuple[dict[str, str], float | None]:
        """A value and the number that it is multiplied by; None: a number that was computed from sizes."""
        if not self._is(value, *_FACTORS):
            return self._bare(value), 1.0
        call = self._call(value, *_FACTORS)
        require(len(call.arguments) == 2)
        number = call.argument(1)
        if isinstance(number, dict):
            require(number == {"$": "?"})
            return self._bare(call.argument(0)), None
        require(type(number) in (int, float) and math.isfinite(number) and number != 0)
        return self._bare(call.argument(0)), number if call.name == "mul" else 1.0 / number

    def _key(self, value: object) -> tuple[dict[str, str], float | None]:
        """The keys, which are transposed, and the number that they are multiplied by before or after that."""
        turned, after = self._without_factor(value)
        call = self._call(turned, "transpose", "permute")
        rank = len(call.result.dims)
        if call.name == "permute":
            require([axis % rank for axis in call.argument(1)] == [*range(rank - 2), rank - 1, rank - 2])
        else:
            require({axis % rank for axis in call.arguments[1:]} == {rank - 2, rank - 1})
        key, before = self._without_factor(call.argument(0))
        require(1.0 in (after, before))
        return key, before if after == 1.0 else after

    def _without_mask(self, value: object) -> tuple[dict[str, str], bool]:
        """Scores without a causal mask, and whether they had one."""
        if self._is(value, "add"):
            call = self._call(value, "add")
            require(len(call.arguments) == 2)
            chosen = self._call(call.argument(1), "where")
            seen = self._is_triangle(chosen.argument(0), call.result.dims)
            numbers = [self._call(chosen.argument(place), "scalar_tensor").argument(0) for place in (1, 2)]
            require(seen and numbers == [0, -math.inf])
            return self._bare(call.argument(0)), True
        if self._is(value, "masked_fill"):
            call = self._call(value, "masked_fill")
            require(call.argument(2) == -math.inf and self._is_future(call.argument(1), call.result.dims))
            return self._bare(call.argument(0)), True
        return self._bare(value), False

    def _is_ones(self, value: object) -> bool:
        """Whether a matrix holds nothing but ones."""
        return self._is(value, "ones")

    def _is_triangle(self, value: object, scores: tuple[Dim, ...]) -> bool:
        """Whether a matrix is one, or true, for the keys that a query sees."""
        call = self._call(value, "tril")
        return call.result.dims == scores[-2:] and call.argument(1, 0) == 0 and self._is_ones(call.argument(0))

    def _is_future(self, value: object, scores: tuple[Dim, ...]) -> bool:
        """Whether a matrix is true for the keys that a query does not see."""
        if self._is(value, "triu"):
            call = self._call(value, "triu")
            return (
                call.result.dtype == "bool"
                and call.result.dims == scores[-2:]
                and call.argument(1, 0) == 1
                and self._is_ones(call.argument(0))
            )
        call = self._call(value, "eq", "logical_not", "bitwise_not")
        require(call.result.dtype == "bool" and (call.name != "eq" or call.argument(1) == 0))
        return self._is_triangle(call.argument(0), scores)


def _together(factor: float | None, of_query: float | None, of_key: float | None) -> float | None:
    """The factor of the scores. Unknown ones: that of the scores alone, or the roots of it at both inputs."""
    if factor is None or of_query is None or of_key is None:
        alone = ((None, 1.0, 1.0), (1.0, None, None), (1.0, None, 1.0), (1.0, 1.0, None))
        require((factor, of_query, of_key) in alone)
        return None
    return factor * of_query * of_key


def _source(task: FormTask, found: _Attention) -> str:
    stack = task.product(found.query.dims[:-2])
    queries, keys, width = (task.extent(each) for each in (*found.query.dims[-2:-1], *found.key.dims[-2:]))
    scale = f"1.f / sqrtf(float({width}))" if found.scale is None else f"float({found.scale!r})"
    causal, safe = str(found.causal).lower(), str(found.safe).lower()
    q, k, v = (task.parameter(each.name) for each in (found.query, found.key, found.value))
    sizes = f"{stack}, {queries}, {keys}, {width}"
    pointers, none = f"{q}, {k}, {v}, {task.out}", ", ".join(["nullptr"] * 4)
    rest = f"{task.workspace}, cudaStream_t({task.stream})"
    tensors = (found.query, found.key, found.value, found.out)
    beside = ""
    if any(each.turned for each in tensors):
        beside = f", {{{', '.join(task.extent(each.beside) for each in tensors)}}}"
    return text(
        "#include <warpsmith/attention_heads.cuh>",
        task.workspace_bytes(f"return warpsmith::attention::workspace_bytes({{{none}, {sizes}, 1.f, {safe}}});"),
        # Without a name for the sizes: any name may be that of a parameter.
        task.launch(
            f"return int(warpsmith::attention::attend<{causal}>(",
            f"    {{{pointers}, {sizes}, {scale}, {safe}{beside}}}, {rest}));",
        ),
    )
