from __future__ import annotations

import mmap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpsmith.evaluator.protocol.buffer_layout import (
    CPU_ALIGN,
    CUDA_ALIGN,
    CUDA_ZONE_BYTES,
    Buffer,
    BufferLayout,
    BufferSlot,
    join_layouts,
    lay_out,
)

PAGE = mmap.PAGESIZE
KINDS = ("cpu", "cuda")
sizes = st.sampled_from((0, 1, 63, 64, 65, 256, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE, 1 << 40)) | st.integers(0, 1 << 20)


@st.composite
def buffers(draw: st.DrawFn) -> list[Buffer]:
    drawn = draw(st.lists(st.tuples(sizes, st.booleans()), max_size=8))
    return [Buffer(f"t{index}", nbytes, writable) for index, (nbytes, writable) in enumerate(drawn)]


def slots_of(layout: BufferLayout) -> list[BufferSlot]:
    return [slot for group in layout.sets for slot in group]


anything = given(wanted=buffers(), sets=st.integers(1, 5), kind=st.sampled_from(KINDS))
quickly = settings(deadline=None, max_examples=150)


@quickly
@anything
def test_every_set_holds_every_buffer_once(wanted: list[Buffer], sets: int, kind: str) -> None:
    layout = lay_out(wanted, sets, kind)

    assert len(layout.sets) == sets
    for group in layout.sets:
        placed = sorted((slot.name, slot.nbytes, slot.writable) for slot in group)
        assert placed == sorted((buffer.name, buffer.nbytes, buffer.writable) for buffer in wanted)


@quickly
@anything
def test_no_two_regions_overlap_and_all_lie_in_the_arena(wanted: list[Buffer], sets: int, kind: str) -> None:
    layout = lay_out(wanted, sets, kind)

    end = 0
    for slot in sorted(slots_of(layout), key=lambda slot: slot.region_start):
        assert slot.region_start >= end
        end = slot.region_end
    assert end <= layout.total_bytes
    assert layout.total_bytes >= PAGE  # an empty file cannot be mapped


@quickly
@anything
def test_data_lies_inside_its_region_between_its_red_zones(wanted: list[Buffer], sets: int, kind: str) -> None:
    for slot in slots_of(lay_out(wanted, sets, kind)):
        assert slot.region_start <= slot.start <= slot.end <= slot.region_end
        assert slot.end - slot.start == slot.nbytes
        assert slot.zones == ((slot.region_start, slot.start), (slot.end, slot.region_end))


@quickly
@anything
def test_inputs_of_all_sets_come_before_outputs(wanted: list[Buffer], sets: int, kind: str) -> None:
    slots = slots_of(lay_out(wanted, sets, kind))

    last_input = max((slot.region_end for slot in slots if not slot.writable), default=0)
    assert all(slot.region_start >= last_input for slot in slots if slot.writable)


@quickly
@given(wanted=buffers(), sets=st.integers(1, 5))
def test_on_the_cpu_a_buffer_has_its_own_pages_and_ends_at_a_guard_page(wanted: list[Buffer], sets: int) -> None:
    for slot in slots_of(lay_out(wanted, sets, "cpu")):
        assert slot.region_start % PAGE == slot.region_end % PAGE == 0
        assert slot.start % CPU_ALIGN == 0
        assert slot.region_end - slot.end < CPU_ALIGN or slot.nbytes == 0
        assert slot.start - slot.region_start < PAGE


@quickly
@given(wanted=buffers(), sets=st.integers(1, 5))
def test_on_cuda_a_buffer_lies_between_wide_red_zones(wanted: list[Buffer], sets: int) -> None:
    for slot in slots_of(lay_out(wanted, sets, "cuda")):
        assert slot.start % CUDA_ALIGN == 0
        assert slot.start - slot.region_start >= CUDA_ZONE_BYTES
        assert slot.region_end - slot.end >= CUDA_ZONE_BYTES


@quickly
@given(
    all_wanted=st.lists(buffers(), min_size=1, max_size=4),
    kind=st.sampled_from(KINDS),
    unit=st.sampled_from((PAGE, 2 << 20)),
)
def test_joined_layouts_have_all_inputs_first_and_overlap_nowhere(
    all_wanted: list[list[Buffer]], kind: str, unit: int
) -> None:
    alone = [lay_out(wanted, 2, kind) for wanted in all_wanted]
    together, inputs, total = join_layouts(alone, unit)

    assert inputs % unit == total % unit == 0
    end = 0
    for slot in sorted((s for layout in together for s in slots_of(layout)), key=lambda slot: slot.region_start):
        assert slot.region_start >= end
        end = slot.region_end
        assert end <= (total if slot.writable else inputs)
        assert slot.region_start >= (inputs if slot.writable else 0)
    for before, after in zip(alone, together, strict=True):
        for old, new in zip(slots_of(before), slots_of(after), strict=True):
            assert (new.name, new.writable, new.nbytes) == (old.name, old.writable, old.nbytes)
            assert new.start - new.region_start == old.start - old.region_start
            assert new.region_end - new.region_start == old.region_end - old.region_start


@pytest.mark.parametrize("kind", KINDS)
def test_each_set_has_addresses_of_its_own(kind: str) -> None:
    layout = lay_out([Buffer("x", 100, False), Buffer("out", 100, True)], 3, kind)

    assert len({slot.start for slot in slots_of(layout)}) == 6
