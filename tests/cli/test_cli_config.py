"""`--config FILE.toml`, and the `config.toml` that every run's folder holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from warpsmith.cli import bench, optimize
from warpsmith.cli.main import app
from warpsmith.model.errors import UsageError
from warpsmith.model.settings import Settings
from warpsmith.model.task import Precision
from warpsmith.proposers.choose import ProposerOptions
from warpsmith.run_log.events import Budget, RunConfig
from warpsmith.search.options import RunOptions, config_text


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[optimize.OptimizeRequest]:
    """What `optimize` would start, in the order of the calls."""
    requests: list[optimize.OptimizeRequest] = []

    def keep(request: optimize.OptimizeRequest) -> int:
        requests.append(request)
        return 0

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(optimize, "run_search", keep)
    return requests


def call(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, words, prog_name="warpsmith")
    return result.exit_code, result.output


def test_options_come_from_a_file_and_the_command_line_comes_first(asked: list[optimize.OptimizeRequest]) -> None:
    Path("run.toml").write_text(
        'task = "mine.py"\ntrials = 7\ntime_budget = 0.5\ntune = false\npool = false\nprecision = "fp16"\n'
        'model = ["translator=openai:m"]\n'
    )

    assert call("optimize", "--config", "run.toml", "--trials", "9") == (0, "")

    options = asked[0].options
    assert (asked[0].task, options.trials, options.timing_budget_s) == ("mine.py", 9, 0.5)
    assert (options.tune, options.remember, options.profile) == (False, False, True)
    assert options.precision is Precision.FP16
    assert options.models.models == ("translator=openai:m",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("trails = 3\n", "unknown key 'trails'; did you mean 'trials'? Known keys: accept-uncalibrated, alignment,"),
        ("resume = 'x'\n", "unknown key 'resume'"),
        ("trials = [3]\n", "trials takes one value, not list"),
        ("trials = 'many'\n", "Invalid value for '--trials'"),
        ("trials = \n", "is not TOML"),
        (None, "cannot be read (No such file or directory)"),
    ],
)
def test_a_wrong_file_is_answered_with_what_is_known(
    text: str | None, said: str, asked: list[optimize.OptimizeRequest]
) -> None:
    if text is not None:
        Path("run.toml").write_text(text)

    status, output = call("optimize", "mine.py", "--config", "run.toml")

    assert (status, asked) == (2, [])
    assert said in " ".join(output.replace("│", " ").split())


def test_bench_takes_its_tasks_and_options_from_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[tuple[object, ...]] = []

    def select(words: tuple[str, ...], **_: object) -> None:
        seen.append(words)
        raise UsageError("enough.")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench, "select", select)
    Path("bench.toml").write_text('tasks = ["relu", "softmax@small"]\ndevices = "cpu"\n')

    assert call("bench", "run", "--config", "bench.toml")[0] == 2
    assert call("bench", "--config", "bench.toml", "--trials", "2")[0] == 2
    assert seen == [("relu", "softmax@small")] * 2


def test_a_runs_own_file_begins_the_same_run_again(asked: list[optimize.OptimizeRequest]) -> None:
    models = ProposerOptions(base_url="https://me:secret@host/v1", temperature=0.5, models=("translator=openai:m",))
    begun = RunOptions(profile=False, remember=False, models=models)
    config = RunConfig(
        task="/tasks/softmax.py::softmax",
        device="cpu",
        backend="cpu",
        proposer='command:./mine "a b"',
        budget=Budget(trials=12, seconds=60.0),
        settings=Settings(timing_budget_s=0.25),
        seed=3,
        repairs=1,
        enough_share=None,
        parallel=2,
    )
    text = config_text(config, "cupilot-no-roofline-no-failures", begun)
    Path("config.toml").write_text(text)

    assert "secret" not in text
    assert call("optimize", "--config", "config.toml") == (0, "")

    options = asked[0].options
    assert (asked[0].task, options.proposer) == (config.task, config.proposer)
    assert options.budget() == config.budget
    assert (options.method, options.roofline, options.failures, options.retrieval) == ("cupilot", False, False, None)
    assert (options.seed, options.repairs, options.stop_at, options.parallel) == (3, 1, 0.0, 2)
    assert (options.timing_budget_s, options.baselines) == (0.25, ("eager",))
    assert (options.profile, options.tune, options.remember) == (False, True, False)
    assert (options.models.temperature, options.models.models) == (0.5, models.models)
