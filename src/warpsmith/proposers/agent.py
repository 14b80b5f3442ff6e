"""A proposer that starts a coding agent for every brief: a command in a folder of its own, with the run's tools.

The command runs in a shell in that folder, with the prompt on its standard input; `WARPSMITH_FROM` is the folder that
the run was started in. The command finds the tools through the socket in `WARPSMITH_STEP_SOCKET`, most simply with
`warpsmith mcp --bound`, for which the folder holds `.mcp.json`. The agent can write in its folder, in a temporary
folder and where `WARPSMITH_AGENT_WRITES` says, and everything that it starts ends with the step (`agent_launcher`).
What it leaves is the step's proposal; a crash or a time-out loses nothing that was evaluated.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from warpsmith.llm.secrets import Keyring
from warpsmith.model.brief import Brief, Prompt, Reply
from warpsmith.model.errors import ProposerFault, ProposerRefused, UsageError
from warpsmith.model.run_tools import RunTools
from warpsmith.model.usage import TokenUsage
from warpsmith.proposers.agent_launcher import STOPPED, TIMED_OUT
from warpsmith.proposers.step import BRIEF_FILE, AgentStep, StepBudget, step_folder, with_tools
from warpsmith.proposers.step_server import StepServer
from warpsmith.system.processes import run_watched

WRITES_VARIABLE = "WARPSMITH_AGENT_WRITES"
_NOT_EXECUTABLE, _NOT_FOUND = 126, 127  # exit statuses of a shell
_GRACE_S = 10.0  # for the launcher to end what the agent started
_LONGEST_OUTPUT = 4 << 20
_LONGEST_SOCKET = 100  # bytes of the path of a Unix socket
_FILE_BYTES = 1 << 30  # most that one file of an agent may hold
_QUOTED = 200


class AgentProposer:
    """A `Proposer` that runs a coding agent."""

    def __init__(
        self, command: str, budget: StepBudget | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        if not command.strip():
            raise UsageError("agent: names no command; write e.g. --proposer 'agent:my-agent --print'.")
        self.name = f"agent:{command}"
        self.concurrency = 1  # agents often share a login and a device
        self._command = command
        self._budget = budget or StepBudget()
        self._environ = dict(os.environ if environ is None else environ)
        self._keys = Keyring.load(self._environ)
        self._tools: RunTools | None = None
        self._closed = threading.Event()
        self._stops: set[Path] = set()
        self._lock = threading.Lock()

    def bind(self, tools: RunTools) -> None:
        """See `WorkingProposer`."""
        self._tools = tools

    def prompt(self, brief: Brief) -> Prompt:
        """See `Proposer`."""
        from warpsmith.prompts.renderer import render  # jinja2, which choosing a proposer does not need

        return with_tools(render(brief), brief, self._budget)

    def propose(self, brief: Brief, prompt: Prompt) -> Reply:
        """See `Proposer`."""
        begun = time.monotonic()
        with step_folder(brief, self._environ) as folder:
            for each in ("work", "tmp", "run"):
                (folder / each).mkdir()
            step = AgentStep(brief, self._tools, self._budget, folder / "work")
            step.write_folder(prompt)
            status = self._run(step, folder)
            said = self._read(folder / "run/said.txt")
            reply = step.proposal(said if status == 0 else "")
            complaints = self._read(folder / "run/errors.txt").strip().splitlines()
        usage = TokenUsage(seconds=time.monotonic() - begun)
        if reply is not None:
            return reply
        why = self._keys.redact(complaints[-1].strip())[:_QUOTED] if complaints else "no reason given"
        if status in (_NOT_FOUND, _NOT_EXECUTABLE):
            raise ProposerRefused(f"{self._shown} cannot be run ({why}); check its name.", usage)
        ended = {TIMED_OUT: f"did not end within {step.seconds:g} s", STOPPED: "was stopped"}
        how = ended.get(status, f"ended with status {status}")
        raise ProposerFault(f"{self._shown} {how} and left no kernel: {why}.", usage)

    def close(self) -> None:
        """See `Proposer`."""
        self._closed.set()
        with self._lock:
            for stop in self._stops:
                stop.touch()

    @property
    def _shown(self) -> str:
        short = self._command if len(self._command) <= _QUOTED else self._command[:_QUOTED] + "..."
        return f"the agent {short!r}"

    def _run(self, step: AgentStep, folder: Path) -> int:
        """Run the agent with the tools of its step; the exit status of the launcher."""
        stop = folder / "run/stop"
        with self._lock:
            if self._closed.is_set():
                return STOPPED
            self._stops.add(stop)
        try:
            with tempfile.TemporaryDirectory(prefix="ws-", dir=_socket_parent(), ignore_cleanup_errors=True) as place:
                with StepServer(step, Path(place) / "s") as server:
                    return self._launch(step, folder, stop, server)
        finally:
            with self._lock:
                self._stops.discard(stop)

    def _launch(self, step: AgentStep, folder: Path, stop: Path, server: StepServer) -> int:
        work, temporary = folder / "work", folder / "tmp"
        bound = [sys.executable, "-P", "-m", "warpsmith", "mcp", "--bound", str(server.path)]
        entry = {"command": bound[0], "args": bound[1:], "env": server.variables}
        (work / ".mcp.json").write_text(json.dumps({"mcpServers": {"warpsmith": entry}}, indent=1))
        named = [path for path in self._environ.get(WRITES_VARIABLE, "").split(":") if path]
        own = {"TMPDIR": str(temporary), "WARPSMITH_STEP": str(work), "WARPSMITH_FROM": os.getcwd()}
        launcher = [sys.executable, "-P", "-m", "warpsmith.proposers.agent_launcher", str(step.left_s), str(stop)]
        done = run_watched(
            [*launcher, str(work), str(temporary), *named, "--", self._command],
            environ={**self._environ, **server.variables, **own},
            limit_s=step.left_s + _GRACE_S,
            log=folder / "run/said.txt",
            folder=work,
            stdin=work / BRIEF_FILE,
            errors=folder / "run/errors.txt",
            file_bytes=_FILE_BYTES,
        )
        return TIMED_OUT if done.timed_out else done.status

    def _read(self, path: Path) -> str:
        if not path.exists():
            return ""  # the agent was not started
        with path.open("rb") as file:
            return self._keys.redact(file.read(_LONGEST_OUTPUT).decode("utf-8", errors="replace"))


def _socket_parent() -> str:
    """A folder for sockets whose path is short enough: the path of a Unix socket is limited."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) + 20 < _LONGEST_SOCKET else "/tmp"
