"""`warpsmith mcp` and `warpsmith agent-guide`: tools for coding agents over MCP, and how to use them."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from warpsmith.cli.terminal import write
from warpsmith.model.errors import UsageError

TOKEN = "WARPSMITH_MCP_TOKEN"


def mcp(
    folder: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR", help="A folder that agents may read and write; again for more.  [required]"),
    ] = None,
    bound: Annotated[
        str,
        typer.Option(metavar="SOCKET", help="Serve the tools of one step of a run to its agent, not a folder's."),
    ] = "",
    http: Annotated[bool, typer.Option("--http", help="Serve streamable HTTP instead of standard input.")] = False,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="With --http: where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, metavar="N", help="With --http: the port.")] = 8321,
) -> int:
    """Serve Warpsmith's tools to coding agents over the Model Context Protocol.

    Paths that an agent names are confined to the folders. The code of tasks is executed on this machine with your
    rights, so open this server only to agents that may run programs here. With --http a client must send the token in
    WARPSMITH_MCP_TOKEN, or the one that is printed.
    """
    from warpsmith.agents.bound import BoundTools
    from warpsmith.agents.mcp_server import serve_http, serve_stdio
    from warpsmith.agents.tools import AgentTools, ToolBox
    from warpsmith.agents.workspace import Workspace
    from warpsmith.proposers.step_server import TOKEN_VARIABLE

    if bound and (folder or http):
        raise UsageError("--bound serves one step of a run on standard input; leave out --folder and --http.")
    tools: ToolBox = (
        BoundTools(bound, os.environ.get(TOKEN_VARIABLE, "")) if bound else AgentTools(Workspace(folder or ()))
    )
    if http:
        serve_http(tools, host, port, os.environ.get(TOKEN, ""))
    else:
        serve_stdio(tools)
    return 0


def agent_guide() -> int:
    """Print a skill file for coding agents: what Warpsmith is, the loop, what is refused, how to read verdicts."""
    from warpsmith.agents.tools import guide

    write(guide())
    return 0
