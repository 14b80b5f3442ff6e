"""When a run has had enough: of trials, time, tokens, money or the device, or because nothing is left to gain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpsmith.archive.events import Budget
from warpsmith.core.errors import UsageError
from warpsmith.run.ledger import Ledger

if TYPE_CHECKING:
    from warpsmith.propose.making import Choice  # with all proposers, which who only looks at a run does not need

MOST_FAULTS = 5
"""Calls in a row without a reply, replies in a row without a new strategy, or verdicts in a row that we failed to
reach, after which a run stops."""

REASONS = {
    "trials": "all trials are spent",
    "time": "the time is up",
    "tokens": "the tokens are spent",
    "cost": "the money is spent",
    "device_time": "the device time is spent",
    "speed_of_light": "the best kernel is as fast as the hardware allows",
    "proposer_failed": "the proposer gave no reply several times in a row",
    "proposer_refused": "the proposer gives no more replies",
    "no_strategies": "no strategy that was not tried before came several times in a row",
    "evaluator_failed": "the evaluator failed several times in a row",
    "interrupted": "it was interrupted",
    "told": "it was told to",
}
"""Why a run stopped, for people."""


def spent(ledger: Ledger, budget: Budget, now: float) -> str:
    """Why nothing more should be asked, as a key of REASONS; "" where there is no reason."""
    totals = ledger.totals
    best = ledger.trials.get(ledger.best)
    trials = ("trials", totals.trials, budget.trials)
    clocks = (
        ("time", ledger.elapsed(now), budget.seconds),
        ("device_time", totals.device_seconds, budget.device_seconds),
    )
    others = (
        ("tokens", totals.tokens, budget.tokens),
        ("cost", totals.cost_usd, budget.usd),
        ("speed_of_light", best.share if best else None, enough(ledger)),
    )
    # All trials may have been proposed long before they are judged: a limit of time is for that too.
    unjudged = not all(ledger.pending.values())
    for reason, used, limit in (*clocks, trials, *others) if unjudged else (trials, *clocks, *others):
        if used is not None and limit is not None and used >= limit:
            return reason
    if ledger.faults_in_a_row >= MOST_FAULTS:
        return "proposer_failed"
    if ledger.ideas.barren >= MOST_FAULTS:
        return "no_strategies"
    if ledger.not_judged_in_a_row >= MOST_FAULTS:
        return "evaluator_failed"
    return ""


def enough(ledger: Ledger) -> float | None:
    """The share of the speed of light at which the run stops, as it was last opened; None where it does not."""
    given = ledger.opened.enough_share if ledger.opened else None
    return ledger.begun.config.enough_share if given is None else given or None


def twice(reason: str, budget: Budget) -> str:
    """The option that gives a run which stopped for this reason as much again; "" where it needs none to go on."""
    option, limit = _options(budget).get(reason, ("", None))
    return f"{option} {2 * limit:.10g}" if limit else ""


def _options(budget: Budget) -> dict[str, tuple[str, float | None]]:
    """By the reason that it gives: an option of the command line, and its value."""
    return {
        "trials": ("--trials", budget.trials),
        "time": ("--time", budget.seconds),
        "tokens": ("--tokens", budget.tokens),
        "cost": ("--cost", budget.usd),
        "device_time": ("--device-time", budget.device_seconds),
    }


def check(budget: Budget) -> Budget:
    """The budget, if it is one."""
    if budget.trials < 1:
        raise UsageError(f"--trials {budget.trials} leaves nothing to try; give 1 or more.")
    for option, value in _options(budget).values():
        if value is not None and not value > 0:
            raise UsageError(f"{option} {value:g} is no budget; give a number above 0, or leave it out for no limit.")
    return budget


def check_counted(budget: Budget, choice: Choice) -> None:
    """Raise where a limit could not hold, because nobody knows what the proposer spends."""
    if budget.usd is not None and choice.unpriced:
        raise UsageError(
            f"--cost {budget.usd:g} cannot hold: the price of {', '.join(choice.unpriced)} is not known; give it with "
            "--prices FILE or WARPSMITH_PRICES, or limit --tokens or --trials instead."
        )
    for option, limit in (("--cost", budget.usd), ("--tokens", budget.tokens)):
        if limit is not None and choice.uncounted:
            raise UsageError(
                f"{option} {limit:.10g} cannot hold: a command does not say what it spends; limit --trials or --time "
                "instead."
            )
