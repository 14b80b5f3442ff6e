"""The figures of a run that stand at the top of its page, and what must be said with them."""

from __future__ import annotations

from collections.abc import Iterator

from warpsmith.core.certificate import Certificate
from warpsmith.core.evaluation import Evaluation
from warpsmith.report import numbers
from warpsmith.report.document import Figure
from warpsmith.report.story import Story
from warpsmith.run.budgets import REASONS

_OVER = {"eager": "over PyTorch eager", "compile": "over torch.compile", "start": "over the starting kernel"}


def figures(told: Story) -> Iterator[Figure]:
    """In the order of what a reader asks first."""
    ledger = told.ledger
    judged = told.judged.get(ledger.best)
    if judged is not None and judged.evaluation.ok:
        yield from _measured(judged.evaluation)
    else:
        found = ledger.totals.valid
        yield Figure("–", "speedup", f"{found} valid, none measured twice yet" if found else "no valid kernel yet")
    totals = ledger.totals
    settled = totals.settled
    share = numbers.percent(totals.valid / settled) if settled else "–"
    built = f"{totals.compiled} of {totals.judged} judged compiled" if totals.judged else "nothing judged"
    yield Figure(share, "valid", f"{totals.valid} of {settled} trials, {built}")
    yield _price(told)
    yield Figure(numbers.span(totals.seconds), "in all", f"{numbers.span(totals.device_seconds)} on the device")


def _measured(evaluation: Evaluation) -> Iterator[Figure]:
    names = dict.fromkeys(base.name for each in evaluation.workloads for base in each.baselines)
    for name in names:
        speedup, interval = evaluation.speedup(name), evaluation.interval(name)
        if speedup is not None and interval is not None:
            bounds = f"{numbers.ratio(interval.low)} to {numbers.ratio(interval.high)}, 95{numbers.NO_BREAK}% interval"
            yield Figure(numbers.ratio(speedup), _OVER.get(name, f"over {name}"), bounds)
    largest = max(evaluation.workloads, key=lambda each: each.floor_ms)
    eager = next((base.latency_ms for base in largest.baselines if base.name == "eager"), None)
    against = f"PyTorch takes {numbers.duration(eager)}" if eager else ""
    if len(evaluation.workloads) > 1 or not against:  # else it seems to contradict the mean beside it
        against = f"{largest.workload}{'; ' if against else ''}{against}"
    yield Figure(numbers.duration(largest.latency_ms), "per call", against)
    share = min(each.share_of_floor for each in evaluation.workloads)
    where = (
        "in the worst workload" if len(evaluation.workloads) > 1 else f"which is {numbers.duration(largest.floor_ms)}"
    )
    yield Figure(numbers.percent(share), "of the speed of light", where)


def _price(told: Story) -> Figure:
    totals = told.ledger.totals
    if not totals.tokens:
        return Figure("$0", "spent", "no model was asked")
    tokens = f"{numbers.count(totals.tokens)} tokens"
    if totals.unpriced:
        return Figure(numbers.count(totals.tokens), "tokens", "the price is not known")
    return Figure(numbers.usd(totals.cost_usd), "spent", tokens)


def remarks(told: Story, certificate: Certificate | None) -> Iterator[str]:
    """What must be known to read the figures rightly."""
    ledger = told.ledger
    if ledger.closed is not None:
        reason = REASONS.get(ledger.closed.reason, ledger.closed.reason)
        yield f"The run stopped after {ledger.totals.trials} trials: {reason}."
    else:
        yield f"The run was open when this was written, at {ledger.totals.trials} trials; it may have gone on since."
    if ledger.pending:
        count = len(ledger.pending)
        yield "1 verdict was still pending." if count == 1 else f"{count} verdicts were still pending."
    if ledger.best and certificate is None:
        yield "The best kernel was measured twice, and is not verified: warpsmith verify does that."
    elif certificate is not None and certificate.verified:
        yield "The best kernel is verified: other inputs and shapes, sanitizers and a second measurement."
    elif certificate is not None:
        yield f"Verification stands against the best kernel: {certificate.reason}"
