"""Writes candidates for convolutions of the collection, one .cu file for each task and kind, for benchmarks.kernel_variants.

    python benchmarks/probes/convolutions/candidates.py FOLDER

A candidate is the collection's kernel for the task with another device kernel: `held.cuh` for the tasks in HELD, `flat.cuh`
for those in FLAT, `strided.cuh` for those in STRIDED, `fed.cuh` for those in FED. Each file stands alone: the header is part of it. Those in WHOLE are files of
this folder as they are.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from warpsmith.kernels.collection import find_kernel

HERE = Path(__file__).resolve().parent
HELD = (
    "conv_transpose3d_large",
    "conv_transpose3d_strided_dilated",
    "conv_transpose2d_oblong",
    "conv_transpose2d_strided_dilated",
    "conv_transpose2d_grouped",
    "conv_transpose3d_grouped",
    "conv_transpose1d",
    "conv2d",
    "conv2d_stem",
    "conv3d",
    "conv3d_3x3x1",
)
FLAT = ("conv3d", "conv3d_3x3x1")
STRIDED = ("conv2d_stem",)
FED = ("conv1d_dilated_strided", "conv1d", "conv2d_pointwise", "conv2d_depthwise_separable", "conv_transpose1d_dilated")
WHOLE = ("conv_transpose2d_strided_dilated",)


def held(task: str) -> str:
    """The kernel of the collection with the sums of all rows of a tile held in registers."""
    text = without_rows(find_kernel(task).candidate.main.text)
    text = replaced(text, r"constexpr int kRows = \w+;", "constexpr int kRows = TUNE_ROWS;")
    text = replaced(text, r"kColumns, kRows\)\)", "kColumns, kRows, held_tuning()))")
    text = replaced(text, r"launch_convolution<", "launch_held<")
    return with_header(text, "held.cuh")


def flat(task: str) -> str:
    """The kernel of the collection in one pass over memory: taps become terms in shared memory."""
    text = without_rows(find_kernel(task).candidate.main.text)
    text = replaced(text, r"constexpr int kRows = \w+;.*\n", "")
    text = replaced(text, r"workspace_of\(best_plan\((.*), kColumns, kRows\)\)", r"flat_workspace(make_flat_plan(\1))")
    text = replaced(text, r"launch_convolution<kColumns, 1, kRows>", "launch_flat")
    return with_header(text, "flat.cuh")


def strided(task: str) -> str:
    """The kernel of the collection with blocks of stride x stride pixels as channels."""
    text = without_rows(find_kernel(task).candidate.main.text)
    text = replaced(text, r"constexpr int kRows = \w+;", "constexpr int kRows = TUNE_ROWS;")
    text = replaced(text, r"workspace_of\(best_plan\((.*), kColumns, kRows\)\)", r"strided_workspace<kColumns, kRows>(\1)")
    text = replaced(text, r"launch_convolution<kColumns, 1, kRows>", "launch_strided<kColumns, kRows>")
    return with_header(text, "strided.cuh")


def fed(task: str) -> str:
    """The kernel of the collection with its input copied ahead by bulk copies."""
    text = find_kernel(task).candidate.main.text
    if "launch_separable" in text:
        text = replaced(text, r"return separable_workspace.*?;", "return fed_separable_workspace(f, kColumns, kRows);")
        text = replaced(text, r"launch_separable<", "launch_fed_separable<")
    else:
        text = replaced(text, r"stream_workspace\(make_stream_plan\((.*), kColumns, kRows\)\)", r"fed_workspace(\1, kColumns, kRows)")
        text = replaced(text, r"launch_stream<", "launch_fed<")
    text = replaced(text, r"(launch_fed\w*<.*), 256>", r"\1, TUNE_PRODUCERS>")
    return with_header(text, "fed.cuh")


def whole(task: str) -> str:
    """A file of this folder."""
    return (HERE / f"{task}.cu").read_text(encoding="utf-8")


def without_rows(text: str) -> str:
    """The text without its own choices of TUNE_ROWS."""
    return re.sub(r"// tune: TUNE_ROWS.*\n#ifndef TUNE_ROWS\n.*\n#endif\n", "", text)


def with_header(text: str, header: str) -> str:
    """The text with a header of this folder in the place of the device library's."""
    body = (HERE / header).read_text(encoding="utf-8").replace("#pragma once\n", "")
    for other in re.findall(r'#include "(.*)"\n', body):
        more = (HERE / other).read_text(encoding="utf-8").replace("#pragma once\n", "")
        body = body.replace(f'#include "{other}"\n', more)
    return replaced(text, r"#include <warpsmith/convolution(_stream)?.cuh>\n", lambda _: body)


def replaced(text: str, pattern: str, by: object) -> str:
    """The text with one part replaced; an error if the pattern is not found exactly once."""
    made, count = re.subn(pattern, by, text)  # type: ignore[call-overload]
    if count != 1:
        raise SystemExit(f"'{pattern}' is found {count} times in the kernel; adapt candidates.py to the collection")
    return str(made)


def main() -> None:
    """The command line."""
    if len(sys.argv) != 2:
        raise SystemExit(f"usage: candidates.py FOLDER\n\n{__doc__}")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    kinds = (("held", HELD, held), ("flat", FLAT, flat), ("strided", STRIDED, strided), ("fed", FED, fed))
    for kind, tasks, make in kinds:
        for task in tasks:
            (folder / f"{task}.{kind}.cu").write_text(make(task), encoding="utf-8")


if __name__ == "__main__":
    main()
