from __future__ import annotations

from dataclasses import replace

import pytest

from warpsmith.evaluate.replay.admission import Inadmissible, Realm, Region
from warpsmith.evaluate.replay.callgraph import Call, Copy, Edge, Fill, Launch, Place, Step
from warpsmith.evaluate.replay.fatbin import DeviceImage, Variable

BASE = 0x2000_0000_0000
INPUTS = Region("the inputs", BASE, 1 << 20, writable=False)
OUTPUTS = Region("the outputs", BASE + (1 << 30), 1 << 20, writable=True)
ONE = DeviceImage("1" * 64, b"", ("add", "both"), (Variable("table", 256, constant=True),), legible=True)
TWO = DeviceImage("2" * 64, b"", ("both", "scale"), (), legible=True)
SEALED = DeviceImage("3" * 64, b"", (), (), legible=False)
REALM = Realm((ONE, TWO), (INPUTS, OUTPUTS), most_shared_bytes=232_448)
ADD = Launch("add", "", (8, 1, 1), (256, 1, 1), 1024, ())
FILL = Fill(Place(OUTPUTS.start), 0, 4, 1 << 18, 1, 0)


def call(*steps: Step) -> Call:
    return Call(steps, tuple(Edge(i, i + 1) for i in range(len(steps) - 1)))


def test_an_honest_call_is_admitted() -> None:
    REALM.admit(
        call(
            FILL,
            Copy(Place(192, "table"), bytes(64), 64),
            Copy(Place(OUTPUTS.start + 64), Place(INPUTS.start), 4096),
            ADD,
            replace(ADD, name="both", image=TWO.digest, cluster=(4, 1, 1), shared_bytes=200_000),
        )
    )
    assert REALM.image_of(ADD) is ONE
    assert REALM.image_of(replace(ADD, name="both", image=TWO.digest)) is TWO
    assert REALM.image_with(Place(0, "table")) is ONE


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
        (replace(FILL, target=Place(OUTPUTS.start - 1)), "allocated itself"),
        (replace(FILL, target=Place(INPUTS.start), width=4), "only be read"),
        (replace(FILL, height=2, pitch_bytes=1 << 20), "allocated itself"),
        (Copy(Place(OUTPUTS.start), Place(0x7F00_0000_0000), 64), "copies from memory that it allocated"),
        (Copy(Place(0x7F00_0000_0000), Place(INPUTS.start), 64), "copies to memory that it allocated"),
        (Copy(Place(INPUTS.start), Place(OUTPUTS.start), 64), "only be read"),
        (Copy(Place(193, "table"), bytes(64), 64), "past its end"),
        (Copy(Place(0, "nothing"), bytes(64), 64), "the variable nothing is not in"),
        (Copy(Place(0, "table", TWO.digest), bytes(64), 64), "the variable table is not in"),
    ],
)
def test_what_is_not_the_candidates_is_not_replayed(step: Step, why: str) -> None:
    with pytest.raises(Inadmissible, match=why):
        REALM.admit(call(ADD, step))


def test_an_image_that_cannot_be_read_leaves_the_name_to_the_driver() -> None:
    realm = replace(REALM, images=(TWO, SEALED))
    realm.admit(call(ADD))
    assert realm.image_of(ADD) is SEALED
    assert realm.image_of(replace(ADD, name="scale")) is TWO
    with pytest.raises(Inadmissible, match="nothing says which"):
        replace(realm, images=(SEALED, replace(SEALED, digest="4" * 64))).admit(call(ADD))
