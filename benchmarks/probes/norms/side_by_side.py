"""Checks and times candidates for normalisations, each in turn with the kernel of the collection.

    python benchmarks/probes/norms/side_by_side.py [--limit-s N] [--compile-only] 'TASK:FILE MACRO=A,B ...' ...

All candidates are compiled at the same time. Each one is then measured in a process of its own, which is ended when
it says nothing for some seconds, so that a candidate whose blocks wait for ever takes nothing else along. Errors are
those of the evaluator: the largest |c - r| / (|r| + s) and the rms of c - r over s, where r is the result in fp64 and s
the rms of PyTorch's. The share is the larger one of the two over its limit: 3 times that of PyTorch eager plus 6e-7, or
plus 2.4e-7 for the rms.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[3]), str(Path(__file__).resolve().parents[3] / "src")]

import torch  # noqa: E402

from benchmarks.kernel_variants import Variant, build, subject, variants  # noqa: E402
from benchmarks.shape_sweep import KernelCall, set_up_torch  # noqa: E402

LIMIT = 4.41e12  # bytes per second, as in the facts of the collection
SILENT_S = 9.0
SAMPLES = 11
FACTOR, MOST, RMS = 3.0, 6e-7, 2.4e-7


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="+", metavar="'TASK:FILE MACRO=A,B'")
    parser.add_argument("--limit-s", type=float, default=300.0)
    parser.add_argument("--processes", type=int, help="that compile at the same time  [default: one per core]")
    parser.add_argument("--compile-only", action="store_true", help="needs no GPU")
    options = parser.parse_args()
    end = time.monotonic() + options.limit_s
    began = time.monotonic()
    chosen = [variant for text in options.kernels for variant in variants(text)]
    present = [Variant(task, "", ()) for task in dict.fromkeys(variant.task for variant in chosen)]
    with ProcessPoolExecutor(options.processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        built = dict(zip([*present, *chosen], pool.map(build, [*present, *chosen]), strict=True))
    right = sum(not fault for _, fault in built.values())
    print(f"{right} of {len(built)} compiled after {time.monotonic() - began:.0f} s", flush=True)
    for variant, (_, fault) in built.items():
        if fault or options.compile_only:
            print(f"{variant.task} {variant}: {fault[:600] or 'compiled'}", flush=True)
    if options.compile_only:
        return
    torch.set_num_threads(1)  # processes that are forked have no other threads
    for task in present:
        subject(task.task)
    way = "fork" if begun("fork", try_out, end)[0] == "works" else "spawn"
    print(f"processes start by {way}, after {time.monotonic() - began:.0f} s", flush=True)
    for task in present:
        print(f"{task.task}", flush=True)
        for variant in chosen:
            libraries = [built[each][0] for each in (task, variant)]
            if variant.task != task.task or not all(libraries):
                continue
            if time.monotonic() > end - 3:
                print(f"  no time left  {variant}", flush=True)
                continue
            lines = begun(way, measure, end, variant.task, libraries)
            for line in lines if lines[-1] == "done" else [*lines[:-1], f"={lines[-1]}"]:
                if line.startswith("="):
                    print(f"  {line[1:]}  {variant}", flush=True)


def begun(way: str, work: Callable[..., None], end: float, *given: object) -> list[str]:
    """What a process of its own says, up to "done" or how it ended."""
    context: Any = multiprocessing.get_context(way)
    mine, its = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(its, *given))
    process.start()
    its.close()
    said: list[str] = []
    try:
        while not said or said[-1] != "done":
            if not mine.poll(max(min(SILENT_S, end - time.monotonic()), 0.1)):
                said.append(f"NO END after '{said[-1] if said else 'nothing'}'")
                break
            said.append(mine.recv())
    except EOFError:
        process.join(2.0)
        said.append(f"ENDED after '{said[-1] if said else 'nothing'}' with status {process.exitcode}")
    if said[-1] == "done":
        process.join(5.0)
    process.kill()
    process.join(5.0)
    return said


def try_out(tell: Connection) -> None:
    """Whether a forked process can use the GPU."""
    torch.zeros(1, device="cuda")
    tell.send("works")
    tell.send("done")


def measure(tell: Connection, name: str, libraries: list[str]) -> None:
    """Tell what becomes of a candidate; a line that begins with = is a result."""
    try:
        set_up_torch()
        program, contract, _ = subject(name)
        workload = program.task.workloads[0]
        task = replace(program.task, workloads=(workload,))
        inputs = program.inputs(workload, seed=0, device=torch.device("cuda"))
        calls = [KernelCall(library, task, contract, inputs) for library in libraries]
        tell.send("inputs")
        worst, reasons = 0.0, []
        for kind in ("own", "shifted", "sparse"):
            x = inputs["x"]
            if kind == "shifted":
                x += 1000
            elif kind == "sparse":
                x.mul_((torch.rand(x.shape[-2:], device=x.device) < 0.02) * 1e4).add_(1.0)
            calls[1].outputs[0].fill_(math.nan)
            calls[1]()
            torch.cuda.synchronize()
            tell.send(f"one call ({kind})")
            share = error_share(name, inputs, calls[1].outputs[0], program.bind(inputs)()[0])
            worst = max(worst, share)
            if not share <= 1:
                reasons.append(f"{kind}: {share:.3g}")
        tell.send("checks")
        for _ in range(2):
            for call in calls:
                call()
        times: list[list[float]] = [[], []]
        for _ in range(SAMPLES):
            for call, taken in zip(calls, times, strict=True):
                taken.append(timed(call))
        first = calls[1].outputs[0].clone()
        calls[1]()
        if not torch.equal(first, calls[1].outputs[0]):
            reasons.append("two calls differ")
        usual, new = (statistics.median(each) for each in times)
        moved = sum(t.nbytes for t in inputs.values()) + calls[1].outputs[0].nbytes
        verdict = f"WRONG ({', '.join(reasons)})" if reasons else f"right (error share {worst:.2g})"
        rate = moved / new * 1e3
        tell.send(
            f"={new:.4f} ms  {rate / 1e9:.0f} GB/s  {rate / LIMIT:.1%} of the limit  {usual / new:.3f}x of now "
            f"({usual:.4f} ms)  {verdict}"
        )
        tell.send("done")
    except Exception as fault:  # noqa: BLE001 whatever it is, it is the candidate's
        tell.send(f"=FAILED: {type(fault).__name__}: {str(fault)[:300]}")
        tell.send("done")


def timed(call: Any) -> float:
    """Milliseconds of one call on a cold cache."""
    event: Any = torch.cuda.Event
    start, stop = (event(enable_timing=True) for _ in range(2))
    cache = torch.empty(128 << 20, dtype=torch.uint8, device="cuda")
    cache.fill_(0x5A)
    start.record()
    call()
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop))


def error_share(name: str, inputs: dict[str, Any], found: torch.Tensor, eager: torch.Tensor) -> float:
    """The error over its limit."""
    count = found.numel()
    scale = float(torch.linalg.vector_norm(eager, dtype=torch.float64)) / math.sqrt(count)
    most, sums = [0.0, 0.0], [0.0, 0.0]
    for one, other, exact in pieces(name, inputs, found, eager):
        for k, each in enumerate((one, other)):
            apart = (each.double() - exact).abs()
            largest = float((apart / (exact.abs() + scale)).max())
            most[k] = max(most[k], math.inf if math.isnan(largest) else largest)
            sums[k] += float(apart.square().sum())
    rms = [math.sqrt(each / count) / scale if each >= 0 else math.inf for each in sums]
    return max(most[0] / (FACTOR * most[1] + MOST), rms[0] / (FACTOR * rms[1] + RMS))


def pieces(name: str, inputs: dict[str, Any], found: torch.Tensor, eager: torch.Tensor) -> Iterator[Any]:
    """Parts of the candidate's result, of PyTorch's and of the exact one."""
    x, functional = inputs["x"], torch.nn.functional
    weight, bias = (inputs[each].double() if each in inputs else x.new_ones(1) for each in ("weight", "bias"))
    step = 4 if name == "batch_norm" else 8
    for first in range(0, x.shape[name == "batch_norm"], step):
        part = slice(first, first + step)
        if name == "batch_norm":
            exact = functional.batch_norm(x[:, part].double(), None, None, weight[part], bias[part], True, 0.0, 1e-5)
            yield found[:, part], eager[:, part], exact
            continue
        own = x[part].double()
        if name == "layer_norm":
            exact = functional.layer_norm(own, own.shape[1:], weight, bias, 1e-5)
        elif name == "group_norm":
            exact = functional.group_norm(own, 8, weight, bias, 1e-5)
        else:
            exact = functional.instance_norm(own, eps=1e-5)
        yield found[part], eager[part], exact


if __name__ == "__main__":
    main()
