"""Writes docs/trust.md from the classes of attack and from the corpora: python -m tests.attacks.trust (make trust).

The table says nothing that is not in those lists, so that it cannot promise more than the tests try.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.attacks.corpus import CPU_ATTACKS, GAIN_NOTHING
from tests.attacks.corpus_gpu import CUDA, HARMLESS_ON_GPU, ON_GPU, PYTHON, PYTHON_ON_CPU, PYTHON_ON_GPU
from tests.attacks.model import FOLDER, Attack
from warpsmith.evaluator.guards.attack_classes import CLASSES, AttackClass

PAGE = FOLDER.parent.parent / "docs" / "trust.md"
_EVERY_RUN = "every test run"
_TEST_ALL = "`make test-all`"
_GPU = "GPU, on record"
_RECORD = FOLDER.parent.parent / "benchmarks" / "h200" / "attacks.json"
_PLACES: tuple[tuple[Sequence[Attack], str], ...] = (
    (CPU_ATTACKS, _EVERY_RUN),
    (GAIN_NOTHING[:-1], _EVERY_RUN),
    (GAIN_NOTHING[-1:], _TEST_ALL),
    (PYTHON, f"{_EVERY_RUN}; {_GPU}"),
    (PYTHON_ON_CPU, _EVERY_RUN),
    (CUDA, _GPU),
    (PYTHON_ON_GPU, _GPU),
)

_OPENING = """\
# What a verdict can be trusted for

A kernel that is written to win a benchmark will sooner or later win it without doing the work. This page says what
Warpsmith does about that, attack by attack, and where its defences end. It is made from the tests by `make trust`:
every attack named here is a file of `tests/attacks` that is judged like any other candidate, and beside each there is
an honest kernel that uses the same technique and must pass.

## Who trusts whom

- The candidate is the enemy. Its source, its built object and the whole process it runs in may lie: about results,
  about time, about what they did. So may any text they produce.
- You, your task file and your machine are trusted: a task is a program that runs with your rights, in the process that
  judges. A task from a stranger needs the same care as any other program from a stranger.
- The compiler is trusted to compile, and runs with your rights: judge sources of strangers in a container.
- Anything in the candidate's address space can be forged. What decides (reference, comparison, seeds, clock,
  statistics, verdict) lives in another process, the judge, that the candidate cannot reach. The candidate's process has
  the inputs, the outputs and its own memory. It runs only between a request of the judge and its answer; the rest of
  the time the operating system keeps it stopped, so that nothing it does escapes the judge's clock. On a GPU it is dead
  before anything is timed, wherever its calls can be made without it.
- The filter on imported symbols is a filter, no defence: it names what it finds early, and every attack on the CPU that
  it stops is also judged without it (`tests/attacks/test_cpu_attacks.py`).
- A result says which layers of the sandbox were active (`warpsmith doctor` shows what your machine has). On a machine
  without them the classes that rest on them are not covered.

[How a verdict is reached](evaluator.md) describes the machinery.

## The classes

Each class has a section below: what such a kernel does, what stops it, what that does not cover (the last column counts
these limits), and the attacks that are tried.
"""

_STRANGERS = """\
## Folders of strangers

Runs, benches, results, bundles, replies, kernels and claims are passed on, and their files are text that anybody can
write. What a command reads there is data until you say more (`tests/fuzz/strangers.py` replaces every field in turn,
and every file by a link, a FIFO, a folder or a giant, and puts each case through all commands that read it;
`tests/search/test_trust.py`). A usual test run tries one case in fourteen, `make test-all` all of them.
"""
_OF_STRANGERS = (
    (
        "name a command, a model, an address, a key file or a template of prompts",
        "a run or plan is signed with a key outside its folder; without that, these are given again on the command "
        "line or not used",
        "a signature covers the setup, the task file and the proposer, not the trials: replies and verdicts in a log "
        "are what its author says",
    ),
    (
        "have its task file executed",
        "`step`, `tell`, `--resume`, `export --verify` and `bench resume` say that they execute it, and ask or want "
        "`--trust` where this user did not write it there; reading commands execute nothing",
        "what you allow runs with your rights; `load` executes the task file and the kernel of a bundle, as it says",
    ),
    (
        "hold modules with the names of others, and be the current folder",
        "no process that a command starts imports from the current folder",
        "`python -m warpsmith` itself, for which Python puts the current folder first: call `warpsmith`",
    ),
    (
        "leave guards out, or loosen limits",
        "guards and limits come from the command line; a verdict names missing guards and never counts as verified",
        "a forged verdict in a log or in results.json: judge the kernel again",
    ),
    (
        "write elsewhere through names or links",
        "names are single plain components, checked on reading; a file replaces a link and is not written through it",
        "somebody who changes the folder while a command works in it",
    ),
    (
        "steer the terminal",
        "one function makes text of others printable; all commands print through it",
        "`show --only code` into a file gives the program as it is",
    ),
    (
        "hang or exhaust a command",
        "a log is a table of one schema, with limits of length and time; only regular files of bounded size are read",
        "a log that is honest and very long",
    ),
)
_AGENTS = """\
## Agents as proposers

[`agent:CMD`](agents.md#the-agent-as-the-variation-operator) starts a program with your rights that wants to win
(`tests/proposers/test_agent.py` runs a hostile one).
"""
_OF_AGENTS = (
    (
        "write verdicts: into the log, the cache of verdicts, a file, a request, its output",
        "it can write in its own folders only (Landlock); the run reads nothing there but the proposal, and the socket "
        "takes no verdicts",
        "a kernel without Landlock; what you name in `WARPSMITH_AGENT_WRITES`",
    ),
    ("edit the task, the run's folder, the installed package", "the same", "the same"),
    (
        "call an evaluator around the run",
        "such a verdict counts nowhere; the run judges every kernel itself",
        "it costs device time: another evaluation waits for the device",
    ),
    (
        "forge its brief, or the kernels in its folder",
        "they are copies; the proposal is judged for the brief as the log has it",
        "",
    ),
    (
        "evaluate more than its step and the run allow, flood the socket, send nonsense",
        "limits of requests, connections and lengths; the run checks its budgets at every call",
        "",
    ),
    (
        "leave processes behind, signal or trace the run",
        "descendants are killed with the step; signals end at its own processes (kernel 6.12)",
        "a service manager or a container engine that you let it talk to",
    ),
    ("leave a link or a giant as its proposal", "only a regular file of bounded size is read", ""),
)


_HARMLESS = """\
## What gains nothing on a GPU

On a GPU a call of a candidate is recorded as data (which kernels, which parameters, what is filled and copied), its
process is killed, and another process, in which no instruction of the candidate's host code has ever run, makes the
calls from that data and the device code that the judge read from the file beforehand. It maps the inputs so that
kernels can read them only, and every sample is another choice of calls in another order. What cannot be said as such a
list (a candidate that waits in the middle, allocates memory, calls an allowed library, or a PyTorch module) is asked
for one call at a time, and the judge's clock around the request, until the device is idle, is what counts; its baseline
carries the same burden and is timed once more when the process is gone.

So some attacks need not be found out: the text of those below names the harness, for which they are rejected; without
that filter they are valid, and timed like the honest kernel beside them. In the record and in the tests each is held
against that kernel, without the filter.
"""
_HARMLESS_ON_CPU = """\
### The same on the CPU

On the CPU a forged clock is found out by the processor time that its process used, which the system counts and other
work on the machine does not add to. No time is taken from what the process says, so that a forgery that is too small
to be proved gains nothing either. What is kept of a module's weights is of no use, because weights are mixed for timed
calls. These are seen, or timed like the honest kernel beside them, at best:
"""


def render() -> str:
    """The whole page."""
    counts = {place: sum(len(attacks) for attacks, where in _PLACES if where == place) for _, place in _PLACES}
    total = sum(counts.values())
    text = [
        _OPENING,
        "| # | class | tried | limits |",
        "|---|---|---|---|",
        *(f"| {each.number} | {_section(each)} | {_tried(each)} | {len(each.limits) or '–'} |" for each in CLASSES),
        "",
        f"{total} attacks in all: " + _sentence(counts) + " " + _on_record(),
        "",
        *(line for each in CLASSES for line in _of_class(each)),
        *_harmless(),
        "",
        _STRANGERS,
        "| what a folder could do | what stops it | not covered |",
        "|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in _OF_STRANGERS),
        "",
        _AGENTS,
        "| what an agent could do | what stops it | not covered |",
        "|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in _OF_AGENTS),
    ]
    return "\n".join(text).rstrip() + "\n"


def _section(each: AttackClass) -> str:
    return f"[{each.title}](#{each.number}-{each.title.replace(' ', '-')})"


def _of_class(each: AttackClass) -> list[str]:
    """The section of one class."""
    limits = ["What this does not cover:", "", *(f"- {limit}" for limit in each.limits), ""] if each.limits else []
    return [
        *(f"### {each.number} {each.title}", "", each.attack, "", "What stops it:", ""),
        *(f"- {defence}" for defence in each.defences),
        *("", *limits, "| attack | what it does | honest twin | runs | verdict |", "|---|---|---|---|---|"),
        *(_row(attack, where) for attack, where in _of(each)),
        "",
    ]


def _harmless() -> list[str]:
    files = {a.file: a for attacks, where in _PLACES for a in attacks if a.file in HARMLESS_ON_GPU and _GPU in where}
    rows = []
    for name, why in HARMLESS_ON_GPU.items():
        known = "" if name in _recorded() else " (not on record yet)"
        rows.append(f"| {_link(name)} | {_purpose(files[name].path)} | {why}{known} |")
    head = ["| attack | what it does | why it gains nothing |", "|---|---|---|"]
    others = [f"| {_link(a.file)} | {_purpose(a.path)} | {_link(a.twin)} |" for a in GAIN_NOTHING]
    return [
        *(_HARMLESS, *head, *rows, ""),
        *(_HARMLESS_ON_CPU, "| attack | what it does | honest twin |", "|---|---|---|", *others),
    ]


def _on_record() -> str:
    """How many attacks the record of a GPU has."""
    count = len({attack.file for attack in ON_GPU} & _recorded())
    date = json.loads(_RECORD.read_text(encoding="utf-8"))["date"][:10]
    return f"The [record](../benchmarks/h200/attacks.json) of {date} has {count} of the {len(ON_GPU)}."


@cache
def _recorded() -> frozenset[str]:
    record = json.loads(_RECORD.read_text(encoding="utf-8"))
    return frozenset((*(a["file"] for a in record["attacks"]), *(f"cuda/{p['trick']}" for p in record["pairs"])))


def _of(each: AttackClass) -> list[tuple[Attack, str]]:
    return [(a, where) for attacks, where in _PLACES for a in attacks if a.number == each.number]


def _tried(each: AttackClass) -> str:
    names = {"cpu": "C++", "cuda": "CUDA", "torch_module": "PyTorch", "triton": "Triton"}
    found = [attack.backend for attack, _ in _of(each)]
    return ", ".join(f"{found.count(backend)} {name}" for backend, name in names.items() if backend in found)


def _sentence(counts: dict[str, int]) -> str:
    words = {
        _EVERY_RUN: "in every test run",
        _TEST_ALL: "by `make test-all`",
        _GPU: "on a GPU, recorded by `benchmarks/attack_record.py`",
        f"{_EVERY_RUN}; {_GPU}": "in both",
    }
    return ", ".join(f"{counts[place]} {word}" for place, word in words.items()) + "."


def _row(attack: Attack, where: str) -> str:
    verdict = " or ".join(f"`{status}`" for status in attack.statuses)
    if attack in GAIN_NOTHING:
        verdict += ", or no gain"
    if _GPU in where and attack.file not in _recorded():
        where = where.replace(_GPU, "GPU, not on record yet")
    if not attack.has_dynamic_defence:
        verdict += f" by the filter alone: {attack.note}"
    return f"| {_link(attack.file)} | {_purpose(attack.path)} | {_link(attack.twin)} | {where} | {verdict} |"


def _link(file: str) -> str:
    return f"[{Path(file).stem}](../tests/attacks/{file})"


def _purpose(path: Path) -> str:
    """What a file says about itself in its first lines."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        words = ast.get_docstring(ast.parse(text)) or ""
    else:
        lines = re.match(r"(?://[^\n]*\n)+", text)
        words = " ".join(line.removeprefix("//").strip() for line in lines[0].splitlines()) if lines else ""
    assert words, f"{path.name} does not say what it does"
    sentence = re.sub(r"^Class \d+: (.)", lambda m: m[1].upper(), " ".join(words.split("\n\n")[0].split()))
    return sentence.replace("|", r"\|")


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    print(f"{PAGE.name}: {len(render().splitlines())} lines")
