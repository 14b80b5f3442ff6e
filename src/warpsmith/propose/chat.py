"""A proposer that asks language models: the prompt of the brief, sent to the model whose turn it is."""

from __future__ import annotations

from collections.abc import Sequence

from warpsmith.core.errors import UsageError
from warpsmith.core.search import Brief, Prompt, Reply
from warpsmith.llm.model import Model, Options, Surroundings
from warpsmith.llm.spec import ModelSpec
from warpsmith.llm.spec import connect as connect_models
from warpsmith.prompts.renderer import render
from warpsmith.propose.choose import Choice, weighted
from warpsmith.propose.choose import choice as choice_named


class ChatProposer:
    """A `Proposer` over one or more models."""

    def __init__(self, models: Sequence[Model], choice: Choice | None = None, concurrency: int = 4) -> None:
        if not models:
            raise UsageError("there is no model to ask; name at least one.")
        self.name = ",".join(model.name for model in models)
        self.concurrency = concurrency
        self._models = tuple(models)
        self._choice = choice or weighted([1.0] * len(models))

    def prompt(self, brief: Brief) -> Prompt:
        """See `Proposer`."""
        return render(brief)

    def propose(self, brief: Brief, prompt: Prompt) -> Reply:
        """See `Proposer`."""
        return self._models[self._choice(brief)].complete(prompt)

    def close(self) -> None:
        """See `Proposer`."""
        for model in self._models:
            model.close()


def connect(
    specs: Sequence[ModelSpec], options: Options, surroundings: Surroundings, choice: str = "weighted"
) -> ChatProposer:
    """A proposer over models by name, chosen among by their weights or by what they bring."""
    pick = choice_named(choice, [spec.name for spec in specs], [spec.weight for spec in specs])
    return ChatProposer(connect_models(specs, options, surroundings), pick, options.concurrency)
