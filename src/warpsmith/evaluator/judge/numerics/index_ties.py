"""Compares index outputs (argmax, topk, sort, max pooling), for which ties make several answers right.

`TieRecorder` watches the reference run and records the values that each index result was chosen from; `compare_indices`
then accepts a different index if the value there is the same at the task's own precision. A stable sort has one right
answer: it is not recorded, and `tolerance.compare_exact` compares it, as all other integers. An index taken from a
slice or a transpose of a result is not found either.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from warpsmith.evaluator.judge.numerics import compare
from warpsmith.evaluator.judge.numerics.compare import BadElements, OutputComparison, blocks

_aten = torch.ops.aten


class IndexKind(StrEnum):
    """What an index points into, and what a row of indices must satisfy."""

    PICK = "pick"  # one position along an axis, or in the flattened tensor: argmax, max, median
    RUNNING = "running"  # the best so far along an axis: cummax; never after its own position
    ORDER = "order"  # distinct positions along an axis, in order of value: sort, topk
    SET = "set"  # distinct positions along an axis in any order: topk(sorted=False)
    POOL = "pool"  # a position in the flattened trailing `spatial` axes: max pooling


@dataclass(frozen=True)
class Ties:
    """The values an index result was chosen from."""

    values: Tensor
    shape: tuple[int, ...]  # of the indices as the operator gave them
    dim: int | None  # None: positions in the flattened tensor
    kind: IndexKind
    spatial: int = 0  # for POOL: how many trailing axes


@dataclass(frozen=True)
class _Rule:
    """How to read one operator's call: its default axis and where its indices are in the result."""

    kind: IndexKind
    dim: int | None = -1
    dim_position: int = 1  # of `dim` among the arguments
    output: int = 1  # position of the indices in the result
    spatial: int = 0


_RULES: dict[Any, _Rule] = {
    _aten.argmax.default: _Rule(IndexKind.PICK, dim=None, output=0),
    _aten.argmin.default: _Rule(IndexKind.PICK, dim=None, output=0),
    _aten.max.dim: _Rule(IndexKind.PICK),
    _aten.min.dim: _Rule(IndexKind.PICK),
    _aten.median.dim: _Rule(IndexKind.PICK),
    _aten.nanmedian.dim: _Rule(IndexKind.PICK),
    _aten.mode.default: _Rule(IndexKind.PICK),
    _aten.kthvalue.default: _Rule(IndexKind.PICK, dim_position=2),
    _aten.cummax.default: _Rule(IndexKind.RUNNING),
    _aten.cummin.default: _Rule(IndexKind.RUNNING),
    _aten.topk.default: _Rule(IndexKind.ORDER, dim_position=2),
    _aten.sort.default: _Rule(IndexKind.ORDER),
    _aten.sort.stable: _Rule(IndexKind.ORDER, dim_position=-1),
    _aten.argsort.default: _Rule(IndexKind.ORDER, output=0),
    _aten.max_pool2d_with_indices.default: _Rule(IndexKind.POOL, spatial=2),
    _aten.max_pool3d_with_indices.default: _Rule(IndexKind.POOL, spatial=3),
    _aten.adaptive_max_pool2d.default: _Rule(IndexKind.POOL, spatial=2),
    _aten.adaptive_max_pool3d.default: _Rule(IndexKind.POOL, spatial=3),
    _aten.fractional_max_pool2d.default: _Rule(IndexKind.POOL, spatial=2),
    _aten.fractional_max_pool3d.default: _Rule(IndexKind.POOL, spatial=3),
}
_COPIES = (_aten._to_copy.default, _aten.clone.default)  # a cast or copy of indices still means the same


class TieRecorder(TorchDispatchMode):
    """Records index-producing operators while it is active.

    It keeps their source tensors alive: drop it once the outputs are compared.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: telling torch.compile to skip this mode would import torch.compile, which costs seconds."""
        return False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # By storage address; the tensor is kept so that its storage is not reused by another.
        self._found: dict[int, tuple[Tensor, Ties]] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run the operator, and record it if its result holds indices."""
        kwargs = kwargs or {}
        rule = _RULES.get(func)
        if rule is None:
            # In inference mode composite operators arrive undecomposed: decompose them as autograd would.
            with self:
                composed = func.decompose(*args, **kwargs)
            if composed is not NotImplemented:
                return composed
        result = func(*args, **kwargs)
        if rule is not None:
            self._record(rule, func, result, args, kwargs)
        elif func in _COPIES:
            source = self.ties_for(args[0])
            if source is not None:
                self._found[_address(result)] = (result, source)
        elif func._schema.is_mutable and args and isinstance(args[0], Tensor):  # the indices are overwritten
            self._found.pop(_address(args[0]), None)
        return result

    def ties_for(self, output: Tensor) -> Ties | None:
        """The record of an output: of the indices themselves, of a reshaped view, or of a cast."""
        indices, source = self._found.get(_address(output), (None, None))
        if indices is None or output.numel() != indices.numel() or not output.numel():
            return None
        same_layout = output.shape == indices.shape and output.stride() == indices.stride()
        return source if same_layout or (output.is_contiguous() and indices.is_contiguous()) else None

    def _record(
        self,
        rule: _Rule,
        func: Any,
        result: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        if func is _aten.sort.stable and kwargs.get("stable"):
            return
        kind, dim = rule.kind, kwargs.get("dim", rule.dim)
        if 0 < rule.dim_position < len(args):
            dim = args[rule.dim_position]
        if func is _aten.topk.default and not (args[4] if len(args) > 4 else kwargs.get("sorted", True)):
            kind = IndexKind.SET
        indices = result if rule.output == 0 else result[rule.output]
        values = args[0].detach()
        if kind is IndexKind.POOL or values.dim() == 0:
            dim = None
        self._found[_address(indices)] = (
            indices,
            Ties(values, tuple(indices.shape), dim, kind, rule.spatial),
        )


def compare_indices(
    result: Tensor,
    reference: Tensor,
    ties: Ties,
    *,
    name: str,
    dtype: str = "float32",
) -> OutputComparison:
    """Compare index outputs: each index must name a value equal to the one that the reference's index names.

    Values are compared after rounding to `dtype`, the task's own element type.
    """
    result, reference = result.reshape(ties.shape), reference.reshape(ties.shape)
    source = _TieSource(ties, getattr(torch, dtype))
    outside, wrong, repeated = (BadElements(ties.shape) for _ in range(3))
    for offset, (c, r) in blocks(result, reference):
        at = (c != r).nonzero().flatten()
        flat = at + offset
        position = c[at].long()
        valid = source.in_range(flat, position)
        outside.add_positions(flat[~valid])
        if ties.kind is not IndexKind.SET:
            flat, position, expected = flat[valid], position[valid], r[at][valid].long()
            same = source.same(source.values(flat, position), source.values(flat, expected))
            wrong.add_positions(flat[~same])
    if ties.kind in (IndexKind.ORDER, IndexKind.SET) and not outside.count and ties.dim is not None:
        for rows_flat, rows, expected_rows in _different_rows(result, reference, ties.dim):
            ordered = rows.sort(dim=1).values
            repeats = (ordered[:, 1:] == ordered[:, :-1]).any(dim=1)
            repeated.add_positions(rows_flat[repeats, 0])
            if ties.kind is IndexKind.SET:
                found = source.values(rows_flat, rows).sort(dim=1).values
                wanted = source.values(rows_flat, expected_rows).sort(dim=1).values
                wrong.add_positions(rows_flat[~source.same(found, wanted).all(dim=1), 0])
    return _comparison(source, result, reference, outside, wrong, repeated, name)


@dataclass(frozen=True)
class _TieSource:
    """Looks up the values that indices name: the flat position in the output gives the row, the index the column."""

    ties: Ties
    dtype: torch.dtype

    def extent(self) -> int:
        """How many positions an index may name."""
        values = self.ties.values
        if self.ties.kind is IndexKind.POOL:
            return int(values[(0,) * (values.dim() - self.ties.spatial)].numel())
        return values.numel() if self.ties.dim is None else values.shape[self.ties.dim]

    def last(self, flat: int) -> int:
        """The largest index allowed at one position of the output."""
        if self.ties.kind is IndexKind.RUNNING and self.ties.dim is not None:
            return int(torch.unravel_index(torch.tensor(flat), self.ties.shape)[self.ties.dim])
        return self.extent() - 1

    def in_range(self, flat: Tensor, position: Tensor) -> Tensor:
        valid = (position >= 0) & (position < self.extent())
        if self.ties.kind is IndexKind.RUNNING and self.ties.dim is not None:
            own = torch.unravel_index(flat, self.ties.shape)[self.ties.dim]
            valid &= position <= own
        return valid

    def values(self, flat: Tensor, position: Tensor) -> Tensor:
        """Source values at `position` for output positions `flat`, at the task's precision."""
        values, shape = self.ties.values, self.ties.shape
        index: tuple[Tensor, ...]
        if self.ties.kind is IndexKind.POOL:
            lead = values.dim() - self.ties.spatial
            index = torch.unravel_index(flat, shape)[:lead]
            index += torch.unravel_index(position, values.shape[lead:])
        elif self.ties.dim is None:
            index = torch.unravel_index(position, values.shape) if values.dim() else ()
        else:
            dim = self.ties.dim % values.dim()
            place = list(torch.unravel_index(flat, shape)) if len(shape) else []
            if len(shape) < values.dim():  # keepdim=False: the axis is gone from the output
                place.insert(dim, position)
            place[dim] = position
            index = tuple(place)
        found = values[index] if index else values.expand(position.shape)
        return found.to(self.dtype).double() if found.is_floating_point() else found

    def same(self, a: Tensor, b: Tensor) -> Tensor:
        """Equal at the task's precision, NaN included."""
        return (a == b) | ((a != a) & (b != b))


def _different_rows(result: Tensor, reference: Tensor, dim: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Rows along `dim` that differ: flat positions, result and reference, each [rows, length], in blocks."""
    moved, expected = result.movedim(dim, -1), reference.movedim(dim, -1)
    length = moved.shape[-1]
    lead = moved.shape[:-1]
    count = moved.numel() // length
    step = max(1, compare.BLOCK_ELEMENTS // length)
    strides = [s for axis, s in enumerate(_strides(result.shape)) if axis != dim % result.dim()]
    along = torch.arange(length, device=result.device) * _strides(result.shape)[dim]
    for start in range(0, count, step):
        row = torch.arange(start, min(start + step, count), device=result.device)
        place = torch.unravel_index(row, lead) if lead else ()
        rows, wanted = moved[place].reshape(-1, length).long(), expected[place].reshape(-1, length).long()
        first = torch.zeros_like(row)
        for coordinate, stride in zip(place, strides, strict=True):
            first += coordinate * stride
        different = (rows != wanted).any(dim=1)
        if bool(different.any()):
            yield (first[:, None] + along)[different], rows[different], wanted[different]


def _strides(shape: torch.Size) -> list[int]:
    """Row-major strides."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return strides


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _comparison(
    source: _TieSource,
    result: Tensor,
    reference: Tensor,
    outside: BadElements,
    wrong: BadElements,
    repeated: BadElements,
    name: str,
) -> OutputComparison:
    """The comparison, with the worst kind of error and its first position."""
    count, where = result.numel(), torch.tensor([max(wrong.first, 0)], device=result.device)
    if outside.count:
        reason = (
            f"{name}: {outside.share_text('indices')} are out of range, "
            f"first{outside.at(outside.first)}: got {int(result.flatten()[outside.first])}, "
            f"allowed are 0 to {source.last(outside.first)}{outside.box_text(name)}."
        )
        return OutputComparison.exact(outside.count, count, reason)
    if repeated.count:
        row = repeated.at(repeated.first)
        reason = f"{name}: an index occurs twice in {repeated.count} rows, first in the row{row}."
        return OutputComparison.exact(repeated.count, count, reason)
    if not wrong.count:
        return OutputComparison.exact(0, count, "")
    got, want = result.flatten()[where].long(), reference.flatten()[where].long()
    reason = (
        f"{name}: {wrong.share_text('indices')} are wrong, first{wrong.at(wrong.first)}: "
        f"got {int(got)} where the value is {source.values(where, got).item():.9g}, expected {int(want)} "
        f"where it is {source.values(where, want).item():.9g}{wrong.box_text(name)}."
    )
    return OutputComparison.exact(wrong.count, count, reason)
