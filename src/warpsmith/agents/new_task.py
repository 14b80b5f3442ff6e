"""Writes the text of a task file from the source of a PyTorch function and the shapes of its inputs.

The source is read and never executed here.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from warpsmith.model.errors import TaskError
from warpsmith.model.source_text import parse_python
from warpsmith.tasks.capture import DECORATION_NAMES, task_decoration

InputSet = Mapping[str, str | int | float | bool]
"""The inputs of one workload by parameter: "float32[64, 512]", "int64[64] < 1000", or a number."""

_TENSOR = re.compile(r"\s*(?:torch\.)?(\w+)\s*\[([\d,\s]*)\]\s*(?:<\s*(\d+))?\s*")
_DIGITS = 18  # of a size
_DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")


@dataclass(frozen=True)
class _TensorExample:
    """A tensor of which only shape and type are known; what `task_decoration` asks of an example."""

    dtype: str
    shape: tuple[int, ...]
    largest: int

    def numel(self) -> int:
        return math.prod(self.shape)

    def max(self) -> int:
        return self.largest


def task_text(source: str, function: str, inputs: Sequence[InputSet]) -> tuple[str, str]:
    """The text of the task file, and the name of its task.

    Without `inputs`, the source must have a function under `@task` already.
    """
    try:
        tree = parse_python(source, "source")
    except SyntaxError as wrong:
        raise TaskError(
            f"line {wrong.lineno or 1} of the source is not valid Python: {wrong.msg}; correct it."
        ) from None
    except (ValueError, RecursionError, MemoryError) as wrong:  # MemoryError: it is nested too deeply for the parser
        raise TaskError(
            f"the source cannot be read as Python ({str(wrong) or 'too deeply nested'}); correct it."
        ) from None
    node = _function(tree, function)
    declared = any(_is_task(mark) for mark in node.decorator_list)
    if declared and inputs:
        raise TaskError(f"{node.name} is under @task already, which says how inputs are drawn; leave out inputs.")
    if declared:
        return source, node.name
    if not inputs:
        raise TaskError(
            f'{node.name} has no @task above it; give inputs, as {{"x": "float32[64, 512]"}}, one entry per parameter.'
        )
    taken = _bound(tree) & set(DECORATION_NAMES)
    if taken:
        raise TaskError(f"the source defines {sorted(taken)[0]}, a name that the task file needs; rename it.")
    decoration = task_decoration(node.name, [_examples(node, each) for each in inputs])
    used = [name for name in DECORATION_NAMES if re.search(rf"\b{name}\(", decoration)]
    imports = [*([] if "torch" in _bound(tree) else ["import torch"]), f"from warpsmith import {', '.join(used)}"]
    lines = source.splitlines()
    first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)]) - 1
    start = _after_future(tree)
    text = [*lines[:start], *imports, *lines[start:first], decoration, *lines[first:]]
    return "\n".join(text).rstrip() + "\n", node.name


def _function(tree: ast.Module, name: str) -> ast.FunctionDef:
    found = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if name and name not in found:
        raise TaskError(f"the source has no function {name} at its top level; it has {', '.join(found) or 'none'}.")
    if not name and len(found) != 1:
        raise TaskError(f"the source has {len(found)} functions; say which one is the operator with `function`.")
    return found[name] if name else next(iter(found.values()))


def _is_task(mark: ast.expr) -> bool:
    return isinstance(mark, ast.Call) and ast.unparse(mark.func).split(".")[-1] == "task"


def _bound(tree: ast.Module) -> set[str]:
    """The names that the top level of a module binds."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        else:
            found |= {
                each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
            }
    return found


def _after_future(tree: ast.Module) -> int:
    """The number of lines before the first place where an import may stand."""
    end = 0
    for node in tree.body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not docstring and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            break
        end = node.end_lineno or end
    return end


def _examples(node: ast.FunctionDef, given: InputSet) -> dict[str, object]:
    """The examples in the order of the parameters."""
    arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    names = [argument.arg for argument in arguments]
    defaults = len(node.args.defaults) + sum(each is not None for each in node.args.kw_defaults)
    required = names[: len(names) - defaults]
    unknown = [name for name in given if name not in names]
    missing = [name for name in required if name not in given]
    if unknown or missing:
        what = f"has no parameter {unknown[0]}" if unknown else f"needs an input for {missing[0]}"
        raise TaskError(f"{node.name} {what}; its parameters are {', '.join(names) or 'none'}.")
    return {name: _example(name, given[name]) for name in names if name in given}


def _example(name: str, given: str | int | float | bool) -> object:
    if not isinstance(given, str):
        return given
    found = _TENSOR.fullmatch(given)
    if found is None or found[1] not in _DTYPES:
        raise TaskError(
            f"the input {name} is {given[:80]!r}; write a type and a shape, as float32[64, 512], "
            f"int64[64] < 1000 for indices, or a number. Types: {', '.join(_DTYPES)}."
        )
    dtype, sizes = found[1], [size.strip() for size in found[2].split(",") if size.strip()]
    wrong = next((each for each in (*sizes, found[3] or "1") if not each.isdecimal() or len(each) > _DIGITS), "")
    if wrong:
        raise TaskError(f"the input {name} has {wrong[:80]!r}, which is no size; write a whole number.")
    shape = tuple(map(int, sizes))
    if 0 in shape:
        raise TaskError(f"the input {name} has a dimension of size 0; give a size that is worth a kernel.")
    whole = dtype.startswith(("int", "uint"))
    if whole and found[3] is None:
        raise TaskError(f"say how large the values of {name} may be: {dtype}[{found[2]}] < 1000.")
    return _TensorExample(dtype, shape, int(found[3] or 1) - 1)
