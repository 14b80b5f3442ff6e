"""Calls a built softmax kernel twice, once recorded, and prints what was seen; run by test_tracing.py in a process of
its own, because it starts CUDA there."""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable

from warpsmith.evaluator.candidate.cupti import CudaCallTracer
from warpsmith.evaluator.cuda_driver import Driver

_ROWS, _COLS = 64, 256


def main(library: str, cupti: str) -> None:
    driver = Driver(0)
    buffers = [driver.allocate(4 * _ROWS * _COLS) for _ in range(2)]
    stream = driver.stream()
    begun = time.perf_counter()
    recorder = CudaCallTracer(cupti, stream)
    loading_s = time.perf_counter() - begun
    launch = ctypes.CDLL(library).launch
    launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_void_p] * 2]

    def call() -> int:
        return int(launch(*buffers, _ROWS, _COLS, None, stream))

    plain_us = _microseconds(call, driver)
    begun = time.perf_counter()
    recorder.start()
    starting_s = time.perf_counter() - begun
    recorded = recorder.traced(call)
    returned = recorded()
    error, text = driver.synchronize()
    traced_us = _microseconds(recorded, driver)
    recorder.stop()
    seen = {
        "returned": returned,
        "error": text if error else "",
        "problem": recorder.problem,
        "calls": list(recorder.calls),
        "kernels": list(recorder.kernels),
        "elsewhere": list(recorder.elsewhere),
        "loading_ms": loading_s * 1e3,
        "starting_ms": starting_s * 1e3,
        "plain_us": plain_us,
        "traced_us": traced_us,
    }
    sys.stdout.write(json.dumps(seen) + "\n")


def _microseconds(call: Callable[[], int], driver: Driver) -> float:
    call()
    driver.synchronize()
    begun = time.perf_counter()
    for _ in range(20):
        call()
    driver.synchronize()
    return (time.perf_counter() - begun) / 20 * 1e6


if __name__ == "__main__":
    main(*sys.argv[1:])
