"""The record of the methods with a real language model: seven methods and ablations of cuPilot under equal budgets.

    python -m benchmarks.methods_record run --base-url http://127.0.0.1:8011/v1 --model openai:NAME --out FOLDER \\
        --jobs 24 --limit-s 900
    python -m benchmarks.methods_record pack FOLDER PARTS
    python -m benchmarks.methods_record unpack PARTS FOLDER

`run` is `warpsmith bench` on twelve tasks (`methods_tasks.py`), each begun from a plain kernel (`methods_start/`), with
many cells at a time, so that the model answers many prompts in one batch. It ends by itself at the limit; the same
command goes on with it, also on another machine after `unpack`. `methods_summary.py` makes the tables.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tarfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from warpsmith._version import __version__
from warpsmith.experiments.plan import BenchPlan, bench_lock, check_plan, keep_plan
from warpsmith.experiments.results import Cell, CellStatus
from warpsmith.experiments.runner import BenchObserver, BenchRunner, check_proposers
from warpsmith.experiments.selection import select
from warpsmith.hardware.device import select_device
from warpsmith.methods.load import ablated, load
from warpsmith.model.method import Method
from warpsmith.model.settings import Settings
from warpsmith.proposers.choose import ProposerOptions
from warpsmith.run_log.events import Budget

HERE = Path(__file__).resolve().parent
TASKS, STARTS = HERE / "methods_tasks.py", HERE / "methods_start"
SEVEN = (
    *("ai-cuda-engineer", "cupilot", "eoh", "evoengineer-free", "evoengineer-full", "evoengineer-insight"),
    "funsearch",
)
ABLATIONS = ("roofline", "retrieval", "alignment", "repairs", "profile")  # of cuPilot
SERVER_FILE = "server.json"  # what the model server says of itself at the end of a sitting
_PART_BYTES = 15 << 20
_SHARD_CELLS = 3  # tasks are finished in turn: a record that is cut off has every method on its first tasks
_GRACE_S = 20.0  # after the limit: replies in progress are waited for so long


def compared_methods() -> tuple[Method, ...]:
    """The seven methods, and cuPilot without each of its parts."""
    cupilot = load("cupilot")
    return (*map(load, SEVEN), *(ablated(cupilot, **{part: False}) for part in ABLATIONS))


def make_plan(options: argparse.Namespace) -> BenchPlan:
    """The plan of the bench; the same options give the same plan."""
    names = options.tasks.split(",") if options.tasks else []
    chosen = select([str(options.tasks_file)])
    known = compared_methods()
    wanted = options.methods.split(",") if options.methods else [method.name for method in known]
    plan = BenchPlan(
        name="methods with a language model",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        tasks=tuple(task for task in chosen if not names or task.name in names),
        methods=tuple(method for method in known if method.name in wanted),
        proposers=(options.model,),
        repeats=options.seeds,
        seed=0,
        budget=Budget(trials=options.trials, tokens=options.tokens),
        settings=replace(Settings(), timing_budget_s=options.timing_s, published_rule=True),
        device=options.device.partition(":")[0],
        backend=options.device.partition(":")[0],
        enough_share=None,
        parallel=options.parallel,
        start=str(options.starts.resolve()) if options.starts else "plain",
        tune=False,
        verify=False,
        compile_baseline=False,
        options=ProposerOptions(
            base_url=options.base_url,
            temperature=options.temperature,
            max_tokens=options.max_tokens,
            request_s=options.request_s,
        ),
    )
    return check_plan(plan)


class _Lines(BenchObserver):
    """One line for each cell that ends."""

    def __init__(self, runner: BenchRunner) -> None:
        self._runner, self._begun = runner, time.monotonic()

    def ended(self, device: str, cell: Cell) -> None:
        """See `BenchObserver`."""
        best = f"{cell.best.eager.value:.2f}x eager" if cell.best else "no kernel"
        tally = self._runner.tally
        print(
            f"{time.monotonic() - self._begun:6.0f} s  {cell.task} {cell.method} {cell.seed}: {cell.status}, "
            f"{cell.trials} trials, {cell.compiled} compiled, {cell.valid} valid, {best}, {cell.tokens} tokens "
            f"[{tally.settled}/{tally.total}] {cell.reason if cell.status is CellStatus.FAILED else ''}",
            flush=True,
        )

    def message(self, text: str) -> None:
        """See `BenchObserver`."""
        if not text.startswith("waiting:"):  # many cells share the device
            print(text, flush=True)


def run(options: argparse.Namespace) -> int:
    """Work on the bench until it is finished or the limit is reached."""
    begun = time.monotonic()
    plan = make_plan(options)
    check_proposers(plan)
    options.out.mkdir(parents=True, exist_ok=True)
    plan = keep_plan(plan, options.out)
    with bench_lock(options.out):
        runner = BenchRunner(
            options.out,
            plan,
            [select_device(options.device)],
            slots=options.jobs,
            retry_failed=options.retry_failed,
            most_cells=_SHARD_CELLS,
        )
        runner.watch = _Lines(runner)
        print(f"{len(plan.cells)} cells, {runner.tally.settled} settled", flush=True)
        left = max(1.0, options.limit_s - (time.monotonic() - begun))
        timers = [threading.Timer(left + extra, runner.interrupt) for extra in (0.0, _GRACE_S)]
        for timer in timers:
            timer.daemon = True
            timer.start()
        try:
            bench = runner.run()
        finally:
            for timer in timers:
                timer.cancel()
    _note_server(options)
    trials = sum(cell.settled or 0 for cell in bench.cells)
    print(f"{runner.tally.settled} of {runner.tally.total} cells are settled, {trials} proposals judged.", flush=True)
    return 0


def _note_server(options: argparse.Namespace) -> None:
    """Add what the model server says of itself to a file in the bench's folder; servers of others say nothing."""
    address = options.base_url.removesuffix("/").removesuffix("/v1") + "/health"
    try:
        with urllib.request.urlopen(address, timeout=5) as response:
            said = json.loads(response.read())
    except (OSError, ValueError, urllib.error.URLError):
        return
    path = options.out / SERVER_FILE
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    path.write_text(json.dumps([*known, said], indent=1) + "\n", encoding="utf-8")


def pack(folder: Path, parts: Path) -> list[Path]:
    """The bench as compressed parts of at most 15 MiB each: logs, plan and results, without what can be made again."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz", preset=1) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.name not in ("lock", "run.db-shm") and "bundle" not in path.parts:
                archive.add(path, path.relative_to(folder), recursive=False)
    data = packed.getvalue()
    parts.mkdir(parents=True, exist_ok=True)
    made = []
    for number, start in enumerate(range(0, len(data), _PART_BYTES)):
        made.append(parts / f"methods.tar.xz.{number}")
        made[-1].write_bytes(data[start : start + _PART_BYTES])
    return made


def unpack(parts: Path, folder: Path) -> None:
    """Put the bench of `pack` into a folder, over what is there."""
    found = sorted(parts.glob("methods.tar.xz.*"), key=lambda part: int(part.suffix[1:]))
    if not found:
        raise SystemExit(f"{parts} holds no parts methods.tar.xz.0, ...; name the folder that `pack` wrote.")
    data = b"".join(part.read_bytes() for part in found)
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:xz") as archive:
        archive.extractall(folder, filter="data")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run", help="work on the bench")
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--model", required=True, help="openai:NAME")
    one.add_argument("--base-url", default="http://127.0.0.1:8011/v1")
    one.add_argument("--device", default="cuda:0")
    one.add_argument("--tasks-file", type=Path, default=TASKS)
    one.add_argument("--starts", type=Path, help=f"a folder of starting kernels; {STARTS.name} for a GPU")
    one.add_argument("--tasks", default="", help="only these, with commas")
    one.add_argument("--methods", default="", help="only these, with commas")
    one.add_argument("--seeds", type=int, default=1)
    one.add_argument("--trials", type=int, default=12)
    one.add_argument("--tokens", type=int, default=250_000, help="of one cell")
    one.add_argument("--parallel", type=int, default=4, help="proposals under way in one cell")
    one.add_argument("--jobs", type=int, default=24, help="cells at a time")
    one.add_argument("--temperature", type=float, default=0.7)
    one.add_argument("--max-tokens", type=int, default=1600, help="of one reply")
    one.add_argument("--request-s", type=float, default=300.0)
    one.add_argument("--timing-s", type=float, default=0.25)
    one.add_argument("--limit-s", type=float, default=540.0)
    one.add_argument("--retry-failed", action="store_true")
    for name in ("pack", "unpack"):
        other = commands.add_parser(name)
        other.add_argument("source", type=Path)
        other.add_argument("target", type=Path)
    options = parser.parse_args(arguments)
    if options.command == "pack":
        print("\n".join(f"{part} {part.stat().st_size}" for part in pack(options.source, options.target)))
        return 0
    if options.command == "unpack":
        unpack(options.source, options.target)
        return 0
    if options.starts is None and options.device.startswith("cuda"):
        options.starts = STARTS
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
