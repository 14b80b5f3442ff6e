"""The engine `http://HOST:PORT`: evaluations run on a server, through `Client`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from warpsmith.engine.engine import Engine
from warpsmith.evaluator.supervisor.evaluator import Progress
from warpsmith.hardware.device import Device
from warpsmith.model.build import Availability, DeviceKind
from warpsmith.model.errors import ToolMissing
from warpsmith.model.settings import Paths, Settings
from warpsmith.server.client import Client


class HttpSite:
    """A server; its facts are asked for once."""

    slots = 1

    def __init__(self, url: str) -> None:
        self._url = url
        with Client(url, patience_s=10.0) as client:
            self._facts, self._device = client.facts, client.device

    @property
    def has_gpu(self) -> bool:
        """True if the server judges on an NVIDIA GPU."""
        return self._device.kind is DeviceKind.CUDA

    def select(self, spec: str) -> Device:
        """The server's device; raises if another kind is wanted."""
        if spec not in ("auto", self._device.kind, self._device.spec):
            raise ToolMissing(f"the server judges on {self._device.spec}, not on {spec}; leave out --device.")
        return self._device

    def available(self, backend: str) -> Availability:
        """Whether the server builds candidates of a backend."""
        missing = Availability(build=False, run=False, detail=f"the server judges on {self._device.spec}")
        return self._facts.backends.get(backend, missing)

    def open(
        self,
        device: Device,
        settings: Settings,
        *,
        paths: Paths | None = None,
        name: str = "",
        on_progress: Callable[[Progress], None] = lambda _: None,
        on_message: Callable[[str], None] = lambda _: None,
    ) -> Engine:
        """A client of the server."""
        return Client(self._url, settings=settings, on_progress=on_progress, on_message=on_message)


@cache
def site(spec: str) -> HttpSite:
    """The server at an address."""
    return HttpSite(spec)
