"""The possible meanings of a name: a declaration, a module, an object of a class."""

from __future__ import annotations

from dataclasses import dataclass, field

from coatcheck_codegraph.facts import Declaration
from coatcheck_codegraph.language import Outside


@dataclass(slots=True, eq=False)
class Declared:
    """A declaration in the archive, used as a value: the class or the function itself.

    There is one object for each declaration, so that identity is equality.
    """

    path: str
    index: int
    declaration: Declaration
    instance: Instance = field(init=False)

    def __post_init__(self) -> None:
        self.instance = Instance(self)


@dataclass(slots=True, eq=False)
class Instance:
    """Any object of a class. There is one ``Instance`` for each class."""

    of: Declared


@dataclass(frozen=True, slots=True)
class Module:
    """A file as an importable module."""

    path: str


@dataclass(frozen=True, slots=True)
class Package:
    """Files whose declarations are reached through one name, and the namespace (``names``), which
    may contain others."""

    paths: tuple[str, ...]
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Overloads:
    """Functions of one name, of which a call's arguments select one.

    ``levels`` are those of a class, then those of its bases, and so on; ``extensions`` the same for
    functions that are declared outside the class and called as methods.
    """

    levels: tuple[tuple[Declared, ...], ...]
    extensions: tuple[tuple[Declared, ...], ...] = ()


Entity = Declared | Instance | Module | Package | Outside | Overloads
