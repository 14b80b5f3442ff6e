"""Models connected to a scripted server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from tests.scripted import ScriptedServer
from warpsmith.llm.endpoint import Provider
from warpsmith.llm.model import Model, ModelContext, ModelOptions, RetryPolicy
from warpsmith.model.brief import Message, Prompt, Role
from warpsmith.system.plugins import plugin

KEY = "sk-scripted-0123456789abcdef"
PROMPT = Prompt((Message(Role.SYSTEM, "You write kernels."), Message(Role.USER, "Write one.")))
PROVIDERS = ("openai", "anthropic")


def provider_named(name: str) -> Provider:
    return cast(Provider, plugin("warpsmith.llm", name))


def base_url(server: ScriptedServer, provider: str) -> str:
    return server.openai_url if provider == "openai" else server.anthropic_url


@contextmanager
def connected(
    server: ScriptedServer,
    provider: str,
    model: str = "scripted",
    options: ModelOptions | None = None,
    environ: dict[str, str] | None = None,
) -> Iterator[Model]:
    """A model of the server, closed at the end."""
    plug = provider_named(provider)
    variables = {plug.key_name: KEY, plug.url_name: base_url(server, provider), **(environ or {})}
    context = ModelContext.load(variables)
    made = plug.connect(model, options or ModelOptions(retries=RetryPolicy(request_s=5.0)), context)
    try:
        yield made
    finally:
        made.close()
