"""`Operator`: a kernel in the place of a PyTorch function.

A call that the kernel does not cover goes to the reference, so that the result is right either way; `covers` says why.
Under `torch.compile` (and whatever else looks at operators: export, dispatch modes) the kernel is an operator of
torch's own registry with a fake implementation; otherwise it is called at once, which costs a few microseconds less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor as _is_transformed
from torch.autograd import forward_ad
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from warpsmith.core.errors import UsageError
from warpsmith.core.task import TensorRole
from warpsmith.tasks.program import DTYPES, Program
from warpsmith.use.arguments import Reference, rebuilt
from warpsmith.use.bundle import Bundle
from warpsmith.use.coverage import Coverage, Fault

NAMESPACE = "warpsmith"
_PLANS_KEPT = 4096  # sets of shapes


class Kernel(Protocol):
    """Something that computes a task's outputs from tensors that have been checked."""

    def prepare(self) -> None:
        """Build it ahead of the first call, where its device is there."""

    def plan(self, sizes: dict[str, int], device: torch.device) -> Any:
        """What calls at these sizes have in common; None where it cannot."""

    def run(self, tensors: Sequence[Tensor], plan: Any) -> list[Tensor] | None:
        """The outputs; None where the kernel says that it cannot."""


class Runner:
    """A kernel behind the checks of shapes, with what it prepared for each."""

    def __init__(self, coverage: Coverage, kernel: Kernel) -> None:
        self._coverage = coverage
        self._kernel = kernel
        self._plans: dict[tuple[Any, ...], Any] = {}

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor] | Fault:
        """The outputs, or what is wrong with the shapes."""
        key = tuple([tensor.shape for tensor in tensors])
        plan = self._plans.get(key)
        if plan is None:
            plan = self._planned(key, tensors[0].device)
        if type(plan) is tuple:
            return plan
        return self._kernel.run(tensors, plan) or ("refused", 0)

    def _planned(self, shapes: tuple[Any, ...], device: torch.device) -> Any:
        if len(self._plans) >= _PLANS_KEPT:
            self._plans.clear()
        plan: Any = self._coverage.shape_fault(shapes)
        if plan is None:
            sizes = self._coverage.sizes(shapes)
            plan = ("sizes", 0) if sizes is None else self._kernel.plan(sizes, device) or ("refused", 0)
        self._plans[shapes] = plan
        return plan


class Operator:
    """A callable that takes what the reference takes."""

    def __init__(
        self,
        bundle: Bundle,
        program: Program,
        reference: Reference,
        coverage: Coverage,
        runner: Runner,
        registered: Callable[..., Any],
        *,
        strict: bool,
    ) -> None:
        self.manifest = bundle.manifest
        self.source = bundle.candidate.main.text
        self.reference = reference.function
        self.strict = strict
        self.state = tuple(spec for spec in program.task.inputs if spec.role is TensorRole.STATE)
        self._folder = str(bundle.folder.absolute())
        self._program = program
        self._reference = reference
        self._plain = reference.inputs if reference.plain and not reference.objection else -1
        self._coverage = coverage
        self._runner = runner
        self._registered = registered
        self._single = len(program.task.outputs) == 1

    def __repr__(self) -> str:
        made = self.manifest
        return f"<warpsmith operator {made.task}: candidate {made.candidate}, {made.backend} on {made.device}>"

    def __deepcopy__(self, _memo: dict[int, object]) -> Operator:
        """Itself: a copy of a model calls the same kernel."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle names the bundle, which must be there when it is read."""
        from warpsmith.use.loading import load_again

        return load_again, (self._folder, self.strict, self._coverage.any_shape)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the reference returns for these arguments, by the kernel where it covers them."""
        if self.state:
            raise UsageError(_NEEDS_MODULE.format(task=self.manifest.task))
        return self.call(self.reference, (), args, kwargs)

    def covers(self, *args: Any, **kwargs: Any) -> str | None:
        """Why the kernel would not be used for this call; None where it would.

        A kernel may still refuse sizes when it is called; then the reference is called after all.
        """
        if self.state:
            raise UsageError(_NEEDS_MODULE.format(task=self.manifest.task))
        return self.objection((), args, kwargs)

    @property
    def assumes(self) -> tuple[str, ...]:
        """Inputs whose values the kernel may rely on and nobody checks: indices, and what the task gives a structure.

        A kernel was only tried on values such as its task draws: indices in range, a matrix that is triangular.
        """
        whole = {spec.name for spec in self._program.task.inputs if not DTYPES[spec.dtype].is_floating_point}
        return tuple(sorted(whole | self._program.structured(device=torch.device("cpu"))))

    def replacing(self, module: nn.Module) -> Replacement:
        """A module that calls the kernel with the weights of this one, which is its fallback; for a task with state."""
        return Replacement(self, module)

    def objection(self, state: tuple[Tensor, ...], args: Any, kwargs: Any) -> str | None:
        """Why the kernel would not be used with this state of a module; None where it would."""
        if self._reference.objection:
            return self._reference.objection
        given = self._reference.tensors(args, kwargs)
        if given is None:
            return "the arguments are not those of the task: other in number, in kind, or in a number's value"
        tensors = (*given, *state)
        fault = _odd(tensors) or self._coverage.fault(tensors)
        if fault is None:
            shapes = [tensor.shape for tensor in tensors]
            fault = self._coverage.shape_fault(shapes)
            if fault is None and self._coverage.sizes(shapes) is None:
                fault = "sizes", 0
        return None if fault is None else self._coverage.said(fault, tensors)

    def call(self, fallback: Callable[..., Any], state: tuple[Tensor, ...], args: Any, kwargs: Any) -> Any:
        """The kernel's result with this state of a module, or what the fallback gives."""
        given: tuple[Any, ...] | None
        if not kwargs and len(args) == self._plain:
            given = args  # each is looked at below
        else:
            given = None if self._reference.objection else self._reference.tensors(args, kwargs)
        if given is not None:
            tensors = given + state
            if torch.compiler.is_compiling():
                if self._traceable(tensors):
                    made = self._registered(*tensors)
                    return rebuilt(self._reference.result, (made,) if self._single else made)
            else:
                outputs = self._outputs(tensors)
                if outputs is not None:
                    return rebuilt(self._reference.result, outputs)
        if self.strict:
            raise UsageError(f"{self!r} does not cover this call: {self._why(state, args, kwargs)}.")
        return fallback(*args, **kwargs)

    def _traceable(self, tensors: tuple[Any, ...]) -> bool:
        if forward_ad._current_level >= 0:  # torch.compile looks at it again in every call, and not at tangents
            return False
        for tensor in tensors:
            if not isinstance(tensor, Tensor):
                return False
        if self._coverage.fault(tensors) is not None:
            return False
        return self._coverage.shape_fault([tensor.shape for tensor in tensors]) is None

    def _outputs(self, tensors: tuple[Any, ...]) -> Sequence[Tensor] | None:
        """By the kernel at once, or through the registry where somebody watches; None: not covered."""
        if _odd(tensors) is not None or self._coverage.fault(tensors) is not None:
            return None
        if is_in_torch_dispatch_mode():
            if self._coverage.shape_fault([tensor.shape for tensor in tensors]) is not None:
                return None
            made = self._registered(*tensors)
            return (made,) if self._single else tuple(made)
        outputs = self._runner(tensors)
        return outputs if type(outputs) is list else None

    def _why(self, state: tuple[Tensor, ...], args: Any, kwargs: Any) -> str:
        return self.objection(state, args, kwargs) or "the kernel refused these sizes"


_NEEDS_MODULE = "{task} has weights: use operator.replacing(module) with a module that holds them."


def _odd(tensors: Sequence[Any]) -> Fault | None:
    """Tensors that are more or less than their memory: of a subclass, of vmap's, nested, lazy, with a tangent."""
    for place, tensor in enumerate(tensors):
        kind = type(tensor)
        if (kind is not Tensor and kind is not nn.Parameter) or _is_transformed(tensor):
            return "kind", place
        if tensor.is_nested or tensor._is_zerotensor():
            return "kind", place
        if tensor.is_neg() or tensor.is_conj():
            return "layout", place
    return _tangent(tensors)


def _tangent(tensors: Sequence[Tensor]) -> Fault | None:
    """The first tensor that forward-mode differentiation goes through."""
    if forward_ad._current_level < 0:
        return None
    for place, tensor in enumerate(tensors):
        if forward_ad.unpack_dual(tensor).tangent is not None:
            return "tangent", place
    return None


def register(name: str, program: Program, coverage: Coverage, runner: Runner) -> Callable[..., Any]:
    """The kernel as an operator of torch's registry, `warpsmith::name`, with a fake implementation."""
    task = program.task
    names = tuple(spec.name for spec in task.inputs)
    outputs = task.outputs
    single = len(outputs) == 1

    def compute(*tensors: Tensor) -> Any:
        with torch.no_grad():
            given = [tensor.contiguous() for tensor in tensors]  # a compiler may choose other strides than it was shown
            fault = _tangent(tensors) or coverage.fault(given)
            if fault is not None:
                raise UsageError(f"{NAMESPACE}::{name} does not take this: {coverage.said(fault, given)}.")
            made: Sequence[Tensor] | Fault = runner(given)
            if type(made) is tuple:  # it refused: the graph is compiled, and a result is due
                made = [_own(output, tensors) for output in program.run(dict(zip(names, given, strict=True)))]
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
    registered: Callable[..., Any] = getattr(getattr(torch.ops, NAMESPACE), name).default
    return registered


def _argument(place: int) -> str:
    return f"input{place}"  # a task's own names may be words that a schema reserves


def _own(output: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    """An operator of torch's must not hand back its own arguments."""
    storages = {tensor.untyped_storage().data_ptr() for tensor in tensors}
    return output.clone() if output.untyped_storage().data_ptr() in storages else output


class Replacement(nn.Module):
    """A module whose forward is a kernel's, with the weights of the module that it replaces."""

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
        """By the kernel where it covers the call, else by the original module."""
        if self._mode_objection() is not None:
            if self.operator.strict:
                raise UsageError(f"{self.operator!r} does not cover this call: {self._mode_objection()}.")
            return self.original(*args, **kwargs)
        return self.operator.call(self.original, self._state(), args, kwargs)

    def covers(self, *args: Any, **kwargs: Any) -> str | None:
        """Why the kernel would not be used for this call; None where it would."""
        return self._mode_objection() or self.operator.objection(self._state(), args, kwargs)

    def _state(self) -> tuple[Tensor, ...]:
        return tuple([getattr(place[0], place[1]) for place in self._places if place is not None])

    def _mode_objection(self) -> str | None:
        for part, training in self._modes:
            if part.training is not training:
                return "a part of the module (dropout, batch normalisation) is in another mode than in the task"
        return None


def _place(module: nn.Module, path: str) -> tuple[Any, str] | None:
    """Whose attribute a tensor of a module is."""
    *parents, name = path.split(".")
    owner: Any = module
    for parent in parents:
        owner = getattr(owner, parent, None)
    return (owner, name) if isinstance(getattr(owner, name, None), Tensor) else None


def _modes(module: nn.Module, task_module: object) -> list[tuple[nn.Module, bool | None]]:
    """The parts that compute something else in training, with the mode in which they compute what the kernel does."""
    theirs = dict(task_module.named_modules()) if isinstance(task_module, nn.Module) else {}
    found: list[tuple[nn.Module, bool | None]] = []
    for name, part in module.named_modules():
        drops = isinstance(part, _DropoutNd) and part.p > 0
        drops |= isinstance(part, nn.RNNBase | nn.MultiheadAttention) and part.dropout > 0
        if drops:
            found.append((part, False))
        elif isinstance(part, _NormBase) and part.track_running_stats:
            # In training it updates its statistics, which a kernel does not: then no mode will do.
            same = name in theirs and not theirs[name].training
            found.append((part, False if same else None))
    return found
