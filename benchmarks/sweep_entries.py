"""One task of the sweep over sizes and chains: the text of its file, and how that is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PRODUCTS, CONVOLUTIONS, OTHERS, CHAINS = "product", "convolution", "other", "chain"
GROUPS = (PRODUCTS, CONVOLUTIONS, OTHERS, CHAINS)


@dataclass(frozen=True)
class Entry:
    """One task of the sweep."""

    name: str  # also of the task's file
    group: str
    shape: str  # for readers
    text: str  # of the task's file
    sizes: tuple[tuple[str, int], ...]  # of its only workload
    suite: str = ""  # the suite's task that it is with other sizes: "warpsmith-100/softmax"

    @property
    def kernel(self) -> str:
        """The name that a kernel written for one task of a suite has; "" for a task of no suite."""
        return self.suite.rpartition("/")[2]


def write_entry(
    name: str,
    group: str,
    shape: str,
    tensors: dict[str, str],
    result: str,
    sizes: dict[str, int],
    before: Sequence[str] = (),
) -> Entry:
    """An entry from the declarations of its tensors and the expression of its result, with statements before it."""
    workload = ", ".join(f'"{axis}": {size}' for axis, size in sizes.items())
    integers = "integers, " if any("integers(" in declared for declared in tensors.values()) else ""
    lines = [
        "import torch",
        *(["import torch.nn.functional as F"] if group == CHAINS else []),
        f"from warpsmith import booleans, {integers}normal, task, uniform",
        "@task(",
        *(f"    {tensor}={declared}," for tensor, declared in tensors.items()),
        f"    workloads=[{{{workload}}}],",
        '    precision="fp32",',
        ")",
        f"def {name}({', '.join(f'{tensor}: torch.Tensor' for tensor in tensors)}) -> torch.Tensor:",
        *(f"    {line}" for line in before),
        f"    return {result}",
    ]
    return Entry(name, group, shape, "\n".join(lines) + "\n", tuple(sizes.items()))
