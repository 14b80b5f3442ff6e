"""The C entry point of a task: its arguments, header and description, all made from one list.

Every backend that compiles to a C symbol uses this module; a `CDialect` has the differences between backends (type
names, headers, memory, rules). Prompts contain the description as it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from warpsmith.model.contract import Argument, ArgumentKind, Contract
from warpsmith.model.task import Precision, ScalarKind, ScalarSpec, Task, TensorRole, TensorSpec

ENTRY = "launch"
WORKSPACE = "workspace_bytes"
NAMED_STATE_LIMIT = 24
"""With more state tensors than this, the entry point gets one table of pointers instead of a parameter for each."""

_RESERVED_WORDS = """
    alignas alignof and and_eq asm atomic auto bitand bitor bool break case catch char char8_t char16_t
    char32_t class compl concept const consteval constexpr constinit const_cast continue co_await co_return
    co_yield decltype default delete do double dynamic_cast else enum explicit export extern false float for
    friend goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq
    private protected public register reinterpret_cast requires restrict return short signed sizeof static
    static_assert static_cast struct switch template this thread_local throw true try typedef typeid
    typename typeof union unsigned using virtual void volatile wchar_t while xor xor_eq
    NULL EOF NAN INFINITY assert errno linux unix stdin stdout stderr signbit isnan isinf isfinite
    task std workspace stream launch workspace_bytes
"""
_RESERVED = frozenset(_RESERVED_WORDS.split())
"""C++ keywords, common macros and names of the contract, none of which can name a parameter or a constant."""


@dataclass(frozen=True)
class LibraryHeader:
    """A header that comes with Warpsmith."""

    name: str
    offers: str
    serves: str = ""  # what the source of a task holds that the header is for, as a pattern; "": any task

    def fits(self, task: Task) -> bool:
        """True if the header may help with a task."""
        return re.search(self.serves, task.source, re.IGNORECASE) is not None


@dataclass(frozen=True)
class CDialect:
    """The properties of one backend's C entry point."""

    backend: str
    language: str  # as shown to users: "C++17 with OpenMP"
    fence: str  # the tag of a Markdown code block
    ctypes: Mapping[str, str]  # element type of a task -> C type
    includes: tuple[str, ...]  # always in the header
    type_includes: Mapping[str, str]  # element type -> a further header it needs
    type_preludes: Mapping[str, str]  # element type -> code in the header that defines it
    memory: str  # where the pointers point: "host" or "device"
    alignment_bytes: int  # of every pointer
    table_note: str  # in which memory the state table is
    rules: tuple[str, ...]  # of the description, one or two sentences each
    type_rules: Mapping[str, str]  # element type -> a further rule for tasks that use it
    product_rules: Mapping[Precision, str] = field(default_factory=dict)  # precision -> a rule for tasks with products
    library: tuple[LibraryHeader, ...] = ()
    installed: tuple[str, ...] = ()  # headers of others that are there to be included, a sentence or more for each


def make_contract(task: Task, dialect: CDialect) -> Contract:
    """The entry point of one task in one dialect."""
    names = _Names()
    state = tuple(t for t in task.tensors if t.role is TensorRole.STATE)
    tabled = state if len(state) > NAMED_STATE_LIMIT else ()
    arguments = _arguments(task, dialect, tabled, names)
    table = tuple(t.name for t in tabled)
    enumerators = _enumerators(tabled)
    declaration = _declare("int", ENTRY, arguments)
    sizes = tuple(a for a in arguments if a.kind in (ArgumentKind.AXIS, ArgumentKind.SCALAR))
    workspace = _declare("int64_t", WORKSPACE, sizes)
    constants = _constants(task)
    header = _header(task, dialect, declaration, workspace, enumerators, constants)
    text = contract_text(
        task,
        dialect,
        arguments,
        declaration=f'extern "C" {declaration}',
        workspace=f'extern "C" {workspace}',
        enumerators=enumerators,
        constants=constants,
    )
    # Only Python candidates can use PyTorch: a C entry point links nothing of it.
    libraries = tuple(n for n in task.allow if re.fullmatch(r"[A-Za-z0-9_+-]+", n) and n != "torch")
    return Contract(task.name, dialect.backend, ENTRY, arguments, table, header, text, libraries)


def declaration_of(contract: Contract) -> str:
    """The declaration of the function that a candidate must define, as messages quote it."""
    return f'extern "C" {_declare("int", contract.entry, contract.arguments)}'


class _Names:
    """Gives every parameter a legal C name of its own."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def take(self, name: str, suffix: str = "_") -> str:
        """`name` if C++ allows it and it is not taken, else `name` with a suffix."""
        clean = re.sub(r"[^A-Za-z0-9_]", lambda m: f"u{ord(m[0]):x}", name)
        while clean in _RESERVED or clean in self._taken:
            clean += suffix
        self._taken.add(clean)
        return clean


def _arguments(task: Task, dialect: CDialect, tabled: tuple[TensorSpec, ...], names: _Names) -> tuple[Argument, ...]:
    found: list[Argument] = []

    def tensors(role: TensorRole, kind: ArgumentKind, const: str) -> None:
        for spec in (t for t in task.tensors if t.role is role):
            ctype = f"{const}{dialect.ctypes[spec.dtype]}*"
            found.append(Argument(names.take(spec.name), kind, ctype, meaning_of(spec), spec.name))

    tensors(TensorRole.INPUT, ArgumentKind.INPUT, "const ")
    if tabled:
        meaning = f"{len(tabled)} tensors in the order of the STATE_ enumeration; {dialect.table_note}"
        found.append(Argument(names.take("state"), ArgumentKind.TABLE, "const void* const*", meaning))
    else:
        tensors(TensorRole.STATE, ArgumentKind.INPUT, "const ")
    tensors(TensorRole.OUTPUT, ArgumentKind.OUTPUT, "")
    for scalar in task.scalars:
        meaning = f"always {scalar.value}"
        found.append(Argument(names.take(scalar.name), ArgumentKind.SCALAR, scalar.kind.value, meaning, scalar.name))
    for axis in task.axes:
        found.append(Argument(names.take(axis, "_size"), ArgumentKind.AXIS, "int64_t", extent_of(task, axis), axis))
    scratch = f"scratch memory if you define {WORKSPACE}, else null"
    found.append(Argument("workspace", ArgumentKind.WORKSPACE, "void*", scratch))
    stream = "the cudaStream_t to launch on" if dialect.memory == "device" else "unused here"
    found.append(Argument("stream", ArgumentKind.STREAM, "void*", stream))
    return tuple(found)


def extent_of(task: Task, axis: str) -> str:
    """The values of an axis, in words. Verification uses other values of an axis that is not fixed."""
    if axis in task.fixed_axes:
        return f"always {task.fixed_axes[axis]}"
    values = dict.fromkeys(str(w.sizes[axis]) for w in task.workloads)
    return f"{', '.join(values)} here; others must work"


def meaning_of(spec: TensorSpec) -> str:
    """The description of a tensor: type, shape, and its name in the task file if that differs."""
    shape = ", ".join(str(d) for d in spec.dims)
    origin = f" ({spec.origin})" if spec.origin and spec.origin != spec.name else ""
    note = ", one element" if not spec.dims else ""
    return f"{spec.dtype} [{shape}]{note}{origin}"


def _declare(result: str, name: str, arguments: tuple[Argument, ...]) -> str:
    return f"{result} {name}({', '.join(f'{a.ctype} {a.name}' for a in arguments)});"


def _enumerators(tabled: tuple[TensorSpec, ...]) -> tuple[str, ...]:
    names = _Names()
    return tuple(
        f"{names.take('STATE_' + spec.name.upper())} = {index},  // {meaning_of(spec)}"
        for index, spec in enumerate(tabled)
    )


def _constants(task: Task) -> tuple[str, ...]:
    """The constants known at compile time: fixed axes, scalars, and the extents of fixed-size tensors."""
    names = _Names()
    fixed = task.fixed_axes
    lines = [f"constexpr int64_t {names.take(axis, '_size')} = {value};" for axis, value in fixed.items()]
    for scalar in task.scalars:
        lines.append(f"constexpr {scalar.kind.value} {names.take(scalar.name)} = {_literal(scalar)};")
    for spec in task.tensors:
        for index, dim in enumerate(spec.dims):
            if isinstance(dim, int):
                lines.append(f"constexpr int64_t {names.take(f'{spec.name}_dim{index}')} = {dim};")
        if all(isinstance(d, int) or d in fixed for d in spec.dims):
            count = spec.numel(task.workloads[0].sizes)
            lines.append(f"constexpr int64_t {names.take(f'{spec.name}_numel')} = {count};")
    return tuple(lines)


def _literal(scalar: ScalarSpec) -> str:
    if scalar.kind is ScalarKind.BOOL:
        return "true" if scalar.value else "false"
    if scalar.kind is ScalarKind.INT:
        value = int(scalar.value)
        # The most negative 64-bit number has no literal: C++ reads a minus sign and a number that is too large.
        return f"({value + 1} - 1)" if value == -(2**63) else str(value)
    number = float(scalar.value)
    if math.isnan(number):
        return "NAN"
    if math.isinf(number):
        return "INFINITY" if number > 0 else "-INFINITY"
    return repr(number)


def _header(
    task: Task,
    dialect: CDialect,
    declaration: str,
    workspace: str,
    enumerators: tuple[str, ...],
    constants: tuple[str, ...],
) -> str:
    used = dict.fromkeys(t.dtype for t in task.tensors)
    extra = dict.fromkeys(dialect.type_includes[d] for d in used if d in dialect.type_includes)
    title = re.sub(r"[^\w ./:-]", "?", task.name)
    lines = [
        f"// Contract of task {title} for backend {dialect.backend}, included before the candidate.",
        "#pragma once",
    ]
    lines += [f"#include <{name}>" for name in (*dialect.includes, *extra)]
    for dtype in used:
        if dtype in dialect.type_preludes:
            lines += ["", dialect.type_preludes[dtype].strip()]
    # Declared with C linkage here, so that a definition without `extern "C"` has it, too.
    lines += ["", 'extern "C" {', declaration, workspace, "}"]
    if enumerators:
        lines += ["", "enum {", *(f"  {e}" for e in enumerators), "};"]
    if constants:
        lines += ["", "namespace task {", *constants, "}  // namespace task"]
    return "\n".join(lines) + "\n"


PRODUCT = (
    r"\b(?:b?mm|baddbmm|addmm|matmul|einsum|[Bb]i[Ll]inear|[Ll]inear|\w*[Cc]onv\w*|scaled_dot_product_attention|"
    r"MultiheadAttention|LSTM|GRU|RNN)\b|[\w)\]] @ [\w(]"
)
"""Finds matrix products and convolutions in the source of a task."""

PRECISION_RULES = {
    Precision.FP32: (
        "fp32: compute in float32 or better. TF32, fp16 and bf16 arithmetic alone are too coarse and fail; "
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

_COUNTERS = ("i", "j", "k")
"""Names that models give to the variables of loops."""

ERROR_RULE = (
    "The error against a float64 reference may be a small multiple of PyTorch's own at this precision. Two errors are "
    "limited: the largest |difference| / (|reference| + s), and the root mean square of the differences over s, where "
    "s is the root mean square of the reference."
)

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
    dialect: CDialect,
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
        code_block("python", task.source.strip()),
        *(f"Note: {note}" for note in task.notes),
        "Define this function in one complete source file (no `main`):",
        code_block(dialect.fence, declaration.rstrip(";")),
        argument_table(arguments),
    ]
    if enumerators:
        blocks += [
            "The tensors behind `state`, by index:",
            code_block(dialect.fence, "\n".join(["enum {", *(f"  {e}" for e in enumerators), "};"])),
        ]
    blocks += [
        "## Workloads",
        workloads_text(task),
        "## Rules",
        "\n".join(f"- {rule}" for rule in _rules(task, dialect, arguments)),
        "## Provided",
        _provided(task, dialect, workspace, constants),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def code_block(tag: str, body: str) -> str:
    """A fenced block of Markdown."""
    # A fence inside the source would end the block early.
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


def workloads_text(task: Task) -> str:
    """The sizes on which a candidate is checked and timed, as Markdown."""
    if not task.axes:
        return "One size only, as the shapes above say."
    free = ", ".join(axis for axis in task.axes if axis not in task.fixed_axes)
    lines = [f"Your program is checked and timed on all of these sizes; other values of {free} must work as well:"]
    if not free:
        lines = ["Your program is checked and timed at this size only:"]
    lines += [f"- {w.name}: {', '.join(f'{a} = {v}' for a, v in w.axes)}" for w in task.workloads]
    return "\n".join(lines)


def _rules(task: Task, dialect: CDialect, arguments: tuple[Argument, ...]) -> tuple[str, ...]:
    memory = f"Tensor pointers are {dialect.memory} pointers, aligned to {dialect.alignment_bytes} bytes."
    allowed = ", ".join(task.allow)
    libraries = (
        f"Libraries you may call: {allowed}."
        if allowed
        else "Library kernels may not be called: write the computation yourself."
    )
    precision = f"Precision class {PRECISION_RULES[task.precision]}"
    used = dict.fromkeys(t.dtype for t in task.tensors)
    types = tuple(dialect.type_rules[dtype] for dtype in used if dtype in dialect.type_rules)
    told = task.precision in dialect.product_rules and has_product(task)
    products = (dialect.product_rules[task.precision],) if told else ()
    counters = tuple(
        f"`{a.name}` is a parameter: give loops another variable." for a in arguments if a.name in _COUNTERS
    )
    return (memory, *COMMON_RULES, *counters, *dialect.rules, *types, precision, *products, ERROR_RULE, libraries)


def has_product(task: Task) -> bool:
    """True if the source of a task multiplies matrices."""
    return re.search(PRODUCT, task.source) is not None


def _provided(task: Task, dialect: CDialect, workspace: str, constants: tuple[str, ...]) -> str:
    headers = ", ".join(f"`<{name}>`" for name in dialect.includes)
    lines = [
        f"- A header with the declarations above is included before your file, with {headers}: include none of these. "
        "Other headers of the language may be included as usual; there are no files of this task to include.",
        "- Scratch memory, only for kernels that need it; most need none and leave this function out. The harness "
        f"calls it before `{ENTRY}`, and `workspace` has that many bytes, with undefined contents on every call.",
        _indented(code_block(dialect.fence, workspace.rstrip(";"))),
    ]
    if constants:
        lines += ["- Compile-time constants:", _indented(code_block(dialect.fence, _namespace(constants)))]
    fitting = [header for header in dialect.library if header.fits(task)]
    if fitting:
        lines.append(
            "- Warpsmith's device library, which counts as your own code. Its headers for tasks like this one, "
            "written for sm_90a:"
        )
        lines += [f"  - `#include <warpsmith/{header.name}>`: {header.offers}" for header in fitting]
    lines += [f"- {sentences}" for sentences in dialect.installed]
    lines.append(
        "- Tunable macros, if a number is worth trying: a comment line of its own, such as "
        "`// tune: BLOCK = 128, 256, 512`, makes `BLOCK` a macro, first value by default; the others may be tried for "
        "the best kernel of a run. Do not declare or define `BLOCK` yourself except inside `#ifndef BLOCK`."
    )
    return "\n".join(lines)


def _namespace(constants: tuple[str, ...]) -> str:
    shown = constants if len(constants) <= 40 else (*constants[:40], f"// and {len(constants) - 40} more like these")
    return "\n".join(["namespace task {", *(f"  {c}" for c in shown), "}"])


def _indented(block: str) -> str:
    return "\n".join("  " + line for line in block.splitlines())
