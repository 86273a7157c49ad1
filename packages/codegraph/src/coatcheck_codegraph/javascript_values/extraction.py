"""Extracts how functions, classes and objects flow through a JavaScript or TypeScript file.

This is a second walk over the tree, after the declarations are known. Function bodies are walked
after the code around them, when all variables around them are known, wherever they are declared.
Promises are transparent: ``await`` gives the value that the promise is resolved with."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Final

from tree_sitter import Node

from coatcheck_codegraph.builder import end_line_of, line_of
from coatcheck_codegraph.facts import FILE
from coatcheck_codegraph.javascript_values.facts import (
    ANY,
    ARRAY,
    ARROW,
    BIND,
    CALL,
    CALLBACK,
    CALLED,
    CONSTRUCTOR,
    COPY,
    ELEMENT,
    GENERATOR,
    GETTER,
    ITERATE,
    LOAD,
    MAP,
    METHOD,
    NEW,
    OBJECT,
    ON_CLASS,
    ON_INSTANCE,
    ON_PROTOTYPE,
    PARENT,
    PROMISE,
    PROTOTYPE,
    RECEIVED,
    REST,
    SET,
    SETTER,
    STORE,
    SUPER,
    WIDTH,
    JavaScriptCallFlow,
    JavaScriptClassFlow,
    JavaScriptFlow,
    JavaScriptFunctionFlow,
    Unnamed,
    packed,
    packed_records,
    record_of_call,
    record_of_function,
)
from coatcheck_codegraph.languages.ecmascript_builtins import GLOBALS
from coatcheck_codegraph.languages.ecmascript_references import (
    key_of,
    name_said,
    specifier_of,
    string_of,
)
from coatcheck_codegraph.languages.ecmascript_types import bound_names, signature
from coatcheck_codegraph.languages.ecmascript_walk import EMPTY

Range = tuple[int, int]
"""Where a node begins and ends, in bytes."""

_DEPTH_MAX: Final = 140
"""Expressions and statements inside of each other; what is deeper is left out."""
_PARAMETERS_MAX: Final = 30
_ELEMENTS_MAX: Final = 300
"""Of an array or an object literal that are told apart."""
_KEY_CHARACTERS_MAX: Final = 100
_WORD_CHARACTERS_MAX: Final = 200

_FUNCTIONS: Final = frozenset(
    {
        "arrow_function",
        "function_declaration",
        "function_expression",
        "generator_function",
        "generator_function_declaration",
        "method_definition",
    }
)
_WRAPPERS: Final = frozenset(
    {
        "as_expression",
        "await_expression",
        "non_null_expression",
        "parenthesized_expression",
        "satisfies_expression",
    }
)
_TIMERS: Final = frozenset(
    {
        "queueMicrotask",
        "requestAnimationFrame",
        "requestIdleCallback",
        "setImmediate",
        "setInterval",
        "setTimeout",
    }
)
_CONTAINERS: Final = {"Array": ARRAY, "Map": MAP, "Set": SET, "WeakMap": MAP, "WeakSet": SET}
_UNCHANGED: Final = frozenset(
    {
        "Object.freeze",
        "Object.preventExtensions",
        "Object.seal",
        "Promise.all",
        "Promise.allSettled",
        "Promise.resolve",
    }
)
"""Functions whose value is what they are given."""
_CHOOSING: Final = frozenset({"&&", "||", "??"})
_SKIPPED: Final = EMPTY - {"identifier", "this"}


class _BlockScope:
    """The variables of a block of ``function``, by name.

    Of those that have got another value since, ``earlier`` has the nodes of what they were, and
    ``shared`` those that other functions read from and write to: when these run is not known.
    """

    __slots__ = ("around", "constants", "earlier", "function", "is_function", "nodes", "shared")

    def __init__(self, around: _BlockScope | None, function: int, *, is_function: bool) -> None:
        self.around = around
        self.function = function
        self.is_function = is_function
        self.nodes: dict[str, int] = {}
        self.earlier: dict[str, list[int]] = {}
        self.shared: dict[str, tuple[int, int]] = {}
        self.constants: dict[str, str] = {}


_Constraint = tuple[int, int, int, int, int, int]

_Body = tuple[Node, _BlockScope, int, int, int]
"""A function to be walked: its node, the scope around, its number, ``this``, the class around."""


def flows_of(
    root: Node, declared: Mapping[Range, int], calls: Mapping[Range, int]
) -> JavaScriptFlow:
    """The flows of a file. ``declared`` has the declarations of functions, classes and objects by
    where they are written, ``calls`` the ordinals of calls by where the name is that is called."""
    return _Extraction(declared, calls).of(root)


class _Extraction:
    def __init__(self, declared: Mapping[Range, int], calls: Mapping[Range, int]) -> None:
        self._declared = declared
        self._calls = calls
        self._size = 1
        self._names: dict[str, int] = {}
        self._constraints: list[_Constraint] = []
        """Each with its node first, and what it is next."""
        self._functions: list[JavaScriptFunctionFlow] = []
        self._classes: list[JavaScriptClassFlow] = []
        self._noted_calls: list[JavaScriptCallFlow] = []
        self._unnamed: dict[int, Unnamed] = {}
        self._objects: list[int] = []
        self._imports: list[int] = []
        self._exports: list[int] = []
        self._wildcards: list[int] = []
        self._scope = _BlockScope(None, 0, is_function=True)
        self._top = self._scope
        self._function = 0
        self._this = 0
        self._class = -1
        self._depth = 0
        self._bodies: list[_Body] = []
        self._module = 0
        self._thrown = 0
        self._parameters: dict[int, tuple[int, int]] = {}
        self._returned: list[tuple[int, int]] = []
        self._assigned: set[int] = set()
        self._clauses: list[Node] = []
        self._replaced: set[int] = set()
        self._visits: dict[str, Callable[[Node], int]] = {
            "abstract_class_declaration": self._declared_class,
            "array": self._array,
            "arrow_function": self._anonymous,
            "as_expression": self._first_of,
            "assignment_expression": self._assignment,
            "augmented_assignment_expression": self._augmented,
            "await_expression": self._first_of,
            "binary_expression": self._binary,
            "call_expression": self._call,
            "catch_clause": self._catch,
            "class": self._class_expression,
            "class_declaration": self._declared_class,
            "export_statement": self._export,
            "for_in_statement": self._loop,
            "for_statement": self._block,
            "function_declaration": self._declared_function,
            "function_expression": self._anonymous,
            "generator_function": self._anonymous,
            "generator_function_declaration": self._declared_function,
            "identifier": self._identifier,
            "import_statement": self._import,
            "interface_declaration": _nothing,
            "lexical_declaration": self._variables,
            "member_expression": self._member,
            "method_definition": self._anonymous,
            "new_expression": self._new,
            "non_null_expression": self._first_of,
            "object": self._object,
            "parenthesized_expression": self._first_of,
            "return_statement": self._return,
            "satisfies_expression": self._first_of,
            "sequence_expression": self._sequence,
            "statement_block": self._block,
            "subscript_expression": self._subscript,
            "switch_body": self._block,
            "ternary_expression": self._ternary,
            "this": lambda _node: self._this,
            "throw_statement": self._throw,
            "type_alias_declaration": _nothing,
            "using_declaration": self._variables,
            "variable_declaration": self._variables,
            "yield_expression": self._yield,
        }

    def of(self, root: Node) -> JavaScriptFlow:
        self._module = self._new_node()
        self._thrown = self._new_node()
        self._functions.append(JavaScriptFunctionFlow(FILE, FILE))
        self._statements(root)
        while self._bodies:
            self._body(*self._bodies.pop())
        self._conclude_exports()
        for function, node in self._returned:
            if node in self._assigned:
                self._copy(node, self._functions[function].returns)
        for number, call in enumerate(self._noted_calls):
            if call.kind == METHOD:
                if call.receiver:
                    self._constraints.append((call.receiver, RECEIVED, number, 0, 0, 0))
            elif call.callee:
                self._constraints.append((call.callee, CALLED, number, 0, 0, 0))
        self._constraints.sort()
        constraints = array("i", chain.from_iterable(self._constraints))
        return JavaScriptFlow(
            self._size,
            self._module,
            list(self._names),
            constraints[::WIDTH].tobytes(),
            constraints.tobytes(),
            packed_records(map(record_of_function, self._functions)),
            packed_records(map(record_of_call, self._noted_calls)),
            self._classes,
            self._unnamed,
            packed(self._objects),
            packed(self._imports),
            packed(self._exports),
            packed(self._wildcards),
        )

    # Nodes and constraints

    def _new_node(self) -> int:
        node = self._size
        self._size += 1
        return node

    def _name(self, name: str) -> int:
        return self._names.setdefault(name[:_KEY_CHARACTERS_MAX], len(self._names))

    def _copy(self, origin: int, to: int) -> None:
        if origin and to and origin != to:
            self._constraints.append((origin, COPY, to, 0, 0, 0))

    def _load(self, of: int, name: str, at: Node, into: int = 0) -> int:
        if not of:
            return into
        into = into or self._new_node()
        self._constraints.append((of, LOAD, self._name(name), into, line_of(at), self._function))
        return into

    def _store(self, of: int, name: str, value: int, at: Node) -> bool:
        """Put a value into an object, if both are of interest."""
        if not (of and value):
            return False
        self._constraints.append((of, STORE, self._name(name), value, line_of(at), self._function))
        return True

    def _made(self, kind: int) -> int:
        node = self._new_node()
        self._objects += (node, kind)
        return node

    def _one_of(self, *nodes: int) -> int:
        """A node that has what all of these have."""
        found = [node for node in nodes if node]
        if len(found) < 2:
            return found[0] if found else 0
        joined = self._new_node()
        for node in found:
            self._copy(node, joined)
        return joined

    # Names

    def _find(self, name: str) -> int:
        scope: _BlockScope | None = self._scope
        while scope is not None:
            node = scope.nodes.get(name)
            if node is not None:
                if scope.earlier and scope.function != self._function and name in scope.earlier:
                    return self._shared(scope, name)[0]
                return node
            scope = scope.around
        return 0

    def _replace(self, statement: Node) -> bool:
        """``x = value;`` in the block that declares x: what it was, it is no more from here on."""
        if statement.type != "expression_statement" or not statement.named_child_count:
            return False
        assignment = statement.named_children[0]
        if assignment.type != "assignment_expression":
            return False
        left = assignment.child_by_field_name("left")
        if left is None or left.type != "identifier":
            return False
        name, scope = _word(left), self._scope
        before = scope.nodes.get(name)
        if before is None or scope.function != self._function:
            return False
        value = self._visit(assignment.child_by_field_name("right"))
        scope.earlier.setdefault(name, []).append(before)
        scope.nodes[name] = after = self._new_node()
        self._copy(value, after)
        if name in scope.shared:
            self._share(scope.shared[name], after)
        return True

    def _shared(self, scope: _BlockScope, name: str) -> tuple[int, int]:
        """The nodes that other functions read a variable from, and write it to."""
        shared = scope.shared.get(name)
        if shared is None:
            shared = scope.shared[name] = self._new_node(), self._new_node()
            for node in (*scope.earlier[name], scope.nodes[name]):
                self._share(shared, node)
        return shared

    def _share(self, shared: tuple[int, int], node: int) -> None:
        read, written = shared
        self._copy(node, read)
        self._copy(written, node)

    def _give(self, name: str, value: int) -> None:
        """A value for a variable that is there, at a time that is not known."""
        scope: _BlockScope | None = self._scope
        while scope is not None and name not in scope.nodes:
            scope = scope.around
        if scope is None:
            target = self._variable(name)
        elif scope.function != self._function and name in scope.earlier:
            target = self._shared(scope, name)[1]
        else:
            target = scope.nodes[name]
        self._assigned.add(target)
        self._copy(value, target)

    def _variable(self, name: str) -> int:
        """The node of a variable that is there; one that is nowhere belongs to the file."""
        node = self._find(name)
        if not node:
            node = self._top.nodes[name] = self._new_node()
        return node

    def _declare(self, name: str, *, hoisted: bool = False) -> int:
        scope = self._scope
        while hoisted and not scope.is_function and scope.around is not None:
            scope = scope.around
        node = scope.nodes.get(name)
        if node is None:
            node = scope.nodes[name] = self._new_node()
        return node

    def _constant(self, node: Node | None) -> str | None:
        """What a key says, if that is certain."""
        if node is None:
            return None
        if node.type == "string":
            return name_said(node)
        if node.type == "number":
            written = _word(node)
            return written if written.isdecimal() and len(written) < 6 else None
        if node.type == "identifier":
            name = _word(node)
            scope: _BlockScope | None = self._scope
            while scope is not None:
                if name in scope.nodes or name in scope.constants:
                    return scope.constants.get(name)
                scope = scope.around
        if node.type == "binary_expression" and _word(node.child_by_field_name("operator")) == "+":
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            kinds = {one.type for one in (left, right) if one is not None}
            if kinds <= {"string", "identifier"}:
                first, second = self._constant(left), self._constant(right)
                if first is not None and second is not None:
                    return (first + second)[:_KEY_CHARACTERS_MAX]
        if node.type == "member_expression":
            return key_of_symbol(node)
        return None

    def _is_global(self, node: Node | None, *names: str) -> bool:
        if node is None or node.type != "identifier":
            return False
        name = _word(node)
        return name in names and not self._find(name)

    # Walking

    def _visit(self, node: Node | None) -> int:
        """Walk a statement or an expression; returns the node of its value."""
        if node is None:
            return 0
        kind = node.type
        visit = self._visits.get(kind)
        if visit is None:
            if kind in _SKIPPED or self._depth >= _DEPTH_MAX:
                return 0
            self._depth += 1
            for child in node.named_children:
                self._visit(child)
            self._depth -= 1
            return 0
        if self._depth >= _DEPTH_MAX:
            return 0
        self._depth += 1
        value = visit(node)
        self._depth -= 1
        return value

    def _statements(self, block: Node) -> None:
        children = block.named_children
        functions: dict[str, int] = {}
        for child in children:
            declared: Node | None = child
            if child.type == "export_statement":
                declared = child.child_by_field_name("declaration")
            if declared is not None and declared.type in _HOISTED:
                name = declared.child_by_field_name("name")
                if name is not None:
                    self._declare(_word(name))
                    if declared.type in _FUNCTIONS:
                        # Of several functions of one name, the last is meant from the beginning.
                        before = functions.setdefault(_word(name), declared.start_byte)
                        if before != declared.start_byte:
                            self._replaced.add(before)
                            functions[_word(name)] = declared.start_byte
        for child in children:
            if not self._replace(child):
                self._visit(child)

    def _block(self, node: Node) -> int:
        around = self._scope
        self._scope = _BlockScope(around, self._function, is_function=False)
        self._statements(node)
        self._scope = around
        return 0

    def _loop(self, node: Node) -> int:
        around = self._scope
        self._scope = _BlockScope(around, self._function, is_function=False)
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        source = self._visit(right)
        word = node.child_by_field_name("operator")
        if left is not None:
            value = 0
            if word is not None and word.type == "of" and source:
                value = self._iterate(source, node)
            kind = node.child_by_field_name("kind")
            if kind is not None:
                self._bind(left, value, hoisted=kind.type == "var")
            else:
                self._assign(left, value)
        self._visit(node.child_by_field_name("body"))
        self._scope = around
        return 0

    def _iterate(self, source: int, at: Node) -> int:
        value = self._new_node()
        self._constraints.append((source, ITERATE, value, line_of(at), self._function, 0))
        return value

    def _catch(self, node: Node) -> int:
        around = self._scope
        self._scope = _BlockScope(around, self._function, is_function=False)
        parameter = node.child_by_field_name("parameter")
        if parameter is not None:
            self._bind(parameter, self._thrown)
        self._visit(node.child_by_field_name("body"))
        self._scope = around
        return 0

    def _throw(self, node: Node) -> int:
        self._copy(self._first_of(node), self._thrown)
        return 0

    def _first_of(self, node: Node) -> int:
        for child in node.named_children:
            if child.type != "comment":
                return self._visit(child)
        return 0

    def _sequence(self, node: Node) -> int:
        value = 0
        for child in node.named_children:
            value = self._visit(child)
        return value

    def _ternary(self, node: Node) -> int:
        self._visit(node.child_by_field_name("condition"))
        return self._one_of(
            self._visit(node.child_by_field_name("consequence")),
            self._visit(node.child_by_field_name("alternative")),
        )

    def _binary(self, node: Node) -> int:
        at: Node | None = node
        while at is not None and at.type == "binary_expression":
            operator = at.child_by_field_name("operator")
            value = self._visit(at.child_by_field_name("right"))
            left = at.child_by_field_name("left")
            if operator is not None and operator.type in _CHOOSING:
                chosen = self._one_of(self._visit(left), value)
                return chosen if at is node else 0
            at = left
        self._visit(at)
        return 0

    def _identifier(self, node: Node) -> int:
        name = _word(node)
        found = self._find(name)
        if found:
            return found
        if name == "exports":
            return self._module
        if name == "arguments":
            function = self._functions[self._function]
            if function.value:
                function.arguments = function.arguments or self._new_node()
            return function.arguments
        return 0 if name in GLOBALS else self._variable(name)

    # Variables

    def _variables(self, node: Node) -> int:
        hoisted = node.type == "variable_declaration"
        is_constant = any(child.type == "const" for child in node.children)
        for child in node.named_children:
            if child.type != "variable_declarator":
                continue
            pattern = child.child_by_field_name("name")
            value = child.child_by_field_name("value")
            if pattern is None:
                continue
            if value is None:
                if pattern.type == "identifier":
                    self._declare(_word(pattern), hoisted=hoisted)
                continue
            if pattern.type == "identifier":
                name = _word(pattern)
                node_of = self._declare(name, hoisted=hoisted)
                if is_constant and value.type == "string":
                    said = name_said(value)
                    if said is not None:
                        self._scope.constants[name] = said
                self._copy(self._named(value, name), node_of)
            else:
                self._bind(pattern, self._visit(value), hoisted=hoisted)
        return 0

    def _bind(self, pattern: Node, value: int, *, hoisted: bool = False) -> None:
        """Give the variables of a pattern what they take of a value."""

        def into(target: Node, taken: int) -> None:
            self._copy(taken, self._declare(_word(target), hoisted=hoisted))

        self._take(pattern, value, into)

    def _take(self, pattern: Node, value: int, into: Callable[[Node, int], None]) -> None:
        if self._depth >= _DEPTH_MAX:
            return
        self._depth += 1
        kind = pattern.type
        if kind in ("identifier", "shorthand_property_identifier_pattern"):
            into(pattern, value)
        elif kind in ("assignment_pattern", "object_assignment_pattern"):
            left = pattern.child_by_field_name("left")
            default = self._visit(pattern.child_by_field_name("right"))
            if left is not None:
                if left.type == "shorthand_property_identifier_pattern" and kind.startswith("obj"):
                    value = self._load(value, _word(left), left)
                self._take(left, self._one_of(value, default), into)
        elif kind == "object_pattern":
            for part in pattern.named_children:
                if part.type == "shorthand_property_identifier_pattern":
                    into(part, self._load(value, _word(part), part))
                elif part.type == "pair_pattern":
                    key = self._key(part.child_by_field_name("key"))
                    inner = part.child_by_field_name("value")
                    if inner is not None:
                        self._take(inner, self._load(value, key or ANY, part), into)
                elif part.type == "rest_pattern" and part.named_child_count:
                    self._take(part.named_children[0], value, into)
                elif part.type == "object_assignment_pattern":
                    self._take(part, value, into)
        elif kind == "array_pattern":
            at = -1
            after_comma = True
            for part in pattern.children:
                if part.type == ",":
                    at += after_comma
                    after_comma = True
                elif part.is_named and part.type != "comment":
                    at += 1
                    after_comma = False
                    if part.type == "rest_pattern" and part.named_child_count:
                        others = self._made(ARRAY)
                        rest = self._load(value, f"{at}{REST}", part)
                        self._store(others, ELEMENT, rest, part)
                        self._take(part.named_children[0], others, into)
                    else:
                        self._take(part, self._load(value, str(at), part), into)
        elif kind in ("member_expression", "subscript_expression"):
            self._assign(pattern, value)
        self._depth -= 1

    # Assignments

    def _assignment(self, node: Node) -> int:
        left = node.child_by_field_name("left")
        value = self._visit(node.child_by_field_name("right"))
        if left is not None:
            self._assign(left, value)
        return value

    def _augmented(self, node: Node) -> int:
        left = node.child_by_field_name("left")
        value = self._visit(node.child_by_field_name("right"))
        operator = _word(node.child_by_field_name("operator"))
        if left is not None and operator in ("||=", "&&=", "??="):
            self._assign(left, value)
            return self._one_of(value, self._visit(left))
        return 0

    def _assign(self, left: Node, value: int) -> None:
        while left.type in _WRAPPERS and left.named_child_count:
            left = left.named_children[0]
        kind = left.type
        if kind == "identifier":
            name = _word(left)
            if name == "exports" and not self._find(name):
                self._copy(value, self._module)
            else:
                self._give(name, value)
        elif kind == "member_expression":
            named = left.child_by_field_name("property")
            below = left.child_by_field_name("object")
            if named is None or below is None:
                return
            if _word(named) == "exports" and self._is_global(below, "module"):
                self._copy(value, self._module)
            else:
                self._store(self._visit(below), _word(named), value or self._nothing(), left)
        elif kind == "subscript_expression":
            holder = self._visit(left.child_by_field_name("object"))
            index = left.child_by_field_name("index")
            key = self._constant(index)
            if key is None:
                self._visit(index)
            self._store(holder, key or ELEMENT, value, left)
        elif kind in ("array_pattern", "object_pattern"):

            def into(target: Node, taken: int) -> None:
                self._give(_word(target), taken)

            self._take(left, value, into)

    def _nothing(self) -> int:
        """A value of no interest that a setter may be given all the same."""
        return self._new_node()

    # Objects

    def _key(self, node: Node | None) -> str | None:
        """The name of a member as it is written in an object, a class or a pattern."""
        if node is None:
            return None
        if node.type == "computed_property_name":
            inner = next((one for one in node.named_children if one.type != "comment"), None)
            return self._constant(inner) or key_of(node)
        if node.type == "number":
            return self._constant(node)
        return key_of(node)

    def _object(self, node: Node, called: str = "") -> int:
        """An object; ``called`` is the name that it gets. One that is written with values none of
        which is of interest is of none itself, unless it has a name to be given more by."""
        before = f"{called}." if called else ""
        made, is_filled = self._new_node(), False
        for part in node.named_children[:_ELEMENTS_MAX]:
            kind = part.type
            if kind == "pair":
                key = self._key(part.child_by_field_name("key"))
                value = part.child_by_field_name("value")
                if value is not None:
                    taken = self._named(value, before + key if key else "")
                    is_filled |= self._store(made, key or ELEMENT, taken, part)
            elif kind == "method_definition":
                key = self._key(part.child_by_field_name("name"))
                words = {child.type for child in part.children}
                method = self._new_function(part, before + key if key else "")
                accessor = GETTER if "get" in words else SETTER if "set" in words else ""
                is_filled |= self._store(made, accessor + (key or ELEMENT), method, part)
            elif kind == "shorthand_property_identifier":
                name = _word(part)
                found = self._find(name) or (0 if name in GLOBALS else self._variable(name))
                is_filled |= self._store(made, name, found, part)
            elif kind == "spread_element":
                is_filled |= self._store(made, PARENT, self._first_of(part), part)
        if not called and node.named_child_count and not is_filled:
            return 0
        self._objects += (made, OBJECT)
        return made

    def _array(self, node: Node, called: str = "") -> int:
        made, is_filled = self._new_node(), False
        at = 0
        spread = False
        for part in node.children:
            if part.type == ",":
                at += 1
            elif part.type == "spread_element":
                spread = True
                source = self._first_of(part)
                if source:
                    is_filled |= self._store(made, ELEMENT, self._iterate(source, part), part)
            elif part.is_named and part.type != "comment":
                value = self._visit(part)
                name = ELEMENT if spread or at >= _ELEMENTS_MAX else str(at)
                is_filled |= self._store(made, name, value, part)
        if not called and node.named_child_count and not is_filled:
            return 0
        self._objects += (made, ARRAY)
        return made

    def _named(self, value: Node, name: str) -> int:
        """The value of an expression that gets a name, if it is a function or object without
        one."""
        while value.type == "parenthesized_expression" and value.named_child_count == 1:
            value = value.named_children[0]
        if value.type in _FUNCTIONS:
            return self._new_function(value, name)
        if value.type == "object" and self._depth < _DEPTH_MAX:
            self._depth += 1
            made = self._object(value, name)
            self._depth -= 1
            return made
        if value.type == "array":
            return self._array(value, name)
        return self._visit(value)

    def _member(self, node: Node) -> int:
        named = node.child_by_field_name("property")
        below = node.child_by_field_name("object")
        if named is None or below is None:
            return 0
        name = _word(named)
        if name == "exports" and self._is_global(below, "module"):
            return self._module
        if below.type == "super":
            return self._of_super(name, node)
        return self._load(self._visit(below), name, node)

    def _subscript(self, node: Node) -> int:
        below = self._visit(node.child_by_field_name("object"))
        index = node.child_by_field_name("index")
        key = self._constant(index)
        if key is None:
            self._visit(index)
        return self._load(below, key or ANY, node)

    # Functions

    def _declared_function(self, node: Node) -> int:
        value = self._new_function(node, "")
        name = node.child_by_field_name("name")
        if name is not None and node.start_byte not in self._replaced:
            self._copy(value, self._declare(_word(name)))
        return value

    def _anonymous(self, node: Node) -> int:
        return self._new_function(node, "")

    def _new_function(self, node: Node, name: str) -> int:
        """A function, which is walked later; returns the node that has it."""
        functions = self._functions
        number = len(functions)
        index = self._declared.get((node.start_byte, node.end_byte), -1)
        is_arrow = node.type == "arrow_function"
        flags = 0
        if is_arrow:
            flags = ARROW
        elif node.type.startswith("generator_") or (
            node.type == "method_definition" and any(one.type == "*" for one in node.children)
        ):
            flags = GENERATOR
        own = node.child_by_field_name("name")
        if own is not None and node.type != "method_definition":
            name = _word(own)
        function = JavaScriptFunctionFlow(
            index,
            self._function,
            flags=flags,
            value=self._new_node(),
            this=0 if is_arrow else self._new_node(),
            returns=self._new_node(),
        )
        if index < 0:
            self._unnamed[number] = Unnamed(
                name, line_of(node), end_line_of(node), signature("", node)
            )
        if flags & GENERATOR:
            function.yields, function.sent = self._new_node(), self._new_node()
        functions.append(function)
        this = self._this if is_arrow else function.this
        self._bodies.append((node, self._scope, number, this, self._class))
        return function.value

    def _body(self, node: Node, around: _BlockScope, number: int, this: int, of_class: int) -> None:
        self._scope = _BlockScope(around, number, is_function=True)
        self._function, self._this, self._class = number, this, of_class
        self._depth = 0
        function = self._functions[number]
        own = node.child_by_field_name("name")
        if own is not None and node.type in ("function_expression", "generator_function"):
            self._scope.nodes[_word(own)] = function.value
        parameters = node.child_by_field_name("parameters")
        single = node.child_by_field_name("parameter")
        given = (
            [one for one in parameters.named_children if one.type != "comment"]
            if parameters is not None
            else [single]
            if single is not None
            else []
        )
        nodes: list[int] = []
        for one in given[:_PARAMETERS_MAX]:
            self._parameter(one, function, nodes, number)
        function.parameters = tuple(nodes)
        body = node.child_by_field_name("body")
        if body is None:
            return
        if body.type == "statement_block":
            self._statements(body)
        else:
            self._give_back(body)

    def _parameter(
        self, node: Node, function: JavaScriptFunctionFlow, nodes: list[int], number: int
    ) -> None:
        pattern: Node | None = node
        default: Node | None = None
        is_field = False
        if node.type in ("required_parameter", "optional_parameter"):
            pattern = node.child_by_field_name("pattern")
            default = node.child_by_field_name("value")
            is_field = any(child.type in _FIELD_WORDS for child in node.children)
        if pattern is None or pattern.type == "this":
            return
        if pattern.type == "assignment_pattern":
            default = pattern.child_by_field_name("right")
            pattern = pattern.child_by_field_name("left")
        if pattern is None:
            return
        if pattern.type == "rest_pattern":
            function.rest = self._new_node()
            if pattern.named_child_count:
                self._bind(pattern.named_children[0], function.rest)
            return
        if pattern.type == "identifier":
            given = self._declare(_word(pattern))
            self._parameters[given] = (number, len(nodes))
        else:
            given = self._new_node()
        if default is not None:
            self._assigned.add(given)
            self._copy(self._visit(default), given)
        nodes.append(given)
        if pattern.type != "identifier":
            self._bind(pattern, given)
        elif is_field:
            self._store(self._this, _word(pattern), given, node)

    def _return(self, node: Node) -> int:
        for child in node.named_children:
            if child.type != "comment":
                self._give_back(child)
                break
        return 0

    def _give_back(self, node: Node) -> None:
        number = self._function
        function = self._functions[number]
        value = self._visit(node)
        owner, position = self._parameters.get(value, (-1, 0))
        if owner == number:
            if position not in function.passed:
                function.passed = (*function.passed, position)
                self._returned.append((number, value))
        else:
            self._copy(value, function.returns)

    def _yield(self, node: Node) -> int:
        value = self._first_of(node)
        function = self._functions[self._function]
        if any(child.type == "*" for child in node.children):
            if value:
                self._copy(self._iterate(value, node), function.yields)
            return 0
        self._copy(value, function.yields)
        return function.sent

    # Classes

    def _declared_class(self, node: Node) -> int:
        value = self._new_class(node)
        name = node.child_by_field_name("name")
        if name is not None:
            self._copy(value, self._declare(_word(name)))
        return value

    def _class_expression(self, node: Node) -> int:
        return self._new_class(node)

    def _above(self) -> int:
        """What the class around extends."""
        return 0 if self._class < 0 else self._classes[self._class].base

    def _of_super(self, name: str, at: Node) -> int:
        """``super.name``: of a prototype, or in a static method of a class."""
        base = self._above()
        return self._one_of(
            self._load(self._load(base, PROTOTYPE, at), name, at), self._load(base, name, at)
        )

    def _new_class(self, node: Node) -> int:
        number = len(self._classes)
        value, instance = self._new_node(), self._new_node()
        index = self._declared.get((node.start_byte, node.end_byte), -1)
        heritage = next((one for one in node.named_children if one.type == "class_heritage"), None)
        before = (self._function, self._this, self._class, self._scope)
        self._functions.append(JavaScriptFunctionFlow(index, self._function, this=instance))
        self._function = len(self._functions) - 1
        base = 0 if heritage is None else self._base(heritage)
        made = JavaScriptClassFlow(index, value, base, instance, -1, [])
        self._classes.append(made)
        self._scope = _BlockScope(self._scope, self._function, is_function=True)
        self._this, self._class = instance, number
        own = node.child_by_field_name("name")
        if own is not None:
            self._scope.nodes[_word(own)] = value
        self._decorators(node, value)
        body = node.child_by_field_name("body")
        for member in [] if body is None else body.named_children:
            self._class_member(member, made)
        self._function, self._this, self._class, self._scope = before
        return value

    def _base(self, heritage: Node) -> int:
        for part in heritage.named_children:
            if part.type == "implements_clause":
                continue
            if part.type == "extends_clause":
                value = part.child_by_field_name("value")
                return self._visit(value)
            return self._visit(part)
        return 0

    def _class_member(self, node: Node, made: JavaScriptClassFlow) -> None:
        kind = node.type
        words = {child.type for child in node.children}
        static = "static" in words
        if kind == "method_definition":
            key = self._key(node.child_by_field_name("name"))
            number = len(self._functions)
            value = self._new_function(node, key or "")
            self._decorators(node, value)
            if key == CONSTRUCTOR and not static:
                made.constructor = number
                return
            accessor = GETTER if "get" in words else SETTER if "set" in words else ""
            whose = ON_CLASS if static else ON_PROTOTYPE
            made.members += (whose, self._name(accessor + (key or ELEMENT)), value)
        elif kind in ("field_definition", "public_field_definition"):
            name = node.child_by_field_name("name") or node.child_by_field_name("property")
            key = self._key(name)
            value_node = node.child_by_field_name("value")
            self._decorators(node, 0)
            if value_node is not None:
                before = self._this
                self._this = made.value if static else made.instance
                value = self._named(value_node, key or "")
                self._this = before
                if value:
                    whose = ON_CLASS if static else ON_INSTANCE
                    made.members += (whose, self._name(key or ELEMENT), value)
        elif kind == "class_static_block":
            before, self._this = self._this, made.value
            self._visit(node.child_by_field_name("body"))
            self._this = before
        elif kind == "decorator":
            self._decorator(node, 0)

    def _decorators(self, node: Node, value: int) -> None:
        around = [node]
        if node.parent is not None and node.parent.type == "export_statement":
            around.append(node.parent)
        for one in around:
            for child in one.named_children:
                if child.type == "decorator":
                    self._decorator(child, value)

    def _decorator(self, node: Node, value: int) -> None:
        decorating = self._first_of(node)
        if decorating:
            self._noted(CALL, node, callee=decorating, given=(value,))

    # Calls

    def _noted(
        self,
        kind: int,
        node: Node,
        *,
        callee: int = 0,
        receiver: int = 0,
        name: str = "",
        given: tuple[int, ...] = (),
        ordinal: int = -1,
        quiet: bool = False,
        result: int = 0,
    ) -> int:
        result = result or self._new_node()
        self._noted_calls.append(
            JavaScriptCallFlow(
                kind,
                callee,
                receiver,
                self._name(name) if name else -1,
                result,
                line_of(node),
                self._function,
                ordinal,
                quiet,
                given,
            )
        )
        return result

    def _given(self, arguments: Node | None) -> tuple[int, ...]:
        if arguments is None:
            return ()
        if arguments.type != "arguments":
            self._visit(arguments)  # the text of a template
            return ()
        found: list[int] = []
        for one in arguments.named_children:
            if one.type == "spread_element":
                found.append(-self._first_of(one))
            elif one.type != "comment":
                found.append(self._visit(one))
        return tuple(found)

    def _ordinal(self, node: Node) -> int:
        return self._calls.get((node.start_byte, node.end_byte), -1)

    def _call(self, node: Node) -> int:
        written = node.child_by_field_name("function")
        if written is not None and written.type in ("identifier", "import"):
            specifier = specifier_of(node)
            if specifier is not None:
                return self._imported(specifier, "")
        function = _unwrapped(written)
        arguments = node.child_by_field_name("arguments")
        if function is None:
            return 0
        if function.type == "super":
            return self._noted(
                SUPER,
                function,
                callee=self._above(),
                receiver=self._this,
                given=self._given(arguments),
                ordinal=self._ordinal(function),
            )
        if function.type == "member_expression":
            return self._method_call(node, function, arguments)
        if function.type == "identifier":
            if self._is_global(function, *_TIMERS):
                given = self._given(arguments)
                if given and given[0] > 0:
                    self._noted(CALLBACK, function, callee=given[0], quiet=True)
                return 0
            callee = self._identifier(function)
            return self._noted(
                CALL,
                function,
                callee=callee,
                given=self._given(arguments),
                ordinal=self._ordinal(function),
            )
        if function.type == "subscript_expression":
            return self._subscript_call(node, function, arguments)
        callee = self._visit(function)
        return self._noted(
            CALL,
            node,
            callee=callee,
            given=self._given(arguments),
            ordinal=self._ordinal(node),
            quiet=function.type in _FUNCTIONS,
        )

    def _subscript_call(self, node: Node, function: Node, arguments: Node | None) -> int:
        below = self._visit(function.child_by_field_name("object"))
        index = function.child_by_field_name("index")
        key = self._constant(index)
        if key is None:
            self._visit(index)
        return self._noted(
            METHOD,
            node,
            receiver=below,
            name=key or ANY,
            given=self._given(arguments),
            ordinal=self._ordinal(node),
        )

    def _method_call(self, node: Node, function: Node, arguments: Node | None) -> int:
        named = function.child_by_field_name("property")
        below = function.child_by_field_name("object")
        if named is None or below is None:
            return 0
        name = _word(named)
        if (
            below.type == "identifier"
            and _word(below) in _STATIC_OF
            and not self._find(_word(below))
        ):
            return self._builtin(f"{_word(below)}.{name}", node, arguments)
        ordinal = self._ordinal(named)
        if below.type == "super":
            given = self._given(arguments)
            callee = self._of_super(name, node)
            return self._noted(
                CALL,
                named,
                callee=callee,
                receiver=self._this,
                given=given,
                ordinal=ordinal,
            )
        plain = _unwrapped(below)
        quiet = plain is not None and plain.type in _FUNCTIONS
        receiver = self._visit(below)
        given = self._given(arguments)
        result = self._noted(
            METHOD, named, receiver=receiver, name=name, given=given, ordinal=ordinal
        )
        if name in ("call", "apply", "bind") and receiver:
            if ordinal < 0 and plain is not None:
                last = plain.child_by_field_name("property") or plain
                ordinal = self._ordinal(last)
            this = given[0] if given and given[0] > 0 else 0
            rest = given[1:]
            if name == "apply":
                rest = tuple(-one for one in rest[:1])
            kind = BIND if name == "bind" else CALL
            self._noted(
                kind,
                named,
                callee=receiver,
                receiver=this,
                given=rest,
                ordinal=-1 if kind == BIND else ordinal,
                quiet=quiet,
                result=result,
            )
        return result

    def _new(self, node: Node) -> int:
        constructor = _unwrapped(node.child_by_field_name("constructor"))
        arguments = node.child_by_field_name("arguments")
        if constructor is None:
            return 0
        if constructor.type == "identifier" and not self._find(_word(constructor)):
            name = _word(constructor)
            if name in _CONTAINERS:
                return self._container(_CONTAINERS[name], node, arguments)
            given = self._given(arguments)
            if name == "Promise" and given and given[0] > 0:
                return self._noted(PROMISE, node, callee=given[0], quiet=True)
            if name == "Proxy" and given:
                return max(given[0], 0)
            if name in GLOBALS:
                return 0
            callee = self._identifier(constructor)
        else:
            callee = self._visit(constructor)
            given = self._given(arguments)
        last = constructor
        if constructor.type == "member_expression":
            last = constructor.child_by_field_name("property") or constructor
        ordinal = self._ordinal(last)
        if ordinal < 0:
            ordinal = self._ordinal(node)
        return self._noted(NEW, last, callee=callee, given=given, ordinal=ordinal)

    def _container(self, kind: int, node: Node, arguments: Node | None) -> int:
        made = self._made(kind)
        given = self._given(arguments)
        if given and given[0] > 0 and kind != ARRAY:
            member = self._iterate(given[0], node)
            if kind == MAP:
                member = self._load(member, "1", node)
            self._store(made, ELEMENT, member, node)
        return made

    def _builtin(self, name: str, node: Node, arguments: Node | None) -> int:
        """A function of ``Object``, ``Array``, ``Promise`` or ``Reflect``."""
        texts = [] if arguments is None else arguments.named_children
        given = self._given(arguments)
        first = max(given[0], 0) if given else 0
        second = max(given[1], 0) if len(given) > 1 else 0
        third = max(given[2], 0) if len(given) > 2 else 0
        if name in _UNCHANGED:
            return first
        match name:
            case "Object.assign":
                for source in given[1:]:
                    self._store(first, PARENT, abs(source), node)
                return first
            case "Object.create":
                made = self._made(OBJECT)
                self._store(made, PARENT, first, node)
                return made
            case "Object.setPrototypeOf" | "Reflect.setPrototypeOf":
                self._store(first, PARENT, second, node)
                return first
            case "Object.values" | "Object.entries":
                made = self._made(ARRAY)
                value = self._load(first, ANY, node)
                if name == "Object.entries" and value:
                    pair = self._made(ARRAY)
                    self._store(pair, "1", value, node)
                    value = pair
                self._store(made, ELEMENT, value, node)
                return made
            case "Object.fromEntries":
                made = self._made(OBJECT)
                pair = self._iterate(first, node) if first else 0
                self._store(made, ELEMENT, self._load(pair, "1", node), node)
                return made
            case "Object.defineProperty" if len(texts) > 2:
                key = self._constant(texts[1])
                value = self._load(third, "value", node)
                self._store(first, key or ELEMENT, value, node)
                self._store(first, GETTER + (key or ELEMENT), self._load(third, "get", node), node)
                return first
            case "Array.from":
                made = self._made(ARRAY)
                element = self._iterate(first, node) if first else 0
                if second:
                    element = self._noted(
                        CALLBACK, node, callee=second, given=(element,), quiet=True
                    )
                self._store(made, ELEMENT, element, node)
                return made
            case "Array.of":
                made = self._made(ARRAY)
                for at, one in enumerate(given):
                    self._store(made, str(at), max(one, 0), node)
                return made
            case "Promise.race" | "Promise.any":
                return self._load(first, ANY, node)
            case "Reflect.apply" if first:
                return self._noted(
                    CALL, node, callee=first, receiver=second, given=(-third,) if third else ()
                )
            case "Reflect.construct" if first:
                return self._noted(NEW, node, callee=first, given=(-second,) if second else ())
            case "Reflect.get" if len(texts) > 1:
                return self._load(first, self._constant(texts[1]) or ANY, node)
        return 0

    # Modules

    def _imported(self, specifier: str, remote: str | None) -> int:
        node = self._new_node()
        name = -1 if not remote else self._name(remote)
        self._imports += (self._name(specifier), name, node)
        return node

    def _import(self, node: Node) -> int:
        source = string_of(node.child_by_field_name("source"))
        for clause in node.named_children:
            if clause.type == "import_require_clause":
                wanted = string_of(clause.child_by_field_name("source"))
                for local in clause.named_children[:1]:
                    if wanted:
                        self._top.nodes[_word(local)] = self._imported(wanted, "")
            elif clause.type == "import_clause" and source:
                for part in clause.named_children:
                    self._import_part(part, source)
        return 0

    def _import_part(self, part: Node, source: str) -> None:
        if part.type == "identifier":
            self._top.nodes[_word(part)] = self._imported(source, "default")
        elif part.type == "namespace_import":
            for name in part.named_children[:1]:
                self._top.nodes[_word(name)] = self._imported(source, "")
        elif part.type == "named_imports":
            for one in part.named_children:
                remote = one.child_by_field_name("name")
                if remote is not None:
                    local = one.child_by_field_name("alias") or remote
                    self._top.nodes[_said(local)] = self._imported(source, _said(remote))

    def _export(self, node: Node) -> int:
        source = string_of(node.child_by_field_name("source"))
        declaration = node.child_by_field_name("declaration")
        value = node.child_by_field_name("value")
        children = node.named_children
        if source is not None:
            self._export_from(source, children)
        elif declaration is not None:
            made = self._visit(declaration)
            name = declaration.child_by_field_name("name")
            if any(child.type == "default" for child in node.children):
                self._export_as("default", made)
            elif name is not None and made:
                self._export_as(_word(name), made)
            else:
                for declarator in declaration.named_children:
                    pattern = declarator.child_by_field_name("name")
                    for local in [] if pattern is None else bound_names(pattern):
                        self._export_as(local, self._find(local))
        elif value is not None:
            self._export_as("default", self._named(value, "default"))
        elif children and any(child.type == "=" for child in node.children):
            self._copy(self._visit(children[-1]), self._module)
        else:
            self._clauses += [child for child in children if child.type == "export_clause"]
        return 0

    def _export_as(self, name: str, value: int) -> None:
        if value and self._scope is self._top:
            self._exports += (self._name(name), value)

    def _export_from(self, source: str, children: list[Node]) -> None:
        clauses = [one for one in children if one.type in ("export_clause", "namespace_export")]
        if not clauses:
            self._wildcards.append(self._name(source))
        for clause in clauses:
            if clause.type == "namespace_export":
                for alias in clause.named_children[:1]:
                    self._export_as(_said(alias), self._imported(source, ""))
                continue
            for one in clause.named_children:
                remote = one.child_by_field_name("name")
                if one.type == "export_specifier" and remote is not None:
                    name = _said(one.child_by_field_name("alias") or remote)
                    self._export_as(name, self._imported(source, _said(remote)))

    def _conclude_exports(self) -> None:
        self._scope = self._top
        for clause in self._clauses:
            for one in clause.named_children:
                local = one.child_by_field_name("name")
                if one.type == "export_specifier" and local is not None:
                    name = _said(one.child_by_field_name("alias") or local)
                    self._export_as(name, self._find(_word(local)))


_HOISTED: Final = frozenset(
    {
        "abstract_class_declaration",
        "class_declaration",
        "function_declaration",
        "generator_function_declaration",
    }
)
_FIELD_WORDS: Final = frozenset({"accessibility_modifier", "override_modifier", "readonly"})
_STATIC_OF: Final = frozenset({"Array", "Object", "Promise", "Reflect"})


def _word(node: Node | None) -> str:
    """The text of an identifier or an operator. There are many of them."""
    content = None if node is None else node.text
    return "" if content is None else content.decode("utf-8", "replace")[:_WORD_CHARACTERS_MAX]


def _nothing(_node: Node) -> int:
    return 0


def _said(node: Node) -> str:
    return (string_of(node) or "") if node.type == "string" else _word(node)


def key_of_symbol(node: Node) -> str | None:
    """``[Symbol.iterator]`` as a key."""
    below, named = node.child_by_field_name("object"), node.child_by_field_name("property")
    if below is None or named is None or _word(below) != "Symbol":
        return None
    return f"[Symbol.{_word(named)}]"


def _unwrapped(node: Node | None) -> Node | None:
    """What is inside of parentheses and the like: the last of a sequence."""
    while node is not None and (node.type in _WRAPPERS or node.type == "sequence_expression"):
        inner = [child for child in node.named_children if child.type != "comment"]
        if not inner:
            return node
        if node.type == "sequence_expression":
            if any(one.type != "number" for one in inner[:-1]):
                return node
            node = inner[-1]
        else:
            node = inner[0]
    return node
