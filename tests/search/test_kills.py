"""kill -9 at random moments: what was received stays, nothing is paid for twice, the best is never lost."""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import time
from collections import Counter
from pathlib import Path

from tests.scripted import Body, ScriptedServer, Step, say
from tests.searching import CannedJudge, factor, invalid, reply_text, run_setup, valid
from warpsmith.llm.model import ModelContext, ModelOptions, RetryPolicy
from warpsmith.llm.spec import parse
from warpsmith.methods.load import load
from warpsmith.model.brief import Brief, Reply
from warpsmith.model.candidate import Candidate
from warpsmith.model.evaluation import Evaluation
from warpsmith.proposers.models import connect
from warpsmith.run_log.events import BriefAsked, Budget, ProposalRead, ReplyReceived, StopReason, TrialJudged
from warpsmith.run_log.log import LOG_FILE, RunLog
from warpsmith.search.loop import SearchLoop, SearchObserver
from warpsmith.search.session import Session, read_state

KILLS = 10
TRIALS = 2000  # more than there is time for until the last sitting
LAST_TRIALS = 60  # what the last sitting adds
PARALLEL = 3


def verdict(candidate: Candidate) -> Evaluation:
    time.sleep(0.002)
    number = factor(candidate)
    return invalid(candidate) if number % 5 == 0 else valid(candidate, 1 + number % 97 / 10)


class Keeper(SearchObserver):
    """Notes each reply once the session says that it is kept."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def replied(self, brief: Brief, reply: Reply) -> None:
        os.write(self._handle, f"{number_in(reply.text)}\n".encode())


def number_in(text: str) -> int:
    found = re.search(r"kernel (\d+)", text)
    assert found is not None
    return int(found[1])


def sit(folder: Path, url: str, kept: Path, more: int) -> None:
    """One sitting, in a process of its own."""
    options = ModelOptions(retries=RetryPolicy(request_s=5.0, attempts=3))
    proposer = connect(parse("openai:scripted"), options, ModelContext.load({"OPENAI_BASE_URL": url}))
    if (folder / LOG_FILE).exists() and is_begun(folder):
        session = Session.resume(folder)
        if more:
            done = session.state.totals.trials
            session = reopened(session, folder, done + more)
    else:
        for path in folder.iterdir() if folder.exists() else ():  # killed before the first event
            path.unlink()
        session = Session.create(folder, run_setup(load("evoengineer-full"), budget=Budget(trials=TRIALS)))
    with session:
        reason = SearchLoop(session, proposer, CannedJudge(verdict), Keeper(kept), parallel=PARALLEL).run()
        session.end(reason)
    proposer.close()


def is_begun(folder: Path) -> bool:
    with RunLog.open(folder) as log:
        return any(True for _ in log.entries())


def reopened(session: Session, folder: Path, trials: int) -> Session:
    with session:
        session.end(StopReason.TOLD)
    return Session.resume(folder, budget=Budget(trials=trials))


def wait_for_requests(server: ScriptedServer, more: int) -> None:
    """Until the server has been asked so many times more."""
    wanted, deadline = len(server.requests) + more, time.monotonic() + 60.0
    while len(server.requests) < wanted:
        assert time.monotonic() < deadline, "the sitting asks for nothing"
        time.sleep(0.002)


def best_score(folder: Path) -> float:
    with RunLog.read(folder) as log:
        state = read_state(log, log.setup())
    best = state.trials.get(state.best)
    return best.score or 0.0 if best else 0.0


def test_nothing_is_lost_however_often_a_run_is_killed(tmp_path: Path) -> None:
    folder, kept = tmp_path / "run", tmp_path / "kept"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.search.test_kills", "openai", "openai.types.chat"])
    rng = random.Random(4)
    best = 0.0

    def script(number: int, body: Body) -> Step:
        return say(reply_text(number), prompt=10, completion=5, delay_s=0.003)

    with ScriptedServer(script) as server:
        for number in range(KILLS):
            sitting = context.Process(target=sit, args=(folder, server.openai_url, kept, 0))
            sitting.start()
            if number % 2:  # in the middle of it, however long it takes to get there
                wait_for_requests(server, rng.randint(1, 10))
            sitting.join(rng.uniform(0.0, 0.05) if number % 2 else rng.uniform(0.05, 0.6))
            sitting.kill()
            sitting.join()
            if (folder / LOG_FILE).exists() and is_begun(folder):
                now = best_score(folder)
                assert now >= best
                best = now
        last = context.Process(target=sit, args=(folder, server.openai_url, kept, LAST_TRIALS))
        last.start()
        try:
            last.join(120)
            assert last.exitcode == 0
        finally:
            last.kill()
        paid = len(server.requests)

    with RunLog.read(folder) as log:
        entries = [entry.event for entry in log.entries()]
        state = read_state(log, log.setup())
    replies = [event for event in entries if isinstance(event, ReplyReceived)]
    numbers = [number_in(event.reply.text) for event in replies]
    assert best > 1.0
    assert best_score(folder) >= best
    # What a sitting knew to be kept is there, though it was killed the next moment.
    assert {int(line) for line in kept.read_text().split()} <= set(numbers)
    # Every reply is there once, answers one brief and became one proposal, judged to the end.
    assert max(Counter(numbers).values()) == max(Counter(event.brief for event in replies).values()) == 1
    proposed = Counter(event.brief for event in entries if isinstance(event, ProposalRead))
    assert proposed == Counter(event.brief for event in replies)
    assert not state.pending
    first = Counter(event.trial for event in entries if isinstance(event, TrialJudged) and not event.again)
    assert max(first.values()) == 1
    # No more was paid for than was received or under way at a kill.
    assert paid - len(replies) <= KILLS * PARALLEL
    assert len([event for event in entries if isinstance(event, BriefAsked)]) >= paid
    assert state.totals.tokens == 15 * len(replies)
