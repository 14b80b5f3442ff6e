"""The contract in words: good enough to paste into a prompt as it is, and to be read by a person.

Only wording lives here; what the entry point is, `entry.py` decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpsmith.core.contract import Argument
from warpsmith.core.task import Precision, Task

if TYPE_CHECKING:
    from warpsmith.backends.entry import Dialect

PRECISION_RULES = {
    Precision.FP32: (
        "fp32: compute in float32 or better. TF32, fp16 and bf16 arithmetic are too coarse and fail; "
        "another order of summation is fine."
    ),
    Precision.TF32: (
        "tf32: matrix products may round their inputs to TF32 (tensor cores) and accumulate in float32; "
        "fp16 and bf16 are too coarse and fail."
    ),
    Precision.FP16: (
        "fp16: values are half precision. Accumulate sums and products in float32, and round once at the end."
    ),
    Precision.BF16: ("bf16: values are bfloat16. Accumulate sums and products in float32, and round once at the end."),
    Precision.FP64: "fp64: compute in float64; float32 arithmetic is too coarse and fails.",
}

COMMON_RULES = (
    "Every tensor is dense and row-major (the last axis is contiguous).",
    "Outputs hold garbage at entry: write every element, on every call.",
    "Inputs are read-only: they are checked for changes afterwards.",
    "All memory is allocated for you: do not allocate any inside `launch`. Everything in it is timed.",
    "Return 0 on success and any other number on failure.",
    "Results may not be kept from one call to the next: data and addresses change between calls.",
)


def contract_text(
    task: Task,
    dialect: Dialect,
    arguments: tuple[Argument, ...],
    *,
    declaration: str,
    workspace: str,
    enumerators: tuple[str, ...],
    constants: tuple[str, ...],
) -> str:
    """The whole contract as Markdown."""
    blocks = [
        f"# {task.name} in {dialect.language}",
        task.description.strip(),
        "Compute exactly what this PyTorch code computes:",
        code("python", task.source.strip()),
        *(f"Note: {note}" for note in task.notes),
        "Define this function in one complete source file (no `main`):",
        code(dialect.fence, declaration.rstrip(";")),
        argument_table(arguments),
    ]
    if enumerators:
        blocks += [
            "The tensors behind `state`, by index:",
            code(dialect.fence, "\n".join(["enum {", *(f"  {e}" for e in enumerators), "};"])),
        ]
    blocks += [
        "## Workloads",
        workloads(task),
        "## Rules",
        "\n".join(f"- {rule}" for rule in _rules(task, dialect)),
        "## Provided",
        _provided(dialect, workspace, constants),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def code(tag: str, body: str) -> str:
    """A fenced block of Markdown."""
    # A source that itself holds a fence would end the block early.
    fence = "````" if "```" in body else "```"
    return f"{fence}{tag}\n{body}\n{fence}"


def argument_table(arguments: tuple[Argument, ...]) -> str:
    """The arguments as a Markdown table."""
    rows = [("argument", "type", "what it is")]
    rows += [(f"`{a.name}`", f"`{a.ctype}`", f"{a.kind.value}: {a.meaning}") for a in arguments]
    first, second = (max(len(row[i]) for row in rows) for i in (0, 1))
    lines = [f"| {a:<{first}} | {b:<{second}} | {c} |" for a, b, c in rows]
    lines.insert(1, f"|{'-' * (first + 2)}|{'-' * (second + 2)}|---|")
    return "\n".join(lines)


def workloads(task: Task) -> str:
    """The sizes it is judged on."""
    if not task.axes:
        return "One size only, as the shapes above say."
    lines = ["It is checked on all of these sizes and timed on them too; others must work as well:"]
    lines += [f"- {w.name}: {', '.join(f'{a} = {v}' for a, v in w.axes)}" for w in task.workloads]
    return "\n".join(lines)


def _rules(task: Task, dialect: Dialect) -> tuple[str, ...]:
    memory = f"Tensor pointers are {dialect.memory} pointers, aligned to {dialect.alignment_bytes} bytes."
    allowed = ", ".join(task.allow)
    libraries = (
        f"Libraries you may call: {allowed}."
        if allowed
        else "Library kernels may not be called: write the computation yourself."
    )
    precision = f"Precision class {PRECISION_RULES[task.precision]}"
    limit = "The error against a float64 reference may be a small multiple of PyTorch's own at this precision."
    used = dict.fromkeys(t.dtype for t in task.tensors)
    types = tuple(dialect.type_rules[dtype] for dtype in used if dtype in dialect.type_rules)
    return (memory, *COMMON_RULES, *dialect.rules, *types, precision, limit, libraries)


def _provided(dialect: Dialect, workspace: str, constants: tuple[str, ...]) -> str:
    headers = ", ".join(f"`<{name}>`" for name in dialect.includes)
    lines = [
        f"- A header with the declarations above is included before your file, with {headers}; "
        "other headers you use may be included as usual.",
        "- Scratch memory, if you need it: define the function below and get that many bytes as `workspace`, "
        "with undefined contents on every call.",
        _indented(code(dialect.fence, workspace.rstrip(";"))),
    ]
    if constants:
        lines += ["- Compile-time constants:", _indented(code(dialect.fence, _namespace(constants)))]
    lines.append(
        "- Tunable macros: a line such as `// tune: BLOCK = 128, 256, 512` makes `BLOCK` a macro, "
        "first value by default; of the best kernel of a run the others are tried, too. "
        "Do not define `BLOCK` yourself except inside `#ifndef BLOCK`."
    )
    return "\n".join(lines)


def _namespace(constants: tuple[str, ...]) -> str:
    shown = constants if len(constants) <= 40 else (*constants[:40], f"// and {len(constants) - 40} more like these")
    return "\n".join(["namespace task {", *(f"  {c}" for c in shown), "}"])


def _indented(block: str) -> str:
    return "\n".join("  " + line for line in block.splitlines())
