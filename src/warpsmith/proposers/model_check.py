"""Tries a model: sends one small brief, reads the reply, and finds out what the endpoint offers.

Five requests at most: the brief, the brief once more (caching), a tool call, an object of a schema, the list of models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from warpsmith.backends.source import backend_named
from warpsmith.llm.adapter import object_of
from warpsmith.llm.conversation import ChatReply, ToolSpec, turns_of
from warpsmith.llm.endpoint import Endpoint
from warpsmith.llm.prices import Tokens
from warpsmith.model.brief import Brief, Message, Problem, Prompt, Role
from warpsmith.model.build import DeviceKind
from warpsmith.model.errors import ProposerFault
from warpsmith.model.method import Move
from warpsmith.model.task import Precision, Task, TaskKind, TensorRole, TensorSpec, Workload
from warpsmith.model.usage import TokenUsage
from warpsmith.prompts.parser import parse

TRIALS = 45
"""Of the run whose cost is estimated: the default of a run."""

_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}
_TOOL = ToolSpec("give_answer", "Takes the answer to a question.", _SCHEMA)
_TOOL_QUESTION = Prompt((Message(Role.USER, "Call the tool give_answer with the capital of France."),))
_SCHEMA_QUESTION = Prompt((Message(Role.USER, "What is the capital of France? Answer as JSON with the key answer."),))
_TASK = Task(
    name="scaled_relu",
    source="import torch\n\n\ndef scaled_relu(x):\n    return torch.relu(x) * 0.5\n",
    kind=TaskKind.NATIVE,
    tensors=(
        TensorSpec("x", "float32", ("n",), TensorRole.INPUT),
        TensorSpec("out", "float32", ("n",), TensorRole.OUTPUT),
    ),
    scalars=(),
    workloads=(Workload("one", (("n", 1 << 20),)),),
    precision=Precision.FP32,
    digest="models-check",
    description="Half of the positive part.",
)


@dataclass(frozen=True)
class FeatureCheck:
    """Whether the endpoint offers a feature."""

    works: bool
    detail: str  # for people


@dataclass(frozen=True)
class RunEstimate:
    """What a run would spend at least: later briefs show kernels, and are longer than this one."""

    trials: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float  # of one request after the other
    usd: float | None  # None: the price is not known


@dataclass(frozen=True)
class ModelCheck:
    """What is known of a model after the check."""

    model: str
    readable: bool  # whether a kernel was found in the reply
    problem: str  # why not; "" if it was
    finish: str  # "stop", "length" or another reason
    reply_s: float
    tokens_per_s: float | None  # None: the endpoint reports no tokens
    latency_s: float | None  # of the shortest request
    prompt_tokens: int
    completion_tokens: int
    streaming: FeatureCheck
    caching: FeatureCheck
    tools: FeatureCheck
    structured_output: FeatureCheck
    context_tokens: int | None  # None: the endpoint does not say
    check_usd: float | None  # what the check cost; None: the price is not known
    run: RunEstimate


def check_brief() -> Brief:
    """A first brief for a small operator in C++."""
    contract = backend_named("cpu").contract(_TASK)
    problem = Problem(_TASK, contract, "cpu", "a CPU with 8 cores", DeviceKind.CPU, "", ())
    return Brief(1, "init", Move.INIT, "evoengineer/init", problem, seed=0)


def check_model(model: Endpoint) -> ModelCheck:
    """Try a model; raises a `ProposerFault` if it does not answer the brief."""
    from warpsmith.prompts.renderer import render  # jinja2

    brief = check_brief()
    prompt = render(brief)
    first = model.complete(prompt)
    proposal = parse(first, brief)
    again = model.complete(prompt)
    tool = _try(lambda: model.converse(turns_of(_TOOL_QUESTION), (_TOOL,)))
    schema = _try(lambda: model.converse(turns_of(_SCHEMA_QUESTION), schema=_SCHEMA))
    usage, price = first.usage, model.price
    spent = [_tokens(first.usage), _tokens(again.usage)]
    short = [_tokens(each.usage) for each in (tool, schema) if isinstance(each, ChatReply)]
    costs = [price.cost_usd(each) for each in (*spent, *short)] if price and spent[0].prompt else None
    speed = usage.completion_tokens / usage.seconds if usage.completion_tokens and usage.seconds else None
    return ModelCheck(
        model=model.name,
        readable=proposal.candidate is not None,
        problem=proposal.failure,
        finish=first.finish,
        reply_s=usage.seconds,
        tokens_per_s=speed,
        latency_s=min((each.usage.seconds for each in (tool, schema) if isinstance(each, ChatReply)), default=None),
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        streaming=FeatureCheck(model.streamed, "" if model.streamed else "replies come whole"),
        caching=_caching(spent[1]),
        tools=_feature(tool, _called, "the model called no tool"),
        structured_output=_feature(schema, _follows, "the reply was no object of the schema")
        if model.structured
        else FeatureCheck(False, "the endpoint refuses schemas"),
        context_tokens=model.context_tokens(),
        check_usd=sum(costs) if costs else None,
        run=RunEstimate(
            TRIALS,
            TRIALS * usage.prompt_tokens,
            TRIALS * usage.completion_tokens,
            TRIALS * usage.seconds,
            TRIALS * price.cost_usd(replace(spent[0], cached=0)) if price and spent[0].prompt else None,
        ),
    )


def _try(ask: Callable[[], ChatReply]) -> ChatReply | ProposerFault:
    try:
        return ask()
    except ProposerFault as refused:
        return refused


def _tokens(usage: TokenUsage) -> Tokens:
    return Tokens(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens)


def _called(reply: ChatReply) -> bool:
    return any(use.name == _TOOL.name for use in reply.uses)


def _follows(reply: ChatReply) -> bool:
    return bool(object_of(reply.text).get("answer"))


def _caching(second: Tokens) -> FeatureCheck:
    if second.cached:
        return FeatureCheck(True, f"{second.cached} of {second.prompt} tokens of the second prompt")
    return FeatureCheck(False, "no cached tokens reported; many providers cache longer prompts only")


def _feature(tried: ChatReply | ProposerFault, works: Callable[[ChatReply], bool], otherwise: str) -> FeatureCheck:
    if isinstance(tried, ProposerFault):
        return FeatureCheck(False, str(tried).rstrip("."))
    return FeatureCheck(works(tried), "" if works(tried) else otherwise)
