"""The rule by which one output is judged, whoever made it: a candidate, an impostor of ours, PyTorch itself.

Which of the rules (`poison`, `numerics`, `indices`) applies to an output follows from its type. Runs nothing: the
results are there already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from warpsmith.core.evaluation import Status
from warpsmith.core.task import Task
from warpsmith.evaluate.correctness import evidence, numerics, poison
from warpsmith.evaluate.correctness.indices import Ties, judge_indices

if TYPE_CHECKING:
    from warpsmith.evaluate.correctness.oracle import Truth  # which uses this module itself

_BY_FAR = 10.0  # times its limit


@dataclass(frozen=True)
class Ruling:
    """A verdict, and the status it stands for."""

    status: Status
    verdict: evidence.Verdict


def rule(task: Task, truth: Truth, position: int, result: torch.Tensor) -> Ruling:
    """Judge what is left in the output at this position of the task."""
    name, expected, limit = task.outputs[position].name, truth.expected[position], truth.limits[position]
    missing = poison.unwritten(result, expected, name=name)
    if missing is not None:
        return Ruling(Status.UNWRITTEN, missing)
    if limit is not None:
        verdict = numerics.judge_float(result, expected, truth.baseline[position], limit=limit, name=name)
    else:
        verdict = exactly(task, result, expected, truth.ties[position], name)
    return Ruling(Status.OK if verdict.ok else Status.WRONG, verdict)


def share(task: Task, truth: Truth, position: int, result: torch.Tensor) -> float:
    """How much of its limit a written result uses, by the same rule: above 1 it fails.

    Says no more than that, and sooner: of a result that fails by far it looks at the first part only.
    """
    limit = truth.limits[position]
    if limit is None:
        return rule(task, truth, position, result).verdict.share
    return numerics.strain(result, truth.expected[position], truth.baseline[position], limit, enough=_BY_FAR)


def exactly(task: Task, result: torch.Tensor, expected: torch.Tensor, ties: Ties | None, name: str) -> evidence.Verdict:
    """Integers and bools: equal, except that an index may name any of several equal values."""
    if ties is None:
        return numerics.judge_exact(result, expected, name=name)
    floating = [t.dtype for t in task.inputs if "float" in t.dtype]
    dtype = floating[0] if floating else evidence.dtype_name(ties.values)
    return judge_indices(result, expected, ties, dtype=dtype, name=name)
