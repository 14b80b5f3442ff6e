"""The tools for coding agents: thin functions over the commands and the Python API, one JSON object per call.

`AgentTools.call` is the only entry: it checks the arguments, and everything that leaves it can be printed. Results are
short; `full` gives everything. What is wrong raises a `WarpsmithError` of one sentence that says what to do next.
"""

from __future__ import annotations

import inspect
import json
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from warpsmith.agents.call import ToolCall
from warpsmith.agents.new_task import task_text
from warpsmith.agents.workspace import Workspace
from warpsmith.backends.source import backend_named
from warpsmith.model.errors import RunError, UsageError, WarpsmithError
from warpsmith.model.text import printable
from warpsmith.report.page import html
from warpsmith.report.run_page import run_page
from warpsmith.runtime.bundle import MANIFEST
from warpsmith.search.best_kernel import BUNDLE, why_no_best
from warpsmith.search.open_run import RUNS, config_of, default_backend, run_folders
from warpsmith.search.session import Session, consistent
from warpsmith.strategies import knowledge
from warpsmith.strategies.pool import pool_records, shipped_records
from warpsmith.system.files import put_in_place, read_file
from warpsmith.tasks.listing import without_listing
from warpsmith.tasks.suites import SHIPPED, SuiteTask, suite_tasks

Document = dict[str, Any]

GUIDE = Path(__file__).resolve().parent / "guide.md"
_REASON = 1500  # characters of a reason in a short result
_RECENT = 10  # trials in a short result
_VERDICT = (
    *("kernel", "candidate", "status", "reason", "speedup", "speedup_interval"),
    *("latency_ms", "baseline_ms", "share_of_floor", "error", "error_limit", "notes"),
)
_TOLD = ("trial", "brief", "outcome", "status", "reason", "speedup", "speedup_interval", "best", "rank", "valid")

TaskName = Annotated[
    str, Field(description="A task that list_tasks shows, or a task file in the folders: FILE.py::NAME.")
]
KernelText = Annotated[str, Field(description="The path of a kernel's file in the folders, or its whole source text.")]
RunName = Annotated[str, Field(description="The folder of a run, or its name under runs/.")]
BackendName = Annotated[
    Literal["", "cpu", "cuda", "triton", "torch_module"],
    Field(description="The language of source text; empty: cuda with a GPU and nvcc, else cpu."),
]
DeviceName = Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$", description="auto, cpu, cuda or cuda:N.")]
PrecisionName = Annotated[str, Field(pattern=r"^[a-z0-9]*$", description="A precision class; empty: the task's own.")]
Full = Annotated[bool, Field(description="Give the complete result instead of a short one.")]
Limit = Annotated[int, Field(ge=1, le=500, description="Entries at most.")]


def guide() -> str:
    """The skill file for agents."""
    return GUIDE.read_text(encoding="utf-8")


class ToolBox(ABC):
    """Tools for agents: methods whose signatures say what arguments they take."""

    instructions = ""  # for the agent, before its first call

    def __init__(self) -> None:
        self._models = {tool.__name__: _arguments(tool) for tool in self._tools()}

    @abstractmethod
    def _tools(self) -> tuple[Callable[..., Document], ...]:
        """The tools."""

    @abstractmethod
    def resource(self, kind: str, name: str) -> tuple[str, str]:
        """The text of a resource and its media type."""

    def runs(self) -> Iterator[tuple[str, str]]:
        """The runs that are resources: the name in the URI, and the folder's own name."""
        yield from ()

    def call(self, name: str, arguments: Mapping[str, Any], call: ToolCall | None = None) -> Document:
        """Check the arguments of a tool, call it, and make its result printable."""
        tool = next((each for each in self._tools() if each.__name__ == name), None)
        if tool is None:
            raise UsageError(f"there is no tool {name[:80]}; the tools are {', '.join(self._models)}.")
        try:
            given = self._models[name].model_validate(dict(arguments))
        except ValidationError as wrong:
            first = wrong.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "the arguments"
            raise UsageError(f"{name}: {where}: {first['msg']}; correct the argument and call again.") from None
        fields = {field: getattr(given, field) for field in type(given).model_fields}
        try:
            found: Document = clean(tool(call or ToolCall(), **fields))
        except OSError as refused:
            where = refused.filename or "a file"
            raise UsageError(f"{where} cannot be used ({refused.strerror}); name another one.") from None
        return found

    def described(self) -> Iterator[tuple[str, str, Document, bool]]:
        """Each tool: name, description, JSON schema of its arguments, whether it changes nothing in the folders."""
        for tool in self._tools():
            schema = self._models[tool.__name__].model_json_schema()
            schema.pop("title", None)
            yield tool.__name__, inspect.cleandoc(tool.__doc__ or ""), schema, tool.__name__ not in _WRITING


class AgentTools(ToolBox):
    """The tools, bound to the folders that the user opened."""

    instructions = (
        "Warpsmith judges kernels against PyTorch. The loop: make_task or list_tasks, get_contract, evaluate, profile, "
        "improve, verify, export_kernel. Read the resource warpsmith://guide before the first kernel."
    )

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        super().__init__()

    def runs(self) -> Iterator[tuple[str, str]]:
        """See `ToolBox`."""
        first, *_ = self.workspace.folders
        for folder in self.workspace.folders:
            for run in reversed(run_folders(folder / RUNS)):
                yield str(run.relative_to(first) if folder is first else run), run.name

    def _tools(self) -> tuple[Callable[..., Document], ...]:
        return (
            *(self.list_tasks, self.read_task, self.make_task, self.get_contract),
            *(self.evaluate, self.profile, self.verify),
            *(self.ask, self.tell, self.list_runs, self.read_run),
            *(self.search_knowledge, self.search_pool),
            *(self.export_kernel, self.load_kernel, self.write_report),
        )

    # --- tasks ---

    def list_tasks(
        self,
        call: ToolCall,
        where: Annotated[str, Field(description="A suite, or a folder; empty: the suites and the folders.")] = "",
        words: Annotated[str, Field(description="Only tasks with all of these words.")] = "",
        limit: Limit = 30,
        full: Full = False,
    ) -> Document:
        """List tasks: of the suites that come with Warpsmith, and of files in the folders."""
        wanted = words.lower().split()
        notes: list[str] = []
        found = [each for each in self._listed(where, notes) if all(word in _words(each) for word in wanted)]
        return {
            "tasks": [_task(each, full=full) for each in found[:limit]],
            "total": len(found),
            "folders": [str(folder) for folder in self.workspace.folders],
            "notes": notes,
        }

    def _listed(self, where: str, notes: list[str]) -> Iterator[SuiteTask]:
        """The tasks of a place; `notes` gets a sentence for each folder whose tasks cannot be listed."""
        if where in SHIPPED:
            yield from suite_tasks(where)
        elif where.startswith("kernelbench:"):
            yield from suite_tasks(f"kernelbench:{self.workspace.path(where.removeprefix('kernelbench:'))}")
        elif where:
            yield from suite_tasks(str(self.workspace.path(where)))
        else:
            for folder in self.workspace.folders:
                try:
                    yield from suite_tasks(str(folder))
                except WarpsmithError as unlisted:
                    notes.append(str(unlisted))
            for suite in SHIPPED:
                yield from suite_tasks(suite)

    def read_task(self, call: ToolCall, task: TaskName) -> Document:
        """Read the source of a task. Shapes that only verification uses are left out."""
        spec = self.workspace.task(task)
        text = read_file(Path(spec.partition("::")[0]), 1 << 20).decode("utf-8", "replace")
        try:
            text = without_listing(text)
        except (SyntaxError, ValueError):
            raise UsageError(f"{task} is not valid Python; correct the file.") from None
        return {"task": task, "source": text}

    def make_task(
        self,
        call: ToolCall,
        file: Annotated[str, Field(description="The Python file to write, in the folders.")],
        source: Annotated[str, Field(description="Python source with the PyTorch function and what it uses.")],
        inputs: Annotated[
            list[dict[str, str | bool | int | float]] | dict[str, str | bool | int | float],
            Field(
                description='Inputs by parameter, e.g. {"x": "float32[64, 512]", "index": "int64[64] < 512", '
                '"eps": 1e-5}; a list of such objects for several workloads. Empty where the source has @task.'
            ),
        ] = [],  # noqa: B006 - never changed
        function: Annotated[str, Field(description="Which function of the source; empty: the only one.")] = "",
        replace: Annotated[bool, Field(description="Overwrite an existing file.")] = False,
        full: Full = False,
    ) -> Document:
        """Write a task file from a PyTorch function and the shapes of its inputs, and check that it can be judged.

        Equal sizes become one axis; a dimension of 1 stays 1. The task's code is executed on this machine.
        """
        path = self.workspace.new_file(file, ".py", replace=replace)
        sets = inputs if isinstance(inputs, list) else [inputs] if inputs else []
        text, name = task_text(source, function, sets)
        before = read_file(path) if path.is_file() else None
        put_in_place(path, text.encode("utf-8", "replace"), mode=0o644)
        try:
            (contract,) = call.command("contract", f"{path}::{name}", "--json")
        except BaseException:
            if before is None:
                path.unlink(missing_ok=True)
            else:
                put_in_place(path, before, mode=0o644)
            raise
        more = {"source": text, "contract": contract} if full else {}
        short = {key: contract[key] for key in ("backend", "declaration", "precision", "workloads")}
        return {"task": f"{path}::{name}", **short, **more, "next": "get_contract shows the rules; then call evaluate."}

    def get_contract(
        self,
        call: ToolCall,
        task: TaskName,
        backend: BackendName = "",
        precision: PrecisionName = "",
        full: Full = False,
    ) -> Document:
        """Get the exact entry point that a kernel must have for a task, with the rules it is judged by."""
        words = [*_given("backend", backend), *_given("precision", precision)]
        (found,) = call.command("contract", self.workspace.task(task), "--json", *words)
        return found if full else {key: found[key] for key in ("task", "backend", "precision", "entry", "text")}

    # --- judging ---

    def evaluate(
        self,
        call: ToolCall,
        task: TaskName,
        kernels: Annotated[
            list[str], Field(min_length=1, max_length=64, description="Kernels: paths in the folders, or source texts.")
        ],
        backend: BackendName = "",
        device: DeviceName = "auto",
        precision: PrecisionName = "",
        fresh: Annotated[bool, Field(description="Judge again even if the verdict is cached.")] = False,
        full: Full = False,
    ) -> Document:
        """Judge a batch of kernels: is each correct, how fast is it against PyTorch, how near to the roofline?

        Kernels run in a sandbox. A verdict's status is "ok" or says what is wrong; `reason` is for the next attempt.
        """
        spec = self.workspace.task(task)
        words = [f"--device={device}", *_given("precision", precision), *(["--fresh"] if fresh else [])]
        with self._kernel_files(kernels, backend) as files:
            found = call.command("evaluate", spec, *map(str, files), "--json", *words, expected=len(files))
        named = [{**each, "kernel": _name(kernels, place)} for place, each in enumerate(found)]
        return {"task": task, "verdicts": [_short(each, _VERDICT, full=full) for each in named]}

    def profile(
        self,
        call: ToolCall,
        task: TaskName,
        kernel: KernelText,
        backend: BackendName = "",
        device: DeviceName = "auto",
        full: Full = False,
    ) -> Document:
        """Say what limits a kernel's speed, the numbers that show it, and which strategies to try next."""
        spec = self.workspace.task(task)
        with self._kernel_files([kernel], backend) as (file,):
            (found,) = call.command("profile", spec, str(file), "--json", f"--device={device}")
        return _short(found, ("status", "reason", "zone", "bottleneck", "digest", "strategies"), full=full)

    def verify(
        self,
        call: ToolCall,
        task: TaskName,
        kernel: KernelText,
        backend: BackendName = "",
        device: DeviceName = "auto",
        full: Full = False,
    ) -> Document:
        """Test a kernel deeply: other seeds, distributions and shapes, sanitizers, a second measurement.

        Takes a minute or more.
        """
        spec = self.workspace.task(task)
        with self._kernel_files([kernel], backend) as (file,):
            (found,) = call.command("verify", spec, str(file), "--json", f"--device={device}")
        checks = [{key: each.get(key) for key in ("name", "outcome", "detail")} for each in found.get("checks", [])]
        return found if full else {**_picked(found, ("task", "candidate", "verified", "reason")), "checks": checks}

    @contextmanager
    def _kernel_files(self, kernels: Sequence[str], backend: str) -> Iterator[list[Path]]:
        """The files of kernels; a source text is written to a temporary file."""
        with tempfile.TemporaryDirectory(prefix="warpsmith-agent-") as folder:
            files = []
            for place, each in enumerate(kernels):
                if "\n" not in each:
                    files.append(self.workspace.file(each))
                    continue
                files.append(Path(folder) / _name(kernels, place, backend))
                files[-1].write_text(each, encoding="utf-8", errors="replace")
            yield files

    # --- runs ---

    def ask(
        self,
        call: ToolCall,
        run: RunName,
        task: Annotated[str, Field(description="With a new run: its task. Empty for a run that exists.")] = "",
        trials: Annotated[int, Field(ge=0, le=10_000, description="With a new run: trials at most; 0: 45.")] = 0,
        device: Annotated[str, Field(pattern=r"^(|auto|cpu|cuda(:\d+)?)$", description="With a new run.")] = "",
        backend: Annotated[Literal["", "cpu", "cuda", "triton"], Field(description="With a new run.")] = "",
        method: Annotated[str, Field(pattern=r"^[a-z0-9-]*$", description="With a new run; evoengineer-full.")] = "",
        full: Full = False,
    ) -> Document:
        """Get the next brief of a run: the task, what was tried, what is wanted now.

        With a task, a new run is started first.
        """
        if task and self.workspace.has_run(run):
            raise UsageError(f"{run} is a run already; leave out task to get its next brief.")
        if task:
            folder = self.workspace.new_run(run)
            options = {"device": device, "backend": backend, "method": method, "trials": str(trials or "")}
            words = [word for name, value in options.items() for word in _given(name, value)]
            (found,) = call.command("ask", self.workspace.task(task), f"--run={folder}", "--json", *words)
        else:
            (found,) = call.command("ask", str(self.workspace.run(run)), "--json")
        found["answer_with"] = "tell, with this run and brief"
        return found if full else _picked(found, ("run", "brief", "operator", "prompt", "answer_with"))

    def tell(
        self,
        call: ToolCall,
        run: RunName,
        kernel: Annotated[str, Field(description="A kernel's file, its source text, or a reply that holds it.")],
        brief: Annotated[int, Field(ge=0, description="The brief that is answered; 0: the open one.")] = 0,
        full: Full = False,
    ) -> Document:
        """Answer a brief of a run with a kernel. The kernel is judged; the next brief includes the verdict."""
        folder = self.workspace.run(run)
        backend = config_of(folder).config.backend
        with tempfile.TemporaryDirectory(prefix="warpsmith-agent-") as scratch:
            if "\n" in kernel:
                ending = ".md" if "```" in kernel else backend_named(backend).suffixes[0]
                file = Path(scratch) / f"kernel{ending}"
                file.write_text(kernel, encoding="utf-8", errors="replace")
            else:
                file = self.workspace.file(kernel)
            words = [f"--brief={brief}"] if brief else []
            (found,) = call.command("tell", str(folder), str(file), "--json", *words)
        found["next"] = "ask" if found.get("next") else "read_run, then export_kernel: nothing more is asked"
        return found if full else {"run": str(folder), **_short(found, (*_TOLD, "next"), full=False)}

    def list_runs(
        self,
        call: ToolCall,
        folder: Annotated[str, Field(description="A folder of runs; empty: runs/ in each of the folders.")] = "",
        limit: Limit = 20,
        full: Full = False,
    ) -> Document:
        """List runs, the latest first."""
        roots = [self.workspace.path(folder)] if folder else [each / RUNS for each in self.workspace.folders]
        found = [each for root in roots if root.is_dir() for each in reversed(run_folders(root))]
        listed = []
        for each in found[:limit]:
            try:
                listed.append(self._summary(self.workspace.run(str(each)), full=full))
            except WarpsmithError as unreadable:
                listed.append({"run": str(each), "reason": str(unreadable)})
        return {"runs": listed, "total": len(found)}

    @staticmethod
    def _summary(folder: Path, *, full: bool) -> Document:
        with Session.read(folder) as session:
            state = session.state
            best = state.trials.get(state.best)
            short = {
                "run": str(folder),
                "task": state.setup.problem.task.name,
                "trials": state.totals.trials,
                "budget": session.budget.trials,
                "valid": state.totals.valid,
                "speedup": best.score if best else None,
                "state": state.closed.reason.value if state.closed else "open",
            }
            more = {
                "method": state.setup.method.name,
                "proposer": session.proposer,
                "device": state.setup.problem.device,
                "pending": len(state.pending),
                "cost_usd": state.totals.cost_usd,
                "tokens": state.totals.tokens,
            }
            return short | more if full else short

    def read_run(
        self,
        call: ToolCall,
        run: RunName,
        trial: Annotated[str, Field(description='A trial to show with its source: its number, or "best".')] = "",
        full: Full = False,
    ) -> Document:
        """Read a run: its state, the lineage of its best kernel, its last trials; with `trial` one kernel's source."""
        folder = self.workspace.run(run)
        with Session.read(folder) as session:
            if trial:
                return self._trial(session, trial, full=full)
            trials = session.state.trials
            lineage = _ancestors(trials, session.state.best)
            wanted = list(trials) if full else sorted({*lineage, *list(trials)[-_RECENT:]})
            shown = [_trial_line(session, number, full=full) for number in wanted]
        return {**self._summary(folder, full=full), "lineage_of_best": lineage, "trials_shown": shown}

    @staticmethod
    def _trial(session: Session, name: str, *, full: bool) -> Document:
        state = session.state
        if name == "best" and not state.best:
            raise RunError(why_no_best(session))
        number = state.best if name == "best" else int(name) if name.isdecimal() and len(name) < 10 else 0
        proposed = session.proposed(number) if number in state.trials else None
        if proposed is None:
            raise RunError(f"{session.folder} has no trial {name[:40]}; read_run without trial lists them.")
        found = _trial_line(session, number, full=True)
        found["source"] = proposed.candidate.main.text if proposed.candidate else ""
        evaluation = session.evaluation(number)
        return found | {"evaluation": asdict(evaluation)} if full and evaluation else found

    def write_report(self, call: ToolCall, run: RunName) -> Document:
        """Write the report of a run as one HTML file into the run's folder."""
        (found,) = call.command("report", str(self.workspace.run(run)), "--json")
        return found

    # --- what is known ---

    def search_knowledge(
        self,
        call: ToolCall,
        words: Annotated[str, Field(description="What to look for, e.g. 'softmax warp shuffle'.")] = "",
        kind: Annotated[
            Literal["", "strategy", "header", "pool"],
            Field(description="Only the catalogue of strategies, the device library's headers, or the pool."),
        ] = "",
        backend: Annotated[Literal["", "cpu", "cuda", "triton"], Field(description="Only for this language.")] = "",
        limit: Limit = 8,
        full: Full = False,
    ) -> Document:
        """Search the strategies, the headers of the device library and the pool of measured kernels by words."""
        found = knowledge.search_entries(words, kind, backend, limit)
        return {
            "entries": [
                {"kind": each.kind, "name": each.name, "title": each.title, **({"text": each.text} if full else {})}
                for each in found
            ],
        }

    def search_pool(
        self,
        call: ToolCall,
        task: TaskName,
        backend: Annotated[Literal["", "cpu", "cuda", "triton"], Field(description="For which language.")] = "",
        limit: Limit = 5,
        full: Full = False,
    ) -> Document:
        """Find what earlier runs measured for tasks like this one, the best fit first; `full` adds the kernels."""
        words = [*_given("backend", backend), f"--limit={limit}"]
        (found,) = call.command("pool", "search", self.workspace.task(task), "--json", *words)
        if full:
            known = {record.key: record for record in (*pool_records(), *shipped_records())}
            for each in found["records"]:
                record = known.get(each["key"])
                each["kernel"] = record.kernel[0].text if record and record.kernel else ""
            return found
        wanted = ("key", "task", "strategy", "backend", "device", "speedup", "effect", "score")
        return {"records": [_picked(each, wanted) for each in found["records"]]}

    # --- results ---

    def export_kernel(
        self,
        call: ToolCall,
        run: Annotated[str, Field(description="A run, for its best kernel; empty with kernel and task.")] = "",
        kernel: Annotated[str, Field(description="A kernel's file or source text; with task.")] = "",
        task: Annotated[str, Field(description="With kernel: the task it is for.")] = "",
        out: Annotated[str, Field(description="The folder to write; empty: RUN/best. Needed with kernel.")] = "",
        verify: Annotated[bool, Field(description="Verify the kernel first; takes minutes.")] = True,
        backend: BackendName = "",
        full: Full = False,
    ) -> Document:
        """Write a kernel as a bundle that `warpsmith.load` takes: the best of a run, or a kernel for a task."""
        words = ["--json", *(["--verify"] if verify else [])]
        if bool(run) == bool(kernel):
            raise UsageError("give either run, or kernel with task and out.")
        if run:
            folder = self.workspace.run(run)
            target = self.workspace.path(out) if out else folder / BUNDLE
            (found,) = call.command("export", str(folder), f"--out={target}", *words)
        else:
            if not task or not out:
                raise UsageError("a kernel is exported with its task and a folder: give task and out as well.")
            target, spec = self.workspace.path(out), self.workspace.task(task)
            with self._kernel_files([kernel], backend) as (file,):
                (found,) = call.command("export", str(file), f"--task={spec}", f"--out={target}", *words)
        if not found.get("bundle"):
            raise UsageError(f"nothing was written: {str(found.get('reason')).rstrip('.')}; evaluate says more.")
        found["use"] = f"from warpsmith import load; op = load({found['bundle']!r})"
        wanted = ("bundle", "task", "candidate", "verified", "reason", "covers", "speedup", "use")
        return found if full else _picked(found, wanted)

    def load_kernel(
        self,
        call: ToolCall,
        bundle: Annotated[str, Field(description="A bundle that export_kernel wrote, or a run with one.")],
    ) -> Document:
        """Load a bundle in a process of its own, call its kernel once, and compare the result with PyTorch.

        A bundle is a program and runs here without a sandbox.
        """
        folder = self.workspace.path(bundle)
        if not folder.is_dir():
            raise UsageError(f"there is no bundle {bundle}; export_kernel writes one.")
        if not (folder / MANIFEST).is_file():
            folder = self.workspace.path(str(folder / BUNDLE))  # checked again: it may be a link
            if not (folder / MANIFEST).is_file():
                raise UsageError(f"there is no bundle in {bundle}; export_kernel writes one.")
        (found,) = call.command(str(folder), module="warpsmith.agents.load_check")
        found["use"] = f"from warpsmith import load; op = load({found['bundle']!r})"
        return found

    # --- resources ---

    def resource(self, kind: str, name: str) -> tuple[str, str]:
        """The text of a resource and its media type."""
        if kind == "guide":
            text, media = guide(), "text/markdown"
        elif kind == "library":
            text = knowledge.library_header(name) if name else knowledge.library_page()
            media = "text/plain" if name else "text/markdown"
        elif kind == "strategy":
            text, media = knowledge.strategy_card(name), "text/markdown"
        elif kind == "run":
            text, media = json.dumps(self.call("read_run", {"run": name}), indent=1), "application/json"
        elif kind == "best":
            text, media = self.call("read_run", {"run": name, "trial": "best"})["source"], "text/plain"
        elif kind == "report":
            folder = self.workspace.run(name)
            with consistent(folder):
                text, media = html(*run_page(folder)), "text/html"
        else:
            raise UsageError(f"there is no resource warpsmith://{kind}/{name[:80]}; list the resources.")
        return printable(text), media


_WRITING = ("make_task", "ask", "tell", "export_kernel", "write_report")


def clean(value: Any) -> Any:
    """The same value with every text in it printable."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {printable(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    return value


def _arguments(tool: Callable[..., Document]) -> type[BaseModel]:
    """A model of the arguments of a tool, without the call."""
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(tool, eval_str=True).parameters.items():
        if name != "call":
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            fields[name] = (parameter.annotation, default)
    return create_model(tool.__name__, __config__=ConfigDict(extra="forbid"), **fields)


def _task(entry: SuiteTask, *, full: bool) -> Document:
    title = entry.title if entry.suite in SHIPPED else entry.spec()
    short = {"task": title, "family": entry.family, "description": entry.description}
    if not full:
        return short
    sizes = {name: {w.name: w.sizes for w in getattr(entry, name)} for name in ("workloads", "small")}
    return {**short, "tags": list(entry.tags), "precisions": [each.value for each in entry.precisions], **sizes}


def _words(entry: SuiteTask) -> str:
    return " ".join((entry.suite, entry.name, entry.family, *entry.tags, entry.description)).lower()


def _given(option: str, value: str) -> list[str]:
    return [f"--{option}={value}"] if value else []


def _name(kernels: Sequence[str], place: int, backend: str = "") -> str:
    """The name of a kernel in a batch: its path, or a name for a source text."""
    if "\n" not in kernels[place]:
        return kernels[place]
    return f"kernel_{place + 1}" + (backend_named(backend or default_backend()).suffixes[0])


def _picked(document: Mapping[str, Any], names: Sequence[str]) -> Document:
    return {name: document.get(name) for name in names}


def _short(document: Mapping[str, Any], names: Sequence[str], *, full: bool) -> Document:
    """The named fields, without empty ones; a long reason is cut."""
    if full:
        return dict(document)
    found = {name: document[name] for name in names if document.get(name) not in (None, "", [], {})}
    reason = str(found.get("reason", ""))
    if len(reason) > _REASON:
        found["reason"] = f"{reason[:_REASON]} … ({len(reason) - _REASON} characters more with full=true)"
    return found


def _ancestors(trials: Mapping[int, Any], best: int) -> list[int]:
    """The trials that a kernel was derived from, the oldest first, then the kernel itself."""
    found, waiting = set(), [best] if best in trials else []
    while waiting:
        number = waiting.pop()
        if number not in found and number in trials:
            found.add(number)
            waiting += trials[number].parents
    return sorted(found)


def _trial_line(session: Session, number: int, *, full: bool) -> Document:
    trial, record = session.state.trials[number], session.record(number)
    short = {
        "trial": number,
        "parents": list(trial.parents),
        "status": (record.status or record.outcome).value,
        "speedup": trial.score,
        "best": number == session.state.best,
        "strategy": trial.strategy if full else trial.strategy[:200],
    }
    return (
        short | {"candidate": trial.candidate, "operator": trial.operator, "reason": record.reason} if full else short
    )
