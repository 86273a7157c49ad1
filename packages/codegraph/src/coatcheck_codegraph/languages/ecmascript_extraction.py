"""Reads the facts of a JavaScript or TypeScript file off its tree.

What is not obvious:

- A function that is given a name by what it is assigned to is a function of that name: ``const f =
  () => {}``, ``X.prototype.f = function () {}``, ``exports.f = ...``, ``{ f() {} }`` in an object
  that has a name. All others are anonymous: what they call is called by the declaration around.
- An object that is the value of a variable is a class if it holds functions, or if the file gives
  it some later (``app.use = function () {}``). So is a function with a prototype: its body is then
  the method ``constructor``.
- ``this`` is the object whose method this is, as long as only arrow functions come between.
- A component in JSX (``<Panel />``) is called there.
- A call is on the line where the name of what is called is written.
"""

from __future__ import annotations

from tree_sitter import Node, Parser

from coatcheck_codegraph.facts import FileFacts
from coatcheck_codegraph.languages.ecmascript_assignments import Assignments
from coatcheck_codegraph.languages.ecmascript_calls import Calls
from coatcheck_codegraph.languages.ecmascript_classes import Classes
from coatcheck_codegraph.languages.ecmascript_flows import flows_of
from coatcheck_codegraph.languages.ecmascript_functions import Functions
from coatcheck_codegraph.languages.ecmascript_modules import Modules
from coatcheck_codegraph.languages.ecmascript_objects import Objects
from coatcheck_codegraph.languages.ecmascript_prototypes import Prototypes
from coatcheck_codegraph.languages.ecmascript_references import References
from coatcheck_codegraph.languages.ecmascript_scopes import Scope
from coatcheck_codegraph.languages.ecmascript_types import bound_names
from coatcheck_codegraph.languages.ecmascript_walk import Visit, Walk


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
    walk.facts.flows = flows_of(root, walk.declared_at, walk.calls_at)
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
