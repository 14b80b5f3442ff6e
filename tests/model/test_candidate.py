from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warpsmith.model.candidate import Candidate, SourceFile

PLAIN = Candidate((SourceFile("kernel.cpp", "int launch();"), SourceFile("part.h", "#pragma once")), "cpu")


def test_the_id_is_twelve_hex_digits() -> None:
    assert len(PLAIN.id) == 12
    assert int(PLAIN.id, 16) >= 0


@settings(deadline=None)
@given(parents=st.lists(st.text()), operator=st.text(), thought=st.text(), strategy=st.text())
def test_where_it_came_from_does_not_matter(parents: list[str], operator: str, thought: str, strategy: str) -> None:
    elsewhere = replace(PLAIN, parents=tuple(parents), operator=operator, thought=thought, strategy=strategy)

    assert elsewhere.id == PLAIN.id
    assert elsewhere == PLAIN
    assert hash(elsewhere) == hash(PLAIN)


@pytest.mark.parametrize(
    "other",
    [
        replace(PLAIN, backend="cuda"),
        replace(PLAIN, defines=(("BLOCK", "128"),)),
        replace(PLAIN, files=(SourceFile("kernel.cpp", "int launch(); "), PLAIN.files[1])),
        replace(PLAIN, files=(SourceFile("other.cpp", "int launch();"), PLAIN.files[1])),
        replace(PLAIN, files=PLAIN.files[::-1]),
        replace(PLAIN, files=PLAIN.files[:1]),
    ],
    ids=["backend", "defines", "text", "name", "order", "fewer"],
)
def test_whatever_it_says_does(other: Candidate) -> None:
    assert other.id != PLAIN.id
    assert other != PLAIN


def test_each_value_of_a_tunable_is_a_program_of_its_own() -> None:
    ids = {replace(PLAIN, defines=(("BLOCK", value),)).id for value in ("128", "256", "512")}

    assert len(ids) == 3


def test_where_one_file_ends_and_the_next_begins_is_part_of_it() -> None:
    one = Candidate((SourceFile("a", "bc"), SourceFile("d", "e")), "cpu")
    other = Candidate((SourceFile("a", "b"), SourceFile("cd", "e")), "cpu")

    assert one.id != other.id


def test_the_first_file_holds_the_entry_point() -> None:
    assert PLAIN.main.name == "kernel.cpp"
