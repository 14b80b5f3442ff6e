"""`warpsmith bench judge FILES --suite NAME`: other systems' kernels under our evaluator, and which claims hold."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console

from warpsmith.backends.source import read_candidate
from warpsmith.cli import render
from warpsmith.cli.benchshow import print_tables
from warpsmith.cli.evaluate import check_cache, choose_device, parse_libraries, timed_for
from warpsmith.core.config import Paths
from warpsmith.core.errors import UsageError
from warpsmith.core.task import Precision
from warpsmith.evaluate.evaluator import Evaluator
from warpsmith.evaluate.verification.verify import Event
from warpsmith.run.bench import published
from warpsmith.run.bench.published import Assessed, Holding, Published
from warpsmith.run.bench.selection import select
from warpsmith.run.bench.tables import Column, Kind, Table, Value
from warpsmith.run.bench.winners import Examination


@dataclass(frozen=True)
class JudgeRequest:
    """Whose kernels to judge."""

    files: tuple[str, ...]
    suite: str
    claims: str = ""
    against: str = "eager"
    device: str = "auto"
    entry: str = ""
    allow: str = ""
    precision: Precision | None = None
    timing_budget_s: float | None = None
    verify: bool = True
    out: str = ""
    as_json: bool = False


def judge(request: JudgeRequest) -> int:
    """Judge, show, and give the exit status: 0 all claims hold and all files are valid, 1 not so."""
    if request.against not in ("eager", "compile"):
        raise UsageError(f"--against {request.against!r} is no baseline; use eager or compile.")
    tasks = select((request.suite,))
    found, strangers = published.matched(published.kernel_files(request.files), tasks)
    if not found:
        raise UsageError(
            f"no file is named after a task of {request.suite}, as softmax.cu or 23_Softmax.py would be; "
            "`warpsmith suite list` shows the names."
        )
    claims = published.read_claims(Path(request.claims), tasks) if request.claims else {}
    paths = Paths.from_environment()
    check_cache(paths.cache)
    device = choose_device(request.device, [read_candidate(each.path, entry=request.entry) for each in found])
    settings = replace(timed_for(request.timing_budget_s), allow=parse_libraries(request.allow))
    console = render.console(stderr=True)
    for path in strangers:
        render.say(console, f"{path} is named after no task of {request.suite}; left out.", "yellow")
    wanted = Examination(request.verify, compile_baseline=request.against == "compile")
    assessed = []
    with tempfile.TemporaryDirectory() as scratch, _doing(console, len(found)) as doing:
        store = Path(request.out) if request.out else Path(scratch)
        with Evaluator(device, settings, on_message=lambda text: render.say(console, text, "dim")) as evaluator:
            for each in published.judge(
                evaluator,
                found,
                claims,
                wanted,
                store,
                against=request.against,
                entry=request.entry,
                precision=request.precision,
                on_event=doing,
            ):
                assessed.append(each)
                if request.as_json:
                    sys.stdout.write(json.dumps(asdict(each), ensure_ascii=False, allow_nan=False) + "\n")
                    sys.stdout.flush()
    if not request.as_json:
        print_tables(render.console(), (judged_table(assessed),), whole=True)
        render.say(render.console(), "\n" + _verdict(assessed))
    unsound = any(each.status != "ok" or each.verified is False for each in assessed)
    return int(unsound or any(each.holding is Holding.TOO_HIGH for each in assessed))


def judged_table(assessed: Sequence[Assessed]) -> Table:
    """Others' kernels, and what became of what is said of them."""
    claimed = any(each.claim is not None for each in assessed)
    columns = [Column("task"), Column("file"), Column("verdict")]
    columns += [Column("measured", Kind.RATIO), Column("of floor", Kind.SHARE)]
    columns += [Column("claimed", Kind.RATIO), Column("claim")] if claimed else []
    rows = []
    for each in assessed:
        measured = each.eager if each.against == "eager" else each.compile
        row: list[Value] = [each.task, Path(each.file).name, _said(each), measured, each.share_of_floor]
        row += [each.claim, "–" if each.claim is None else each.holding.value] if claimed else []
        rows.append(tuple(row))
    over = "torch.compile" if any(each.against == "compile" for each in assessed) else "PyTorch eager"
    note = f"Speedups over {over}."
    if claimed:
        note += " A claim holds where it is within or below the measured interval of a kernel that is right."
    return Table("judged", "Judged here", tuple(columns), tuple(rows), note)


def _said(each: Assessed) -> str:
    """The verdict on a file, with the reason where it is not a good one."""
    if each.status != "ok":
        return f"{each.status.replace('_', ' ')}: {render.short(each.reason)}"
    if each.verified is False:
        return f"not verified: {render.short(each.why_not)}"
    return "verified" if each.verified else "valid"


def _verdict(assessed: Sequence[Assessed]) -> str:
    valid = sum(each.status == "ok" and each.verified is not False for each in assessed)
    said = f"{valid} of {len(assessed)} files are right."
    claims = [each for each in assessed if each.claim is not None]
    if claims:
        said += f" {sum(each.holding is Holding.HOLDS for each in claims)} of {len(claims)} claims hold here."
    return said


@contextmanager
def _doing(console: Console, total: int) -> Iterator[Callable[[Published, Event | None], None]]:
    """Shows on a terminal which file is judged; elsewhere a line for each."""
    seen: list[Path] = []

    def said(each: Published, event: Event | None) -> str:
        if event is None:
            seen.append(each.path)
        check = f": verifying, {event.name.replace('_', ' ')}" if event is not None and event.outcome is None else ""
        return f"{len(seen)} of {total}: {each.path.name} for {each.task.name}{check}"

    if not console.is_terminal:
        yield lambda each, event: render.say(console, said(each, event), "dim") if event is None else None
        return
    with console.status("judging") as status:
        yield lambda each, event: status.update(said(each, event))
