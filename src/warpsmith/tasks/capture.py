"""Turns a Python function into a task file: a function under `@task`, or a plain function with example inputs.

The judge loads tasks from files, in a process of its own. A function from a script, a notebook cell or an interactive
session is written to such a file together with everything of its module that it uses: imports, constants,
other functions and classes. The rest of the module is left out, so that a script which calls `warpsmith.optimize` at
its top level is not executed again. This module does not import torch.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import math
import re
import sys
import sysconfig
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from warpsmith.model.errors import TaskError
from warpsmith.model.source_text import parse_python
from warpsmith.system.files import put_in_place
from warpsmith.tasks.declare import ATTRIBUTE
from warpsmith.tasks.suites import resolve_task

ExampleInputs = Sequence[object] | Mapping[str, object]
"""The arguments of one call: in order, or by name."""

DECORATION_NAMES = ("booleans", "integers", "normal", "scalar", "task")
"""The names of `warpsmith` that `task_decoration` uses."""

_LITERALS = (bool, int, float, complex, str, bytes, type(None))
_LONGEST_TYPED = 200  # lines of a function typed at a prompt
_FLOATS = ("float64", "float32", "float16", "bfloat16")
_CLASSES = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def task_file(task: object, folder: Path, example_inputs: ExampleInputs | Sequence[ExampleInputs] | None = None) -> str:
    """The task as "path" or "path::name", which the evaluator accepts.

    `task` is a path, "suite/name", a function under `@task`, or a plain function with `example_inputs`. The file of a
    function is written to `folder`, under a name that depends on its content.
    """
    if isinstance(task, str | Path):
        if example_inputs is not None:
            raise TaskError(f"{task} names a task, which says how its inputs are drawn; leave out example_inputs.")
        return resolve_task(str(task))
    if not isinstance(task, FunctionType):
        raise TaskError(
            f"a task is a function under @task, a path, or 'suite/name'; not {_described(task)}."
            + (" Wrap the call of the module into a function." if hasattr(task, "forward") else "")
        )
    _check_name(task)
    declared = ATTRIBUTE in vars(task)
    if declared and example_inputs is not None:
        raise TaskError(f"{task.__name__} is declared by @task already; leave out example_inputs.")
    if not declared and example_inputs is None:
        raise TaskError(
            f"{task.__name__} has no @task above it; add one, or give example_inputs=(...), one tensor per argument."
        )
    decoration = "" if declared else task_decoration(task.__name__, _sets(task, example_inputs))
    text = _Capture(task, decoration).text()
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    path = folder / f"{task.__name__}-{digest}.py"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        put_in_place(path, text.encode("utf-8"))
    return f"{path}::{vars(task)[ATTRIBUTE].name if declared else task.__name__}"


class _Capture:
    """Collects the source of a function and of everything that it uses, in an order in which it can be executed."""

    def __init__(self, function: FunctionType, decoration: str) -> None:
        self._root = function
        self._decoration = decoration
        self._imports: dict[str, str] = {}  # by the name that they bind
        self._parts: dict[str, str] = {}  # constants, functions and classes, by name
        self._open: set[str] = set()  # names whose definition is being collected

    def text(self) -> str:
        """The whole task file."""
        source = _source_of(self._root)
        self._collect_names(source, self._root)
        imports = sorted({*self._imports.values(), *(["import torch"] if self._decoration else [])})
        if self._decoration:
            source = f"{self._decoration}\n{source}"
            imports.append(f"from warpsmith import {', '.join(DECORATION_NAMES)}")
        blocks = ["from __future__ import annotations", "\n".join(imports), *self._parts.values(), source]
        return "\n\n".join(block.rstrip() for block in blocks if block) + "\n"

    def _collect_names(self, source: str, owner: FunctionType | type) -> None:
        """Collect the definitions of all names in a piece of source."""
        tree = parse_python(source, "<captured>")
        space = owner.__globals__ if isinstance(owner, FunctionType) else vars(sys.modules[owner.__module__])
        if isinstance(owner, FunctionType) and owner.__closure__:
            free = ", ".join(owner.__code__.co_freevars)
            raise TaskError(
                f"{owner.__name__} uses {free} of the function around it, which cannot be written to a task file; "
                "pass it as an argument, or define it at the top level."
            )
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        for name in sorted(used):
            if name in space and name not in self._open and name != self._root.__name__:
                self._collect(name, space[name], owner.__name__)

    def _collect(self, name: str, value: object, user: str) -> None:
        if name in self._imports or name in self._parts:
            return
        statement = _import_of(name, value)
        if statement:
            self._imports[name] = statement
            return
        if isinstance(value, FunctionType | type):
            source = _source_of(value)
            if value.__name__ != name:
                source += f"\n\n{name} = {value.__name__}"
            self._open.add(name)
            self._collect_names(source, value)
            self._parts[name] = source
            return
        literal = _literal(value)
        if literal is None:
            raise TaskError(
                f"{user} uses the global {name}, {_described(value)}, which cannot be written to a task file; "
                "pass it as an argument, or compute it inside the function."
            )
        if "torch." in literal:
            self._imports["torch"] = "import torch"
        self._parts[name] = f"{name} = {literal}"


def _source_of(thing: FunctionType | type) -> str:
    """The source of a function, with its decorators, or of a class."""
    _check_name(thing)
    try:
        return textwrap.dedent(inspect.getsource(thing)).rstrip()
    except (OSError, TypeError):
        typed = _typed_source(thing) if isinstance(thing, FunctionType) else None
        if typed is not None:
            return typed
        raise TaskError(
            f"Python does not keep the source of {thing.__name__} here; define it in a file and import it, or define "
            "it in a notebook or IPython."
        ) from None


def _check_name(thing: FunctionType | type) -> None:
    if thing.__name__ == "<lambda>":
        raise TaskError("a lambda has no name for its kernel; write the function with def.")


def _typed_source(function: FunctionType) -> str | None:
    """The source of a function that was typed at the prompt, from the history of the prompt; None if it is not there.

    Python keeps the source itself from version 3.13 on. The lines are compiled and compared with the function, because
    the history also has the lines of earlier sessions.
    """
    history = sys.modules.get("readline")
    if history is None:
        return None
    items = (history.get_history_item(number) or "" for number in range(history.get_current_history_length() + 1))
    lines = [line for item in items for line in item.splitlines()]
    heads = [at for at, line in enumerate(lines) if re.match(rf"def\s+{re.escape(function.__name__)}\b", line)]
    for head in reversed(heads):
        for end in range(head + 1, min(len(lines), head + _LONGEST_TYPED) + 1):
            if _defines("\n".join(lines[head:end]), function):
                return "\n".join(lines[_first_decorator(lines, head, end) : end])
    return None


def _defines(text: str, function: FunctionType) -> bool:
    try:
        tree = parse_python(text, "<typed>")
    except (SyntaxError, ValueError):
        return False
    made = compile(tree, "<typed>", "exec", dont_inherit=True).co_consts
    codes = [each for each in made if isinstance(each, CodeType) and each.co_name == function.__name__]
    return len(tree.body) == 1 and any(_same_code(each, function.__code__) for each in codes)


def _same_code(one: CodeType, other: CodeType) -> bool:
    """True if both do the same; where they were written may differ."""
    fields = ("co_code", "co_names", "co_varnames", "co_freevars", "co_argcount", "co_kwonlyargcount")
    constants = zip(one.co_consts, other.co_consts, strict=False)
    return (
        all(getattr(one, field) == getattr(other, field) for field in fields)
        and len(one.co_consts) == len(other.co_consts)
        and all(
            _same_code(a, b) if isinstance(a, CodeType) and isinstance(b, CodeType) else repr(a) == repr(b)
            for a, b in constants
        )
    )


def _first_decorator(lines: Sequence[str], head: int, end: int) -> int:
    """The line at which the decorators above a function begin; decorators may have several lines."""
    first = head
    for start in range(head - 1, max(head - _LONGEST_TYPED, 0) - 1, -1):
        try:
            statements = parse_python("\n".join(lines[start:end]), "<typed>").body
        except (SyntaxError, ValueError):
            continue  # in the middle of a decorator
        if len(statements) > 1:
            break
        first = start
    return first


def _import_of(name: str, value: object) -> str:
    """The statement that imports a value under this name; "" if no installed package has the value."""
    if isinstance(value, ModuleType):
        if not _installed(value.__name__):
            raise TaskError(
                f"the task uses the module {value.__name__}, which is a file of yours; import the functions that it "
                "needs from it, so that they can be written to the task file."
            )
        package, _, last = value.__name__.rpartition(".")
        if last == name and package:
            return f"from {package} import {last}"
        return f"import {value.__name__}" if value.__name__ == name else f"import {value.__name__} as {name}"
    home, own = getattr(value, "__module__", None), getattr(value, "__qualname__", getattr(value, "__name__", ""))
    if not isinstance(home, str) or not isinstance(own, str) or "." in own or not _installed(home):
        return ""
    module = sys.modules.get(home)
    if module is None or getattr(module, own, None) is not value:
        return ""
    public = sys.modules["warpsmith"]
    if home.startswith("warpsmith.") and own in public.__all__:
        home = "warpsmith"
    return f"from {home} import {own}" + (f" as {name}" if own != name else "")


def _installed(module: str) -> bool:
    """True if another process can import the module: it is part of Python, of an installed package or of Warpsmith."""
    root = module.partition(".")[0]
    if (root in sys.stdlib_module_names and root != "__main__") or root == "warpsmith":
        return True
    file = getattr(sys.modules.get(root), "__file__", None)
    if not file:
        return False
    places = {sysconfig.get_paths()[key] for key in ("purelib", "platlib", "stdlib")}
    here = Path(file).resolve()
    return any(Path(place).resolve() in here.parents for place in places) or "site-packages" in here.parts


def _literal(value: object) -> str | None:
    """The Python literal of a value; None if it has none."""
    if type(value).__module__ == "torch" and type(value).__name__ in ("dtype", "memory_format"):
        return repr(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if type(value) in _LITERALS:
        return repr(value)
    if type(value) is dict:
        pairs = [(_literal(key), _literal(item)) for key, item in value.items()]
        known = [f"{key}: {item}" for key, item in pairs if key is not None and item is not None]
        return "{" + ", ".join(known) + "}" if len(known) == len(pairs) else None
    if type(value) in (list, tuple):
        assert isinstance(value, list | tuple)
        items = [_literal(item) for item in value]
        if any(item is None for item in items):
            return None
        inner = ", ".join(filter(None, items))
        return f"[{inner}]" if type(value) is list else f"({inner}{',' * (len(items) == 1)})"
    return None


def _described(value: object) -> str:
    kind = type(value)
    return (
        f"a {kind.__name__}" if kind.__module__ in ("builtins", "__main__") else f"a {kind.__module__}.{kind.__name__}"
    )


# --- example inputs ---


def _sets(function: FunctionType, given: Any) -> list[dict[str, Any]]:
    """The example inputs as one mapping of parameters to values per workload."""
    several = (
        isinstance(given, Sequence) and bool(given) and all(isinstance(each, tuple | list | dict) for each in given)
    )
    parameters = inspect.signature(function)
    found: list[dict[str, Any]] = []
    for each in given if several else [given]:
        try:
            bound = parameters.bind(**each) if isinstance(each, Mapping) else parameters.bind(*each)
        except TypeError as wrong:
            raise TaskError(f"example_inputs do not fit {function.__name__}{parameters}: {wrong}.") from None
        bound.apply_defaults()
        found.append(dict(bound.arguments))
    return found


def task_decoration(function: str, examples: Sequence[Mapping[str, Any]]) -> str:
    """The `@task(...)` for a function from examples of its arguments.

    Dimensions that have the same size in every example are one axis; a dimension of 1 stays 1. Floating-point tensors
    are drawn from N(0, 1), integers from 0 to the largest value seen, booleans with probability one half. A number
    is a scalar with its value.
    """
    axes: dict[tuple[int, ...], str] = {}
    lines: list[str] = []
    classes: set[str] = set()
    for name, first in examples[0].items():
        values = [each[name] for each in examples]
        if isinstance(first, bool | int | float):
            if any(value != first for value in values):
                raise TaskError(f"{name} of {function} differs between the examples; a number must be the same.")
            lines.append(f"{name}=scalar({first!r})")
            continue
        if not hasattr(first, "shape") or not hasattr(first, "dtype"):
            raise TaskError(f"{name} of {function} is {_described(first)}; an example input is a tensor or a number.")
        if len({(len(value.shape), str(value.dtype)) for value in values}) > 1:
            raise TaskError(f"{name} of {function} has another type or rank in another example.")
        dims = [_axis(axes, tuple(int(value.shape[at]) for value in values)) for at in range(len(first.shape))]
        shape, dtype = ", ".join(dims), str(first.dtype).removeprefix("torch.")
        if dtype in _FLOATS:
            classes.add(dtype)
            lines.append(f'{name}=normal("{shape}", dtype="{dtype}")')
        elif dtype == "bool":
            lines.append(f'{name}=booleans("{shape}")')
        else:
            top = max((int(value.max()) for value in values if value.numel()), default=0)
            lines.append(f'{name}=integers("{shape}", high={max(top, 0) + 1}, dtype="{dtype}")')
    workloads = [
        "{" + ", ".join(f'"{axis}": {sizes[number]}' for sizes, axis in axes.items()) + "}"
        for number in range(len(examples))
    ]
    widest = next((dtype for dtype in _FLOATS if dtype in classes), "float32")
    body = [*lines, f"workloads=[{', '.join(workloads)}]", f'precision="{_CLASSES[widest]}"']
    return "@task(\n" + "".join(f"    {line},\n" for line in body) + ")"


def _axis(axes: dict[tuple[int, ...], str], sizes: tuple[int, ...]) -> str:
    if set(sizes) == {1}:
        return "1"
    if sizes not in axes:
        axes[sizes] = f"n{len(axes)}"
    return axes[sizes]
