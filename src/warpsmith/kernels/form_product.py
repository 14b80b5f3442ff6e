"""Products of matrices and of stacks of matrices: either factor plain or transposed, views around them, a bias.

Element-wise operations after a product become the end of its kernel.

On a GPU the kernel is one of `matmul.cuh` or `register_product.cuh`, on the CPU of `cpu/product.h`.

Views are followed symbolically: a value is a tensor whose own axes are grouped into the value's axes in some order.
A factor whose rows and terms lie in memory in one of the two orders that `matmul.cuh` takes is read as it lies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from warpsmith.kernels.form_tail import Indices, Tail, divide
from warpsmith.kernels.form_task import (
    FormKernel,
    FormTask,
    NotThisForm,
    Step,
    require,
    text,
    tunable,
    value_name,
)
from warpsmith.lowering.emitter import nest
from warpsmith.model.task import Dim, Workload

_PRODUCTS = ("mm", "bmm", "addmm")


@dataclass(frozen=True)
class Axis:
    """One axis of a tensor: its place in memory order, and its extent."""

    tensor: str
    place: int
    extent: Dim


Group = tuple[Axis, ...]
View = tuple[Group, ...]
"""A value: for each of its axes the axes of the tensor that it runs over, the slowest first; () for an extent of 1."""


def product(task: FormTask) -> FormKernel:
    """One product, perhaps with element-wise operations after it."""
    tail: Tail | None = None
    try:
        found = read_product(task, task.steps)
    except NotThisForm:
        head, tail = divide(task, _PRODUCTS)
        found = read_product(head, head.steps)
        groups = tail.grouped([[axis.extent for axis in group] for group in (found.stack, found.rows, found.columns)])
        vector = None if found.bias else tail.added_vector(groups[-1])
        if vector:
            found, tail = replace(found, bias=task.parameter(vector)), None
        # Modest products have kernels without such an end on a GPU: the product and what follows are two kernels there.
        require(tail is None or task.on_cpu or not all(_is_modest(task, found, each) for each in task.task.workloads))
    kind = "batched product" if found.stack else "product"
    if found.bias:
        kind += " with bias"
    if tail:
        write = _cpu_source_with_tail if task.on_cpu else _source_with_tail
        return FormKernel(f"{kind}, then element-wise operations", write(task, found, tail, groups))
    return FormKernel(kind, _cpu_source(task, found) if task.on_cpu else _source(task, found))


def read_product(task: FormTask, steps: Sequence[Step]) -> OneProduct:
    """The product that these operations are, the last of which gives the result."""
    views = {name: _whole(name, spec.dims) for name, spec in ((t.name, t) for t in task.task.inputs)}
    found: OneProduct | None = None
    for step in steps:
        if step.name in _PRODUCTS:
            require(found is None)
            found = _multiply(task, step, views)
            views[step.result.name] = found.result
        else:
            views[step.result.name] = _viewed(step, views)
    if found is None:
        raise NotThisForm
    # The result must lie in memory as the product writes it.
    written = [axis for group in views[steps[-1].result.name] for axis in group]
    require(written == [axis for group in found.result for axis in group])
    return found


@dataclass(frozen=True)
class OneProduct:
    """One product: the axes of its rows, terms and columns, and how its factors lie in memory."""

    stack: Group
    rows: Group
    terms: Group
    columns: Group
    a: str
    b: str
    a_transposed: bool
    b_transposed: bool  # the second factor is [terms, columns]
    shared_b: bool  # all products of the stack have the same second factor
    bias: str
    result: View


def _multiply(task: FormTask, step: Step, views: dict[str, View]) -> OneProduct:
    bias = ""
    arguments = step.arguments
    if step.name == "addmm":
        require(len(arguments) == 3)  # no factors alpha and beta
        bias = task.pointer(arguments[0])
        require(len(task.tensor(arguments[0]).dims) == 1)
        arguments = arguments[1:]
    left, right = (_view(each, views) for each in arguments)
    stack: Group = ()
    stack_b: Group = ()
    if step.name == "bmm":
        stack, left, stack_b, right = left[0], left[1:], right[0], right[1:]
    rows, terms = left
    terms_b, columns = right
    require(_extents(terms) == _extents(terms_b))
    require(not stack_b or _extents(stack) == _extents(stack_b))
    require(bool(terms) and bool(columns) and bool(rows or stack))
    shared = not stack_b
    if shared:  # the same matrix for the whole stack: one product of all rows
        require(not stack or _order(stack + rows + terms) is not None)
        rows, stack = stack + rows, ()
    a_plain, a_turned = _order(stack + rows + terms), _order(stack + terms + rows)
    b_plain, b_turned = _order(stack_b + columns + terms_b), _order(stack_b + terms_b + columns)
    require(bool(a_plain or a_turned) and bool(b_plain or b_turned))
    if bias:
        require(_extents(columns) == _extents((Axis("", 0, task.tensor(step.arguments[0]).dims[0]),)))
    names = {spec.name: task.parameter(spec.name) for spec in task.task.inputs}
    result: View = (rows, columns) if step.name != "bmm" else (stack, rows, columns)
    if step.name == "bmm" and shared:
        result = ((), rows, columns)
    return OneProduct(
        stack=stack,
        rows=rows,
        terms=terms,
        columns=columns,
        a=names[str(a_plain or a_turned)],
        b=names[str(b_plain or b_turned)],
        a_transposed=not a_plain,
        b_transposed=not b_plain,
        shared_b=shared,
        bias=bias,
        result=result,
    )


def _order(axes: Group) -> str | None:
    """The tensor whose axes these are, all of them in memory order; None if they are not."""
    tensors = {axis.tensor for axis in axes}
    places = [axis.place for axis in axes]
    return axes[0].tensor if len(tensors) == 1 and places == sorted(places) else None


def _extents(group: Group) -> tuple[Dim, ...]:
    """The factors of an extent, to compare extents with each other."""
    number = math.prod(axis.extent for axis in group if isinstance(axis.extent, int))
    return (number, *sorted(axis.extent for axis in group if isinstance(axis.extent, str)))


def factors(found: OneProduct) -> str:
    """Both factors, as arguments of a kernel."""
    first = "transposed" if found.a_transposed else "plain"
    second = "transposed" if found.b_transposed else "plain"
    return f"warpsmith::{first}({found.a}, p.rows, p.terms), warpsmith::{second}({found.b}, p.columns, p.terms)"


def _stored(found: OneProduct) -> str:
    stored = [name for name, each in (("first", found.a_transposed), ("second", not found.b_transposed)) if each]
    return f", the {' and the '.join(stored)} stored transposed" if stored else ""


def _product_function(task: FormTask, found: OneProduct) -> str:
    """The function that gives the sizes of the product."""
    stack, rows, terms, columns = (
        task.product([axis.extent for axis in group]) for group in (found.stack, found.rows, found.terms, found.columns)
    )
    return (
        f"warpsmith::Product product({task.size_parameters}) {{ "
        f"return {{{stack}, {rows}, {terms}, {columns}, {'true' if found.shared_b else 'false'}}}; }}"
    )


def _source(task: FormTask, found: OneProduct) -> str:
    end = f"warpsmith::dense({task.out}, p)"
    if found.bias:
        end = f"Biased{{{end}, {found.bias}}}"
    kind = "products of many pairs of matrices" if found.stack else "product of two matrices"
    exactness = "<warpsmith::Tf32>" if task.tf32 else ""
    how = "accuracy of TF32 from one fp16 product" if task.tf32 else "float32 accuracy from three fp16 products"
    both = factors(found)
    needed = f"return warpsmith::multiply_bytes{exactness}(product({task.size_names}));"
    registers = ""
    if any(_is_modest(task, found, workload) for workload in task.task.workloads):
        layout = ", ".join("true" if each else "false" for each in (found.a_transposed, found.b_transposed))
        class_ = ", warpsmith::Tf32" if task.tf32 else ""
        needed = (
            f"const warpsmith::Product p = product({task.size_names}); "
            f"return warpsmith::by_registers{exactness}(p, TUNE_WAY) ? warpsmith::register_bytes{exactness}(p) "
            f": warpsmith::multiply_bytes{exactness}(p);"
        )
        registers = (
            f"if (warpsmith::by_registers{exactness}(p, TUNE_WAY))\n"
            f"    return int(warpsmith::multiply_in_registers<{layout}{class_}>(p, {both}, {task.out}, "
            f"{found.bias or 'nullptr'}, {task.workspace}, cudaStream_t({task.stream})));"
        )
    return text(
        f"// The {kind}{_stored(found)}{', plus a bias' if found.bias else ''}.\n//\n"
        f"// {how} on the tensor cores; warpsmith/split_product.cuh says how.\n"
        + ("// Products to which that brings nothing: warpsmith/register_product.cuh.\n" if registers else "")
        + f"#include <warpsmith/{'register_product' if registers else 'matmul'}.cuh>",
        tunable("TUNE_WAY", (0, 1, 2)) if registers else "",
        "namespace {",
        _product_function(task, found),
        _BIASED if found.bias else "",
        "}  // namespace",
        task.workspace_bytes(needed),
        task.launch(
            f"const warpsmith::Product p = product({task.size_names});",
            *([registers] if registers else []),
            f"return int(warpsmith::multiply{exactness}(p, {both}, {end}, {task.workspace}, "
            f"cudaStream_t({task.stream})));",
        ),
    )


def _source_with_tail(task: FormTask, found: OneProduct, tail: Tail, groups: tuple[tuple[int, ...], ...]) -> str:
    """The product by `matmul.cuh`, whose sums go through a function of their place before they are stored."""
    exactness = "<warpsmith::Tf32>" if task.tf32 else ""
    how = "accuracy of TF32 from one fp16 product" if task.tf32 else "float32 accuracy from three fp16 products"
    value = tail.value(Indices(("stack_", "row_", "column_"), groups))
    given = tail.given(value)
    members = ["struct Given {", *nest([f"{a.ctype} {a.name};" for a in given]), "} given;"] if given else []
    first = ["const float* bias;"] if found.bias else []
    add = " + __ldg(bias + {})" if found.bias else ""
    rest = [*([found.bias] if found.bias else []), *([f"{{{', '.join(a.name for a in given)}}}"] if given else [])]
    end = [
        "static constexpr bool REPAIRS = true;",
        "warpsmith::split::Store plain;",
        "int rows;",
        *first,
        *members,
        *value,
        "__device__ __forceinline__ bool by_rows() const { return plain.by_rows(); }",
        "__device__ __forceinline__ float* row_at(int64_t slice, int row) const { return plain.row_at(slice, row); }",
        "__device__ __forceinline__ void finish(int64_t stack, int row, int column, float& u, float& v) const {",
        "  if (row >= rows) return;",
        f"  if (column < plain.columns) u = value(u{add.format('column')}, stack, row, column);",
        f"  if (column + 1 < plain.columns) v = value(v{add.format('column + 1')}, stack, row, column + 1);",
        "}",
        "__device__ __forceinline__ void store(int64_t slice, int64_t stack, int row, int column, float u, float v) "
        "const {",
        "  finish(stack, row, column, u, v);",
        "  plain.store(slice, stack, row, column, u, v);",
        "}",
    ]
    return text(
        f"// A product{_stored(found)}{', plus a bias' if found.bias else ''}, and element-wise operations on each sum "
        f"before it is stored.\n//\n// {how} on the tensor cores; warpsmith/split_product.cuh says how.\n"
        "#include <warpsmith/matmul.cuh>\n#include <warpsmith/packs.cuh>",
        "namespace {",
        _product_function(task, found),
        "\n".join(
            [p for p in [tail.context.prelude()] if p]
            + ["// What follows the product, for the sum at a place of the result.", "struct End {", *nest(end), "};"]
        ),
        "}  // namespace",
        task.workspace_bytes(f"return warpsmith::multiply_bytes{exactness}(product({task.size_names}));"),
        task.launch(
            f"const warpsmith::Product p = product({task.size_names});",
            f"const End end = {{{', '.join([f'warpsmith::dense({task.out}, p)', 'int(p.rows)', *rest])}}};",
            f"return int(warpsmith::multiply{exactness}(p, {factors(found)}, end, {task.workspace}, "
            f"cudaStream_t({task.stream})));",
        ),
    )


# --- on the CPU ---

SUM_TERMS, BLOCK_KB = (256, 384, 128), (0, 256, 1024)
"""Values of the tunables of `cpu/product.h`, the header's first."""


def _cpu_source(task: FormTask, found: OneProduct) -> str:
    kind = "Products of many pairs of matrices" if found.stack else "The product of two matrices"
    words = f"// {kind}{_stored(found)}{', plus a bias' if found.bias else ''}."
    end = f", warpsmith::products::Bias{{{found.bias}}}" if found.bias else ""
    return _cpu_text(task, found, words, [_cpu_product(task, found)], [], end)


def _cpu_source_with_tail(task: FormTask, found: OneProduct, tail: Tail, groups: tuple[tuple[int, ...], ...]) -> str:
    """The product whose sums go through a function of their place before they are stored."""
    value = tail.value(Indices(("stack_", "row_", "column_"), groups))
    given = tail.given(value)
    members = ["struct Given {", *nest([f"{a.ctype} {a.name};" for a in given]), "} given;"] if given else []
    first = ["const float* bias;"] if found.bias else []
    rest = [*([found.bias] if found.bias else []), *([f"{{{', '.join(a.name for a in given)}}}"] if given else [])]
    end = [
        *first,
        *members,
        *value,
        "inline float operator()(float sum, int64_t stack, int64_t row, int64_t column) const {",
        f"  return value(sum{' + bias[column]' if found.bias else ''}, stack, row, column);",
        "}",
    ]
    words = (
        f"// A product{_stored(found)}{', plus a bias' if found.bias else ''}, and element-wise operations on each sum "
        "before it is stored."
    )
    definitions = [
        *([prelude] if (prelude := tail.context.prelude()) else []),
        _cpu_product(task, found),
        "\n".join(
            ["// What follows the product, for the sum at a place of the result.", "struct End {", *nest(end), "};"]
        ),
    ]
    made = f"const End end{{{', '.join(rest)}}};"
    return _cpu_text(task, found, words, definitions, [made], ", end")


def _cpu_text(
    task: FormTask, found: OneProduct, words: str, definitions: Sequence[str], made: Sequence[str], end: str
) -> str:
    def both(first: str, second: str) -> str:
        a, b = "across" if found.a_transposed else "along", "across" if found.b_transposed else "along"
        return (
            f"warpsmith::products::{a}({first}, p.rows, p.terms), "
            f"warpsmith::products::{b}({second}, p.columns, p.terms)"
        )

    sizes = f"const warpsmith::products::Product p = product({task.size_names});"
    return text(
        words,
        tunable("TUNE_SUM_TERMS", SUM_TERMS),
        tunable("TUNE_BLOCK_KB", BLOCK_KB),
        "#include <warpsmith/cpu/product.h>",
        "\n".join(["namespace {", *definitions, "}  // namespace"]),
        f'extern "C" int64_t workspace_bytes({task.size_parameters}) {{\n  {sizes}\n'
        f"  return warpsmith::products::product_bytes(p, {both('nullptr', 'nullptr')});\n}}",
        task.launch(
            sizes,
            *made,
            f"return warpsmith::products::multiply(p, {both(found.a, found.b)},",
            f"                                     {task.out}, {task.workspace}{end});",
        ),
    )


def _cpu_product(task: FormTask, found: OneProduct) -> str:
    """The function that gives the sizes of the product."""
    extents = ", ".join(
        task.product([axis.extent for axis in group]) for group in (found.stack, found.rows, found.terms, found.columns)
    )
    return f"warpsmith::products::Product product({task.size_parameters}) {{ return {{{extents}}}; }}"


_FEW_ROWS, _FEW_TERMS, _MODEST_FLOPS = 24, 16, 10_000_000_000  # beyond these matmul.cuh is always the faster one


def _is_modest(task: FormTask, found: OneProduct, workload: Workload) -> bool:
    """Whether a workload may be one of those that register_product.cuh is for; the kernel decides."""
    stack, rows, terms, columns = _sizes(task, found, workload)
    few = min(rows, columns) <= _FEW_ROWS or terms <= _FEW_TERMS
    return few or 2 * stack * rows * terms * columns <= _MODEST_FLOPS


def _sizes(task: FormTask, found: OneProduct, workload: Workload) -> tuple[int, ...]:
    """The stack, rows, terms and columns of a workload."""
    return tuple(
        math.prod(task.size(axis.extent, workload) for axis in group)
        for group in (found.stack, found.rows, found.terms, found.columns)
    )


_BIASED = """// Adds the bias of its column to a sum before it is stored.
struct Biased {
  static constexpr bool REPAIRS = true;
  warpsmith::split::Store plain;
  const float* bias;
  __device__ __forceinline__ bool by_rows() const { return plain.by_rows(); }
  __device__ __forceinline__ float* row_at(int64_t slice, int row) const { return plain.row_at(slice, row); }
  __device__ __forceinline__ void finish(int64_t, int, int column, float& u, float& v) const {
    u += column < plain.columns ? __ldg(bias + column) : 0.f;
    v += column + 1 < plain.columns ? __ldg(bias + column + 1) : 0.f;
  }
  __device__ __forceinline__ void store(int64_t slice, int64_t stack, int row, int column, float u, float v) const {
    finish(stack, row, column, u, v);
    plain.store(slice, stack, row, column, u, v);
  }
};"""


# --- views ---


def _whole(name: str, dims: Sequence[Dim]) -> View:
    return tuple(() if dim == 1 else (Axis(name, place, dim),) for place, dim in enumerate(dims))


def _view(value: object, views: dict[str, View]) -> View:
    name = value_name(value)
    require(name in views)
    return views[name]


def _viewed(step: Step, views: dict[str, View]) -> View:
    """The value of an operation that only looks at another value differently."""
    before = _view(step.argument(0), views)
    count = len(before)
    if step.name in ("t", "numpy_T"):
        return before[::-1]
    if step.name == "transpose":
        one, other = (step.argument(place) % count for place in (1, 2))
        order = list(range(count))
        order[one], order[other] = other, one
        return tuple(before[place] for place in order)
    if step.name == "permute":
        return tuple(before[place % count] for place in step.argument(1))
    if step.name == "unsqueeze":
        place = step.argument(1) % (count + 1)
        return (*before[:place], (), *before[place:])
    if step.name == "squeeze":
        place = step.argument(1) % count
        require(not before[place])
        return (*before[:place], *before[place + 1 :])
    if step.name in ("view", "_unsafe_view", "reshape", "expand"):
        axes = [axis for group in before for axis in group]
        if step.name == "expand":
            require(len(step.result.dims) == count)
            regrouped = _regrouped(axes, step.result.dims)
            require(regrouped == before)
            return before
        return _regrouped(axes, step.result.dims)
    raise NotThisForm


def _regrouped(axes: list[Axis], dims: Sequence[Dim]) -> View:
    """The same axes in the groups that the extents of a view make of them."""
    found: list[Group] = []
    rest = list(axes)
    for dim in dims:
        wanted = _extents(tuple(Axis("", 0, int(p) if p.isdigit() else p) for p in str(dim).split("*")))
        group: list[Axis] = []
        while _extents(tuple(group)) != wanted:
            require(bool(rest))
            group.append(rest.pop(0))
        found.append(tuple(group))
    require(not rest)
    return tuple(found)
