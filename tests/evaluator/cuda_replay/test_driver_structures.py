from __future__ import annotations

import ctypes

from warpsmith.evaluator import cuda_driver


def test_structures_are_as_large_as_the_driver_says() -> None:
    assert {kind: ctypes.sizeof(kind) for kind in cuda_driver.SIZES} == cuda_driver.SIZES
