"""Completes CUDA launches in which only one thing can be meant: a stream that lacks its cast, a parameter its `const`.

The entry point gets its stream as `void*` and its inputs as pointers to const. Programs that pass these on as they are
do not compile, so that no program that compiles is changed. Nothing else is mended: what a program computes is for its
author to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from warpsmith.model.source_text import Token, code_tokens

_CLOSING = {"(": ")", "[": "]", "{": "}"}
_STREAM = "cudaStream_t"
_STREAM_LAST = frozenset(
    {"cudaMemsetAsync", "cudaMemset2DAsync", "cudaMemcpyAsync", "cudaMemcpy2DAsync", "cudaLaunchKernel"}
)
"""Functions of the runtime whose last argument is a stream."""
_MOST_WORDS = 6000  # of a program that is looked at: longer ones are not written by those who forget a cast
_ARGUMENT_WORDS = 400  # of one call
_STATEMENTS = frozenset({"return", "sizeof", "case", "else", "throw", "delete", "co_return"})
_RESTRICT = frozenset({"__restrict__", "__restrict", "restrict"})
_ASSIGNMENTS = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=", "++", "--"})


@dataclass(frozen=True)
class _Function:
    """A function with its body, or the declaration of one."""

    name: str
    kernel: bool
    parameters: tuple[tuple[int, int], ...]  # ranges of words
    body: tuple[int, int]  # a range of words; empty for a declaration


def completed(code: str) -> str:
    """The program with the casts of streams and the `const` of parameters that its launches need to compile."""
    if not any(mark in code for mark in ("<<<", _STREAM, *_STREAM_LAST)):
        return code
    words = code_tokens(code)
    if len(words) > _MOST_WORDS:
        return code
    functions = list(_functions(words))
    changes: dict[tuple[int, int], str] = {}
    for function in functions:
        if function.body[0] < function.body[1]:
            changes.update(_casts(words, function))
            changes.update(_constants(words, function, functions))
    for (start, end), text in sorted(changes.items(), reverse=True):
        code = code[:start] + text + code[end:]
    return code


def _casts(words: Sequence[Token], function: _Function) -> Iterator[tuple[tuple[int, int], str]]:
    """The places where a stream has to be cast in a function that gets it as `void*`, with the new texts."""
    texts = [[word.text for word in words[first:end]] for first, end in function.parameters]
    streams = {each[2] for each in texts if len(each) == 3 and each[:2] == ["void", "*"]}
    streams = {name for name in streams if not _declared_again(words, function, name)}

    def cast(argument: tuple[int, int], before: str = "") -> Iterator[tuple[tuple[int, int], str]]:
        first, end = argument
        if end - first == 1 and words[first].text in streams:
            yield _span(words, argument), f"{before}({_STREAM}){words[first].text}"

    first, end = function.body
    for at in range(first, end):
        text = words[at].text
        if text == "<<<":
            given = _arguments(words, at, end, ">>>")
            if len(given) == 4:
                yield from cast(given[3])
            elif len(given) == 3:  # no number of bytes is a pointer
                yield from cast(given[2], "0, ")
        elif text in _STREAM_LAST and words[at + 1].text == "(":
            given = _arguments(words, at + 1, end, ")")
            if given:
                yield from cast(given[-1])
        elif text == _STREAM and at + 4 < end and (words[at + 2].text, words[at + 4].text) == ("=", ";"):
            yield from cast((at + 3, at + 4))


def _constants(
    words: Sequence[Token], function: _Function, functions: Sequence[_Function]
) -> Iterator[tuple[tuple[int, int], str]]:
    """The places where parameters of kernels need a `const`, since the function passes its own pointers to const."""
    constant = {}
    for parameter in function.parameters:
        texts = _words_of(words, parameter)
        if texts[:1] == ["const"] and texts[-2:-1] == ["*"]:
            constant[texts[-1]] = texts[1:-1]
    constant = {name: kind for name, kind in constant.items() if not _declared_again(words, function, name)}
    first, end = function.body
    for at in range(first, end):
        if words[at].text != ">>>" or words[at + 1].text != "(":
            continue
        given = _arguments(words, at + 1, end, ")")
        named = [each for each in functions if each.kernel and each.name == _launched(words, at)]
        if any(len(each.parameters) != len(given) for each in named):
            continue
        for place, (start, stop) in enumerate(given):
            kind = constant.get(words[start].text) if stop - start == 1 else None
            same = [each for each in named if kind and _words_of(words, each.parameters[place])[:-1] == kind]
            if kind and len(same) == len(named) and not any(_written(words, each, place) for each in same):
                for each in same:
                    where = words[each.parameters[place][0]].start
                    yield (where, where), "const "


def _functions(words: Sequence[Token]) -> Iterator[_Function]:
    """All functions and declarations outside of other functions; namespaces and `extern "C"` blocks are entered."""
    at, begun = 0, 0  # the word, and where its declaration begins
    while at < len(words):
        text = words[at].text
        if text == "(" and at and words[at - 1].kind == "name":
            end = _match(words, at)
            after = words[end + 1].text if end + 1 < len(words) else ""
            if after in ("{", ";") and words[at - 1].text not in ("__launch_bounds__", "__attribute__"):
                stop = _match(words, end + 1) if after == "{" else end + 1
                kernel = any(word.text == "__global__" for word in words[begun:at])
                parameters = tuple(_arguments(words, at, end + 1, ")"))
                yield _Function(words[at - 1].text, kernel, parameters, (end + 1, stop))
                at = begun = stop + 1
                continue
            at = end + 1
            continue
        at += 1
        if text in (";", "{", "}"):
            begun = at


def _launched(words: Sequence[Token], end: int) -> str:
    """The name of the kernel whose launch configuration ends here."""
    first = max(0, end - _ARGUMENT_WORDS)
    at = next((index for index in range(end, first, -1) if words[index].text == "<<<"), 1) - 1
    if words[at].text == ">":  # arguments of a template
        at = next((index for index in range(at, first, -1) if words[index].text == "<"), 1) - 1
    return words[at].text


def _arguments(words: Sequence[Token], opening: int, end: int, closing: str) -> list[tuple[int, int]]:
    """The ranges of words between commas, from an opening sign to its closing one; none if that is missing or far."""
    found: list[tuple[int, int]] = []
    at = first = opening + 1
    while at < min(end, len(words), opening + _ARGUMENT_WORDS):
        text = words[at].text
        if text == closing:
            return [*found, (first, at)] if at > first else found
        if text == ",":
            found.append((first, at))
            first = at + 1
        at = _match(words, at) + 1 if text in _CLOSING else at + 1
    return []


def _match(words: Sequence[Token], at: int) -> int:
    """The index of the sign that closes the bracket here; the last index if there is none."""
    depth = 0
    opening, closing = words[at].text, _CLOSING[words[at].text]
    for index in range(at, len(words)):
        depth += {opening: 1, closing: -1}.get(words[index].text, 0)
        if depth == 0:
            return index
    return len(words) - 1


def _declared_again(words: Sequence[Token], function: _Function, name: str) -> bool:
    """Whether a name may be a variable of its own in the body of a function."""
    first, end = function.body
    for at in range(first + 1, end):
        if words[at].text != name:
            continue
        before, after = words[at - 1], words[at + 1].text if at + 1 < end else ""
        if before.kind == "name" and before.text not in _STATEMENTS:
            return True
        if before.text in ("*", "&", ">") and words[at - 2].kind == "name" and after in ("=", ";", "(", "{"):
            return True
    return False


def _written(words: Sequence[Token], function: _Function, place: int) -> bool:
    """Whether a function may write through a parameter; of what it passes on nothing is known."""
    name = words[function.parameters[place][1] - 1].text
    first, end = function.body
    for at in range(first + 1, end):
        if words[at].text != name:
            continue
        before, after = words[at - 1].text, words[at + 1].text if at + 1 < end else ""
        stop = _match(words, at + 1) if after == "[" else at
        if before in ("&", "++", "--") or (stop < end and words[stop + 1].text in _ASSIGNMENTS and before != ","):
            return True
    return False


def _words_of(words: Sequence[Token], parameter: tuple[int, int]) -> list[str]:
    return [word.text for word in words[slice(*parameter)] if word.text not in _RESTRICT]


def _span(words: Sequence[Token], part: tuple[int, int]) -> tuple[int, int]:
    last = words[part[1] - 1]
    return words[part[0]].start, last.start + len(last.text)
