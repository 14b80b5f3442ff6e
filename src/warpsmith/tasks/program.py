"""The protocol of a loaded task, and what native and KernelBench tasks share: tracing, binding, seeds, names, notes.

A `Program` draws inputs, runs the reference and lists the input distributions that make sense. The reference computes
at the element type of its inputs. Only the judge loads programs.
"""

from __future__ import annotations

import contextlib
import hashlib
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from warpsmith.model.errors import TaskError
from warpsmith.model.task import DTYPE_BYTES, ScalarKind, Task, TensorSpec, Workload
from warpsmith.tasks.declare import as_identifier
from warpsmith.tasks.intercept import RandomDraws, RandomOperatorDetector, ReferenceBehaviour, TorchInterceptor

DTYPES: Mapping[str, torch.dtype] = {name: getattr(torch, name) for name in DTYPE_BYTES if hasattr(torch, name)}
REAL_RUN_LIMIT_BYTES = 64 << 20  # a reference that cannot be traced without data is run with data up to this size

BoundReference = Callable[[], tuple[Tensor, ...]]
Wrapper = Callable[[Callable[..., object]], Callable[..., object]]
Arguments = Callable[[Mapping[str, Tensor]], tuple[list[object], dict[str, object]]]


@dataclass(frozen=True)
class FakeInputs:
    """Tensors without data for one workload: `with fake.mode: program.run(fake.tensors)` costs no memory.

    They are meta tensors with a `mode` that makes common operators fast. For a reference that cannot be traced with
    meta tensors they are fake tensors or, for a small task, real ones. A FLOP counter may be inside or outside `mode`.
    """

    mode: contextlib.AbstractContextManager[Any]
    tensors: dict[str, Tensor]


class Program(Protocol):
    """A task with its reference and its inputs."""

    @property
    def task(self) -> Task:
        """The task, as plain data."""

    def inputs(self, workload: Workload, *, variant: str = "own", seed: int, device: torch.device) -> dict[str, Tensor]:
        """Every tensor of `task.inputs`, contiguous, of its exact shape and type; equal seeds give equal values."""

    def arguments(
        self, workload: Workload, *, variant: str = "own", seed: int, device: torch.device
    ) -> dict[str, Tensor]:
        """The inputs that are drawn again for timed calls: the operator's arguments, without a module's state.
        Their values are shifted and scaled a little at random, and inputs that are constant in the task's own
        distribution are drawn at random: no result can be predicted from the distribution. Another variant than "own"
        is drawn in the same way, so that the time that it takes says nothing about a call."""

    def redrawn_state(self, *, seed: int, device: torch.device) -> dict[str, Tensor]:
        """Random values for the state tensors that a new module fills with one value, e.g. the bias of a norm."""

    def written_state(self) -> frozenset[str]:
        """State tensors that the reference writes to, e.g. the running mean of a norm."""

    def structured(self, *, device: torch.device | None = None) -> frozenset[str]:
        """Floating inputs with constrained values (triangular, probabilities, masks), which a kernel may exploit."""

    def fake_inputs(self, workload: Workload) -> FakeInputs:
        """Tensors without data for a workload, for counting operations."""

    def run(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """The outputs of the reference at the element types of the inputs: contiguous, in `task.outputs` order.

        Does not modify the inputs; no gradients. Can be captured in a CUDA graph if the task's code can.
        """

    def bind(self, inputs: Mapping[str, Tensor], wrap: Wrapper | None = None) -> BoundReference:
        """`run` for these tensors, prepared once, so that a call runs the reference only.

        Values are read at each call (except RNN weights on CUDA, which are copied here because cuDNN needs them in one
        block). `wrap` is applied to the reference before it is bound, e.g. `torch.compile`.
        """

    def widen(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The inputs of the fp64 reference: floating tensors as float64, complex ones as complex128."""

    def variants(self, *, device: torch.device | None = None, held_out: bool = False) -> tuple[str, ...]:
        """The input distributions that make sense for this task, "own" first; drawing a sample needs a device.

        With `held_out`, those that only verification uses.
        """

    def workload(self, name: str, sizes: Mapping[str, int]) -> Workload:
        """A workload with other axis values (derived axes are filled in), for smaller or held-out shapes."""

    def release(self) -> None:
        """Free every tensor kept for the next call."""


@dataclass(frozen=True)
class ReferenceTraits:
    """Properties of a reference, known from its traced run, that decide how it is run."""

    draws: tuple[str, ...] = ()  # inputs in place of random numbers that the reference draws, in order
    device: bool = False  # as in ReferenceBehaviour, like the next four
    cuda: bool = False
    dtype: bool = False
    dropout: bool = False
    recurrent: bool = False
    copied: frozenset[str] = frozenset()  # inputs that it writes to: it gets copies of them


def traits_of(habits: ReferenceBehaviour, draws: tuple[str, ...], written: Iterable[str]) -> ReferenceTraits:
    """The traits of a reference after a traced run."""
    return ReferenceTraits(
        draws=draws,
        device=habits.device,
        cuda=habits.cuda,
        dtype=habits.dtype,
        dropout=habits.dropout,
        recurrent=habits.recurrent,
        copied=frozenset(written),
    )


@dataclass(frozen=True)
class Trace:
    """One traced run of a reference."""

    outputs: tuple[tuple[str, Tensor], ...]  # each with its path inside the result, "" for the result itself
    draws: tuple[Tensor, ...]
    written: frozenset[str]  # names of tensors that changed
    habits: ReferenceBehaviour
    extras: bool  # whether the result also has values that are no tensors


def trace_reference(
    call: Callable[[], object],
    tensors: Mapping[str, Tensor],
    device: torch.device,
    dtype: torch.dtype | None = None,
) -> Trace:
    """Run the reference once on these tensors and record its behaviour; `dtype` is that of floating draws."""
    before = {name: tensor._version for name, tensor in tensors.items()}
    habits, draws = ReferenceBehaviour(), RandomDraws(dtype=dtype)
    dataless = any(type(tensor) is not Tensor for tensor in tensors.values())
    intercept = TorchInterceptor(device, draws=draws, habits=habits, dataless=dataless)
    with torch.no_grad(), RandomOperatorDetector(intercept, habits), intercept:
        result = call()
    if habits.random:
        names = ", ".join(sorted(habits.random))
        raise TaskError(f"the reference is random ({names}) in a way that cannot be passed in; make it an input.")
    outputs = tuple(result_tensors(result))
    for path, output in outputs:
        if output.layout != torch.strided:
            raise TaskError(f"output {path or 'of the reference'} is not dense ({output.layout}); return a dense one.")
    unseen = {id(tensor) for tensor in habits.statistics}
    written = {n for n, t in tensors.items() if t._version != before[n] or id(t) in unseen}
    return Trace(outputs, tuple(draws.taken), frozenset(written), habits, _has_extras(result))


def bind_reference(
    function: Callable[..., object], arguments: Arguments, inputs: Mapping[str, Tensor], how: ReferenceOptions
) -> BoundReference:
    """A function without parameters that runs the reference on these inputs, intercepting only what its traits need."""
    traits, device = how.traits, how.device
    misplaced = (traits.device and device.type != "cpu") or (traits.cuda and device.type != "cuda")
    dataless = any(type(tensor) is not Tensor or tensor.is_meta for tensor in inputs.values())
    bent = traits.draws or traits.dropout or misplaced or (how.wide and traits.dtype) or (dataless and traits.recurrent)
    if not (bent or traits.copied or how.restore):
        args, kwargs = arguments(inputs)

        def call() -> tuple[Tensor, ...]:
            with torch.no_grad():
                return dense_outputs(function(*args, **kwargs))

        return call

    def bent_call() -> tuple[Tensor, ...]:
        with torch.no_grad():
            if how.restore is not None:
                how.restore()
            given = {n: t.clone() if n in traits.copied else t for n, t in inputs.items()}
            args, kwargs = arguments(given)
            if not bent:
                return dense_outputs(function(*args, **kwargs))
            draws = RandomDraws([given[name] for name in traits.draws]) if traits.draws else None
            with TorchInterceptor(device, wide=how.wide, draws=draws, dataless=dataless):
                return dense_outputs(function(*args, **kwargs))

    return bent_call


@dataclass(frozen=True)
class ReferenceOptions:
    """The options of a run of a reference."""

    traits: ReferenceTraits
    device: torch.device
    wide: bool  # run the fp64 reference: the inputs are wider than the task's element types
    restore: Callable[[], None] | None = None  # undoes the changes of the last call


def dense_outputs(result: object) -> tuple[Tensor, ...]:
    """The tensors of a result, contiguous."""
    if type(result) is Tensor:  # the most frequent case, first because of timing loops
        return (result.resolve_conj().resolve_neg().contiguous(),)
    return tuple(tensor.resolve_conj().resolve_neg().contiguous() for _, tensor in result_tensors(result))


def result_tensors(result: object, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor in a nested result, with its path: "logits", "0", "cache_1"; other values are left out."""
    if isinstance(result, Tensor):
        yield path, result
        return
    for key, value in _items(result):
        yield from result_tensors(value, f"{path}_{key}" if path else key)


def _items(result: object) -> Iterator[tuple[str, object]]:
    if isinstance(result, Mapping):
        yield from ((str(key), value) for key, value in result.items())
    elif isinstance(result, tuple) and hasattr(result, "_fields"):
        yield from zip(result._fields, result, strict=True)
    elif isinstance(result, list | tuple):
        yield from ((str(index), value) for index, value in enumerate(result))
    elif is_dataclass(result) and not isinstance(result, type):
        yield from ((f.name, getattr(result, f.name)) for f in fields(result))


def _has_extras(result: object) -> bool:
    if result is None or isinstance(result, Tensor):
        return False
    items = list(_items(result))
    return any(_has_extras(value) for _, value in items) if items else not isinstance(result, list | tuple | Mapping)


def widen(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Floating tensors as float64, complex ones as complex128, others untouched."""
    return {name: widened(tensor) for name, tensor in inputs.items()}


def widened(tensor: Tensor) -> Tensor:
    """One tensor for the fp64 reference."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.to(torch.float64) if tensor.is_floating_point() else tensor


def is_wide(task: Task, inputs: Mapping[str, Tensor]) -> bool:
    """Whether these inputs are wider than the task's own element types."""
    return any(
        inputs[spec.name].dtype in (torch.float64, torch.complex128) and dtype_name(inputs[spec.name]) != spec.dtype
        for spec in task.inputs
    )


def device_of(inputs: Mapping[str, Tensor]) -> torch.device:
    """The device of the inputs; the CPU for a task without inputs."""
    return next((tensor.device for tensor in inputs.values()), torch.device("cpu"))


def dtype_name(tensor: Tensor) -> str:
    """The name of the element type in torch, as in a TensorSpec."""
    return str(tensor.dtype).removeprefix("torch.")


def check_fits(spec: TensorSpec, tensor: Tensor, workload: Workload) -> Tensor:
    """The tensor, contiguous; raises a TaskError if its shape or type differs from the task's."""
    shape = spec.shape(workload.sizes)
    if tuple(tensor.shape) != shape or dtype_name(tensor) != spec.dtype:
        raise TaskError(
            f"input {spec.name!r} came out as {dtype_name(tensor)} {list(tensor.shape)}, where the task says "
            f"{spec.dtype} {list(shape)}; its shape and type must not depend on the seed."
        )
    return tensor.detach().contiguous()


def stream_seed(seed: int, stream: str) -> int:
    """A seed for one of several independent streams of random numbers."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{stream}".encode()).digest()[:8], "little") >> 1


@contextlib.contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Set the global random state for code that uses it, and restore it afterwards."""
    python_state = random.getstate()
    numpy = sys.modules.get("numpy")
    numpy_state = numpy.random.get_state() if numpy is not None else None
    devices = [device.index if device.index is not None else torch.cuda.current_device()] if _cuda(device) else []
    try:
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            random.seed(seed)
            if numpy is not None:
                numpy.random.seed(seed % (1 << 32))
            yield
    finally:
        random.setstate(python_state)
        if numpy is not None:
            numpy.random.set_state(numpy_state)


def total_bytes(tensors: Sequence[Tensor]) -> int:
    """The bytes of all tensors together."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _cuda(device: torch.device) -> bool:
    return device.type == "cuda"


def scalar_kind(value: bool | int | float) -> ScalarKind:
    """The C type of a Python number."""
    if isinstance(value, bool):
        return ScalarKind.BOOL
    return ScalarKind.INT if isinstance(value, int) else ScalarKind.FLOAT


def output_names(paths: Sequence[str], taken: set[str]) -> tuple[str, ...]:
    """Names for outputs: `out`, or `out0`, `out1`, or the keys under which they are returned."""
    used, names = set(taken), list[str]()
    for index, path in enumerate(paths):
        plain = path[:1].isalpha()
        name = as_identifier(path if plain else "out" if len(paths) == 1 else f"out{index}", used)
        used.add(name)
        names.append(name)
    return tuple(names)


def draw_names(count: int, taken: set[str]) -> tuple[str, ...]:
    """Names for the inputs that replace random numbers of a reference."""
    names: list[str] = []
    for index in range(count):
        names.append(as_identifier(f"drawn{index}", taken | set(names)))
    return tuple(names)


def trace_notes(dropout: bool, draws: tuple[str, ...], written: list[str], extras: bool) -> tuple[str, ...]:
    """One sentence for each change that the loader made to a reference."""
    notes: list[str] = []
    if draws:
        notes.append(f"Random numbers drawn inside the reference are passed in as {', '.join(draws)}.")
    if dropout:
        notes.append("Dropout is switched off, because a random result cannot be checked.")
    if written:
        names = ", ".join(written)
        notes.append(
            f"The reference writes to {names}; it works on a copy, a kernel must not write there, and `load` keeps to "
            "the reference."
        )
    if extras:
        notes.append("The reference also returns something that is no tensor; it is not checked.")
    return tuple(notes)
