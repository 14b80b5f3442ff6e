"""Numbers for timed calls are as random as PyTorch's in all that a kernel could make use of."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from warpsmith.tasks.quick_random import QuickRandom, random_bytes

COUNT = 1 << 20
FORMS = [(torch.rand, torch.float32), (torch.randn, torch.float32)]
Draw = Callable[..., Tensor]


def _share_below(draw: Draw, x: Tensor) -> Tensor:
    """The probability of a smaller number than each of these."""
    return x.double() if draw is torch.rand else 0.5 * (1 + torch.erf(x.double() / math.sqrt(2)))


@pytest.mark.parametrize(("draw", "dtype"), FORMS)
def test_they_have_the_distribution(draw: Draw, dtype: torch.dtype) -> None:
    with QuickRandom():
        x = draw(COUNT, dtype=dtype, generator=torch.Generator().manual_seed(1))
    assert x.dtype is dtype
    assert bool(x.isfinite().all())
    ranks = _share_below(draw, x).sort().values
    assert float((ranks - torch.linspace(0, 1, COUNT, dtype=torch.float64)).abs().max()) < 1.95 / math.sqrt(COUNT)
    if draw is torch.rand:
        assert 0 <= float(x.min()) < float(x.max()) < 1
    else:
        assert float(x.abs().max()) > 4.3  # the tails are whole


@pytest.mark.parametrize(("draw", "dtype"), FORMS)
def test_what_was_drawn_before_says_nothing_about_the_next_ones(draw: Draw, dtype: torch.dtype) -> None:
    with QuickRandom():
        first, second = (_share_below(draw, draw(COUNT, dtype=dtype)) for _ in range(2))
    assert not torch.equal(first, second)
    finer, place = (second * 256).frac(), (second * 256).long()
    for number in range(4):
        chosen = place[(finer * 4).long() == number]
        counts = torch.bincount(chosen, minlength=256).double()
        expected = len(chosen) / 256
        assert float(((counts - expected) ** 2 / expected).sum()) < 255 + 6 * math.sqrt(2 * 255)
    for shift in (0, 1, 1 << 16):
        moved = second.roll(shift)
        assert abs(float(torch.corrcoef(torch.stack([first, moved]))[0, 1])) < 6 / math.sqrt(COUNT)


@pytest.mark.parametrize(("draw", "dtype"), FORMS)
@pytest.mark.parametrize("leading", [1, 1 << 4, 1 << 8])
def test_no_digits_occur_in_a_later_tensor(draw: Draw, dtype: torch.dtype, leading: int) -> None:
    """Digits behind the leading ones that lay side by side in an earlier tensor: some kernel could look them up."""
    with QuickRandom():
        first, second = ((_share_below(draw, draw(COUNT, dtype=dtype)) * leading).frac() for _ in range(2))
    words = [torch.stack([(x * 64).long().roll(-k) << (6 * k) for k in range(8)]).sum(0) for x in (first, second)]
    assert int(torch.isin(words[1], words[0]).sum()) < 32  # of a million, by chance


def test_a_seed_says_which_and_the_form_of_the_call_does_not_matter() -> None:
    with QuickRandom():
        seeded = [torch.randn(64, 1024, generator=torch.Generator().manual_seed(seed)) for seed in (5, 5, 6)]
        assert torch.equal(seeded[0], seeded[1])
        assert not torch.equal(seeded[0], seeded[2])
        torch.manual_seed(5)
        assert torch.equal(torch.randn((64, 1024)), seeded[0])
        torch.manual_seed(5)
        assert torch.equal(torch.randn(size=torch.Size([64, 1024]), device="cpu", dtype=torch.float32), seeded[0])


def test_small_and_narrow_tensors_are_those_of_pytorch() -> None:
    for shape, dtype in (
        ((1 << 15,), torch.float32),
        ((0, 9), torch.float32),
        ((1 << 17,), torch.bfloat16),
        ((1 << 17,), torch.float64),
    ):
        own = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(2))
        with QuickRandom():
            assert torch.equal(torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(2)), own)


@pytest.mark.parametrize("size", [1.5, "many", -1, (1 << 17, None)])
def test_pytorch_says_what_is_wrong_with_a_size(size: object) -> None:
    said = []
    draw: Draw = torch.randn
    for call in (partial(draw, size), partial(draw, size=size)):
        for mode in (contextlib.nullcontext(), QuickRandom()):
            with mode, pytest.raises((TypeError, RuntimeError)) as raised:
                call()
            said.append(str(raised.value).splitlines()[0])
    assert said[0::2] == said[1::2]


@pytest.mark.parametrize("count", [0, 1, 7, 8, 65_537])
def test_as_many_bytes_as_wanted(count: int) -> None:
    drawn = random_bytes(count, generator=torch.Generator().manual_seed(3))

    assert drawn.shape == (count,)
    assert drawn.dtype is torch.uint8
    if count > 65_536:
        assert int(torch.bincount(drawn, minlength=256).min()) > 180  # of 256 on average
