"""A proposer that sends the prompt of a brief to a model, chosen by role, by weights or by improvement per cost."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence

from warpsmith.llm.conversation import ALIGNMENT, STRATEGIES, with_form
from warpsmith.llm.model import Model, ModelContext, ModelOptions
from warpsmith.llm.spec import ModelSpec
from warpsmith.llm.spec import connect as connect_models
from warpsmith.model.brief import Brief, Prompt, Reply
from warpsmith.model.errors import UsageError
from warpsmith.model.method import Move, Product
from warpsmith.model.usage import ModelUsage

_FORMS = {Product.STRATEGIES: STRATEGIES, Product.ALIGNMENT: ALIGNMENT}


class ModelProposer:
    """A `Proposer` over one or more models; `choice` picks one for briefs whose role has no model of its own."""

    def __init__(
        self,
        models: Sequence[Model],
        choice: PickModel | None = None,
        concurrency: int = 4,
        roles: Mapping[str, Model] | None = None,
        *,
        structured: bool = False,  # ask for JSON where a reply holds no kernel
    ) -> None:
        if not models:
            raise UsageError("no model is named; name at least one with --proposer PROVIDER:MODEL.")
        self._roles = dict(roles or {})
        by_role = [f"{role}={model.name}" for role, model in sorted(self._roles.items())]
        self.name = ",".join([*(model.name for model in models), *by_role])
        self.concurrency = concurrency
        self._structured = structured
        self._models = tuple(models)
        self._choice = choice or weighted([1.0] * len(models))

    def prompt(self, brief: Brief) -> Prompt:
        """See `Proposer`."""
        from warpsmith.prompts.renderer import render  # jinja2, which choosing a proposer does not need

        prompt = render(brief)
        form = _FORMS.get(brief.product) if self._structured and brief.move is not Move.WRITE else None
        return with_form(prompt, form) if form else prompt

    def propose(self, brief: Brief, prompt: Prompt) -> Reply:
        """See `Proposer`."""
        own = self._roles.get(brief.role)
        return (own or self._models[self._choice(brief)]).complete(prompt)

    def close(self) -> None:
        """See `Proposer`."""
        for model in {id(each): each for each in (*self._models, *self._roles.values())}.values():
            model.close()


def connect(
    specs: Sequence[ModelSpec],
    options: ModelOptions,
    context: ModelContext,
    choice: str = "weighted",
    roles: Mapping[str, ModelSpec] | None = None,
) -> ModelProposer:
    """A proposer over the named models; `roles` has the model of each `Brief.role` that has its own."""
    pick = pick_model(choice, [spec.name for spec in specs], [spec.weight for spec in specs])
    models = list(connect_models(specs, options, context))
    known = {model.name: model for model in models}
    for spec in (roles or {}).values():
        if spec.name not in known:
            (known[spec.name],) = connect_models([spec], options, context)
    own = {role: known[spec.name] for role, spec in (roles or {}).items()}
    return ModelProposer(models, pick, options.concurrency, own, structured=options.structured)


PickModel = Callable[[Brief], int]
"""A function from a brief to the index of the model to ask."""

CHOICES = ("weighted", "ucb")
_EXPLORATION = 0.5  # the weight of UCB1's bonus for models that were asked less; rewards are between 0 and 1


def pick_model(name: str, names: Sequence[str], weights: Sequence[float]) -> PickModel:
    """The function that picks a model, by its name on the command line."""
    if name == "weighted":
        return weighted(weights)
    if name == "ucb":
        return ucb(names)
    raise UsageError(f"unknown choice among models {name!r}; known: {', '.join(CHOICES)}.")


def weighted(weights: Sequence[float]) -> PickModel:
    """Pick each model in proportion to its weight."""
    shares = list(weights)

    def pick(brief: Brief) -> int:
        return random.Random(brief.seed).choices(range(len(shares)), shares)[0]

    return pick


def ucb(names: Sequence[str], exploration: float = _EXPLORATION) -> PickModel:
    """Pick by UCB1 on the measured improvement per cost, relative to the best model's.

    Cost is in dollars if all models have a price, else in tokens, and in replies if tokens are unknown. A model that
    never answered gets its share of briefs, not all of them: its endpoint may be down.
    """
    models = list(names)

    def pick(brief: Brief) -> int:
        standings = [_standing(name, brief) for name in models]
        turn = brief.number % len(models)
        if standings[turn] is None:
            return turn
        tried = [(index, standing) for index, standing in enumerate(standings) if standing is not None]
        rewards = _rewards([standing for _, standing in tried])
        total = sum(standing.replies for _, standing in tried)
        scores = {
            index: reward + exploration * math.sqrt(2 * math.log(total) / standing.replies)
            for (index, standing), reward in zip(tried, rewards, strict=True)
        }
        best = max(scores.values())
        level = [index for index, score in scores.items() if math.isclose(score, best, rel_tol=1e-12)]
        return random.Random(brief.seed).choice(level)

    return pick


def _standing(name: str, brief: Brief) -> ModelUsage | None:
    """The usage of a model, under its full name or its provider's name for it; None if it has not answered yet."""
    known = (name, name.partition(":")[2])
    return next((standing for standing in brief.models if standing.model in known and standing.replies > 0), None)


def _rewards(standings: Sequence[ModelUsage]) -> list[float]:
    if all(standing.cost_usd > 0 for standing in standings):
        costs = [standing.cost_usd for standing in standings]
    elif all(standing.tokens > 0 for standing in standings):
        costs = [float(standing.tokens) for standing in standings]
    else:
        costs = [float(standing.replies) for standing in standings]
    rates = [max(standing.gain, 0.0) / cost for standing, cost in zip(standings, costs, strict=True)]
    best = max(rates, default=0.0)
    return [rate / best if best > 0 else 0.0 for rate in rates]
