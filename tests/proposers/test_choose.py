"""Which proposer a user means, where nothing has to be started to know it."""

from __future__ import annotations

import pytest

from warpsmith.model.errors import UsageError
from warpsmith.proposers.choose import ProposerOptions, choose

NOWHERE = "http://127.0.0.1:9/v1"


def test_without_a_model_it_is_the_catalogue_and_says_how_to_connect_one() -> None:
    found = choose("auto", ProposerOptions(), environ={})
    assert found.spec == "template"
    assert "connect one with --proposer" in found.sentence


def test_an_address_that_does_not_answer_is_an_error_and_no_reason_to_go_on_without_a_model() -> None:
    with pytest.raises(UsageError, match=r"--base-url is http://127\.0\.0\.1:9.*check that the endpoint answers"):
        choose("auto", ProposerOptions(base_url=NOWHERE, request_s=1.0), environ={})


def test_an_unknown_proposer_is_told_the_known_ones() -> None:
    with pytest.raises(UsageError, match="known: auto, template, "):
        choose("nonsense", ProposerOptions(), environ={})
