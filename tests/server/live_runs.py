"""Writes runs while somebody watches: the real session and log, with made-up proposals and verdicts at no cost.

`python -m tests.server.live_runs FOLDER TRIALS` is a process that can be killed.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

from tests.report.synthetic import Maker, begun
from warpsmith.prompts.renderer import render
from warpsmith.run_log.events import StopReason
from warpsmith.search.session import Session

MAKER = Maker(lines=8)


def open_session(folder: Path, trials: int, method: str = "evoengineer-full") -> Session:
    """A new run, or the one in the folder where its log ends."""
    if (folder / "run.db").exists():
        return Session.resume(folder)
    return Session.create(folder, begun(trials, method, MAKER))


def go_on(session: Session, upto: int, maker: Maker = MAKER, pause_s: float = 0.0) -> None:
    """Propose and judge until there are so many trials; the run ends where its budget does."""
    while session.state.totals.trials < upto and (brief := session.ask()) is not None:
        session.sent(brief, render(brief))
        session.answer(brief, maker.reply(brief))
        while jobs := session.pending():
            for job in jobs:
                session.judge(job, maker.verdict(job.candidate))
        time.sleep(pause_s)
    if session.stop_reason is StopReason.TRIALS:
        session.end(StopReason.TRIALS)


if __name__ == "__main__":
    with open_session(Path(sys.argv[1]), int(sys.argv[2])) as opened:
        go_on(opened, int(sys.argv[2]), replace(MAKER), pause_s=0.02)
