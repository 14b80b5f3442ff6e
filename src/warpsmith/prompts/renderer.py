"""Renders a brief as a prompt: a system message, and one user message made of sections.

The sections follow from what the brief carries; their wording is in `templates/`. If a prompt is too long, the least
important parts are left out. `facts` says what a GPU architecture has, from NVIDIA's programming guide.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template, TemplateNotFound, nodes
from jinja2.exceptions import TemplateError
from jinja2.sandbox import SandboxedEnvironment

from warpsmith.backends.c_contract import PRECISION_RULES, code_block
from warpsmith.hardware.occupancy import MULTIPROCESSORS, WARP
from warpsmith.hardware.roofline import permitted
from warpsmith.model.brief import Brief, Message, Problem, Prompt, Role, ShownCandidate
from warpsmith.model.candidate import SourceFile
from warpsmith.model.errors import UsageError
from warpsmith.model.evaluation import Interval, Status
from warpsmith.model.method import Move, Product
from warpsmith.model.numbers import memory_size, number, quantity, whole_percent
from warpsmith.model.task import Precision

_ABILITIES = {
    75: "Tensor cores for fp16 and int8.",
    80: "Tensor cores for fp16, bf16, TF32 and fp64; cp.async.",
    86: "Tensor cores for fp16, bf16 and TF32; cp.async.",
    87: "Tensor cores for fp16, bf16 and TF32; cp.async.",
    89: "Tensor cores for fp16, bf16, TF32 and fp8; cp.async.",
    90: "Tensor cores for fp16, bf16, TF32 and fp8 (wgmma) and for fp64; cp.async, TMA bulk copies with mbarriers, "
    "thread block clusters with distributed shared memory.",
    100: "Tensor cores (tcgen05, tensor memory) for fp16, bf16, TF32, fp8, fp6 and fp4; TMA bulk copies, thread block "
    "clusters.",
    103: "Tensor cores (tcgen05, tensor memory) for fp16, bf16, TF32, fp8, fp6 and fp4; TMA bulk copies, thread block "
    "clusters.",
    120: "Tensor cores for fp16, bf16, TF32, fp8, fp6 and fp4; cp.async, TMA bulk copies.",
}


def facts(arch: str) -> str:
    """The limits and abilities of a GPU architecture such as "sm_90a"; "" if unknown."""
    found = re.fullmatch(r"sm_(\d+)[a-z]?", arch)
    version = int(found[1]) if found else 0
    sm = MULTIPROCESSORS.get(version)
    if sm is None:
        return _ABILITIES.get(version, "")
    return (
        f"An SM has {sm.registers} registers, {sm.shared_bytes >> 10} KiB of shared memory and room for "
        f"{sm.warps * WARP} threads in at most {sm.blocks} blocks. A block has at most {sm.threads_per_block} threads "
        f"in warps of {WARP} and {sm.shared_bytes_per_block >> 10} KiB of shared memory, a thread at most "
        f"{sm.registers_per_thread} registers. {_ABILITIES[version]}"
    )


LIMIT_CHARS = 120_000
"""The longest prompt, about 30,000 tokens."""

TEMPLATES = Path(__file__).parent / "templates"
SUFFIX = ".j2"
SECTIONS = (
    *("task", "device", "judging", "forbidden", "notes", "roofline", "start", "best", "parents", "lineage"),
    *("subject", "failure", "insights", "failures", "retrieved", "precedents", "strategies", "ideas", "effects"),
    *("idea", "cards"),
)
REPLIES = {Product.STRATEGIES: "reply_strategies", Product.ALIGNMENT: "reply_alignment", Product.TEXT: "reply_text"}
"""The template for the form of a reply, by product; "reply" for a kernel."""
LANGUAGES = {
    "cuda": "CUDA C++",
    "cpu": "C++17 with OpenMP",
    "triton": "Triton",
    "torch_module": "PyTorch and its C++ and CUDA extensions",
}
FENCES = {".cu": "cuda", ".cpp": "cpp", ".py": "python"}

# Parts left out of a prompt that is too long, the least important first. Best, parents and failure always stay.
_SPARED = (
    ("retrieved", "similar kernels"),
    ("precedents", "precedents"),
    ("failures", "earlier failures"),
    ("strategies", "strategies"),
    ("cards", "instructions"),
    ("insights", "insights"),
    ("lineage", "earlier versions"),
    ("effects", "measured effects"),
    ("ideas", "strategies thought of"),
    ("notes", "notes"),
)
_LATEST_LAST = ("failures", "ideas", "notes", "lineage")  # of these the oldest goes first, of the others the last
_LEAST_CODE_CHARS = 1000
_FIXED = frozenset({"system", "sections/task", "sections/device", "sections/judging", "sections/forbidden"})
_MOST_KEPT = 2048  # a bench works on many problems at the same time


def render(brief: Brief, limit_chars: int = LIMIT_CHARS) -> Prompt:
    """The prompt for a brief, of at most `limit_chars` characters."""
    system = _rendered("system", brief, 0)
    room = limit_chars - len(system)
    text, stable = "", 0
    for fewer, code_chars in _economies(brief, limit_chars):
        text, stable = _user_text(fewer, brief, code_chars)
        if len(text) <= room:
            break
    else:
        # Still too long because of the contract: cut its middle; the request and the form of the reply are at the end.
        text, stable = clipped(text, max(0, room - 60)), 0
    return Prompt((Message(Role.SYSTEM, system), Message(Role.USER, text, stable)))


def _economies(brief: Brief, limit_chars: int) -> Iterator[tuple[Brief, int]]:
    """Ever shorter versions of a brief, each with the most characters of a kernel."""
    code_chars = max(_LEAST_CODE_CHARS, limit_chars // 3)
    yield brief, code_chars
    for field, _ in _SPARED:
        while getattr(brief, field):
            part = getattr(brief, field)
            brief = replace(brief, **{field: part[1:] if field in _LATEST_LAST else part[:-1]})
            yield brief, code_chars
    while code_chars > _LEAST_CODE_CHARS:
        code_chars = max(_LEAST_CODE_CHARS, code_chars // 2)
        yield brief, code_chars


def _user_text(brief: Brief, whole: Brief, code_chars: int) -> tuple[str, int]:
    """The user message, and how many of its first characters are the same in all prompts of a run."""
    said = [
        f"sections/{name}" for name in SECTIONS if getattr(brief, name, True)
    ]  # most sections are named after a field of the brief
    parts = [_rendered(name, brief, code_chars) for name in said]
    shared = "\n\n".join(part for name, part in zip(said, parts, strict=True) if part and name in _FIXED)
    dropped = [
        f"{len(getattr(whole, field)) - len(getattr(brief, field))} of {len(getattr(whole, field))} {words}"
        for field, words in _SPARED
        if len(getattr(whole, field)) > len(getattr(brief, field))
    ]
    if dropped:
        parts.append(f"(Left out here for length: {', '.join(dropped)}.)")
    parts.append(f"# What is wanted\n\n{_rendered(brief.wording, brief, code_chars)}")
    product = Product.TEXT if brief.move is Move.WRITE else brief.product
    parts.append(_rendered(REPLIES.get(product, "reply"), brief, code_chars))
    text = "\n\n".join(part for part in parts if part) + "\n"
    return text, len(shared) if text.startswith(shared) else 0


_kept: dict[tuple[object, ...], tuple[Problem, str]] = {}
"""Sections of earlier prompts, by what their templates read. An entry keeps its problem alive, whose id is in the key.

The best kernel, the parents and the failures of a run stay the same for several briefs.
"""


def _rendered(name: str, brief: Brief, code_chars: int) -> str:
    """A section of the prompt; one that an earlier prompt had, too, is not rendered again."""
    fields = _fields_read(name)
    if fields is None:
        return _worded(name, brief, code_chars)
    key = (name, id(brief.problem), code_chars, *(getattr(brief, field) for field in fields))
    kept = _kept.get(key)
    if kept is None:
        kept = (brief.problem, _worded(name, brief, code_chars))
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        _kept[key] = kept
    return kept[1]


@cache
def _fields_read(name: str) -> tuple[str, ...] | None:
    """The fields of a brief that decide what a template says; None if they are not known, as for a user's own."""
    if Path(name).is_absolute():
        return None
    tree = _environment().parse(_load(name) or "")
    reads = [each for each in tree.find_all(nodes.Getattr) if _is_brief(each.node)]
    others = sum(map(_is_brief, tree.find_all(nodes.Name))) - len(reads)
    if others or any(tree.find_all((nodes.Include, nodes.Extends, nodes.Import, nodes.FromImport))):
        return None
    return tuple(sorted({each.attr for each in reads}))


def _is_brief(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Name) and node.name == "brief"


def _worded(name: str, brief: Brief, code_chars: int) -> str:
    try:
        text = _template(name).render(_said_by(brief.problem), brief=brief, code_chars=code_chars)
    except TemplateNotFound as missing:
        raise UsageError(f"there is no prompt template {missing.name!r}; check the wording of the operator.") from None
    except TemplateError as wrong:
        line = getattr(wrong, "lineno", None)
        where = f", line {line}," if line else ""
        raise UsageError(f"the prompt template {name!r}{where} cannot be rendered: {wrong}; correct it.") from wrong
    return text.strip()


def _said_by(problem: Problem) -> dict[str, object]:
    """What templates may say of a problem, by name."""
    found = _problems.get(id(problem))
    if found is None:
        if len(_problems) >= _MOST_KEPT:
            _problems.clear()
        found = _problems[id(problem)] = {
            "problem": problem,
            "task": problem.task,
            "contract": problem.contract,
            "language": LANGUAGES.get(problem.backend, problem.backend),
            "facts": facts(problem.arch),
            "precision": PRECISION_RULES[problem.task.precision],
            "ridges": _ridges(problem),
            "tag": _tag(problem),
        }
    return found


_problems: dict[int, dict[str, object]] = {}
"""By the id of a problem, which its entry keeps alive."""


def _ridges(problem: Problem) -> list[tuple[float, str]]:
    """Arithmetic intensities below which memory is the limit, each with the arithmetic it is for."""
    figures, precision = problem.figures, problem.task.precision
    if figures is None or not figures.bandwidth_bytes_s:
        return []
    plain = "fp64" if precision is Precision.FP64 else "fp32"
    rates = dict(figures.flops_s)
    found = [(rates[plain] / figures.bandwidth_bytes_s, f"plain {plain} arithmetic")] if plain in rates else []
    fastest = permitted(figures.flops_s, precision)
    if fastest.type != plain:
        parts = f"{fastest.products:g} {fastest.type} products for each" if fastest.products > 1 else fastest.type
        found.append((fastest.flops_s / figures.bandwidth_bytes_s, f"the fastest products of this class ({parts})"))
    return found


def _tag(problem: Problem) -> str:
    """The label of code blocks in the task's language."""
    if problem.contract.call is not None:
        return "python"
    return "cuda" if problem.backend == "cuda" else "cpp"


def _sources(files: Sequence[SourceFile], limit: int) -> str:
    """Files as code blocks, with their names if there are several."""
    blocks = []
    for file in files:
        shown = code_block(FENCES.get(Path(file.name).suffix, ""), clipped(file.text, limit))
        blocks.append(f"`{file.name}`:\n{shown}" if len(files) > 1 else shown)
    return "\n\n".join(blocks)


class _Sandbox(SandboxedEnvironment):
    """Decides once for each type and name whether a template may read an attribute."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._decided: dict[tuple[type, str], bool] = {}

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        key = (type(obj), attr)
        if key not in self._decided:
            self._decided[key] = super().is_safe_attribute(obj, attr, value)
        return self._decided[key]

    def getattr(self, obj: Any, attribute: str) -> Any:
        """A field of a record is data, which needs no check; `getattr` of the base class checks everything else."""
        if attribute in getattr(type(obj), "__dataclass_fields__", ()) and attribute[0] != "_":
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)


def _template(name: str) -> Template:
    if name not in _templates:
        with _compiling:  # takes long: one thread compiles what all threads of a bench need at its start
            template = _environment().get_template(name)
            template.globals = dict(template.globals)  # read at every rendering, and a ChainMap is slow
            _templates[name] = template
    return _templates[name]


_compiling = threading.Lock()
_templates: dict[str, Template] = {}


@cache
def _environment() -> Environment:
    environment = _Sandbox(
        loader=FunctionLoader(_load),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # prompts are no HTML
        auto_reload=False,  # all prompts of a run have the same wording
    )
    environment.filters.update(
        time=kernel_time,
        times=speedup,
        interval=speedup_interval,
        percent=whole_percent,
        amount=partial(quantity, zeros=True),
        memory=memory_size,
        figure=partial(number, zeros=False),
        clipped=clipped,
        status=_STATUS_WORDS.__getitem__,
        sources=_sources,
        fenced=lambda body, tag="": code_block(tag, body),
        kernel=partial(_said_of, "kernel"),
        described=partial(_said_of, "described"),
        measured=partial(_said_of, "measured"),
    )
    return environment


@lru_cache(maxsize=_MOST_KEPT)
def _said_of(macro: str, shown: ShownCandidate, *limits: int) -> str:
    """A kernel by a macro of `exhibit`. A kernel is shown in many briefs: as the best, as a parent, in a line."""
    return str(getattr(_template("exhibit").module, macro)(shown, *limits))


def _load(name: str) -> str | None:
    """A packaged template by its name, a user's own by its absolute path; with or without the suffix."""
    path = Path(name) if Path(name).is_absolute() else TEMPLATES / name
    for candidate in (path, path.with_name(path.name + SUFFIX)):
        try:
            return candidate.read_text(encoding="utf-8")
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            continue
        except (OSError, ValueError) as fault:
            reason = getattr(fault, "strerror", None) or "it is not UTF-8 text"
            raise UsageError(f"the prompt template {name!r} cannot be read: {reason}; check the file.") from None
    return None


_STATUS_WORDS = {
    Status.OK: "is valid",
    Status.BUILD_ERROR: "did not compile",
    Status.WRONG: "gave a wrong result",
    Status.UNWRITTEN: "left part of an output unwritten",
    Status.OUT_OF_BOUNDS: "touched memory outside its buffers",
    Status.INPUT_MODIFIED: "changed an input",
    Status.LAUNCH_FAILED: "reported an error",
    Status.CRASHED: "crashed",
    Status.TIMED_OUT: "did not come back in time",
    Status.OUT_OF_MEMORY: "asked for too much memory",
    Status.BELOW_FLOOR: "was faster than the hardware allows, so it left work out",
    Status.REJECTED: "broke a rule",
    Status.NOT_JUDGED: "could not be judged",
}


def _three_digits(value: float) -> str:
    """Three significant digits; no trailing zeros below 1."""
    return number(value, zeros=value >= 0.9995, scientific=False)


def kernel_time(value_ms: float) -> str:
    """A run time in µs, ms or s."""
    if value_ms < 0.1:
        return f"{_three_digits(value_ms * 1e3)} µs"
    return f"{_three_digits(value_ms)} ms" if value_ms < 1e3 else f"{_three_digits(value_ms / 1e3)} s"


def speedup(value: float) -> str:
    """A speedup, e.g. "3.42×"."""
    return f"{value:.2f}×" if value >= 0.1 else f"{value:.2g}×"


def speedup_interval(value: Interval) -> str:
    """The interval of a speedup, e.g. "3.21–3.60"."""
    return f"{value.low:.2f}–{value.high:.2f}"


def clipped(text: str, limit: int) -> str:
    """The text; if it is longer than the limit, its beginning and end with the length of the gap."""
    text = text.strip()
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 3, limit // 3
    gap = len(text) - head - tail
    return f"{text[:head].rstrip()}\n[... {gap} characters left out here ...]\n{text[len(text) - tail :].lstrip()}"
