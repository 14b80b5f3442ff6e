"""`bench --as-published`: the set-ups of the papers, what still differs, and both papers from the command line."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.cli.test_cli_commands import Desk, desk
from tests.experiments.test_collect import searched
from tests.experiments.test_plan import planned as tasks_planned
from tests.scripted import Body, ScriptedServer, Step, say
from tests.searching import factor, invalid, valid
from warpsmith.cli import bench as command
from warpsmith.cli.main import app
from warpsmith.experiments.as_published import Paper, differences, setup
from warpsmith.experiments.collect import collect
from warpsmith.experiments.plan import BenchPlan, write_plan
from warpsmith.experiments.results import RefusedKernel
from warpsmith.methods.deviations import ERRORS, STARTS, STOPS, TUNES
from warpsmith.methods.load import load
from warpsmith.model.candidate import Candidate
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.method import Show

__all__ = ["desk"]

Planned = Callable[..., BenchPlan]


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Planned:
    """The plan that a command makes; nothing is run."""
    monkeypatch.chdir(tmp_path)
    kept: list[BenchPlan] = []

    def keep(folder: Path, plan: BenchPlan, *_: Any, **__: Any) -> int:
        kept.append(plan)
        return 0

    monkeypatch.setattr(command, "_work", keep)

    def plan_of(*words: str) -> BenchPlan:
        said = CliRunner().invoke(app, ["bench", "run", *words, "--devices", "cpu", "--proposers", "template"])
        assert said.exit_code == 0, said.output
        return kept[-1]

    return plan_of


def test_evoengineer_as_published(planned: Planned) -> None:
    plan = planned("--as-published", "evoengineer")

    assert len(plan.tasks) == 100
    assert (plan.budget.trials, plan.repeats, plan.start, plan.tune, plan.enough_share) == (45, 3, "plain", False, None)
    bases = [method.name.removesuffix("-no-failures-no-repairs") for method in plan.methods]
    assert bases == [
        *("ai-cuda-engineer", "funsearch", "eoh"),
        *("evoengineer-free", "evoengineer-insight", "evoengineer-full"),
    ]
    for method in plan.methods:
        assert method.repairs == 0
        assert not any(Show.FAILURES in operator.shows for operator in method.operators)
    said = differences(plan)
    assert not {ERRORS, STOPS, TUNES, STARTS} & set(said)
    for word in ("91 problems", "RTX 4090", "GPT-4.1", "public material does not say over how many runs", "1e-2"):
        assert any(word in text for text in said), word


def test_cupilot_as_published(planned: Planned) -> None:
    plan = planned("relu@small", "--as-published", "cupilot")

    (method,) = plan.methods
    assert dict(method.population.options)["size"] == 50
    assert plan.budget.trials == 4 * 50
    assert (plan.repeats, plan.start, plan.tune, plan.enough_share, method.repairs) == (1, "plain", False, None, 2)
    assert any("A100" in text for text in differences(plan))


def test_options_beside_it_win_and_are_differences(planned: Planned) -> None:
    plan = planned(
        *("relu@small", "--as-published", "evoengineer", "--trials", "7", "--repeats", "2", "--methods", "cupilot"),
        *("--population", "9", "--start", "auto"),
    )
    assert (plan.budget.trials, plan.repeats, plan.start) == (7, 2, "auto")
    said = " ".join(differences(plan))
    for words in (
        *("Trials of a run: 45 in the paper, 7 here.", "task: 3 in the paper, 2 here.", "Methods added: cupilot."),
        *("Methods missing here: ai-cuda-engineer-no", "not those of the paper, but auto", "Chosen: 1."),
    ):
        assert words in said, words
    assert differences(replace(plan, as_published="")) == ()
    smaller = replace(plan, methods=(replace(setup(Paper.CUPILOT).methods[0], repairs=1),), as_published="cupilot")
    assert any("another population than published: cupilot-no-failures" in text for text in differences(smaller))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("relu", "--epoch-size", "5", "--trials", "9"), "leave out --trials, or --epoch-size"),
        (("relu", "--methods", "eoh", "--epoch-size", "5"), "eoh has no epochs"),
        (("relu", "--methods", "funsearch", "--population", "5"), "has no option 'size'"),
        ((), "bench run needs a suite or tasks"),
    ],
)
def test_sizes_that_a_method_does_not_have_are_one_sentence(words: tuple[str, ...], said: str) -> None:
    found = CliRunner().invoke(app, ["bench", "run", *words, "--devices", "cpu"])
    assert found.exit_code == 2
    assert said in " ".join(found.output.split())


def test_an_epoch_size_sets_the_trials(planned: Planned) -> None:
    assert planned("relu@small", "--epoch-size", "6", "--population", "12").budget.trials == 24
    assert load("cupilot").population != planned("relu@small", "--population", "12").methods[0].population


WANTED = re.compile(r"[Gg]ive (\d+) ")
KERNEL = (
    'extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void*, void*) {{\n'
    "  for (int64_t i = 0; i < rows * cols; ++i) out[i] = {number} * {factor}f * x[i] / {number};\n  return 0;\n}}\n"
)


def model() -> Callable[[int, Body], Step]:
    """A model for every method: strategies and alignments where they are asked for, else a kernel that doubles.

    Every second kernel is planted: all its results are 0.2 % too large, which the published rule does not see.
    """
    kernels = count(1)

    def play(number: int, body: Body) -> Step:
        asked = body["messages"][-1]["content"]
        if wanted := WANTED.search(asked):
            return say("\n".join(f"strategy: step {number} in {n} parts\nthought: why" for n in range(int(wanted[1]))))
        if "code:" not in asked:
            return say(f"strategy: what the code of {number} does")
        kernel = next(kernels)
        code = KERNEL.format(factor="2.0" if kernel % 2 else "2.004", number=kernel)
        return say(f"name: k{number}\nstrategy: step {number}\nthought: because\ncode:\n```cpp\n{code}```\n")

    return play


@pytest.mark.slow
@pytest.mark.parametrize(
    ("paper", "methods"),
    [("evoengineer", [f"{name}-no-failures-no-repairs" for name in ("evoengineer-full", "eoh")]), ("cupilot", [])],
)
def test_both_papers_end_to_end(paper: str, methods: list[str], desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(model()) as server:
        ended = desk.run(
            *("bench", "run", "double.py", "--as-published", paper, "--trials", "2", "--repeats", "1"),
            *("--proposers", "openai:scripted", "--devices", "cpu", "--no-verify", "--no-profile"),
            *("--time-budget", "0.05", "--out", f"out-{paper}", "--json"),
            *(("--methods", ",".join(methods)) if methods else ()),  # all six of them take minutes
            OPENAI_BASE_URL=server.openai_url,
            OPENAI_API_KEY="sk-secret",
        )
    assert ended.status == 0, ended.err
    results = json.loads(ended.out)["bench"]
    methods = methods or ["cupilot-no-failures"]
    assert [cell["method"] for cell in results["cells"]] == methods
    assert {(cell["status"], cell["trials"]) for cell in results["cells"]} == {("done", 2)}
    assert all(cell["best"]["start"] for cell in results["cells"])
    assert results["as_published"] == paper
    assert "Where this differs from the paper" in ended.err
    assert len(results["differences"]) > 8
    assert all((cell["published_valid"], cell["valid"]) == (2, 1) for cell in results["cells"])
    assert all("out differs: rms scaled error 0.002" in cell["refused"][0]["reason"] for cell in results["cells"])
    monkeypatch.chdir(desk.folder)
    assert_planted_in_every_format(Path(f"out-{paper}"), [(method, 2, 2, 1, 1, "wrong 1") for method in methods])


def assert_planted_in_every_format(folder: Path, rows: list[tuple[object, ...]]) -> None:
    """The table of the two rules, as the command line writes it in each format."""

    def printed(*words: str) -> str:
        said = CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})
        assert said.exit_code == 0, said.output
        return said.stdout

    def rules(format: str) -> str:
        return printed("bench", "show", str(folder), "--part", "rules", "--format", format)

    texts = [tuple(map(str, row)) for row in rows]
    assert [tuple(row) for row in csv.reader(io.StringIO(rules("csv")))][1:] == texts
    for row in texts:
        assert re.search(r"\s+".join(map(re.escape, row)), rules("table"))
        assert " & ".join(row) + r" \\" in rules("latex")
        assert f"| {' | '.join(row)} |" in rules("markdown")
    printed("report", str(folder))
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert json.dumps(texts, separators=(",", ":")) in page


def test_a_planted_kernel_is_in_the_table_of_two_rules(tmp_path: Path) -> None:
    plan = tasks_planned(["relu@small"])
    plan = replace(plan, repeats=1, methods=plan.methods[:1], settings=replace(plan.settings, published_rule=True))
    (key,) = plan.cells
    write_plan(plan, tmp_path)

    def both_rules(candidate: Candidate) -> Evaluation:
        """Of three kernels the first is valid by both rules, the second by the published rule, the third by none."""
        number = factor(candidate)
        found = valid(candidate, 2.0) if number == 1 else invalid(candidate)
        return replace(found, published=number < 3)

    searched(tmp_path, key, both_rules)

    (cell,) = collect(tmp_path).cells
    assert cell.refused == (RefusedKernel(2, "wrong", "out[3] is 7, not 8"),)
    assert_planted_in_every_format(tmp_path, [(key.method, 3, 2, 1, 1, "wrong 1")])
