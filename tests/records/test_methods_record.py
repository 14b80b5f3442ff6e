"""The record of methods: its plan, its parts, and the tables of the summary."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks import methods_record, methods_summary
from benchmarks.methods_summary import BEGIN, END, NO_DIFFERENCE, Effect, ProposalRow, error_kind, summarise

from tests.experiments.test_collect import rising, searched
from tests.experiments.test_plan import planned
from warpsmith.experiments.collect import collect
from warpsmith.experiments.plan import start_of, write_plan

METHODS = (
    *("ai-cuda-engineer", "cupilot", "eoh", "evoengineer-free", "evoengineer-full", "evoengineer-insight"),
    *("funsearch", "cupilot-no-roofline", "cupilot-no-retrieval", "cupilot-no-alignment", "cupilot-no-repairs"),
    "cupilot-no-profile",
)


def options(tmp_path: Path) -> Namespace:
    found: list[Namespace] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(methods_record, "run", found.append)
        methods_record.main(["run", "--model", "openai:local", "--out", str(tmp_path)])
    return found[0]


def test_the_plan_has_every_method_on_every_task_with_a_starting_kernel(tmp_path: Path) -> None:
    plan = methods_record.make_plan(options(tmp_path))

    assert tuple(method.name for method in plan.methods) == METHODS
    assert len(plan.tasks) == 12
    assert len({task.family for task in plan.tasks}) >= 9
    assert (plan.budget.trials, plan.budget.tokens, plan.settings.published_rule) == (12, 250_000, True)
    assert all(Path(start_of(plan, task.name)).is_file() for task in plan.tasks)
    assert plan.id == methods_record.make_plan(options(tmp_path)).id


def test_a_bench_comes_back_from_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods_record, "_PART_BYTES", 100)
    folder = tmp_path / "bench"
    (folder / "cells/a/bundle").mkdir(parents=True)
    (folder / "cells/a/run.db").write_bytes(bytes(range(256)))
    (folder / "plan.json").write_text("{}")
    (folder / "lock").touch()
    (folder / "cells/a/bundle/kernel.cu").touch()

    made = methods_record.pack(folder, tmp_path / "parts")
    methods_record.unpack(tmp_path / "parts", tmp_path / "again")

    assert len(made) > 2
    assert max(part.stat().st_size for part in made) <= 100
    found = sorted(str(path.relative_to(tmp_path / "again")) for path in (tmp_path / "again").rglob("*.*"))
    assert found == ["cells/a/run.db", "plan.json"]
    assert (tmp_path / "again/cells/a/run.db").read_bytes() == bytes(range(256))


@pytest.mark.parametrize(
    ("outcome", "reason", "kind"),
    [
        ("ok", "", ""),
        ("wrong", "element 3 is 1.0, not 2.0", "wrong"),
        ("build_error", 'k.cu:28: error: identifier "launch_kernel" is undefined', "build_error: an undefined name"),
        (
            "build_error",
            "k.cu:2:10: fatal error: cublas_v2.h: No such file or directory",
            "build_error: a missing header",
        ),
        ("build_error", 'error: argument of type "void *" is incompatible', "build_error: wrong types or arguments"),
        ("build_error", 'k.cu:4: error: expected a ";"', "build_error: syntax"),
        ("unreadable", "The reply was cut off before its code came to an end.", "unreadable: cut off"),
        ("unreadable", "The code defines `relu` with the right parameters; call it", "unreadable: another entry point"),
    ],
)
def test_errors_have_kinds(outcome: str, reason: str, kind: str) -> None:
    assert error_kind(outcome, reason) == kind


def row(task: str, method: str, trial: int, *, valid: bool) -> ProposalRow:
    outcome = "ok" if valid else "wrong"
    return ProposalRow(task, method, 0, trial, "init", True, outcome, "" if valid else "wrong", True, True, None)


def test_an_effect_is_clear_only_beyond_its_interval(tmp_path: Path) -> None:
    plan = replace(
        planned([f"{name}@small" for name in ("relu", "tanh", "gelu", "elu", "selu")]), repeats=1, verify=False
    )
    write_plan(plan, tmp_path)
    for key in plan.cells:
        searched(tmp_path, key, rising)
    bench = collect(tmp_path)
    one, other = bench.methods[0], "none"
    bench = replace(bench, methods=(one, other), cells=(*bench.cells, *(replace(c, method=other) for c in bench.cells)))
    tasks = [task.name for task in bench.tasks]

    def effect(shares: list[int]) -> Effect:
        rows = [row(task, one, number, valid=number < 5) for task in tasks for number in range(6)]
        rows += [row(t, other, n, valid=n < share) for t, share in zip(tasks, shares, strict=True) for n in range(6)]
        found = methods_summary.effect_of(("part", one, other, ""), rows, bench)
        assert found is not None
        return found

    assert effect([1, 2, 1, 2, 1]).verdict == "higher validity"
    assert effect([5, 6, 4, 5, 5]).verdict == NO_DIFFERENCE
    assert effect([5, 6, 4, 5, 5]).speed == (1.0, 1.0, 1.0)
    assert replace(effect([1, 2, 1, 2, 1]), tasks=4).verdict == "too few tasks"


def test_the_summary_of_a_bench(tmp_path: Path) -> None:
    plan = replace(planned(["relu@small", "tanh@small"]), repeats=1, verify=False)
    write_plan(plan, tmp_path / "bench")
    for key in plan.cells:
        searched(tmp_path / "bench", key, rising)
    guide = tmp_path / "guide.md"
    guide.write_text(f"# Guide\n\n{BEGIN}\n\nNot measured yet.\n\n{END}\n\nThe end.\n")

    text = summarise(tmp_path / "bench", tmp_path / "out", model="tiny", checksum="abc", reproduce=guide)

    assert (tmp_path / "out/README.md").read_text() == text + "\n"
    assert f"{len(plan.cells)} of {len(plan.cells)} cells are finished; {3 * len(plan.cells)} proposals" in text
    record = json.loads((tmp_path / "out/record.json").read_text())
    assert {each["outcome"] for each in record["proposals"]} == {"ok"}
    assert (tmp_path / "out/report.html").stat().st_size > 10_000
    filled = guide.read_text()
    assert "Not measured yet" not in filled
    assert filled.startswith("# Guide")
    assert filled.endswith("The end.\n")
    assert f"| {plan.methods[0].name} |" in filled
