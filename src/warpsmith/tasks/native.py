"""Native tasks: a declared PyTorch function as a `Program`.

Drawing inputs from their declarations, tracing the function for its outputs, and running it. The vocabulary
itself is `warpsmith.tasks.declare`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from warpsmith.core.errors import TaskError, UsageError
from warpsmith.core.task import (
    Precision,
    ScalarSpec,
    Task,
    TensorRole,
    TensorSpec,
    Workload,
)
from warpsmith.tasks import declare
from warpsmith.tasks import variants as distributions
from warpsmith.tasks.drawing import domain_of, drawn
from warpsmith.tasks.faking import Setting, check_same_shapes, check_size, first_that_works
from warpsmith.tasks.program import (
    DTYPES,
    Arguments,
    Bound,
    FakeInputs,
    How,
    Trace,
    Traits,
    Wrap,
    bound,
    check_fits,
    device_of,
    dtype_name,
    is_wide,
    mixed,
    seeded,
    trace,
    traits_of,
    widen,
)
from warpsmith.tasks.shapes import OutputDims, Shapes, output_dims, prime_sizes
from warpsmith.tasks.specs import draw_names, output_names, scalar_kind, trace_notes
from warpsmith.tasks.usercode import Attempt


class NativeProgram:
    """A declared function with its inputs; `load` builds one."""

    def __init__(
        self,
        declaration: declare.TaskDeclaration,
        task: Task,
        traits: Traits,
        outputs: OutputDims,
        path: Path,
        setting: Setting,
    ) -> None:
        self.task = task
        self._declaration = declaration
        self._traits = traits
        self._outputs = outputs
        self._path = path
        self._setting = setting
        self._arguments = _arguments(declaration)

    def inputs(
        self, workload: Workload, *, variant: str = distributions.OWN, seed: int, device: torch.device
    ) -> dict[str, Tensor]:
        """Every input, drawn from its declaration (or a variant of it) with independent streams per tensor."""
        if variant not in distributions.KNOWN:
            raise UsageError(f"unknown input variant {variant!r}; known: {', '.join(distributions.KNOWN)}.")
        made: dict[str, Tensor] = {}
        specs = {spec.name: spec for spec in self.task.inputs}
        for name, declared in self._declaration.parameters:
            if not isinstance(declared, declare.TensorDeclaration):
                continue
            spec = specs[name]
            generator = torch.Generator(device).manual_seed(mixed(seed, f"{name}/{variant}"))
            tensor = drawn(declared, spec, workload.sizes, generator, self._path)
            tensor = distributions.varied(variant, tensor, domain_of(declared, spec.dtype), generator)
            made[name] = check_fits(spec, tensor, workload)
        if self._traits.draws:
            made |= self._sampled(made, specs, workload, seed, device)
        return made

    def arguments(self, workload: Workload, *, seed: int, device: torch.device) -> dict[str, Tensor]:
        """All inputs: a function has no state."""
        return self.inputs(workload, seed=seed, device=device)

    def structured(self, *, device: torch.device | None = None) -> frozenset[str]:
        """What is declared with a structure."""
        return frozenset(name for name, domain in self._domains().items() if distributions.is_constrained(domain))

    def fake_inputs(self, workload: Workload) -> FakeInputs:
        """The inputs without data."""
        tensors = {
            spec.name: self._setting.empty(spec.shape(workload.sizes), DTYPES[spec.dtype]) for spec in self.task.inputs
        }
        return FakeInputs(self._setting.mode, tensors)

    def run(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """The function, at the element types it is given."""
        return self.bind(inputs)()

    def bind(self, inputs: Mapping[str, Tensor], wrap: Wrap | None = None) -> Bound:
        """The function with its arguments in place."""
        function = self._declaration.function
        how = How(self._traits, device_of(inputs), is_wide(self.task, inputs))
        return bound(wrap(function) if wrap else function, self._arguments, inputs, how)

    def widen(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The inputs of the fp64 reference."""
        return widen(inputs)

    def variants(self, *, device: torch.device | None = None, held_out: bool = False) -> tuple[str, ...]:
        """What the declarations allow; no sample is needed."""
        return distributions.names(self._domains(), held_out)

    def _domains(self) -> dict[str, distributions.Domain | None]:
        dtypes = {spec.name: spec.dtype for spec in self.task.inputs}
        return {
            name: domain_of(declared, dtypes[name])
            for name, declared in self._declaration.parameters
            if isinstance(declared, declare.TensorDeclaration)
        }

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
        traced = first_that_works(
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
        with seeded(mixed(seed, "draws"), device):
            taken = trace(lambda: self._declaration.function(*args, **kwargs), drawn, device).draws
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
    return first_that_works(
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
    setting: Setting,
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
        kind="native",
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
    written: set[str] = set().union(*(t.written for t in traces))
    return NativeProgram(declaration, task, traits_of(first.habits, draws, written), outputs, path, setting)


def _trace(
    declaration: declare.TaskDeclaration,
    specs: tuple[TensorSpec, ...],
    sizes: Mapping[str, int],
    path: Path,
    setting: Setting,
    seed: int = 0,
) -> Trace:
    """Run the function once, without data wherever that works."""
    own = [(spec, d) for spec in specs for n, d in declaration.parameters if n == spec.name]
    check_size(setting, sum(spec.nbytes(sizes) for spec, _ in own))
    tensors: dict[str, Tensor] = {}
    for spec, declared in own:
        if setting.name == "real" and isinstance(declared, declare.TensorDeclaration):
            generator = torch.Generator().manual_seed(mixed(seed, spec.name))
            tensors[spec.name] = drawn(declared, spec, sizes, generator, path)
        else:
            tensors[spec.name] = setting.empty(spec.shape(sizes), DTYPES[spec.dtype])
    args, kwargs = _arguments(declaration)(tensors)
    with setting.mode:
        return trace(lambda: declaration.function(*args, **kwargs), tensors, setting.device)


def _probes(
    declaration: declare.TaskDeclaration, specs: tuple[TensorSpec, ...], path: Path, setting: Setting
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
    return trace_notes(traced.habits.dropout, draws, sorted(traced.written), traced.extras)


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
