from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpsmith.evaluator.cuda_replay.call_data import (
    MOST_CHARS,
    MOST_STEPS,
    DevicePlace,
    Edge,
    KernelLaunch,
    MalformedCall,
    MemoryCopy,
    MemoryFill,
    RecordedCall,
    decode_call,
    encode_call,
)

LAUNCH = KernelLaunch(
    "_Z3addPf", "ab" * 32, (8, 1, 1), (256, 1, 1), 1024, ((0, b"\0\1\2\3\4\5\6\7"), (8, b"\xff\0\0\0"))
)
FILL = MemoryFill(DevicePlace(0x2000_0000_0000), 0, 4, 64, 2, 512)
COPY = MemoryCopy(DevicePlace(16, "table"), b"\1\2\3\4", 4)
CALL = RecordedCall(
    (FILL, COPY, LAUNCH, replace(LAUNCH, cluster=(4, 1, 1), cooperative=True, carveout_percent=50)),
    (Edge(0, 2), Edge(1, 2), Edge(2, 3, early=True, at_start=True)),
)

counts = st.integers(1, 1 << 20)
sizes = st.tuples(counts, counts, counts)
names = st.text(st.characters(codec="ascii", exclude_characters="\0"), min_size=1, max_size=40)
places = st.builds(DevicePlace, st.integers(0, (1 << 57) - 1), st.just("") | names, st.just("") | names)
steps = (
    st.builds(
        KernelLaunch,
        names,
        names,
        sizes,
        sizes,
        st.integers(0, 1 << 18),
        st.lists(st.binary(min_size=1, max_size=16), max_size=6).map(
            lambda values: tuple((sum(map(len, values[:i])), v) for i, v in enumerate(values))
        ),
        st.just((0, 0, 0)) | sizes,
        st.booleans(),
        st.integers(-1, 100),
    )
    | st.builds(MemoryFill, places, counts, st.sampled_from((1, 2, 4)), counts, st.just(1), st.just(0))
    | st.binary(min_size=1, max_size=64).flatmap(lambda b: st.builds(MemoryCopy, places, st.just(b), st.just(len(b))))
    | st.builds(MemoryCopy, places, places, counts)
)


@given(st.lists(steps, min_size=1, max_size=5))
@settings(max_examples=50, deadline=None)
def test_a_call_comes_back_as_it_was(made: list[Any]) -> None:
    call = RecordedCall(tuple(made), tuple(Edge(i, i + 1) for i in range(len(made) - 1)))
    assert decode_call(encode_call(call)) == call


def test_every_kind_of_step_and_edge_comes_back() -> None:
    assert decode_call(encode_call(CALL)) == CALL
    assert FILL.nbytes == 512 + 64 * 4


anything: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=6,
)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_whatever_a_host_says_is_read_or_refused(data: st.DataObject) -> None:
    """One part of a true recording is replaced by something else."""
    rows = json.loads(encode_call(CALL))
    inside = rows
    while True:
        at = data.draw(st.integers(0, len(inside) - 1))
        if not isinstance(inside[at], list) or not inside[at] or data.draw(st.booleans()):
            inside[at] = data.draw(anything)
            break
        inside = inside[at]
    with contextlib.suppress(MalformedCall):  # any other error is ours
        assert isinstance(decode_call(json.dumps(rows)), RecordedCall)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (RecordedCall((), ()), "0 steps"),
        (RecordedCall((LAUNCH,) * (MOST_STEPS + 1), ()), "65 steps"),
        (RecordedCall((LAUNCH, LAUNCH), (Edge(1, 0),)), "later one"),
        (RecordedCall((LAUNCH, LAUNCH), (Edge(0, 2),)), "out of range"),
        (RecordedCall((FILL, LAUNCH), (Edge(0, 1, early=True),)), "start early"),
        (RecordedCall((replace(LAUNCH, grid=(0, 1, 1)),), ()), "size of 0"),
        (RecordedCall((replace(LAUNCH, grid=(1 << 32, 1, 1)),), ()), "out of range"),
        (RecordedCall((replace(LAUNCH, name=""),), ()), "without a name"),
        (RecordedCall((replace(LAUNCH, name="a\0b"),), ()), "name is expected"),
        (RecordedCall((replace(LAUNCH, parameters=((0, b"\0" * 8), (4, b"\0"))),), ()), "overlap"),
        (RecordedCall((replace(LAUNCH, parameters=((0, b"\0" * 40_000),)),), ()), "bytes of parameters"),
        (RecordedCall((replace(FILL, element_bytes=3),), ()), "3 bytes"),
        (RecordedCall((replace(FILL, pitch_bytes=8),), ()), "rows overlap"),
        (RecordedCall((replace(FILL, target=DevicePlace(-1)),), ()), "out of range"),
        (RecordedCall((replace(COPY, nbytes=5),), ()), "host memory"),
        (RecordedCall((MemoryCopy(DevicePlace(0), bytes(1 << 17), 1 << 17),), ()), "host memory"),
    ],
)
def test_what_is_no_call_is_refused_with_a_reason(call: RecordedCall, why: str) -> None:
    with pytest.raises(MalformedCall, match=why):
        decode_call(encode_call(call))


@pytest.mark.parametrize("text", ["", "{}", "[]", "[1, 2]", "[[], []]", '[["launch"], []]', "[" * 5000, "9" * 6000])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(MalformedCall, match="not a recorded call"):
        decode_call(text)


def test_a_very_long_text_is_not_even_read() -> None:
    with pytest.raises(MalformedCall, match="characters"):
        decode_call(" " * (MOST_CHARS + 1))
