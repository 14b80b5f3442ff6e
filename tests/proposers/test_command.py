"""The proposer that is any program: real shells, real process groups."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.prompts.briefs import EVERYTHING, brief
from warpsmith.model.brief import Message, Prompt, Role
from warpsmith.model.errors import ProposerFault, ProposerRefused, UsageError
from warpsmith.proposers.command import CommandProposer, brief_json, plain

BRIEF = brief(EVERYTHING)
PROMPT = Prompt((Message(Role.SYSTEM, "You write kernels."), Message(Role.USER, "Write one: é.\n")))


def test_the_prompt_goes_in_and_the_reply_comes_out() -> None:
    reply = CommandProposer("cat").propose(BRIEF, PROMPT)

    assert reply.text == "You write kernels.\n\nWrite one: é.\n"
    assert (reply.model, reply.usage.tokens, reply.usage.cost_usd) == ("command", 0, None)
    assert reply.usage.seconds > 0


def test_the_prompt_is_that_of_the_brief() -> None:
    proposer = CommandProposer("wc -c")
    prompt = proposer.prompt(BRIEF)

    assert "softmax" in prompt.messages[-1].text
    assert int(proposer.propose(BRIEF, prompt).text) == len(plain(prompt).encode())


def test_shell_syntax_works() -> None:
    assert CommandProposer("head -c 3 | tr Y y && echo ok").propose(BRIEF, PROMPT).text == "youok\n"


def test_a_program_finds_the_whole_brief() -> None:
    reply = CommandProposer('cat "$WARPSMITH_BRIEF"').propose(BRIEF, PROMPT)

    found = json.loads(reply.text)
    assert found == json.loads(brief_json(BRIEF))
    assert (found["number"], found["move"]) == (12, "cross")
    assert found["problem"]["task"]["name"] == "softmax"


def test_a_conversation_reads_from_top_to_bottom() -> None:
    talk = Prompt((*PROMPT.messages, Message(Role.ASSISTANT, "Like this?"), Message(Role.USER, "Faster.")))

    assert plain(talk) == "You write kernels.\n\nWrite one: é.\n\nYou answered:\n\nLike this?\n\nFaster.\n"


@pytest.mark.parametrize("command", ["no-such-command-anywhere --flag", "/etc/passwd"])
def test_a_command_that_cannot_be_run_is_refused(command: str) -> None:
    with pytest.raises(ProposerRefused, match=r"the command '.*' cannot be run \(.+\); check its name") as caught:
        CommandProposer(command).propose(BRIEF, PROMPT)

    assert command in str(caught.value)


def test_a_failure_without_a_reply_is_a_fault_with_the_last_complaint() -> None:
    with pytest.raises(ProposerFault, match="ended with status 3 and wrote nothing: no credit left") as caught:
        CommandProposer("echo first >&2; echo no credit left >&2; exit 3").propose(BRIEF, PROMPT)

    assert not isinstance(caught.value, ProposerRefused)


def test_a_success_without_a_reply_is_a_fault() -> None:
    with pytest.raises(ProposerFault, match="ended with status 0 and wrote nothing: no reason given"):
        CommandProposer("true").propose(BRIEF, PROMPT)


def test_a_reply_counts_whatever_the_exit_status() -> None:
    assert CommandProposer("echo kernel; exit 1").propose(BRIEF, PROMPT).text == "kernel\n"


def test_a_command_that_does_not_read_its_input_may_answer() -> None:
    big = Prompt((Message(Role.USER, "x" * 300_000),))

    assert CommandProposer("echo done").propose(BRIEF, big).text == "done\n"


def test_out_of_time_is_a_fault_and_ends_all_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    command = f"sleep 60 & echo $! $$ > {pids}; echo half; wait"
    with pytest.raises(ProposerFault, match=r"did not end within 0\.3 s"):
        CommandProposer(command, timeout_s=0.3).propose(BRIEF, PROMPT)

    assert _all_end(pids)


def test_what_a_command_leaves_behind_neither_delays_nor_outlives_it(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    reply = CommandProposer(f"sleep 60 & echo $! > {pids}; echo done", timeout_s=30).propose(BRIEF, PROMPT)

    assert reply.text == "done\n"
    assert reply.usage.seconds < 30
    assert _all_end(pids)


def test_closing_stops_what_is_running(tmp_path: Path) -> None:
    started = tmp_path / "started"
    proposer = CommandProposer(f"touch {started}; sleep 60")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(proposer.propose, BRIEF, PROMPT)
        while not started.exists():
            time.sleep(0.005)
        proposer.close()

        with pytest.raises(ProposerFault, match="was stopped"):
            waiting.result(timeout=10)
    with pytest.raises(ProposerFault, match="was stopped"):
        proposer.propose(BRIEF, PROMPT)


def test_keys_reach_the_command_but_do_not_come_back() -> None:
    environ = {"PATH": "/usr/bin:/bin", "MY_API_KEY": "sk-0123456789"}
    reply = CommandProposer("echo ${#MY_API_KEY} $MY_API_KEY", environ=environ).propose(BRIEF, PROMPT)
    assert reply.text == "13 [key]\n"

    with pytest.raises(ProposerFault, match=r"bad key \[key\]"):
        CommandProposer("echo bad key $MY_API_KEY >&2; exit 1", environ=environ).propose(BRIEF, PROMPT)


def test_bytes_that_are_no_text_are_a_reply_all_the_same() -> None:
    assert CommandProposer(r"printf 'a\377b'").propose(BRIEF, PROMPT).text == "a\ufffdb"


def test_an_empty_command_is_an_error() -> None:
    with pytest.raises(UsageError, match="the command is empty"):
        CommandProposer("  ")


def _all_end(pids: Path) -> bool:
    """Whether the processes of a list are gone, or soon are: to be killed takes a moment."""
    until = time.monotonic() + 10
    left = [int(pid) for pid in pids.read_text().split()]
    while left and time.monotonic() < until:
        left = [pid for pid in left if _runs(pid)]
        time.sleep(0.005)
    return not left


def _runs(pid: int) -> bool:
    """One that was killed and only waits to be collected does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
