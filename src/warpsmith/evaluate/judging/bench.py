"""One workload laid out in the arena: its sets of buffers, fresh data, poison, red zones, seals.

A set is one complete group of inputs and outputs at addresses of its own. Checking uses the first set;
timing rotates over all of them, each with data never seen before.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch

from warpsmith.core.guarding import Aftermath, Memory
from warpsmith.core.task import Task, TensorRole, Workload
from warpsmith.evaluate.correctness.poison import fill_poison, is_poison
from warpsmith.evaluate.judging.arena import Seal, broken_zone, fill_zones, view
from warpsmith.evaluate.judging.findings import face
from warpsmith.evaluate.layout import Buffer, Layout, Slot
from warpsmith.tasks.program import Program

Tensors = dict[str, torch.Tensor]


def buffers(task: Task, workload: Workload) -> list[Buffer]:
    """What one set of a workload holds."""
    return [Buffer(t.name, t.nbytes(workload.sizes), t.role is TensorRole.OUTPUT) for t in task.tensors]


@dataclass(frozen=True)
class Set:
    """The tensors of one set, as views of the arena."""

    slots: tuple[Slot, ...]
    inputs: Tensors
    outputs: tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Capture:
    """The outputs at one moment."""

    copies: tuple[torch.Tensor, ...]
    checksum: int


class Bench:
    """The judge's hands on one workload's buffers."""

    def __init__(
        self,
        program: Program,
        workload: Workload,
        layout: Layout,
        memory: torch.Tensor,
        first_set: int,
        without: Collection[str] = (),
    ) -> None:
        self._without = without  # guards left out: what only they look at is not measured
        self.program = program
        self.workload = workload
        self.first_set = first_set  # the number of its first set among all sets of the task
        self._memory = memory
        self._seal = Seal(memory.device)
        task = program.task
        self.sets = tuple(self._set(task, slots) for slots in layout.sets)
        fill_zones(memory, (slot for slots in layout.sets for slot in slots))
        read_only = [slot for slots in layout.sets for slot in slots if not slot.writable]
        self._inputs_start = min((slot.region_start for slot in read_only), default=0)
        self._inputs_end = max((slot.region_end for slot in read_only), default=0)

    def _set(self, task: Task, slots: tuple[Slot, ...]) -> Set:
        by_name = {slot.name: slot for slot in slots}
        sizes = self.workload.sizes
        tensors = {
            t.name: view(self._memory, by_name[t.name], getattr(torch, t.dtype), t.shape(sizes)) for t in task.tensors
        }
        return Set(
            slots,
            {t.name: tensors[t.name] for t in task.inputs},
            tuple(tensors[t.name] for t in task.outputs),
        )

    @property
    def numbers(self) -> range:
        """The numbers of its sets, as the host knows them."""
        return range(self.first_set, self.first_set + len(self.sets))

    def put(self, index: int, values: Mapping[str, torch.Tensor], role: TensorRole | None = None) -> None:
        """Write inputs into a set; those of one role only, if it is given."""
        for spec in self.program.task.inputs:
            if role is None or spec.role is role:
                self.sets[index].inputs[spec.name].copy_(values[spec.name])

    def refresh(self, index: int, rng: random.Random) -> None:
        """Give a set arguments that no call has seen."""
        drawn = self.program.arguments(self.workload, seed=rng.getrandbits(62), device=self._memory.device)
        self.put(index, drawn, TensorRole.INPUT)

    def shift_state(self, index: int, rng: random.Random) -> None:
        """The same for state (weights), which is costly to draw again.

        Shifting it keeps its distribution and still changes every element, so that nothing derived from it earlier
        is of use.
        """
        for spec in self.program.task.inputs:
            target = self.sets[index].inputs[spec.name]
            if spec.role is TensorRole.STATE and target.numel() > 1:
                flat = target.view(-1)
                flat.copy_(flat.roll(rng.randrange(1, flat.numel())))

    def restore(self) -> None:
        """Mend what earlier candidates left of the red zones: one that was condemned for something else, say."""
        slots = [slot for group in self.sets for slot in group.slots]
        if broken_zone(self._memory, slots) is not None:
            fill_zones(self._memory, slots)

    def poison(self, indices: Sequence[int]) -> None:
        """Make every output element recognisably unwritten."""
        for index in indices:
            for output in self.sets[index].outputs:
                fill_poison(output)

    def seal(self) -> int:
        """A number that changes when any byte of any input (or of the red zones between them) changes.

        Not needed on the CPU, where hosts map inputs through a read-only descriptor: the system guards them.
        """
        if self._memory.device.type == "cpu" or "memory" in self._without:
            return 0
        return self._seal.of([self._memory[self._inputs_start : self._inputs_end]])

    def settle(self) -> None:
        """Wait until all data is where it belongs."""
        if self._memory.device.type == "cuda":
            torch.cuda.synchronize(self._memory.device)

    def inspect(self, indices: Sequence[int], seal: int | None) -> None:
        """Condemn a candidate that wrote outside its outputs. `seal` is what `seal()` gave before the call."""
        touched = seal is not None and self.seal() != seal
        watched = range(len(self.sets)) if touched else indices
        slots = [slot for index in watched for slot in self.sets[index].slots]
        breach = broken_zone(self._memory, slots)
        if breach is None and not touched:
            return
        if breach is None:
            face(Memory(self.workload.name, input_changed=True))
            return
        slot, distance = breach
        fill_zones(self._memory, slots)
        face(Memory(self.workload.name, slot.name, slot.nbytes, past_end=distance > 0, input_changed=touched))

    def check_untouched(self, indices: Sequence[int]) -> None:
        """Condemn a candidate that wrote to the outputs of these sets: it was not called on them."""
        for index in indices:
            for spec, output in zip(self.program.task.outputs, self.sets[index].outputs, strict=True):
                if not is_poison(output):
                    face(Memory(self.workload.name, uncalled=spec.name), self._without)

    def capture(self, indices: Sequence[int]) -> Capture | None:
        """What the outputs of these sets hold right now, for a later comparison.

        On the CPU a copy, which is cheaper than a checksum; on a GPU a checksum, because a copy may not fit.
        """
        if "background" in self._without:
            return None
        outputs = [output for index in indices for output in self.sets[index].outputs]
        if self._memory.device.type == "cpu":
            return Capture(tuple(output.clone() for output in outputs), 0)
        return self.capture_of(outputs)

    def capture_of(self, copies: Sequence[torch.Tensor]) -> Capture | None:
        """The same from copies that were just made."""
        if "background" in self._without:
            return None
        if self._memory.device.type == "cpu":
            return Capture(tuple(copies), 0)
        return Capture((), self._seal.of(copies))

    def compare(self, indices: Sequence[int], capture: Capture) -> None:
        """Condemn a candidate whose outputs have changed since they were captured."""
        outputs = [output for index in indices for output in self.sets[index].outputs]
        if self._memory.device.type != "cpu":
            changed = "an output" if self._seal.of(outputs) != capture.checksum else ""
        else:
            names = [t.name for t in self.program.task.outputs] * len(indices)
            pairs = zip(names, outputs, capture.copies, strict=True)
            changed = next((name for name, now, then in pairs if not _same(now, then)), "")
        if changed:
            face(Aftermath(self._memory.device.type, 0, 0, 0.0, 0.0, changed, self.workload.name), self._without)


def _same(now: torch.Tensor, then: torch.Tensor) -> bool:
    """Bit by bit: a NaN is equal to itself here."""
    return torch.equal(now.contiguous().view(-1).view(torch.uint8), then.contiguous().view(-1).view(torch.uint8))
