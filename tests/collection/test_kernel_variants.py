"""The arguments of `benchmarks/kernel_variants.py`: kernels with values of their macros."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import time

import pytest
from benchmarks import kernel_variants
from benchmarks.kernel_variants import Job, Position, Variant, measure_all, variants

from warpsmith.model.errors import UsageError


def test_an_argument_is_every_combination_of_the_values_of_its_macros() -> None:
    assert [str(each) for each in variants("relu A=1,2 B=x,y")] == ["A=1 B=x", "A=1 B=y", "A=2 B=x", "A=2 B=y"]
    assert list(variants("relu")) == [Variant("relu", "", ())]


def test_a_file_is_another_kernel_for_the_task() -> None:
    (variant,) = variants("cross_entropy:some/kernel.cu TUNE_WAY=1")
    assert variant == Variant("cross_entropy", "some/kernel.cu", (("TUNE_WAY", "1"),))
    assert str(variant) == "some/kernel.cu TUNE_WAY=1"


def test_an_entry_of_the_sweep_has_its_task_and_the_kernel_that_a_user_gets() -> None:
    program, contract, candidate = kernel_variants.subject("sweep/pool_avg_7x7")
    assert [each.name for each in program.task.inputs] == ["x"]
    assert contract.entry == "launch"
    assert "pool_bands.cuh" in candidate.main.text
    with pytest.raises(UsageError, match="no entry"):
        kernel_variants.subject("sweep/pool_avg_7x")


def work_on(groups: list[list[Job]], position: Position, limit_s: float) -> None:
    """Stands for the measuring process: a variant "dies" or "hangs" unless it was found out before."""
    for group in groups[position.group.value :]:
        for job in group:
            position.reach(job.number)
            if not job.built[1] and job.variant.file == "dies":
                os._exit(7)
            if not job.built[1] and job.variant.file == "hangs":
                time.sleep(600)
        print([job.built[1] for job in group], flush=True)
        position.group.value += 1


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_variant_that_breaks_its_process_or_never_ends_is_named_and_the_others_are_timed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernel_variants, "_SILENT_S", 3.0)
    monkeypatch.setattr(kernel_variants, "_PROCESSES", multiprocessing.get_context("fork"))  # starts at once
    files = [["good", "dies", "good"], ["hangs"], ["good"]]
    numbers = itertools.count()
    groups = [
        [Job(next(numbers), Variant(str(at), file, ()), ("", "")) for file in row] for at, row in enumerate(files)
    ]

    measure_all(groups, time.monotonic() + 60, work_on)

    died, hung = "it broke the measuring process (status 7)", "it broke the measuring process (no end)"
    assert capfd.readouterr().out.splitlines() == [str(["", died, ""]), str([hung]), str([""])]
