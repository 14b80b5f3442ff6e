"""The tools of an agent that works on one step of a run: `warpsmith mcp --bound SOCKET`, started by the agent.

Every call goes through the socket to the process of the run, which alone evaluates, counts and logs.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from warpsmith.agents.call import ToolCall
from warpsmith.agents.tools import Document, Full, Limit, ToolBox, guide
from warpsmith.backends.source import MAX_SOURCE_BYTES
from warpsmith.model.errors import UsageError
from warpsmith.proposers.step_server import TOKEN_VARIABLE
from warpsmith.strategies import knowledge
from warpsmith.system.files import read_file


class BoundTools(ToolBox):
    """The tools, bound to the step behind a socket."""

    instructions = (
        "You work on one step of a run of Warpsmith. BRIEF.md in your folder says what is wanted. Write the kernel "
        "file that it names, evaluate it, profile, improve; the file that you leave is your proposal."
    )

    def __init__(self, path: str, token: str) -> None:
        if not path or not token:
            raise UsageError(f"--bound needs a socket and the variable {TOKEN_VARIABLE}, which a run gives its agent.")
        self._path = path
        self._token = token
        super().__init__()

    def _tools(self) -> tuple[Callable[..., Document], ...]:
        return self.evaluate, self.profile, self.read_run, self.search_knowledge

    def evaluate(
        self,
        call: ToolCall,
        kernel: Annotated[str, Field(description="The path of the kernel's file in your folder, or its source text.")],
    ) -> Document:
        """Have a kernel judged by the run: is it correct, how fast is it against PyTorch? Spends a trial.

        The status is "ok" or says what is wrong; `reason` is for the next attempt.
        """
        return self._send("evaluate", source=kernel if "\n" in kernel else _text(kernel))

    def profile(
        self, call: ToolCall, trial: Annotated[int, Field(ge=1, description="A valid trial of this run.")]
    ) -> Document:
        """Say what limits the speed of a valid trial, and what to try next."""
        return self._send("profile", trial=trial)

    def read_run(
        self,
        call: ToolCall,
        trial: Annotated[int, Field(ge=0, description="A trial to show with its source; 0: the latest trials.")] = 0,
    ) -> Document:
        """Read the run: its latest trials, what is left of this step, or one trial with its source."""
        return self._send("read_run", trial=trial)

    def search_knowledge(
        self,
        call: ToolCall,
        words: Annotated[str, Field(description="What to look for, e.g. 'softmax warp shuffle'.")] = "",
        kind: Annotated[Literal["strategy", "header"], Field(description="Strategies, or headers.")] = "strategy",
        limit: Limit = 8,
        full: Full = False,
    ) -> Document:
        """Search the strategies of the catalogue or the headers of the device library by words."""
        found = knowledge.search_entries(words, kind, "", limit)
        return {"entries": [{"name": e.name, "title": e.title, **({"text": e.text} if full else {})} for e in found]}

    def resource(self, kind: str, name: str) -> tuple[str, str]:
        """See `ToolBox`."""
        if kind == "guide":
            return guide(), "text/markdown"
        if kind == "library":
            return knowledge.library_header(name) if name else knowledge.library_page(), "text/plain"
        if kind == "strategy":
            return knowledge.strategy_card(name), "text/markdown"
        raise UsageError(f"a step has no resource warpsmith://{kind}; call read_run.")

    def _send(self, tool: str, **arguments: Any) -> Document:
        """Send one request and wait for its answer, which may take as long as judging does."""
        request = {"token": self._token, "tool": tool, "arguments": arguments}
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
                link.connect(self._path)
                link.sendall(json.dumps(request).encode() + b"\n")
                with link.makefile("rb") as lines:
                    answer = json.loads(lines.readline() or b'{"error": "the step has ended; end now."}')
        except (OSError, ValueError):
            raise UsageError("the run does not answer: the step has ended; end now.") from None
        if "result" not in answer:
            raise UsageError(str(answer.get("error")))
        found: Document = answer["result"]
        return found


def _text(name: str) -> str:
    path = Path(os.environ.get("WARPSMITH_STEP", ".")) / name
    try:
        return read_file(path, MAX_SOURCE_BYTES).decode("utf-8", "replace")
    except OSError as refused:
        raise UsageError(f"{name} cannot be read ({refused.strerror}); write the file first.") from None
