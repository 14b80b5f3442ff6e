"""Profiles that the runs of a bench share."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event

from warpsmith.search.profiles import KnownProfiles, ProfileResult


def test_a_kernel_of_a_task_is_profiled_once_and_others_wait_for_it() -> None:
    known, made, go = KnownProfiles(), [], Event()

    def make() -> ProfileResult:
        made.append(1)
        assert go.wait(20)
        return ProfileResult("slow loads", 3.0)

    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(known.take, "task", "kernel", make) for _ in range(3)]
        go.set()
        found = [each.result(20) for each in asked]

    assert len(made) == 1
    assert {each.digest for each in found} == {"slow loads"}
    assert sorted(each.seconds for each in found) == [0.0, 0.0, 3.0]
    assert known.take("task", "another kernel", lambda: ProfileResult("other", 1.0)).digest == "other"
    assert known.take("another task", "kernel", lambda: ProfileResult("other", 1.0)).digest == "other"
