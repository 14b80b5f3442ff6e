"""What agents can look up: how-to cards of strategies, the device library, records of the pool."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from warpsmith.backends.library import LIBRARY
from warpsmith.model.errors import UsageError
from warpsmith.model.strategy import Strategy
from warpsmith.strategies.catalogue import strategies
from warpsmith.strategies.pool import PoolRecord, pool_records, shipped_records


@dataclass(frozen=True)
class KnowledgeEntry:
    """One entry that a search finds."""

    kind: str  # "strategy", "header" or "pool"
    name: str
    title: str
    text: str  # the whole entry
    backends: tuple[str, ...]


def strategy_card(name: str) -> str:
    """How to carry out a strategy, as Markdown."""
    known = strategies()
    if name not in known:
        raise UsageError(f"there is no strategy {name}; search_knowledge finds the names.")
    return card(known[name])


def library_page(backend: str = "") -> str:
    """What each header of the device library offers, in its own words; only the headers for a backend."""
    lines = [
        "# The device library",
        "",
        "A kernel may include these headers as `<warpsmith/NAME>`: `.cuh` in CUDA, `cpu/*.h` in C++.",
        "",
    ]
    for name, path in headers(backend).items():
        lines += [f"## {name}", "", _about(path), ""]
    return "\n".join(lines)


def library_header(name: str) -> str:
    """The text of a header of the device library."""
    found = headers()
    if name not in found:
        raise UsageError(f"there is no header {name}; the headers are {', '.join(found)}.")
    return found[name].read_text(encoding="utf-8")


def search_entries(words: str, kind: str, backend: str, limit: int) -> list[KnowledgeEntry]:
    """The entries with most of the words, those with a word in the title first; all of them where no word is given."""
    wanted = words.lower().split()
    scored = []
    for entry in _entries():
        if (kind and entry.kind != kind) or (backend and backend not in entry.backends):
            continue
        title, text = f"{entry.name} {entry.title}".lower(), entry.text.lower()
        score = sum((word in title) * 3 + (word in text) for word in wanted)
        if score or not wanted:
            scored.append((score, entry))
    scored.sort(key=lambda each: -each[0])
    return [entry for _, entry in scored[:limit]]


def _entries() -> Iterator[KnowledgeEntry]:
    for each in strategies().values():
        yield KnowledgeEntry("strategy", each.name, each.title, card(each), each.backends)
    for name, path in headers().items():
        backend = "cuda" if path.suffix == ".cuh" else "cpu"
        yield KnowledgeEntry("header", name, _about(path).partition(".")[0], path.read_text("utf-8"), (backend,))
    for record in (*pool_records(), *shipped_records()):
        yield KnowledgeEntry(
            "pool", record.key, f"{record.task}: {record.strategy}", record_text(record), (record.backend,)
        )


def record_text(record: PoolRecord) -> str:
    """A record of the pool with its kernel."""
    measured = f"{record.speedup:.2f}x PyTorch eager on {record.device}" if record.speedup else "no speedup is known"
    files = [f"```\n{file.text.rstrip()}\n```" for file in record.kernel]
    return "\n\n".join([f"{record.task}: {record.strategy}", f"{measured}. {record.note}".strip(), *files])


def card(strategy: Strategy) -> str:
    """How to carry out a strategy, as Markdown."""
    limits = [
        ("Backends", strategy.backends),
        ("Zones", strategy.zones),
        ("Families", strategy.families),
        ("Needs", strategy.needs),
        ("Excludes", strategy.excludes),
        ("Parameters", tuple(f"{p.name}: {', '.join(p.values)}" for p in strategy.parameters)),
    ]
    facts = [f"- {name}: {', '.join(values)}" for name, values in limits if values]
    parts = [f"# {strategy.name}: {strategy.title}", strategy.advice, f"Effect: {strategy.effect}", "\n".join(facts)]
    return "\n\n".join([*parts, *([f"```cpp\n{strategy.example.strip()}\n```"] if strategy.example else [])])


def headers(backend: str = "") -> dict[str, Path]:
    """The headers by the name that follows `warpsmith/` in an include; only those for a backend."""
    folder = LIBRARY / "warpsmith"
    wanted = [pattern for name, pattern in (("cuda", "*.cuh"), ("cpu", "cpu/*.h")) if backend in ("", name)]
    found = sorted(path for pattern in wanted for path in folder.glob(pattern))
    return {path.relative_to(folder).as_posix(): path for path in found}


def _about(path: Path) -> str:
    """The comment at the top of a header."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("//"):
            break
        lines.append(line.removeprefix("//").strip())
    return "\n".join(lines).strip()
