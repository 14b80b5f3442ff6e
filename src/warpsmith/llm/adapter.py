"""The base of the adapters to SDKs: one client with time limits and retries, and the reading of its responses.

The SDK repeats requests (`max_retries`) after lost connections, 408, 409, 429 and 5xx, and observes `Retry-After`. A
response hook adds two cases: a body that is no completion counts as a server error, and a request is not repeated if
the account has no credit.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from warpsmith.llm.conversation import ChatTurn, ToolSpec, ToolUse
from warpsmith.llm.failures import BAD_BODY, is_out_of_credit
from warpsmith.llm.model import ModelOptions
from warpsmith.llm.prices import Tokens
from warpsmith.llm.request_deadline import ClientClosed, RequestDeadlines
from warpsmith.llm.secrets import Secret
from warpsmith.model.brief import Prompt

_Found = TypeVar("_Found")
_BATCHES = re.compile(r"/(?:batches|files)(?:/|$)")
CONNECT_S = 10.0  # to open a connection, which takes milliseconds if the endpoint runs


@dataclass(frozen=True)
class Completion:
    """The text of a reply."""

    text: str
    finish: str  # "stop", "length", or another reason that the provider gives
    uses: tuple[ToolUse, ...] = ()


@dataclass(frozen=True)
class Response:
    """The last response to a call."""

    status: int = 0  # 0: no response
    body: str = ""
    lost: str = ""  # why there is no response
    unreachable: bool = False  # True if no connection was made


class HttpResponse(Protocol):
    """The part of an HTTP client's response that is used here."""

    status_code: int

    @property
    def request(self) -> Any: ...
    @property
    def headers(self) -> MutableMapping[str, str]: ...
    @property
    def text(self) -> str: ...
    @property
    def num_bytes_downloaded(self) -> int: ...
    def read(self) -> bytes: ...


class ProviderAdapter(ABC):
    """One SDK with its client. Subclasses send a prompt and read a body."""

    def __init__(self, sdk: Any, model: str, secret: Secret, base_url: str, options: ModelOptions) -> None:
        self.deadlines = RequestDeadlines(options.retries.request_s)
        self._sdk = sdk
        self._model = model
        self._temperature = {} if options.temperature is None else {"temperature": options.temperature}
        self._effort = options.effort
        self._streams = not options.batch  # until the endpoint refuses to
        self.streamed = False  # True once a reply has come as a stream
        self.structured = True  # until the endpoint refuses schemas
        limit_s = options.retries.request_s
        self._client = getattr(sdk, self.client_class)(
            api_key=secret.reveal(),
            base_url=base_url,
            max_retries=options.retries.attempts - 1,
            timeout=sdk.Timeout(limit_s, connect=min(CONNECT_S, limit_s)),
            default_headers={"Connection": "close"},  # see `request_deadline`
            http_client=sdk.DefaultHttpxClient(
                event_hooks={"request": [self.deadlines.on_request], "response": [self._on_response]},
                follow_redirects=False,  # a redirect means a wrong base URL, and would send the key to another host
                verify=base_url.startswith("https:"),  # certificates take long to load and plain HTTP needs none
            ),
        )

    client_class: str
    schema_words: tuple[str, ...]  # in a refusal of a schema

    @abstractmethod
    def submit(self, prompts: Sequence[Prompt]) -> str | Response:
        """Begin a batch; returns its id, or the response that refuses the batch."""

    @abstractmethod
    def collect(self, batch: str) -> Mapping[int, Response] | Response | None:
        """The responses by position; None while the batch is under way; one response if the question was refused."""

    @abstractmethod
    def cancel(self, batch: str) -> None:
        """End a batch, if possible."""

    @abstractmethod
    def send(
        self, turns: Sequence[ChatTurn], tools: Sequence[ToolSpec] = (), schema: Mapping[str, object] | None = None
    ) -> Response:
        """Ask for a completion; with a schema, for JSON that fits the schema."""

    def adapt(self, response: Response) -> bool:
        """True if later requests are changed so that this refusal does not occur again."""
        if response.status not in (400, 422):
            return False
        if self.structured and any(word in response.body for word in self.schema_words):
            self.structured = False
            return True
        if self._streams and "stream" in response.body:
            self._streams = False
            return True
        return False

    def content(self, body: str) -> Mapping[str, object]:
        """The reply in a body, as one object; a stream of events is put together."""
        events = stream_events(body)
        self.streamed = self.streamed or bool(events)
        return self.folded(events) if events else object_of(body)

    @abstractmethod
    def folded(self, events: Sequence[Mapping[str, object]]) -> Mapping[str, object]:
        """The reply that a stream of events gives, as one object; without text if the stream was cut off."""

    @abstractmethod
    def completion(self, content: Mapping[str, object]) -> Completion | None:
        """The completion in a body; None if there is none."""

    @abstractmethod
    def tokens(self, content: Mapping[str, object]) -> Tokens | None:
        """The usage in a body; None if it reports none."""

    def list_models(self, limit_s: float) -> tuple[str, ...]:
        """The models that the endpoint lists."""
        return tuple(filter(None, (text(item.get("id")) for item in self.model_cards(limit_s))))

    def model_cards(self, limit_s: float) -> tuple[Mapping[str, object], ...]:
        """What the endpoint says of each model that it lists."""
        with self.deadlines.call():
            client = self._client.with_options(max_retries=0, timeout=limit_s)
            response = self._response(lambda: client.models.with_raw_response.list())
        return mappings(object_of(response.body).get("data")) if response.status == 200 else ()

    def close(self) -> None:
        """End calls in progress and close the client."""
        self.deadlines.close()
        self._client.close()

    def _response(self, send: Callable[[], Any]) -> Response:
        """Call the SDK; its exceptions become a response."""
        try:
            found = send().http_response
        except self._sdk.APITimeoutError:
            return Response(lost="no answer came in time")
        except self._sdk.APIStatusError as error:
            found = error.response
        except self._sdk.APIConnectionError as error:
            cause = " ".join(str(error.__cause__ or error).split())
            return Response(lost=f"the connection failed ({cause or type(error.__cause__).__name__})", unreachable=True)
        except (ClientClosed, RuntimeError):  # RuntimeError: the HTTP client was closed during the wait for a retry
            if not self.deadlines.closed:
                raise
            return Response(lost="it was closed")
        return Response(found.status_code, found.text)

    def _called(self, send: Callable[[], _Found]) -> _Found | Response:
        """The result of a call of the SDK that is no completion; its exceptions become a response."""
        try:
            with self.deadlines.call():
                return send()
        except self._sdk.APIStatusError as error:
            return Response(error.response.status_code, error.response.text)
        except self._sdk.APIConnectionError as error:
            return Response(lost=f"the connection failed ({' '.join(str(error.__cause__ or error).split())})")
        except (ClientClosed, RuntimeError):
            if not self.deadlines.closed:
                raise
            return Response(lost="it was closed")

    def _on_response(self, response: HttpResponse) -> None:
        if response.request.method == "GET" or _BATCHES.search(str(response.request.url)):
            return  # a list of models, a batch or a file of a batch
        self.deadlines.on_body(response)
        response.read()
        content = self.content(response.text)
        if 200 <= response.status_code < 300 and self.completion(content) is None:
            error = content.get("error")
            code = error.get("code") if isinstance(error, dict) else None
            response.status_code = (
                code if isinstance(code, int) and 400 <= code < 600 else BAD_BODY if error is None else 500
            )
        if response.status_code >= 300:
            self.deadlines.add_tokens(self.tokens(content))
            if is_out_of_credit(response.status_code, response.text):
                response.headers["x-should-retry"] = "false"


def stream_events(body: str) -> tuple[Mapping[str, object], ...]:
    """The events of a body that is a stream; none for other bodies."""
    lines = body.splitlines() if body.lstrip().startswith(("data:", "event:", ":")) else ()
    return tuple(object_of(line.removeprefix("data:")) for line in lines if line.startswith("data:"))


def error_in(events: Sequence[Mapping[str, object]]) -> Mapping[str, object]:
    """The error that a stream reports, as a body of its own; empty if there is none."""
    return next(({"error": event["error"]} for event in events if event.get("error")), {})


def object_of(body: str) -> Mapping[str, object]:
    """The JSON object in a body; empty if there is none."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return mapping(content)


def mapping(value: object) -> Mapping[str, object]:
    """An object; empty for anything else."""
    return value if isinstance(value, dict) else {}


def mappings(value: object) -> tuple[Mapping[str, object], ...]:
    """The objects in a list; none for anything else."""
    return tuple(item for item in value if isinstance(item, dict)) if isinstance(value, list) else ()


def text(value: object) -> str:
    """A text; "" for anything else."""
    return value if isinstance(value, str) else ""


def count(value: object) -> int:
    """A number of tokens; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def joined_text(parts: Iterable[Mapping[str, object]]) -> str:
    """The text parts of a message, without reasoning."""
    return "".join(text(part.get("text")) for part in parts if part.get("type", "text") in ("text", "output_text"))
