"""The price table: packaged, the user's own, and what is wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from warpsmith.llm.prices import Price, Prices, Tokens
from warpsmith.llm.spec import PACKAGE
from warpsmith.model.errors import UsageError
from warpsmith.system.plugins import plugins


def test_the_packaged_table_prices_the_default_models() -> None:
    prices = Prices.load({})

    for plug in plugins(PACKAGE).values():
        found = prices.of(plug.name, plug.default_model)
        assert found is not None
        assert 0 < found.input < found.output


def test_an_unknown_model_has_no_price() -> None:
    assert Prices.load({}).of("openai", "no-such-model") is None


def test_the_users_table_adds_and_overrides(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        '[openai."gpt-6.1-sol"]\ninput = 1\noutput = 2\n[openai."my/model:8b"]\ninput = 0.5\noutput = 0.5\n'
    )

    for prices in (Prices.load({}, path), Prices.load({"WARPSMITH_PRICES": str(path)})):
        assert prices.of("openai", "gpt-6.1-sol") == Price(1.0, 2.0)
        assert prices.of("openai", "my/model:8b") == Price(0.5, 0.5)
        assert prices.of("anthropic", "claude-sonnet-5-5") is not None


def test_tokens_of_each_kind_have_their_own_price() -> None:
    price = Price(input=2.0, output=10.0, cached_input=0.5, cache_write=3.0)

    cost = price.cost_usd(Tokens(prompt=1000, completion=100, cached=300, cache_written=200))

    assert cost == pytest.approx((500 * 2.0 + 300 * 0.5 + 200 * 3.0 + 100 * 10.0) / 1e6)
    assert Price(2.0, 10.0).cost_usd(Tokens(1000, 0, 300, 200)) == pytest.approx(0.002)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[openai", "is not TOML"),
        ("openai = 3", "openai in .* is no price"),
        ("[openai]\ngpt = 3", "openai.gpt in .* is no price"),
        ("[openai.gpt]\ninput = 1", "openai.gpt in .* lacks output"),
        ("[openai.gpt]\ninput = 1\noutput = -2", "output of openai.gpt in .* is no amount"),
        ("[openai.gpt]\ninput = true\noutput = 2", "input of openai.gpt in .* is no amount"),
        ("[openai.gpt]\ninput = 1\noutput = 2\nprompt = 3", "unknown field 'prompt'; known: input, output"),
    ],
)
def test_a_table_that_is_wrong_says_where(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)

    with pytest.raises(UsageError, match=complaint):
        Prices.load({}, path)


def test_a_table_that_is_missing_is_an_error() -> None:
    with pytest.raises(UsageError, match="cannot read the price table /no/such/file"):
        Prices.load({"WARPSMITH_PRICES": "/no/such/file"})
