"""`warpsmith dashboard [FOLDER]...`: serve the runs and benches of folders as live pages."""

from __future__ import annotations

import os
import secrets
import threading
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer
from rich.console import Console

from warpsmith.cli import cards
from warpsmith.cli.report import peaks_of
from warpsmith.cli.serve import check_installed
from warpsmith.experiments.plan import BENCHES
from warpsmith.model.errors import UsageError
from warpsmith.search.active_run import handling_signals
from warpsmith.search.open_run import RUNS

TOKEN = "WARPSMITH_DASHBOARD_TOKEN"
_PORT = 8323
_HOST = "127.0.0.1"
_OWN = (_HOST, "localhost", "::1")


def dashboard(
    folder: Annotated[
        list[str] | None,
        typer.Argument(metavar="FOLDER", help="Folders of runs or benches.  [default: runs and benches]"),
    ] = None,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen.")] = _HOST,
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="The port; 0 for a free one.")] = _PORT,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> int:
    """Serve runs as pages that follow them: progress, charts, code, prompts, cost; several runs over each other.

    Whoever reaches the address can read. Stop and resume need the token in WARPSMITH_DASHBOARD_TOKEN, or the one that
    is printed.
    """
    roots = [Path(each) for each in folder or (RUNS, BENCHES)]
    for root in roots if folder else ():
        if not root.is_dir():
            raise UsageError(f"there is no folder {root}; name a folder of runs, or none for {RUNS} and {BENCHES}.")
    console, ended = cards.console(stderr=True), threading.Event()
    with handling_signals(ended.set), serving_runs(roots, console, host, port) as address:
        cards.say(console, "Ctrl-C ends it.")
        if show:
            webbrowser.open(address)
        ended.wait()
    return 0


@contextmanager
def serving_run(folder: Path, console: Console) -> Iterator[None]:
    """Serve the page of one run while the block runs, with the runs beside it where they are in the usual folder."""
    root = folder.parent if folder.parent == Path(RUNS) else folder
    name = folder.name if root == folder else f"{root.name}/{folder.name}"
    with ExitStack() as stack:
        try:
            stack.enter_context(serving_runs([root], console, run=name))
        except UsageError:  # another dashboard has the usual port
            stack.enter_context(serving_runs([root], console, port=0, run=name))
        yield


@contextmanager
def serving_runs(
    roots: Sequence[Path], console: Console, host: str = _HOST, port: int = _PORT, run: str = ""
) -> Iterator[str]:
    """Serve the runs of folders while the block runs, and say where, or where the page of one run is."""
    check_installed("warpsmith dashboard")
    from warpsmith.server.live_page import LivePage, names_of, serving
    from warpsmith.server.served_runs import PREFIX, ServedRuns

    given = os.environ.get(TOKEN, "")
    token = given or secrets.token_urlsafe(18)
    page = LivePage(ServedRuns(roots, peaks_of), token, names_of(host))
    with serving(page, host, port) as bound:
        at = f"[{host}]" if ":" in host else host
        address = f"http://{at}:{bound}{PREFIX}" + (f"/runs/{quote(run)}" if run else "")
        cards.say(console, f"Dashboard: {address}", whole=True)
        if not given:
            cards.say(console, f"To stop and resume runs: {address}#token={token}", whole=True)
        if host not in _OWN:
            cards.say(console, "Everybody who reaches this address can read prompts, replies and code.", "yellow")
        yield address
