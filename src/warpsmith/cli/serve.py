"""`warpsmith serve`: verdicts over HTTP. `warpsmith serve token NAME` creates a token for a client."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from warpsmith.cli import cards
from warpsmith.cli.terminal import print_columns
from warpsmith.model.errors import ToolMissing, UsageError
from warpsmith.server.tokens import TokenHolder, TokenStore, default_token_file

TokenFile = Annotated[
    str, typer.Option("--tokens", metavar="FILE", help="The file of tokens.  [default: in your configuration]")
]


def serve_run(
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, metavar="N", help="The port.")] = 8322,
    tokens: TokenFile = "",
) -> int:
    """Judge the kernels of other machines' clients, over HTTP.

    A client sends a token that `warpsmith serve token NAME` printed. The page /docs lists what can be asked.
    """
    check_installed("warpsmith serve")
    from warpsmith.server.app import create_app, run_server

    run_server(create_app(_store(tokens, needed=True)), host, port)
    return 0


def serve_token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The client: letters, digits, `_`, `-` and `.`.")],
    tokens: TokenFile = "",
    pending: Annotated[int, typer.Option(min=1, metavar="N", help="Candidates that may wait at once.")] = 2000,
    hourly: Annotated[int, typer.Option(min=0, metavar="N", help="Candidates accepted in an hour; 0: no limit.")] = 0,
    revoke: Annotated[bool, typer.Option("--revoke", help="Make the client's token invalid.")] = False,
) -> int:
    """Print a new token for a client; only its hash is kept. A token that the client had becomes invalid."""
    store = _store(tokens)
    if revoke:
        store.revoke(name)
        return 0
    sys.stdout.write(store.create(TokenHolder(name, pending, hourly)) + "\n")
    return 0


def serve_tokens(tokens: TokenFile = "") -> int:
    """List the clients that have a token."""
    rows = [
        {"client": each.name, "pending": str(each.pending), "hourly": str(each.hourly or "no limit")}
        for each in _store(tokens, needed=True).holders
    ]
    print_columns(cards.console(), rows, right=("pending", "hourly"))
    return 0


def check_installed(command: str) -> None:
    """Raise where the libraries of the extra `serve` are missing."""
    try:
        import fastapi
        import prometheus_client
        import uvicorn
    except ImportError:
        raise ToolMissing(f"`{command}` needs FastAPI; install it with `pip install 'warpsmith[serve]'`.") from None
    del fastapi, prometheus_client, uvicorn


def _store(file: str, *, needed: bool = False) -> TokenStore:
    store = TokenStore(Path(file) if file else default_token_file())
    if needed and not store.holders:
        raise UsageError(f"{store.path} holds no token; create one with `warpsmith serve token NAME`.")
    return store
