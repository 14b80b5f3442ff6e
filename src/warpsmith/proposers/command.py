"""A proposer that runs a command: the prompt on its standard input, the reply on its standard output.

Any command-line model or coding agent can be used. The command runs in a shell, in a process group that is killed when
the command ends or its time is over; a process that leaves this group is not killed. The command gets the user's whole
environment with its keys; keys that it prints are masked. `WARPSMITH_BRIEF` names a JSON file with the brief.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from warpsmith.llm.secrets import Keyring
from warpsmith.model.brief import Brief, Prompt, Reply, Role
from warpsmith.model.errors import HarnessFault, ProposerFault, ProposerRefused, UsageError
from warpsmith.model.usage import TokenUsage
from warpsmith.system.processes import run_watched, stoppable

BRIEF_VARIABLE = "WARPSMITH_BRIEF"
_NOT_EXECUTABLE, _NOT_FOUND = 126, 127  # exit statuses of a shell
_LONGEST_REPLY = 16 << 20  # bytes; the rest of a longer output is not read
_QUOTED = 200


class CommandProposer:
    """A `Proposer` that runs a command."""

    def __init__(
        self,
        command: str,
        timeout_s: float = 1800.0,
        concurrency: int = 1,  # coding agents often share a folder and a login
        environ: Mapping[str, str] | None = None,
    ) -> None:
        if not command.strip():
            raise UsageError("the command is empty; write --proposer 'command:CMD'.")
        self.name = f"command:{command}"
        self.concurrency = concurrency
        self._command = command
        self._timeout_s = timeout_s
        self._environ = dict(os.environ if environ is None else environ)
        self._keys = Keyring.load(self._environ)
        self._closed = threading.Event()

    def prompt(self, brief: Brief) -> Prompt:
        """See `Proposer`."""
        from warpsmith.prompts.renderer import render  # jinja2, which choosing a proposer does not need

        return render(brief)

    def propose(self, brief: Brief, prompt: Prompt) -> Reply:
        """See `Proposer`."""
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="warpsmith-brief-", ignore_cleanup_errors=True) as folder:
            try:
                status, text, complaint = self._run(Path(folder), brief, prompt)
            except HarnessFault:
                raise ProposerFault(
                    f"{self._shown} was stopped.", TokenUsage(seconds=time.monotonic() - begun)
                ) from None
        usage = TokenUsage(seconds=time.monotonic() - begun)
        if status is None:
            raise ProposerFault(f"{self._shown} did not end within {self._timeout_s:g} s.", usage)
        if status in (_NOT_FOUND, _NOT_EXECUTABLE) and not text.strip():
            raise ProposerRefused(f"{self._shown} cannot be run ({complaint or status}); check its name.", usage)
        if not text.strip():
            ended = f"was killed by signal {status - 128}" if status > 128 else f"ended with status {status}"
            raise ProposerFault(f"{self._shown} {ended} and wrote nothing: {complaint or 'no reason given'}.", usage)
        return Reply(text, "command", usage)

    def close(self) -> None:
        """See `Proposer`."""
        self._closed.set()

    @property
    def _shown(self) -> str:
        short = self._command if len(self._command) <= _QUOTED else self._command[:_QUOTED] + "..."
        return f"the command {short!r}"

    def _run(self, folder: Path, brief: Brief, prompt: Prompt) -> tuple[int | None, str, str]:
        """Exit status (None: out of time), standard output, and the last line of standard error.

        Output goes to files, not pipes: a process that the command leaves behind would keep a pipe open.
        """
        asked, said, complained = (folder / name for name in ("prompt.txt", "reply.txt", "errors.txt"))
        asked.write_text(plain(prompt), encoding="utf-8")
        (folder / "brief.json").write_text(brief_json(brief), encoding="utf-8")
        with stoppable(self._closed):
            done = run_watched(
                ["sh", "-c", self._command],
                environ={**self._environ, BRIEF_VARIABLE: str(folder / "brief.json")},
                limit_s=self._timeout_s,
                log=said,
                stdin=asked,
                errors=complained,
            )
        lines = self._read(complained).strip().splitlines()
        return None if done.timed_out else done.status, self._read(said), lines[-1].strip()[:_QUOTED] if lines else ""

    def _read(self, path: Path) -> str:
        with path.open("rb") as file:
            return self._keys.redact(file.read(_LONGEST_REPLY).decode("utf-8", errors="replace"))


def plain(prompt: Prompt) -> str:
    """A prompt as one text."""
    parts = [
        f"You answered:\n\n{message.text}" if message.role is Role.ASSISTANT else message.text
        for message in prompt.messages
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def brief_json(brief: Brief) -> str:
    """A brief as JSON, field by field."""
    return json.dumps(dataclasses.asdict(brief), default=sorted, indent=1)
