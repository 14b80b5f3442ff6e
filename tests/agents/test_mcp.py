"""The MCP server with the SDK's own client: in process, over HTTP, and as a real process over stdio."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("mcp", reason="the MCP SDK is not installed: pip install 'warpsmith[mcp]'")

import anyio
from mcp import Client, MCPError, StdioServerParameters

from warpsmith.agents.call import ToolCall
from warpsmith.agents.mcp_server import PROMPT, _with_token, create_server
from warpsmith.agents.tools import AgentTools
from warpsmith.agents.workspace import Workspace

OPERATOR = """
import torch


def scaled(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) * weight
"""
KERNEL = """
extern "C" int launch(const float* x, const float* weight, float* out, int64_t n0, int64_t n1, void* workspace,
                      void* stream) {
#pragma omp parallel for
  for (int64_t r = 0; r < n0; ++r)
    for (int64_t c = 0; c < n1; ++c) {
      const float v = x[r * n1 + c];
      out[r * n1 + c] = (v > 0.0f || v != v ? v : 0.0f) * weight[c];
    }
  return 0;
}
"""
WRONG = KERNEL.replace("* weight[c]", "+ weight[c]")


def in_session(folder: Path, work: Callable[[Client], Awaitable[None]]) -> None:
    """Work with a client of a server in this process."""

    async def main() -> None:
        async with Client(create_server(AgentTools(Workspace([folder])))) as client:
            await work(client)

    anyio.run(main)


def text_of(content: Any) -> str:
    return str(content.text)


async def ok(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    return result.structured_content


def test_tools_resources_and_prompts_are_offered(tmp_path: Path) -> None:
    async def work(client: Client) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"make_task", "get_contract", "evaluate", "verify", "ask", "tell", "load_kernel"} <= set(tools)
        assert tools["evaluate"].input_schema["required"] == ["task", "kernels"]
        assert "call" not in tools["evaluate"].input_schema["properties"]

        found = await ok(client, "list_tasks", where="warpsmith-100", words="elementwise", limit=2)
        assert len(found["tasks"]) == 2 < found["total"]

        refused = await client.call_tool("read_task", {"task": "../\x1b[31msecret.py"})
        assert refused.is_error
        assert text_of(refused.content[0]).endswith(".")
        assert "\x1b" not in str(refused.content)

        uris = [str(each.uri) for each in (await client.list_resources()).resources]
        assert "warpsmith://guide" in uris
        card = next(uri for uri in uris if "/strategy/" in uri)
        for uri in ("warpsmith://guide", "warpsmith://library", card):
            (content,) = (await client.read_resource(uri)).contents
            assert text_of(content).startswith(("---", "#"))
        with pytest.raises(MCPError, match="no run"):
            await client.read_resource("warpsmith://best/missing")
        assert len((await client.list_resource_templates()).resource_templates) == 5

        assert (await client.list_prompts()).prompts[0].name == PROMPT
        prompt = await client.get_prompt(PROMPT, {"operator": "model.py::\x1bscaled", "backend": "cuda"})
        said = text_of(prompt.messages[0].content)
        assert "model.py::␛scaled" in said
        assert "get_contract (backend cuda)" in said

    in_session(tmp_path, work)


def test_a_fault_of_a_tool_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_call: ToolCall, *_words: str, **_options: Any) -> list[dict[str, Any]]:
        raise RuntimeError("two\nlines \x1b")

    monkeypatch.setattr(ToolCall, "command", broken)

    async def work(client: Client) -> None:
        result = await client.call_tool("get_contract", {"task": "relu"})
        assert result.is_error
        said = text_of(result.content[0])
        assert said.startswith("internal error in get_contract: RuntimeError: two lines ␛")

    in_session(tmp_path, work)


def test_a_long_call_reports_progress_and_ends_when_it_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ToolCall.command
    monkeypatch.setattr(ToolCall, "command", lambda call, *_, **__: command(call, "0", module="http.server"))

    def running() -> bool:
        found = psutil.Process(os.getpid()).children(recursive=True)
        return any("http.server" in " ".join(each.cmdline()) for each in found)

    async def work(client: Client) -> None:
        said: list[tuple[float, str | None]] = []
        reported = anyio.Event()

        async def progress(progress: float, total: float | None, message: str | None) -> None:
            said.append((progress, message))
            if len(said) == 2:
                reported.set()

        async with anyio.create_task_group() as group:

            async def call() -> None:
                await client.call_tool("get_contract", {"task": "relu"}, progress_callback=progress)

            group.start_soon(call)
            with anyio.fail_after(60):
                await reported.wait()
            assert running()
            group.cancel_scope.cancel()
        assert said[0][0] < said[1][0]
        with anyio.fail_after(60):
            while running():
                await anyio.sleep(0.05)

    in_session(tmp_path, work)


def test_a_request_over_http_needs_the_token() -> None:
    sent: list[dict[str, Any]] = []

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"status": 200})

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def ask(*headers: tuple[bytes, bytes]) -> None:
        await _with_token(app, "right")({"type": "http", "headers": headers}, None, send)

    anyio.run(ask)
    anyio.run(ask, (b"authorization", b"Bearer wrong"))
    anyio.run(ask, (b"authorization", b"Bearer right"))

    assert [each["status"] for each in sent if "status" in each] == [401, 401, 200]


def test_a_missing_sdk_is_one_sentence(tmp_path: Path) -> None:
    code = "import sys; sys.modules['mcp'] = sys.modules['mcp_types'] = None; import warpsmith.cli.main as m; m.main()"
    words = [sys.executable, "-c", code, "mcp", "--folder", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)

    assert done.returncode == 2
    assert done.stderr == "error: `warpsmith mcp` needs the MCP SDK; install it with `pip install 'warpsmith[mcp]'`.\n"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_session_takes_a_function_to_a_verified_loaded_kernel(
    tmp_path: Path, cache_folder: Path, marked_temp: Path, left_running: Callable[[Path], list[str]]
) -> None:
    """A real server process over stdio: from nothing to a kernel that is verified and loaded, on the CPU."""
    environ = {**os.environ, "WARPSMITH_CACHE": str(cache_folder), "TMPDIR": str(marked_temp)}
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "warpsmith", "mcp", "--folder", str(tmp_path)], env=environ
    )
    heard: list[str | None] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async def main() -> None:
        async with Client(server) as client:
            shapes = {"x": "float32[64, 256]", "weight": "float32[256]"}
            made = await ok(client, "make_task", file="scaled.py", source=OPERATOR, inputs=shapes)
            task = made["task"]
            contract = await ok(client, "get_contract", task="scaled.py", backend="cpu")
            assert 'extern "C" int launch(const float* x, const float* weight' in contract["text"]

            arguments = {"task": task, "kernels": [KERNEL, WRONG], "backend": "cpu"}
            judged = await client.call_tool("evaluate", arguments, progress_callback=progress)
            assert judged.structured_content is not None
            first, second = judged.structured_content["verdicts"]
            assert (first["status"], second["status"]) == ("ok", "wrong")
            assert heard

            brief = await ok(client, "ask", run="runs/mine", task=task, device="cpu", trials=3)
            assert "launch" in brief["prompt"]
            told = await ok(client, "tell", run="mine", kernel=KERNEL, brief=brief["brief"])
            assert (told["status"], told["best"]) == ("ok", True)
            read = await ok(client, "read_run", run="mine", trial="best")
            assert "weight[c]" in read["source"]
            looked = await ok(client, "profile", task=task, kernel=KERNEL, backend="cpu")
            assert looked["status"] == "ok"
            report = await ok(client, "write_report", run="mine")
            assert Path(report["report"]).is_file()

            exported = await ok(client, "export_kernel", run="mine")
            assert exported["bundle"] == str(tmp_path / "runs/mine/best")
            failed = "" if exported["verified"] else exported["reason"]
            loaded = await ok(client, "load_kernel", bundle="runs/mine")
            assert (loaded["kernel_calls"], loaded["largest_difference"]) == (1, 0.0)
            assert loaded["verified"], failed

            async with anyio.create_task_group() as group:  # a call that is broken off leaves nothing running

                async def long() -> None:
                    await client.call_tool("verify", {"task": task, "kernel": KERNEL, "backend": "cpu"})

                group.start_soon(long)
                await anyio.sleep(3)
                group.cancel_scope.cancel()

    anyio.run(main)

    assert left_running(marked_temp) == []
