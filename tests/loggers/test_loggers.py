"""What trackers hold after a real run, read back from their files; and what becomes of the run where they fail."""

from __future__ import annotations

import importlib.util
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import warpsmith as ws
from tests.searching import CannedJudge, CannedProposer, factor, invalid, reply_text, run_setup, valid
from warpsmith.cli.optimize import OptimizeRequest, run_search
from warpsmith.loggers import run_logger
from warpsmith.loggers.logged_search import LoggedSearch, check_loggers, logging_run
from warpsmith.loggers.run_logger import LoggedEnd, LoggedRun, LoggedTrial, LoggerPlugin
from warpsmith.methods.load import load
from warpsmith.model.candidate import Candidate
from warpsmith.model.errors import ToolMissing, UsageError
from warpsmith.model.evaluation import Evaluation
from warpsmith.run_log.events import Budget, StopReason
from warpsmith.search.loop import SearchLoop, SearchObserver
from warpsmith.search.run_state import RunState
from warpsmith.search.session import Session

FREE = load("evoengineer-free")
TRIALS = 9


def verdict(candidate: Candidate) -> Evaluation:
    number = factor(candidate)
    return invalid(candidate) if number % 4 == 0 else valid(candidate, 1 + number / 10)


class Said(SearchObserver):
    def __init__(self) -> None:
        self.messages: list[str] = []

    def message(self, text: str) -> None:
        self.messages.append(text)


def sit(folder: Path, trials: int, *specs: str) -> Said:
    """One sitting of a run: the real session and loop, with a proposer and verdicts that cost nothing."""
    budget, view = Budget(trials=trials), Said()
    new = not (folder / "run.db").exists()
    with (
        Session.create(folder, run_setup(FREE, budget=budget)) if new else Session.resume(folder, budget=budget) as run
    ):
        with logging_run(run, view, specs) as watcher:
            proposer = CannedProposer(lambda brief: reply_text(brief.number))
            run.end(SearchLoop(run, proposer, CannedJudge(verdict), watcher, parallel=2).run())
    return view


@dataclass(frozen=True)
class Logged:
    """A run of two sittings, with all its logs."""

    folder: Path
    store: str  # of MLflow
    trials: tuple[int, ...]
    speedups: dict[int, float]
    best: float
    kernel: str


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logged]:
    place = tmp_path_factory.mktemp("logged")
    store = (place / "mlruns").as_uri()
    with pytest.MonkeyPatch.context() as patch:
        # Without SQLAlchemy, which mlflow-skinny leaves out, the store of files is the only one without a server.
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        patch.setenv("WANDB_MODE", "offline")
        patch.setattr(run_logger, "_END_S", 240.0)  # the first import of these libraries on a busy machine
        for trials in (5, TRIALS):
            said = sit(place / "run", trials, f"mlflow:{store}", "wandb", "tensorboard")
            assert said.messages == []
        with Session.read(place / "run") as session:
            state = session.state
            speedups = {each.number: each.score for each in state.trials.values() if each.score is not None}
            best = state.trials[state.best].score or 0.0
            kernel = session.candidate(state.best).main.text
        yield Logged(place / "run", store, tuple(state.trials), speedups, best, kernel)


def test_mlflow_holds_every_trial_of_both_sittings_in_one_run(logged: Logged) -> None:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=logged.store)
    experiment = client.get_experiment_by_name("warpsmith")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["task"] == "double"
    assert run.data.params["proposer"] == "canned"
    last = {point.step: point.value for point in client.get_metric_history(run.info.run_id, "speedup")}
    assert last == pytest.approx(logged.speedups)
    assert {point.step for point in client.get_metric_history(run.info.run_id, "valid")} == set(logged.trials)
    assert run.data.metrics["best_speedup"] == pytest.approx(logged.best)
    assert {"cost_usd", "tokens", "device_seconds", "seconds"} <= set(run.data.metrics)
    files = {each.path for each in client.list_artifacts(run.info.run_id)}
    assert files == {"report.html", "best.cpp"}
    kernel = Path(client.download_artifacts(run.info.run_id, "best.cpp")).read_text()
    assert kernel == logged.kernel


def records(path: Path) -> Iterator[Any]:
    """The records in a file of W&B: a header of 7 bytes, then a log as LevelDB writes it, in blocks of 32 KiB."""
    from wandb.proto import wandb_internal_pb2

    read: Any = wandb_internal_pb2
    data, at, parts = path.read_bytes(), 7, b""
    assert data[:4] == b":W&B"
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = read.Record()
            record.ParseFromString(parts)
            yield record
            parts = b""


def test_wandb_offline_files_hold_every_trial_under_one_id(logged: Logged) -> None:
    files = sorted(logged.folder.glob("wandb/offline-run-*/run-*.wandb"))
    assert len(files) == 2  # one for each sitting
    assert len({path.name for path in files}) == 1  # `wandb sync --append` makes one run of them
    rows: dict[int, dict[str, float]] = {}
    config: dict[str, Any] = {}
    artifacts: set[str] = set()
    for path in files:
        for record in records(path):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
            elif kind == "history":
                row = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
                rows[row["trial"]] = row
            elif kind == "request" and record.request.WhichOneof("request_type") == "log_artifact":
                artifacts |= {entry.path for entry in record.request.log_artifact.artifact.manifest.contents}
            elif kind == "artifact":
                artifacts |= {entry.path for entry in record.artifact.manifest.contents}
    assert set(rows) == set(logged.trials)
    found = {number: row["speedup"] for number, row in rows.items() if "speedup" in row}
    assert found == pytest.approx(logged.speedups)
    assert config["method"]
    assert artifacts == {"best.cpp", "report.html"}


def test_tensorboard_reads_both_sittings_as_one(logged: Logged) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(logged.folder / "tensorboard"))
    events.Reload()
    found = {point.step: point.value for point in events.Scalars("speedup")}
    assert found == pytest.approx(logged.speedups, rel=1e-5)
    assert {point.step for point in events.Scalars("valid")} == set(logged.trials)
    best = events.Tensors("best.cpp")[-1].tensor_proto.string_val[0].decode()
    assert logged.kernel.splitlines()[0] in best


# --- loggers that fail ---


class Recording:
    """A logger that keeps what it gets."""

    def __init__(self, known: int | None = 0) -> None:
        self.known = known
        self.run: LoggedRun | None = None
        self.trials: list[LoggedTrial] = []
        self.ended: LoggedEnd | None = None

    def begin(self, run: LoggedRun) -> int | None:
        self.run = run
        return self.known

    def trial(self, trial: LoggedTrial) -> None:
        self.trials.append(trial)

    def end(self, end: LoggedEnd) -> None:
        self.ended = end


class Failing(Recording):
    def trial(self, trial: LoggedTrial) -> None:
        super().trial(trial)
        if len(self.trials) == 2:
            raise ConnectionError("the server\nis <gone>")


class Colliding(Recording):
    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def begin(self, run: LoggedRun) -> int | None:
        self.times -= 1
        if self.times >= 0:
            raise SystemError("AST constructor recursion depth mismatch (before=207, after=190)")
        return super().begin(run)


class Hanging(Recording):
    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    def begin(self, run: LoggedRun) -> int | None:
        self.released.wait(60)
        return 0


def searched(
    folder: Path, monkeypatch: pytest.MonkeyPatch, trials: int = TRIALS, **loggers: Recording
) -> tuple[RunState, Said]:
    """One sitting with loggers of our own; the run as it is then."""

    def chosen(spec: str) -> LoggerPlugin:
        return LoggerPlugin(spec, "json", lambda _: loggers[spec])

    monkeypatch.setattr(run_logger, "chosen_logger", chosen)
    said = sit(folder, trials, *loggers)
    with Session.read(folder) as session:
        return session.state, said


def test_a_logger_that_fails_is_off_and_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, good = Failing(), Recording()
    state, view = searched(tmp_path / "run", monkeypatch, bad=bad, good=good)

    assert state.closed is not None
    assert state.closed.reason is StopReason.TRIALS
    assert len(bad.trials) == 2
    assert bad.ended is None
    assert view.messages == ["--log bad failed and is off for the rest of this run: the server is <gone>"]
    assert {trial.number for trial in good.trials} == set(state.trials)
    assert good.ended is not None
    assert good.ended.finished


def test_a_logger_begins_again_where_two_threads_have_parsed_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    twice, always = Colliding(2), Colliding(99)
    state, view = searched(tmp_path / "run", monkeypatch, twice=twice, always=always)

    assert {trial.number for trial in twice.trials} == set(state.trials)
    assert not always.trials
    (said,) = view.messages
    assert said.startswith("--log always failed and is off for the rest of this run: AST constructor")


def test_a_logger_that_hangs_holds_nothing_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_logger, "_END_S", 0.2)
    slow = Hanging()
    began = time.monotonic()
    state, view = searched(tmp_path / "run", monkeypatch, slow=slow)
    slow.released.set()

    assert time.monotonic() - began < 50
    assert len(state.trials) == 9
    assert view.messages == ["--log slow: it did not take everything within 0.2 s."]


def test_a_logger_that_joins_late_gets_the_earlier_trials_and_one_that_knows_them_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Recording()
    searched(tmp_path / "run", monkeypatch, 5, first=first)
    assert first.run is not None
    late, same, unsure = Recording(), Recording(known=5), Recording(known=None)
    state, view = searched(tmp_path / "run", monkeypatch, 8, late=late, same=same, unsure=unsure)

    assert view.messages == []
    assert same.run is not None
    assert same.run.id == first.run.id
    steps = [trial.number for trial in late.trials]
    assert set(steps) == set(state.trials)
    assert {trial.number for trial in same.trials} == {trial.number for trial in unsure.trials} == {6, 7, 8}
    alike = {trial.number: dict(trial.metrics) for trial in first.trials}
    again = {trial.number: dict(trial.metrics) for trial in late.trials}
    for number, metrics in alike.items():
        assert again[number]["valid"] == metrics["valid"]
        assert again[number].get("speedup") == metrics.get("speedup")


def test_an_interrupted_run_is_logged_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Recording()
    monkeypatch.setattr(run_logger, "chosen_logger", lambda _: LoggerPlugin("kept", "json", lambda _: kept))
    with Session.create(tmp_path / "run", run_setup(FREE)) as session:
        watcher = LoggedSearch(session, SearchObserver(), ("kept",))
        session.end(StopReason.INTERRUPTED)
        watcher.end()
    assert kept.ended is not None
    assert not kept.ended.finished
    assert [path.name for path in kept.ended.artifacts] == ["report.html"]


def test_what_cannot_be_logged_to_is_refused_before_anything_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="unknown logger 'clearml'; known: mlflow, tensorboard, wandb"):
        check_loggers(["clearml"])
    with pytest.raises(UsageError, match="unknown logger"):
        ws.optimize("softmax", log="clearml")
    with pytest.raises(UsageError, match="unknown logger"):
        run_search(OptimizeRequest("softmax", log=("clearml",)))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ToolMissing, match=r"pip install 'warpsmith\[mlflow\]'"):
        check_loggers(["mlflow:http://host"])


@pytest.mark.slow
def test_a_run_of_the_api_is_logged(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (tmp_path / "scaled.py").write_text(
        "import torch\nfrom warpsmith import normal, task\n\n\n"
        "@task(x=normal('rows, cols'), workloads=[{'rows': 8, 'cols': 64}], precision='fp32')\n"
        "def scaled(x):\n    return 2.0 * x\n"
    )
    options = ws.RunOptions(
        proposer="template", device="cpu", timing_budget_s=0.05, tune=False, stop_at=0, remember=False
    )
    result = ws.optimize(
        tmp_path / "scaled.py", trials=2, folder=tmp_path / "run", log="tensorboard", progress=False, options=options
    )
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert {point.step for point in events.Scalars("valid")} == {trial.number for trial in result.trials}
