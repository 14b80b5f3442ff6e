from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from jinja2 import Environment, FunctionLoader

from tests.prompts.briefs import BEST, EVERYTHING, FAILED, REPAIR, SLOWER, UNREADABLE, brief, exhibit
from warpsmith.methods import cupilot
from warpsmith.model.brief import Brief, Idea, Role
from warpsmith.model.candidate import SourceFile
from warpsmith.model.errors import UsageError
from warpsmith.model.method import MethodOperator, Move
from warpsmith.model.numbers import quantity, whole_percent
from warpsmith.model.task import Precision
from warpsmith.prompts import renderer
from warpsmith.prompts.renderer import LIMIT_CHARS, facts, kernel_time, render, speedup

BARE = MethodOperator("init", Move.INIT, "evoengineer/init")


def user(asked: Brief, limit_chars: int = LIMIT_CHARS) -> str:
    return render(asked, limit_chars).messages[1].text


def headings(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("# ")]


def test_there_is_one_system_and_one_user_message() -> None:
    prompt = render(brief(BARE))

    assert [message.role for message in prompt.messages] == [Role.SYSTEM, Role.USER]
    assert "CUDA C++" in prompt.messages[0].text
    assert "NVIDIA H200" in prompt.messages[0].text


def test_a_brief_without_anything_has_only_what_is_always_there() -> None:
    assert headings(user(brief(BARE))) == [
        "# softmax in CUDA C++17",
        "# Device",
        "# How a kernel is judged",
        "# What is not allowed",
        "# What is wanted",
        "# Your reply",
    ]


def test_floor_and_zone_are_spoken_of_only_where_the_operator_shows_them() -> None:
    everything = brief(EVERYTHING)

    assert "no kernel should take less than" in user(everything)
    assert "no kernel should take less than" not in user(replace(everything, roofline=False))


def test_parents_keep_their_order_and_the_best_is_shown_once() -> None:
    text = user(replace(brief(EVERYTHING), parents=(SLOWER[0], BEST, SLOWER[1]), retrieved=()))

    assert text.index("vector-loads(width=2)") < text.index("shown above") < text.index("vector-loads(width=4)")
    assert text.count(BEST.files[0].text.strip()) == 1


@pytest.mark.parametrize("backend", ["cuda", "cpu", "triton", "torch_module"])
def test_every_language_says_what_to_define_and_how_to_fence_it(backend: str) -> None:
    asked = brief(BARE, backend)
    text = user(asked)

    assert asked.problem.contract.text.strip() in text
    assert {"cuda": "```cuda\n<", "cpu": "```cpp\n<"}.get(backend, "```python\n<") in text


def test_a_contract_that_does_not_tell_the_task_has_it_told() -> None:
    asked = brief(BARE)
    terse = replace(asked.problem.contract, text="`softmax` is called as it stands here.")
    text = user(replace(asked, problem=replace(asked.problem, contract=terse)))

    assert "torch.softmax(x, dim=-1)" in text
    assert "- `x`: input, float32 [rows, cols]" in text
    assert "- tall: rows = 4096, cols = 1024" in text
    assert "TF32, fp16 and bf16 arithmetic alone are too coarse" in text


def test_an_allowed_library_is_named() -> None:
    asked = brief(BARE)
    task = replace(asked.problem.task, allow=("cublas",))

    assert "other than cublas" in user(replace(asked, problem=replace(asked.problem, task=task)))


def test_a_failure_comes_with_its_reason_and_its_code() -> None:
    text = user(replace(brief(REPAIR), attempt=2))

    assert FAILED.reason in text
    assert FAILED.files[0].text.strip() in text
    assert "attempt 2" in text


def test_a_reply_that_could_not_be_read_is_asked_for_once_more() -> None:
    text = user(replace(brief(REPAIR), failure=UNREADABLE))

    assert "# Your last reply could not be read" in text
    assert UNREADABLE.reason in text
    assert "once more" in text


def test_code_with_fences_in_it_does_not_end_its_block() -> None:
    fenced = replace(BEST, files=(SourceFile("kernel.cu", "// ```\nint a;\n"),))

    assert "````cuda\n// ```\nint a;\n````" in user(replace(brief(EVERYTHING), best=fenced))


def test_what_matters_least_is_left_out_first_and_said_so() -> None:
    everything = brief(EVERYTHING)
    shorter = user(everything, len(user(everything)))  # the system message is over
    shortest = user(everything, 13_400)

    assert "(Left out here for length: 1 of 2 similar kernels.)" in shorter
    assert "# What earlier proposals thought" in shorter
    assert "# What earlier proposals thought" not in shortest
    assert "# The best kernel so far" in shortest
    assert "# Parent 3 of 3" in shortest


def test_strategies_are_shown_whole_and_of_ideas_the_oldest_is_left_out_first() -> None:
    long = " + ".join(f"step-{number}(size={number})" for number in range(150))
    asked = replace(brief(cupilot.CROSS), ideas=tuple(Idea(n, f"{n}: {long}") for n in range(1, 31)))
    asked = replace(asked, parents=(replace(SLOWER[0], strategy=long), BEST))

    assert all(f"{n}: {long}\n" in user(asked) for n in range(1, 31))
    assert f"Strategy: {long}\n" in user(asked)
    shorter = user(asked, 40_000)
    assert f"30: {long}" in shorter
    assert f" 1: {long}" not in shorter
    assert "of 30 strategies thought of.)" in shorter


def test_the_translator_gets_instructions_for_what_its_strategy_names() -> None:
    text = user(brief(cupilot.TRANSLATE))

    assert text.index("# The strategy to carry out") < text.index("# How the optimisations of the strategy are")
    assert "- A warp for each row (one-warp-per-row): Reduce a row with shuffles in one warp." in text


def test_the_device_is_described_by_what_was_measured() -> None:
    text, cpu = user(brief(BARE)), user(brief(BARE, "cpu"))

    assert "132 multiprocessors (SMs) and 50.0 MiB of L2. Measured with PyTorch: 4.10 TB/s from memory" in text
    assert "386 TFLOP/s in tf32" in text
    assert "one more kernel launch takes 2.10 µs" in text
    assert "It has 64 threads, AVX-512 instructions and 256 MiB of last-level cache." in cpu
    assert "An SM has 65536 registers, 228 KiB of shared memory and room for 2048 threads in at most 32 blocks." in text


def test_the_order_in_which_sections_go() -> None:
    everything = brief(EVERYTHING)
    signs = {
        "similar": "# A similar kernel",
        "failures": "# What went wrong lately",
        "strategies": "# Strategies that may help",
        "insights": "# What earlier proposals thought",
        "notes": "# Notes of earlier steps",
    }
    gone: dict[str, None] = {}
    for limit in range(len(user(everything)) + 300, 7000, -150):
        text = user(everything, limit)
        gone.update((name, None) for name, sign in signs.items() if sign not in text)

    assert list(gone) == list(signs)


@pytest.mark.parametrize("limit", [3000, 6000, 20_000, LIMIT_CHARS])
def test_a_prompt_never_exceeds_its_limit_and_always_says_how_to_reply(limit: int) -> None:
    vast = replace(exhibit(9, 2.0), files=(SourceFile("kernel.cu", "int a;\n" * 100_000),), thought="t" * 100_000)
    asked = replace(brief(EVERYTHING), best=vast, parents=(vast, vast), notes=(("convert", "n" * 200_000),))
    prompt = render(asked, limit)

    assert sum(len(message.text) for message in prompt.messages) <= limit
    assert "left out here" in prompt.messages[1].text
    assert prompt.messages[1].text.rstrip().endswith("no diff.")


def test_a_users_own_template_is_found_by_its_path(tmp_path: Path) -> None:
    template = tmp_path / "mine.j2"
    template.write_text("Beat {{ brief.best.speedup | times }}, please.")

    for wording in (str(template), str(template.with_suffix(""))):
        assert "Beat 1.62×, please." in user(replace(brief(EVERYTHING), wording=wording))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(None, "no prompt template"), ("{% if %}", "cannot be rendered"), ("{{ brief.nothing }}", "cannot be rendered")],
)
def test_a_template_that_does_not_work_is_one_sentence(tmp_path: Path, content: str | None, complaint: str) -> None:
    template = tmp_path / "mine.j2"
    if content is not None:
        template.write_text(content)

    with pytest.raises(UsageError, match=complaint) as error:
        render(replace(brief(BARE), wording=str(template)))
    assert "mine.j2" in str(error.value)


def test_figures_are_rounded_for_reading() -> None:
    assert kernel_time(0.0081234) == "8.12 µs"
    assert kernel_time(0.5) == "0.5 ms"
    assert kernel_time(12.345) == "12.3 ms"
    assert kernel_time(123456.0) == "123 s"
    assert speedup(1.6234) == "1.62×"
    assert speedup(0.0123) == "0.012×"
    assert whole_percent(0.503) == "50 %"
    assert quantity(33554432, "B", zeros=True) == "33.6 MB"
    assert quantity(12, "FLOP", zeros=True) == "12 FLOP"


def test_ridges_are_those_of_the_precision_class() -> None:
    def memory_line(precision: Precision) -> str:
        asked = brief(EVERYTHING)
        task = replace(asked.problem.task, precision=precision)
        text = user(replace(asked, problem=replace(asked.problem, task=task)))
        return next(line for line in text.splitlines() if line.startswith("Memory is the limit"))

    fp32 = memory_line(Precision.FP32)
    assert "12.5 FLOP per byte in plain fp32 arithmetic" in fp32
    assert fp32.endswith("below 31.4 FLOP per byte in the fastest products of this class (3 tf32 products for each).")
    assert memory_line(Precision.BF16).endswith("below 181 FLOP per byte in the fastest products of this class (bf16).")
    cpu = user(brief(EVERYTHING, "cpu"))
    assert "Memory is the limit below 10.8 FLOP per byte in plain fp32 arithmetic." in cpu


def test_a_workload_that_a_launch_decides_has_no_other_limit() -> None:
    lines = [line for line in user(brief(EVERYTHING)).splitlines() if line.startswith(("- short (", "- tall ("))]

    assert lines[0].endswith("that alone takes 0.13 µs, less than a launch.")
    assert "no kernel should take less than 8.33 µs; PyTorch reaches 31 % of that speed." in lines[1]


def test_strategies_of_any_length_are_shown_whole() -> None:
    long = " + ".join(f"strategy-{n}(width={n})" for n in range(60))
    everything = brief(EVERYTHING)
    shown = replace(BEST, strategy=long)
    asked = replace(everything, best=shown, lineage=(shown,), ideas=(replace(everything.ideas[1], strategy=long),))

    assert user(asked).count(long) == 3


def test_unknown_architectures_get_no_facts() -> None:
    assert "227 KiB" in facts("sm_90a")
    assert facts("sm_75") == "Tensor cores for fp16 and int8."
    assert facts("") == facts("sm_999") == facts("gfx942") == ""


def test_the_beginning_that_all_prompts_share_is_named() -> None:
    first, second = (render(brief(each)).messages[1] for each in (cupilot.CROSS, cupilot.MUTATE))

    assert first.stable == second.stable > 500
    assert first.text[: first.stable] == second.text[: second.stable]
    assert "# What is wanted" not in first.text[: first.stable]


def test_threads_that_begin_together_compile_a_template_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def load(name: str) -> str:
        time.sleep(0.02)  # in which all threads would begin to compile it
        read.append(name)
        return "text"

    monkeypatch.setattr(renderer, "_templates", {})
    monkeypatch.setattr(renderer, "_environment", cache(lambda: Environment(loader=FunctionLoader(load))))
    with ThreadPoolExecutor(8) as threads:
        assert len(set(map(id, threads.map(renderer._template, ["system"] * 8)))) == 1
    assert read == ["system"]


def test_a_template_is_rendered_once_for_the_fields_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[str] = []
    worded = renderer._worded

    def noted(name: str, asked: Brief, code_chars: int) -> str:
        rendered.append(name)
        return worded(name, asked, code_chars)

    monkeypatch.setattr(renderer, "_kept", {})
    monkeypatch.setattr(renderer, "_worded", noted)
    asked = brief(EVERYTHING)

    first = render(asked)
    rendered.clear()
    assert render(replace(asked, number=asked.number + 1)) == first
    assert rendered == []
    assert "a better name" in user(replace(asked, best=replace(BEST, name="a better name")))
    assert rendered == ["sections/best", "sections/parents"]


def test_what_every_template_reads_is_known() -> None:
    names = [str(path.relative_to(renderer.TEMPLATES).with_suffix("")) for path in renderer.TEMPLATES.rglob("*.j2")]

    for name in names:
        read = renderer._fields_read(name)
        assert read is not None, name
        assert set(read) <= set(Brief.__dataclass_fields__), name


def test_a_wording_of_the_user_is_rendered_for_every_brief(tmp_path: Path) -> None:
    (tmp_path / "own.j2").write_text("This is brief {{ brief.number }}.")
    asked = replace(brief(BARE), wording=str(tmp_path / "own"))

    assert "This is brief 7." in user(replace(asked, number=7))
    assert "This is brief 8." in user(replace(asked, number=8))
