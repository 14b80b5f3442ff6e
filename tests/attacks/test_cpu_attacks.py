"""Every attack on the CPU is rejected, with and without the static filter; every honest twin passes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.attacks.corpus import CPU_ATTACKS, GAIN_NOTHING
from tests.attacks.model import FOLDER, Attack, judge, record_attack, record_honest
from warpsmith.evaluator.guards.attack_classes import BY_NUMBER
from warpsmith.evaluator.supervisor.evaluator import Evaluator
from warpsmith.model.evaluation import Evaluation, Status
from warpsmith.model.settings import Settings

Record = Callable[[str, object], None]
Verdicts = dict[tuple[Path, Path], Evaluation]
Made = Callable[[Settings], AbstractContextManager[Evaluator]]
JudgeAll = Callable[..., Verdicts]
_SEVERAL_THREADS = "small_softmax"  # the task of attacks that need more than one thread
_NOT_ON_CPU = {5, 7, 16}  # other stream, lazy tensor, persisting cache
_TWINS = {attack.twin: attack for attack in CPU_ATTACKS}
_BY_TASK = sorted(CPU_ATTACKS, key=lambda attack: attack.task)  # a judge is opened once per task


pytestmark = pytest.mark.timeout(1500)  # the first test waits for one batch of all attacks


@pytest.fixture(scope="module")
def attack_settings(quick_settings: Settings) -> Settings:
    """Short limits, since some never come back."""
    limits = replace(quick_settings.limits, launch_s=1.0, total_s=200.0)
    return replace(quick_settings, min_samples=10, limits=limits)


@pytest.fixture(scope="module")
def judge_all(attack_settings: Settings, all_processors: Made, with_settings: Made) -> Iterator[JudgeAll]:
    """Judges attacks that are other threads with all processors, and the rest with one thread: on a busy machine,
    threads mostly wait for each other."""
    with all_processors(attack_settings) as several:

        def found(jobs: Sequence[tuple[Path, Path]], without: tuple[str, ...] = ()) -> Verdicts:
            settings = replace(attack_settings, without=without)
            if settings != several.settings:
                several.renew(settings)
            with with_settings(settings) as single:
                return judge(several, [job for job in jobs if job[0].stem == _SEVERAL_THREADS]) | judge(
                    single, [job for job in jobs if job[0].stem != _SEVERAL_THREADS]
                )

        yield found


@pytest.fixture(scope="module")
def verdicts(judge_all: JudgeAll) -> Verdicts:
    """Attacks and twins in one go, with all guards."""
    return judge_all([(a.task_path, file) for a in _BY_TASK for file in (a.path, a.twin_path)])


@pytest.fixture(scope="module")
def unfiltered(judge_all: JudgeAll, verdicts: Verdicts) -> Verdicts:
    """Those that the static filter had stopped, without it; what it let pass has met the other defences already."""
    return judge_all([(a.task_path, a.path) for a in _BY_TASK if _filtered(a, verdicts)], ("imports",))


def _filtered(attack: Attack, verdicts: Verdicts) -> bool:
    return attack.has_dynamic_defence and attack.filtered(verdicts[attack.task_path, attack.path])


@pytest.mark.parametrize("attack", CPU_ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_is_rejected(attack: Attack, verdicts: Verdicts, record_property: Record) -> None:
    failings = attack.failings(verdicts[attack.task_path, attack.path])
    record_attack(record_property, failings)
    assert not failings


@pytest.mark.parametrize("attack", CPU_ATTACKS, ids=lambda attack: attack.name)
def test_the_static_filter_is_not_the_only_defence(attack: Attack, unfiltered: Verdicts, verdicts: Verdicts) -> None:
    if not attack.has_dynamic_defence:
        assert attack.note, "why nothing else stops it must be said"
        return
    found = unfiltered if _filtered(attack, verdicts) else verdicts
    assert not attack.failings(found[attack.task_path, attack.path], filtered=False)


@pytest.mark.parametrize("twin", sorted(_TWINS))
def test_an_honest_twin_passes(twin: str, verdicts: Verdicts, record_property: Record) -> None:
    attack = _TWINS[twin]
    failings = attack.twin_failings(verdicts[attack.task_path, attack.twin_path])
    record_honest(record_property, failings)
    assert not failings


def test_they_had_all_processors(verdicts: Verdicts) -> None:
    threads = {verdict.environment.threads for (task, _), verdict in verdicts.items() if task.stem == _SEVERAL_THREADS}
    assert threads == {len(os.sched_getaffinity(0))}


def test_a_clock_that_is_forged_a_little_gains_nothing(judge_all: JudgeAll) -> None:
    """The judge's own clock decides; the forgery may also be too small to be proved."""
    _gain_nothing(judge_all, "long_exp")


def test_a_forged_clock_on_a_short_task_gains_nothing(judge_all: JudgeAll) -> None:
    """A call takes a hundredth of what a request takes, and these candidates report a twentieth of that, or less; the
    last one saves what the loop around the calls takes."""
    _gain_nothing(judge_all, "short_relu")


def test_what_was_kept_of_weights_gains_nothing(judge_all: JudgeAll) -> None:
    """Weights of timed calls are not the same in another order: what these candidates look for is never there."""
    _gain_nothing(judge_all, "costly_weights")


@pytest.mark.slow  # the process is stopped at random moments; on a busy machine all of them may come too late
def test_a_call_that_does_the_work_of_others_is_seen_or_gains_nothing(judge_all: JudgeAll) -> None:
    _gain_nothing(judge_all, _SEVERAL_THREADS)


def _gain_nothing(judge_all: JudgeAll, task: str) -> None:
    attacks = [attack for attack in GAIN_NOTHING if attack.task == task]
    found = judge_all([(a.task_path, file) for a in attacks for file in (a.path, a.twin_path)])
    for attack in attacks:
        verdict, honest = (found[attack.task_path, file] for file in (attack.path, attack.twin_path))
        assert honest.status is Status.OK, honest.reason
        if verdict.status is Status.OK:
            forged, honest_gain = verdict.speedup(), honest.speedup()
            assert forged is not None
            assert honest_gain is not None
            assert forged < honest_gain / 0.6, attack.name  # two measurements on a busy machine
        else:
            assert re.search(attack.says, verdict.reason), attack.name


def test_every_class_that_a_cpu_knows_is_attacked() -> None:
    assert {attack.number for attack in CPU_ATTACKS} == set(BY_NUMBER) - _NOT_ON_CPU


def test_every_file_is_in_the_corpus() -> None:
    listed = {file for a in (*CPU_ATTACKS, *GAIN_NOTHING) for file in (a.file, a.twin)}
    assert {f"cpu/{path.name}" for path in (FOLDER / "cpu").iterdir()} == listed
