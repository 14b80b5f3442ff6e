"""Reads compiler logs: the errors that help to fix a source, and the resources that `ptxas -v` reports for each kernel.

Errors keep their order, line, source text and caret; notes, instantiation chains, "In file included from" and folders
are dropped. Reads logs of g++, clang++, nvcc (EDG and ptxas) and ld.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field

from warpsmith.model.evaluation import Resources
from warpsmith.system.processes import tool_answer

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_PROPERTIES = re.compile(r"Function properties for '?([^'\s]+)'?")
_STACK = re.compile(r"(\d{1,12}) bytes stack frame, (\d{1,12}) bytes spill stores, (\d{1,12}) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d{1,12}) registers")
_SHARED = re.compile(r"(\d{1,12})(?:\+\d+)? bytes smem")
_FILTER_S = 10.0  # for c++filt

INFO = re.compile(r"^ptxas info|^\s+\d+ bytes stack frame|^nvlink info")
"""Lines of a build log with figures instead of messages."""


def resources(log: str) -> tuple[Resources, ...]:
    """One record per kernel of a build log, in the log's order."""
    found: dict[str, list[int]] = {}  # kernel -> registers, spill, shared, stack
    entry = described = ""
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry = match[1]
            found[entry] = [0, 0, 0, 0]
        elif match := _PROPERTIES.search(line):
            described = match[1]
        elif (match := _STACK.search(line)) and described == entry and entry:
            # Device functions that were not inlined have lines of their own, which do not count.
            found[entry][3] = int(match[1])
            found[entry][1] = int(match[2]) + int(match[3])
        elif (match := _REGISTERS.search(line)) and entry:
            found[entry][0] = int(match[1])
            if shared := _SHARED.search(line):
                found[entry][2] = int(shared[1])
    names = demangled(tuple(found))
    return tuple(
        Resources(name, registers, spill, shared_bytes, stack)
        for name, (registers, spill, shared_bytes, stack) in zip(names, found.values(), strict=True)
    )


def demangled(names: Sequence[str]) -> tuple[str, ...]:
    """Readable names without parameter lists: from c++filt if it is installed, else from `plain_name`."""
    tool = shutil.which("c++filt")
    if names and tool:
        answer = tool_answer([tool, "-p"], limit_s=_FILTER_S, stdin="\n".join(names) + "\n")
        lines = (answer or "").splitlines()
        if len(lines) == len(names):
            return tuple(lines)
    return tuple(plain_name(n) for n in names)


def plain_name(mangled: str) -> str:
    """The function name in an Itanium-mangled name, without template arguments and scopes."""
    if not mangled.startswith("_Z"):
        return mangled
    rest = mangled[2:].lstrip("NLK")
    name = mangled
    while match := re.match(r"\d{1,6}", rest):
        length, start = int(match[0]), match.end()
        name, rest = rest[start : start + length], rest[start + length :]
        if not mangled.startswith("_ZN"):
            break
    return name


MAX_LINES = 15
MAX_CHARS = 2000
MAX_LINE_CHARS = 200
MAX_BODY_LINES = 3
_READ_CHARS = 4000  # of a line: a source can make a compiler print lines of any length
_READ_LINES = 10_000
_READABLE_NAMES = 4  # per message: each needs a process of c++filt

_HEAD = re.compile(
    r"^(?P<file>[^\s:(][^:(]*?)(?::(?P<line>\d+)(?::(?P<col>\d+))?|\((?P<paren>\d+)\))?: "
    r"(?P<severity>fatal error|catastrophic error|internal compiler error|error|warning|note|remark)"
    r"(?: #\d+(?:-D)?)?: (?P<message>.*)$"
)
_PTXAS = re.compile(
    r"^ptxas (?:(?P<file>\S+?), line (?P<line>\d+); )?(?P<severity>error|fatal|warning)\s*: (?P<message>.*)$"
)
_TOOL = re.compile(r"^(?P<tool>nvcc|nvlink) (?P<severity>fatal|error|warning)\s*: (?P<message>.*)$")
_LINK = re.compile(r"(?P<what>undefined reference to|multiple definition of) [`'‘](?P<symbol>[^'’\n]{1,500})['’]")
_NOISE = re.compile(
    r"detected during|instantiation of|required (?:from|by)|Remark: The warnings can be suppressed|^\s*$"
    r"|aborted due to errors|in instantiation"
)
_CLASH = re.compile(r"conflict|ambiguat|overload|linkage|redeclar|different|return type|incompatible")
_FOLDER = re.compile(r"(?<![\w\])/])/[^\s:'\"`(),;<>]+/(?=[^\s/])")


@dataclass
class _Message:
    severity: str
    head: str
    body: list[str] = field(default_factory=list)
    origin: str = ""  # the candidate's line behind an error in a library header

    @property
    def is_error(self) -> bool:
        return "error" in self.severity or self.severity == "fatal"

    def lines(self) -> list[str]:
        origin = [f"{self.origin}: needed here"] if self.origin else []
        return [_cut(self.head), *origin, *(_cut(line) for line in self.body[:MAX_BODY_LINES])]


def errors_of(log: str, *, files: Sequence[str] = (), hints: Sequence[str] = ()) -> str:
    """The errors of a failed build; where none is recognised, the first lines of the log.

    `files` are the candidate's: an error inside a library header is shown with the candidate's line that led there.
    """
    messages = [m for m in _messages(log, files) if m.is_error]
    if not messages:
        lines = (line[:_READ_CHARS] for line in log.splitlines())
        shown = [_cut(_FOLDER.sub("", line)) for line in lines if line.strip() and not INFO.match(line)]
        text = "\n".join(shown[:MAX_LINES])[:MAX_CHARS] or "the compiler failed without a message"
    else:
        text = _join(messages, "errors")
    return "\n".join([text, *hints])


def warnings_of(log: str) -> str:
    """The warnings of a successful build; "" if there are none."""
    return _join([m for m in _messages(log) if m.severity == "warning"], "warnings")


def undefined_symbols(log: str) -> tuple[str, ...]:
    """The names that the linker did not find."""
    return tuple(dict.fromkeys(m["symbol"] for m in _LINK.finditer(log) if m["what"].startswith("undef")))


def clashes_with(log: str, function: str) -> bool:
    """Whether an error reports two different declarations of a function."""
    name = re.compile(rf"\b{re.escape(function)}\b")
    return any(
        m.is_error and _CLASH.search(m.head) and name.search("\n".join([m.head, *m.body])) for m in _messages(log)
    )


def _messages(log: str, files: Sequence[str] = ()) -> list[_Message]:
    found: dict[str, _Message] = {}  # by head: nvcc repeats messages, for the device and the host
    current: _Message | None = None
    last_error: _Message | None = None
    culprit = ""  # the candidate's line behind the next error; g++ prints it before the error, nvcc after
    for raw in log.splitlines()[:_READ_LINES]:
        line = raw[:_READ_CHARS].rstrip()
        if INFO.match(line):
            continue
        started = _start(line)
        origin = _origin(line, files)
        if origin and line[:1].isspace():
            if last_error is not None and not last_error.origin:
                last_error.origin = origin
        elif origin:
            culprit = origin
        elif started is not None:
            current = None
            if started.head not in found:
                current = found[started.head] = started
                started.origin = culprit if started.is_error else ""
                last_error = started if started.is_error else last_error
            if started.is_error:
                culprit = ""
        elif _NOISE.search(line) or not line[:1].isspace():
            # An unindented line ("In function ...", "collect2: ...") ends the source lines of a message.
            if line and not line[0].isspace():
                current = None
        elif current is not None:
            current.body.append(line)
    return list(found.values())


def _start(line: str) -> _Message | None:
    """The message that begins with this line; None if none does."""
    if match := _LINK.search(line):
        return _Message("error", f"link error: {match['what']} `{match['symbol']}`")
    if match := _PTXAS.match(line):
        if _NOISE.search(match["message"]):
            return _Message("note", line)
        where = f" (line {match['line']} of the generated PTX)" if match["line"] else ""
        return _Message(match["severity"], f"ptxas {match['severity']}: {_readable(match['message'])}{where}")
    if match := _TOOL.match(line):
        return _Message(match["severity"], f"{match['tool']} {match['severity']}: {match['message']}")
    if match := _HEAD.match(line):
        name = match["file"].rsplit("/", 1)[-1]
        if name in ("collect2", "ld"):
            return _Message("note", line)
        place = ":".join(p for p in (name, match["line"] or match["paren"], match["col"]) if p)
        return _Message(match["severity"], f"{place}: {match['severity']}: {_FOLDER.sub('', match['message'])}")
    return None


def _origin(line: str, files: Sequence[str]) -> str:
    """The candidate's line at the end of an instantiation chain, e.g. "candidate.cu:12"; else ""."""
    match = re.match(r"(\S+?):(\d+):\d+:\s+required from here", line)
    if match is None:
        match = re.search(r"instantiation of .* at line (?P<line>\d+) of \"?(?P<file>[^\s\"]+)\"?$", line)
        name, number = (match["file"], match["line"]) if match else ("", "")
    else:
        name, number = match[1], match[2]
    plain = name.rsplit("/", 1)[-1]
    return f"{plain}:{number}" if plain in files else ""


def _readable(message: str) -> str:
    return re.sub(r"'(_Z\w+)'", lambda m: f"'{demangled((m[1],))[0]}'", message, count=_READABLE_NAMES)


def _join(messages: list[_Message], noun: str) -> str:
    lines: list[str] = []
    for index, message in enumerate(messages):
        block = message.lines()
        size = sum(len(line) + 1 for line in (*lines, *block))
        if lines and (len(lines) + len(block) > MAX_LINES or size > MAX_CHARS):
            lines.append(f"… and {len(messages) - index} more {noun}")
            break
        lines += block
    return "\n".join(lines)


def _cut(line: str) -> str:
    return line if len(line) <= MAX_LINE_CHARS else line[: MAX_LINE_CHARS - 1] + "…"
