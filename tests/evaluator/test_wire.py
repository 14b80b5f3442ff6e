from __future__ import annotations

import json
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpsmith.evaluator.protocol import messages
from warpsmith.evaluator.protocol.messages import Acknowledged, Exited, JudgeRefused, RequestFailed, RunCall
from warpsmith.evaluator.protocol.wire import MAX_FDS, Channel, WireClosed, WireError, WireTimeout, decode

HEADER = struct.Struct("!IB")  # the frame, as the other side's language would write it
MESSAGES: tuple[type[Any], ...] = tuple(
    kind for kind in vars(messages).values() if isinstance(kind, type) and is_dataclass(kind)
)
SEED = 20_240_229


@dataclass(frozen=True)
class Claim:
    """A message with every kind of field."""

    count: int
    share: float
    text: str
    sure: bool
    indices: tuple[int, ...]
    slots: tuple[tuple[int, ...], ...]
    values: tuple[float | int, ...]
    note: str | None


CLAIM = Claim(3, 0.5, "ein Kürzel", True, (1, 2), ((0, 4096), (4096, 8192)), (1, 2.5), None)


@dataclass(frozen=True)
class Line:
    """Two ends of a channel; `raw` is the far end's socket."""

    near: Channel
    far: Channel
    raw: socket.socket


@pytest.fixture
def line() -> Iterator[Line]:
    near, far = socket.socketpair()
    with near, far:
        yield Line(Channel(near), Channel(far), far)


def frame(body: bytes, fds: int = 0) -> bytes:
    return HEADER.pack(len(body), fds) + body


def text_of(message: Any) -> bytes:
    return json.dumps({"type": type(message).__name__, "tag": 0, **asdict(message)}).encode()


# --- what is sent arrives --------------------------------------------------------------------------


def values(annotation: str) -> st.SearchStrategy[Any]:
    """Values of a message field by its annotation."""
    if annotation.startswith("tuple["):
        return st.lists(values(annotation[len("tuple[") : -len(", ...]")]), max_size=4).map(tuple)
    plain: dict[str, st.SearchStrategy[Any]] = {
        "int": st.integers(-(1 << 63), (1 << 63) - 1),
        "float": st.floats(allow_nan=False),
        "str": st.text(),
        "bool": st.booleans(),
        "None": st.none(),
    }
    return st.one_of([plain[option.strip()] for option in annotation.split("|")])


def instances(kind: type[Any]) -> st.SearchStrategy[Any]:
    return st.builds(kind, **{field.name: values(str(field.type)) for field in fields(kind)})


@pytest.mark.parametrize("kind", [*MESSAGES, Claim], ids=lambda kind: str(kind.__name__))
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_every_message_arrives_as_it_was_sent(kind: type[Any], data: st.DataObject) -> None:
    message = data.draw(instances(kind))
    near, far = socket.socketpair()
    with near, far:
        Channel(near).send(message)
        assert Channel(far).receive((*MESSAGES, Claim), timeout_s=5.0) == (message, ())


def test_several_messages_in_one_read_come_out_one_by_one(line: Line) -> None:
    sent = [RunCall(0), Acknowledged(), Exited(7, -9), RequestFailed("x" * 1000), RunCall(1)]
    for message in sent:
        line.far.send(message)

    assert [line.near.receive(MESSAGES, 5.0)[0] for _ in sent] == sent


def test_what_was_read_along_is_announced(line: Line) -> None:
    line.far.send(RunCall(0))
    line.far.send(RunCall(1))

    seen = [line.near.buffered]
    for _ in range(2):
        line.near.receive((RunCall,), 5.0)
        seen.append(line.near.buffered)

    assert seen == [False, True, False]


def test_a_message_larger_than_the_socket_buffer(line: Line) -> None:
    message = JudgeRefused("".join(random.Random(SEED).choices("abcé\n\0", k=2_000_000)))
    sender = threading.Thread(target=line.far.send, args=(message,))
    sender.start()

    received, _ = line.near.receive((JudgeRefused,), 30.0)
    sender.join(30.0)

    assert received == message


# --- descriptors -----------------------------------------------------------------------------------


@pytest.fixture
def anonymous() -> Iterator[Callable[[], int]]:
    """Makes descriptors that are all distinguishable, and closes them."""
    made: list[int] = []

    def make() -> int:
        made.append(os.memfd_create("wire"))
        return made[-1]

    yield make
    for fd in made:
        os.close(fd)


def inode(fd: int) -> int:
    return os.fstat(fd).st_ino


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("counts", [(1, 0, 2), (0, 0, 3, 1), (2, 2, 2, 2, 0, 1), (MAX_FDS, 0, MAX_FDS)], ids=str)
def test_descriptors_come_with_the_message_they_were_sent_with(
    line: Line, anonymous: Callable[[], int], counts: tuple[int, ...]
) -> None:
    sent = [[anonymous() for _ in range(count)] for count in counts]
    for index, fds in enumerate(sent):
        line.far.send(RunCall(index), fds)

    for index, fds in enumerate(sent):
        message, received = line.near.receive((RunCall,), 5.0)
        assert message == RunCall(index)
        assert [inode(fd) for fd in received] == [inode(fd) for fd in fds]
        for fd in received:
            os.close(fd)


def test_descriptors_of_a_message_that_needs_many_reads(line: Line, anonymous: Callable[[], int]) -> None:
    first, second = anonymous(), anonymous()

    def send() -> None:
        line.far.send(RequestFailed("x" * 3_000_000), [first])
        line.far.send(RunCall(1), [second])

    sender = threading.Thread(target=send)
    sender.start()
    received = [line.near.receive((RequestFailed, RunCall), 30.0)[1] for _ in range(2)]
    sender.join(30.0)

    assert [[inode(fd) for fd in fds] for fds in received] == [[inode(first)], [inode(second)]]
    for (fd,) in received:
        os.close(fd)


@pytest.mark.parametrize("announced", [0, 1], ids=["hidden", "announced"])
def test_a_hostile_process_cannot_fill_the_table_of_open_files(
    line: Line, anonymous: Callable[[], int], announced: int
) -> None:
    gift = anonymous()
    before = open_descriptors()
    for _ in range(20):
        socket.send_fds(line.raw, [frame(b"{}", announced)], [gift])
        with pytest.raises(WireError):
            line.near.receive((RunCall,), 5.0)
    line.near.close()

    assert open_descriptors() <= before


# --- waiting ---------------------------------------------------------------------------------------


def test_silence_is_a_timeout(line: Line) -> None:
    start = time.monotonic()
    with pytest.raises(WireTimeout):
        line.near.receive((RunCall,), 0.05)

    assert 0.04 <= time.monotonic() - start < 5.0


def test_half_a_message_is_a_timeout_and_the_rest_completes_it(line: Line) -> None:
    whole = frame(text_of(RunCall(5)))
    line.raw.sendall(whole[:9])
    with pytest.raises(WireTimeout):
        line.near.receive((RunCall,), 0.05)
    line.raw.sendall(whole[9:])

    assert line.near.receive((RunCall,), 5.0) == (RunCall(5), ())


def test_a_trickle_does_not_extend_the_time(line: Line) -> None:
    stop = threading.Event()

    def trickle() -> None:
        line.raw.sendall(HEADER.pack(1 << 20, 0))
        while not stop.wait(0.01):
            line.raw.sendall(b" ")

    sender = threading.Thread(target=trickle)
    sender.start()
    start = time.monotonic()
    try:
        with pytest.raises(WireTimeout):
            line.near.receive((RunCall,), 0.3)
    finally:
        stop.set()
        sender.join(5.0)

    assert time.monotonic() - start < 3.0


def test_nobody_reading_is_a_timeout(line: Line) -> None:
    with pytest.raises(WireTimeout, match=r"did not take a message within 0\.1 s"):
        line.near.send(RequestFailed("x" * 4_000_000), timeout_s=0.1)


@pytest.mark.parametrize("rest", [b"", b"\0", frame(text_of(RunCall(1)))[:-1]], ids=["silent", "in-header", "in-body"])
def test_a_closed_peer_is_gone(line: Line, rest: bytes) -> None:
    line.raw.sendall(rest)
    line.raw.close()

    with pytest.raises(WireClosed):
        line.near.receive((RunCall,), 5.0)


def test_what_was_sent_before_hanging_up_is_still_read(line: Line) -> None:
    line.far.send(RunCall(3))
    line.raw.close()

    assert line.near.receive((RunCall,), 5.0)[0] == RunCall(3)
    with pytest.raises(WireClosed):
        line.near.receive((RunCall,), 5.0)


def test_sending_to_a_closed_peer(line: Line) -> None:
    line.raw.close()

    with pytest.raises(WireClosed):
        line.near.send(RunCall(1))


# --- what is not a message -------------------------------------------------------------------------


def test_a_message_above_the_limit_is_not_sent() -> None:
    near, far = socket.socketpair()
    with near, far:
        with pytest.raises(WireError, match="larger than 100"):
            Channel(near, max_frame_bytes=100).send(RequestFailed("x" * 100))
        far.setblocking(False)
        with pytest.raises(BlockingIOError):
            far.recv(1)


def test_a_frame_above_the_limit_is_refused_before_its_body_comes() -> None:
    near, far = socket.socketpair()
    with near, far:
        far.sendall(HEADER.pack(101, 0))
        with pytest.raises(WireError, match="frame of 101 bytes is larger than 100"):
            Channel(near, max_frame_bytes=100).receive((RunCall,), 5.0)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"type": ["Exited"]}',
        b'{"type": "Ping"}',
        b'{"type": "Exited"}',
        b'{"type": "Exited", "pid": 1}',
        b'{"type": "Exited", "tag": 0, "pid": 1, "status": 0, "more": 1}',
        b'{"type": "Exited", "tag": 0, "pid": 1, "status": 0} {}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"\xff\xfe\x00",
    ],
    ids=lambda body: repr(body[-40:]),
)
def test_anything_but_the_expected_message_is_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        decode(body, (Exited, RequestFailed))


NOT = {
    "count": ("true", "1.5", "NaN", "null", '"1"', "[1]", "{}", "9" * 5000),
    "share": ("true", "null", '"0.5"', "[]"),
    "text": ("null", "1", "[]", "{}", "true"),
    "sure": ("1", "0", "null", '"true"'),
    "indices": ("1", "null", "[1, true]", "[[1]]", '["1"]', "[1.5]", "{}", '"12"'),
    "slots": ("[1]", "[[1], 2]", "[[[1]]]", "[[null]]", '["12"]'),
    "values": ("[true]", "[null]", '["1"]', "1.5"),
    "note": ("1", "false", "[]"),
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, bad in NOT.items() for value in bad])
def test_every_field_is_checked_against_its_type(name: str, value: str) -> None:
    parts = [f'"{k}": {value if k == name else json.dumps(v)}' for k, v in json.loads(text_of(CLAIM)).items()]

    with pytest.raises(WireError):
        decode(("{" + ", ".join(parts) + "}").encode(), (Claim,))


def test_a_text_that_no_verdict_could_be_written_with_is_refused() -> None:
    with pytest.raises(WireError):
        decode(b'{"type": "Failed", "tag": 0, "text": "\\ud800"}', (RequestFailed,))


def test_a_number_that_no_clock_could_give_is_refused() -> None:
    with pytest.raises(WireError):
        decode(b'{"type": "Exited", "tag": 0, "pid": 1, "status": ' + b"9" * 400 + b"}", (Exited,))


VALID = [text_of(message) for message in (CLAIM, Exited(7, -9), RequestFailed("no such symbol"), Acknowledged())]
PIECES = (*b'{}[]",:\\0-.eE', 0x00, 0xC3, 0xFF)
VALUES = ("null", "true", "-1", "1e999", "NaN", '""', "[]", "[[]]", "{}", '"\\u0000"', "1" * 30)


def noise(rng: random.Random) -> bytes:
    return frame(rng.randbytes(rng.randrange(40)))


def raw_noise(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randrange(40))


def flipped(rng: random.Random) -> bytes:
    body = bytearray(rng.choice(VALID))
    for _ in range(rng.randrange(1, 6)):
        body[rng.randrange(len(body))] = rng.choice(PIECES)
    return frame(bytes(body))


def cut_or_grown(rng: random.Random) -> bytes:
    body = rng.choice(VALID)
    at = rng.randrange(len(body))
    return frame(body[:at] + rng.choice((b"", bytes([rng.choice(PIECES)]), body[:at])) + body[at + rng.randrange(4) :])


def other_value(rng: random.Random) -> bytes:
    data = json.loads(rng.choice(VALID))
    key = rng.choice(list(data))
    parts = [f'"{k}": {rng.choice(VALUES) if k == key else json.dumps(v)}' for k, v in data.items()]
    return frame(("{" + ", ".join(parts) + "}").encode())


def other_header(rng: random.Random) -> bytes:
    body = rng.choice(VALID)
    return HEADER.pack(rng.choice((0, 1, len(body) - 1, len(body) + 1, 2**32 - 1)), rng.randrange(256)) + body


def test_twenty_thousand_malformed_frames_raise_nothing_else() -> None:
    rng = random.Random(SEED)
    makers = (noise, raw_noise, flipped, cut_or_grown, other_value, other_header)
    refused = 0
    for _ in range(20_000):
        near, far = socket.socketpair()
        with near, far:
            far.sendall(rng.choice(makers)(rng))
            far.shutdown(socket.SHUT_WR)
            channel = Channel(near, 1 << 20)
            try:
                while True:  # a mutation may still be a message; then the stream ends
                    message, fds = channel.receive((Claim, Exited, RequestFailed, Acknowledged), 5.0)
                    assert fds == ()
                    assert type(decode(text_of(message), (type(message),))[0]) is type(message)
            except (WireError, WireClosed):
                refused += 1
    assert refused == 20_000


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=200) | st.recursive(st.none() | st.booleans() | st.floats() | st.text(),
       lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["type", "text", "pid"]) | st.text(), inner)
       ).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_any_body_is_refused_or_is_a_whole_message(body: bytes) -> None:
    try:
        message, _ = decode(body, MESSAGES)
    except WireError:
        return
    assert type(decode(text_of(message), (type(message),))[0]) is type(message)
