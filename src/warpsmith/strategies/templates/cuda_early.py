"""CUDA: a loop that loads several packs before it uses any, so that all of them are on their way together.

Left to itself, nvcc may use the first packs before it loads the next, to get by with fewer registers: a gain where more
blocks fit on a multiprocessor that way, a loss where shared memory has room for one block only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warpsmith.strategies.templates.code import nest

_MOST_BYTES = 192  # that a thread loads before it uses any; one of 1024 threads has registers for 256 in all


@dataclass(frozen=True)
class Early:
    """A load that is made for several packs at once."""

    kind: str  # "Pack<float, W>"
    name: str  # of the array in which the packs wait
    value: str  # for pack p_


def walk_early(
    span: tuple[str, str, str],  # the first pack of a lane, where the packs end, and the lanes
    count: str,  # how many packs to load at once, where the registers suffice
    early: Sequence[Early],
    inside: Sequence[str],  # what is done with pack p_, which lies in place u_ of the arrays
) -> list[str]:
    """The loop of a lane over its packs of a row. nvcc keeps the order: it moves no load behind the first branch."""
    begin, end, lanes = span
    nbytes = " + ".join(f"sizeof({load.kind})" for load in early)

    def each(lines: Sequence[str]) -> list[str]:
        place = f"const int64_t p_ = begin_ + int64_t(u_) * {lanes};"
        guarded = [f"if (p_ < {end}) {{", *nest(lines), "}"]
        return ["#pragma unroll", "for (int u_ = 0; u_ < EARLY; ++u_) {", *nest([place, *guarded]), "}"]

    return [
        "// EARLY packs of a thread are on their way before it uses the first.",
        f"constexpr int ROOM = {_MOST_BYTES} / int({nbytes});",
        f"constexpr int EARLY = ROOM < 1 ? 1 : ROOM < {count} ? ROOM : {count};",
        f"for (int64_t begin_ = {begin}; begin_ < {end}; begin_ += int64_t(EARLY) * {lanes}) {{",
        *(f"  {load.kind} {load.name}[EARLY];" for load in early),
        *nest(each([f"{load.name}[u_] = {load.value};" for load in early])),
        *nest(each(inside)),
        "}",
    ]
