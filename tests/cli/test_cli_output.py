"""What people and programs are shown, from hand-made verdicts of every shape a real one can have."""

from __future__ import annotations

import io
import json
import math
import re
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from warpsmith.cli import cards
from warpsmith.cli.cards import JudgedFile
from warpsmith.cli.doctor import Check, CheckState, checklist
from warpsmith.cli.json_documents import dumps, evaluate_document
from warpsmith.cli.live import rates
from warpsmith.cli.terminal import Reason, print_columns
from warpsmith.model import numbers
from warpsmith.model.evaluation import Baseline, Environment, Evaluation, Interval, Resources, Status, WorkloadResult
from warpsmith.search.trials import RunTotals

CPU = Environment(
    device="Intel(R) Xeon(R) Processor @ 2.50GHz (cpu)",
    backend="cpu",
    compiler="g++ 12.2.0",
    torch="2.13.0+cpu",
    sandbox=("no-network", "no-ipc", "landlock-7", "uid-65534", "rlimits", "seccomp"),
    threads=2,
    harness="0.1.0",
)
GPU = Environment(
    device="NVIDIA H200 (cuda:0)",
    backend="cuda",
    compiler="nvcc 13.0.88",
    torch="2.11.0+cu130",
    driver="580.65.06",
    sandbox=("no-network", "landlock-7-partial", "rlimits", "seccomp-partial"),
    harness="0.1.0",
)


def against(name: str, speedup: float, latency_ms: float, *, half_width: float = 0.03) -> Baseline:
    """A baseline with a symmetric interval."""
    bounds = Interval(speedup - half_width, speedup + half_width)
    return Baseline(name, latency_ms, speedup, bounds, samples=40)


def workload(
    name: str, latency_ms: float, *baselines: Baseline, error: float = 1.19e-7, limit: float = 3.6e-7
) -> WorkloadResult:
    """One measured workload."""
    return WorkloadResult(
        workload=name,
        axes=(("rows", 4096), ("cols", 1024)),
        latency_ms=latency_ms,
        timing="single",
        baselines=baselines,
        error=error,
        error_limit=limit,
        floor_ms=0.6 * latency_ms,
        bytes=33_554_432,
        flops=20_971_520,
        checks=7,
        reference="fp64",
    )


def valid(
    *workloads: WorkloadResult,
    environment: Environment = CPU,
    resources: tuple[Resources, ...] = (),
    cached: bool = False,
) -> Evaluation:
    """A verdict of ok."""
    return Evaluation(
        task="softmax",
        candidate="0123456789ab",
        status=Status.OK,
        reason="",
        environment=environment,
        precision="fp32",
        workloads=workloads,
        resources=resources,
        notes=("The peaks of this device were measured on a busy machine; the floor may be too low for it.",),
        seconds=4.21,
        cached=cached,
    )


def invalid(status: Status, reason: str) -> Evaluation:
    """Any other verdict."""
    return Evaluation(
        task="softmax",
        candidate="ba9876543210",
        status=status,
        reason=reason,
        environment=CPU,
        precision="fp32",
        seconds=1.5,
    )


# --- for people ---

WIDTH = 80
LONG_REASON = "The result differs from the reference in 12 of 4096 elements, first at [0, 7]. " * 12
DIAGNOSIS = (
    "it does not compile:\n\nk.cpp:3:12: error: 'expff' was not declared\n"
    "    3 |   out[i] = expff(x);\n      |            ^~~~~"
)


def shown(body: RenderableType, width: int = WIDTH) -> str:
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False, no_color=True)
    console.print(body)
    file = console.file
    assert isinstance(file, io.StringIO)
    text = file.getvalue()
    assert max(map(len, text.splitlines())) <= width
    assert "\x1b" not in text
    return text


def flat(text: str) -> str:
    """Without the line breaks that the width made."""
    return " ".join(text.split())


def one(speedup: float, half_width: float = 0.03) -> Evaluation:
    baseline = against("eager", speedup, 0.227, half_width=half_width)
    return valid(workload("4096x1024", 0.1234, baseline))


def test_the_card_of_a_valid_kernel_says_everything_that_was_measured() -> None:
    text = flat(shown(cards.card(JudgedFile("kernels/softmax.cpp", one(1.84)))))
    for part in (
        "✓ ok kernels/softmax.cpp softmax, fp32, cpu",
        "1.84x faster than PyTorch eager [1.81, 1.87]",
        "latency 123.4 µs eager 227.0 µs; rows=4096, cols=1024",
        "of roofline 60.0 % 74.04 µs at best",
        "error 1.19e-07 33.1 % of the limit 3.60e-07",
        "checked 7 inputs against fp64",
        "no-network, no-ipc, landlock-7, uid-65534, rlimits, seccomp",
        "Intel(R) Xeon(R) Processor @ 2.50GHz (cpu), 2 threads",
        "the floor may be too low for it.",
    ):
        assert part in text


def test_times_beside_a_ratio_are_those_of_its_pairs() -> None:
    """The pairs with torch.compile were taken in other seconds than those with eager, which gave the latency."""
    baselines = (against("eager", 1.6, 2.848), against("compile", 1.071, 1.624))
    text = flat(shown(cards.card(JudgedFile("k.cpp", valid(workload("4096x1024", 1.78, *baselines))))))
    assert "1.071x faster than torch.compile" in text
    assert "latency 1.780 ms eager 2.848 ms; rows=4096, cols=1024 1.516 ms compile 1.624 ms; measured apart" in text


def test_a_floor_that_was_beaten_is_explained() -> None:
    beaten = replace(workload("4096x1024", 0.5, against("eager", 1.6, 0.8)), floor_ms=0.75)
    text = flat(shown(cards.card(JudgedFile("k.cpp", valid(beaten)))))
    assert "of roofline 150.0 % more than 750.0 µs at best: the peaks were measured on a busy machine, or" in text


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (1.81, 1.87, "1.84x faster than PyTorch eager"),
        (0.52, 0.56, "0.540x, slower than PyTorch eager"),
        (0.996, 1.004, "1.000x, same speed as PyTorch eager"),
        (0.90, 1.15, "inconclusive: 0.900x to 1.15x (median 1.025x) against PyTorch eager"),
    ],
)
def test_only_what_the_interval_supports_is_claimed(low: float, high: float, words: str) -> None:
    assert words in cards.compared("eager", (low + high) / 2, Interval(low, high)).plain


@pytest.mark.parametrize(
    ("median", "low", "high", "words"),
    [
        (1.5, 1.2, 1.8, "^$"),
        (3.1, 0.97, 21.1, "times varied too much .* when the machine is idle: the command$"),
        (0.9, 0.5, 1.3, "^No kernel beat PyTorch here. Best: 0.900x. Keep PyTorch.$"),
        (0.91, 0.9, 0.92, "^No kernel beat PyTorch here. Best: 0.910x. Keep PyTorch.$"),
        (1.0, 0.995, 1.004, "^No kernel beat PyTorch here. Best: 1.000x. Keep PyTorch.$"),
    ],
)
def test_what_to_do_follows_from_the_interval(median: float, low: float, high: float, words: str) -> None:
    assert re.search(words, cards.advice(median, Interval(low, high), "the command"))


def test_several_workloads_and_baselines_get_a_table() -> None:
    names = (("eager", 1.84), ("compile", 1.1))
    results = [
        workload(f"{rows}x1024", latency, *(against(n, s, latency * s) for n, s in names))
        for rows, latency in ((4096, 0.1234), (8, 0.0009))
    ]
    kernels = (Resources("softmax_kernel(float const*, float*)", 40, 0, 4096), Resources("finish", 255, 128))
    evaluation = valid(*results, environment=GPU, resources=kernels, cached=True)
    text = flat(shown(cards.card(JudgedFile("softmax.cu", evaluation))))
    assert "workload latency vs eager vs compile of roofline error/limit" in text
    assert "4096x1024 123.4 µs 1.84x 1.10x" in text
    assert "8x1024 900.0 ns" in text
    assert "softmax_kernel: 40 registers, no spills, 4.00 KiB shared" in text
    assert "finish: 255 registers, 128 B spilled" in text
    assert "driver 580.65.06" in text
    assert "from the cache" in text


def test_the_card_of_a_failure_gives_the_whole_reason_and_keeps_code_as_it_is() -> None:
    text = shown(cards.card(JudgedFile("wrong.cpp", invalid(Status.WRONG, LONG_REASON))))
    assert text.startswith("✗ wrong  wrong.cpp")
    assert flat(text).count("first at [0, 7].") == 12
    text = shown(cards.card(JudgedFile("k.cpp", invalid(Status.BUILD_ERROR, DIAGNOSIS))))
    assert "✗ build error  k.cpp" in text
    assert "      3 |   out[i] = expff(x);" in text
    assert "        |            ^~~~~" in text


def test_markup_in_a_reason_or_name_is_text() -> None:
    text = shown(cards.card(JudgedFile("a[bold].cpp", invalid(Status.WRONG, "see [red]x[/red] and [/]"))))
    assert "a[bold].cpp" in text
    assert "see [red]x[/red] and [/]" in text


def test_the_overview_ranks_valid_files_and_puts_failures_below() -> None:
    judged = [
        JudgedFile("k/broken.cpp", invalid(Status.BUILD_ERROR, DIAGNOSIS)),
        JudgedFile("k/slow.cpp", one(0.5)),
        JudgedFile("k/lost.cpp", invalid(Status.NOT_JUDGED, "the evaluator failed 3 times.")),
        JudgedFile("k/a_rather_long_name_of_a_kernel_file.cpp", one(2.5)),
        JudgedFile("k/wrong.cpp", invalid(Status.WRONG, LONG_REASON)),
    ]
    text = shown(cards.overview(judged))
    places = [text.index(part) for part in ("2.50x", "0.500x", "build error", "not judged", "✗  wrong.cpp")]
    assert places == sorted(places)
    assert "faster" in text
    assert "slower" in text
    assert "[2.47, 2.53]" in text
    assert "2 of 5 valid. Best: k/a_rather_long_name_of_a_kernel_file.cpp: 2.50x faster" in flat(text)
    assert text.count("first at [0, 7].") <= 2  # short reasons only


def test_files_of_the_same_name_keep_their_folders() -> None:
    text = shown(cards.overview([JudgedFile("a/k.cpp", one(2.0)), JudgedFile("b/k.cpp", one(1.5))]))
    assert "a/k.cpp" in text
    assert "b/k.cpp" in text


def test_nothing_valid_is_said_plainly() -> None:
    failed = invalid(Status.CRASHED, "it died of signal 11.")
    text = shown(cards.overview([JudgedFile("a.cpp", failed), JudgedFile("b.cpp", failed)]))
    assert text.rstrip().endswith("0 of 2 valid.")


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0.0000123, "12.30 ns"),
        (0.1234, "123.4 µs"),
        (1.5, "1.500 ms"),
        (999.96, "1000 ms"),
        (12345.0, "12.35 s"),
    ],
)
def test_times_have_four_digits_and_a_unit(milliseconds: float, text: str) -> None:
    assert numbers.duration(milliseconds) == text


def test_a_check_that_fails_says_what_to_do() -> None:
    checks = (
        Check("nvcc", CheckState.MISSING, "none found", "install the CUDA toolkit"),
        Check("g++", CheckState.OK, "12"),
    )
    text = shown(checklist([("Compilers", checks)]))
    assert "✗  nvcc" in text
    assert "→ install the CUDA toolkit" in text
    assert "✓  g++" in text


# --- for programs ---

FIELDS = {
    *(
        "task",
        "file",
        "device",
        "status",
        "reason",
        "latency_ms",
        "baseline_ms",
        "candidate_ms",
        "speedup",
        "speedup_interval",
    ),
    *("error", "error_limit", "precision", "floor_ms", "share_of_floor", "resources", "sandbox", "workloads"),
    *(
        "candidate",
        "cached",
        "seconds",
        "notes",
        "without",
        "calibrated",
        "uncalibrated",
        "environment",
        "verified",
        "certificate",
    ),
}


def strict(evaluation: Evaluation) -> dict[str, object]:
    """As a strict parser reads it."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    line = dumps(evaluate_document(evaluation, file="k/a.cpp", device="cpu"))
    assert "\n" not in line
    found: dict[str, object] = json.loads(line, parse_constant=refuse)
    return found


def test_a_valid_verdict_has_every_promised_field() -> None:
    first = workload("a", 1.0, against("eager", 2.0, 2.0), against("compile", 0.5, 0.5))
    second = workload("b", 4.0, against("eager", 2.0, 8.0), against("compile", 0.5, 2.0))
    document = strict(valid(first, replace(second, error=3.0e-7)))
    assert set(document) == FIELDS
    assert document["file"] == "k/a.cpp"
    assert document["status"] == "ok"
    assert document["reason"] == ""
    assert document["latency_ms"] == pytest.approx(2.0)
    assert document["floor_ms"] == pytest.approx(1.2)
    assert document["share_of_floor"] == pytest.approx(0.6)
    assert document["baseline_ms"] == pytest.approx({"eager": 4.0, "compile": 1.0})
    assert document["speedup"] == pytest.approx({"eager": 2.0, "compile": 0.5})
    assert document["error"] == pytest.approx(3.0e-7)  # where it came nearest to the limit
    intervals = document["speedup_interval"]
    assert isinstance(intervals, dict)
    low, high = intervals["eager"]
    assert low < 2.0 < high
    workloads = document["workloads"]
    assert isinstance(workloads, list)
    assert [w["name"] for w in workloads] == ["a", "b"]
    assert workloads[0]["axes"] == {"rows": 4096, "cols": 1024}
    assert workloads[0]["samples"] == {"eager": 40, "compile": 40}


def test_an_invalid_verdict_has_the_same_fields_and_no_times() -> None:
    document = strict(invalid(Status.WRONG, "12 elements are wrong."))
    assert set(document) == FIELDS
    assert document["status"] == "wrong"
    assert document["reason"] == "12 elements are wrong."
    for name in ("latency_ms", "floor_ms", "share_of_floor", "error", "error_limit"):
        assert document[name] is None
    for name in ("baseline_ms", "candidate_ms", "speedup", "speedup_interval"):
        assert document[name] == {}
    assert document["workloads"] == []


def test_what_json_cannot_say_becomes_null() -> None:
    odd = workload("a", 1.0, against("eager", 2.0, 2.0), error=0.0, limit=math.inf)
    document = strict(valid(replace(odd, floor_ms=0.0)))
    assert document["error_limit"] is None
    assert document["floor_ms"] == 0.0


def test_what_a_compiler_quotes_is_cut_and_not_wrapped() -> None:
    far = "a.cpp:1:90: error: expected ';'\n    1 | " + "x" * 90 + "\n      | " + " " * 88 + "^"
    near = "a.cpp:2:3: error: expected ')'\n    2 | short\n      |   ^"
    sentence = "This is a sentence that goes on for long enough to need more than one line of this terminal."
    text = shown(Reason(f"{far}\n{near}\n{sentence}"), width=60)
    lines = [line.rstrip() for line in text.splitlines()]
    assert lines[1] == "    1 | " + "x" * 51 + "…"
    assert lines[2] == "a.cpp:2:3: error: expected ')'"  # the mark under what is out of sight is not shown
    assert lines[3:5] == ["    2 | short", "      |   ^"]
    assert " ".join(lines[5:]) == sentence


def test_a_trial_under_way_is_neither_valid_nor_invalid() -> None:
    totals = RunTotals(trials=16, judged=13, valid=12, duplicates=1, unreadable=1)
    assert rates(totals) == "valid: 12 of 15 (80 %)"
    assert rates(RunTotals(trials=1)) == ""


@pytest.mark.parametrize(
    ("width", "first", "left_out"),
    [
        (80, "suite/relu  1.40x [1.39, 1.41]  note", ""),
        (31, "suite/relu  1.40x [1.39, 1.41]", "notes"),
        (26, "relu    1.40x [1.39, 1.41]", "notes, suites"),
        (16, "relu    1.40x", "notes, suites, intervals"),
    ],
)
def test_a_table_becomes_narrower_step_by_step(width: int, first: str, left_out: str) -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=width, color_system=None)
    rows = [{"kernel": "suite/relu", "speed": "1.40x [1.39, 1.41]", "notes": "note"}]
    bare = [{**rows[0], "kernel": "relu"}]
    plain = [{**bare[0], "speed": "1.40x"}]

    print_columns(console, rows, optional=("notes",), shorter=[("suites", bare), ("intervals", plain)])

    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    assert lines[1] == first
    assert " ".join(lines[2:]) == (f"Not shown: {left_out} (a wider terminal or --json shows all)." if left_out else "")
