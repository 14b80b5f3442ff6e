"""How often honest kernels are refused: every kernel of tests/honest, judged again and again.

    python benchmarks/false_rejects.py --device cpu --repeats 20 --json result.json

Thirty operators, each with a right kernel, go through `Evaluator` with its default settings and no result cache.
Anything but "ok" is a false reject, and the exit status is then 1. The repeats of a kernel are spread over
several openings of its task (`--batch` evaluations in each), because inputs to check on are drawn once per
opening. With `--at-once 4`, four evaluators share a GPU, which disturbs times. On a CPU with many cores several
processes can share the work, each on cores of its own (`taskset`) and with a `--part` and a record of its own, to which
`--add` brings the records of the others. It says nothing about how many cheating kernels are found: that is what
tests/attacks is for.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from warpsmith.backends.source import backend_named, read_candidate
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model.build import DeviceKind, Target
from warpsmith.model.errors import WarpsmithError
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.settings import Paths, Settings
from warpsmith.system.files import put_in_place
from warpsmith.tasks.load import load_task

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "honest"
SUFFIX = {"cpu": ".cpp", "cuda": ".cu"}
QUICK = Settings(seeds=1, max_samples=20, target_width=0.05, timing_budget_s=0.1)


@dataclass(frozen=True)
class Refusal:
    """One verdict that is not "ok"."""

    status: str
    reason: str
    count: int


@dataclass(frozen=True)
class Outcome:
    """One kernel's evaluations."""

    kernel: str
    evaluations: int
    ok: int
    refusals: tuple[Refusal, ...]
    speedup_min: float | None  # over eager, geometric mean of the workloads; None when none was valid
    speedup_median: float | None
    speedup_max: float | None
    worst_share: float  # error ÷ limit, the largest over all evaluations and workloads
    seconds: float

    @staticmethod
    def of(kernel: str, verdicts: Sequence[Evaluation], seconds: float) -> Outcome:
        """What a kernel's verdicts come to."""
        refused = Counter((v.status.value, v.reason) for v in verdicts if v.status is not Status.OK)
        speedups = [s for v in verdicts if (s := v.speedup()) is not None]
        shares = [w.error / w.error_limit for v in verdicts for w in v.workloads if w.error_limit > 0]
        return Outcome(
            kernel=kernel,
            evaluations=len(verdicts),
            ok=sum(v.ok for v in verdicts),
            refusals=tuple(Refusal(status, reason, n) for (status, reason), n in refused.items()),
            speedup_min=min(speedups, default=None),
            speedup_median=statistics.median(speedups) if speedups else None,
            speedup_max=max(speedups, default=None),
            worst_share=max(shares, default=0.0),
            seconds=round(seconds, 1),
        )


@dataclass
class Record:
    """The record of one run."""

    date: str
    device: str
    versions: dict[str, str]
    cores: int
    settings: dict[str, object]
    repeats: int
    batch: int
    at_once: int  # evaluators that used the device at the same time
    kernels: list[Outcome] = field(default_factory=list)

    @property
    def evaluations(self) -> int:
        """Of all kernels together."""
        return sum(k.evaluations for k in self.kernels)

    @property
    def refused(self) -> int:
        """Of all kernels together."""
        return sum(k.evaluations - k.ok for k in self.kernels)


def build_all(device: str, arch: str, names: Sequence[str], paths: Paths, settings: Settings) -> None:
    """Fill the build cache, many compilers at once; what does not compile shows in its verdict."""
    backend = backend_named(device).configured(paths, settings.limits)
    jobs = [(read_candidate(FOLDER / f"{n}{SUFFIX[device]}"), load_task(FOLDER / f"{n}.py").task) for n in names]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(
            pool.map(
                lambda job: backend.build(job[0], backend.contract(job[1]), Target(DeviceKind(device), arch)), jobs
            )
        )


def judge(
    device: str,
    names: Sequence[str],
    repeats: int,
    batch: int,
    settings: Settings,
    at_once: int,
    keep: Callable[[Record], None] = lambda _: None,
) -> Record:
    """Every kernel `repeats` times; `keep` gets the record after every batch, so that what was judged is known if the
    rest is not."""
    folder = Path(tempfile.mkdtemp(prefix="false-rejects-"))
    verdicts: dict[str, list[Evaluation]] = {name: [] for name in names}
    seconds = dict.fromkeys(names, 0.0)
    free: SimpleQueue[Evaluator] = SimpleQueue()

    def judged(name: str, count: int) -> tuple[list[Evaluation], float]:
        evaluator, start = free.get(), time.monotonic()
        try:
            candidate = read_candidate(FOLDER / f"{name}{SUFFIX[device]}")
            return [v for _, v in evaluator.evaluate(FOLDER / f"{name}.py", [candidate] * count)], (
                time.monotonic() - start
            )
        finally:
            free.put(evaluator)

    try:
        with ExitStack() as stack, ThreadPoolExecutor(at_once) as pool:
            for _ in range(at_once):
                evaluator = Evaluator(
                    device,
                    settings,
                    paths=Paths(folder),
                    use_cache=False,
                    shared=at_once > 1,
                    on_message=_complain,
                )
                free.put(stack.enter_context(evaluator))
            build_all(device, evaluator.device.arch, names, Paths(folder), settings)
            batches = [(name, min(batch, repeats - done)) for done in range(0, repeats, batch) for name in names]
            begun = {pool.submit(judged, name, count): name for name, count in batches}
            for each in as_completed(begun):
                name, (found, took) = begun[each], each.result()
                verdicts[name] += found
                seconds[name] += took
                _say_where(name, verdicts[name], repeats)
                keep(_record({n: v for n, v in verdicts.items() if v}, seconds, settings, repeats, batch, at_once))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _record(verdicts, seconds, settings, repeats, batch, at_once)


def _record(
    verdicts: dict[str, list[Evaluation]],
    seconds: dict[str, float],
    settings: Settings,
    repeats: int,
    batch: int,
    at_once: int,
) -> Record:
    environment = next(iter(verdicts.values()))[0].environment
    return Record(
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        device=environment.device,
        versions={
            "warpsmith": environment.harness,
            "torch": environment.torch,
            "compiler": environment.compiler,
            "driver": environment.driver,
            "python": sys.version.split()[0],
        },
        cores=len(os.sched_getaffinity(0)),
        settings=asdict(settings),
        repeats=repeats,
        batch=batch,
        at_once=at_once,
        kernels=[Outcome.of(name, found, seconds[name]) for name, found in verdicts.items()],
    )


def merged(record: Record, earlier: Mapping[str, Any]) -> Record:
    """The record with the kernels that an earlier one of the same kind holds."""
    same = ("device", "versions", "repeats", "settings")
    now = json.loads(json.dumps(asdict(record)))
    for key in same:
        if earlier.get(key) != now[key]:
            raise SystemExit(f"the earlier record has another {key}; write to another file, or leave out --add.")
    fresh = {k.kernel for k in record.kernels}
    kept = [
        Outcome(**{**k, "refusals": tuple(Refusal(**r) for r in k["refusals"])})
        for k in earlier["kernels"]
        if k["kernel"] not in fresh
    ]
    record.kernels = sorted([*kept, *record.kernels], key=lambda k: k.kernel)
    return record


def report(record: Record) -> None:
    """For people."""
    print(f"{record.device}, {record.cores} cores, {', '.join(f'{k} {v}' for k, v in record.versions.items() if v)}")
    print(f"{'kernel':18} {'ok':>7}  {'speedup min':>11} {'median':>7} {'max':>7}  {'error/limit':>11}  {'s':>6}")
    for k in record.kernels:
        speedups = [f"{s:.3f}" if s is not None else "-" for s in (k.speedup_min, k.speedup_median, k.speedup_max)]
        print(
            f"{k.kernel:18} {k.ok:>3}/{k.evaluations:<3}  {speedups[0]:>11} {speedups[1]:>7} {speedups[2]:>7}  "
            f"{k.worst_share:>11.3f}  {k.seconds:>6.1f}"
        )
        for refusal in k.refusals:
            print(f"    {refusal.count} x {refusal.status}: {refusal.reason}")
    total, refused = record.evaluations, record.refused
    print(f"{len(record.kernels)} honest kernels, {total} evaluations: {total - refused} ok, {refused} refused")


def _complain(message: str) -> None:
    print(message, file=sys.stderr)


def _say_where(name: str, verdicts: Sequence[Evaluation], repeats: int) -> None:
    refused = sum(not v.ok for v in verdicts)
    note = f", {refused} refused" if refused else ""
    print(f"{name}: {len(verdicts)} of {repeats}{note}", file=sys.stderr, flush=True)


def _names(part: str, kernels: Sequence[str], suffix: str) -> list[str]:
    """The kernels asked for; `part` is "2/3" for the second third of them."""
    known = sorted(p.stem for p in FOLDER.glob(f"*{suffix}"))
    for name in kernels:
        if name not in known:
            raise SystemExit(f"there is no kernel {name!r}; known: {', '.join(known)}.")
    names = list(kernels) or known
    number, _, parts = part.partition("/")
    if not (number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts) <= len(names)):
        raise SystemExit(f"--part {part!r} is not like 1/3 (of {len(names)} kernels).")
    return names[int(number) - 1 :: int(parts)]


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("kernels", nargs="*", help="only these (default: all of tests/honest)")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--repeats", type=int, default=20, help="evaluations of each kernel")
    parser.add_argument("--batch", type=int, default=5, help="evaluations per opening of a task")
    parser.add_argument("--at-once", type=int, default=1, help="evaluators that use the device at the same time")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="only every N-th kernel, from the K-th on")
    parser.add_argument("--quick", action="store_true", help="a smaller timing budget; the record says so")
    parser.add_argument("--json", type=Path, help="write the record here")
    parser.add_argument("--add", type=Path, nargs="*", default=[], help="keep what earlier runs left in these files")
    options = parser.parse_args()
    if min(options.repeats, options.batch, options.at_once) < 1:
        parser.error("--repeats, --batch and --at-once must be at least 1")
    there = backend_named(options.device).available()
    if not (there.build and there.run):
        print(f"cannot run on {options.device}: {there.detail}", file=sys.stderr)
        return 2
    names = _names(options.part, options.kernels, SUFFIX[options.device])
    earlier = [json.loads(path.read_text()) for path in options.add]

    def keep(record: Record) -> None:
        if options.json:
            for each in earlier:
                record = merged(record, each)
            totals = {"evaluations": record.evaluations, "refused": record.refused}
            put_in_place(options.json, (json.dumps({**asdict(record), **totals}, indent=2) + "\n").encode())

    try:
        settings = QUICK if options.quick else Settings()
        record = judge(options.device, names, options.repeats, options.batch, settings, options.at_once, keep)
    except WarpsmithError as error:
        print(error, file=sys.stderr)
        return 2
    for each in earlier:
        record = merged(record, each)
    report(record)
    return 1 if record.refused else 0


if __name__ == "__main__":
    sys.exit(main())
