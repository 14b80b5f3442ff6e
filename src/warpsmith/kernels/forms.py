"""Forms: kernels of the device library for every task of a kind, whatever its sizes.

A form recognises a task by the operations of its outline, and writes the adapter: a source that includes a header of
the device library and calls it with the names of the task's contract and the options of the operator. What is almost
of a form (another element type, another padding) is not claimed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from warpsmith.kernels.form_convolution import convolution
from warpsmith.kernels.form_pool import pooling
from warpsmith.kernels.form_product import product
from warpsmith.kernels.form_scan import scan
from warpsmith.kernels.form_task import FormKernel, FormTask, NotThisForm
from warpsmith.model.contract import Contract
from warpsmith.model.task import Outline, Task

FORMS: tuple[Callable[[FormTask], FormKernel], ...] = (convolution, product, scan, pooling)
"""Each writes the kernel for a task of its form, or raises `NotThisForm`."""

ARCH = "sm_90a"
"""The architecture that the headers of the device library are written for."""


@lru_cache(maxsize=64)
def form_kernel(task: Task, contract: Contract, outline: Outline, arch: str = ARCH) -> FormKernel | None:
    """The kernel of the form that a task has; None where no form fits."""
    if arch != ARCH:
        return None
    for form in FORMS:
        try:
            return form(FormTask(task, contract, outline))
        except NotThisForm:
            continue
    return None
