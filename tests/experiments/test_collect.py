"""From folders to results: real run archives, with verdicts that nobody had to wait for."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from tests.experiments.test_plan import planned
from tests.searching import answered, invalid, judged, proposed, run_setup, valid
from warpsmith.experiments import runner as runner_module
from warpsmith.experiments.best_kernels import EVALUATION, WantedChecks, checks_folder, read_checks, write_evaluation
from warpsmith.experiments.collect import collect, collect_cell, is_begun, results_of, write_failure
from warpsmith.experiments.plan import BenchPlan, CellKey, keep_plan, write_plan
from warpsmith.experiments.results import Cell, CellStatus, write_results
from warpsmith.experiments.runner import BenchRunner
from warpsmith.hardware.device import select_device
from warpsmith.methods.load import load
from warpsmith.model.build import DeviceKind
from warpsmith.model.candidate import Candidate
from warpsmith.model.certificate import Certificate, CheckOutcome, CheckStatus, Measurement, required
from warpsmith.model.errors import RunError
from warpsmith.model.evaluation import Evaluation
from warpsmith.run_log.events import Budget, RunOpened, StopReason
from warpsmith.run_log.log import RunLog
from warpsmith.search.session import Session
from warpsmith.verification.certificate import write_certificate


@pytest.fixture
def plan() -> BenchPlan:
    return replace(planned(["relu@small", "tanh@small"]), repeats=1)


def searched(
    root: Path, key: CellKey, verdict: Callable[[Candidate], Evaluation], *, end: str = "trials", detail: str = ""
) -> Candidate:
    """A run of three trials, each better than the one before; its winner."""
    made = run_setup(load(key.method), budget=Budget(trials=3))
    with Session.create(root / key.folder, made) as session:
        for number in (1, 2, 3):
            answered(session, number)
            judged(session, verdict)
        if end:
            session.end(StopReason(end), detail)
        best = session.state.best
        return session.candidate(best or 1)


def rising(candidate: Candidate) -> Evaluation:
    return valid(candidate, float(candidate.main.text.split("out[i] = ")[1].split(".0f")[0]), share=0.25)


def cell_of(plan: BenchPlan, root: Path, place: int = 0) -> Cell:
    return collect_cell(plan, root, plan.cells[place]).cell


def settled(plan: BenchPlan, root: Path) -> Path:
    """The folder, with its plan."""
    write_plan(plan, root)
    return root


def certificate(candidate: Candidate, evaluation: Evaluation, *, verified: bool) -> Certificate:
    checks = [CheckOutcome(name, CheckStatus.PASSED) for name in required(DeviceKind.CPU)]
    if not verified:
        checks[2] = CheckOutcome(checks[2].name, CheckStatus.FAILED, "seed 7 gives another result.")
    return Certificate(
        task="double",
        task_digest="d0",
        candidate=candidate.id,
        candidate_digest=candidate.digest,
        device=DeviceKind.CPU,
        precision="fp32",
        verified=verified,
        reason="" if verified else f"{checks[2].name} failed: {checks[2].detail}",
        checks=tuple(checks),
        measurement=Measurement.of(evaluation),
        environment=evaluation.environment,
        date="2026-01-02T03:04:05+00:00",
    )


def test_a_cell_is_what_its_archive_says(tmp_path: Path, plan: BenchPlan) -> None:
    winner = searched(tmp_path, plan.cells[0], rising)

    cell = cell_of(plan, tmp_path)

    assert (cell.status, cell.reason) == (CellStatus.DONE, "all trials are spent")
    assert (cell.trials, cell.valid, cell.compiled, cell.tokens) == (3, 3, 3, 450)
    assert cell.usd == pytest.approx(0.03)
    assert cell.device_seconds == pytest.approx(6 * 0.5)  # each would be the best, and was measured twice
    assert [point.trial for point in cell.curve] == [1, 2, 3]
    assert [point.speedup for point in cell.curve] == pytest.approx([1.0, 2.0, 3.0])
    best = cell.best
    assert best is not None
    assert best.start is not None
    assert (best.candidate, best.trial, best.remeasured, best.verified) == (winner.id, 3, False, None)
    assert (best.eager.value, best.start.value, best.share_of_floor) == pytest.approx((3.0, 3.0, 0.25))
    assert best.start.high > best.eager.high  # both measurements are uncertain
    assert cell.winner is None  # nobody has verified it


def test_what_was_measured_after_the_search_is_what_is_reported(tmp_path: Path, plan: BenchPlan) -> None:
    winner = searched(tmp_path, plan.cells[0], rising)
    folder = checks_folder(tmp_path, plan.cells[0].task, winner.id)
    again = valid(winner, 2.5, share=0.2)
    (result,) = again.workloads
    (eager,) = result.baselines
    again = replace(again, workloads=(replace(result, baselines=(eager, replace(eager, name="compile"))),))
    write_evaluation(again, folder / EVALUATION)

    unsure = cell_of(plan, tmp_path).best
    write_certificate(certificate(winner, again, verified=True), folder / "certificate.json")
    sure = cell_of(plan, tmp_path)

    assert unsure is not None
    assert (unsure.remeasured, unsure.verified, unsure.why_not) == (True, None, "not verified yet")
    assert sure.winner is not None
    assert sure.winner.compile is not None
    assert (sure.winner.eager.value, sure.winner.compile.value) == pytest.approx((2.5, 2.5))
    assert sure.winner.start is not None
    assert sure.winner.start.value == pytest.approx(2.5)
    task = collect(settled(plan, tmp_path)).tasks[0]
    assert (task.zone, task.precision, task.family) == ("memory", "fp32", "activation")
    assert task.compile_ms == pytest.approx(task.eager_ms)
    assert task.floor_ms == pytest.approx(0.001)


def test_a_winner_that_fails_verification_does_not_count(tmp_path: Path, plan: BenchPlan) -> None:
    winner = searched(tmp_path, plan.cells[0], rising)
    folder = checks_folder(tmp_path, plan.cells[0].task, winner.id)
    write_evaluation(valid(winner, 3.0), folder / EVALUATION)
    write_certificate(certificate(winner, valid(winner, 3.0), verified=False), folder / "certificate.json")

    cell = cell_of(plan, tmp_path)

    assert cell.winner is None
    assert cell.best is not None
    assert (cell.best.verified, cell.best.why_not) == (False, "fresh_seeds failed: seed 7 gives another result.")


def test_a_winner_that_is_wrong_when_measured_anew_does_not_count(tmp_path: Path, plan: BenchPlan) -> None:
    winner = searched(tmp_path, plan.cells[0], rising)
    write_evaluation(invalid(winner), checks_folder(tmp_path, plan.cells[0].task, winner.id) / EVALUATION)

    best = cell_of(plan, tmp_path).best

    assert best is not None
    assert (best.verified, best.remeasured) == (False, False)
    assert "out[3] is 7" in best.why_not


@pytest.mark.parametrize(
    ("end", "proposer", "status"),
    [
        ("", "template", CellStatus.UNFINISHED),  # killed
        ("interrupted", "template", CellStatus.UNFINISHED),
        ("speed_of_light", "template", CellStatus.DONE),
        ("proposer_refused", "template", CellStatus.DONE),  # the catalogue has nothing more
        ("proposer_refused", "replay:there", CellStatus.DONE),
        ("proposer_refused", "openai:m", CellStatus.FAILED),  # no credit, say
        ("proposer_failed", "template", CellStatus.FAILED),
        ("evaluator_failed", "template", CellStatus.FAILED),
    ],
)
def test_how_a_search_ended_decides_whether_its_cell_counts(
    tmp_path: Path, plan: BenchPlan, end: str, proposer: str, status: CellStatus
) -> None:
    plan = replace(plan, proposers=(proposer,))
    searched(tmp_path, plan.cells[0], rising, end=end)

    assert cell_of(plan, tmp_path).status is status


def test_cells_that_failed_or_were_never_begun(tmp_path: Path, plan: BenchPlan) -> None:
    write_failure(tmp_path / plan.cells[0].folder, "the task cannot be opened.")
    half = tmp_path / plan.cells[1].folder
    RunLog.create(half).close()  # killed in its first moment

    failed, empty = cell_of(plan, tmp_path, 0), cell_of(plan, tmp_path, 1)

    assert (failed.status, failed.reason) == (CellStatus.FAILED, "the task cannot be opened.")
    assert empty.status is CellStatus.UNFINISHED
    assert not is_begun(half)


def test_a_damaged_file_counts_as_not_there(tmp_path: Path, plan: BenchPlan) -> None:
    winner = searched(tmp_path, plan.cells[0], rising)
    folder = checks_folder(tmp_path, plan.cells[0].task, winner.id)
    folder.mkdir(parents=True)
    (folder / "evaluation.json").write_text('{"half')
    (folder / "certificate.json").write_text("")

    known = read_checks(folder)

    assert (known.evaluation, known.certificate) == (None, None)
    assert not WantedChecks(verify=True, compile_baseline=False).complete(known)
    assert WantedChecks(verify=False, compile_baseline=False).complete(known)


def test_a_bench_that_is_finished_is_left_alone(tmp_path: Path, plan: BenchPlan) -> None:
    plan = replace(plan, verify=False)
    keep_plan(plan, tmp_path / "bench")
    for key in plan.cells:
        searched(tmp_path / "bench", key, rising)

    runner = BenchRunner(tmp_path / "bench", plan, [select_device("cpu")])
    bench = runner.run()

    assert (runner.tally.settled, runner.tally.total) == (2, 2)
    assert bench == collect(tmp_path / "bench") == results_of(str(tmp_path / "bench" / "results.json"))
    with RunLog.read(tmp_path / "bench" / plan.cells[0].folder) as log:
        assert sum(isinstance(entry.event, RunOpened) for entry in log.entries()) == 1


def test_failed_cells_are_taken_up_again_only_when_told_to(tmp_path: Path, plan: BenchPlan) -> None:
    plan = replace(plan, verify=False)
    keep_plan(plan, tmp_path / "bench")
    searched(tmp_path / "bench", plan.cells[0], rising, end="proposer_failed")
    write_failure(tmp_path / "bench" / plan.cells[1].folder, "no such thing")

    before = BenchRunner(tmp_path / "bench", plan, []).tally
    after = BenchRunner(tmp_path / "bench", plan, [], retry_failed=True).tally

    assert (before.settled, before.failed) == (2, 2)
    assert (after.settled, after.failed, after.begun) == (0, 0, 1)
    assert cell_of(plan, tmp_path / "bench").trials == 3  # nothing of it was lost


def not_a_database(file: Path) -> None:
    file.write_bytes(b"nothing of the kind" * 400)


def an_unknown_event(file: Path) -> None:
    with closing(sqlite3.connect(file)) as log, log:
        log.execute("INSERT INTO events (at, kind, brief, trial, body) VALUES (0, 'dreamt', 0, 0, '{}')")


@pytest.mark.parametrize("spoil", [not_a_database, an_unknown_event])
def test_a_damaged_run_is_one_failed_cell_and_ends_no_bench(
    tmp_path: Path, plan: BenchPlan, spoil: Callable[[Path], None]
) -> None:
    plan = replace(plan, verify=False)
    keep_plan(plan, tmp_path / "bench")
    for key in plan.cells:
        searched(tmp_path / "bench", key, rising)
    folder = tmp_path / "bench" / plan.cells[0].folder
    spoil(folder / "run.db")

    bench = BenchRunner(tmp_path / "bench", plan, [select_device("cpu")]).run()

    assert [cell.status for cell in bench.cells] == [CellStatus.FAILED, CellStatus.DONE]
    assert "run.db" in bench.cells[0].reason
    again = BenchRunner(tmp_path / "bench", plan, [select_device("cpu")], retry_failed=True)
    assert (again.tally.settled, again.tally.failed) == (2, 1)  # nobody can go on with it
    shutil.rmtree(folder)
    assert cell_of(plan, tmp_path / "bench").status is CellStatus.UNFINISHED


def test_several_cells_are_searched_at_a_time(tmp_path: Path, plan: BenchPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_plan(replace(plan, verify=False), tmp_path / "bench")
    both, names = threading.Barrier(2, timeout=20), []

    def search(self: BenchRunner, key: CellKey, name: str, evaluator: object) -> None:
        both.wait()  # fails unless another cell is searched meanwhile
        names.append(name)
        searched(tmp_path / "bench", key, rising)

    monkeypatch.setattr(BenchRunner, "_search", search)
    monkeypatch.setattr(runner_module, "open_engine", lambda *_, **__: nullcontext())
    bench = BenchRunner(tmp_path / "bench", replace(plan, verify=False), [select_device("cpu")], slots=2).run()

    assert [cell.status for cell in bench.cells] == [CellStatus.DONE, CellStatus.DONE]
    assert sorted(names) == ["cpu", "cpu #2"]


def test_a_run_that_cannot_be_written_stops_the_bench(
    tmp_path: Path, plan: BenchPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = replace(plan, verify=False)
    keep_plan(plan, tmp_path / "bench")
    for key in plan.cells:
        searched(tmp_path / "bench", key, rising, end="interrupted")

    def full(self: RunLog, *happened: object) -> None:
        raise RunError(f"{self.folder} cannot be written; free some space and resume.")

    monkeypatch.setattr(RunLog, "append", full)
    with pytest.raises(RunError, match="free some space"):
        BenchRunner(tmp_path / "bench", plan, [select_device("cpu")]).run()
    assert not list((tmp_path / "bench").rglob("failed.json"))


def test_trials_that_nobody_judged_are_in_no_rate(tmp_path: Path, plan: BenchPlan) -> None:
    made = run_setup(load(plan.cells[0].method), budget=Budget(trials=10))
    with Session.create(tmp_path / plan.cells[0].folder, made) as session:
        proposed(session, 1, 2)
        for job in session.pending()[:1]:
            session.judge(job, rising(job.candidate))
        session.end(StopReason.TIME)

    cell = cell_of(plan, tmp_path)

    assert (cell.trials, cell.settled, cell.valid) == (2, 1, 1)


def test_results_can_be_published_without_the_runs(tmp_path: Path, plan: BenchPlan) -> None:
    searched(tmp_path, plan.cells[0], rising)
    made = collect(settled(plan, tmp_path))
    write_results(made, tmp_path / "published" / "results.json")

    assert results_of(str(tmp_path / "published")) == made
    assert results_of(str(tmp_path)) == made
