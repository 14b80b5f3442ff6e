"""The message of a judge that cannot go on."""

from __future__ import annotations

import contextlib
import io
import os
import socket
from dataclasses import replace

import pytest
import torch

from warpsmith.evaluator.judge import process, task_context
from warpsmith.evaluator.judge.records import CONFIG, JudgeConfig
from warpsmith.evaluator.protocol.messages import JudgeRefused
from warpsmith.evaluator.protocol.wire import Channel
from warpsmith.model.errors import TaskError
from warpsmith.model.settings import Settings
from warpsmith.tasks.suites import resolve_task

REQUEST = JudgeConfig("a/softmax.py", "", "cuda", 0, "", "", "", 1, Settings(), (), ())
OF_TORCH = (
    "CUDA out of memory. Tried to allocate 20.50 GiB. GPU 0 has a total capacity of 139.80 GiB of which 3.1 GiB is "
    "free. Of the allocated memory 130 GiB is allocated by PyTorch. See documentation for Memory Management."
)
OF_THE_CPU = "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
ENOUGH = "; end other processes on it, or take smaller workloads"


def test_a_task_that_prints_does_not_flood_the_terminal() -> None:
    shown = io.StringIO()
    with contextlib.redirect_stdout(process.FirstLines(shown, "softmax.py")):
        for number in range(1000):
            print("call", number)
    *lines, note = shown.getvalue().splitlines()
    assert lines == ["call 0", "call 1", "call 2"]
    assert note == (
        "note: softmax.py prints more than 3 lines, which are not shown; printing counts in the time of PyTorch: "
        "remove it."
    )


class OutOfMemoryError(RuntimeError):
    """Has the name of PyTorch's exception."""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OutOfMemoryError(OF_TORCH), f"the device has too little memory: 20.50 GiB more were needed{ENOUGH}"),
        (
            RuntimeError(f"{OF_THE_CPU}allocate {5 << 40} bytes. Error code 12 (Cannot allocate memory)"),
            f"the device has too little memory: 5120.00 GiB more were needed{ENOUGH}",
        ),
        (MemoryError(), f"the device has too little memory{ENOUGH}"),
        (RuntimeError("a line.\nanother."), "RuntimeError: a line"),
    ],
)
def test_a_failure_is_one_short_sentence(error: Exception, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_channel: Channel, _config: JudgeConfig) -> process.Judge:
        raise error

    monkeypatch.setattr(process, "Judge", refuse)
    monkeypatch.setenv("WARPSMITH_CACHE", os.environ["WARPSMITH_CACHE"])  # the process of a judge sets its own
    here, there = socket.socketpair()
    with here:
        assert process.main(CONFIG.dump_json(REQUEST).decode(), [there.detach()]) == 0
        message, _ = Channel(here).receive((JudgeRefused,), timeout_s=10)
    assert message.reason == f"softmax.py: the reference failed to run ({said})."


def test_a_task_that_does_not_fit_is_refused_before_anything_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    allocated: list[str] = []
    monkeypatch.setattr(task_context, "load_or_measure", lambda *_: allocated.append("peaks"))
    monkeypatch.setattr(task_context, "free_bytes", lambda _: 24 << 30)
    threads = torch.get_num_threads()
    request = replace(REQUEST, task=resolve_task("warpsmith-100/softmax"), kind="cpu", threads=threads)
    with torch.set_grad_enabled(torch.is_grad_enabled()), pytest.raises(TaskError) as refused:
        task_context.TaskContext(request)
    assert str(refused.value) == (
        "softmax needs at least 42.0 GiB of memory to be judged and 24.0 GiB are free here; "
        "take its small workload, warpsmith-100/softmax@small, or another machine."
    )
    assert allocated == []
