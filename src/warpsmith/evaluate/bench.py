"""One workload laid out in the arena: its sets of buffers, fresh data, poison, red zones, seals.

A set is one complete group of inputs and outputs at addresses of its own. Checking uses the first set;
timing rotates over all of them, each with data never seen before.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from warpsmith.core.evaluation import Status
from warpsmith.core.task import Task, TensorRole, Workload
from warpsmith.evaluate.arena import Seal, broken_zone, fill_zones, view
from warpsmith.evaluate.findings import Condemned
from warpsmith.evaluate.layout import Buffer, Layout, Slot
from warpsmith.evaluate.poison import fill_poison
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


class Bench:
    """The judge's hands on one workload's buffers."""

    def __init__(
        self, program: Program, workload: Workload, layout: Layout, memory: torch.Tensor, first_set: int
    ) -> None:
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

    def put(self, index: int, values: Mapping[str, torch.Tensor]) -> None:
        """Write inputs into a set."""
        for name, target in self.sets[index].inputs.items():
            target.copy_(values[name])

    def refresh(self, index: int, rng: random.Random) -> None:
        """Give a set inputs that no call has seen: fresh draws for arguments, shifted values for state.

        State (weights) is costly to draw again; shifting it keeps its distribution and still changes every
        element, so that nothing derived from it earlier is of use.
        """
        device = self._memory.device
        drawn = self.program.arguments(self.workload, seed=rng.getrandbits(62), device=device)
        for name, target in self.sets[index].inputs.items():
            if name in drawn:
                target.copy_(drawn[name])
            elif target.numel() > 1:
                flat = target.view(-1)
                flat.copy_(flat.roll(rng.randrange(1, flat.numel())))

    def poison(self, indices: Sequence[int]) -> None:
        """Make every output element recognisably unwritten."""
        for index in indices:
            for output in self.sets[index].outputs:
                fill_poison(output)

    def seal(self) -> int:
        """A number that changes when any byte of any input (or of the red zones between them) changes.

        Not needed on the CPU, where hosts map inputs through a read-only descriptor: the system guards them.
        """
        if self._memory.device.type == "cpu":
            return 0
        return self._seal.of([self._memory[self._inputs_start : self._inputs_end]])

    def inspect(self, indices: Sequence[int], seal: int) -> None:
        """Condemn a candidate that wrote outside its outputs. `seal` is what `seal()` gave before the call."""
        touched = self.seal() != seal
        watched = range(len(self.sets)) if touched else indices
        slots = [slot for index in watched for slot in self.sets[index].slots]
        breach = broken_zone(self._memory, slots)
        if breach is not None:
            slot, distance = breach
            fill_zones(self._memory, slots)
            side = "past the end" if distance > 0 else "before the start"
            raise Condemned(
                Status.OUT_OF_BOUNDS,
                f"the candidate wrote {side} of {slot.name!r} ({slot.nbytes} bytes): an index is out of range.",
            )
        if touched:
            raise Condemned(
                Status.INPUT_MODIFIED,
                f"an input changed during a call on workload {self.workload.name!r}; inputs are read-only.",
            )
