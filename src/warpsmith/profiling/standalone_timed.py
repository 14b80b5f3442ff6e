"""A standalone process with PyTorch's profiler, which records when each kernel of one call ran.

    python -m warpsmith.profiling.standalone_timed ... PLAN.json

Reading kernel times needs no privilege, unlike counters. The profiler starts before the sandbox is entered. The
candidate is called twice and the second call counts, because the first one loads code. The candidate's process can
forge the times; they are only used as advice about that candidate.
"""

from __future__ import annotations

import json
import sys

import torch
from torch.profiler import ProfilerActivity, profile

from warpsmith.profiling.torch_timings import FILE
from warpsmith.verification.standalone import StandaloneInputs, StandaloneNative, main

_COPIES = ("Memcpy", "Memset")


class StandaloneTimed(StandaloneNative):
    """Calls a native library under the profiler."""

    def __init__(self, start: StandaloneInputs) -> None:
        super().__init__(start)
        kinds = [ProfilerActivity.CUDA] if torch.cuda.is_available() else [ProfilerActivity.CPU]
        self._profiler = profile(activities=kinds)

    def prepare(self) -> None:
        super().prepare()
        if torch.cuda.is_available():
            torch.cuda.set_device(self.plan["device"])
            torch.cuda.synchronize()  # initialises CUDA, which is not possible inside the sandbox
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
    sys.exit(main(sys.argv[-1:], StandaloneTimed))
