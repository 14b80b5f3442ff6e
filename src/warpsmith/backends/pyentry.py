"""How a Python candidate is called for a task: `launch`, `ModelNew`, or what `--entry` says.

Only the arguments are decided here; `evaluate.pymodule` makes the calls.
"""

from __future__ import annotations

import ast
import json
import keyword
import re
from dataclasses import dataclass

from warpsmith.backends.entry import extent_of, meaning_of
from warpsmith.backends.pysource import LAUNCH, MODEL
from warpsmith.core.contract import Argument, ArgumentKind, PythonCall
from warpsmith.core.errors import UsageError
from warpsmith.core.pytext import parsed_expression
from warpsmith.core.task import Precision, ScalarKind, Task, TensorRole

_NUMBER = {ScalarKind.INT: "int", ScalarKind.FLOAT: "float", ScalarKind.BOOL: "bool"}
_LITERALS: dict[str, object] = {"true": True, "false": False, "none": None}
_NAME = re.compile(r"[A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w*)*\Z")


@dataclass(frozen=True)
class Entry:
    """`--entry`, taken apart."""

    name: str  # as written, e.g. "ops::softmax"
    arguments: tuple[object, ...] | None  # JSON values, names as {"$": name}; None: not said
    keywords: tuple[tuple[str, object], ...] = ()

    @property
    def attribute(self) -> str:
        """The name under which Python finds it."""
        return re.split(r"\.|::", self.name)[-1]


def parse_entry(text: str) -> Entry:
    """`NAME` or `NAME(ARG, ...)`; raises UsageError for anything else."""
    name, bracket, rest = text.strip().partition("(")
    wrong = UsageError(
        f"--entry {text!r} is not a call: write NAME or NAME(ARG, ...), where each ARG is a name of the task or a "
        "number, true, false, none."
    )
    if not _NAME.match(name.strip()):
        raise wrong
    if not bracket:
        return Entry(name.strip(), None)
    try:
        call = parsed_expression(f"_({rest}")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise wrong from None
    if (
        not isinstance(call, ast.Call)
        or not isinstance(call.func, ast.Name)
        or any(k.arg is None for k in call.keywords)
    ):
        raise wrong
    try:
        arguments = tuple(_value(node) for node in call.args)
        keywords = tuple((str(k.arg), _value(k.value)) for k in call.keywords)
    except ValueError:
        raise wrong from None
    return Entry(name.strip(), arguments, keywords)


def _value(node: ast.expr) -> object:
    if isinstance(node, ast.Name):
        return _LITERALS.get(node.id.lower(), {"$": node.id})
    if isinstance(node, ast.List):
        return [_value(part) for part in node.elts]
    if isinstance(node, ast.Tuple):
        return {"()": [_value(part) for part in node.elts]}
    literal = ast.literal_eval(node)  # a ValueError for anything that computes
    if literal is None or isinstance(literal, bool | int | float | str):
        return literal
    raise ValueError(f"no plain value: {ast.unparse(node)}")


def entry_call(task: Task, text: str) -> PythonCall:
    """A function of the candidate's own, called as `--entry` says."""
    entry = parse_entry(text)
    arguments = entry.arguments
    if arguments is None:
        names = [t.name for t in task.inputs] + [s.name for s in task.scalars]
        arguments = tuple({"$": name} for name in names)
    used = {name for value in (*arguments, *(v for _, v in entry.keywords)) for name in _names(value)}
    known = _known(task)
    unknown = sorted(used - set(known))
    if unknown:
        raise UsageError(
            f"--entry: {unknown[0]!r} is no tensor, scalar or axis of {task.name}; known: {', '.join(known)}."
        )
    return PythonCall(
        form="function",
        name=entry.attribute,
        arguments=json.dumps(arguments),
        keywords=json.dumps(dict(entry.keywords)),
        returned=tuple(t.name for t in task.outputs if t.name not in used),
        tf32=task.precision is Precision.TF32,
    )


def module_call(task: Task) -> PythonCall:
    """`ModelNew`, built and called as the task builds and calls its `Model`."""
    init = task.init or "[[], {}]"
    names = [t.name for t in task.tensors if t.role is TensorRole.INPUT] + [s.name for s in task.scalars]
    arguments, keywords = json.loads(task.call) if task.call else ([{"$": name} for name in names], {})
    for what, tree in (("get_init_inputs()", json.loads(init)), ("get_inputs()", [arguments, keywords])):
        odd = next(iter(_unsayable(tree)), None)
        if odd is not None:
            raise UsageError(
                f"{task.name}: its {what} gives {odd}, which cannot be handed to another process, so {MODEL} "
                "cannot be judged for it; write a kernel with the contract's `launch` instead."
            )
    return PythonCall(
        form="module",
        name=MODEL,
        arguments=json.dumps(arguments),
        keywords=json.dumps(keywords),
        init=init,
        returned=tuple(t.name for t in task.outputs),
        tf32=task.precision is Precision.TF32,
    )


def launch_call(task: Task) -> PythonCall:
    """The contract's own function: every tensor, then every number, in order."""
    names = [argument.source for argument in launch_arguments(task)]
    return PythonCall(
        form="launch",
        name=LAUNCH,
        arguments=json.dumps([{"$": name} for name in names]),
        tf32=task.precision is Precision.TF32,
    )


def launch_arguments(task: Task) -> tuple[Argument, ...]:
    """Inputs, state, outputs, scalars, axes: as in C, without workspace and stream."""
    found: list[Argument] = []
    for role in (TensorRole.INPUT, TensorRole.STATE, TensorRole.OUTPUT):
        kind = ArgumentKind.OUTPUT if role is TensorRole.OUTPUT else ArgumentKind.INPUT
        for spec in (t for t in task.tensors if t.role is role):
            found.append(Argument(_plain(spec.name), kind, "torch.Tensor", meaning_of(spec), spec.name))
    for scalar in task.scalars:
        meaning = f"always {scalar.value}"
        found.append(Argument(_plain(scalar.name), ArgumentKind.SCALAR, _NUMBER[scalar.kind], meaning, scalar.name))
    taken = {argument.name for argument in found}
    for axis in task.axes:
        name = _plain(axis) if axis not in taken else f"{axis}_size"
        found.append(Argument(name, ArgumentKind.AXIS, "int", extent_of(task, axis), axis))
    return tuple(found)


def declaration(arguments: tuple[Argument, ...]) -> str:
    """The line a candidate must define."""
    return f"def {LAUNCH}({', '.join(a.name for a in arguments)}):"


def _plain(name: str) -> str:
    return name + "_" if keyword.iskeyword(name) else name


def _known(task: Task) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*(t.name for t in task.tensors), *(s.name for s in task.scalars), *task.axes]))


def _names(value: object) -> list[str]:
    """Every name in an argument."""
    if isinstance(value, list):
        return [name for part in value for name in _names(part)]
    if isinstance(value, dict):
        return [str(value["$"])] if "$" in value else [name for part in value.values() for name in _names(part)]
    return []


def _unsayable(value: object) -> list[str]:
    if isinstance(value, list):
        return [text for part in value for text in _unsayable(part)]
    if isinstance(value, dict):
        return [str(value["?"])] if "?" in value else [text for part in value.values() for text in _unsayable(part)]
    return []
