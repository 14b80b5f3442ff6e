"""A proposer that sends the prompt of a brief to a language model, chosen by the role of the brief or by weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from warpsmith.llm.model import Model, ModelContext, ModelOptions
from warpsmith.llm.spec import ModelSpec
from warpsmith.llm.spec import connect as connect_models
from warpsmith.llm.structured import ALIGNMENT, STRATEGIES, with_form
from warpsmith.model.brief import Brief, Prompt, Reply
from warpsmith.model.errors import UsageError
from warpsmith.model.method import Move, Product
from warpsmith.proposers.model_choice import PickModel, weighted
from warpsmith.proposers.model_choice import choice as choice_named

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
    pick = choice_named(choice, [spec.name for spec in specs], [spec.weight for spec in specs])
    models = list(connect_models(specs, options, context))
    known = {model.name: model for model in models}
    for spec in (roles or {}).values():
        if spec.name not in known:
            (known[spec.name],) = connect_models([spec], options, context)
    own = {role: known[spec.name] for role, spec in (roles or {}).items()}
    return ModelProposer(models, pick, options.concurrency, own, structured=options.structured)
