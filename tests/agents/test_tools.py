"""The tools' functions, in process: paths, errors, texts of strangers, cancelling."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.docs.pages import ROOT
from tests.searching import judged, new_session, proposed, valid
from warpsmith.agents import call
from warpsmith.agents.call import ToolCall
from warpsmith.agents.new_task import task_text
from warpsmith.agents.tools import AgentTools, guide
from warpsmith.agents.workspace import Workspace
from warpsmith.methods.load import load
from warpsmith.model.errors import HarnessFault, TaskError, UsageError, WarpsmithError
from warpsmith.run_log.log import LOG_FILE
from warpsmith.runtime.bundle import MANIFEST

SCALED = "def scaled(x, weight, eps):\n    return torch.relu(x) * weight + eps\n"


@pytest.fixture
def tools(tmp_path: Path) -> AgentTools:
    folder = tmp_path / "open"
    folder.mkdir()
    return AgentTools(Workspace([folder]))


def opened(tools: AgentTools) -> Path:
    return tools.workspace.folders[0]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The commands that tools would run; each gives a small document."""
    ran: list[tuple[str, ...]] = []

    def command(_call: ToolCall, *words: str, **_options: Any) -> list[dict[str, Any]]:
        ran.append(words)
        small = {"backend": "cpu", "declaration": "", "precision": "fp32", "workloads": []}
        return [
            {**small, "status": "wrong", "reason": "\x1b[31mbad\u202e" + "x" * 5000, "task": "t", "entry": "launch"}
        ]

    monkeypatch.setattr(ToolCall, "command", command)
    return ran


# --- paths ---


@pytest.mark.parametrize(
    "name",
    [
        "../secret.py",
        "a/../../secret.py",
        "/etc/passwd",
        "link.py",
        "folder/secret.py",
        "loop",
        "",
        "a\0b",
        "a\tb",
        "~root/x",
    ],
)
def test_a_path_that_leaves_the_folders_is_refused(tools: AgentTools, tmp_path: Path, name: str) -> None:
    (tmp_path / "secret.py").write_text("secret = 1\n")
    (opened(tools) / "link.py").symlink_to(tmp_path / "secret.py")
    (opened(tools) / "folder").symlink_to(tmp_path)
    (opened(tools) / "loop").symlink_to(opened(tools) / "loop")

    for tool, arguments in (
        ("read_task", {"task": f"{name}::secret"}),
        ("evaluate", {"task": "warpsmith-100/relu@small", "kernels": [name or " "]}),
        ("read_run", {"run": name}),
        ("load_kernel", {"bundle": name}),
        ("list_tasks", {"where": name or "/"}),
        ("make_task", {"file": name, "source": "x = 1"}),
    ):
        with pytest.raises(WarpsmithError) as refused:
            tools.call(tool, arguments)
        assert "secret = 1" not in str(refused.value)
        assert "\n" not in str(refused.value)


def test_nothing_is_written_outside_the_folders_or_over_a_file(
    tools: AgentTools, tmp_path: Path, commands: list[tuple[str, ...]]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (opened(tools) / "out").symlink_to(outside)
    (opened(tools) / "mine.py").write_text("mine = 1\n")
    wanted = {"source": SCALED, "inputs": {"x": "float32[8, 4]", "weight": "float32[4]", "eps": 0.5}}

    for file in ("out/task.py", "mine.py", "task.txt", str(outside / "task.py")):
        with pytest.raises(UsageError):
            tools.call("make_task", {"file": file, **wanted})
    for arguments in ({"run": "out/run", "task": "relu"}, {"run": "mine.py", "task": "relu"}):
        with pytest.raises(UsageError):
            tools.call("ask", arguments)
    with pytest.raises(UsageError):
        tools.call("export_kernel", {"kernel": "a\nb", "task": "relu", "out": "out/bundle"})

    assert list(outside.iterdir()) == []
    assert (opened(tools) / "mine.py").read_text() == "mine = 1\n"
    assert commands == []


def test_a_run_with_a_link_in_it_is_refused(tools: AgentTools, tmp_path: Path) -> None:
    run = opened(tools) / "runs" / "mine"
    run.mkdir(parents=True)
    (run / LOG_FILE).touch()
    with pytest.raises(WarpsmithError):
        tools.call("read_run", {"run": "mine"})  # an empty log
    (run / "best").symlink_to(tmp_path)

    with pytest.raises(WarpsmithError, match="symbolic link"):
        tools.call("tell", {"run": "mine", "kernel": "a\nb"})


def test_a_bundle_outside_the_folders_is_not_loaded_through_a_link(
    tools: AgentTools, tmp_path: Path, commands: list[tuple[str, ...]]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / MANIFEST).write_text("{}")
    for name in ("linked", "other"):
        (opened(tools) / name).mkdir()
    (opened(tools) / "linked" / "best").symlink_to(outside)
    with pytest.raises(UsageError, match="leads out of the folders"):
        tools.call("load_kernel", {"bundle": "linked"})
    with pytest.raises(UsageError, match="there is no bundle in other"):
        tools.call("load_kernel", {"bundle": "other"})
    assert commands == []


def test_a_server_without_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--folder"):
        Workspace([])
    with pytest.raises(UsageError, match="no folder"):
        Workspace([tmp_path / "missing"])


# --- arguments, results, errors ---


def test_a_wrong_argument_is_one_sentence(tools: AgentTools) -> None:
    for name, arguments in (
        ("evaluate", {"task": "relu"}),
        ("evaluate", {"task": "relu", "kernels": []}),
        ("evaluate", {"task": "relu", "kernels": ["a\nb"], "device": "cpu --trust"}),
        ("ask", {"run": "runs/a", "tusk": "relu"}),
        ("fetch", {}),
    ):
        with pytest.raises(UsageError) as refused:
            tools.call(name, arguments)
        assert "\n" not in str(refused.value)
        assert str(refused.value).endswith(".")


def test_results_are_short_and_printable(tools: AgentTools, commands: list[tuple[str, ...]]) -> None:
    asked = {"task": "warpsmith-100/relu@small", "kernels": ["int a;\nint b;"], "backend": "cpu"}
    (short,) = tools.call("evaluate", asked)["verdicts"]
    (full,) = tools.call("evaluate", {**asked, "full": True})["verdicts"]

    assert short["reason"].startswith("␛[31mbad�xx")
    assert len(short["reason"]) < 1700 < len(full["reason"])
    assert "\x1b" not in str(full)
    assert set(short) < set(full)
    command = commands[0]
    assert command[:2] == ("evaluate", str(tools.workspace.task("warpsmith-100/relu@small")))
    assert command[2].endswith("/kernel_1.cpp")


def test_tasks_are_listed_and_read_without_the_held_out_shapes(tools: AgentTools) -> None:
    (opened(tools) / "own.py").write_text((ROOT / "src/warpsmith/examples/softmax.py").read_text())
    own = tools.call("list_tasks", {"where": str(opened(tools))})
    shipped = tools.call("list_tasks", {"words": "activation relu", "full": True})

    (opened(tools) / "own.py").write_text("def f(:")
    (note,) = tools.call("list_tasks", {})["notes"]
    assert "cannot be read as Python" in note
    assert own["tasks"][0]["task"] == f"{opened(tools) / 'own.py'}::softmax"
    assert "workloads" not in own["tasks"][0]
    assert "warpsmith-100/relu" in [each["task"] for each in shipped["tasks"]]
    assert "held_out" not in str(shipped) + tools.call("read_task", {"task": "warpsmith-100/relu"})["source"]


def test_knowledge_is_searched(tools: AgentTools) -> None:
    strategies = tools.call("search_knowledge", {"words": "vector loads", "kind": "strategy", "backend": "cuda"})
    headers = tools.call("search_knowledge", {"words": "float4 packs", "kind": "header", "full": True})

    assert "vector" in strategies["entries"][0]["name"]
    assert "text" not in strategies["entries"][0]
    assert headers["entries"][0]["name"] == "packs.cuh"
    assert "load_once" in headers["entries"][0]["text"]
    assert all(f"## {name}" in tools.resource("library", "")[0] for name in ("packs.cuh", "cpu/scan.h"))
    with pytest.raises(UsageError):
        tools.resource("library", "../../../etc/passwd")


def test_the_guide_names_every_tool_and_every_status(tools: AgentTools) -> None:
    from warpsmith.model.evaluation import Status

    told = guide()
    docs = (ROOT / "docs/agents.md").read_text(encoding="utf-8")
    for name, about, schema, _ in tools.described():
        assert f"`{name}`" in docs
        assert about
        assert schema["type"] == "object"
    assert all(f"`{status.value}`" in told for status in Status)


def test_a_run_is_read_with_its_lineage(tools: AgentTools) -> None:
    folder = opened(tools) / "runs" / "mine"
    with new_session(folder, load("evoengineer-full")) as session:
        for number in (1, 2):
            proposed(session, number)
            judged(session, lambda candidate: valid(candidate, 2.0))

    read = tools.call("read_run", {"run": "mine"})
    best = tools.call("read_run", {"run": "runs/mine", "trial": "best"})

    assert read["run"] == str(folder)
    assert read["speedup"] == 2.0
    assert read["lineage_of_best"] == [best["trial"]]
    assert [each["trial"] for each in read["trials_shown"]] == [1, 2]
    assert "launch" in best["source"]
    assert tools.resource("best", "mine")[0] == best["source"]
    assert tools.resource("report", "mine")[1] == "text/html"
    assert tools.call("list_runs", {})["runs"][0]["task"] == read["task"]
    for name in ("9", "²", "9" * 5000):
        with pytest.raises(WarpsmithError, match="has no trial"):
            tools.call("read_run", {"run": "mine", "trial": name})


# --- a task from a function ---


def test_a_function_becomes_a_task_file() -> None:
    source = f'"""Doc."""\nfrom __future__ import annotations\n\nimport torch\n\n\n{SCALED}'
    text, name = task_text(source, "", [{"x": "float32[8, 4]", "weight": "float32[4]", "eps": 0.5}])

    assert name == "scaled"
    assert text.startswith(
        '"""Doc."""\nfrom __future__ import annotations\nfrom warpsmith import normal, scalar, task\n'
    )
    assert 'x=normal("n0, n1", dtype="float32")' in text
    assert "eps=scalar(0.5)" in text
    compile(text, "task", "exec")


@pytest.mark.parametrize(
    ("source", "inputs", "said"),
    [
        ("def f(:", [], "not valid Python"),
        ("x = 1", [], "0 functions"),
        (SCALED, [], "give inputs"),
        (SCALED, [{"x": "float32[8]"}], "needs an input for weight"),
        (SCALED, [{"y": "float32[8]"}], "no parameter y"),
        (SCALED, [{"x": "float31[8]", "weight": 1, "eps": 1}], "write a type and a shape"),
        (SCALED, [{"x": "int64[8]", "weight": 1, "eps": 1}], "< 1000"),
        (SCALED, [{"x": "float32[0]", "weight": 1, "eps": 1}], "size 0"),
        (SCALED, [{"x": f"float32[{'9' * 5000}]", "weight": 1, "eps": 1}], "no size"),
        (SCALED, [{"x": f"int64[8] < {'9' * 5000}", "weight": 1, "eps": 1}], "no size"),
        (SCALED, [{"x": "float32[8 8]", "weight": 1, "eps": 1}], "'8 8', which is no size"),
        (f"def f(x):\n    return {'-' * 200_000}x\n", [{"x": "float32[8]"}], "too deeply nested"),
        ("def task(x):\n    return x\n", [{"x": "float32[8]"}], "rename it"),
        ("@ws.task(x=1)\ndef f(x):\n    return x\n", [{"x": "float32[8]"}], "leave out inputs"),
    ],
)
def test_a_function_that_cannot_be_a_task_is_refused(source: str, inputs: list[Any], said: str) -> None:
    with pytest.raises(TaskError, match=said):
        task_text(source, "", inputs)


# --- commands ---


def test_a_cancelled_call_ends_its_process() -> None:
    call = ToolCall()
    raised: list[BaseException] = []

    def work() -> None:
        try:
            call.command("0", module="http.server")  # serves until it is ended
        except WarpsmithError as ended:
            raised.append(ended)

    def children() -> list[psutil.Process]:
        found = psutil.Process(os.getpid()).children(recursive=True)
        return [each for each in found if "http.server" in " ".join(each.cmdline())]

    thread = threading.Thread(target=work)
    thread.start()
    _wait_until(lambda: bool(children()))
    call.cancel()
    thread.join(30)

    assert isinstance(raised[0], HarnessFault)
    assert children() == []
    with pytest.raises(HarnessFault):  # and none is started afterwards
        call.command("0", module="http.server")


def test_the_error_of_a_command_is_its_sentence(tools: AgentTools) -> None:
    with pytest.raises(UsageError, match="is neither a run nor a kernel's file") as refused:
        ToolCall().command("export", str(opened(tools)), "--json")
    assert not str(refused.value).startswith("error")


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_lines_of_an_agent_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    output = tmp_path / "output"
    output.write_text("[" * 100_000 + '\n{"a": ' + "9" * 5000 + '}\nno JSON\n{"result": "done"}\n', encoding="utf-8")
    assert call._documents(output) == [{"result": "done"}]
