"""What the documentation's site has besides docs/: other Markdown files of the repository, the reference, linked files.

Links in the repository are relative to the file that they are in, as a forge follows them. On the site, Markdown files
outside docs/ have the addresses of `PAGES`, and every other linked file is a text file under `files`.
"""

from __future__ import annotations

import linecache
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "records.md",
}
REFERENCE = {
    "Searching": (
        "optimize",
        "Run",
        "Result",
        "BestKernel",
        "TrialResult",
        "RunOptions",
        "api.TaskLike",
        "api.KernelLike",
    ),
    "Judging": (
        "evaluate",
        "evaluate_all",
        "verify",
        "Evaluator",
        "Client",
        "model.evaluation.Evaluation",
        "model.evaluation.Status",
        "model.evaluation.Interval",
        "model.certificate.Certificate",
    ),
    "Training a model": ("rewards.KernelReward", "rewards.RewardScale", "rewards.ScoredCompletion"),
    "Using a kernel": ("load", "runtime.operator.Operator", "runtime.operator.CallStats"),
    "Declaring a task": (
        "task",
        "normal",
        "uniform",
        "integers",
        "booleans",
        "probabilities",
        "custom",
        "scalar",
        "listed",
    ),
    "Errors": ("WarpsmithError",),
}
"""The names of the reference, below `warpsmith`: the public ones, and what their functions return."""

_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)|(?<= (?:src)=\")(?![a-z]+:)([^\"#]+)")
_FENCE = re.compile(r"^( *```.*?^ *```)", re.MULTILINE | re.DOTALL)


def reference() -> str:
    """The page of the reference, for mkdocstrings to fill in."""
    parts = [
        "# Reference",
        "What `import warpsmith` offers, from the docstrings. [The Python API](python.md) explains.",
    ]
    for title, names in REFERENCE.items():
        parts.extend([f"## {title}", *(f"::: warpsmith.{name}" for name in names)])
    return "\n\n".join(parts)


def prose(text: str) -> Iterator[tuple[bool, str]]:
    """The parts of a page, each with whether it is running text or a fenced block."""
    for number, part in enumerate(_FENCE.split(text)):
        yield number % 2 == 0, part


def source_of(address: str) -> str:
    """The file in the repository behind a page of the site."""
    return next((file for file, page in PAGES.items() if page == address), f"docs/{address}")


def address_of(file: str) -> str:
    """The address on the site of a file in the repository."""
    if file in PAGES:
        return PAGES[file]
    return file.removeprefix("docs/") if file.startswith("docs/") else f"files/{file}.txt"


def linked(file: str, text: str) -> Iterator[str]:
    """The files of the repository that a page links to."""
    for running, part in prose(text):
        for match in _LINK.finditer(part) if running else ():
            yield posixpath.normpath(posixpath.join(posixpath.dirname(file), match[0]))


def for_the_site(file: str, text: str) -> str:
    """A page with its links as the site has them."""
    here = posixpath.dirname(address_of(file)) or "."

    def readdress(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(file), match[0]))
        return posixpath.relpath(address_of(target), here)

    return "".join(_LINK.sub(readdress, part) if running else part for running, part in prose(text))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/, and the files that pages link to."""
    for file, address in PAGES.items():
        files.append(File.generated(config, address, content=(ROOT / file).read_text(encoding="utf-8")))
    files.append(File.generated(config, "reference.md", content=reference()))
    wanted = {
        target
        for each in files.documentation_pages()
        for target in linked(source_of(each.src_uri), each.content_string)
        if not target.startswith("docs/") and target not in PAGES
    }
    for target in sorted(wanted):
        if (ROOT / target).is_file():  # a link to what does not exist is left to the strict build
            content = (ROOT / target).read_text(encoding="utf-8")
            files.append(File.generated(config, address_of(target), content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Give links the addresses of the site."""
    return for_the_site(source_of(page.file.src_uri), markdown)


class FieldTables(griffe.Extension):
    """Makes a table of the fields of a class; the comment behind a field describes it."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Called for each class of the package, when its members are known."""
        lines = []
        for name, field in list(cls.attributes.items()):
            if name.startswith("_") or "property" in field.labels:
                continue
            line = linecache.getline(str(cls.filepath), field.lineno or 1)
            said = field.docstring.value if field.docstring else line.partition("  # ")[2]
            lines.append(f"    {name} ({field.annotation or 'str'}): {' '.join(said.split())}")
            cls.del_member(name)
        if lines and cls.docstring:
            cls.docstring.value += "\n\nAttributes:\n" + "\n".join(lines)
