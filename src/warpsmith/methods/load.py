"""Loads a method by name or from a user's file, and makes ablated methods.

A user's file is executed: it is trusted like any program of its user. Its method is checked before a run begins. An
ablated method lacks parts, to measure their effect, as in the ablations of the cuPilot paper.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from warpsmith.methods.check import method_errors
from warpsmith.model.errors import TaskError, UsageError
from warpsmith.model.method import Method, MethodOperator, PopulationSpec, Product, Show, Stage
from warpsmith.populations.create import create
from warpsmith.system.plugins import plugins
from warpsmith.tasks.user_code import execute

PACKAGE = "warpsmith.methods"
DEFAULT = "cupilot"
"""The default method."""

ATTRIBUTES = ("PLUGIN", "METHOD")  # names of the method in a file
TEMPLATE_SUFFIX = ".j2"  # of a wording that is a file; others are templates that come with Warpsmith


def methods() -> dict[str, Method]:
    """All known methods by name, in alphabetical order."""
    return dict(sorted(plugins(PACKAGE).items()))


def load(name_or_path: str) -> Method:
    """The method of that name, or the one a `.py` file declares, with the paths of its wordings made absolute."""
    if name_or_path in methods():
        return methods()[name_or_path]
    if not _is_path(name_or_path):
        known = ", ".join(methods())
        raise UsageError(f"unknown method {name_or_path!r}; known: {known}; or name a .py file that declares one.")
    path = Path(name_or_path)
    method = _declared(path)
    for fault in method_errors(method):
        raise UsageError(f"{path}: the method {fault}.")
    if method.name in methods():
        raise UsageError(
            f"{path}: the method's name {method.name!r} is that of a known one; choose another, so that results can "
            "be told apart."
        )
    return _with_wordings_found(method, path)


def _is_path(name_or_path: str) -> bool:
    return name_or_path.endswith(".py") or Path(name_or_path).name != name_or_path


def _declared(path: Path) -> Method:
    module = _executed(path)
    for attribute in ATTRIBUTES:
        declared = getattr(module, attribute, None)
        if isinstance(declared, Method):
            return declared
        if declared is not None:
            kind = type(declared).__name__
            raise UsageError(f"{path}: {attribute} is of type {kind}; make it a warpsmith.model.method.Method.")
    raise UsageError(f"{path} declares no method; write METHOD = Method(...) in it.")


def _executed(path: Path) -> object:
    text = _read(path)
    try:
        return execute(path, text).module
    except TaskError as error:
        if isinstance(error.__cause__, SystemExit):
            raise UsageError(f"{path}: executing it ended the program; a method's file must not exit.") from error
        raise UsageError(str(error)) from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}; name a .py file or one of: {', '.join(methods())}.") from None
    except (OSError, ValueError) as error:  # UnicodeDecodeError is a ValueError, as is a NUL in a path
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise UsageError(f"{path} cannot be read as a method: {reason}; name a .py file.") from None


def _with_wordings_found(method: Method, path: Path) -> Method:
    stages = (
        replace(stage, operators=tuple(_found(operator, path) for operator in stage.operators))
        for stage in method.stages
    )
    revise = _found(method.revise, path) if method.revise else None
    return replace(method, stages=tuple(stages), revise=revise)


def _found(operator: MethodOperator, path: Path) -> MethodOperator:
    if operator.then is not None:
        operator = replace(operator, then=_found(operator.then, path))
    if not (operator.wording.endswith(TEMPLATE_SUFFIX) or Path(operator.wording).is_absolute()):
        return operator
    template = (path.parent / operator.wording).resolve()
    if not template.is_file():
        raise UsageError(
            f"{path}: the operator {operator.name!r} is worded in {operator.wording!r}, and there is no file "
            f"{template}; write it, or name a template that comes with Warpsmith, without its ending."
        )
    return replace(operator, wording=str(template))


def with_population(method: Method, size: int | None) -> Method:
    """The method with a population of another size; a UsageError if its population has no size."""
    if size is None:
        return method
    options = {**dict(method.population.options), "size": float(size)}
    population = PopulationSpec(method.population.name, tuple(options.items()))
    create(population)
    return replace(method, population=population)


def trials_of(method: Method, epoch_size: int) -> int:
    """The trials of a run whose epochs have so many each; a UsageError if the method has no epochs."""
    shares = [stage.until.share for stage in method.stages[:-1]]
    if not shares or None in shares:
        raise UsageError(f"--epoch-size: {method.name} has no epochs; leave the option out, or choose cupilot.")
    return epoch_size * len(method.stages)


ROOFLINE = frozenset({Show.ROOFLINE, Show.STRATEGIES, Show.PROFILE})
"""The parts of a prompt that are based on the roofline: zone and floor, advice of the catalogue, profiles."""
HIDDEN = {
    "roofline": ROOFLINE,
    "retrieval": frozenset({Show.RETRIEVED, Show.PRECEDENTS}),
    "alignment": frozenset[Show](),
    "failures": frozenset({Show.FAILURES}),
    "repairs": frozenset[Show](),
    "profile": frozenset({Show.PROFILE}),
}
"""The parts that a method can be without, and what is not shown then."""


def ablated(
    method: Method,
    *,
    roofline: bool = True,
    retrieval: bool = True,
    alignment: bool = True,
    failures: bool = True,
    repairs: bool = True,
    profile: bool = True,
) -> Method:
    """The method without the parts that are False, with their names in its name."""
    kept = (roofline, retrieval, alignment, failures, repairs, profile)
    missing = [name for name, is_kept in zip(HIDDEN, kept, strict=True) if not is_kept]
    if not missing:
        return method
    hidden = frozenset(show for name in missing for show in HIDDEN[name])

    def without(operator: MethodOperator) -> MethodOperator:
        then = operator.then
        if then is not None and then.product is Product.ALIGNMENT and not alignment:
            then = then.then
        return replace(operator, shows=operator.shows - hidden, then=without(then) if then else None)

    return replace(
        method,
        name="-no-".join([method.name, *missing]),
        summary=f"{method.summary} Ablated: without {', '.join(missing)}.",
        stages=tuple(Stage(tuple(map(without, stage.operators)), stage.until) for stage in method.stages),
        revise=without(method.revise) if method.revise and repairs else None,
        repairs=method.repairs if repairs else 0,
        revise_below=method.revise_below if repairs else 0.0,
    )
