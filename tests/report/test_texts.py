from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.report.unpacking import unpacked
from warpsmith.report.page import Texts


@given(st.lists(st.text(st.sampled_from("ab\n\t<é"), max_size=12), max_size=12))
def test_every_text_comes_back_as_it_was(given_texts: list[str]) -> None:
    texts = Texts()
    numbers = [texts.add(text) for text in given_texts]

    found = unpacked(texts.packed())

    assert [found[number] for number in numbers] == given_texts
    assert len(set(given_texts)) == len(set(numbers))


def test_the_empty_text_has_a_number_of_its_own() -> None:
    assert Texts().add("") == 0


def test_what_repeats_costs_almost_nothing() -> None:
    once, often = Texts(), Texts()
    code = "\n".join(f"float v{i} = x[{i * 7919 % 104729}];" for i in range(2000))
    once.add(code)
    for number in range(100):
        often.add(f"prompt {number}\n{code}\nend")

    # A hundred prompts that show the same kernel: plain deflate, whose window is 32 KiB, could not know.
    assert len(often.packed()) < 2 * len(once.packed())


def test_what_is_no_unicode_or_would_steer_the_reader_is_replaced_not_refused() -> None:
    texts = Texts()

    number = texts.add("a\ud800b \u202ec\r\nd\x1b")

    assert unpacked(texts.packed())[number] == "a\ufffdb \ufffdc\nd\u241b"
