"""Hostile folders through every command that reads them; see `strangers` for the cases.

Every run tries a share of the cases; `make test-all` tries all.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import cast

import pytest
import typer
from click import Group

from tests.fuzz import strangers
from tests.fuzz.engine import Hung
from tests.fuzz.strangers import KEY, Case, cases, outside, read_run, run_seed, said, try_case
from warpsmith.cli.main import app

_OF_RUNS = {"optimize", "tell", "pool", "export"}  # `read_run` tries them
_READ_NOTHING = {  # of others: their own files, tasks that the user names, requests (tests/server)
    *("suite", "kernels", "models", "serve", "agent-guide", "contract", "demo", "doctor"),
}
_PARTS = 4
_EVERY = 28  # of the cases, in a usual run


@pytest.fixture(autouse=True)
def no_bytecode_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of ours that a command imports first here would be written to its cache, which the watch sees."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)


@pytest.fixture(autouse=True)
def a_user_with_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)


@pytest.fixture(scope="module", autouse=True)
def scratch() -> Iterator[None]:
    yield
    shutil.rmtree(strangers.scratch(), ignore_errors=True)
    for each in (
        strangers.scratch,
        run_seed,
        strangers.bench_seed,
        strangers.bundle_seed,
        strangers.kernels_seed,
        cases,
    ):
        each.cache_clear()


def try_all(chosen: Iterable[Case]) -> None:
    failed = []
    for case in chosen:
        try:
            try_case(case)
        except (Exception, Hung) as fault:  # noqa: BLE001 - all that fail are named
            failed.append(f"{case.name}: {type(fault).__name__}: {str(fault)[:500]}")
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("part", range(_PARTS))
def test_hostile_folders_are_answered(part: int) -> None:
    try_all(cases()[part::_PARTS][::_EVERY])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(_PARTS))
def test_all_hostile_folders_are_answered(part: int) -> None:
    assert len(cases()) > 800
    try_all(cases()[part::_PARTS])


@pytest.mark.parametrize("what", ["reply", "claims", "calls", "kernel"])
def test_what_is_no_file_is_not_read(what: str) -> None:
    try_all(case for case in cases() if case.name in (f"{what}: FIFO", f"{what}: sparse giant"))


def test_every_command_that_reads_what_others_wrote_takes_part() -> None:
    for reads, seed in (
        (strangers.read_run_quickly, run_seed),
        (strangers.read_bench, strangers.bench_seed),
        (strangers.read_kernels, strangers.kernels_seed),
    ):
        try_case(Case("good", reads, seed, lambda folder: None))
    others = set(cast(Group, typer.main.get_command(app)).commands) - strangers.tried
    assert others == _READ_NOTHING | _OF_RUNS - strangers.tried


# --- the watch itself: one that sees nothing finds nothing ---


def test_good_folders_are_read() -> None:
    run = str(run_seed() / "run")
    assert "best: " in said("show", run)
    assert "double" in said("runs", str(run_seed()))
    assert "relu@small" in said("bench", "show", str(strangers.bench_seed() / "bench"))


def _writes_outside() -> None:
    (outside() / "target").write_text("changed")


def _starts_a_program() -> None:
    subprocess.run(["true"], check=True)


def _writes_beside() -> None:
    with open(strangers.scratch() / "beside", "w"):
        pass


def _removes() -> None:
    shutil.rmtree(outside() / "folder")


@pytest.mark.parametrize("act", [_writes_outside, _starts_a_program, _writes_beside, _removes])
def test_what_must_not_happen_is_seen(act: Callable[[], None]) -> None:
    case = Case("bad", lambda folder: act(), run_seed, lambda folder: None)
    with pytest.raises(AssertionError):
        try_case(case)
    try_case(Case("good", read_run, run_seed, lambda folder: None))
