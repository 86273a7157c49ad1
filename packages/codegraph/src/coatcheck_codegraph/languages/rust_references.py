"""The references in Rust expressions and patterns, by names alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tree_sitter import Node

from coatcheck_codegraph.builder import name_of, text
from coatcheck_codegraph.facts import Ref, Step
from coatcheck_codegraph.language import words
from coatcheck_codegraph.languages.rust_types import Holding, Names, Types
from coatcheck_codegraph.languages.scopes import STEPS_MAX, Scopes, element

_UNWRAPPING: Final = frozenset(
    ["unwrap", "expect", "unwrap_or", "unwrap_or_else", "unwrap_or_default", "unwrap_unchecked"]
)
_LOCKING: Final = frozenset({"lock", "read", "write", "borrow", "borrow_mut", "get_mut"})
"""Methods of wrappers that give what is in them; the latter are common in other types, too."""

_SAME: Final = frozenset(
    words(
        """
        clone cloned copied as_ref as_mut as_deref as_deref_mut to_owned by_ref map_err ok_or
        ok_or_else context with_context
        """
    )
)
"""Methods whose value stands for the same thing."""

_ITERATING: Final = frozenset({"iter", "iter_mut", "into_iter", "drain", "values", "values_mut"})

_OF_WRAPPERS: Final = (
    _UNWRAPPING
    | _LOCKING
    | _SAME
    | frozenset(
        words(
            """
            map and_then and or or_else ok err filter flatten take replace insert zip xor inspect
            transpose get_or_insert get_or_insert_with map_or map_or_else is_some is_some_and
            is_none is_none_or is_ok is_err is_ok_and is_err_and expect_err unwrap_err inspect_err
            iter iter_mut into_iter
            """
        )
    )
)
"""Methods that Option, Result and the counted pointers have. What a function gives may be in one of
these, so that its own method of such a name may not be the one that is called."""


class RustReferences:
    """Reads expressions at one place."""

    def __init__(self, scopes: Scopes | None) -> None:
        self._scopes = scopes
        self._stated: dict[str, Holding] = {}

    def declare(self, name: str, holding: Holding) -> None:
        """A variable whose type is written down."""
        if self._scopes is None:
            return
        self._scopes.declare(name, holding.value, holding.element)
        unique = self._scopes.name(name)
        self._stated[unique] = holding
        if holding.unwrapped is not None:
            self._scopes.add(unique + "?", holding.unwrapped)

    def callee(self, call: Node, types: Types) -> Ref | None:
        """What a call calls; None if it has no name."""
        return self._follow(call, types, unwrapping=False)

    def value(self, node: Node, types: Types) -> Ref | None:
        """What an expression gives; None if that has no name."""
        return self._follow(node, types, unwrapping=True)

    def _follow(self, node: Node, types: Types, *, unwrapping: bool) -> Ref | None:
        """The names of an expression, from its end to its beginning."""
        steps: list[Step] = []
        called = False
        inside = ""
        at: Node | None = node
        while at is not None and len(steps) < STEPS_MAX:
            kind = at.type
            if kind in ("identifier", "scoped_identifier"):
                return self._from_path(types.path(at), steps, called, inside)
            if kind == "self":
                inside = "" if inside == "!" else inside
                return _after((Step("self"),), steps) if not inside and not called else None
            if kind == "field_expression":
                name = name_of(at.child_by_field_name("field"))
                at = at.child_by_field_name("value")
                if not called:
                    steps.append(Step(name + inside))
                    inside = ""
                    continue
                if inside == "[]":
                    return None
                inside = ""
                if name in _OF_WRAPPERS:
                    name, inside = self._own_or_wrapper(name, at)
                steps.append(Step(name, True))
                called = False
            elif kind == "call_expression":
                if called:
                    return None
                at = _function(at)
                if at is None or at.type == "parenthesized_expression":
                    return None
                if unwrapping and self._unwraps(at):
                    inside = inside or "?"
                    at = at.child_by_field_name("value")
                elif unwrapping and _method(at) in _SAME:
                    at = at.child_by_field_name("value")
                else:
                    called = True
                    unwrapping = True
            elif kind == "try_expression":
                inside = inside or "?"
                at = at.named_children[0] if at.named_children else None
            elif kind in ("await_expression", "parenthesized_expression", "reference_expression"):
                inner = at.named_children
                at = inner[-1] if inner else None
            elif kind == "unary_expression":
                inner = at.named_children
                at = inner[0] if inner and at.children[0].type == "*" else None
            elif kind == "index_expression":
                if called or inside:
                    return None
                inside = "[]"
                at = at.named_children[0] if at.named_children else None
            elif called or inside == "[]":
                return None
            else:
                return _after(_beginning(at, types), steps)
        return None

    def _own_or_wrapper(self, method: str, on: Node | None) -> tuple[str, str]:
        """How a method is written that wrappers and pointers have, too, and what it is called on.

        ``x!`` is a field before any pointer was followed; a method ``map~`` is one that no type of
        the archive has, because it may not be its own.
        """
        while on is not None and on.type in ("parenthesized_expression", "reference_expression"):
            on = on.named_children[-1] if on.named_children else None
        if on is None:
            return method + "~", ""
        if on.type == "self":
            return method, ""
        if on.type == "field_expression":
            return method, "!"
        if on.type == "identifier" and self._scopes is not None:
            stated = self._stated.get(self._scopes.name(name_of(on)))
            if stated is not None and stated.itself is not None and stated.itself == stated.value:
                return method, ""
        return method + "~", ""

    def _from_path(self, names: Names, steps: list[Step], called: bool, inside: str) -> Ref | None:
        if not names or (called and inside == "[]"):
            return None
        alone = len(names) == 1
        if alone and self._scopes is not None:
            names = (self._scopes.name(names[0]),)
        elif self._scopes is not None:
            # What begins a path is no variable, whatever is called so later on.
            self._scopes.free(names[0])
        if called:
            return _after(path(made(names), called=True).steps, steps)
        if alone:
            if inside == "!" or (inside == "?" and not self._has_unwrapped(names[0])):
                inside = ""
            return _after((Step(names[0] + inside),), steps)
        if is_variant(names) and not _is_constant(names[-1]):
            return _after(path(names[:-1], called=True).steps, steps)
        return _after(path(names, called=False).steps, steps)

    def unwrapped(self, held: Holding | Ref | None) -> Ref | None:
        """What ``Some(x)`` or ``Ok(x)`` finds in it."""
        if isinstance(held, Holding):
            return held.unwrapped
        if held is None or not held.steps or held.steps[-1].called or held.is_type:
            return held
        last = held.steps[-1].name
        alone = held.base == "name" and len(held.steps) == 1
        if last.endswith(("?", "[]")) or (alone and not self._has_unwrapped(last)):
            return held
        return Ref(held.base, (*held.steps[:-1], Step(last + "?")))

    def _unwraps(self, function: Node) -> bool:
        """Whether a method gives what is in the wrapper that it is called on."""
        method = _method(function)
        if method not in _UNWRAPPING and method not in _LOCKING:
            return False
        on = function.child_by_field_name("value")
        if on is None:
            return False
        if method == "expect" and not _says_why(function.parent):
            return False
        if on.type == "identifier":
            name = self._scopes.name(name_of(on)) if self._scopes is not None else name_of(on)
            return self._has_unwrapped(name) or (method in _UNWRAPPING and name not in self._stated)
        return method in _UNWRAPPING or on.type == "field_expression"

    def elements(self, node: Node, types: Types) -> Ref | None:
        """What a loop over an expression gets."""
        if node.type == "call_expression":
            function = node.child_by_field_name("function")
            if function is None or _method(function) not in _ITERATING:
                return None
            on = function.child_by_field_name("value")
            return None if on is None else self.elements_of(on, types)
        return self.elements_of(node, types)

    def elements_of(self, node: Node, types: Types) -> Ref | None:
        held = self.value(node, types)
        return None if held is None else element(held)

    def _has_unwrapped(self, name: str) -> bool:
        stated = self._stated.get(name)
        return stated is not None and stated.unwrapped is not None


def path(names: Names, *, called: bool) -> Ref:
    """A path as a reference. ``Self`` is written out by then; ``self`` begins one in this file."""
    last = len(names) - 1
    return Ref("name", tuple(Step(name, called and at == last) for at, name in enumerate(names)))


def is_variant(names: Names) -> bool:
    """Whether a path ends with a variant of an enum, as names are written in Rust."""
    return len(names) > 1 and names[-1][:1].isupper() and names[-2][:1].isupper()


def made(names: Names) -> Names:
    """The type that is made by calling a path: that of a variant is its enum."""
    return names[:-1] if is_variant(names) else names


def _after(begin: tuple[Step, ...], steps: list[Step]) -> Ref | None:
    """A reference that begins so and goes on with ``steps``, the last of which comes first."""
    return Ref("name", (*begin, *reversed(steps))) if begin else None


def _beginning(node: Node, types: Types) -> tuple[Step, ...]:
    """Of an expression that is a value by itself."""
    kind = node.type
    if kind in ("string_literal", "raw_string_literal"):
        return (Step("str"),)
    if kind == "macro_invocation":
        names = types.path(node.child_by_field_name("macro"))
        return (Step(names[-1] + "!", True),) if len(names) == 1 else ()
    if kind not in ("struct_expression", "type_cast_expression"):
        return ()
    names = types.path(node.child_by_field_name("name" if kind == "struct_expression" else "type"))
    if not names or types.is_parameter(names):
        return ()
    return path(made(names), called=True).steps


def _function(call: Node) -> Node | None:
    function = call.child_by_field_name("function")
    if function is not None and function.type == "generic_function":
        return function.child_by_field_name("function")
    return function


def _is_constant(name: str) -> bool:
    return len(name) > 1 and name.isupper()


def _method(function: Node) -> str:
    if function.type != "field_expression":
        return ""
    return name_of(function.child_by_field_name("field"))


def _says_why(call: Node | None) -> bool:
    """Whether it is the ``expect`` of a wrapper: that takes a message."""
    while call is not None and call.type != "call_expression":
        call = call.parent
    arguments = call.child_by_field_name("arguments") if call is not None else None
    first = arguments.named_children[:1] if arguments is not None else []
    return bool(first) and first[0].type in ("string_literal", "raw_string_literal")


# The variables that a pattern of Rust declares.

Held = Holding | Ref | None

_TRANSPARENT: Final = ("ref_pattern", "mut_pattern", "reference_pattern", "match_pattern")
_SEVERAL: Final = ("tuple_pattern", "slice_pattern", "or_pattern", "struct_pattern")
_WRAPPING: Final = frozenset({"Some", "Ok"})


def variables(pattern: Node, holds: Held, references: RustReferences) -> Iterator[tuple[str, Held]]:
    """Each variable, and what it holds if the pattern is matched with ``holds``."""
    todo: list[tuple[Node, Held]] = [(pattern, holds)]
    while todo:
        node, held = todo.pop()
        kind = node.type
        parts = node.named_children
        if kind in ("identifier", "shorthand_field_identifier"):
            name = name_of(node)
            if not name[:1].isupper():  # else it is a constant or a variant
                yield name, held
        elif kind in _TRANSPARENT:
            inner = [part for part in parts if part.type != "mutable_specifier"]
            todo.extend((part, held) for part in inner[:1])
        elif kind == "captured_pattern":
            todo.extend((part, held if at == 0 else None) for at, part in enumerate(parts))
        elif kind == "tuple_struct_pattern":
            wraps = text(node.child_by_field_name("type")) in _WRAPPING
            inside = references.unwrapped(held) if wraps else None
            todo.extend((part, inside) for part in reversed(parts[1:]))
        elif kind == "field_pattern":
            field = node.child_by_field_name("pattern") or node.child_by_field_name("name")
            if field is not None:
                todo.append((field, None))
        elif kind in _SEVERAL:
            todo.extend((part, None) for part in reversed(parts))
