"""cuPilot over a real HTTP server: four epochs, four roles with a model each, then the recording replayed."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from tests.scripted import Body, ScriptedServer, Step, say
from tests.searching import CannedJudge, factor, invalid, reply_text, run_setup, valid
from warpsmith.llm.model import ModelContext, ModelOptions
from warpsmith.llm.spec import ModelSpec, parse
from warpsmith.methods.load import load
from warpsmith.model.brief import TrialOutcome
from warpsmith.model.candidate import Candidate
from warpsmith.model.evaluation import Evaluation
from warpsmith.proposers.models import connect
from warpsmith.proposers.recorded import RecordedProposer
from warpsmith.run_log.events import AskAgain, BriefAsked, Budget, PromptSent, ProposalRead, ReplyReceived
from warpsmith.run_log.log import RunLog
from warpsmith.search.loop import SearchLoop, SearchObserver
from warpsmith.search.profiles import ProfileResult
from warpsmith.search.session import Session, read_state

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


def look(candidate: Candidate, evaluation: Evaluation) -> ProfileResult:
    return ProfileResult(DIGEST, 0.1)


def verdict(candidate: Candidate) -> Evaluation:
    return invalid(candidate) if factor(candidate) % 4 == 0 else valid(candidate, 1.0 + factor(candidate) / 100)


def test_four_epochs_with_a_model_for_each_role_and_their_replay(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    method = load("cupilot")
    with ScriptedServer(play) as server:
        context = ModelContext.load({"OPENAI_BASE_URL": server.openai_url})
        proposer = connect(parse("openai:nobody"), ModelOptions(), context, roles=ROLES)
        with Session.create(folder, run_setup(method, budget=Budget(trials=TRIALS))) as session:
            loop = SearchLoop(session, proposer, CannedJudge(verdict), SearchObserver(), parallel=3, profile=look)
            assert loop.run() == "trials"
            live = session.state
            tokens = live.totals.tokens
        proposer.close()
    models = Counter(seen.body["model"] for seen in server.requests)
    informed = {s.body["model"] for s in server.requests if DIGEST in s.body["messages"][-1]["content"]}
    assert informed == {"the-strategist", "the-translator"}
    assert set(models) == {f"the-{role}" for role in ROLES}
    with RunLog.read(folder) as log:
        events = [entry.event for entry in log.entries()]
        again = read_state(log, log.setup())
    assert again.population.members == live.population.members
    assert (again.trials, again.ideas, again.effects, again.best) == (live.trials, live.ideas, live.effects, live.best)
    asked = [event for event in events if isinstance(event, BriefAsked)]
    assert {event.stage for event in asked if event.operator in ("initialise", "cross", "mutate")} == {0, 1, 2, 3}
    assert {event.operator for event in asked} == {"initialise", "cross", "mutate", "translate", "revise", "align"}
    assert models["the-translator"] + models["the-revisor"] == live.totals.trials == TRIALS
    worth = {"the-strategist": 11, "the-aligner": 1001, "the-translator": 102, "the-revisor": 102}
    assert tokens == sum(worth[model] * count for model, count in models.items())
    # The first answer of the strategist went back to it, and was no trial.
    unread = [event for event in events if isinstance(event, ProposalRead) and event.outcome is TrialOutcome.UNREADABLE]
    assert [event.trial for event in unread] == [0]
    assert [event.purpose.brief for event in asked if isinstance(event.purpose, AskAgain)] == [unread[0].brief]
    prompted = [event.brief for event in events if isinstance(event, PromptSent)]
    assert sorted(event.brief for event in events if isinstance(event, ReplyReceived)) == sorted(prompted)
    assert all(trial.aligned for trial in live.trials.values() if trial.number in live.found[:-3])
    _replays(folder, tmp_path / "replay")


def _replays(recorded: Path, folder: Path) -> None:
    """The same programs in the same order, under the same method, with nobody to think."""
    with Session.read(recorded) as session:
        programs = [trial.candidate for trial in session.state.trials.values() if trial.candidate]
    proposer = RecordedProposer(recorded)
    with Session.create(folder, run_setup(load("cupilot"), budget=Budget(trials=len(programs)))) as session:
        SearchLoop(session, proposer, CannedJudge(verdict), SearchObserver(), parallel=1).run()
        assert [factor(session.candidate(trial)) for trial in session.state.trials] == _factors(recorded)
    proposer.close()


def _factors(folder: Path) -> list[int]:
    with Session.read(folder) as session:
        return [factor(session.candidate(number)) for number in session.state.trials]
