"""Calls of CUDA candidates are made by a process of ours wherever they can be; the others are timed from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from warpsmith.backends.source import read_candidate
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model.evaluation import Evaluation

pytestmark = pytest.mark.gpu

KERNELS = Path(__file__).resolve().parent.parent / "kernels" / "replay"
REPLAYED = (
    "plain",
    "fill_and_two_kernels",
    "constant_table",
    "much_shared_memory",
    "cluster",
    "workspace",
)


def judged(name: str, evaluator: Evaluator) -> Evaluation:
    found = evaluator.evaluate_one(f"{KERNELS / 'tasks.py'}::affine", read_candidate(KERNELS / f"{name}.cu"))
    assert found.ok, found.reason
    return found


@pytest.mark.parametrize("name", REPLAYED)
def test_a_list_of_launches_is_replayed(name: str, gpu_evaluator: Evaluator) -> None:
    found = judged(name, gpu_evaluator)

    assert [workload.timing for workload in found.workloads] == ["replayed", "replayed"], found.notes


def test_what_is_no_list_is_timed_from_outside_and_says_why(gpu_evaluator: Evaluator) -> None:
    found = judged("waits", gpu_evaluator)

    assert [workload.timing for workload in found.workloads] == ["outside", "outside"]
    assert any(note.startswith("timed from outside, an upper bound, because it") for note in found.notes)


def test_from_outside_nothing_looks_faster_than_replayed(gpu_evaluator: Evaluator) -> None:
    replayed, outside = judged("plain", gpu_evaluator), judged("waits", gpu_evaluator)

    for fast, slow in zip(replayed.workloads, outside.workloads, strict=True):
        assert slow.latency_ms > fast.latency_ms
