"""The outputs of a native task in terms of its axes.

The reference is traced in every workload, which gives the extents, and on two sets of primes, which tells an
axis from a number that happens to equal it. An extent that is neither an axis nor a constant (a sum, a product,
a quotient) becomes a derived axis: one more axis, whose value each workload gets from its own trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from warpsmith.core.errors import TaskError
from warpsmith.core.task import Dim
from warpsmith.tasks.names import as_identifier

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
