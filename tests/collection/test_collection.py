"""The collection: which kernels there are, and that nothing more is said of them than is known."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks import compile_facts

from warpsmith.backends import library
from warpsmith.cli.kernels import kernels_list, kernels_show
from warpsmith.kernels import collection as collected_kernels
from warpsmith.kernels.collection import CollectedKernel, collection, find_kernel
from warpsmith.kernels.facts import (
    DeviceFacts,
    KernelFacts,
    KernelState,
    MeasuredRatio,
    MedianTime,
    PytorchRecord,
    PytorchTimes,
    identity,
    over_best_of_pytorch,
    over_compile,
    over_eager,
    read_device,
    read_facts,
    state_of,
    write_facts,
)
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.errors import UsageError
from warpsmith.tasks.suites import SuiteTask

KERNEL = Candidate((SourceFile("kernel.cu", "#include <warpsmith/scan.cuh>\n"),), "cuda")
JUDGED = KernelFacts(
    task="warpsmith-100/cumsum",
    family="scan",
    candidate=identity(KERNEL),
    status="ok",
    reason="",
    speedup=2.0,
    interval=(1.9, 2.1),
    latency_ms=(1.0,),
    eager_ms=(2.0,),
    share_of_floor=(0.5, 0.4),
    error=0.1,
    verified=None,
    objection="",
    seconds=1.0,
)


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        (None, KernelState.NOT_JUDGED),
        (replace(JUDGED, status="fault"), KernelState.NOT_JUDGED),
        (JUDGED, KernelState.JUDGED),
        (replace(JUDGED, verified=True), KernelState.VERIFIED),
        (replace(JUDGED, verified=False), KernelState.NOT_VERIFIED),
        (replace(JUDGED, status="wrong", verified=True), KernelState.NOT_VALID),
        (replace(JUDGED, candidate="0123456789ab", verified=True), KernelState.CHANGED),
    ],
)
def test_the_state_says_no_more_than_is_known(facts: KernelFacts | None, state: KernelState) -> None:
    assert state_of(KERNEL, facts) is state


def test_a_changed_header_is_a_changed_kernel_and_another_header_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    files = dict(library._library_files(library.LIBRARY))
    verified = replace(JUDGED, verified=True)

    for name, state in (
        ("warpsmith/packs.cuh", KernelState.CHANGED),  # through scan.cuh
        ("warpsmith/pool.cuh", KernelState.VERIFIED),
    ):
        changed = {**files, name: files[name] + "\n"}
        monkeypatch.setattr(library, "_library_files", lambda _folder, changed=changed: changed)
        assert state_of(KERNEL, verified) is state


TIMES = PytorchTimes((MedianTime(2.0, 1.9, 2.2),), (MedianTime(1.0, 0.9, 1.1),))
PYTORCH = PytorchRecord("2026-01-02T03:04:05+00:00", {"torch": "2.x"}, "fp32", {JUDGED.task: TIMES})


def test_facts_are_written_and_read_again(tmp_path: Path) -> None:
    facts = DeviceFacts("NVIDIA H200", "2026-01-01", {"driver": "1"}, {JUDGED.task: JUDGED}, PYTORCH)

    write_facts(tmp_path / "h200.json", facts)

    assert read_device(tmp_path / "h200.json") == facts
    assert read_facts(tmp_path) == (facts,)
    assert read_device(tmp_path / "other.json") is None


def test_the_speedup_over_torch_compile_combines_the_errors_of_both_records() -> None:
    """Each bound by itself: the kernel's interval, the medians' intervals, and how eager changed between the days."""
    faster = replace(JUDGED, speedup=3.0, interval=(2.8, 3.3))
    found = over_compile(faster, TIMES)
    assert found is not None
    assert found.value == pytest.approx(3.0 / 2.0)
    below = math.hypot(math.log(3.0 / 2.8), math.log(2.2 / 2.0), math.log(1.0 / 0.9))
    above = math.hypot(math.log(3.3 / 3.0), math.log(2.0 / 1.9), math.log(1.1 / 1.0))
    assert found.low == pytest.approx(1.5 * math.exp(-below))
    assert found.high == pytest.approx(1.5 * math.exp(above))
    slower_day = over_compile(replace(faster, eager_ms=(2.4,)), TIMES)
    assert slower_day is not None
    assert slower_day.value == found.value
    assert slower_day.low == pytest.approx(1.5 * math.exp(-math.hypot(below, math.log(1.2))))
    assert slower_day.low < found.low < found.high < slower_day.high


def test_workloads_are_brought_together_by_their_geometric_mean() -> None:
    exact = PytorchTimes(
        (MedianTime(2.0, 2.0, 2.0), MedianTime(8.0, 8.0, 8.0)), (MedianTime(1.0, 1.0, 1.0), MedianTime(1.0, 0.5, 2.0))
    )
    mean = exact.compile_speedup
    assert mean.value == pytest.approx(4.0)
    assert mean.low == pytest.approx(4.0 / math.sqrt(2))
    assert mean.high == pytest.approx(4.0 * math.sqrt(2))


def test_the_best_of_pytorch_is_the_faster_form() -> None:
    slow_compile = replace(TIMES, compile=(MedianTime(4.0, 3.9, 4.1),))
    assert over_best_of_pytorch(JUDGED, TIMES) == over_compile(JUDGED, TIMES)
    assert over_best_of_pytorch(JUDGED, slow_compile) == over_eager(JUDGED) == MeasuredRatio(2.0, 1.9, 2.1)
    for facts, times in (
        (replace(JUDGED, status="wrong"), TIMES),
        (replace(JUDGED, speedup=None), TIMES),
        (JUDGED, None),
    ):
        assert over_compile(facts, times) is None
        assert over_best_of_pytorch(facts, times) is None


def test_the_shipped_facts_have_the_times_of_the_suites_record() -> None:
    assert compile_facts.main(["--check"]) == 0, "write them anew: python -m benchmarks.compile_facts"


def test_adding_the_times_changes_no_other_fact(tmp_path: Path) -> None:
    before = read_device(compile_facts.KERNELS)
    assert before is not None
    path = tmp_path / "h200.json"
    write_facts(path, replace(before, pytorch=None))
    arguments = ["--facts", str(path)]

    assert compile_facts.main([*arguments, "--check"]) == 1
    assert compile_facts.main(arguments) == 0
    assert path.read_bytes() == compile_facts.KERNELS.read_bytes()
    assert compile_facts.main(arguments) == 0
    assert path.read_bytes() == compile_facts.KERNELS.read_bytes()


def test_times_of_another_gpu_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.json"
    write_facts(path, DeviceFacts("NVIDIA H100", "2026-01-01", {}, {}))

    assert compile_facts.main(["--facts", str(path)]) == 2
    assert "the facts are of NVIDIA H100" in capsys.readouterr().err
    assert compile_facts.main(["--facts", str(tmp_path / "absent.json")]) == 2


def test_texts_of_forms_are_kept_until_something_of_the_package_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the 6 s that loading the tasks takes, and never the text of another version."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "form.py").write_text("1")
    monkeypatch.setenv("WARPSMITH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(collected_kernels, "PACKAGE", package)
    loaded: list[str] = []

    def written(task: SuiteTask) -> CollectedKernel | None:
        loaded.append(task.name)
        return CollectedKernel(task, KERNEL, "scan") if task.name == "cumsum" else None

    monkeypatch.setattr(collected_kernels, "collected", written)
    look = collected_kernels.collection.__wrapped__
    assert [kernel.form for kernel in look()] == ["scan"]
    assert len(loaded) == 112
    again = look()
    assert {kernel.task.name: kernel.source for kernel in again if kernel.form} == {"cumsum": KERNEL.main.text}
    assert len(loaded) == 112
    (package / "form.py").write_text("2")
    look()
    assert len(loaded) == 224
    for file in (tmp_path / "cache" / "collection").iterdir():
        file.write_text("{")
    look()
    assert len(loaded) == 336


def test_every_fact_of_the_package_is_of_a_kernel_of_the_collection() -> None:
    known = {kernel.task.title for kernel in collection()}

    assert {title for device in read_facts() for title in device.kernels} <= known
    assert {device.device for device in read_facts()} == {"NVIDIA H200"}


def test_the_list_says_what_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert kernels_list(json=True) == 0
    entries = json.loads(capsys.readouterr().out)["kernels"]

    assert len(entries) == len(collection())
    for entry in entries:
        for device in entry["devices"]:
            verified = device["facts"]["verified"] is True and device["state"] == "verified"
            assert device["verified"] is verified
            assert device["speedup"]["compile"]["low"] <= device["speedup"]["compile"]["high"]
            eager, compiled = device["speedup"]["eager"], device["speedup"]["compile"]
            assert device["speedup"]["best_of_pytorch"] == (eager if device["best_of_pytorch"] == "eager" else compiled)
            assert device["pytorch_timed"]["date"].startswith("2026-11-16")
            assert (device["certificate"] or {}).get("verified") is device["facts"]["verified"]
    assert kernels_list(family=["scan"]) == 0
    shown = capsys.readouterr().out
    assert "warpsmith-100/cumsum_reverse" in shown
    assert "5 kernels" in shown
    assert "over compile" in shown
    assert "torch.compile was timed apart from the kernels, on 2026-11-16." in shown
    with pytest.raises(UsageError, match=r"no kernel is of the family 'scans'; the families are .*scan"):
        kernels_list(family=["scans"])


def test_show_prints_the_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert kernels_show("warpsmith-100/cumsum") == 0
    shown = capsys.readouterr().out
    assert "warpsmith/packs.cuh, warpsmith/scan.cuh" in shown
    assert find_kernel("cumsum").source.strip() in shown
    ratio = r"[\d.]+x \[[\d.]+, [\d.]+\]"
    speedups = rf"{ratio} PyTorch eager; {ratio} torch\.compile \(torch\.compile timed on 2026-11-16\)"
    assert re.search(rf"NVIDIA H200: [^;]+; (an earlier text reached )?{speedups}; [\d.]+x the faster of both, ", shown)
    assert "Certificate: verified, right at other sizes too; its largest error is" in shown
    assert "Lineage: 8 kernels" in shown

    assert kernels_show("cumsum", json=True) == 0
    assert json.loads(capsys.readouterr().out)["source"] == find_kernel("cumsum").source


def test_an_unknown_kernel_names_near_ones() -> None:
    with pytest.raises(UsageError, match=r"no kernel 'cumsumm'; did you mean cumsum"):
        find_kernel("cumsumm")
    with pytest.raises(UsageError, match="warpsmith kernels list"):
        find_kernel("zzz")
