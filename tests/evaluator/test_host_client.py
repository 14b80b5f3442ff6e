"""Waiting for hosts that could, or could not, be set up."""

from __future__ import annotations

import mmap
import os
import socket
from collections.abc import Iterator

import pytest

from warpsmith.evaluator.judge.host_client import HostClient, HostFailed
from warpsmith.evaluator.protocol.messages import HostReady, Ping, RequestFailed
from warpsmith.evaluator.protocol.wire import Channel


@pytest.fixture
def connection() -> Iterator[tuple[HostClient, Channel]]:
    """A judge's connection to a host, and the host's end of it, which has received one request."""
    ours, theirs = socket.socketpair()
    page = os.memfd_create("faults")
    os.ftruncate(page, mmap.PAGESIZE)
    host, channel = HostClient(1, ours.detach(), page, os.getpid()), Channel(theirs)
    host.send(Ping())
    channel.receive((Ping,), 5.0)
    yield host, channel
    host.close()
    channel.close()


def test_a_host_that_could_not_be_set_up_fails_every_time_and_is_not_asked_twice(
    connection: tuple[HostClient, Channel],
) -> None:
    host, channel = connection
    channel.send(RequestFailed("cuDevicePrimaryCtxRetain: out of memory"), tag=channel.tag)
    for _ in range(2):
        with pytest.raises(HostFailed, match="out of memory"):
            host.wait_ready(5.0)
    assert host.prepared is None


def test_a_host_that_is_set_up_is_not_asked_again(connection: tuple[HostClient, Channel]) -> None:
    host, channel = connection
    channel.send(HostReady(bases=(), layers=("seccomp",)), tag=channel.tag)
    assert host.wait_ready(5.0).layers == ("seccomp",)
    assert host.wait_ready(0.0) is host.prepared
