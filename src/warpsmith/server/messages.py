"""What client and server send to each other, as pydantic models: the server checks requests with them, the page `/docs`
describes them.
"""

from __future__ import annotations

from dataclasses import fields, replace
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, FailFast, Field, model_validator

from warpsmith.backends.source import MAX_SOURCE_BYTES
from warpsmith.model.build import Availability
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.errors import CandidateError, TaskError, ToolMissing, UsageError
from warpsmith.model.evaluation import Evaluation
from warpsmith.model.settings import Settings
from warpsmith.model.task import Precision
from warpsmith.model.text import plain_name

MOST_CANDIDATES = 512
"""Candidates of one submission."""
LONGEST_WAIT_S = 60.0
"""The longest time that an answer can be delayed until something changes."""
LARGEST_SEQUENCE = 2**63 - 1
"""The largest number that the journal can compare with."""
_MOST_FILES = 32
_MOST_MODULES = 100


def _encodable(text: str) -> str:
    """Text that can be written to a file: no NUL character and no half of a surrogate pair."""
    if "\0" in text:
        raise ValueError("the text holds a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("the text holds half of a surrogate pair") from None
    return text


def _path_below(name: str) -> str:
    for part in name.split("/"):
        plain_name(part)
    if not name.endswith(".py"):
        raise ValueError("a module of a task is a file that ends in .py")
    return name


def _few_modules(given: Any) -> Any:
    """Refuse a long table before its entries are checked: pydantic makes one error for each of them."""
    if isinstance(given, dict) and len(given) > _MOST_MODULES:
        raise ValueError(f"a task may have {_MOST_MODULES} modules at most")
    return given


Text = Annotated[str, Field(max_length=MAX_SOURCE_BYTES), AfterValidator(_encodable)]
Name = Annotated[str, Field(max_length=128), AfterValidator(plain_name)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _no_more_than_its_fields(cls, given: Any) -> Any:
        """Refuse an object with many unknown fields at once: pydantic makes one error for each of them."""
        if isinstance(given, dict) and len(given) > len(cls.model_fields):
            raise ValueError(f"the object has {len(given)} fields; {', '.join(cls.model_fields)} are known")
        return given


class TaskReference(_Strict):
    """A task of the server by name, or the text of a task file where the server accepts uploads."""

    name: Annotated[str, Field(max_length=256, description="A name that GET /v1/tasks lists; @small may follow.")] = ""
    text: Annotated[Text, Field(description="An uploaded task file. It is code that the server executes.")] = ""
    entry: Annotated[
        str, Field(pattern=r"^([A-Za-z_][A-Za-z0-9_]{0,127}(@small)?)?$", description="A task of the uploaded file.")
    ] = ""
    modules: Annotated[
        dict[Annotated[str, Field(max_length=256), AfterValidator(_path_below)], Text],
        BeforeValidator(_few_modules),
        Field(description="Modules beside the uploaded file that it imports, by path."),
    ] = {}

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if bool(self.name) == bool(self.text) or (self.name and (self.entry or self.modules)):
            raise ValueError("a task has either a name, or a text (with an entry and modules where it needs them)")
        return self


class CandidateMessage(_Strict):
    """One kernel."""

    files: Annotated[
        list[tuple[Name, Text]],
        FailFast(),
        Field(min_length=1, max_length=_MOST_FILES, description="Name and text of each file."),
    ]
    backend: Literal["cpu", "cuda", "triton", "torch_module"]
    defines: Annotated[
        list[
            tuple[
                Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")],
                Annotated[str, Field(pattern=r"^[A-Za-z0-9_.+-]{0,64}$")],
            ]
        ],
        FailFast(),
        Field(max_length=64, description="Values of tunables."),
    ] = []
    entry: Annotated[str, Field(max_length=500, description="The function to call.")] = ""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        self.candidate()
        if sum(len(text.encode()) for _, text in self.files) > MAX_SOURCE_BYTES:
            raise ValueError(f"a candidate may have {MAX_SOURCE_BYTES} bytes at most")
        if not any(text.strip() for _, text in self.files):
            raise ValueError("the source is empty")
        return self

    def candidate(self) -> Candidate:
        """The candidate."""
        files = tuple(SourceFile(name, text) for name, text in self.files)
        return Candidate(files, self.backend, tuple(self.defines), _encodable(self.entry))

    @staticmethod
    def of(candidate: Candidate) -> dict[str, Any]:
        """The message of a candidate, not checked: the server says what is wrong with it."""
        return {
            "files": [[file.name, file.text] for file in candidate.files],
            "backend": candidate.backend,
            "defines": [list(each) for each in candidate.defines],
            "entry": candidate.entry,
        }


class JudgingOptions(_Strict):
    """How a client wants its candidates judged. Limits of time and memory are the server's own."""

    baselines: Annotated[tuple[Literal["eager", "compile"], ...], FailFast(), Field(min_length=1, max_length=2)] = (
        "eager",
    )
    seeds: Annotated[int, Field(ge=1, le=16)] = 2
    min_samples: Annotated[int, Field(ge=6, le=200)] = 10
    max_samples: Annotated[int, Field(ge=6, le=1000)] = 200
    target_width: Annotated[float, Field(gt=0, le=1)] = 0.01
    timing_budget_s: Annotated[float, Field(ge=0, le=10)] = 1.0
    allow: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_+-]{1,40}$")], ...], FailFast(), Field(max_length=16)
    ] = ()
    published_rule: bool = False

    def settings(self, own: Settings) -> Settings:
        """The server's settings with these options."""
        return replace(own, **{name: getattr(self, name) for name in type(self).model_fields})

    @classmethod
    def of(cls, settings: Settings) -> JudgingOptions:
        """The options in a client's settings; raises where the settings ask for what a server decides itself."""
        usual = Settings()
        for field in fields(Settings):
            if field.name not in cls.model_fields and getattr(settings, field.name) != getattr(usual, field.name):
                raise UsageError(f"a server decides about {field.name} itself; leave the option out, or judge here.")
        try:
            return cls(**{name: getattr(settings, name) for name in cls.model_fields})
        except ValueError as wrong:
            raise UsageError(f"a server does not judge with these settings: {wrong}") from None


class SubmissionRequest(_Strict):
    """Candidates of one task, to be judged."""

    task: TaskReference
    candidates: Annotated[list[CandidateMessage], FailFast(), Field(min_length=1, max_length=MOST_CANDIDATES)]
    precision: Precision | None = None
    options: JudgingOptions = JudgingOptions()
    fresh: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9_-]{0,64}$",
            description="Empty: known results are used. Else judged anew, once for each value of this field.",
        ),
    ] = ""


class InspectionKind(StrEnum):
    """What can be asked about a task."""

    DESCRIBE = "describe"  # the task as the judge has read it
    SURVEY = "survey"  # all that a proposer has to know
    CALIBRATE = "calibrate"  # whether the task tells right results from wrong ones
    EXAMINE = "examine"  # the checks of a verification of one kernel: held-out inputs and sanitizers


class InspectionRequest(_Strict):
    """A question about a task, which the server opens to answer it."""

    kind: InspectionKind
    task: TaskReference
    precision: Precision | None = None
    options: JudgingOptions = JudgingOptions()
    backend: Literal["", "cpu", "cuda", "triton", "torch_module"] = ""
    candidate: Annotated[CandidateMessage | None, Field(description="The kernel to be examined.")] = None
    fresh: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{0,64}$")] = ""


class JobState(StrEnum):
    """What became of one candidate of a submission, or of a question about a task."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"  # there is an evaluation or an answer
    FAILED = "failed"  # it cannot be judged; the error says why
    CANCELLED = "cancelled"
    LOST = "lost"  # the server ended repeatedly while it was judged; submit it again


class FaultKind(StrEnum):
    """Why a candidate cannot be judged."""

    NONE = ""
    TASK = "task"  # the task file
    USAGE = "usage"  # what was asked for
    TOOL = "tool"  # something that the server lacks
    SERVER = "server"  # the server itself; says nothing about the candidate

    @staticmethod
    def of(fault: Exception) -> FaultKind:
        """The kind of an exception."""
        if isinstance(fault, TaskError):
            return FaultKind.TASK
        if isinstance(fault, UsageError | CandidateError):
            return FaultKind.USAGE
        return FaultKind.TOOL if isinstance(fault, ToolMissing) else FaultKind.SERVER


FINISHED = (JobState.DONE, JobState.FAILED, JobState.CANCELLED, JobState.LOST)


class SubmissionState(BaseModel):
    """Where a submission stands."""

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]  # a part of addresses
    task: str
    finished: bool
    counts: dict[JobState, int]
    ahead: int = Field(description="Candidates that wait before the first waiting one of this submission.")
    queue: int = Field(description="Candidates that wait in all.")


class JobResult(BaseModel):
    """The outcome of one candidate."""

    sequence: int = Field(description="Send it as `after` to get the outcomes that follow this one.")
    place: int = Field(ge=0, description="The position of the candidate in the submission.")
    state: JobState
    evaluation: Evaluation | None = None
    answer: Annotated[Any, Field(description="The answer to a question about a task.")] = None
    error: str = ""
    fault: FaultKind = FaultKind.NONE


class ResultsPage(BaseModel):
    """Outcomes in the order in which they came."""

    results: list[JobResult]
    next: int = Field(description="Send it as `after` to get the outcomes that follow.")
    finished: bool = Field(description="True if no outcome follows.")


class TaskEntry(BaseModel):
    """A task of the server."""

    name: str
    sha256: str = Field(description="Of the task file.")
    sizes: list[str]
    precisions: list[str]
    description: str


class ServerFacts(BaseModel):
    """What a client has to know about a server."""

    version: str
    device: dict[str, Any]
    uploads: bool = Field(description="Whether the server accepts task files.")
    body_bytes: int
    candidates: int = MOST_CANDIDATES
    pending: int = Field(description="Candidates of this client that may wait at once.")
    waiting: int = Field(description="Candidates of this client that wait.")
    backends: dict[str, Availability]
