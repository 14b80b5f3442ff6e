"""`cpu/convolution.h` on any map: channels side by side on small ones, padded grids on others, against PyTorch."""

from __future__ import annotations

import ctypes
import os
import subprocess
from random import Random
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.collection.test_cpu_product import before_forbidden_page
from warpsmith.backends import cpu
from warpsmith.backends.library import LIBRARY
from warpsmith.backends.toolchain import find_cxx

PROGRAM = """
#include <warpsmith/cpu/convolution.h>
#define OPEN extern "C" __attribute__((visibility("default")))
using namespace warpsmith::conv;

Form form_of(const int64_t* n) {
  const auto axes = [&](int at) { return Axes{n[at], n[at + 1], n[at + 2]}; };
  return make_form(n[0], n[1], n[2], n[3], axes(4), axes(7), axes(10), axes(13), axes(16), n[19], axes(20));
}
OPEN int64_t bytes(const int64_t* n) { return workspace_of(form_of(n)); }
OPEN int small(const int64_t* n) {
  const Form f = form_of(n);
  return spreads(f, plan_of(f)) ? 2 : by_channels(f, plan_of(f));
}
OPEN int run(const int64_t* n, const float* x, const float* weights, const float* bias, float* out, void* workspace) {
  return run_convolution(form_of(n), x, weights, bias, out, workspace);
}
"""
CASES = 150
MOST_PRODUCTS = 1.5e7
MOST = 2e-6  # of an error, relative to the sum of the sizes of the terms
GUARD = 64


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("maps")
    compiler = find_cxx(os.environ)
    assert compiler is not None
    (folder / "maps.cpp").write_text(PROGRAM)
    options = [each for each in cpu._FLAGS if each != "-O3"]
    command = [*compiler.command, "-O1", *options, "-march=native", f"-I{LIBRARY}", "maps.cpp", "-o", "maps.so"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    found = ctypes.CDLL(str(folder / "maps.so"))
    found.bytes.restype = ctypes.c_int64
    return found


class Drawn:
    """A convolution, its tensors, and its numbers as the program reads them."""

    def __init__(self, random: Random) -> None:
        axes = random.choice((1, 2, 2, 3, 3))
        self.transposed, self.groups = random.random() < 0.5, random.choice((1, 1, 1, 2))
        self.ci, self.co = random.choice((1, 8, 9, 16, 40, 270)), random.choice((1, 5, 16, 17, 48, 50))
        draw = [random.choices((1, 2, 3, 5, 6, 10), k=axes), random.choices((1, 2, 3, 4), k=axes)]
        self.extents, self.kernel = draw
        self.stride, self.dilation = random.choices((1, 1, 2, 3), k=axes), random.choices((1, 1, 2), k=axes)
        reach = [d * (k - 1) for d, k in zip(self.dilation, self.kernel, strict=True)]
        self.padding = [random.randrange(r + 1) for r in reach]
        steps = [max(each) for each in zip(self.stride, self.dilation, strict=True)]
        self.more = [random.randrange(step) if self.transposed else 0 for step in steps]
        self.images, self.biased = random.choice((1, 2, 3)), random.random() < 0.5

    def tensors(self) -> tuple[Tensor, Tensor, Tensor | None]:
        channels = (self.ci * self.groups, self.co) if self.transposed else (self.co * self.groups, self.ci)
        x = torch.randn(self.images, self.ci * self.groups, *self.extents)
        bias = torch.randn(self.co * self.groups) if self.biased else None
        return x, torch.randn(*channels, *self.kernel), bias

    def expected(self, x: Tensor, weights: Tensor, bias: Tensor | None) -> Tensor:
        axes, given = len(self.extents), (x, weights, bias)
        if self.transposed:
            transposed: Any = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[axes - 1]
            return cast("Tensor", transposed(*given, self.stride, self.padding, self.more, self.groups, self.dilation))
        forward: Any = (F.conv1d, F.conv2d, F.conv3d)[axes - 1]
        return cast("Tensor", forward(*given, self.stride, self.padding, self.dilation, self.groups))

    def numbers(self) -> list[int]:
        def three(values: list[int], missing: int) -> list[int]:
            return [missing] * (3 - len(values)) + values

        return [
            *(self.images, self.groups, self.ci, self.co),
            *three(self.extents, 1),
            *three(self.kernel, 1),
            *three(self.stride, 1),
            *three(self.padding, 0),
            *three(self.dilation, 1),
            int(self.transposed),
            *three(self.more, 0),
        ]


def drawn() -> list[Drawn]:
    random, found = Random(11), list[Drawn]()
    while len(found) < CASES:
        each = Drawn(random)
        products = each.images * each.groups * each.ci * each.co
        for extent, kernel in zip(each.extents, each.kernel, strict=True):
            products *= extent * kernel
        if products > MOST_PRODUCTS:
            continue
        try:
            x, weights, _ = each.tensors()
            each.expected(x.double(), weights.double(), None)
        except RuntimeError:  # no output, or more output padding than PyTorch takes
            continue
        found.append(each)
    return found


def test_convolutions_of_small_maps_are_those_of_pytorch(library: ctypes.CDLL) -> None:
    torch.manual_seed(3)
    wrong, small = [], list[int]()
    for each in drawn():
        x, weights, bias = each.tensors()
        wide = None if bias is None else bias.double()
        expected = each.expected(x.double(), weights.double(), wide)
        sizes = each.expected(x.double().abs(), weights.double().abs(), None if wide is None else wide.abs())
        numbers = (ctypes.c_int64 * 23)(*each.numbers())
        needed = library.bytes(numbers)
        out, workspace = torch.full((expected.numel() + GUARD,), 77.0), torch.full((needed // 4 + GUARD,), 55.0)
        given = [None if t is None else before_forbidden_page(t) for t in (x, weights, bias)]
        pointers = [None if t is None else ctypes.c_void_p(t.data_ptr()) for t in (*given, out, workspace)]
        small.append(int(library.small(numbers)))

        assert library.run(numbers, *pointers) == 0

        found, kept = out[: expected.numel()].reshape(expected.shape), (out[expected.numel() :] == 77).all()
        right = bool(((found - expected).abs() <= MOST * sizes + 1e-30).all())
        if not right or not kept or not (workspace[needed // 4 + 1 :] == 55).all():
            wrong.append((small[-1], each.__dict__))

    assert wrong == []
    assert all(small.count(way) >= least for way, least in ((0, 40), (1, 12), (2, 1)))


def test_nan_and_infinity_reach_the_outputs_that_read_them(library: ctypes.CDLL) -> None:
    random, reached = Random(5), 0
    for each in (e for e in drawn() if library.small((ctypes.c_int64 * 23)(*e.numbers()))):
        x, weights, bias = each.tensors()
        x.view(-1)[random.randrange(x.numel())] = random.choice((float("nan"), float("inf")))
        expected = each.expected(x, weights, bias)
        numbers = (ctypes.c_int64 * 23)(*each.numbers())
        out, workspace = torch.empty(expected.shape), torch.empty(library.bytes(numbers))
        pointers = [None if t is None else ctypes.c_void_p(t.data_ptr()) for t in (x, weights, bias, out, workspace)]
        assert library.run(numbers, *pointers) == 0

        assert bool(((expected - expected) != 0).eq((out - out) != 0).all()), each.__dict__
        reached += bool(((out - out) != 0).any())

    assert reached > 10
