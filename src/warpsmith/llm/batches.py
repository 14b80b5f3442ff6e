"""Requests sent as batches, which providers answer within a day, at half the price: for benches that can wait.

Requests of several threads become one batch when no other request has come for a few seconds.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol

from warpsmith.llm.adapter import Response
from warpsmith.model.brief import Prompt

PRICE_SHARE = 0.5  # of the usual price
_QUIET_S = 5.0  # without a further request, before a batch is sent
_POLL_S, _LONGEST_POLL_S = 5.0, 120.0
_MOST = 10_000  # requests of one batch: fewer than either provider allows


class BatchAdapter(Protocol):
    """The part of an adapter that sends batches."""

    def submit(self, prompts: Sequence[Prompt]) -> str | Response:
        """Begin a batch; returns its id, or the response that refuses the batch."""
        ...

    def collect(self, batch: str) -> Mapping[int, Response] | Response | None:
        """The responses by position; None while the batch is under way; one response if the question was refused."""
        ...

    def cancel(self, batch: str) -> None:
        """End a batch, if possible."""
        ...


class Batcher:
    """Sends the prompts of several threads as batches. `ask` blocks until its batch has ended."""

    def __init__(self, adapter: BatchAdapter, *, quiet_s: float = _QUIET_S, poll_s: float = _POLL_S) -> None:
        self._adapter = adapter
        self._quiet_s = quiet_s
        self._poll_s = poll_s
        self._waiting: list[tuple[Prompt, Future[Response]]] = []
        self._arrived = threading.Condition()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def ask(self, prompt: Prompt) -> Response:
        """The response to a prompt."""
        answer: Future[Response] = Future()
        with self._arrived:
            if self._closing.is_set():
                return Response(lost="it was closed")
            self._waiting.append((prompt, answer))
            self._arrived.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._gather, name="batches", daemon=True)
                self._thread.start()
        return answer.result()

    def close(self) -> None:
        """Give up all requests, and cancel the batches of which they are part."""
        self._closing.set()
        with self._arrived:
            self._arrived.notify_all()

    def _gather(self) -> None:
        """Put requests into batches, each followed by a thread of its own."""
        while True:
            with self._arrived:
                self._arrived.wait_for(lambda: self._waiting or self._closing.is_set())
                count = 0
                while count < len(self._waiting) < _MOST and not self._closing.is_set():
                    count = len(self._waiting)
                    self._arrived.wait(self._quiet_s)
                batch, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
            if self._closing.is_set():
                _answer(batch, Response(lost="it was closed"))
                return
            threading.Thread(target=self._follow, args=(batch,), name="batch", daemon=True).start()

    def _follow(self, batch: list[tuple[Prompt, Future[Response]]]) -> None:
        """Send a batch and wait for its responses."""
        name = self._adapter.submit([prompt for prompt, _ in batch])
        if isinstance(name, Response):
            _answer(batch, name)
            return
        pause_s = self._poll_s
        while not self._closing.wait(pause_s):
            pause_s = min(_LONGEST_POLL_S, 1.5 * pause_s)
            found = self._adapter.collect(name)
            if isinstance(found, Response) and 400 <= found.status < 500 and found.status not in (408, 409, 429):
                _answer(batch, found)
                return
            if isinstance(found, Mapping):
                for position, (_, answer) in enumerate(batch):
                    answer.set_result(found.get(position, Response(lost="the batch has no response to it")))
                return
        self._adapter.cancel(name)
        _answer(batch, Response(lost="it was closed"))


def _answer(batch: Sequence[tuple[Prompt, Future[Response]]], response: Response) -> None:
    for _, answer in batch:
        answer.set_result(response)
