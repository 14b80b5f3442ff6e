"""The arguments of `benchmarks/kernel_variants.py`: kernels with values of their macros."""

from __future__ import annotations

from benchmarks.kernel_variants import Variant, variants


def test_an_argument_is_every_combination_of_the_values_of_its_macros() -> None:
    assert [str(each) for each in variants("relu A=1,2 B=x,y")] == ["A=1 B=x", "A=1 B=y", "A=2 B=x", "A=2 B=y"]
    assert list(variants("relu")) == [Variant("relu", "", ())]


def test_a_file_is_another_kernel_for_the_task() -> None:
    (variant,) = variants("cross_entropy:some/kernel.cu TUNE_WAY=1")
    assert variant == Variant("cross_entropy", "some/kernel.cu", (("TUNE_WAY", "1"),))
    assert str(variant) == "some/kernel.cu TUNE_WAY=1"
