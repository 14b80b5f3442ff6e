"""What the reading of replies gained on a record of methods: first tries that compile, before and after.

    python -m benchmarks.reply_rates FOLDER --out benchmarks/h200/methods/reply_rates.json

Every reply is in the logs, so the earlier reading is applied to the same replies: without declarations of kernels that
are launched above their definition, without casts of streams and `const` of parameters, and with invented headers.
Where it gives another program and the new one compiled, the earlier one is compiled here with nvcc; no GPU is needed.
Tasks on whose replies the reading was changed are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest.mock import patch

from benchmarks.methods_summary import read_cell, settled

from warpsmith.backends.source import backend_named
from warpsmith.experiments.collect import is_begun
from warpsmith.experiments.plan import cell_folder, read_plan
from warpsmith.model.brief import Brief, Reply
from warpsmith.model.build import Artifact, Target
from warpsmith.model.method import Move
from warpsmith.model.settings import Limits, Paths
from warpsmith.prompts import parser
from warpsmith.prompts.parser import parse
from warpsmith.run_log.events import ProposalRead, ReplyReceived, RunCreated
from warpsmith.run_log.log import RunLog

LEFT_OUT = frozenset({"huber_loss", "matmul"})
"""Tasks of which replies were looked at when the reading was changed (with softmax, relu, layernorm, mse and sums)."""


@dataclass(frozen=True)
class ReplyRates:
    """First tries of a record."""

    proposals: int
    readable: int
    compiled_after: int
    compiled_before: int
    valid_after: int
    changed: int  # programs that the earlier reading gives in another form
    tasks_left_out: tuple[str, ...]


def rates(folder: Path) -> ReplyRates:
    """The rates of a bench's folder."""
    plan = read_plan(folder)
    total = readable = after = before = valid = changed = 0
    for key in plan.cells:
        where = cell_folder(folder, key)
        if key.task in LEFT_OUT or not is_begun(where):
            continue
        rows = {row.trial: row for row in settled(read_cell(where, key)[0]) if row.first_try}
        replies, proposals, setup = _logged(where)
        for trial, row in rows.items():
            total += 1
            readable += row.outcome != "unreadable"
            after += row.compiled
            valid += row.outcome == "ok"
            other = _earlier(setup, replies.get(proposals[trial].brief), proposals[trial])
            changed += other is not None
            before += row.compiled and (other is None or _compiles(setup, other))
    return ReplyRates(total, readable, after, before, valid, changed, tuple(sorted(LEFT_OUT)))


def _logged(folder: Path) -> tuple[dict[int, Reply], dict[int, ProposalRead], RunCreated]:
    replies: dict[int, Reply] = {}
    proposals: dict[int, ProposalRead] = {}
    with RunLog.read(folder) as log:
        setup = log.setup()
        for entry in log.entries():
            if isinstance(entry.event, ReplyReceived):
                replies[entry.event.brief] = entry.event.reply
            elif isinstance(entry.event, ProposalRead) and entry.event.trial:
                proposals[entry.event.trial] = entry.event
    return replies, proposals, setup


def _earlier(setup: RunCreated, reply: Reply | None, proposal: ProposalRead) -> str | None:
    """The program that the earlier reading finds, if it is another one."""
    if reply is None or proposal.candidate is None:
        return None
    brief = Brief(1, "init", Move.INIT, "evoengineer/init", setup.problem, seed=0)
    with _as_written():
        found = parse(reply, brief).candidate
    text = found.main.text if found is not None else ""
    return text if text and text != proposal.candidate.main.text else None


def _as_written() -> AbstractContextManager[object]:
    """Read programs as they were written while the block runs."""
    return patch.object(parser, "_mended", lambda code, contract: code)


def _compiles(setup: RunCreated, text: str) -> bool:
    problem = setup.problem
    backend = backend_named(problem.backend).configured(Paths.from_environment(), Limits())
    brief = Brief(1, "init", Move.INIT, "evoengineer/init", problem, seed=0)
    with _as_written():
        candidate = parse(Reply(f"```cuda\n{text}\n```", "record"), brief).candidate
    assert candidate is not None, "it was read before"
    return isinstance(
        backend.build(candidate, problem.contract, Target(problem.kind, problem.arch or "native")), Artifact
    )


def main() -> int:
    """The command line."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--out", type=Path, required=True)
    options = arguments.parse_args()
    text = json.dumps(asdict(rates(options.folder)), indent=1)
    options.out.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
