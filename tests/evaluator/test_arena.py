from __future__ import annotations

import gc
import mmap
import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from warpsmith.evaluator.judge.arena import (
    CpuArena,
    SecretChecksum,
    allocate,
    broken_zone,
    driver_for,
    fill_zones,
    view,
)
from warpsmith.evaluator.protocol.buffer_layout import CANARY, Buffer, BufferLayout, BufferSlot, lay_out

CPU = torch.device("cpu")
quickly = settings(deadline=None, max_examples=100)


@pytest.fixture
def layout() -> BufferLayout:
    return lay_out([Buffer("x", 400, False), Buffer("out", 5000, True)], 2, "cpu")


@pytest.fixture
def arena(layout: BufferLayout) -> Iterator[CpuArena]:
    made = CpuArena(layout.total_bytes)
    yield made
    made.close()


def slot_named(layout: BufferLayout, name: str, number: int = 0) -> BufferSlot:
    return next(slot for slot in layout.sets[number] if slot.name == name)


# --- shared memory ---------------------------------------------------------------------------------


def test_memory_is_whole_pages_and_starts_empty() -> None:
    arena = CpuArena(mmap.PAGESIZE + 1)

    assert arena.memory.numel() == 2 * mmap.PAGESIZE
    assert not arena.memory.any()
    arena.close()


def test_a_view_is_the_slot_and_nothing_else(arena: CpuArena, layout: BufferLayout) -> None:
    slot = slot_named(layout, "x")
    tensor = view(arena.memory, slot, torch.float32, (10, 10))
    tensor.fill_(-1.5)

    assert tensor.is_contiguous()
    assert tensor.data_ptr() == arena.memory.data_ptr() + slot.start
    written = arena.memory.nonzero().flatten()
    assert slot.start <= int(written.min())
    assert int(written.max()) < slot.end
    assert view(arena.memory, slot, torch.float32, (100,)).eq(-1.5).all()


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.int64, torch.complex128], ids=str)
@pytest.mark.parametrize("shape", [(), (3, 5), (0, 4)], ids=str)
def test_views_of_any_type_and_shape(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    values = torch.ones(shape, dtype=dtype)
    layout = lay_out([Buffer("x", values.nbytes, False), Buffer("y", 8, True)], 1, "cpu")
    arena = CpuArena(layout.total_bytes)
    tensor = view(arena.memory, layout.sets[0][0], dtype, shape)
    tensor.copy_(values)

    assert tensor.shape == shape
    assert torch.equal(tensor, values)
    del tensor
    arena.close()


def test_both_descriptors_show_the_same_memory(arena: CpuArena) -> None:
    read_fd, write_fd = arena.descriptors()
    arena.memory[7] = 42
    with mmap.mmap(write_fd, mmap.PAGESIZE) as writable:
        writable[8] = 43
    with mmap.mmap(read_fd, mmap.PAGESIZE, prot=mmap.PROT_READ) as readable:
        assert (readable[7], readable[8]) == (42, 43)
    assert int(arena.memory[8]) == 43


def test_the_read_only_descriptor_cannot_be_written_through(arena: CpuArena) -> None:
    read_fd, _ = arena.descriptors()

    with pytest.raises(PermissionError):
        mmap.mmap(read_fd, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.pwrite(read_fd, b"x", 0)
    assert not arena.memory.any()


def test_what_may_be_written_lies_in_a_file_of_its_own(layout: BufferLayout) -> None:
    # Whoever has a writable mapping of a file can move it to any other part of that file, the inputs for one.
    slots = [slot for group in layout.sets for slot in group]
    arena = CpuArena(layout.total_bytes, [(s.region_start, s.region_end) for s in slots if s.writable])
    read_fd, write_fd = arena.descriptors()
    x, out = slot_named(layout, "x"), slot_named(layout, "out")
    view(arena.memory, x, torch.uint8, (x.nbytes,)).fill_(1)
    view(arena.memory, out, torch.uint8, (out.nbytes,)).fill_(2)

    for slot, shows, hides in ((x, read_fd, write_fd), (out, write_fd, read_fd)):
        assert any(os.pread(shows, slot.nbytes, slot.start))
        assert not any(os.pread(hides, slot.nbytes, slot.start))
    os.pwrite(write_fd, bytes([3]) * layout.total_bytes, 0)
    assert view(arena.memory, x, torch.uint8, (x.nbytes,)).eq(1).all()
    assert view(arena.memory, out, torch.uint8, (out.nbytes,)).eq(3).all()
    arena.close()


def test_descriptors_do_not_reach_other_programs(arena: CpuArena) -> None:
    assert [os.get_inheritable(fd) for fd in arena.descriptors()] == [False, False]


@pytest.mark.parametrize("pages", [0, 1000])
def test_nobody_changes_the_size_under_the_judge(arena: CpuArena, pages: int) -> None:
    # A shorter file would kill the judge with SIGBUS at its next look.
    for fd in arena.descriptors():
        with pytest.raises(OSError, match=r"Operation not permitted|Invalid argument"):
            os.ftruncate(fd, pages * mmap.PAGESIZE)


def mappings() -> int:
    """How many of our arenas are mapped in this process."""
    with open("/proc/self/maps") as maps:
        return sum("memfd:warpsmith" in line for line in maps)


def test_closing_gives_everything_back(layout: BufferLayout) -> None:
    descriptors, mapped = len(os.listdir("/proc/self/fd")), mappings()
    arena = CpuArena(layout.total_bytes)
    arena.close()

    assert len(os.listdir("/proc/self/fd")) == descriptors
    assert mappings() == mapped
    assert arena.memory.numel() == 0


def test_a_view_that_is_still_held_does_not_dangle(layout: BufferLayout) -> None:
    mapped = mappings()
    arena = CpuArena(layout.total_bytes)
    kept = view(arena.memory, slot_named(layout, "x"), torch.uint8, (400,))
    arena.close()

    # Looked up rather than touched: touching memory that is gone would end this process, not this test.
    assert mappings() == mapped + 1
    del kept
    gc.collect()
    assert mappings() == mapped


def test_without_a_driver_an_arena_is_shared_memory() -> None:
    arena = allocate(100, CPU, driver_for(CPU))

    assert isinstance(arena, CpuArena)
    assert arena.handle == ""
    arena.close()


# --- red zones -------------------------------------------------------------------------------------


def all_slots(layout: BufferLayout) -> list[BufferSlot]:
    return [slot for group in layout.sets for slot in group]


def fresh(layout: BufferLayout) -> torch.Tensor:
    memory = torch.zeros(layout.total_bytes, dtype=torch.uint8)
    fill_zones(memory, all_slots(layout))
    return memory


def test_zones_are_filled_and_data_is_left_alone(layout: BufferLayout) -> None:
    memory = fresh(layout)

    for slot in all_slots(layout):
        assert memory[slot.start : slot.end].eq(0).all()
        assert all(memory[a:b].eq(CANARY).all() for a, b in slot.zones)


def test_writing_all_of_the_data_breaks_nothing(layout: BufferLayout) -> None:
    memory = fresh(layout)
    for slot in all_slots(layout):
        memory[slot.start : slot.end] = 0x77

    assert broken_zone(memory, all_slots(layout)) is None


@quickly
@given(data=st.data(), kind=st.sampled_from(("cpu", "cuda")), value=st.integers(0, 255).filter(lambda v: v != CANARY))
def test_one_byte_outside_is_found_with_its_distance(data: st.DataObject, kind: str, value: int) -> None:
    layout = lay_out([Buffer("x", 400, False), Buffer("out", 5000, True)], 2, kind)
    memory = fresh(layout)
    slot = data.draw(st.sampled_from(all_slots(layout)))
    behind = data.draw(st.booleans()) if slot.end < slot.region_end else False
    if behind:
        at = data.draw(st.integers(slot.end, slot.region_end - 1))
    else:
        at = data.draw(st.integers(slot.region_start, slot.start - 1))
    memory[at] = value

    assert broken_zone(memory, all_slots(layout)) == (slot, at - slot.end + 1 if behind else at - slot.start)


def test_the_nearest_of_several_bytes_is_named(layout: BufferLayout) -> None:
    slot = slot_named(layout, "out", 1)
    memory = fresh(layout)
    memory[slot.start - 30 : slot.start - 2] = 0
    assert broken_zone(memory, all_slots(layout)) == (slot, -3)

    memory[slot.end + 4 : slot.end + 20] = 0
    assert broken_zone(memory, all_slots(layout)) == (slot, 5)


def test_zones_can_be_mended(layout: BufferLayout) -> None:
    slot = slot_named(layout, "x")
    memory = fresh(layout)
    memory[slot.end] = 0
    fill_zones(memory, [slot])

    assert broken_zone(memory, all_slots(layout)) is None


# --- checksums -----------------------------------------------------------------------------------------


class Narrow(SecretChecksum):
    """Has many rows where others have one."""

    _WORDS = 4
    _ROWS = 2


@pytest.fixture(scope="module", params=[SecretChecksum, Narrow])
def checksum(request: pytest.FixtureRequest) -> SecretChecksum:
    made: SecretChecksum = request.param(CPU)
    return made


def shapes() -> st.SearchStrategy[list[bytes]]:
    return st.lists(st.binary(min_size=1, max_size=90), min_size=1, max_size=4)


def tensors(contents: list[bytes]) -> list[torch.Tensor]:
    return [torch.frombuffer(bytearray(content), dtype=torch.uint8) for content in contents]


@quickly
@given(contents=shapes(), data=st.data())
def test_one_flipped_bit_breaks_the_checksum(
    checksum: SecretChecksum, contents: list[bytes], data: st.DataObject
) -> None:
    before = checksum.of(tensors(contents))
    which = data.draw(st.integers(0, len(contents) - 1))
    changed = bytearray(contents[which])
    changed[data.draw(st.integers(0, len(changed) - 1))] ^= 1 << data.draw(st.integers(0, 7))

    assert checksum.of(tensors([*contents[:which], bytes(changed), *contents[which + 1 :]])) != before


@quickly
@given(contents=shapes())
def test_untouched_tensors_keep_their_checksum(checksum: SecretChecksum, contents: list[bytes]) -> None:
    kept = tensors(contents)

    assert checksum.of(kept) == checksum.of(kept) == checksum.of(tensors(contents))


def test_the_same_bytes_have_the_same_checksum_in_any_type(checksum: SecretChecksum) -> None:
    numbers = torch.arange(24, dtype=torch.float32).view(4, 6)

    assert (
        checksum.of([numbers])
        == checksum.of([numbers.view(torch.int32)])
        == checksum.of([numbers.view(-1).view(torch.uint8)])
    )


def test_exchanged_elements_and_tensors_break_the_checksum(checksum: SecretChecksum) -> None:
    a, b = torch.arange(8, dtype=torch.int32), torch.arange(8, dtype=torch.int32).flip(0)

    assert len({checksum.of([a, b]), checksum.of([b, a]), checksum.of([a, a]), checksum.of([b, b])}) == 4


def test_exchanged_rows_break_the_checksum() -> None:
    checksum, words = Narrow(CPU), torch.arange(64, dtype=torch.int32)
    exchanged = torch.cat([words[4:8], words[:4], words[8:]])
    far = torch.cat([words[60:], words[4:60], words[:4]])  # in other blocks of rows
    assert len({checksum.of([words]), checksum.of([exchanged]), checksum.of([far])}) == 3
    assert checksum.of([]) == 0


def test_a_change_cannot_be_made_up_for_elsewhere(checksum: SecretChecksum) -> None:
    a, b = torch.arange(8, dtype=torch.int32), torch.arange(8, dtype=torch.int32)
    before = checksum.of([a, b])
    for step in range(1, 200):  # whatever the public constant between two parts is
        for sign in (1, -1):
            other = b.clone()
            other[3] -= sign * step
            changed = a.clone()
            changed[3] += 1
            assert checksum.of([changed, other]) != before


def test_no_two_checksums_are_alike() -> None:
    numbers = torch.arange(100)

    assert SecretChecksum(CPU).of([numbers]) != SecretChecksum(CPU).of([numbers])


def test_every_part_of_a_large_tensor_counts() -> None:
    checksum = SecretChecksum(CPU)
    large = torch.zeros((1 << 24) + 4099, dtype=torch.uint8)  # more than one block, and bytes left over
    before = checksum.of([large])
    for at in (0, (1 << 24) - 1, 1 << 24, large.numel() - 1):
        large[at] = 1
        assert checksum.of([large]) != before
        large[at] = 0
    assert checksum.of([large]) == before
