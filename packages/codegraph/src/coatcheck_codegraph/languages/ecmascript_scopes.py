"""Which variable a name means, by the block it is written in.

A function without a name has no declaration that its variables could be kept with: they are kept
with the declaration around, under a name that no code can have (``app@3``), so that two callbacks
of one test file may each have an ``app`` of their own.
"""

from __future__ import annotations

from coatcheck_codegraph.facts import Ref

Meaning = str | Ref | None
"""What a name stands for: the name to put in its place, a type (of a type parameter), or something
that nothing is known of."""


class Scope:
    """A block. ``plain`` says that it is that of a declaration, whose variables keep their names;
    ``function`` that ``var`` ends here."""

    __slots__ = ("function", "names", "plain")

    def __init__(self, *, plain: bool, function: bool) -> None:
        self.names: dict[str, Meaning] = {}
        self.plain = plain
        self.function = function


class Scopes:
    """The blocks around the place where the walk is."""

    def __init__(self) -> None:
        self._scopes: list[Scope] = [Scope(plain=True, function=True)]
        self._renamed = 0
        self._declared: dict[tuple[int, str], Scope] = {}

    @property
    def innermost(self) -> Scope:
        return self._scopes[-1]

    def enter(self, scope: Scope) -> None:
        self._scopes.append(scope)

    def leave(self) -> None:
        self._scopes.pop()

    def meaning(self, name: str) -> Meaning:
        """What a name means here; a name that is bound nowhere means itself."""
        for scope in reversed(self._scopes):
            if name in scope.names:
                return scope.names[name]
        return name

    def invent(self, name: str) -> str:
        """A name like this one that no code can have."""
        self._renamed += 1
        return f"{name}@{self._renamed}"

    def holder(self, name: str) -> Scope | None:
        """The innermost scope around that has a name."""
        return next((scope for scope in reversed(self._scopes) if name in scope.names), None)

    def declares(self, scope: Scope, parent: int, name: str) -> bool:
        """Whether a name of a scope is that of a declaration inside the declaration ``parent``."""
        return self._declared.get((parent, name)) is scope

    def _of(self, *, hoisted: bool) -> Scope:
        if hoisted:
            for scope in reversed(self._scopes):
                if scope.function:
                    return scope
        return self._scopes[-1]

    def has(self, name: str) -> bool:
        """Whether the function around has a variable of that name."""
        return name in self._of(hoisted=True).names

    def bind(self, name: str, *, hoisted: bool = False, certain: bool = True) -> str:
        """A new variable; returns the name to keep it under.

        ``hoisted`` is for ``var``, which belongs to the function around; not ``certain`` is one
        whose value may follow later, or never.
        """
        scope = self._of(hoisted=hoisted)
        key = name if scope.plain and certain else self.invent(name)
        scope.names[name] = key
        return key

    def obscure(self, name: str, *, hoisted: bool = False) -> None:
        """A new variable that nothing is known of, and that hides what had its name."""
        self._of(hoisted=hoisted).names[name] = None

    def declare(self, name: str, parent: int) -> None:
        """The name of a declaration inside the declaration ``parent``.

        A second one of the same name and parent, from another block (each callback has its
        ``next``), can not be told from the first by name: calls of it stay unresolved.
        """
        scope = self._scopes[-1]
        first = self._declared.setdefault((parent, name), scope)
        scope.names[name] = name if first is scope else None
