"""The buffers of one workload in the arena: sets of inputs and outputs, fresh data, poison, red zones, checksums.

A set is one complete group of inputs and outputs at addresses of its own. Checks use the first two sets; timing rotates
over all of them, each with new data.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import torch

from warpsmith.evaluator.judge.arena import SecretChecksum, broken_zone, fill_zones, view
from warpsmith.evaluator.judge.numerics.compare import same_bits
from warpsmith.evaluator.judge.numerics.poison import PoisonPattern
from warpsmith.evaluator.judge.records import check_guards
from warpsmith.evaluator.protocol.buffer_layout import Buffer, BufferLayout, BufferSlot
from warpsmith.model.evidence import IdleProcess, MemoryState
from warpsmith.model.task import Task, TensorRole, Workload
from warpsmith.tasks.program import Program
from warpsmith.tasks.quick_random import QuickRandom, random_bytes
from warpsmith.tasks.variants import OWN, infer_domain

_ENOUGH = 16  # elements of an output that shows whether a call is done
_FEW_WEIGHTS = 16
_ANGLES = (0.4, 1.2)  # between 0, where weights are only kept, and pi/2, where they are only rotated
_UNDONE = 0.25  # the share of unwritten elements


def buffers_of_set(task: Task, workload: Workload) -> list[Buffer]:
    """The buffers that one set of a workload holds."""
    return [Buffer(t.name, t.nbytes(workload.sizes), t.role is TensorRole.OUTPUT) for t in task.tensors]


class UsedMemory(Enum):
    """What an output holds that was not filled with a pattern."""

    EARLIER = auto()
    DISPLACED = auto()
    ZEROS = auto()
    NOISE = auto()


@dataclass(frozen=True)
class BufferSet:
    """The tensors of one set, as views of the arena."""

    slots: tuple[BufferSlot, ...]
    inputs: dict[str, torch.Tensor]
    outputs: tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class OutputSnapshot:
    """The contents of outputs at one moment: copies on the CPU, a checksum on a GPU, where copies may not fit."""

    copies: tuple[torch.Tensor, ...]
    checksum: int


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation of weights."""

    mean: float
    deviation: float


def _spread(weights: torch.Tensor) -> Spread | None:
    """The spread of weights that can be mixed: of both signs, without a structure, and not just a few."""
    domain = infer_domain(weights) if weights.numel() >= _FEW_WEIGHTS else None
    if domain is None or math.isfinite(domain.low) or not domain.scale:
        return None
    return Spread(domain.centre, domain.scale)


def _mix(flat: torch.Tensor, spread: Spread | None, rng: random.Random) -> None:
    """Change all weights in place; rotate them if no spread is given.

    Each becomes a sum of itself and of another one with a fresh sign, in shares that keep mean and deviation. Rotating
    alone would leave a kernel the values of any function of the weights, in another order.
    """
    moved = flat.roll(rng.randrange(1, flat.numel()))
    if spread is None:
        flat.copy_(moved)
        return
    angle = rng.uniform(*_ANGLES)
    generator = torch.Generator(flat.device).manual_seed(rng.getrandbits(62))
    signs = random_bytes(flat.numel(), device=flat.device, generator=generator).bitwise_and_(1)
    flat.sub_(spread.mean).mul_(math.cos(angle))
    moved.sub_(spread.mean).mul_(math.sin(angle))
    flat.sub_(moved).add_(moved.mul_(signs), alpha=2)
    size = torch.linalg.vector_norm(flat, dtype=torch.float32) / math.sqrt(flat.numel())
    flat.mul_((spread.deviation / size).clamp_(0.5, 2.0)).add_(spread.mean)  # mixed often, few weights would drift


class WorkloadBuffers:
    """Writes, reads and checks the buffers of one workload."""

    def __init__(
        self,
        program: Program,
        workload: Workload,
        layout: BufferLayout,
        memory: torch.Tensor,
        first_set: int,
        without: Collection[str] = (),
    ) -> None:
        self._without = without  # guards left out: what only they look at is not measured
        self.program = program
        self.workload = workload
        self.first_set = first_set  # the number of the first set among all sets of the task
        self._memory = memory
        self._on_cpu = memory.device.type == "cpu"
        self._drawing = QuickRandom() if self._on_cpu else contextlib.nullcontext()
        self._checksum = SecretChecksum(memory.device)
        self.sets = tuple(self._views(slots) for slots in layout.sets)
        fill_zones(memory, (slot for slots in layout.sets for slot in slots))
        read_only = [slot for slots in layout.sets for slot in slots if not slot.writable]
        self._inputs_start = min((slot.region_start for slot in read_only), default=0)
        self._inputs_end = max((slot.region_end for slot in read_only), default=0)
        inputs = program.task.inputs
        self.arguments = frozenset(spec.name for spec in inputs if spec.role is TensorRole.INPUT)
        self.written_state = program.written_state()  # a host has copies of it
        self.weights = frozenset(spec.name for spec in inputs) - self.arguments - self.written_state
        self._poison = PoisonPattern.draw()
        self._spreads: dict[str, Spread | None] = {}  # of weights that are mixed; None: rotated
        self._used: set[int] = set()  # sets whose outputs were filled with something else than the pattern

    def _views(self, slots: tuple[BufferSlot, ...]) -> BufferSet:
        task, by_name, sizes = self.program.task, {slot.name: slot for slot in slots}, self.workload.sizes
        tensors = {
            t.name: view(self._memory, by_name[t.name], getattr(torch, t.dtype), t.shape(sizes)) for t in task.tensors
        }
        inputs = {t.name: tensors[t.name] for t in task.inputs}
        return BufferSet(slots, inputs, tuple(tensors[t.name] for t in task.outputs))

    @property
    def set_numbers(self) -> range:
        """The numbers by which a host knows the sets."""
        return range(self.first_set, self.first_set + len(self.sets))

    # --- writing ---

    def write_inputs(
        self, index: int, values: Mapping[str, torch.Tensor], names: Collection[str] | None = None
    ) -> None:
        """Write inputs into a set; only those with these names, if they are given."""
        for name, target in self.sets[index].inputs.items():
            if names is None or name in names:
                target.copy_(values[name])

    def draw_arguments(self, index: int, rng: random.Random, variant: str = OWN) -> None:
        """Write arguments that no call has seen into a set; usual and unusual ones are drawn in the same way."""
        device, seed = self._memory.device, rng.getrandbits(62)
        with self._drawing:
            drawn = self.program.arguments(self.workload, variant=variant, seed=seed, device=device)
        self.write_inputs(index, drawn, self.arguments)

    def shift_state(self, index: int, names: Collection[str], rng: random.Random) -> None:
        """Change state (weights) of a set, so that nothing derived from it earlier can be used. State is costly to draw
        again: weights of both signs are mixed (`_mix`), constant state is drawn at random, other state is rotated."""
        redrawn = self.program.redrawn_state(seed=rng.getrandbits(62), device=self._memory.device) if names else {}
        for name in names:
            target = self.sets[index].inputs[name]
            if name in redrawn:
                target.copy_(redrawn[name])
            elif target.numel() > 1:
                if name not in self._spreads:
                    self._spreads[name] = _spread(target)
                _mix(target.view(-1), self._spreads[name], rng)

    def restore_red_zones(self) -> None:
        """Repair red zones that an earlier candidate damaged."""
        slots = [slot for group in self.sets for slot in group.slots]
        if broken_zone(self._memory, slots) is not None:
            fill_zones(self._memory, slots)

    def poison(self, indices: Sequence[int]) -> None:
        """Fill the outputs of these sets with a new pattern of unwritten elements."""
        self._poison = PoisonPattern.draw()
        self._used.difference_update(indices)
        for index in indices:
            for output in self.sets[index].outputs:
                self._poison.fill(output)

    def fill_outputs(
        self, index: int, how: UsedMemory, earlier: Sequence[torch.Tensor], result: Sequence[torch.Tensor]
    ) -> None:
        """Fill the outputs of a set as memory of a user may be: with the result of an `earlier` call, with numbers of
        the right `result` that are displaced, with zeros, or with random bits."""
        self._used.add(index)
        rng = random.SystemRandom()
        for output, before, right in zip(self.sets[index].outputs, earlier, result, strict=True):
            flat = output.view(-1)
            if how is UsedMemory.ZEROS:
                flat.zero_()
            elif how is UsedMemory.NOISE:
                flat.view(torch.uint8).random_(0, 256)
            elif how is UsedMemory.EARLIER:
                flat.copy_(before.reshape(-1))
            elif flat.numel() > 1:
                flat.copy_(right.reshape(-1).roll(rng.randrange(1, flat.numel())))
            else:
                PoisonPattern.draw().fill(output)

    def poison_of(self, index: int) -> PoisonPattern | None:
        """What the outputs of a set held before the last call; None if that was no single pattern."""
        return None if index in self._used else self._poison

    def synchronize(self) -> None:
        """Wait until all data is written."""
        if not self._on_cpu:
            torch.cuda.synchronize(self._memory.device)

    # --- reading and checking ---

    def copy_outputs(self, index: int) -> tuple[torch.Tensor, ...]:
        """Copies of the outputs of a set."""
        return tuple(output.clone() for output in self.sets[index].outputs)

    def inputs_checksum(self) -> int:
        """A number that changes if any byte of the inputs, or of the red zones between them, changes.

        0 on the CPU, where hosts map inputs through a read-only descriptor.
        """
        if self._on_cpu or "memory" in self._without:
            return 0
        return self._checksum.of([self._memory[self._inputs_start : self._inputs_end]])

    def check_memory(self, indices: Sequence[int], checksum: int | None) -> None:
        """Raise CandidateFailed for writes outside the outputs; `checksum`: `inputs_checksum()` before the call."""
        changed = checksum is not None and self.inputs_checksum() != checksum
        checked = range(len(self.sets)) if changed else indices
        slots = [slot for index in checked for slot in self.sets[index].slots]
        broken = broken_zone(self._memory, slots)
        if broken is not None:
            slot, distance = broken
            fill_zones(self._memory, slots)
            evidence = MemoryState(
                self.workload.name, slot.name, slot.nbytes, past_end=distance > 0, input_changed=changed
            )
            check_guards(evidence)
        elif changed:
            check_guards(MemoryState(self.workload.name, input_changed=True))

    def check_untouched(self, indices: Sequence[int]) -> None:
        """Raise CandidateFailed if the outputs of these sets, on which it was not called, were written."""
        for index in indices:
            for spec, output in zip(self.program.task.outputs, self.sets[index].outputs, strict=True):
                if not self._poison.fills(output):
                    check_guards(MemoryState(self.workload.name, uncalled=spec.name), self._without)

    def undone_before_others(self, called: Sequence[int]) -> set[tuple[int, int]]:
        """Outputs that are not written yet although one of a later set is: numbers of the set and of the output.

        To be asked while the process that makes the calls, in this order, is stopped.
        """
        found = set()
        for number in range(len(self.program.task.outputs)):
            first = self.sets[called[0]].outputs[number]
            if not self._poison.marks(first) or first.numel() < _ENOUGH:
                continue  # a right result may look like an unwritten one
            left = [self._poison.share(self.sets[index].outputs[number]) for index in called]
            begun = max((place for place, share in enumerate(left) if share < 1.0), default=0)
            found |= {(called[place], number) for place in range(begun) if left[place] > _UNDONE}
        return found

    def check_order(self, undone: Collection[tuple[int, int]]) -> None:
        """Raise CandidateFailed if one of these outputs (`undone_before_others`) was written after all."""
        for index, number in undone:
            if self._poison.share(self.sets[index].outputs[number]) <= _UNDONE:
                name = self.program.task.outputs[number].name
                check_guards(MemoryState(self.workload.name, early=name), self._without)

    def snapshot(self, indices: Sequence[int]) -> OutputSnapshot | None:
        """The present outputs of these sets, to be compared later; None if no guard looks at them."""
        outputs = self._outputs(indices)
        return self.snapshot_of([output.clone() for output in outputs] if self._on_cpu else outputs)

    def snapshot_of(self, outputs: Sequence[torch.Tensor]) -> OutputSnapshot | None:
        """A snapshot of outputs that were just copied."""
        if "background" in self._without:
            return None
        return OutputSnapshot(tuple(outputs), 0) if self._on_cpu else OutputSnapshot((), self._checksum.of(outputs))

    def check_unchanged(self, indices: Sequence[int], snapshot: OutputSnapshot) -> None:
        """Raise CandidateFailed if the outputs of these sets have changed since the snapshot."""
        outputs = self._outputs(indices)
        if self._on_cpu:
            names = [t.name for t in self.program.task.outputs] * len(indices)
            pairs = zip(names, outputs, snapshot.copies, strict=True)
            changed = next((name for name, now, then in pairs if not same_bits(now, then)), "")
        else:
            changed = "an output" if self._checksum.of(outputs) != snapshot.checksum else ""
        if changed:
            evidence = IdleProcess(self._memory.device.type, 0, 0, 0.0, 0.0, changed, self.workload.name)
            check_guards(evidence, self._without)

    def _outputs(self, indices: Sequence[int]) -> list[torch.Tensor]:
        return [output for index in indices for output in self.sets[index].outputs]
