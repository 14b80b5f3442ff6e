"""Where evaluations run: the names of engines, and what the local one is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.searching import PROBLEM, run_setup

from warpsmith.engine.engine import LocalSite, engine_site, open_engine
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.methods.load import DEFAULT, load
from warpsmith.model.errors import UsageError
from warpsmith.model.settings import Settings
from warpsmith.search.open_run import check_same_kind, resolve
from warpsmith.search.options import RunOptions, config_text


def test_local_is_the_evaluator_of_this_machine() -> None:
    with open_engine("local", "cpu", Settings(seeds=3)) as engine:
        assert type(engine) is Evaluator
        assert (engine.device.kind, engine.settings.seeds, engine.width) == ("cpu", 3, 1)


@pytest.mark.parametrize("spec", ["", "slurm", "ftp://host:1", "http", "ray://", "local://x"])
def test_an_unknown_engine_is_answered_with_the_known_ones(spec: str) -> None:
    with pytest.raises(UsageError, match=r"unknown engine .*use local, ray, ray://HOST:PORT or http://HOST:PORT"):
        engine_site(spec)


def test_an_engine_takes_no_password() -> None:
    with pytest.raises(UsageError, match="no password"):
        engine_site("http://me:secret@host:1")


def test_a_cluster_goes_on_with_a_run_on_the_same_kind_of_device_only() -> None:
    here = LocalSite().select("cpu")
    begun = replace(PROBLEM, device="NVIDIA H200 (cuda:0)")
    setup = replace(run_setup(load(DEFAULT)), problem=begun)
    with pytest.raises(UsageError, match=r"begun on NVIDIA H200, and the cluster's choice is Other; .*ray\?kind=NAME"):
        check_same_kind(Path("run"), setup, replace(here, name="Other"), "ray")
    check_same_kind(Path("run"), setup, replace(here, name="NVIDIA H200"), "ray://head:1")
    check_same_kind(Path("run"), setup, here, "local")


def test_the_engine_is_an_option_of_the_run_and_begins_with_it_again() -> None:
    options = RunOptions(engine="ray://head:10001", device="cpu")
    config = resolve("t.py", options, proposer="template", device=LocalSite().select("cpu"), backend="cpu")
    assert config.engine == "ray://head:10001"
    assert 'engine = "ray://head:10001"' in config_text(config, load(DEFAULT).name, options)
    usual = resolve("t.py", RunOptions(), proposer="template", device=LocalSite().select("cpu"), backend="cpu")
    assert usual.engine == "local"
    assert "engine" not in config_text(usual, load(DEFAULT).name, RunOptions())
