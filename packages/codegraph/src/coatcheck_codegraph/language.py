"""What the analysis has to know of a language."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from coatcheck_codegraph.facts import FileFacts, Import

if TYPE_CHECKING:
    from coatcheck_codegraph.project import Project


def words(text: str) -> tuple[str, ...]:
    """The words of a text, in order: what lies between blanks and line breaks."""
    return tuple(text.split())


@dataclass(frozen=True, slots=True)
class Inside:
    """An import of what is in the archive: these files (a package may have several), or a
    namespace (``package``, as ``FileFacts.package`` has it). ``item`` is what of them the import
    names, if the module's name itself ends with it (Java's ``a.b.C``, Rust's ``use a::b::C``)."""

    paths: tuple[str, ...] = ()
    package: tuple[str, ...] = ()
    item: str = ""


@dataclass(frozen=True, slots=True)
class Outside:
    """An import of what is not in the archive; ``module`` is the name that people know it by."""

    module: str


class Rules(Protocol):
    """How names are found in a language."""

    def target(self, project: Project, file: FileFacts, imported: Import) -> Inside | Outside:
        """What an import names."""

    def neighbours(
        self, project: Project, file: FileFacts
    ) -> Iterable[str] | Iterable[str | tuple[str, ...]]:
        """The paths of files whose declarations are seen without an import, nearest first: those of
        the same package in Go and Java, of included headers in C.

        A tuple holds files that are equally near: a name that several of them declare is ambiguous,
        and means nothing.
        """

    def root(self, project: Project, file: FileFacts, name: str) -> Inside | Outside | None:
        """What a word means that begins a path and is no name: ``crate`` in Rust, ``global::``."""


@dataclass(frozen=True, slots=True)
class Language:
    """A language: how to recognise, parse and resolve it.

    ``extract`` gets a path and the bytes of a file. ``implicit_self`` says that a bare name may be
    a member of the class around it. ``constructors`` are the names of methods that run when a class
    is called; ``{}`` in one stands for the class's own name. ``builtins`` are names that need no
    import: calls of them lead out of the archive.

    ``calls_variables``: a variable may hold what is called; where none can (Java), a name that is
    called is not looked for among them. ``last_wins``: of several declarations of one name in one
    place, the last counts, not the first. ``private_prefix``: names that begin with it are not
    brought by a wildcard import. ``submodule`` finds what is inside of a module without
    being declared there. ``types_by_star``: a class that is found nowhere comes from an external
    module that everything is imported from, if there is one; so does a function, if the import's
    kind is ``static`` (Java, C#). ``extension_methods``: a function with a receiver belongs to the
    class around it, and can be called as if it were the receiver's, where that has none (C#).
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
