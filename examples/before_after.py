"""A transformer block before and after its softmax is replaced by a kernel that Warpsmith found.

    warpsmith optimize softmax.py --run runs/softmax
    python examples/before_after.py runs/softmax

The bundle may be any whose task is a softmax over the rows of a matrix; its first workload sets the block's size.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from warpsmith import load
from warpsmith.model.errors import WarpsmithError

Softmax = Callable[[Tensor], Tensor]


class Block(nn.Module):
    """Attention and a small MLP, each with its RMSNorm. What turns scores into weights can be exchanged."""

    def __init__(self, width: int, heads: int, softmax: Softmax) -> None:
        super().__init__()
        self.heads = heads
        self.softmax = softmax
        self.before_attention, self.before_mlp = nn.RMSNorm(width), nn.RMSNorm(width)
        self.project, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        tokens, width = x.shape
        split = self.project(self.before_attention(x)).view(tokens, 3, self.heads, width // self.heads)
        query, key, value = split.permute(1, 2, 0, 3)
        scores = query @ key.mT * (width // self.heads) ** -0.5
        weights = self.softmax(scores.reshape(-1, tokens)).view_as(scores)
        x = x + self.merge((weights @ value).transpose(0, 1).reshape(tokens, width))
        changed: Tensor = self.mlp(self.before_mlp(x))
        return x + changed


def main(words: list[str] | None = None) -> None:
    """Time both, one after the other and in turns, and check that they agree."""
    parser = argparse.ArgumentParser(description="A transformer block before and after.")
    parser.add_argument("bundle", help="a run's folder, or a bundle")
    parser.add_argument("--rounds", type=int, default=50, help="calls of each, in turns")
    given = parser.parse_args(words)

    try:
        op = load(given.bundle)
    except WarpsmithError as refused:
        parser.exit(2, f"error: {refused}\n")
    device = torch.device(op.manifest.device)
    sizes = op.manifest.workloads[0].sizes
    rows, cols = sizes.get("rows", 0), sizes.get("cols", 0)
    if not rows or not cols or not is_softmax(op, torch.randn(rows, cols, device=device)):
        task = f"{given.bundle} holds a kernel for {op.manifest.task}, which is no softmax over the rows of a matrix"
        parser.exit(2, f"error: {task}; make one with `warpsmith optimize softmax.py --run runs/softmax`.\n")
    heads = max(1, rows // cols)
    torch.manual_seed(0)
    before = Block(64 * heads, heads, lambda x: torch.softmax(x, dim=-1)).to(device)
    after = Block(64 * heads, heads, op).to(device)
    after.load_state_dict(before.state_dict())
    x, scores = torch.randn(cols, 64 * heads, device=device), torch.randn(rows, cols, device=device)

    with torch.inference_mode():
        print(f"{op!r}")
        print(f"covers [{rows}, {cols}]: {op.covers(scores) or 'yes'}\n")
        print(f"{'median of ' + str(given.rounds) + ' calls':24}{'before':>12}{'after':>12}{'speedup':>10}")
        alone = in_turns(lambda: torch.softmax(scores, dim=-1), lambda: op(scores), device, given.rounds)
        show("softmax alone", *alone)
        show("the whole block", *in_turns(lambda: before(x), lambda: after(x), device, given.rounds))
        first, second = before(x), after(x)
    torch.testing.assert_close(second, first)
    print(f"\nThe outputs agree: they differ by {(second - first).abs().max():.1e} at most.")


def is_softmax(op: Softmax, scores: Tensor) -> bool:
    """Whether it does what the block needs of it, as nearly as kernels in a low precision do."""
    try:
        weights = op(scores)
    except (TypeError, ValueError, RuntimeError, WarpsmithError):  # it takes something else
        return False
    expected = torch.softmax(scores, dim=-1)
    same = isinstance(weights, Tensor) and weights.shape == expected.shape
    return same and torch.allclose(weights.to(expected), expected, rtol=0.1, atol=1e-3)


def in_turns(
    first: Callable[[], Tensor], second: Callable[[], Tensor], device: torch.device, rounds: int
) -> tuple[float, float]:
    """Median milliseconds of each; in turns, so that whatever else the machine does meets both."""
    taken: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 3):
        for call, times in zip((first, second), taken, strict=True):
            start = time.perf_counter()
            call()
            if device.type == "cuda":
                torch.cuda.synchronize()
            if number >= 3:  # the first ones warm up
                times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(taken[0]), statistics.median(taken[1])


def show(what: str, before_ms: float, after_ms: float) -> None:
    """One line of the table."""
    print(f"{what:24}{before_ms:>9.3f} ms{after_ms:>9.3f} ms{before_ms / after_ms:>9.2f}x")


if __name__ == "__main__":
    main()
