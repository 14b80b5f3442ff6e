"""The counters of a server, in the format of Prometheus. No label names a client or a task."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, generate_latest


class ServerMetrics:
    """The counters of one application."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter("warpsmith_requests", "Answered requests.", ["status"], registry=self._registry)

    def request(self, status: int) -> None:
        """A request was answered; 0 where the connection ended before."""
        self._requests.labels(str(status)).inc()

    def text(self) -> bytes:
        """What `/metrics` answers."""
        return generate_latest(self._registry)
