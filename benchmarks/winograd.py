"""Whether Winograd's algorithm or the FFT would pay for the suite's convolutions: errors measured, times bounded.

    python -m benchmarks.winograd --json benchmarks/winograd.json

Errors: the transforms in float32, the products between them in float64, so that only what the algorithm itself costs is
counted. Results are compared as the evaluator compares them, on the `held_out` sizes and a middle one, on every variant
of inputs. Times: what has to be moved when the transformed input and the transformed result go through memory, at the
rate of a copy, against the time of the collection's kernel.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import torch
from torch import Tensor

from warpsmith.evaluator.judge.numerics.reference import Case, Reference, output_share
from warpsmith.hardware.work import count_work
from warpsmith.kernels.collection import find_kernel
from warpsmith.kernels.facts import read_facts
from warpsmith.model.settings import Settings
from warpsmith.model.task import Workload
from warpsmith.tasks.load import load_task
from warpsmith.tasks.variants import OWN

SMALL_FILTERS = ("conv2d", "conv2d_oblong", "conv_transpose2d", "conv_transpose2d_oblong")  # 3 x 3, stride 1
LARGE_FILTERS = ("conv2d_5x9", "conv2d_oblong_5x7")  # for the FFT
MIDDLE = (("batch", 1), ("height", 34), ("width", 50))
COPY_RATE = 4.26e12  # bytes per second, benchmarks/h200/probe_memory.txt
DRAWS = 1

# Transforms of F(2, 3) and F(4, 3): of the result, the filter and the input, for the points 0, 1, -1 (2, -2), infinity.
_TWO = (
    [[1, 1, 1, 0], [0, 1, -1, -1]],
    [[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]],
    [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
)
_FOUR = (
    [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
    [
        [1 / 4, 0, 0],
        [-1 / 6, -1 / 6, -1 / 6],
        [-1 / 6, 1 / 6, -1 / 6],
        [1 / 24, 1 / 12, 1 / 6],
        [1 / 24, -1 / 12, 1 / 6],
        [0, 0, 1],
    ],
    [
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ],
)


def winograd(x: Tensor, weight: Tensor, outputs: int) -> Tensor:
    """A 3 x 3 convolution by tiles of `outputs` x `outputs` results."""
    of_result, of_filter, of_input = (torch.tensor(m, dtype=torch.float32) for m in (_TWO if outputs == 2 else _FOUR))
    height, width = x.shape[2] - 2, x.shape[3] - 2
    down, right = -(-height // outputs), -(-width // outputs)
    padded = torch.nn.functional.pad(x, (0, right * outputs - width, 0, down * outputs - height))
    tiles = padded.unfold(2, outputs + 2, outputs).unfold(3, outputs + 2, outputs)
    filters = of_filter @ weight @ of_filter.T
    inputs = of_input @ tiles @ of_input.T
    products = torch.einsum("kcuv,ncijuv->nkijuv", filters.double(), inputs.double()).float()
    result = of_result @ products @ of_result.T
    return result.permute(0, 1, 2, 4, 3, 5).reshape(x.shape[0], -1, down * outputs, right * outputs)[
        :, :, :height, :width
    ]


def by_fft(x: Tensor, weight: Tensor) -> Tensor:
    """The same by transforms of whole images."""
    shape = x.shape[-2:]
    filters = torch.fft.rfft2(weight, s=shape).conj().to(torch.complex128)
    images = torch.fft.rfft2(x).to(torch.complex128)
    products = torch.einsum("kcuv,ncuv->nkuv", filters, images).to(torch.complex64)
    results: Tensor = torch.fft.irfft2(products, s=shape)
    return results[:, :, : shape[0] - weight.shape[2] + 1, : shape[1] - weight.shape[3] + 1]


WAYS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "F(2, 3)": lambda x, weight: winograd(x, weight, 2),
    "F(4, 3)": lambda x, weight: winograd(x, weight, 4),
    "FFT": by_fft,
}
EXPANSION = {"F(2, 3)": 4.0, "F(4, 3)": 2.25, "FFT": 1.0}  # transformed ÷ plain elements


@dataclass(frozen=True)
class Found:
    """One algorithm on one task."""

    task: str
    way: str
    worst_share: float  # error ÷ limit over all inputs
    worst_variant: str
    refused: int
    checked: int
    least_ms: float  # moved bytes ÷ rate of a copy, at full size
    kernel_ms: float | None  # of the collection's kernel, as last judged


def forward(task: str, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The task as a plain convolution: a transposed one with stride 1 is one with padding and turned filters."""
    if "transpose" not in task:
        return x, weight
    return torch.nn.functional.pad(x, (2, 2, 2, 2)), weight.flip(2, 3).transpose(0, 1)


def study(name: str) -> list[Found]:
    """All algorithms on one task."""
    program = load_task(find_kernel(name).task.spec())
    sizes = [Workload("middle", MIDDLE), *program.task.held_out]
    cpu, ways = torch.device("cpu"), WAYS if name in SMALL_FILTERS else {"FFT": by_fft}
    shares = {way: list[tuple[float, str]]() for way in ways}
    for number, workload in enumerate(sizes):
        workload = replace(workload, name=f"size {number}")
        fake = program.fake_inputs(workload)
        with fake.mode:
            terms = count_work(program.run, fake.tensors, structured=program.structured(device=cpu)).reduction
        reference = Reference(program, cpu, {workload.name: terms}, Settings().error_factor)
        for variant in (OWN, *program.variants(device=cpu), *program.variants(device=cpu, held_out=True)):
            for seed in range(DRAWS):
                expected = reference.compute(Case(workload, variant, 1000 + seed))
                if expected is None:
                    continue
                x, weight = forward(name, expected.inputs["x"], expected.inputs["weight"])
                for way, run in ways.items():
                    result = run(x, weight).contiguous()
                    shares[way].append((output_share(program.task, expected, 0, result), variant))
    plain, kernel = plain_bytes(name), judged_ms(name)
    found = []
    for way, of_way in shares.items():
        share, variant = max(of_way)
        least = plain * (1.0 + 2.0 * EXPANSION[way]) / COPY_RATE * 1e3
        refused = sum(share > 1.0 for share, _ in of_way)
        found.append(Found(name, way, share, variant, refused, len(of_way), least, kernel))
    return found


def plain_bytes(name: str) -> int:
    """Input and result at full size. An algorithm that transforms them moves them once, and transformed twice."""
    program = load_task(find_kernel(name).task.spec())
    fake = program.fake_inputs(program.task.workloads[0])
    with fake.mode:
        (result,) = program.run(fake.tensors)
    return (fake.tensors["x"].numel() + result.numel()) * 4


def judged_ms(name: str) -> float | None:
    """What the record says of the collection's kernel."""
    title = find_kernel(name).task.title
    known = [facts.kernels[title] for facts in read_facts() if title in facts.kernels]
    return known[0].latency_ms[0] if known else None


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the record here")
    options = parser.parse_args()
    found = [each for name in (*SMALL_FILTERS, *LARGE_FILTERS) for each in study(name)]
    for each in found:
        print(
            f"{each.task:24} {each.way:8} error {each.worst_share:8.2f} of the limit ({each.worst_variant}), "
            f"{each.refused} of {each.checked} refused, at least {each.least_ms:.2f} ms, kernel {each.kernel_ms} ms"
        )
    if options.json:
        record = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "torch": torch.__version__,
            "copy_rate": COPY_RATE,
            "found": [asdict(each) for each in found],
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
