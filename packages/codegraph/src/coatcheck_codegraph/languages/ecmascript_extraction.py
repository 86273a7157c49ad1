"""Extracts the declarations, imports and calls of a JavaScript or TypeScript file.

Some rules are not obvious:

- A function that is assigned to a name is a function of that name: ``const f = () => {}``,
  ``X.prototype.f = function () {}``, ``exports.f = ...``, ``{ f() {} }`` in an object that has a
  name. All others are anonymous: their calls belong to the declaration around them.
- An object that is the value of a variable is a class if it holds functions, or if the file gives
  it some later (``app.use = function () {}``). So is a function with a prototype: its body is then
  the method ``constructor``.
- ``this`` is the object whose method this is, as long as only arrow functions come between.
- A component in JSX (``<Panel />``) is called there.
- A call is on the line where the name of what is called is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from tree_sitter import Node, Parser

from coatcheck_codegraph.builder import name_of
from coatcheck_codegraph.facts import Binding, FileFacts, Ref, Step
from coatcheck_codegraph.javascript_values.extraction import flows_of
from coatcheck_codegraph.languages.ecmascript_assignments import Assignments, AssignmentTarget
from coatcheck_codegraph.languages.ecmascript_classes import Classes, Objects
from coatcheck_codegraph.languages.ecmascript_functions import Functions, Prototypes
from coatcheck_codegraph.languages.ecmascript_references import (
    Chain,
    ChainLink,
    References,
    chain_of,
    specifier_of,
    string_of,
)
from coatcheck_codegraph.languages.ecmascript_types import bound_names
from coatcheck_codegraph.languages.ecmascript_walk import SAME, Scope, Visit, Walk

# ES modules: what a file imports, and what it exports under another name.


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
            self._assignments.assign([AssignmentTarget("exports", "default")], value)
        elif children and any(child.type == "=" for child in node.children):
            self._assignments.assign([AssignmentTarget("exports")], children[-1])
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


# Calls: of functions and methods, of classes by ``new``, of components in JSX.

_UNNAMED: Final = Ref("opaque", (Step("", True),))
_OF_FUNCTIONS: Final = frozenset({"apply", "bind", "call"})


class Calls:
    """Notes the calls of expressions."""

    def __init__(
        self, walk: Walk, references: References, functions: Functions, prototypes: Prototypes
    ) -> None:
        self._walk = walk
        self._references = references
        self._functions = functions
        self._prototypes = prototypes

    def chain(self, node: Node) -> None:
        """Note every call of a chain, and go on with what the chain holds."""
        chain = chain_of(node)
        links = chain.links
        if chain.root == "module":
            self._references.module(chain.start)
        if links and links[-1].name == "__exportStar":
            self._export_everything(links[-1])
            return
        self._prototypes.note_inheritance(chain)
        self._note(chain)
        if chain.root == "function" and links and links[0].name == "bind" and _is_this(links[0]):
            # function () {}.bind(this) has the `this` of what is around, as an arrow function has.
            self._walk.walk(inside for inside in chain.insides if inside is not chain.start)
            self._functions.anonymous(chain.start, this=SAME)
        else:
            self._walk.walk(reversed(chain.insides))

    def _note(self, chain: Chain) -> None:
        if chain.called is not None and chain.root != "function":
            callee = self._references.of(chain, -1) if chain.root == "module" else _UNNAMED
            self._walk.call(chain.called.node, callee)
        for at, link in enumerate(chain.links):
            if link.called:
                self._note_link(chain, at, link)

    def _note_link(self, chain: Chain, at: int, link: ChainLink) -> None:
        if link.name in _OF_FUNCTIONS:
            if at == 0 and chain.root == "function":
                return  # the function is called where it is written, and has no name
            if at > 0 and not chain.links[at - 1].called and _is_bound(link):
                self._note_function_called(chain, at, link)
                return
        self._walk.call(link.node, self._references.of(chain, at))

    def _note_function_called(self, chain: Chain, at: int, link: ChainLink) -> None:
        """``f.call(this)`` calls ``f``, not a method of that name; ``f.bind(this)`` calls nothing
        of the archive."""
        if link.name == "bind":
            callee = Ref("name", (Step("Function"), Step("bind", True)))
            self._walk.call(link.node, callee)
            return
        function = self._references.of(chain, at - 1)
        *before, last = function.steps
        callee = Ref(function.base, (*before, Step(last.name, True)))
        self._walk.call(chain.links[at - 1].node, callee)

    def _export_everything(self, link: ChainLink) -> None:
        """``__exportStar(require("x"), exports)``: what compilers make of ``export * from "x"``."""
        for given in [] if link.arguments is None else link.arguments.named_children[:1]:
            specifier = specifier_of(given) if given.type == "call_expression" else None
            if specifier is not None:
                everything = (Binding("*", "*"),)
                self._walk.builder.imports(
                    given, specifier, everything, kind="export", exported=True
                )

    def component(self, node: Node) -> None:
        """``<Panel title={f()} />`` calls Panel; ``<div>`` is no component."""
        name = node.child_by_field_name("name")
        if name is not None:
            chain = chain_of(name)
            if chain.root == "name" and (len(chain.links) > 1 or chain.links[0].name[:1].isupper()):
                chain.links[-1].called = True
                self._walk.call(chain.links[-1].node, self._references.of(chain))
        self._walk.walk(child for child in node.named_children if child != name)


def _is_this(link: ChainLink) -> bool:
    return _first_argument(link) == "this"


def _is_bound(link: ChainLink) -> bool:
    return _first_argument(link) in ("this", "null", "undefined")


def _first_argument(link: ChainLink) -> str:
    given = [] if link.arguments is None else link.arguments.named_children
    return given[0].type if given else ""


def extract(path: str, language: str, parser: Parser, source: bytes) -> FileFacts:
    """The facts of a file; of one that is broken, those of what could be understood."""
    root = parser.parse(source).root_node
    walk = Walk(path, language)
    walk.facts.lines = source.count(b"\n") + (not source.endswith(b"\n") and len(source) > 0)
    walk.facts.broken = root.has_error
    references = References(walk)
    prototypes = Prototypes(walk, references, source)
    functions = Functions(walk, references, prototypes)
    classes = Classes(walk, references, functions)
    objects = Objects(walk, references, functions)
    assignments = Assignments(walk, references, prototypes, functions, classes, objects)
    modules = Modules(walk, references, assignments)
    calls = Calls(walk, references, functions, prototypes)
    walk.visits = {
        "abstract_class_declaration": classes.declaration,
        "arrow_function": functions.anonymous,
        "assignment_expression": assignments.assignment,
        "augmented_assignment_expression": assignments.augmented,
        "call_expression": calls.chain,
        "catch_clause": _catch(walk),
        "class": classes.declaration,
        "class_declaration": classes.declaration,
        "enum_declaration": classes.enum,
        "export_statement": modules.exported,
        "for_in_statement": _loop(walk),
        "for_statement": _loop(walk),
        "function_declaration": functions.declaration,
        "function_expression": functions.anonymous,
        "function_signature": functions.signature,
        "generator_function": functions.anonymous,
        "generator_function_declaration": functions.declaration,
        "import_alias": modules.alias,
        "import_statement": modules.imported,
        "interface_declaration": classes.interface,
        "internal_module": classes.namespace,
        "jsx_opening_element": calls.component,
        "jsx_self_closing_element": calls.component,
        "lexical_declaration": assignments.variables,
        "member_expression": calls.chain,
        "method_definition": functions.anonymous,
        "module": classes.namespace,
        "new_expression": calls.chain,
        "return_statement": functions.returned,
        "statement_block": _block(walk),
        "switch_body": _block(walk),
        "type_alias_declaration": classes.alias,
        "using_declaration": assignments.variables,
        "variable_declaration": assignments.variables,
    }
    walk.over(root)
    modules.conclude()
    functions.conclude()
    assignments.conclude()
    walk.facts.javascript_values = flows_of(root, walk.declared_at, walk.calls_at)
    return walk.facts


def _block(walk: Walk) -> Visit:
    def visit(node: Node) -> None:
        children = node.named_children
        if children:
            walk.enter(node, Scope(plain=False, function=False))
            walk.hoist(children)
            walk.walk(children)

    return visit


def _loop(walk: Walk) -> Visit:
    def visit(node: Node) -> None:
        walk.enter(node, Scope(plain=False, function=False))
        if node.type == "for_in_statement" and node.child_by_field_name("kind") is not None:
            left = node.child_by_field_name("left")
            for name in [] if left is None else bound_names(left):
                walk.scopes.obscure(name)
        walk.children(node)

    return visit


def _catch(walk: Walk) -> Visit:
    def visit(node: Node) -> None:
        walk.enter(node, Scope(plain=False, function=False))
        parameter = node.child_by_field_name("parameter")
        for name in [] if parameter is None else bound_names(parameter):
            walk.scopes.obscure(name)
        walk.children(node)

    return visit
