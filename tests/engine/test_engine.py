"""Where evaluations run: the names of engines, and what the local one is."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.searching import PROBLEM, run_setup

from warpsmith.engine import ray_site
from warpsmith.engine.engine import LocalSite, engine_site, open_engine
from warpsmith.engine.ray_node import JudgeKey
from warpsmith.engine.ray_pool import RayPool, _Actor
from warpsmith.engine.ray_site import RaySpec
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.methods.load import DEFAULT, load
from warpsmith.model.errors import ToolMissing, UsageError
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


def fake_ray(said: Exception) -> SimpleNamespace:
    """A Ray that connects to nothing."""

    def init(**_: object) -> None:
        raise said

    return SimpleNamespace(
        is_initialized=lambda: False, init=init, exceptions=SimpleNamespace(RayError=ZeroDivisionError)
    )


@pytest.mark.parametrize(
    ("spec", "mode", "failure", "said"),
    [
        ("ray://127.0.0.1:1", "", None, r"no Ray cluster answers at ray://127.0.0.1:1 \(.*refused\); .*RAY_AUTH_MODE"),
        ("ray://127.0.0.1:1", "token", None, r"^(?!.*RAY_AUTH_MODE)no Ray cluster answers at .*`ray start --head`\.$"),
        ("ray", "", RuntimeError("Version mismatch: cluster\n Ray: 1\n"), "cluster Ray: 1; install the same versions"),
        ("ray", "", ValueError("no room"), r"no Ray cluster can be started \(no room\); start one with"),
    ],
)
def test_why_there_is_no_cluster_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, spec: str, mode: str, failure: Exception | None, said: str
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray_site, "import_ray", lambda: fake_ray(failure or AssertionError("must not be asked")))
    with pytest.raises(UsageError, match=said) as refused:
        ray_site.connect(RaySpec.parse(spec))
    assert "\n" not in str(refused.value)


def test_the_client_of_ray_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray_site, "import_ray", lambda: fake_ray(ImportError("grpc")))
    with pytest.raises(ToolMissing, match=r"needs Ray's client; install it with `pip install 'warpsmith\[ray\]'`"):
        ray_site.connect(RaySpec("ray://head"))


def test_a_wait_that_ends_early_leaves_the_future_of_ray_alone() -> None:
    pool = RayPool.__new__(RayPool)
    future: Future[int] = Future()

    async def wait() -> None:
        pool._loop = asyncio.get_running_loop()
        waiting = asyncio.ensure_future(pool._reply(SimpleNamespace(future=lambda: future)))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        future.set_result(1)  # Ray's client ends its connection where this fails
        assert await pool._reply(SimpleNamespace(future=lambda: future)) == 1

    asyncio.run(wait())


def test_an_evaluator_on_ray_is_told_how_many_candidates_follow() -> None:
    key, other = (JudgeKey(task, None, Settings()) for task in ("a", "b"))
    pool = RayPool.__new__(RayPool)
    pool._unfinished = Counter({key: 5, other: 1})
    pool._actors = [_Actor(None, "node", key=key, in_flight=2), _Actor(None, "node", key=key), _Actor(None, "node")]
    assert (pool._unsent(key), pool._unsent(other)) == (3, 1)


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
