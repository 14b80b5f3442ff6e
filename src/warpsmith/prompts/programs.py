"""Facts about a program from its text: whether it defines the entry point, is complete, needs other blocks.

For C++ with CUDA and for Python; compiles and runs nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from warpsmith.model.contract import CallForm, Contract
from warpsmith.model.source_text import Token, code_tokens, parse_python, tokens

_PAIRS = {")": "(", "]": "[", "}": "{"}
_NATIVE_START = re.compile(
    r"[ \t]*(?:#[ \t]*(?:include|define|pragma|if)|extern[ \t]+\"C\"|template[ \t]*<|__global__|__device__|constexpr\s"
    r"|using[ \t]+(?:namespace\b|\w+[ \t]*=)|(?:static[ \t]+|inline[ \t]+)*(?:int|void|float|double)[ \t]+\w+[ \t]*\()"
)
_PYTHON_START = re.compile(r"(?:import[ \t]+\w|from[ \t]+[\w.]+[ \t]+import\b|@\w|def[ \t]+\w+[ \t]*\(|class[ \t]+\w+)")
_PYTHON_NAMES = re.compile(
    r"^(?:(?:def|class)[ \t]+(\w+)|(\w+)[ \t]*=[^=]|import[ \t]+(?:[\w.]+[ \t]+as[ \t]+)?(\w+)|from[ \t]+[\w.]+[ \t]+"
    r"import[ \t]+(\w+))",
    re.MULTILINE,
)
_WORKSPACE = "workspace_bytes"
_DIRECTIVE = re.compile(r"#[ \t]*(?:include|define|undef|if|else|el|endif|pragma|error)")
_QUOTED_INCLUDE = re.compile(r'^([ \t]*#[ \t]*include[ \t]*"([\w.+-]{1,100})"[^\n]*)$', re.MULTILINE)
_REAL_HEADERS = re.compile(r"(?:cuda|cu[A-Z]|mma|math|std|omp|immintrin|arm_neon|device_|vector_)\w*\.h|[a-z]+")
_POINTER_REDUCTION = re.compile(
    r"^([ \t]*#[ \t]*pragma[ \t]+omp\b[^\n]{0,400}\breduction[ \t]*\([ \t]*[-+*&|^a-z]{1,3}[ \t]*:[ \t]*)"
    r"\*[ \t]*([A-Za-z_]\w{0,100})([ \t]*\))",
    re.MULTILINE,
)
_OWN_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"[^"\n]*"[^\n]*\n?', re.MULTILINE)


def declaration(contract: Contract) -> str:
    """The declaration of the entry point to define."""
    if contract.call is None:
        return f'extern "C" int {contract.entry}({", ".join(f"{a.ctype} {a.name}" for a in contract.arguments)})'
    if contract.call.form is CallForm.MODULE:
        return f"class {contract.entry}(torch.nn.Module)"
    return f"def {contract.entry}({', '.join(a.name for a in contract.arguments)})"


def defines(code: str, contract: Contract) -> bool:
    """Whether a program defines the entry point; a call or a declaration is not enough."""
    if contract.call is not None:
        name = re.escape(contract.entry)
        return (
            re.search(rf"^(?:(?:async[ \t]+)?def|class)[ \t]+{name}\b|^{name}[ \t]*[:=]", code, re.MULTILINE)
            is not None
        )
    if contract.entry not in code:
        return False
    words = code_tokens(code)
    return any(words[at].text == contract.entry for at in _function_heads(words))


def complete(code: str, contract: Contract) -> bool:
    """Whether all brackets, comments and strings of a program are closed."""
    if contract.call is not None:
        return _python_complete(code)
    open_brackets: list[str] = []
    for token in tokens(code):
        if token.kind == "comment" and token.text.startswith("/*") and not token.text.endswith("*/"):
            return False
        if token.kind == "sign" and token.text in "([{":
            open_brackets.append(token.text)
        elif token.text in _PAIRS and (not open_brackets or open_brackets.pop() != _PAIRS[token.text]):
            return True  # mismatched brackets, not cut off: the compiler will report them
    return not open_brackets


def _python_complete(code: str) -> bool:
    try:
        parse_python(code)
    except SyntaxError as wrong:
        message = str(wrong.msg)
        return not any(
            sign in message for sign in ("never closed", "unexpected EOF", "unterminated", "expected an indented")
        )
    except (ValueError, RecursionError, MemoryError):
        return True
    return True


def is_python(code: str) -> bool:
    """Whether at least one line of a text looks like Python."""
    return any(_PYTHON_START.match(line) for line in code.split("\n"))


def is_native(code: str) -> bool:
    """Whether at least one line of a text looks like C++."""
    return any(_NATIVE_START.match(line) for line in code.split("\n"))


def first_line(lines: Sequence[str], contract: Contract) -> int | None:
    """The index of the first line that looks like code; None without one."""
    start = _NATIVE_START if contract.call is None else _PYTHON_START
    return next((number for number, line in enumerate(lines) if start.match(line)), None)


def without_tail(lines: Sequence[str], contract: Contract) -> int:
    """The number of lines up to the last that looks like code."""
    count = len(lines)
    while count and not (_ends_statement(lines[count - 1]) if contract.call is None else lines[count - 1].strip()):
        count -= 1
    return count


def _ends_statement(line: str) -> bool:
    line = line.strip()
    if line.startswith("//") or line.endswith("*/") or _DIRECTIVE.match(line):
        return True
    return line.partition("//")[0].rstrip().endswith((";", "}", "\\"))


def joined(main: str, others: Sequence[str], contract: Contract) -> str:
    """The program, preceded by those other blocks that define names it uses and lacks."""
    if not others:
        return main
    own, used = _native_names(main) if contract.call is None else _python_names(main)
    missing = (used | {_WORKSPACE}) - own  # the evaluator calls `workspace_bytes`, not the program
    helpers: list[str] = []
    for other in reversed(others):  # of several definitions of a name the last counts
        theirs, needs = _native_names(other) if contract.call is None else _python_names(other)
        if theirs & missing:
            helpers.insert(0, other)
            missing = (missing | needs) - theirs
    if not helpers:
        return main
    whole = "\n\n".join((*helpers, main))
    # The blocks are one file now, so includes of each other are removed.
    return _OWN_INCLUDE.sub("", whole) if contract.call is None else whole


def with_optional_includes(code: str) -> str:
    """The program with a condition around includes of files that nobody gave, such as "launch.h".

    Models invent such headers for what the contract provides. Where the file exists, nothing changes; where it does
    not, the program did not compile. Headers of compilers and of the CUDA toolkit are left as they are.
    """

    def optional(found: re.Match[str]) -> str:
        if _REAL_HEADERS.fullmatch(found[2]):
            return found[0]
        return f'#if __has_include("{found[2]}")\n{found[1]}\n#endif'

    return _QUOTED_INCLUDE.sub(optional, code) if "#" in code else code


def with_array_reductions(code: str) -> str:
    """The program with `reduction(+:out[:1])` in the place of `reduction(+:*out)`, which OpenMP does not know.

    Both name the element that the pointer points to, so that nothing but the words changes.
    """
    return _POINTER_REDUCTION.sub(r"\1\2[:1]\3", code) if "reduction" in code else code


def declared_first(code: str) -> str:
    """The program with declarations of kernels (`__global__`) that it launches above their definitions.

    Only of kernels outside namespaces and without default values: there a copy of the head is the declaration.
    """
    declared: set[str] = set()
    missing: list[str] = []
    launched: set[str] = set()
    place = -1  # of the first launch: where the declaration around it begins
    for head in _top_level(code):
        words = [token for token in head if token.kind not in ("space", "newline", "comment")]
        if not words:
            continue
        name, end = _kernel_name(words)
        if name:
            if name in launched - declared and all(word.text != "=" for word in words[:end]):
                missing.append(f"{code[words[0].start : words[end].start].rstrip()};")
            declared.add(name)
        for at, word in enumerate(words[1:], 1):
            if word.text == "<<<" and words[at - 1].kind == "name":
                place = words[0].start if place < 0 else place
                launched.add(words[at - 1].text)
    if not missing:
        return code
    return "".join((code[:place], "\n".join(missing), "\n\n", code[place:]))


def _top_level(code: str) -> Iterator[list[Token]]:
    """The declarations of a program outside of all braces, each with its body; directives are left out."""
    current: list[Token] = []
    depth, directive = 0, False
    for token in tokens(code):
        if directive:
            directive = token.kind != "newline"
            continue
        if token.text == "#" and depth == 0 and all(each.kind in ("space", "newline", "comment") for each in current):
            directive, current = True, []
            continue
        current.append(token)
        depth += {"{": 1, "}": -1}.get(token.text, 0) if token.kind == "sign" else 0
        if depth <= 0 and token.text in ("}", ";"):
            yield current
            current, depth = [], 0
    yield current


def _kernel_name(words: Sequence[Token]) -> tuple[str, int]:
    """The name of the kernel that is declared or defined, and where its head ends; "" for anything else."""
    end = next((at for at, word in enumerate(words) if word.text in ("{", ";")), 0)
    texts = [word.text for word in words[:end]]
    if "__global__" not in texts:
        return "", 0
    for at in range(texts.index("__global__"), end - 1):
        if (
            words[at].kind == "name"
            and texts[at + 1] == "("
            and texts[at] not in ("__launch_bounds__", "__attribute__")
        ):
            return texts[at], end
    return "", 0


def with_the_parameters(code: str, contract: Contract) -> str:
    """The name of the only function that has the entry point's parameters, of whatever name; "" without one."""
    wanted = [_plain_type(argument.ctype) for argument in contract.arguments]
    words = code_tokens(code)
    found = []
    for at in _function_heads(words):
        texts: list[list[str]] = [[]]
        for word in words[at + 2 :]:
            if word.text == ")":
                break
            if word.text == ",":
                texts.append([])
            else:
                texts[-1].append(word.text)
        types = [_plain_type(" ".join(parameter[:-1])) for parameter in texts]
        if types == wanted and words[at].text != contract.entry:
            found.append(words[at].text)
    return found[0] if len(found) == 1 else ""


def _plain_type(text: str) -> str:
    left_out = {"const", "__restrict__", "restrict", "std", "::"}
    words = re.findall(r"\w+|::|[*&]", text)
    return "".join(word for word in words if word not in left_out)


def _function_heads(words: Sequence[Token]) -> list[int]:
    """The indices of tokens at which `name ( ... ) {` begins."""
    closing: dict[int, int] = {}
    stack: list[int] = []
    for at, word in enumerate(words):
        if word.text == "(":
            stack.append(at)
        elif word.text == ")" and stack:
            closing[stack.pop()] = at
    found = []
    for opening, end in closing.items():
        after = end + 1
        if after < len(words) and words[after].text in ("noexcept", "->"):
            after += 1 if words[after].text == "noexcept" else 2
        if opening and words[opening - 1].kind == "name" and after < len(words) and words[after].text == "{":
            found.append(opening - 1)
    return found


def _native_names(code: str) -> tuple[set[str], set[str]]:
    """Functions, types and macros that a text defines outside of functions, and all names it uses."""
    words = code_tokens(code)
    heads = set(_function_heads(words))
    defined: set[str] = set()
    depth = 0
    for at, word in enumerate(words):
        before = words[at - 1].text if at else ""
        if word.text in ("{", "}"):
            depth += 1 if word.text == "{" else -1
        elif word.kind == "name" and (
            (at in heads and depth <= 0)
            or (before in ("struct", "class", "union") and at + 1 < len(words) and words[at + 1].text in ("{", ":"))
            or (before == "define" and at > 1 and words[at - 2].text == "#")
        ):
            defined.add(word.text)
    return defined, {word.text for word in words if word.kind == "name"}


def _python_names(code: str) -> tuple[set[str], set[str]]:
    defined = {next(name for name in groups if name) for groups in _PYTHON_NAMES.findall(code)}
    return defined, set(re.findall(r"\w+", code))
