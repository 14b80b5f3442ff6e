"""What each guard says about made-up evidence, and that the panel asks the right ones."""

from __future__ import annotations

import re

import pytest

from warpsmith.core.errors import UsageError
from warpsmith.core.evaluation import Status
from warpsmith.core.guarding import Aftermath, Altered, Clock, Evidence, Guard, Memory, Recounted, Speed, Talk
from warpsmith.guards import panel
from warpsmith.guards.classes import BY_NUMBER, CLASSES

HONEST: tuple[Evidence, ...] = (
    Memory("wide"),
    Aftermath("cpu", 1, 5, busy_ms=0.4, watched_ms=8.0),  # OpenMP's threads are there, and asleep
    Aftermath("cuda", 6, 6, busy_ms=0.0, watched_ms=0.0),
    Clock(claimed_ns=2e6, excess_ns=1e5, allowed_ns=3e5),
    Clock(claimed_ns=2e6, excess_ns=1e5, allowed_ns=3e5, replayed_ns=1.9e6, replayed_allowed_ns=2.3e6),
    Clock(claimed_ns=2e6, excess_ns=-1e6, allowed_ns=3e5, processor=True),  # it waited for a processor
    Speed("wide", latency_ms=0.2, least_ms=0.1),
    Recounted(("_Z1av", "_Z1bv"), ("_Z1bv", "_Z1av")),
    Altered(""),
)

DISHONEST: tuple[tuple[Evidence, Status, int, str], ...] = (
    (Memory("wide", "out", 64, past_end=True), Status.OUT_OF_BOUNDS, 20, "past the end of 'out' .64 bytes."),
    (Memory("wide", "out", 64, past_end=False), Status.OUT_OF_BOUNDS, 20, "before the start of 'out'"),
    (Memory("wide", input_changed=True), Status.INPUT_MODIFIED, 4, "workload 'wide'.*read-only"),
    (Memory("wide", "x", 64, input_changed=True), Status.OUT_OF_BOUNDS, 20, "'x'"),
    (Aftermath("cpu", 1, 2, 7.9, 8.0), Status.REJECTED, 6, "^background work: .*8 ms of processor time in the 8 ms"),
    (Aftermath("cuda", 6, 7, 0.0, 0.0), Status.REJECTED, 6, "^background work: .*1 host thread:"),
    (Aftermath("cuda", 6, 9, 0.0, 0.0), Status.REJECTED, 6, "3 host threads:"),
    (Aftermath("cpu", 0, 0, 0, 0, "out", "odd"), Status.REJECTED, 6, "^background work: out changed .*'odd'"),
    (Clock(1e6, 5e5, 4e5), Status.REJECTED, 9, "^forged clock: .*1 ms, but at least 0.5 ms more"),
    (Clock(1e6, 5e5, 4e5, processor=True), Status.REJECTED, 9, "^forged clock: .*0.5 ms more of a processor's time"),
    (Clock(1e6, 0, 4e5, 2e6, 1.2e6), Status.REJECTED, 9, "^forged clock: .*a process of ours needs 2 ms"),
    (Speed("wide", 0.05, 0.1), Status.BELOW_FLOOR, 18, "0.05 ms on workload 'wide' is less than the 0.1 ms"),
    (Recounted(("_Z1av",), ("_Z1bv",)), Status.REJECTED, 13, "^special case: it launches a when .* and b while"),
    (Recounted(("_Z1av",), ()), Status.REJECTED, 13, "and nothing while its calls are recorded"),
    (Recounted((), (), "out: 50 % were never written."), Status.REJECTED, 13, "wrong when .* recorded .out: 50 %"),
    (Altered("/lib/libc.so.6"), Status.REJECTED, 9, "^forged clock: the code of libc.so.6 was changed"),
    (Talk("not JSON"), Status.REJECTED, 10, "^forged verdict: .*not JSON"),
)


@pytest.mark.parametrize("evidence", HONEST, ids=repr)
def test_honest_evidence_meets_no_objection(evidence: Evidence) -> None:
    assert panel.objection(evidence) is None


@pytest.mark.parametrize(("evidence", "status", "attack", "says"), DISHONEST, ids=lambda value: repr(value)[:60])
def test_dishonest_evidence_meets_one_that_names_the_class(
    evidence: Evidence, status: Status, attack: int, says: str
) -> None:
    found = panel.objection(evidence)
    assert found is not None
    assert (found.status, found.attack) == (status, attack)
    assert re.search(says, found.reason), found.reason
    assert found.reason.endswith(".")


@pytest.mark.parametrize(("evidence", "status", "attack", "says"), DISHONEST, ids=lambda value: repr(value)[:60])
def test_a_guard_that_is_left_out_is_not_asked(evidence: Evidence, status: Status, attack: int, says: str) -> None:
    concerned = [name for name, guard in panel.guards().items() if isinstance(evidence, guard.looks_at)]
    assert concerned
    assert panel.objection(evidence, concerned) is None


def test_a_guard_that_does_not_exist_cannot_be_left_out() -> None:
    with pytest.raises(UsageError, match=r"no guard 'clocks'; known: .*clock"):
        panel.check_names(("clock", "clocks"))


@pytest.mark.parametrize("name", sorted(panel.guards()))
def test_every_guard_keeps_the_contract(name: str) -> None:
    guard = panel.guards()[name]
    assert isinstance(guard, Guard)
    assert guard.name == name
    assert guard.attacks
    assert set(guard.attacks) <= set(BY_NUMBER)


def test_the_classes_are_numbered_without_a_gap_and_have_titles_of_their_own() -> None:
    assert [each.number for each in CLASSES] == list(range(1, 23))
    assert len({each.title for each in CLASSES}) == len(CLASSES)
    assert all(each.attack and each.defence for each in CLASSES)
