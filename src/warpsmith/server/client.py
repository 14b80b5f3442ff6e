"""`Client`: the methods of `Evaluator`, carried out by a server (`warpsmith serve`).

    with Client("http://gpu-machine:8322") as client:
        for index, evaluation in client.evaluate("warpsmith-100/softmax", candidates):
            ...

The token comes from WARPSMITH_SERVER_TOKEN. A dropped connection is tried again: a submission is identified by its
content, so that sending it twice judges nothing twice. httpx is an extra (`serve`).
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from warpsmith.evaluator.supervisor.evaluator import Progress
from warpsmith.hardware.device import Device
from warpsmith.model.brief import Problem
from warpsmith.model.candidate import Candidate
from warpsmith.model.certificate import Calibration, CheckOutcome
from warpsmith.model.errors import HarnessFault, TaskError, ToolMissing, UsageError
from warpsmith.model.evaluation import Environment, Evaluation, Status
from warpsmith.model.settings import Settings
from warpsmith.model.task import Precision, Task
from warpsmith.model.text import one_line
from warpsmith.server.messages import (
    CandidateMessage,
    FaultKind,
    InspectionKind,
    JobResult,
    JobState,
    JudgingOptions,
    ResultsPage,
    ServerFacts,
    SubmissionState,
    TaskEntry,
)
from warpsmith.system.processes import pause
from warpsmith.tasks.local_imports import local_modules

if TYPE_CHECKING:
    import httpx

TOKEN = "WARPSMITH_SERVER_TOKEN"
"""The variable with the token of this client."""
_TASK, _PROBLEM, _DEVICE = TypeAdapter(Task), TypeAdapter(Problem), TypeAdapter(Device)
_CALIBRATED: TypeAdapter[tuple[Task, Calibration]] = TypeAdapter(tuple[Task, Calibration])
_TASKS = TypeAdapter(list[TaskEntry])
_CHECKS = TypeAdapter(list[CheckOutcome])
_WAIT_S = 10.0  # that the server waits for a result before it answers
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 10.0
_TOO_BUSY = (502, 503, 504)
_SHARE = 0.8  # of the longest request, for its candidates
_MOST_BYTES = 64 << 20  # of one answer
_RESUBMISSIONS = 3  # where the server has forgotten a submission


T = TypeVar("T")


def _silent(_: object) -> None:
    pass


class Client:
    """Evaluates candidates on a server. A context manager. See `Evaluator` for what the methods do."""

    width = 4  # threads that may evaluate at the same time

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,  # the one in WARPSMITH_SERVER_TOKEN
        settings: Settings | None = None,
        patience_s: float = 300.0,  # how long an unreachable server is tried
        on_progress: Callable[[Progress], None] = _silent,
        on_message: Callable[[str], None] = _silent,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        try:
            import httpx
        except ImportError:
            raise ToolMissing("a client needs httpx; install it with `pip install 'warpsmith[serve]'`.") from None
        found = os.environ.get(TOKEN, "") if token is None else token
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise UsageError("the address of a server is http://HOST:PORT or https://HOST:PORT.")
        if not found or not found.isascii() or not found.isprintable():
            raise UsageError(f"set {TOKEN} to the token that `warpsmith serve token NAME` printed on the server.")
        self.settings = settings or Settings()
        JudgingOptions.of(self.settings)
        self._url = url.rstrip("/")
        self._patience_s = patience_s
        self._on_progress = on_progress
        self._on_message = on_message
        self._closing = threading.Event()
        self._http = httpx.Client(
            base_url=self._url,
            headers={"Authorization": f"Bearer {found}"},
            timeout=httpx.Timeout(30.0, read=_WAIT_S + 30.0),
            transport=transport,
        )
        if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
            on_message(
                f"the token goes to {parts.hostname} unencrypted; use https or an SSH tunnel outside your network."
            )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connections."""
        self._closing.set()
        self._http.close()

    @cached_property
    def facts(self) -> ServerFacts:
        """What the server is, and what this client may ask of it."""
        return _validated(ServerFacts.model_validate, self._ask("GET", "/v1/server"))

    @cached_property
    def device(self) -> Device:
        """The device of the server."""
        return _validated(_DEVICE.validate_python, self.facts.device)

    @cached_property
    def tasks(self) -> tuple[TaskEntry, ...]:
        """The tasks that the server has."""
        return tuple(_validated(_TASKS.validate_python, self._ask("GET", "/v1/tasks")))

    def describe(self, task: str | Path, precision: Precision | None = None) -> Task:
        """The task as the judge of the server has read it."""
        return _validated(_TASK.validate_python, self._inspect(InspectionKind.DESCRIBE, task, precision))

    def survey(self, task: str | Path, backend: str, precision: Precision | None = None) -> Problem:
        """Everything a proposer has to know: the task, its contract in one backend, and the limits of the device."""
        return _validated(_PROBLEM.validate_python, self._inspect(InspectionKind.SURVEY, task, precision, backend))

    def calibrate(
        self, task: str | Path, precision: Precision | None = None, *, fresh: bool = False
    ) -> tuple[Task, Calibration]:
        """Check whether a task can tell right results from wrong ones."""
        found = self._inspect(InspectionKind.CALIBRATE, task, precision, fresh=fresh)
        return _validated(_CALIBRATED.validate_python, found)

    def evaluate_one(
        self, task: str | Path, candidate: Candidate, precision: Precision | None = None, *, fresh: bool = False
    ) -> Evaluation:
        """Evaluate one candidate."""
        (_, evaluation), *_ = self.evaluate(task, [candidate], precision, fresh=fresh)
        return evaluation

    def evaluate(
        self,
        task: str | Path,
        candidates: Sequence[Candidate],
        precision: Precision | None = None,
        *,
        fresh: bool = False,  # do not use known results
    ) -> Iterator[tuple[int, Evaluation]]:
        """Evaluate many candidates; yields each position once with its evaluation, in the order of completion."""
        if not candidates:
            return
        request = self._request(task, precision, fresh=fresh)
        parts = [
            (part, request | {"candidates": [CandidateMessage.of(candidates[index]) for index in part]})
            for part in self._parts(candidates)
        ]
        waiting = [self._submit("/v1/submissions", body) for _, body in parts]
        try:
            for part, body in parts:
                for place, result in self._outcomes("/v1/submissions", body, waiting[0]):
                    if place >= len(part):
                        raise HarnessFault(
                            "the server gave a verdict of a candidate that it does not have; tell its owner."
                        )
                    index = part[place]
                    self._on_progress(Progress(index, "judged"))
                    yield index, self._evaluation(candidates[index], result)
                del waiting[0]
        finally:
            for submission in waiting:
                self._cancel(submission)

    def prepare(self, task: str | Path, candidates: Sequence[Candidate], precision: Precision | None = None) -> None:
        """The server builds candidates when they are submitted."""

    def renew(self, settings: Settings | None = None) -> None:
        """Use other settings for the next evaluation."""
        if settings is not None:
            JudgingOptions.of(settings)
            self.settings = settings

    def examine(self, task: str | Path, candidate: Candidate, precision: Precision | None = None) -> list[CheckOutcome]:
        """The checks of a verification that take no times, made now."""
        found = self._inspect(InspectionKind.EXAMINE, task, precision, fresh=True, candidate=candidate)
        return _validated(_CHECKS.validate_python, found)

    def profile(self, *_: object) -> NoReturn:
        """A server makes no profiles."""
        raise ToolMissing("a server does not profile kernels; run `warpsmith profile` on the machine with the device")

    # --- messages ---

    def _request(self, task: str | Path, precision: Precision | None, *, fresh: bool) -> dict[str, Any]:
        return {
            "task": self._reference(str(task)),
            "precision": precision,
            "options": JudgingOptions.of(self.settings).model_dump(mode="json"),
            "fresh": secrets.token_hex(8) if fresh else "",
        }

    def _reference(self, task: str) -> dict[str, Any]:
        """A task that the server has by its name, any other file as an upload."""
        name, at, size = task.partition("@")
        if any(each.name == name for each in self.tasks):
            return {"name": task}
        path, _, entry = task.partition("::")
        try:
            content = Path(path).read_bytes()
            modules = local_modules(Path(path))
            text = content.decode("utf-8-sig")
        except (OSError, UnicodeDecodeError) as refused:
            raise TaskError(f"{path} is no task of the server and cannot be read here ({refused}).") from None
        digest, (function, at, size) = hashlib.sha256(content).hexdigest(), entry.partition("@")
        same = [each for each in self.tasks if each.sha256 == digest]
        for each in same if not modules else ():
            if each.name.rpartition("/")[2] == function or (not function and len(same) == 1):
                return {"name": f"{each.name}{at}{size}"}
        if not self.facts.uploads:
            raise TaskError(
                f"the server has no task file like {path} and accepts none; ask its owner for --allow-uploads, or for "
                "the file in the server's folder of tasks."
            )
        return {"text": text, "entry": entry, "modules": modules}

    def _parts(self, candidates: Sequence[Candidate]) -> list[list[int]]:
        """Positions of candidates that fit into one request each."""
        most, room = self.facts.candidates, int(self.facts.body_bytes * _SHARE)
        parts: list[list[int]] = []
        size = 0
        for index, candidate in enumerate(candidates):
            bytes_of = 2 * sum(len(file.text.encode("utf-8", "replace")) for file in candidate.files) + 1000
            if not parts or len(parts[-1]) == most or size + bytes_of > room:
                parts.append([])
                size = 0
            parts[-1].append(index)
            size += bytes_of
        return parts

    def _inspect(
        self,
        kind: InspectionKind,
        task: str | Path,
        precision: Precision | None,
        backend: str = "",
        *,
        fresh: bool = False,
        candidate: Candidate | None = None,
    ) -> Any:
        body = self._request(task, precision, fresh=fresh) | {"kind": kind, "backend": backend}
        if candidate is not None:
            body["candidate"] = CandidateMessage.of(candidate)
        for _, result in self._outcomes("/v1/inspections", body, self._submit("/v1/inspections", body)):
            if result.state is JobState.DONE:
                return result.answer
            _raise(result)
            raise HarnessFault(result.error)
        raise HarnessFault("the server gave no answer; try again.")

    def _outcomes(self, path: str, body: dict[str, Any], submission: str) -> Iterator[tuple[int, JobResult]]:
        """Each place of a submission once with its outcome; what the server has forgotten is submitted again."""
        after, forgotten = 0, 0
        seen: set[int] = set()
        while True:
            try:
                page = self._ask("GET", f"/v1/submissions/{submission}/results?after={after}&wait={_WAIT_S}")
            except _Forgotten:
                forgotten += 1
                if forgotten > _RESUBMISSIONS:
                    raise
                self._on_message("the server has forgotten the submission; submitting it again.")
                submission, after = self._submit(path, body), 0
                continue
            found = _validated(ResultsPage.model_validate, page)
            after = found.next
            for result in found.results:
                if result.place not in seen:
                    seen.add(result.place)
                    yield result.place, result
            if found.finished:
                return

    def _submit(self, path: str, body: dict[str, Any]) -> str:
        return _validated(SubmissionState.model_validate, self._ask("POST", path, body)).id

    def _cancel(self, submission: str) -> None:
        """Cancel what nobody waits for any more; without effect where the server does not answer."""
        import httpx

        if self._http.is_closed:
            return
        try:
            with self._http.stream("DELETE", f"/v1/submissions/{submission}", timeout=5.0):
                return  # the answer is not read
        except httpx.HTTPError:
            return

    def _evaluation(self, candidate: Candidate, result: JobResult) -> Evaluation:
        if result.evaluation is not None:
            if result.evaluation.candidate != candidate.id:
                raise HarnessFault("the server gave the verdict of another candidate; tell its owner.")
            return result.evaluation
        if result.fault is not FaultKind.SERVER:
            _raise(result)
        environment = Environment(self.device.label, candidate.backend, "", "")
        return Evaluation("", candidate.id, Status.NOT_JUDGED, result.error or str(result.state), environment, "")

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        """One request; tried again where the connection fails or the server has no room."""
        import httpx

        deadline, wait_s, said = time.monotonic() + self._patience_s, _FIRST_PAUSE_S, False
        while True:
            if self._closing.is_set():
                raise HarnessFault("the client was closed.")
            try:
                answer = self._exchange(method, path, body)
                fault = f"status {answer.status_code}"
            except (httpx.TransportError, httpx.DecodingError) as failed:
                answer, fault = None, type(failed).__name__
            if answer is not None and answer.status_code == 429:
                wanted = answer.headers.get("Retry-After", "")
                if not said:
                    self._on_message(f"the server has no room: {_detail(answer)} Waiting.")
                    said = True
                pause(min(float(wanted) if wanted.isdecimal() else 5.0, 60.0))
                deadline = time.monotonic() + self._patience_s
                continue
            if answer is not None and answer.status_code not in _TOO_BUSY:
                return self._answered(answer)
            if time.monotonic() + wait_s > deadline:
                raise HarnessFault(f"the server {self._url} does not answer ({fault}); check address and server.")
            if not said:
                self._on_message(f"the server {self._url} does not answer ({fault}). Trying again.")
                said = True
            pause(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_PAUSE_S)

    def _exchange(self, method: str, path: str, body: object) -> httpx.Response:
        """The answer to one request, read up to a limit: also what a compressed answer becomes is limited."""
        import httpx

        content = bytearray()
        with self._http.stream(method, path, json=body) as answer:
            for part in answer.iter_bytes():
                content += part
                if len(content) > _MOST_BYTES:
                    raise HarnessFault(f"an answer of {self._url} has more than {_MOST_BYTES} bytes; tell its owner.")
            kept = {"Retry-After": answer.headers.get("Retry-After", "")}
            return httpx.Response(answer.status_code, headers=kept, content=bytes(content), request=answer.request)

    def _answered(self, answer: httpx.Response) -> Any:
        if answer.status_code < 300:
            try:
                return answer.json()
            except (ValueError, RecursionError):
                raise HarnessFault(f"{self._url} is no server of Warpsmith; check the address.") from None
        detail = _detail(answer)
        if answer.status_code == 401:
            raise UsageError(f"{self._url} does not accept the token in {TOKEN}; ask the server's owner for one.")
        if answer.status_code == 404 and "/submissions/" in str(answer.url):
            raise _Forgotten(detail)
        if answer.status_code >= 500:
            raise HarnessFault(f"the server {self._url} failed (status {answer.status_code}); tell its owner.")
        raise UsageError(f"the server refuses the request: {detail}")


class _Forgotten(HarnessFault):
    """The server does not know a submission that it had accepted."""


def _raise(result: JobResult) -> None:
    """Raise what a local evaluator would have raised."""
    kinds = {FaultKind.TASK: TaskError, FaultKind.USAGE: UsageError, FaultKind.TOOL: ToolMissing}
    if result.fault in kinds:
        raise kinds[result.fault](result.error)


def _detail(answer: httpx.Response) -> str:
    try:
        detail = answer.json()["detail"]
    except (ValueError, RecursionError, KeyError, TypeError):
        detail = f"status {answer.status_code}."
    return one_line(str(detail))[:500]


def _validated(read: Callable[[Any], T], value: Any) -> T:
    try:
        return read(value)
    except ValidationError:
        raise HarnessFault(
            "the server answers in a form that this version does not know; use the same version."
        ) from None
