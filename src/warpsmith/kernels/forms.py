"""Forms: kernels of the device library for every task of a kind, whatever its sizes.

A form recognises a task by the operations of its outline, and writes the adapter: a source that includes a header of
the library and calls it with the names of the task's contract and the options of the operator. The contract's backend
decides whether the adapter is CUDA C++ or C++. What is almost of a form (another element type, another padding) is not
claimed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache

from warpsmith.kernels.convolution_ways import convolution_ways
from warpsmith.kernels.form_attention import attention
from warpsmith.kernels.form_chain import chain, chain_of_moved
from warpsmith.kernels.form_channel_norm import channel_norm
from warpsmith.kernels.form_convolution import convolution
from warpsmith.kernels.form_convolution_tail import convolution_tail_ways, convolution_with_tail
from warpsmith.kernels.form_file import convolution_of_a_file, same_operations
from warpsmith.kernels.form_group_norm import group_norm
from warpsmith.kernels.form_pool import pooling
from warpsmith.kernels.form_product import product
from warpsmith.kernels.form_reduction import reduction
from warpsmith.kernels.form_rows import rows, short_rows
from warpsmith.kernels.form_scan import scan
from warpsmith.kernels.form_task import FormKernel, FormTask, NotThisForm
from warpsmith.kernels.form_top_k import top_k
from warpsmith.kernels.form_triangle import triangle_of_product
from warpsmith.kernels.form_ways import FormWay, code_of
from warpsmith.kernels.plain import plain_kernel
from warpsmith.model.contract import Contract
from warpsmith.model.task import Outline, Task

Form = Callable[[FormTask], FormKernel]
FORMS: Mapping[str, tuple[Form, ...]] = {
    "cuda": (
        convolution_of_a_file,
        convolution,
        convolution_with_tail,
        triangle_of_product,  # before `product`, which would read the triangle as an end of its kernel
        product,
        attention,
        scan,
        pooling,
        reduction,
        top_k,
        channel_norm,
        short_rows,
        same_operations,
        group_norm,
        rows,
    ),
    "cpu": (convolution, product, scan, pooling, chain_of_moved),
}
"""By backend. Each writes the kernel for a task of its form, or raises `NotThisForm`."""

WAYS: Mapping[str, tuple[Callable[[FormTask], tuple[FormWay, ...]], ...]] = {
    "cuda": (convolution_ways, convolution_tail_ways),
    "cpu": (convolution_ways,),
}
"""By backend. Each lists the ways to write the kernel for a task of its form, or raises `NotThisForm`."""

LAST_FORMS: Mapping[str, tuple[Form, ...]] = {"cpu": (chain,)}
"""Forms for what no template can write, by backend."""

ARCH = "sm_90a"
"""The architecture that the CUDA headers are written for; those for the CPU suit every processor."""


@lru_cache(maxsize=64)
def form_kernel(task: Task, contract: Contract, outline: Outline, arch: str = ARCH) -> FormKernel | None:
    """The kernel of the form that a task has; None where no form fits."""
    if contract.backend == "cuda" and arch != ARCH:
        return None
    return _first(FORMS, task, contract, outline)


@lru_cache(maxsize=64)
def last_kernel(task: Task, contract: Contract, outline: Outline) -> FormKernel | None:
    """A kernel where neither a form nor a template fits; None where none of `LAST_FORMS` does."""
    return _first(LAST_FORMS, task, contract, outline)


@lru_cache(maxsize=64)
def form_ways(task: Task, contract: Contract, outline: Outline, arch: str = ARCH) -> tuple[FormWay, ...]:
    """The ways to write a task's kernel: the form's own, the others by the time they should take, the plain kernel.

    There are none where the form has no choice, neither of the way nor of its numbers.
    """
    own = form_kernel(task, contract, outline, arch)
    if own is None:
        return ()
    for list_ways in WAYS.get(contract.backend, ()):
        try:
            found = list_ways(FormTask(task, contract, outline))
        except NotThisForm:
            continue
        if len(found) > 1 or any(way.parameters for way in found):
            found = tuple(sorted(found, key=lambda way: (way.source() != own.source, way.microseconds or math.inf)))
            plain = plain_kernel(task, contract, outline)
            return (*found, _plain_way(plain.source)) if plain else found
    return ()


def _plain_way(source: str) -> FormWay:
    return FormWay("", re.escape(code_of(source)), lambda _: source)


def _first(
    forms: Mapping[str, tuple[Form, ...]], task: Task, contract: Contract, outline: Outline
) -> FormKernel | None:
    try:
        read = FormTask(task, contract, outline)
    except NotThisForm:
        return None
    for form in forms.get(contract.backend, ()):
        try:
            return form(read)
        except NotThisForm:
            continue
    return None
