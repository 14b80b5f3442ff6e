"""The eight largest logits of every row, as weights that sum to one: the router of a mixture of experts."""

import torch

from warpsmith import listed, normal, task


@listed(
    family="fused",
    tags=["rows", "index"],
    precisions=["fp32"],
    small=[{"name": "small", "rows": 100, "experts": 32}],
    held_out=[{"rows": 61, "experts": 47}],
)
@task(
    logits=normal("rows, experts"),
    workloads=[{"rows": 32_768, "experts": 64}, {"rows": 8192, "experts": 256}, {"rows": 4096, "experts": 128}],
    precision="fp32",
    returns="weights, picks",
)
def top_k_softmax(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    best, picks = torch.topk(logits, 8, dim=-1)
    return torch.softmax(best, dim=-1), picks
