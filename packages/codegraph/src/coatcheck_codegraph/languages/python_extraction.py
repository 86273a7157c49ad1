"""Extracts the declarations, imports and calls of a Python file.

The lines of a function or class are those of its ``def`` or ``class`` statement: decorators above
it belong to the code around it. So do the calls in decorators, default values, annotations and
bases, because they run there. A lambda is a function with the name ``<lambda>``.

A variable has the kind of the first value assigned to it; once another kind of value is assigned to
the same name, the variable is unknown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
import tree_sitter_python
from tree_sitter import Language, Node, Parser

from coatcheck_codegraph.builder import Builder, line_of, name_of, named, text
from coatcheck_codegraph.facts import (
    FILE,
    IMPLIED,
    Binding,
    Declaration,
    FileFacts,
    Import,
    Ref,
    Step,
)
from coatcheck_codegraph.languages.alternatives import Conditions, hide, leave_open
from coatcheck_codegraph.languages.python_references import (
    OPAQUE,
    annotation,
    first_inside,
    lambda_signature,
    parameter_name,
    reference,
    signature,
)
from coatcheck_codegraph.python_values.extraction import Place, read_flow

# Functions and classes of one name in one place of a Python file: the last replaces the others.
#
# That is, if it is certain to be declared. What an ``if`` or an ``except`` declares may be there,
# or the other one; and so it is with a name that is declared and gets another value, too.


class PythonAlternatives:
    """The declarations of one file, and their conditions."""

    def __init__(self, facts: FileFacts) -> None:
        self._facts = facts
        self._conditions = Conditions()
        self._declared: dict[tuple[int, str], list[int]] = {}
        self._conditional: set[int] = set()
        self._from_inside: dict[str, list[Ref]] = {}

    def enter(self, node: Node) -> None:
        """Mark the inside of ``node`` as conditional."""
        self._conditions.enter(node)

    def declared(self, index: int, node: Node) -> None:
        """A function or a class is declared here."""
        declared = self._facts.declarations[index]
        parent = declared.parent
        around = None if parent == FILE else self._facts.declarations[parent]
        if self._conditions.hold_for(node, around):
            self._conditional.add(index)
        self._declared.setdefault((parent, declared.name), []).append(index)

    def assigned_from_inside(self, name: str, value: Ref) -> None:
        """A function assigns to a variable that is not its own (``global``, ``nonlocal``)."""
        self._from_inside.setdefault(name, []).append(value)

    def _settle_inner_assignments(self) -> None:
        variables = self._facts.variables
        for name, values in self._from_inside.items():
            if (
                any(value != variables.get(name, value) for value in values)
                or (FILE, name) in self._declared
            ):
                variables[name] = Ref("opaque", ())

    def settle(self) -> None:
        """After the walk: make each name mean the last of its declarations, or none."""
        self._settle_inner_assignments()
        replaced_until: dict[tuple[int, str], int] = {}
        for (parent, name), found in self._declared.items():
            last = found[-1]
            if self._gets_other_value(parent, name) or (
                len(found) > 1 and last in self._conditional
            ):
                leave_open(self._facts, found)
            elif len(found) > 1:
                replaced_until[(parent, name)] = self._facts.declarations[last].line
                for index in found[:-1]:
                    hide(self._facts.declarations[index])
        self._obscure_calls(replaced_until)

    def _gets_other_value(self, parent: int, name: str) -> bool:
        """Whether a name that is declared is assigned to, too. ``f = cached(f)`` is still f."""
        if parent == FILE:
            held = self._facts.variables.get(name)
        else:
            around = self._facts.declarations[parent]
            held = around.locals.get(name) if around.kind == "function" else None
        return held is not None and not (held.steps and held.steps[-1].called)

    def _obscure_calls(self, replaced_until: dict[tuple[int, str], int]) -> None:
        """What runs before the last declaration, and is not in a function, means another one."""
        calls = self._facts.calls
        for at, call in enumerate(calls if replaced_until else ()):
            steps = call.callee.steps
            if call.callee.base == "name" and steps:
                until = replaced_until.get((call.caller, steps[0].name), 0)
                if call.line < until:
                    calls[at] = msgspec.structs.replace(call, callee=Ref("opaque", steps))


LAMBDA: Final = "<lambda>"
_GRAMMAR: Final = Language(tree_sitter_python.language())
_PROPERTIES: Final = frozenset({"property", "cached_property", "abstractproperty"})
_ACCESSORS: Final = frozenset({"setter", "deleter", "getter"})


@dataclass(frozen=True, slots=True)
class _Enter:
    """On the stack: the inside of a declaration."""

    index: int
    block: Node


@dataclass(frozen=True, slots=True)
class _EnterLambda:
    """On the stack: the expression that a lambda is."""

    index: int
    body: Node


class _Leave:
    """On the stack: the walk leaves a declaration here."""


_LEAVE: Final = _Leave()


class _Function:
    """The facts of a function, collected while the walk is in it."""

    def __init__(self, declared: Declaration | None) -> None:
        self.declared = declared
        self.certain: set[str] = set()
        self.outer_names: set[str] = set()
        self.returned: dict[Ref, None] = {}
        self.is_generator = False


def extract(path: str, source: bytes) -> FileFacts:
    """The facts of a Python file."""
    return _PythonWalk(path).over(source)


class _PythonWalk:
    def __init__(self, path: str) -> None:
        self.builder = Builder(path, "python")
        self.facts = self.builder.facts
        self.stack: list[Node | _Enter | _EnterLambda | _Leave] = []
        self.functions = [_Function(None)]
        self.certain_fields: set[tuple[int, str]] = set()
        self.decorators: dict[int, list[Node]] = {}
        self.alternatives = PythonAlternatives(self.facts)
        self.call_places: dict[Place, int] = {}
        self.lambda_places: dict[Place, int] = {}

    def over(self, source: bytes) -> FileFacts:
        tree = Parser(_GRAMMAR).parse(source)
        self.facts.lines = source.count(b"\n") + (not source.endswith(b"\n") and bool(source))
        self.facts.broken = tree.root_node.has_error
        # The hot loop: values are looked up once, and no empty lists are made.
        stack, visits = self.stack, _VISITS
        stack.append(tree.root_node)
        while stack:
            node = stack.pop()
            if isinstance(node, Node):
                visit = visits.get(node.type)
                if visit is not None:
                    visit(self, node)
                elif node.named_child_count:
                    children = node.named_children
                    children.reverse()
                    stack += children
            elif isinstance(node, _Leave):
                self._leave()
            else:
                self._enter(node)
        self._settle_overloads()
        self.alternatives.settle()
        self.facts.python_values = read_flow(
            source, self.facts, self.call_places, self.lambda_places
        )
        return self.facts

    def _settle_overloads(self) -> None:
        """Overloads that no function follows (in a stub) are functions themselves."""
        implemented = {one.qualified for one in self.facts.declarations if not one.forward}
        for declared in self.facts.declarations:
            declared.forward = declared.forward and declared.qualified in implemented

    def _later(self, nodes: list[Node]) -> None:
        self.stack.extend(reversed(nodes))

    def _enter(self, inside: _Enter | _EnterLambda) -> None:
        self.builder.enter(inside.index)
        declared = self.facts.declarations[inside.index]
        if declared.kind == "function":
            self.functions.append(_Function(declared))
        self.stack.append(_LEAVE)
        if isinstance(inside, _Enter):
            self._later(inside.block.named_children)
        else:
            self.stack.append(inside.body)

    def _leave(self) -> None:
        declared = self.builder.here_declared
        self.builder.leave()
        if declared is None or declared.kind != "function":
            return
        function = self.functions.pop()
        if declared.returns is None and len(function.returned) == 1 and not function.is_generator:
            declared.returns = next(iter(function.returned))

    # Declarations

    def decorated(self, node: Node) -> None:
        definition = node.child_by_field_name("definition")
        decorators = [child for child in node.named_children if child.type == "decorator"]
        if definition is not None:
            self.decorators[definition.id] = decorators
        self._later(node.named_children)

    def function(self, node: Node) -> None:
        body = node.child_by_field_name("body")
        decorators = [
            reference(first_inside(decorator)) for decorator in self.decorators.pop(node.id, ())
        ]
        marks = {ref.steps[-1].name for ref in decorators if ref.steps}
        around = self.builder.here_declared
        is_method = around is not None and around.kind == "class"
        result = node.child_by_field_name("return_type")
        returns = annotation(result)
        index = self.builder.declare(
            "function",
            name_of(node.child_by_field_name("name")),
            node,
            signature=signature(node),
            # An overload says how the function that follows may be called.
            forward="overload" in marks,
            returns=OPAQUE if returns is None and result is not None else returns,
            static=is_method and bool(marks & {"classmethod", "staticmethod"}),
        )
        declared = self.facts.declarations[index]
        if not declared.forward and not marks & _ACCESSORS:
            self.alternatives.declared(index, node)
        if is_method and marks & _PROPERTIES:
            self.builder.field(declared.name, Ref("self", (Step(declared.name, True),)))
        parameters = node.child_by_field_name("parameters")
        listed = [] if parameters is None else parameters.named_children
        for position, parameter in enumerate(listed):
            name = parameter_name(parameter)
            if name:
                typed = _splat(parameter) or annotation(parameter.child_by_field_name("type"))
                bound = position == 0 and is_method and "staticmethod" not in marks
                declared.locals[name] = Ref("self", ()) if bound else typed or OPAQUE
        if body is not None:
            # Pushed first, met last: what is around the body runs outside of it.
            self.stack.append(_Enter(index, body))
        outside = [child for child in node.named_children if child.type == "type"]
        self._later([*listed, *outside])

    def class_(self, node: Node) -> None:
        self.decorators.pop(node.id, None)
        superclasses = node.child_by_field_name("superclasses")
        listed = [] if superclasses is None else superclasses.named_children
        bases = [
            _as_base(base)
            for base in listed
            if base.type not in ("keyword_argument", "list_splat", "dictionary_splat", "comment")
        ]
        name = name_of(node.child_by_field_name("name"))
        index = self.builder.declare("class", name, node, bases=bases)
        self.alternatives.declared(index, node)
        body = node.child_by_field_name("body")
        if body is not None:
            self.stack.append(_Enter(index, body))
        self._later(listed)

    def type_alias(self, node: Node) -> None:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        name = None if left is None else first_inside(left)
        if name is not None and name.type == "generic_type":
            name = first_inside(name)
        if name is not None and name.type == "identifier":
            self.builder.declare("type", name_of(name), node, returns=annotation(right))

    # Imports

    def import_(self, node: Node) -> None:
        for child in node.children_by_field_name("name"):
            alias = None
            dotted: Node | None = child
            if child.type == "aliased_import":
                alias = child.child_by_field_name("alias")
                dotted = child.child_by_field_name("name")
            module = _dotted(dotted)
            first = module.partition(".")[0]
            if alias is not None:
                self._imports(node, module, (Binding(name_of(alias)),))
            elif module == first:
                self._imports(node, module, (Binding(first),))
            else:
                self._imports(node, module, ())
                self._imports(node, first, (Binding(first),), kind=IMPLIED)

    def import_from(self, node: Node) -> None:
        module = _dotted(node.child_by_field_name("module_name"))
        bindings = []
        for child in node.children_by_field_name("name"):
            if child.type == "aliased_import":
                remote = _dotted(child.child_by_field_name("name"))
                bindings.append(Binding(name_of(child.child_by_field_name("alias")), remote))
            else:
                remote = _dotted(child)
                bindings.append(Binding(remote, remote))
        if any(child.type == "wildcard_import" for child in node.named_children):
            bindings.append(Binding("*", "*"))
        if module:
            self._imports(node, module, tuple(bindings))

    def import_future(self, node: Node) -> None:
        self._imports(node, "__future__", ())

    def _imports(
        self, node: Node, module: str, bindings: tuple[Binding, ...], kind: str = ""
    ) -> None:
        here = self.builder.here
        self.facts.imports.append(
            Import(line_of(node), module, bindings, kind, exported=here == FILE, scope=here)
        )

    # Calls and values

    def call(self, node: Node) -> None:
        function = node.child_by_field_name("function")
        # What a call gives has no name, unlike what is called.
        ref = OPAQUE if _gives(function) else reference(function)
        if ref.steps:
            last = ref.steps[-1]
            ref = Ref(ref.base, (*ref.steps[:-1], Step(last.name, True)))
        where = function
        if function is not None and function.type == "attribute":
            where = function.child_by_field_name("attribute")
        self.call_places[_place(where or node)] = len(self.facts.calls)
        self.builder.call(where or node, ref)
        self._later(node.named_children)

    def assignment(self, node: Node) -> None:
        left = node.child_by_field_name("left")
        right = node.child_by_field_name("right")
        written = node.child_by_field_name("type")
        typed = annotation(written)
        if left is not None and right is not None and self._declares_type(node, left, right, typed):
            self._later([right])
            return
        while right is not None and right.type == "assignment":
            value = right.child_by_field_name("right")
            if value is None:
                break
            right = value
        if left is not None:
            certain = written is not None
            if certain:
                value_ref: Ref | None = typed or OPAQUE
            else:
                value_ref = None if right is None or right.type == "none" else reference(right)
            self._assigned(left, value_ref, certain)
        self._later(node.named_children)

    def _declares_type(self, node: Node, left: Node, right: Node, typed: Ref | None) -> bool:
        """``X = NewType("X", Y)`` and ``X: TypeAlias = Y`` declare a type."""
        if left.type != "identifier":
            return False
        if typed is not None and typed.steps and typed.steps[-1].name == "TypeAlias":
            self.builder.declare("type", name_of(left), node, returns=annotation(right))
            return True
        if right.type == "call":
            function = right.child_by_field_name("function")
            arguments = right.child_by_field_name("arguments")
            if text(function).rpartition(".")[2] == "NewType" and arguments is not None:
                listed = arguments.named_children
                stands_for = annotation(listed[1]) if len(listed) == 2 else None
                self.builder.declare("type", name_of(left), node, returns=stands_for)
                return True
        return False

    def _assigned(self, target: Node, value: Ref | None, certain: bool = False) -> None:
        """Note what a target holds from here on. None: nothing that says anything (``None``)."""
        pending = [(target, value)]
        while pending:
            node, held = pending.pop()
            match node.type:
                case "identifier":
                    self._variable(name_of(node), held, certain)
                case "attribute":
                    self._attribute(node, held, certain)
                case "pattern_list" | "tuple_pattern" | "list_pattern" | "list_splat_pattern":
                    pending += [(child, OPAQUE) for child in node.named_children]
                case "as_pattern_target":
                    pending += [(child, held) for child in node.named_children]
                case _:
                    pass

    def _variable(self, name: str, value: Ref | None, certain: bool = False) -> None:
        around = self.builder.here_declared
        if around is not None and around.kind == "class":
            self._note(around.fields, name, value, certain, self.certain_fields, self.builder.here)
            return
        function = self.functions[-1]
        if name in function.outer_names:
            if value is not None:
                self.alternatives.assigned_from_inside(name, value)
            return
        place = self.facts.variables if function.declared is None else function.declared.locals
        if value is None:
            return
        if certain:
            function.certain.add(name)
            place[name] = value
        elif name not in function.certain:
            known = place.setdefault(name, value)
            if known != value:
                place[name] = OPAQUE

    def _attribute(self, node: Node, value: Ref | None, certain: bool) -> None:
        """``self.x = ...`` in a method says what the class's field holds."""
        owner = node.child_by_field_name("object")
        method = self.functions[-1].declared
        if owner is None or owner.type != "identifier" or method is None or method.parent == FILE:
            return
        of = self.facts.declarations[method.parent]
        if of.kind != "class" or method.locals.get(name_of(owner)) != Ref("self", ()):
            return
        if value is not None and not certain:
            value = self._seen_from_class(method, value)
        name = name_of(node.child_by_field_name("attribute"))
        self._note(of.fields, name, value, certain, self.certain_fields, method.parent)

    def _seen_from_class(self, method: Declaration, value: Ref) -> Ref:
        """A value of a method as its class can know it, which does not see the method's names."""
        if value.base != "name" or value.is_type:
            return value
        local = method.locals.get(value.steps[0].name)
        if local is None:
            return value
        if len(value.steps) == 1 and not value.steps[0].called and local.is_type:
            return local
        if local == Ref("self", ()) and not value.steps[0].called:
            return Ref("self", value.steps[1:])
        return OPAQUE

    @staticmethod
    def _note(
        fields: dict[str, Ref],
        name: str,
        value: Ref | None,
        certain: bool,
        known_for_certain: set[tuple[int, str]],
        owner: int,
    ) -> None:
        if certain and value is not None:
            known_for_certain.add((owner, name))
            fields[name] = value
        elif (owner, name) not in known_for_certain:
            if value is None:
                return
            if fields.setdefault(name, value) != value:
                fields[name] = OPAQUE

    def walrus(self, node: Node) -> None:
        name = node.child_by_field_name("name")
        if name is not None:
            self._assigned(name, reference(node.child_by_field_name("value")))
        self._later(node.named_children)

    def condition(self, node: Node) -> None:
        self.alternatives.enter(node)
        self._later(node.named_children)

    def for_(self, node: Node) -> None:
        self.alternatives.enter(node)
        self.loop(node)

    def loop(self, node: Node) -> None:
        left = node.child_by_field_name("left")
        if left is not None:
            self._assigned(left, OPAQUE)
        self._later(node.named_children)

    def lambda_(self, node: Node) -> None:
        body = node.child_by_field_name("body")
        parameters = node.child_by_field_name("parameters")
        listed = [] if parameters is None else parameters.named_children
        index = self.builder.declare("function", LAMBDA, node, signature=lambda_signature(listed))
        self.lambda_places[_place(node)] = index
        declared = self.facts.declarations[index]
        for parameter in listed:
            if name := parameter_name(parameter):
                declared.locals[name] = OPAQUE
        if body is not None:
            declared.returns = reference(body)
            self.stack.append(_EnterLambda(index, body))
        self._later(listed)

    def with_(self, node: Node) -> None:
        is_async = any(child.type == "async" for child in node.children)
        entering = Step("__aenter__" if is_async else "__enter__", True)
        clause = next((one for one in node.named_children if one.type == "with_clause"), None)
        for item in [] if clause is None else clause.named_children:
            value = item.child_by_field_name("value")
            if value is not None and value.type == "as_pattern":
                ref = reference(first_inside(value))
                target = value.child_by_field_name("alias")
                held = Ref(ref.base, (*ref.steps, entering)) if ref.steps else OPAQUE
                if target is not None:
                    self._assigned(target, held)
        self._later(node.named_children)

    def except_(self, node: Node) -> None:
        value = node.child_by_field_name("value")
        if value is not None and value.type == "as_pattern":
            caught, target = first_inside(value), value.child_by_field_name("alias")
            if target is not None:
                self._assigned(target, annotation(caught) or OPAQUE)
        self._later(node.named_children)

    def global_or_nonlocal(self, node: Node) -> None:
        self.functions[-1].outer_names.update(name_of(child) for child in node.named_children)

    def string(self, node: Node) -> None:
        self._later([part for part in node.named_children if part.type == "interpolation"])

    def return_(self, node: Node) -> None:
        value = first_inside(node)
        if value is not None and value.type != "none":
            self.functions[-1].returned[reference(value)] = None
        self._later(node.named_children)

    def yield_(self, node: Node) -> None:
        self.functions[-1].is_generator = True
        self._later(node.named_children)


def _gives(function: Node | None) -> bool:
    """Whether what is called is the value of another call."""
    while function is not None and function.type in ("parenthesized_expression", "await"):
        function = first_inside(function)
    return function is not None and function.type == "call"


def _place(node: Node) -> Place:
    row, column = node.start_point
    return int(row) + 1, int(column)


def _splat(parameter: Node) -> Ref | None:
    """``*args: X`` is a tuple of X, not one."""
    inner = first_inside(parameter) if parameter.type == "typed_parameter" else parameter
    if inner is not None and inner.type == "list_splat_pattern":
        return named("tuple", is_type=True)
    if inner is not None and inner.type == "dictionary_splat_pattern":
        return named("dict", is_type=True)
    return None


def _as_base(node: Node) -> Ref:
    """A base class; of ``Generic[T]``, what is before the bracket."""
    while node.type == "subscript":
        value = node.child_by_field_name("value")
        if value is None:
            return OPAQUE
        node = value
    return reference(node)


def _dotted(node: Node | None) -> str:
    """The name of a module, with the dots before it if it is relative."""
    if node is None:
        return ""
    dots, names = "", []
    pending = [node]
    while pending:
        part = pending.pop()
        if part.type == "identifier":
            names.append(name_of(part))
        elif part.type == "import_prefix":
            dots = "." * text(part).count(".")
        elif part.type in ("dotted_name", "relative_import"):
            pending.extend(reversed(part.named_children))
    return dots + ".".join(names)


_VISITS: Final[Mapping[str, Callable[[_PythonWalk, Node], None]]] = {
    "decorated_definition": _PythonWalk.decorated,
    "function_definition": _PythonWalk.function,
    "class_definition": _PythonWalk.class_,
    "type_alias_statement": _PythonWalk.type_alias,
    "import_statement": _PythonWalk.import_,
    "import_from_statement": _PythonWalk.import_from,
    "future_import_statement": _PythonWalk.import_future,
    "call": _PythonWalk.call,
    "assignment": _PythonWalk.assignment,
    "named_expression": _PythonWalk.walrus,
    "for_statement": _PythonWalk.for_,
    "if_statement": _PythonWalk.condition,
    "match_statement": _PythonWalk.condition,
    "try_statement": _PythonWalk.condition,
    "while_statement": _PythonWalk.condition,
    "for_in_clause": _PythonWalk.loop,
    "lambda": _PythonWalk.lambda_,
    "with_statement": _PythonWalk.with_,
    "except_clause": _PythonWalk.except_,
    "global_statement": _PythonWalk.global_or_nonlocal,
    "nonlocal_statement": _PythonWalk.global_or_nonlocal,
    "string": _PythonWalk.string,
    "return_statement": _PythonWalk.return_,
    "yield": _PythonWalk.yield_,
}
