"""Rust's type annotations, without the pointers and wrappers around them.

A pointer counts as what it points at. A wrapper does not: ``Option<Foo>`` has its own methods, and
``?`` or ``unwrap()`` gives the Foo. So a variable ``x`` of that type is recorded as an Option, and
``x?`` as the Foo in it; likewise ``x[]`` for the elements of a ``Vec``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tree_sitter import Node

from coatcheck_codegraph.builder import name_of, named
from coatcheck_codegraph.facts import Ref

_POINTERS: Final = frozenset({"Box", "Arc", "Rc", "Cow", "Pin", "Ref", "RefMut", "MutexGuard"})
"""Types through which the methods of what they point at are called."""

_WRAPPERS: Final = frozenset(
    {"Option", "Result", "PyResult", "Mutex", "RwLock", "RefCell", "OnceLock"}
)
_RETURNED_WRAPPERS: Final = frozenset({"Option", "Result", "PyResult"})
"""Those that a caller is done with in the same expression."""

_COLLECTIONS: Final = frozenset({"Vec", "VecDeque", "HashSet", "BTreeSet", "BinaryHeap"})
_SLICE: Final = named("slice", is_type=True)
_DEPTH_MAX: Final = 32

HERE: Final = "self::"
"""Begins a path in this file; ``self`` by itself is a variable."""

TYPE_MACROS: Final = "rust.type_macros"
"""The property of a file that names those of its macros that may declare types."""

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Holding:
    """What a variable or field of a type is.

    ``value`` is what its methods are called on, ``itself`` the type before any pointer was
    followed, ``unwrapped`` what is in a wrapper, ``element`` what is in a collection.
    """

    value: Ref | None = None
    itself: Ref | None = None
    unwrapped: Ref | None = None
    element: Ref | None = None


class Types:
    """Reads types at one place: knows what ``Self`` and the generic parameters around it are."""

    def __init__(
        self,
        own: Names = (),
        parameters: Mapping[str, Ref | None] | None = None,
        modules: Names = (),
    ) -> None:
        self.own = own
        self._parameters: dict[str, Ref | None] = dict(parameters or {})
        self._modules = modules

    def inside(self, generic: Node | None, where: Node | None, own: Names = ()) -> Types:
        """The same, with the parameters of a declaration."""
        if generic is None and where is None and not own:
            return self
        inner = Types(own or self.own, self._parameters, self._modules)
        for declared in generic.named_children if generic is not None else ():
            name = declared.child_by_field_name("name")
            if declared.type == "type_parameter" and name is not None:
                inner._parameters[name_of(name)] = inner.bound(declared)
        for predicate in where.named_children if where is not None else ():
            left = predicate.child_by_field_name("left")
            if left is not None and left.type == "type_identifier":
                inner._parameters[name_of(left)] = inner.bound(predicate)
        return inner

    def unbound(self) -> Types:
        """The same, where a parameter may be any type: who calls a function chooses."""
        return Types(self.own, dict.fromkeys(self._parameters), self._modules)

    def bound(self, node: Node) -> Ref | None:
        """The first trait that a parameter has to have."""
        bounds = node.child_by_field_name("bounds")
        for trait in bounds.named_children if bounds is not None else ():
            found = self.ref(trait)
            if found is not None:
                return found
        return None

    def path(self, node: Node | None) -> Names:
        """The names of a path, from where names are looked up here. Empty if it has others."""
        names: list[str] = []
        for _ in range(_DEPTH_MAX):
            if node is None:
                break
            kind = node.type
            if kind in ("scoped_identifier", "scoped_type_identifier"):
                names.append(name_of(node.child_by_field_name("name")))
                node = node.child_by_field_name("path")
            elif kind in ("generic_type", "generic_type_with_turbofish"):
                node = node.child_by_field_name("type")
            elif kind == "generic_function":
                node = node.child_by_field_name("function")
            elif kind in ("bracketed_type", "qualified_type"):
                # `<Foo as Trait>::f` is looked for in Foo.
                inner = node.named_children
                node = inner[0] if inner else None
            elif kind == "reference_type":
                node = node.child_by_field_name("type")
            elif kind in (
                "identifier",
                "type_identifier",
                "primitive_type",
                "self",
                "super",
                "crate",
                "shorthand_field_identifier",
            ):
                names.append(name_of(node))
                node = None
            elif kind == "metavariable":
                if name_of(node) != "$crate":
                    return ()
                names.append("crate")
                node = None
            else:
                return ()
        names.reverse()
        return self.normal(tuple(names))

    def normal(self, names: Names) -> Names:
        """``Self``, ``self::`` and ``super::`` replaced by what they are in this file."""
        if not names:
            return ()
        if names[0] == "Self":
            return (*self.own, *names[1:]) if self.own else ()
        if len(names) > 1 and names[0] in self._parameters:
            bound = self._parameters[names[0]]
            return (*(step.name for step in bound.steps), *names[1:]) if bound else ()
        if len(names) > 1 and names[0] == "self":
            rest = list(names)
            while rest and rest[0] == "self":
                rest.pop(0)
            if not rest or rest[0] != "super":
                return (HERE, *self._modules, *rest)
            names = tuple(rest)
        if names[0] == "super":
            up = 0
            while up < len(names) and names[up] == "super":
                up += 1
            rest_of = names[up:]
            if up <= len(self._modules):
                return (HERE, *self._modules[: len(self._modules) - up], *rest_of)
            return ("::".join(["super"] * (up - len(self._modules))), *rest_of)
        return names

    def ref(self, node: Node | None) -> Ref | None:
        """The type that methods are called on; None if it has no name."""
        return self.holding(node).value

    def returned(self, node: Node | None) -> Ref | None:
        """What a function's value is once ``?`` or ``unwrap()`` was done with it."""
        holding = self.holding(node)
        if holding.unwrapped is None or holding.value is None:
            return holding.value
        outer = holding.value.steps[-1].name if holding.value.steps else ""
        return holding.unwrapped if outer in _RETURNED_WRAPPERS else holding.value

    def holding(self, node: Node | None) -> Holding:
        """All that a type says."""
        itself: Ref | None = None
        wrapper: Ref | None = None
        for _ in range(_DEPTH_MAX):
            if node is None:
                return Holding()
            kind = node.type
            if kind in ("reference_type", "pointer_type"):
                node = node.child_by_field_name("type")
                continue
            if kind in ("dynamic_type", "abstract_type"):
                node = node.child_by_field_name("trait")
                continue
            if kind == "bounded_type" or (kind == "tuple_type" and node.named_child_count == 1):
                node = node.named_children[0]
                continue
            if kind in ("array_type", "slice_type"):
                if wrapper is not None:
                    return Holding(wrapper, itself, _SLICE)
                element = self._element(node.child_by_field_name("element"))
                return Holding(_SLICE, itself or _SLICE, None, element)
            names = self.path(node)
            if not names:
                return Holding(wrapper, itself)
            ref = self._named(names)
            itself = itself or ref
            arguments = node.child_by_field_name("type_arguments")
            first = _first_type(arguments)
            if names[-1] in _POINTERS and first is not None:
                node = first
            elif names[-1] in _WRAPPERS and first is not None:
                wrapper = wrapper or ref
                node = first
            elif wrapper is not None:
                return Holding(wrapper, itself, ref)
            elif names[-1] in _COLLECTIONS and first is not None:
                return Holding(ref, itself, None, self._element(first))
            else:
                return Holding(ref, itself)
        return Holding()

    def _element(self, node: Node | None) -> Ref | None:
        """The type of an element, of which no more is asked."""
        for _ in range(_DEPTH_MAX):
            if node is None:
                return None
            if node.type in ("reference_type", "pointer_type"):
                node = node.child_by_field_name("type")
            elif node.type in ("dynamic_type", "abstract_type"):
                node = node.child_by_field_name("trait")
            else:
                names = self.path(node)
                first = _first_type(node.child_by_field_name("type_arguments"))
                if not names or names[-1] not in _POINTERS or first is None:
                    return self._named(names) if names else None
                node = first
        return None

    def holding_own(self) -> Holding:
        """What ``self`` is."""
        own = named(*self.own, is_type=True)
        return Holding(own, own)

    def is_parameter(self, names: Names) -> bool:
        """Whether it is a generic parameter, of which no more is known than its name."""
        return len(names) == 1 and names[0] in self._parameters

    def _named(self, names: Names) -> Ref | None:
        if len(names) == 1 and names[0] in self._parameters:
            return self._parameters[names[0]]
        return named(*names, is_type=True)


def _first_type(arguments: Node | None) -> Node | None:
    if arguments is None:
        return None
    for argument in arguments.named_children:
        if argument.type not in ("lifetime", "type_binding", "line_comment", "block_comment"):
            return argument
    return None
