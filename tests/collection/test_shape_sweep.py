"""The sweep over sizes that no suite task has: its entries, its check of one kernel, its record."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
from benchmarks import form_checks, shape_sweep
from benchmarks.shape_sweep import FAILED, NOT_CLAIMED, RIGHT, WRONG, KernelCall, Measured, Prepared
from benchmarks.sweep_entries import CHAINS, CONVOLUTIONS, GROUPS, OTHERS, PRODUCTS, Entry
from benchmarks.sweep_shapes import entries

from warpsmith.backends.source import backend_named
from warpsmith.evaluator.judge.numerics.reference import Case, Reference
from warpsmith.model.build import Artifact, DeviceKind, Target
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.tasks.load import load_task
from warpsmith.tasks.suites import SHIPPED, suite_tasks

SAMPLE = (
    "product_batched_transposed_b_96_577_64_577",
    "product_linear_1001_1531_3067",
    "conv_transposed_stride_11",
    "conv_groups_3_odd",
    "pool_avg_strided",
    "scan_cumsum_exclusive_90_250007",
    "tanh_12001_3000",
    "top_k_softmax_20001_96",
    "chain_mobile_hardswish",
    "chain_attention_block",
)
DOUBLED = """
#include <cstdint>
extern "C" int launch(const float* x, float* out, int64_t n, void* workspace, void* stream) {
  for (int64_t i = 0; i < n; ++i) out[i] = 2 * x[i];
  BUG
  return 0;
}
"""


def named(name: str) -> Entry:
    return next(entry for entry in entries() if entry.name == name)


def test_it_has_as_many_entries_as_were_asked_for_and_each_name_once() -> None:
    found = entries()
    counts = {group: sum(entry.group == group for entry in found) for group in GROUPS}
    assert counts == {PRODUCTS: 40, CONVOLUTIONS: 60, OTHERS: 60, CHAINS: 37}
    assert len({entry.name for entry in found}) == len({entry.text for entry in found}) == len(found)


def test_no_suite_task_has_these_sizes() -> None:
    listed = [task for suite in SHIPPED for task in suite_tasks(suite)]
    known = [dict(w.sizes) for task in listed for w in (*task.workloads, *task.small, *task.held_out)]
    assert len(known) > 200
    assert [entry.name for entry in entries() if dict(entry.sizes) in known] == []


@pytest.mark.parametrize("name", SAMPLE)
def test_a_form_or_a_template_has_a_kernel(name: str, tmp_path: Path) -> None:
    entry = named(name)
    shape_sweep.write_tasks([entry], tmp_path)
    made = shape_sweep.write_kernel(entry, tmp_path)
    assert (made.status, made.name) == ("", name)
    assert made.form
    assert made.candidate


@pytest.mark.slow
def test_all_entries_have_a_kernel(tmp_path: Path) -> None:
    shape_sweep.write_tasks(entries(), tmp_path)
    found = [shape_sweep.write_kernel(entry, tmp_path) for entry in entries()]
    assert [made.name for made in found if made.status] == []


@pytest.mark.parametrize(
    ("bug", "said"),
    [
        ("", ""),
        ("out[3] *= 1.001f;", "out differs"),
        ("out[n] = 0;", "writes outside its output"),
        ("const_cast<float*>(x)[2] = 1;", "changes its input x"),
    ],
)
def test_a_kernel_is_checked_with_the_evaluators_limits(bug: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "doubled.py"
    file.write_text(
        "import torch\nfrom warpsmith import normal, task\n"
        '@task(x=normal("n"), workloads=[{"n": 1000}], precision="fp32")\n'
        "def doubled(x: torch.Tensor) -> torch.Tensor:\n    return 2 * x\n",
        encoding="utf-8",
    )
    program = load_task(file)
    backend, workload = backend_named("cpu"), program.task.workloads[0]
    contract = backend.contract(program.task)
    candidate = Candidate((SourceFile("kernel.cpp", DOUBLED.replace("BUG", bug)),), "cpu")
    made = backend.build(candidate, contract, Target(DeviceKind.CPU))
    assert isinstance(made, Artifact)
    reference = Reference(program, torch.device("cpu"), {workload.name: 1}, 3.0)
    expected = reference.compute(Case(workload, "own", 1))
    assert expected is not None
    share, reason = KernelCall(str(made.library), program.task, contract, expected.inputs).check(reference, expected)
    assert said in reason
    assert bool(reason) == bool(said)
    assert (share <= 1) is (said == "")


def result(name: str, status: str, speedup: float | None = None) -> Measured:
    entry = named(name)
    return Measured(name, entry.group, entry.shape, "product", "abc-123", status, speedup=speedup, variants=("own",))


def test_the_record_is_read_as_it_was_written_and_summed_up_by_group(tmp_path: Path) -> None:
    rows = [
        result("product_plain_2050_2050_2050", RIGHT, 4.0),
        result("product_plain_250_250_250", RIGHT, 1.0),
        result("product_plain_1_4099_4001", WRONG),
        result("pool_max_1d_halves", NOT_CLAIMED),
    ]
    path = tmp_path / "folder" / "record.json"
    shape_sweep.write_record(path, {row.name: row for row in rows}, {"device": "a GPU"})
    assert shape_sweep.read_record(path) == {row.name: row for row in rows}
    _, products, others = shape_sweep.summary(iter(rows))
    assert products.split()[:6] == ["product", "2", "of", "3", "1", "0"]
    assert "2.00x" in products
    assert "1.00x  plain 250 x 250 x 250" in products
    assert others.split()[:7] == ["other", "0", "of", "1", "0", "0", "1"]


def crash(jobs: list[tuple[Entry, Prepared]], folder: Path, lines: Path, limit_s: float) -> None:
    """As `measure_entries`, with a second entry whose kernel ends the process."""
    with lines.open("a", encoding="utf-8") as file:
        for entry, made in jobs:
            file.write(f'{{"name": "{entry.name}"}}\n')
            file.flush()
            if made.form == "crash":
                os._exit(9)
            file.write(json.dumps(asdict(result(entry.name, RIGHT, 2.0))) + "\n")


def test_a_crash_costs_one_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = entries()[:3]
    jobs = [(entry, Prepared(entry.name, "", "product", "abc-123")) for entry in chosen]
    jobs[1] = (chosen[1], replace(jobs[1][1], form="crash"))
    monkeypatch.setattr(shape_sweep, "measure_entries", crash)
    monkeypatch.setattr(shape_sweep, "PROCESSES", get_context("fork"))  # the other process needs no GPU here
    found = list(shape_sweep.measure_all(jobs, tmp_path, time.monotonic() + 60))
    assert [(each.name, each.status) for each in found] == [
        (chosen[0].name, RIGHT),
        (chosen[1].name, FAILED),
        (chosen[2].name, RIGHT),
    ]
    assert "ended with 9" in found[1].reason


def test_the_entries_that_are_verified_are_entries_of_the_sweep() -> None:
    assert [entry.name for entry in form_checks.chosen_entries()] == list(form_checks.ENTRIES)


@pytest.mark.parametrize(
    ("answer", "said", "found"),
    [
        ('{"verified": true, "reason": ""}', "", (True, "")),
        ('{"verified": false, "reason": "memcheck: out of bounds"}', "", (False, "memcheck: out of bounds")),
        ("", "warning\nerror: no GPU\n", (None, "error: no GPU")),
        ("", "", (None, "no answer")),
    ],
)
def test_what_a_verification_said_is_read(answer: str, said: str, found: tuple[bool | None, str]) -> None:
    assert form_checks.outcome_of(answer, said) == found
