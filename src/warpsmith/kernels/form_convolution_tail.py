"""A convolution followed by element-wise operations that need nothing but the value: ReLU, GELU, scaling by numbers.

Two kernels of the device library apply a function to their sums before they are stored. This form takes one of them
where it should take no longer than the fastest kernel for the convolution and a pass over its result together.
Elsewhere the task is done in parts.
"""

from __future__ import annotations

from warpsmith.kernels.convolution_bias import with_bias
from warpsmith.kernels.convolution_choice import pass_microseconds
from warpsmith.kernels.convolution_ways import convolution_ways
from warpsmith.kernels.form_convolution import SumFunction, convolution, read_convolution, sizes_of
from warpsmith.kernels.form_tail import Tail, divide
from warpsmith.kernels.form_task import FormKernel, FormTask, require
from warpsmith.kernels.form_ways import FormWay
from warpsmith.lowering.emitter import nest

_CONVOLUTIONS = ("convolution",)


def convolution_with_tail(task: FormTask) -> FormKernel:
    """One convolution and element-wise operations, by the kernel that should be the fastest."""
    head, ways = _ways(task)
    own = convolution(head)
    alone = next((way.microseconds for way in convolution_ways(head) if way.source() == own.source), None)
    found = read_convolution(head, head.steps[0], head.tensor(head.steps[0].argument(0)).dims)
    if alone is not None:
        require((ways[0].microseconds or 0.0) <= alone + pass_microseconds(sizes_of(head, found)))
    return FormKernel(f"{own.form}, then element-wise operations", ways[0].source())


def convolution_tail_ways(task: FormTask) -> tuple[FormWay, ...]:
    """The ways that apply a function to their sums."""
    return _ways(task)[1]


def _ways(task: FormTask) -> tuple[FormTask, tuple[FormWay, ...]]:
    """The convolution alone, and the ways for the whole task, the fastest first."""
    head, tail = divide(with_bias(task), _CONVOLUTIONS)
    require(len(head.steps) == 1 and tail.is_local)
    ways = [way for way in convolution_ways(head, _after(tail)) if way.microseconds is not None]
    require(bool(ways))
    return head, tuple(sorted(ways, key=lambda way: way.microseconds or 0.0))


def _after(tail: Tail) -> SumFunction:
    """The function as the library takes it."""
    function = tail.function()
    given = tail.given(function)
    members = [f"{each.ctype} {each.name};" for each in given]
    known = ["struct Given {", *nest(members), "} given;"] if given else []
    return SumFunction(
        "\n".join(
            [
                *filter(None, [tail.context.prelude()]),
                "// What follows the convolution, for one element of its result.",
                "struct End {",
                *nest([*known, *function]),
                "};",
            ]
        ),
        f"End{{{{{', '.join(each.name for each in given)}}}}}" if given else "End()",
    )
