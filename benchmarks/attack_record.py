"""The record of all attacks on one device: what became of each, whether every honest twin passed, what tricks gain.

    python benchmarks/attack_record.py --device cuda --json benchmarks/h200/attacks.json

On a GPU the CUDA, PyTorch and Triton attacks are judged; on the CPU the native ones and those in Python. Prints the
table for benchmarks/README.md and ends with status 1 if anything got through or an honest twin failed. `--only` takes
a regular expression for names, to repeat a part. It is no benchmark of speed: with `--at-once 4`, four evaluators use
the device at the same time, which disturbs times and no verdict; the pairs are timed afterwards, alone.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from statistics import median

from warpsmith.backends.source import backend_named
from warpsmith.evaluator.guards.attack_classes import title
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model.errors import WarpsmithError
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.settings import Limits, Paths, Settings
from warpsmith.system.files import put_in_place

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # the attacks live with the tests
from tests.attacks.corpus import CPU_ATTACKS
from tests.attacks.corpus_gpu import HARMLESS_ON_GPU, ON_GPU, PYTHON, PYTHON_ON_CPU
from tests.attacks.model import FOLDER, Attack, candidate_of, judge, summary_line

SETTINGS = Settings(seeds=1, max_samples=40, timing_budget_s=0.3, limits=Limits(launch_s=3.0, total_s=90.0))
_AT_MOST = 8  # attacks of a group
_ROUNDS = 3  # of each pair, in turn
_GAIN = 1.05  # a trick that gains more than this works
Job = tuple[Path, Path]  # a task and a candidate
_CURE = {"cuda": "it needs an NVIDIA GPU and nvcc", "cpu": "it needs a C++ compiler"}

PAIRS: Sequence[tuple[str, str, str, str, tuple[str, ...]]] = (  # what, task, plain, trick, guards left out for it
    ("loads that ask the L2 to evict them last", "relu_40mb", "honest_relu.cu", "honest_cache_hints.cu", ()),
    ("the same, all buffers fit into the L2", "relu_256kb", "honest_relu.cu", "honest_cache_hints.cu", ()),
    ("persisting L2 carve-out", "relu_40mb", "honest_relu.cu", "persisting_l2.cu", ("imports", "trace")),
    ("the same, all buffers fit into the L2", "relu_256kb", "honest_relu.cu", "persisting_l2.cu", ("imports", "trace")),
    ("its own process does not flush the cache", "softmax", "honest_softmax.cu", "patched_flush.cu", ()),
)


@dataclass(frozen=True)
class Judged:
    """One attack."""

    name: str
    number: int
    title: str  # of its class
    backend: str
    file: str
    task: str
    status: str
    reason: str
    seconds: float
    rejected: bool  # with a status and a reason that are right for it
    failings: str
    harmless: bool = False  # without the filter valid, and timed no better than its honest twin
    without_imports: str = ""  # the status with the static filter left out; "" where that makes no difference


@dataclass(frozen=True)
class Honest:
    """One twin on one task."""

    file: str
    task: str
    status: str
    reason: str
    speedup: float | None
    seconds: float


@dataclass(frozen=True)
class Pair:
    """An honest kernel and the same with a trick that should gain nothing."""

    what: str
    task: str
    plain: str
    trick: str
    plain_ms: float | None
    trick_ms: float | None
    status: str  # of the trick

    @property
    def gain(self) -> float | None:
        """How many times as fast the trick is."""
        return self.plain_ms / self.trick_ms if self.plain_ms and self.trick_ms else None


@dataclass
class Record:
    """All of it, filled task by task."""

    date: str
    device: str
    versions: dict[str, str] = field(default_factory=dict)
    sandbox: tuple[str, ...] = ()
    attacks: list[Judged] = field(default_factory=list)
    honest: list[Honest] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    totals: str = ""
    seconds: float = 0.0


def judged(attack: Attack, verdict: Evaluation) -> Judged:
    """What the record keeps of a verdict on an attack."""
    failings = attack.failings(verdict)
    return Judged(
        name=attack.name,
        number=attack.number,
        title=title(attack.number),
        backend=attack.backend,
        file=attack.file,
        task=attack.task,
        status=verdict.status.value,
        reason=verdict.reason.replace(f"{FOLDER.parents[1]}/", ""),  # where it was run is nobody's business
        seconds=verdict.seconds,
        rejected=not failings,
        failings=failings,
    )


class Recorder:
    """Judges task by task, and writes what it has after each."""

    def __init__(self, device: str, paths: Paths, target: Path | None, at_once: int) -> None:
        self._device = device
        self._at_once = at_once
        self._paths = paths
        self._target = target
        self._start = time.monotonic()
        self._verdicts: dict[tuple[Path, Path], Evaluation] = {}
        self.record = Record(datetime.now(UTC).isoformat(timespec="seconds"), device)

    def evaluator(self, without: tuple[str, ...] = (), *, shared: bool = False) -> Evaluator:
        """A new one: nothing is taken from a cache of verdicts."""
        settings = replace(SETTINGS, without=without)
        return Evaluator(
            self._device, settings, paths=self._paths, use_cache=False, shared=shared, on_message=_complain
        )

    def run(self, attacks: Sequence[Attack]) -> None:
        """All of them and their twins; then once more, without looking at imports, those that imports gave away."""
        groups = list(parts_by_task(attacks))
        for group, found in self._judge_all((), [jobs_of(group) for group in groups], groups):
            if isinstance(found, WarpsmithError):
                self.record.left_out += [f"{attack.name}: {found}" for attack in group]
            else:
                self._add(group, found)
            self._note(f"{group[0].task}: {len(group)} attacks")
        known = [(a, self._verdicts[a.task_path, a.path]) for a in attacks if (a.task_path, a.path) in self._verdicts]
        groups = list(parts_by_task([a for a, v in known if a.filtered(v) and a.has_dynamic_defence]))
        jobs = [[(attack.task_path, attack.path) for attack in group] for group in groups]
        for group, found in self._judge_all(("imports",), jobs, groups):
            if isinstance(found, WarpsmithError):
                raise found
            self._add_unfiltered(group, found)
        self._note("without imports")

    def _judge_all(
        self, without: tuple[str, ...], jobs: Sequence[Sequence[Job]], groups: Sequence[Sequence[Attack]]
    ) -> Iterator[tuple[Sequence[Attack], dict[Job, Evaluation] | WarpsmithError]]:
        """The verdicts on each group as they come, several groups at once, each with an evaluator of its own."""
        free: SimpleQueue[Evaluator] = SimpleQueue()

        def verdicts(of_group: Sequence[Job]) -> dict[Job, Evaluation] | WarpsmithError:
            evaluator = free.get()
            try:
                return judge(evaluator, of_group)
            except WarpsmithError as error:
                return error
            finally:
                free.put(evaluator)

        with ExitStack() as stack:
            for _ in range(min(self._at_once, len(groups))):
                free.put(stack.enter_context(self.evaluator(without, shared=self._at_once > 1)))
            with ThreadPoolExecutor(self._at_once) as pool:
                begun = {pool.submit(verdicts, job): group for job, group in zip(jobs, groups, strict=True)}
                for each in as_completed(begun):
                    yield begun[each], each.result()

    def _add(self, attacks: Sequence[Attack], found: dict[Job, Evaluation]) -> None:
        path, task = attacks[0].task_path, attacks[0].task
        self.record.attacks += [judged(a, found[path, a.path]) for a in attacks]
        self._verdicts |= found
        told = {(honest.file, honest.task) for honest in self.record.honest}
        for twin in dict.fromkeys(attack.twin for attack in attacks if (attack.twin, task) not in told):
            verdict = found[path, FOLDER / twin]
            self.record.honest.append(
                Honest(twin, task, verdict.status.value, verdict.reason, verdict.speedup(), verdict.seconds)
            )
        self._describe(found.values())

    def _add_unfiltered(self, attacks: Sequence[Attack], found: dict[Job, Evaluation]) -> None:
        for attack in attacks:
            verdict = found[attack.task_path, attack.path]
            at = next(i for i, known in enumerate(self.record.attacks) if known.name == attack.name)
            twin = self._verdicts[attack.task_path, attack.twin_path]
            harmless = attack.file in HARMLESS_ON_GPU and attack.gains_nothing(verdict, twin)
            failings = self.record.attacks[at].failings or (
                "" if harmless else attack.failings(verdict, filtered=False)
            )
            self.record.attacks[at] = replace(
                self.record.attacks[at],
                without_imports=verdict.status.value,
                harmless=harmless,
                failings=failings,
                rejected=not failings,
            )

    def run_pairs(self) -> None:
        """Tricks that take no result but a warm cache."""
        for what, task, plain, trick, without in PAIRS:
            path = replace(ON_GPU[0], task=task).task_path
            times: dict[str, list[float]] = {plain: [], trick: []}
            status = ""
            with self.evaluator(without) as evaluator:
                for _ in range(_ROUNDS):
                    for name in (plain, trick):
                        verdict = evaluator.evaluate_one(path, candidate_of(FOLDER / "cuda" / name))
                        times[name] += [verdict.workloads[0].latency_ms] if verdict.ok else []
                        status = verdict.status.value if name == trick else status
            plain_ms, trick_ms = (median(times[name]) if times[name] else None for name in (plain, trick))
            self.record.pairs.append(Pair(what, task, plain, trick, plain_ms, trick_ms, status))
            self._note(f"{trick} on {task}")

    def _describe(self, verdicts: Iterable[Evaluation]) -> None:
        for verdict in verdicts:
            environment = verdict.environment
            self.record.device = environment.device
            self.record.sandbox = self.record.sandbox or environment.sandbox
            named = {
                "warpsmith": environment.harness,
                "torch": environment.torch,
                "driver": environment.driver,
                f"compiler ({environment.backend})": environment.compiler,
                "python": sys.version.split()[0],
            }
            self.record.versions.update({name: value for name, value in named.items() if value})

    def _note(self, what: str) -> None:
        record = self.record
        record.seconds = time.monotonic() - self._start
        outcomes = ["rejected" if a.rejected else "through" for a in record.attacks]
        outcomes += ["passed" if h.status == "ok" else "failed" for h in record.honest]
        record.totals = summary_line(outcomes)
        if self._target is not None:
            put_in_place(self._target, (json.dumps(as_json(record), indent=2) + "\n").encode(), 0o644)
        print(f"{record.seconds:.0f} s: {what}; {record.totals}", file=sys.stderr)


def as_json(record: Record) -> dict[str, object]:
    """The record as it is written, with the gain of each pair."""
    return {**asdict(record), "pairs": [{**asdict(pair), "gain": pair.gain} for pair in record.pairs]}


def shortcomings(record: Record) -> list[str]:
    """Where the record is not what it must be."""
    found = [attack.failings for attack in record.attacks if not attack.rejected]
    found += [f"{h.file} on {h.task}: {h.status} ({h.reason})" for h in record.honest if h.status != "ok"]
    found += [f"left out: {line}" for line in record.left_out]
    for pair in record.pairs:
        gain = pair.gain
        if gain is not None and gain > _GAIN:
            found.append(f"{pair.trick} on {pair.task} gains {100 * (gain - 1):.0f} % ({pair.what})")
    return found


def markdown(record: Record) -> str:
    """The record for benchmarks/README.md."""
    versions = ", ".join(f"{name} {value}" for name, value in record.versions.items())
    lines = [
        f"{record.device}, {record.date[:10]}; {versions}; sandbox: {', '.join(record.sandbox)}.",
        "",
        record.totals,
        "",
        "| class | attack | task | status | without imports | reason | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for a in sorted(record.attacks, key=lambda a: (a.number, a.name)):
        mark = "" if a.rejected else "**through:** "
        lines.append(
            f"| {a.number} {a.title} | {a.name} | {a.task} | {mark}{a.status} | {a.without_imports} "
            f"| {_short(a.reason)} | {a.seconds:.1f} |"
        )
    lines += ["", "| honest twin | task | status | speedup |", "|---|---|---|---|"]
    for h in record.honest:
        lines.append(f"| {h.file} | {h.task} | {h.status} | {f'{h.speedup:.2f}' if h.speedup else _short(h.reason)} |")
    if record.pairs:
        lines += ["", "| trick | task | plain | with it | gain | status |", "|---|---|---|---|---|---|"]
    for p in record.pairs:
        plain, trick = (f"{ms:.5f} ms" if ms else "" for ms in (p.plain_ms, p.trick_ms))
        gain = f"{100 * (p.gain - 1):+.1f} %" if p.gain else ""
        lines.append(f"| {p.trick}: {p.what} | {p.task} | {plain} | {trick} | {gain} | {p.status} |")
    return "\n".join(lines)


def _short(reason: str) -> str:
    return " ".join(reason.split())[:140].replace("|", "\\|")


def _complain(message: str) -> None:
    print(message, file=sys.stderr)


def parts_by_task(attacks: Sequence[Attack]) -> Iterator[list[Attack]]:
    """Attacks of one task each, no more than can be judged in good time by one of several evaluators."""
    by_task: dict[str, list[Attack]] = {}
    for attack in attacks:
        by_task.setdefault(attack.task, []).append(attack)
    for of_task in by_task.values():
        for begin in range(0, len(of_task), _AT_MOST):
            yield of_task[begin : begin + _AT_MOST]


def jobs_of(attacks: Sequence[Attack]) -> list[Job]:
    """What has to be judged for them: each, and its honest twin."""
    return [(attack.task_path, file) for attack in attacks for file in (attack.path, attack.twin_path)]


def make_record(device: str, only: str, target: Path | None, at_once: int) -> Record:
    """Everything, on an empty cache that is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="record-"))
    folder.chmod(0o711)  # candidates run as another user where we are root
    try:
        recorder = Recorder(device, Paths(folder), target, at_once)
        wanted = re.compile(only)
        corpus = ON_GPU if device == "cuda" else (*CPU_ATTACKS, *PYTHON, *PYTHON_ON_CPU)
        recorder.run([attack for attack in corpus if wanted.search(attack.name)])
        if device == "cuda" and wanted.search("pairs"):
            recorder.run_pairs()
        return recorder.record
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", type=Path, help="write the record here, after every task")
    parser.add_argument("--at-once", type=int, default=1, help="evaluators that use the device at the same time")
    parser.add_argument("--only", default="", help="a regular expression for names of attacks; 'pairs' for the pairs")
    options = parser.parse_args()
    there = backend_named(options.device).available()
    if not (there.build and there.run):
        print(f"cannot run here: {there.detail}; {_CURE[options.device]}.", file=sys.stderr)
        return 2
    record = make_record(options.device, options.only, options.json, options.at_once)
    print(markdown(record))
    lacking = shortcomings(record)
    for line in lacking:
        print(f"NOT AS IT MUST BE: {line}", file=sys.stderr)
    print(f"{record.totals}; took {record.seconds:.0f} s", file=sys.stderr)
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
