"""Makes tracing on meta tensors possible and fast.

- Constants: model code computes plain numbers with torch, as in `[x.item() for x in torch.linspace(0, 0.1, 12)]`. A
  tensor without data has no value, so small constants and results of constants alone have a twin with data.
- RNN layers: torch traces an LSTM step by step, ten milliseconds each. The shapes of the outputs follow from the
  arguments, and two matrix products per layer and direction are the same work to a FLOP counter.
- Frequent operators: torch runs many through decompositions in Python, milliseconds each, and the first one imports
  torch's compiler. Simple ones are computed here, all others by torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_TWIN = "_warpsmith_constant"
_LIMIT = 1 << 16  # elements; larger constants get no twin
_READS = frozenset(
    getattr(owner, name)
    for owner, names in (
        (Tensor, "__array__ __bool__ __contains__ __float__ __index__ __int__ all_close equal item numpy tolist"),
        (torch, "allclose equal is_nonzero"),
    )
    for name in names.split()
    if hasattr(owner, name)
)


def read_constant(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
    """Whether a call reads values of known constants, and its result."""
    if func not in _READS or not _known((*args, *kwargs.values())):
        return False, None
    return True, func(*_twins(args), **_twins(kwargs))


def known_number(tensor: Tensor) -> float | None:
    """The number that a tensor without axes is known to hold; None where it is not known."""
    twin = vars(tensor).get(_TWIN)
    return twin.item() if twin is not None and not twin.dim() and not twin.is_complex() else None


def track_constant(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, is_factory: bool) -> None:
    """Give the result of a call a twin if its value is known; remove the twin of a tensor whose value no longer is."""
    outputs = [result] if isinstance(result, Tensor) else result if isinstance(result, list | tuple) else []
    if not outputs or not all(isinstance(output, Tensor) for output in outputs):
        return
    given = (*args, *kwargs.values())
    has_tensors = any(True for _ in _tensors(given))
    if not (is_factory if not has_tensors else _known(given)):
        if _writes(func) and args and isinstance(args[0], Tensor):
            vars(args[0]).pop(_TWIN, None)
        return
    if any(output.numel() > _LIMIT for output in outputs):
        return
    placed = _twins(kwargs) | ({"device": torch.device("cpu")} if "device" in kwargs else {})
    twin = func(*_twins(args), **placed)
    for output, value in zip(outputs, [twin] if isinstance(twin, Tensor) else twin, strict=True):
        vars(output)[_TWIN] = value


def _writes(func: Callable[..., Any]) -> bool:
    name = getattr(func, "__name__", "")
    return (name.endswith("_") and not name.endswith("__")) or name == "__setitem__" or name.startswith("__i")


def _tensors(values: Iterable[Any]) -> Iterable[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _known(values: Iterable[Any]) -> bool:
    found = list(_tensors(values))
    return bool(found) and all(_TWIN in vars(tensor) for tensor in found)


def _twins(value: Any) -> Any:
    """The arguments of a call with twins in place of tensors and the CPU in place of the meta device."""
    if isinstance(value, Tensor):
        return vars(value)[_TWIN]
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if isinstance(value, dict):
        return {key: _twins(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_twins(part) for part in value) if type(value) in (list, tuple) else value
    return value


RNN_FUNCTIONS = frozenset({torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu})


def rnn_outputs(func: Any, args: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """The result of an RNN call of `torch.nn` on tensors without data."""
    packed = isinstance(args[3], list | tuple)  # (data, batch_sizes, hx, params, ...)
    hidden, weights, has_bias, _, _, _, bidirectional = args[2:9] if packed else args[1:8]
    first = hidden[0] if isinstance(hidden, list | tuple) else hidden
    directions = 2 if bidirectional else 1
    data: Tensor = args[0]
    flat = data.reshape(-1, data.shape[-1])
    per_layer = (4 if has_bias else 2) + (first.shape[-1] != _rows(func, weights))
    for start in range(0, len(weights), per_layer * directions):
        sides: list[Tensor] = []
        for side in range(directions):
            own = weights[start + side * per_layer :]
            state = flat.new_empty((flat.shape[0], own[1].shape[1]))
            torch.mm(flat, own[0].t()), torch.mm(state, own[1].t())
            sides.append(state)
        flat = torch.cat(sides, dim=-1)
    output = flat.reshape(*data.shape[:-1], directions * first.shape[-1])
    states = hidden if isinstance(hidden, list | tuple) else (hidden,)
    return (output, *(torch.empty_like(state) for state in states))


def _rows(func: Any, weights: Any) -> int:
    """The size of the cell state, which differs from that of the hidden state if an LSTM projects it."""
    gates = {torch.lstm: 4, torch.gru: 3}.get(func, 1)
    return int(weights[0].shape[0]) // gates


_aten = torch.ops.aten
_NORMS = {
    getattr(getattr(_aten, name), overload)
    for name, overload in (
        ("native_batch_norm", "default"),
        ("_native_batch_norm_legit", "default"),
        ("_native_batch_norm_legit", "no_stats"),
        ("cudnn_batch_norm", "default"),
    )
    if hasattr(_aten, name)
}

# The result has shape and type of the first argument: fills, and functions of one tensor that torch does not tag.
_SAME = {
    getattr(packet, packet.overloads()[0])
    for packet in (
        getattr(_aten, name)
        for name in ("normal_", "uniform_", "exponential_", "zero_", "hardswish", "hardswish_", "tril", "triu")
    )
}

_OPTIONS = {"alpha", "value", "memory_format", "approximate", "rounding_mode"}  # they do not change the device


def _is_meta(value: object) -> bool:
    first = value[0] if isinstance(value, list | tuple) and value else value
    return isinstance(first, Tensor) and first.is_meta


class FastMetaOperators(TorchDispatchMode):
    """Computes simple operators on meta tensors; torch computes all others."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._dtypes: dict[object, torch.dtype] = {}  # result types of pointwise operators, by operator and operands

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Asked by torch; otherwise the first operator imports torch's compiler, which takes a second or two."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Called by torch for each operator."""
        if args and _is_meta(args[0]):
            if func in _SAME:
                return args[0] if func._schema.name.endswith("_") else torch.empty_like(args[0])
            if torch.Tag.pointwise in func.tags:
                answer = self._pointwise(func, args, kwargs or {})
            else:
                rule = _RULES.get(func)
                answer = rule(*args) if rule is not None and not kwargs else None
            if answer is not None:
                return answer
        return func(*args, **(kwargs or {}))

    def _pointwise(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A result with the broadcast shape; its type is that of a run on single elements of these types and ranks."""
        if not kwargs.keys() <= _OPTIONS or any(isinstance(arg, list | tuple) for arg in args):
            return None
        name = func._schema.name
        tensors = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, Tensor)]
        shape = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))
        if name.endswith("_"):
            plain = args[0].is_floating_point() and all(tensor.dtype == args[0].dtype for tensor in tensors)
            return args[0] if plain and shape == args[0].shape else None
        if len(func._schema.returns) != 1:
            return None
        key = (func, *map(_signature, args), *((k, _signature(value)) for k, value in kwargs.items()))
        if key not in self._dtypes:
            options = {k: _tiny(value) for k, value in kwargs.items() if k != "memory_format"}
            tiny = func(*map(_tiny, args), **options)
            self._dtypes[key] = tiny.dtype
        like = next((tensor for tensor in tensors if tensor.shape == shape), None)
        if like is not None:
            layout = kwargs.get("memory_format") or torch.preserve_format  # keeps the strides, as the operator would
            return torch.empty_like(like, dtype=self._dtypes[key], memory_format=layout)
        return torch.empty(shape, dtype=self._dtypes[key], device="meta")


def _signature(operand: object) -> tuple[object, object]:
    return (operand.dtype, operand.dim()) if isinstance(operand, Tensor) else (type(operand), str(operand))


def _tiny(operand: object) -> object:
    return torch.ones((1,) * operand.dim(), dtype=operand.dtype) if isinstance(operand, Tensor) else operand


# A rule that does not cover its arguments returns None: torch then computes the result, or reports the error.


def _addmm(bias: Tensor, left: Tensor, right: Tensor) -> Tensor | None:
    if bias.shape != right.shape[1:]:
        return None
    return torch.mm(left, right)  # an outer FLOP counter sees this call


def _norm(x: Tensor, *rest: object) -> tuple[Tensor, Tensor, Tensor] | None:
    if any(isinstance(other, Tensor) and other.shape != x.shape[1:2] for other in rest):
        return None
    statistics = x.new_empty((x.shape[1],))
    return torch.empty_like(x), statistics, torch.empty_like(statistics)


def _layer_norm(x: Tensor, shape: list[int], *rest: object) -> tuple[Tensor, Tensor, Tensor] | None:
    split = x.dim() - len(shape)
    if list(x.shape[split:]) != list(shape):
        return None
    statistics = x.new_empty((*x.shape[:split], *(1 for _ in shape)))
    return torch.empty_like(x, memory_format=torch.contiguous_format), statistics, torch.empty_like(statistics)


def _group_norm(x: Tensor, weight: object, bias: object, n: int, c: int, hw: int, group: int, eps: float) -> Any:
    statistics = x.new_empty((n, group))
    return torch.empty_like(x), statistics, torch.empty_like(statistics)


def _softmax(x: Tensor, dim: int, to_float: bool) -> Tensor | None:
    if not _has_dim(x, dim):  # torch does not check this on meta tensors
        raise IndexError(f"Dimension out of range (a tensor of {x.dim()} dimensions has no dimension {dim})")
    return None if to_float else torch.empty_like(x, memory_format=torch.contiguous_format)


def _scan(x: Tensor, dim: int) -> Tensor | None:
    return torch.empty_like(x) if x.is_floating_point() and _has_dim(x, dim) else None


def _has_dim(x: Tensor, dim: int) -> bool:
    return -x.dim() <= dim < x.dim()


def _cat(tensors: list[Tensor], dim: int = 0) -> Tensor | None:
    first = tensors[0]
    if any(t.dim() != first.dim() or t.dtype != first.dtype for t in tensors) or not _has_dim(first, dim):
        return None
    rests = {(*t.shape[: dim % t.dim()], *t.shape[dim % t.dim() + 1 :]) for t in tensors}
    if len(rests) != 1:
        return None  # torch reports the error
    shape = list(first.shape)
    shape[dim] = sum(t.shape[dim] for t in tensors)
    return first.new_empty(shape)


def _reduced(x: Tensor, dims: list[int] | None = None, keepdim: bool = False) -> Tensor | None:
    """The result of a reduction that keeps the floating type: a sum has its shape, without a decomposition."""
    return torch.sum(x, dims, keepdim) if x.is_floating_point() else None


def _vector_norm(x: Tensor, order: float = 2, dims: list[int] | None = None, keepdim: bool = False) -> Tensor | None:
    return _reduced(x, dims, keepdim)


def _adaptive(x: Tensor, size: list[int]) -> Tensor:
    return x.new_empty((*x.shape[: x.dim() - len(size)], *size))


def _nll_loss(x: Tensor, target: Tensor, weight: object, reduction: int, ignored: int) -> tuple[Tensor, Tensor]:
    unreduced = reduction == 0 and x.dim() == 2
    return x.new_empty(target.shape if unreduced else ()), x.new_empty(())


_RULES: dict[Any, Callable[..., Any]] = {
    _aten.addmm.default: _addmm,
    _aten.native_layer_norm.default: _layer_norm,
    _aten.native_group_norm.default: _group_norm,
    _aten._softmax.default: _softmax,
    _aten._log_softmax.default: _softmax,
    _aten.cat.default: _cat,
    _aten.cumsum.default: _scan,
    _aten.cumprod.default: _scan,
    _aten.nll_loss_forward.default: _nll_loss,
    _aten.logsumexp.default: _reduced,
    _aten.mean.default: _reduced,
    _aten.mean.dim: _reduced,
    _aten.linalg_vector_norm.default: _vector_norm,
    _aten._adaptive_avg_pool2d.default: _adaptive,
    _aten._adaptive_avg_pool3d.default: _adaptive,
    **dict.fromkeys(_NORMS, _norm),
}
