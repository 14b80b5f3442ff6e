"""Measures the peak rates of a device with torch, in a trusted process that uses the device alone.

The figures are ceilings, so the best of several repeats counts. Torch's flags are restored; on the CPU the caller sets
the thread count.

Figures measured on a busy machine are too low, and floors computed from them too high. So each measurement records its
quality (`Peaks.steady`): one that is not steady is repeated before later use, and the better of both counts. The peaks
are also measured again when a result is below a floor (`remeasure_peaks`).
"""

from __future__ import annotations

import hashlib
import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import psutil
import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from warpsmith.hardware.device import available_memory, cpu_info
from warpsmith.hardware.roofline import Peaks
from warpsmith.model.build import DeviceKind
from warpsmith.system.files import put_in_place

__all__ = ["Peaks", "load_or_measure", "measure_peaks", "remeasure_peaks"]

FORMAT = 2
"""Version of the measurement: a file of another version is measured again."""

_REPEATS = 5
_PATIENCE_S = 600.0  # figures that are not steady are measured again after this time
_GRAPH_LAUNCHES = 50
_CPU_BUDGET_S = 0.08  # per figure; there are about twenty
_TYPES = {"fp64": torch.float64, "fp32": torch.float32, "tf32": torch.float32} | {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
_RECORD = TypeAdapter(Peaks)


def load_or_measure(cache: Path, device_key: str, device: torch.device) -> Peaks:
    """The peaks from the cache folder; if they are missing or unreadable, measured now and stored there.

    `cache` is the folder for all of Warpsmith's caches (`Paths.cache`).
    """
    path = _file(cache, device_key, device)
    try:
        found = _RECORD.validate_json(path.read_bytes())
        if found.device_key == device_key and found.torch == torch.__version__:
            return found if found.steady or _age_s(found) < _PATIENCE_S else remeasure_peaks(found, cache, device)
    except (OSError, ValidationError):
        pass
    peaks = measure_peaks(device, device_key)
    _write(path, _RECORD.dump_json(peaks, indent=1))
    return peaks


def remeasure_peaks(known: Peaks, cache: Path, device: torch.device) -> Peaks:
    """Measure again and store the better of both: peaks measured on a busy machine are too low."""
    again = measure_peaks(device, known.device_key)
    before, now = dict(known.flops), dict(again.flops)
    best = replace(
        again,
        bandwidth_bytes_s=max(known.bandwidth_bytes_s, again.bandwidth_bytes_s),
        cache_bandwidth_bytes_s=max(known.cache_bandwidth_bytes_s, again.cache_bandwidth_bytes_s),
        flops=tuple((name, max(rate, before.get(name, 0.0))) for name, rate in now.items()),
        launch_overhead_s=min(known.launch_overhead_s, again.launch_overhead_s),
        spread=min(known.spread, again.spread),
        load=min(known.load, again.load),
    )
    _write(_file(cache, known.device_key, device), _RECORD.dump_json(best, indent=1))
    return best


def _age_s(peaks: Peaks) -> float:
    """The age of peaks in seconds; infinite if their date cannot be read."""
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(peaks.measured_at)).total_seconds()
    except (ValueError, TypeError):
        return math.inf


def _file(cache: Path, device_key: str, device: torch.device) -> Path:
    version = f"{FORMAT}|{torch.__version__}|{torch.get_num_threads() if device.type == 'cpu' else 0}"
    name = hashlib.sha256(f"{device_key}|{version}".encode()).hexdigest()[:24]
    return cache / "peaks" / f"{name}.json"


def measure_peaks(device: torch.device, device_key: str = "") -> Peaks:
    """Measure one device: under three seconds on two CPU cores and on a GPU."""
    cuda = device.type == "cuda"
    if cuda:
        properties = torch.cuda.get_device_properties(device)
        cache_bytes, units = int(properties.L2_cache_size), int(properties.multi_processor_count)
        free_bytes = torch.cuda.mem_get_info(device)[0]
    else:
        cache_bytes, units = cpu_info().cache_bytes, torch.get_num_threads()
        free_bytes = available_memory()
    spreads: list[float] = []
    with torch.inference_mode(), _flags_kept(), _OtherLoad() as others:
        # Products first: otherwise the library's workspace keeps one of the large blocks below allocated.
        rates = {name: _matmul_flops_s(device, name, spreads) for name in _TYPES if cuda or name != "tf32"}
        overhead_s = _launch_overhead_s(device, spreads)
        # Much larger than the cache and within free memory; a GPU needs gigabytes to hide launch overhead.
        wanted_bytes = (4 << 30) if cuda else min(max(4 * cache_bytes, 64 << 20), 1 << 30)
        bandwidth = _bandwidth_bytes_s(device, min(wanted_bytes, free_bytes // 4), 0.0, spreads)
        # Several sizes, because inner caches and slices of a divided cache are faster than the whole cache.
        inner = [cache_bytes // 2, cache_bytes // 4] if cuda else [cache_bytes // 2, 1 << 20, 1 << 18]
        cache_bandwidth = max(_bandwidth_bytes_s(device, size, overhead_s, spreads) for size in inner)
    if cuda:
        torch.cuda.empty_cache()
    # The rate of an emulated type (fp16 on most CPUs) is no ceiling: fp32 is faster.
    flops = tuple((n, r) for n, r in rates.items() if n in ("fp64", "fp32") or r > rates["fp32"])
    return Peaks(
        device_key=device_key or str(device),
        kind=DeviceKind(device.type),
        bandwidth_bytes_s=bandwidth,
        cache_bandwidth_bytes_s=max(cache_bandwidth, bandwidth),
        flops=flops,
        launch_overhead_s=overhead_s,
        l2_bytes=cache_bytes,
        sms=units,
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        torch=torch.__version__,
        spread=statistics.median(spreads),
        load=0.0 if cuda else others.share,
    )


class _OtherLoad:
    """Measures the share of the machine's processors that other processes use inside a `with` block."""

    share = 0.0

    def __enter__(self) -> _OtherLoad:
        self._begun = self._times()
        return self

    def __exit__(self, *_: object) -> None:
        all_s, busy_s, own_s = (now - then for now, then in zip(self._times(), self._begun, strict=True))
        self.share = max(0.0, busy_s - own_s) / all_s if all_s > 0 else 0.0

    @staticmethod
    def _times() -> tuple[float, float, float]:
        machine, own = psutil.cpu_times(), psutil.Process().cpu_times()
        # "user" includes the time of guests.
        total = sum(value for name, value in machine._asdict().items() if not name.startswith("guest"))
        return total, total - machine.idle - getattr(machine, "iowait", 0.0), own.user + own.system


def _bandwidth_bytes_s(device: torch.device, nbytes: int, overhead_s: float, spreads: list[float]) -> float:
    """The better rate of a read-only reduction over `nbytes` and a copy that touches `nbytes` in all."""
    source = torch.ones(max(nbytes // 4, 1024), dtype=torch.float32, device=device)
    half = source.numel() // 2
    total = torch.empty((), dtype=torch.float32, device=device)

    def read() -> None:
        torch.sum(source, 0, out=total)

    def copy() -> None:
        source[half : 2 * half].copy_(source[:half])

    rates = []
    for action in (read, copy):
        seconds = _best_s(device, action, spreads, batch=_GRAPH_LAUNCHES if overhead_s else 1)
        # For caches the overhead of starting an operation is subtracted.
        rates.append(source.numel() * 4 / max(seconds - overhead_s, 0.2 * seconds))
    return max(rates)


def _matmul_flops_s(device: torch.device, precision: str, spreads: list[float]) -> float:
    """The best rate of square matrix products, whose size grows until one takes long enough to be timed."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    enough_s = 0.004 if device.type == "cuda" else 0.008
    largest = 8192 if device.type == "cuda" else 2048
    size, best = 256, 0.0
    while True:
        a = torch.rand(size, size, device=device).to(_TYPES[precision])
        out = torch.empty_like(a)

        def multiply(a: Tensor = a, out: Tensor = out) -> None:
            torch.mm(a, a, out=out)

        seconds = _best_s(device, multiply, spreads, repeats=3)
        best = max(best, 2 * size**3 / seconds)
        if seconds > enough_s or size >= largest:
            return best
        size *= 2


def _launch_overhead_s(device: torch.device, spreads: list[float]) -> float:
    tiny = torch.zeros(32, device=device)

    def step() -> None:
        tiny.add_(1.0)

    return _best_s(device, step, spreads, batch=_GRAPH_LAUNCHES)


def _best_s(
    device: torch.device,
    action: Callable[[], None],
    spreads: list[float],
    *,
    batch: int = 1,
    repeats: int = _REPEATS,
) -> float:
    """Seconds of one call, the best of several repeats of `batch` calls (on CUDA as one graph if batch > 1).

    Appends to `spreads` the relative excess of the median repeat over the best.
    """
    if device.type == "cpu":
        times = _cpu_times_s(action, batch * repeats)
    else:
        with torch.cuda.device(device):
            times = _cuda_times_s(action, batch, repeats)
    best = min(times)
    if len(times) > 1 and best > 0:
        spreads.append(statistics.median(times) / best - 1)
    return best


def _cpu_times_s(action: Callable[[], None], calls: int) -> list[float]:
    """The times of single calls in seconds; fewer calls if they are slow, which bounds the time on a busy machine."""
    action()
    times: list[float] = []
    deadline = time.perf_counter() + _CPU_BUDGET_S
    for _ in range(calls):
        start = time.perf_counter()
        action()
        stop = time.perf_counter()
        times.append(stop - start)
        if stop > deadline:
            break
    return times


def _cuda_times_s(action: Callable[[], None], batch: int, repeats: int) -> list[float]:
    """The time of one call in seconds, from each repeat."""
    action()
    torch.cuda.synchronize()
    run = action
    if batch > 1:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(batch):
                action()
        run = graph.replay
        run()
    times = []
    for _ in range(repeats):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        stop.record()
        stop.synchronize()
        times.append(float(start.elapsed_time(stop)) * 1e-3 / batch)
    return times


@contextmanager
def _flags_kept() -> Iterator[None]:
    precision = torch.get_float32_matmul_precision()
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)


def _write(path: Path, content: bytes) -> None:
    """Replace the file in one step, so that a reader never sees half of it; errors are ignored."""
    with suppress(OSError):  # on a full disk the next evaluation measures again
        put_in_place(path, content)
