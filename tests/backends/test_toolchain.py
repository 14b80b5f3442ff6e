from __future__ import annotations

import os
from pathlib import Path

from warpsmith.backends.toolchain import find_cxx, find_nvcc

NVCC = "#!/bin/sh\necho 'Cuda compilation tools, release 13.0, V{version}'\n"


def fake_nvcc(path: Path, version: str = "13.0.88") -> Path:
    path.parent.mkdir(parents=True)
    path.write_text(NVCC.format(version=version))
    path.chmod(0o755)
    return path


def test_cxx_is_honoured_with_its_arguments() -> None:
    compiler = find_cxx({"PATH": os.environ["PATH"], "CXX": "g++ -pipe"})
    assert compiler is not None
    assert compiler.command[1:] == ("-pipe",)
    assert compiler.family == "gcc"


def test_a_cxx_that_is_not_there_is_passed_over() -> None:
    compiler = find_cxx({"PATH": os.environ["PATH"], "CXX": "/nowhere/g++"})
    assert compiler is not None
    assert compiler.command[0] != "/nowhere/g++"


def test_cuda_home_comes_before_path(tmp_path: Path) -> None:
    chosen = fake_nvcc(tmp_path / "home" / "bin" / "nvcc", "12.9.1")
    fake_nvcc(tmp_path / "path" / "nvcc")
    environ = {"CUDA_HOME": str(tmp_path / "home"), "PATH": f"{tmp_path}/path:{os.environ['PATH']}"}
    compiler = find_nvcc(environ, ())
    assert compiler is not None
    assert compiler.command == (str(chosen),)
    assert compiler.name == "nvcc 12.9.1"


def test_packages_of_the_extra_serve_where_no_toolkit_is(tmp_path: Path) -> None:
    root = tmp_path / "site" / "nvidia" / "cu13"
    nvcc = fake_nvcc(root / "bin" / "nvcc")
    (root / "lib").mkdir()
    (root / "lib" / "libcudart.so.13").touch()
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("g++", "sh"):
        (tools / name).symlink_to(next(p for d in ("/usr/bin", "/bin") if (p := Path(d) / name).exists()))
    compiler = find_nvcc({"PATH": str(tools)}, (str(tmp_path / "site"),), tmp_path / "no-toolkit")
    assert compiler is not None
    assert compiler.command == (str(nvcc),)
    assert compiler.runtime == root / "lib" / "libcudart.so.13"
    assert ("-L", str(root / "lib")) in zip(compiler.search_flags, compiler.search_flags[1:], strict=False)


def test_the_same_compiler_elsewhere_has_the_same_identity(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"]}
    fake_nvcc(tmp_path / "a" / "bin" / "nvcc")
    fake_nvcc(tmp_path / "b" / "bin" / "nvcc")
    first = find_nvcc({**environ, "CUDA_HOME": str(tmp_path / "a")}, ())
    second = find_nvcc({**environ, "CUDA_HOME": str(tmp_path / "b")}, ())
    assert first is not None
    assert second is not None
    assert first.command != second.command
    assert first.identity == second.identity


def test_the_shared_c_library_is_named_where_the_compiler_would_link_the_static_one(tmp_path: Path) -> None:
    """A compiler without the link `libstdc++.so` puts the whole static library, and what that calls, into an object."""
    plain = find_cxx({"PATH": os.environ["PATH"], "CXX": "g++"})
    assert plain is not None
    assert plain.stdlib is None, "this compiler finds its own"
    bare = tmp_path / "g++"
    bare.write_text('#!/bin/sh\ncase "$1" in -print-file-name=*) echo "${1#*=}"; exit;; esac\nexec g++ "$@"\n')
    bare.chmod(0o755)
    found = find_cxx({"PATH": os.environ["PATH"], "CXX": str(bare)})
    assert found is not None
    assert found.stdlib is not None
    assert found.stdlib.name == "libstdc++.so.6"
    assert found.stdlib.is_file()
