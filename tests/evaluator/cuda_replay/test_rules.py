from __future__ import annotations

from dataclasses import replace

import pytest

from warpsmith.evaluator.cuda_replay.call_data import (
    CallStep,
    DevicePlace,
    Edge,
    KernelLaunch,
    MemoryCopy,
    MemoryFill,
    RecordedCall,
)
from warpsmith.evaluator.cuda_replay.device_images import DeviceImage, Variable
from warpsmith.evaluator.cuda_replay.rules import MappedRegion, ReplayRules, Unreplayable, check_delivery

BASE = 0x2000_0000_0000
INPUTS = MappedRegion("the inputs", BASE, 1 << 20, writable=False)
OUTPUTS = MappedRegion("the outputs", BASE + (1 << 30), 1 << 20, writable=True)
ONE = DeviceImage("1" * 64, b"", ("add", "both"), (Variable("table", 256, constant=True),), legible=True)
TWO = DeviceImage("2" * 64, b"", ("both", "scale"), (), legible=True)
SEALED = DeviceImage("3" * 64, b"", (), (), legible=False)
REALM = ReplayRules((ONE, TWO), (INPUTS, OUTPUTS), most_shared_bytes=232_448)
ADD = KernelLaunch("add", "", (8, 1, 1), (256, 1, 1), 1024, ())
FILL = MemoryFill(DevicePlace(OUTPUTS.start), 0, 4, 1 << 18, 1, 0)


def call(*steps: CallStep) -> RecordedCall:
    return RecordedCall(steps, tuple(Edge(i, i + 1) for i in range(len(steps) - 1)))


def test_an_honest_call_is_admitted() -> None:
    REALM.check(
        call(
            FILL,
            MemoryCopy(DevicePlace(192, "table"), bytes(64), 64),
            MemoryCopy(DevicePlace(OUTPUTS.start + 64), DevicePlace(INPUTS.start), 4096),
            ADD,
            replace(ADD, name="both", image=TWO.digest, cluster=(4, 1, 1), shared_bytes=200_000),
        )
    )
    assert REALM.image_of(ADD) is ONE
    assert REALM.image_of(replace(ADD, name="both", image=TWO.digest)) is TWO
    assert REALM.image_with(DevicePlace(0, "table")) is ONE


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (replace(ADD, name="cublas_gemm"), "not in its own device code"),
        (replace(ADD, image=TWO.digest), "not in its own device code"),
        (replace(ADD, name="both"), "nothing says which"),
        (replace(ADD, block=(1024, 2, 1)), "blocks of 1024 x 2 x 1"),
        (replace(ADD, block=(1, 1, 65)), "blocks of"),
        (replace(ADD, grid=(1, 70_000, 1)), "grid of"),
        (replace(ADD, shared_bytes=232_449), "shared memory"),
        (replace(ADD, cluster=(3, 1, 1)), "clusters of"),
        (replace(ADD, grid=(64, 1, 1), cluster=(32, 1, 1)), "clusters of"),
        (replace(ADD, cluster=(4, 0, 1)), "clusters of"),
        (replace(FILL, width=(1 << 18) + 1), "allocated itself"),
        (replace(FILL, target=DevicePlace(OUTPUTS.start - 1)), "allocated itself"),
        (replace(FILL, target=DevicePlace(INPUTS.start), width=4), "only be read"),
        (replace(FILL, height=2, pitch_bytes=1 << 20), "allocated itself"),
        (
            MemoryCopy(DevicePlace(OUTPUTS.start), DevicePlace(0x7F00_0000_0000), 64),
            "copies from memory that it allocated",
        ),
        (
            MemoryCopy(DevicePlace(0x7F00_0000_0000), DevicePlace(INPUTS.start), 64),
            "copies to memory that it allocated",
        ),
        (MemoryCopy(DevicePlace(INPUTS.start), DevicePlace(OUTPUTS.start), 64), "only be read"),
        (MemoryCopy(DevicePlace(193, "table"), bytes(64), 64), "past its end"),
        (MemoryCopy(DevicePlace(0, "nothing"), bytes(64), 64), "the variable nothing is not in"),
        (MemoryCopy(DevicePlace(0, "table", TWO.digest), bytes(64), 64), "the variable table is not in"),
    ],
)
def test_what_is_not_the_candidates_is_not_replayed(step: CallStep, why: str) -> None:
    with pytest.raises(Unreplayable, match=why):
        REALM.check(call(ADD, step))


def test_an_image_that_cannot_be_read_leaves_the_name_to_the_driver() -> None:
    rules = replace(REALM, images=(TWO, SEALED))
    rules.check(call(ADD))
    assert rules.image_of(ADD) is SEALED
    assert rules.image_of(replace(ADD, name="scale")) is TWO
    with pytest.raises(Unreplayable, match="nothing says which"):
        replace(rules, images=(SEALED, replace(SEALED, digest="4" * 64))).check(call(ADD))


# --- deliveries: copies of results, which are not timed ---

RESULT = DevicePlace(OUTPUTS.start + (1 << 19))
TARGETS = ((OUTPUTS.start, 4096), (OUTPUTS.start + 4096, 64))
DELIVERED = MemoryCopy(DevicePlace(OUTPUTS.start), RESULT, 4096)


def test_a_delivery_copies_each_result_once() -> None:
    check_delivery(call(MemoryCopy(DevicePlace(OUTPUTS.start + 4096), RESULT, 64), DELIVERED), TARGETS)
    check_delivery(call(DELIVERED), TARGETS)  # the other output is not returned


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (ADD, "computes while its results are copied"),
        (FILL, "computes while its results are copied"),
        (MemoryCopy(DevicePlace(OUTPUTS.start + 4096), bytes(64), 64), "computes while"),
        (DELIVERED, "something else than its results"),  # a second time
        (MemoryCopy(DevicePlace(OUTPUTS.start + 4096), RESULT, 32), "something else"),
        (MemoryCopy(RESULT, DevicePlace(INPUTS.start), 64), "something else"),
        (MemoryCopy(DevicePlace(OUTPUTS.start + 4096, "table"), RESULT, 64), "something else"),
    ],
)
def test_a_delivery_does_no_work(step: CallStep, why: str) -> None:
    with pytest.raises(Unreplayable, match=why):
        check_delivery(call(DELIVERED, step), TARGETS)
