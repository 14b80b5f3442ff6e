"""Counts the bytes and operations of a task from its graph, on tensors without data.

The reference runs once on fake tensors while every ATen call is recorded; then the bytes needed for the outputs are
followed backwards. `flops` and the traffic are textbook counts; the `essential_` figures are lower bounds for any
correct kernel, with which candidates that skip work are rejected.

The bounds are low where values are unknown: a gather may read one row only; masks may exclude everything; of several
contractions only the largest counts, since sums of products can be merged; contractions of results of other
contractions, or reduced afterwards, count nothing (sum(A @ B) needs no product). They are too high only for a task
whose output does not depend on its inputs; calibration refuses tasks that a constant kernel solves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from warpsmith.hardware import operator_costs
from warpsmith.hardware.byte_regions import ByteRegion, NeededBytes, union_bytes
from warpsmith.hardware.operator_costs import PartialNeed
from warpsmith.hardware.roofline import Work

__all__ = ["Work", "count_work"]


def count_work(
    run: Callable[[Mapping[str, Tensor]], Sequence[Tensor]],
    inputs: Mapping[str, Tensor],
    *,
    structured: Collection[str] = (),
) -> Work:
    """Count one run of a reference; call it inside the fake mode that made the inputs.

    Meta tensors need no mode, and save the seconds that the first fake tensor of a process takes.

    `flops` is torch's FLOP count of contractions, plus one per element of the larger side of every other
    floating-point operation, so that element-wise tasks have an intensity, too. `structured` names inputs whose values
    the task constrains (triangular, symmetric, sparse, constant): a correct kernel may skip parts of them, so their
    reads and products with them are not essential.
    """
    recorder = _Recorder(inputs, structured)
    with torch.no_grad(), recorder, _WholeLayers(recorder):
        outputs = tuple(run(inputs))
    recorder.keep += outputs
    needed, _ = _follow(recorder.calls, outputs, keeping=False)
    _, shares = _follow(recorder.calls, outputs, keeping=True)
    essential_read = 0
    for name, tensor in inputs.items():
        if name not in structured:
            nbytes = _Slot.of(tensor).region.nbytes
            essential_read += min(nbytes, needed.total_bytes(_storage_id(tensor)))
    kept = [int(call.unavoidable * f) for call, f in zip(recorder.calls, shares, strict=True)]
    return Work(
        read_bytes=sum(recorder.read_bytes(t) for t in inputs.values()),
        written_bytes=sum(t.numel() * t.element_size() for t in outputs),
        flops=sum(call.flops for call in recorder.calls),
        essential_read_bytes=essential_read,
        essential_flops=max(kept, default=0),
        reduction=max([1, *(call.terms for call in recorder.calls)]),
    )


def _storage_id(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


@dataclass(frozen=True)
class _Slot:
    """The place of a tensor in memory."""

    storage: int
    region: ByteRegion
    storage_bytes: int

    @staticmethod
    def of(tensor: Tensor) -> _Slot:
        storage = tensor.untyped_storage()
        return _Slot(int(storage._cdata), operator_costs.region_of(tensor), int(storage.nbytes()))

    @property
    def whole(self) -> bool:
        return self.region.nbytes >= self.storage_bytes


@dataclass(frozen=True)
class _Origin:
    """Properties of the values in a storage."""

    sources: frozenset[str] = frozenset()  # the inputs from which the values were computed
    clean: bool = False  # computed from inputs by views, casts and element-wise operations only
    sparse: bool = True  # may be mostly zeros


@dataclass(frozen=True)
class _Need:
    """One operand of a recorded call."""

    slot: _Slot
    touch: NeededBytes
    partial: PartialNeed
    keeps: bool
    shift: int | None  # bytes from an element of the result to that of the operand; None if the layouts differ


@dataclass(frozen=True)
class _Call:
    """One recorded ATen call that made or changed data."""

    needs: tuple[_Need, ...]
    writes: tuple[_Slot, ...]
    overwrites: bool  # the old contents of the written tensors are not needed
    line: int  # byte stride along which one needed element needs its whole line; else 0
    flops: int
    unavoidable: int  # operations of the best known algorithm, if all of the result is kept
    terms: int


class _Recorder(TorchDispatchMode):
    """Records the reads and writes of each call. Keeps all tensors alive: storages are identified by address."""

    def __init__(self, inputs: Mapping[str, Tensor], structured: Collection[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[_Call] = []
        self.keep: list[Tensor] = list(inputs.values())
        self._looked_up: defaultdict[int, int] = defaultdict(int)  # bytes taken from tables, by storage
        self._read: set[int] = set()  # storages that are read by other operators than lookups
        self._origins: dict[int, _Origin] = {}
        for name, tensor in inputs.items():
            plain = name not in structured and tensor.dtype != torch.bool
            self._origins[_storage_id(tensor)] = _Origin(frozenset({name}), clean=plain, sparse=not plain)

    def read_bytes(self, tensor: Tensor) -> int:
        """The bytes of an input; of a table that is only used for lookups, at most the bytes of the entries."""
        storage, nbytes = _storage_id(tensor), tensor.numel() * tensor.element_size()
        is_table = storage in self._looked_up and storage not in self._read
        return min(nbytes, self._looked_up[storage]) if is_table else nbytes

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise torch imports its compiler, which takes seconds

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled() and func.namespace == "aten":
            with self:  # in inference mode composite operators such as matmul are not decomposed
                pieces = func.decompose(*args, **kwargs)
            if pieces is not NotImplemented:
                return pieces
        result = func(*args, **kwargs)
        results = [t for t in operator_costs.tensors_in(result) if t.layout == torch.strided]
        if results:
            self._note(func, args, kwargs, result, results)
        return result

    def _note(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, results: list[Tensor]
    ) -> None:
        bound = operator_costs.bind(func, args, kwargs)
        changed = [
            tensor
            for argument in func._schema.arguments
            if argument.alias_info is not None and argument.alias_info.is_write
            for tensor in operator_costs.tensors_in(bound[argument.name])
        ]
        operands = operator_costs.tensors_in(list(bound.values()))
        self.keep += results
        known = {_storage_id(t) for t in operands}
        if not changed and all(_storage_id(t) in known for t in results):
            return  # a view
        table = operands[0] if operator_costs.is_lookup(func) else None
        for tensor in operands:
            if tensor is table:
                self._looked_up[_storage_id(tensor)] += sum(t.numel() * t.element_size() for t in results)
            else:
                self._read.add(_storage_id(tensor))
        origins = [self._origin(t) for t in operands]
        flops = operator_costs.contraction_flops(func, args, kwargs, result)
        reads = operator_costs.reads(func, bound, results, [o.sparse for o in origins])
        read_tensors = {id(r.tensor) for r in reads}
        slots = {s.storage: s for s in map(_Slot.of, (*results, *changed))}
        first = next(iter(slots.values()))
        self.calls.append(
            _Call(
                needs=tuple(self._need(r, first) for r in reads),
                writes=tuple(slots.values()),
                overwrites=not any(id(t) in read_tensors for t in changed),
                line=operator_costs.line_stride(func, bound, results),
                flops=flops or operator_costs.other_flops(func, operands, results),
                unavoidable=self._unavoidable(func, bound, results[0], flops),
                terms=operator_costs.summed_terms(func, bound, results, flops),
            )
        )
        origin = self._combined(func, operands, origins, results)
        for storage in slots:
            self._origins[storage] = origin

    def note_recurrent(
        self, source: Tensor, states: list[Tensor], weights: list[Tensor], results: list[Tensor]
    ) -> None:
        """Record a whole recurrent layer as one call."""
        self.keep += results
        steps = source.numel() // max(1, int(source.shape[-1]))
        matrices = [t for t in weights if t.dim() == 2]
        whole = [
            operator_costs.OperandRead(t, NeededBytes.all_of(operator_costs.region_of(t)))
            for t in (source, *states, *weights)
        ]
        slots = tuple(map(_Slot.of, results))
        self.calls.append(
            _Call(
                needs=tuple(self._need(read, slots[0]) for read in whole),
                writes=slots,
                overwrites=True,
                line=0,
                flops=2 * steps * sum(t.numel() for t in matrices),
                unavoidable=0,
                terms=2 * max((int(t.shape[1]) for t in matrices), default=1),
            )
        )
        for slot in slots:
            self._origins[slot.storage] = _Origin(clean=False, sparse=False)

    def _origin(self, tensor: Tensor) -> _Origin:
        return self._origins.get(_storage_id(tensor), _Origin())

    @staticmethod
    def _need(read: operator_costs.OperandRead, result: _Slot) -> _Need:
        slot = _Slot.of(read.tensor)
        same = read.keeps and (slot.region.dims, slot.region.item) == (result.region.dims, result.region.item)
        shift = slot.region.start - result.region.start if same and result.whole else None
        return _Need(slot, read.touch, read.partial, read.keeps, shift)

    def _unavoidable(self, func: Any, bound: Mapping[str, Any], result: Tensor, flops: int) -> int:
        found = operator_costs.unavoidable(func, bound, result, flops) if flops else None
        if found is None:
            return 0
        sources: list[frozenset[str]] = []
        for tensor in (found.left, found.right):
            origin = self._origin(tensor)
            if not origin.clean or not _is_full(tensor):  # repeated rows are computed only once
                return 0
            sources.append(origin.sources)
        # A product of an input with itself may be symmetric: then half of it is enough.
        return found.flops if sources[0].isdisjoint(sources[1]) else found.flops // 2

    @staticmethod
    def _combined(func: Any, operands: list[Tensor], origins: list[_Origin], results: list[Tensor]) -> _Origin:
        sources = frozenset(name for origin in origins for name in origin.sources)
        elementwise = operator_costs.is_pointwise(func) or operator_costs.name_of(func) in operator_costs.COPIES
        inherits = elementwise or "softmax" in operator_costs.name_of(func)
        tensors = [(t, o) for t, o in zip(operands, origins, strict=True) if t.numel() > 1]
        sparse = operator_costs.makes_sparse(func, operands, results) or (
            inherits and any(o.sparse for _, o in tensors)
        )
        # An outer product or a repetition has the right size but not that many independent values.
        independent = any(_is_full(t) and t.numel() == results[0].numel() for t, _ in tensors)
        clean = elementwise and not sparse and independent and all(o.clean for _, o in tensors)
        return _Origin(sources, clean, sparse)


class _WholeLayers(TorchFunctionMode):
    """Records recurrent layers as one call: torch unrolls some step by step, a minute for 500 fake steps."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        layers = (torch.gru, torch.lstm, torch.rnn_tanh, torch.rnn_relu)
        # Nine arguments with a flag in fourth place are the form without packed sequences.
        if func not in layers or len(args) != 9 or not isinstance(args[3], bool):
            return func(*args, **(kwargs or {}))
        source, states, weights, _, _, _, _, bidirectional, _ = args
        first = operator_costs.tensors_in(states)
        width = int(first[0].shape[-1]) * (2 if bidirectional else 1)
        results = [source.new_empty((*source.shape[:2], width)), *(t.new_empty(t.shape) for t in first)]
        self._recorder.note_recurrent(source, first, list(weights), results)
        return tuple(results)


def _is_full(tensor: Tensor) -> bool:
    return operator_costs.region_of(tensor).nbytes == tensor.numel() * tensor.element_size()


class _Demand:
    """The bytes of each storage that are surely needed, at one point of the way back from the outputs."""

    def __init__(self) -> None:
        self._touches: defaultdict[int, list[NeededBytes]] = defaultdict(list)
        self._overwritten: defaultdict[int, list[ByteRegion]] = defaultdict(list)  # by later calls

    def add(self, storage: int, touch: NeededBytes) -> None:
        """Add needed bytes of a storage."""
        self._touches[storage].append(touch)

    def touches(self, storage: int) -> list[NeededBytes]:
        """The needed bytes of a storage with their places; [] if later writes make the places uncertain."""
        return [] if self._overwritten[storage] else self._touches[storage]

    def total_bytes(self, storage: int) -> int:
        """A lower bound on the needed bytes of a storage."""
        lost = sum(region.nbytes for region in self._overwritten[storage])
        return max(0, union_bytes(self._touches[storage]) - lost) if self._touches[storage] else 0

    def wanted_bytes(self, slot: _Slot, line: int) -> int:
        """The needed bytes of one tensor; `line`: one element needs its line along this byte stride."""
        touches, region = self._touches[slot.storage], slot.region
        if not touches:
            return 0
        if all(region.disjoint(other) for other in self._overwritten[slot.storage]):
            if any(t.nbytes >= slot.storage_bytes or (line and (t.line, t.region) == (line, region)) for t in touches):
                return region.nbytes
            inside = max((t.nbytes for t in touches if t.region == region), default=0)
        else:
            inside = 0
        spilled = self.total_bytes(slot.storage) + region.nbytes - max(slot.storage_bytes, region.nbytes)
        return min(region.nbytes, max(0, spilled, inside))

    def overwrite(self, slot: _Slot) -> None:
        """Go back past a write: the old contents of the tensor were not needed."""
        if slot.whole:
            self._touches.pop(slot.storage, None)
            self._overwritten.pop(slot.storage, None)
        else:
            self._overwritten[slot.storage].append(slot.region)


def _follow(calls: Sequence[_Call], outputs: Sequence[Tensor], *, keeping: bool) -> tuple[_Demand, list[float]]:
    """Follow the needed bytes from the outputs back to the inputs.

    Returns the bytes needed before the first call, and for each call the needed share of its result. With `keeping`,
    operands whose elements are summed or dropped are not followed.
    """
    demand = _Demand()
    for tensor in outputs:
        slot = _Slot.of(tensor)
        demand.add(slot.storage, NeededBytes.all_of(slot.region))
    shares = [0.0] * len(calls)
    for index in range(len(calls) - 1, -1, -1):
        call = calls[index]
        wanted = [(slot, demand.wanted_bytes(slot, call.line)) for slot in call.writes]
        slot, nbytes = max(wanted, key=lambda pair: pair[1] / max(1, pair[0].region.nbytes))
        shares[index] = nbytes / max(1, slot.region.nbytes)
        needed = [
            (need.slot.storage, touch)
            for need in call.needs
            if nbytes and (need.keeps or not keeping)
            for touch in _needed(need, slot, nbytes, demand.touches(slot.storage))
        ]
        for written in call.writes:
            # A change in place needs the old contents, which its reads include if it changed the whole storage.
            if written.whole or call.overwrites:
                demand.overwrite(written)
        for storage, touch in needed:
            demand.add(storage, touch)
    return demand, shares


def _needed(need: _Need, result: _Slot, nbytes: int, touches: Sequence[NeededBytes]) -> list[NeededBytes]:
    """The needed bytes of one operand for a number of needed bytes of the result."""
    total = result.region.nbytes
    if nbytes >= total:
        return [need.touch]
    if need.partial is PartialNeed.NOTHING:
        return []
    if need.partial is PartialNeed.SPILL:
        ratio = need.slot.region.item / max(1, result.region.item)
        return [NeededBytes(max(0, int(need.touch.nbytes - (total - nbytes) * ratio)))]
    found = [NeededBytes(need.touch.nbytes * nbytes // total)]
    if need.shift is not None:
        found += [NeededBytes(t.nbytes, t.region.moved(need.shift), t.line) for t in touches if t.region is not None]
    return found
