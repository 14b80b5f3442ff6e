"""Extensions are built with short forms of PyTorch's headers, and with PyTorch's own where those do not do."""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from warpsmith.evaluator.candidate import extensions
from warpsmith.evaluator.candidate.light_headers import write_light_headers

INCLUDE = Path(torch.__file__).parent / "include"
SOURCE = """
#include <torch/extension.h>
torch::Tensor f(torch::Tensor x, std::vector<int64_t> d) {
  TORCH_CHECK(x.is_contiguous() && x.dtype() == torch::kFloat32, "c");
  auto o = torch::TensorOptions().dtype(torch::kFloat).device(x.device());
  auto y = torch::zeros({x.size(0), 2}, o);
  auto z = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(
      x.scalar_type(), "f", [&] { z.data_ptr<scalar_t>()[0] = x.accessor<scalar_t, 2>()[0][0]; });
  at::parallel_for(0, 4, 1, [&](int64_t a, int64_t b) {});
  return torch::matmul(x, y).sum(-1).contiguous() * 2.0f + y.index({0}) + z;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", torch::wrap_pybind_function(f), "f"); }
"""


def test_only_what_the_sources_name_is_included(tmp_path: Path) -> None:
    assert write_light_headers(tmp_path, INCLUDE, [SOURCE])
    types = (tmp_path / "torch" / "types.h").read_text()
    for wanted in ("ATen/ops/empty_like.h", "ATen/ops/matmul.h", "ATen/Parallel.h", "ATen/Dispatch.h"):
        assert f"#include <{wanted}>" in types
    for left_out in ("ATen/Functions.h", "ATen/NativeFunctions.h", "ATen/ATen.h", "torch/library.h", "ops/softmax.h"):
        assert f"#include <{left_out}>" not in types
    assert "constexpr auto kFloat32 = at::kFloat;" in types
    assert "pybind" in (tmp_path / "torch" / "extension.h").read_text()


@pytest.mark.parametrize("text", ["torch::nn::functional::relu(x)", "torch :: autograd::Function<F>", "int f();"])
def test_other_sources_get_the_headers_of_pytorch(text: str, tmp_path: Path) -> None:
    assert not write_light_headers(tmp_path, INCLUDE, [text])


def test_headers_of_another_release_are_no_reason_to_fail(tmp_path: Path) -> None:
    assert not write_light_headers(tmp_path / "out", tmp_path / "nowhere", [SOURCE])


@pytest.fixture
def own_functions() -> Iterator[None]:
    load, inline = extensions.cpp_extension.load, extensions.cpp_extension.load_inline
    yield
    extensions.cpp_extension.load, extensions.cpp_extension.load_inline = load, inline


@pytest.mark.parametrize("light_works", [True, False])
def test_what_cannot_be_built_with_the_short_forms_is_built_without(
    light_works: bool, tmp_path: Path, own_functions: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, ...]] = []

    def load_inline(name: str, cpp_sources: list[str], extra_include_paths: Any = None, **_: Any) -> str:
        cpp_sources.append("// what PyTorch adds")
        calls.append(tuple(cpp_sources))
        light = bool(extra_include_paths) and (Path(extra_include_paths[0]) / "torch" / "extension.h").is_file()
        if light and not light_works:
            raise RuntimeError("Error building extension 'mine'")
        return str(tmp_path / "extensions" / name / ("light.so" if light else "full.so"))

    monkeypatch.setattr(extensions.cpp_extension, "load_inline", load_inline)
    extensions.build_into(tmp_path / "extensions")
    made = extensions.cpp_extension.load_inline("mine", [SOURCE])
    assert Path(made).name == ("light.so" if light_works else "full.so")
    assert calls == [(SOURCE, "// what PyTorch adds")] * (1 if light_works else 2)


@pytest.mark.slow  # the compiler reads what is left of PyTorch's headers
def test_a_usual_extension_compiles_with_the_short_forms(tmp_path: Path) -> None:
    assert write_light_headers(tmp_path / "h", INCLUDE, [SOURCE])
    (tmp_path / "f.cpp").write_text(SOURCE)
    folders = [INCLUDE, INCLUDE / "torch/csrc/api/include", Path(sysconfig.get_paths()["include"])]
    system = [word for folder in folders for word in ("-isystem", str(folder))]
    flags = ["-std=c++20", "-DTORCH_EXTENSION_NAME=f", "-fsyntax-only"]
    command = ["g++", "-I", str(tmp_path / "h"), *system, *flags, str(tmp_path / "f.cpp")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[:2000]
