"""The `torch_module` backend: programs that live in PyTorch, as others publish them.

A KernelBench-style `ModelNew`, a plain Python function, or the source of a torch extension (.cu, .cpp) with `--entry`.
Its sources are only looked at here; whatever must be compiled or run is done in processes of the candidate's own.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace

from warpsmith.backends.build import Workshop
from warpsmith.backends.pybuild import package_version, put_sources, python_name
from warpsmith.backends.pyentry import entry_call, launch_arguments, module_call, parse_entry
from warpsmith.backends.pysource import fault_in, traits_of
from warpsmith.backends.pywording import module_text
from warpsmith.backends.screen import objection
from warpsmith.backends.toolchain import NO_CXX, NO_NVCC, find_cxx, find_nvcc
from warpsmith.backends.triton import triton_name
from warpsmith.core.build import Artifact, Availability, BuildFailure, Target
from warpsmith.core.candidate import Candidate, SourceFile
from warpsmith.core.config import Limits, Paths
from warpsmith.core.contract import Contract, PythonCall
from warpsmith.core.errors import ToolMissing, UsageError
from warpsmith.core.protocols import Backend
from warpsmith.core.task import Task

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
    """Python and torch extensions."""

    name: str = "torch_module"
    suffixes: tuple[str, ...] = (".py",)  # and those of extensions, where an entry is given
    devices: tuple[str, ...] = ("cuda", "cpu")

    def __init__(self, workshop: Workshop | None = None) -> None:
        self._workshop = workshop or Workshop()

    def placed(self, paths: Paths, limits: Limits) -> TorchModuleBackend:
        """The same backend, keeping its builds there and within these limits."""
        return TorchModuleBackend(replace(self._workshop, paths=paths, limits=limits))

    def available(self) -> Availability:
        """Needs PyTorch; extensions need compilers too, which each candidate's build asks for."""
        if importlib.util.find_spec("torch") is None:
            return Availability(build=False, run=False, detail=NO_TORCH)
        return Availability(build=True, run=True, detail=f"{python_name()}, torch {package_version('torch')}")

    def contract(self, task: Task, entry: str = "") -> Contract:
        """`ModelNew` for this task, or the function that `entry` names."""
        call = entry_call(task, entry) if entry else module_call(task)
        text = f"`{entry}` is called as it stands here.\n" if entry else module_text(task, call)
        return Contract(task.name, self.name, call.name, launch_arguments(task), (), "", text, task.allow, call)

    def build(self, candidate: Candidate, contract: Contract, target: Target) -> Artifact | BuildFailure:
        """Look at the file; a file that holds an extension or Triton kernels goes to the forge next."""
        if target.kind not in self.devices:
            raise UsageError(f"backend torch_module cannot build for {target.kind!r}; choose cpu or cuda.")
        assert contract.call is not None, "contract() gives one"
        main = candidate.main
        if main.name.endswith((*CUDA_SUFFIXES, *CPP_SUFFIXES)):
            return self._put_extension(candidate, contract.call)
        name, module = contract.call.name, contract.call.form == "module"
        fault = fault_in(main, name, f"class {name}(torch.nn.Module)" if module else f"def {name}(...)")
        if fault is not None:
            return BuildFailure(fault)
        traits = traits_of(main.text)
        kind = "sources" if traits.extension or traits.triton else "module"
        compiler = python_name()
        if traits.extension:
            compiler = self._extension_compiler(traits.cuda)
        elif traits.triton:
            compiler = triton_name()
        return put_sources(self._workshop, candidate, candidate.files, main.name, kind, compiler)

    def _put_extension(self, candidate: Candidate, call: PythonCall) -> Artifact | BuildFailure:
        refused = objection(candidate.files)
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
        compiler = self._extension_compiler(main.name.endswith(CUDA_SUFFIXES))
        return put_sources(self._workshop, candidate, files, LOADER, "sources", compiler)

    def _extension_compiler(self, cuda: bool) -> str:
        found = find_nvcc(self._workshop.environ) if cuda else find_cxx(self._workshop.environ)
        if found is None:
            raise ToolMissing((NO_NVCC if cuda else NO_CXX) + ".")
        return f"torch extension, {found.name}"


PLUGIN: Backend = TorchModuleBackend()
