"""Reads replies with strategies and no kernel: several strategies, or the one that a kernel follows.

Accepts headed lines, JSON and lists, inside and outside fences.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from warpsmith.model.brief import StrategyDraft
from warpsmith.prompts.reply_text import STRATEGY_CHARS, THOUGHT_CHARS, cleaned, split, without_thinking

HOW_STRATEGIES = (
    "Answer with one line `strategy: ...` for each strategy, each followed by a line `thought: ...`, and without code."
)
HOW_ALIGNMENT = "Answer with the line `strategy: ...` that says what the code does, and without code."

_MOST_DRAFTS = 40
_HEAD = re.compile(
    r"[ \t>]{0,8}(?:[-*+][ \t]+|\d{1,3}[.)][ \t]+)?[#*_` \t]{0,8}"
    r"(?P<word>strategy|plan|thought|thoughts|rationale|reason|why|name)"
    r"(?:[ \t]+(?:#[ \t]?)?(?:\d{1,3}|[A-Za-z])(?=[*_` \t]*[:.)]))?[*_` \t]{0,6}[:.)][*_` \t]{0,6}(?P<rest>.*)",
    re.IGNORECASE,
)
_ITEM = re.compile(r"[ \t]{0,8}(?:[-*+]|\d{1,3}[.)])[ \t]+(?P<rest>.*)")
_STRATEGY_WORDS = ("strategy", "plan")
_JSON_START = re.compile(r"\[\s*\{|\{\s*\"|\A\s*\[\s*\"")  # prose has brackets, too: "tiles of [64, 64]"
_JSON_STRATEGY = ("strategy", "plan", "description", "optimisations", "optimizations")
_JSON_THOUGHT = ("thought", "thoughts", "rationale", "reason", "why", "explanation")
_JSON_ATTEMPTS = 20
_PARAGRAPH_CHARS = 1000  # of a reply without headings that is taken for a strategy


def read_drafts(text: str, *, cut: bool = False) -> tuple[StrategyDraft, ...]:
    """All strategies in a reply, in order, each once; of a reply that was cut off, without the last."""
    answer, unclosed = without_thinking(cleaned(text))
    for said in (answer, "" if cut else unclosed):
        pieces = (*(block.text for block in split(said).blocks), said)
        found = _tidy(next(filter(None, map(_of_json, pieces)), []) or _headed(said) or _listed(said))
        if found:
            return found[:-1] if cut and len(found) > 1 else () if cut else found
    return ()


def read_strategy(text: str) -> str:
    """The only strategy in a reply, or a single short paragraph; "" without one."""
    found = read_drafts(text)
    if found:
        return found[-1].strategy  # earlier ones are drafts
    answer, _ = without_thinking(cleaned(text))
    parts = split(answer)
    said = [part for part in (*(block.text for block in parts.blocks), "\n".join(parts.prose)) if part.strip()]
    if len(said) == 1 and "\n\n" not in said[0].strip() and len(said[0]) <= _PARAGRAPH_CHARS:
        return _line(said[0], STRATEGY_CHARS)
    return ""


def _headed(text: str) -> list[StrategyDraft]:
    """Lines that begin with "strategy:", each with the thought that follows it."""
    drafts: list[tuple[list[str], list[str]]] = []
    current: list[str] | None = None
    for line in text.split("\n"):
        if line.lstrip().startswith(("```", "~~~")):
            continue
        head = _HEAD.fullmatch(line)
        if head is None:
            if current is not None and line.strip():
                current.append(line)
            elif not line.strip():
                current = None  # a separate paragraph belongs to no strategy
            continue
        if head["word"].lower() in _STRATEGY_WORDS:
            drafts.append(([head["rest"]], []))
            current = drafts[-1][0]
        elif head["word"].lower() == "name" or not drafts:
            current = None
        else:
            drafts[-1][1].append(head["rest"])
            current = drafts[-1][1]
    return [StrategyDraft(" ".join(strategy), " ".join(thought)) for strategy, thought in drafts]


def _listed(text: str) -> list[StrategyDraft]:
    """The items of a list, each a strategy, for replies without headed lines."""
    items = [found["rest"] for line in text.split("\n") if (found := _ITEM.fullmatch(line))]
    return [StrategyDraft(item) for item in items]


def _of_json(text: str) -> list[StrategyDraft]:
    """The strategies in the first JSON that has any, as objects or as a list of strings."""
    position = 0
    for _ in range(_JSON_ATTEMPTS):
        start = _JSON_START.search(text, position)
        if start is None:
            break
        try:
            value, _ = json.JSONDecoder(strict=False).raw_decode(text, text.index(start[0].lstrip()[0], start.start()))
        except (ValueError, RecursionError):
            position = start.end()
            continue
        found = list(_drafts(value))
        if found:
            return found
        position = start.end()
    return []


def _drafts(value: object) -> Iterator[StrategyDraft]:
    if isinstance(value, list):
        for item in value:
            if isinstance(item, str):
                yield StrategyDraft(item)
            else:
                yield from _drafts(item)
    elif isinstance(value, dict):
        words = {str(key).lower(): item for key, item in value.items()}
        strategy = next((said for key in _JSON_STRATEGY if (said := _text(words.get(key)))), "")
        if strategy:
            yield StrategyDraft(strategy, next((said for key in _JSON_THOUGHT if (said := _text(words.get(key)))), ""))
        else:
            yield from (draft for item in words.values() if isinstance(item, list | dict) for draft in _drafts(item))


def _text(value: object) -> str:
    if isinstance(value, list):
        return " + ".join(str(item) for item in value)
    return value if isinstance(value, str) else ""


def _tidy(drafts: list[StrategyDraft]) -> tuple[StrategyDraft, ...]:
    """Strategies on one line each and of bounded length, without empty and repeated ones."""
    found: dict[str, StrategyDraft] = {}
    for draft in drafts:
        strategy = _line(draft.strategy, STRATEGY_CHARS)
        if any(character.isalnum() for character in strategy):
            found.setdefault(strategy, StrategyDraft(strategy, _line(draft.thought, THOUGHT_CHARS)))
    return tuple(found.values())[:_MOST_DRAFTS]


def _line(text: str, limit: int) -> str:
    return " ".join(text.replace("\0", "").split()).strip("*_`\"' ")[:limit].strip()
