"""Writes the records of the pool that ship with the package, from what was measured on an H200. Needs no GPU.

    python -m benchmarks.seed_pool

Sources: `h200/suite_best.json` (verified kernels of the templates, and the speedup of each plan that was tried), and
`kernels/facts` (kernels of the collection). The kernel before is the slowest plan that was tried for the task, written
anew by the templates, where they still write the measured best kernel letter by letter; else the reference in PyTorch.
Of records of one form and family with the same strategy only the one with the largest effect is kept.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.suite_figures import BestFigures, SuiteRecord, TaskFigures, read_best, read_suite
from pydantic import RootModel

from warpsmith.backends.source import backend_named
from warpsmith.kernel_templates import abilities, translate
from warpsmith.kernels.collection import SOURCES, CollectedKernel, collection
from warpsmith.kernels.facts import KernelState
from warpsmith.model.brief import Problem, WorkloadBound
from warpsmith.model.build import DeviceKind
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.strategies.plan_space import plan_of
from warpsmith.strategies.pool import NOTABLE, SHIPPED, Improvement, PoolRecord, PoolSubmission, record_of
from warpsmith.tasks.load import load_task
from warpsmith.tasks.outline import outline
from warpsmith.tasks.suites import suite_tasks

HERE = Path(__file__).resolve().parent
ARCH = "sm_90a"
CHANGED = "the kernel's text has changed since this measurement"
HOW = {  # the strategy of a kernel of the collection, by the header that it includes first
    "convolution": "split-product + implicit-gemm + wgmma: split the input once into two fp16 planes with x = hi + "
    "lo / 2048, in blocks of eight channels per pixel, padded with zeros, so that a tap is a fixed distance in a "
    "flat array; write every convolution, transposed ones by phases, as stride-1 problems with a list of taps; "
    "compute hi*hi + hi*lo + lo*hi with wgmma from a ring of shared-memory stages; add partial sums in fp32 registers",
    "convolution_stream": "split-product + wgmma in one pass over memory: all filters stay in shared memory, four "
    "warps load the input and split it into fp16 planes on its way, two warpgroups multiply and write",
    "convolution_held": "split-product + implicit-gemm + wgmma with sums held in the tensor cores' registers: two fp16 "
    "planes of the input, a tap is a fixed distance in a flat array; every 64 pixels of a tile have registers of their "
    "own, so that all products of a stage are one group and the next group is issued before the last one is done; sums "
    "are added to fp32 registers after at most 27 steps of 16 terms",
    "convolution_strided": "split-product + implicit-gemm + wgmma for few channels and a stride: blocks of stride x "
    "stride pixels become the channels of one pixel, so that the convolution has stride 1, ceil(kernel / stride) taps "
    "per axis and enough channels for 16 terms, and every input is written once",
    "convolution_flat": "split-product + wgmma in one pass over memory for few terms: the ranges of the input that a "
    "tile reads are copied to shared memory three tiles ahead; 256 threads gather the terms of every pixel there and "
    "split them into fp16; a tile belongs to one warpgroup, which writes while the other one multiplies",
    "matmul": "split-product + wgmma + tma-loads + warp-specialisation: write each factor once as two fp16 planes (x "
    "= s * (hi + lo), with a power of two s for each stretch of a row), already in the blocks that the matrix "
    "instructions read; one producer thread copies blocks into a ring of shared-memory stages, two warpgroups "
    "compute hi*hi + hi*lo + lo*hi; after each chunk the accumulator is scaled and added to fp32 registers; split-k "
    "where tiles are fewer than multiprocessors",
    "split_product": "split-product + wgmma + structural-zeros: two fp16 planes of each factor and three products as "
    "for a full matrix, but blocks that lie in the zero half of a triangular factor are neither copied nor "
    "multiplied, and tiles of the result that are zero are only written",
    "flash_attention": "flash-attention-tiling + split-product + wgmma: scores stay in registers; a warpgroup owns "
    "64 queries and goes through the keys 64 at a time with a running maximum and sum; probabilities are split into "
    "two fp16 parts in registers; a thread block takes tiles from both ends of a causal sequence, so that all do the "
    "same work",
    "lagged": "persistent-blocks: long rows are read twice, the second time from the L2 cache: all blocks of the "
    "device go through one list in which the parts of a row are reduced, and some rows later are read again and "
    "written",
    "kept": "row-in-shared + persistent-blocks: long rows lie in the shared memory of a cluster of blocks, which go "
    "from row to row: bulk copies bring the next row in while one is written; short rows belong to one warp",
    "blocks": "persistent-blocks: all blocks of the device share a channel; each keeps its part in shared memory and "
    "registers, tells the others its moments through device memory, and reads what it could not keep once more from "
    "the L2 cache, where hints keep everything else out",
    "columns": "independent-chains: a thread has one column and loads several rows before it uses the first; groups "
    "of rows in one block are merged in shared memory",
    "elementwise": "vector-loads + streaming-stores: one 16-byte pack for each thread, no grid-stride loop; exact "
    "functions that cost less than the memory",
    "whole": "vector-loads + last-block-reduction: packs of all inputs in flight, a partial sum for each of "
    "thousands of blocks, and the last block to finish adds them up in a fixed order",
    "depthwise": "register reuse: a warp takes 32 * 4 columns and several rows of one channel and has all its loads "
    "on their way before the first is used; rows shared by two warps of a block come from the L1 cache",
    "pool": "one read of every input element: windows that share elements meet them in registers, by shuffles "
    "between neighbouring lanes, or in the caches; 16-byte loads where the width allows",
    "pool_ahead": "one read of every input element: a warp walks down a strip of rows with the next rows already being "
    "loaded; windows that share elements meet them in registers, by shuffles between neighbouring lanes",
    "scan": "one read and one write of every element: a block walks along a row in chunks with the next chunk "
    "already being loaded; packs in a thread, shuffles in a warp, shared memory between the warps, one barrier per "
    "chunk",
    "rows": "one read of the input: the blocks of a cluster share a row, keep it in registers between the reduction "
    "and the result, and exchange what they found through distributed shared memory",
    "group_norm": "one read of the input: the blocks of a cluster share a group, keep it in registers between the "
    "moments and the result, and exchange the moments through distributed shared memory",
    "packs": "16-byte loads and stores, several of them in flight in every thread: ",  # and what its comment says
}


def main() -> None:
    """Write the file."""
    lines = seed_lines()
    SHIPPED.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"{len(lines)} records, {SHIPPED.stat().st_size / 1024:.0f} KiB in {SHIPPED}")


def seed_lines() -> list[str]:
    """The records, one line each."""
    figures = read_suite(HERE / "h200" / "suite.json")
    assert figures is not None
    found = [*_of_templates(figures), *_of_collection(figures)]
    best: dict[tuple[str, ...], PoolRecord] = {}
    for form, record in sorted(found, key=lambda each: -_gain(each[1])):
        if _gain(record) >= NOTABLE and (record.speedup or 0.0) > 1:  # as for the records of runs
            best.setdefault((form, record.strategy, *record.families), record)
    return sorted(RootModel[PoolRecord](each).model_dump_json(exclude_defaults=True) for each in best.values())


def _gain(record: PoolRecord) -> float:
    return record.effect or record.speedup or 0.0


def _of_templates(figures: SuiteRecord) -> Iterator[tuple[str, PoolRecord]]:
    record = read_best(HERE / "h200" / "suite_best.json")
    assert record is not None
    for found in record.tasks:
        if not (found.verified and found.kernel and found.speedup):
            continue
        problem, reference = _problem(found.task, figures)
        before = _before(found, problem)
        start, effect = before or (reference, None)
        improvement = Improvement(found.kernel, found.strategy, found.speedup, start, effect)
        yield "", _shipped(problem, improvement, record.date)


def _before(found: BestFigures, problem: Problem) -> tuple[Candidate, float] | None:
    """The kernel of the slowest plan, and the speed of the best kernel over it."""
    assert found.kernel is not None
    assert found.speedup is not None
    best, slowest = found.strategy, min(found.tried, key=lambda text: found.tried[text], default="")
    if slowest in ("", best) or _written(best, problem) != found.kernel.main.text:
        return None
    files = (SourceFile(found.kernel.main.name, _written(slowest, problem)),)
    return Candidate(files, "cuda", strategy=slowest), found.speedup / found.tried[slowest]


def _written(text: str, problem: Problem) -> str:
    plan = plan_of(text, abilities(problem))
    return translate(problem, plan) if plan else ""


def _of_collection(figures: SuiteRecord) -> Iterator[tuple[str, PoolRecord]]:
    for kernel in collection():
        for known in kernel.states():
            facts, header = known.facts, _header(kernel)
            if facts is None or facts.status != "ok" or not facts.speedup or header not in HOW:
                continue
            problem, reference = _problem(kernel.task.title, figures)
            made = _shipped(
                replace(problem, device=known.device),
                Improvement(kernel.candidate, _strategy(kernel, header), facts.speedup, reference),
                known.date,
            )
            if (SOURCES / kernel.candidate.main.name).is_file():
                made = replace(made, kernel=(SourceFile(kernel.candidate.main.name, ""),))
            yield kernel.form, replace(made, note=CHANGED if known.state is KernelState.CHANGED else "")


def _strategy(kernel: CollectedKernel, header: str) -> str:
    comment = re.match(r"(?:// .*\n)*", kernel.source)
    said = " ".join(comment[0].replace("// ", "").split()) if comment else ""
    return HOW[header] + (said if header == "packs" else "")


def _header(kernel: CollectedKernel) -> str:
    found = re.search(r"#include <warpsmith/(\w+)\.cuh>", kernel.source)
    return found[1] if found else ""


def _shipped(problem: Problem, improvement: Improvement, date: str) -> PoolRecord:
    return replace(record_of(PoolSubmission(problem, (), ""), improvement), date=date)


def _problem(title: str, figures: SuiteRecord) -> tuple[Problem, Candidate]:
    """The problem on the device that was measured, and the reference as a kernel before."""
    suite, _, name = title.partition("/")
    task = next(each for each in suite_tasks(suite) if each.name == name)
    program = load_task(task.spec())
    problem = Problem(
        task=program.task,
        contract=backend_named("cuda").contract(program.task),
        backend="cuda",
        device=figures.device,
        kind=DeviceKind.CUDA,
        arch=ARCH,
        bounds=tuple(_bounds(next(each for each in figures.tasks if each.task == title))),
        outline=outline(program),
    )
    reference = SourceFile(f"{name}.py", textwrap.dedent(program.task.source).strip() + "\n")
    return problem, Candidate((reference,), "torch_module")


def _bounds(task: TaskFigures) -> Iterator[WorkloadBound]:
    for each in task.workloads:
        bound = each.bounds[0]
        eager = each.ms("eager", bound.precision) or 0.0
        yield WorkloadBound(each.workload, each.axes, each.bytes, each.flops, bound.floor_ms, bound.zone, eager)


if __name__ == "__main__":
    main()
