"""Suites: named sets of tasks. Finds the file of `suite/name`.

A suite is a folder of task files: one that comes with the package, any other folder, or the level of a KernelBench
checkout (`kernelbench:PATH/level1`). Files are read and never executed, and torch is not imported: name, family, tags
and sizes of a task are literals in `@task` and `@listed`. `load_task` loads a task.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from warpsmith.model.errors import TaskError
from warpsmith.model.source_text import parse_python
from warpsmith.model.task import Precision, Workload
from warpsmith.tasks.listing import FULL, SIZES, SMALL

KERNELBENCH = "kernelbench"
SHIPPED: Mapping[str, str] = {"warpsmith-100": "warpsmith_100", "warpsmith-fused": "warpsmith_fused"}
"""The suites of the package, by name, with their folders."""

_HOME = Path(__file__).resolve().parents[1] / "suites"
_PREFIX = f"{KERNELBENCH}:"
_FEW = 20  # names, at most, in a message


@dataclass(frozen=True)
class SuiteTask:
    """One task of a suite, read from its file without executing it."""

    suite: str  # as a user writes it: "warpsmith-100", "kernelbench:PATH/level1"
    name: str
    path: Path
    family: str  # "" if the file has none
    tags: tuple[str, ...]
    precisions: tuple[Precision, ...]  # its own first; () if the file has none
    workloads: tuple[Workload, ...]  # () if they are known only after executing the file
    small: tuple[Workload, ...]
    held_out: tuple[Workload, ...]
    description: str
    native: bool = True  # False for a KernelBench file, which has one task and needs no name

    @property
    def title(self) -> str:
        """The name that a user writes: SUITE/NAME."""
        return f"{self.suite}/{self.name}"

    def spec(self, size: str = FULL) -> str:
        """The argument of `load_task` for this task at a size."""
        _check_size(self.title, size)
        if size != FULL and not self.small:
            raise TaskError(f"{self.title} has no small workload; leave out '@{size}'.")
        if not self.native:
            return str(self.path)
        return f"{self.path}::{self.name}" + (f"@{size}" if size != FULL else "")


def resolve_task(spec: str) -> str:
    """The argument of `load_task` for the TASK that a user writes; a path is returned unchanged.

    `warpsmith-100/relu` is a task of a suite, `warpsmith-100/relu@small` its small workload, `relu` the same task where
    no file has that name,
    `kernelbench:PATH/level1/19` (or the file's name) a problem of a KernelBench checkout.
    """
    if spec.startswith(_PREFIX):
        return _resolve_problem(spec)
    suite, slash, rest = spec.partition("/")
    if not slash and (title := _titled(spec)):
        return resolve_task(title)
    if not slash or Path(spec.partition("::")[0]).suffix == ".py":
        return spec
    if suite not in SHIPPED:
        near = difflib.get_close_matches(suite, SHIPPED, cutoff=0.8)
        if near and not Path(spec).exists():
            raise TaskError(f"there is no suite {suite!r}; the suites are {', '.join(SHIPPED)}.")
        return spec
    name, at, size = rest.partition("@")
    if at:
        _check_size(f"{suite}/{name}", size)
    path = _folder(suite) / f"{name}.py"
    if not name.isidentifier() or not path.is_file():
        raise TaskError(f"{suite} has no task {name!r}; {_hint(suite, name)}.")
    return f"{path}::{name}" + (f"@{size}" if at and size != FULL else "")


def check_syntax(spec: str) -> None:
    """Raise if the file of a task is no valid Python: checked before anything waits for a device."""
    path = Path(spec.partition("::")[0])
    try:
        parse_python(path.read_bytes().decode("utf-8-sig"), str(path))
    except SyntaxError as wrong:
        line = f":{wrong.lineno}" if wrong.lineno else ""
        raise TaskError(f"{path}{line}: this is not valid Python: {wrong.msg}.") from None
    except (OSError, ValueError, RecursionError, MemoryError):
        return  # `load_task` says what is wrong


def small_title(spec: str) -> str:
    """The name of the small workload of a task that is given as for `load_task`; "" if there is no smaller one."""
    file, _, wanted = spec.partition("::")
    path = Path(file)
    folders = {_folder(suite): suite for suite in SHIPPED}
    suite = folders.get(path.resolve().parent, "")
    found = [task for task in _read_file(suite, path) if task.small and wanted in ("", task.name)]
    if len(found) != 1:
        return ""
    return f"{found[0].title if suite else f'{file}::{found[0].name}'}@{SMALL}"


def suite_tasks(suite: str) -> tuple[SuiteTask, ...]:
    """The tasks of a suite, sorted by name; KernelBench problems by number."""
    if suite.startswith(_PREFIX):
        return _problems(suite)
    if suite in SHIPPED:
        return tuple(_read(suite, _folder(suite)))
    if not Path(suite).is_dir():
        raise TaskError(
            f"there is no suite {suite!r}; the suites are {', '.join(SHIPPED)}, {_PREFIX}PATH/level1 for a KernelBench "
            "checkout, or a folder of task files."
        )
    found = tuple(_read(suite.rstrip("/"), Path(suite)))
    if not found:
        raise TaskError(f"{suite} holds no file with a function under @task; name a folder of task files.")
    return found


def select_tasks(
    suites: Sequence[str] = (),
    *,
    names: Sequence[str] = (),
    families: Sequence[str] = (),
    tags: Sequence[str] = (),
) -> tuple[SuiteTask, ...]:
    """Tasks of the suites (default: all in the package) with one of the names, one of the families, and every tag."""
    found = [entry for suite in suites or SHIPPED for entry in suite_tasks(suite)]
    _check_known("task", names, [entry.name for entry in found])
    _check_known("family", families, [entry.family for entry in found])
    _check_known("tag", tags, [tag for entry in found for tag in entry.tags])
    return tuple(
        entry
        for entry in found
        if (not names or entry.name in names)
        and (not families or entry.family in families)
        and set(tags) <= set(entry.tags)
    )


# --- names ---


def _folder(suite: str) -> Path:
    return _HOME / SHIPPED[suite]


def _titled(spec: str) -> str:
    """SUITE/NAME for the bare name of a task of the package's suites; "" if it is none, or if a file has that name."""
    name = spec.partition("@")[0]
    if not name.isidentifier() or Path(name).exists():
        return ""
    return next((f"{suite}/{spec}" for suite in SHIPPED if (_folder(suite) / f"{name}.py").is_file()), "")


def _check_size(title: str, size: str) -> None:
    if size not in SIZES:
        raise TaskError(f"{title} has no size {size!r}; write {' or '.join(f'@{known}' for known in SIZES)}.")


def _hint(suite: str, name: str) -> str:
    """What to write instead: similar names, or the command that lists all."""
    known = _names(suite)
    near = difflib.get_close_matches(name, known, n=5) or [each for each in known if name and name in each][:5]
    if len(known) <= _FEW:
        return f"it has {', '.join(known)}"
    listing = f"`warpsmith suite list {suite}` shows all {len(known)}"
    return f"near it are {', '.join(near)}, and {listing}" if near else listing


def _names(suite: str) -> list[str]:
    return sorted(path.stem for path in _folder(suite).glob("*.py") if path.stem != "__init__")


def similar_titles(name: str) -> tuple[str, ...]:
    """Tasks of the package's suites with similar names, as SUITE/NAME."""
    titles = {each: f"{suite}/{each}" for suite in SHIPPED for each in _names(suite)}
    return tuple(titles[each] for each in difflib.get_close_matches(name, titles, n=3, cutoff=0.75))


def _check_known(what: str, wanted: Iterable[str], known: Iterable[str]) -> None:
    there = sorted({word for word in known if word})
    for word in wanted:
        if word not in there:
            near = difflib.get_close_matches(word, there, n=5)
            shown = there if len(there) <= _FEW else near or there[:_FEW]
            some = "known are" if shown is there else "among the known ones are"
            raise TaskError(f"no task of these suites has the {what} {word!r}; {some} {', '.join(shown) or 'none'}.")


# --- native files ---


def _read(suite: str, folder: Path) -> Iterator[SuiteTask]:
    for path in sorted(folder.glob("*.py")):
        yield from _read_file(suite, path)


def _read_file(suite: str, path: Path) -> Iterator[SuiteTask]:
    try:
        tree = parse_python(path.read_text(encoding="utf-8-sig"), str(path))
    except (OSError, ValueError, SyntaxError) as fault:
        raise TaskError(f"{path} cannot be read as Python ({fault}); correct or remove the file.") from None
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and (declared := _keywords(node, "task")) is not None:
            yield _entry(suite, path, node, declared, ast.get_docstring(tree) or "")


def _entry(suite: str, path: Path, node: ast.FunctionDef, declared: Mapping[str, object], about: str) -> SuiteTask:
    listing = _keywords(node, "listed") or {}
    own = _words([declared.get("precision", "fp32")])
    classes = dict.fromkeys((*own, *_words(listing.get("precisions"))))
    described = declared.get("description") or ast.get_docstring(node) or about
    return SuiteTask(
        suite=suite,
        name=str(declared.get("name") or node.name),
        path=path,
        family=str(listing.get("family", "")),
        tags=_words(listing.get("tags")),
        precisions=tuple(Precision(text) for text in classes if text in set(Precision)),
        workloads=_workloads(declared.get("workloads")),
        small=_workloads(listing.get("small")),
        held_out=_workloads(listing.get("held_out")),
        description=str(described).strip().partition("\n")[0],
    )


def _keywords(node: ast.FunctionDef, decorator: str) -> dict[str, object] | None:
    """The keywords of a decorator whose values are literals; None if the function lacks the decorator."""
    for mark in node.decorator_list:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func).split(".")[-1] == decorator:
            found: dict[str, object] = {}
            for keyword in mark.keywords:
                try:
                    found[keyword.arg or ""] = ast.literal_eval(keyword.value)
                except ValueError:
                    continue  # a distribution or a computed size, known only after executing the file
            return found
    return None


def _words(value: object) -> tuple[str, ...]:
    return tuple(word for word in value if isinstance(word, str)) if isinstance(value, list | tuple) else ()


def _workloads(value: object) -> tuple[Workload, ...]:
    """The workloads of a list of sizes, named as the loader names them; invalid sizes are left out."""
    made: list[Workload] = []
    for given in value if isinstance(value, list | tuple) else ():
        if isinstance(given, dict):
            axes = tuple((axis, size) for axis, size in given.items() if axis != "name" and isinstance(size, int))
            label = str(given.get("name", "")) or "x".join(str(size) for _, size in axes) or "default"
            made.append(Workload(label, axes))
    return tuple(made)


# --- KernelBench checkouts ---


def _problems(suite: str) -> tuple[SuiteTask, ...]:
    """The tasks of one level: its files named like `7_Some_name.py`."""
    folder = Path(suite.removeprefix(_PREFIX)).expanduser()
    if not folder.is_dir():
        raise TaskError(f"there is no folder {folder}; write {_PREFIX}PATH/level1 with the PATH of its levels.")
    files = {int(found[1]): path for path in folder.glob("*.py") if (found := re.match(r"(\d+)_", path.name))}
    if not files:
        raise TaskError(f"{folder} holds no KernelBench problem (a file such as 19_ReLU.py); name a level's folder.")
    return tuple(
        SuiteTask(
            suite=f"{_PREFIX}{folder}",
            name=path.stem,
            path=path,
            family=KERNELBENCH,
            tags=(folder.name,),
            precisions=(Precision.FP32,),
            workloads=(),
            small=(),
            held_out=(),
            description=path.stem.partition("_")[2].replace("_", " ").strip(),
            native=False,
        )
        for _, path in sorted(files.items())
    )


def _resolve_problem(spec: str) -> str:
    """The file of a problem, by number or by name."""
    path = Path(spec.removeprefix(_PREFIX)).expanduser()
    if path.is_file():
        return str(path)
    if path.is_dir():
        raise TaskError(f"{spec} is a whole suite; name one problem of it, as in {spec.rstrip('/')}/19.")
    known = _problems(f"{_PREFIX}{path.parent}")
    for entry in known:
        if path.name in (entry.name, entry.name.partition("_")[0]):
            return entry.spec()
    numbers = [int(entry.name.partition("_")[0]) for entry in known]
    raise TaskError(
        f"{path.parent} has no problem {path.name!r}; give a file's name or one of its {len(known)} numbers, "
        f"{min(numbers)} to {max(numbers)}."
    )
