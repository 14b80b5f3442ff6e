"""The upper or lower triangle of a product of two matrices: `torch.triu(a @ b)`, `torch.tril(a @ b)`.

The factors may hold any values. Tiles of the result that have no element of the triangle are not computed.
"""

from __future__ import annotations

from warpsmith.kernels.form_product import factors, read_product
from warpsmith.kernels.form_task import FormKernel, FormTask, require, text, value_name

_SIDES = {"triu": "UPPER", "tril": "LOWER"}


def triangle_of_product(task: FormTask) -> FormKernel:
    """One product, of which the elements to one side of the diagonal are zero."""
    require(not task.on_cpu and len(task.steps) >= 2)
    *steps, last = task.steps
    require(last.name in _SIDES and len(last.arguments) == 1)
    require(steps[-1].name == "mm" and value_name(last.argument(0)) == steps[-1].result.name)
    found = read_product(task, steps)
    side = _SIDES[last.name]
    rows, terms, columns = (
        task.product([axis.extent for axis in group]) for group in (found.rows, found.terms, found.columns)
    )
    class_, options = ("<warpsmith::Tf32>", ", warpsmith::Tf32") if task.tf32 else ("", "")
    written = text(
        f"// The {side.lower()} triangle of the product of two matrices; the other elements are zero.\n"
        "#include <warpsmith/triangle_product.cuh>",
        "namespace {\n"
        f"warpsmith::Product product({task.size_parameters}) {{ return {{1, {rows}, {terms}, {columns}, true}}; }}\n"
        "}  // namespace",
        task.workspace_bytes(f"return warpsmith::triangle_bytes{class_}(product({task.size_names}));"),
        task.launch(
            f"const warpsmith::Product p = product({task.size_names});",
            f"return int(warpsmith::multiply_triangle<warpsmith::split::Triangle::{side}{options}>(p, "
            f"{factors(found)}, {task.out}, {task.workspace}, cudaStream_t({task.stream})));",
        ),
    )
    return FormKernel(f"{side.lower()} triangle of a product", written)
