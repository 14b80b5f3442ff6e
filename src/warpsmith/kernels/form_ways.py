"""Ways: the kernels that a form can write for one task, where it has more than one.

The form itself writes the kernel that it expects to be the fastest. A search can try the others: a way is called like
the strategy of the catalogue that its kernel carries out, and has parameters where the kernel has numbers to choose.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from warpsmith.backends.tunables import tunables

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
Settings = Mapping[str, str]
"""Values of a way's parameters, by name."""


@dataclass(frozen=True)
class WayParameter:
    """A number that a way leaves open."""

    name: str  # "columns"
    values: tuple[str, ...]  # what the form itself would take comes first
    macro: str = ""  # the tunable that holds the value; a source without the tunable has the first value
    constant: str = ""  # a pattern with one group, for sources that hold the value as a constant

    def value_in(self, code: str, macros: Settings) -> str | None:
        """Its value in a source without comments; None for a value that the way does not have."""
        value = macros.get(self.macro)
        if value is None:
            found = re.search(self.constant, code) if self.constant else None
            value = found[1] if found else self.values[0]
        return value if value in self.values else None


@dataclass(frozen=True)
class FormWay:
    """One way to write the kernel of a task."""

    name: str  # of a strategy; "" for the plain kernel
    mark: str  # a pattern that the code of this way has, and no other
    write: Callable[[Settings], str] = field(repr=False, compare=False)
    parameters: tuple[WayParameter, ...] = ()
    microseconds: float | None = None  # what it is expected to take; None: no estimate

    def source(self, given: Settings | None = None) -> str:
        """The kernel; parameters without a value, or with a value that they do not have, get their first one."""
        known = given or {}
        return self.write(
            {p.name: value if (value := known.get(p.name, "")) in p.values else p.values[0] for p in self.parameters}
        )

    def settings_in(self, source: str) -> Settings | None:
        """The values that a source of this way has; None for another source."""
        code = code_of(source)
        if not re.search(self.mark, code):
            return None
        macros = {each.name: each.values[0] for each in tunables(source)}
        found = {p.name: p.value_in(code, macros) for p in self.parameters}
        kept = {name: value for name, value in found.items() if value is not None}
        return kept if len(kept) == len(found) else None


def code_of(source: str) -> str:
    """A source without its comments."""
    return _COMMENT.sub("", source).strip()
