"""Python texts are read rightly while others read theirs."""

from __future__ import annotations

import ast
import gc
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from warpsmith.model.source_text import parse_python, parse_python_expression

LONG = "\n".join(f"def f{i}(x):\n    return (x + {i}) * [x, {{'a': -x}}][0]" for i in range(200))


@contextmanager
def during_collections(do: Callable[[], object]) -> Iterator[None]:
    """`do` runs at every collection of garbage, and there are many."""

    def callback(phase: str, info: dict[str, int]) -> None:
        do()

    before = gc.get_threshold()
    gc.callbacks.append(callback)
    gc.set_threshold(50)
    try:
        yield
    finally:
        gc.callbacks.remove(callback)
        gc.set_threshold(*before)


def test_a_reading_disturbed_by_another_is_done_again() -> None:
    disturbed: list[ast.Module] = []

    def disturb() -> None:
        if len(disturbed) < 3:
            disturbed.append(ast.parse("1 + 1"))

    with during_collections(disturb):
        tree = parse_python(LONG)
    assert len(tree.body) == 200
    assert disturbed


@pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="from Python 3.12 on nothing is collected in the middle of a reading"
)
def test_what_the_disturbance_does_to_python_itself() -> None:
    def disturb() -> None:
        ast.parse("1 + 1")

    with during_collections(disturb), pytest.raises(SystemError, match="recursion depth mismatch"):
        ast.parse(LONG)


def test_threads_take_turns() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            trees = list(pool.map(parse_python, [LONG] * 40))
    finally:
        sys.setswitchinterval(before)
    assert {len(tree.body) for tree in trees} == {200}


def test_it_warns_of_nothing_and_leaves_warnings_as_they_were() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        parse_python("x = '\\d'")
        assert seen == []
        warnings.warn("heard", stacklevel=1)
        assert len(seen) == 1


def test_errors_are_those_of_python() -> None:
    with pytest.raises(SyntaxError) as caught:
        parse_python("def f(:", "name.py")
    assert caught.value.filename == "name.py"
    with pytest.raises((ValueError, SyntaxError)):
        parse_python("a\0b")
    assert isinstance(parse_python_expression("f(1)"), ast.Call)
    with pytest.raises(SyntaxError):
        parse_python_expression("x = 1")
