from __future__ import annotations

import ctypes

from warpsmith.evaluate.replay import structures


def test_structures_are_as_large_as_the_driver_says() -> None:
    assert {kind: ctypes.sizeof(kind) for kind in structures.SIZES} == structures.SIZES
