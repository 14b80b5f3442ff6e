"""Running sums and products along an axis: forwards, backwards, exclusive; of masked elements along the last axis."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from warpsmith.kernels.form_task import FormKernel, FormTask, Step, require, text, tunable, value_name
from warpsmith.model.task import Dim, Workload

_OPERATIONS = {"cumsum": "Plus", "cumprod": "Times"}


@dataclass(frozen=True)
class RowScan:
    """One running sum or product along an axis."""

    operation: str  # "cumsum" or "cumprod"
    source: object
    mask: str  # the parameter of the contract; "" if all elements count
    dims: tuple[Dim, ...]
    reverse: bool
    exclusive: bool
    axis: int  # counted from 0

    @property
    def is_last(self) -> bool:
        """Whether elements that are added up are neighbours in memory."""
        return self.axis == len(self.dims) - 1


def read_scan(task: FormTask) -> RowScan:
    """A chain of operations around one cumsum or cumprod."""
    steps = list(task.steps)
    names = [step.name for step in steps]
    require(sum(name in _OPERATIONS for name in names) == 1)
    _require_chain(steps)
    reverse, exclusive, mask = False, False, ""
    source: object = None
    dims: tuple[Dim, ...] = ()

    def takes(name: str) -> Step | None:
        return steps.pop(0) if steps and steps[0].name == name else None

    if masked := takes("mul"):
        source, mask, dims = _masked(task, masked)
    elif steps[0].name in ("flip", "constant_pad_nd", *_OPERATIONS):
        source = steps[0].argument(0)
        dims = task.tensor(source).dims
    count = len(dims)
    require(count > 0)
    given = next(step.argument(1) for step in steps if step.name in _OPERATIONS)
    require(type(given) is int and -count <= given < count)
    axis = given % count
    if flipped := takes("flip"):
        require(_flips(flipped, axis, count))
        reverse = True
    if padded := takes("constant_pad_nd"):
        require(padded.argument(1) == [0, 0] * (count - 1 - axis) + [1, 0] and padded.argument(2, 0) == 0)
        exclusive = True
    operation = steps.pop(0)
    require(operation.name in _OPERATIONS)
    require(not exclusive or operation.name == "cumsum")  # a product would begin with the padding's zero
    if exclusive:
        cut = takes("slice")
        require(cut is not None and cut.arguments[1:] in ([axis, 0, -1], [axis - count, 0, -1]))
    if reverse:
        back = takes("flip")
        require(back is not None and _flips(back, axis, count))
    takes("clone")
    require(not steps)
    if all(dim == 1 for dim in dims[axis + 1 :]):
        dims = dims[: axis + 1]
    return RowScan(operation.name, source, mask, dims, reverse, exclusive, axis)


def scan(task: FormTask) -> FormKernel:
    """A chain of operations around one cumsum or cumprod."""
    found = read_scan(task)
    if not found.is_last:
        return _along_axis(task, found)
    mask, reverse, exclusive = found.mask, found.reverse, found.exclusive
    kind = " ".join(
        [*(["masked"] if mask else []), *(["exclusive"] if exclusive else []), *(["reverse"] if reverse else [])]
    )
    function = _OPERATIONS[found.operation]
    switches = ", ".join("true" if each else "false" for each in (reverse, exclusive, bool(mask)))
    pointers = f"{task.pointer(found.source)}, {mask or 'nullptr'}, {task.out}"
    extents = f"{task.product(found.dims[:-1])}, {task.extent(found.dims[-1])}"
    said = f"// {found.operation} along the rows{f' ({kind})' if kind else ''}"
    name = f"{kind} {found.operation}".strip()
    if task.on_cpu:
        call = f"return warpsmith::scan::run<warpsmith::scan::{function}, {switches}>({pointers}, {extents});"
        return FormKernel(name, text(f"{said}.\n#include <warpsmith/cpu/scan.h>", task.launch(call)))
    shapes = (_shape(task, found, workload) for workload in task.task.workloads)
    if any(is_long(rows, columns, bool(mask)) for rows, columns in shapes):
        return FormKernel(name, _long_source(task, said, f"warpsmith::{function}, {switches}", pointers, extents))
    written = text(
        f"{said}: one read and one write of every element.\n#include <warpsmith/scan.cuh>",
        _TUNABLES,
        task.launch(
            f"return warpsmith::scan<warpsmith::{function}, {switches}, TUNE_THREADS, TUNE_PACKS>("
            f"{pointers}, {extents}, {task.stream});"
        ),
    )
    return FormKernel(name, written)


def _along_axis(task: FormTask, found: RowScan) -> FormKernel:
    """The kernel for an axis that is not the last."""
    require(not found.mask)
    kind = [*(["exclusive"] if found.exclusive else []), *(["reverse"] if found.reverse else [])]
    name = " ".join([*kind, found.operation, "over an axis that is not the last"])
    switches = ", ".join("true" if each else "false" for each in (found.reverse, found.exclusive))
    dims, axis = found.dims, found.axis
    extents = ", ".join((task.product(dims[:axis]), task.extent(dims[axis]), task.product(dims[axis + 1 :])))
    pointers = f"{task.pointer(found.source)}, {task.out}"
    if task.on_cpu:
        function = f"warpsmith::scan::run_axis<warpsmith::scan::{_OPERATIONS[found.operation]}, {switches}>"
        said = f"// {name[0].upper()}{name[1:]}.\n#include <warpsmith/cpu/axis_scan.h>"
        return FormKernel(name, text(said, task.launch(f"return {function}({pointers}, {extents});")))
    written = text(
        f"// {name[0].upper()}{name[1:]}.\n#include <warpsmith/axis_scan.cuh>",
        task.workspace_bytes(f"return warpsmith::axis_scan_bytes({extents});"),
        task.launch(
            f"return warpsmith::scan_axis<warpsmith::{_OPERATIONS[found.operation]}, {switches}>("
            f"{pointers}, {extents}, {task.workspace}, {task.stream});"
        ),
    )
    return FormKernel(name, written)


_TUNABLES = f"{tunable('TUNE_THREADS', (128, 32, 256, 512))}\n{tunable('TUNE_PACKS', (4, 2))}"


def is_long(rows: int, columns: int, masked: bool = False) -> bool:
    """Whether several blocks share a row on an H200; `scan_is_long` in long_scan.cuh decides at run time."""
    if columns < 4 * 2048 or rows * _ceil_div(columns, 512) >= 2**31:
        return False
    aligned = columns % 4 == 0
    volume = 8.0 * rows * columns
    chunks = _ceil_div(rows, 16 * 132) * _ceil_div(columns, 2048 if aligned else 512) * 0.7
    return 1.1 * (6.0 + volume / 3.5e6) < max(chunks, volume / (3.3e6 if aligned else 2.2e6 if masked else 3.0e6))


def _shape(task: FormTask, found: RowScan, workload: Workload) -> tuple[int, int]:
    """Rows and columns in a workload."""
    *outer, columns = (task.size(dim, workload) for dim in found.dims)
    return math.prod(outer), columns


def _long_source(task: FormTask, said: str, scanned: str, pointers: str, extents: str) -> str:
    """The text for tasks with a workload whose rows are long and few: any size, chosen at run time."""
    return text(
        f"{said}: one read and one write of every element. Long rows are shared by several blocks.\n"
        "#include <warpsmith/long_scan.cuh>",
        f"{_TUNABLES}\n{tunable('TUNE_LONG_THREADS', (256, 512, 128))}\n{tunable('TUNE_LONG_PACKS', (8, 4, 6))}",
        task.workspace_bytes(f"return warpsmith::long_scan_bytes<TUNE_LONG_THREADS, TUNE_LONG_PACKS>({extents});"),
        task.launch(
            f"return warpsmith::scan_any<{scanned}, TUNE_THREADS, TUNE_PACKS, TUNE_LONG_THREADS, TUNE_LONG_PACKS>("
            f"{pointers}, {extents}, {task.workspace}, {task.stream});"
        ),
    )


def _ceil_div(count: int, by: int) -> int:
    return -(-count // by)


def _require_chain(steps: list[Step]) -> None:
    """Every operation works on the result of the one before."""
    for before, after in pairwise(steps):
        require(value_name(after.argument(0)) == before.result.name)


def _masked(task: FormTask, step: Step) -> tuple[object, str, tuple[Dim, ...]]:
    """The values, the parameter of the mask and the extents of `x * mask`."""
    values, mask = step.argument(0), step.argument(1)
    require(isinstance(mask, dict))
    if task.tensor(values).dtype == "bool":
        values, mask = mask, values
    require(task.tensor(values).dtype == "float32" and task.tensor(mask).dtype == "bool")
    require(task.tensor(values).dims == task.tensor(mask).dims)
    return values, task.pointer(mask), task.tensor(values).dims


def _flips(step: Step, axis: int, count: int) -> bool:
    return step.argument(1) in ([axis], [axis - count])
