"""Folders of strangers: real runs, benches, results, bundles and replies with one field replaced, or one file prepared.

Every case goes through all commands that read such a folder, in this process. An audit hook and canary files watch
that nothing is executed, nothing is sent, and nothing is written outside the folder of the case.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer

from tests.experiments.test_collect import certificate, rising, searched
from tests.experiments.test_plan import planned
from tests.fuzz.engine import deadline
from tests.runtime.bundling import DOUBLE, TRIPLE, made_of, put, verified
from tests.searching import answer_to, invalid, judged, reply_text, run_setup, source, valid
from warpsmith import api
from warpsmith.agents.tools import AgentTools
from warpsmith.agents.workspace import Workspace
from warpsmith.cli import bench_judge as cli_bench_judge
from warpsmith.cli import evaluate as cli_evaluate
from warpsmith.cli import export as cli_export
from warpsmith.cli import profile as cli_profile
from warpsmith.cli import tune as cli_tune
from warpsmith.cli import verify as cli_verify
from warpsmith.cli.main import app
from warpsmith.evaluator.supervisor import evaluator as evaluator_module
from warpsmith.experiments.best_kernels import EVALUATION, checks_folder, write_evaluation
from warpsmith.experiments.collect import collect, write_failure
from warpsmith.experiments.plan import PLAN, write_plan
from warpsmith.experiments.results import RESULTS, write_results
from warpsmith.methods.load import load as method_named
from warpsmith.model.brief import Message, Precedent, Prompt, Reply, Role
from warpsmith.model.errors import TaskError, UsageError, WarpsmithError
from warpsmith.model.text import printable
from warpsmith.model.usage import TokenUsage
from warpsmith.proposers.choose import ProposerOptions
from warpsmith.proposers.recorded import RecordedProposer
from warpsmith.run_log.events import Budget, PrecedentsFound, StopReason, TrialTuned
from warpsmith.run_log.log import LOG_FILE, SCHEMA, RunLog
from warpsmith.runtime import load as runtime_load
from warpsmith.runtime.bundle import MANIFEST
from warpsmith.search.session import Session
from warpsmith.search.trust import TASK_FILE
from warpsmith.server.live_page import LivePage, create_dashboard
from warpsmith.server.served_runs import PREFIX, ServedRuns
from warpsmith.system.signatures import SIGNATURES
from warpsmith.verification.certificate import write_certificate

LIMIT_S = 5.0
ROTATION = int(os.environ.get("STRANGERS_ROTATION", "0"))
"""Which hostile value a field gets: with another number each field gets another of its values."""
KEY = "sk-" + "a1b2c3d4" * 4
STEERING = "\x1b]52;c;aGk=\x07\x1b[2J\x9b31m\u202eevil\r\x08"
"""Clipboard, clear screen, colour, right-to-left, overwriting."""


@dataclass(frozen=True)
class Case:
    """One hostile folder: which commands read it, and what is done to a good one."""

    name: str
    reads: Callable[[Path], None]
    seed: Callable[[], Path]
    spoil: Callable[[Path], None]


@cache
def scratch() -> Path:
    """Where everything of this process happens."""
    holder = tempfile.mkdtemp(prefix="strangers-")
    return Path(holder).resolve()


def outside() -> Path:
    """A folder that no case may touch; a file there shows that something was executed or written."""
    return scratch() / "outside"


# --- what is put in the place of a field ---


def _nested(depth: int = 400) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def _texts() -> tuple[Any, ...]:
    touch = f"touch {outside() / 'executed'}"
    return (
        "../../../../outside/written",
        STEERING,
        f"command:{touch}",
        str(outside() / "written"),
        f"$({touch})`{touch}`;{touch}",
        "A" * 300_000,
        "=cmd|'/c calc'!A1",
        "http://127.0.0.1:9/v1",
        "a\nb\nc",
        "",
        None,
    )


_NUMBERS = (10**40, -1, 2**31, 1e308, 0, -(2**63), 1e-320, "7", None, True)
_OTHERS: tuple[Any, ...] = ({"a": {"b": 1}}, [], "text", _nested(), 3, None)


def values_for(value: object) -> tuple[Any, ...]:
    """Hostile values for a field that held this one."""
    if isinstance(value, str):
        return _texts()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _NUMBERS
    return _OTHERS


def fields(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every field of a document with its value; of a list only the first entry, since the others are alike."""
    if path:
        yield path, value
    items: Sequence[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        items = tuple(value.items())
    elif isinstance(value, list):
        items = tuple(enumerate(value[:1]))
    for name, inner in items:
        yield from fields(inner, (*path, name))


def with_field(document: Any, path: tuple[str | int, ...], value: Any) -> Any:
    """A copy of a document with one field replaced."""
    copied = json.loads(json.dumps(document))
    place = copied
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return copied


# --- good folders ---


def _task(name: str) -> str:
    """A task file that leaves a mark when it is executed."""
    return f"from pathlib import Path\nPath({str(outside() / name)!r}).touch()\n{DOUBLE}"


@cache
def run_seed() -> Path:
    """A run with an event of every kind: valid, wrong, unreadable and pending trials, an open brief, strategies."""
    folder = scratch() / "seed-run" / "run"
    setup = run_setup(method_named("cupilot"), budget=Budget(trials=60))
    setup = replace(setup, config=replace(setup.config, proposer=f"command:touch {outside() / 'executed'}"))
    prompt = Prompt((Message(Role.SYSTEM, "you write kernels"), Message(Role.USER, "write one")))
    with Session.create(folder, setup) as session:
        for number in range(1, 15):
            brief = session.ask()
            assert brief is not None, session.stop_reason
            session.sent(brief, prompt)
            if number == 3:
                session.failed(brief, "no answer came", TokenUsage(1, 2))
                continue
            text = "no kernel here" if number == 8 else answer_to(brief, number)
            session.answer(brief, Reply(text, "canned", TokenUsage(100, 50, cost_usd=0.01)))
            if number < 14:
                judged(
                    session, lambda c: valid(c, 2.0 + len(c.main.text) % 7) if "6.0f" not in c.main.text else invalid(c)
                )
        session.profiled(session.state.best, "memory-bound", 0.1)
        session.tuned(TrialTuned(session.state.best, 3, 9, 1.1, 0.5), None)
        session.note("a remark")
        session.end(StopReason.TRIALS, "all spent")
    with RunLog.open(folder) as log:
        log.append(PrecedentsFound((Precedent("softmax", "blocks", "some CPU", 1.2, 2.0, "note", "a", "b"),)))
    (folder / TASK_FILE).write_text(_task("executed"))
    return folder.parent


@cache
def bench_seed() -> Path:
    """A bench of two cells, one of them searched, verified and measured again, the other failed."""
    root = scratch() / "seed-bench" / "bench"
    plan = replace(
        planned(["relu@small", "tanh@small"]),
        repeats=1,
        proposers=(f"command:touch {outside() / 'executed'}",),
        options=ProposerOptions(base_url="http://127.0.0.1:9/v1", key_file="/etc/hostname", prices="p", max_tokens=7),
    )
    write_plan(plan, root)
    (root / SIGNATURES).unlink()
    winner = searched(root, plan.cells[0], rising)
    where = checks_folder(root, plan.cells[0].task, winner.id)
    write_evaluation(rising(winner), where / EVALUATION)
    write_certificate(certificate(winner, rising(winner), verified=True), where / "certificate.json")
    write_failure(root / plan.cells[1].folder, "the task is refused")
    write_results(collect(root), root / RESULTS)
    return root.parent


@cache
def bundle_seed() -> Path:
    """A bundle with a certificate."""
    root = scratch() / "seed-bundle"
    return put(root, verified(made_of(root / "made", DOUBLE, TRIPLE))).parent


# --- what reads them ---


@cache
def _command_line() -> Any:
    return typer.main.get_command(app)  # made once: that takes longer than most commands


tried: set[str] = set()
"""The commands that cases have gone through."""


def said(*arguments: str) -> str:
    """What a command says; an AssertionError for a traceback, and for characters that steer a terminal."""
    tried.add(arguments[0])
    words = io.StringIO()
    with redirect_stdout(words), redirect_stderr(words):
        status = _command_line().main(list(arguments), prog_name="warpsmith", standalone_mode=False)
    text = words.getvalue()
    assert status in (0, 1, 2), (arguments, status, text[-500:])
    assert "Traceback" not in text, (arguments, text[-2000:])
    assert "internal error" not in text, (arguments, text[-2000:])
    assert KEY not in text, arguments
    if arguments[-1] != "code":  # a program is given out as it is
        assert printable(text) == text, (arguments, ascii(text)[:500])
    return text


def read_pages(folder: Path, *pages: str) -> None:
    """The pages that `dashboard` and `serve` make of a folder: the list, and these. A page has text only, and the words
    of others in it are printable."""
    tried.add("dashboard")
    served = ServedRuns([folder])
    application = create_dashboard(LivePage(served, KEY))

    async def asked() -> None:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for path in ("", *pages):
                answer = await client.get(f"{PREFIX}{path}")
                assert answer.status_code in (200, 404, 409), (path, answer.status_code, answer.text[:500])
                assert printable(answer.text) == answer.text, (path, ascii(answer.text)[:500])
                assert KEY not in answer.text, path
            with suppress(WarpsmithError, OSError):
                instance = served.run(f"{folder.name}/run").instance
                texts = f"{PREFIX}/texts/{folder.name}/run?instance={instance}&n=0,1,2,3,4,5,6,7,8,9"
                for text in (await client.get(texts)).json().values():
                    assert printable(text) == text, ascii(text)[:500]

    asyncio.run(asked())


def read_by_agents(folder: Path) -> None:
    """What `mcp` tells an agent about a run; the tools that judge are commands, which `read_run` tries."""
    tried.add("mcp")
    tools = AgentTools(Workspace([folder]))
    for name, given in (
        ("list_runs", {"folder": "."}),
        ("read_run", {"run": "run", "full": True}),
        ("read_run", {"run": "run", "trial": "best"}),
        ("read_run", {"run": "run", "trial": "2", "full": True}),
    ):
        with suppress(WarpsmithError):
            text = json.dumps(tools.call(name, given), ensure_ascii=False)
            assert printable(text) == text, (name, ascii(text)[:500])
    for kind in ("run", "best", "report"):
        with suppress(WarpsmithError):
            text, _ = tools.resource(kind, "run")
            assert printable(text) == text, (kind, ascii(text)[:500])


def read_run(folder: Path) -> None:
    """Everything that reads a run."""
    run = str(folder / "run")
    read_pages(folder, f"/runs/{folder.name}/run")
    read_by_agents(folder)
    reply = folder / "reply.md"
    reply.write_text(reply_text(40))
    for words in (
        ("show", run),
        ("show", run, "best"),
        ("show", run, "2", "--only", "reply"),
        ("show", run, "2", "--only", "prompt"),
        ("show", run, "2", "--only", "diff"),
        ("show", run, "2", "--only", "code"),
        ("runs", str(folder)),
        ("runs", str(folder), "--json"),
        ("report", run),
        ("pool", "add", run),
        ("pool", "list"),
        ("pool", "list", "--json"),
        ("export", run),
        ("export", run, "--verify"),
        ("optimize", "--resume", run, "--trials", "99"),
        ("optimize", "--resume", run, "--proposer", "template"),
        ("step", run),
        ("tell", run, str(reply)),
        ("tell", run, str(reply), "--later"),
        ("ask", run),
        ("ask", run, "--json"),
        ("step", run),
    ):
        said(*words)
    report = folder / "run" / "report.html"
    if report.is_file() and not report.is_symlink() and report.stat().st_size < 1 << 30:
        shown = report.read_text(encoding="utf-8", errors="replace")
        assert "<!doctype" not in shown or printable(shown) == shown
    with suppress(WarpsmithError):
        RecordedProposer(Path(run)).close()
    with suppress(WarpsmithError), api.Run.open(run) as opened:
        assert isinstance(opened.trials, tuple)
        with suppress(WarpsmithError):
            opened.tell(opened.ask(), source(41))
        with suppress(WarpsmithError):
            opened.optimize(progress=False)


def read_bench(folder: Path) -> None:
    """Everything that reads a bench."""
    bench = str(folder / "bench")
    read_pages(folder, f"/benches/{folder.name}/bench")
    for words in (
        *(("bench", "show", bench, "--format", form) for form in ("table", "markdown", "csv", "json", "latex")),
        ("bench", "compare", bench, bench),
        ("report", bench),
        ("bench", "resume", bench),
    ):
        text = said(*words)
        if "csv" in words:
            assert not [cell for line in text.splitlines() for cell in line.split(",") if cell[:1] in ("=", "@")], text


def read_results_file(folder: Path) -> None:
    """Everything that reads published results."""
    results = str(folder / "bench" / RESULTS)
    read_pages(folder, f"/benches/{folder.name}/bench")
    for form in ("table", "markdown", "csv", "json", "latex"):
        said("bench", "show", results, "--format", form)
    said("bench", "compare", results, results)
    said("report", results)


def read_bundle(folder: Path) -> None:
    """`load`, up to the point where it executes the task file of the bundle, as it says it does."""
    bundle = folder / "bundle"

    def executed(spec: str, _precision: object = None) -> None:
        path = Path(spec.partition("::")[0])
        assert path.resolve() == path == bundle / "task" / path.name, spec
        raise TaskError("not here")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime_load, "load_task", executed)
        with pytest.raises(WarpsmithError) as refused:
            runtime_load.load(bundle)
    assert printable(str(refused.value)) == str(refused.value)


@cache
def kernels_seed() -> Path:
    """Kernels of another system, with the speedups that are claimed for them and the calls of their functions."""
    folder = scratch() / "seed-kernels" / "kernels"
    folder.mkdir(parents=True)
    (folder / "softmax.cpp").write_text(source(1))
    (folder / "claims.csv").write_text("task,speedup\nsoftmax,1.5\n")
    (folder / "calls.csv").write_text("file,entry,task,allow\nsoftmax.cpp,softmax,softmax,\n")
    read_kernels(folder.parent)  # asks the compiler for its version, once in a process
    return folder.parent


def read_kernels(folder: Path) -> None:
    """Everything that reads kernels and claims of others, up to the point where a kernel is judged."""

    def not_here(*_given: object, **_options: object) -> None:
        raise UsageError("not here")

    kernels = folder / "kernels"
    with pytest.MonkeyPatch.context() as patch:
        for module in (cli_evaluate, cli_verify, cli_tune, cli_bench_judge):
            patch.setattr(module, "open_engine", not_here)
        for starting in (evaluator_module, cli_profile, cli_export):
            patch.setattr(starting, "Evaluator", not_here)
        for kernel in sorted(kernels.glob("*.cpp")):
            for words in (("evaluate",), ("evaluate", "--json"), ("verify",), ("profile",), ("tune",)):
                said(*words, "relu", str(kernel))
            said("export", str(kernel), "--task", "relu", "--verify")
        judge = ("bench", "judge", str(kernels), "--suite", "warpsmith-100")
        said(*judge, "--claims", str(kernels / "claims.csv"))
        said(*judge, "--entries", str(kernels / "calls.csv"))


# --- cases ---


def _rows(folder: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / LOG_FILE)) as connection:
        return connection.execute("SELECT at, kind, brief, trial, body FROM events ORDER BY seq").fetchall()


def _write_log(folder: Path, rows: Sequence[tuple[Any, ...]]) -> None:
    for ending in ("", "-wal", "-shm"):
        (folder / f"{LOG_FILE}{ending}").unlink(missing_ok=True)
    with closing(sqlite3.connect(folder / LOG_FILE)) as connection:
        connection.executescript(SCHEMA)
        with connection:
            insert = "INSERT INTO events (at, kind, brief, trial, body) VALUES (?, ?, ?, ?, ?)"
            connection.executemany(insert, rows)


def run_cases() -> Iterator[Case]:
    """Every field of an event of each kind, and of each purpose of a brief."""
    rows = _rows(run_seed() / "run")
    seen: set[tuple[object, ...]] = set()
    count = 0
    for number, (at, kind, brief, trial, body) in reversed(list(enumerate(rows))):
        document = json.loads(body)
        for path, value in fields(document):
            shape = tuple("*" if isinstance(part, int) else part for part in path)
            if (kind, shape, type(value)) in seen:
                continue
            seen.add((kind, shape, type(value)))
            choices = values_for(value)
            count += 1
            chosen = choices[(count + ROTATION) % len(choices)]
            changed = json.dumps(with_field(document, path, chosen))
            numbers = {"brief": brief, "trial": trial}
            if path[-1] in numbers and len(path) == 1 and isinstance(chosen, int) and abs(chosen) < 1 << 62:
                numbers[str(path[0])] = chosen  # where it is found by that number
            event = (at, kind, *numbers.values(), changed)

            def spoil(folder: Path, number: int = number, event: tuple[Any, ...] = event) -> None:
                _write_log(folder / "run", [*rows[:number], event, *rows[number + 1 :]])

            yield Case(f"{kind}.{'.'.join(map(str, path))} = {str(chosen)[:30]!r}", read_run, run_seed, spoil)


def _document_cases(name: str, reads: Callable[[Path], None], seed: Callable[[], Path], file: Path) -> Iterator[Case]:
    document = json.loads((seed() / file).read_text())
    for count, (path, value) in enumerate(fields(document)):
        choices = values_for(value)
        chosen = choices[(count + ROTATION) % len(choices)]
        text = json.dumps(with_field(document, path, chosen))

        def spoil(folder: Path, text: str = text) -> None:
            (folder / file).write_text(text)

        yield Case(f"{name}.{'.'.join(map(str, path))} = {str(chosen)[:30]!r}", reads, seed, spoil)


def document_cases() -> Iterator[Case]:
    """Every field of plans, results, checks, failures, manifests and certificates."""
    bench, (found,) = bench_seed(), (bench_seed() / "bench" / "winners").glob("*/*")
    winner = found.relative_to(bench)
    (failed,) = (path.relative_to(bench) for path in (bench / "bench").glob("cells/*/*/failed.json"))
    yield from _document_cases("plan", read_bench, bench_seed, Path("bench") / PLAN)
    yield from _document_cases("results", read_results_file, bench_seed, Path("bench") / RESULTS)
    yield from _document_cases("evaluation", read_bench, bench_seed, winner / EVALUATION)
    yield from _document_cases("certificate", read_bench, bench_seed, winner / "certificate.json")
    yield from _document_cases("failure", read_bench, bench_seed, failed)
    yield from _document_cases("manifest", read_bundle, bundle_seed, Path("bundle") / MANIFEST)


REPLIES = (
    STEERING,
    f"name: {STEERING}\nstrategy: {STEERING}\nthought: {STEERING}\ncode:\n```cpp\n{source(51)}```\n",
    f"name: ../../../outside/x\ncode:\n```cpp ../../../outside/x.cpp\n{source(52)}```\n",
    f"```cpp\n// file: /etc/cron.d/x\n{source(53)}```\n",
    f"```cpp\n{source(54)}// {STEERING}\n```\n",
    f"strategy: =cmd|'/c calc'!A1\ncode:\n```cpp\n{source(55)}```\n",
    "```cpp\n" * 20_000,
    "{" * 50_000,
    json.dumps({"name": "x" * 100_000, "code": source(56), "files": [{"path": "../../x", "text": "y"}]}),
    json.dumps({"name": _nested(), "code": _nested()}),
    "<think>" * 10_000 + f"\n```cpp\n{source(57)}```\n",
    "\x00\x01\x02",
    "\ud800" + source(58),
    f'```cpp\n#include "/etc/passwd"\n{source(59)}```\n',
    f"<<<<<<< SEARCH\n{STEERING}\n=======\n{STEERING}\n>>>>>>> REPLACE\n",
    "A" * (3 << 20),
    f"name: {'n' * 100_000}\n```cpp\n{source(60)}```\n",
    "strategy: " + "\u202e" * 1000,
    "",
)


def read_reply(folder: Path) -> None:
    """A reply that is told, kept and shown."""
    run = str(folder / "run")
    said("ask", run)
    said("tell", run, str(folder / "reply.md"), "--later")
    read_run_quickly(folder)


def read_run_quickly(folder: Path) -> None:
    """What shows a run."""
    run = str(folder / "run")
    read_pages(folder, f"/runs/{folder.name}/run")
    read_by_agents(folder)
    for words in (("show", run), ("runs", str(folder)), ("report", run), ("step", run), ("ask", run)):
        said(*words)
    for number in ("1", "2", "3"):
        said("show", run, number)
        said("show", run, number, "--only", "reply")


def reply_cases() -> Iterator[Case]:
    """Replies that are hostile as a whole."""
    for number, text in enumerate(REPLIES):

        def spoil(folder: Path, text: str = text) -> None:
            (folder / "reply.md").write_text(text, encoding="utf-8", errors="surrogatepass")

        yield Case(f"reply {number}: {text[:30]!r}", read_reply, run_seed, spoil)


KERNELS = (
    STEERING,
    f"// {STEERING}\n{source(61)}",
    "// tune: BLOCK = " + ", ".join(map(str, range(20_000))) + f"\n{source(62)}",
    f"// tune: {STEERING} = 1, 2\n{source(63)}",
    "".join(f"// tune: N{number} = 1, 2, 3, 4\n" for number in range(60)) + source(64),
    f'#include "../../../../outside/target"\n{source(65)}',
    f"#embed </dev/zero>\n{source(66)}",
    "(" * 200_000,
    "\ud800",
)
CLAIMS = (
    f"task,speedup\n{STEERING},1\n",
    f"task,speedup\nsoftmax,{STEERING}\n",
    "task,speedup\nsoftmax,1e400\n",
    "task,speedup\nsoftmax,nan\n",
    "task,speedup\nsoftmax\n",
    "task,speedup,task\nsoftmax,1,2,3,4\n",
    f'task,speedup\n"{"a" * 300_000}",1\n',
    "task,speedup\n" + "softmax,1\n" * 50_000,
    f"{STEERING},speedup\n",
    "task,speedup\nsoftmax,\x00\n",
)


CALLS = (
    f"file,entry\n{STEERING},softmax\n",
    f"file,entry\nsoftmax.cpp,{STEERING}\n",
    "file,entry\nsoftmax.cpp,\"__import__('os').system('id')\"\n",
    "file,entry\nsoftmax.cpp," + "f(" * 20_000 + "\n",
    f"file,{STEERING}\n",
    "file,entry\n../../etc/passwd,f\n",
    "file,entry\nsoftmax.cpp,f,g,h\n",
    f'file,entry\n"{"a" * 300_000}",f\n',
    "file,entry\n" + "softmax.cpp,f\n" * 50_000,
    f"file,entry,task\nsoftmax.cpp,f,{STEERING}\n",
    f"file,entry,allow\nsoftmax.cpp,f,{STEERING}\n",
    "file,entry\nsoftmax.cpp,\x00\n",
    'file,entry\nsoftmax.cpp,"f(\n',
)


def kernel_cases() -> Iterator[Case]:
    """Hostile kernels, claims and calls, and names of kernels."""
    tables = (("claims", "claims.csv", CLAIMS), ("calls", "calls.csv", CALLS))
    for what, file, texts in (("kernel", "softmax.cpp", KERNELS), *tables):
        for number, text in enumerate(texts):

            def spoil(folder: Path, file: str = file, text: str = text) -> None:
                (folder / "kernels" / file).write_text(text, encoding="utf-8", errors="surrogatepass")

            yield Case(f"{what} {number}: {text[:30]!r}", read_kernels, kernels_seed, spoil)
        for name, make in ODD_FILES.items():
            yield Case(f"{what}: {name}", read_kernels, kernels_seed, _file(f"kernels/{file}", make))
    for name in (f"softmax{STEERING}.cpp", "soft\nmax.cpp", "-softmax.cpp", f"{'s' * 240}.cpp", "softmax;x.cpp"):

        def rename(folder: Path, name: str = name) -> None:
            (folder / "kernels" / "softmax.cpp").rename(folder / "kernels" / name)

        yield Case(f"kernel named {name[:30]!r}", read_kernels, kernels_seed, rename)


def _script(text: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        with closing(sqlite3.connect(folder / "run" / LOG_FILE)) as connection:
            connection.executescript(f"PRAGMA journal_mode = DELETE; {text}")

    return spoil


_ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
_DROP = "DROP TABLE events; PRAGMA user_version = 2;"
_UNLOCKED = "DROP TRIGGER events_stay; DROP TRIGGER events_last;"
_COLUMNS = "seq INTEGER PRIMARY KEY, at REAL, kind TEXT, brief INTEGER, trial INTEGER, body TEXT"
LOGS = {
    "an endless view": "CREATE TABLE first AS SELECT * FROM events; DROP TABLE events; CREATE VIEW events AS SELECT * "
    f"FROM first UNION ALL SELECT * FROM ({_ENDLESS} SELECT i + 999 AS seq, 1.0 AS at, 'NoteAdded' AS kind, "
    """0 AS brief, 0 AS trial, '{"text": "x"}' AS body FROM n);""",
    "a view without rows": f"{_DROP} CREATE VIEW events AS {_ENDLESS} SELECT i AS seq, 1.0 AS at, 'x' AS kind, "
    "0 AS brief, 0 AS trial, 'x' AS body FROM n WHERE i < 0;",
    "an endless second view": f"CREATE VIEW more AS {_ENDLESS} SELECT i FROM n;",
    "another table": "CREATE TABLE more (x); INSERT INTO more VALUES (1);",
    "a generated column": f"{_DROP} CREATE TABLE events ({_COLUMNS}, more AS (length(hex(zeroblob(1 << 28)))));",
    "a default that computes": f"{_DROP} CREATE TABLE events ({_COLUMNS}, more TEXT DEFAULT (hex(zeroblob(1 << 28))));",
    "a table of other types": f"{_DROP} CREATE TABLE events ({_COLUMNS}); INSERT INTO events VALUES "
    "(1, 'x', 7, 'y', 'z', NULL);",
    "a trigger that loops": f"CREATE TRIGGER more AFTER INSERT ON events BEGIN SELECT count(*) FROM ({_ENDLESS} "
    "SELECT i FROM n); END;",
    "a trigger that deletes": f"{_UNLOCKED} CREATE TRIGGER more AFTER INSERT ON events BEGIN DELETE FROM events; END;",
    "no triggers": _UNLOCKED,
    "no events": f"{_UNLOCKED} DELETE FROM events;",
    "no first event": f"{_UNLOCKED} DELETE FROM events WHERE kind = 'RunCreated';",
    "two first events": "INSERT INTO events (at, kind, body) SELECT at, kind, body FROM events WHERE seq = 1;",
    "events in another order": f"{_UNLOCKED} UPDATE events SET seq = -seq;",
    "an unknown event": "INSERT INTO events (at, kind, body) VALUES (1.0, 'Stranger', '{}');",
    "an event of 80 MiB": "INSERT INTO events (at, kind, body) VALUES (1.0, 'NoteAdded', hex(zeroblob(40 << 20)));",
    "a time that never comes": "INSERT INTO events (at, kind, body) VALUES (9e999, 'NoteAdded', '{\"text\": \"x\"}');",
    "bytes that are no text": "INSERT INTO events (at, kind, body) VALUES (1.0, 'NoteAdded', CAST(X'FFFE' AS TEXT));",
    "another version": "PRAGMA user_version = 99;",
    "version 0": "PRAGMA user_version = 0;",
    "a negative version": "PRAGMA user_version = -5;",
}


def _file(name: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Something else in the place of a file."""

    def spoil(folder: Path) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        make(path)

    return spoil


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def _link_out(path: Path) -> None:
    path.symlink_to(outside() / "target")


def _link_folder(path: Path) -> None:
    path.symlink_to(outside() / "folder", target_is_directory=True)


ODD_FILES: dict[str, Callable[[Path], object]] = {
    "FIFO": os.mkfifo,
    "folder": Path.mkdir,
    "link": _link_out,
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "sparse giant": _sparse,
    "deep JSON": lambda path: path.write_text("[" * 100_000),
    "no text": lambda path: path.write_bytes(b"\xff\xfe\x00\x9b" * 100),
}


def file_cases() -> Iterator[Case]:
    """Logs that are prepared, and files that are no files."""
    for name, text in LOGS.items():
        yield Case(f"{LOG_FILE}: {name}", read_run, run_seed, _script(text))
    (cell,) = (path.relative_to(bench_seed()) for path in (bench_seed() / "bench").glob("cells/*/*/run.db"))
    (winner,) = (path.relative_to(bench_seed()) for path in (bench_seed() / "bench" / "winners").glob("*/*"))
    for name, make in ODD_FILES.items():
        for file in (LOG_FILE, f"{LOG_FILE}-wal", f"{LOG_FILE}-shm", f"{LOG_FILE}-journal", "task.py", "lock"):
            yield Case(f"{file}: {name}", read_run, run_seed, _file(f"run/{file}", make))
        yield Case(f"reply: {name}", read_reply, run_seed, _file("reply.md", make))
        for file in ("best.cpp", "best", "report.html", SIGNATURES):
            yield Case(f"{file}: {name}", read_run, run_seed, _file(f"run/{file}", make))
        for file in (f"bench/{PLAN}", f"bench/{RESULTS}", "bench/report.html", "bench/lock", str(cell)):
            yield Case(f"{file}: {name}", read_bench, bench_seed, _file(file, make))
        for file in (f"{winner}/{EVALUATION}", f"{winner}/certificate.json", f"{cell.parent}/failed.json"):
            yield Case(f"{file}: {name}", read_bench, bench_seed, _file(file, make))
        yield Case(f"{RESULTS}: {name}", read_results_file, bench_seed, _file(f"bench/{RESULTS}", make))
        for file in (MANIFEST, "certificate.json", "kernel/kernel.cpp", "task/operator_task.py"):
            yield Case(f"{file}: {name}", read_bundle, bundle_seed, _file(f"bundle/{file}", make))
    for linked in ("bench/cells", "bench/winners", str(cell.parent), str(winner), str(cell.parent.parent)):
        yield Case(f"{linked}: link to a folder", read_bench, bench_seed, _file(linked, _link_folder))
    for linked in ("bundle/kernel", "bundle/task"):
        yield Case(f"{linked}: link to a folder", read_bundle, bundle_seed, _file(linked, _link_folder))


@cache
def cases() -> tuple[Case, ...]:
    """All of them."""
    outside().mkdir(parents=True, exist_ok=True)
    return (*file_cases(), *reply_cases(), *kernel_cases(), *run_cases(), *document_cases())


# --- one case ---

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CHANGING = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.chmod")
_STARTING = ("subprocess.Popen", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.system", "pty.spawn")
_SENDING = ("socket.connect", "socket.getaddrinfo", "socket.sendto", "urllib.Request", "http.client.connect")
_watched: list[tuple[Path, list[str]]] = []
_hooked: list[bool] = []


def _audit(event: str, given: tuple[Any, ...]) -> None:
    if not _watched:
        return
    folder, found = _watched[-1]
    if event in _STARTING or event in _SENDING or (event == "compile" and "outside" in str(given[1])):
        found.append(f"{event} {given!r:.300}")
    elif event == "open" and given and isinstance(given[0], str | bytes):
        if isinstance(given[2], int) and given[2] & _WRITING:
            _check_inside(event, given[0], folder, found)
    elif event in _CHANGING and given[-1] == -1:  # not relative to an open folder
        for path in given[:2]:
            if isinstance(path, str | bytes):
                _check_inside(event, path, folder, found)


def _check_inside(event: str, path: str | bytes, folder: Path, found: list[str]) -> None:
    name = os.fsdecode(path)
    place = os.path.join(os.path.realpath(os.path.dirname(name) or "."), os.path.basename(name))
    allowed = [str(folder), *(os.path.realpath(os.environ[each]) for each in ("WARPSMITH_CACHE", "WARPSMITH_CONFIG"))]
    if place.startswith(("/dev/", f"{tempfile.gettempdir()}/warpsmith-")):
        return
    if not any(place == each or place.startswith(f"{each}/") for each in allowed):
        found.append(f"{event} {name!r}")


@contextmanager
def watched(folder: Path) -> Iterator[list[str]]:
    """What this process starts, sends or writes outside the folder, its cache and its configuration."""
    if not _hooked:
        sys.addaudithook(_audit)
        _hooked.append(True)
    found: list[str] = []
    _watched.append((folder.resolve(), found))
    try:
        yield found
    finally:
        _watched.pop()


def _prepare_outside() -> dict[str, bytes]:
    shutil.rmtree(outside(), ignore_errors=True)
    (outside() / "folder").mkdir(parents=True)
    (outside() / "target").write_text("the user's own file")
    (outside() / "folder" / "kept").write_text("the user's own folder")
    return _tree(outside())


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in sorted(folder.rglob("*"))}


def try_case(case: Case) -> None:
    """Put one case through its commands; an AssertionError says what must not happen."""
    folder = scratch() / "case"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(case.seed(), folder, ignore=shutil.ignore_patterns("made"))
    before = _prepare_outside()
    case.spoil(folder)
    with watched(folder) as seen, deadline(LIMIT_S):
        case.reads(folder)
    assert not seen, seen[:5]
    assert _tree(outside()) == before, "something outside was changed"
