"""Loads KernelBench files, unmodified: `class Model`, `get_inputs()`, `get_init_inputs()`.

The module's tensors become named inputs (role STATE), Python numbers among the arguments of `forward` become scalars,
and random numbers drawn inside `forward` become inputs. `forward` updates copies of its buffers, so that no call
depends on an earlier one. There is one workload, "default", without axes.
"""

from __future__ import annotations

import inspect
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from warpsmith.model.errors import TaskError, UsageError
from warpsmith.model.task import Precision, ScalarSpec, Task, TaskKind, TensorRole, TensorSpec, Workload
from warpsmith.tasks import variants as distributions
from warpsmith.tasks.declare import CLASS_DTYPE, as_identifier
from warpsmith.tasks.fake_tensors import TraceMode, check_same_shapes, check_size, try_trace_modes
from warpsmith.tasks.intercept import TorchInterceptor
from warpsmith.tasks.modules import (
    Snapshot,
    StateTensor,
    norm_statistics,
    norm_weights,
    restorer,
    silence_dropout,
    state_of,
    with_state,
)
from warpsmith.tasks.program import (
    DTYPES,
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
    total_bytes,
    trace_notes,
    trace_reference,
    traits_of,
    widen,
)
from warpsmith.tasks.user_code import Attempt, TaskFile


@dataclass(frozen=True)
class NamedValue:
    """Stands for a tensor or number of the task in the arguments of `forward`."""

    name: str


@dataclass(frozen=True)
class ForwardCall:
    """How `forward` is called: its arguments, with `NamedValue` in place of what the task names."""

    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    scalars: Mapping[str, ScalarSpec]

    def arguments(self, tensors: Mapping[str, Tensor]) -> tuple[list[object], dict[str, object]]:
        """The arguments with these tensors in place."""
        values: dict[str, object] = {**tensors, **{name: spec.value for name, spec in self.scalars.items()}}
        return (
            [_filled(argument, values) for argument in self.args],
            {key: _filled(argument, values) for key, argument in self.kwargs.items()},
        )


class ArgumentNames:
    """Gives every tensor and number among the arguments of `forward` a name and a place in the setting."""

    def __init__(self, file: TaskFile, setting: TraceMode, cast: torch.dtype | None) -> None:
        self._setting = setting
        self._cast = cast
        parameters = inspect.signature(file.module.Model.forward).parameters.values()
        positional = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self._positional = positional[1:]
        self._taken: set[str] = set()
        self.tensors: dict[str, Tensor] = {}
        self.scalars: dict[str, ScalarSpec] = {}
        self.strided: list[str] = []

    def arguments(
        self, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        """The arguments with names in place of values."""
        known = self._positional
        labels = [known[i] if i < len(known) else f"input{i}" for i in range(len(args))]
        return (
            tuple(self._named(label, value) for label, value in zip(labels, args, strict=True)),
            {key: self._named(key, value) for key, value in kwargs.items()},
        )

    def claim(self, text: str) -> str:
        """A name that nothing else has."""
        name = as_identifier(text, self._taken)
        self._taken.add(name)
        return name

    def adopted(self, tensor: Tensor) -> Tensor:
        """The tensor in this setting, cast, row-major and without history."""
        with torch.no_grad(), self._setting.mode:
            tensor = cast_to(self._setting.adopt(tensor.detach()), self._cast)
            return tensor.contiguous()

    def _named(self, label: str, value: object) -> object:
        if isinstance(value, Tensor):
            name = self.claim(label)
            if not value.is_contiguous():
                self.strided.append(name)
            self.tensors[name] = self.adopted(value)
            return NamedValue(name)
        if type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
            value = value.item()
        if isinstance(value, bool | int | float):
            name = self.claim(label)
            self.scalars[name] = ScalarSpec(name, scalar_kind(value), value)
            return NamedValue(name)
        if isinstance(value, list | tuple):
            parts = [self._named(f"{label}_{index}", part) for index, part in enumerate(value)]
            return parts if isinstance(value, list) else tuple(parts)
        if isinstance(value, dict):
            return {key: self._named(f"{label}_{key}", part) for key, part in value.items()}
        return value  # None, strings and the like go to forward as they are


def as_json(args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    """A call as `Task.call` and `Task.init` hold it; what JSON cannot say becomes `{"?": its text}`."""
    return json.dumps([[_plain(value) for value in args], {key: _plain(value) for key, value in kwargs.items()}])


def _plain(value: object) -> object:
    if isinstance(value, NamedValue):
        return {"$": value.name}
    if type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return {"()": [_plain(part) for part in value]}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(part) for key, part in value.items()}
    return {"?": f"a {type(value).__name__}"}


def split_call(given: Any) -> tuple[tuple[object, ...], dict[str, object]]:
    """Arguments and keyword arguments from the forms KernelBench files give them in."""
    if given is None:
        return (), {}
    if isinstance(given, Mapping):
        return (), dict(given)
    if isinstance(given, list | tuple):
        if len(given) == 2 and isinstance(given[0], list | tuple) and isinstance(given[1], dict):
            return tuple(given[0]), dict(given[1])
        return tuple(given), {}
    return (given,), {}


def _filled(argument: object, values: Mapping[str, object]) -> object:
    """An argument of forward with values in place of names."""
    if isinstance(argument, NamedValue):
        return values[argument.name]
    if isinstance(argument, list):
        return [_filled(part, values) for part in argument]
    if isinstance(argument, tuple):
        return tuple(_filled(part, values) for part in argument)
    if isinstance(argument, dict):
        return {key: _filled(part, values) for key, part in argument.items()}
    return argument


def collect_values(own: object, given: object, found: dict[str, object]) -> None:
    """The values that a new call of `get_inputs` gives for the names of the first one."""
    if isinstance(own, NamedValue):
        found[own.name] = given
    elif isinstance(own, list | tuple) and isinstance(given, list | tuple) and len(own) == len(given):
        for name, value in zip(own, given, strict=True):
            collect_values(name, value, found)
    elif isinstance(own, dict) and isinstance(given, dict) and own.keys() == given.keys():
        for key, name in own.items():
            collect_values(name, given[key], found)
    elif isinstance(own, list | tuple | dict):
        raise TaskError("get_inputs() gives differently built inputs each time it is called.")


def cast_to(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    """A floating tensor in the type of the task's precision class; 8-bit floats keep theirs."""
    if dtype is None or not tensor.is_floating_point() or tensor.itemsize == 1:
        return tensor
    return tensor.to(dtype)


WORKLOAD = Workload("default")
_STATES_KEPT = 2  # constructed states, by device and seed, that are kept for the next call


@dataclass(frozen=True)
class ModuleLayout:
    """What the loader learnt about a file besides its `Task`."""

    template: nn.Module  # without data wherever the file can be traced so
    state: tuple[StateTensor, ...]
    state_names: tuple[str, ...]
    call: ForwardCall
    traits: ReferenceTraits
    rebound: tuple[str, ...]  # parts of the module that forward sets attributes on
    statistics: frozenset[int]  # state that forward writes and never reads
    written: frozenset[int]  # other state that forward writes
    signed: frozenset[int]  # state that may be of any sign, even if a new module fills it with a positive constant
    setting: TraceMode
    cast: torch.dtype | None  # what floating tensors are cast to; None: as the file has them


class KernelBenchProgram:
    """A module with its inputs; `load` builds one."""

    def __init__(self, file: TaskFile, task: Task, layout: ModuleLayout) -> None:
        self.task = task
        self._file = file
        self._layout = layout
        self._specs = {spec.name: spec for spec in task.inputs}
        self._states: OrderedDict[tuple[str, int], tuple[Tensor, ...]] = OrderedDict()
        self._domains: dict[str, distributions.Domain | None] | None = None  # of the arguments
        self._constants: dict[str, distributions.Domain] | None = None  # of state that a new module sets to one value
        self._module: tuple[tuple[int, ...], PreparedModule] | None = None

    def inputs(
        self, workload: Workload, *, variant: str = distributions.OWN, seed: int, device: torch.device
    ) -> dict[str, Tensor]:
        """Arguments from `get_inputs()`, state from constructing the module, both under this seed on this device."""
        if variant not in distributions.KNOWN:
            raise UsageError(f"unknown input variant {variant!r}; known: {', '.join(distributions.KNOWN)}.")
        drawn = self._arguments(seed, device)
        domains = self._known_domains(drawn)
        generator = torch.Generator(device).manual_seed(stream_seed(seed, f"variant/{variant}"))
        made = {name: distributions.apply_variant(variant, t, domains[name], generator) for name, t in drawn.items()}
        names = self._layout.state_names
        made |= {name: t.clone() for name, t in zip(names, self._state(seed, device), strict=True)}
        for name, domain in self._known_constants(device).items():
            made[name] = distributions.apply_variant(variant, made[name], domain, generator)
        if self._layout.traits.draws:
            made |= self._sampled(made, seed, device)
        return {name: check_fits(spec, made[name], workload) for name, spec in self._specs.items()}

    def arguments(
        self, workload: Workload, *, variant: str = distributions.OWN, seed: int, device: torch.device
    ) -> dict[str, Tensor]:
        """What `get_inputs()` gives; constructing the module anew would cost more than most tasks."""
        drawn = self._arguments(seed, device)
        domains, made = self._known_domains(drawn), dict[str, Tensor]()
        for name, tensor in drawn.items():
            generator = torch.Generator(device).manual_seed(stream_seed(seed, f"timed/{name}"))
            own = tensor if domains[name] is None else tensor.clone()  # get_inputs() may give the same tensor again
            changed = distributions.timed_change(variant)(own, domains[name], generator)
            made[name] = check_fits(self._specs[name], changed, workload)
        return made

    def redrawn_state(self, *, seed: int, device: torch.device) -> dict[str, Tensor]:
        """Random values for the state that a new module fills with one value."""
        generator = torch.Generator(device).manual_seed(stream_seed(seed, "constants"))
        return {
            name: distributions.draw_constant(spec.shape({}), DTYPES[spec.dtype], domain, generator)
            for name, domain in self._known_constants(device).items()
            for spec in (self._specs[name],)
        }

    def written_state(self) -> frozenset[str]:
        """State that forward writes to."""
        layout = self._layout
        return frozenset(layout.state_names[index] for index in layout.statistics | layout.written)

    def structured(self, *, device: torch.device | None = None) -> frozenset[str]:
        """What a sample shows to have a structure."""
        self.variants(device=device)
        return frozenset(name for name, domain in (self._domains or {}).items() if distributions.is_constrained(domain))

    def fake_inputs(self, workload: Workload) -> FakeInputs:
        """The inputs without data."""
        setting = self._layout.setting
        if setting.name == "real":  # its code looks at values, so they must be sensible ones
            return FakeInputs(setting.mode, self.inputs(workload, seed=0, device=setting.device))
        tensors = {
            name: setting.empty(spec.shape(workload.sizes), DTYPES[spec.dtype]) for name, spec in self._specs.items()
        }
        return FakeInputs(setting.mode, tensors)

    def run(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """The module's forward, at the element types it is given."""
        key = tuple(id(inputs[name]) for name in self._layout.state_names)
        if self._module is None or self._module[0] != key:
            # The prepared copy holds the state tensors, so none of these ids can be reused while it is kept.
            self._module = (key, self._prepare(inputs))
        prepared = self._module[1]
        return self._bound(prepared.module, prepared, inputs)()

    def bind(self, inputs: Mapping[str, Tensor], wrap: Wrapper | None = None) -> BoundReference:
        """A copy of the module of its own, around these state tensors, with its arguments in place."""
        prepared = self._prepare(inputs)
        return self._bound(wrap(prepared.module) if wrap else prepared.module, prepared, inputs)

    def widen(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The inputs of the fp64 reference."""
        return widen(inputs)

    def variants(self, *, device: torch.device | None = None, held_out: bool = False) -> tuple[str, ...]:
        """What a sample of the file's own inputs suggests."""
        device = device or torch.device("cpu")
        domains = self._domains or self._known_domains(self._arguments(0, device))
        return distributions.variant_names({**domains, **self._known_constants(device)}, held_out)

    def workload(self, name: str, sizes: Mapping[str, int]) -> Workload:
        """A KernelBench file has one workload; asking for other sizes is an error."""
        if sizes:
            raise UsageError(f"{self.task.name!r} is a KernelBench file, whose sizes cannot be changed.")
        return Workload(name)

    def release(self) -> None:
        """Let go of constructed states and of the module copy of the last run."""
        self._states.clear()
        self._module = None

    def _known_domains(self, drawn: Mapping[str, Tensor]) -> dict[str, distributions.Domain | None]:
        if self._domains is None:
            constants = {name: distributions.constant_domain(tensor) for name, tensor in drawn.items()}
            if any(constants.values()):  # one element is constant in any single draw
                again = self._arguments(1, next(iter(drawn.values())).device)
                constants = {
                    n: c if c == distributions.constant_domain(again[n]) else None for n, c in constants.items()
                }
            self._domains = {n: constants[n] or distributions.infer_domain(tensor) for n, tensor in drawn.items()}
        return self._domains

    def _known_constants(self, device: torch.device) -> dict[str, distributions.Domain]:
        if self._constants is None:
            layout = self._layout
            found = {
                name: distributions.constant_domain(tensor, signed=index in layout.signed)
                for index, (name, tensor) in enumerate(zip(layout.state_names, self._state(0, device), strict=True))
                if index not in layout.statistics
            }
            self._constants = {name: domain for name, domain in found.items() if domain is not None}
        return self._constants

    def _arguments(self, seed: int, device: torch.device) -> dict[str, Tensor]:
        """The tensors of `get_inputs()`, cast and placed."""
        with Attempt(self._file.path) as attempt, seeded(stream_seed(seed, "inputs"), device):
            with torch.no_grad(), TorchInterceptor(device):
                raw = self._file.module.get_inputs()
        _complain(attempt, "get_inputs()")
        found: dict[str, object] = {}
        args, kwargs = split_call(raw)
        for own, given in ((self._layout.call.args, args), (self._layout.call.kwargs, kwargs)):
            collect_values(own, given, found)
        return {
            name: cast_to(tensor, self._layout.cast).to(device).detach().contiguous()
            for name, tensor in found.items()
            if isinstance(tensor, Tensor)
        }

    def _state(self, seed: int, device: torch.device) -> tuple[Tensor, ...]:
        """The module's tensors, constructed under this seed; the last few are kept."""
        key = (str(device), seed)
        if key not in self._states and self._layout.state:
            with Attempt(self._file.path) as attempt, seeded(stream_seed(seed, "state"), device):
                with torch.no_grad(), TorchInterceptor(device):
                    module = _construct(self._file)
            _complain(attempt, "constructing Model")
            found = state_of(module, self._file.module.__name__)
            if [s.origin for s in found] != [s.origin for s in self._layout.state]:
                raise TaskError(f"{self._file.path}: Model has other tensors each time it is constructed.")
            self._states[key] = tuple(cast_to(s.tensor.detach(), self._layout.cast).to(device) for s in found)
            while len(self._states) > _STATES_KEPT:
                self._states.popitem(last=False)
        return self._states.get(key, ())

    def _sampled(self, made: Mapping[str, Tensor], seed: int, device: torch.device) -> dict[str, Tensor]:
        """Random numbers that forward draws, from one run of it."""
        layout = self._layout
        prepared = self._prepare(made)
        args, kwargs = layout.call.arguments({name: tensor.clone() for name, tensor in made.items()})
        with seeded(stream_seed(seed, "draws"), device):
            taken = trace_reference(lambda: prepared.module(*args, **kwargs), {}, device, layout.cast).draws
        if len(taken) != len(layout.traits.draws):
            raise TaskError(f"{self._file.path}: forward draws random numbers {len(taken)} times, not always as often.")
        return {name: tensor.clone() for name, tensor in zip(layout.traits.draws, taken, strict=True)}

    def _prepare(self, inputs: Mapping[str, Tensor]) -> PreparedModule:
        """A copy of the module around these state tensors, or around scratch copies of those it writes to."""
        layout = self._layout
        given = [inputs[name] for name in layout.state_names]
        scratch = layout.statistics | layout.written
        values = [tensor.clone() if index in scratch else tensor for index, tensor in enumerate(given)]
        module = with_state(layout.template, layout.state, values)
        snapshot = Snapshot(module, layout.rebound) if layout.rebound else None
        pairs = [(values[index], given[index]) for index in sorted(layout.written)]
        return PreparedModule(module, restorer(snapshot, pairs))

    def _bound(
        self, function: Callable[..., object], prepared: PreparedModule, inputs: Mapping[str, Tensor]
    ) -> BoundReference:
        how = ReferenceOptions(self._layout.traits, device_of(inputs), is_wide(self.task, inputs), prepared.restore)
        return bind_reference(function, self._layout.call.arguments, inputs, how)


@dataclass(frozen=True)
class PreparedModule:
    """A copy of the module around given tensors, and what undoes the traces of its last call."""

    module: nn.Module
    restore: Callable[[], None] | None


def load(file: TaskFile, precision: Precision | None, digest: str) -> KernelBenchProgram:
    """Trace the module and build its program."""
    for name in ("Model", "get_inputs"):
        if not callable(getattr(file.module, name, None)):
            raise TaskError(f"{file.path}: a KernelBench task needs {name}, which executing the file did not define.")
    return try_trace_modes(file.path, "the module", lambda setting: _build(file, precision, digest, setting))


def _build(file: TaskFile, precision: Precision | None, digest: str, setting: TraceMode) -> KernelBenchProgram:
    cast = DTYPES[CLASS_DTYPE[precision]] if precision is not None else None
    traced = _Traced(file, setting, cast, seed=0)
    if setting.name == "real":
        check_same_shapes(traced.results, _Traced(file, setting, cast, seed=1).results)
    taken = set(traced.tensors) | set(traced.call.scalars)
    names = output_names([path for path, _ in traced.trace.outputs], taken)
    draws = draw_names(len(traced.trace.draws), taken | set(names))
    state_names = set(traced.state_names)
    arguments = {name: tensor for name, tensor in traced.tensors.items() if name not in state_names}
    drawn = dict(zip(draws, traced.trace.draws, strict=True))
    origins = {name: own.origin for name, own in zip(traced.state_names, traced.state, strict=True)}
    specs = [_spec(name, tensor, TensorRole.INPUT) for name, tensor in (arguments | drawn).items()]
    specs += [_spec(name, traced.tensors[name], TensorRole.STATE, origins[name]) for name in traced.state_names]
    specs += [
        _spec(name, tensor, TensorRole.OUTPUT, path)
        for name, (path, tensor) in zip(names, traced.trace.outputs, strict=True)
    ]
    task = Task(
        name=file.path.stem,
        source=file.text,
        kind=TaskKind.KERNELBENCH,
        tensors=tuple(specs),
        scalars=tuple(traced.call.scalars.values()),
        workloads=(WORKLOAD,),
        precision=precision or _own_precision([*arguments.values(), *(traced.tensors[n] for n in traced.state_names)]),
        digest=digest,
        allow=_allowed(file),
        description=inspect.cleandoc(file.module.Model.__doc__ or "") if "__doc__" in vars(file.module.Model) else "",
        notes=traced.notes(draws),
        init=as_json(*_init_inputs(file)),
        call=as_json(traced.call.args, traced.call.kwargs),
    )
    layout = ModuleLayout(
        template=traced.template,
        state=traced.state,
        state_names=traced.state_names,
        call=traced.call,
        traits=traits_of(traced.trace.habits, draws, traced.trace.written - state_names),
        rebound=traced.rebound,
        statistics=traced.statistics,
        written=frozenset(
            i for i, n in enumerate(traced.state_names) if n in traced.trace.written and i not in traced.statistics
        ),
        signed=norm_weights(traced.template, traced.state),
        setting=setting,
        cast=cast,
    )
    return KernelBenchProgram(file, task, layout)


class _Traced:
    """One construction and one forward of the module in a setting, and all that was seen."""

    def __init__(self, file: TaskFile, setting: TraceMode, cast: torch.dtype | None, seed: int) -> None:
        with seeded(stream_seed(seed, "trace"), torch.device("cpu")):
            with setting.creating():
                args, kwargs = split_call(file.module.get_inputs())
                self.template = _construct(file)
            self.dropout = silence_dropout(self.template)
            self.state = state_of(self.template, file.module.__name__)
            self.statistics = norm_statistics(self.template, self.state)
            naming = ArgumentNames(file, setting, cast)
            self.call = ForwardCall(*naming.arguments(args, kwargs), naming.scalars)
            self.strided = naming.strided
            self.tensors = naming.tensors
            self.state_names = tuple(naming.claim(own.origin or "state") for own in self.state)
            for name, own in zip(self.state_names, self.state, strict=True):
                self.tensors[name] = naming.adopted(own.tensor)
            check_size(setting, total_bytes(list(self.tensors.values())))
            with setting.mode:
                self.trace = self._forward(setting, cast)

    @property
    def results(self) -> list[Tensor]:
        """The outputs."""
        return [tensor for _, tensor in self.trace.outputs]

    def notes(self, draws: tuple[str, ...]) -> tuple[str, ...]:
        """What was changed about the file's own behaviour."""
        written = sorted(self.trace.written - set(self.state_names))
        notes = trace_notes(self.dropout or self.trace.habits.dropout, draws, written, self.trace.extras)
        if self.strided:
            notes += (f"{', '.join(self.strided)} came in another memory layout and is passed row-major.",)
        return notes

    def _forward(self, setting: TraceMode, cast: torch.dtype | None) -> Trace:
        module = with_state(self.template, self.state, [self.tensors[name] for name in self.state_names])
        before = Snapshot(module)
        args, kwargs = self.call.arguments(self.tensors)
        traced = trace_reference(lambda: module(*args, **kwargs), self.tensors, setting.device, cast)
        self.rebound = before.changed()
        return traced


def _allowed(file: TaskFile) -> tuple[str, ...]:
    """Libraries that a candidate may call: a list `allow` of the file's, which KernelBench does not know."""
    allow = getattr(file.module, "allow", [])
    if not isinstance(allow, list | tuple) or not all(isinstance(name, str) for name in allow):
        raise TaskError(f"{file.path}: allow is a list of library names such as ['torch'], not {allow!r}.")
    return tuple(allow)


def _init_inputs(file: TaskFile) -> tuple[tuple[object, ...], dict[str, object]]:
    return split_call(getattr(file.module, "get_init_inputs", list)())


def _construct(file: TaskFile) -> nn.Module:
    """A new Model; `get_init_inputs` may give a list, a dict, or a list and a dict."""
    args, kwargs = _init_inputs(file)
    module = file.module.Model(*args, **kwargs)
    if not isinstance(module, nn.Module):
        raise TaskError(f"{file.path}: Model is not a torch.nn.Module.")
    return module


def _spec(name: str, tensor: Tensor, role: TensorRole, origin: str = "") -> TensorSpec:
    return TensorSpec(name, dtype_name(tensor), tuple(tensor.shape), role, origin if origin != name else "")


def _own_precision(tensors: Sequence[Tensor]) -> Precision:
    """The class of a file that says nothing: its floating type if there is only one, else strict fp32."""
    kinds = {dtype_name(tensor) for tensor in tensors if tensor.is_floating_point()}
    narrow = {"float16": Precision.FP16, "bfloat16": Precision.BF16, "float64": Precision.FP64}
    return narrow.get(next(iter(kinds)), Precision.FP32) if len(kinds) == 1 else Precision.FP32


def _complain(attempt: Attempt, doing: str) -> None:
    """Running out of memory is for the judge to handle; anything else is the file's fault."""
    if isinstance(attempt.error, torch.OutOfMemoryError | MemoryError):
        raise attempt.error
    attempt.complain(doing)
