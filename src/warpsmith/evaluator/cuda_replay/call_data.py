"""One call of a candidate as data: the kernels it launches, the memory it fills and copies, and their order.

A host records a call; another process, in which no host code of the candidate ever ran, repeats it from this data. The
data is a claim of the host and may be anything: `decode_call` accepts nothing but this form, and `rules` decides what
may be replayed. Standard library only: part of the process that loads a candidate. Graph nodes that this module does
not name cannot be replayed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MOST_STEPS = 64
MOST_PARAMETER_BYTES = 32_764  # of one kernel: the limit of the hardware
MOST_COPIED_BYTES = 64 << 10  # from host memory, for constants
MOST_CHARS = 512 << 10  # of one call
_MOST_EDGES = 4 * MOST_STEPS
_MOST_NAME_CHARS = 4096
_ADDRESSES = range(1 << 57)
_COUNTS = range(1 << 32)

Size3 = tuple[int, int, int]
NO_CLUSTER: Size3 = (0, 0, 0)
NO_CARVEOUT = -1


class MalformedCall(Exception):
    """The text of a host is no recorded call; the message says why."""


@dataclass(frozen=True)
class DevicePlace:
    """A place in device memory: an address, or an offset inside a variable of an image."""

    address: int  # with a symbol: the offset from its start
    symbol: str = ""
    image: str = ""  # the digest of the image that defines the symbol; "" if only one does


@dataclass(frozen=True)
class KernelLaunch:
    """The launch of a kernel."""

    name: str  # mangled
    image: str  # the digest of the image that defines it; "" if only one does
    grid: Size3
    block: Size3
    shared_bytes: int  # dynamic
    parameters: tuple[tuple[int, bytes], ...]  # offset and value of each
    cluster: Size3 = NO_CLUSTER
    cooperative: bool = False
    carveout_percent: int = NO_CARVEOUT  # preferred share of the L1 cache as shared memory


@dataclass(frozen=True)
class MemoryFill:
    """A memset: rows of equal elements."""

    target: DevicePlace
    value: int
    element_bytes: int  # 1, 2 or 4
    width: int  # elements in a row
    height: int
    pitch_bytes: int  # from row to row; 0 for one row

    @property
    def nbytes(self) -> int:
        """From the first byte to the last."""
        return self.pitch_bytes * (self.height - 1) + self.width * self.element_bytes


@dataclass(frozen=True)
class MemoryCopy:
    """A copy from one place to another, or of given bytes from host memory."""

    target: DevicePlace
    source: DevicePlace | bytes
    nbytes: int


CallStep = KernelLaunch | MemoryFill | MemoryCopy


@dataclass(frozen=True)
class Edge:
    """One step that waits for another."""

    before: int
    after: int  # always the larger
    early: bool = False  # a programmatic launch: the kernel starts early and waits for the other itself
    at_start: bool = False  # if early: as soon as the other has begun


@dataclass(frozen=True)
class RecordedCall:
    """The steps of one call, in an order in which they could run one after the other."""

    steps: tuple[CallStep, ...]
    edges: tuple[Edge, ...]


def encode_call(call: RecordedCall) -> str:
    """The call as JSON."""
    steps = [_step_row(step) for step in call.steps]
    return json.dumps([steps, [[e.before, e.after, e.early, e.at_start] for e in call.edges]])


def decode_call(text: str) -> RecordedCall:
    """The call that `encode_call` wrote; raises MalformedCall."""
    if len(text) > MOST_CHARS:
        raise MalformedCall(f"{len(text)} characters are more than one call may have")
    try:
        steps, edges = json.loads(text)
        if not isinstance(steps, list) or not isinstance(edges, list):
            raise ValueError("lists of steps and edges are expected")
        if not 0 < len(steps) <= MOST_STEPS or len(edges) > _MOST_EDGES:
            raise ValueError(f"{len(steps)} steps and {len(edges)} edges")
        made = tuple(_step(row) for row in steps)
        return RecordedCall(made, tuple(_edge(row, made) for row in edges))
    except (ValueError, TypeError, KeyError, RecursionError) as wrong:
        raise MalformedCall(f"not a recorded call: {str(wrong)[:200]}") from wrong


# --- to rows ---


def _step_row(step: CallStep) -> list[object]:
    if isinstance(step, KernelLaunch):
        return _launch_row(step)
    return _fill_row(step) if isinstance(step, MemoryFill) else _copy_row(step)


def _launch_row(step: KernelLaunch) -> list[object]:
    parameters = [[offset, value.hex()] for offset, value in step.parameters]
    sizes = [list(step.grid), list(step.block), list(step.cluster)]
    return ["launch", step.name, step.image, *sizes, step.shared_bytes, parameters, step.cooperative,
            step.carveout_percent]  # fmt: skip


def _fill_row(step: MemoryFill) -> list[object]:
    numbers = [step.value, step.element_bytes, step.width, step.height, step.pitch_bytes]
    return ["fill", _place_row(step.target), *numbers]


def _copy_row(step: MemoryCopy) -> list[object]:
    source = step.source.hex() if isinstance(step.source, bytes) else _place_row(step.source)
    return ["copy", _place_row(step.target), source, step.nbytes]


def _place_row(place: DevicePlace) -> list[object]:
    return [place.address, place.symbol, place.image]


# --- from rows ---


def _step(row: object) -> CallStep:
    kind, *rest = _row(row)
    if not isinstance(kind, str):
        raise ValueError("a step without a kind")
    return _STEPS[kind](rest)


def _launch(row: Sequence[object]) -> KernelLaunch:
    name, image, grid, block, cluster, shared, parameters, cooperative, carveout = row
    taken = tuple((_count(offset), _bytes(value)) for offset, value in map(_row, _row(parameters)))
    end = 0
    for offset, value in taken:
        if offset < end or not value:
            raise ValueError("parameters overlap or are empty")
        end = offset + len(value)
    if end > MOST_PARAMETER_BYTES:
        raise ValueError(f"{end} bytes of parameters")
    share = _number(carveout, range(NO_CARVEOUT, 101))
    return KernelLaunch(
        _name(name), _text(image), _size(grid, 1), _size(block, 1), _count(shared), taken, _size(cluster, 0),
        _flag(cooperative), share,
    )  # fmt: skip


def _fill(row: Sequence[object]) -> MemoryFill:
    target, value, element, width, height, pitch = row
    if element not in (1, 2, 4):
        raise ValueError(f"elements of {element!r} bytes")
    rows, columns = _number(height, range(1, 1 << 32)), _number(width, range(1, 1 << 40))
    step = MemoryFill(_place(target), _count(value), _count(element), columns, rows, _number(pitch, range(1 << 40)))
    if rows > 1 and step.pitch_bytes < columns * step.element_bytes:
        raise ValueError("rows overlap")
    return step


def _copy(row: Sequence[object]) -> MemoryCopy:
    target, source, nbytes = row
    size = _number(nbytes, range(1, 1 << 40))
    given = _bytes(source) if isinstance(source, str) else _place(source)
    if isinstance(given, bytes) and (len(given) != size or size > MOST_COPIED_BYTES):
        raise ValueError(f"{len(given)} bytes of host memory for a copy of {size}")
    return MemoryCopy(_place(target), given, size)


_STEPS: dict[str, Callable[[Sequence[object]], CallStep]] = {"launch": _launch, "fill": _fill, "copy": _copy}


def _edge(row: object, steps: Sequence[CallStep]) -> Edge:
    before, after, early, at_start = _row(row)
    edge = Edge(_number(before, range(len(steps))), _number(after, range(len(steps))), _flag(early), _flag(at_start))
    if edge.before >= edge.after:
        raise ValueError("a step that waits for a later one")
    if edge.early and not all(isinstance(steps[i], KernelLaunch) for i in (edge.before, edge.after)):
        raise ValueError("only a kernel can start early, and only behind a kernel")
    return edge


def _place(row: object) -> DevicePlace:
    address, symbol, image = _row(row)
    return DevicePlace(_number(address, _ADDRESSES), _text(symbol), _text(image))


def _size(row: object, least: int) -> Size3:
    x, y, z = (_count(n) for n in _row(row))
    if min(x, y, z) < least:
        raise ValueError(f"a size of {x} x {y} x {z}")
    return x, y, z


def _row(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError(f"a list is expected, not {type(value).__name__}")
    return value


def _number(value: object, allowed: range) -> int:
    if type(value) is not int or value not in allowed:
        raise ValueError(f"a number is out of range: {value!r:.40}")
    return value


def _count(value: object) -> int:
    return _number(value, _COUNTS)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false is expected")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > _MOST_NAME_CHARS or "\0" in value:
        raise ValueError("a name is expected")
    return value


def _name(value: object) -> str:
    name = _text(value)
    if not name:
        raise ValueError("a kernel without a name")
    return name


def _bytes(value: object) -> bytes:
    if not isinstance(value, str):
        raise ValueError("bytes are expected, as hexadecimal digits")
    return bytes.fromhex(value)
