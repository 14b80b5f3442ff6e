"""A share of the malformed inputs with every test run; `benchmarks/fuzz.py` feeds a hundred thousand."""

from __future__ import annotations

import json
import math
import signal
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.engine import Failure, Target, run
from tests.fuzz.messages import KINDS, feed_decode
from tests.fuzz.mutate import Mutator
from tests.fuzz.targets import TARGETS, inputs_for
from warpsmith.backends.builder import refusal
from warpsmith.backends.diagnostics import errors_of
from warpsmith.backends.tunables import redefined
from warpsmith.model.candidate import SourceFile

COUNT = 3000
SEED = "every run"


def test_the_shares_are_a_whole() -> None:
    assert math.isclose(sum(target.share for target in TARGETS), 1.0, abs_tol=0.01)
    assert len({target.name for target in TARGETS}) == len(TARGETS)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_malformed_inputs_are_answered(target: Target) -> None:
    counts = run(target, SEED, range(inputs_for(target, COUNT)))
    assert sum(counts.values()) == inputs_for(target, COUNT)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(kind=st.sampled_from(KINDS), fields=st.dictionaries(st.text(max_size=8), JSON, max_size=6), tag=JSON)
def test_any_json_is_a_message_or_a_wire_error(kind: type, fields: dict[str, object], tag: object) -> None:
    document = {**fields, "type": kind.__name__, "tag": tag}
    assert feed_decode(json.dumps(document).encode()) in ("accepted", "refused")


# --- the engine itself: a fuzzer that cannot fail finds nothing ----------------------------------------------


def answer(text: str) -> str:
    if "1" in text:
        raise KeyError(text)
    return "accepted"


@pytest.mark.parametrize("forked", [False, True])
def test_the_engine_finds_what_is_there_and_can_make_it_again(forked: bool) -> None:
    target = Target("sieve", lambda m: m.text(("a 0 b", "c 0")), answer, 1.0, forked=forked)
    with pytest.raises(Failure, match="KeyError") as found:
        run(target, "x", range(1000))
    again = target.make(Mutator("sieve", "x", found.value.number))
    with pytest.raises(KeyError):
        answer(again)


@pytest.mark.parametrize("forked", [False, True])
def test_the_engine_finds_a_hang(forked: bool) -> None:
    def sleep(_: object) -> str:
        time.sleep(60)
        return "accepted"

    target = Target("sleeper", lambda _: None, sleep, 1.0, limit_s=0.1, forked=forked)
    with pytest.raises(Failure, match="no answer"):
        run(target, "x", range(3))


def test_the_engine_finds_a_crash() -> None:
    def crash(number: int) -> str:
        if number == 7:
            signal.raise_signal(signal.SIGKILL)
        return "accepted"

    numbers = iter(range(100))
    target = Target("bomb", lambda _: next(numbers), crash, 1.0, forked=True)
    with pytest.raises(Failure, match=r"input 7: its process died"):
        run(target, "x", range(100))


# --- what it found once --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["#" + "/**/" * 5000 + "x", "\n#/*" * 100_000, "#pragma " * 50_000, "*/#" * 100_000],
    ids=["comments", "openings", "pragmas", "closings"],
)
def test_a_source_cannot_keep_the_screen_busy(text: str) -> None:
    begun = time.process_time()
    refusal([SourceFile("candidate.cpp", text)])
    assert time.process_time() - begun < 2.0


@pytest.mark.parametrize("text", ["/" * 100_000, "a.cpp:1:1: error: " + "/" * 100_000, "x\n" * 100_000])
def test_a_log_cannot_keep_the_diagnosis_busy(text: str) -> None:
    begun = time.process_time()
    errors_of(text)
    assert time.process_time() - begun < 3.0


def test_a_source_cannot_keep_the_hints_busy() -> None:
    begun = time.process_time()
    assert not redefined("const " * 100_000, "BLOCK")
    assert redefined("const int BLOCK = 128;", "BLOCK")
    assert time.process_time() - begun < 2.0
