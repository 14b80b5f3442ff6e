"""Behaviour as Protocols: what a plugin must offer. One file per plugin, found by `core.registry`."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from warpsmith.core.build import Artifact, Availability, BuildFailure, Target
from warpsmith.core.candidate import Candidate
from warpsmith.core.config import Limits, Paths
from warpsmith.core.contract import Contract
from warpsmith.core.task import Task


@runtime_checkable
class Backend(Protocol):
    """A language a candidate can be written in: its contract, its compiler."""

    name: str  # "cpu", "cuda"
    suffixes: tuple[str, ...]  # file endings it takes, e.g. (".cu", ".cuh")
    devices: tuple[str, ...]  # the kinds of device it runs on

    def placed(self, paths: Paths, limits: Limits) -> Backend:
        """The same backend, keeping its builds there and within these limits."""
        ...

    def available(self) -> Availability:
        """Whether this machine can build and run it, and how to get what is missing."""
        ...

    def contract(self, task: Task, entry: str = "") -> Contract:
        """The entry point for one task; `entry` is a candidate's own choice of it (see `Candidate.entry`)."""
        ...

    def build(self, candidate: Candidate, contract: Contract, target: Target) -> Artifact | BuildFailure:
        """Compile, or say why not. Safe to call from many threads; cached by content."""
        ...
