"""Intercepts the torch calls of a reference, to record or to change them.

A reference may create tensors on any device, ask for a narrower element type than the one it is judged in, draw random
numbers or apply dropout. `TorchInterceptor` is called for each torch call, records its effects (`ReferenceBehaviour`)
and, depending on its parameters, changes the call:

- tensors are created on `device`, even if the code names "cuda";
- if `wide`, requests for a narrow floating type become float64, for the fp64 reference;
- random numbers come from `RandomDraws`: recorded once, then passed in like any other input;
- dropout is off;
- on tensors without data (meta, fake), constants keep their values and RNNs skip their time steps.

An interception costs a few microseconds per torch call, so it is left out if a recorded run shows no need for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from warpsmith.model.errors import TaskError
from warpsmith.tasks import meta_tracing


def _functions(owner: object, names: str) -> frozenset[Callable[..., Any]]:
    """The functions with these names that the installed torch has."""
    return frozenset(getattr(owner, name) for name in names.split() if hasattr(owner, name))


_FACTORIES = _functions(
    torch,
    "arange as_tensor asarray bartlett_window blackman_window empty empty_permuted empty_strided eye full "
    "hamming_window hann_window kaiser_window linspace logspace ones rand randint randn randperm range "
    "scalar_tensor sparse_coo_tensor tensor tril_indices triu_indices zeros",
) | _functions(torch.fft, "fftfreq rfftfreq")
_DRAWS = _functions(
    torch, "bernoulli multinomial normal poisson rand rand_like randint randint_like randn randn_like randperm"
) | _functions(Tensor, "bernoulli multinomial")
_DRAWS_IN_PLACE = _functions(Tensor, "bernoulli_ cauchy_ exponential_ geometric_ log_normal_ normal_ random_ uniform_")
_UNKNOWN = _functions(torch, "empty empty_like empty_permuted empty_strided")  # their results have no known value
_DROPOUTS = _functions(F, "alpha_dropout dropout dropout1d dropout2d dropout3d feature_alpha_dropout")
_NARROWING = _functions(Tensor, "bfloat16 float half")
_STATISTICS = _functions(F, "batch_norm instance_norm")
_NARROW = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
}


class RandomDraws:
    """The random numbers of one run of a reference, in the order of its calls."""

    def __init__(self, given: Sequence[Tensor] | None = None, dtype: torch.dtype | None = None) -> None:
        self._given = given  # None: draw and record
        self._dtype = dtype  # of floating draws, if the task's precision overrides that of the file
        self._next = 0
        self.taken: list[Tensor] = []

    def draw(self, call: Callable[[], Tensor]) -> Tensor:
        """The next random tensor: drawn by `call` and recorded, or taken from the given ones."""
        if self._given is not None:
            return self._take()
        drawn = call()
        if self._dtype is not None and drawn.is_floating_point():
            drawn = drawn.to(self._dtype)
        self.taken.append(drawn)
        return drawn

    def fill(self, target: Tensor, call: Callable[[], Tensor]) -> Tensor:
        """Fill a tensor in place: with the numbers that `call` draws, which are recorded, or with given ones."""
        if self._given is not None:
            return target.copy_(self._take())
        call()
        self.taken.append(target.clone())
        return target

    def _take(self) -> Tensor:
        assert self._given is not None
        if self._next >= len(self._given):
            raise TaskError("the reference draws more random numbers than in its first run; pass them as inputs.")
        self._next += 1
        return self._given[self._next - 1]


@dataclass
class ReferenceBehaviour:
    """Effects of a traced run of a reference that later runs must intercept."""

    device: bool = False  # it created a tensor without naming a device
    cuda: bool = False  # it named the device "cuda"
    dtype: bool = False  # it named a narrow floating type, or created a tensor of the default one
    dropout: bool = False  # it applied dropout
    recurrent: bool = False  # it has RNN layers, which are slow to trace step by step
    random: set[str] = field(default_factory=set)  # random operators whose results cannot be passed in
    statistics: list[Tensor] = field(default_factory=list)  # running statistics, whose version counters do not change


def _written_statistics(args: Sequence[Any], kwargs: Mapping[str, Any], by_default: bool) -> list[Tensor]:
    """The running statistics that a normalisation updates; `by_default`: if it is not told whether to."""
    training = args[5] if len(args) > 5 else kwargs.get("training", kwargs.get("use_input_stats", by_default))
    given = (*args[1:3], kwargs.get("running_mean"), kwargs.get("running_var"))
    return [t for t in given if isinstance(t, Tensor)] if training else []


class TorchInterceptor(TorchFunctionMode):
    """A torch mode that records and changes the calls of a reference, as the module docstring says."""

    def __init__(
        self,
        device: torch.device,
        *,
        wide: bool = False,
        draws: RandomDraws | None = None,
        habits: ReferenceBehaviour | None = None,
        dataless: bool = False,
    ) -> None:
        super().__init__()
        self._device = device
        self._dataless = device.type == "meta" or dataless
        self._wide = wide
        self._draws = draws
        self._habits = habits if habits is not None else ReferenceBehaviour()
        self.drawing = False  # read by RandomOperatorDetector

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Called by torch instead of `func`, with this mode switched off."""
        kwargs = dict(kwargs or {})
        if func in _DROPOUTS or func is torch.dropout or func is F.scaled_dot_product_attention:
            args, kwargs = self._without_dropout(func, args, kwargs)
        if func in _STATISTICS:
            self._habits.statistics += _written_statistics(args, kwargs, func is F.instance_norm)
        args, kwargs = self._placed(func, args, kwargs)
        func, args, kwargs = self._widened(func, args, kwargs)
        if self._dataless:
            is_known, value = meta_tracing.read_constant(func, args, kwargs)
            if is_known:
                return value
        if func in meta_tracing.RNN_FUNCTIONS:
            self._habits.recurrent = True
            if self._dataless:
                return meta_tracing.rnn_outputs(func, args)
        result = self._called(func, args, kwargs)
        if self._dataless and func not in _DRAWS and func not in _DRAWS_IN_PLACE and func not in _UNKNOWN:
            meta_tracing.track_constant(func, args, kwargs, result, func in _FACTORIES)
        return result

    def _called(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of the call, with random numbers passed in and the default type widened."""
        if self._draws is None or not (func in _DRAWS or func in _DRAWS_IN_PLACE):
            result = func(*args, **kwargs)
        else:
            result = self._drawn(self._draws, func, args, kwargs)
        if func in _FACTORIES and "dtype" not in kwargs and isinstance(result, Tensor):
            result = self._widened_default(result)
        return result

    def _drawn(self, draws: RandomDraws, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        self.drawing = True
        try:
            if func in _DRAWS_IN_PLACE:
                return draws.fill(args[0], lambda: func(*args, **kwargs))
            return draws.draw(lambda: func(*args, **kwargs))
        finally:
            self.drawing = False

    def _without_dropout(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with dropout switched off; records a dropout that would have had an effect."""
        if func is F.scaled_dot_product_attention:
            names: tuple[str, ...] = ("query", "key", "value", "attn_mask", "dropout_p")
        else:
            names = ("input", "p", "train" if func is torch.dropout else "training", "inplace")
        named = dict(zip(names, args, strict=False)) | kwargs
        if func is F.scaled_dot_product_attention:
            self._habits.dropout |= named.get("dropout_p", 0.0) > 0
            return args[len(names) :], named | {"dropout_p": 0.0}
        default = func in (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d)
        self._habits.dropout |= named.get("p", 0.5) > 0 and bool(named.get(names[2], default))
        return (), named | {names[2]: False}

    def _placed(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with the device of the run in place of the named one."""
        if func is Tensor.cuda:
            self._habits.cuda = True
            return args[:1], {"device": self._device}
        if func is Tensor.to and len(args) > 1 and _is_cuda(args[1]):
            self._habits.cuda = True
            args = (args[0], self._device, *args[2:])
        if _is_cuda(kwargs.get("device")):
            self._habits.cuda = True
            kwargs["device"] = self._device
        elif func in _FACTORIES and kwargs.get("device") is None and not isinstance(kwargs.get("out"), Tensor):
            self._habits.device = True
            generator = kwargs.get("generator")
            if generator is None or generator.device.type == self._device.type or self._device.type == "meta":
                kwargs["device"] = self._device
            if self._device.type == "meta":
                kwargs.pop("generator", None)
        return args, kwargs

    def _widened(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """The call with float64 in place of a narrower floating type."""
        if func is Tensor.cuda:
            return Tensor.to, args, kwargs
        if func in _NARROWING:
            self._habits.dtype = True
            return (Tensor.double if self._wide else func), args, kwargs
        if any(isinstance(a, torch.dtype) and a in _NARROW for a in (*args, *kwargs.values())):
            self._habits.dtype = True
            if self._wide:
                args = tuple(_NARROW.get(a, a) if isinstance(a, torch.dtype) else a for a in args)
                kwargs = {k: _NARROW.get(a, a) if isinstance(a, torch.dtype) else a for k, a in kwargs.items()}
        return func, args, kwargs

    def _widened_default(self, result: Tensor) -> Tensor:
        """A new tensor of the default floating type, widened after the rounding that the baseline has, too."""
        if result.dtype not in _NARROW:
            return result
        self._habits.dtype = True
        return result.to(_NARROW[result.dtype]) if self._wide else result


class RandomOperatorDetector(TorchDispatchMode):
    """Records random operators that `TorchInterceptor` does not see, so that their results cannot be passed in."""

    def __init__(self, intercept: TorchInterceptor, habits: ReferenceBehaviour) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._intercept = intercept
        self._habits = habits

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Asked by torch; otherwise the first operator imports torch's compiler, which takes a second or two."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Called by torch for each operator."""

        if torch.Tag.nondeterministic_seeded in func.tags and not self._intercept.drawing:
            name = str(func.overloadpacket).removeprefix("aten.")
            # Fused attention has the tag because of its dropout, which TorchInterceptor switched off.
            if "scaled_dot_product" not in name and "flash_attention" not in name:
                self._habits.random.add(name)
        return func(*args, **(kwargs or {}))


def _is_cuda(device: object) -> bool:
    return isinstance(device, str | torch.device) and str(device).startswith("cuda")
