"""Text that is no Unicode, which a model can write with an escape of JSON: made fit to be kept where it comes in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.searching import CannedJudge, CannedProposer, judged, new_session, snapshot, source, valid
from warpsmith.cli.pool import harvest
from warpsmith.methods.load import load
from warpsmith.model.brief import Brief, Proposal, Reply, TrialOutcome
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.search.loop import SearchLoop, SearchObserver
from warpsmith.search.session import Session
from warpsmith.strategies import pool

FULL = load("evoengineer-full")
LONE = "\ud800"
CODE = source(3, body=f"  // {LONE}")
AS_JSON = json.dumps({"name": f"n{LONE}", "strategy": f"s{LONE}", "thought": f"t{LONE}", "code": CODE})
IN_WORDS = json.dumps({"name": "n", "strategy": f"s{LONE}", "thought": "t", "code": source(3)})
AS_TEXT = f"name: n{LONE}\nstrategy: s{LONE}\nthought: t{LONE}\ncode:\n```cpp\n{CODE}```\n"


@pytest.mark.parametrize("text", [AS_JSON, IN_WORDS, AS_TEXT], ids=["escaped", "in words", "as it is"])
def test_a_kernel_with_half_a_letter_is_kept_like_any_other(text: str, tmp_path: Path) -> None:
    def answer(brief: Brief) -> str:
        return text if brief.number == 1 else ""

    judge = CannedJudge(lambda candidate: valid(candidate, 2.0))
    with new_session(tmp_path / "run", FULL, repairs=0) as session:
        loop = SearchLoop(session, CannedProposer(answer), judge, SearchObserver())
        session.state.totals.trials = 19  # one is left
        assert loop.run() == "trials"
        trial = session.state.trials[session.state.best]
        candidate = session.candidate(trial.number)
        assert trial.candidate == candidate.id
        for told in (trial.strategy, candidate.strategy, candidate.thought, candidate.main.text):
            told.encode()
        assert len(pool.add_to_pool(harvest(session), tmp_path / "pool.jsonl")) == 1
        known = snapshot(session.state)
        session.state.totals.trials -= 19
    with Session.read(tmp_path / "run") as seen:
        assert snapshot(seen.state) == known
    assert len(pool.pool_records(tmp_path / "pool.jsonl")) == 1


def test_what_a_caller_proposes_is_kept_as_it_counts(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", FULL) as session:
        brief = session.ask()
        assert brief is not None
        kernel = Candidate((SourceFile("k.cpp", CODE),), "cpu", strategy=f"s{LONE}")
        record = session.tell(brief, Proposal(Reply(CODE, f"me{LONE}", file="k.cpp"), kernel, name=f"n{LONE}"))
        assert record.outcome is TrialOutcome.PENDING
        assert record.candidate == session.candidate(1).id
        judged(session, lambda candidate: valid(candidate, 2.0))
        known = snapshot(session.state)
    with Session.read(tmp_path / "run") as seen:
        assert snapshot(seen.state) == known
