"""When a run stops: a limit of its budget is reached, something fails repeatedly, or there is nothing left to gain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from warpsmith.model.errors import UsageError
from warpsmith.run_log.events import Budget, StopReason
from warpsmith.search.run_state import RunState

if TYPE_CHECKING:
    from warpsmith.proposers.choose import ChosenProposer  # imports all proposers


MAX_FAILURES_IN_A_ROW = 5
"""A run stops after this many calls without a reply, replies without a new strategy, or failed evaluations in a row."""


def stop_reason(state: RunState, budget: Budget, now: float) -> StopReason | None:
    """Why nothing more should be asked; None if the run may go on."""
    totals = state.totals
    best = None if state.floor_beaten else state.trials.get(state.best)  # a floor that was beaten says nothing
    trials = (StopReason.TRIALS, totals.trials, budget.trials)
    clocks = (
        (StopReason.TIME, state.elapsed(now), budget.seconds),
        (StopReason.DEVICE_TIME, totals.device_seconds, budget.device_seconds),
    )
    others = (
        (StopReason.TOKENS, totals.tokens, budget.tokens),
        (StopReason.COST, totals.cost_usd, budget.usd),
        (StopReason.SPEED_OF_LIGHT, best.share if best else None, stop_share(state)),
    )
    # While proposed trials still wait for their evaluation, the time limits come first: they apply to evaluating too.
    unjudged = not all(state.pending.values())
    for reason, used, limit in (*clocks, trials, *others) if unjudged else (trials, *clocks, *others):
        if used is not None and limit is not None and used >= limit:
            return reason
    if state.failed_calls_in_a_row >= MAX_FAILURES_IN_A_ROW:
        return StopReason.PROPOSER_FAILED
    if state.ideas.empty_replies_in_a_row >= MAX_FAILURES_IN_A_ROW:
        return StopReason.NO_STRATEGIES
    if state.failed_evaluations_in_a_row >= MAX_FAILURES_IN_A_ROW:
        return StopReason.EVALUATOR_FAILED
    return None


def stop_share(state: RunState) -> float | None:
    """The share of the hardware limit at which the run stops, as last given; None if it does not stop for that."""
    given = state.opened.enough_share if state.opened else None
    return state.setup.config.enough_share if given is None else given or None


def doubled_option(reason: StopReason, budget: Budget) -> str:
    """The command-line option that doubles the limit a run stopped at; "" if the reason is no limit."""
    option, limit = _options(budget).get(reason, ("", None))
    return f"{option} {2 * limit:.10g}" if limit else ""


def _options(budget: Budget) -> dict[StopReason, tuple[str, float | None]]:
    """The command-line option of each limit, with its value."""
    return {
        StopReason.TRIALS: ("--trials", budget.trials),
        StopReason.TIME: ("--time", budget.seconds),
        StopReason.TOKENS: ("--tokens", budget.tokens),
        StopReason.COST: ("--cost", budget.usd),
        StopReason.DEVICE_TIME: ("--device-time", budget.device_seconds),
    }


def check_budget(budget: Budget) -> Budget:
    """The same budget; a UsageError if a limit is not above 0."""
    if budget.trials < 1:
        raise UsageError(f"a budget of {budget.trials} trials leaves nothing to try; give 1 or more.")
    limits = {"s": budget.seconds, "tokens": budget.tokens, "$": budget.usd, "s of the device": budget.device_seconds}
    for unit, value in limits.items():
        if value is not None and not value > 0:
            raise UsageError(
                f"a limit of {value:g} {unit} is no budget; give more than 0, or leave it out for no limit."
            )
    return budget


def check_trials_left(given: int | None, done: int, folder: Path) -> None:
    """Raise a UsageError for a limit of trials that a run has passed already."""
    if given is not None and given < done:
        raise UsageError(
            f"--trials {given} counts all trials of {folder}, and {done} are done; give more than {done}, as in "
            f"--trials {2 * done}."
        )


def check_countable(budget: Budget, choice: ChosenProposer) -> None:
    """Raise a UsageError if a limit could not be enforced, because the spending of the proposer is not known."""
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
