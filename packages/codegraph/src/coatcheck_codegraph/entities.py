"""What a name can mean: a declaration, a module, an object of a class."""

from __future__ import annotations

from dataclasses import dataclass, field

from coatcheck_codegraph.facts import Declaration
from coatcheck_codegraph.language import Outside


@dataclass(slots=True, eq=False)
class Declared:
    """A declaration of the archive, used as a value: the class or the function itself.

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
    """An object of a class, whichever. Its class has one of these."""

    of: Declared


@dataclass(frozen=True, slots=True)
class Module:
    """A file, as what it can be imported as."""

    path: str


@dataclass(frozen=True, slots=True)
class Package:
    """Files whose declarations are reached through one name, and a namespace below which there
    may be others."""

    paths: tuple[str, ...]
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Overloads:
    """Functions of one name: which of them a call runs, its arguments have to tell.

    ``levels`` are those of a class, then those of what it extends, and so on; ``extensions`` the
    same for functions that are declared elsewhere and called as methods.
    """

    levels: tuple[tuple[Declared, ...], ...]
    extensions: tuple[tuple[Declared, ...], ...] = ()


Entity = Declared | Instance | Module | Package | Outside | Overloads
