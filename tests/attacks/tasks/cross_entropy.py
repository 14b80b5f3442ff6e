"""Cross entropy of rows as long as a large vocabulary: from the moments of each row, it is known to five digits."""

import torch

from warpsmith import integers, normal, task


@task(
    x=normal("rows, words"),
    y=integers("rows", high="words"),
    workloads=[{"rows": 4, "words": 131_072}],
    precision="fp32",
)
def cross_entropy(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(x, y)
