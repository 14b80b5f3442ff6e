"""The memory of the device that a task needs: whether the task fits now, may fit later, or can never fit."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from warpsmith.evaluator.cuda_driver import CudaError
from warpsmith.evaluator.judge.numerics import held_out_inputs
from warpsmith.evaluator.judge.records import JudgeConfig
from warpsmith.model.errors import TaskError, TooLittleMemory, lacks_memory
from warpsmith.model.numbers import memory_size
from warpsmith.model.task import Task
from warpsmith.tasks.suites import small_title

_USABLE_SHARE = 0.95  # of a GPU's memory: the contexts of other processes take the rest
_ALONE_SHARE = 0.85  # of a GPU's memory: with so much free, no other program held what was lacking
_MORE = 1.25  # how much more must be free at the next attempt, where the need is not known
_CUDA_OUT_OF_MEMORY = 2
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


@dataclass(frozen=True)
class DeviceMemory:
    """The memory of a device at one moment, in bytes."""

    free: int
    total: int  # 0 on a CPU: nothing waits for its memory

    @staticmethod
    def now(config: JudgeConfig) -> DeviceMemory:
        """The present state of the device that a judge is started for; without memory if that cannot be read."""
        if config.kind != "cuda" or not torch.cuda.is_available():
            return DeviceMemory(0, 0)
        try:
            return DeviceMemory(*torch.cuda.mem_get_info(config.index))
        except RuntimeError:  # opening the task fails likewise, and says why
            return DeviceMemory(0, 0)

    def may_have(self, needed: int) -> bool:
        """True if so much memory may be free once other programs release theirs."""
        return needed <= _USABLE_SHARE * self.total

    def needed_after(self, error: BaseException | None) -> int:
        """What must be free before another attempt, if the first one began with this memory and failed with `error`.

        0 if another attempt is useless: memory was not what it lacked, or the device can never have enough.
        """
        lacked = lacking_bytes(error)
        if lacked is None or self.free >= _ALONE_SHARE * self.total:
            return 0
        needed = max(self.free + lacked, round(_MORE * self.free))
        if lacked == 0:
            needed = min(needed, round(_ALONE_SHARE * self.total))
        return needed if self.may_have(needed) else 0


def lacking_bytes(error: BaseException | None) -> int | None:
    """How much memory an allocation asked for that failed (0: not known); None for any other error."""
    said = str(error)
    out_of_memory = type(error).__name__ in ("OutOfMemoryError", "MemoryError") or lacks_memory(said)
    if not out_of_memory and not (isinstance(error, CudaError) and error.code == _CUDA_OUT_OF_MEMORY):
        return None
    wanted = re.search(r"ried to allocate ([\d.]+) ([KMGT]iB|bytes)", said)
    return round(float(wanted[1]) * _UNITS[wanted[2]]) if wanted else 0


def total_bytes(device: torch.device) -> int:
    """The memory of a GPU; 0 for the CPU."""
    return torch.cuda.mem_get_info(device)[1] if device.type == "cuda" else 0


def needed_bytes(task: Task) -> int:
    """The least memory in which a task can be judged: one set of buffers for every workload, and for the largest
    workload another set of inputs, PyTorch's result, a copy of the candidate's result, and the fp64 reference."""
    most = 0
    for workload in task.workloads:
        outputs = sum(
            t.numel(workload.sizes) * 8 if "float" in t.dtype else t.nbytes(workload.sizes) for t in task.outputs
        )
        copies = sum(t.nbytes(workload.sizes) for t in task.outputs)
        most = max(most, held_out_inputs.total_bytes(task, workload) + copies + outputs)
    return most + sum(held_out_inputs.total_bytes(task, workload) for workload in task.workloads)


def check_memory(task: Task, spec: str, memory: DeviceMemory) -> None:
    """Refuse a task that cannot be judged in the free memory, before anything is allocated."""
    needed = needed_bytes(task)
    if needed <= memory.free:
        return
    small = small_title(spec)
    cure = f"take its small workload, {small}," if small else "take smaller workloads"
    said = (
        f"{task.name} needs at least {memory_size(needed)} of memory to be judged and {memory_size(memory.free)} are "
        f"free here; {cure} or another machine."
    )
    if memory.may_have(needed):
        raise TooLittleMemory(said, needed)
    raise TaskError(said)
