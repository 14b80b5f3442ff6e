"""Every exception Warpsmith raises on purpose.

    WarpsmithError            one sentence: what is wrong, where, and what to do
    ├── UsageError            the command or the call itself is wrong
    ├── TaskError             a file is not a task, or its declaration contradicts itself
    │   └── TooLittleMemory   the device has too little free memory for it now
    ├── CandidateError        a candidate file cannot be read or belongs to no backend
    ├── ToolMissing           a compiler, driver or package that is needed is not there
    ├── RunError              a run's folder cannot be read, or does not fit what is asked of it
    ├── ProposerFault         no reply came: a time-out, a refused request (spends no trial)
    │   └── ProposerRefused   and none will come: no key, an unknown model, no credit
    └── HarnessFault          our own machinery failed (never the candidate's fault; retried)

A candidate's failure is never an exception: it is a `Status` in an `Evaluation`.
"""

from __future__ import annotations

from warpsmith.model.text import printable
from warpsmith.model.usage import TokenUsage


class WarpsmithError(Exception):
    """Base of all errors meant for a person; the message stands alone, without a traceback, and can be printed."""

    def __init__(self, message: str = "") -> None:
        super().__init__(printable(message))


class UsageError(WarpsmithError):
    """The caller asked for something that does not exist or does not fit together."""


class TaskError(WarpsmithError):
    """The task file cannot be used as it is."""


class TooLittleMemory(TaskError):
    """The device has too little free memory now, and enough in all: other programs hold it."""

    def __init__(self, message: str, needed: int) -> None:
        super().__init__(message)
        self.needed = needed  # bytes that must be free before another attempt


class CandidateError(WarpsmithError):
    """The candidate file cannot be read, or no backend takes it."""


class ToolMissing(WarpsmithError):
    """Something this machine lacks; the message says how to get it."""


class HarnessFault(WarpsmithError):
    """A worker, pipe or tool of ours failed; retried, and never charged to a candidate."""


class RunError(WarpsmithError):
    """A run cannot be opened or continued as asked."""


class ProposerFault(WarpsmithError):
    """A proposer gave no reply this time. Requests that brought none may have cost something all the same."""

    def __init__(self, message: str, usage: TokenUsage | None = None) -> None:
        super().__init__(message)
        self.usage = usage  # what was spent all the same; None where nothing was reported


class ProposerRefused(ProposerFault):
    """A proposer will give no reply until a person changes something; the message says what."""


def lacks_memory(said: str) -> bool:
    """Whether PyTorch's words mean that main memory is used up; they differ between its builds."""
    return "DefaultCPUAllocator" in said and ("can't allocate memory" in said or "not enough memory" in said)
