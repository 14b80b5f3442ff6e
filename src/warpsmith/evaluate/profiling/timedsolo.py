"""`solo` with PyTorch's profiler beside it: how long each kernel of one call ran, and when.

    python -m warpsmith.evaluate.profiling.timedsolo ... PLAN.json

Times of kernels are no privilege, as counters are. The profiler starts before the sandbox closes; the candidate is
called twice and the second call counts, since the first one loads code. What is written is a claim like all that comes
from a candidate's process: it only ever becomes advice about that candidate.
"""

from __future__ import annotations

import json
import sys

import torch
from torch.profiler import ProfilerActivity, profile

from warpsmith.evaluate.profiling.timings import FILE
from warpsmith.evaluate.verification.solo import NativeSolo, Start, main

_COPIES = ("Memcpy", "Memset")


class TimedSolo(NativeSolo):
    """With a library."""

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        kinds = [ProfilerActivity.CUDA] if torch.cuda.is_available() else [ProfilerActivity.CPU]
        self._profiler = profile(activities=kinds)

    def prepare(self) -> None:
        super().prepare()
        if torch.cuda.is_available():
            torch.cuda.set_device(self.plan["device"])
            torch.cuda.synchronize()  # what the profiler does at its end must be possible inside the sandbox
        self._profiler.start()

    def call_all(self) -> str:
        said = super().call_all() or super().call_all()
        self._profiler.stop()
        kernels = sorted(
            (event.time_range.start, event.time_range.end, event.name)
            for event in self._profiler.events() or ()
            if str(event.device_type).endswith("CUDA") and not event.name.startswith(_COPIES)
        )
        second = kernels[len(kernels) // 2 :]
        rows = [{"kernel": name, "start_us": start, "end_us": end} for start, end, name in second]
        self._write(FILE, json.dumps(rows).encode())
        return said


if __name__ == "__main__":
    sys.exit(main(sys.argv[-1:], TimedSolo))
