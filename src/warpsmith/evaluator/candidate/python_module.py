"""Imports a Python candidate, constructs its module, binds it to tensors of the judge and copies its results back.

Runs only in processes of the candidate (its host, the compile worker); nothing is trusted once `import_candidate` has
run. Parameters of a module become views of the judge's buffers. Buffers of a module, which layers such as BatchNorm
write to, become private copies that are reset before every call, unless the task never writes to them.

`copy_results` accepts plain tensors only, because a subclass of Tensor can postpone its work until somebody reads it.
This check helps honest candidates; against the others, the judge's clock also covers the time of the copies.
"""

from __future__ import annotations

import copy
import ctypes
import importlib.util
import json
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from warpsmith.model.contract import CallForm, PythonCall
from warpsmith.model.errors import lacks_memory

NAME = "candidate"
"""The name under which a candidate is imported."""
_MOST_CHARS = 600
_QUOTED_LINES = 10
_NO_EXEC = "programs cannot be started while a candidate runs; compile at import, or when ModelNew is constructed"


@dataclass(frozen=True)
class NamedTensor:
    """One tensor of a set of buffers."""

    name: str
    role: str  # "input", "state", "weights" (state that the reference only reads) or "output"
    origin: str  # its name inside a module; "" if it has none
    tensor: Tensor


@dataclass(frozen=True)
class BoundCall:
    """A candidate bound to one set of tensors."""

    call: Callable[[], object]
    renew: Callable[[], None]  # resets private copies of module buffers; called before the clock starts
    checked: Callable[[], object]  # the untimed call: with one module for all sets, if possible


def import_candidate(path: Path) -> ModuleType:
    """Import the candidate's file."""
    spec = importlib.util.spec_from_file_location(NAME, path)
    if spec is None or spec.loader is None:
        raise PythonFault("import", f"{path.name} cannot be imported: its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module  # decorators and pickle look up a class by its module
    spec.loader.exec_module(module)
    return module


class PythonCallable:
    """A loaded candidate that can be bound to sets of tensors."""

    def __init__(self, module: ModuleType, call: PythonCall, device: torch.device) -> None:
        self._call = call
        self._device = device
        found = getattr(module, call.name, None)
        if not callable(found):
            raise PythonFault("import", f"the file defines no {call.name} that can be called.")
        self._target: Callable[..., object] = found
        self._model = self._construct() if call.form is CallForm.MODULE else None

    def _construct(self) -> nn.Module:
        args, kwargs = fill_arguments(json.loads(self._call.init), {})
        made = self._target(*args, **kwargs)
        if not isinstance(made, nn.Module):
            raise PythonFault("import", f"{self._call.name} is no torch.nn.Module: derive it from one.")
        _silence_dropout(made)
        return made.to(self._device)

    def bind(self, given: Sequence[NamedTensor], numbers: Mapping[str, float | int | bool]) -> BoundCall:
        """Bind the candidate to these tensors."""
        values: dict[str, object] = {**{each.name: each.tensor for each in given}, **numbers}
        args = fill_arguments(json.loads(self._call.arguments), values)
        kwargs = fill_arguments(json.loads(self._call.keywords), values)
        if self._model is None:
            target = self._target
            return BoundCall(lambda: target(*args, **kwargs), lambda: None, lambda: target(*args, **kwargs))
        state = [each for each in given if each.role in ("state", "weights")]
        model, copies = module_with_state(self._model, state, self._construct)
        # A module may keep the buffer of its result, so timed calls use one module per set. A module that keeps the
        # addresses of its first arguments, for example in a CUDA graph, is wrong: untimed calls with a common module
        # show that.
        common = model if state else self._model

        def renew() -> None:
            for private, original in copies:
                private.copy_(original)

        return BoundCall(lambda: model(*args, **kwargs), renew, lambda: common(*args, **kwargs))


def fill_arguments(tree: Any, values: Mapping[str, object]) -> Any:
    """Arguments with values in place of names (see PythonCall)."""
    if isinstance(tree, list):
        return [fill_arguments(part, values) for part in tree]
    if isinstance(tree, dict):
        if set(tree) == {"$"}:
            return values[tree["$"]]
        if set(tree) == {"()"}:
            return tuple(fill_arguments(part, values) for part in tree["()"])
        return {key: fill_arguments(part, values) for key, part in tree.items()}
    return tree


def _silence_dropout(model: nn.Module) -> None:
    """Turn dropout off, as in the reference: a random result cannot be checked."""
    for part in model.modules():
        if isinstance(part, _DropoutNd):
            part.eval()
        elif isinstance(part, nn.RNNBase | nn.MultiheadAttention):
            part.dropout = 0.0


# --- the state of a module ---------------------------------------------------------------------------


def module_with_state(
    model: nn.Module, state: Sequence[NamedTensor], construct: Callable[[], nn.Module]
) -> tuple[nn.Module, list[tuple[Tensor, Tensor]]]:
    """A copy of the module that uses these tensors, and (private copy, original) of its written buffers."""
    try:
        return _copied(model, state)
    except (
        TypeError,
        RuntimeError,
        AttributeError,
        NotImplementedError,
    ):  # something in it cannot be copied
        return _rebuilt(construct(), state)


def _rebuilt(model: nn.Module, state: Sequence[NamedTensor]) -> tuple[nn.Module, list[tuple[Tensor, Tensor]]]:
    """A newly constructed module that uses these tensors."""
    buffers = {id(buffer) for buffer in model.buffers()}
    copies: list[tuple[Tensor, Tensor]] = []
    for own, each in _matched(model, state):
        is_copied = id(own) in buffers and each.role == "state"
        own.data = each.tensor.clone() if is_copied else each.tensor
        if is_copied:
            copies.append((own.data, each.tensor))
    return model, copies


def _copied(model: nn.Module, state: Sequence[NamedTensor]) -> tuple[nn.Module, list[tuple[Tensor, Tensor]]]:
    buffers = {id(buffer) for buffer in model.buffers()}
    memo: dict[int, object] = {id(kept): kept for kept in _shared(model)}
    copies: list[tuple[Tensor, Tensor]] = []
    for own, each in _matched(model, state):
        if id(own) in buffers and each.role == "state":
            private = each.tensor.clone()
            copies.append((private, each.tensor))
            memo[id(own)] = private
        elif isinstance(own, nn.Parameter):
            memo[id(own)] = nn.Parameter(each.tensor, requires_grad=False)
        else:
            memo[id(own)] = each.tensor
    return copy.deepcopy(model, memo), copies


def _shared(model: nn.Module) -> Iterator[object]:
    """Objects that cannot be copied and are shared with the original: above all extensions."""
    for part in model.modules():
        for value in vars(part).values():
            for each in value if isinstance(value, list | tuple) else (value,):
                if isinstance(each, ModuleType) or type(each).__module__.startswith(("pybind11", "triton")):
                    yield each


def _matched(model: nn.Module, state: Sequence[NamedTensor]) -> list[tuple[Tensor, NamedTensor]]:
    """Pairs of the module's tensors and the task's: by name, and the rest by order and shape."""
    found: list[tuple[Tensor, NamedTensor]] = []
    missing: list[NamedTensor] = []
    for each in state:
        own = _at(model, (each.origin or each.name).split("."))
        if own is not None and own.shape == each.tensor.shape:
            found.append((own, each))
        else:
            missing.append(each)
    taken = {id(own) for own, _ in found}
    left = {name: own for name, own in model.named_parameters() if id(own) not in taken}
    if not missing or not left:
        return found  # a module need not use all of the state
    wanted = [each for each in missing if each.tensor.is_floating_point()]
    if [tuple(own.shape) for own in left.values()] != [tuple(each.tensor.shape) for each in wanted]:
        name, own = next(iter(left.items()))
        names = ", ".join(f"{each.origin or each.name} {list(each.tensor.shape)}" for each in missing[:6])
        raise PythonFault(
            "import",
            f"the task has no values for the parameter {name} {list(own.shape)}: name parameters as the task's Model "
            f"does, e.g. {names}.",
        )
    return found + list(zip(left.values(), wanted, strict=True))


def _at(value: object, path: Sequence[str]) -> Tensor | None:
    """The tensor at a dotted path inside a module."""
    for key in path:
        try:
            if isinstance(value, list | tuple):
                value = value[int(key)]
            elif isinstance(value, Mapping):
                value = value[key]
            else:
                value = getattr(value, key)
        except (AttributeError, LookupError, ValueError):
            return None
    return value if isinstance(value, Tensor) else None


@dataclass(frozen=True)
class OutputTarget:
    """One output and the judge's buffer for it."""

    name: str
    target: Tensor


def copy_results(result: object, expected: Sequence[OutputTarget]) -> None:
    """Copy returned tensors into the judge's buffers; raises PythonFault if they do not fit."""
    found = list(returned_tensors(result))
    if len(found) != len(expected):
        names = ", ".join(each.name for each in expected)
        raise PythonFault(
            "mismatch",
            f"it returned {_counted(len(found))}, where the task has {_counted(len(expected))} ({names}).",
        )
    for tensor, each in zip(found, expected, strict=True):
        _check(tensor, each)
        copy_tensor(tensor, each.target)


def copy_tensor(tensor: Tensor, target: Tensor) -> None:
    """Copy a tensor; on the CPU with memmove, because torch's copy waits for threads on a busy machine."""
    plain = tensor.is_cpu and tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg())
    if plain and target.is_contiguous():
        ctypes.memmove(target.data_ptr(), tensor.data_ptr(), tensor.nbytes)
    else:
        target.copy_(tensor)


def _check(tensor: Tensor, each: OutputTarget) -> None:
    if type(tensor) is not Tensor:
        kind = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
        raise PythonFault("lazy", f"{each.name} was returned as {kind}; return a plain torch.Tensor, computed.")
    if tensor.is_meta or torch._is_functional_tensor(tensor):
        raise PythonFault("lazy", f"{each.name} was returned as a tensor without data; return one that is computed.")
    target = each.target
    if tensor.layout is not torch.strided:
        raise PythonFault("mismatch", f"{each.name} was returned as {tensor.layout}; return a dense tensor.")
    if tensor.device != target.device:
        raise PythonFault("mismatch", f"{each.name} was returned on {tensor.device}; it belongs on {target.device}.")
    if tensor.shape != target.shape or tensor.dtype != target.dtype:
        raise PythonFault(
            "mismatch", f"{each.name} was returned as {_said(tensor)}, where {_said(target)} is expected."
        )


def _said(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _counted(count: int) -> str:
    return "no tensor" if count == 0 else "1 tensor" if count == 1 else f"{count} tensors"


def returned_tensors(result: object) -> Iterator[Tensor]:
    """Every tensor of a nested result, in order; other values are ignored, as for the reference.

    A container of the candidate may compute its values here: this belongs to the call.
    """
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, Mapping):
        for value in result.values():
            yield from returned_tensors(value)
    elif isinstance(result, list | tuple):
        for value in result:
            yield from returned_tensors(value)
    elif is_dataclass(result) and not isinstance(result, type):
        for field in fields(result):
            yield from returned_tensors(getattr(result, field.name))


# --- failures ----------------------------------------------------------------------------------------


class PythonFault(Exception):
    """A failure of the candidate; `kind` as in `messages.PythonFailed`."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


def describe_error(error: BaseException, kind: str, files: Path) -> PythonFault:
    """The failure behind an exception, with the line in the candidate's own files; `files` is their folder."""
    if isinstance(error, PythonFault):
        return error
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or lacks_memory(str(error)):
        kind = "memory"
    lines = str(error).strip().splitlines()
    said = " ".join(line.strip() for line in lines[:3] if line.strip())[:_MOST_CHARS]
    name = type(error).__name__
    if name == "CompilationError":  # Triton's: the kernel's lines, a mark under the place, and what is wrong there
        said = "\n".join(lines[-_QUOTED_LINES:])[-2 * _MOST_CHARS :]
    if isinstance(error, torch.OutOfMemoryError):  # the rest is about PyTorch's own allocator
        said = ". ".join(said.split(". ")[:2]).rstrip(".")
    hint = f"; {_NO_EXEC}" if isinstance(error, PermissionError) or "Operation not permitted" in said else ""
    return PythonFault(kind, f"{_place(error, files)}{name}{': ' if said else ''}{said}{hint}")


def _place(error: BaseException, files: Path) -> str:
    """The innermost line of the candidate's own code, e.g. "kernel.py:12: "."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}: "
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).parent == files]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}: " if frames else ""
