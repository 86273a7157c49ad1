"""Java: files declare their package, imports name classes by package, a package sees itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from coatcheck_codegraph.facts import FileFacts, Import
from coatcheck_codegraph.language import Inside, Language, Outside
from coatcheck_codegraph.languages.java_extraction import extract
from coatcheck_codegraph.namespaces import NamespacesByProject
from coatcheck_codegraph.project import Project

_JAVA_LANG: Final = (
    "AbstractMethodError ArithmeticException ArrayIndexOutOfBoundsException ArrayStoreException "
    "AssertionError AutoCloseable Boolean Byte CharSequence Character Class ClassCastException "
    "ClassLoader ClassNotFoundException CloneNotSupportedException Cloneable Comparable Deprecated "
    "Double Enum Error Exception ExceptionInInitializerError Float FunctionalInterface "
    "IllegalAccessError IllegalAccessException IllegalArgumentException "
    "IllegalMonitorStateException IllegalStateException IllegalThreadStateException "
    "IndexOutOfBoundsException InheritableThreadLocal InstantiationException Integer InternalError "
    "InterruptedException Iterable LinkageError Long Math Module ModuleLayer "
    "NegativeArraySizeException NoClassDefFoundError NoSuchFieldError NoSuchFieldException "
    "NoSuchMethodError NoSuchMethodException NullPointerException Number NumberFormatException "
    "Object OutOfMemoryError Override Package Process ProcessBuilder ProcessHandle Readable Record "
    "ReflectiveOperationException Runnable Runtime RuntimeException SafeVarargs SecurityException "
    "SecurityManager Short StackOverflowError StackTraceElement StackWalker StrictMath String "
    "StringBuffer StringBuilder StringIndexOutOfBoundsException SuppressWarnings System Thread "
    "ThreadDeath ThreadGroup ThreadLocal Throwable TypeNotPresentException UnsatisfiedLinkError "
    "UnsupportedClassVersionError UnsupportedOperationException VerifyError VirtualMachineError "
    "Void"
)
"""What ``java.lang`` has."""

_OF_OBJECT: Final = "clone equals finalize getClass hashCode notify notifyAll toString wait"
"""Methods that every object has."""

_PLATFORM: Final = frozenset({"jakarta", "java", "javax", "jdk"})
"""What the packages of the platform begin with, wherever they are named in full."""

_namespaces = NamespacesByProject("java")


class JavaRules:
    """Names are found by package, whatever folder the sources lie in."""

    def target(self, project: Project, file: FileFacts, imported: Import) -> Inside | Outside:
        names = tuple(imported.module.split("."))
        namespaces = _namespaces(project)
        if imported.kind == "package" and names in namespaces.files:
            return Inside(package=names)
        found = namespaces.find(names, file.path)
        if found is not None and (found.item or imported.kind == "package"):
            return found
        return Outside(_package_in(names, imported.kind))

    def neighbours(self, project: Project, file: FileFacts) -> Iterable[tuple[str, ...]]:
        return _namespaces(project).beside(file.package)

    def root(self, project: Project, file: FileFacts, name: str) -> Inside | Outside | None:
        del file  # a name with its package before it means the same everywhere
        if (name,) in _namespaces(project).known:
            return Inside(package=(name,))
        return Outside(name) if name in _PLATFORM else None


def _package_in(names: tuple[str, ...], kind: str) -> str:
    """The package of an imported class: what comes before the first name with a capital."""
    for at, name in enumerate(names):
        if at and name[:1].isupper():
            return ".".join(names[:at])
    return ".".join(names if kind == "package" or len(names) == 1 else names[:-1])


LANGUAGE: Final = Language(
    name="java",
    suffixes=(".java",),
    extract=extract,
    rules=JavaRules(),
    implicit_self=True,
    constructors=("{}",),
    calls_variables=False,
    types_by_star=True,
    builtins=frozenset(f"{_JAVA_LANG} {_OF_OBJECT}".split()),
)
