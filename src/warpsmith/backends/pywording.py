"""The contracts of Python candidates in words, for people and prompts. What is called, `pyentry` decides."""

from __future__ import annotations

import json
import keyword

from warpsmith.backends.pyentry import declaration
from warpsmith.backends.pysource import MODEL
from warpsmith.backends.wording import PRECISION_RULES, argument_table, code, workloads
from warpsmith.core.contract import Argument, PythonCall
from warpsmith.core.task import Task, TensorRole

_FRESH = "Results may not be kept from one call to the next: data and addresses change between calls."
_SEALED = (
    "Files, the network and new processes are out of reach while it runs; everything is compiled before that, from one "
    "import of the file (and, for Triton kernels, one call per workload)."
)


def launch_text(task: Task, arguments: tuple[Argument, ...]) -> str:
    """For Triton: a function that writes into the outputs."""
    skeleton = f"import torch\nimport triton\nimport triton.language as tl\n\n\n{declaration(arguments)}\n    ..."
    rules = (
        "All tensors are CUDA tensors, dense and row-major, aligned to 256 bytes.",
        "Outputs hold garbage at entry: write every element, on every call. Return nothing.",
        "Inputs are read-only: they are checked for changes afterwards.",
        "Launch on the current stream and do not synchronise: the call must be capturable into a CUDA graph.",
        "Everything inside `launch` is timed; what an autotuner tries in the first call on a workload is not.",
        _FRESH,
        _SEALED,
        *_limits(task),
    )
    return _text(task, "Triton", skeleton, argument_table(arguments), rules)


def module_text(task: Task, call: PythonCall) -> str:
    """For `ModelNew`: a module that returns its outputs."""
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
    """The class to write, with the arguments it gets."""
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
        "The error against a float64 reference may be a small multiple of PyTorch's own at this precision.",
        libraries,
    )


def _text(task: Task, language: str, skeleton: str, table: str, rules: tuple[str, ...]) -> str:
    blocks = [
        f"# {task.name} in {language}",
        task.description.strip(),
        "Compute exactly what this PyTorch code computes:",
        code("python", task.source.strip()),
        *(f"Note: {note}" for note in task.notes),
        "Define this in one complete Python file:",
        code("python", skeleton),
        table,
        "## Workloads",
        workloads(task),
        "## Rules",
        "\n".join(f"- {rule}" for rule in rules),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _shown(value: object) -> str:
    """An argument as Python writes it."""
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
