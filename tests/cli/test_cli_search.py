"""The commands that search, as a user runs them: real processes, real compilers, the offline catalogue."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from pathlib import Path

import pytest
from tests.cli.test_cli_commands import RIGHT, TASK, WRONG, Desk, desk
from typer.testing import CliRunner

from warpsmith.cli.main import app
from warpsmith.model.errors import RunError
from warpsmith.run_log.events import BriefAsked
from warpsmith.run_log.log import RunLog

__all__ = ["desk"]  # the fixture: a folder with a task and kernels

QUICK = ("--time-budget", "0.02")
HERE, DOLLAR = ("--base-url", "http://127.0.0.1:9/v1"), ("--cost", "1")  # nobody is asked
TUNABLE = "// tune: STEP = 1, 2, 4\n" + RIGHT.replace("++i) out[i] = 2 * x[i];", "i += STEP) BODY").replace(
    "BODY", "for (int64_t j = i; j < i + STEP && j < rows * cols; ++j) out[j] = 2 * x[j];"
)


@pytest.fixture(scope="module")
def run(desk: Desk) -> str:
    """A run with the catalogue, four trials long."""
    ending = ("--stop-at", "0", "--no-tune", "--no-profile")
    outcome = desk.run("optimize", "double.py", "--trials", "4", "--run", "first", "--json", *ending, *QUICK)
    assert outcome.status == 0, outcome.err
    document = json.loads(outcome.out)
    assert document["status"] == "ok"
    assert (document["trials"], document["stopped_because"]) == (4, "trials")
    assert document["proposer"] == "template"
    assert document["best"]["speedup"]["eager"] > 0
    low, high = document["best"]["speedup_interval"]["eager"]
    assert low <= document["best"]["speedup"]["eager"] <= high
    assert document["best"]["error_limit"] > 0
    assert (document["tokens"], document["cost_usd"]) == (0, 0.0)
    assert "the offline catalogue" in outcome.err
    assert "No model is connected" in outcome.err
    assert re.search("(Next|  or): warpsmith verify", outcome.err)
    best = desk.folder / document["best"]["file"]
    assert "Found by warpsmith: task double" in best.read_text()
    assert "\ntrials = 4\n" in (desk.folder / "first" / "config.toml").read_text()
    return "first"


@pytest.mark.slow
def test_runs_and_show_say_what_was_done(desk: Desk, run: str) -> None:
    listed = desk.run("runs", ".")
    assert re.search(r"first +\d{4}-\d\d-\d\d \d\d:\d\d +double +cupilot +template +4/4", listed.out), listed.out
    shown = desk.run("show", run)
    assert len(re.findall(r"^ +\d+ [★✓✗=·]", shown.out, re.MULTILINE)) == 4, shown.out
    best = desk.run("show", run, "best")
    assert "strategy:" in best.out
    assert "launch(" in best.out
    code = desk.run("show", run, "best", "--only", "code").out
    assert code in (desk.folder / run / "best.cpp").read_text()
    assert "code:" in desk.run("show", run, "1", "--only", "reply").out
    assert "--- user" in desk.run("show", run, "1", "--only", "prompt").out


@pytest.mark.slow
def test_the_best_kernel_of_a_run_can_be_loaded(desk: Desk, run: str) -> None:
    import torch

    from warpsmith import load

    op = load(desk.folder / run, strict=True)
    sizes = op.manifest.workloads[0].sizes
    x = torch.randn(sizes["rows"], sizes["cols"])
    torch.testing.assert_close(op(x), 2 * x)


@pytest.mark.slow  # tests/search/test_steps.py and tests/test_api.py ask and tell in one process
def test_an_agent_asks_and_tells_across_two_machines(desk: Desk, run: str) -> None:
    asked = desk.run("ask", "double.py", "--run", "mine", "--json", "--stop-at", "0", *QUICK)
    assert asked.status == 0, asked.err
    brief = json.loads(asked.out)
    assert "launch(" in brief["prompt"]
    kept = desk.run("tell", "mine", "wrong.cpp", "--later", "--json")
    assert (kept.status, json.loads(kept.out)["outcome"]) == (0, "pending")
    # A reply as a model writes it is as good as a file; the error of the first is not known here yet.
    reply = f"name: mine\nthought: two times\ncode:\n```cpp\n{RIGHT}```\n"
    (desk.folder / "reply.md").write_text(reply)
    assert json.loads(desk.run("tell", "mine", "reply.md", "--later", "--json").out)["trial"] == 2
    shutil.move(desk.folder / "mine", desk.folder / "travelled")
    stepped = desk.run("step", "travelled", "--json")
    verdicts = [json.loads(line) for line in stepped.out.splitlines()]
    assert sorted((v["trial"], v["status"]) for v in verdicts) == [(1, "wrong"), (2, "ok"), (2, "ok")]
    assert verdicts[-1]["best"]
    again = desk.run("ask", "travelled")
    assert again.status == 0
    assert WRONG.strip() in again.out  # the failure comes back to be repaired, with its reason
    assert "instead of" in again.out or "expected" in again.out or "got" in again.out
    assert "warpsmith tell travelled FILE" in again.err


@pytest.mark.slow  # tests/search/test_tuning.py tunes in one process
def test_tuning_tries_the_declared_values(desk: Desk) -> None:
    (desk.folder / "tunable.cpp").write_text(TUNABLE)
    outcome = desk.run("tune", "double.py", "tunable.cpp", "--json", "--out", "tuned.cpp", *QUICK)
    assert outcome.status == 0, outcome.err
    document = json.loads(outcome.out)
    assert (document["points"], document["tried"]) == (3, 3)
    chosen = document["values"].get("STEP", "1")
    assert f"STEP = {chosen}" in (desk.folder / "tuned.cpp").read_text()


def _has_asked(folder: Path) -> bool:
    """Whether a run is under way."""
    try:
        with RunLog.read(folder) as log:
            return any(isinstance(entry.event, BriefAsked) for entry in log.entries())
    except RunError:  # nothing is there, or nothing in it
        return False


@pytest.mark.slow
def test_an_interrupted_run_closes_and_can_be_resumed(desk: Desk, run: str) -> None:
    ablations = ("--no-roofline", "--no-retrieval", "--no-alignment", "--no-profile")
    words = ("optimize", "double.py", "--trials", "200", "--run", "cut", "--stop-at", "0", *ablations, *QUICK)
    with desk.start(*words) as process:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not _has_asked(desk.folder / "cut"):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "it was interrupted" in out
    outcome = desk.run("runs", ".", "--json")
    (cut,) = [each for each in json.loads(outcome.out)["runs"] if each["run"] == "cut"]
    assert cut["state"] == "interrupted"
    assert cut["method"] == "cupilot-no-roofline-no-retrieval-no-alignment"
    done = cut["trials"]
    resumed = desk.run("optimize", "--resume", "cut", "--trials", str(done + 1), "--no-tune", "--json")
    assert json.loads(resumed.out)["trials"] == done + 1, resumed.err


@pytest.mark.slow
def test_a_place_lost_during_a_run_does_not_lose_the_run(desk: Desk, run: str) -> None:
    options = ("--trials", "1", "--no-tune", "--no-profile", "--stop-at", "0", *QUICK)
    with desk.start("optimize", "double.py", "--run", "lost", "--out", "place/best.cpp", *options) as process:
        while process.poll() is None and not _has_asked(desk.folder / "lost"):
            time.sleep(0.02)
        (desk.folder / "place").write_text("in the way")
        out, err = process.communicate(timeout=120)
    assert process.returncode == 2, err
    assert "Stopped: all trials are spent." in out
    assert "The best kernel cannot be written to place/best.cpp" in err
    assert "It is in lost/best.cpp." in err
    assert (desk.folder / "lost" / "best.cpp").is_file()
    listed = json.loads(desk.run("runs", ".", "--json").out)["runs"]
    assert [each["state"] for each in listed if each["run"] == "lost"] == ["trials"]


# --- mistakes: one sentence each, exit status 2 ---


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["optimize"], "needs a TASK"),
        (["optimize", "double.py", "--resume", "first"], "continues the task of first; leave out TASK"),
        (["optimize", "absent.py"], "there is no task file absent.py"),
        (["optimize", "double.py", "--method", "magic"], "unknown method 'magic'; known: agentic, ai-cuda-engineer"),
        (["optimize", "double.py", "--method", "absent.py"], "absent.py"),
        (["optimize", "double.py", "--trials", "0"], "a budget of 0 trials leaves nothing to try"),
        (["optimize", "double.py", "--cost", "-1"], "a limit of -1 $ is no budget"),
        (
            ["optimize", "double.py", "--proposer", "openai:mine", *HERE, *DOLLAR],
            "--cost 1 cannot hold: the price of openai:mine is not known; give it with --prices FILE or "
            "WARPSMITH_PRICES, or limit --tokens or --trials instead.",
        ),
        (
            ["optimize", "double.py", "--proposer", "openai:gpt-5.5", *HERE, "--model", "aligner=openai:mine", *DOLLAR],
            "the price of openai:mine is not known",
        ),
        (
            ["bench", "double.py", "--proposers", "openai:mine", *HERE, *DOLLAR],
            "the price of openai:mine is not known",
        ),
        (["optimize", "double.py", "--proposer", "command:cat", *DOLLAR], "--cost 1 cannot hold: a command does not"),
        (
            ["optimize", "double.py", "--proposer", "command:cat", "--tokens", "1000000"],
            "--tokens 1000000 cannot hold: a command does not say what it spends; limit --trials or --time instead.",
        ),
        (["optimize", "double.py", "--proposer", "oracle"], "unknown proposer 'oracle'; known: auto, template"),
        (["optimize", "double.py", "--proposer", "openai:gpt"], "openai needs a key: set OPENAI_API_KEY"),
        (["optimize", "double.py", "--proposer", "replay:absent"], "there is no folder absent"),
        (["optimize", "double.py", "--proposer", "command: "], "names no command"),
        (["optimize", "double.py", "--method", "eoh", "--model", "x=openai:y"], "roles of this method: none"),
        (["optimize", "double.py", "--method", "cupilot", "--model", "boss=openai:y"], "strategist"),
        (["optimize", "--resume", "junk", "--no-roofline"], "cannot be read as a run"),
        (["optimize", "double.py", "--device", "tpu"], "unknown device 'tpu'"),
        (["optimize", "double.py", "--backend", "fortran"], "unknown backend 'fortran'"),
        (["optimize", "double.py", "--out", "/proc/x/best.cpp"], "--out /proc/x/best.cpp cannot be written"),
        (["optimize", "--resume", "junk", "--out", "right.cpp/best.cpp"], "cannot be written (Not a directory)"),
        (["optimize", "--resume", "absent"], "there is no folder absent"),
        (["optimize", "--resume", "junk"], "cannot be read as a run"),
        (["show", "junk"], "cannot be read as a run"),
        (["show", "absent"], "there is no folder absent"),
        (["ask", "notes.txt"], "neither the folder of a run nor a task file"),
        (["tell", "absent", "right.cpp"], "there is no folder absent"),
        (["step", "junk"], "cannot be read as a run"),
        (["tune", "double.py", "right.cpp"], "declares nothing to tune"),
    ],
)
def test_a_mistake_is_one_sentence(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "WARPSMITH_PRICES"):
        monkeypatch.delenv(name, raising=False)
    Path("double.py").write_text(TASK)
    Path("right.cpp").write_text(RIGHT)
    Path("notes.txt").write_text("not a kernel\n")
    Path("junk").mkdir()
    Path("junk/run.db").write_text("this is no database, whatever its name says " * 50)
    result = CliRunner().invoke(app, words, prog_name="warpsmith")
    line = result.stderr.strip()
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert line.startswith("error: ")
    assert said in line
    assert "\n" not in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["double.py", "junk", "notes.txt", "right.cpp"]
