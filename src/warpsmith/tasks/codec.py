"""Converts a `Task` to JSON and back, for the pipe between judge and supervisor."""

from __future__ import annotations

import json
from functools import cache

from pydantic import TypeAdapter, ValidationError

from warpsmith.model.errors import TaskError
from warpsmith.model.task import Task


@cache
def _adapter() -> TypeAdapter[Task]:
    return TypeAdapter(Task)


def dump_task(task: Task) -> bytes:
    """The task as UTF-8 JSON; an infinite scalar is written as Infinity, which `parse_task` reads."""
    return json.dumps(_adapter().dump_python(task, mode="python")).encode()


def parse_task(data: bytes) -> Task:
    """The task that `dump_task` wrote."""
    try:
        return _adapter().validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the text"
        raise TaskError(f"this is not a task in JSON: {where}: {first['msg']}.") from None
