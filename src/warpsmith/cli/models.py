"""`warpsmith models check PROVIDER:MODEL`: try a model before a run is spent on it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from warpsmith.cli import cards
from warpsmith.cli.json_documents import print_document
from warpsmith.cli.options import AsJson, BaseUrl, Effort, KeyFile, MaxTokens, Prices, RequestTime, Temperature
from warpsmith.llm import spec as models
from warpsmith.llm.endpoint import Endpoint
from warpsmith.llm.model import ModelContext
from warpsmith.model import numbers
from warpsmith.model.errors import UsageError
from warpsmith.proposers.choose import ProposerOptions
from warpsmith.proposers.model_check import FeatureCheck, ModelCheck, check_model


def models_check(
    model: Annotated[
        str, typer.Argument(metavar="PROVIDER:MODEL", help="As --proposer: openai:MODEL, anthropic:MODEL.")
    ],
    base_url: BaseUrl = "",
    key_file: KeyFile = "",
    prices: Prices = "",
    temperature: Temperature = None,
    max_tokens: MaxTokens = None,
    effort: Effort = "",
    request_time: RequestTime = None,
    json: AsJson = False,
) -> int:
    """Send one small brief, read the reply, and say what the endpoint offers and what a run would cost.

    Four short requests, which your provider may charge for. Exit status: 0 the reply holds a kernel, 1 it holds none,
    2 there was no reply.
    """
    specs = models.parse(model)
    if len(specs) != 1:
        raise UsageError(f"{model!r} names {len(specs)} models; check one at a time.")
    given = ProposerOptions(
        base_url=base_url, temperature=temperature, max_tokens=max_tokens, effort=effort, request_s=request_time
    )
    key, table = (Path(name) if name else None for name in (key_file, prices))
    (connected,) = models.connect(specs, given.for_models(), ModelContext.load(os.environ, key, table))
    assert isinstance(connected, Endpoint), "all providers are endpoints"
    try:
        found = check_model(connected)
    finally:
        connected.close()
    if json:
        print_document(found)
    else:
        console = cards.console()
        for line in lines(found):
            cards.say(console, line, whole=True)
    return 0 if found.readable else 1


def lines(found: ModelCheck) -> list[str]:
    """The result for people, one line for each fact."""
    run = found.run
    speed = f", {found.tokens_per_s:.0f} tokens a second" if found.tokens_per_s else ""
    counted = found.prompt_tokens > 0
    tokens = f"{found.prompt_tokens} tokens in, {found.completion_tokens} out" if counted else "no token counts"
    latency = f"{found.latency_s:.2f} s for a short request" if found.latency_s is not None else "not measured"
    context = f"{found.context_tokens} tokens" if found.context_tokens else "not stated by the endpoint"
    price = "price unknown" if run.usd is None else f"about {numbers.dollars(run.usd)} or more at list prices"
    spent = "price unknown" if found.check_usd is None else numbers.dollars(found.check_usd)
    later = "later prompts show kernels and are longer"
    return [
        found.model,
        f"  chat               {'yes' if found.readable else 'yes, but no kernel was found in the reply'}",
        *([f"                     {found.problem}"] if found.problem else []),
        f"  reply              {found.reply_s:.1f} s{speed} ({tokens}, finish: {found.finish})",
        f"  latency            {latency}",
        f"  streaming          {_said(found.streaming)}",
        f"  caching            {_said(found.caching)}",
        f"  tool calls         {_said(found.tools)}",
        f"  structured output  {_said(found.structured_output)}",
        f"  context            {context}",
        f"  this check         {spent}",
        f"  a run of {run.trials} trials  {price}"
        + (f"; {run.prompt_tokens} tokens in and {run.completion_tokens} out at least: {later}" if counted else ""),
    ]


def _said(feature: FeatureCheck) -> str:
    return ("yes" if feature.works else "no") + (f" ({feature.detail})" if feature.detail else "")
