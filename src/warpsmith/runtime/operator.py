"""`Operator`: a kernel that replaces a PyTorch function.

A call that the kernel does not cover goes to the reference, so the result is right either way; `covers` says why, and
`stats` counts such calls. Gradients are those of the reference (`runtime.gradients`).
Under `torch.compile`, `torch.export` and dispatch modes the kernel is an operator in torch's registry with a fake
implementation. Otherwise it is called directly, which saves a few microseconds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor as _is_transformed
from torch.autograd import forward_ad
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from warpsmith.model.errors import UsageError
from warpsmith.model.task import TensorRole
from warpsmith.runtime.arguments import ReferenceCall, rebuild_result
from warpsmith.runtime.bundle import Bundle
from warpsmith.runtime.coverage import KernelCoverage, Mismatch, NoCoverage
from warpsmith.runtime.gradients import ReferenceGradient, with_gradient
from warpsmith.tasks.program import DTYPES, Program

NAMESPACE = "warpsmith"
_PLANS_KEPT = 4096  # sets of shapes


class LoadedKernel(Protocol):
    """Computes a task's outputs from tensors that have been checked."""

    def prepare(self) -> None:
        """Build before the first call, if the device is present."""

    def plan(self, sizes: dict[str, int], device: torch.device) -> Any:
        """What calls with these sizes share; None if the kernel cannot run them."""

    def run(self, tensors: Sequence[Tensor], plan: Any) -> list[Tensor] | None:
        """The outputs; None if the kernel returns an error."""


@dataclass(frozen=True)
class CallStats:
    """How often a kernel was called, and how often the reference was called in its place."""

    kernel_calls: int
    fallbacks: int
    reasons: dict[str, int]  # fallbacks by reason; sizes in a reason are those of the first such call


class CheckedKernel:
    """A kernel that checks shapes first, keeps a plan for each set of shapes, and counts calls."""

    def __init__(self, coverage: KernelCoverage, kernel: LoadedKernel) -> None:
        self.calls = 0
        self.fallbacks: dict[Mismatch, tuple[str, int]] = {}  # the first reason in words, and how often
        self._coverage = coverage
        self._kernel = kernel
        self._plans: dict[tuple[Any, ...], Any] = {}

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor] | Mismatch:
        """The outputs, or why the shapes are not covered."""
        key = tuple([tensor.shape for tensor in tensors])
        plan = self._plans.get(key)
        if plan is None:
            plan = self._planned(key, tensors[0].device)
        if type(plan) is tuple:
            return plan
        outputs = self._kernel.run(tensors, plan)
        if outputs is None:
            return "refused", 0
        self.calls += 1
        return outputs

    def fell_back(self, mismatch: Mismatch, describe: Callable[[], str]) -> str:
        """Count a call that went to the reference; returns the reason."""
        reason, count = self.fallbacks.get(mismatch) or (describe(), 0)
        self.fallbacks[mismatch] = reason, count + 1
        return reason

    def _planned(self, shapes: tuple[Any, ...], device: torch.device) -> Any:
        if len(self._plans) >= _PLANS_KEPT:
            self._plans.clear()
        plan: Any = self._coverage.shape_mismatch(shapes)
        if plan is None:
            sizes = self._coverage.sizes(shapes)
            plan = ("sizes", 0) if sizes is None else self._kernel.plan(sizes, device) or ("refused", 0)
        self._plans[shapes] = plan
        return plan


class Operator:
    """A callable with the arguments of the reference."""

    def __init__(
        self,
        bundle: Bundle,
        program: Program,
        reference: ReferenceCall,
        coverage: KernelCoverage,
        runner: CheckedKernel,
        registered: Callable[..., Any],
        *,
        strict: bool,
        path: str = "",
    ) -> None:
        self.manifest = bundle.manifest
        self.source = bundle.candidate.main.text
        self.reference = reference.function
        self.strict = strict
        self.state = tuple(spec for spec in program.task.inputs if spec.role is TensorRole.STATE)
        self._path = path or str(bundle.folder.absolute())
        self._program = program
        self._reference = reference
        self._plain = reference.inputs if reference.plain and not reference.unsupported else -1
        self._coverage = coverage
        self._runner = runner
        self._registered = registered
        self._single = len(program.task.outputs) == 1
        self._gradient = ReferenceGradient(program)
        self._warned = isinstance(coverage, NoCoverage)  # `load` has said that there is no kernel

    def __repr__(self) -> str:
        made = self.manifest
        return f"<warpsmith operator {made.task}: candidate {made.candidate}, {made.backend} on {made.device}>"

    def __deepcopy__(self, _memo: dict[int, object]) -> Operator:
        """The operator itself: a copy of a model calls the same kernel."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle holds what `load` was given; a bundle must still be in its folder when the pickle is read."""
        from warpsmith.runtime.load import load_pickled

        return load_pickled, (self._path, self.strict, self._coverage.any_shape)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the reference for these arguments, computed by the kernel if it covers the call."""
        if self.state:
            raise UsageError(_NEEDS_MODULE.format(task=self.manifest.task))
        return self.call(self.reference, (), args, kwargs)

    def covers(self, *args: Any, **kwargs: Any) -> str | None:
        """Why the kernel is not used for this call; None if it is used.

        The kernel may still return an error for these sizes when it is called; then the reference is called.
        """
        if self.state:
            raise UsageError(_NEEDS_MODULE.format(task=self.manifest.task))
        return self.why_not_covered((), args, kwargs)

    def stats(self) -> CallStats:
        """How often the kernel was called in this process, and the reference in its place.

        Operators that were loaded from the same kernel count together. A call that `torch.compile` compiled into the
        reference is not counted.
        """
        reasons: dict[str, int] = {}
        for reason, count in list(self._runner.fallbacks.values()):
            reasons[reason] = reasons.get(reason, 0) + count
        return CallStats(self._runner.calls, sum(reasons.values()), reasons)

    @property
    def assumes(self) -> tuple[str, ...]:
        """Inputs whose values are not checked although the kernel may rely on them: indices, and structured tensors.

        The kernel was only tested with values such as its task draws: indices in range, a triangular matrix.
        """
        whole = {spec.name for spec in self._program.task.inputs if not DTYPES[spec.dtype].is_floating_point}
        return tuple(sorted(whole | self._program.structured(device=torch.device("cpu"))))

    def replacing(self, module: nn.Module) -> KernelModule:
        """A module that calls the kernel with the weights of `module` and falls back to it; for a task with state."""
        return KernelModule(self, module)

    def why_not_covered(self, state: tuple[Tensor, ...], args: Any, kwargs: Any) -> str | None:
        """Why the kernel is not used for a call with this state of a module; None if it is used."""
        if self._reference.unsupported:
            return self._reference.unsupported
        given = self._reference.tensors(args, kwargs)
        if given is None:
            return "the arguments differ from the task's in number, in type, or in the value of a number"
        tensors = (*given, *state)
        mismatch = _special_tensor(tensors) or self._coverage.mismatch(tensors)
        if mismatch is None:
            shapes = [tensor.shape for tensor in tensors]
            mismatch = self._coverage.shape_mismatch(shapes)
            if mismatch is None and self._coverage.sizes(shapes) is None:
                mismatch = "sizes", 0
        return None if mismatch is None else self._coverage.describe(mismatch, tensors)

    def call(self, fallback: Callable[..., Any], state: tuple[Tensor, ...], args: Any, kwargs: Any) -> Any:
        """The result of the kernel with this state of a module, or that of the fallback."""
        given: tuple[Any, ...] | None
        mismatch: Mismatch = "arguments", 0
        if not kwargs and len(args) == self._plain:
            given = args  # each is checked below
        else:
            given = None if self._reference.unsupported else self._reference.tensors(args, kwargs)
        if given is not None:
            tensors = given + state
            if torch.compiler.is_compiling():
                if self._traceable(tensors):
                    made = self._registered(*tensors)
                    return rebuild_result(self._reference.result, (made,) if self._single else made)
            else:
                outputs = self._outputs(tensors)
                if isinstance(outputs, list):
                    return rebuild_result(self._reference.result, outputs)
                mismatch = outputs
        if self.strict:
            raise UsageError(f"{self!r} does not cover this call: {self._why(state, args, kwargs)}.")
        if not torch.compiler.is_compiling():
            self.fell_back(mismatch, lambda: self._why(state, args, kwargs))
        return fallback(*args, **kwargs)

    def fell_back(self, mismatch: Mismatch, describe: Callable[[], str]) -> None:
        """Count a call that goes to the reference; the first one is a warning."""
        reason = self._runner.fell_back(mismatch, describe)
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{self!r} calls the reference, not the kernel: {reason}. Later calls are only counted: see stats().",
                stacklevel=4,
            )

    def _traceable(self, tensors: tuple[Any, ...]) -> bool:
        if forward_ad._current_level >= 0:  # torch.compile guards on the level, not on tangents
            return False
        for tensor in tensors:
            if not isinstance(tensor, Tensor):
                return False
        if self._coverage.mismatch(tensors) is not None:
            return False
        return self._coverage.shape_mismatch([tensor.shape for tensor in tensors]) is None

    def _outputs(self, tensors: tuple[Any, ...]) -> list[Tensor] | Mismatch:
        """The outputs of a direct call, or through the registry in a dispatch mode; else why it is not covered."""
        mismatch = _special_tensor(tensors) or self._coverage.mismatch(tensors)
        if mismatch is not None:
            return mismatch
        if is_in_torch_dispatch_mode():
            mismatch = self._coverage.shape_mismatch([tensor.shape for tensor in tensors])
            if mismatch is not None:
                return mismatch
            made = self._registered(*tensors)
            return [made] if self._single else list(made)
        if torch.is_grad_enabled():
            for tensor in tensors:
                if tensor.requires_grad:
                    with torch.no_grad():
                        outputs = self._runner(tensors)
                    return with_gradient(self._gradient, outputs, tensors) if type(outputs) is list else outputs
        return self._runner(tensors)

    def _why(self, state: tuple[Tensor, ...], args: Any, kwargs: Any) -> str:
        return self.why_not_covered(state, args, kwargs) or "the kernel refused these sizes"


_NEEDS_MODULE = "{task} has weights: use operator.replacing(module) with a module that holds them."


def _special_tensor(tensors: Sequence[Any]) -> Mismatch | None:
    """The first tensor that is no plain memory: a subclass, inside vmap, nested, lazy, or with a tangent."""
    for place, tensor in enumerate(tensors):
        kind = type(tensor)
        if (kind is not Tensor and kind is not nn.Parameter) or _is_transformed(tensor):
            return "kind", place
        if tensor.is_nested or tensor._is_zerotensor():
            return "kind", place
        if tensor.is_neg() or tensor.is_conj():
            return "layout", place
    return _tangent(tensors)


def _tangent(tensors: Sequence[Tensor]) -> Mismatch | None:
    """The first tensor with a tangent of forward-mode differentiation."""
    if forward_ad._current_level < 0:
        return None
    for place, tensor in enumerate(tensors):
        if forward_ad.unpack_dual(tensor).tangent is not None:
            return "tangent", place
    return None


def register(name: str, program: Program, coverage: KernelCoverage, runner: CheckedKernel) -> Callable[..., Any]:
    """Register the kernel with torch as `warpsmith::name`, with a fake implementation."""
    task = program.task
    names = tuple(spec.name for spec in task.inputs)
    outputs = task.outputs
    single = len(outputs) == 1

    def compute(*tensors: Tensor) -> Any:
        with torch.no_grad():
            given = [tensor.contiguous() for tensor in tensors]  # a compiler may choose strides that it was not shown
            mismatch = _tangent(tensors) or coverage.mismatch(given)
            if mismatch is not None:
                raise UsageError(f"{NAMESPACE}::{name} does not take this: {coverage.describe(mismatch, given)}.")
            made: Sequence[Tensor] | Mismatch = runner(given)
            if type(made) is tuple:  # not covered, but a compiled graph needs a result
                code = made
                runner.fell_back(code, lambda: coverage.describe(code, given))
                made = [_not_an_input(output, tensors) for output in program.run(dict(zip(names, given, strict=True)))]
        return made[0] if single else tuple(made)

    def pretend(*tensors: Tensor) -> Any:
        device = tensors[0].device
        if coverage.derives:
            shapes = [tuple(output.shape) for output in program.run(dict(zip(names, tensors, strict=True)))]
        else:
            sizes = coverage.bound([tensor.shape for tensor in tensors])
            shapes = [spec.shape(sizes) for spec in outputs]
        made = [
            torch.empty(shape, dtype=DTYPES[spec.dtype], device=device)
            for spec, shape in zip(outputs, shapes, strict=True)
        ]
        return made[0] if single else tuple(made)

    returned = "Tensor" if single else f"({', '.join('Tensor' for _ in outputs)})"
    schema = f"({', '.join(f'Tensor {_argument(place)}' for place in range(len(names)))}) -> {returned}"
    made = torch.library.custom_op(f"{NAMESPACE}::{name}", compute, mutates_args=(), schema=schema)
    made.register_fake(pretend)
    ReferenceGradient(program).register(made)
    registered: Callable[..., Any] = getattr(getattr(torch.ops, NAMESPACE), name).default
    return registered


def _argument(place: int) -> str:
    return f"input{place}"  # names of the task may be reserved in a schema


def _not_an_input(output: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    """The output, copied if it is an argument: an operator of torch must not return its own arguments."""
    storages = {tensor.untyped_storage().data_ptr() for tensor in tensors}
    return output.clone() if output.untyped_storage().data_ptr() in storages else output


class KernelModule(nn.Module):
    """A module that calls a kernel with the weights of the module that it replaces."""

    def __init__(self, operator: Operator, original: nn.Module) -> None:
        super().__init__()
        self.original = original
        self.operator = operator
        self.training = original.training
        self._places = [_place(original, spec.origin or spec.name) for spec in operator.state]
        self._modes = list(_modes(original, operator.reference))
        wrong = [spec for spec, place in zip(operator.state, self._places, strict=True) if place is None]
        if wrong:
            missing = ", ".join(spec.origin or spec.name for spec in wrong[:6])
            raise UsageError(
                f"this module has no tensor {missing}; {operator.manifest.task} needs a module like its task's."
            )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The kernel's result if it covers the call, else that of the original module."""
        mismatch = self._mode_mismatch()
        if mismatch is not None:
            if self.operator.strict:
                raise UsageError(f"{self.operator!r} does not cover this call: {mismatch}.")
            if not torch.compiler.is_compiling():
                self.operator.fell_back(("mode", 0), lambda: mismatch)
            return self.original(*args, **kwargs)
        return self.operator.call(self.original, self._state(), args, kwargs)

    def covers(self, *args: Any, **kwargs: Any) -> str | None:
        """Why the kernel is not used for this call; None if it is used."""
        return self._mode_mismatch() or self.operator.why_not_covered(self._state(), args, kwargs)

    def _state(self) -> tuple[Tensor, ...]:
        return tuple([getattr(place[0], place[1]) for place in self._places if place is not None])

    def _mode_mismatch(self) -> str | None:
        for part, training in self._modes:
            if part.training is not training:
                return "a part of the module (dropout, batch normalisation) is not in the task's mode, training or eval"
        return None


def _place(module: nn.Module, path: str) -> tuple[Any, str] | None:
    """The submodule and the name of a tensor of a module; None if there is no such tensor."""
    *parents, name = path.split(".")
    owner: Any = module
    for parent in parents:
        owner = getattr(owner, parent, None)
    return (owner, name) if isinstance(getattr(owner, name, None), Tensor) else None


def _modes(module: nn.Module, task_module: object) -> list[tuple[nn.Module, bool | None]]:
    """The submodules that behave differently in training, with the mode in which they compute what the kernel does."""
    theirs = dict(task_module.named_modules()) if isinstance(task_module, nn.Module) else {}
    found: list[tuple[nn.Module, bool | None]] = []
    for name, part in module.named_modules():
        drops = isinstance(part, _DropoutNd) and part.p > 0
        drops |= isinstance(part, nn.RNNBase | nn.MultiheadAttention) and part.dropout > 0
        if drops:
            found.append((part, False))
        elif isinstance(part, _NormBase) and part.track_running_stats:
            # In training it updates its statistics, which a kernel does not: then no mode is right.
            same = name in theirs and not theirs[name].training
            found.append((part, False if same else None))
    return found
