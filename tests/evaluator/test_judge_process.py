"""The message of a judge that cannot go on."""

from __future__ import annotations

import socket

import pytest

from warpsmith.evaluator.judge import process
from warpsmith.evaluator.judge.records import CONFIG, JudgeConfig
from warpsmith.evaluator.protocol.messages import JudgeRefused
from warpsmith.evaluator.protocol.wire import Channel
from warpsmith.model.settings import Settings

REQUEST = JudgeConfig("a/softmax.py", "", "cuda", 0, "", "", "", 1, Settings(), (), ())
OF_TORCH = (
    "CUDA out of memory. Tried to allocate 20.50 GiB. GPU 0 has a total capacity of 139.80 GiB of which 3.1 GiB is "
    "free. Of the allocated memory 130 GiB is allocated by PyTorch. See documentation for Memory Management."
)
OF_THE_CPU = "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
ENOUGH = "; end other processes on it, or take smaller workloads"


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
    here, there = socket.socketpair()
    with here:
        assert process.main(CONFIG.dump_json(REQUEST).decode(), [there.detach()]) == 0
        message, _ = Channel(here).receive((JudgeRefused,), timeout_s=10)
    assert message.reason == f"softmax.py: the reference failed to run ({said})."
