"""What the reading of replies gained: the earlier reading of a reply, and whether its program compiles."""

from __future__ import annotations

from benchmarks import reply_rates

from tests.prompts.briefs import brief, problem
from warpsmith.methods.load import load
from warpsmith.model.brief import Reply, TrialOutcome
from warpsmith.model.method import MethodOperator, Move
from warpsmith.model.settings import Settings
from warpsmith.prompts.parser import parse
from warpsmith.run_log.events import Budget, ProposalRead, RunConfig, RunCreated

SETUP = RunCreated(
    RunConfig("softmax.py", "cpu", "cpu", "openai:tiny", Budget(), Settings()), load("eoh"), problem("cpu"), "0"
)
CODE = (
    'extern "C" int launch(const float* x, float* out, int64_t rows, int64_t cols, void* workspace, void* stream) {\n'
    "  return 0;\n}\n"
)


def proposed(reply: Reply) -> ProposalRead:
    candidate = parse(reply, brief(MethodOperator("init", Move.INIT, "evoengineer/init"), "cpu")).candidate
    assert candidate is not None
    return ProposalRead(1, 1, TrialOutcome.PENDING, candidate=candidate)


def test_a_reply_that_was_mended_is_read_again_as_it_was_written() -> None:
    code = f'#include "launch.h"\n{CODE}'
    reply = Reply(f"```cpp\n{code}```", "tiny")

    assert "__has_include" in parse(reply, brief(MethodOperator("i", Move.INIT, "eoh/i1"), "cpu")).candidate.main.text  # type: ignore[union-attr]
    assert reply_rates._earlier(SETUP, reply, proposed(reply)) == code
    assert not reply_rates._compiles(SETUP, code)


def test_a_reply_that_was_not_mended_has_no_earlier_reading() -> None:
    reply = Reply(f"```cpp\n{CODE}```", "tiny")

    assert reply_rates._earlier(SETUP, reply, proposed(reply)) is None
    assert reply_rates._compiles(SETUP, CODE)
