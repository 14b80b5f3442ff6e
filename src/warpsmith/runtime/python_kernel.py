"""Kernels in Python: Triton, a KernelBench `ModelNew`, a function, or a torch extension behind one.

The candidate's file is imported into the caller's process under its own module name, and compiles there with the caches
of Triton and of torch's extensions; compilers find the headers of CUTLASS if they are installed and it includes them.
Flags of PyTorch such as TF32 are left as the caller has set them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from warpsmith.backends.cutlass import find_cutlass, includes_cutlass
from warpsmith.evaluator.candidate.python_module import NamedTensor, PythonFault, fill_arguments, module_with_state
from warpsmith.hardware.device import arch_of
from warpsmith.model.build import MAIN, SOURCES, DeviceKind, Target
from warpsmith.model.contract import CallForm, Contract, PythonCall
from warpsmith.model.errors import CandidateError
from warpsmith.model.task import Task, TensorRole
from warpsmith.runtime.native_kernel import FloatMode, restore_float_mode, save_float_mode
from warpsmith.tasks.modules import silence_dropout
from warpsmith.tasks.program import DTYPES, dense_outputs

_MODELS_KEPT = 4  # models with different weights


@dataclass(frozen=True)
class PythonCallPlan:
    """What all calls with the same shapes share."""

    outputs: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    numbers: Mapping[str, int | float | bool]


class PythonKernel:
    """A kernel that is called in Python."""

    def __init__(self, name: str, task: Task, contract: Contract, kind: str, build: Callable[[Target], Path]) -> None:
        assert contract.call is not None, "a Python contract has a call"
        self._name = name
        self._task = task
        self._call: PythonCall = contract.call
        self._kind = kind
        self._build = build
        self._target: Callable[..., object] | None = None
        self._variables: Mapping[str, str] = {}  # for compilers that the candidate starts
        self._lock = threading.RLock()  # a kernel was never tested in two threads at once
        self._arguments = json.loads(self._call.arguments)
        self._keywords = json.loads(self._call.keywords)
        self._names = tuple(spec.name for spec in task.inputs)
        self._given = tuple(s.name for s in task.outputs if s.name not in self._call.returned)
        self._models: OrderedDict[tuple[int, ...], tuple[nn.Module, list[tuple[Tensor, Tensor]]]] = OrderedDict()

    def prepare(self) -> None:
        """Import the file before the first call; does nothing without the device."""
        if self._kind == "cpu" or torch.cuda.is_available():
            self._imported()

    def plan(self, sizes: Mapping[str, int], device: torch.device) -> PythonCallPlan | None:
        """The shapes of the outputs, and every number by name."""
        outputs = tuple((spec.shape(sizes), DTYPES[spec.dtype]) for spec in self._task.outputs)
        return PythonCallPlan(outputs, {**{s.name: s.value for s in self._task.scalars}, **sizes})

    def run(self, tensors: Sequence[Tensor], plan: PythonCallPlan) -> list[Tensor] | None:
        """The outputs."""
        device = tensors[0].device
        with self._lock:
            if device.type != "cuda":
                mode = FloatMode()
                save_float_mode(mode)
                try:
                    return self._run(tensors, plan, device)
                finally:
                    restore_float_mode(mode)
            if torch.cuda.current_device() != device.index:
                with torch.cuda.device(device):
                    return self._run(tensors, plan, device)
            return self._run(tensors, plan, device)

    def _run(self, tensors: Sequence[Tensor], plan: PythonCallPlan, device: torch.device) -> list[Tensor]:
        values: dict[str, object] = dict(zip(self._names, tensors, strict=True))
        made: dict[str, Tensor] = {}
        for spec, (shape, dtype) in zip(self._task.outputs, plan.outputs, strict=True):
            if spec.name in self._given:
                made[spec.name] = torch.empty(shape, dtype=dtype, device=device)
        values = {**values, **made, **plan.numbers}
        with torch.no_grad():
            target = self._model_with(tensors) if self._call.form is CallForm.MODULE else self._imported()
            result = target(*fill_arguments(self._arguments, values), **fill_arguments(self._keywords, values))
        if self._call.returned:
            made |= self._returned(result, tensors)
        outputs = [made[spec.name] for spec in self._task.outputs]
        for spec, output, (shape, dtype) in zip(self._task.outputs, outputs, plan.outputs, strict=True):
            if tuple(output.shape) != shape or output.dtype != dtype:
                raise CandidateError(
                    f"{self._name} returned {spec.name} as {output.dtype} {list(output.shape)}, not {dtype} "
                    f"{list(shape)}; do not use this kernel at such shapes."
                )
        return outputs

    def _returned(self, result: object, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
        outputs = dense_outputs(result)
        if len(outputs) != len(self._call.returned):
            raise CandidateError(f"{self._name} returned {len(outputs)} tensors, not {len(self._call.returned)}.")
        inputs = {tensor.untyped_storage().data_ptr() for tensor in tensors}
        # An operator of torch must not return its own arguments.
        own = [o.clone() if o.untyped_storage().data_ptr() in inputs else o for o in outputs]
        return dict(zip(self._call.returned, own, strict=True))

    def _imported(self) -> Callable[..., object]:
        if self._target is not None:
            return self._target
        with self._lock:
            if self._target is None:
                cuda = self._kind == "cuda"
                arch = arch_of(torch.cuda.get_device_capability()) if cuda else "native"
                folder = self._build(Target(DeviceKind(self._kind), arch))
                self._variables = _compiler_variables(folder / SOURCES)
                path = folder / SOURCES / (folder / MAIN).read_text(encoding="utf-8").strip()
                with _environment(self._variables):
                    module = _import(self._name, path)
                found = getattr(module, self._call.name, None)
                if not callable(found):
                    raise CandidateError(f"the kernel {self._name} defines no {self._call.name} that can be called.")
                self._target = found
        return self._target

    def _model_with(self, tensors: Sequence[Tensor]) -> nn.Module:
        """The candidate's module with this state; kept for the next call."""
        pairs = zip(self._task.inputs, tensors, strict=True)
        state = [
            NamedTensor(spec.name, "state", spec.origin, tensor)
            for spec, tensor in pairs
            if spec.role is TensorRole.STATE
        ]
        key = (*(each.tensor.data_ptr() for each in state), tensors[0].device.index or 0)
        known = self._models.get(key)
        if known is None:
            try:
                device = tensors[0].device
                known = module_with_state(self._construct(device), state, lambda: self._construct(device))
            except PythonFault as fault:
                raise CandidateError(f"the kernel {self._name} does not fit these weights: {fault.text}") from None
            self._models[key] = known
            while len(self._models) > _MODELS_KEPT:
                self._models.popitem(last=False)
        model, copies = known
        for private, original in copies:
            private.copy_(original)
        return model

    def _construct(self, device: torch.device) -> nn.Module:
        args, kwargs = fill_arguments(json.loads(self._call.init), {})
        target = self._imported()
        with _environment(self._variables):  # some candidates build their extension in the constructor
            made: Any = target(*args, **kwargs)
        if not isinstance(made, nn.Module):
            raise CandidateError(f"{self._call.name} of the kernel {self._name} is no torch.nn.Module.")
        silence_dropout(made)
        return made.to(device)


def _compiler_variables(sources: Path) -> Mapping[str, str]:
    """What compilers need to find CUTLASS, for sources that include it where it is installed."""
    texts = (file.read_text(encoding="utf-8", errors="replace") for file in sources.iterdir() if file.is_file())
    cutlass = find_cutlass(os.environ)
    return cutlass.environment if cutlass and includes_cutlass(texts) else {}


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process for a while."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _import(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"_warpsmith_kernel_{name}", path)
    if spec is None or spec.loader is None:
        raise CandidateError(f"{path.name} cannot be imported: its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # Triton finds the source of a kernel through its module
    mode = FloatMode()
    save_float_mode(mode)
    try:
        spec.loader.exec_module(module)
    finally:
        restore_float_mode(mode)
    return module
