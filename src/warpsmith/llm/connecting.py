"""What connecting to any provider takes: its address, its key, its SDK. Not for sending anything."""

from __future__ import annotations

import importlib
from types import ModuleType
from urllib.parse import urlsplit

from warpsmith.core.errors import ProposerRefused, ToolMissing, UsageError
from warpsmith.llm.failures import Contact, shown
from warpsmith.llm.model import Options, Provider, Surroundings
from warpsmith.llm.secrets import Secret

CONNECT_S = 10.0  # to open a connection: an endpoint that is there answers in milliseconds
NO_KEY = Secret("none")  # SDKs insist on one, endpoints of one's own do not


def address(provider: Provider, options: Options, surroundings: Surroundings) -> str:
    """The base URL: as given, else from its variable, else the provider's own."""
    url = options.base_url or surroundings.keyring.plain(provider.url_name) or provider.home
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname)
        parts.port  # noqa: B018  # raises where it is no number
    except ValueError:
        whole = False
    if not whole:
        raise UsageError(f"the base URL {shown_safely(url)!r} is not one; give it as https://host/v1.")
    return url


def shown_safely(url: str) -> str:
    """An address for an error, even where it is no address."""
    try:
        return shown(url)
    except ValueError:
        return url.rpartition("@")[2]


def key(provider: Provider, url: str, surroundings: Surroundings) -> Secret:
    """The key; a placeholder where the endpoint is the user's own and there is none."""
    found = surroundings.keyring.secret(provider.key_name)
    if found:
        return found
    if url == provider.home:
        raise ProposerRefused(
            f"{provider.name} needs a key: set {provider.key_name}, name a key file with --key-file, "
            f"or give the base URL of an endpoint of your own with --base-url."
        )
    return NO_KEY


def contact(provider: Provider, model: str, url: str, secret: Secret) -> Contact:
    """Who is asked, for errors."""
    return Contact(model, shown(url), provider.key_name, provider.url_name, secret is not NO_KEY)


def require(provider: Provider) -> ModuleType:
    """The provider's SDK, or how to get it."""
    try:
        return importlib.import_module(provider.package)
    except ModuleNotFoundError as missing:
        raise ToolMissing(
            f"{provider.name} models need the package {missing.name}; run `pip install 'warpsmith[llm]'`."
        ) from None
