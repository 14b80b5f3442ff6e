"""A search over the ways of a convolution, as a user runs it: a real compiler, the real evaluator, no model."""

from __future__ import annotations

import json

from tests.cli.test_cli_commands import Desk, desk

__all__ = ["desk"]  # the fixture: a folder with a cache of its own

CONVOLUTION = """
import torch
import torch.nn.functional as F
from warpsmith import normal, task

@task(x=normal("b, 16, h, w"), weight=normal("24, 16, 3, 3"), workloads=[{"b": 2, "h": 7, "w": 7}])
def convolution(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, weight, padding=1)
"""


def test_a_search_tries_several_ways_and_names_them(desk: Desk) -> None:
    (desk.folder / "convolution.py").write_text(CONVOLUTION)
    ending = ("--stop-at", "0", "--no-tune", "--no-profile", "--time-budget", "0.02", "--proposer", "template")

    done = desk.run(
        "optimize", "convolution.py", "--device", "cpu", "--trials", "2", "--run", "ways", "--json", *ending
    )

    assert done.status == 0, done.err
    document = json.loads(done.out)
    assert (document["status"], document["trials"], document["valid"]) == ("ok", 2, 2)
    shown = desk.run_here("show", "ways").out
    assert "collection-kernel" in shown
    assert "im2col(terms=128, tiles=4)" in shown
    first, second = (desk.run_here("show", "ways", trial).out for trial in ("1", "2"))
    assert "It is direct-convolution." in " ".join(first.split())
    assert "run_convolution(" in first
    assert "run_windows(" in second
    assert desk.run_here("report", "ways").status == 0
    page = (desk.folder / "ways" / "report.html").read_text(encoding="utf-8")
    assert "collection-kernel" in page
    assert "im2col(terms=128, tiles=4)" in page
