"""First tries of a language model on first briefs: readable, compiled and valid, for one version of the package.

    python -m benchmarks.first_tries ask TASK... --model openai:NAME --base-url http://127.0.0.1:8080/v1 --out FOLDER
    python -m benchmarks.first_tries judge FOLDER --as NAME
    python -m benchmarks.first_tries compare FOLDER:NAME FOLDER:NAME --json RECORD --replies REPLIES

`ask` drives a session of each method to its first kernel, as a run does: with strategies or a rewritten reference
before the kernel, where the method asks for these. Tasks take C++ and CUDA in turn; a task with `:cpu` or `:cuda`
behind its name takes that language. Prompts and replies go to FOLDER/replies.jsonl at once; the same command goes on
where it stopped. `judge` reads the replies with the package as it is, builds CUDA kernels with nvcc, which needs no
GPU, and has the evaluator judge kernels for the CPU. To measure another version of the package on the same replies, put
its `src` on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from benchmarks.methods_summary import error_kind
from pydantic import TypeAdapter

from warpsmith._version import __version__
from warpsmith.backends.source import backend_named
from warpsmith.engine.engine import open_engine
from warpsmith.methods.load import load
from warpsmith.model.brief import Brief, Problem, Prompt, Reply
from warpsmith.model.build import Artifact, DeviceKind, Target
from warpsmith.model.candidate import Candidate
from warpsmith.model.evaluation import Status
from warpsmith.model.method import Move, Product
from warpsmith.model.settings import Limits, Paths, Settings
from warpsmith.prompts.parser import parse
from warpsmith.proposers.choose import ProposerOptions, choose
from warpsmith.run_log.events import Budget, RunConfig, RunCreated
from warpsmith.search.session import Session
from warpsmith.tasks.suites import resolve_task

EVERYWHERE = ("evoengineer-free", "evoengineer-full", "eoh", "funsearch")
IN_TURN = ("cupilot", "ai-cuda-engineer")  # asked on every other task: each needs two replies for a kernel
TRIALS = 12  # of the budget, which decides how many strategies are asked for
REPLIES = "replies.jsonl"
GPU, ARCH = "NVIDIA H200", "sm_90a"
SETTINGS = Settings(timing_budget_s=0.05, max_samples=20)
Z = 1.959964
RESAMPLES, SEED = 10_000, 20_261_119
_MOST_REQUESTS = 4  # for one kernel: replies that hold no strategy are asked for again

_problems = TypeAdapter(Problem)
_replies = TypeAdapter(Reply)
_prompts = TypeAdapter(Prompt)
_writing = threading.Lock()


@dataclass(frozen=True)
class Asked:
    """One request: a task in a language, a method, and the number of the request in its session."""

    task: str  # as on the command line, without the language
    language: str  # backend: "cpu", "cuda"
    method: str
    request: int  # from 1

    @property
    def key(self) -> str:
        """The name of the request in records."""
        return f"{self.task} {self.language} {self.method} {self.request}"


@dataclass(frozen=True)
class Outcome:
    """What became of one reply that was asked for a kernel."""

    key: str
    task: str
    language: str
    method: str
    operator: str
    finish: str
    tokens: int
    readable: bool
    compiled: bool
    valid: bool | None  # None for CUDA, which needs a GPU
    status: str  # "unreadable", "built", or the status of the evaluation
    reason: str
    source: str  # the program that was read


@dataclass(frozen=True)
class Rate:
    """A share with its Wilson interval (95 %)."""

    good: int
    total: int
    share: float
    low: float
    high: float


# --- asking ---


def plan(tasks: Sequence[str], methods: Sequence[str] = ()) -> list[tuple[str, str, tuple[str, ...]]]:
    """Each task with its language and its methods: those given, else short ones and one of the long ones."""
    found: list[tuple[str, str, tuple[str, ...]]] = []
    for number, word in enumerate(tasks):
        task, _, language = word.partition(":")
        method = IN_TURN[number // 2 % len(IN_TURN)]
        found.append((task, language or ("cpu", "cuda")[number % 2], tuple(methods) or (*EVERYWHERE, method)))
    return found


def problem_of(task: str, language: str, folder: Path) -> Problem:
    """The problem of a task, with the contract of this version; the rest is kept in the folder, so that it stays."""
    path = folder / "problems" / f"{task.replace('/', '_')}.json"
    if not path.exists():
        with open_engine("local", "cpu", SETTINGS) as engine:
            found = engine.survey(resolve_task(task), "cpu")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_problems.dump_json(found))
    problem = _problems.validate_json(path.read_bytes())
    backend = backend_named(language).configured(Paths.from_environment(), Limits())
    problem = replace(problem, backend=language, contract=backend.contract(problem.task))
    if language == "cuda":  # without a GPU nothing is known of its times
        problem = replace(problem, device=GPU, kind=DeviceKind.CUDA, arch=ARCH, bounds=(), figures=None)
    return problem


def kept_replies(folder: Path) -> dict[str, dict[str, object]]:
    """The requests that were answered, by key."""
    path = folder / REPLIES
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {str(row["key"]): row for row in map(json.loads, lines)}


def ask(options: argparse.Namespace) -> int:
    """Ask for a first kernel by each method on each task."""
    options.out.mkdir(parents=True, exist_ok=True)
    known = kept_replies(options.out)
    given = ProposerOptions(
        base_url=options.base_url, temperature=options.temperature, max_tokens=options.max_tokens, request_s=3000.0
    )
    proposer = choose(options.model, given).open()
    cells = [
        (t, lang, methods, problem_of(t, lang, options.out))
        for t, lang, methods in plan(options.tasks, options.methods)
    ]
    begun = time.monotonic()

    def keep(asked: Asked, brief: Brief, prompt: Prompt, reply: Reply) -> None:
        row = {
            "key": asked.key,
            **asdict(asked),
            "operator": brief.operator,
            "move": brief.move,
            "wording": brief.wording,
            "product": brief.product,
            "wanted": brief.wanted,
            "version": __version__,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "prompt": _prompts.dump_python(prompt, mode="json"),
            "reply": _replies.dump_python(reply, mode="json"),
        }
        line = json.dumps(row, ensure_ascii=False) + "\n"
        with _writing, (options.out / REPLIES).open("ab", buffering=0) as file:
            file.write(line.encode())  # in one piece: another process may ask on other tasks for the same folder
        usage = reply.usage
        print(
            f"{time.monotonic() - begun:6.0f} s  {asked.key} ({brief.operator}): {reply.finish}, "
            f"{usage.prompt_tokens} + {usage.completion_tokens} tokens in {usage.seconds:.0f} s",
            flush=True,
        )

    def work(cell: tuple[str, str, tuple[str, ...], Problem]) -> None:
        task, language, methods, problem = cell
        for method in methods:
            config = RunConfig(
                resolve_task(task), language, language, options.model, Budget(trials=TRIALS), SETTINGS, parallel=1
            )
            with tempfile.TemporaryDirectory() as folder:
                created = RunCreated(config, load(method), problem, __version__)
                with Session.create(Path(folder) / "run", created) as session:
                    for request in range(1, _MOST_REQUESTS + 1):
                        asked = Asked(task, language, method, request)
                        brief = session.ask()
                        if brief is None:
                            break
                        prompt = proposer.prompt(brief)
                        session.sent(brief, prompt)
                        if row := known.get(asked.key):
                            reply = _replies.validate_python(row["reply"])
                        else:
                            reply = proposer.propose(brief, prompt)
                            keep(asked, brief, prompt, reply)
                        session.answer(brief, reply)
                        if asks_for_kernel(brief.product, brief.move):
                            break

    try:
        with ThreadPoolExecutor(options.at_once) as pool:
            for done in [pool.submit(work, cell) for cell in cells]:
                done.result()
    finally:
        proposer.close()
    return 0


def asks_for_kernel(product: str, move: str) -> bool:
    """Whether the reply to a brief is to hold a kernel."""
    return product == Product.KERNEL and move != Move.WRITE


# --- judging ---


def judge(options: argparse.Namespace) -> int:
    """Read, build and judge the replies with this version of the package."""
    path = options.folder / f"outcomes-{options.name}.jsonl"
    done = {each.key for each in outcomes(options.folder, options.name)} if path.exists() else set()
    rows = [
        row
        for row in kept_replies(options.folder).values()
        if asks_for_kernel(str(row["product"]), str(row["move"])) and row["key"] not in done
    ]
    with ExitStack() as stack:
        engine = stack.enter_context(open_engine("local", "cpu", SETTINGS)) if rows else None
        file = stack.enter_context(path.open("a", encoding="utf-8"))
        for row in rows:
            problem = problem_of(str(row["task"]), str(row["language"]), options.folder)
            brief = Brief(
                number=1,
                operator=str(row["operator"]),
                move=Move(str(row["move"])),
                wording=str(row["wording"]),
                problem=problem,
                seed=0,
            )
            reply = _replies.validate_python(row["reply"])
            proposal = parse(reply, brief)
            status, reason, compiled, valid = "unreadable", proposal.failure, False, None
            if proposal.candidate is None:
                valid = False if problem.backend == "cpu" else None
            elif problem.backend == "cuda":
                status, reason = _built(proposal.candidate, problem)
                compiled = status == "built"
            else:
                assert engine is not None, "there are rows"
                verdict = engine.evaluate_one(resolve_task(str(row["task"])), proposal.candidate, fresh=True)
                status, reason = str(verdict.status), verdict.reason
                compiled = verdict.status not in (Status.BUILD_ERROR, Status.NOT_JUDGED)
                valid = verdict.ok
            outcome = Outcome(
                str(row["key"]),
                str(row["task"]),
                str(row["language"]),
                str(row["method"]),
                str(row["operator"]),
                reply.finish,
                reply.usage.completion_tokens,
                proposal.candidate is not None,
                compiled,
                valid,
                status,
                reason,
                proposal.candidate.main.text if proposal.candidate else "",
            )
            file.write(json.dumps(asdict(outcome), ensure_ascii=False) + "\n")
            file.flush()
            print(f"{outcome.key}: {status} {reason.splitlines()[0][:150] if reason else ''}", flush=True)
    print(json.dumps({name: asdict(rate) for name, rate in rates(outcomes(options.folder, options.name)).items()}))
    return 0


def _built(candidate: Candidate, problem: Problem) -> tuple[str, str]:
    backend = backend_named(problem.backend).configured(Paths.from_environment(), Limits())
    made = backend.build(candidate, problem.contract, Target(problem.kind, problem.arch))
    return ("built", "") if isinstance(made, Artifact) else (str(Status.BUILD_ERROR), made.reason)


# --- comparing ---


def outcomes(folder: Path, name: str) -> list[Outcome]:
    """The outcomes of a folder under one version of the package."""
    lines = (folder / f"outcomes-{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [Outcome(**row) for row in map(json.loads, lines)]


def wilson(good: int, total: int) -> Rate:
    """A share with its Wilson interval."""
    if not total:
        return Rate(0, 0, 0.0, 0.0, 1.0)
    share = good / total
    middle = share + Z * Z / (2 * total)
    width = Z * math.sqrt(share * (1 - share) / total + Z * Z / (4 * total * total))
    scale = 1 + Z * Z / total
    return Rate(good, total, share, max(0.0, (middle - width) / scale), min(1.0, (middle + width) / scale))


_SHARES: Mapping[str, tuple[str, str]] = {
    "readable": ("readable", ""),
    "compiled": ("compiled", ""),
    "compiled, C++": ("compiled", "cpu"),
    "compiled, CUDA": ("compiled", "cuda"),
    "valid, C++": ("valid", "cpu"),
}
"""The shares of a record: a field of `Outcome`, and the language that counts."""


def _rows(found: Iterable[Outcome], share: str) -> Iterator[tuple[str, bool]]:
    field, language = _SHARES[share]
    for each in found:
        if not language or each.language == language:
            yield each.task, bool(getattr(each, field))


def rates(found: Sequence[Outcome]) -> dict[str, Rate]:
    """The shares of first tries."""
    result = {}
    for share in _SHARES:
        values = [good for _, good in _rows(found, share)]
        result[share] = wilson(sum(values), len(values))
    return result


def difference(before: Sequence[Outcome], after: Sequence[Outcome], share: str) -> tuple[float, float, float] | None:
    """The difference of a share, with its 95 % interval from a bootstrap over the tasks that both have."""
    sides: list[dict[str, list[bool]]] = []
    for found in (before, after):
        by_task: dict[str, list[bool]] = {}
        for task, good in _rows(found, share):
            by_task.setdefault(task, []).append(good)
        sides.append(by_task)
    tasks = sorted(set(sides[0]) & set(sides[1]))
    if not tasks:
        return None
    count = np.array([[sum(side[task]) for task in tasks] for side in sides], dtype=float)
    total = np.array([[len(side[task]) for task in tasks] for side in sides], dtype=float)
    drawn = np.random.default_rng(SEED).integers(0, len(tasks), (RESAMPLES, len(tasks)))
    draws = np.diff(count[:, drawn].sum(-1) / total[:, drawn].sum(-1), axis=0)[0]
    low, high = np.percentile(draws, [2.5, 97.5])
    shares = count.sum(1) / total.sum(1)
    return float(shares[1] - shares[0]), float(low), float(high)


def kind_of(row: Outcome) -> str:
    """The kind of an error, as in the record of methods; "" for none."""
    return "" if row.status in ("built", Status.OK) else error_kind(row.status, row.reason)


def write_replies(folders: Iterable[Path], path: Path) -> None:
    """All replies in a compact form: without the prompts, which the package words again."""
    names = ("key", "operator", "version", "at")
    with path.open("w", encoding="utf-8") as file:
        for folder in dict.fromkeys(folders):
            for row in kept_replies(folder).values():
                reply = _replies.validate_python(row["reply"])
                usage = {"prompt_tokens": reply.usage.prompt_tokens, "completion_tokens": reply.usage.completion_tokens}
                short = {"set": folder.name, **{name: row[name] for name in names}, "finish": reply.finish, **usage}
                file.write(json.dumps({**short, "reply": reply.text}, ensure_ascii=False) + "\n")


def compare(options: argparse.Namespace) -> int:
    """Write the record of several sides, each FOLDER:NAME, and the replies behind it."""
    parts = [side.rpartition(":") for side in options.sides]
    names = [name for *_, name in parts]
    found = {name: outcomes(Path(folder), name) for folder, _, name in parts}
    first = found[names[0]]
    document = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{options.cores} CPU cores, {platform.machine()}",
        "model": options.model,
        "checksum": options.checksum,
        "settings": json.loads(options.settings),
        "seen_by_hand": json.loads(options.seen.read_text(encoding="utf-8")) if options.seen else {},
        "sides": {
            name: {
                "tasks": sorted({f"{row.task}:{row.language}" for row in rows}),
                "rates": {share: asdict(rate) for share, rate in rates(rows).items()},
                "statuses": dict(Counter(row.status for row in rows).most_common()),
                "errors": dict(Counter(kind for row in rows if (kind := kind_of(row))).most_common()),
            }
            for name, rows in found.items()
        },
        "differences": {
            f"{name} - {names[0]}": {share: difference(first, found[name], share) for share in _SHARES}
            for name in names[1:]
        },
    }
    text = json.dumps(document, indent=1, ensure_ascii=False)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    if options.replies:
        write_replies((Path(folder) for folder, *_ in parts), options.replies)
    print(text)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("ask", help="ask a model")
    one.add_argument("tasks", nargs="+", help="TASK or TASK:LANGUAGE")
    one.add_argument("--model", required=True, help="openai:NAME")
    one.add_argument("--base-url", default="http://127.0.0.1:8080/v1")
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--methods", type=lambda text: text.split(","), default=[], help="only these, with commas")
    one.add_argument("--temperature", type=float, default=0.7)
    one.add_argument("--max-tokens", type=int, default=1600, help="of one reply")
    one.add_argument("--at-once", type=int, default=4, help="requests at the same time")
    one.set_defaults(work=ask)
    one = commands.add_parser("judge", help="read, build and judge the replies")
    one.add_argument("folder", type=Path)
    one.add_argument("--as", dest="name", required=True, help="the name of this version in the record")
    one.set_defaults(work=judge)
    one = commands.add_parser("compare", help="rates with intervals")
    one.add_argument("sides", nargs="+", help="FOLDER:NAME, as judged; the first is what the others are compared with")
    one.add_argument("--model", default="")
    one.add_argument("--checksum", default="")
    one.add_argument("--cores", type=int, default=2)
    one.add_argument("--settings", default="{}", help="a JSON object")
    one.add_argument("--seen", type=Path, help="a JSON file with what a person saw in the replies")
    one.add_argument("--json", type=Path)
    one.add_argument("--replies", type=Path, help="a file for the replies of all sides")
    one.set_defaults(work=compare)
    options = parser.parse_args(arguments)
    result: int = options.work(options)
    return result


if __name__ == "__main__":
    sys.exit(main())
