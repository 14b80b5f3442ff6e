"""Loads native tasks: a declared PyTorch function becomes a `Program`.

Inputs are drawn from their declarations (`tasks.declare`). The function is traced in every workload, which gives the
extents of its outputs, and on two sets of primes, which tells an axis from a number that happens to equal it. An extent
that is neither an axis nor a constant (a sum, a product, a quotient) becomes a derived axis, whose value each workload
gets from its own trace.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from warpsmith.model.errors import TaskError, UsageError
from warpsmith.model.task import Dim, Precision, ScalarSpec, Task, TaskKind, TensorRole, TensorSpec, Workload
from warpsmith.tasks import declare
from warpsmith.tasks import variants as distributions
from warpsmith.tasks.declare import as_identifier
from warpsmith.tasks.fake_tensors import TraceMode, check_same_shapes, check_size, try_trace_modes
from warpsmith.tasks.program import (
    DTYPES,
    Arguments,
    BoundReference,
    FakeInputs,
    ReferenceOptions,
    ReferenceTraits,
    Trace,
    Wrapper,
    bind_reference,
    check_fits,
    device_of,
    draw_names,
    dtype_name,
    is_wide,
    output_names,
    scalar_kind,
    seeded,
    stream_seed,
    trace_notes,
    trace_reference,
    traits_of,
    widen,
)
from warpsmith.tasks.user_code import Attempt

# Distinct, larger than usual window sizes, and such that no sum or product of two is a third.
_PRIMES = (
    (211, 223, 227, 229, 233, 239, 241, 251, 257, 263, 269, 271, 277, 281, 283, 293),
    (307, 401, 509, 311, 419, 521, 313, 421, 523, 317, 431, 541, 331, 433, 547, 337),
)

Shapes = tuple[tuple[int, ...], ...]
"""The shape of every output."""


@dataclass(frozen=True)
class OutputDims:
    """The dims of each output, and the axes that had to be added for them."""

    dims: tuple[tuple[Dim, ...], ...]
    derived: tuple[tuple[str, int, int], ...]  # name, and the output and dimension whose extent it is

    def derived_sizes(self, shapes: Shapes) -> tuple[tuple[str, int], ...]:
        """The derived axes of a workload whose outputs have these shapes."""
        return tuple((name, shapes[output][position]) for name, output, position in self.derived)


def prime_sizes(axes: Sequence[str]) -> tuple[dict[str, int], ...]:
    """Two sets of axis values by which axes can be told apart; none for a task with very many axes."""
    if len(axes) > len(_PRIMES[0]):
        return ()
    return tuple(dict(zip(axes, primes, strict=False)) for primes in _PRIMES)


def output_dims(
    names: Sequence[str],
    runs: Sequence[tuple[Mapping[str, int], Shapes]],
    probes: Sequence[tuple[Mapping[str, int], Shapes]],
    taken: Iterable[str],
) -> OutputDims:
    """Express every extent of every output; `runs` are the workloads, `probes` the traces on primes, if they worked."""
    ranks = [tuple(len(shape) for shape in shapes) for _, shapes in runs]
    if any(rank != ranks[0] for rank in ranks):
        raise TaskError("the number of outputs or of their dimensions differs between workloads.")
    if any(tuple(len(s) for s in shapes) != ranks[0] for _, shapes in probes):
        probes = ()
    used, dims = set(taken), list[tuple[Dim, ...]]()
    derived: list[tuple[str, int, int]] = []
    known: dict[tuple[int, ...], str] = {}  # equal extents everywhere share one derived axis
    for output, rank in enumerate(ranks[0]):
        found: list[Dim] = []
        for position in range(rank):
            dim = _dim(output, position, runs, probes)
            if dim is None:
                extents = tuple(shapes[output][position] for _, shapes in (*runs, *probes))
                if extents not in known:
                    known[extents] = as_identifier(f"{names[output]}_dim{position}", used)
                    used.add(known[extents])
                    derived.append((known[extents], output, position))
                dim = known[extents]
            found.append(dim)
        dims.append(tuple(found))
    return OutputDims(tuple(dims), tuple(derived))


def _dim(
    output: int,
    position: int,
    runs: Sequence[tuple[Mapping[str, int], Shapes]],
    probes: Sequence[tuple[Mapping[str, int], Shapes]],
) -> Dim | None:
    """The axis or the constant that one extent is in every run and probe; None when it is neither."""
    everywhere = (*runs, *probes)

    def holds(expected: Callable[[Mapping[str, int]], int]) -> bool:
        return all(shapes[output][position] == expected(sizes) for sizes, shapes in everywhere)

    for axis in runs[0][0]:
        if holds(lambda sizes, axis=axis: sizes[axis]):  # type: ignore[misc]
            return axis
    constant = runs[0][1][output][position]
    return constant if holds(lambda _: constant) else None


def drawn(
    declared: declare.TensorDeclaration,
    spec: TensorSpec,
    sizes: Mapping[str, int],
    generator: torch.Generator,
    path: Path,
) -> Tensor:
    """One input as declared, before any variant."""
    name, shape, dtype, device = spec.name, spec.shape(sizes), DTYPES[spec.dtype], generator.device
    if not isinstance(declared, declare.Custom):
        return _draw(declared, shape, dtype, sizes, generator)
    with Attempt(path) as attempt:
        tensor = declared.fill(shape, generator, device)
    if isinstance(attempt.error, torch.OutOfMemoryError | MemoryError):
        raise attempt.error  # the judge's business: it goes on with a smaller workload
    attempt.complain(f"the function that fills {name!r}")
    if not isinstance(tensor, Tensor) or tuple(tensor.shape) != shape:
        got = list(tensor.shape) if isinstance(tensor, Tensor) else repr(tensor)
        raise TaskError(f"{path}: {name!r} must be filled with a tensor of shape {list(shape)}, not {got}.")
    if declared.dtype is None and not tensor.is_floating_point():
        kind = dtype_name(tensor)
        raise TaskError(f"{path}: {name!r} is filled with {kind} values; say so with dtype={kind!r}.")
    return tensor.to(device=device, dtype=dtype)


def _draw(
    declared: declare.TensorDeclaration,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    sizes: Mapping[str, int],
    generator: torch.Generator,
) -> Tensor:
    """One tensor from its distribution; narrow types are drawn in float32 and rounded."""
    device = generator.device
    wide = dtype if dtype in (torch.float64, torch.complex64, torch.complex128) else torch.float32
    match declared:
        case declare.Normal(mean=mean, std=std):
            values = torch.randn(shape, generator=generator, device=device, dtype=wide)
            if std != 1 or mean != 0:
                values = values * std + mean
        case declare.Uniform(low=low, high=high):
            values = torch.rand(shape, generator=generator, device=device, dtype=wide)
            if (low, high) != (0.0, 1.0):
                values = (values * (high - low) + low).clamp(low, high)
        case declare.Integers(low=low, high=high):
            first, last = (sizes[bound] if isinstance(bound, str) else bound for bound in (low, high))
            return torch.randint(first, last, shape, generator=generator, device=device).to(dtype)
        case declare.Booleans(p=p):
            return torch.rand(shape, generator=generator, device=device) < p
        case declare.Probabilities():
            values = torch.softmax(torch.randn(shape, generator=generator, device=device, dtype=wide), dim=-1)
        case _:
            raise AssertionError(f"no way to draw {declared!r}")
    return values.to(dtype)


def domain_of(declared: declare.TensorDeclaration, dtype: str) -> distributions.Domain | None:
    """What a variant may do to a declared tensor."""
    if dtype in declare.COMPLEX or dtype.startswith("float8"):
        return None
    match declared:
        case declare.Normal(mean=mean, std=std):
            return distributions.Domain(centre=mean, scale=std, constant=None if std else mean)
        case declare.Booleans(p=p) if p in (0, 1):
            return distributions.Domain(constant=p)
        case declare.Booleans(p=p):
            return distributions.Domain(share=p)
        case declare.Uniform(low=low, high=high):
            return distributions.Domain(low, high, (low + high) / 2, (high - low) / 4)
        case declare.Probabilities():
            return distributions.Domain(low=0.0, high=1.0, simplex=True)
        case _:
            return None


class NativeProgram:
    """A declared function with its inputs; `load` builds one."""

    def __init__(
        self,
        declaration: declare.TaskDeclaration,
        task: Task,
        traits: ReferenceTraits,
        outputs: OutputDims,
        path: Path,
        setting: TraceMode,
    ) -> None:
        self.task = task
        self._declaration = declaration
        self._traits = traits
        self._outputs = outputs
        self._path = path
        self._setting = setting
        self._arguments = _arguments(declaration)
        self._known: dict[str, distributions.Domain | None] | None = None

    def inputs(
        self, workload: Workload, *, variant: str = distributions.OWN, seed: int, device: torch.device
    ) -> dict[str, Tensor]:
        """Every input, drawn from its declaration (or a variant of it) with independent streams per tensor."""
        if variant not in distributions.KNOWN:
            raise UsageError(f"unknown input variant {variant!r}; known: {', '.join(distributions.KNOWN)}.")
        return self._drawn(workload, variant, seed, device, partial(distributions.apply_variant, variant))

    def _drawn(
        self, workload: Workload, stream: str, seed: int, device: torch.device, change: distributions.AnyChange
    ) -> dict[str, Tensor]:
        """Every input, drawn from its declaration and changed."""
        made: dict[str, Tensor] = {}
        specs = {spec.name: spec for spec in self.task.inputs}
        for name, declared in self._declaration.parameters:
            if not isinstance(declared, declare.TensorDeclaration):
                continue
            spec = specs[name]
            generator = torch.Generator(device).manual_seed(stream_seed(seed, f"{name}/{stream}"))
            tensor = drawn(declared, spec, workload.sizes, generator, self._path)
            tensor = change(tensor, self._domains(device)[name], generator)
            made[name] = check_fits(spec, tensor, workload)
        if self._traits.draws:
            made |= self._sampled(made, specs, workload, seed, device)
        return made

    def arguments(
        self, workload: Workload, *, variant: str = distributions.OWN, seed: int, device: torch.device
    ) -> dict[str, Tensor]:
        """All inputs: a function has no state."""
        return self._drawn(workload, "timed", seed, device, distributions.timed_change(variant))

    def redrawn_state(self, *, seed: int, device: torch.device) -> dict[str, Tensor]:
        """Nothing: a function has no state."""
        return {}

    def written_state(self) -> frozenset[str]:
        """None: a function has no state."""
        return frozenset()

    def structured(self, *, device: torch.device | None = None) -> frozenset[str]:
        """What is declared with a structure."""
        return frozenset(name for name, domain in self._domains(device).items() if distributions.is_constrained(domain))

    def fake_inputs(self, workload: Workload) -> FakeInputs:
        """The inputs without data."""
        tensors = {
            spec.name: self._setting.empty(spec.shape(workload.sizes), DTYPES[spec.dtype]) for spec in self.task.inputs
        }
        return FakeInputs(self._setting.mode, tensors)

    def run(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """The function, at the element types it is given."""
        return self.bind(inputs)()

    def bind(self, inputs: Mapping[str, Tensor], wrap: Wrapper | None = None) -> BoundReference:
        """The function with its arguments in place."""
        function = self._declaration.function
        how = ReferenceOptions(self._traits, device_of(inputs), is_wide(self.task, inputs))
        return bind_reference(wrap(function) if wrap else function, self._arguments, inputs, how)

    def widen(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The inputs of the fp64 reference."""
        return widen(inputs)

    def variants(self, *, device: torch.device | None = None, held_out: bool = False) -> tuple[str, ...]:
        """What the declarations allow; a sample shows whether a `custom` tensor is constant."""
        return distributions.variant_names(self._domains(device), held_out)

    def _domains(self, device: torch.device | None) -> dict[str, distributions.Domain | None]:
        if self._known is None:
            specs = {spec.name: spec for spec in self.task.inputs}
            self._known = {
                name: self._custom_domain(declared, specs[name], device or torch.device("cpu"))
                if isinstance(declared, declare.Custom)
                else domain_of(declared, specs[name].dtype)
                for name, declared in self._declaration.parameters
                if isinstance(declared, declare.TensorDeclaration)
            }
        return self._known

    def _custom_domain(
        self, declared: declare.Custom, spec: TensorSpec, device: torch.device
    ) -> distributions.Domain | None:
        """The domain of a tensor that is constant in two draws; None for any other, which has a structure."""
        smallest = min(self.task.workloads, key=lambda workload: spec.nbytes(workload.sizes))
        first, second = (
            distributions.constant_domain(
                drawn(declared, spec, smallest.sizes, torch.Generator(device).manual_seed(seed), self._path)
            )
            for seed in range(2)
        )
        return first if first == second else None

    def workload(self, name: str, sizes: Mapping[str, int]) -> Workload:
        """A workload with other axis values; the function is traced for the derived ones."""
        own = [axis for axis, _ in self._declaration.workloads[0].axes]
        for axis in own:
            if sizes.get(axis, 0) < 1:
                raise UsageError(f"workload {name!r} must give axis {axis!r} a value of at least 1.")
        given = {axis: sizes[axis] for axis in own}
        if not self._outputs.derived:
            return Workload(name, tuple(given.items()))
        specs = self.task.inputs
        traced = try_trace_modes(
            self._path,
            f"function {self.task.name!r}",
            lambda setting: _trace(self._declaration, specs, given, self._path, setting),
        )
        return Workload(name, (*given.items(), *self._outputs.derived_sizes(_shapes(traced))))

    def release(self) -> None:
        """A native program keeps no tensors."""

    def _sampled(
        self,
        drawn: Mapping[str, Tensor],
        specs: Mapping[str, TensorSpec],
        workload: Workload,
        seed: int,
        device: torch.device,
    ) -> dict[str, Tensor]:
        """Random numbers the function draws itself, from one run of it."""
        args, kwargs = self._arguments({n: t.clone() for n, t in drawn.items()})
        with seeded(stream_seed(seed, "draws"), device):
            taken = trace_reference(lambda: self._declaration.function(*args, **kwargs), drawn, device).draws
        return {
            name: check_fits(specs[name], tensor.clone(), workload)
            for name, tensor in zip(self._traits.draws, taken, strict=True)
        }


def load(
    declaration: declare.TaskDeclaration, path: Path, text: str, precision: Precision | None, digest: str
) -> NativeProgram:
    """Trace the declared function and build its program."""
    precision = precision or declaration.precision
    specs = _input_specs(declaration, precision)
    return try_trace_modes(
        path,
        f"function {declaration.name!r}",
        lambda setting: _build(declaration, specs, precision, path, text, digest, setting),
    )


def _build(
    declaration: declare.TaskDeclaration,
    specs: tuple[TensorSpec, ...],
    precision: Precision,
    path: Path,
    text: str,
    digest: str,
    setting: TraceMode,
) -> NativeProgram:
    declared = (*declaration.workloads, *declaration.held_out)
    traces = [_trace(declaration, specs, workload.sizes, path, setting) for workload in declared]
    first = traces[0]
    if setting.name == "real":
        again = _trace(declaration, specs, declaration.workloads[0].sizes, path, setting, seed=1)
        check_same_shapes([t for _, t in first.outputs], [t for _, t in again.outputs])
    runs = [(w.sizes, _shapes(t)) for w, t in zip(declared, traces, strict=True)]
    axes = list(declaration.workloads[0].sizes)
    taken = {name for name, _ in declaration.parameters} | set(axes)
    names = _output_names(declaration, first, taken)
    taken |= set(names)
    draws = draw_names(len(first.draws), taken)
    taken |= set(draws)
    if written := sorted(set().union(*(t.written for t in traces))):
        raise TaskError(
            f"task {declaration.name!r} writes to its input {', '.join(written)}, and a kernel must not write to "
            f"inputs; begin it with {written[0]} = {written[0]}.clone(), or return a new tensor."
        )
    outputs = output_dims((*names, *draws), runs, _probes(declaration, specs, path, setting), taken)
    workloads = tuple(
        Workload(w.name, (*w.axes, *outputs.derived_sizes(shapes)))
        for w, (_, shapes) in zip(declared, runs, strict=True)
    )
    own = len(declaration.workloads)
    made = [tensor for _, tensor in first.outputs] + list(first.draws)
    roles = [TensorRole.OUTPUT] * len(names) + [TensorRole.INPUT] * len(draws)
    extra = [
        TensorSpec(name, dtype_name(tensor), dims, role)
        for name, tensor, dims, role in zip((*names, *draws), made, outputs.dims, roles, strict=True)
    ]
    task = Task(
        name=declaration.name,
        source=text,
        kind=TaskKind.NATIVE,
        tensors=(*specs, *extra[len(names) :], *extra[: len(names)]),
        scalars=_scalar_specs(declaration),
        workloads=workloads[:own],
        held_out=workloads[own:],
        precision=precision,
        digest=digest,
        description=declaration.description,
        allow=declaration.allow,
        notes=_notes(first, draws),
    )
    return NativeProgram(declaration, task, traits_of(first.habits, draws, ()), outputs, path, setting)


def _trace(
    declaration: declare.TaskDeclaration,
    specs: tuple[TensorSpec, ...],
    sizes: Mapping[str, int],
    path: Path,
    setting: TraceMode,
    seed: int = 0,
) -> Trace:
    """Run the function once, without data wherever that works."""
    own = [(spec, d) for spec in specs for n, d in declaration.parameters if n == spec.name]
    check_size(setting, sum(spec.nbytes(sizes) for spec, _ in own))
    tensors: dict[str, Tensor] = {}
    for spec, declared in own:
        if setting.name == "real" and isinstance(declared, declare.TensorDeclaration):
            generator = torch.Generator().manual_seed(stream_seed(seed, spec.name))
            tensors[spec.name] = drawn(declared, spec, sizes, generator, path)
        else:
            tensors[spec.name] = setting.empty(spec.shape(sizes), DTYPES[spec.dtype])
    args, kwargs = _arguments(declaration)(tensors)
    with setting.mode:
        return trace_reference(lambda: declaration.function(*args, **kwargs), tensors, setting.device)


def _probes(
    declaration: declare.TaskDeclaration, specs: tuple[TensorSpec, ...], path: Path, setting: TraceMode
) -> list[tuple[Mapping[str, int], Shapes]]:
    """Traces on primes; none where the function needs particular sizes (a multiple of 64, say)."""
    probes: list[tuple[Mapping[str, int], Shapes]] = []
    for sizes in prime_sizes(list(declaration.workloads[0].sizes)):
        with Attempt(path) as attempt:
            probes.append((sizes, _shapes(_trace(declaration, specs, sizes, path, setting))))
        if attempt.error is not None:
            return []
    return probes


def _shapes(traced: Trace) -> Shapes:
    return tuple(tuple(t.shape) for t in (*(tensor for _, tensor in traced.outputs), *traced.draws))


def _input_specs(declaration: declare.TaskDeclaration, precision: Precision) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(name, declared.dtype or declare.CLASS_DTYPE[precision], declared.dims, TensorRole.INPUT)
        for name, declared in declaration.parameters
        if isinstance(declared, declare.TensorDeclaration)
    )


def _scalar_specs(declaration: declare.TaskDeclaration) -> tuple[ScalarSpec, ...]:
    return tuple(
        ScalarSpec(name, scalar_kind(declared.value), declared.value)
        for name, declared in declaration.parameters
        if isinstance(declared, declare.Scalar)
    )


def _output_names(declaration: declare.TaskDeclaration, traced: Trace, taken: set[str]) -> tuple[str, ...]:
    count = len(traced.outputs)
    if declaration.returns:
        if len(declaration.returns) != count:
            raise TaskError(
                f"task {declaration.name!r} names {len(declaration.returns)} outputs, but the function returns {count}."
            )
        return declaration.returns
    return output_names([path for path, _ in traced.outputs], taken)


def _notes(traced: Trace, draws: tuple[str, ...]) -> tuple[str, ...]:
    """What tracing found that a reader of the contract should know."""
    return trace_notes(traced.habits.dropout, draws, [], traced.extras)


def _arguments(declaration: declare.TaskDeclaration) -> Arguments:
    """The call by keyword: right for every kind of parameter except positional-only ones, which come first."""
    kinds = inspect.signature(declaration.function).parameters
    keyword_only = {n for n, p in kinds.items() if p.kind is p.KEYWORD_ONLY}
    skipped = False  # once an undeclared default was passed over, the rest must go by name
    by_name: set[str] = set()
    declared = dict(declaration.parameters)
    for name in kinds:
        skipped |= name not in declared
        if name in declared and (skipped or name in keyword_only):
            by_name.add(name)

    def arguments(tensors: Mapping[str, Tensor]) -> tuple[list[object], dict[str, object]]:
        values = {n: d.value if isinstance(d, declare.Scalar) else tensors[n] for n, d in declared.items()}
        return (
            [value for name, value in values.items() if name not in by_name],
            {name: value for name, value in values.items() if name in by_name},
        )

    return arguments
