from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from warpsmith.backends.builder import CUDA_NAMES, missing_headers
from warpsmith.backends.source import backend_named, read_candidate
from warpsmith.backends.tunables import Tunable, tunables
from warpsmith.model.build import Backend
from warpsmith.model.errors import CandidateError, UsageError
from warpsmith.system.plugins import plugins


@pytest.mark.parametrize(("name", "backend"), [("k.cpp", "cpu"), ("k.cc", "cpu"), ("k.CU", "cuda"), ("k.cu", "cuda")])
def test_the_ending_decides_the_backend(tmp_path: Path, name: str, backend: str) -> None:
    (tmp_path / name).write_text("int x;\n")
    assert read_candidate(tmp_path / name).backend == backend


def test_a_named_backend_overrules_the_ending_and_odd_names_become_plain(tmp_path: Path) -> None:
    path = tmp_path / "my kernel (2).txt"
    path.write_text("int x;\r\n")
    candidate = read_candidate(path, backend="cuda")
    assert candidate.backend == "cuda"
    assert candidate.main.name == "my_kernel__2_.txt"
    assert candidate.main.text == "int x;\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b" \n\t", "is empty"),
        (b"int \xff\xfe;", "is not UTF-8 text"),
        (b"\0\0", "NUL byte"),
        (b"/" * ((1 << 20) + 1), "may have 1048576 at most"),
    ],
    ids=["empty", "blank", "latin", "binary", "large"],
)
def test_a_file_that_is_no_source_gets_one_sentence(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "k.cu"
    path.write_bytes(content)
    with pytest.raises(CandidateError, match=message) as caught:
        read_candidate(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_folders_and_unknown_endings_get_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CandidateError, match="does not exist"):
        read_candidate(tmp_path / "none.cu")
    (tmp_path / "folder.cu").mkdir()
    with pytest.raises(CandidateError, match="is not a file"):
        read_candidate(tmp_path / "folder.cu")
    with pytest.raises(CandidateError, match=r"must end in one of .*\.cpp.*\.cu"):
        read_candidate(tmp_path / "k.rs")


def test_every_backend_keeps_the_protocol() -> None:
    known = plugins("warpsmith.backends")
    assert {"cpu", "cuda"} <= set(known)
    for name, backend in known.items():
        assert isinstance(backend, Backend)
        assert backend.name == name
        assert backend.available().detail
    with pytest.raises(UsageError, match="cpu, cuda"):
        backend_named("fortran")


def test_tunables_are_read_and_prose_is_not() -> None:
    text = """
// tune: BLOCK = 128, 256, 512
  //tune: TYPE=float,half
// tune: the block size = whatever fits, really
// tune: BLOCK = 1
// tune: SHELL = $(rm), `x`
"""
    assert tunables(text) == (Tunable("BLOCK", ("128", "256", "512")), Tunable("TYPE", ("float", "half")))


def test_headers_are_added_for_names_outside_comments_only() -> None:
    text = "// half of the warp\n#include <mma.h>\nusing namespace nvcuda::wmma; __nv_bfloat16 b; cg::grid_group g;"
    assert missing_headers([text], CUDA_NAMES) == ("cuda_bf16.h", "cooperative_groups.h")


def test_compiling_needs_no_torch() -> None:
    code = "import sys, warpsmith.backends.source as s; s.backend_named('cpu'); print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
