"""Walks the syntax tree of a JavaScript file with an explicit stack, however deep it is nested.

Nodes are visited in the order of the source. The visitor of a node pushes the nodes to visit next
on the stack; a scope that it enters ends when all of these were visited."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Final

from tree_sitter import Node

from coatcheck_codegraph.builder import Builder, name_of
from coatcheck_codegraph.facts import FILE, FileFacts, Ref

# Which variable a name means, by the block it is written in.
#
# A function without a name has no declaration that its variables could be kept with: they are
# kept with the declaration around, under a name that no code can have (``app@3``), so that two
# callbacks of one test file may each have an ``app`` of their own.

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


class BlockScopes:
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
        """The meaning of a name here; a name without a binding means itself."""
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


Visit = Callable[[Node], None]

THIS: Final = Ref("self", ())
"""The object whose method this is."""

SAME: Final = "same"
"""Stands for what holds around: an arrow function has the ``this`` of its surroundings."""

EMPTY: Final = frozenset(
    """
    accessibility_modifier array_type asserts_annotation break_statement comment conditional_type
    continue_statement debugger_statement empty_statement escape_sequence existential_type false
    function_type generic_type hash_bang_line html_comment identifier implements_clause import
    index_signature index_type_query infer_type intersection_type jsx_closing_element
    jsx_namespace_name jsx_text literal_type lookup_type meta_property nested_type_identifier null
    number object_type optional_chain override_modifier predefined_type private_property_identifier
    property_identifier readonly_type regex shorthand_property_identifier
    shorthand_property_identifier_pattern statement_identifier string string_fragment super
    template_literal_type this this_type true tuple_type type_annotation type_arguments
    type_identifier type_parameters type_predicate_annotation type_query undefined union_type
    """.split()  # noqa: SIM905
)
"""The kinds of nodes in which there is nothing to find."""

_DECLARING: Final = frozenset(
    """
    abstract_class_declaration class_declaration enum_declaration function_declaration
    function_signature generator_function_declaration interface_declaration type_alias_declaration
    """.split()  # noqa: SIM905
)


class Walk:
    """Where the walk is: the stack, the scopes, and what ``this`` and ``return`` belong to."""

    def __init__(self, path: str, language: str) -> None:
        self.builder = Builder(path, language)
        self.scopes = BlockScopes()
        self.visits: dict[str, Visit] = {}
        self._pending: list[tuple[Visit, Node]] = []
        self._this: list[Ref | None] = [None]
        self._returning: list[int | None] = [None]
        self.declared_at: dict[tuple[int, int], int] = {}
        """The declarations of functions and classes, by where these begin and end."""
        self.calls_at: dict[tuple[int, int], int] = {}
        """The ordinals of calls, by where the name of what is called begins and ends."""

    @property
    def facts(self) -> FileFacts:
        return self.builder.facts

    @property
    def this(self) -> Ref | None:
        """The meaning of ``this`` here; None if it is not known."""
        return self._this[-1]

    @this.setter
    def this(self, what: Ref) -> None:
        self._this[-1] = what

    @property
    def returning(self) -> int | None:
        """The declaration that a ``return`` here returns from, if that is of interest."""
        return self._returning[-1]

    def over(self, root: Node) -> None:
        """Visit everything."""
        children = root.named_children
        self.hoist(children)
        self.walk(children)
        pending = self._pending
        while pending:
            visit, node = pending.pop()
            visit(node)

    def walk(self, nodes: Iterable[Node]) -> None:
        """Visit these, in order, before all else that is still to be visited."""
        visits, children = self.visits, self.children
        found = []
        for node in nodes:
            kind = node.type
            if kind not in EMPTY:
                found.append((visits.get(kind, children), node))
        found.reverse()
        self._pending.extend(found)

    def walk_by(self, visits: Iterable[tuple[Visit, Node]]) -> None:
        """The same, by whom it is said."""
        self._pending.extend(reversed(list(visits)))

    def children(self, node: Node) -> None:
        """Visit what a node holds."""
        self.walk(node.named_children)

    def then(self, node: Node, act: Callable[[], None]) -> None:
        """Act when all that is put on the stack from now on was visited."""
        self._pending.append((lambda _: act(), node))

    # Facts, and where they are from

    def declared(self, node: Node, index: int) -> None:
        """Remember which function or class a declaration is of."""
        self.declared_at[node.start_byte, node.end_byte] = index

    def call(self, node: Node, callee: Ref) -> None:
        """Note a call, at the name of what is called."""
        self.calls_at[node.start_byte, node.end_byte] = len(self.facts.calls)
        self.builder.call(node, callee)

    # Scopes

    def enter(
        self,
        node: Node,
        scope: Scope,
        *,
        declaration: int | None = None,
        this: Ref | str | None = SAME,
        returning: int | str | None = SAME,
    ) -> None:
        """Be in a scope, and in a declaration, until all that follows was visited."""
        self.scopes.enter(scope)
        inside: AbstractContextManager[None] | None = None
        if declaration is not None:
            inside = self.builder.inside(declaration)
            inside.__enter__()
        if not isinstance(this, str):
            self._this.append(this)
        if not isinstance(returning, str):
            self._returning.append(returning)

        def leave() -> None:
            self.scopes.leave()
            if inside is not None:
                inside.__exit__(None, None, None)
            if not isinstance(this, str):
                self._this.pop()
            if not isinstance(returning, str):
                self._returning.pop()

        self.then(node, leave)

    def hoist(self, statements: Iterable[Node]) -> None:
        """Know what a block declares before anything in it is looked at, as the language does."""
        for node in statements:
            declared: Node | None = node
            if node.type == "export_statement":
                declared = node.child_by_field_name("declaration")
            elif node.type == "ambient_declaration" and node.named_child_count:
                declared = node.named_children[0]
            if declared is not None and declared.type in _DECLARING:
                name = declared.child_by_field_name("name")
                if name is not None:
                    self.declare_name(name_of(name))

    def declare_name(self, name: str) -> None:
        """The name of a declaration that is about to be made here."""
        if name not in self.scopes.innermost.names:
            self.scopes.declare(name, self.builder.here)

    @property
    def is_at_top(self) -> bool:
        return self.builder.here == FILE
