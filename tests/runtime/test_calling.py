"""What a call leaves alone: other threads' calls, and the caller's floating-point mode."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
import torch

from tests.runtime.bundling import DOUBLE, made_of, put
from warpsmith import load
from warpsmith.runtime.operator import Operator

SCRATCH = """
#include <chrono>
#include <thread>
static float scratch[4096];
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  for (int64_t i = 0; i < rows * cols; ++i) scratch[i] = x[i];
  std::this_thread::sleep_for(std::chrono::microseconds(500));
  for (int64_t i = 0; i < rows * cols; ++i) out[i] = 2 * scratch[i];
  return 0;
}
"""
SCRATCH_PYTHON = """
import time
import torch

scratch = torch.empty(4, 8)

def double(x):
    scratch.copy_(x)
    time.sleep(0.0005)
    return 2 * scratch
"""
FLUSH = """
#if defined(__x86_64__)
#include <immintrin.h>
static void flush() { _mm_setcsr(_mm_getcsr() | 0x8040); }
#elif defined(__aarch64__)
static void flush() {
  uint64_t mode;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  asm volatile("msr fpcr, %0" ::"r"(mode | (1ull << 24)));
}
#else
static void flush() {}
#endif
"""
FLUSHING = """
extern "C" int64_t workspace_bytes(int64_t rows, int64_t cols) { IN_ASKING return 0; }
extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {
  IN_CALL
  for (int64_t i = 0; i < rows * cols; ++i) out[i] = 2 * x[i];
  return 0;
}
"""
FLUSHING_PYTHON = """
import torch

torch.set_flush_denormal(True)

def double(x):
    torch.set_flush_denormal(True)
    return 2 * x
"""


@pytest.fixture
def restored() -> Iterator[None]:
    """So that a failure here is none of the next test's."""
    yield
    torch.set_flush_denormal(False)


def flushes() -> bool:
    """Whether this thread loses the smallest numbers, in Python or in PyTorch."""
    small = [5e-310, 4e-310]
    return small[0] - small[1] == 0 or bool((torch.full((4,), 1e-39) * 0.5 == 0).any())


def wrong_in_threads(operators: list[Operator]) -> int:
    """How many of many calls give something else than twice their argument, each operator in a thread of its own."""
    start = Barrier(len(operators))

    def call(place: int) -> int:
        x = torch.full((4, 8), float(place + 1))
        start.wait(30)
        return sum(not torch.equal(operators[place](x), 2 * x) for _ in range(50))

    with ThreadPoolExecutor(len(operators)) as pool:
        return sum(pool.map(call, range(len(operators))))


def test_one_call_at_a_time(tmp_path: Path) -> None:
    """A kernel with static scratch memory is right alone, and was never tried otherwise."""
    bundle = put(tmp_path, made_of(tmp_path, DOUBLE, SCRATCH))
    op = load(bundle, strict=True)

    assert wrong_in_threads([op, op]) == 0
    assert wrong_in_threads([op, load(bundle, strict=True, any_shape=True)]) == 0  # the same library


def test_one_call_of_a_python_kernel_at_a_time(tmp_path: Path) -> None:
    made = made_of(tmp_path, DOUBLE, SCRATCH_PYTHON, kernel_name="scratch.py", entry="double(x)")
    op = load(put(tmp_path, made), strict=True)

    assert wrong_in_threads([op, op]) == 0


@pytest.mark.parametrize(
    "kernel",
    [
        FLUSH + FLUSHING.replace("IN_CALL", "flush();").replace("IN_ASKING", ""),
        FLUSH + FLUSHING.replace("IN_ASKING", "flush();").replace("IN_CALL", ""),
        FLUSH
        + "__attribute__((constructor)) static void loaded() { flush(); }"
        + FLUSHING.replace("IN_CALL", "").replace("IN_ASKING", ""),
    ],
    ids=["called", "asked", "loaded"],
)
def test_the_callers_floating_point_mode_stays(kernel: str, tmp_path: Path, restored: None) -> None:
    assert not flushes()

    op = load(put(tmp_path, made_of(tmp_path, DOUBLE, kernel)), strict=True)
    assert not flushes()
    op(torch.ones(4, 8))

    assert not flushes()


@pytest.mark.parametrize("flush", [False, True])
def test_a_python_kernel_leaves_the_mode_alone_too(flush: bool, tmp_path: Path, restored: None) -> None:
    made = made_of(tmp_path, DOUBLE, FLUSHING_PYTHON, kernel_name="flushing.py", entry="double(x)")
    torch.set_flush_denormal(flush)

    op = load(put(tmp_path, made), strict=True)
    assert flushes() is flush
    op(torch.ones(4, 8))

    assert flushes() is flush
