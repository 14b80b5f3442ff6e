"""`warpsmith serve`: verdicts over HTTP. `warpsmith serve token NAME` creates a token for a client."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from warpsmith.cli import cards
from warpsmith.cli.checks import writable_paths
from warpsmith.cli.options import EngineOption
from warpsmith.cli.terminal import print_columns
from warpsmith.engine.engine import LOCAL, engine_site
from warpsmith.model.errors import ToolMissing, UsageError
from warpsmith.server.tokens import TokenHolder, TokenStore, default_token_file
from warpsmith.system.signatures import config_folder

TokenFile = Annotated[
    str, typer.Option("--tokens", metavar="FILE", help="The file of tokens.  [default: in your configuration]")
]


def serve_run(
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, metavar="N", help="The port.")] = 8322,
    device: Annotated[str, typer.Option(metavar="auto|cpu|cuda|cuda:N", help="Where kernels run.")] = "auto",
    engine: EngineOption = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(metavar="FOLDER", help="A folder of task files that clients may name; again for more."),
    ] = None,
    allow_uploads: Annotated[
        bool,
        typer.Option("--allow-uploads", help="Accept task files of clients: code that runs here with your rights."),
    ] = False,
    runs: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FOLDER", help="Also serve live pages of the runs in a folder, open to read; again for more."
        ),
    ] = None,
    tokens: TokenFile = "",
    state: Annotated[
        str, typer.Option(metavar="FOLDER", help="Where submissions are kept.  [default: in your configuration]")
    ] = "",
    body_bytes: Annotated[int, typer.Option(min=1024, metavar="N", help="The longest request.")] = 8 << 20,
    queue: Annotated[int, typer.Option(min=1, metavar="N", help="Candidates that may wait in all.")] = 20_000,
) -> int:
    """Judge kernels for other machines, over HTTP.

    A client sends a token that `warpsmith serve token NAME` printed. The page /docs lists what can be asked.
    """
    check_installed("warpsmith serve")
    from warpsmith.server.app import run_server
    from warpsmith.server.gate import BodyLimits
    from warpsmith.server.journal import Journal
    from warpsmith.server.live_page import LivePage, live_router, names_of
    from warpsmith.server.routes import verdict_app
    from warpsmith.server.served_runs import PREFIX, ServedRuns
    from warpsmith.server.service import VerdictService
    from warpsmith.server.task_catalogue import TaskCatalogue

    # A build that is used again would show a client that another one, or the owner, has had the same kernel built.
    store, paths = _store(tokens, needed=True), replace(writable_paths(), reuse_builds=False)
    folder = Path(state) if state else config_folder() / "serve"
    catalogue = TaskCatalogue(tasks or (), folder / "uploads", allow_uploads=allow_uploads)
    site = engine_site(engine or LOCAL)
    target = site.select(device)
    service = VerdictService(
        Journal(folder, queue_limit=queue),
        catalogue,
        lambda settings, on_progress: site.open(target, settings, paths=paths, name="serve", on_progress=on_progress),
        available=site.available,
        paths=paths,
    )
    page = LivePage(ServedRuns([Path(each) for each in runs]), hosts=names_of(host)) if runs else None
    app = verdict_app(
        service,
        store,
        limits=BodyLimits(bytes=body_bytes),
        routers=[live_router(page)] if page else (),
        open_paths=(PREFIX,) if page else (),
    )
    run_server(app, host, port)
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
