"""The counters of a server, in the format of Prometheus. No label names a client or a task."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class ServerMetrics:
    """The counters of one application."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter("warpsmith_requests", "Answered requests.", ["status"], registry=self._registry)
        self._accepted = Counter("warpsmith_accepted", "Accepted candidates.", registry=self._registry)
        self._known = Counter("warpsmith_known", "Candidates answered from known results.", registry=self._registry)
        self._refused = Counter("warpsmith_refused", "Submissions refused: no room.", registry=self._registry)
        self._outcomes = Counter("warpsmith_outcomes", "Judged candidates.", ["status"], registry=self._registry)
        self._seconds = Histogram(
            *("warpsmith_judge_seconds", "Time to judge one candidate."),
            buckets=(0.1, 0.3, 1, 3, 10, 30, 100),
            registry=self._registry,
        )
        self._waiting = Gauge("warpsmith_waiting", "Candidates that wait.", registry=self._registry)
        self._waiting.set_function(lambda: float(self.count_waiting()))
        self.count_waiting: Callable[[], int] = lambda: 0

    def request(self, status: int) -> None:
        """A request was answered; 0 where the connection ended before."""
        self._requests.labels(str(status)).inc()

    def accepted(self, candidates: int, known: int) -> None:
        """A submission was accepted; for some of its candidates the result was known."""
        self._accepted.inc(candidates)
        self._known.inc(known)

    def refused(self) -> None:
        """A submission did not fit into the queue or the quota."""
        self._refused.inc()

    def judged(self, status: str, seconds: float) -> None:
        """A candidate was judged; `status` is that of the evaluation, or the state of the job."""
        self._outcomes.labels(status).inc()
        self._seconds.observe(seconds)

    def text(self) -> bytes:
        """What `/metrics` answers."""
        return generate_latest(self._registry)
