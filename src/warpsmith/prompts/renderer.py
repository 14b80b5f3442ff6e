"""From a brief to the prompt: a system message, and one user message made of sections.

Which sections there are follows from what the brief carries; how each is worded lies in `templates/`. Nothing is
decided here but what to leave out where a prompt would grow too long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from jinja2 import Environment, FunctionLoader, StrictUndefined, TemplateNotFound
from jinja2.exceptions import TemplateError

from warpsmith.backends.wording import PRECISION_RULES, code
from warpsmith.core.candidate import SourceFile
from warpsmith.core.errors import UsageError
from warpsmith.core.method import Move, Product
from warpsmith.core.search import Brief, Message, Problem, Prompt, Role
from warpsmith.prompts import figures
from warpsmith.prompts.architectures import facts

LIMIT_CHARS = 120_000
"""Of the whole prompt, about 30,000 tokens: what models of a usual context still read with care."""

TEMPLATES = Path(__file__).parent / "templates"
SUFFIX = ".j2"
SECTIONS = (
    *("task", "device", "forbidden", "notes", "roofline", "best", "parents", "subject", "failure"),
    *("insights", "failures", "retrieved", "precedents", "strategies", "ideas", "effects", "idea"),
)
REPLIES = {Product.STRATEGIES: "reply_strategies", Product.ALIGNMENT: "reply_alignment", Product.TEXT: "reply_text"}
"""How the form of an answer is worded; any other product is a kernel."""
LANGUAGES = {
    "cuda": "CUDA C++",
    "cpu": "C++17 with OpenMP",
    "triton": "Triton",
    "torch_module": "PyTorch and its C++ and CUDA extensions",
}
FENCES = {".cu": "cuda", ".cpp": "cpp", ".py": "python"}

# What is given up first where a prompt is too long, the least important first; notes hold what a translation starts
# from, and best, parents and failure are what the request is about.
_SPARED = (
    ("retrieved", "similar kernels"),
    ("precedents", "precedents"),
    ("failures", "earlier failures"),
    ("strategies", "strategies"),
    ("insights", "insights"),
    ("effects", "measured effects"),
    ("ideas", "strategies thought of"),
    ("notes", "notes"),
)
_LEAST_CODE_CHARS = 1000
_FIXED = frozenset({"system", "sections/task", "sections/device", "sections/forbidden"})
_MOST_KEPT = 64


def render(brief: Brief, limit_chars: int = LIMIT_CHARS) -> Prompt:
    """The prompt for a brief, of at most `limit_chars` characters."""
    system = _rendered("system", brief, 0)
    room = limit_chars - len(system)
    text = ""
    for fewer, code_chars in _economies(brief, limit_chars):
        text = _user_text(fewer, brief, code_chars)
        if len(text) <= room:
            break
    else:
        # A contract of enormous size: its end, the request and the form of the reply matter most.
        text = figures.clipped(text, max(0, room - 60))
    return Prompt((Message(Role.SYSTEM, system), Message(Role.USER, text)))


def _economies(brief: Brief, limit_chars: int) -> Iterator[tuple[Brief, int]]:
    """The brief and the length that its kernels may have, more and more frugal."""
    code_chars = max(_LEAST_CODE_CHARS, limit_chars // 3)
    yield brief, code_chars
    for field, _ in _SPARED:
        while getattr(brief, field):
            brief = replace(brief, **{field: getattr(brief, field)[:-1]})
            yield brief, code_chars
    while code_chars > _LEAST_CODE_CHARS:
        code_chars = max(_LEAST_CODE_CHARS, code_chars // 2)
        yield brief, code_chars


def _user_text(brief: Brief, whole: Brief, code_chars: int) -> str:
    said = (name for name in SECTIONS if getattr(brief, name, True))  # most are named after what they show
    parts = [_rendered(f"sections/{name}", brief, code_chars) for name in said]
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
    return "\n\n".join(part for part in parts if part) + "\n"


_kept: dict[tuple[str, int, Product, Move], tuple[Problem, str]] = {}
"""What says the same in all briefs of a run, by the identity of its problem, which is held so that it stays its own."""


def _rendered(name: str, brief: Brief, code_chars: int) -> str:
    if name not in _FIXED:
        return _worded(name, brief, code_chars)
    key = (name, id(brief.problem), brief.product, brief.move)
    if key not in _kept:
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        _kept[key] = (brief.problem, _worded(name, brief, code_chars))
    return _kept[key][1]


def _worded(name: str, brief: Brief, code_chars: int) -> str:
    problem = brief.problem
    try:
        text = (
            _environment()
            .get_template(name)
            .render(
                brief=brief,
                problem=problem,
                task=problem.task,
                contract=problem.contract,
                language=LANGUAGES.get(problem.backend, problem.backend),
                facts=facts(problem.arch),
                precision=PRECISION_RULES[problem.task.precision],
                tag=_tag(brief),
                code_chars=code_chars,
            )
        )
    except TemplateNotFound as missing:
        raise UsageError(f"there is no prompt template {missing.name!r}; check the operator's wording.") from None
    except TemplateError as wrong:
        line = getattr(wrong, "lineno", None)
        where = f", line {line}," if line else ""
        raise UsageError(f"the prompt template {name!r}{where} cannot be rendered: {wrong}; mend it.") from wrong
    return text.strip()


def _tag(brief: Brief) -> str:
    """The label of fenced code in the task's language."""
    if brief.problem.contract.call is not None:
        return "python"
    return "cuda" if brief.problem.backend == "cuda" else "cpp"


def _sources(files: Sequence[SourceFile], limit: int) -> str:
    """Files as fenced blocks; several are told apart by their names."""
    blocks = []
    for file in files:
        shown = code(FENCES.get(Path(file.name).suffix, ""), figures.clipped(file.text, limit))
        blocks.append(f"`{file.name}`:\n{shown}" if len(files) > 1 else shown)
    return "\n\n".join(blocks)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(_load),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # a prompt is text, not HTML
        auto_reload=False,  # one wording for a whole run
    )
    environment.filters.update(
        time=figures.time,
        times=figures.times,
        interval=figures.interval,
        percent=figures.percent,
        amount=figures.amount,
        clipped=figures.clipped,
        status=figures.STATUS_WORDS.__getitem__,
        sources=_sources,
        fenced=lambda body, tag="": code(tag, body),
    )
    return environment


def _load(name: str) -> str | None:
    """A template of ours by its name, a user's own by its absolute path; with or without the ending."""
    path = Path(name) if Path(name).is_absolute() else TEMPLATES / name
    for candidate in (path, path.with_name(path.name + SUFFIX)):
        try:
            return candidate.read_text(encoding="utf-8")
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            continue
        except (OSError, ValueError) as fault:
            reason = getattr(fault, "strerror", None) or "it is not UTF-8 text"
            raise UsageError(f"the prompt template {name!r} cannot be read: {reason}.") from None
    return None
