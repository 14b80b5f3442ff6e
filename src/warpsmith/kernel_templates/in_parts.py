"""A task in parts: a chain of operations that no single form claims, divided into stretches that have kernels.

Every stretch of the recorded operations is offered to the forms of the collection, else to the templates, as a task of
its own (`part_tasks`). The division with the fewest parts is taken, and the parts are written as one source
(`part_sources`). The same analysis says which operations have no kernel at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random

from warpsmith import kernel_templates as templates
from warpsmith.kernel_templates.part_sources import CannotCombine, WrittenPart, combined
from warpsmith.kernel_templates.part_tasks import Chain, Part, operator
from warpsmith.kernels.form_reading import changed, in_order, simplified, values
from warpsmith.kernels.form_task import FormKernel
from warpsmith.kernels.forms import form_kernel, last_kernel
from warpsmith.lowering.expressions import Unsupported
from warpsmith.model.brief import Problem
from warpsmith.model.task import CONTRACTIONS, Family, Operation, Outline
from warpsmith.strategies import plan_space

MOST_OPERATIONS = 64
"""Longer chains are not divided: the number of stretches grows with the square."""

_SCANS = ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin")
_HEAVY = CONTRACTIONS | {"convolution", *_SCANS}
_WEIGHTS = ("_softmax", "_safe_softmax")
_ATTENTION = 2  # products in attention written by hand
_WITHOUT_FORM = 3.0  # parts that a product by a template counts for besides itself: forms are several times faster
_REPAIRS = 8  # divisions that are tried where parts cannot be combined
_AROUND = 6  # operations before and after one that are looked at to find a stretch with a kernel


@lru_cache(maxsize=64)
def in_parts(problem: Problem) -> FormKernel | None:
    """A kernel of at least two parts; None where there is none, where one form does it all, or templates do better."""
    if problem.backend not in templates.BACKENDS or problem.outline is None:
        return None
    if form_kernel(problem.task, problem.contract, problem.outline, problem.arch) is not None:
        return None
    best = next(filter(None, (_Search(chain).division() for chain in _chains(problem))), None)
    if best is None or len(best.parts) < 2:
        return None
    if _template_suffices(problem, len(best.parts), any(claim.form for claim in best.claims)):
        return None
    words = "; ".join(part.words for part in best.parts)
    return FormKernel(f"in parts: {words}", best.source)


def _template_suffices(problem: Problem, parts: int, has_form: bool) -> bool:
    """Whether templates write the whole task, and no part has a form, or they need fewer passes over memory."""
    stages = templates.stage_count(problem)
    assert problem.outline is not None
    return stages > 0 and (not has_form or (stages < parts and problem.outline.family is not Family.MATMUL))


def _chains(problem: Problem) -> Iterator[Chain]:
    """The operations in orders to divide: views where they are needed, as recorded, depth first from the outputs."""
    assert problem.outline is not None
    outline = simplified(problem.outline)
    if not outline.nodes or len(outline.nodes) > MOST_OPERATIONS or not _is_plain(problem, outline):
        return
    orders = (_with_late_views(outline), outline, in_order(outline))
    for nodes in dict.fromkeys(order.nodes for order in orders):
        yield Chain(problem, replace(outline, nodes=nodes))


def _with_late_views(outline: Outline) -> Outline:
    """The outline with each view directly before the first operation that reads it, views of inputs last."""
    found: list[Operation] = []

    def is_of_input(node: Operation) -> bool:
        return operator(node) in _VIEWS and not any(name.startswith("%") for name in values(node))

    for node in reversed(outline.nodes):
        place = 0
        if operator(node) in _VIEWS:
            made = node.results[0].name
            place = next((n for n, later in enumerate(found) if made in values(later)), 0)
            while place and not is_of_input(node) and is_of_input(found[place - 1]):
                place -= 1
        found.insert(place, node)
    return replace(outline, nodes=tuple(found))


def _is_plain(problem: Problem, outline: Outline) -> bool:
    """Whether every output is the result of an operation, and no operation writes what another may read."""
    made = {result.name for node in outline.nodes for result in node.results}
    different = len(set(outline.outputs)) == len(outline.outputs) == len(problem.task.outputs)
    return different and made.issuperset(outline.outputs) and not any(map(changed, outline.nodes))


# --- which stretches have a kernel ---


@dataclass(frozen=True)
class _Claim:
    """A stretch of operations that a form or a template takes."""

    part: Part
    form: FormKernel | None  # None: the templates write it
    cost: tuple[float, float, int]  # parts, bytes between parts, parts by templates


@dataclass(frozen=True)
class _Division:
    """Stretches that make up the whole, with their kernels."""

    claims: tuple[_Claim, ...]
    parts: tuple[WrittenPart, ...]
    source: str


def _sum(*costs: tuple[float, float, int]) -> tuple[float, float, int]:
    return sum(c[0] for c in costs), sum(c[1] for c in costs), sum(c[2] for c in costs)


@dataclass
class _Search:
    """Finds stretches of a chain that have kernels, and the cheapest division into them."""

    chain: Chain
    _claims: dict[tuple[int, int], _Claim | None] = field(default_factory=dict)
    _without_form: set[tuple[int, int]] = field(default_factory=set)
    _refused: set[tuple[int, int]] = field(default_factory=set)

    def division(self) -> _Division | None:
        """The cheapest division whose parts can be combined."""
        for _ in range(_REPAIRS):
            claims = self._cheapest()
            if claims is None:
                return None
            made = self._written(claims)
            if made is not None:
                return made
        return None

    def _cheapest(self) -> tuple[_Claim, ...] | None:
        count = len(self.chain.nodes)
        best: dict[int, tuple[tuple[float, float, int], tuple[_Claim, ...]]] = {0: ((0.0, 0.0, 0), ())}
        for begin in range(count):
            if begin not in best:
                continue
            cost, before = best[begin]
            for end in self._ends(begin):
                claim = None if (begin, end) == (0, count) else self._claim(begin, end)
                if claim is not None:
                    total = _sum(cost, claim.cost)
                    if end not in best or total < best[end][0]:
                        best[end] = total, (*before, claim)
        return best[count][1] if count in best else None

    def _ends(self, begin: int) -> Iterator[int]:
        """Where a stretch may end: with at most one heavy operation, but for attention and pairs of convolutions."""
        heavy: list[str] = []
        weights = False
        for place, node in enumerate(self.chain.nodes[begin:], begin):
            name = operator(node)
            weights |= name in _WEIGHTS
            if _is_heavy(name):
                heavy.append(name)
            if len(heavy) > _ATTENTION:
                return
            pair = heavy == ["convolution", "convolution"] and place == begin + 1
            if len(heavy) <= 1 or (weights and "convolution" not in heavy) or pair:
                yield place + 1

    def _claim(self, begin: int, end: int) -> _Claim | None:
        key = (begin, end)
        if key not in self._claims:
            self._claims[key] = self._found(begin, end)
        return self._claims[key]

    def _found(self, begin: int, end: int) -> _Claim | None:
        part = self.chain.part(begin, end) if (begin, end) not in self._refused else None
        if part is None:
            return None
        problem = part.problem
        assert problem.outline is not None
        form = None
        if (begin, end) not in self._without_form:
            form = form_kernel(problem.task, problem.contract, problem.outline, problem.arch)
            if form is None and not templates.stage_count(problem):
                form = last_kernel(problem.task, problem.contract, problem.outline)
        if form is None and not templates.stage_count(problem):
            return None
        names = [operator(node) for node in self.chain.nodes[begin:end]]
        slow = form is None and problem.backend == "cuda" and any(name in CONTRACTIONS for name in names)
        largest = max(
            self.chain.problem.task.workloads, key=lambda w: sum(s.numel(w.sizes) for s in problem.task.tensors)
        )
        between = [name for name in part.read if name in self.chain.made]
        between += [name for name in part.written if name not in self.chain.outline.outputs]
        nbytes = sum(self.chain.nbytes(name, largest) for name in between)
        return _Claim(part, form, (1.0 + (_WITHOUT_FORM if slow else 0.0), float(nbytes), 0 if form else 1))

    # --- the kernels of the parts ---

    def _written(self, claims: tuple[_Claim, ...]) -> _Division | None:
        """The division with its source; None, and one claim less, where a part cannot be written or combined."""
        parts = []
        for claim in claims:
            source = claim.form.source if claim.form else _by_template(claim.part.problem)
            if source is None:
                self._give_up(claim)
                return None
            words = claim.form.form if claim.form else _words(self.chain.nodes[claim.part.begin : claim.part.end])
            parts.append(WrittenPart(claim.part, words, source))
        try:
            return _Division(claims, tuple(parts), combined(self.chain, parts))
        except CannotCombine as conflict:
            replaceable = [claims[place] for place in conflict.places if self._has_template(claims[place])]
            self._give_up(replaceable[-1] if replaceable else claims[conflict.places[-1]])
            return None

    def _has_template(self, claim: _Claim) -> bool:
        names = {operator(node) for node in self.chain.nodes[claim.part.begin : claim.part.end]}
        return claim.form is not None and not names & CONTRACTIONS and templates.stage_count(claim.part.problem) > 0

    def _give_up(self, claim: _Claim) -> None:
        """Leave out the form of a stretch, or the stretch if no form has written it."""
        key = (claim.part.begin, claim.part.end)
        (self._without_form if claim.form else self._refused).add(key)
        del self._claims[key]

    # --- what has no kernel ---

    def has_kernel(self, place: int) -> bool:
        """Whether some stretch around an operation has a kernel."""
        for size in range(1, _AROUND + 2):
            for begin in range(max(0, place - size + 1), place + 1):
                if begin + size in self._ends(begin) and self._claim(begin, begin + size) is not None:
                    return True
        return False


def _is_heavy(name: str) -> bool:
    return name in _HEAVY or "_pool" in name


def _by_template(problem: Problem) -> str | None:
    """The source of the plan that the first kernel of a search has, for a part."""
    abilities = templates.abilities(problem)
    plan = (
        plan_space.initial(abilities, Random(0), (), risky=templates.risky_strategies(problem)) if abilities else None
    )
    try:
        return None if plan is None else templates.translate(problem, plan)
    except Unsupported:
        return None


_PLAIN_WORDS = {
    "native_batch_norm": "batch normalisation",
    "native_layer_norm": "layer normalisation",
    "native_group_norm": "group normalisation",
    "_softmax": "softmax",
    "_log_softmax": "log-softmax",
    "relu": "ReLU",
    "gelu": "GELU",
    "silu": "SiLU",
}
_VIEWS = frozenset(
    (
        *("view", "_unsafe_view", "reshape", "expand", "unsqueeze", "squeeze", "flatten"),
        *("t", "transpose", "permute", "clone", "contiguous", "alias", "detach"),
    )
)


def _words(nodes: tuple[Operation, ...]) -> str:
    """The operations of a part by a template, for people: "batch normalisation and ReLU"."""
    names = [operator(node) for node in nodes]
    told = list(dict.fromkeys(_PLAIN_WORDS.get(name, name.strip("_")) for name in names if name not in _VIEWS))
    told = told or ["copy in another order"]
    return told[0] if len(told) == 1 else f"{', '.join(told[:-1])} and {told[-1]}"


# --- what the user is told ---


def obstacle(problem: Problem) -> str:
    """Why a task has no kernel, as a part of a sentence: the operations that neither a form nor a template knows."""
    if problem.backend not in templates.BACKENDS:
        return "templates and forms write C++ and CUDA C++ only"
    if problem.outline is None or not problem.outline.nodes:
        return "its operations could not be recorded"
    outline = simplified(problem.outline)
    written = [node for node in outline.nodes if changed(node)]
    if written:
        return f"{_listed(written)} may change a tensor that is read again"
    if len(outline.nodes) > MOST_OPERATIONS:
        return f"it has {len(outline.nodes)} operations, and only chains of at most {MOST_OPERATIONS} are divided"
    search = _Search(Chain(problem, outline))
    without = [node for place, node in enumerate(outline.nodes) if not search.has_kernel(place)]
    if without:
        device = f" on {problem.arch}" if problem.backend == "cuda" else ""
        return f"neither a form nor a template is for {_listed(without)} in the {problem.task.precision} class{device}"
    return "each of its operations has a form or a template, but not in this combination"


def _listed(nodes: list[Operation]) -> str:
    return ", ".join(dict.fromkeys(node.op.rpartition(".")[0] if node.op.count(".") > 1 else node.op for node in nodes))
