"""Agents as proposers: real processes with the tools of a run; hostile, slow and crashing ones lose it nothing."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import anyio
import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from tests.searching import CannedJudge, factor, invalid, new_session, source, valid
from warpsmith.agents.bound import BoundTools
from warpsmith.agents.mcp_server import create_server
from warpsmith.evaluator.sandbox.landlock import kernel_abi
from warpsmith.methods.load import load
from warpsmith.model.brief import Brief, Prompt, Reply
from warpsmith.model.candidate import Candidate
from warpsmith.model.errors import ProposerFault, ProposerRefused, UsageError
from warpsmith.model.evaluation import Evaluation
from warpsmith.proposers.agent import AgentProposer
from warpsmith.proposers.choose import ProposerOptions, choose
from warpsmith.proposers.step import AgentStep, StepBudget
from warpsmith.proposers.step_server import StepServer
from warpsmith.run_log.events import Budget, StopReason
from warpsmith.search.loop import SearchLoop, SearchObserver
from warpsmith.search.session import Session

AGENTIC = load("agentic")
HOSTILE = Path(__file__).with_name("hostile_agent.py")


def by_number(candidate: Candidate) -> Evaluation:
    return invalid(candidate) if factor(candidate) == 9 else valid(candidate, 1 + factor(candidate) / 100)


def run(session: Session, proposer: AgentProposer) -> StopReason:
    try:
        return SearchLoop(session, proposer, CannedJudge(by_number), SearchObserver(), parallel=1).run()
    finally:
        proposer.close()


def first_brief(folder: Path) -> Brief:
    with new_session(folder, AGENTIC) as session:
        brief = session.ask()
        assert brief is not None
        return brief


@pytest.mark.skipif(kernel_abi() < 6, reason="Landlock with scoped signals is what keeps an agent from the run")
def test_a_hostile_agent_gains_nothing(tmp_path: Path) -> None:
    folder, cache, notes = tmp_path / "run", tmp_path / "cache", tmp_path / "notes"
    cache.mkdir()
    notes.mkdir()
    environ = {
        **os.environ,
        "WARPSMITH_AGENT_WRITES": str(notes),
        "HOSTILE_KERNEL": source(1),
        "HOSTILE_RUN": str(os.getpid()),
    }
    command = f"{sys.executable} {HOSTILE} {folder} {cache} {notes}"
    with new_session(folder, AGENTIC, budget=Budget(trials=4)) as session:
        (folder / "task.py").write_text("the task")
        proposer = AgentProposer(command, StepBudget(trials=2, seconds=60), environ)
        run_once = AgentOnce(proposer)
        reason = SearchLoop(session, run_once, CannedJudge(by_number), SearchObserver(), parallel=1).run()
        assert reason == "proposer_refused"
        state = session.state
        # Two kernels were evaluated, as the step allows; the link it left is not followed, and what it printed is none.
        assert [factor(session.candidate(number)) for number in state.trials] == [1, 2]
        assert [trial.score for trial in state.trials.values()] == [pytest.approx(1.01), pytest.approx(1.02)]
        assert (folder / "task.py").read_text() == "the task"
        session.end(reason)
    Session.read(folder)  # the log holds what the run wrote
    assert list(cache.iterdir()) == []
    found = json.loads((notes / "found.json").read_text())
    refused = ("PermissionError", "OperationalError")
    for name in ("log", "cache"):
        assert found[f"write a verdict into the {name}"].startswith(refused), found
    for name in ("edit the task", "remove the run", "kill the run", "read the run's memory"):
        assert found[name].startswith(refused), found
    for name in ("another token", "another tool", "a verdict among the arguments", "a private method"):
        assert json.loads(found[name])["error"], found
    assert "takes trial (int)" in found["a number that is none"]
    assert "too long" in found["a request without end"] or "Error" in found["a request without end"]
    assert "error" in found["deep JSON"]
    assert json.loads(found["evaluate"])["result"]["status"] == "ok"
    assert found["more than the step may"].count("no evaluation is left in this step") == 2
    seen = (notes / "alive").stat().st_size
    time.sleep(0.1)
    assert (notes / "alive").stat().st_size == seen, "a process that the agent left behind still runs"


class AgentOnce:
    """The agent for one brief, then no more."""

    def __init__(self, agent: AgentProposer) -> None:
        self.name, self.concurrency = agent.name, 1
        self._agent = agent
        self.bind, self.prompt, self.close = agent.bind, agent.prompt, agent.close
        self._asked = False

    def propose(self, brief: Brief, prompt: Prompt) -> Reply:
        if self._asked:
            raise ProposerRefused("once is enough.")
        self._asked = True
        return self._agent.propose(brief, prompt)


HONEST = """
import asyncio, json, os, socket, sys
from pathlib import Path

def tool(name, **arguments):
    link = socket.socket(socket.AF_UNIX)
    link.connect(os.environ["WARPSMITH_STEP_SOCKET"])
    with link, link.makefile("rb") as answers:
        request = {"token": os.environ["WARPSMITH_STEP_TOKEN"], "tool": name, "arguments": arguments}
        link.sendall(json.dumps(request).encode() + b"\\n")
        return json.loads(answers.readline())

brief = sys.stdin.read()
assert "kernel.cpp" in brief and Path("knowledge/strategies.md").exists() and Path(".mcp.json").exists()
number = json.loads(Path("brief.json").read_text())["number"]
parents = sorted(Path("parents").glob("*")) if number > 1 else []
source = os.environ["KERNEL"]
for each in (9, number):
    verdict = tool("evaluate", source=source.replace("7.0f", f"{each}.0f"))
Path("kernel.cpp").write_text("// strategy: step\\n" + source.replace("7.0f", f"{number}.0f"))
"""


def test_an_agent_works_in_a_folder_of_its_own_with_the_tools_of_the_run(tmp_path: Path) -> None:
    script = tmp_path / "honest.py"
    script.write_text(HONEST)
    environ = {**os.environ, "KERNEL": source(7)}
    proposer = AgentProposer(f"{sys.executable} {script}", StepBudget(seconds=60), environ)
    with new_session(tmp_path / "run", AGENTIC, budget=Budget(trials=3)) as session:
        assert run(session, proposer) == "trials"
        # Step 1: a wrong kernel, a right one, which it proposes; step 2 has only its proposal left.
        assert [factor(session.candidate(number)) for number in session.state.trials] == [9, 1, 4]
        assert [bool(trial.step) for trial in session.state.trials.values()] == [True, True, False]
        assert session.state.trials[3].strategy == "step"
        assert session.state.totals.failed_calls == 0


@pytest.mark.parametrize(
    ("command", "budget", "why"),
    [
        ("sleep 60", StepBudget(seconds=0.5), r"did not end within 0\.5 s and left no kernel"),
        ("echo no credit >&2; exit 3", StepBudget(), "ended with status 3 and left no kernel: no credit"),
        ("no-such-agent-anywhere", StepBudget(), "cannot be run"),
    ],
)
def test_an_agent_without_a_proposal_is_a_fault(tmp_path: Path, command: str, budget: StepBudget, why: str) -> None:
    brief, proposer = first_brief(tmp_path / "run"), AgentProposer(command, budget)
    with pytest.raises(ProposerFault, match=why):
        proposer.propose(brief, proposer.prompt(brief))


def test_what_an_agent_leaves_counts_however_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brief = first_brief(tmp_path / "run")
    proposer = AgentProposer("echo 'a kernel' > kernel.cpp; kill -9 $$", StepBudget(seconds=20))
    reply = proposer.propose(brief, proposer.prompt(brief))
    assert (reply.text, reply.file, reply.model) == ("a kernel\n", "kernel.cpp", "agent")
    said = AgentProposer("echo as a reply", StepBudget(seconds=20))
    assert said.propose(brief, said.prompt(brief)).text == "as a reply\n"
    said.close()
    monkeypatch.setattr("warpsmith.proposers.agent.run_watched", None)  # nothing is started any more
    with pytest.raises(ProposerFault, match="was stopped"):
        said.propose(brief, said.prompt(brief))


def test_agents_are_chosen_by_name(tmp_path: Path) -> None:
    found = choose("agent:my-agent --print", ProposerOptions(step_trials=3, step_s=60.0), environ={})
    assert found.sentence.startswith("the agent 'my-agent --print'")
    assert found.uncounted
    model = choose("agent:openai:gpt", ProposerOptions(base_url="http://127.0.0.1:9/v1"), environ={})
    assert (model.sentence, model.unpriced, model.uncounted) == (
        "the reference agent over openai:gpt.",
        ("openai:gpt",),
        False,
    )
    for spec, why in (("agent:", "names no command"), ("agent:openai:a,openai:b", "an agent has one")):
        with pytest.raises(UsageError, match=why):
            choose(spec, ProposerOptions(base_url="http://127.0.0.1:9/v1"), environ={})


@pytest.mark.parametrize("process", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_bound_server_offers_the_tools_of_the_step_over_mcp(tmp_path: Path, process: bool) -> None:
    step = AgentStep(first_brief(tmp_path / "run"), None, StepBudget(), tmp_path)
    with StepServer(step, tmp_path / "s") as server:
        command = ["-P", "-m", "warpsmith", "mcp", "--bound", str(server.path)]  # as in `.mcp.json`
        started = StdioServerParameters(command=sys.executable, args=command, env={**os.environ, **server.variables})
        here = create_server(BoundTools(str(server.path), server.token))

        async def main() -> None:
            async with Client(started if process else here) as client:
                names = {tool.name for tool in (await client.list_tools()).tools}
                assert names == {"evaluate", "profile", "read_run", "search_knowledge"}
                refused = await client.call_tool("evaluate", {"kernel": "int launch();\n"})
                assert refused.is_error
                assert "no evaluation is left" in str(refused.content)
                missing = await client.call_tool("evaluate", {"kernel": "kernel.cpp"})
                assert "write the file first" in str(missing.content)
                known = await client.call_tool("search_knowledge", {"words": "simd"})
                assert not known.is_error
                resources = (await client.list_resources()).resources
                assert not [each for each in resources if "/run/" in str(each.uri)]

        anyio.run(main)
    with pytest.raises(UsageError, match="the step has ended"):
        BoundTools(str(server.path), server.token).call("read_run", {})


def test_a_brief_that_asks_for_no_kernel_is_answered_in_a_file(tmp_path: Path) -> None:
    with new_session(tmp_path / "run", load("cupilot")) as session:
        brief = session.ask()
        assert brief is not None
    proposer = AgentProposer("echo 'strategy: tiles' > reply.md", StepBudget(seconds=20))
    prompt = proposer.prompt(brief)
    assert "`reply.md`" in prompt.messages[-1].text
    reply = proposer.propose(brief, prompt)
    assert (reply.text, reply.file) == ("strategy: tiles\n", "")
    with pytest.raises(UsageError, match="asks for no kernel"):
        AgentStep(brief, None, StepBudget(), tmp_path).evaluate("int launch();")
