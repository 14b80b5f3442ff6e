"""Calls of C entry points, one by one and in a row."""

from __future__ import annotations

import ctypes
import os
import subprocess

import pytest

from warpsmith.backends.toolchain import find_cxx
from warpsmith.evaluator.candidate.c_call import CallLoop, CLibrary, pointer_table
from warpsmith.evaluator.supervisor.worker_pool import CALLS, native_library

KINDS = ("pointer", "double", "bool", "int", "double", *("int",) * 12, "bool", "table")
SOURCE = """\
#include <stdint.h>
#define I int64_t
int launch(double *out, double a, _Bool b, I c, double d, I e, I f, I g, I h, I i, I j, I k, I l, I m, I n, I o, I p,
           _Bool q, void **table) {
  double *to = *(double **)table;
  const double all[] = {a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q};
  for (int at = 0; at < 17; ++at) out[at] = to[at] = all[at];
  return b ? 2 : 4;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> CLibrary:
    folder = tmp_path_factory.mktemp("c_call")
    (folder / "entry.c").write_text(SOURCE)
    compiler = find_cxx(os.environ)
    assert compiler is not None
    words = ("-x", "c", "-O2", "-shared", "-fPIC", "-o", str(folder / "entry.so"), str(folder / "entry.c"))
    subprocess.run([*compiler.command, *words], check=True)
    return CLibrary(str(folder / "entry.so"), "launch", KINDS, ())


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> CallLoop:
    return CallLoop(native_library(CALLS, tmp_path_factory.mktemp("calls"), os.environ))


class Arguments:
    """The arguments of one call, with the memory that it writes."""

    def __init__(self, first: float, flag: bool) -> None:
        self.out, self.second = (ctypes.c_double * 17)(), (ctypes.c_double * 17)()
        self.table = pointer_table([ctypes.addressof(self.second)])
        self.numbers = [first, flag, -(1 << 62), -2.5, *range(12), not flag]
        self.values = [ctypes.addressof(self.out), *self.numbers, ctypes.addressof(self.table)]

    @property
    def arrived(self) -> bool:
        return list(self.out) == list(self.second) == [float(number) for number in self.numbers]


def test_every_argument_arrives_one_by_one_and_in_a_row(library: CLibrary, loop: CallLoop) -> None:
    alone = Arguments(0.125, flag=True)
    assert library.bind(alone.values)() == 2
    assert alone.arrived

    together = [Arguments(0.5, flag=True), Arguments(1e300, flag=False), Arguments(-0.0, flag=True)]
    rows = [library.row(each.values) for each in together]
    assert loop.call([row for row in rows if row] + [loop.no_call]) == 6
    assert all(each.arrived for each in together)
    assert loop.call([]) == loop.call([loop.no_call] * 3) == 0


def test_more_arguments_than_a_row_has_are_called_one_by_one() -> None:
    for kinds, fits in ((("int",) * 32, True), (("int",) * 33, False), (("double",) * 9, False)):
        library = CLibrary("libc.so.6", "getpid", kinds, ())
        assert (library.row([0] * len(kinds)) is not None) == fits
