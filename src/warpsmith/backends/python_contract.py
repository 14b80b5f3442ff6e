"""The contracts of Python candidates: how `launch`, `ModelNew` or the function of `--entry` is called.

This module decides the arguments; `evaluator.candidate.python_module` makes the calls.
"""

from __future__ import annotations

import ast
import json
import keyword
import re
from dataclasses import dataclass

from warpsmith.backends.c_contract import (
    ERROR_RULE,
    PRECISION_RULES,
    argument_table,
    code_block,
    extent_of,
    has_product,
    meaning_of,
    workloads_text,
)
from warpsmith.backends.python_source import LAUNCH, MODEL
from warpsmith.model.contract import Argument, ArgumentKind, CallForm, PythonCall
from warpsmith.model.errors import UsageError
from warpsmith.model.source_text import parse_python_expression
from warpsmith.model.task import Precision, ScalarKind, Task, TensorRole

_NUMBER = {ScalarKind.INT: "int", ScalarKind.FLOAT: "float", ScalarKind.BOOL: "bool"}
_LITERALS: dict[str, object] = {"true": True, "false": False, "none": None}
_NAME = re.compile(r"[A-Za-z_]\w*(?:(?:\.|::)[A-Za-z_]\w*)*\Z")


@dataclass(frozen=True)
class EntryCall:
    """The parsed value of `--entry`."""

    name: str  # as written, e.g. "ops::softmax"
    arguments: tuple[object, ...] | None  # JSON values, names as {"$": name}; None: not given
    keywords: tuple[tuple[str, object], ...] = ()

    @property
    def attribute(self) -> str:
        """The name of the function in Python."""
        return re.split(r"\.|::", self.name)[-1]


def parse_entry(text: str) -> EntryCall:
    """`NAME` or `NAME(ARG, ...)`; raises UsageError for anything else."""
    name, bracket, rest = text.strip().partition("(")
    wrong = UsageError(
        f"--entry {text!r} is not a call: write NAME or NAME(ARG, ...), where each ARG is a name of the task or a "
        "number, true, false, none."
    )
    if not _NAME.match(name.strip()):
        raise wrong
    if not bracket:
        return EntryCall(name.strip(), None)
    try:
        call = parse_python_expression(f"_({rest}")
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
    return EntryCall(name.strip(), arguments, keywords)


def _value(node: ast.expr) -> object:
    if isinstance(node, ast.Name):
        return _LITERALS.get(node.id.lower(), {"$": node.id})
    if isinstance(node, ast.List):
        return [_value(part) for part in node.elts]
    if isinstance(node, ast.Tuple):
        return {"()": [_value(part) for part in node.elts]}
    literal = ast.literal_eval(node)  # raises ValueError for expressions
    if literal is None or isinstance(literal, bool | int | float | str):
        return literal
    raise ValueError(f"no plain value: {ast.unparse(node)}")


def entry_call(task: Task, text: str) -> PythonCall:
    """The call of the candidate's function that `--entry` names."""
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
            f"--entry {text!r}: {unknown[0]!r} is no tensor, scalar or axis of {task.name}; known: {', '.join(known)}."
        )
    return PythonCall(
        form=CallForm.FUNCTION,
        name=entry.attribute,
        arguments=json.dumps(arguments),
        keywords=json.dumps(dict(entry.keywords)),
        returned=tuple(t.name for t in task.outputs if t.name not in used),
        tf32=task.precision is Precision.TF32,
    )


def module_call(task: Task) -> PythonCall:
    """The call of `ModelNew`, with the arguments that the task gives its `Model`."""
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
        form=CallForm.MODULE,
        name=MODEL,
        arguments=json.dumps(arguments),
        keywords=json.dumps(keywords),
        init=init,
        returned=tuple(t.name for t in task.outputs),
        tf32=task.precision is Precision.TF32,
    )


def launch_call(task: Task) -> PythonCall:
    """The call of `launch`: every tensor, then every number, in order."""
    names = [argument.source for argument in launch_arguments(task)]
    return PythonCall(
        form=CallForm.LAUNCH,
        name=LAUNCH,
        arguments=json.dumps([{"$": name} for name in names]),
        tf32=task.precision is Precision.TF32,
    )


def launch_arguments(task: Task) -> tuple[Argument, ...]:
    """The arguments of `launch`: inputs, state, outputs, scalars, axes; no workspace and no stream."""
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
    """The first line of the function that a candidate must define."""
    return f"def {LAUNCH}({', '.join(a.name for a in arguments)}):"


def _plain(name: str) -> str:
    return name + "_" if keyword.iskeyword(name) else name


def _known(task: Task) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*(t.name for t in task.tensors), *(s.name for s in task.scalars), *task.axes]))


def _names(value: object) -> list[str]:
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


_FRESH = "Results may not be kept from one call to the next: data and addresses change between calls."
_SEALED = (
    "Files, the network and new processes are out of reach while it runs; everything is compiled before that, from one "
    "import of the file (and, for Triton kernels, one call per workload)."
)


_DOT = (
    '`tl.dot` rounds float32 factors to TF32 unless it is told otherwise: give `input_precision="ieee"`, or '
    '`"tf32x3"` with partial sums that are added outside of `tl.dot` every few steps.'
)


def launch_text(task: Task, arguments: tuple[Argument, ...]) -> str:
    """The contract of a Triton candidate: a function that writes into the outputs."""
    skeleton = f"import torch\nimport triton\nimport triton.language as tl\n\n\n{declaration(arguments)}\n    ..."
    rules = (
        "All tensors are CUDA tensors, dense and row-major, aligned to 256 bytes.",
        "Outputs hold garbage at entry: write every element, on every call. Return nothing.",
        "Inputs are read-only: they are checked for changes afterwards.",
        "Launch on the current stream and do not synchronise: the call must be capturable into a CUDA graph.",
        "Everything inside `launch` is timed; what an autotuner tries in the first call on a workload is not.",
        _FRESH,
        _SEALED,
        *((_DOT,) if task.precision is Precision.FP32 and has_product(task) else ()),
        *_limits(task),
    )
    return _text(task, "Triton", skeleton, argument_table(arguments), rules)


def module_text(task: Task, call: PythonCall) -> str:
    """The contract of a `ModelNew`: a module that returns its outputs."""
    rules = (
        f"`{MODEL}` is constructed once; then its `forward` is called, under `torch.no_grad()`.",
        *_state_rules(task),
        "Inputs and parameters are read-only: they are checked for changes afterwards. Buffers are private copies.",
        "Return plain `torch.Tensor`s of the shapes and types above, on the inputs' device: no subclass, no Parameter.",
        "Extensions may be compiled with `torch.utils.cpp_extension.load_inline` or `load` while the file is imported "
        f"or `{MODEL}` is constructed.",
        "On CUDA, work on the current stream and do not synchronise, so that the call can be captured into a graph.",
        _FRESH,
        _SEALED,
        *_limits(task),
    )
    return _text(task, f"PyTorch ({MODEL})", module_skeleton(task, call), _tensor_table(task), rules)


def module_skeleton(task: Task, call: PythonCall) -> str:
    """The skeleton of the class to write, with its arguments."""
    init_args, init_kwargs = json.loads(call.init)
    parameters = ["self", *(f"arg{i}" for i in range(len(init_args))), *init_kwargs]
    given = [_shown(value) for value in json.loads(call.arguments)]
    keywords = {key: _shown(value) for key, value in json.loads(call.keywords).items()}
    plain = [text.isidentifier() and not keyword.iskeyword(text) for text in given]
    names = [text if plain[i] else f"arg{i}" for i, text in enumerate(given)]
    outputs = ", ".join(call.returned)
    built = ", ".join([*(_shown(v) for v in init_args), *(f"{k}={_shown(v)}" for k, v in init_kwargs.items())])
    called = ", ".join([*given, *(f"{k}={v}" for k, v in keywords.items())])
    return "\n".join(
        [
            "import torch",
            "from torch import nn",
            "",
            "",
            f"class {MODEL}(nn.Module):",
            f"    def __init__({', '.join(parameters)}):  # {MODEL}({built})",
            "        super().__init__()",
            "        ...",
            "",
            f"    def forward({', '.join(['self', *names, *keywords])}):  # model({called})",
            "        ...",
            f"        return {outputs}",
        ]
    )


def _state_rules(task: Task) -> tuple[str, ...]:
    state = [t for t in task.tensors if t.role is TensorRole.STATE]
    if not state:
        return ()
    shown = ", ".join(f"`{t.origin or t.name}`" for t in state[:12]) + (", …" if len(state) > 12 else "")
    return (
        f"Give its parameters and buffers the names they have in `Model` ({shown}): before every call they hold the "
        "task's values, new ones each time. Whatever depends on them must be computed in `forward`.",
    )


def _tensor_table(task: Task) -> str:
    rows = ["| tensor | what it is |", "|---|---|"]
    for spec in task.tensors:
        shape = ", ".join(str(d) for d in spec.dims)
        rows.append(f"| `{spec.origin or spec.name}` | {spec.role.value}: {spec.dtype} [{shape}] |")
    return "\n".join(rows)


def _limits(task: Task) -> tuple[str, ...]:
    allowed = ", ".join(task.allow)
    libraries = f"Libraries you may call: {allowed}." if allowed else "Write the computation yourself."
    return (
        f"Precision class {PRECISION_RULES[task.precision]}",
        ERROR_RULE,
        libraries,
    )


def _text(task: Task, language: str, skeleton: str, table: str, rules: tuple[str, ...]) -> str:
    blocks = [
        f"# {task.name} in {language}",
        task.description.strip(),
        "Compute exactly what this PyTorch code computes:",
        code_block("python", task.source.strip()),
        *(f"Note: {note}" for note in task.notes),
        "Define this in one complete Python file:",
        code_block("python", skeleton),
        table,
        "## Workloads",
        workloads_text(task),
        "## Rules",
        "\n".join(f"- {rule}" for rule in rules),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _shown(value: object) -> str:
    if isinstance(value, dict):
        if "$" in value:
            return str(value["$"])
        if "()" in value:
            parts = [_shown(part) for part in value["()"]]
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        return "{" + ", ".join(f"{key!r}: {_shown(part)}" for key, part in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(_shown(part) for part in value)}]"
    return repr(value)
