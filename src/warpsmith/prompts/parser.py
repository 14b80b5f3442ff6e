"""Parses a reply into a proposal: finds the program in the answer of a model, an agent or a person.

Only this module interprets replies. A reply without a program becomes a failure that tells its author how to answer.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from warpsmith.backends.source import MAX_SOURCE_BYTES, backend_named
from warpsmith.model.brief import Brief, Proposal, Reply, ShownCandidate
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.contract import Contract
from warpsmith.model.method import Move, Product
from warpsmith.prompts import programs
from warpsmith.prompts.edits import (
    Edit,
    EditFailed,
    diff_edits,
    edited,
    has_search_replace,
    looks_like_diff,
    new_file,
    search_replace_edits,
)
from warpsmith.prompts.json_replies import read_object
from warpsmith.prompts.launches import completed
from warpsmith.prompts.reply_text import (
    Block,
    Fields,
    Parts,
    cleaned,
    field_of,
    fields_in,
    split,
    tidy,
    without_thinking,
)
from warpsmith.prompts.strategy_replies import HOW_ALIGNMENT, HOW_STRATEGIES, read_drafts, read_strategy

LONGEST_REPLY_CHARS = MAX_SOURCE_BYTES
LONGEST_TEXT_CHARS = 60_000
HOW = (
    "Answer with the lines `name:`, `strategy:`, `thought:` and `code:`, then one fenced block that holds the complete "
    "file."
)
CUT_OFF = (
    "The reply was cut off before its code came to an end. Answer more briefly: one sentence of thought, then the "
    "complete file in one fenced block."
)
_FIELD_COMMENT = re.compile(r"[ \t]*(?://|#)[ \t]*(name|strategy|thought)[ \t]*:(.*)", re.IGNORECASE)
_COMMENT_LINES = 20  # of a file, in which name, strategy and thought are searched
_WORDS = ("name", "strategy", "thought")
_EXTENSION = re.compile(r"\bPYBIND11_MODULE\b|\bTORCH_LIBRARY\b|\b(?:torch|at)::Tensor\b")


_NO_FIELDS = Fields()


@dataclass(frozen=True)
class _Reading:
    """The files found in a reply, or the reason why there are none."""

    files: tuple[SourceFile, ...] = ()
    failure: str = ""
    fields: Fields = _NO_FIELDS


def parse(reply: Reply, brief: Brief) -> Proposal:
    """The proposal in a reply."""
    if len(reply.text) > LONGEST_REPLY_CHARS:
        how = {Product.STRATEGIES: HOW_STRATEGIES, Product.ALIGNMENT: HOW_ALIGNMENT}.get(brief.product, HOW)
        failure = f"The reply has {len(reply.text)} characters, more than {LONGEST_REPLY_CHARS}. {how}"
        return Proposal(reply, failure=failure)
    if brief.product is Product.STRATEGIES:
        return _strategies(reply, brief.wanted)
    if brief.product is Product.ALIGNMENT:
        return _alignment(reply)
    if brief.move is Move.WRITE or brief.product is Product.TEXT:
        return _written(reply)
    reading = _file_itself(reply, brief) if reply.file else _read(reply, brief)
    failure = reading.failure or _unfit(reading.files)
    if failure:
        return Proposal(reply, failure=failure, name=reading.fields.name)
    candidate = Candidate(
        files=reading.files,
        backend=brief.problem.backend,
        parents=tuple(dict.fromkeys(shown.id for shown in _shown(brief) if shown.id)),
        operator=brief.operator,
        thought=reading.fields.thought,
        strategy=reading.fields.strategy,
    )
    return Proposal(reply, candidate=candidate, name=reading.fields.name)


def _shown(brief: Brief) -> tuple[ShownCandidate, ...]:
    """The kernels of a brief that a reply may edit, the most likely first."""
    return tuple(each for each in (brief.failure, *brief.parents, brief.best) if each is not None)


def _unfit(files: Sequence[SourceFile]) -> str:
    """Why no backend accepts these files; "" if nothing is wrong."""
    if not any(file.text.strip() for file in files):
        return f"The code is empty. {HOW}"
    if any("\0" in file.text for file in files):
        return f"The code holds a NUL character, which no source may. {HOW}"
    if sum(len(file.text.encode()) for file in files) > MAX_SOURCE_BYTES:
        return f"The code is longer than {MAX_SOURCE_BYTES} bytes. Write a shorter program."
    return ""


def _strategies(reply: Reply, wanted: int) -> Proposal:
    """The proposal in a reply with strategies, of which at most `wanted` are used."""
    cut = reply.finish == "length"
    drafts = read_drafts(reply.text, cut=cut)[: wanted or None]
    if drafts:
        return Proposal(reply, drafts=drafts)
    why = "The reply was cut off before a strategy came to its end." if cut else "The reply holds no strategy."
    return Proposal(reply, failure=f"{why} {HOW_STRATEGIES}")


def _alignment(reply: Reply) -> Proposal:
    """The proposal in a reply that says which strategy a kernel follows."""
    text = read_strategy(reply.text) if reply.finish != "length" else ""
    if text:
        return Proposal(reply, text=text)
    return Proposal(reply, failure=f"The reply does not say which strategy the code follows. {HOW_ALIGNMENT}")


def _written(reply: Reply) -> Proposal:
    """The proposal in a reply with a text: the content of the only fenced block, else the whole reply."""
    answer, unclosed = without_thinking(cleaned(reply.text))
    if not answer.strip() and reply.finish != "length":
        answer = unclosed
    parts = split(answer)
    if reply.finish == "length" and (not parts.blocks or not parts.blocks[-1].closed):
        return Proposal(reply, failure="The text was cut off before its end. Write a shorter one.")
    text = (parts.blocks[0].text if len(parts.blocks) == 1 else answer).strip().replace("\0", "")
    if not text:
        return Proposal(reply, failure="The reply is empty. Answer with what is asked for, in one fenced block.")
    if len(text) > LONGEST_TEXT_CHARS:
        return Proposal(reply, failure=f"The text is longer than {LONGEST_TEXT_CHARS} characters. Write a shorter one.")
    return Proposal(reply, text=text)


def _file_itself(reply: Reply, brief: Brief) -> _Reading:
    """A reply that is a source file; its first comments may have the fields name, strategy and thought."""
    endings = backend_named(brief.problem.backend).suffixes
    name = re.sub(r"[^A-Za-z0-9_.+-]", "_", Path(reply.file).name).lstrip("-.+")[-100:]
    if not name.endswith(endings):
        wanted = " or ".join(endings)
        return _Reading(failure=f"{reply.file!r} is no file for this run, whose kernels end in {wanted}: rename it.")
    text = cleaned(reply.text)
    return _Reading((SourceFile(name, text),), fields=_commented(text))


def _commented(code: str, shown: Iterable[SourceFile] = ()) -> Fields:
    """The fields in the first comments of a program, without comments that it has from `shown` programs."""
    known = {line.strip() for file in shown for line in file.text.split("\n")}
    found: dict[str, str] = {}
    for line in code.split("\n", _COMMENT_LINES)[:_COMMENT_LINES]:
        comment = _FIELD_COMMENT.fullmatch(line)
        if comment is not None and line.strip() not in known:
            found.setdefault(comment[1].lower(), comment[2])
    return tidy(*(found.get(word, "") for word in _WORDS))


def _read(reply: Reply, brief: Brief) -> _Reading:
    """The program in an answer; text after an unclosed thinking tag is used only if there is no other program."""
    answer, unclosed = without_thinking(cleaned(reply.text))
    cut = reply.finish == "length"
    reading = _answer(answer, brief, cut)
    if reading.failure and unclosed:
        if cut:
            return replace(reading, failure=f"The reply ended while it was still thinking. {CUT_OFF}")
        second = _answer(unclosed, brief, cut)
        return second if not second.failure else reading if answer.strip() else second
    return reading


def _answer(text: str, brief: Brief, cut: bool) -> _Reading:
    contract = brief.problem.contract
    parts = split(text)
    found, fields = _programs(text, parts, contract)
    code = _chosen(found, brief, cut)
    if code:
        suffix = backend_named(brief.problem.backend).suffixes[0]
        own = _commented(code if parts.blocks else text, (file for each in _shown(brief) for file in each.files))
        fields = Fields(*(getattr(fields, word) or getattr(own, word) for word in _WORDS))
        return _Reading((SourceFile(f"kernel{suffix}", _as_file(code)),), fields=fields)
    try:
        edits = _edits(text, parts)
        if edits and not cut:
            return _Reading(_changed(edits, brief), fields=fields)
    except EditFailed as failed:
        return _Reading(failure=f"{failed} Write the complete file instead. {HOW}", fields=fields)
    return _Reading(failure=_why_not(text, found, contract, cut), fields=fields)


def _programs(text: str, parts: Parts, contract: Contract) -> tuple[list[Block], Fields]:
    """All blocks that may be programs, in the order of the reply, and the fields of the reply."""
    prose = list(parts.prose) if parts.blocks else []
    words: dict[str, str] = {}
    found: list[Block] = []
    for block in parts.blocks or (Block("", text, closed=False),):
        meant = read_object(block.text, anywhere=not parts.blocks and contract.call is None)
        if meant is not None:
            words = meant.words
            found += [Block("", _inner(code), meant.complete) for code in meant.codes]
        elif not parts.blocks or any(_heads(line, contract, "code") for line in block.text.split("\n")):
            code, around = _unfenced(block, contract)
            found.append(code)
            prose += around
        elif looks_like_diff(block.text, block.label):
            found.append(Block("", new_file(block.text), block.closed))
        elif not has_search_replace(block.text):
            code, after = (block, []) if block.closed else _ended(block, contract)
            found.append(code)
            prose += after
    fields = fields_in(prose)
    fields = tidy(*(words.get(word) or getattr(fields, word) for word in _WORDS))
    return [block for block in found if block.text.strip()], fields


def _inner(code: str) -> str:
    """The code of a JSON field, without a fence around it."""
    blocks = split(code).blocks
    return blocks[0].text if len(blocks) == 1 else code


def _unfenced(block: Block, contract: Contract) -> tuple[Block, list[str]]:
    """The code in a text without fences, and the lines before and after it."""
    lines = block.text.split("\n")
    heads = [number for number, line in enumerate(lines) if _heads(line, contract, "code")]
    start = heads[-1] + 1 if heads else programs.first_line(lines, contract)
    if start is None:
        return Block("", ""), lines
    behind = next((number for number in range(start, len(lines)) if _heads(lines[number], contract, *_WORDS)), None)
    section = textwrap.dedent("\n".join(lines[start:behind])).split("\n")
    offset = programs.first_line(section, contract)
    if offset is None:
        return Block("", ""), lines
    count = programs.without_tail(section[offset:], contract)
    code = Block("", "\n".join(section[offset : offset + count]), closed=block.closed or behind is not None)
    return code, lines[: start + offset] + lines[start + offset + count :]


def _ended(block: Block, contract: Contract) -> tuple[Block, list[str]]:
    """A block whose fence was never closed, cut at the first field after its code, and the lines from that field on."""
    lines = block.text.split("\n")
    behind = next((number for number, line in enumerate(lines) if _heads(line, contract, *_WORDS)), None)
    if behind is None:
        return block, []
    return Block(block.label, "\n".join(lines[:behind]).strip("\n"), closed=True), lines[behind:]


def _heads(line: str, contract: Contract, *words: str) -> bool:
    """Whether a line begins one of these fields; indented lines and Python comments are code."""
    if line.startswith((" ", "\t") if contract.call is None else (" ", "\t", "#")):
        return False
    found = field_of(line)
    return found is not None and found[0] in words


def _chosen(found: Sequence[Block], brief: Brief, cut: bool) -> str:
    """The last complete program with the entry point, joined with the blocks that it needs; "" for none."""
    contract = brief.problem.contract
    entries: list[Block] = []
    others: list[str] = []
    for block in found:
        if programs.defines(_as_file(block.text), contract) and not _foreign(block, contract):
            entries.append(block)
        else:
            others.append(block.text)
    whole = [b for b in entries if (b.closed or not cut) and programs.complete(_as_file(b.text), contract)]
    if whole:
        # A quoted kernel of the brief is the answer only if the reply has no other.
        shown = {_bare(file.text) for each in _shown(brief) for file in each.files}
        block = next((each for each in reversed(whole) if _bare(each.text) not in shown), whole[-1])
        lines = block.text.split("\n")
        text = block.text if block.closed else "\n".join(lines[: programs.without_tail(lines, contract)])
        return _mended(programs.joined(text, others, contract), contract)
    # A program in a closed fence with a missing bracket was not cut off; the compiler will report the error.
    closed = [block for block in entries if block.closed]
    return _mended(closed[-1].text, contract) if closed and not cut else ""


def _as_file(code: str) -> str:
    """A program as it is stored. Its words are read in this form alone, so that they are read once."""
    return code.strip("\n") + "\n"


def _mended(code: str, contract: Contract) -> str:
    """A C++ program with the words that it lacks to compile, where only one thing can be meant."""
    if contract.call is not None:
        return code
    code = programs.with_array_reductions(programs.with_optional_includes(code))
    return completed(programs.declared_first(code)) if contract.backend == "cuda" else code


def _foreign(block: Block, contract: Contract) -> bool:
    """Whether a block is labelled Python while C++ is wanted: it may contain C++ in a string."""
    return contract.call is None and block.label in ("python", "py")


def _bare(text: str) -> str:
    return "".join(text.split())


def _edits(text: str, parts: Parts) -> tuple[Edit, ...]:
    found = search_replace_edits(text)
    if found:
        return found
    diffs = [block for block in parts.blocks if looks_like_diff(block.text, block.label)]
    if not parts.blocks and looks_like_diff(text):
        diffs = [Block("diff", text)]
    if any(not block.closed for block in diffs):
        raise EditFailed("The diff has no end.")
    return tuple(edit for block in diffs for edit in diff_edits(block.text))


def _changed(edits: tuple[Edit, ...], brief: Brief) -> tuple[SourceFile, ...]:
    """The first kernel of the brief to which all edits apply, after the edits."""
    bases = [shown for shown in _shown(brief) if shown.id and shown.files]
    if not bases:
        raise EditFailed("The reply edits a kernel, but the prompt shows none.")
    failures: list[EditFailed] = []
    for base in bases:
        try:
            main = base.files[0]
            text = edited(main.text, edits, indented=brief.problem.contract.call is not None)
            return (SourceFile(main.name, text), *base.files[1:])
        except EditFailed as failed:
            failures.append(failed)
    raise failures[0]


def _why_not(text: str, found: Sequence[Block], contract: Contract, cut: bool) -> str:
    """The reason why no program was found, and how to answer instead."""
    if not text.strip():
        return f"The reply is empty. {HOW}"
    if cut or (found and not found[-1].closed and not programs.complete(found[-1].text, contract)):
        return CUT_OFF
    wanted = f"`{programs.declaration(contract)}`"
    code = "\n".join(block.text for block in found)
    native = contract.call is None
    if native and _EXTENSION.search(code):
        return f"The code is a torch extension. Define {wanted} instead, with plain pointers and without PyTorch. {HOW}"
    if native and programs.is_python(code) and not programs.is_native(code):
        return f"The code is Python. Write C++ that defines {wanted}. {HOW}"
    if not native and programs.is_native(code) and not programs.is_python(code):
        return f"The code is C++. Write Python that defines {wanted}. {HOW}"
    if native and (other := programs.with_the_parameters(code, contract)):
        return f"The code defines `{other}` with the right parameters; call it `{contract.entry}`: {wanted}. {HOW}"
    if programs.is_native(code) or programs.is_python(code):
        return f"The code does not define {wanted}. Define it in the same file. {HOW}"
    return f"The reply holds no code. {HOW}"
