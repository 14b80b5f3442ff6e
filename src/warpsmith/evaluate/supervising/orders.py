"""What the supervisor asks of the forge. Plain data, known to both sides; imports no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Trial:
    """One call that makes a Triton kernel compile."""

    names: tuple[str, ...]
    roles: tuple[str, ...]
    origins: tuple[str, ...]
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    numbers: Mapping[str, float | int | bool]


@dataclass(frozen=True)
class Order:
    """What is to be forged."""

    folder: str  # with `main` and `sources`; the only one that can be written
    call: Mapping[str, Any]  # the fields of a PythonCall
    environ: Mapping[str, str]
    readable: tuple[str, ...]
    kind: str  # of the device
    device: int
    threads: int
    limit_s: float
    drops: bool  # as root, whether it becomes another user
    trials: tuple[Trial, ...] = ()  # on the device, in turn; () where importing is enough


def dump_order(order: Order) -> str:
    """As JSON."""
    return json.dumps(asdict(order))


def parse_order(text: str) -> Order:
    """What `dump_order` wrote."""
    fields = json.loads(text)
    fields["readable"] = tuple(fields["readable"])
    fields["trials"] = tuple(Trial(**trial) for trial in fields["trials"])
    return Order(**fields)
