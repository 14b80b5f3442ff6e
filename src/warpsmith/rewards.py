"""Rewards for trainers of models that write kernels: a completion is read, judged, and turned into a number.

    reward = KernelReward("warpsmith-100/softmax", backend="cuda", engine="http://gpu-machine:8322")
    trainer = GRPOTrainer(..., reward_funcs=[reward])      # TRL
    compute_score = reward.compute_score                   # verl: the function that custom_reward_function names

What the model says never raises: a completion without a kernel has the reward 0. A task that cannot be opened raises,
because then the data set is wrong.
"""

from __future__ import annotations

import math
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from warpsmith.api import CAPTURED, TaskLike
from warpsmith.backends.source import backend_named, devices_of
from warpsmith.engine.engine import LOCAL, Engine, engine_site
from warpsmith.model.brief import Brief, Problem, Reply
from warpsmith.model.candidate import Candidate
from warpsmith.model.errors import UsageError, WarpsmithError
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.method import Move
from warpsmith.model.settings import Paths, Settings
from warpsmith.model.task import Precision
from warpsmith.prompts.parser import parse
from warpsmith.tasks.capture import task_file

_RAN_NOT = (Status.CRASHED, Status.TIMED_OUT, Status.LAUNCH_FAILED, Status.OUT_OF_MEMORY)
_CHEATED = (Status.REJECTED, Status.BELOW_FLOOR)


@dataclass(frozen=True)
class RewardScale:
    """What each outcome is worth. A valid kernel gets `valid` plus its speedup over PyTorch eager, up to `most`."""

    unreadable: float = 0.0  # no kernel in the completion
    cheated: float = 0.0  # a guard rejects the kernel, or the kernel is faster than the hardware can be
    readable: float = 0.1  # a kernel that does not compile
    compiles: float = 0.2  # its process crashes, does not come back, or reports an error
    runs: float = 0.3  # its result is wrong, or it writes where it must not
    valid: float = 0.5
    most: float = 10.0  # of the speedup that counts
    not_judged: float = 0.0  # the evaluator failed; says nothing about the kernel

    def reward(self, evaluation: Evaluation) -> float:
        """The reward of a kernel that was judged."""
        if evaluation.ok:
            return self.valid + min(evaluation.speedup() or 0.0, self.most)
        if evaluation.status is Status.NOT_JUDGED:
            return self.not_judged
        if evaluation.status in _CHEATED:
            return self.cheated
        if evaluation.status is Status.BUILD_ERROR:
            return self.readable
        return self.compiles if evaluation.status in _RAN_NOT else self.runs


@dataclass(frozen=True)
class ScoredCompletion:
    """The reward of a completion and where it comes from."""

    reward: float
    status: str  # of the evaluation; "unreadable" where there was no kernel
    speedup: float | None = None  # over PyTorch eager; None where the kernel is not valid
    reason: str = ""  # why the kernel is not valid


class KernelReward:
    """A reward function: called with completions by TRL, `compute_score` and `compute_scores` by verl.

    The task of a completion is the column `task` of the data set (TRL), `ground_truth` or `extra_info["task"]` (verl),
    else the one given here. Safe to call from several threads. Close it, or use it with `with`.
    """

    def __init__(
        self,
        task: TaskLike | None = None,
        *,
        backend: str = "cuda",
        engine: str = LOCAL,  # "http://HOST:PORT": a server judges
        device: str = "auto",
        precision: Precision | str | None = None,
        settings: Settings | None = None,
        scale: RewardScale | None = None,
    ) -> None:
        self.__name__ = "kernel_reward"  # by which TRL logs it
        self.scale = scale or RewardScale()
        self._task = task
        self._backend = backend_named(backend).name
        self._precision = None if precision is None else Precision(precision)
        self._engine_name, self._device = engine, device
        self._settings = settings or Settings()
        self._engine: Engine | None = None
        self._guard = threading.Lock()
        self._turns = threading.Semaphore(0)  # as many as threads may use the engine at the same time
        self._specs: dict[object, str] = {}
        self._problems: dict[str, Problem] = {}

    def __enter__(self) -> KernelReward:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the processes of the evaluator."""
        with self._guard:
            if self._engine is not None:
                self._engine.close()
            self._engine = None
            self._problems.clear()

    # --- as trainers call it ---

    def __call__(
        self,
        prompts: object = None,
        completions: Sequence[object] = (),
        *,
        task: Sequence[str] | None = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        **_: object,
    ) -> list[float]:
        """The rewards of completions, as TRL's trainers call it: texts, or lists of messages."""
        tasks = [None] * len(completions) if task is None else task
        found = self.score(completions, tasks)
        if log_extra is not None:  # TRL's table of completions
            log_extra("kernel_status", [each.status for each in found])
            log_extra("kernel_speedup", [each.speedup for each in found])
        return [each.reward for each in found]

    def compute_score(
        self,
        data_source: object = None,
        solution_str: object = "",
        ground_truth: object = None,
        extra_info: object = None,
        **_: object,
    ) -> float:
        """The reward of one completion, as verl's managers call it."""
        return self.compute_scores([data_source], [solution_str], [ground_truth], [extra_info])[0]

    def compute_scores(
        self,
        data_sources: Sequence[object],
        solution_strs: Sequence[object],
        ground_truths: Sequence[object],
        extra_infos: Sequence[object],
        **_: object,
    ) -> list[float]:
        """The rewards of completions, as verl's batch manager calls it."""
        tasks = [_verl_task(truth, info) for truth, info in zip(ground_truths, extra_infos, strict=True)]
        return [each.reward for each in self.score(solution_strs, tasks)]

    def score(
        self, completions: Sequence[object], tasks: Sequence[TaskLike | None] | None = None
    ) -> list[ScoredCompletion]:
        """The rewards of completions, with their reasons. Kernels of one task are judged together."""
        wanted = tasks if tasks is not None else [None] * len(completions)
        if len(wanted) != len(completions):
            raise UsageError(f"{len(completions)} completions have {len(wanted)} tasks; give one task for each.")
        by_task: dict[str, list[int]] = {}
        for place, given in enumerate(wanted):
            by_task.setdefault(self._spec(given), []).append(place)
        found: dict[int, ScoredCompletion] = {}
        for spec, places in by_task.items():
            scored = self._score_task(spec, [completions[place] for place in places])
            found.update(zip(places, scored, strict=True))
        return [found[place] for place in range(len(completions))]

    # --- inside ---

    def _spec(self, given: TaskLike | None) -> str:
        """A task as the engine takes it."""
        task = self._task if given is None or given == "" else given
        if task is None:
            raise UsageError("no task is named; give `KernelReward` one, or a column `task` in the data set.")
        if task not in self._specs:
            path = os.fspath(task) if isinstance(task, os.PathLike) else task
            self._specs[task] = task_file(path, Paths.from_environment().cache / CAPTURED)
        return self._specs[task]

    def _score_task(self, spec: str, completions: Sequence[object]) -> list[ScoredCompletion]:
        problem = self._problem(spec)
        brief = Brief(1, "reward", Move.INIT, "", problem, 0)
        scored: dict[int, ScoredCompletion] = {}
        candidates: dict[str, Candidate] = {}
        holders: dict[str, list[int]] = {}
        for place, completion in enumerate(completions):
            read = _read(completion, brief)
            if isinstance(read, str):
                scored[place] = ScoredCompletion(self.scale.unreadable, "unreadable", reason=read)
            elif problem.kind not in devices_of(read):
                reason = f"the kernel does not run on {problem.kind}."
                scored[place] = ScoredCompletion(self.scale.readable, Status.BUILD_ERROR, reason=reason)
            else:
                candidates[read.digest] = read
                holders.setdefault(read.digest, []).append(place)
        for digest, one in self._judge(spec, list(candidates.values())).items():
            scored.update((place, one) for place in holders[digest])
        return [scored[place] for place in range(len(completions))]

    def _judge(self, spec: str, candidates: Sequence[Candidate]) -> dict[str, ScoredCompletion]:
        """The outcomes of different candidates by digest; whatever fails, each of them has one."""
        found: dict[str, ScoredCompletion] = {}
        faults: dict[str, str] = {}
        for batch in (candidates, *([each] for each in candidates)):  # one by one where something failed
            left = [each for each in batch if each.digest not in found]
            if not left:
                continue
            try:
                with self._using() as engine:
                    for index, evaluation in engine.evaluate(spec, left, self._precision):
                        if evaluation.status is Status.NOT_JUDGED and left[index].digest not in faults:
                            faults[left[index].digest] = evaluation.reason
                        else:
                            found[left[index].digest] = self._scored(evaluation)
            except WarpsmithError as fault:
                faults.update((each.digest, str(fault)) for each in left)
        for candidate in candidates:
            if candidate.digest not in found:
                reason = faults.get(candidate.digest, "the evaluator gave no verdict.")
                found[candidate.digest] = ScoredCompletion(self.scale.not_judged, Status.NOT_JUDGED, reason=reason)
        if lost := [each.reason for each in found.values() if each.status == Status.NOT_JUDGED]:
            warnings.warn(f"{len(lost)} kernels could not be judged: {lost[0]}", RuntimeWarning, stacklevel=2)
        return found

    def _scored(self, evaluation: Evaluation) -> ScoredCompletion:
        reward = self.scale.reward(evaluation)
        speedup = evaluation.speedup() if evaluation.ok else None
        assert math.isfinite(reward), "a speedup is a finite number"
        return ScoredCompletion(reward, evaluation.status, speedup, evaluation.reason)

    def _problem(self, spec: str) -> Problem:
        if spec not in self._problems:
            with self._using() as engine:
                self._problems[spec] = engine.survey(spec, self._backend, self._precision)
        return self._problems[spec]

    @contextmanager
    def _using(self) -> Iterator[Engine]:
        """The engine, for one of the threads that may use it at the same time."""
        with self._guard:
            if self._engine is None:
                self._engine = self._open()
                self._turns = threading.Semaphore(max(1, self._engine.width))
            engine, turns = self._engine, self._turns
        with turns:
            yield engine

    def _open(self) -> Engine:
        site = engine_site(self._engine_name)
        devices = backend_named(self._backend).devices
        wanted = self._device
        if wanted == "auto":
            wanted = next((kind for kind in devices if kind != "cuda" or site.has_gpu), devices[0])
        device, available = site.select(wanted), site.available(self._backend)
        if not available.build:
            raise UsageError(f"{self._backend} kernels cannot be judged there: {available.detail}.")
        return site.open(device, self._settings, name="rewards")


def _read(completion: object, brief: Brief) -> Candidate | str:
    """The kernel in a completion, or why there is none."""
    try:
        text = completion_text(completion)
        proposal = parse(Reply(text, "policy"), brief)
        if proposal.candidate is None:
            return proposal.failure
        for file in proposal.candidate.files:
            file.text.encode()
        return proposal.candidate
    except Exception as fault:  # noqa: BLE001 - training must not end because of what a model wrote
        return f"the completion cannot be read ({type(fault).__name__})."


def completion_text(completion: object) -> str:
    """The text of a completion: a string, a message, or a list of messages, of which those of the assistant count."""
    if isinstance(completion, str):
        return completion
    if isinstance(completion, Mapping):
        return completion_text(completion.get("content") or completion.get("text") or "")
    if isinstance(completion, Iterable):
        parts = list(completion)
        said = [each for each in parts if not isinstance(each, Mapping) or each.get("role", "assistant") == "assistant"]
        return "\n".join(completion_text(each) for each in said)
    return ""


def _verl_task(truth: object, info: object) -> str | None:
    if isinstance(truth, str) and truth:
        return truth
    found = info.get("task") if isinstance(info, Mapping) else None
    return found if isinstance(found, str) and found else None
