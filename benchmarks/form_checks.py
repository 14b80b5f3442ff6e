"""Verifies kernels of forms on sizes that no suite task has: other inputs and sizes, sanitizers, a second measurement.

    python -m benchmarks.form_checks --limit-s 500
    python -m benchmarks.form_checks --only conv_large_stride,pool_resnet --at-once 2

`shape_sweep.py` checks and times all 160 sizes without the evaluator. This script takes one size for each way in which
those kernels work and runs `warpsmith verify` for it, several at the same time. The record is written after each one;
what it has for the same kernel is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

from benchmarks.shape_sweep import kernel_for, selected, task_file, write_tasks
from benchmarks.sweep_entries import Entry

from warpsmith.backends.source import backend_named
from warpsmith.hardware.device import select_device
from warpsmith.kernels.facts import identity
from warpsmith.model.errors import ToolMissing, WarpsmithError
from warpsmith.system.files import put_in_place
from warpsmith.tasks.load import load_task

HERE = Path(__file__).resolve().parent
ENTRIES = (
    # register_product.cuh: 32 x 32 tiles, wide and tall ones, slices of the terms, few terms; small_product.cuh
    *("product_plain_250_250_250", "product_plain_67_65_100003", "product_plain_100003_65_67"),
    *("product_transposed_a_70_40001_74", "product_plain_5001_7_5003", "product_plain_3_8190_8186"),
    "product_batched_48_197_65_197",
    # convolution_gathered.cuh: slices, one tap, phases, groups; convolution_few_terms.cuh; depthwise_any.cuh
    *("conv_large_stride", "conv_resnet_1x1_512_2048", "conv_transposed_stride_11", "conv_groups_32_resnext"),
    *("conv_one_channel_to_one", "conv_mobile_depthwise_1024", "conv_mobile_depthwise_64_strided"),
    "conv_multiplied_depthwise",
    # pool_bands.cuh: several planes, rows of a plane, slices of three axes
    *("pool_avg_7x7", "pool_resnet", "pool_max_3d_halves"),
    # long_scan.cuh, short_rows.cuh (tiles and groups), axis_reduction.cuh, channel_norm.cuh, attention_heads.cuh
    *("scan_cumsum_3_10000001", "scan_cumsum_exclusive_90_250007"),
    *("softmax_1000003_19", "l2_norm_70001_333", "layer_norm_3000_7_11_13", "mean_reduction_5_50021_65"),
    *("argmax_21_1001_999", "batch_norm_33_100_57_59", "attention_3_12_1027_64"),
)
SAID = 300  # characters of a reason


@dataclass(frozen=True)
class Checked:
    """What a verification said."""

    name: str
    form: str
    candidate: str  # `identity` of the kernel
    verified: bool | None  # None: nothing could be judged
    reason: str
    seconds: float


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="the record  [default: benchmarks/h200/form_checks.json]")
    parser.add_argument("--only", default="", help="names of entries, separated by commas")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--limit-s", type=float, default=500.0, help="what is not through by then is left out")
    options = parser.parse_args()
    end = time.monotonic() + options.limit_s
    path = options.json or HERE / "h200" / "form_checks.json"
    chosen = [entry for name in options.only.split(",") if name for entry in selected(name)] or chosen_entries()
    known = read_record(path)
    try:
        device = select_device("cuda")
    except ToolMissing:
        parser.error(
            "needs an NVIDIA GPU; without one, `python -m benchmarks.shape_sweep --compile-only` compiles them."
        )
    lock = Lock()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.at_once) as pool:
        write_tasks(chosen, Path(folder))

        def check(entry: Entry) -> None:
            found = verify(entry, Path(folder), known.get(entry.name), end)
            with lock:
                known[entry.name] = found
                details = {"date": datetime.now(UTC).isoformat(timespec="seconds"), "device": device.name}
                write_record(path, known.values(), details)
            print(line_of(found), flush=True)

        list(pool.map(check, chosen))
    if not all(known[entry.name].verified for entry in chosen):
        sys.exit(1)


def chosen_entries() -> list[Entry]:
    """Those of `ENTRIES`, in their order."""
    all_of_them = {entry.name: entry for entry in selected("")}
    return [all_of_them[name] for name in ENTRIES]


def verify(entry: Entry, folder: Path, before: Checked | None, end: float) -> Checked:
    """One verification, in a process of its own."""
    program = load_task(task_file(entry, folder))
    kernel = kernel_for(entry, program, backend_named("cuda").contract(program.task))
    if kernel is None:
        return Checked(entry.name, "", "", None, "no form and no template fits", 0.0)
    name = identity(kernel.candidate)
    if before is not None and before.candidate == name and before.verified:
        return before
    source = folder / f"{entry.name}.cu"
    source.write_text(kernel.candidate.main.text, encoding="utf-8")
    began = time.monotonic()
    said = ""
    verified = None
    command = [sys.executable, "-m", "warpsmith", "verify", str(task_file(entry, folder)), str(source)]
    command += ["--device", "cuda", "--json", "--certificate", str(folder / f"{entry.name}.json")]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=max(1.0, end - began), env=dict(os.environ)
        )
        verified, said = outcome_of(done.stdout, done.stderr)
    except subprocess.TimeoutExpired:
        said = "not through in time"
    return Checked(entry.name, kernel.form, name, verified, said[:SAID], round(time.monotonic() - began, 1))


def outcome_of(answer: str, said: str) -> tuple[bool | None, str]:
    """Whether a kernel is verified, and why not, from the answer of `warpsmith verify --json`."""
    try:
        told = json.loads(answer)
    except ValueError:
        return None, (said.strip().splitlines() or ["no answer"])[-1]
    return bool(told["verified"]), str(told["reason"])


def read_record(path: Path) -> dict[str, Checked]:
    """The entries of a record; none if there is no file."""
    if not path.exists():
        return {}
    return {row["name"]: Checked(**row) for row in json.loads(path.read_text(encoding="utf-8"))["entries"]}


def write_record(path: Path, known: Iterable[Checked], details: Mapping[str, str]) -> None:
    """Write the whole record."""
    rows = sorted((asdict(each) for each in known), key=lambda row: row["name"])
    path.parent.mkdir(parents=True, exist_ok=True)
    put_in_place(path, (json.dumps({**details, "entries": rows}, indent=1) + "\n").encode(), 0o644)


def line_of(found: Checked) -> str:
    """One entry for the terminal."""
    word = {True: "verified", False: "not verified", None: "not judged"}[found.verified]
    return f"{found.name:40} {word:12} {found.seconds:6.1f} s  {found.form}  {found.reason}"


if __name__ == "__main__":
    try:
        main()
    except WarpsmithError as fault:
        sys.exit(f"error: {fault}")
