"""How often the error limits refuse honest kernels: many draws of inputs for every kernel of tests/honest, checks only.

    python -m benchmarks.honest_draws --draws 100 --json benchmarks/cpu_honest_draws.json
    python -m benchmarks.honest_draws attention softmax --draws 1000

An evaluation checks some fifteen input sets and then times a kernel, which takes seconds; a limit that one honest
result in a thousand exceeds is hardly found that way (`false_rejects.py`). Here every kernel is called in this process
on new inputs of every variant, those of verification among them, and its results are compared as the evaluator
compares them. Exit status: 1 if a result is refused.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import secrets
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import torch
from benchmarks.shape_sweep import KernelCall

from warpsmith.backends.source import backend_named, read_candidate
from warpsmith.evaluator.judge.numerics.reference import Case, Reference
from warpsmith.hardware.device import select_device
from warpsmith.hardware.work import count_work
from warpsmith.model.build import BuildFailure, Target
from warpsmith.model.settings import Settings
from warpsmith.system.files import put_in_place
from warpsmith.tasks.load import load_task
from warpsmith.tasks.variants import OWN, RESERVE

HONEST = Path(__file__).resolve().parents[1] / "tests/honest"


@dataclass(frozen=True)
class Drawn:
    """One kernel on inputs of one variant."""

    kernel: str
    workload: str
    variant: str
    draws: int  # for which PyTorch's own result is usable
    refused: int
    worst_share: float  # error ÷ limit, of those that passed
    reason: str = ""  # of the first that is refused


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", help="only these (default: all of tests/honest)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--draws", type=int, default=100, help="of every variant, workload and kernel")
    parser.add_argument("--seconds", type=float, default=60.0, help="for one kernel: then it has fewer draws")
    parser.add_argument("--json", type=Path, help="write the record here")
    options = parser.parse_args()
    torch.set_num_threads(1)
    suffix, found = {"cpu": ".cpp", "cuda": ".cu"}[options.device], list[Drawn]()
    known = {path.stem: path for path in sorted(HONEST.glob(f"*{suffix}"))}
    for name in options.kernels:
        if name not in known:
            parser.error(f"tests/honest has no kernel {name}{suffix}; there are {', '.join(known)}")
    chosen = [known[name] for name in options.kernels or known]
    build_all(chosen, options.device)
    for path in chosen:
        of_kernel = draw(path, options.device, options.draws, options.seconds)
        found += of_kernel
        total, refused = sum(each.draws for each in of_kernel), sum(each.refused for each in of_kernel)
        worst = max((each.worst_share for each in of_kernel), default=0.0)
        print(f"{path.stem:24} {total:7} results, {refused} refused, worst of the others {worst:.2f}", flush=True)
        for each in of_kernel:
            if each.refused:
                print(f"    {each.refused} of {each.draws}: {each.reason}", flush=True)
        if options.json:
            write(options.json, options.device, found)
    print(f"{sum(each.draws for each in found)} results, {sum(each.refused for each in found)} refused")
    return int(any(each.refused for each in found))


def build_all(kernels: list[Path], device_name: str) -> None:
    """Fill the build cache, a compiler per core; what does not compile is said when its turn comes."""
    device, backend = select_device(device_name), backend_named(device_name)
    jobs = [(read_candidate(path), backend.contract(load_task(path.with_suffix(".py")).task)) for path in kernels]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(lambda job: backend.build(job[0], job[1], Target(device.kind, device.arch)), jobs))


def draw(kernel: Path, device_name: str, draws: int, seconds: float) -> list[Drawn]:
    """One kernel on all workloads and variants, in turn, until the time is up."""
    program, backend = load_task(kernel.with_suffix(".py")), backend_named(device_name)
    device, contract = torch.device(device_name), backend.contract(program.task)
    chosen = select_device(device_name)
    made = backend.build(read_candidate(kernel), contract, Target(chosen.kind, chosen.arch))
    if isinstance(made, BuildFailure):
        raise SystemExit(f"{kernel.name}: {made.reason}")
    kinds = {}
    for workload in program.task.workloads:
        fake = program.fake_inputs(workload)
        with fake.mode:
            work = count_work(program.run, fake.tensors, structured=program.structured(device=device))
        usual, held_out = (program.variants(device=device, held_out=only) for only in (False, True))
        for variant in dict.fromkeys((OWN, *usual, *RESERVE, *held_out)):
            kinds[workload.name, variant] = (
                workload,
                work.reduction,
                Drawn(kernel.stem, workload.name, variant, 0, 0, 0.0),
            )
    end = time.monotonic() + seconds
    for number in range(draws):
        for key, (workload, terms, known) in kinds.items():
            if number and time.monotonic() > end:
                return [each for *_, each in kinds.values()]
            reference = Reference(program, device, {workload.name: terms}, Settings().error_factor)
            expected = reference.compute(Case(workload, key[1], secrets.randbits(62)))
            if expected is None:
                continue
            task = replace(program.task, workloads=(workload,))
            share, reason = KernelCall(str(made.library), task, contract, expected.inputs).check(reference, expected)
            known = replace(
                known,
                draws=known.draws + 1,
                refused=known.refused + bool(reason),
                worst_share=known.worst_share if reason else max(known.worst_share, share),
                reason=known.reason or reason,
            )
            kinds[key] = workload, terms, known
    return [each for *_, each in kinds.values()]


def write(path: Path, device: str, found: list[Drawn]) -> None:
    """The record so far."""
    record = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "device": device,
        "torch": torch.__version__,
        "results": sum(each.draws for each in found),
        "refused": sum(each.refused for each in found),
        "kernels": [asdict(each) for each in found],
    }
    put_in_place(path, (json.dumps(record, indent=1) + "\n").encode(), 0o644)


if __name__ == "__main__":
    sys.exit(main())
