"""The reference agent: a chat model that reads, writes, evaluates and profiles by tool calls until it has finished.

Works with every provider of `warpsmith.llm`. For a model that takes no tools, or calls none, a program in its reply is
evaluated and the verdict sent back. The agent runs in the process of the run and touches nothing but its own folder.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from warpsmith.backends.source import MAX_SOURCE_BYTES
from warpsmith.llm.conversation import ChatReply, ChatTurn, ToolSpec, ToolsRefused, ToolUse, turns_of
from warpsmith.llm.model import Model
from warpsmith.model.brief import Brief, Prompt, Reply, Role
from warpsmith.model.errors import ProposerFault, ProposerRefused, UsageError, WarpsmithError
from warpsmith.model.method import Product
from warpsmith.model.run_tools import RunTools
from warpsmith.model.usage import TokenUsage
from warpsmith.proposers.step import AgentStep, Document, StepBudget, step_folder, with_tools
from warpsmith.system.files import check_below, put_in_place, read_file

_SHOWN = 24_000  # characters of a file that `read` shows
_MOST_MISSES = 3  # replies in a row with neither a call nor a program
_DONE = "DONE"
_AGAIN = (
    "Improve the kernel: answer with the complete file in one fenced block, or with the word DONE to keep the best one."
)
_NO_CALL = "Call a tool, or answer with the complete file in one fenced block; answer DONE when you have finished."


def _tool(name: str, description: str, needed: tuple[str, ...] = (), **arguments: tuple[str, str]) -> ToolSpec:
    properties = {key: {"type": kind, "description": about} for key, (kind, about) in arguments.items()}
    return ToolSpec(name, description, {"type": "object", "properties": properties, "required": list(needed)})


TOOLS = (
    _tool("read", "Read a file of your folder, or list a folder.", ("path",), path=("string", "e.g. knowledge")),
    _tool(
        "write",
        "Write a file of your folder.",
        ("path", "text"),
        path=("string", "The kernel's file, as the brief names it, or a note."),
        text=("string", "The whole content."),
    ),
    _tool(
        "evaluate",
        "Have the kernel's file judged: correct or not, how fast against PyTorch. Spends a trial of the run.",
        path=("string", "Another file than the kernel's; leave out for the kernel's."),
    ),
    _tool("profile", "Say what limits a valid trial.", ("trial",), trial=("integer", "Its number, from a verdict.")),
    _tool(
        "read_run",
        "The latest trials with their verdicts and what is left of the step; with a number, one trial with its source.",
        trial=("integer", "The number of a trial; leave out for the latest."),
    ),
    _tool("finish", "End: the kernel's file is your proposal.", summary=("string", "What you found out.")),
)


class ModelAgent:
    """A `Proposer` that lets a model work with tools on each brief."""

    def __init__(self, model: Model, budget: StepBudget | None = None, concurrency: int = 1) -> None:
        self.name = f"agent:{model.name}"
        self.concurrency = concurrency
        self._model = model
        self._budget = budget or StepBudget()
        self._tools: RunTools | None = None
        self._takes_tools = True  # until the endpoint refuses them

    def bind(self, tools: RunTools) -> None:
        """See `WorkingProposer`."""
        self._tools = tools

    def prompt(self, brief: Brief) -> Prompt:
        """See `Proposer`."""
        from warpsmith.prompts.renderer import render  # jinja2, which choosing a proposer does not need

        rendered = render(brief)
        works = brief.product is Product.KERNEL and self._takes_tools
        return with_tools(rendered, brief, self._budget) if works else rendered

    def propose(self, brief: Brief, prompt: Prompt) -> Reply:
        """See `Proposer`."""
        if brief.product is not Product.KERNEL:
            return self._model.complete(prompt)
        with step_folder(brief, os.environ) as folder:
            work_folder = folder / "work"
            work_folder.mkdir()
            step = AgentStep(brief, self._tools, self._budget, work_folder, self._model.model)
            step.write_folder(prompt)
            work = _Work(self._model, step, self._budget, TOOLS if self._takes_tools else ())
            try:
                return work.run(prompt)
            finally:
                self._takes_tools = bool(work.tools)
                (folder / "transcript.json").write_text(json.dumps([asdict(turn) for turn in work.turns], indent=1))

    def close(self) -> None:
        """See `Proposer`."""
        self._model.close()


class _Work:
    """One conversation about one brief."""

    def __init__(self, model: Model, step: AgentStep, budget: StepBudget, tools: tuple[ToolSpec, ...]) -> None:
        self.tools = tools  # none once the endpoint has refused them
        self.turns: list[ChatTurn] = []
        self._model = model
        self._step = step
        self._budget = budget
        self._tokens = 0
        self._unbooked = TokenUsage(cost_usd=0.0, requests=0)  # not yet reported to the run
        self._said = ""  # the latest reply with a program in its text
        self._misses = 0
        self._finished = False

    def run(self, prompt: Prompt) -> Reply:
        """Talk until the model has finished or the step's budget is spent."""
        begun, fault = time.monotonic(), None
        turns = self.turns = list(turns_of(prompt))
        for _ in range(self._budget.turns):
            if self._finished or not self._step.left_s or self._tokens >= self._budget.tokens:
                break
            try:
                reply = self._model.converse(turns, self.tools)
            except ToolsRefused as refused:
                self.tools = ()
                turns = self.turns = list(turns_of(prompt))[:-1]  # without the message about tools
                self._spend(refused.usage)
                continue
            except ProposerFault as error:
                self._spend(error.usage)
                error.usage = self._unbooked
                if isinstance(error, ProposerRefused):
                    raise
                fault = error
                break
            self._spend(reply.usage)
            turns.append(ChatTurn(Role.ASSISTANT, reply.text, reply.uses))
            turns += self._answers(reply)
        usage = replace(self._unbooked, seconds=time.monotonic() - begun)
        left = self._step.proposal(self._said, usage)
        if left is None:
            raise fault or ProposerFault(f"{self._model.name} ended its step without a kernel.", usage)
        return left

    def _spend(self, usage: TokenUsage | None) -> None:
        if usage is not None:
            self._tokens += usage.tokens
            self._unbooked = _sum(self._unbooked, usage)

    def _answers(self, reply: ChatReply) -> list[ChatTurn]:
        """The next messages to the model; none at the end of the step."""
        if reply.uses:
            self._misses = 0
            return [ChatTurn(Role.USER, json.dumps(self._use(use)), answers=use.id) for use in reply.uses]
        heard = self._read_text(reply)
        self._finished = self._finished or not heard
        return [ChatTurn(Role.USER, heard)] if heard else []

    # --- without tools ---

    def _read_text(self, reply: ChatReply) -> str:
        """Evaluate the program in a reply without calls; returns the answer to the model, "" if the step ends."""
        from warpsmith.prompts.parser import parse  # see `prompt`

        if reply.text.strip().strip("*.`").upper() == _DONE:
            return ""
        found = parse(Reply(reply.text, reply.model, finish=reply.finish), self._step.brief)
        if found.candidate is None:
            self._misses += 1
            return f"{found.failure} {_NO_CALL}" if self._misses < _MOST_MISSES else ""
        self._misses, self._said = 0, reply.text
        try:
            verdict = self._evaluate(reply.text, file="")
        except UsageError:
            return ""  # no evaluation is left: the reply is the proposal
        if self._step.best is not None and not verdict["evaluations_left"]:
            return ""  # the best kernel is the proposal, whatever else the model would say
        return f"The verdict: {json.dumps(verdict)}\n\n{_AGAIN}"

    # --- tools ---

    def _use(self, use: ToolUse) -> Document:
        """The result of a call, or the reason why it was refused."""
        calls: Mapping[str, Callable[..., Document]] = {
            "read": self._read,
            "write": self._write,
            "evaluate": self._evaluate_file,
            "profile": self._profile,
            "read_run": self._read_run,
            "finish": self._finish,
        }
        arguments = use.parsed
        if use.name not in calls:
            return {"error": f"there is no tool {use.name[:80]!r}; the tools are {', '.join(calls)}."}
        if arguments is None:
            return {"error": "the arguments are no JSON object; write them again."}
        spec = next(tool for tool in TOOLS if tool.name == use.name)
        known: Any = spec.schema["properties"]
        given = {name: value for name, value in arguments.items() if name in known}
        try:
            return calls[use.name](**given)
        except TypeError:
            return {"error": f"{use.name} takes {', '.join(known)}; correct the arguments."}
        except (WarpsmithError, OSError) as refused:
            return {"error": str(refused)}

    def _read(self, path: str) -> Document:
        place = self._place(path)
        if place.is_dir():
            return {"files": sorted(f"{each.name}{'/' if each.is_dir() else ''}" for each in place.iterdir())}
        text = read_file(place, MAX_SOURCE_BYTES).decode("utf-8", "replace")
        return {"text": text[:_SHOWN], **({"left_out": len(text) - _SHOWN} if len(text) > _SHOWN else {})}

    def _write(self, path: str, text: str) -> Document:
        place = self._place(path)
        if place == self._step.folder or place.is_dir():
            raise UsageError(f"{path} is a folder; name a file.")
        content = text.encode("utf-8", "replace")
        if len(content) > MAX_SOURCE_BYTES:
            raise UsageError(f"the text has more than {MAX_SOURCE_BYTES} bytes; write less.")
        put_in_place(place, content, below=self._step.folder)
        return {"written": len(content), "next": "evaluate"}

    def _evaluate_file(self, path: str = "") -> Document:
        place = self._place(path or self._step.file)
        try:
            text = read_file(place, MAX_SOURCE_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            raise UsageError(f"there is no {path or self._step.file}; write the file first.") from None
        return self._evaluate(text, file=self._step.file)

    def _evaluate(self, text: str, *, file: str) -> Document:
        before = self._step.evaluated
        verdict = self._step.evaluate(text, self._unbooked, file)
        if self._step.evaluated > before:  # the usage is in the log with the trial
            self._unbooked = TokenUsage(cost_usd=0.0, requests=0)
        return verdict

    def _profile(self, trial: int) -> Document:
        return self._step.profile(_trial_number(trial))

    def _read_run(self, trial: int = 0) -> Document:
        return self._step.read_run(_trial_number(trial))

    def _finish(self, summary: str = "") -> Document:
        self._finished = True
        return {"finished": True}

    def _place(self, path: str) -> Path:
        """A path in the folder of the step; refused where it leaves the folder."""
        if not isinstance(path, str) or "\0" in path:
            raise UsageError("a path is a text; name a file of your folder.")
        folder = self._step.folder
        found = folder / path.lstrip("/")
        if ".." in found.parts:
            raise UsageError(f"{path} leaves your folder; name a file in it.")
        check_below(folder, found / "x")
        return found


def _trial_number(given: object) -> int:
    if type(given) is not int:
        raise UsageError("a trial is a whole number, from a verdict.")
    return given


def _sum(one: TokenUsage, other: TokenUsage) -> TokenUsage:
    cost = None if one.cost_usd is None or other.cost_usd is None else one.cost_usd + other.cost_usd
    return TokenUsage(
        one.prompt_tokens + other.prompt_tokens,
        one.completion_tokens + other.completion_tokens,
        one.cached_tokens + other.cached_tokens,
        cost,
        one.seconds + other.seconds,
        one.requests + other.requests,
    )
