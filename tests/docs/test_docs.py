"""The documentation does what it says: every command is run or excepted for a reason, every block compiles, links lead
somewhere. `make test-all` follows all pages from top to bottom; the ordinary run follows their quick steps."""

from __future__ import annotations

import json
import math
import re
import shlex
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, SHELLS, anchors, fences, inline_code, links, parts
from tests.docs.parsing import check, options_of, parse
from tests.docs.table import TABLE, Excepted, Execute, Run
from tests.docs.walking import Walk, environment, model, name_of
from tests.scripted import ScriptedServer

STARTS = ("warpsmith ", "python ", "make ", "$ ", "pip ")
MODELS = "models.md"


def quick(page: Path) -> bool:
    return any(isinstance(step, Run) and step.quick for step in TABLE[name_of(page)])


@pytest.fixture
def servers(page: Path) -> Iterator[dict[str, str]]:
    """Addresses of models, where the page is about them."""
    if page.name != MODELS:
        yield {}
        return
    with ScriptedServer(model, models=("the-only-one",)) as server:
        yield {"openai": server.openai_url, "anthropic": server.anthropic_url}
        assert server.requests, "no model was asked"


@pytest.fixture
def walk(page: Path, tmp_path: Path, cache_folder: Path, servers: dict[str, str]) -> Walk:
    """A page with a folder prepared for it."""
    made = Walk(page, tmp_path, servers, environment(cache_folder, servers))
    return made


_LONG = ("models",)  # with `make test-all`: its providers are tested in tests/llm


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=pytest.mark.slow if page.stem in _LONG else ())
        for page in PAGES
        if quick(page)
    ],
)
def test_the_quick_commands_of_a_page_do_what_it_says(walk: Walk) -> None:
    walk.prepare()
    walk.follow(quick=True)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", [page for page in PAGES if TABLE.get(name_of(page))], ids=lambda page: page.stem)
def test_a_page_can_be_followed_from_top_to_bottom(walk: Walk) -> None:
    walk.prepare()
    walk.follow(quick=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_everything_on_a_page_is_in_the_table(page: Path) -> None:
    said = [part.text for part in parts(page)]
    listed = [step.text for step in TABLE.get(name_of(page), ())]
    assert said == listed, (
        f"{name_of(page)} and tests/docs/table.py differ: run what is new, or except it with a reason"
    )
    for part, step in zip(parts(page), TABLE[name_of(page)], strict=True):
        assert isinstance(step, Run | Excepted) != bool(part.program), f"{part.where}: a command is no block"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_have_the_options_they_are_given_and_blocks_compile(page: Path) -> None:
    for part in parts(page):
        if part.program:
            compile(part.program, part.where, "exec")
        else:
            check(part.text)
    for fence in fences(page):
        if fence.file.endswith(".py"):
            compile(fence.text, f"{fence.page}:{fence.line}", "exec")
    for step in TABLE[name_of(page)]:
        if isinstance(step, Run):  # what shortens it must exist as well
            check(f"{step.text} {step.more}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_stand_in_blocks_that_are_looked_at(page: Path) -> None:
    for fence in fences(page):
        assert fence.language, f"{fence.page}:{fence.line}: say what the block is: bash, console, text, ..."
        if fence.language in SHELLS or fence.file:
            continue
        for line in fence.text.splitlines():
            assert not line.startswith(STARTS), f"{fence.page}: {line!r} is a command in a block of {fence.language}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_options_and_commands_in_running_text_exist(page: Path) -> None:
    everywhere = options_of([])
    scripts = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").glob("*.py"))
    for code in inline_code(page):
        words = code.split()
        if words[0] == "warpsmith" and len(words) > 1 and re.fullmatch("[a-z]+", words[1]):
            known = options_of(words[1:])
            assert words[1] in ("…",) or known != everywhere, f"{name_of(page)}: there is no `{code}`"
            for word in words[2:]:
                if word.startswith("--"):
                    assert word.partition("=")[0] in known, f"{name_of(page)}: `{code}` has no {word}"
        elif code.startswith("--"):
            option = words[0].partition("=")[0]
            assert option in everywhere or f'"{option}"' in scripts, f"{name_of(page)}: no command has {option}"


@pytest.mark.parametrize(
    "page",
    [*PAGES, *(ROOT / name for name in ("benchmarks/README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"))],
    ids=lambda page: f"{page.parent.name}-{page.stem}",
)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(path), f"{page.name}: {link} names no heading"


def test_the_readme_links_every_page() -> None:
    linked = {(ROOT / link.partition("#")[0]).resolve() for link in links(ROOT / "README.md")}
    assert set(PAGES[1:]) <= linked


def test_the_figures_of_the_readme_are_those_of_the_record() -> None:
    rows = json.loads((ROOT / "benchmarks/h200/optimize.json").read_text(encoding="utf-8"))["rows"]
    text = (ROOT / "README.md").read_text(encoding="utf-8")

    def mean(task: str, method: str) -> str:
        speedups = [row["speedup"] for row in rows if (row["task"], row["method"]) == (task, method)]
        return f"{statistics.geometric_mean(speedups):.2f}"

    for task in {row["task"] for row in rows}:
        said = f"{mean(task, 'cupilot')}x on {task}"
        assert said in text.replace("\n", " "), f"the record says {said}"
    overall = {method: math.prod(r["speedup"] for r in rows if r["method"] == method) for method in METHODS}
    ratio = (overall["cupilot"] / overall["evoengineer-full"]) ** (2 / len(rows))
    assert f"the ratio is {ratio:.3f} [" in text
    rest_of_the_row = text.partition("| all | 112 |")[2].partition("\n")[0]
    assert rest_of_the_row.split(" | ")[-4].replace("×", "x") + " PyTorch eager on an H200" in text


METHODS = ("cupilot", "evoengineer-full")


@pytest.mark.parametrize(
    "command",
    [
        "warpsmith optimize softmax.py --no-such-option",
        "warpsmith optimise softmax.py",
        "warpsmith bench show",
        "warpsmith optimize softmax.py --trials many",
        "python benchmarks/fuzz.py --no-such-option",
        "python -m benchmarks.no_such_script",
        "make no-such-target",
        "pip install '.[no-such-extra]'",
    ],
)
def test_a_command_that_cannot_be_meant_is_noticed(command: str) -> None:
    with pytest.raises(BaseException, match=r"(?i)no |missing|valid"):
        check(command)


def test_a_bench_is_parsed_as_it_runs() -> None:
    assert parse(shlex.split("bench relu@small --trials 3 --repeats 2"))["trials"] == 3
    assert any(isinstance(step, Execute) for steps in TABLE.values() for step in steps)
