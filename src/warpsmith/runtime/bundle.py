"""Bundles: a folder that holds everything needed to use one kernel somewhere else.

    manifest.json     what it is, what it was measured to do, and the SHA-256 of every other file
    kernel/…          the candidate's sources, and in kernel/include the headers of the device library they include;
                      not those of CUTLASS, which the manifest names if they are needed
    task/….py         the task file: the reference, and what the kernel's contract is made from; and the modules that it
                      imports from its own folder
    certificate.json  where it was verified

Written and read without torch; nothing in it is executed here. The hashes show a damaged or incomplete bundle. They are
no signature: anyone who can change the files can change the manifest too.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath

from pydantic import TypeAdapter, ValidationError

from warpsmith._version import __version__
from warpsmith.backends.c_contract import declaration_of
from warpsmith.backends.cutlass import needs_cutlass
from warpsmith.backends.library import library_headers
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.certificate import SHAPES, Certificate, CheckStatus, Measurement
from warpsmith.model.contract import Contract
from warpsmith.model.errors import UsageError
from warpsmith.model.evaluation import Environment, Evaluation
from warpsmith.model.task import Task, Workload
from warpsmith.system.files import check_below, put_in_place, read_file, remove_tree
from warpsmith.tasks.local_imports import local_modules
from warpsmith.verification.certificate import document, read_certificate

FORMAT = 1
"""Raised when the meaning of a bundle changes."""

MANIFEST = "manifest.json"
CERTIFICATE = "certificate.json"
_KERNEL, _TASK = "kernel", "task"
_INCLUDE = f"{_KERNEL}/include"
_MOST_BYTES = 16 << 20  # of one file
_AGAIN = "export it again"


@dataclass(frozen=True)
class Manifest:
    """What a bundle says about itself."""

    task: str  # the task's name
    task_spec: str  # what the loader of tasks takes, below the bundle: "task/softmax.py::softmax"
    task_digest: str
    precision: str  # the class it was judged in
    precision_given: str  # "" where that is the task's own
    candidate: str  # its id
    candidate_digest: str
    backend: str
    files: tuple[str, ...]  # its sources, the one with the entry point first
    defines: tuple[tuple[str, str], ...]  # values of its tunables
    entry: str  # as in `Candidate.entry`
    contract: str  # the declaration it was written for
    device: str  # the kind it runs on: "cpu" or "cuda"
    workloads: tuple[Workload, ...]  # the shapes it was judged on
    verified: bool  # the certificate says so; then other shapes were tried too
    measurement: Measurement | None  # latency, speedups with their intervals, error
    environment: Environment  # the device it was measured on, compiler and versions
    warpsmith: str
    python: str
    sha256: Mapping[str, str]  # of every other file
    requires: tuple[str, ...] = ()  # headers that it includes and does not carry: "CUTLASS 4.2.0"
    format: int = FORMAT


@dataclass(frozen=True)
class BundleContents:
    """What a bundle is made of."""

    task: Task
    task_name: str  # the name of its file
    task_text: str
    task_pick: str  # what follows the file in a task's name: "::softmax@small", or ""
    precision_given: str
    candidate: Candidate
    contract: Contract
    device: str  # the kind
    environment: Environment
    measurement: Measurement | None
    certificate: Certificate | None = None
    modules: Mapping[str, str] = field(default_factory=dict)  # that the task file imports from its folder, by path


@dataclass(frozen=True)
class Bundle:
    """A bundle whose files agree with its manifest."""

    folder: Path
    manifest: Manifest
    candidate: Candidate
    certificate: Certificate | None

    @property
    def task_spec(self) -> str:
        """What the loader of tasks takes."""
        path, mark, pick = self.manifest.task_spec.partition("::")
        return f"{self.folder / path}{mark}{pick}"

    @property
    def library(self) -> Path | None:
        """The folder of the bundle's own copy of the device library; None if its kernel includes none of it."""
        carried = any(path.startswith(f"{_INCLUDE}/") for path in self.manifest.sha256)
        return self.folder.absolute() / _INCLUDE if carried else None

    @property
    def any_shape(self) -> bool:
        """True if verification tested other shapes than the workloads', and the kernel was right."""
        found = self.certificate
        tried = {check.name: check.outcome for check in found.checks} if found else {}
        return found is not None and found.verified and tried.get(SHAPES) is CheckStatus.PASSED


@cache
def _manifest_format() -> TypeAdapter[Manifest]:
    """How a manifest is stored; made at its first use, because making it takes time."""
    return TypeAdapter(Manifest)


def bundle_contents(
    task: Task,
    task_spec: str,
    task_text: str,
    precision_given: str,
    candidate: Candidate,
    contract: Contract,
    device: str,
    outcome: Evaluation | Certificate,
) -> BundleContents:
    """What a bundle is made of, from a verdict or a certificate; `task_spec` is a task as the loader takes it."""
    path, mark, pick = task_spec.partition("::")
    certificate = outcome if isinstance(outcome, Certificate) else None
    return BundleContents(
        task=task,
        task_name=Path(path).name,
        task_text=task_text,
        task_pick=f"{mark}{pick}",
        precision_given=precision_given,
        candidate=candidate,
        contract=contract,
        device=device,
        environment=outcome.environment,
        measurement=outcome.measurement if isinstance(outcome, Certificate) else Measurement.of(outcome),
        certificate=certificate,
        modules=local_modules(Path(path)),
    )


def write_bundle(folder: Path, made: BundleContents) -> Manifest:
    """Write a bundle, whole or not at all. An older bundle in the folder is replaced; any other folder is refused."""
    if os.path.lexists(folder) and not _is_replaceable(folder):
        raise UsageError(f"{folder} exists and is no bundle; name another folder.")
    files = {f"{_KERNEL}/{file.name}": file.text.encode("utf-8", "replace") for file in made.candidate.files}
    native = made.candidate.backend in ("cuda", "cpu")
    headers = library_headers(*(file.text for file in made.candidate.files)) if native else {}
    files |= {f"{_INCLUDE}/{name}": text.encode("utf-8") for name, text in headers.items()}
    task_path = f"{_TASK}/{re.sub(r'[^A-Za-z0-9_.+@-]', '_', made.task_name).lstrip('.')[-100:] or 'task.py'}"
    files |= {f"{_TASK}/{name}": text.encode("utf-8") for name, text in made.modules.items()}
    files[task_path] = made.task_text.encode("utf-8")
    if made.certificate is not None:
        text = json.dumps(document(made.certificate), indent=2, allow_nan=False)
        files[CERTIFICATE] = f"{text}\n".encode()
    manifest = _manifest(made, task_path, {path: hashlib.sha256(data).hexdigest() for path, data in files.items()})
    text = json.dumps(_manifest_format().dump_python(manifest, mode="json"), indent=2, allow_nan=False)
    files[MANIFEST] = f"{text}\n".encode()
    try:
        _put(folder, files)
    except OSError as refused:
        raise UsageError(f"the bundle {folder} cannot be written ({refused.strerror}); name another folder.") from None
    return manifest


def _manifest(made: BundleContents, task_path: str, hashes: Mapping[str, str]) -> Manifest:
    candidate, certificate = made.candidate, made.certificate
    return Manifest(
        task=made.task.name,
        task_spec=f"{task_path}{made.task_pick}",
        task_digest=made.task.digest,
        precision=made.task.precision.value,
        precision_given=made.precision_given,
        candidate=candidate.id,
        candidate_digest=candidate.digest,
        backend=candidate.backend,
        files=tuple(f"{_KERNEL}/{file.name}" for file in candidate.files),
        defines=candidate.defines,
        entry=candidate.entry,
        contract=contract_line(made.contract),
        device=made.device,
        workloads=made.task.workloads,
        verified=certificate is not None and certificate.verified,
        measurement=made.measurement,
        environment=made.environment,
        warpsmith=__version__,
        python=platform.python_version(),
        sha256=hashes,
        requires=_required(candidate, made.environment.compiler),
    )


def _required(candidate: Candidate, compiler: str) -> tuple[str, ...]:
    """What the kernel includes and the bundle lacks, in the version that it was judged with, if `compiler` names it."""
    if not needs_cutlass([file.text for file in candidate.files]):
        return ()
    judged_with = re.search(r"CUTLASS [\d.]+\d", compiler)
    return (judged_with[0] if judged_with else "CUTLASS",)


def contract_line(contract: Contract) -> str:
    """The entry point in one line: contracts with the same line are called in the same way."""
    if contract.call is None:
        return declaration_of(contract)
    call = contract.call
    return f"{call.form} {call.name} {call.arguments} {call.keywords} -> {', '.join(call.returned)}"


def read_bundle(folder: Path) -> Bundle:
    """Read and check a bundle; raises UsageError if it is none, is damaged or was changed."""
    manifest = _read_manifest(folder)
    texts = {path: _checked(folder, path, digest) for path, digest in manifest.sha256.items()}
    wanted = {*manifest.files, manifest.task_spec.partition("::")[0]}
    if not manifest.files or not wanted <= texts.keys():
        raise UsageError(f"{folder} is incomplete: its manifest has no hash of a file that it needs; {_AGAIN}.")
    try:
        candidate = Candidate(
            tuple(SourceFile(PurePosixPath(path).name, texts[path]) for path in manifest.files),
            manifest.backend,
            manifest.defines,
            manifest.entry,
        )
    except ValueError as wrong:
        raise UsageError(f"{folder}: its sources are no kernel: {wrong}; {_AGAIN}.") from None
    if candidate.digest != manifest.candidate_digest:
        raise UsageError(
            f"{folder}: its sources and settings are not those of candidate {manifest.candidate}; {_AGAIN}."
        )
    certificate = None
    if CERTIFICATE in texts:
        certificate = read_certificate(folder / CERTIFICATE, candidate=candidate, task_digest=manifest.task_digest)
    return Bundle(folder, manifest, candidate, certificate)


def _read_manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    try:
        body = json.loads(_read(path))
    except FileNotFoundError:
        what = "there is no folder" if not folder.exists() else "there is no bundle in"
        raise UsageError(f"{what} {folder}; {_hint(folder)}.") from None
    except NotADirectoryError:
        raise UsageError(f"{folder} is a file, and a bundle is a folder; {_hint(folder)}.") from None
    except OSError as refused:
        raise UsageError(f"{path} cannot be read ({refused.strerror}).") from None
    except (ValueError, RecursionError):
        raise UsageError(f"{path} is no manifest of a bundle: it is not JSON; {_AGAIN}.") from None
    if isinstance(body, dict) and isinstance(body.get("format"), int) and body["format"] != FORMAT:
        raise UsageError(f"{folder} is a bundle of another version (format {body['format']}, not {FORMAT}); {_AGAIN}.")
    try:
        return _manifest_format().validate_python(body)
    except ValidationError as wrong:
        where = ".".join(str(part) for part in wrong.errors()[0]["loc"]) or "its content"
        raise UsageError(f"{path} is no manifest of a bundle: {where} is wrong; {_AGAIN}.") from None


def _hint(path: Path) -> str:
    """Advice for a path that is no bundle: `RUN/best` is the bundle beside the source `RUN/best.cpp`."""
    beside = path.with_suffix("")
    if path.suffix and (beside / MANIFEST).is_file():
        return f"the bundle is {beside}"
    if (path / "run.db").is_file():  # a run writes its bundle when it has a best kernel
        return f"it is a run without a best kernel; `warpsmith show {path}` says how to go on"
    return "`warpsmith optimize` and `warpsmith export` write bundles"


def _checked(folder: Path, path: str, digest: str) -> str:
    """The text of one file; raises UsageError if its hash differs from the manifest."""
    parts = path.split("/")
    if any(not re.fullmatch(r"[\w.+@ -]{1,255}", part) or part in (".", "..") for part in parts):
        raise UsageError(f"{folder}: its manifest names {path[:200]!r}, which is no file of a bundle; {_AGAIN}.")
    try:
        check_below(folder, folder / path)
        data = _read(folder / path)
    except OSError as refused:
        raise UsageError(f"{folder} is incomplete: {path} cannot be read ({refused.strerror}); {_AGAIN}.") from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise UsageError(f"{folder / path} is not the file in its manifest (SHA-256 differs); {_AGAIN}.")
    return data.decode("utf-8", "replace")


def _read(path: Path) -> bytes:
    return read_file(path, _MOST_BYTES)


def _is_replaceable(folder: Path) -> bool:
    return folder.is_dir() and ((folder / MANIFEST).is_file() or not any(folder.iterdir()))


def _put(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder beside the target, then rename it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".new-"))
    try:
        for name, data in files.items():
            put_in_place(staged / name, data, mode=0o644)
        staged.chmod(0o755)
        if os.path.lexists(folder):
            old = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".old-"))
            os.replace(folder, old / "bundle")
            remove_tree(old)
        os.replace(staged, folder)
    except BaseException:
        remove_tree(staged)
        raise
