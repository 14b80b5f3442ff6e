"""One step of an agent: the folder that it gets, the tools that it may call, and the proposal that it leaves.

The folder is the agent's alone: nothing in it is read back but the proposal. Verdicts come from the run through
`RunTools`; what an agent writes, prints or sends about a verdict has no effect.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpsmith.backends.source import MAX_SOURCE_BYTES, backend_named
from warpsmith.model.brief import Brief, Message, Prompt, Reply, Role, ShownCandidate
from warpsmith.model.errors import UsageError
from warpsmith.model.method import Product
from warpsmith.model.run_tools import RunTools, StepVerdict
from warpsmith.model.usage import TokenUsage
from warpsmith.proposers.command import brief_json, plain
from warpsmith.strategies.catalogue import relevant_strategies
from warpsmith.strategies.knowledge import card, headers, library_page
from warpsmith.system.files import read_file, remove_tree

Document = dict[str, Any]

BRIEF_FILE = "BRIEF.md"
REPLY_FILE = "reply.md"
KEEP_VARIABLE = "WARPSMITH_KEEP_STEPS"
_CARDS = 40  # strategies of the catalogue in the folder
_REASON = 3000  # characters of a reason in a verdict
_SAFE = re.compile(r"[^A-Za-z0-9_.-]")
_TOOLS = """# How you work

You are an agent with tools, in a folder of your own. Instead of the reply described above, write the complete file
`{file}` in this folder; what that file holds when you end is your proposal. Its first lines may be comments:
`{comment} name: ...`, `{comment} strategy: ...`, `{comment} thought: ...`.

On the way you may have up to {trials} kernels evaluated (tool `evaluate`; each one is a trial of the run), profile
those that are valid (tool `profile`) and read earlier trials (tool `read_run`). You have {seconds:.0f} seconds. The
run's own limits may end a step earlier. Only the run's evaluator decides what is correct and fast: nothing that you
write about a speed counts, and a kernel that cheats is refused.

Beside `{brief}` (this text) the folder holds `brief.json`, kernels in `parents/` and `lineage/`, and in `knowledge/`
the strategies that fit this task, what other runs found out, and the headers of the device library."""


@dataclass(frozen=True)
class StepBudget:
    """The limits of one step; the run's own limits may end it earlier."""

    trials: int = 8  # kernels evaluated on the way
    seconds: float = 1800.0
    tokens: int = 400_000  # of the reference agent
    turns: int = 60  # of the reference agent


class AgentStep:
    """The work of an agent on one brief. The tools are safe to call from several threads."""

    def __init__(
        self, brief: Brief, tools: RunTools | None, budget: StepBudget, folder: Path, model: str = "agent"
    ) -> None:
        self.brief = brief
        self._model = model
        self.folder = folder
        self.file = kernel_file(brief)
        self.evaluated = 0  # trials that this step has spent
        self.best: StepVerdict | None = None  # the fastest valid kernel that this step had evaluated
        self._tools = tools
        room = tools.room(brief.number) if tools is not None else None
        self._trials = min(budget.trials, room.trials) if room else 0
        left_s = room.seconds if room and room.seconds is not None else budget.seconds
        self.seconds = min(budget.seconds, left_s)
        self.until = time.monotonic() + self.seconds
        self._lock = threading.Lock()

    @property
    def left_s(self) -> float:
        """Seconds until the step ends."""
        return max(0.0, self.until - time.monotonic())

    # --- tools ---

    def evaluate(self, source: str, usage: TokenUsage | None = None, file: str | None = None) -> Document:
        """Have a kernel evaluated by the run; with `file` "" the source is a reply in which the kernel is found.

        `usage` is what the kernel has cost; it is stored with the trial.
        """
        if self.brief.product is not Product.KERNEL:
            raise UsageError(f"the brief asks for no kernel; write {REPLY_FILE} and end.")
        with self._lock:  # one at a time: the budget is checked before each
            if self.evaluated >= self._trials:
                raise UsageError("no evaluation is left in this step; leave your best kernel and end.")
            if not self.left_s:
                raise UsageError("the time of this step is over; end now.")
            usage = usage or TokenUsage(cost_usd=0.0, requests=0)
            reply = Reply(source, self._model, usage, file=self.file if file is None else file)
            verdict = self._run.evaluate(self.brief.number, reply)
            self.evaluated += not verdict.known
            if _low(verdict) > _low(self.best):
                self.best = verdict
            return self._document(verdict)

    def profile(self, trial: int) -> Document:
        """Where the time of a valid trial goes."""
        return {"trial": trial, "profile": self._run.profile(trial)}

    def read_run(self, trial: int = 0) -> Document:
        """The latest trials; with a number, one trial with its source."""
        if trial:
            shown = self._run.trial(trial)
            return {**_facts(shown), "thought": shown.thought, "source": "\n".join(file.text for file in shown.files)}
        return {"trials": [_facts(shown) for shown in self._run.trials()], **self._left()}

    @property
    def _run(self) -> RunTools:
        if self._tools is None:
            raise UsageError("this agent works for no run, so that nothing can be evaluated; write the proposal.")
        return self._tools

    def _left(self) -> Document:
        return {"evaluations_left": max(0, self._trials - self.evaluated), "seconds_left": round(self.left_s)}

    def _document(self, verdict: StepVerdict) -> Document:
        found = _facts(verdict.shown) | {"best_of_run": verdict.best}
        if verdict.waiting:
            found["note"] = "The run measures this kernel a second time before it counts as the best."
        if verdict.known:
            found["note"] = "The run knew this kernel; no evaluation was spent."
        return found | self._left()

    # --- the folder ---

    def write_folder(self, prompt: Prompt) -> None:
        """Write the brief, the kernels it shows and what is known into the folder."""
        brief = self.brief
        shown = {
            "parents": [*brief.parents, *filter(None, (brief.best, brief.start, brief.failure, brief.subject))],
            "lineage": brief.lineage,
        }
        texts = {BRIEF_FILE: plain(prompt), "brief.json": brief_json(brief), **_knowledge(brief)}
        for place, kernels in shown.items():
            for kernel in kernels:
                for file in kernel.files:
                    texts[f"{place}/trial_{kernel.trial}_{_SAFE.sub('_', file.name)}"] = file.text
        for name, text in texts.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", errors="replace")

    def proposal(self, said: str = "", usage: TokenUsage | None = None) -> Reply | None:
        """The reply that an agent leaves; None if there is none.

        The file that the brief asks for; else the fastest kernel that the step had evaluated; else what the agent said.
        """
        usage = usage or TokenUsage(cost_usd=None, seconds=self.seconds - self.left_s)
        left = self._left_file()
        if left.strip():
            return Reply(left, self._model, usage, file=self.file if self.brief.product is Product.KERNEL else "")
        if self.best is not None:
            return Reply(self.best.shown.files[0].text, self._model, usage, file=self.file)
        return Reply(said, self._model, usage) if said.strip() else None

    def _left_file(self) -> str:
        name = self.file if self.brief.product is Product.KERNEL else REPLY_FILE
        with suppress(OSError):
            return read_file(self.folder / name, MAX_SOURCE_BYTES).decode("utf-8", "replace")
        return ""


@contextmanager
def step_folder(brief: Brief, environ: Mapping[str, str]) -> Iterator[Path]:
    """A temporary folder for a step; kept below the folder in `WARPSMITH_KEEP_STEPS` where that is set."""
    folder = Path(tempfile.mkdtemp(prefix="warpsmith-step-"))
    try:
        yield folder
    finally:
        keep = environ.get(KEEP_VARIABLE, "")
        if keep:
            with suppress(OSError):  # the step counts, whether it can be kept or not
                Path(keep).mkdir(parents=True, exist_ok=True)
                shutil.move(folder, Path(keep) / f"brief_{brief.number}_{folder.name[-8:]}")
        remove_tree(folder)  # whatever the agent has made of it


def kernel_file(brief: Brief) -> str:
    """The name of the file that holds a proposal."""
    return f"kernel{backend_named(brief.problem.backend).suffixes[0]}"


def with_tools(prompt: Prompt, brief: Brief, budget: StepBudget) -> Prompt:
    """The prompt of a brief for an agent in a folder of its own."""
    if brief.product is not Product.KERNEL:
        said = f"# How you work\n\nWrite the reply described above to the file `{REPLY_FILE}` in this folder, and end."
    else:
        file = kernel_file(brief)
        comment = "#" if file.endswith(".py") else "//"
        said = _TOOLS.format(file=file, comment=comment, trials=budget.trials, seconds=budget.seconds, brief=BRIEF_FILE)
    return Prompt((*prompt.messages, Message(Role.USER, said)))


def _knowledge(brief: Brief) -> Mapping[str, str]:
    """Files about what is known: strategies, lessons of other runs, the device library."""
    problem = brief.problem
    fitting = relevant_strategies(problem, _CARDS)
    found = {"knowledge/strategies.md": "\n\n".join(card(each) for each in fitting)}
    lessons = [
        f"# {each.task}: {each.strategy}\n\nOn {each.device}"
        + (f", {each.speedup:.2f}x PyTorch eager" if each.speedup else "")
        + (f", {each.effect:.2f}x the speed before" if each.effect else "")
        + f". {each.note}\n\n```\n{each.after}\n```\n"
        for each in brief.precedents
    ]
    if lessons:
        found["knowledge/other_runs.md"] = "\n".join(lessons)
    library = headers(problem.backend)
    if library:
        found["knowledge/library.md"] = library_page(problem.backend)
    return found | {f"knowledge/include/warpsmith/{name}": path.read_text("utf-8") for name, path in library.items()}


def _low(verdict: StepVerdict | None) -> float:
    """The lower end of a speedup, by which kernels are ranked; 0 for a kernel that is not valid."""
    return verdict.shown.interval.low if verdict is not None and verdict.shown.interval is not None else 0.0


def _facts(shown: ShownCandidate) -> Document:
    """A trial as an agent reads it, without its code."""
    found: Document = {"trial": shown.trial, "status": shown.status.value}
    if shown.reason:
        found["reason"] = shown.reason[:_REASON]
    if shown.speedup is not None and shown.interval is not None:
        found |= {
            "speedup": round(shown.speedup, 4),
            "speedup_interval": [round(shown.interval.low, 4), round(shown.interval.high, 4)],
            "latency_ms": dict(shown.latency_ms),
            "share_of_limit": shown.share_of_floor,
        }
    if shown.resources:
        found["compiler"] = list(shown.resources)
    if shown.strategy:
        found["strategy"] = shown.strategy
    return found
