"""The `torch_module` backend: programs for PyTorch, in the forms in which kernels are published.

A KernelBench-style `ModelNew`, a plain Python function, or the source of a torch extension (.cu, .cpp) with `--entry`.
This module only reads the sources; they are compiled and run in the candidate's own processes.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace

from warpsmith.backends.builder import Builder, refusal
from warpsmith.backends.cutlass import find_cutlass, includes_cutlass
from warpsmith.backends.python_contract import entry_call, launch_arguments, module_call, module_text, parse_entry
from warpsmith.backends.python_source import import_problem, package_version, python_name, python_traits, store_sources
from warpsmith.backends.toolchain import NO_CXX, NO_NVCC, find_cxx, find_nvcc
from warpsmith.backends.triton import triton_name
from warpsmith.model.build import Artifact, ArtifactKind, Availability, Backend, BuildFailure, DeviceKind, Target
from warpsmith.model.candidate import Candidate, SourceFile
from warpsmith.model.contract import CallForm, Contract, PythonCall
from warpsmith.model.errors import ToolMissing, UsageError
from warpsmith.model.settings import Limits, Paths
from warpsmith.model.task import Task

NO_TORCH = "no PyTorch: install torch >= 2.6"
LOADER = "load_extension.py"
CUDA_SUFFIXES = (".cu",)
CPP_SUFFIXES = (".cpp", ".cc", ".cxx", ".c++")

_BOUND = re.compile(r"\bPYBIND11_MODULE\s*\(")
_BINDING = """
#include <torch/csrc/utils/pybind.h>
PYBIND11_MODULE(TORCH_EXTENSION_NAME, warpsmith_binding) {{
  warpsmith_binding.def("{attribute}", &{name});
}}
"""
_LOADER = '''"""Builds and loads {source}; written by Warpsmith."""
import os

from torch.utils.cpp_extension import load

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_EXTENSION = load(
    name="{module}",
    sources=[os.path.join(_FOLDER, "{source}")],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_cuda_cflags=["-O3"],
    extra_ldflags=["-fopenmp"],
)
{attribute} = _EXTENSION.{attribute}
'''


class TorchModuleBackend:
    name: str = "torch_module"
    suffixes: tuple[str, ...] = (".py",)  # and those of extensions, where an entry is given
    devices: tuple[DeviceKind, ...] = (DeviceKind.CUDA, DeviceKind.CPU)

    def __init__(self, builder: Builder | None = None) -> None:
        self._builder = builder or Builder()

    def configured(self, paths: Paths, limits: Limits) -> TorchModuleBackend:
        """The same backend with another cache folder and other limits."""
        return TorchModuleBackend(replace(self._builder, paths=paths, limits=limits))

    def available(self) -> Availability:
        """Whether PyTorch is installed; the compilers of extensions are checked at each build."""
        if importlib.util.find_spec("torch") is None:
            return Availability(build=False, run=False, detail=NO_TORCH)
        return Availability(build=True, run=True, detail=f"{python_name()}, torch {package_version('torch')}")

    def contract(self, task: Task, entry: str = "") -> Contract:
        """The contract of `ModelNew`, or of the function that `entry` names."""
        call = entry_call(task, entry) if entry else module_call(task)
        text = f"`{entry}` is called as it stands here.\n" if entry else module_text(task, call)
        return Contract(task.name, self.name, call.name, launch_arguments(task), (), "", text, task.allow, call)

    def build(self, candidate: Candidate, contract: Contract, target: Target) -> Artifact | BuildFailure:
        """Check and store the file; a compile worker then compiles extensions and Triton kernels."""
        if target.kind not in self.devices:
            raise UsageError(f"backend torch_module cannot build for {target.kind!r}; choose cpu or cuda.")
        assert contract.call is not None, "contract() gives one"
        main = candidate.main
        if main.name.endswith((*CUDA_SUFFIXES, *CPP_SUFFIXES)):
            return self._put_extension(candidate, contract.call)
        name, module = contract.call.name, contract.call.form is CallForm.MODULE
        fault = import_problem(main, name, f"class {name}(torch.nn.Module)" if module else f"def {name}(...)")
        if fault is not None:
            return BuildFailure(fault)
        traits = python_traits(main.text)
        kind = ArtifactKind.SOURCES if traits.extension or traits.triton else ArtifactKind.MODULE
        compiler = python_name()
        if traits.extension:
            compiler = self._extension_compiler(traits.cuda, candidate)
        elif traits.triton:
            compiler = triton_name()
        return store_sources(self._builder, candidate, candidate.files, main.name, kind, compiler)

    def _put_extension(self, candidate: Candidate, call: PythonCall) -> Artifact | BuildFailure:
        refused = refusal(candidate.files)
        if refused:
            return BuildFailure(refused)
        main, entry = candidate.main, parse_entry(candidate.entry)
        if entry.attribute not in main.text:
            return BuildFailure(f"{main.name} does not mention {entry.attribute}: name a function that it defines.")
        if not _BOUND.search(main.text):
            bound = main.text + _BINDING.format(attribute=entry.attribute, name=entry.name.replace(".", "::"))
            main = SourceFile(main.name, bound)
        loader = _LOADER.format(module=f"extension_{candidate.id}", source=main.name, attribute=call.name)
        files = (SourceFile(LOADER, loader), main, *candidate.files[1:])
        compiler = self._extension_compiler(main.name.endswith(CUDA_SUFFIXES), candidate)
        return store_sources(self._builder, candidate, files, LOADER, ArtifactKind.SOURCES, compiler)

    def _extension_compiler(self, cuda: bool, candidate: Candidate) -> str:
        found = find_nvcc(self._builder.environ) if cuda else find_cxx(self._builder.environ)
        if found is None:
            raise ToolMissing((NO_NVCC if cuda else NO_CXX) + ".")
        cutlass = find_cutlass(self._builder.environ)
        used = f", {cutlass.name}" if cutlass and includes_cutlass(file.text for file in candidate.files) else ""
        return f"torch extension, {found.name}{used}"


PLUGIN: Backend = TorchModuleBackend()
