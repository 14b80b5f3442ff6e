"""What the courtroom makes of hosts that could not be set up."""

from __future__ import annotations

import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from warpsmith.core.config import Limits, Settings
from warpsmith.evaluate.judging.courtroom import Courtroom
from warpsmith.evaluate.judging.peer import HostFailed, Peer
from warpsmith.evaluate.messages import Failed, Ping, Prepared
from warpsmith.evaluate.wire import Channel


class _Refusing:
    """A host that says once that it cannot be set up, and nothing after that."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.channel = Channel(theirs)
        self.peer = Peer.__new__(Peer)
        bare: Any = self.peer
        bare.__dict__.update(
            _channel=Channel(ours), prepared=None, useless=None, _leash=None, _tag=0, stage="starting", trusted=False
        )

    def close(self) -> None:
        self.channel.close()
        self.peer._channel.close()

    def refuse(self) -> None:
        self.channel.receive((Ping,), 5.0)
        self.channel.send(Failed("cuDevicePrimaryCtxRetain: out of memory"), tag=self.channel.tag)


def test_a_host_that_could_not_be_set_up_is_not_asked_twice() -> None:
    """It was waited for while another candidate was judged; when its own turn comes, it has nothing more to say."""
    host = _Refusing()
    answering = threading.Thread(target=host.refuse)
    answering.start()
    host.peer.tell(Ping())
    room = Courtroom.__new__(Courtroom)
    room._settings = Settings(limits=Limits(start_s=5.0))
    for _ in range(2):
        with pytest.raises(HostFailed, match="out of memory"):
            room._await(host.peer)
    answering.join()
    assert host.peer.prepared is None
    host.close()


def test_one_that_was_set_up_is_not_asked_again() -> None:
    room = Courtroom.__new__(Courtroom)
    ready = Prepared(bases=(), layers=())
    peer: Any = SimpleNamespace(prepared=ready, useless=None)
    assert room._await(peer) is ready
