"""C#: namespaces that any file can extend, and that see themselves without an import."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from typing import Final
from weakref import WeakKeyDictionary

from coatcheck_codegraph.facts import FileFacts, Import
from coatcheck_codegraph.language import Inside, Language, Outside
from coatcheck_codegraph.languages.csharp_extraction import GLOBAL, extract
from coatcheck_codegraph.namespaces import Namespace, NamespacesByProject, prefixes
from coatcheck_codegraph.project import Project

_EVERYWHERE: Final = (
    "bool byte char decimal double dynamic float int long nint nuint object sbyte short string "
    "uint ulong ushort "
    "Equals GetHashCode GetType MemberwiseClone ReferenceEquals ToString"
)
_SYSTEM: Final = (
    "Action Activator AppContext AppDomain ArgumentException ArgumentNullException "
    "ArgumentOutOfRangeException ArithmeticException Array ArraySegment Attribute BitConverter "
    "Boolean Buffer Byte Char Console Convert DateTime DateTimeOffset DBNull Decimal Delegate "
    "Dictionary DivideByZeroException Double Enum Environment EventArgs EventHandler Exception "
    "FormatException Func GC Guid HashSet IComparable IDisposable IEnumerable IEnumerator "
    "IEquatable IntPtr Int16 Int32 Int64 IndexOutOfRangeException InvalidCastException "
    "InvalidOperationException Lazy List Math MemoryExtensions NotImplementedException "
    "NotSupportedException NullReferenceException Nullable Object ObjectDisposedException "
    "OperationCanceledException OutOfMemoryException OverflowException Predicate Random "
    "ReadOnlySpan SByte Single Span String StringComparer StringComparison Task TimeSpan Tuple "
    "Type UInt16 UInt32 UInt64 UIntPtr Uri ValueTask ValueTuple Version WeakReference"
)
"""What nearly every file has by ``using System``, which a project may say for all of its files."""

_PLATFORM: Final = frozenset({"Microsoft", "System"})
"""What the namespaces of the platform begin with, wherever they are named in full."""

_namespaces = NamespacesByProject("csharp")


class CSharpRules:
    """Names are found in the namespace of a file, in those around it, and in what it uses."""

    def __init__(self) -> None:
        self._for_all: WeakKeyDictionary[Project, tuple[tuple[str, Namespace], ...]] = (
            WeakKeyDictionary()
        )

    def target(self, project: Project, file: FileFacts, imported: Import) -> Inside | Outside:
        names = tuple(imported.module.split("."))
        namespaces = _namespaces(project)
        # A name may leave out the namespaces that its file is in.
        for around in (*prefixes(file.package), ()):
            full = (*around, *names)
            if imported.kind in ("", "global"):
                added_to = full[0] in _PLATFORM and full not in namespaces.files
                if full in namespaces.known and not added_to:
                    return Inside(package=full)
            elif (found := namespaces.find(full, file.path)) is not None:
                return found
        used_whole = imported.kind in ("", "global") or len(names) == 1
        return Outside(".".join(names if used_whole else names[:-1]))

    def neighbours(self, project: Project, file: FileFacts) -> Iterable[tuple[str, ...]]:
        namespaces = _namespaces(project)
        used = [
            namespace
            for folder, namespace in self._used_by_all(project)
            if folder == "/" or file.path.startswith(folder)
        ]
        return namespaces.beside(file.package, *prefixes(file.package), (), *used)

    def root(self, project: Project, file: FileFacts, name: str) -> Inside | Outside | None:
        known = _namespaces(project).known
        if name.startswith(GLOBAL):
            first = name.removeprefix(GLOBAL)
            return Inside(package=(first,)) if (first,) in known else Outside(first)
        if name in _PLATFORM and file.package[:1] != (name,):
            # An archive that adds to these does not have all of them.
            return Outside(name)
        for around in (*prefixes(file.package), ()):
            if (*around, name) in known:
                return Inside(package=(*around, name))
        return None

    def _used_by_all(self, project: Project) -> tuple[tuple[str, Namespace], ...]:
        """The namespaces that ``global using`` opens, and the folder below which it does: which
        files are built together, the archive does not say."""
        found = self._for_all.get(project)
        if found is None:
            found = self._for_all[project] = tuple(
                (posixpath.dirname(path).rstrip("/") + "/", tuple(imported.module.split(".")))
                for path, facts in project.files.items()
                if facts.language == "csharp"
                for imported in facts.imports
                if imported.kind == "global"
            )
        return found


LANGUAGE: Final = Language(
    name="csharp",
    suffixes=(".cs",),
    extract=extract,
    rules=CSharpRules(),
    implicit_self=True,
    constructors=("{}",),
    types_by_star=True,
    extension_methods=True,
    builtins=frozenset([*_EVERYWHERE.split(), *_SYSTEM.split()]),
)
