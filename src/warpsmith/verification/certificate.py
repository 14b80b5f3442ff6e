"""Writes certificates to files and reads them back.

The checksum reveals a damaged or edited file; it is no signature.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from warpsmith.model.candidate import Candidate
from warpsmith.model.certificate import FORMAT, Certificate
from warpsmith.model.errors import HarnessFault, UsageError
from warpsmith.system.files import put_in_place, read_file

_CERTIFICATE = TypeAdapter(Certificate)
_CHECKSUM = "checksum"
_MOST_BYTES = 4 << 20


def default_path(cache: Path, certificate: Certificate) -> Path:
    """The default path of a certificate."""
    task = re.sub(r"[^A-Za-z0-9_.-]", "_", certificate.task)[:80]
    return cache / "certificates" / f"{certificate.candidate}-{task}.json"


def document(certificate: Certificate) -> dict[str, object]:
    """The certificate as JSON data, with its checksum."""
    body: dict[str, object] = _CERTIFICATE.dump_python(certificate, mode="json")
    return {**body, _CHECKSUM: _checksum(body)}


def write_certificate(certificate: Certificate, path: Path) -> None:
    """Write a certificate, in one step."""
    text = json.dumps(document(certificate), indent=2, allow_nan=False) + "\n"
    try:
        put_in_place(path, text.encode(), mode=0o644)
    except OSError as fault:
        raise HarnessFault(
            f"{path} cannot be written ({fault.strerror}); name another file with --certificate."
        ) from None


def read_certificate(path: Path, *, candidate: Candidate | None = None, task_digest: str = "") -> Certificate:
    """Read a certificate; raises UsageError if the file is damaged or belongs to another candidate or task."""
    try:
        data = read_file(path, _MOST_BYTES)
    except OSError as fault:
        raise UsageError(f"the certificate {path} cannot be read ({fault.strerror}).") from None
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise UsageError(f"{path} is no certificate: it is not JSON.") from None
    if not isinstance(body, dict) or not isinstance(body.get("format"), int):
        raise UsageError(f"{path} is no certificate of `warpsmith verify`.")
    if body["format"] != FORMAT:
        raise UsageError(
            f"{path} is a certificate of another version (format {body['format']}, not {FORMAT}); verify again."
        )
    try:
        unchanged = body.pop(_CHECKSUM, "") == _checksum(body)
    except RecursionError:  # writing needs a little more depth than reading did
        unchanged = False
    if not unchanged:
        raise UsageError(f"{path} was damaged or changed after it was written; verify again.")
    try:
        found = _CERTIFICATE.validate_python(body)
    except ValidationError as wrong:
        where = ".".join(str(part) for part in wrong.errors()[0]["loc"]) or "its checks"
        raise UsageError(f"{path} is no certificate: {where} cannot be right; verify again.") from None
    if candidate is not None and found.candidate_digest != candidate.digest:
        raise UsageError(f"{path} is the certificate of candidate {found.candidate}, not of {candidate.id}.")
    if task_digest and found.task_digest != task_digest:
        raise UsageError(f"{path} is a certificate for another version of task {found.task!r}; verify again.")
    return found


def _checksum(body: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
