"""One source from the sources of several parts.

Each part keeps its text, in a namespace of its own. Its tunable macros get the number of the part. A macro that a
header of the device library reads has the value that it would have if the part were alone: between parts such macros
are taken back, and two parts that include the same header must agree on the macros that the header reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from warpsmith.backends import cpu, cuda
from warpsmith.backends.library import LIBRARY, library_headers
from warpsmith.backends.tunables import Tunable, tunables
from warpsmith.kernel_templates.part_tasks import Chain, Part, operator
from warpsmith.kernels.form_task import declared
from warpsmith.model.contract import Argument, ArgumentKind, Contract
from warpsmith.model.task import DTYPE_BYTES, Dim, Outline

_INCLUDE = re.compile(r"^#include <(.+)>.*\n?", re.MULTILINE)
_GUARDED = re.compile(r"^#if [^\n]*\n#include <.+>\n#endif\n", re.MULTILINE)
_DEFAULT = re.compile(r"^#ifndef (\w+)\n#define \1 .*\n#endif[^\n]*\n?", re.MULTILINE)
_DEFINE = re.compile(r"^#define (\w+)(?:[ \t]+(.*?))?[ \t]*(?://.*)?$", re.MULTILINE)
_TUNE = re.compile(r"^[ \t]*//[ \t]*tune:.*\n?", re.MULTILINE)
_ENTRY = re.compile(r'extern "C" (?=int launch\(|int64_t workspace_bytes\()')
_NOT_IN_A_NAMESPACE = re.compile(r'extern "C"|^namespace warpsmith\b|\btask::', re.MULTILINE)
_BLANK = re.compile(r"\n{3,}")
_SAME_RESULTS = frozenset(("TUNE_LOAD", "TUNE_STORE"))
"""Macros that choose how memory is cached: parts may disagree on them, the first one decides."""


_TENSORS = (ArgumentKind.INPUT, ArgumentKind.OUTPUT)


class CannotCombine(Exception):
    """Two parts cannot be in one source."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"parts {first + 1} and {second + 1}")
        self.places = (first, second)


@dataclass(frozen=True)
class WrittenPart:
    """A part with its kernel."""

    part: Part
    words: str  # "2-d convolution"
    source: str  # a whole candidate for the part's own contract


def combined(chain: Chain, parts: Sequence[WrittenPart]) -> str:
    """The source for the whole task. Raises `CannotCombine` where parts need different values of a macro."""
    texts, places = _Texts(), _same_texts(parts)
    written = {place: texts.add(place, parts[place].source) for place in dict.fromkeys(places)}
    blocks = [
        _title(chain, parts, places),
        *(f"// Part {place + 1}: {parts[place].words}.\n{text}" for place, text in written.items()),
        _EntryPoints(chain, parts, places).text(),
    ]
    return _BLANK.sub("\n\n", "\n\n".join(block.strip("\n") for block in blocks)) + "\n"


def _same_texts(parts: Sequence[WrittenPart]) -> list[int]:
    """For each part the place of the first one whose text differs in nothing but the names of its tensors."""
    first: dict[str, int] = {}
    return [first.setdefault(_without_names(part), place) for place, part in enumerate(parts)]


def _without_names(part: WrittenPart) -> str:
    arguments = part.part.problem.contract.arguments
    places = {each.name: str(place) for place, each in enumerate(arguments) if each.kind in _TENSORS}
    return re.sub(r"\w+", lambda word: f"${places[word[0]]}" if word[0] in places else word[0], part.source)


def _title(chain: Chain, parts: Sequence[WrittenPart], places: Sequence[int]) -> str:
    lines = [f"// {len(parts)} parts, one after the other; what they hand on lies in the workspace."]
    for number, each in enumerate(parts, 1):
        part = each.part
        operators = ", ".join(operator(node) for node in chain.nodes[part.begin : part.end])
        read = ", ".join(map(chain.identifier, part.read))
        made = ", ".join(f"{_target(chain, name)} {_shape(chain.value(name).dims)}" for name in part.written)
        again = f" (the function of part {places[number - 1] + 1})" if places[number - 1] != number - 1 else ""
        lines.append(f"//   {number}. {each.words}{again}: {made} = {operators} of {read}".rstrip())
    return "\n".join(lines)


def _shape(dims: Sequence[Dim]) -> str:
    return f"[{', '.join(map(str, dims))}]"


def _target(chain: Chain, name: str) -> str:
    """What a value is called in the source: an output of the task, or a value between parts."""
    return outputs_of(chain.problem.contract, chain.outline).get(name) or chain.identifier(name)


def outputs_of(contract: Contract, outline: Outline) -> dict[str, str]:
    """The parameter of the contract for each value that is an output."""
    parameters = [each.name for each in contract.arguments if each.kind is ArgumentKind.OUTPUT]
    return dict(zip(outline.outputs, parameters, strict=True))


# --- the text of each part ---


@dataclass
class _Texts:
    """Puts parts into namespaces, and knows which headers and macros earlier parts have brought."""

    _included: dict[str, int] = field(default_factory=dict)  # header: the part that includes it first
    _meant: dict[int, dict[str, str]] = field(default_factory=dict)  # of each part: the value of each macro
    _written: dict[int, dict[str, str]] = field(default_factory=dict)  # of each part: what stands for a macro

    def add(self, number: int, source: str) -> str:
        """The text of the next part."""
        headers = library_headers(source)
        meant = _macros(source)
        shared = self._shared(number, headers, meant)
        own = {each.name: each for each in tunables(source)}
        written = dict(meant)
        lines: list[str] = []
        for name, tunable in own.items():
            if name not in shared:
                written[name] = f"{name}_{number + 1}"
                lines += _tunable(written[name], tunable)
        written |= shared
        head, body = _split(number, source, own)
        new = {each: text for each, text in headers.items() if each not in self._included}
        needed = set().union(*(_mentioned(text) for text in (*new.values(), body, head)))
        brought = {name for text in (*new.values(), head, body) for name, _ in _DEFINE.findall(text)}
        defined = [n for n in written if n in own or n in shared or (n in needed and n not in brought)]
        lines += [f"#define {name} {written[name]}" for name in sorted(defined)]
        lines += [line for line in head.splitlines() if not self._is_included(line)]
        self._included |= {each: number for each in _includes(head) if each not in self._included}
        self._included |= dict.fromkeys(new, number)
        self._meant[number], self._written[number] = meant, written
        undone = sorted(set(defined) | {name for name in brought if name in meant or name not in _macro_names()})
        lines += [f"namespace part_{number + 1} {{", body.strip("\n"), f"}}  // namespace part_{number + 1}"]
        return "\n".join([*lines, *(f"#undef {name}" for name in undone)])

    def _is_included(self, line: str) -> bool:
        found = _INCLUDE.match(line)
        return found is not None and found[1] in self._included

    def _shared(self, number: int, headers: Mapping[str, str], meant: Mapping[str, str]) -> dict[str, str]:
        """What stands for the macros of headers that earlier parts have included."""
        found: dict[str, str] = {}
        for header, text in headers.items():
            first = self._included.get(header)
            for name in _mentioned(text) if first is not None else ():
                assert first is not None
                if self._meant[first].get(name) != meant.get(name) and name not in _SAME_RESULTS:
                    raise CannotCombine(first, number)
                before = self._written[first].get(name)
                if before is not None and name in meant and found.setdefault(name, before) != before:
                    raise CannotCombine(first, number)
        return found


def _tunable(name: str, tunable: Tunable) -> list[str]:
    return [
        f"// tune: {name} = {', '.join(tunable.values)}",
        f"#ifndef {name}",
        f"#define {name} {tunable.values[0]}",
        "#endif",
    ]


def _split(number: int, source: str, own: Mapping[str, Tunable]) -> tuple[str, str]:
    """The includes and the macros before them, and the rest of a source for a namespace."""
    text = _TUNE.sub("", source)
    guarded = "".join(_GUARDED.findall(text))  # `#if defined(__SSE2__)`, an include, `#endif`
    text = _GUARDED.sub("", text)
    end = max((found.end() for found in _INCLUDE.finditer(text)), default=0)
    head = [(m.start(), m[0]) for m in _INCLUDE.finditer(text)]
    head += [(m.start(), m[0]) for m in _DEFAULT.finditer(text[:end]) if m[1] not in own]
    before = _INCLUDE.sub("", _DEFAULT.sub("", text[:end]))
    body = before + _DEFAULT.sub(lambda m: "" if m[1] in own else m[0], text[end:])
    body = _ENTRY.sub("", body)
    if _NOT_IN_A_NAMESPACE.search(body) or _conditional(before):
        raise CannotCombine(number, number)
    return guarded + "".join(line if line.endswith("\n") else f"{line}\n" for _, line in sorted(head)), body


def _conditional(text: str) -> bool:
    """Whether what stands before the last include has a condition around it."""
    return re.search(r"^#", text, re.MULTILINE) is not None


def _includes(text: str) -> list[str]:
    return [found[1] for found in _INCLUDE.finditer(text)]


def _macros(source: str) -> dict[str, str]:
    """The macros of a source and of its headers, with the values that they have if the source is alone."""
    found = {each.name: each.values[0] for each in tunables(source)}
    headers = library_headers(source)
    seen: set[str] = set()

    def read(text: str) -> None:
        for line in text.splitlines():
            if (include := _INCLUDE.match(line)) and include[1] in headers and include[1] not in seen:
                seen.add(include[1])
                read(headers[include[1]])
            elif (define := _DEFINE.match(line)) and (text is source or define[1] in _macro_names()):
                found.setdefault(define[1], define[2] or "")

    read(source)
    return found


@cache
def _macro_names() -> frozenset[str]:
    """The macros that headers of the device library read, and that a source may set."""
    texts = (file.read_text(encoding="utf-8") for file in sorted(LIBRARY.glob("warpsmith/*.cuh")))
    return frozenset(name for text in texts for name in _DEFAULT.findall(text))


@cache
def _mentioned(text: str) -> frozenset[str]:
    """The macros of the library that a text reads."""
    return _macro_names() & frozenset(re.findall(r"\b[A-Z]\w+", text))


# --- the entry points of the whole ---


class _EntryPoints:
    """`workspace_bytes` and `launch` of the whole task."""

    def __init__(self, chain: Chain, parts: Sequence[WrittenPart], places: Sequence[int]) -> None:
        self.chain = chain
        self.parts = parts
        self.places = places  # of each part: the one whose text it uses
        self.contract = chain.problem.contract
        self.outputs = outputs_of(self.contract, chain.outline)
        self.names = {each.source: each.name for each in self.contract.arguments}
        self.ctypes = (cpu.DIALECT if chain.problem.backend == "cpu" else cuda.DIALECT).ctypes
        self.slots = self._shared_slots()

    def text(self) -> str:
        """Both functions, and what they share."""
        sizes = self.contract.size_arguments
        given, count = declared(sizes), max(self.slots.values(), default=-1) + 1
        lines = [
            "namespace {",
            "int64_t rounded_(int64_t bytes_) { return (bytes_ + 255) / 256 * 256; }",
            "// Where each value between parts begins in the workspace. A value may take the memory of an earlier one",
            "// that no further part reads. What follows the last one is scratch memory of the part that runs.",
            f"struct Places_ {{ int64_t at_[{count + 1}]; }};",
            f"Places_ places_({given}) {{",
            "  Places_ p_{};",
            *(f"  p_.at_[{slot + 1}] = p_.at_[{slot}] + rounded_({self._bytes(slot)});" for slot in range(count)),
            "  return p_;",
            "}",
            "}  // namespace",
            "",
            f'extern "C" int64_t workspace_bytes({given}) {{',
            f"  return places_({_names(sizes)}).at_[{count}] + {self._scratch()};",
            "}",
            f'extern "C" int launch({declared(self.contract.arguments)}) {{',
            f"  const Places_ p_ = places_({_names(sizes)});",
            f"  char* const base_ = static_cast<char*>({self._one(ArgumentKind.WORKSPACE)});",
        ]
        for name, slot in self.slots.items():
            kind = self.ctypes[self.chain.value(name).dtype]
            at = f"reinterpret_cast<{kind}*>(base_ + p_.at_[{slot}])"
            lines.append(f"  {kind}* const {self.chain.identifier(name)} = {at};")
        lines.append(f"  void* const scratch_ = base_ + p_.at_[{count}];")
        for number, each in enumerate(self.parts, 1):
            passed = ", ".join(self._passed(each.part))
            call = f"part_{self.places[number - 1] + 1}::launch({passed})"
            last = number == len(self.parts)
            lines.append(f"  return {call};" if last else f"  if (const int code_ = {call}) return code_;")
        return "\n".join([*lines, "}"])

    def _shared_slots(self) -> dict[str, int]:
        """A place in the workspace for each value between parts; a later value takes one that is free again."""
        found: dict[str, int] = {}
        for each in self.parts:
            busy = {found[name] for name in found if self.chain.last_use[name] >= each.part.begin}
            for name in each.part.written:
                if name not in self.outputs:
                    found[name] = next(slot for slot in range(len(busy) + 1) if slot not in busy)
                    busy.add(found[name])
        return found

    def _bytes(self, slot: int) -> str:
        sizes = dict.fromkeys(
            " * ".join([str(DTYPE_BYTES[value.dtype]), *(self._extent(dim) for dim in value.dims if dim != 1)])
            for value in (self.chain.value(name) for name, place in self.slots.items() if place == slot)
        )
        return next(iter(sizes)) if len(sizes) == 1 else f"std::max<int64_t>({{{', '.join(sizes)}}})"

    def _extent(self, dim: Dim) -> str:
        factors = [f if f.isdigit() else self.names[f] for f in str(dim).split("*")]
        return " * ".join([f"int64_t({factors[0]})" if factors[0].isdigit() else factors[0], *factors[1:]])

    def _scratch(self) -> str:
        """The memory that the part needs that needs most."""
        needed = [
            f"part_{number}::workspace_bytes({_names(each.part.problem.contract.size_arguments)})"
            for number, each in enumerate(self.parts, 1)
            if "int64_t workspace_bytes(" in each.source and self.places[number - 1] == number - 1
        ]
        return f"std::max<int64_t>({{0, {', '.join(needed)}}})" if needed else "0"

    def _passed(self, part: Part) -> list[str]:
        values = {self.chain.identifier(name): name for name in (*part.read, *part.written)}
        found = []
        for argument in part.problem.contract.arguments:
            if argument.kind in _TENSORS:
                found.append(self._pointer(values[argument.source]))
            elif argument.kind is ArgumentKind.AXIS:
                found.append(self.names[argument.source])
            else:
                found.append("scratch_" if argument.kind is ArgumentKind.WORKSPACE else self._one(ArgumentKind.STREAM))
        return found

    def _pointer(self, name: str) -> str:
        """An input or an output of the task, a value between parts, or a tensor of the table of states."""
        if name in self.outputs:
            return self.outputs[name]
        if name in self.slots:
            return self.chain.identifier(name)
        if name in self.contract.table:
            kind = self.ctypes[self.chain.value(name).dtype]
            table = self._one(ArgumentKind.TABLE)
            return f"static_cast<const {kind}*>({table}[{self.contract.table.index(name)}])"
        return self.names[name]

    def _one(self, kind: ArgumentKind) -> str:
        return next(each.name for each in self.contract.arguments if each.kind is kind)


def _names(arguments: Sequence[Argument]) -> str:
    return ", ".join(each.name for each in arguments)
