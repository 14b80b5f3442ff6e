"""What an outline computes, without what makes no difference to its outputs.

Operations and inputs that no output depends on are left out, such as the running statistics that a module in training
mode keeps. A product whose first factor is a diagonal matrix becomes what it is, a factor for each row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from warpsmith.model.task import Operation, Outline, OutlineValue

_NORM = "aten.native_batch_norm.default"
_STATISTICS = (3, 4)  # its arguments for the running mean and variance, which it changes
_TRAINING, _MOMENTUM = 5, 6


@lru_cache(maxsize=256)
def simplified(outline: Outline) -> Outline:
    """The outline without what makes no difference; unchanged where something is written that may be read again."""
    if not outline.outputs or "?" in outline.outputs:
        return outline
    nodes = list(_with_factors(_out_of_place(outline.nodes, outline.outputs)))
    wanted, needed = set(outline.outputs), list[Operation]()
    for node in reversed(nodes):
        if any(result.name in wanted for result in node.results):
            needed.append(_without_statistics(node))
            wanted.update(values(needed[-1]))
    if not _is_harmless(nodes, wanted):
        return outline
    inputs = tuple(each for each in outline.inputs if each.name in wanted)
    return replace(outline, inputs=inputs, nodes=tuple(needed[::-1]))


def in_order(outline: Outline) -> Outline:
    """The outline with its operations in an order that follows from the graph: depth first from the outputs."""
    makers = {result.name: node for node in outline.nodes for result in node.results}
    pending, done, found = list(outline.outputs[::-1]), set[str](), list[Operation]()
    while pending:
        node = makers.get(pending[-1])
        waiting = [] if node is None else [name for name in values(node) if name in makers and name not in done]
        if waiting and pending[-1] not in done:
            pending += waiting[::-1]
            continue
        if pending.pop() not in done and node is not None:
            found.append(node)
            done.update(result.name for result in node.results)
    return replace(outline, nodes=tuple(found)) if len(found) == len(outline.nodes) else outline


def values(node: Operation) -> list[str]:
    """The names among the arguments of an operation, in their order: of values, and of extents."""
    return list(_read_names(node.arguments, node.keywords))


@lru_cache(maxsize=4096)
def _read_names(arguments: str, keywords: str) -> tuple[str, ...]:
    return tuple(_named([json.loads(arguments), *json.loads(keywords).values()]))


def _named(arguments: Any) -> Iterator[str]:
    if isinstance(arguments, dict):
        yield str(arguments["$"])
    elif isinstance(arguments, list):
        for each in arguments:
            yield from _named(each)


# --- what an operation writes ---


def _is_harmless(nodes: Sequence[Operation], wanted: set[str]) -> bool:
    """Whether operations change nothing but copies that no output depends on."""
    private: set[str] = set()
    for node in nodes:
        results = {result.name for result in node.results}
        written = changed(node)
        if not private.issuperset(written):
            return False
        if not results & wanted and (node.op == "aten.clone.default" or (written and node.op != _NORM)):
            private |= results
    return True


def changed(node: Operation) -> list[str]:
    """The names of the values that an operation changes; "?" if that is not known."""
    _, name, overload = (*node.op.split("."), "", "")[:3]
    if node.op == _NORM:
        return _statistics(node)
    if name.endswith("_"):
        first = json.loads(node.arguments)[:1]
        return list(_named(first)) if first and isinstance(first[0], dict) else ["?"]
    return ["?"] if not node.op.startswith("aten.") or "out" in overload or "batch_norm" in name else []


def _statistics(node: Operation) -> list[str]:
    """The running statistics that a normalisation changes."""
    arguments = json.loads(node.arguments)
    if len(arguments) <= _MOMENTUM or arguments[_TRAINING] is not True:
        return []
    return list(_named([arguments[place] for place in _STATISTICS]))


# --- operations that are written in another way ---


def _without_statistics(node: Operation) -> Operation:
    """A normalisation with the statistics of the batch does not depend on the running ones, nor on their momentum."""
    arguments = json.loads(node.arguments)
    if node.op != _NORM or len(arguments) <= _MOMENTUM or arguments[_TRAINING] is not True:
        return node
    for place in (*_STATISTICS, _MOMENTUM):
        arguments[place] = None
    return replace(node, arguments=json.dumps(arguments))


_ELEMENTWISE = frozenset(
    (
        *("abs", "add", "clamp", "clamp_max", "clamp_min", "div", "elu", "exp", "gelu", "hardsigmoid", "hardswish"),
        *("hardtanh", "leaky_relu", "masked_fill", "mish", "mul", "neg", "pow", "relu", "sigmoid", "silu", "sqrt"),
        *("sub", "tanh"),
    )
)
_NEW_MEMORY = _ELEMENTWISE | {
    *("addmm", "baddbmm", "bmm", "convolution", "mm", "native_batch_norm", "native_group_norm", "native_layer_norm"),
    *("avg_pool2d", "avg_pool3d", "max_pool2d_with_indices", "max_pool3d_with_indices"),
}
"""Operators whose results share no memory with their operands."""


def _out_of_place(nodes: Sequence[Operation], outputs: Sequence[str]) -> list[Operation]:
    """Element-wise operations in place as ordinary ones, where all that reads the changed value has its own memory."""
    makers = {result.name: _bare(node) for node in nodes for result in node.results}
    readers: dict[str, list[str]] = {}
    last: dict[str, int] = {}
    for place, node in enumerate(nodes):
        for name in values(node):
            readers.setdefault(name, []).append(_bare(node))
            last[name] = place
    found = []
    for place, node in enumerate(nodes):
        target = values(node)[:1]
        alone = (
            _is_elementwise_in_place(node)
            and bool(target)
            and makers.get(target[0]) in _NEW_MEMORY
            and _NEW_MEMORY.issuperset(readers[target[0]])
            and last[target[0]] == place
            and target[0] not in outputs
        )
        found.append(replace(node, op=node.op.replace("_.", ".", 1)) if alone else node)
    return found


def _bare(node: Operation) -> str:
    """The name of an operation; that of an element-wise one in place without its underscore."""
    name = node.op.split(".")[1] if node.op.count(".") == 2 else node.op
    return name[:-1] if _is_elementwise_in_place(node) else name


def _is_elementwise_in_place(node: Operation) -> bool:
    parts = node.op.split(".")
    return len(parts) == 3 and parts[0] == "aten" and parts[1].endswith("_") and parts[1][:-1] in _ELEMENTWISE


def _with_factors(nodes: Sequence[Operation]) -> Iterator[Operation]:
    """Products with a diagonal matrix as the first factor become element-wise ones."""
    diagonals: dict[str, str] = {}
    for node in nodes:
        names = values(node)
        if node.op == "aten.diag_embed.default" and len(json.loads(node.arguments)) == 1 and node.keywords == "{}":
            if len(node.results[0].dims) == 2:
                diagonals[node.results[0].name] = names[0]
        elif node.op == "aten.mm.default" and names[0] in diagonals:
            result = node.results[0]
            column = OutlineValue(f"{result.name} rows", result.dtype, (result.dims[0], 1))
            turned = json.dumps([{"$": diagonals[names[0]]}, 1])
            scaled = json.dumps([{"$": column.name}, {"$": names[1]}])
            yield Operation("aten.unsqueeze.default", turned, "{}", (column,))
            yield Operation("aten.mul.Tensor", scaled, "{}", (result,))
            continue
        yield node
