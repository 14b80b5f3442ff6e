from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.report.synthetic import FLOOR_MS, Maker, make_run, problem
from tests.report.unpacking import unpacked
from tests.searching import ScriptedJudge, new_session, proposed
from warpsmith.methods.load import load
from warpsmith.model import numbers
from warpsmith.model.evaluation import Status
from warpsmith.model.settings import Settings
from warpsmith.report import page as pages
from warpsmith.report.document import RunPage, TrialView, to_json
from warpsmith.report.page import ASSETS
from warpsmith.report.run_page import run_page
from warpsmith.run_log.events import Budget, RunConfig, RunCreated
from warpsmith.search.loop import judge_pending
from warpsmith.search.session import Session


@pytest.fixture(scope="module")
def page(small_run: Path) -> RunPage[TrialView]:
    return run_page(small_run)[0]


def test_every_trial_is_there_with_its_words(small_run: Path) -> None:
    page, texts = run_page(small_run)
    found = unpacked(texts.packed())

    with Session.read(small_run) as session:
        assert [trial.number for trial in page.trials] == list(session.state.trials)
        for trial in page.trials:
            known = session.state.trials[trial.number]
            proposed, evaluation = session.proposed(trial.number), session.evaluation(trial.number)
            prompt, reply = session.conversation(known.brief)
            assert proposed is not None
            assert prompt is not None
            assert reply is not None
            files = proposed.candidate.files if proposed.candidate else ()
            assert [(file.name, found[file.text]) for file in trial.files] == [(f.name, f.text) for f in files]
            assert [(m.role, found[m.text]) for m in trial.prompt] == [(m.role, m.text) for m in prompt.messages]
            assert found[trial.reply] == reply.text
            assert (trial.speedup, trial.parents) == (known.score, known.parents)
            assert found[trial.reason] == ((evaluation.reason if evaluation else "") or proposed.failure)


def test_the_curve_rises_to_the_best(page: RunPage[TrialView]) -> None:
    speedups = [step.speedup for step in page.steps]

    assert speedups == sorted(speedups)
    assert page.steps[-1].trial == page.best
    assert page.trials[page.best - 1].speedup == max(trial.speedup or 0 for trial in page.trials)


def test_the_headline_says_what_was_measured(page: RunPage[TrialView]) -> None:
    labels = [figure.label for figure in page.figures]
    by_label = {figure.label: figure for figure in page.figures}
    best = page.trials[page.best - 1]
    assert best.speedup is not None
    assert best.latency_ms is not None

    assert labels[:2] == ["over PyTorch eager", "over torch.compile"]
    assert by_label["over PyTorch eager"].value.startswith(f"{best.speedup:.2f}")
    assert by_label["of roofline"].value == f"{100 * FLOOR_MS / best.latency_ms:.1f} %"
    assert by_label["spent"].value.startswith("$0.2")
    assert any("all trials are spent" in remark for remark in page.remarks)
    assert any("not verified" in remark for remark in page.remarks)


def test_a_run_without_a_model_costs_nothing_in_the_form_of_every_page(tmp_path: Path) -> None:
    new_session(tmp_path / "run", load("evoengineer-full")).__exit__(None, None, None)
    (spent,) = (figure for figure in run_page(tmp_path / "run")[0].figures if figure.label == "spent")
    assert (spent.value, spent.note) == (numbers.dollars(0), "no model was used")


@pytest.mark.parametrize(("speedup", "verdict"), [(0.359, "slower"), (1.0, "same"), (1.8, "faster")])
def test_a_speedup_has_the_colour_of_its_verdict(speedup: float, verdict: str, tmp_path: Path) -> None:
    with new_session(tmp_path / "run", load("evoengineer-full")) as session:
        proposed(session, 1)
        judge_pending(session, ScriptedJudge({1: [speedup]}), lambda record, evaluation: None)
    text = pages.html(*run_page(tmp_path / "run"))
    assert f'<dd class="{verdict}">{numbers.ratio(speedup)}×</dd>' in text
    assert ".figures dd.faster { color: var(--best) }" in text


def test_every_status_belongs_to_one_group_of_outcomes() -> None:
    """A kernel that touched other memory is not counted as one with a wrong result."""
    script = (ASSETS / "verdicts.js").read_text(encoding="utf-8")
    groups = re.findall(r'label: "([^"]+)",\s+statuses: \[([^\]]+)\]', script)
    found = [(status, label) for label, listed in groups for status in re.findall(r'"(\w+)"', listed)]
    assert set(Status) <= {status for status, _ in found}
    assert len(found) == len(dict(found))
    assert dict(found)["out_of_bounds"] == "crashed, hung or touched other memory"


def test_costs_add_up(page: RunPage[TrialView], small_run: Path) -> None:
    with Session.read(small_run) as session:
        totals = session.state.totals
        last = page.totals[-1]
        assert (last.tokens, last.usd) == (totals.tokens, totals.cost_usd)
        assert sum(model.tokens for model in page.models) == totals.tokens
        assert sum(model.replies for model in page.models) == len(page.trials)
        assert sum(operator.valid for operator in page.operators) == totals.valid


def test_every_measured_candidate_lies_under_the_roof(page: RunPage[TrialView]) -> None:
    roof = page.roofline
    assert roof is not None
    drawn = {point.trial for point in roof.points}

    assert drawn == {0} | {trial.number for trial in page.trials if trial.speedup}  # 0 is PyTorch
    assert roof.undrawn == sum(trial.speedup is None for trial in page.trials)
    assert roof.slope_known
    assert roof.bandwidth_bytes_s == pytest.approx(4.02e12)
    for point in roof.points:
        assert point.y <= point.x * roof.bandwidth_bytes_s
        assert roof.x[0] < point.x < roof.x[1]
        assert roof.y[0] < point.y < roof.y[1]


def test_the_document_is_json_without_a_path_of_this_machine(page: RunPage[TrialView], small_run: Path) -> None:
    text = to_json(page)

    assert json.loads(text)["best"] == page.best
    assert str(small_run) not in text
    assert "NaN" not in text


def test_strategies_and_other_replies_are_kept(tmp_path: Path) -> None:
    page, texts = run_page(make_run(tmp_path / "run", 6, Maker(lines=4), method="cupilot"))
    found = unpacked(texts.packed())

    assert page.other_replies
    assert all(found[each.reply] and each.prompt for each in page.other_replies)


def _begin(folder: Path) -> Session:
    config = RunConfig("softmax.py", "cuda:0", "cuda", "openai:gpt-large", Budget(trials=9), Settings())
    return Session.create(folder, RunCreated(config, load("evoengineer-free"), problem(), "0.test"))


def test_a_run_without_a_valid_kernel_and_one_just_begun_have_pages(tmp_path: Path) -> None:
    maker = Maker(lines=4)
    with _begin(tmp_path / "run") as session:
        empty, _ = run_page(tmp_path / "run")
        brief = session.ask()
        assert brief is not None
        session.answer(brief, maker.reply(brief))
        pending, _ = run_page(tmp_path / "run")  # somebody else is at work on it meanwhile
        (job,) = session.pending()
        failed = next(v for n in range(99) if not (v := Maker(n).verdict(job.candidate)).ok)
        session.judge(job, failed)
    page, texts = run_page(tmp_path / "run")

    assert "<dt>speedup</dt><dd>–</dd>" in pages.html(empty)  # in no colour of a verdict
    assert (empty.trials, empty.best, empty.roofline, empty.steps) == ((), 0, None, ())
    assert [trial.status for trial in pending.trials] == ["pending"]
    assert any("1 verdicts" in remark or "1 verdict" in remark for remark in pending.remarks)
    assert page.trials[0].status == failed.status.value != Status.OK.value
    assert unpacked(texts.packed())[page.trials[0].reason] == failed.reason
    assert page.figures[0].note == "no valid kernel yet"
    assert '<dd>–</dd><dd class="note">no valid kernel yet</dd>' in pages.html(page, texts)
    assert any("was not finished" in remark for remark in page.remarks)
