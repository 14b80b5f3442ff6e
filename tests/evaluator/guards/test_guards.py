"""What each guard says about made-up evidence, and that the right guards are asked."""

from __future__ import annotations

import re

import pytest

from warpsmith.evaluator.guards import all_guards, check_guard_names, first_objection
from warpsmith.evaluator.guards.attack_classes import BY_NUMBER, CLASSES
from warpsmith.model.errors import UsageError
from warpsmith.model.evaluation import Status
from warpsmith.model.evidence import (
    AlteredCode,
    ClaimedTime,
    Evidence,
    Guard,
    IdleProcess,
    MeasuredSpeed,
    MemoryState,
    RecordingComparison,
    UnexpectedOutput,
)

HONEST: tuple[Evidence, ...] = (
    MemoryState("wide"),
    IdleProcess("cpu", 1, 5, busy_ms=0.4, watched_ms=8.0),  # OpenMP's threads are there, and asleep
    IdleProcess("cuda", 6, 6, busy_ms=0.0, watched_ms=0.0),
    ClaimedTime(claimed_ns=2e6, excess_ns=1e5, allowed_ns=3e5),
    ClaimedTime(claimed_ns=2e6, excess_ns=1e5, allowed_ns=3e5, replayed_ns=1.9e6, replayed_allowed_ns=2.3e6),
    ClaimedTime(claimed_ns=2e6, excess_ns=-1e6, allowed_ns=3e5, processor=True),  # it waited for a processor
    MeasuredSpeed("wide", latency_ms=0.2, least_ms=0.1),
    RecordingComparison(("_Z1av", "_Z1bv"), ("_Z1bv", "_Z1av")),
    AlteredCode(""),
)

DISHONEST: tuple[tuple[Evidence, Status, int, str], ...] = (
    (MemoryState("wide", "out", 64, past_end=True), Status.OUT_OF_BOUNDS, 20, "past the end of 'out' .64 bytes."),
    (MemoryState("wide", "out", 64, past_end=False), Status.OUT_OF_BOUNDS, 20, "before the start of 'out'"),
    (MemoryState("wide", input_changed=True), Status.INPUT_MODIFIED, 4, "workload 'wide'.*read-only"),
    (MemoryState("wide", "x", 64, input_changed=True), Status.OUT_OF_BOUNDS, 20, "'x'"),
    (IdleProcess("cpu", 1, 2, 7.9, 8.0), Status.REJECTED, 6, "^background work: .*8 ms of processor time in the 8 ms"),
    (IdleProcess("cuda", 6, 7, 0.0, 0.0), Status.REJECTED, 6, "^background work: .*1 host thread:"),
    (IdleProcess("cuda", 6, 9, 0.0, 0.0), Status.REJECTED, 6, "3 host threads:"),
    (IdleProcess("cpu", 0, 0, 0, 0, "out", "odd"), Status.REJECTED, 6, "^background work: out changed .*'odd'"),
    (ClaimedTime(1e6, 5e5, 4e5), Status.REJECTED, 9, "^forged clock: .*1 ms, but at least 0.5 ms more"),
    (
        ClaimedTime(1e6, 5e5, 4e5, processor=True),
        Status.REJECTED,
        9,
        "^forged clock: .*0.5 ms more of a processor's time",
    ),
    (ClaimedTime(1e6, 0, 4e5, 2e6, 1.2e6), Status.REJECTED, 9, "^forged clock: .*the replay needs 2 ms"),
    (MeasuredSpeed("wide", 0.05, 0.1), Status.BELOW_FLOOR, 18, "0.05 ms on workload 'wide' is less than the 0.1 ms"),
    (
        RecordingComparison(("_Z1av",), ("_Z1bv",)),
        Status.REJECTED,
        13,
        "^special case: it launches a when .* and b while",
    ),
    (RecordingComparison(("_Z1av",), ()), Status.REJECTED, 13, "and nothing while its calls are recorded"),
    (
        RecordingComparison((), (), "out: 50 % were never written."),
        Status.REJECTED,
        13,
        "wrong when .* recorded .out: 50 %",
    ),
    (AlteredCode("/lib/libc.so.6"), Status.REJECTED, 9, "^forged clock: the code of libc.so.6 was changed"),
    (UnexpectedOutput("not JSON"), Status.REJECTED, 10, "^forged verdict: .*not JSON"),
)


@pytest.mark.parametrize("evidence", HONEST, ids=repr)
def test_honest_evidence_meets_no_objection(evidence: Evidence) -> None:
    assert first_objection(evidence) is None


@pytest.mark.parametrize(("evidence", "status", "attack", "says"), DISHONEST, ids=lambda value: repr(value)[:60])
def test_dishonest_evidence_meets_one_that_names_the_class(
    evidence: Evidence, status: Status, attack: int, says: str
) -> None:
    found = first_objection(evidence)
    assert found is not None
    assert (found.status, found.attack) == (status, attack)
    assert re.search(says, found.reason), found.reason
    assert found.reason.endswith(".")


@pytest.mark.parametrize(("evidence", "status", "attack", "says"), DISHONEST, ids=lambda value: repr(value)[:60])
def test_a_guard_that_is_left_out_is_not_asked(evidence: Evidence, status: Status, attack: int, says: str) -> None:
    concerned = [name for name, guard in all_guards().items() if isinstance(evidence, guard.looks_at)]
    assert concerned
    assert first_objection(evidence, concerned) is None


def test_a_guard_that_does_not_exist_cannot_be_left_out() -> None:
    with pytest.raises(UsageError, match=r"no guard 'clocks'; known: .*clock"):
        check_guard_names(("clock", "clocks"))


@pytest.mark.parametrize("name", sorted(all_guards()))
def test_every_guard_keeps_the_contract(name: str) -> None:
    guard = all_guards()[name]
    assert isinstance(guard, Guard)
    assert guard.name == name
    assert guard.attacks
    assert set(guard.attacks) <= set(BY_NUMBER)


def test_the_classes_are_numbered_without_a_gap_and_have_titles_of_their_own() -> None:
    assert [each.number for each in CLASSES] == list(range(1, 23))
    assert len({each.title for each in CLASSES}) == len(CLASSES)
    assert all(each.attack and each.defences for each in CLASSES)
