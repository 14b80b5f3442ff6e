"""The suites' records: measured on the CPU at the small size, gone on with, compared, and made into tables."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks import readme_table, suite_best, suite_record, suite_sitting
from benchmarks.suite_figures import (
    BestFigures,
    BestRecord,
    Bound,
    Side,
    SuiteRecord,
    TaskFigures,
    WorkloadFigures,
    chosen,
    in_turn,
    read_best,
    read_suite,
    write,
)

from warpsmith.kernels.facts import DeviceFacts, KernelFacts, read_device
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.errors import UsageError
from warpsmith.model.task import Precision
from warpsmith.tasks import suites


def workload(eager_ms: float, compile_ms: float, floor_ms: float, name: str = "full") -> WorkloadFigures:
    sides = tuple(
        Side(side, precision, ms / part, ms / part, ms / part, 10, "graph", 1)
        for precision, part in (("fp32", 1), ("tf32", 2))
        for side, ms in (("eager", eager_ms), ("compile", compile_ms))
    )
    bound = Bound("fp32", floor_ms, "memory")
    return WorkloadFigures(name, (("n", 8),), int(floor_ms * 1e9), 8, (bound,), sides)


def record(*tasks: TaskFigures) -> SuiteRecord:
    return SuiteRecord(
        "2026-01-02T03:04:05+00:00", "A GPU", {"torch": "2.9"}, "full", "somehow", 1e12, {"fp32": 1e12}, 9.0, tasks
    )


RELU = TaskFigures("warpsmith-100/relu", "activation", 19, (workload(3.0, 1.5, 1.5),), 1.0)
SUM = TaskFigures("warpsmith-100/sum_reduction", "reduction", 47, (workload(2.0, 2.2, 1.0),), 1.0)
FASTER = KernelFacts(
    task=RELU.task,
    family="activation",
    candidate="abc",
    status="ok",
    reason="",
    speedup=1.5,
    interval=(1.4, 1.6),
    latency_ms=(2.0,),
    eager_ms=(3.0,),
    share_of_floor=(0.75,),
    error=0.1,
    verified=True,
    objection="",
    seconds=3.0,
)


def found(*kernels: KernelFacts) -> DeviceFacts:
    return DeviceFacts("A GPU", "2026-01-02T03:04:05+00:00", {}, {kernel.task: kernel for kernel in kernels})


def cells(table: str, first: str) -> list[str]:
    (line,) = (line for line in table.splitlines() if line.startswith(f"| {first} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


# --- tables ---


def test_the_tables_are_what_the_script_makes_of_the_records() -> None:
    made = readme_table.documents(read_suite(readme_table.SUITE), read_device(readme_table.KERNELS))

    assert {path.name for path in made} == {"README.md", "suites.md"}
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, "write it anew: python -m benchmarks.readme_table"


def test_without_records_the_tables_say_so() -> None:
    for table in (readme_table.families(None, None), readme_table.workloads(None, None)):
        assert table.startswith("Not measured yet.")
        assert "|" not in table
    assert "have not been judged on this device" in readme_table.families(record(RELU), None)


def test_families_are_compared_by_geometric_means() -> None:
    twice = replace(RELU, task="warpsmith-100/elu", workloads=(workload(8.0, 1.0, 1.0),))

    table = readme_table.families(record(RELU, twice, SUM), found(FASTER))

    ours = ["1", "1", "1.50×", "0.75×", "0.75×", "75 %"]
    assert cells(table, "activation") == ["activation", "2", "25 %", "4.00×", "4.00×", *ours]
    assert cells(table, "reduction") == ["reduction", "1", "50 %", "0.91×", "1.00×", *["–"] * 6]
    assert cells(table, "all")[1] == "3"
    assert "1 kernels of the collection are valid on A GPU" in table
    assert "Not valid" not in table


def test_only_valid_kernels_count_and_verified_ones_are_counted_apart() -> None:
    refused = replace(FASTER, status="wrong", speedup=None, verified=None)
    untried = replace(FASTER, task=SUM.task, family="reduction", verified=None)

    table = readme_table.families(record(RELU, SUM), found(refused, untried))
    lines = readme_table.workloads(record(RELU, SUM), found(refused, untried))

    assert cells(table, "all")[5:8] == ["1", "0", "1.50×"]
    assert "Not valid: `warpsmith-100/relu` (wrong)." in table
    assert cells(lines, "relu")[-2:] == ["–", "–"]


def test_the_limit_counts_products_of_the_fp32_class_on_tensor_cores() -> None:
    product = replace(RELU, workloads=(replace(RELU.workloads[0], bytes=8, flops=int(6e9)),))
    suite = replace(record(product), flops_s={"fp32": 1e12, "fp16": 9e12})

    assert readme_table.Figures(suite, product, None).limit_ms(product.workloads[0]) == pytest.approx(2.0)


def test_every_workload_has_its_line() -> None:
    chain = TaskFigures("warpsmith-fused/swiglu", "fused", None, (workload(1, 1, 1, "a"), workload(2, 1, 0.01, "b")), 1)
    broken = replace(SUM, workloads=(), failure="out of memory")

    table = readme_table.workloads(record(RELU, chain, broken), found(FASTER))

    assert cells(table, "relu") == ["relu", *["memory", "1.500", "3.000", "1.500", "1.500", "0.750", "2.000", "1.50×"]]
    assert cells(table, "swiglu b")[2] == "0.0100"
    assert "Missing: `sum_reduction`: out of memory." in table


def test_a_file_without_its_marks_is_refused() -> None:
    assert readme_table.filled(f"a\n{readme_table.BEGIN}old{readme_table.END}\nb", "new", "x").count("new") == 1
    with pytest.raises(UsageError, match="x lacks"):
        readme_table.filled("nothing here", "new", "x")


# --- records ---


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    write(tmp_path / "suite.json", record(RELU, SUM))
    kernel = Candidate((SourceFile("kernel.cu", "int x;"),), "cuda", (("BLOCK", "128"),))
    run = BestFigures(
        RELU.task, "activation", "cupilot", 12, 11, 12, 20.0, "trials", latency_ms={"full": 2.0}, kernel=kernel
    )
    best = BestRecord("2026-01-02T03:04:05+00:00", "A GPU", {}, "full", "fp32", 9.0, 51, (run,))
    write(tmp_path / "best.json", best)

    assert read_suite(tmp_path / "suite.json") == record(RELU, SUM)
    assert read_best(tmp_path / "best.json") == best
    assert read_suite(tmp_path / "none.json") is None
    with pytest.raises(UsageError, match="is no such record"):
        read_suite(tmp_path / "best.json")


def test_what_is_cut_off_has_reached_every_family() -> None:
    entries = in_turn(suites.select_tasks())
    families = {entry.family for entry in entries}

    assert len(entries) == 112
    assert {entry.family for entry in entries[: len(families)]} == families
    assert [e.name for e in chosen(entries, "scan,relu") if e.family != "scan"] == ["relu"]
    with pytest.raises(UsageError, match="called 'rleu'"):
        chosen(entries, "rleu")


def test_published_times_are_compared_where_both_are_known() -> None:
    text = "id\teager_fp32_ms\teager_tf32_ms\n19\t3.1\t1.2\n47\t2.0\t\n99\t1.0\t1.0\n"

    lines = suite_record.compared(record(RELU, SUM), list(csv.DictReader(io.StringIO(text), delimiter="\t")))

    assert [line.split() for line in lines[1:-1]] == [["19", "relu", "tf32", "1.500", "1.200", "1.25"]]
    assert lines[-1] == "2 of 3 eager times are within 10% of the published ones."


# --- measuring ---


def recorded(path: Path, *more: str) -> int:
    return suite_record.main(["--json", str(path), "--device", "cpu", "--small", *more])


def test_a_record_is_made_and_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "suite.json"

    assert recorded(path, "--eager", "--only", "relu,matmul", "--limit-s", "0") == 1  # no time for any of them
    assert not path.exists()
    assert recorded(path, "--eager", "--only", "relu") == 0
    assert recorded(path, "--eager", "--only", "relu,mse_loss") == 0
    assert recorded(path, "--eager", "--only", "relu", "--again") == 0

    shown = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["warpsmith-100/relu", "warpsmith-100/mse_loss", "warpsmith-100/relu"]
    made = read_suite(path)
    assert made is not None
    (relu,) = (task for task in made.tasks if task.name == "relu")
    (only,) = relu.workloads
    assert (relu.level1, only.bytes, only.flops) == (19, 2 * 4 * 64_000, 64_000)
    assert [(s.name, s.precision) for s in only.sides] == [("eager", "fp32")], "a CPU has no tf32"
    assert only.sides[0].low_ms <= only.sides[0].median_ms <= only.sides[0].high_ms
    assert only.bounds[0].floor_ms > 0
    assert suite_record.main(["--json", str(path), "--device", "cpu", "--eager", "--only", "elu"]) == 2
    assert "at small size" in capsys.readouterr().err


@pytest.mark.slow
def test_what_is_timed_was_compiled_ahead(tmp_path: Path) -> None:
    path = tmp_path / "suite.json"
    words = ["--json", str(path), "--device", "cpu", "--small", "--only", "relu", "--workers", "1"]
    script = [sys.executable, "-m", "benchmarks.suite_record", *words, "--cache", str(tmp_path / "cache")]

    done = subprocess.run(script, cwd=readme_table.ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "1 graphs were compiled ahead, 0 were not" in done.stderr
    made = read_suite(path)
    assert made is not None
    assert [side.name for side in made.tasks[0].workloads[0].sides] == ["eager", "compile"]


_ONE_OF_EACH = ("relu", "mse_loss", "matmul", "rms_norm", "sum_reduction", "softmax", "attention")


@pytest.mark.parametrize("names", [_ONE_OF_EACH, pytest.param((), marks=pytest.mark.slow)], ids=["some", "all"])
def test_the_catalogue_covers_the_families_its_templates_are_for(
    names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [each for each in suites.select_tasks() if not names or each.name in names]
    monkeypatch.setattr(suites, "select_tasks", lambda: entries)
    titles = set(suite_best.covered("cuda", Precision.FP32))
    families = {entry.family for entry in entries if entry.title in titles}

    assert {"activation", "loss", "matmul", "normalisation", "reduction"} <= families
    assert "warpsmith-100/softmax" in titles
    assert "attention" in {entry.name for entry in entries}
    assert "warpsmith-100/attention" not in titles


@pytest.mark.slow
def test_the_best_is_searched_for_then_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "best.json"
    common = ["--json", str(path), "--device", "cpu", "--small", "--only", "relu", "--trials", "2"]

    assert suite_best.main([*common, "--no-verify"]) == 0
    first = read_best(path)
    assert suite_best.main([*common, "--verify-only"]) == 0
    second = read_best(path)
    capsys.readouterr()
    assert suite_best.main(common) == 0
    assert capsys.readouterr().out == "", "nothing is left to do"
    assert suite_best.main([*common, "--again", "--seconds", "30"]) == 0
    third = read_best(path)

    assert first is not None
    assert second is not None
    assert third is not None
    assert len(third.tasks) == 1
    assert third.date > second.date, "it was searched for anew"
    assert third.covered > 1
    assert first.tasks[0].kernel is not None
    assert first.tasks[0].strategy in first.tasks[0].tried
    assert first.tasks[0].verified is None
    assert second.tasks[0].verified is not None
    assert second.tasks[0].kernel == first.tasks[0].kernel


def test_a_sitting_that_is_interrupted_says_so_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> int:
        raise KeyboardInterrupt

    assert suite_sitting.ended(work, Path("suite.json")) == 130
    said = capsys.readouterr().err
    assert said.startswith("interrupted; suite.json has what was finished")
    assert said.count("\n") == 1


def test_a_task_measured_again_takes_the_place_of_the_old_one() -> None:
    again = replace(RELU, seconds=99.0)
    assert suite_sitting.merged((SUM, RELU), again) == tuple(sorted((SUM, again), key=lambda task: task.task))


def test_a_sitting_does_not_go_on_with_the_record_of_something_else() -> None:
    suite_sitting.check_same(("A GPU", "full"), ("A GPU", "full"))
    with pytest.raises(UsageError, match="of A GPU at full size in fp32, not of A GPU at full size in tf32; name"):
        suite_sitting.check_same(("A GPU", "full", "fp32"), ("A GPU", "full", "tf32"))
