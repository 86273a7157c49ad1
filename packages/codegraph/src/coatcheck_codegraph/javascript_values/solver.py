"""Follows values across the JavaScript files of a project: a points-to analysis.

It finds the functions that a call may run. It solves the constraints of all files
(``javascript_values.facts``) together. The solution of a node is a set of objects: functions,
classes, their instances, literals. The size of a set is bounded: a node that may be more things
than the bound is unknown. So the work grows no faster than the code, and a budget ends it for
hostile code.

The order of statements does not matter, except that a variable may get another value in the block
that declares it. The caller of a function does not matter either, except that a parameter which the
function returns unchanged goes back only to the caller that passed it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from coatcheck_codegraph.facts import FILE
from coatcheck_codegraph.javascript_values.facts import (
    ANY,
    ARRAY,
    ARROW,
    ASYNC_ITERATOR,
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
    ITERATOR,
    LOAD,
    MAP,
    METHOD,
    NEW,
    OBJECT,
    ON_CLASS,
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
    JavaScriptFlow,
    JavaScriptFunctionFlow,
    Records,
    call_of,
    function_of,
    numbers_in,
)

_OBJECTS_MAX: Final = 8
"""That one node may have, and that one call may run; of what may be more, nothing is said."""
_WILDCARDS_MAX: Final = 50
"""Modules whose exports others export as a whole that are looked into for one name."""
_BASES_MAX: Final = 100
"""Classes that are looked at for the constructors that one class inherits."""
STEPS_PER_CONSTRAINT: Final = 60
STEPS_MIN: Final = 100_000
"""The budget: how often objects are handed on, and members are looked for."""
_DERIVED_MAX: Final = 4
"""Calls that are made of calls: of a bound function that is bound again, and so on."""

_FUNCTION: Final = 10
_CLASS: Final = 11
_INSTANCE: Final = 12
_GENERATED: Final = 13
_BOUND: Final = 14
_RESOLVER: Final = 15
_PROTOTYPE: Final = 16
_TOO_MANY: Final = 0
_INHERITING: Final = frozenset({OBJECT, _CLASS, _INSTANCE, _PROTOTYPE})

_CALLBACKS: Final = {
    "catch": 0,
    "every": 0,
    "filter": 0,
    "finally": 0,
    "find": 0,
    "findIndex": 0,
    "findLast": 0,
    "findLastIndex": 0,
    "flatMap": 0,
    "forEach": 0,
    "map": 0,
    "reduce": 0,
    "reduceRight": 0,
    "replace": 1,
    "replaceAll": 1,
    "some": 0,
    "sort": 0,
    "then": 0,
    "toSorted": 0,
}
"""Methods of built-in classes that call what they are given, and which argument that is."""
_GIVING_RECEIVER: Final = frozenset({"then"})
_KEEPING_RECEIVER: Final = frozenset({"catch", "finally"})
_ADDING: Final = frozenset({"add", "push", "unshift"})
_ONE_ELEMENT: Final = frozenset({"at", "find", "findLast", "pop", "shift"})
_SAME_ARRAY: Final = frozenset(
    {
        "fill",
        "filter",
        "flat",
        "reverse",
        "slice",
        "sort",
        "splice",
        "toReversed",
        "toSorted",
        "toSpliced",
        "values",
    }
)


@dataclass(slots=True, eq=False)
class _Site:
    """A call that is being solved. ``root`` is the one in the code that it is made of."""

    kind: int
    callee: int
    this: int
    result: int
    arguments: tuple[int, ...]
    path: str
    function: int
    line: int
    ordinal: int = -1
    quiet: bool = False
    name: str = ""
    root: _Site | None = None
    depth: int = 0
    targets: tuple[int, ...] = ()
    is_unknown: bool = False
    answered: bool = False
    """Whether the receiver is an array or the like that has the method."""

    def reaches(self, one: int) -> None:
        if one not in self.targets:
            self.targets = (*self.targets, one)


@dataclass(frozen=True, slots=True)
class CallTarget:
    """A function or a class. ``index`` is that of its declaration; below 0, ``function`` says which
    of the file's functions it is that has none."""

    path: str
    index: int
    function: int


@dataclass(slots=True)
class SolvedCall:
    """A call and all that it may run. ``ordinal`` is below 0 if it is not among the file's calls.
    ``function`` is the one that it is made in."""

    path: str
    line: int
    function: int
    ordinal: int
    quiet: bool
    targets: tuple[CallTarget, ...]


Resolve = Callable[[str, str], str | None]
"""Gives, for the path of a file and the name of a module that it imports, the module's path."""


def solved(files: Mapping[str, JavaScriptFlow], resolve: Resolve) -> Iterator[SolvedCall]:
    """All calls of the files whose targets are found, in order."""
    solver = _Solver(files, resolve)
    solver.solve()
    return solver.calls()


class _FileConstraints:
    """The flows of a file, and which numbers its nodes have among those of all files."""

    __slots__ = (
        "calls",
        "constraints",
        "exported",
        "flows",
        "functions",
        "known",
        "names",
        "nodes",
        "objects",
        "path",
        "sites",
        "start",
    )

    def __init__(self, path: str, flows: JavaScriptFlow, start: int) -> None:
        self.path = path
        self.flows = flows
        self.start = start
        self.names = flows.names
        self.nodes = numbers_in(flows.nodes)
        self.constraints = numbers_in(flows.constraints)
        self.functions = Records(flows.functions)
        self.calls = Records(flows.calls)
        self.exported = {flows.names[name] for name in numbers_in(flows.exports)[::2]}
        self.known: dict[int, JavaScriptFunctionFlow] = {}
        self.sites: dict[int, _Site] = {}

    def function(self, number: int) -> JavaScriptFunctionFlow:
        found = self.known.get(number)
        if found is None:
            found = self.known[number] = function_of(self.functions[number])
        return found

    def call(self, number: int) -> JavaScriptCallFlow:
        return call_of(self.calls[number])


_Place = tuple[str, int, int]
"""Where something is read or written: path, line, and the function around."""

_NOWHERE: Final[_Place] = ("", 0, 0)

_OWN_NODES: Final = frozenset({ELEMENT, PARENT, PROTOTYPE})
"""Fields that are written more than once, as a rule."""


class _Solver:
    def __init__(self, files: Mapping[str, JavaScriptFlow], resolve: Resolve) -> None:
        self._resolve = resolve
        self._files: dict[str, _FileConstraints] = {}
        self._size = 1
        for path, flows in files.items():
            self._files[path] = _FileConstraints(path, flows, self._size)
            self._size += flows.size
        self._ordered = list(self._files.values())
        self._starts = [file.start for file in self._ordered]
        self._written = self._size
        """Nodes from here on are of no file."""
        # Objects: what they are, and where they come from.
        self._kinds: list[int] = [-1]
        self._sources: list[tuple[str, int] | int] = [0]
        self._alone: list[tuple[int]] = [(0,)]
        self._fields: dict[int, dict[str, int]] = {}
        """By object and name, the node of a field; below 0, that of what was put there."""
        self._found_members: dict[tuple[int, str], int] = {}
        self._watching: dict[int, list[tuple[int, int]]] = {}
        self._singles: dict[int, int] = {}
        self._instances: dict[int, int] = {}
        self._generated: dict[int, int] = {}
        self._bound: dict[int, _Site] = {}
        self._rests: dict[int, int] = {}
        self._arguments: dict[int, int] = {}
        # Nodes: what they have, and what follows of that besides the constraints of files.
        self._has: list[tuple[int, ...]] = [()] * self._size
        self._new: dict[int, list[int]] = {}
        self._queue: deque[int] = deque()
        self._later: deque[Callable[[], None]] = deque()
        self._copies: dict[int, int | list[int]] = {}
        """Where to: mostly to one node."""
        self._loads: dict[int, list[tuple[str, int]]] = {}
        self._called: dict[int, list[tuple[_Site, int]]] = {}
        """Calls, and the nodes of what ``this`` is in them."""
        self._received: dict[int, list[_Site]] = {}
        self._sites: list[_Site] = []
        self._accessors: set[str] = set()
        self._objects_of_modules: dict[str, int] = {}
        self._with_stars: set[str] = set()
        self._steps = STEPS_MIN

    # Objects

    def _object(self, kind: int, source: tuple[str, int] | int = 0) -> int:
        self._kinds.append(kind)
        self._sources.append(source)
        made = len(self._kinds) - 1
        self._alone.append((made,))
        return made

    def _node(self) -> int:
        node = self._size
        self._size += 1
        self._has.append(())
        return node

    def _field(self, of: int, name: str) -> int:
        fields = self._fields.get(of)
        if fields is None:
            fields = self._fields[of] = {}
        node = fields.get(name, 0)
        if node <= 0:
            lent, node = -node, self._node()
            fields[name] = node
            if lent:
                self._copy(lent, node)
                found = self._found_members.get((of, name))
                if found is not None:
                    self._copy(node, found)
            for least, watcher in self._watching.get(of, ()):
                if _is_among(name, least):
                    self._copy(node, watcher)
            if name == PROTOTYPE and self._kinds[of] == _FUNCTION:
                made = self._object(_PROTOTYPE)
                self._add(node, made)
                self._add(self._field(made, CONSTRUCTOR), of)
        return node

    def _single(self, of: int) -> int:
        """The node that has one object and no other."""
        node = self._singles.get(of)
        if node is None:
            node = self._singles[of] = self._node()
            self._add(node, of)
        return node

    def _member(self, of: int, name: str) -> int:
        """The node of what an object has by a name, itself or by inheritance."""
        key = (of, name)
        node = self._found_members.get(key)
        if node is not None:
            return node
        node = self._found_members[key] = self._node()
        self._steps -= 1  # along a chain of parents there is one for each
        kind = self._kinds[of]
        if kind == _GENERATED and (name in ("value", ANY) or name[:1].isdecimal()):
            self._copy(self._yields(of), node)
            return node
        least = _least_of(name)
        if least is not None:
            if kind in (_FUNCTION, _CLASS):
                return node
            for known, held in list(self._fields.get(of, {}).items()):
                if _is_among(known, least):
                    self._copy(abs(held), node)
            self._watching.setdefault(of, []).append((least, node))
        else:
            fields = self._fields.get(of, {})
            held = abs(fields.get(name, 0))
            is_own = bool(self._has[held])
            self._copy(held or self._field(of, name), node)
            if kind in (ARRAY, MAP) or (kind == OBJECT and not is_own):
                self._copy(self._field(of, ELEMENT), node)
            if is_own:
                return node
        if kind in _INHERITING or (kind == _FUNCTION and name != PROTOTYPE):
            self._load(self._field(of, PARENT), name, node)
        return node

    def _instance(self, of: int) -> int:
        """An object that a class or a function makes."""
        instance = self._instances.get(of)
        if instance is None:
            instance = self._instances[of] = self._object(_INSTANCE, of)
            self._copy(self._field(of, PROTOTYPE), self._field(instance, PARENT))
        return instance

    def _yields(self, generated: int) -> int:
        source = self._sources[generated]
        assert isinstance(source, int)
        path, number = self._source(source)
        file = self._files[path]
        return file.start + file.function(number).yields

    def _source(self, of: int) -> tuple[str, int]:
        source = self._sources[of]
        assert not isinstance(source, int)
        return source

    # Constraints

    def _add(self, node: int, one: int) -> None:
        has = self._has[node]
        if one in has or (has and has[-1] == _TOO_MANY):
            return
        if len(has) >= _OBJECTS_MAX:
            one = _TOO_MANY
        self._has[node] = (*has, one) if has else self._alone[one]
        new = self._new.get(node)
        if new is None:
            self._new[node] = [one]
            self._queue.append(node)
        else:
            new.append(one)

    def _copy(self, origin: int, to: int) -> None:
        if origin == to:
            return
        known = self._copies.setdefault(origin, to)
        if isinstance(known, list):
            known.append(to)
        elif known != to:
            self._copies[origin] = [known, to]
        for one in self._has[origin]:
            self._add(to, one)

    def _load(self, of: int, name: str, into: int) -> None:
        self._loads.setdefault(of, []).append((name, into))
        has = self._has[of]
        if has:
            self._later.append(lambda: self._load_all(has, name, into))

    def _load_all(self, has: Sequence[int], name: str, into: int) -> None:
        for one in has:
            self._apply_load(one, name, into, _NOWHERE)

    def _apply_load(self, one: int, name: str, into: int, place: _Place) -> None:
        if one == _TOO_MANY:
            return
        self._copy(self._member(one, name), into)
        if place[0] and name in self._accessors:
            self._access(GETTER + name, one, into, (), place)

    def _apply_store(self, one: int, name: str, value: int, place: _Place) -> None:
        if one == _TOO_MANY:
            return
        if name in self._accessors:
            self._access(SETTER + name, one, self._node(), (value,), place)
        fields = self._fields.get(one)
        if fields is None:
            fields = self._fields[one] = {}
        if name not in fields and one not in self._watching and name not in _OWN_NODES:
            # Most fields are written once: what is read of them is what was put there.
            fields[name] = -value
        else:
            self._copy(value, self._field(one, name))

    def _access(
        self, name: str, one: int, result: int, arguments: tuple[int, ...], place: _Place
    ) -> None:
        path, line, function = place
        callee = self._member(one, name)
        self._site(_Site(CALL, callee, self._single(one), result, arguments, path, function, line))

    def _site(self, site: _Site) -> None:
        """Note a call of what a node has."""
        if site.root is None:
            self._sites.append(site)
        if site.callee:
            self._calls(site, site.callee, site.this)

    def _calls(self, site: _Site, callee: int, this: int) -> None:
        self._called.setdefault(callee, []).append((site, this))
        has = self._has[callee]
        if has:
            self._later.append(lambda: self._link_all(site, has, this))

    def _link_all(self, site: _Site, has: Sequence[int], this: int) -> None:
        for one in has:
            self._link(site, one, this)

    # Solving

    def solve(self) -> None:
        """Find out what all nodes have."""
        for file in self._ordered:
            self._accessors.update(
                name[len(GETTER) :] for name in file.names if name.startswith((GETTER, SETTER))
            )
        for file in self._ordered:
            self._take_in(file)
        for file in self._ordered:
            self._import_all(file)
        self._run()
        for file in self._ordered:
            self._call_back_all(file)
            self._use_classes(file)
        self._run()

    def _take_in(self, file: _FileConstraints) -> None:
        start, names, flows = file.start, file.names, file.flows
        for number in range(len(file.functions)):
            record = file.functions[number]
            value, arguments, rest = record[3], record[8], record[9]
            if value:
                made = self._object(_FUNCTION, (file.path, number))
                self._add(start + value, made)
                if rest:
                    self._rests[made] = self._object(ARRAY)
                    self._add(start + rest, self._rests[made])
                if arguments:
                    self._arguments[made] = self._object(ARRAY)
                    self._add(start + arguments, self._arguments[made])
        for number, said in enumerate(flows.classes):
            made = self._object(_CLASS, (file.path, number))
            prototype = self._object(_PROTOTYPE)
            self._add(start + said.value, made)
            self._add(self._field(made, PROTOTYPE), prototype)
            self._add(self._field(prototype, CONSTRUCTOR), made)
            instance = self._instance(made)
            self._add(start + said.instance, instance)
            for at in range(0, len(said.members), 3):
                whose, name, value = said.members[at : at + 3]
                owner = (
                    prototype if whose == ON_PROTOTYPE else made if whose == ON_CLASS else instance
                )
                self._copy(start + value, self._field(owner, names[name]))
            if said.base:
                self._copy(start + said.base, self._field(made, PARENT))
                self._load(start + said.base, PROTOTYPE, self._field(prototype, PARENT))
        objects = numbers_in(flows.objects).tolist()
        for at in range(0, len(objects), 2):
            self._add(start + objects[at], self._object(objects[at + 1]))
        module = self._object(OBJECT)
        self._add(start + flows.module, module)
        self._objects_of_modules[file.path] = module
        exports = numbers_in(flows.exports).tolist()
        for at in range(0, len(exports), 2):
            self._copy(start + exports[at + 1], self._field(module, names[exports[at]]))
        for number in range(len(file.calls)):
            kind = file.calls[number][0]
            if kind in (BIND, PROMISE):
                self._site_of(file, number)
        self._steps += STEPS_PER_CONSTRAINT * len(file.nodes)

    def _module(self, path: str) -> int:
        return self._files[path].start + self._files[path].flows.module

    def _import_all(self, file: _FileConstraints) -> None:
        imports, names = numbers_in(file.flows.imports).tolist(), file.names
        for at in range(0, len(imports), 3):
            specifier, name, node = imports[at : at + 3]
            remote = names[name] if name >= 0 else ""
            self._import(file.path, names[specifier], remote, file.start + node)

    def _import(self, path: str, specifier: str, name: str, node: int) -> None:
        target = self._resolve(path, specifier)
        if target is None or target not in self._files:
            return
        if not name:
            self._copy(self._module(target), node)
            self._inherit_stars(target)
            return
        exporting = self._exporting(target, name)
        self._load(self._module(exporting or target), name, node)
        if name == "default" and exporting is None:
            self._copy(self._module(target), node)

    def _starred(self, path: str) -> list[str]:
        """The modules all of whose exports a module exports."""
        found: list[str] = []
        file = self._files[path]
        for specifier in numbers_in(file.flows.wildcards)[:_WILDCARDS_MAX]:
            target = self._resolve(path, file.names[specifier])
            if target is not None and target in self._files:
                found.append(target)
        return found

    def _exporting(self, path: str, name: str) -> str | None:
        """The module that exports a name, of one and those that it exports as a whole."""
        seen = [path]
        for one in seen:
            if name in self._files[one].exported:
                return one
            if name == "default":
                return None
            for further in self._starred(one):
                if further not in seen and len(seen) < _WILDCARDS_MAX:
                    seen.append(further)
        return None

    def _inherit_stars(self, path: str) -> None:
        """Let a module have what those have that it exports as a whole."""
        seen = [path]
        for one in seen:
            if one in self._with_stars:
                continue
            self._with_stars.add(one)
            for further in self._starred(one):
                parent = self._field(self._objects_of_modules[one], PARENT)
                self._copy(self._module(further), parent)
                if further not in seen and len(seen) < _WILDCARDS_MAX:
                    seen.append(further)

    def _site_of(self, file: _FileConstraints, number: int) -> _Site:
        """A call of a file, which is looked at when something to be called is known."""
        site = file.sites.get(number)
        if site is not None:
            return site
        call, start = file.call(number), file.start
        site = file.sites[number] = _Site(
            call.kind,
            start + call.callee if call.callee else 0,
            start + call.receiver if call.receiver else 0,
            start + call.result,
            tuple(
                0 if not one else start + one if one > 0 else one - start for one in call.arguments
            ),
            file.path,
            call.function,
            call.line,
            call.ordinal,
            bool(call.quiet),
            file.names[call.name] if call.name >= 0 else "",
        )
        if call.kind == BIND:
            bound = self._object(_BOUND)
            self._bound[bound] = site
            self._add(site.result, bound)
            return site
        self._sites.append(site)
        if call.kind == PROMISE:
            resolver = self._object(_RESOLVER, site.result)
            site.arguments = (self._single(resolver), self._node())
            site.result = self._node()
        return site

    def _run(self) -> None:
        while (self._queue or self._later) and self._steps > 0:
            while self._later and self._steps > 0:
                self._later.popleft()()
            if self._queue:
                node = self._queue.popleft()
                new = self._new.pop(node)
                self._steps -= len(new)
                self._hand_on(node, new)

    def _hand_on(self, node: int, new: Sequence[int]) -> None:
        if node < self._written:
            self._hand_on_in_file(node, new)
        copies = self._copies.get(node)
        if copies is not None:
            if not isinstance(copies, list):
                copies = [copies]
            self._steps -= len(copies)
            for to in copies:
                for one in new:
                    self._add(to, one)
        for name, into in tuple(self._loads.get(node, ())):
            for one in new:
                self._apply_load(one, name, into, _NOWHERE)
        for site, this in tuple(self._called.get(node, ())):
            self._link_all(site, new, this)
        for site in tuple(self._received.get(node, ())):
            for one in new:
                self._call_method(site, one)

    def _hand_on_in_file(self, node: int, new: Sequence[int]) -> None:
        file = self._ordered[bisect_right(self._starts, node) - 1]
        start = file.start
        local = node - start
        nodes, constraints = file.nodes, file.constraints
        at = bisect_left(nodes, local)
        end = len(nodes)
        while at < end and nodes[at] == local:
            place_of = at * WIDTH
            _, kind, first, second, third, fourth = constraints[
                place_of : place_of + WIDTH
            ].tolist()
            at += 1
            self._steps -= 1
            if kind == COPY:
                for one in new:
                    self._add(start + first, one)
            elif kind == LOAD:
                for one in new:
                    place = (file.path, third, fourth)
                    self._apply_load(one, file.names[first], start + second, place)
            elif kind == STORE:
                for one in new:
                    place = (file.path, third, fourth)
                    self._apply_store(one, file.names[first], start + second, place)
            elif kind == ITERATE:
                for one in new:
                    self._apply_iteration(one, start + first, (file.path, second, third))
            elif kind == CALLED:
                site = self._site_of(file, first)
                if site.kind != BIND:
                    self._link_all(site, new, site.this)
            elif kind == RECEIVED:
                site = self._site_of(file, first)
                for one in new:
                    self._call_method(site, one)

    # Calls

    def _link(self, site: _Site, one: int, this: int) -> None:
        """A call runs an object: hand arguments in, and results back."""
        self._steps -= 1
        root = site.root or site
        if one == _TOO_MANY:
            root.is_unknown = True
            return
        kind = self._kinds[one]
        if kind == _FUNCTION:
            root.reaches(one)
            if site.kind == NEW:
                instance = self._instance(one)
                self._add(site.result, instance)
                self._run_function(site, one, self._single(instance), 0)
            else:
                self._run_function(site, one, this, site.result)
        elif kind == _CLASS and site.kind in (NEW, SUPER):
            root.reaches(one)
            if site.kind == NEW:
                instance = self._instance(one)
                self._add(site.result, instance)
                this = self._single(instance)
            self._construct(site, one, this)
        elif kind == _CLASS and site.kind in (CALL, CALLBACK, METHOD):
            root.reaches(one)
        elif kind == _RESOLVER:
            target = self._sources[one]
            if isinstance(target, int):
                for given in self._given(site.arguments, 0):
                    self._copy(given, target)
        elif kind == _BOUND and site.depth < _DERIVED_MAX:
            bound = self._bound[one]
            self._site(
                _Site(
                    NEW if site.kind == NEW else CALL,
                    bound.callee,
                    bound.this,
                    site.result,
                    (*bound.arguments, *site.arguments),
                    site.path,
                    site.function,
                    site.line,
                    root=root,
                    depth=site.depth + 1,
                )
            )

    def _construct(self, site: _Site, of: int, this: int) -> None:
        path, number = self._source(of)
        said = self._files[path].flows.classes[number]
        if said.constructor >= 0:
            function = self._files[path].function(said.constructor)
            self._run_body(site, path, function, this, 0, of)
        elif said.base and site.depth < 40:
            self._site(
                _Site(
                    SUPER,
                    self._files[path].start + said.base,
                    this,
                    self._node(),
                    site.arguments,
                    site.path,
                    site.function,
                    site.line,
                    root=_Site(SUPER, 0, 0, 0, (), "", 0, 0),
                    depth=site.depth + 1,
                )
            )

    def _run_function(self, site: _Site, one: int, this: int, result: int) -> None:
        path, number = self._source(one)
        self._run_body(site, path, self._files[path].function(number), this, result, one)

    def _run_body(
        self,
        site: _Site,
        path: str,
        function: JavaScriptFunctionFlow,
        this: int,
        result: int,
        one: int,
    ) -> None:
        start = self._files[path].start
        arguments = site.arguments
        for at, parameter in enumerate(function.parameters):
            for given in self._given(arguments, at):
                self._copy(given, start + parameter)
        if this and function.this and not function.flags & ARROW:
            self._copy(this, start + function.this)
        many = self._rests.get(one)
        if many is not None:
            self._fill(many, arguments, len(function.parameters))
        many = self._arguments.get(one)
        if many is not None:
            self._fill(many, arguments, 0)
        if not result:
            return
        if function.flags & GENERATOR:
            generated = self._generated.get(one)
            if generated is None:
                generated = self._generated[one] = self._object(_GENERATED, one)
            self._add(result, generated)
            return
        if function.returns:
            self._copy(start + function.returns, result)
        for at in function.passed:
            for given in self._given(arguments, at):
                self._copy(given, result)

    def _given(self, arguments: tuple[int, ...], at: int) -> list[int]:
        """The nodes of what is given for a parameter."""
        for position, one in enumerate(arguments[: at + 1]):
            if one < 0:
                element = self._node()
                self._load(-one, str(at - position), element)
                return [element]
        return [arguments[at]] if at < len(arguments) and arguments[at] > 0 else []

    def _fill(self, many: int, arguments: tuple[int, ...], first: int) -> None:
        for at, one in enumerate(arguments):
            if one < 0:
                self._load(-one, ANY, self._field(many, ELEMENT))
            elif one and at >= first:
                self._copy(one, self._field(many, str(at - first)))

    # Methods

    def _use_classes(self, file: _FileConstraints) -> None:
        """Methods that nothing of the archive calls are called by others, on objects of the
        class."""
        for said in file.flows.classes:
            (made,) = self._has[file.start + said.value][:1]
            instance = self._instance(made)
            for at in range(0, len(said.members), 3):
                whose, _, value = said.members[at : at + 3]
                for one in self._has[file.start + value]:
                    if self._kinds[one] == _FUNCTION:
                        self._use_method(one, made if whose == ON_CLASS else instance)
            if said.constructor >= 0:
                this = file.start + file.function(said.constructor).this
                if not self._has[this]:
                    self._add(this, instance)

    def _use_method(self, one: int, of: int) -> None:
        path, number = self._source(one)
        file = self._files[path]
        function = file.function(number)
        if function.this and not self._has[file.start + function.this]:
            self._add(file.start + function.this, of)

    def _call_method(self, site: _Site, one: int) -> None:
        self._steps -= 1
        if one == _TOO_MANY:
            site.is_unknown = True
            return
        kind = self._kinds[one]
        if kind in (ARRAY, MAP, SET, _GENERATED) and self._call_builtin(site, one, kind):
            site.answered = True
            return
        self._calls(site, self._member(one, site.name), self._single(one))
        if site.name in self._accessors:
            got = self._node()
            self._access(GETTER + site.name, one, got, (), (site.path, site.line, site.function))
            self._calls(site, got, self._single(one))

    def _call_builtin(self, site: _Site, one: int, kind: int) -> bool:
        """A method of an array, a map, a set or a generator."""
        name, given = site.name, site.arguments
        if kind == _GENERATED:
            return self._call_generated(site, one)
        if kind == MAP and name in ("get", "set"):
            if name == "set" and len(given) > 1 and given[1] > 0:
                self._copy(given[1], self._field(one, ELEMENT))
                self._add(site.result, one)
            elif name == "get":
                self._copy(self._member(one, ANY), site.result)
            return True
        if name in _ADDING:
            for argument in given:
                if argument > 0:
                    self._copy(argument, self._field(one, ELEMENT))
                elif argument < 0:
                    self._load(-argument, ANY, self._field(one, ELEMENT))
            if kind == SET:
                self._add(site.result, one)
            return True
        if name == "entries" or (kind == MAP and name == ITERATOR):
            pair, pairs = self._object(ARRAY), self._object(ARRAY)
            self._copy(self._member(one, ANY), self._field(pair, "1"))
            self._add(self._field(pairs, ELEMENT), pair)
            self._add(site.result, pairs)
            return True
        if kind == MAP and name == "values":
            values = self._object(ARRAY)
            self._copy(self._member(one, ANY), self._field(values, ELEMENT))
            self._add(site.result, values)
            return True
        if kind == ARRAY and name == "concat":
            self._concatenate(site, one)
            return True
        position = _CALLBACKS.get(name)
        if name in _SAME_ARRAY:
            self._add(site.result, one)
        elif name in _ONE_ELEMENT:
            self._copy(self._member(one, ANY), site.result)
        elif position is None:
            return False
        if position is not None and position < len(given) and given[position] > 0:
            self._call_with_elements(site, one, given[position])
        return True

    def _call_generated(self, site: _Site, one: int) -> bool:
        if site.name not in ("next", "return", "throw"):
            return False
        source = self._sources[one]
        assert isinstance(source, int)
        path, number = self._source(source)
        sent = self._files[path].start + self._files[path].function(number).sent
        for given in self._given(site.arguments, 0):
            self._copy(given, sent)
        self._add(site.result, one)
        return True

    def _concatenate(self, site: _Site, one: int) -> None:
        joined = self._object(ARRAY)
        element = self._field(joined, ELEMENT)
        self._copy(self._member(one, ANY), element)
        for given in site.arguments:
            if given:
                self._load(abs(given), ANY, element)
        self._add(site.result, joined)

    def _call_with_elements(self, site: _Site, one: int, callback: int) -> None:
        element = self._member(one, ANY)
        result = self._node()
        arguments: tuple[int, ...] = (element, 0, self._single(one))
        if site.name in ("reduce", "reduceRight"):
            accumulated = self._node()
            arguments = (accumulated, element, 0, self._single(one))
            for given in self._given(site.arguments, 1):
                self._copy(given, accumulated)
            self._copy(result, accumulated)
            self._copy(accumulated, site.result)
        elif site.name in ("sort", "toSorted"):
            arguments = (element, element)
        elif site.name in ("map", "flatMap"):
            made = self._object(ARRAY)
            self._copy(result, self._field(made, ELEMENT))
            self._add(site.result, made)
        self._callback(site, callback, arguments, result)

    def _call_back_all(self, file: _FileConstraints) -> None:
        """Methods that nothing of the archive has call what they are given, if they are called as
        those of the language that do."""
        names = file.names
        for number in range(len(file.calls)):
            record = file.calls[number]
            if record[0] == METHOD and len(record) > 9 and names[record[3]] in _CALLBACKS:
                site = self._site_of(file, number)
                if not (site.answered or site.targets or site.is_unknown):
                    self._call_back(site)

    def _call_back(self, site: _Site) -> None:
        position = _CALLBACKS[site.name]
        arguments = (site.this,) if site.name in _GIVING_RECEIVER and site.this else ()
        if site.name in _KEEPING_RECEIVER and site.this:
            self._copy(site.this, site.result)
        result = site.result
        if site.name in ("map", "flatMap"):
            result = self._field(made := self._object(ARRAY), ELEMENT)
            self._add(site.result, made)
        last = 2 if site.name == "then" else position + 1
        for callback in site.arguments[position:last]:
            if callback > 0:
                self._callback(site, callback, arguments, result)
                arguments = ()

    def _callback(
        self, site: _Site, callback: int, arguments: tuple[int, ...], result: int
    ) -> None:
        self._site(
            _Site(
                CALLBACK,
                callback,
                0,
                result,
                arguments,
                site.path,
                site.function,
                site.line,
                quiet=True,
            )
        )

    # Iteration

    def _apply_iteration(self, one: int, into: int, place: _Place) -> None:
        if one == _TOO_MANY:
            return
        kind = self._kinds[one]
        if kind in (ARRAY, SET, _GENERATED):
            self._copy(self._member(one, ANY), into)
        elif kind == MAP:
            pair = self._object(ARRAY)
            self._copy(self._member(one, ANY), self._field(pair, "1"))
            self._add(into, pair)
        elif kind in (OBJECT, _INSTANCE):
            path, line, function = place
            iterator, step = self._node(), self._node()
            this = self._single(one)
            for name in (ITERATOR, ASYNC_ITERATOR):
                made_by = self._member(one, name)
                self._site(_Site(CALL, made_by, this, iterator, (), path, function, line))
            site = _Site(METHOD, 0, iterator, step, (), path, function, line, name="next")
            self._sites.append(site)
            self._received.setdefault(iterator, []).append(site)
            self._load(step, "value", into)

    # What was found

    def calls(self) -> Iterator[SolvedCall]:
        """All calls that lead somewhere."""
        for site in self._sites:
            if site.is_unknown or not site.targets:
                continue
            targets: dict[CallTarget, None] = {}
            for one in sorted(site.targets):
                for target in self._targets(one):
                    targets[target] = None
            if 0 < len(targets) <= _OBJECTS_MAX:
                yield SolvedCall(
                    site.path,
                    site.line,
                    site.function,
                    site.ordinal,
                    site.quiet,
                    tuple(targets),
                )

    def _targets(self, one: int) -> list[CallTarget]:
        """What calling a function or making an object of a class runs: of a class without a
        constructor, those that it inherits; the class itself, if it inherits none."""
        found: list[CallTarget] = []
        seen = {one}
        ahead = [one]
        while ahead:
            at = ahead.pop()
            path, number = self._source(at)
            file = self._files[path]
            if self._kinds[at] == _CLASS:
                said = file.flows.classes[number]
                number = said.constructor
                if number < 0:
                    bases = self._has[file.start + said.base] if said.base else ()
                    for base in sorted(bases, reverse=True):
                        # Each once: there may be very many ways to a class.
                        is_new = base != _TOO_MANY and base not in seen and len(seen) < _BASES_MAX
                        if is_new and self._kinds[base] in (_CLASS, _FUNCTION):
                            seen.add(base)
                            ahead.append(base)
                    continue
            found.append(CallTarget(path, file.functions[number][0], number))
        if not found:
            path, number = self._source(one)
            index = self._files[path].flows.classes[number].index
            found = [] if index == FILE else [CallTarget(path, index, -1)]
        return found


def _least_of(name: str) -> int | None:
    """The index from which on elements are meant by a name, -1 for all members; None if it is that
    of one member. Code may have a member of any name, one that ends as these do among them."""
    if name == ANY:
        return -1
    first = name.removesuffix(REST)
    return int(first) if first != name and first.isdecimal() else None


def _is_among(name: str, least: int) -> bool:
    """Whether a member is one of all, or of the elements from an index on."""
    if name in (PARENT, PROTOTYPE, CONSTRUCTOR) or name.startswith((GETTER, SETTER)):
        return False
    if name == ELEMENT or least < 0:
        return True
    return name.isdecimal() and int(name) >= least
