"""Follows values across the Python files of a project, to find the functions that a call may run.

Every value of every file has a set of what it may be: functions, classes, objects of a class,
containers. The facts of ``python_values.facts`` say how values flow. Whatever arrives at a value
flows on to its copies; at a call, arguments flow to parameters and results to the call. The work
ends when nothing new arrives anywhere. A function is analysed once for all of its callers.

The work is bounded: a value may be a bounded number of things, and each of them arrives once. So it
grows with the number of statements, not with the number of paths through them."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from coatcheck_codegraph.entities import Declared, Entity, Instance, Module, Package
from coatcheck_codegraph.evaluation import Evaluator
from coatcheck_codegraph.facts import FILE
from coatcheck_codegraph.language import Outside, words
from coatcheck_codegraph.names import FileNames
from coatcheck_codegraph.python_values.collector import collector_paused
from coatcheck_codegraph.python_values.facts import (
    ANY_KEY,
    UNKNOWN,
    PythonCallFlow,
    PythonFlow,
    PythonFunctionFlow,
    PythonProtocolFlow,
    key_of,
    unpacked,
)

# What the files of a project say is to be done with values, as numbers in arrays.
#
# There are very many of these facts, and most never come to matter: an object for each would cost
# more memory than all the rest.


class Kind:
    """What is to be done with whatever a value is."""

    COPY: Final = 0
    LOAD: Final = 1
    STORE: Final = 2
    LOAD_ITEM: Final = 3
    STORE_ITEM: Final = 4
    CALL: Final = 5
    PROTOCOL: Final = 6
    SUPER: Final = 7


NONE: Final = -1
"""The end of a chain."""


class Reactions:
    """What the files say is to be done with values. There are very many, and most never happen:
    they are numbers in arrays, chained by value."""

    def __init__(self) -> None:
        self.first = array("i")
        self.following = array("i")
        self.kinds = bytearray()
        self.one = array("i")
        self.other = array("i")
        self.names: list[str] = []
        self.keys: list[int] = []
        self._name_numbers: dict[str, int] = {}
        self._key_numbers: dict[int, int] = {}
        self._calls = array("i")

    def reserve(self, values: int) -> None:
        self.first = array("i", [NONE]) * values

    def note(self, value: int, kind: int, one: int, other: int) -> None:
        self.following.append(self.first[value])
        self.first[value] = len(self.kinds)
        self.kinds.append(kind)
        self.one.append(one)
        self.other.append(other)

    def name(self, name: str) -> int:
        number = self._name_numbers.get(name)
        if number is None:
            number = self._name_numbers[name] = len(self.names)
            self.names.append(name)
        return number

    def key(self, key: int) -> int:
        number = self._key_numbers.get(key)
        if number is None:
            number = self._key_numbers[key] = len(self.keys)
            self.keys.append(key)
        return number

    def pack(self, call: PythonCallFlow, base: int) -> int:
        """Keep a call whose values are numbered from ``base``; returns where."""
        place = len(self._calls)

        def moved(value: int) -> int:
            return base + value if value else UNKNOWN

        self._calls.extend(
            (
                call.line,
                call.caller,
                call.ordinal,
                moved(call.function),
                moved(call.result),
                moved(call.rest),
                moved(call.keywords),
                call.constructs_only,
                len(call.positional),
                len(call.named),
                *map(moved, call.positional),
            )
        )
        for name, value in call.named:
            self._calls.extend((self.name(name), moved(value)))
        return place

    def call(self, place: int) -> PythonCallFlow:
        calls = self._calls
        line, caller, ordinal, function, result, rest, keywords, only, positional, named = calls[
            place : place + 10
        ]
        place += 10
        arguments = tuple(calls[place : place + positional])
        place += positional
        by_name = tuple(
            (self.names[calls[at]], calls[at + 1]) for at in range(place, place + 2 * named, 2)
        )
        return PythonCallFlow(
            line,
            caller,
            ordinal,
            function,
            result,
            arguments,
            by_name,
            rest,
            keywords,
            bool(only),
        )

    def copies(self) -> Iterator[tuple[int, int]]:
        """(from, to)"""
        for value, begin in enumerate(self.first):
            at = begin
            while at != NONE:
                if self.kinds[at] == Kind.COPY:
                    yield value, self.one[at]
                at = self.following[at]


class Origins:
    """Where values come from: copies, backwards."""

    def __init__(self, values: int) -> None:
        self._first = array("i", [NONE]) * values
        self._following = array("i")
        self._origins = array("i")

    def note(self, to: int, value: int) -> None:
        self._following.append(self._first[to])
        self._first[to] = len(self._origins)
        self._origins.append(value)

    def of(self, value: int) -> Iterator[int]:
        at = self._first[value] if value < len(self._first) else NONE
        while at != NONE:
            yield self._origins[at]
            at = self._following[at]


_VALUES_MAX: Final = 6_000_000
"""Of a project. The calls of files beyond that are found by names alone."""

_THINGS_MAX: Final = 32
"""That one value may be. What else arrives is left out."""

_KEYS_MAX: Final = 4
"""Keys that one value may be; if there are more, it is any key."""

_ORIGINS_MAX: Final = 100
"""Values that are looked at for the literals that one of them may be."""

_ANCESTORS_MAX: Final = 40
"""Of a class, that are asked for an attribute."""

ELEMENTS_MAX: Final = 500
"""Of a container, that are told apart by their keys."""

_GIVEN_MAX: Final = 100
"""Arguments of a partial function, before and after, that are followed."""

_DERIVED_MAX: Final = 8
"""Calls that are made of calls: of an object whose ``__call__`` is an object, and so on."""

_LISTED_MAX: Final = 8
"""Up to that, a list is searched as quickly as anything else."""

_WILDCARDS_FOLLOWED_MAX: Final = 40
"""Files that everything is imported from, that are looked into for one name."""


@dataclass(slots=True, eq=False)
class Container:
    """A list, tuple, set or dict that is made in one place. Its elements are values: by key, those
    of unknown keys, and all of them."""

    has_keys: bool
    unknown: int
    all: int
    elements: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bound:
    """A function that was read from an object, or from a class: its first argument is known."""

    function: Declared
    receiver: Declared | Instance


@dataclass(frozen=True, slots=True)
class ContainerMethod:
    """``append`` of a list, ``get`` of a dict."""

    container: Container
    name: str


@dataclass(frozen=True, slots=True)
class Generator:
    """What calling a generator function gives."""

    function: Declared


@dataclass(frozen=True, slots=True)
class Super:
    """What a class inherits, seen from an object."""

    of: Declared
    receiver: Declared | Instance


@dataclass(frozen=True, slots=True)
class Partial:
    """A function some of whose arguments are given already, by ``call``."""

    function: Thing
    call: PythonCallFlow


Thing = (
    Declared
    | Instance
    | Module
    | Package
    | Outside
    | Container
    | Bound
    | ContainerMethod
    | Generator
    | Super
    | Partial
)
"""What a value may be."""

_ByKey = tuple[int, int, Callable[..., None], int]
"""A value that is a key, the container, whether to load or to store, and what."""


@dataclass(slots=True)
class Implicit:
    """A call that the code does not spell as one."""

    line: int
    caller: int
    callees: dict[Declared, None] = field(default_factory=dict)


@dataclass(slots=True)
class Targets:
    """What calls may run: those that are written, by ordinal; those that are not, in order."""

    written: dict[int, dict[Declared, None]] = field(default_factory=dict)
    implicit: dict[tuple[int, int, int], Implicit] = field(default_factory=dict)


class PythonValueSolver:
    """The values of a project. ``targets`` has what was found, by path, after ``run``."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self.targets: dict[str, Targets] = {}
        self.decorated: set[Declared] = set()
        self._values: list[tuple[Thing, ...] | dict[Thing, None] | None] = [None]
        self._alone: dict[Thing, tuple[Thing]] = {}
        """Most values are one thing, which many others are, too."""
        self._static = Reactions()
        self._onward: dict[int, list[int] | dict[int, None]] = {}
        self._watching: dict[int, list[tuple[Callable[..., None], Any]]] = {}
        self._arrived: deque[tuple[int, Thing]] = deque()
        self._protocols: list[tuple[str, PythonProtocolFlow]] = []
        self._paths: list[str] = []
        self._classes: list[Declared] = []
        self._functions: dict[Declared, PythonFunctionFlow] = {}
        self._names: dict[tuple[str, int], dict[str, int]] = {}
        self._fields: dict[tuple[Declared, str], int] = {}
        self._decorations: dict[int, tuple[int, int]] = {}
        self._keys: dict[int, int] = {}
        self._by_key: list[_ByKey] = []
        self._derived: set[tuple[object, ...]] = set()
        # Taken from the object anew, each would be an object of its own.
        self._on_load_item, self._on_store_item = self._load_item, self._store_item
        self._on_call, self._on_bind = self._call, self._bind

    def run(self) -> None:
        """Follow everything until nothing new arrives anywhere."""
        with collector_paused():
            self._run()
        self._values, self._onward, self._watching = [], {}, {}
        self._static, self._derived = Reactions(), set()

    def _run(self) -> None:
        flows: list[tuple[FileNames, int]] = []
        for names in self._evaluator.files.values():
            if names.facts.python_values and len(self._values) < _VALUES_MAX:
                flow = unpacked(names.facts.python_values)
                base = self._reserve(flow.values)
                self._know(names, flow, base)
                flows.append((names, base))
        self._static.reserve(len(self._values))
        for names, base in flows:
            self._link(names, unpacked(names.facts.python_values), base)
            names.facts.python_values = b""
        self._settle()
        # What no decorator is known to return is what it decorates: first where the decorator is
        # not known, because one that is may return what such a one has decorated.
        for is_known in (False, True):
            for result, (value, decorator) in self._decorations.items():
                if not self._values[result] and bool(self._values[decorator]) == is_known:
                    self._copy(result, value)
            self._settle()
        self._follow_keys()

    # Values

    def _reserve(self, count: int) -> int:
        base = len(self._values) - 1
        self._values.extend([None] * count)
        return base

    def _new(self) -> int:
        self._values.append(None)
        return len(self._values) - 1

    def _add(self, value: int, thing: Thing) -> None:
        things = self._values[value]
        if things is None:
            self._values[value] = self._alone.setdefault(thing, (thing,))
        elif thing in things or len(things) >= _THINGS_MAX:
            return
        elif isinstance(things, dict):
            things[thing] = None
        elif len(things) < _LISTED_MAX:
            self._values[value] = (*things, thing)
        else:
            self._values[value] = dict.fromkeys((*things, thing))
        self._arrived.append((value, thing))

    def _copy(self, to: int, value: int) -> None:
        if to == value:
            return
        onward = self._onward.get(value)
        if onward is None:
            onward = self._onward[value] = [to]
        elif to in onward:
            return
        elif isinstance(onward, dict):
            onward[to] = None
        elif len(onward) < _LISTED_MAX:
            onward.append(to)
        else:
            self._onward[value] = dict.fromkeys((*onward, to))
        for thing in tuple(self._values[value] or ()):
            self._add(to, thing)

    def _watch(self, value: int, react: Callable[..., None], about: object) -> None:
        """Call ``react(about, thing)`` for all that a value is, and will be."""
        self._watching.setdefault(value, []).append((react, about))
        for thing in tuple(self._values[value] or ()):
            react(about, thing)

    def _settle(self) -> None:
        arrived, onward, watching = self._arrived, self._onward, self._watching
        first, following, kinds = self._static.first, self._static.following, self._static.kinds
        while arrived:
            value, thing = arrived.popleft()
            at = first[value] if value < len(first) else NONE
            while at != NONE:
                if kinds[at] == Kind.COPY:
                    self._add(self._static.one[at], thing)
                else:
                    self._react(kinds[at], self._static.one[at], self._static.other[at], thing)
                at = following[at]
            if value in onward:
                for to in tuple(onward[value]):
                    self._add(to, thing)
            if value in watching:
                for react, about in tuple(watching[value]):
                    react(about, thing)

    def _react(self, kind: int, one: int, other: int, thing: Thing) -> None:
        """Do what a file says is to be done with whatever a value is."""
        match kind:
            case Kind.LOAD:
                self._load((one, self._static.names[other]), thing)
            case Kind.STORE:
                self._store((self._static.names[other], one), thing)
            case Kind.LOAD_ITEM:
                self._load_item((one, self._static.keys[other]), thing)
            case Kind.STORE_ITEM:
                self._store_item((one, self._static.keys[other]), thing)
            case Kind.CALL:
                self._call(_At(self._paths[other], self._static.call(one)), thing)
            case Kind.PROTOCOL:
                self._protocol(self._protocols[one], thing)
            case Kind.SUPER:
                self._super((one, self._classes[other]), thing)

    # What the files say

    def _know(self, names: FileNames, flow: PythonFlow, base: int) -> None:
        self.targets[names.path] = Targets()
        for index, name, value in flow.names:
            self._names.setdefault((names.path, index), {})[name] = base + value
        for function in flow.functions:
            declared = names.declared[function.index]
            self._functions[declared] = _moved_function(function, base)
            if function.decorated:
                self.decorated.add(declared)

    def _link(self, names: FileNames, flow: PythonFlow, base: int) -> None:
        path = names.path
        for value, has_keys in flow.containers:
            self._add(base + value, Container(has_keys, self._new(), self._new()))
        for value, key in flow.constants:
            self._keys[base + value] = key
        for function in flow.functions:
            self._link_function(names, self._functions[names.declared[function.index]])
        for index, value in flow.classes:
            declared = names.declared[index]
            self._add(base + value, declared)
            for name, ref in declared.declaration.fields.items():
                if ref.is_type:
                    held = self._evaluator.evaluate(path, index, ref)
                    if isinstance(held, Instance):
                        self._add(self._field(declared, name), held)
        for value, name in flow.reads:
            self._read(names, base + value, name)
        for value, ordinal, remote in flow.imports:
            self._import(names, base + value, ordinal, remote)
        static = self._static
        for to, value in flow.copies:
            static.note(base + value, Kind.COPY, base + to, 0)
        for to, value, name in flow.loads:
            static.note(base + value, Kind.LOAD, base + to, static.name(name))
        for holder, name, value in flow.stores:
            static.note(base + holder, Kind.STORE, base + value, static.name(name))
        for to, holder, key, dynamic in flow.item_loads:
            if dynamic:
                self._by_key.append((base + dynamic, base + holder, self._on_load_item, base + to))
            else:
                static.note(base + holder, Kind.LOAD_ITEM, base + to, static.key(key))
        for holder, key, dynamic, value in flow.item_stores:
            if dynamic:
                stored = (base + dynamic, base + holder, self._on_store_item, base + value)
                self._by_key.append(stored)
            else:
                static.note(base + holder, Kind.STORE_ITEM, base + value, static.key(key))
        for value, index, receiver in flow.supers:
            if receiver:
                self._classes.append(names.declared[index])
                static.note(base + receiver, Kind.SUPER, base + value, len(self._classes) - 1)
        for value, decorated, decorator in flow.decorations:
            self._decorations[base + value] = (base + decorated, base + decorator)
        self._paths.append(path)
        for call in flow.calls:
            static.note(
                base + call.function, Kind.CALL, static.pack(call, base), len(self._paths) - 1
            )
        for protocol in flow.protocols:
            moved = PythonProtocolFlow(
                protocol.line,
                protocol.caller,
                protocol.protocol,
                base + protocol.object,
                base + protocol.result,
            )
            self._protocols.append((path, moved))
            static.note(moved.object, Kind.PROTOCOL, len(self._protocols) - 1, 0)

    def _link_function(self, names: FileNames, function: PythonFunctionFlow) -> None:
        declared = names.declared[function.index]
        self._add(function.value, declared)
        declaration = declared.declaration
        for name, parameter in (*function.positional, *function.keyword_only):
            ref = declaration.locals.get(name)
            if ref is not None and ref.is_type:
                held = self._evaluator.evaluate(names.path, function.index, ref)
                if isinstance(held, Instance):
                    self._add(parameter, held)
        if declaration.returns is not None and declaration.returns.is_type:
            held = self._evaluator.evaluate(names.path, function.index, declaration.returns)
            if isinstance(held, Instance):
                self._add(function.returns, held)
        around = declaration.parent
        if around == FILE or not function.positional or function.access == "static":
            return
        of = names.declared[around]
        if of.declaration.kind != "class":
            return
        first = function.positional[0][1]
        self._add(first, of if function.access == "class" else of.instance)

    def _ancestors(self, of: Declared) -> tuple[Declared, ...]:
        return self._evaluator.ancestors.of(of)[:_ANCESTORS_MAX]

    # Names

    def _read(self, names: FileNames, value: int, name: str) -> None:
        """A name that nothing in the file binds."""
        if name in _MODELLED and name in names.language.builtins:
            self._add(value, _MODELLED[name])
        elif FILE in names.wildcards:
            held = self._starred(names.path, name)
            if held is None:
                self._take(value, self._evaluator.lookup(names.path, FILE, name))
            else:
                self._copy(value, held)

    def _import(self, names: FileNames, value: int, ordinal: int, remote: str) -> None:
        target = self._evaluator.target(names.path, ordinal)
        if target is None:
            return
        if not remote:
            self._take(value, target)
        elif isinstance(target, Module):
            self._take(value, self._exported(target, remote))
        elif isinstance(target, Outside):
            self._take(value, Outside(f"{target.module}.{remote}"))
        else:
            self._take(value, self._evaluator.bound(names.path, ordinal, remote))

    def _take(self, value: int, found: int | Entity | None) -> None:
        if isinstance(found, int):
            self._copy(value, found)
        elif isinstance(found, Declared | Instance | Module | Package | Outside) and (
            not isinstance(found, Outside) or found.module in _MODELLED
        ):
            self._add(value, found)

    def _exported(self, module: Module, name: str) -> int | Entity | None:
        """The value that a name of a module holds, or what it is."""
        held = self._names.get((module.path, FILE), _NO_NAMES).get(name)
        if held is None and self._evaluator.files[module.path].wildcards:
            held = self._starred(module.path, name)
        if held is not None:
            return held
        return self._evaluator.member(module, name, False, False, module.path)

    def _starred(self, path: str, name: str) -> int | None:
        """The value of a name that a wildcard import brings, from wherever that has it."""
        prefix = self._evaluator.files[path].language.private_prefix
        if prefix and name.startswith(prefix):
            return None
        seen, pending = {path}, deque((path,))
        while pending:
            here = pending.popleft()
            for ordinal in self._evaluator.files[here].wildcards.get(FILE, ()):
                target = self._evaluator.target(here, ordinal)
                if isinstance(target, Module) and target.path not in seen:
                    held = self._names.get((target.path, FILE), _NO_NAMES).get(name)
                    if held is not None or len(seen) >= _WILDCARDS_FOLLOWED_MAX:
                        return held
                    seen.add(target.path)
                    pending.append(target.path)
        return None

    # Attributes

    def _load(self, about: tuple[int, str], thing: Thing) -> None:
        to, name = about
        match thing:
            case Instance():
                self._copy(to, self._field(thing.of, name))
                self._load_from_class(to, self._ancestors(thing.of), thing, name)
            case Declared():
                if thing.declaration.kind == "class":
                    self._copy(to, self._field(thing, name))
                    self._load_from_class(to, self._ancestors(thing), thing, name)
            case Super():
                self._load_from_super(to, thing, name)
            case Module():
                self._take(to, self._exported(thing, name))
            case Package():
                asker = thing.paths[0] if thing.paths else ""
                language = next(iter(self._evaluator.files.values())).language
                self._take(to, self._evaluator.member(thing, name, False, False, asker, language))
            case Outside():
                self._take(to, Outside(f"{thing.module}.{name}"))
            case Container():
                if name in _CONTAINER_METHODS:
                    self._add(to, ContainerMethod(thing, name))
            case _:
                pass

    def _load_from_super(self, to: int, of: Super, name: str) -> None:
        receiver = of.receiver
        ancestors = self._ancestors(receiver.of if isinstance(receiver, Instance) else receiver)
        if of.of in ancestors:
            ancestors = ancestors[ancestors.index(of.of) + 1 :]
        else:
            ancestors = self._ancestors(of.of)[1:]
        self._load_from_class(to, ancestors, receiver, name)

    def _load_from_class(
        self,
        to: int,
        ancestors: Iterable[Declared],
        receiver: Declared | Instance,
        name: str,
    ) -> None:
        for ancestor in ancestors:
            held = self._names.get((ancestor.path, ancestor.index), _NO_NAMES).get(name)
            if held is not None:
                self._watch(held, self._on_bind, (to, receiver))
                return

    def _bind(self, about: tuple[int, Declared | Instance], thing: Thing) -> None:
        """What is read from a class is bound to the object that it is read through."""
        to, receiver = about
        function = self._functions.get(thing) if isinstance(thing, Declared) else None
        if function is None or not isinstance(thing, Declared):
            self._add(to, thing)
            return
        match function.access:
            case "static":
                self._add(to, thing)
            case "class":
                of = receiver.of if isinstance(receiver, Instance) else receiver
                self._add(to, Bound(thing, of))
            case "property":
                if isinstance(receiver, Instance):
                    if function.positional:
                        self._add(function.positional[0][1], receiver)
                        if function.positional[0][0] in function.passes:
                            self._add(to, receiver)
                    self._copy(to, function.returns)
            case "plain":
                is_object = isinstance(receiver, Instance)
                self._add(to, Bound(thing, receiver) if is_object else thing)

    def _store(self, about: tuple[str, int], thing: Thing) -> None:
        name, value = about
        if isinstance(thing, Instance):
            self._copy(self._field(thing.of, name), value)
        elif isinstance(thing, Declared) and thing.declaration.kind == "class":
            self._copy(self._field(thing, name), value)

    def _field(self, of: Declared, name: str) -> int:
        """The value of an attribute that objects of a class are given, or inherit."""
        key = (of, name)
        value = self._fields.get(key)
        if value is None:
            value = self._fields[key] = self._new()
            for ancestor in self._ancestors(of)[1:]:
                inherited = self._fields.get((ancestor, name))
                if inherited is None:
                    inherited = self._fields[ancestor, name] = self._new()
                self._copy(value, inherited)
        return value

    def _super(self, about: tuple[int, Declared], thing: Thing) -> None:
        to, of = about
        if isinstance(thing, Instance | Declared):
            self._add(to, Super(of, thing))

    # Containers

    def _element(self, container: Container, key: int) -> int:
        """The value to store under a key."""
        if key == ANY_KEY:
            return container.unknown
        value = container.elements.get(key)
        if value is None:
            if len(container.elements) >= ELEMENTS_MAX:
                return container.unknown
            value = container.elements[key] = self._new()
            self._copy(container.all, value)
        return value

    def _follow_keys(self) -> None:
        """Where a container is asked with a value: with those literals that the value may be."""
        origins: Origins | None = None
        for react, matters in (
            (self._on_store_item, self._is_known),
            (self._on_load_item, self._holds_anything),
        ):
            asked = [one for one in self._by_key if one[2] == react and matters(one)]
            if asked and origins is None:
                origins = Origins(len(self._values))
                for value, to in self._static.copies():
                    origins.note(to, value)
                for value, onward in self._onward.items():
                    for to in onward:
                        origins.note(to, value)
            for value, holder, _, other in asked:
                for key in (self._literals(value, origins) if origins else ()) or (ANY_KEY,):
                    self._watch(holder, react, (other, key))
            self._settle()

    def _is_known(self, stored: _ByKey) -> bool:
        return bool(self._values[stored[3]])

    def _holds_anything(self, loaded: _ByKey) -> bool:
        """Whether a value is a container that holds anything of which something is known."""
        return any(
            isinstance(thing, Container)
            and (self._values[thing.all] or self._values[thing.unknown])
            for thing in self._values[loaded[1]] or ()
        )

    def _literals(self, value: int, origins: Origins) -> Iterable[int]:
        """The keys that may arrive at a value; none, if there are too many of them."""
        seen, pending = {value}, [value]
        keys: dict[int, None] = {}
        while pending:
            value = pending.pop()
            if value in self._keys:
                keys[self._keys[value]] = None
            for origin in origins.of(value):
                if origin not in seen:
                    seen.add(origin)
                    pending.append(origin)
            if len(seen) > _ORIGINS_MAX or len(keys) > _KEYS_MAX:
                return ()
        return keys

    def _load_item(self, about: tuple[int, int], thing: Thing) -> None:
        to, key = about
        if isinstance(thing, Container):
            if key == ANY_KEY:
                self._copy(to, thing.all)
                self._copy(to, thing.unknown)
            else:
                self._copy(to, self._element(thing, key))
                self._copy(to, thing.unknown)

    def _store_item(self, about: tuple[int, int], thing: Thing) -> None:
        value, key = about
        if isinstance(thing, Container):
            self._copy(self._element(thing, key), value)

    # Calls

    def _call(self, at: _At, thing: Thing) -> None:
        call = at.call
        if call.constructs_only and not (
            isinstance(thing, Declared) and thing.declaration.kind == "class"
        ):
            return
        match thing:
            case Declared():
                if thing.declaration.kind == "class":
                    self._construct(at, thing)
                elif thing in self._functions:
                    self._note(at, thing)
                    self._pass(at, thing, ())
            case Bound():
                self._note(at, thing.function)
                self._pass(at, thing.function, (thing.receiver,))
            case Instance():
                self._call_method(at, thing, "__call__")
            case Partial():
                self._call_partial(at, thing)
            case ContainerMethod():
                self._call_container(at, thing)
            case Outside():
                self._call_outside(at, thing)
            case _:
                pass

    def _note(self, at: _At, callee: Declared) -> None:
        targets = self.targets[at.path]
        if at.call.ordinal >= 0:
            targets.written.setdefault(at.call.ordinal, {})[callee] = None
            return
        key = (at.call.line, at.call.caller, at.call.function)
        implicit = targets.implicit.get(key)
        if implicit is None:
            implicit = targets.implicit[key] = Implicit(at.call.line, at.call.caller)
        implicit.callees[callee] = None

    def _construct(self, at: _At, of: Declared) -> None:
        made = of.instance
        self._add(at.call.result, made)
        if self._was_made(at, of):
            return
        function = self._new()
        ancestors = self._ancestors(of)
        if any("__init__" in self._names.get((one.path, one.index), ()) for one in ancestors):
            self._load_from_class(function, ancestors, made, "__init__")
            self._watch(function, self._on_call, at.only_calling(function, self._new()))
        else:
            self._note(at, of)

    def _call_method(self, at: _At, thing: Instance, name: str, result: int = UNKNOWN) -> None:
        """Call a method of an object that the code does not name."""
        result = result or at.call.result
        if self._was_made(at, thing, name, result):
            return
        function = self._new()
        self._load_from_class(function, self._ancestors(thing.of), thing, name)
        self._watch(function, self._on_call, at.only_calling(function, result))

    def _was_made(self, at: _At, *about: object) -> bool:
        """Whether a call that is made of another one was made before, or is one too many: what
        an object is called by may be an object again, and in the end the same."""
        if not at.depth:
            return False
        key = (at.root, at.call.positional, at.call.named, *about)
        if at.depth > _DERIVED_MAX or key in self._derived:
            return True
        self._derived.add(key)
        return False

    def _pass(self, at: _At, callee: Declared, before: tuple[Thing, ...]) -> None:
        """Arguments to parameters, and the result back."""
        function, call = self._functions[callee], at.call
        parameters = [parameter for _, parameter in function.positional]
        for thing, parameter in zip(before, parameters, strict=False):
            self._add(parameter, thing)
        offset = len(before)
        for position, argument in enumerate(call.positional, offset):
            if argument == UNKNOWN:
                continue
            if position < len(parameters):
                self._copy(parameters[position], argument)
            elif function.rest:
                about = (argument, key_of(position - len(parameters)))
                self._watch(function.rest, self._on_store_item, about)
        if call.named:
            self._pass_named(function, call.named)
        if call.rest:
            given = offset + len(call.positional)
            for position, parameter in enumerate(parameters[given:]):
                self._watch(call.rest, self._on_load_item, (parameter, key_of(position)))
            if function.rest:
                gathered = self._new()
                self._watch(call.rest, self._on_load_item, (gathered, ANY_KEY))
                self._watch(function.rest, self._on_store_item, (gathered, ANY_KEY))
        if call.keywords:
            for name, parameter in (*function.positional, *function.keyword_only):
                self._watch(call.keywords, self._on_load_item, (parameter, key_of(name)))
            if function.keywords:
                self._copy(function.keywords, call.keywords)
        if call.result:
            if function.yields:
                self._add(call.result, Generator(callee))
            else:
                self._copy(call.result, function.returns)
                if function.passes:
                    self._pass_back(call, function, before)

    def _pass_back(
        self, call: PythonCallFlow, function: PythonFunctionFlow, before: tuple[Thing, ...]
    ) -> None:
        """Of what is returned as it was given, a caller gets what it gave."""
        named = dict(call.named)
        positions = {name: at for at, (name, _) in enumerate(function.positional)}
        parameters = dict((*function.positional, *function.keyword_only))
        for name in function.passes:
            at = positions.get(name, len(positions))
            if at < len(before):
                self._add(call.result, before[at])
            elif at - len(before) < len(call.positional):
                given = call.positional[at - len(before)]
                if given != UNKNOWN:
                    self._copy(call.result, given)
            else:
                self._copy(call.result, named.get(name, parameters[name]))

    def _pass_named(self, function: PythonFunctionFlow, named: tuple[tuple[str, int], ...]) -> None:
        parameters = dict((*function.positional, *function.keyword_only))
        for name, argument in named:
            parameter = parameters.get(name)
            if parameter is not None:
                self._copy(parameter, argument)
            elif function.keywords:
                self._watch(function.keywords, self._on_store_item, (argument, key_of(name)))

    # What the language brings along

    def _call_container(self, at: _At, method: ContainerMethod) -> None:
        call, container = at.call, method.container
        arguments = [one for one in call.positional if one != UNKNOWN]
        result = call.result
        match method.name:
            case "append" | "add" | "appendleft" | "insert":
                for argument in arguments[-1:]:
                    self._copy(container.unknown, argument)
            case "extend" | "update":
                for argument in arguments:
                    self._watch(argument, self._merge, container)
            case "get" | "pop" | "setdefault" | "popleft":
                if container.has_keys and arguments and method.name != "popleft":
                    self._link_item_load_of(result, container, arguments[0])
                    if len(call.positional) > 1 and call.positional[1] != UNKNOWN:
                        given = call.positional[1]
                        self._copy(result, given)
                        if method.name == "setdefault":
                            self._copy(container.unknown, given)
                else:
                    self._load_item((result, ANY_KEY), container)
            case "values" | "copy" | "items":
                gathered = container
                if method.name != "copy":
                    gathered = Container(False, self._new(), self._new())
                    held = gathered.unknown
                    if method.name == "items":
                        pair = Container(False, self._new(), self._new())
                        self._add(held, pair)
                        held = self._element(pair, key_of(1))
                    self._load_item((held, ANY_KEY), container)
                self._add(result, gathered)
            case _:
                pass

    def _link_item_load_of(self, to: int, container: Container, key: int) -> None:
        holder = self._new()
        self._add(holder, container)
        self._by_key.append((key, holder, self._on_load_item, to))

    def _merge(self, into: Container, thing: Thing) -> None:
        if isinstance(thing, Container):
            for key, element in tuple(thing.elements.items()) if into.has_keys else ():
                self._copy(self._element(into, key), element)
            self._copy(into.unknown, thing.unknown)
            if not into.has_keys:
                self._copy(into.unknown, thing.all)

    def _call_outside(self, at: _At, outside: Outside) -> None:
        call, name = at.call, outside.module
        result, arguments, named = call.result, list(call.positional), dict(call.named)
        decorated = self._decorations.get(result)
        if decorated is not None:
            self._copy(result, decorated[0])
            return
        if name in _CALLS_ITS_ARGUMENTS:
            self._call_arguments(at, name, arguments, named)
        elif name == "functools.partial" and arguments and arguments[0]:
            self._watch(arguments[0], self._partial, at)
        elif name in _TAKES_ELEMENTS and arguments and arguments[0]:
            gathered = Container(False, self._new(), self._new())
            held = gathered.unknown
            for position, argument in enumerate(arguments if name == "zip" else arguments[:1]):
                if not argument:
                    continue
                target = held
                if name in ("enumerate", "zip"):
                    pair = Container(False, self._new(), self._new())
                    self._add(held, pair)
                    at_position = position if name == "zip" else 1
                    target = self._element(pair, key_of(at_position))
                self._iterate(at, argument, target)
            self._add(result, gathered)
        elif name == "next" and arguments and arguments[0]:
            self._watch(arguments[0], self._next, (at, result, "__next__"))
        elif name == "iter" and arguments and arguments[0]:
            self._watch(arguments[0], self._iter, (at, result, "__iter__"))

    def _call_arguments(
        self, at: _At, name: str, arguments: list[int], named: Mapping[str, int]
    ) -> None:
        """``map``, ``filter``, ``sorted``: they call what they are given, here."""
        functions = [named["key"]] if "key" in named else []
        elements = arguments[:1]
        if name in ("map", "filter", "functools.reduce"):
            functions += [argument for argument in arguments[:1] if argument]
            elements = arguments[1:]
        given = self._new()
        for argument in elements:
            if argument:
                self._iterate(at, argument, given)
        result = self._new()
        for function in functions:
            about = at.with_arguments(function, result, (given,))
            self._watch(function, self._on_call, about)
        if name == "map":
            gathered = Container(False, self._new(), self._new())
            self._copy(gathered.unknown, result)
            self._add(at.call.result, gathered)
        elif name in ("filter", "sorted"):
            gathered = Container(False, self._new(), self._new())
            self._copy(gathered.unknown, given)
            self._add(at.call.result, gathered)
        else:
            self._copy(at.call.result, given)

    def _partial(self, at: _At, thing: Thing) -> None:
        if isinstance(thing, Declared | Bound):
            self._add(at.call.result, Partial(thing, at.call))

    def _call_partial(self, at: _At, partial: Partial) -> None:
        before, call = partial.call, at.call
        joined = PythonCallFlow(
            call.line,
            call.caller,
            call.ordinal,
            call.function,
            call.result,
            (*before.positional[1:], *call.positional)[:_GIVEN_MAX],
            (*before.named, *call.named)[:_GIVEN_MAX],
        )
        self._call(_At(at.path, joined, at.depth, at.root), partial.function)

    # Protocols

    def _protocol(self, about: tuple[str, PythonProtocolFlow], thing: Thing) -> None:
        path, protocol = about
        result = protocol.result
        at = _At(path, PythonCallFlow(protocol.line, protocol.caller, -1, protocol.object, result))
        if protocol.protocol in ("iterate", "aiterate"):
            self._iterated(at, result, thing, "a" if protocol.protocol == "aiterate" else "")
            return
        prefix = "a" if protocol.protocol == "aenter" else ""
        match thing:
            case Instance():
                self._call_method(at, thing, f"__{prefix}enter__", result)
                self._call_method(at, thing, f"__{prefix}exit__", self._new())
            case Generator():
                self._copy(result, self._functions[thing.function].yields)
            case _:
                pass

    def _iterate(self, at: _At, value: int, to: int) -> None:
        def arrived(_about: object, thing: Thing) -> None:
            self._iterated(at, to, thing, "")

        self._watch(value, arrived, None)

    def _iterated(self, at: _At, to: int, thing: Thing, prefix: str) -> None:
        match thing:
            case Container():
                if not thing.has_keys:
                    self._load_item((to, ANY_KEY), thing)
            case Generator():
                self._copy(to, self._functions[thing.function].yields)
            case Instance():
                iterator = self._new()
                self._call_method(at.implicit(), thing, f"__{prefix}iter__", iterator)
                self._watch(iterator, self._next, (at.implicit(), to, f"__{prefix}next__"))
            case _:
                pass

    def _next(self, about: tuple[_At, int, str], thing: Thing) -> None:
        at, to, name = about
        if isinstance(thing, Instance):
            self._call_method(at.implicit(), thing, name, to)
        else:
            self._iterated(at, to, thing, "")

    def _iter(self, about: tuple[_At, int, str], thing: Thing) -> None:
        at, to, name = about
        if isinstance(thing, Instance):
            self._call_method(at.implicit(), thing, name, to)
        else:
            self._add(to, thing)


@dataclass(frozen=True, slots=True)
class _At:
    """A call, and the path of the file that it is in. Its values have the project's numbers.

    One that is made of another call has a ``depth``, and its ``root`` is what the code calls there.
    """

    path: str
    call: PythonCallFlow
    depth: int = 0
    root: int = UNKNOWN

    def with_arguments(self, function: int, result: int, positional: tuple[int, ...]) -> _At:
        """A call in the same place that the code does not spell, of other values."""
        call = self.call
        other = PythonCallFlow(call.line, call.caller, -1, function, result, positional)
        return _At(self.path, other, self.depth, self.root)

    def implicit(self) -> _At:
        return self.with_arguments(self.call.function, self.call.result, ())

    def only_calling(self, function: int, result: int) -> _At:
        """The same call, with the same arguments, of something else."""
        call = self.call
        other = PythonCallFlow(
            call.line,
            call.caller,
            call.ordinal,
            function,
            result,
            call.positional,
            call.named,
            call.rest,
            call.keywords,
        )
        return _At(self.path, other, self.depth + 1, self.root or call.function)


def _moved_function(function: PythonFunctionFlow, base: int) -> PythonFunctionFlow:
    """A function whose values have the project's numbers."""
    return PythonFunctionFlow(
        function.index,
        base + function.value,
        tuple((name, base + value) for name, value in function.positional),
        tuple((name, base + value) for name, value in function.keyword_only),
        base + function.rest if function.rest else UNKNOWN,
        base + function.keywords if function.keywords else UNKNOWN,
        base + function.returns,
        base + function.yields if function.yields else UNKNOWN,
        function.access,
        function.decorated,
        function.passes,
    )


_NO_NAMES: Final[Mapping[str, int]] = {}
_CALLS_ITS_ARGUMENTS: Final = frozenset(
    {"map", "filter", "sorted", "min", "max", "functools.reduce"}
)
_TAKES_ELEMENTS: Final = frozenset(
    {"list", "tuple", "set", "frozenset", "reversed", "enumerate", "zip"}
)
_MODELLED: Final = {
    name: Outside(name)
    for name in (
        *_CALLS_ITS_ARGUMENTS,
        *_TAKES_ELEMENTS,
        "next",
        "iter",
        "functools",
        "functools.partial",
    )
}
"""What is outside of the archive, and known to call or return what it is given."""
_CONTAINER_METHODS: Final = frozenset(
    words(
        """
        append add appendleft insert extend update get pop setdefault popleft values copy items
        """
    )
)
