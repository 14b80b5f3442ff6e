"""The MCP server: offers the tools, resources and prompts of this room through the official `mcp` SDK.

The SDK is imported by `create_server` and `serve_*` only, because it is an extra (`pip install 'warpsmith[mcp]'`).
"""

from __future__ import annotations

import hmac
import json
import secrets
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from warpsmith._version import __version__
from warpsmith.agents.call import ToolCall
from warpsmith.agents.tools import ToolBox, clean, guide
from warpsmith.model.errors import ToolMissing, UsageError, WarpsmithError
from warpsmith.model.text import one_line
from warpsmith.strategies.catalogue import strategies

if TYPE_CHECKING:
    from mcp.server import Server

_SCHEME = "warpsmith://"
_REPORT_S = 1.0  # between two reports of progress
_TEMPLATES = {
    "run/{run}": "A run: its state, the lineage of its best kernel, its last trials.",
    "best/{run}": "The source of a run's best kernel.",
    "report/{run}": "The report of a run, as one HTML page.",
    "strategy/{name}": "How to carry out a strategy of the catalogue.",
    "library/{header}": "A header of the device library.",
}
PROMPT = "optimise_operator"
_PROMPT = """Make a kernel for {operator} that is correct and faster than PyTorch.

{guide}
Begin with {first}."""


def create_server(tools: ToolBox) -> Server[Any]:
    """The server for these tools; raises where the SDK is missing."""
    try:
        import anyio
        import mcp_types as types
        from mcp import MCPError
        from mcp.server import Server
    except ImportError:
        raise ToolMissing(
            "`warpsmith mcp` needs the MCP SDK; install it with `pip install 'warpsmith[mcp]'`."
        ) from None

    async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
        return await anyio.to_thread.run_sync(partial(function, *arguments), abandon_on_cancel=True)

    async def list_tools(_ctx: Any, _params: Any) -> Any:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=name,
                    description=text,
                    input_schema=schema,
                    annotations=types.ToolAnnotations(read_only_hint=reads, open_world_hint=False),
                )
                for name, text, schema, reads in tools.described()
            ]
        )

    async def call_tool(ctx: Any, params: Any) -> Any:
        call = ToolCall()

        async def report() -> None:
            while True:
                await anyio.sleep(_REPORT_S)
                seconds, said = call.progress()
                await ctx.session.report_progress(seconds, None, said)

        outcome: Any = None
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(report)
                outcome = await in_thread(_outcome, tools, params.name, params.arguments or {}, call)
                group.cancel_scope.cancel()
        finally:
            call.cancel()  # where the client cancelled the call: ends the command
        failed = isinstance(outcome, str)
        text = outcome if isinstance(outcome, str) else json.dumps(outcome, ensure_ascii=False)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)],
            structured_content=None if failed else outcome,
            is_error=failed,
        )

    async def list_resources(_ctx: Any, _params: Any) -> Any:
        listed = await in_thread(_listed, tools)
        found = [types.Resource(uri=uri, name=name, description=about) for uri, name, about in listed]
        return types.ListResourcesResult(resources=found)

    async def list_templates(_ctx: Any, _params: Any) -> Any:
        found = [
            types.ResourceTemplate(uri_template=f"{_SCHEME}{path}", name=path.partition("/")[0], description=about)
            for path, about in _TEMPLATES.items()
        ]
        return types.ListResourceTemplatesResult(resource_templates=found)

    async def read_resource(_ctx: Any, params: Any) -> Any:
        uri = str(params.uri)
        kind, _, name = uri.removeprefix(_SCHEME).partition("/")
        try:
            text, media = await in_thread(tools.resource, kind, unquote(name))
        except WarpsmithError as refused:
            raise MCPError(types.INVALID_PARAMS, one_line(str(refused))) from None
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=params.uri, mime_type=media, text=text)]
        )

    async def list_prompts(_ctx: Any, _params: Any) -> Any:
        arguments = [
            types.PromptArgument(
                name="operator", description="A task, or a PyTorch function by file and name.", required=True
            ),
            types.PromptArgument(name="backend", description="cuda, cpu or triton.", required=False),
        ]
        prompt = types.Prompt(name=PROMPT, description="Optimise this operator.", arguments=arguments)
        return types.ListPromptsResult(prompts=[prompt])

    async def get_prompt(_ctx: Any, params: Any) -> Any:
        try:
            text = prompt_text(params.name, params.arguments or {})
        except WarpsmithError as refused:
            raise MCPError(types.INVALID_PARAMS, one_line(str(refused))) from None
        content = types.TextContent(type="text", text=text)
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=content)])

    return Server(
        "warpsmith",
        version=__version__,
        instructions=tools.instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
    )


def serve_stdio(tools: ToolBox) -> None:
    """Serve one client on standard input and output, until the input ends."""
    server = create_server(tools)
    import anyio
    from mcp.server.stdio import stdio_server

    async def serve() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(serve)


def serve_http(tools: ToolBox, host: str, port: int, token: str) -> None:
    """Serve clients over streamable HTTP that send the token; a token is made where none is given."""
    server = create_server(tools)
    import uvicorn

    shown = f", with the header `Authorization: Bearer {(token := secrets.token_urlsafe(24))}`" if not token else ""
    sys.stderr.write(f"MCP server on http://{host}:{port}/mcp{shown}. Ctrl-C ends it.\n")
    app = _with_token(server.streamable_http_app(host=host), token)
    uvicorn.run(app, host=host, port=port, log_level="warning")


def prompt_text(name: str, arguments: Mapping[str, str]) -> str:
    """The prompt "optimise this operator"."""
    operator = one_line(arguments.get("operator", ""))
    if name != PROMPT or not operator:
        raise UsageError(f"there is one prompt, {PROMPT}, with the argument operator; name the task or the function.")
    backend = one_line(arguments.get("backend", ""))
    first = f"get_contract (backend {backend})" if backend else "get_contract"
    return str(clean(_PROMPT.format(operator=operator, guide=guide(), first=f"make_task or list_tasks, then {first}")))


def _outcome(tools: ToolBox, name: str, arguments: Mapping[str, Any], call: ToolCall) -> dict[str, Any] | str:
    """The result of a tool, or one sentence that says what is wrong."""
    try:
        return tools.call(name, arguments, call)
    except WarpsmithError as refused:
        return one_line(str(refused))
    except Exception as fault:  # noqa: BLE001 - the top frame of a call: any other exception is a bug
        return one_line(f"internal error in {name}: {type(fault).__name__}: {fault}; report it and try another way.")


def _listed(tools: ToolBox) -> list[tuple[str, str, str]]:
    """The resources that exist now: URI, name, description."""
    found = [
        (f"{_SCHEME}guide", "guide", "How to work with Warpsmith."),
        (f"{_SCHEME}library", "library", "The headers of the device library, and what each offers."),
    ]
    for name, folder in tools.runs():
        found += [(f"{_SCHEME}{kind}/{quote(name)}", f"{kind} {folder}", "") for kind in ("run", "best", "report")]
    for strategy in strategies().values():
        found.append((f"{_SCHEME}strategy/{strategy.name}", strategy.name, strategy.title))
    return [(uri, one_line(name), one_line(about)) for uri, name, about in found]


def _with_token(app: Any, token: str) -> Any:
    """The same ASGI application for requests that carry the token; others get 401."""
    wanted = f"Bearer {token}".encode()

    async def checked(
        scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        given = dict(scope.get("headers", ())).get(b"authorization", b"")
        if scope["type"] == "http" and not hmac.compare_digest(given, wanted):
            await send({"type": "http.response.start", "status": 401, "headers": [(b"www-authenticate", b"Bearer")]})
            await send({"type": "http.response.body", "body": b"send the token that `warpsmith mcp` printed.\n"})
            return
        await app(scope, receive, send)

    return checked
