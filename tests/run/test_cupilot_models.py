"""cuPilot over a real HTTP server: four epochs, four roles with a model each, then the recording replayed."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.scripted import Body, ScriptedServer, Step, say
from tests.searching import CannedJudge, begun, factor, invalid, reply_text, valid
from warpsmith.archive.events import Asked, Budget, Prompted, Proposed, Replied
from warpsmith.archive.log import Archive
from warpsmith.core.candidate import Candidate
from warpsmith.core.evaluation import Evaluation
from warpsmith.core.search import Outcome
from warpsmith.llm.model import Options, Surroundings
from warpsmith.llm.spec import ModelSpec, parse
from warpsmith.methods.loading import load
from warpsmith.propose.chat import connect
from warpsmith.propose.replay import ReplayProposer
from warpsmith.run.loop import Loop, Watcher
from warpsmith.run.profiling import Sight
from warpsmith.run.session import Session, fold

TRIALS = 28
DIGEST = "Bottleneck: a planted one."
ROLES = {role: ModelSpec("openai", f"the-{role}") for role in ("strategist", "translator", "revisor", "aligner")}
WANTED = re.compile(r"[Gg]ive (\d+) ")


def play(number: int, body: Body) -> Step:
    """A model for each role; whoever is asked for something else has misunderstood, and the run shows it."""
    role, asked = body["model"].removeprefix("the-"), body["messages"][-1]["content"]
    if role == "strategist":
        wanted = WANTED.search(asked)
        assert wanted is not None
        lines = [f"strategy: step {number} in {part} parts\nthought: idea {part}" for part in range(int(wanted[1]))]
        return say("\n".join(lines) if number != 1 else "Let me think about it.", prompt=10, completion=1)
    if role == "aligner":
        return say(f"strategy: what the code of {number} does", prompt=1000, completion=1)
    assert role in ("translator", "revisor"), role
    return say(reply_text(number), prompt=100, completion=2)


def look(candidate: Candidate, evaluation: Evaluation) -> Sight:
    return Sight(DIGEST, 0.1)


def verdict(candidate: Candidate) -> Evaluation:
    return invalid(candidate) if factor(candidate) % 4 == 0 else valid(candidate, 1.0 + factor(candidate) / 100)


def test_four_epochs_with_a_model_for_each_role_and_their_replay(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    method = load("cupilot")
    with ScriptedServer(play) as server:
        surroundings = Surroundings.gather({"OPENAI_BASE_URL": server.openai_url})
        proposer = connect(parse("openai:nobody"), Options(), surroundings, roles=ROLES)
        with Session.begin(folder, begun(method, budget=Budget(trials=TRIALS))) as session:
            loop = Loop(session, proposer, CannedJudge(verdict), Watcher(), parallel=3, look=look)
            assert loop.run() == "trials"
            live = session.ledger
            tokens = live.totals.tokens
        proposer.close()
    models = Counter(seen.body["model"] for seen in server.requests)
    informed = {s.body["model"] for s in server.requests if DIGEST in s.body["messages"][-1]["content"]}
    assert informed == {"the-strategist", "the-translator"}
    assert set(models) == {f"the-{role}" for role in ROLES}
    with Archive.read(folder) as archive:
        events = [entry.event for entry in archive.entries()]
        again = fold(archive, archive.begun())
    assert again.population.members == live.population.members
    assert (again.trials, again.ideas, again.effects, again.best) == (live.trials, live.ideas, live.effects, live.best)
    asked = [event for event in events if isinstance(event, Asked)]
    assert {event.stage for event in asked if event.operator in ("initialise", "cross", "mutate")} == {0, 1, 2, 3}
    assert {event.operator for event in asked} == {"initialise", "cross", "mutate", "translate", "revise", "align"}
    assert models["the-translator"] + models["the-revisor"] == live.totals.trials == TRIALS
    worth = {"the-strategist": 11, "the-aligner": 1001, "the-translator": 102, "the-revisor": 102}
    assert tokens == sum(worth[model] * count for model, count in models.items())
    # The first answer of the strategist went back to it, and was no trial.
    unread = [event for event in events if isinstance(event, Proposed) and event.outcome is Outcome.UNREADABLE]
    assert [event.trial for event in unread] == [0]
    assert [event.again for event in asked if event.again] == [unread[0].brief]
    prompted = [event.brief for event in events if isinstance(event, Prompted)]
    assert sorted(event.brief for event in events if isinstance(event, Replied)) == sorted(prompted)
    assert all(trial.aligned for trial in live.trials.values() if trial.number in live.found[:-3])
    _replays(folder, tmp_path / "replay")


def _replays(recorded: Path, folder: Path) -> None:
    """The same programs in the same order, under the same method, with nobody to think."""
    with Session.peek(recorded) as session:
        programs = [trial.candidate for trial in session.ledger.trials.values() if trial.candidate]
    proposer = ReplayProposer(recorded)
    with Session.begin(folder, begun(load("cupilot"), budget=Budget(trials=len(programs)))) as session:
        Loop(session, proposer, CannedJudge(verdict), Watcher(), parallel=1).run()
        assert [factor(session.candidate(trial)) for trial in session.ledger.trials] == _factors(recorded)
    proposer.close()


def _factors(folder: Path) -> list[int]:
    with Session.peek(folder) as session:
        return [factor(session.candidate(number)) for number in session.ledger.trials]
