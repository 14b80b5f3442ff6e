"""A provider of models, as a plugin of `warpsmith.llm`: its names and addresses, and how to connect to its models."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from warpsmith.llm.adapter import ProviderAdapter
from warpsmith.llm.endpoint import Endpoint
from warpsmith.llm.failures import EndpointInfo, safe_url
from warpsmith.llm.model import ModelContext, ModelOptions
from warpsmith.llm.secrets import Secret
from warpsmith.model.errors import ProposerFault, ProposerRefused, ToolMissing, UsageError

_NO_KEY = Secret("none")  # the SDKs need a key, even if the endpoint does not
_LIST_S = 10.0  # to list the models


@dataclass(frozen=True)
class Provider:
    """One protocol, and how to connect to its models."""

    name: str  # "openai"
    package: str  # the SDK to install
    key_name: str  # variable of the key
    url_name: str  # variable of the base URL
    home: str  # base URL if none is given
    default_model: str  # if there is a key and no model is named
    adapter: Callable[[str, str, Secret, ModelOptions], ProviderAdapter]  # of model, base URL, key, options

    def connect(self, model: str, options: ModelOptions, context: ModelContext) -> Endpoint:
        """A model; sends nothing yet. `ProposerRefused` without a key, `ToolMissing` without the SDK."""
        url = self.address(options, context)
        secret = self._key(url, context)
        info = EndpointInfo(model, safe_url(url), self.key_name, self.url_name, secret is not _NO_KEY)
        return Endpoint(self.name, self._adapter(model, url, secret, options), info, secret, options, context)

    def list_models(self, options: ModelOptions, context: ModelContext) -> tuple[str, ...]:
        """The models that the endpoint lists. `ProposerFault` if it lists none."""
        url = self.address(options, context)
        adapter = self._adapter("", url, self._key(url, context), options)
        try:
            names = adapter.list_models(_LIST_S)
        finally:
            adapter.close()
        if not names:
            raise ProposerFault(f"{safe_url(url)} does not list its models; name one.")
        return names

    def address(self, options: ModelOptions, context: ModelContext) -> str:
        """The base URL: the option, else the variable, else the provider's own."""
        url = options.base_url or context.keyring.plain(self.url_name) or self.home
        try:
            parts = urlsplit(url)
            whole = parts.scheme in ("http", "https") and bool(parts.hostname)
            parts.port  # noqa: B018  # raises if it is no number
        except ValueError:
            whole = False
        if not whole:
            raise UsageError(f"the base URL {safe_url(url)!r} is not one; give it as https://host/v1.")
        return url

    def _key(self, url: str, context: ModelContext) -> Secret:
        """The key; a placeholder for the user's own endpoint without a key."""
        found = context.keyring.secret(self.key_name)
        if not found and url == self.home:
            raise ProposerRefused(
                f"{self.name} needs a key: set {self.key_name}, name a key file with --key-file, "
                f"or give the base URL of an endpoint of your own with --base-url."
            )
        return found or _NO_KEY

    def _adapter(self, model: str, url: str, secret: Secret, options: ModelOptions) -> ProviderAdapter:
        try:
            importlib.import_module(self.package)
        except ModuleNotFoundError as missing:
            raise ToolMissing(
                f"{self.name} models need the package {missing.name}; run `pip install 'warpsmith[llm]'`."
            ) from None
        return self.adapter(model, url, secret, options)
