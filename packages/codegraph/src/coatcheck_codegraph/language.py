"""The interface of a language for the analysis."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from coatcheck_codegraph.facts import FileFacts, Import

if TYPE_CHECKING:
    from coatcheck_codegraph.project import Project


def words(text: str) -> tuple[str, ...]:
    """The words of a text, separated by white space, in order."""
    return tuple(text.split())


@dataclass(frozen=True, slots=True)
class Inside:
    """An import of something in the archive: these files (a package may have several), or a
    namespace (``package``, as in ``FileFacts.package``). ``item`` is the imported name, if the
    module's name ends with it (Java's ``a.b.C``, Rust's ``use a::b::C``)."""

    paths: tuple[str, ...] = ()
    package: tuple[str, ...] = ()
    item: str = ""


@dataclass(frozen=True, slots=True)
class Outside:
    """An import of something outside the archive; ``module`` is the name that people use for it."""

    module: str


class Rules(Protocol):
    """The rules by which names are found in a language."""

    def target(self, project: Project, file: FileFacts, imported: Import) -> Inside | Outside:
        """The target of an import."""

    def neighbours(
        self, project: Project, file: FileFacts
    ) -> Iterable[str] | Iterable[str | tuple[str, ...]]:
        """The paths of files whose declarations are visible without an import, nearest first: those
        of the same package in Go and Java, of included headers in C.

        A tuple holds files that are equally near: a name that several of them declare is ambiguous,
        and means nothing.
        """

    def root(self, project: Project, file: FileFacts, name: str) -> Inside | Outside | None:
        """The meaning of a keyword that begins a path: ``crate`` in Rust, ``global::`` in C#."""


@dataclass(frozen=True, slots=True)
class Language:
    """A language: how to recognise, parse and resolve it.

    ``extract`` gets a path and the bytes of a file. ``implicit_self``: a bare name may be a member
    of the class around it. ``constructors`` are the names of methods that run when a class is
    called; ``{}`` stands for the class's own name. ``builtins`` are names that need no import:
    calls of them lead out of the archive.

    ``calls_variables``: a variable can be called; if not (Java), a called name is not looked up
    among variables. ``last_wins``: of several declarations of one name in one place, the last
    counts, not the first. ``private_prefix``: a wildcard import leaves out names with this prefix.
    ``submodule`` finds members of a module that are not declared in it. ``types_by_star``: a class
    that is not found comes from the external module of a wildcard import, if there is one; so does
    a function, if the import's kind is ``static`` (Java, C#). ``extension_methods``: a function
    with a receiver belongs to the class around it, and can be called as a method of the receiver,
    if that has none of this name (C#).
    """

    name: str
    suffixes: tuple[str, ...]
    extract: Callable[[str, bytes], FileFacts]
    rules: Rules
    implicit_self: bool = False
    constructors: tuple[str, ...] = ()
    builtins: frozenset[str] = field(default_factory=frozenset)
    filenames: tuple[str, ...] = ()
    calls_variables: bool = True
    last_wins: bool = False
    private_prefix: str = ""
    submodule: Callable[[Project, Inside, str], Inside | None] | None = None
    types_by_star: bool = False
    extension_methods: bool = False
