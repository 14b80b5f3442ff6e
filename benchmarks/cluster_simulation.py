"""How searches grow with the number of GPUs: a discrete-event simulation with measured costs, and its picture.

    python benchmarks/cluster_simulation.py --json benchmarks/cluster_simulation.json --svg docs/images/cluster.svg

Two kinds of search: many tasks (a bench, one cell on each GPU, the next task when a cell is done) and one task (one
run on all GPUs). A trial passes the driver (brief, prompt, parsing), a core that builds, the GPU that judges, and the
driver again (log, population). Proposals cost nothing here: a model's latency is hidden by asking for more at once,
and the driver is then what limits. Nothing else is in the model: no network, no failures, no second measurements.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import math
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

GPUS = (1, 8, 64, 512, 4096)
TRIALS = 45  # of a cell
ROOT = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Costs:
    """Seconds, and where they were measured."""

    open_s: float = 4.19  # h200/evaluator_throughput.json: ready_s
    judge_s: float = 0.79  # the same: (judged_s - ready_s) / 24
    build_s: float = 2.82  # the same: 24 builds in 4.23 s on 16 cores
    message_s: float = 0.0013  # of the driver, per call of an actor or task: 778 a second on 2 shared cores, Ray 2.60
    messages: int = 2  # a build and an evaluation
    driver_s: float = 0.005  # of the driver, per trial: driver_limit.json
    cores: int = 15  # for builds, per GPU: 16 less one for the evaluator


class Station:
    """Servers that take what waits, first come first served."""

    def __init__(self, simulation: Simulation, servers: int) -> None:
        self._simulation = simulation
        self._servers = servers
        self._free = servers
        self._waiting: deque[tuple[float, Callable[[], None]]] = deque()
        self.busy_s = 0.0

    def serve(self, seconds: float, then: Callable[[], None]) -> None:
        """Serve a customer for so long, as soon as a server is free, then go on."""
        self._waiting.append((seconds, then))
        self._next()

    def use(self, over_s: float) -> float:
        """The share of the time in which a server was busy."""
        return self.busy_s / (over_s * self._servers) if over_s else 0.0

    def _next(self) -> None:
        if self._free and self._waiting:
            self._free -= 1
            seconds, then = self._waiting.popleft()
            self.busy_s += seconds
            self._simulation.after(seconds, lambda: self._done(then))

    def _done(self, then: Callable[[], None]) -> None:
        self._free += 1
        then()
        self._next()


class Simulation:
    """A clock and what will happen."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        """Do something later."""
        heapq.heappush(self._events, (self.now + seconds, next(self._order), act))

    def run(self) -> None:
        """Until nothing is left."""
        while self._events:
            self.now, _, act = heapq.heappop(self._events)
            act()


@dataclass(frozen=True)
class Outcome:
    """One size of a cluster."""

    search: str  # "many tasks" or "one task"
    gpus: int
    per_minute: float
    gpu_use: float
    core_use: float
    driver_use: float
    first: str  # what is used most


def simulate(search: str, gpus: int, costs: Costs, cells: int = 2) -> Outcome:
    """A search on so many GPUs; with many tasks each GPU works on `cells` of them, one after the other."""
    clock = Simulation()
    driver, cores = Station(clock, 1), Station(clock, costs.cores * gpus)
    devices = [Station(clock, 1) for _ in range(gpus)]
    half = costs.driver_s / 2
    left = {"all": TRIALS * cells * gpus}
    judged = {"all": 0}
    shared = itertools.cycle(range(gpus))

    def trial(ask: Callable[[], None], device: Callable[[], Station]) -> None:
        def log() -> None:
            judged["all"] += 1
            ask()

        def judge() -> None:
            device().serve(costs.judge_s, lambda: driver.serve(half, log))

        def build() -> None:
            cores.serve(costs.build_s, judge)

        driver.serve(half + costs.messages * costs.message_s, build)

    def one_task() -> None:
        def ask() -> None:
            if left["all"]:
                left["all"] -= 1
                trial(ask, lambda: devices[next(shared)])

        for device in devices:
            device.serve(costs.open_s, lambda: None)
        for _ in range(8 * gpus):  # in flight: building, waiting, judged
            ask()

    def many_tasks(device: Station, cells_left: int) -> None:
        state = {"left": TRIALS, "open": 4}

        def ask() -> None:
            if state["left"]:
                state["left"] -= 1
                trial(ask, lambda: device)
                return
            state["open"] -= 1
            if not state["open"] and cells_left > 1:
                many_tasks(device, cells_left - 1)

        def begin() -> None:
            for _ in range(4):  # proposals in flight of a run on a GPU
                ask()

        device.serve(costs.open_s, begin)

    if search == "one task":
        one_task()
    else:
        for device in devices:
            many_tasks(device, cells)
    clock.run()
    used = {
        "GPUs": sum(device.busy_s for device in devices) / (clock.now * gpus),
        "cores": cores.use(clock.now),
        "driver": driver.use(clock.now),
    }
    first = max(used, key=lambda name: used[name])
    return Outcome(search, gpus, 60 * judged["all"] / clock.now, used["GPUs"], used["cores"], used["driver"], first)


def picture(found: list[Outcome], costs: Costs) -> str:
    """Candidates per minute over GPUs, both axes by powers of ten, as SVG."""
    width, height, left, top, right, bottom = 720, 420, 70, 30, 150, 50
    low_x, high_x, low_y, high_y = 0.0, math.log10(GPUS[-1]), 1.0, 6.0

    def x(gpus: float) -> float:
        return left + (math.log10(gpus) - low_x) / (high_x - low_x) * (width - left - right)

    def y(rate: float) -> float:
        return top + (high_y - math.log10(rate)) / (high_y - low_y) * (height - top - bottom)

    limit = 60 / (costs.driver_s + costs.messages * costs.message_s)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="13" fill="#333">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for power in range(int(low_y), int(high_y) + 1):
        at = y(10**power)
        parts.append(f'<line x1="{left}" y1="{at:.1f}" x2="{width - right}" y2="{at:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 8}" y="{at + 4:.1f}" text-anchor="end">{10**power:,}</text>')
    for gpus in GPUS:
        parts.append(f'<text x="{x(gpus):.1f}" y="{height - bottom + 20}" text-anchor="middle">{gpus}</text>')
    parts.append(f'<text x="{(left + width - right) / 2}" y="{height - 8}" text-anchor="middle">GPUs</text>')
    parts.append(f'<text x="{left}" y="18">candidates per minute (simulated)</text>')
    ideal = " ".join(f"{x(g):.1f},{y(60 * g / costs.judge_s):.1f}" for g in GPUS)
    parts.append(f'<polyline points="{ideal}" fill="none" stroke="#999" stroke-dasharray="4 4"/>')
    parts.append(f'<text x="{width - right + 6}" y="{y(60 * GPUS[-1] / costs.judge_s) + 4:.1f}">GPUs alone</text>')
    dotted = f'x1="{left}" y1="{y(limit):.1f}" x2="{width - right}" y2="{y(limit):.1f}"'
    parts.append(f'<line {dotted} stroke="#b55" stroke-dasharray="2 3"/>')
    parts.append(f'<text x="{width - right + 6}" y="{y(limit) - 6:.1f}" fill="#b55">one driver</text>')
    for search, colour, down in (("many tasks", "#06c", 14), ("one task", "#080", 30)):
        points = [each for each in found if each.search == search]
        line = " ".join(f"{x(each.gpus):.1f},{y(each.per_minute):.1f}" for each in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for each in points:
            parts.append(f'<circle cx="{x(each.gpus):.1f}" cy="{y(each.per_minute):.1f}" r="3.5" fill="{colour}"/>')
        end = y(points[-1].per_minute) + down
        parts.append(f'<text x="{width - right + 6}" y="{end:.1f}" fill="{colour}">{search}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def measured_costs() -> Costs:
    """The costs, the driver's from its record."""
    record = ROOT / "driver_limit.json"
    if not record.exists():
        return Costs()
    rows = json.loads(record.read_text())["rows"]
    return Costs(driver_s=1 / max(row["per_processor_second"] for row in rows))


def main() -> None:
    """Simulate every size and write what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", default="")
    parser.add_argument("--svg", default="")
    given = parser.parse_args()
    costs = measured_costs()
    found = [simulate(search, gpus, costs) for search in ("many tasks", "one task") for gpus in GPUS]
    for each in found:
        shares = f"GPUs {each.gpu_use:.0%}, cores {each.core_use:.0%}, driver {each.driver_use:.0%}"
        print(f"{each.search}, {each.gpus} GPUs: {each.per_minute:.0f} per minute; {shares}; most used: {each.first}")
    record = {
        "date": datetime.now(UTC).date().isoformat(),
        "costs": asdict(costs),
        "trials_of_a_cell": TRIALS,
        "driver_limit_per_minute": 60 / (costs.driver_s + costs.messages * costs.message_s),
        "outcomes": [asdict(each) for each in found],
    }
    if given.json:
        Path(given.json).write_text(json.dumps(record, indent=1) + "\n")
    if given.svg:
        Path(given.svg).write_text(picture(found, costs))


if __name__ == "__main__":
    main()
