"""ES modules: what a file imports, and what it exports under another name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tree_sitter import Node

from coatcheck_codegraph.builder import name_of
from coatcheck_codegraph.facts import Binding, Ref, Step
from coatcheck_codegraph.languages.ecmascript_assignments import Assignments, Target
from coatcheck_codegraph.languages.ecmascript_chains import string_of
from coatcheck_codegraph.languages.ecmascript_references import References
from coatcheck_codegraph.languages.ecmascript_types import bound_names
from coatcheck_codegraph.languages.ecmascript_walk import Walk


class Modules:
    """Reads import and export statements."""

    def __init__(self, walk: Walk, references: References, assignments: Assignments) -> None:
        self._walk = walk
        self._references = references
        self._assignments = assignments
        self._clauses: list[Node] = []

    def imported(self, node: Node) -> None:
        """``import a, { b as c } from "x"``, ``import a = require("x")``."""
        source = string_of(node.child_by_field_name("source"))
        bindings: list[Binding] = []
        for clause in node.named_children:
            if clause.type == "import_clause":
                for part in clause.named_children:
                    bindings.extend(_bindings(part))
            elif clause.type == "import_require_clause":
                source = string_of(clause.child_by_field_name("source"))
                bindings.extend(Binding(name_of(name)) for name in clause.named_children[:1])
        if source:
            self._walk.builder.imports(node, source, bindings, kind="import")
            for binding in bindings:
                self._walk.scopes.innermost.names[binding.local] = binding.local

    def alias(self, node: Node) -> None:
        """``import A = N.B``."""
        names = [name_of(child) for child in node.named_children]
        if len(names) == 2:
            first, *rest = names[1].split(".")
            steps = (*self._references.named(first).steps, *map(Step, rest))
            self._walk.builder.variable(self._walk.scopes.bind(names[0]), Ref("name", steps))

    def exported(self, node: Node) -> None:
        """``export ...``, in all its forms."""
        children = node.named_children
        source = string_of(node.child_by_field_name("source"))
        declaration = node.child_by_field_name("declaration")
        value = node.child_by_field_name("value")
        if source is not None:
            bindings = _reexported(children)
            self._walk.builder.imports(node, source, bindings, kind="export", exported=True)
        elif declaration is not None:
            self._declaration(node, declaration)
            self._walk.walk(children)
        elif value is not None:
            self._walk.walk(child for child in children if child.type == "decorator")
            self._assignments.assign([Target("exports", "default")], value)
        elif children and any(child.type == "=" for child in node.children):
            self._assignments.assign([Target("exports")], children[-1])
        else:
            self._clauses += [child for child in children if child.type == "export_clause"]

    def _declaration(self, node: Node, declaration: Node) -> None:
        name = declaration.child_by_field_name("name")
        if name is not None:
            if any(child.type == "default" for child in node.children):
                self._walk.facts.exports["default"] = self._references.named(name_of(name))
        elif self._walk.is_at_top:
            self._walk.then(declaration, lambda: self._variables(declaration))

    def _variables(self, declaration: Node) -> None:
        """A variable whose value follows later is kept under another name: say which."""
        for declarator in declaration.named_children:
            pattern = declarator.child_by_field_name("name")
            for name in [] if pattern is None else bound_names(pattern):
                named = self._references.named(name)
                if named.steps[0].name != name:
                    self._walk.facts.exports[name] = named

    def conclude(self) -> None:
        """When the file was walked: say what ``export { a as b }`` means."""
        for clause in self._clauses:
            for specifier in clause.named_children:
                local = specifier.child_by_field_name("name")
                if specifier.type == "export_specifier" and local is not None:
                    name = _said(specifier.child_by_field_name("alias") or local)
                    self._walk.facts.exports[name] = self._references.named(name_of(local))


def _said(node: Node) -> str:
    return (string_of(node) or "") if node.type == "string" else name_of(node)


def _bindings(part: Node) -> Iterator[Binding]:
    if part.type == "identifier":
        yield Binding(name_of(part), "default")
    elif part.type == "namespace_import":
        yield from (Binding(name_of(name)) for name in part.named_children[:1])
    elif part.type == "named_imports":
        for local, remote in _specifiers(part, "import_specifier"):
            yield Binding(local, remote)


def _reexported(children: Iterable[Node]) -> Iterator[Binding]:
    clauses = [child for child in children if child.type in ("export_clause", "namespace_export")]
    if not clauses:
        yield Binding("*", "*")
    for clause in clauses:
        if clause.type == "namespace_export":
            yield from (Binding(_said(name)) for name in clause.named_children[:1])
        else:
            for local, remote in _specifiers(clause, "export_specifier"):
                yield Binding(local, remote)


def _specifiers(clause: Node, kind: str) -> Iterator[tuple[str, str]]:
    """The names of ``{ a, b as c }``: as they are called here, and there."""
    for specifier in clause.named_children:
        remote = specifier.child_by_field_name("name")
        if specifier.type == kind and remote is not None:
            yield _said(specifier.child_by_field_name("alias") or remote), _said(remote)
