"""Reads how values move in a Python file.

It uses the interpreter's own parser. A file that this parser refuses, for a syntax error or for
syntax of a later version, has no such facts, and its calls are found by names alone.

A variable that is assigned twice in a row holds the last value. Where branches meet, it holds the
value of any of them; in a loop and in inner functions, the value of any statement."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from coatcheck_codegraph.facts import FILE, FileFacts
from coatcheck_codegraph.python_values.collector import collector_paused
from coatcheck_codegraph.python_values.facts import (
    ANY_KEY,
    UNKNOWN,
    Access,
    Protocol,
    PythonCallFlow,
    PythonFlow,
    PythonFunctionFlow,
    PythonProtocolFlow,
    key_of,
    packed,
)

_DEPTH_MAX: Final = 60
"""Expressions inside of each other; what lies deeper is unknown."""

_PARAMETERS_MAX: Final = 100
"""Of a function, each kind, that get what callers give: every call looks at all of them."""

_ATTRIBUTE_CHARACTERS_MAX: Final = 100
"""Of a name that ``getattr`` is given."""

Place = tuple[int, int]
"""A line, from 1, and a column in bytes, from 0."""

_ACCESS: Final[Mapping[str, Access]] = {
    "staticmethod": "static",
    "classmethod": "class",
    "property": "property",
    "cached_property": "property",
    "abstractproperty": "property",
}
_ACCESSORS: Final = frozenset({"setter", "deleter", "getter"})
_LEAVES: Final = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp


def read_flow(
    source: bytes, facts: FileFacts, calls: Mapping[Place, int], lambdas: Mapping[Place, int]
) -> bytes:
    """How values move in a file; empty, if it is no code for the interpreter that runs this.

    ``calls`` are the ordinals of the file's calls by the place of what is called, ``lambdas`` the
    indices of their declarations.
    """
    try:
        with warnings.catch_warnings(), collector_paused():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
            return packed(_PythonFlowWalk(facts, calls, lambdas).over(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return b""


class _Scope:
    """The variables of a file, a class or a function.

    ``now`` is what they hold where the walk is, ``ever`` what they hold at any time.
    """

    __slots__ = (
        "around",
        "changed",
        "ever",
        "index",
        "is_class",
        "loose",
        "now",
        "outer_names",
        "parameters",
        "passes",
        "reads",
        "receiver",
        "returns",
        "yields",
    )

    def __init__(self, index: int, is_class: bool, around: _Scope | None) -> None:
        self.index = index
        self.is_class = is_class
        self.around = around
        self.now: dict[str, int] = {}
        self.ever: dict[str, int] = {}
        self.reads: dict[str, int] = {}
        self.outer_names: dict[str, bool] = {}
        """Names that are those of a scope further out; True for those of the file."""
        self.changed: dict[str, int | None] | None = None
        """In a branch: what the variables that it has changed held before."""
        self.loose: set[str] = set()
        """Names of which only ``ever`` is certain, where ``now`` does not have them."""
        self.parameters: dict[str, int] = {}
        self.passes: dict[str, None] = {}
        self.receiver = UNKNOWN
        self.returns = UNKNOWN
        self.yields = UNKNOWN

    def set(self, name: str, value: int | None) -> None:
        if self.changed is not None and name not in self.changed:
            self.changed[name] = self.now.get(name)
        if value is None:
            self.now.pop(name, None)
        else:
            self.now[name] = value


class _PythonFlowWalk:
    def __init__(
        self, facts: FileFacts, calls: Mapping[Place, int], lambdas: Mapping[Place, int]
    ) -> None:
        self.flow = PythonFlow()
        self._ordinals = calls
        self._lambdas = lambdas
        self._declared = {
            (declared.line, declared.name): index
            for index, declared in enumerate(facts.declarations)
        }
        self._imported = {
            (imported.line, binding.local): (ordinal, binding.remote)
            for ordinal, imported in enumerate(facts.imports)
            for binding in imported.bindings
        }
        self._file = self._scope = _Scope(FILE, False, None)
        self._scopes = [self._scope]
        self._shadows: list[dict[str, int]] = []
        """Variables of comprehensions around here."""
        self._constants: dict[int, int] = {}
        self._depth = 0

    def over(self, tree: ast.Module) -> PythonFlow:
        self._statements(tree.body)
        for scope in self._scopes:
            self._settle_reads(scope)
            if scope.is_class or scope is self._file:
                for name, ever in scope.ever.items():
                    self.flow.names.append((scope.index, name, scope.now.get(name) or ever))
        return self.flow

    def _settle_reads(self, scope: _Scope) -> None:
        for name, value in scope.reads.items():
            holder: _Scope | None = scope
            if scope.outer_names.get(name):
                holder = self._file
            elif name in scope.outer_names:
                holder = scope.around
            while holder is not None and (
                name not in holder.ever or (holder.is_class and holder is not scope)
            ):
                holder = holder.around
            if holder is None:
                self.flow.reads.append((value, name))
            else:
                self.flow.copies.append((value, holder.ever[name]))

    # Values

    def _new(self) -> int:
        value = self.flow.values
        self.flow.values += 1
        return value

    def _copy(self, to: int, value: int) -> None:
        if value != UNKNOWN and value != to:
            self.flow.copies.append((to, value))

    def _joined(self, values: Sequence[int]) -> int:
        """A value that is any of these."""
        known = dict.fromkeys(value for value in values if value != UNKNOWN)
        if len(known) < 2:
            return next(iter(known), UNKNOWN)
        joined = self._new()
        for value in known:
            self._copy(joined, value)
        return joined

    def _constant(self, key: int) -> int:
        if key == ANY_KEY:
            return UNKNOWN
        value = self._constants.get(key)
        if value is None:
            value = self._constants[key] = self._new()
            self.flow.constants.append((value, key))
        return value

    # Variables

    def _read(self, name: str) -> int:
        for shadow in reversed(self._shadows):
            if name in shadow:
                return shadow[name]
        scope = self._scope
        value = scope.now.get(name)
        if value is None:
            value = scope.reads.get(name)
            if value is None:
                value = scope.reads[name] = self._new()
        return value

    def _bind(self, name: str, value: int) -> None:
        scope = self._scope
        if name in scope.outer_names:
            holder: _Scope | None = self._file if scope.outer_names[name] else scope.around
            while holder is not None and (holder.is_class or name not in holder.ever):
                holder = holder.around
            holder = holder or self._file
            holder.loose.add(name)
            holder.set(name, None)
            scope = holder
        else:
            scope.set(name, value)
        ever = scope.ever.get(name)
        if ever is None:
            ever = scope.ever[name] = self._new()
        self._copy(ever, value)

    def _assign(self, target: ast.expr, value: int) -> None:
        match target:
            case ast.Name():
                if self._shadows and target.id in self._shadows[-1]:
                    self._shadows[-1][target.id] = value
                else:
                    self._bind(target.id, value)
            case ast.Attribute():
                holder = self._value(target.value)
                if holder != UNKNOWN and value != UNKNOWN:
                    self.flow.stores.append((holder, target.attr, value))
            case ast.Subscript():
                holder = self._value(target.value)
                key, dynamic = self._key(target.slice)
                if holder != UNKNOWN and value != UNKNOWN:
                    self.flow.item_stores.append((holder, key, dynamic, value))
            case ast.Tuple() | ast.List():
                self._unpack(target.elts, value)
            case ast.Starred():
                self._assign(target.value, value)
            case _:
                self._value(target)

    def _unpack(self, targets: Sequence[ast.expr], value: int) -> None:
        starred = False
        for position, target in enumerate(targets):
            held = UNKNOWN
            if isinstance(target, ast.Starred):
                starred = True
                if value != UNKNOWN:
                    held = self._new()
                    self.flow.containers.append((held, False))
                    self._store_item(held, ANY_KEY, self._item(value, ANY_KEY))
            elif value != UNKNOWN:
                held = self._item(value, ANY_KEY if starred else key_of(position))
            self._assign(target, held)

    def _item(self, holder: int, key: int, dynamic: int = UNKNOWN) -> int:
        if holder == UNKNOWN:
            return UNKNOWN
        value = self._new()
        self.flow.item_loads.append((value, holder, key, dynamic))
        return value

    def _store_item(self, holder: int, key: int, value: int) -> None:
        if value != UNKNOWN:
            self.flow.item_stores.append((holder, key, UNKNOWN, value))

    def _key(self, node: ast.expr) -> tuple[int, int]:
        """A key, or the value that is one."""
        if isinstance(node, ast.Constant):
            return key_of(node.value), UNKNOWN
        return ANY_KEY, self._value(node)

    # Statements

    def _statements(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            visit = _STATEMENTS.get(type(statement))
            if visit is not None:
                visit(self, statement)

    def _branches(self, bodies: Sequence[Sequence[ast.stmt]], is_complete: bool) -> None:
        """Ways to go on, of which one is taken; or none, if they are not complete."""
        scope = self._scope
        outcomes: list[dict[str, int | None]] = []
        names: dict[str, None] = {}
        for body in bodies:
            changed = self._within(body)
            after = {name: scope.now.get(name) for name in changed}
            self._undo(changed)
            if not body or not isinstance(body[-1], _LEAVES):
                outcomes.append(after)
                names.update(dict.fromkeys(changed))
        if not is_complete:
            outcomes.append({})
        for name in names:
            before = scope.now.get(name)
            values = [outcome.get(name, before) for outcome in outcomes]
            if None in values and name in scope.loose:
                scope.set(name, None)
            else:
                scope.set(name, self._joined([value for value in values if value is not None]))

    def _within(self, body: Sequence[ast.stmt]) -> dict[str, int | None]:
        """Walk a branch; returns what the variables that it changes held before it."""
        scope = self._scope
        outer, scope.changed = scope.changed, {}
        self._statements(body)
        changed, scope.changed = scope.changed, outer
        return changed

    def _undo(self, changed: Mapping[str, int | None]) -> None:
        now = self._scope.now
        for name, before in changed.items():
            if before is None:
                now.pop(name, None)
            else:
                now[name] = before

    def _loop(self, body: Sequence[ast.stmt], target: ast.expr | None, value: int) -> None:
        """What is assigned anywhere in a loop may be held everywhere in it."""
        scope = self._scope
        before, scope.now = scope.now, {}
        outer, scope.changed = scope.changed, {}
        if target is not None:
            self._assign(target, value)
        self._statements(body)
        changed, scope.changed, scope.now = scope.changed, outer, before
        for name in changed:
            scope.loose.add(name)
            scope.set(name, None)

    def for_(self, node: ast.For | ast.AsyncFor) -> None:
        value = self._protocol(
            node.iter, "aiterate" if isinstance(node, ast.AsyncFor) else "iterate"
        )
        self._loop(node.body, node.target, value)
        self._branches([node.orelse], is_complete=False)

    def while_(self, node: ast.While) -> None:
        self._value(node.test)
        self._loop(node.body, None, UNKNOWN)
        self._branches([node.orelse], is_complete=False)

    def if_(self, node: ast.If) -> None:
        bodies: list[Sequence[ast.stmt]] = []
        rest: Sequence[ast.stmt] = [node]
        while len(rest) == 1 and isinstance(rest[0], ast.If):
            self._value(rest[0].test)
            bodies.append(rest[0].body)
            rest = rest[0].orelse
        self._branches([*bodies, rest], is_complete=True)

    def match_(self, node: ast.Match) -> None:
        self._value(node.subject)
        for case in node.cases:
            for pattern in ast.walk(case.pattern):
                name = getattr(pattern, "name", None) or getattr(pattern, "rest", None)
                if isinstance(name, str):
                    self._bind(name, UNKNOWN)
            if case.guard is not None:
                self._value(case.guard)
        self._branches([case.body for case in node.cases], is_complete=False)

    def try_(self, node: ast.Try) -> None:
        self._branches([node.body], is_complete=False) if node.handlers else self._statements(
            node.body
        )
        for handler in node.handlers:
            if handler.type is not None:
                self._value(handler.type)
            if handler.name is not None:
                self._bind(handler.name, UNKNOWN)
        self._branches([handler.body for handler in node.handlers], is_complete=False)
        self._statements(node.orelse)
        self._statements(node.finalbody)

    def with_(self, node: ast.With | ast.AsyncWith) -> None:
        protocol: Protocol = "aenter" if isinstance(node, ast.AsyncWith) else "enter"
        for item in node.items:
            value = self._protocol(item.context_expr, protocol)
            if item.optional_vars is not None:
                self._assign(item.optional_vars, value)
        self._statements(node.body)

    def _protocol(self, node: ast.expr, protocol: Protocol) -> int:
        holder = self._value(node)
        if holder == UNKNOWN:
            return UNKNOWN
        result = self._new()
        self.flow.protocols.append(
            PythonProtocolFlow(node.lineno, self._scope.index, protocol, holder, result)
        )
        return result

    def assignment(self, node: ast.Assign) -> None:
        value = self._held(node.value)
        for target in node.targets:
            self._assign(target, value)

    def annotated(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assign(node.target, self._held(node.value))

    def augmented(self, node: ast.AugAssign) -> None:
        added = self._value(node.value)
        if isinstance(node.target, ast.Name):
            self._bind(node.target.id, self._joined([self._read(node.target.id), added]))
        else:
            self._assign(node.target, added)

    def return_(self, node: ast.Return) -> None:
        if node.value is not None:
            value = self._held(node.value)
            name = node.value.id if isinstance(node.value, ast.Name) else ""
            if name and self._scope.parameters.get(name) == value:
                self._scope.passes[name] = None
            else:
                self._copy(self._scope.returns, value)

    def raise_(self, node: ast.Raise) -> None:
        for raised in (node.exc, node.cause):
            value = UNKNOWN if raised is None else self._value(raised)
            if raised is not None and value != UNKNOWN and not isinstance(raised, ast.Call):
                self.flow.calls.append(
                    PythonCallFlow(
                        raised.lineno,
                        self._scope.index,
                        -1,
                        value,
                        self._new(),
                        constructs_only=True,
                    )
                )

    def expression(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self._value(node.value)

    def assert_(self, node: ast.Assert) -> None:
        self._value(node.test)
        if node.msg is not None:
            self._value(node.msg)

    def global_or_nonlocal(self, node: ast.Global | ast.Nonlocal) -> None:
        for name in node.names:
            self._scope.outer_names[name] = isinstance(node, ast.Global)

    def import_(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            local = alias.asname or alias.name
            if isinstance(node, ast.Import):
                local = alias.asname or alias.name.partition(".")[0]
            bound = self._imported.get((node.lineno, local))
            if bound is not None:
                value = self._new()
                self.flow.imports.append((value, *bound))
                self._bind(local, value)

    # Declarations

    def function(self, node: _Function) -> None:
        index = self._declared.get((node.lineno, node.name))
        if index is None:
            return
        access: Access = "plain"
        decorators: list[ast.expr] = []
        is_accessor = False
        for decorator in node.decorator_list:
            name = _last_name(decorator)
            is_accessor = is_accessor or name in _ACCESSORS
            if name in _ACCESS and not isinstance(decorator, ast.Call):
                access = _ACCESS[name]
            else:
                decorators.append(decorator)
        value = self._new()
        # What decorates it is known before it is made, and applied afterwards.
        applied = [(decorator, self._value(decorator)) for decorator in decorators]
        self._made(index, value, node.args, node.body, None, access, bool(decorators))
        if not is_accessor:
            self._bind(node.name, self._decorated(value, applied))

    def _decorated(self, value: int, applied: list[tuple[ast.expr, int]]) -> int:
        for decorator, function in reversed(applied):
            if function == UNKNOWN:
                continue
            result = self._new()
            self.flow.calls.append(
                PythonCallFlow(decorator.lineno, self._scope.index, -1, function, result, (value,))
            )
            self.flow.decorations.append((result, value, function))
            value = result
        return value

    def _made(
        self,
        index: int,
        value: int,
        arguments: ast.arguments,
        body: Sequence[ast.stmt],
        expression: ast.expr | None,
        access: Access,
        decorated: bool,
    ) -> None:
        """A function: its parameters, its body, or the expression that it is."""
        listed = [*arguments.posonlyargs, *arguments.args]
        positional = [(one.arg, self._new()) for one in listed]
        keyword_only = [(one.arg, self._new()) for one in arguments.kwonlyargs]
        defaults = [*positional[len(positional) - len(arguments.defaults) :], *keyword_only]
        given = [*arguments.defaults, *arguments.kw_defaults]
        for (_, parameter), default in zip(defaults, given, strict=True):
            if default is not None:
                self._copy(parameter, self._held(default))
        rest = self._gathering(arguments.vararg, False)
        keywords = self._gathering(arguments.kwarg, True)
        outer, shadows = self._scope, self._shadows
        scope = self._scope = _Scope(index, False, outer)
        self._scopes.append(scope)
        scope.returns, scope.yields = self._new(), self._new()
        scope.receiver = positional[0][1] if positional else UNKNOWN
        for name, parameter in (*positional, *keyword_only):
            self._bind(name, parameter)
            scope.parameters[name] = parameter
        if arguments.vararg is not None:
            self._bind(arguments.vararg.arg, rest)
        if arguments.kwarg is not None:
            self._bind(arguments.kwarg.arg, keywords)
        if expression is not None:
            self._copy(scope.returns, self._value(expression))
        else:
            self._shadows = []
            self._statements(body)
        self._scope, self._shadows = outer, shadows
        is_generator = _YIELDS in scope.outer_names
        positional = positional[:_PARAMETERS_MAX]
        keyword_only = keyword_only[:_PARAMETERS_MAX]
        followed = {name for name, _ in (*positional, *keyword_only)}
        self.flow.functions.append(
            PythonFunctionFlow(
                index,
                value,
                tuple(positional),
                tuple(keyword_only),
                rest,
                keywords,
                scope.returns,
                scope.yields if is_generator else UNKNOWN,
                access,
                decorated,
                tuple(name for name in scope.passes if name in followed),
            )
        )

    def _gathering(self, parameter: ast.arg | None, has_keys: bool) -> int:
        if parameter is None:
            return UNKNOWN
        value = self._new()
        self.flow.containers.append((value, has_keys))
        return value

    def class_(self, node: ast.ClassDef) -> None:
        index = self._declared.get((node.lineno, node.name))
        if index is None:
            return
        applied = [(decorator, self._value(decorator)) for decorator in node.decorator_list]
        for base in (*node.bases, *(keyword.value for keyword in node.keywords)):
            self._value(base)
        value = self._new()
        self.flow.classes.append((index, value))
        outer = self._scope
        self._scope = _Scope(index, True, outer)
        self._scopes.append(self._scope)
        self._statements(node.body)
        self._scope = outer
        self._bind(node.name, self._decorated(value, applied))

    # Expressions

    def _value(self, node: ast.expr) -> int:
        visit = _EXPRESSIONS.get(type(node))
        if visit is None or self._depth >= _DEPTH_MAX:
            return UNKNOWN
        self._depth += 1
        value = visit(self, node)
        self._depth -= 1
        return value

    def name(self, node: ast.Name) -> int:
        return self._read(node.id)

    def _held(self, node: ast.expr) -> int:
        """The same for what a variable or a parameter gets: a literal may be a key later on."""
        if isinstance(node, ast.Constant):
            return self._constant(key_of(node.value))
        return self._value(node)

    def attribute(self, node: ast.Attribute) -> int:
        holder = self._value(node.value)
        if holder == UNKNOWN:
            return UNKNOWN
        value = self._new()
        self.flow.loads.append((value, holder, node.attr))
        return value

    def call(self, node: ast.Call) -> int:
        function = node.func
        if isinstance(function, ast.Name):
            if function.id == "super" and not node.args:
                return self._super()
            if function.id == "getattr" and len(node.args) > 1:
                named = node.args[1]
                if isinstance(named, ast.Constant) and isinstance(named.value, str):
                    return self._getattr(node.args[0], named.value[:_ATTRIBUTE_CHARACTERS_MAX])
        called = self._value(function)
        positional: list[int] = []
        rest: list[int] = []
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                rest.append(self._value(argument.value))
            elif rest:
                gathered = self._new()
                self.flow.containers.append((gathered, False))
                self._store_item(gathered, ANY_KEY, self._value(argument))
                rest.append(gathered)
            else:
                positional.append(self._held(argument))
        named_arguments: list[tuple[str, int]] = []
        keywords: list[int] = []
        for keyword in node.keywords:
            given = self._held(keyword.value)
            if keyword.arg is None:
                keywords.append(given)
            elif given != UNKNOWN:
                named_arguments.append((keyword.arg, given))
        if called == UNKNOWN:
            return UNKNOWN
        result = self._new()
        self.flow.calls.append(
            PythonCallFlow(
                node.lineno,
                self._scope.index,
                self._ordinals.get(_place_of(function), -1),
                called,
                result,
                tuple(positional),
                tuple(named_arguments),
                self._joined(rest),
                self._joined(keywords),
            )
        )
        return result

    def _super(self) -> int:
        scope: _Scope | None = self._scope
        while scope is not None and scope.around is not None and not scope.around.is_class:
            scope = scope.around
        if scope is None or scope.around is None:
            return UNKNOWN
        value = self._new()
        self.flow.supers.append((value, scope.around.index, scope.receiver))
        return value

    def _getattr(self, node: ast.expr, name: str) -> int:
        holder = self._value(node)
        if holder == UNKNOWN:
            return UNKNOWN
        value = self._new()
        self.flow.loads.append((value, holder, name))
        return value

    def subscript(self, node: ast.Subscript) -> int:
        holder = self._value(node.value)
        if isinstance(node.slice, ast.Slice):
            if holder == UNKNOWN:
                return UNKNOWN
            value = self._new()
            self.flow.containers.append((value, False))
            self._store_item(value, ANY_KEY, self._item(holder, ANY_KEY))
            return value
        key, dynamic = self._key(node.slice)
        return self._item(holder, key, dynamic)

    def sequence(self, node: ast.List | ast.Tuple | ast.Set) -> int:
        value = self._new()
        self.flow.containers.append((value, False))
        starred = isinstance(node, ast.Set)
        for position, element in enumerate(node.elts):
            if isinstance(element, ast.Starred):
                starred = True
                held = self._item(self._value(element.value), ANY_KEY)
            else:
                held = self._value(element)
            self._store_item(value, ANY_KEY if starred else key_of(position), held)
        return value

    def dict_(self, node: ast.Dict) -> int:
        value = self._new()
        self.flow.containers.append((value, True))
        for key_node, element in zip(node.keys, node.values, strict=True):
            held = self._value(element)
            if key_node is None:
                self._store_item(value, ANY_KEY, self._item(held, ANY_KEY))
                continue
            key, dynamic = self._key(key_node)
            if held != UNKNOWN:
                self.flow.item_stores.append((value, key, dynamic, held))
        return value

    def comprehension(self, node: _Comprehension) -> int:
        value = self._new()
        self.flow.containers.append((value, isinstance(node, ast.DictComp)))
        shadow: dict[str, int] = {}
        self._shadows.append(shadow)
        for generator in node.generators:
            held = self._protocol(generator.iter, "aiterate" if generator.is_async else "iterate")
            for name in _names_in(generator.target):
                shadow[name] = UNKNOWN
            self._assign(generator.target, held)
            for condition in generator.ifs:
                self._value(condition)
        if isinstance(node, ast.DictComp):
            self._value(node.key)
            element = node.value
        else:
            element = node.elt
        self._store_item(value, ANY_KEY, self._value(element))
        self._shadows.pop()
        return value

    def lambda_(self, node: ast.Lambda) -> int:
        index = self._lambdas.get((node.lineno, node.col_offset))
        if index is None:
            return UNKNOWN
        value = self._new()
        self._made(index, value, node.args, (), node.body, "plain", False)
        return value

    def walrus(self, node: ast.NamedExpr) -> int:
        value = self._value(node.value)
        self._bind(node.target.id, value)
        return value

    def conditional(self, node: ast.IfExp) -> int:
        self._value(node.test)
        return self._joined([self._value(node.body), self._value(node.orelse)])

    def either(self, node: ast.BoolOp) -> int:
        return self._joined([self._value(value) for value in node.values])

    def operation(self, node: ast.BinOp) -> int:
        left, right = self._value(node.left), self._value(node.right)
        # Lists are added, and dicts are united.
        return self._joined((left, right)) if isinstance(node.op, ast.Add | ast.BitOr) else UNKNOWN

    def await_(self, node: ast.Await) -> int:
        return self._value(node.value)

    def yield_(self, node: ast.Yield) -> int:
        self._scope.outer_names.setdefault(_YIELDS, False)
        if node.value is not None:
            self._copy(self._scope.yields, self._value(node.value))
        return UNKNOWN

    def yield_from(self, node: ast.YieldFrom) -> int:
        self._scope.outer_names.setdefault(_YIELDS, False)
        self._copy(self._scope.yields, self._protocol(node.value, "iterate"))
        return UNKNOWN

    def comparison(self, node: ast.Compare) -> int:
        self._value(node.left)
        for compared in node.comparators:
            self._value(compared)
        return UNKNOWN

    def unary(self, node: ast.UnaryOp) -> int:
        self._value(node.operand)
        return UNKNOWN

    def parts(self, node: ast.expr) -> int:
        """Something of which nothing is known but what is inside of it."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._value(child)
        return UNKNOWN


_YIELDS: Final = "<yields>"
"""No name: says of a scope that it is a generator's."""


def _last_name(node: ast.expr) -> str:
    while isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _names_in(target: ast.expr) -> list[str]:
    pending, names = [target], []
    while pending:
        match pending.pop():
            case ast.Name() as name:
                names.append(name.id)
            case ast.Tuple() | ast.List() as several:
                pending.extend(several.elts)
            case ast.Starred() as starred:
                pending.append(starred.value)
            case _:
                pass
    return names


def _place_of(function: ast.expr) -> Place:
    """Where the name of what is called is written."""
    if isinstance(function, ast.Attribute):
        end = function.end_col_offset or 0
        return function.end_lineno or 0, end - len(function.attr.encode("utf-8", "replace"))
    return function.lineno, function.col_offset


_STATEMENTS: Final[Mapping[type[ast.stmt], Callable[[_PythonFlowWalk, Any], None]]] = {
    ast.Expr: _PythonFlowWalk.expression,
    ast.Assign: _PythonFlowWalk.assignment,
    ast.AnnAssign: _PythonFlowWalk.annotated,
    ast.AugAssign: _PythonFlowWalk.augmented,
    ast.Return: _PythonFlowWalk.return_,
    ast.Raise: _PythonFlowWalk.raise_,
    ast.If: _PythonFlowWalk.if_,
    ast.For: _PythonFlowWalk.for_,
    ast.AsyncFor: _PythonFlowWalk.for_,
    ast.While: _PythonFlowWalk.while_,
    ast.With: _PythonFlowWalk.with_,
    ast.AsyncWith: _PythonFlowWalk.with_,
    ast.Try: _PythonFlowWalk.try_,
    ast.TryStar: _PythonFlowWalk.try_,
    ast.Match: _PythonFlowWalk.match_,
    ast.FunctionDef: _PythonFlowWalk.function,
    ast.AsyncFunctionDef: _PythonFlowWalk.function,
    ast.ClassDef: _PythonFlowWalk.class_,
    ast.Import: _PythonFlowWalk.import_,
    ast.ImportFrom: _PythonFlowWalk.import_,
    ast.Global: _PythonFlowWalk.global_or_nonlocal,
    ast.Nonlocal: _PythonFlowWalk.global_or_nonlocal,
    ast.Assert: _PythonFlowWalk.assert_,
}

_EXPRESSIONS: Final[Mapping[type[ast.expr], Callable[[_PythonFlowWalk, Any], int]]] = {
    ast.Name: _PythonFlowWalk.name,
    ast.Attribute: _PythonFlowWalk.attribute,
    ast.Call: _PythonFlowWalk.call,
    ast.Subscript: _PythonFlowWalk.subscript,
    ast.List: _PythonFlowWalk.sequence,
    ast.Tuple: _PythonFlowWalk.sequence,
    ast.Set: _PythonFlowWalk.sequence,
    ast.Dict: _PythonFlowWalk.dict_,
    ast.ListComp: _PythonFlowWalk.comprehension,
    ast.SetComp: _PythonFlowWalk.comprehension,
    ast.GeneratorExp: _PythonFlowWalk.comprehension,
    ast.DictComp: _PythonFlowWalk.comprehension,
    ast.Lambda: _PythonFlowWalk.lambda_,
    ast.NamedExpr: _PythonFlowWalk.walrus,
    ast.IfExp: _PythonFlowWalk.conditional,
    ast.BoolOp: _PythonFlowWalk.either,
    ast.BinOp: _PythonFlowWalk.operation,
    ast.Await: _PythonFlowWalk.await_,
    ast.Yield: _PythonFlowWalk.yield_,
    ast.YieldFrom: _PythonFlowWalk.yield_from,
    ast.UnaryOp: _PythonFlowWalk.unary,
    ast.Compare: _PythonFlowWalk.comparison,
    ast.JoinedStr: _PythonFlowWalk.parts,
    ast.FormattedValue: _PythonFlowWalk.parts,
    ast.Starred: _PythonFlowWalk.parts,
}
