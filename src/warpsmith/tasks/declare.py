"""The vocabulary of a native task file: `@task`, the distributions of its tensors, and the names that C allows.

A declaration is plain data and is checked when it is written; `tasks.native` draws from it. Every tensor, scalar and
axis becomes a C++ parameter, so its name must be legal there. This module does not import torch, so that
`from warpsmith import normal, task` stays cheap.

    @task(
        x=normal("rows, cols"),
        workloads=[{"rows": 4096, "cols": 1024}, {"rows": 512, "cols": 16384}],
    )
    def softmax(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1)
"""

from __future__ import annotations

import difflib
import inspect
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, TypeVar

from warpsmith.model.errors import TaskError
from warpsmith.model.task import DTYPE_BYTES, Dim, Precision, Workload

if TYPE_CHECKING:
    import torch


_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")

# C++20 and CUDA keywords, and the names the contract itself uses.
_WORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class
    co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype
    default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline
    int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
    reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct switch
    template this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile
    wchar_t while xor xor_eq half main std NULL INFINITY NAN
    blockIdx blockDim threadIdx gridDim warpSize
    int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t
    launch workspace workspace_bytes stream state
"""
RESERVED = frozenset(_WORDS.split())


def usable(name: str) -> bool:
    """Whether a name can stand in C++ and in the contract as it is."""
    return bool(_PLAIN.match(name)) and "__" not in name and name not in RESERVED


def as_identifier(text: str, taken: Collection[str]) -> str:
    """The nearest usable name to `text` that is not taken yet: "layer1.0.weight" gives "layer1_0_weight"."""
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")
    if not name or not name[0].isalpha():
        name = f"t_{name}".rstrip("_")
    if name in RESERVED:
        name += "_"
    unique, count = name, 2
    while unique in taken or unique in RESERVED:
        unique, count = f"{name.rstrip('_')}_{count}", count + 1
    return unique


__all__ = ["booleans", "custom", "integers", "normal", "probabilities", "scalar", "task", "uniform"]

CLASS_DTYPE: Mapping[Precision, str] = {
    Precision.FP32: "float32",
    Precision.TF32: "float32",
    Precision.FP16: "float16",
    Precision.BF16: "bfloat16",
    Precision.FP64: "float64",
}
"""The element type a precision class stands for."""

FLOATS = tuple(d for d in DTYPE_BYTES if d.startswith(("float", "bfloat")))
COMPLEX = ("complex64", "complex128")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")

ATTRIBUTE = "__warpsmith_task__"
"""Where `@task` leaves the declaration on the function."""

Shape = str | int | Sequence[Dim]
Fill = Callable[[tuple[int, ...], "torch.Generator", "torch.device"], "torch.Tensor"]
F = TypeVar("F", bound=Callable[..., object])


@dataclass(frozen=True)
class TensorDeclaration:
    """What all tensor parameters have: axes and an element type (None: the precision class decides)."""

    dims: tuple[Dim, ...]
    dtype: str | None


@dataclass(frozen=True)
class Normal(TensorDeclaration):
    """Gaussian values; the domain is all reals."""

    mean: float
    std: float


@dataclass(frozen=True)
class Uniform(TensorDeclaration):
    """Values between two bounds; every variant stays between them."""

    low: float
    high: float


@dataclass(frozen=True)
class Integers(TensorDeclaration):
    """Whole numbers, low <= v < high; a bound may be the name of an axis."""

    low: Dim
    high: Dim


@dataclass(frozen=True)
class Booleans(TensorDeclaration):
    """True with probability p."""

    p: float


@dataclass(frozen=True)
class Probabilities(TensorDeclaration):
    """Positive values whose sum over the last axis is one."""


@dataclass(frozen=True)
class Custom(TensorDeclaration):
    """Values with a structure of their own, made by a function of the task file."""

    fill: Fill


@dataclass(frozen=True)
class Scalar:
    """A Python number: one value for the whole task."""

    value: int | float | bool


Declared = TensorDeclaration | Scalar


@dataclass(frozen=True)
class TaskDeclaration:
    """Everything `@task` was told, checked and in the order of the function's parameters."""

    function: Callable[..., object]
    name: str
    description: str
    parameters: tuple[tuple[str, Declared], ...]
    workloads: tuple[Workload, ...]
    precision: Precision
    allow: tuple[str, ...]
    returns: tuple[str, ...]  # () when the outputs were not named
    family: str = ""  # this and what follows is from `@listed`, if the task is of a suite
    tags: tuple[str, ...] = ()
    precisions: tuple[Precision, ...] = ()
    small: tuple[Workload, ...] = ()
    held_out: tuple[Workload, ...] = ()


def normal(shape: Shape, *, mean: float = 0.0, std: float = 1.0, dtype: str | None = None) -> Normal:
    """Gaussian values, e.g. `normal("rows, cols")`."""
    if not (_is_finite(mean) and _is_finite(std) and std >= 0):
        raise TaskError(f"normal needs a finite mean and a std of at least 0, not mean={mean!r}, std={std!r}.")
    return Normal(_dims(shape), _dtype(dtype, FLOATS + COMPLEX), float(mean), float(std))


def uniform(shape: Shape, *, low: float = 0.0, high: float = 1.0, dtype: str | None = None) -> Uniform:
    """Values between `low` and `high`, a domain that no input leaves."""
    if not (_is_finite(low) and _is_finite(high) and low < high):
        raise TaskError(f"uniform needs finite bounds with low < high, not low={low!r}, high={high!r}.")
    return Uniform(_dims(shape), _dtype(dtype, FLOATS), float(low), float(high))


def integers(shape: Shape, *, low: Dim = 0, high: Dim, dtype: str = "int64") -> Integers:
    """Whole numbers from `low` up to but not including `high`; either may name an axis."""
    for bound in (low, high):
        if isinstance(bound, bool) or not isinstance(bound, int | str):
            raise TaskError(f"a bound of integers is a whole number or an axis name, not {bound!r}.")
    if isinstance(low, int) and isinstance(high, int) and low >= high:
        raise TaskError(f"integers needs low < high, not low={low}, high={high}.")
    return Integers(_dims(shape), _dtype(dtype, INTEGERS), low, high)


def booleans(shape: Shape, *, p: float = 0.5) -> Booleans:
    """True with probability `p`."""
    if not (_is_finite(p) and 0 <= p <= 1):
        raise TaskError(f"booleans needs a probability between 0 and 1, not p={p!r}.")
    return Booleans(_dims(shape), "bool", float(p))


def probabilities(shape: Shape, *, dtype: str | None = None) -> Probabilities:
    """Positive values that sum to one over the last axis."""
    dims = _dims(shape)
    if not dims:
        raise TaskError("probabilities needs at least one axis to sum over.")
    return Probabilities(dims, _dtype(dtype, FLOATS))


def custom(shape: Shape, fill: Fill, *, dtype: str | None = None) -> Custom:
    """Structured values (masks, triangles): `fill(shape, generator, device)` returns the tensor."""
    if not callable(fill):
        raise TaskError(f"custom needs a function (shape, generator, device) -> tensor, not {fill!r}.")
    return Custom(_dims(shape), _dtype(dtype, tuple(DTYPE_BYTES)), fill)


def scalar(value: int | float | bool) -> Scalar:
    """A number passed to the function and to the kernel, the same in every workload."""
    if not isinstance(value, bool | int | float):
        raise TaskError(f"scalar takes a number or a truth value, not {value!r}.")
    return Scalar(value)


def task(
    function: object = None,
    /,
    *,
    workloads: Sequence[Mapping[str, int | str]] | None = None,
    precision: str = "fp32",
    name: str = "",
    description: str = "",
    allow: Sequence[str] = (),
    returns: str | Sequence[str] = (),
    **parameters: Declared | int | float | bool,
) -> Callable[[F], F]:
    """Declare the function below as a task; each further keyword says how to draw that parameter.

    `workloads` gives the axes their values (and optionally a "name"); `precision` is fp32, tf32, fp16, bf16 or
    fp64; `allow` lists libraries a kernel may call; `returns` names several outputs, as in "y, mean".
    """
    if function is not None:
        raise TaskError("@task needs its declarations: write @task(x=normal(...), workloads=[...]).")
    for key, value in (("name", name), ("description", description)):
        if not isinstance(value, str):
            raise TaskError(f"{key} must be text, not {value!r} (a parameter cannot be called {key!r}).")
    names = tuple(_split(returns)) if isinstance(returns, str) else tuple(returns)
    for output in names:
        _check_name("output", output)
    if isinstance(allow, str) or not all(isinstance(library, str) for library in allow):
        raise TaskError(f"allow is a list of library names such as ['cublas'], not {allow!r}.")
    known = checked_precision(precision)

    def declare(function: F) -> F:
        if not inspect.isfunction(function):
            raise TaskError(f"@task goes above a function, not above {function!r}.")
        title = name or function.__name__
        ordered = _match_parameters(title, function, parameters)
        axes = _axes_used(ordered)
        runs = checked_workloads(title, workloads, axes)
        _check_clashes(title, ordered, runs, names)
        _check_bounds(title, ordered, runs)
        vars(function)[ATTRIBUTE] = TaskDeclaration(
            function=function,
            name=title,
            description=description or inspect.cleandoc(function.__doc__ or ""),
            parameters=ordered,
            workloads=runs,
            precision=known,
            allow=tuple(allow),
            returns=names,
        )
        return function

    return declare


_KEYWORDS = tuple(
    name for name, parameter in inspect.signature(task).parameters.items() if parameter.kind is parameter.KEYWORD_ONLY
)


def _match_parameters(
    title: str, function: Callable[..., object], given: Mapping[str, Declared | int | float | bool]
) -> tuple[tuple[str, Declared], ...]:
    """The declarations in the function's own order; both sides must name the same parameters."""
    signature = inspect.signature(function).parameters
    for extra in given.keys() - signature.keys():
        known = ", ".join(signature) or "none"
        near = difflib.get_close_matches(extra, (*_KEYWORDS, *signature), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise TaskError(f"task {title!r} declares {extra!r}, but the function has the parameters {known}{hint}")
    ordered: list[tuple[str, Declared]] = []
    for parameter in signature.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TaskError(f"task {title!r} has the open parameter *{parameter.name}; name each input instead.")
        value = given.get(parameter.name, parameter.default)
        if parameter.name not in given and value is parameter.empty:
            raise TaskError(
                f"task {title!r} does not declare its parameter {parameter.name!r}; add e.g. "
                f'{parameter.name}=normal("n").'
            )
        if isinstance(value, bool | int | float):
            value = Scalar(value)
        elif parameter.name not in given:
            continue  # a default that is no number (None, a string) stays the function's own business
        if not isinstance(value, TensorDeclaration | Scalar):
            raise TaskError(
                f"task {title!r} declares {parameter.name!r} as {value!r}; use normal, uniform, integers, booleans, "
                "probabilities, custom or scalar."
            )
        _check_name("parameter", parameter.name)
        ordered.append((parameter.name, value))
    return tuple(ordered)


def _axes_used(parameters: Sequence[tuple[str, Declared]]) -> dict[str, str]:
    """Every axis name a declaration mentions, with the parameter that mentions it first."""
    used: dict[str, str] = {}
    for name, declared in parameters:
        if isinstance(declared, TensorDeclaration):
            bounds = (declared.low, declared.high) if isinstance(declared, Integers) else ()
            for dim in (*declared.dims, *bounds):
                if isinstance(dim, str):
                    used.setdefault(dim, name)
    return used


def checked_workloads(
    title: str, given: Sequence[Mapping[str, int | str]] | None, used: Mapping[str, str]
) -> tuple[Workload, ...]:
    """The workloads, checked: same axes in each, whole positive extents, distinct names."""
    if not given:
        if used:
            raise TaskError(f"task {title!r} needs workloads that give {', '.join(used)} a value.")
        return (Workload("default"),)
    if isinstance(given, Mapping) or not all(isinstance(entry, Mapping) for entry in given):
        raise TaskError(f"task {title!r}: workloads is a list of dicts such as [{{'rows': 4096}}].")
    first = [axis for axis in given[0] if axis != "name"]
    runs: list[Workload] = []
    for entry in given:
        axes = {axis: value for axis, value in entry.items() if axis != "name"}
        if set(axes) != set(first):
            odd = ", ".join(map(str, sorted(set(axes) ^ set(first), key=str)))
            raise TaskError(f"task {title!r}: all workloads must give the same axes, but {odd} is not in every one.")
        for axis, value in axes.items():
            _check_name("axis", axis)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise TaskError(f"task {title!r}: axis {axis!r} is {value!r}; give a whole number of at least 1.")
        ordered = tuple((axis, int(axes[axis])) for axis in first)
        label = str(entry.get("name", "")) or "x".join(str(value) for _, value in ordered) or "default"
        runs.append(Workload(label, ordered))
    for axis, parameter in used.items():
        if axis not in first:
            known = ", ".join(first) or "none"
            raise TaskError(f"task {title!r}: parameter {parameter!r} uses axis {axis!r}; the workloads give {known}.")
    labels = [run.name for run in runs]
    for label in labels:
        if labels.count(label) > 1:
            raise TaskError(f"task {title!r} has two workloads called {label!r}; give each its own 'name'.")
    return tuple(runs)


def _check_clashes(
    title: str, parameters: Sequence[tuple[str, Declared]], workloads: Sequence[Workload], outputs: Sequence[str]
) -> None:
    """Parameters, axes and outputs become arguments of one C function: no two may share a name."""
    names = [name for name, _ in parameters] + list(workloads[0].sizes) + list(outputs)
    for name in names:
        if names.count(name) > 1:
            raise TaskError(f"task {title!r} uses {name!r} for two of its parameters, axes and outputs; rename one.")


def _check_bounds(title: str, parameters: Sequence[tuple[str, Declared]], workloads: Sequence[Workload]) -> None:
    """An integer range whose bounds are axes must not be empty in any workload."""
    for name, declared in parameters:
        if isinstance(declared, Integers):
            for workload in workloads:
                low, high = (workload.sizes[b] if isinstance(b, str) else b for b in (declared.low, declared.high))
                if low >= high:
                    raise TaskError(
                        f"task {title!r}: {name!r} has no value between {low} and {high} in workload {workload.name!r}."
                    )


def _dims(shape: Shape) -> tuple[Dim, ...]:
    """Axis names and extents of a shape such as "rows, cols" or "batch, 3"."""
    if isinstance(shape, bool) or not isinstance(shape, str | int | Sequence):
        raise TaskError(f'a shape is text such as "rows, cols", not {shape!r}.')
    parts: Sequence[Dim] = _split(shape) if isinstance(shape, str) else [shape] if isinstance(shape, int) else shape
    dims: list[Dim] = []
    for part in parts:
        extent = int(part) if isinstance(part, str) and part.lstrip("-").isdecimal() else part
        if isinstance(extent, str):
            _check_name("axis", extent)
        elif isinstance(extent, bool) or not isinstance(extent, int) or extent < 1:
            raise TaskError(f"shape {shape!r} has the extent {part!r}; an extent is at least 1.")
        dims.append(extent)
    return tuple(dims)


def _split(text: str) -> list[str]:
    """The comma-separated parts of a text; none of an empty one."""
    return [part.strip() for part in text.split(",")] if text.strip() else []


def _dtype(dtype: str | None, allowed: Sequence[str]) -> str | None:
    """The element type, if it is one that suits the distribution."""
    text = str(dtype).removeprefix("torch.") if dtype is not None else None
    if text is not None and text not in allowed:
        raise TaskError(f"element type {text!r} does not suit this distribution; use one of {', '.join(allowed)}.")
    return text


def checked_precision(text: str) -> Precision:
    """The precision class of that name."""
    if text not in {p.value for p in Precision}:
        raise TaskError(f"precision {text!r} is unknown; use one of {', '.join(Precision)}.")
    return Precision(text)


def _check_name(what: str, name: object) -> None:
    """A name must be writable in C, because it becomes an argument of the kernel."""
    if name == "name" and what == "axis":
        raise TaskError("an axis cannot be called 'name', which is the name of a workload; rename it.")
    if not isinstance(name, str) or not usable(name):
        _refuse_name(what, name)


def _refuse_name(what: str, name: object) -> NoReturn:
    raise TaskError(f"{what} name {name!r} cannot be used in C code; use letters, digits and single underscores.")


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
