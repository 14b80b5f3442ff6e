"""`warpsmith bench judge FILE... --suite SUITE`: judge kernels of other systems and the speedups claimed for them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from warpsmith.backends.source import read_candidate
from warpsmith.cli import cards
from warpsmith.cli.bench_show import print_tables
from warpsmith.cli.checks import BASELINES, choose_device, parse_libraries, settings_with_timing, writable_paths
from warpsmith.cli.json_documents import print_document
from warpsmith.cli.options import (
    Allow,
    DeviceOfFiles,
    EngineOption,
    Entry,
    JsonLines,
    PrecisionOption,
    TimeBudget,
)
from warpsmith.engine.engine import LOCAL, open_engine
from warpsmith.experiments import published
from warpsmith.experiments.best_kernels import WantedChecks
from warpsmith.experiments.published import CheckedClaim, ClaimStatus, PublishedKernel
from warpsmith.experiments.selection import select
from warpsmith.experiments.tables import Column, ColumnKind, Table, Value
from warpsmith.model.errors import UsageError
from warpsmith.verification.verify import VerificationEvent


def bench_judge(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="Kernels named after tasks (softmax.cu, 23_Softmax.py), or folders."),
    ],
    suite: Annotated[str, typer.Option(metavar="SUITE", help="Whose tasks they are for, e.g. warpsmith-100.")],
    claims: Annotated[
        str, typer.Option(metavar="FILE", help="What is claimed: CSV with the columns task and speedup.")
    ] = "",
    against: Annotated[str, typer.Option(metavar="eager|compile", help="What the claims compare with.")] = "eager",
    device: DeviceOfFiles = "auto",
    engine: EngineOption = None,
    entry: Entry = "",
    entries: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="A call for each file: CSV with the columns file and entry, and task or allow where they differ by "
            "file. --entry is for the other files.",
        ),
    ] = "",
    allow: Allow = "",
    precision: PrecisionOption = None,
    time_budget: TimeBudget = None,
    verify: Annotated[bool, typer.Option("--verify/--no-verify", help="Verify what is valid.")] = True,
    out: Annotated[
        str, typer.Option(metavar="FOLDER", help="Keep verdicts and certificates there, and go on with what is there.")
    ] = "",
    json: JsonLines = False,
) -> int:
    """Judge kernels of other systems, and check the speedups that are claimed for them.

    Exit status: 0 all are correct and all claims hold, 1 not so, 2 nothing could be judged.
    """
    if against not in BASELINES:
        raise UsageError(f"--against {against!r} is no baseline; use eager or compile.")
    tasks = select((suite,))
    given, libraries = published.kernel_files(files), parse_libraries(allow)
    calls = published.read_calls(Path(entries), given, tasks=tasks, libraries=parse_libraries) if entries else {}
    found, strangers = published.matched(given, tasks, calls, entry=entry, allow=libraries)
    if not found:
        raise UsageError(
            f"no file is named after a task of {suite}, as softmax.cu or 23_Softmax.py would be; "
            "`warpsmith suite list` shows the names, and a table for --entries can name the task of each file."
        )
    claimed = published.read_claims(Path(claims), tasks) if claims else {}
    writable_paths()
    target = choose_device(device, [read_candidate(each.path, entry=each.entry) for each in found], engine or LOCAL)
    settings = replace(settings_with_timing(time_budget), allow=libraries)
    console = cards.console(stderr=True)
    for path in strangers:
        cards.say(console, f"{path} is named after no task of {suite}; left out.", "yellow")
    wanted = WantedChecks(verify, compile_baseline=against == "compile")
    assessed = []
    with tempfile.TemporaryDirectory(prefix="warpsmith-") as scratch, _file_progress(console, len(found)) as doing:
        store = Path(out) if out else Path(scratch)
        opened = open_engine(
            engine or LOCAL,
            target,
            settings,
            name=f"judge {suite}",
            on_message=lambda text: cards.say(console, text, "dim"),
        )
        with opened as evaluator:
            for each in published.check_claims(
                evaluator,
                found,
                claimed,
                wanted,
                store,
                against=against,
                precision=precision,
                on_event=doing,
            ):
                assessed.append(each)
                if json:
                    print_document(each)
    if not json:
        print_tables(cards.console(), (judged_table(assessed),), whole=True)
        cards.say(cards.console(), "\n" + _summary(assessed))
    unsound = any(each.status != "ok" or each.verified is False for each in assessed)
    return int(unsound or any(each.holding is ClaimStatus.TOO_HIGH for each in assessed))


def judged_table(assessed: Sequence[CheckedClaim]) -> Table:
    """A row for each kernel: verdict, measured speedup, and whether the claim holds."""
    claimed = any(each.claim is not None for each in assessed)
    columns = [Column("task"), Column("file"), Column("verdict")]
    columns += [Column("measured", ColumnKind.RATIO), Column("of roofline", ColumnKind.SHARE)]
    columns += [Column("claimed", ColumnKind.RATIO), Column("claim")] if claimed else []
    rows = []
    for each in assessed:
        measured = each.eager if each.against == "eager" else each.compile
        row: list[Value] = [each.task, Path(each.file).name, _verdict_text(each), measured, each.share_of_floor]
        row += [each.claim, "–" if each.claim is None else each.holding.value] if claimed else []
        rows.append(tuple(row))
    over = "torch.compile" if any(each.against == "compile" for each in assessed) else "PyTorch eager"
    note = f"Speedups over {over}."
    if claimed:
        note += " A claim holds if the kernel is correct and the claim is not above the measured interval."
    return Table("judged", "Judged here", tuple(columns), tuple(rows), note)


def _verdict_text(each: CheckedClaim) -> str:
    """The verdict on a file, with the reason if it failed."""
    if each.status != "ok":
        return f"{each.status.replace('_', ' ')}: {cards.short(each.reason)}"
    if each.verified is False:
        return f"not verified: {cards.short(each.why_not)}"
    return "verified" if each.verified else "valid"


def _summary(assessed: Sequence[CheckedClaim]) -> str:
    valid = sum(each.status == "ok" and each.verified is not False for each in assessed)
    said = f"{valid} of {len(assessed)} files are correct."
    claims = [each for each in assessed if each.claim is not None]
    if claims:
        said += f" {sum(each.holding is ClaimStatus.HOLDS for each in claims)} of {len(claims)} claims hold here."
    return said


@contextmanager
def _file_progress(
    console: Console, total: int
) -> Iterator[Callable[[PublishedKernel, VerificationEvent | None], None]]:
    """Shows which file is being judged: a spinner on a terminal, elsewhere a line for each file."""
    seen: list[Path] = []

    def said(each: PublishedKernel, event: VerificationEvent | None) -> str:
        if event is None:
            seen.append(each.path)
        check = f": verifying, {event.name.replace('_', ' ')}" if event is not None and event.outcome is None else ""
        return f"{len(seen)} of {total}: {each.path.name} for {each.task.name}{check}"

    if not console.is_terminal:
        yield lambda each, event: cards.say(console, said(each, event), "dim") if event is None else None
        return
    with console.status("judging") as status:
        yield lambda each, event: status.update(said(each, event))
