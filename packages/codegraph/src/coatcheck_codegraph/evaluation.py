"""Resolves references by names and types, across the files of a project.

Only certain results count. A name with two equally good declarations means nothing, and neither
does anything reached through it. Declarations of one name in one place are an exception: they
redefine one thing, and the first stands for all of them (the last, in languages where it replaces
the others). Overloads are different things: the number of a call's arguments must select one of
them, otherwise the call is not resolved.

Code may refer to itself in cycles or in endless chains. A reference that is met again while it is
being evaluated means nothing, and neither does one that is nested too deep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from coatcheck_codegraph.choices import (
    Choices,
    WholeMembers,
    definitions,
    holders_of,
    is_overloadable,
    levels_of,
    parts_of,
    shape_of,
)
from coatcheck_codegraph.class_ancestors import ClassAncestors
from coatcheck_codegraph.entities import Declared, Entity, Instance, Module, Overloads, Package
from coatcheck_codegraph.facts import FILE, Ref
from coatcheck_codegraph.language import Inside, Language, Outside
from coatcheck_codegraph.languages import load
from coatcheck_codegraph.names import FileNames, Neighbourhood, WildcardImports
from coatcheck_codegraph.project import Project

_DEPTH_MAX: Final = 40
"""The depth of nested evaluations. Each takes a handful of Python's stack frames."""

WILDCARDS_FOLLOWED_MAX: Final = 200
"""The number of wildcard imports that are followed in search of one name."""

_EXPORTED_MAX: Final = 400_000
"""The number of looked-up names of modules that are cached, found or not."""

_Name = tuple[str, int, str, bool, bool]
"""A look-up: the place (path, index), the name, whether a type is expected, whether called."""


class Evaluator:
    """Evaluates references at a place in the code, and caches the results."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.files = {
            path: FileNames(facts, load(facts.language)) for path, facts in project.files.items()
        }
        self._depth = 0
        self._targets_pending = 0
        self._stars_followed: int | None = None
        self._neighbourhood = Neighbourhood(project, self.files)
        self._package_prefixes = {
            package[:length] for package in project.packages for length in range(1, len(package))
        }
        self._parts = parts_of(self.files.values())
        self._whole = {part: parts[0] for parts in self._parts.values() for part in parts}
        self._whole_members = WholeMembers(self.files)
        self._definitions: dict[Declared, Declared] = {}
        self._choices = Choices(self.files, self._whole, self._neighbourhood)
        self.ancestors = ClassAncestors(self._parts, self._base)
        self._owners: dict[Declared, Declared | Module] = {}
        self._outside_members: dict[Declared | Module, dict[str, list[Declared]]] = {}
        self._extensions: dict[Declared, dict[str, list[Declared]]] = {}
        self._wildcards = WildcardImports(self.files, self.target, self._outside_members)
        self._holders = holders_of(self.files.values(), self._whole)
        self._forget()
        self._find_receivers()
        self._definitions.update(definitions(self.files.values(), self._owners))
        self._choices.know(self._definitions)

    def _forget(self) -> None:
        self._found: dict[_Name, Entity | None] = {}
        self._exported: dict[tuple[str, str, bool], Entity | None] = {}
        self._held: dict[tuple[str, int, str], Entity | None] = {}
        self._targets: dict[tuple[str, int], Entity | None] = {}
        self._agreed: dict[tuple[int, str, bool, bool], tuple[Sequence[str], Entity | None]] = {}
        self._constructors: dict[Declared, Declared | Overloads | None] = {}
        self._inside_and_outside: dict[tuple[Declared, str], list[Declared]] = {}
        self._without_functions: dict[tuple[Declared, str], list[Declared]] = {}
        self.ancestors.forget()
        self._wildcards.forget()

    def owners(self) -> dict[tuple[str, int], Declared]:
        """The classes of functions that are declared outside of them, by path and index."""
        return {
            (function.path, function.index): owner
            for function, owner in self._owners.items()
            if isinstance(owner, Declared)
        }

    def definitions(self) -> dict[tuple[str, int], Declared]:
        """The definitions of forward declarations, by path and index of the latter."""
        return {
            (declared.path, declared.index): definition
            for declared, definition in self._definitions.items()
        }

    def _find_receivers(self) -> None:
        for names in self.files.values():
            for declared in names.declared:
                receiver = declared.declaration.receiver
                if receiver is None:
                    continue
                entity = self.evaluate(names.path, declared.declaration.parent, receiver)
                owner = entity.of if isinstance(entity, Instance) else entity
                if names.language.extension_methods:
                    if isinstance(owner, Declared):
                        extensions = self._extensions.setdefault(owner, {})
                        extensions.setdefault(declared.declaration.name, []).append(declared)
                elif isinstance(owner, Declared | Module):
                    self._owners[declared] = owner
                    members = self._outside_members.setdefault(owner, {})
                    members.setdefault(declared.declaration.name, []).append(declared)
                    if isinstance(owner, Declared):
                        self._holders.setdefault(declared.declaration.name, set()).add(owner)
        self._forget()  # what was not found for lack of these members may be found now

    # References

    def evaluate(self, path: str, scope: int, ref: Ref) -> Entity | None:
        """The meaning of a reference: the value of an expression, or an object of a type."""
        if self._depth >= _DEPTH_MAX:
            return None
        self._depth += 1
        try:
            entity = self._walk(path, scope, ref)
            if entity is not None and ref.steps and ref.steps[-1].called:
                entity = self.value_of_call(entity)
            return self.instance_of(entity) if ref.is_type else entity
        finally:
            self._depth -= 1

    def callee(self, path: str, scope: int, ref: Ref, arguments: int = -1) -> Entity | None:
        """The target of a call: a function, a class if it declares no constructor, or the outside.

        ``arguments`` is their number, -1 if it is not known.
        """
        if len(self._exported) > _EXPORTED_MAX:
            self._exported.clear()
        entity = self._walk(path, scope, ref)
        if isinstance(entity, Module | Package):
            entity = self._module_value(entity)
        if isinstance(entity, Instance):
            # Of objects, only `this(...)` and `super(...)` can be called: they run a constructor.
            entity = entity.of if ref.base in ("self", "super") and not ref.steps else None
        if isinstance(entity, Overloads):
            entity = self._choices.chosen(entity, arguments, path)
        if not isinstance(entity, Declared):
            return entity if isinstance(entity, Outside) else None
        return self._called(entity, arguments, path)

    def external_name(self, names: FileNames, ref: Ref, outside: Outside) -> str:
        """The name that people use for a function outside the archive.

        It is made from the import that begins the reference; else from the module and the call.
        """
        steps = [step.name for step in ref.steps]
        imported = names.imported.get(FILE, {}).get(steps[0]) if steps else None
        if ref.base == "name" and imported:
            ordinal, remote = imported[0]
            target = self.target(names.path, ordinal)
            if isinstance(target, Outside):
                return ".".join(filter(None, (target.module, remote, *steps[1:])))
        if not steps or steps == [outside.module]:
            return outside.module
        return f"{outside.module}.{steps[-1]}"

    def _called(self, entity: Declared, arguments: int, asker: str) -> Entity | None:
        match entity.declaration.kind:
            case "class":
                made_by: Declared | Overloads | None = self._constructor(entity) or entity
                if isinstance(made_by, Overloads):
                    made_by = self._choices.chosen(made_by, arguments, asker)
                return None if made_by is None else self._definitions.get(made_by, made_by)
            case "type":
                stands_for = self.instance_of(entity)
                if isinstance(stands_for, Instance) and stands_for.of is not entity:
                    return self._called(stands_for.of, arguments, asker)
                return stands_for if isinstance(stands_for, Outside) else entity
            case "namespace":
                return None
            case "function":
                return self._definitions.get(entity, entity)

    def _constructor(self, of: Declared) -> Declared | Overloads | None:
        if of not in self._constructors:
            self._constructors[of] = self._find_constructor(of)
        return self._constructors[of]

    def _find_constructor(self, of: Declared) -> Declared | Overloads | None:
        for pattern in self.files[of.path].language.constructors:
            candidates = [
                one
                for one in self._own_members(of, pattern.replace("{}", of.declaration.name))
                # A static constructor initialises the class and makes no object.
                if not (one.declaration.static and is_overloadable(one))
            ]
            if not candidates:
                continue
            found = self._choices.one_of(candidates, False, True, of.path)
            if isinstance(found, Declared) and found.declaration.kind != "function":
                continue
            levels = levels_of(found)
            if levels and of.declaration.parameters is not None:
                return Overloads(((*levels[0], of),))
            if found is not None:
                return found
        return None

    def _walk(self, path: str, scope: int, ref: Ref) -> Entity | None:
        """Follow the steps of a reference. The last step is not called, even if it is marked so."""
        steps = ref.steps
        entity: Entity | None
        if ref.base == "name":
            if not steps:
                return None
            as_type = ref.is_type or steps[0].of_type
            entity = self.lookup(path, scope, steps[0].name, as_type, steps[0].called)
            at = 1
        elif ref.base == "self":
            entity, at = self._self(path, scope), 0
        elif ref.base == "super":
            around = self._class_around(path, scope)
            if not isinstance(around, Declared):
                return None
            if not steps:
                above = self.ancestors.of(around)[1:]
                return above[0].instance if above else self.ancestors.outside_base(around)
            entity = self._inherited(around, steps[0].name, steps[0].called, path)
            at = 1
        else:
            return None
        while at < len(steps) and entity is not None:
            if at and steps[at - 1].called:
                entity = self.value_of_call(entity)
                if entity is None:
                    return None
            step = steps[at]
            as_type = ref.is_type or step.of_type
            entity = self.member(entity, step.name, as_type, step.called, path)
            at += 1
        return entity

    def value_of_call(self, entity: Entity) -> Entity | None:
        """The value that a call of the entity returns."""
        match entity:
            case Declared():
                if entity.declaration.kind == "class":
                    return entity.instance
                if entity.declaration.kind == "type":
                    return self.instance_of(entity)
                entity = self._definitions.get(entity, entity)
                returns = entity.declaration.returns
                if returns is None:
                    return None
                return self.evaluate(entity.path, entity.index, returns)
            case Module() | Package():
                value = self._module_value(entity)
                return None if value is None else self.value_of_call(value)
            case Overloads():
                return self._value_of_overloads(entity)
            case Outside():
                return entity
            case Instance():
                return None

    def _value_of_overloads(self, overloads: Overloads) -> Entity | None:
        """The value that a call of any of them returns, if all return the same. Overridden ones do
        not count."""
        shapes: set[str] = set()
        value: Entity | None = None
        for level in (*overloads.levels, *overloads.extensions):
            called = [one for one in level if shape_of(one) not in shapes]
            for one in called:
                given = self.value_of_call(one)
                if given is None or (shapes and given != value):
                    return None
                shapes.add(shape_of(one))
                value = given
        return value

    def instance_of(self, entity: Entity | None) -> Entity | None:
        """An object of a type."""
        if not isinstance(entity, Declared):
            return entity if isinstance(entity, Instance | Outside) else None
        declaration = entity.declaration
        if declaration.kind == "type" and declaration.returns is not None:
            return self._held_by(entity.path, entity.index, "", declaration.returns)
        return entity.instance if declaration.kind != "namespace" else None

    # Names

    def lookup(
        self, path: str, scope: int, name: str, as_type: bool = False, called: bool = False
    ) -> Entity | None:
        """The meaning of a bare name inside the declaration ``scope`` of a file."""
        names = self.files[path]
        start, index = scope, scope
        while index != FILE:
            declaration = names.facts.declarations[index]
            found, entity = self._seen_in(names, index, name, as_type, called, index == start)
            if found:
                return entity
            owner = self._owners.get(names.declared[index])
            if isinstance(owner, Declared):
                found, entity = self._seen_in_owner(owner, names, name, as_type, called)
                if found:
                    return entity
            index = declaration.parent
        key = (path, FILE, name, as_type, called)
        if key not in self._found:
            self._found[key] = None
            self._found[key] = self._seen_in_file(names, name, as_type, called)
        entity = self._found[key]
        if entity is None and called and names.language.implicit_self:
            around = self._class_around(path, scope)
            return self.ancestors.outside_base(around) if isinstance(around, Declared) else None
        return entity

    def _seen_in(
        self, names: FileNames, index: int, name: str, as_type: bool, called: bool, innermost: bool
    ) -> tuple[bool, Entity | None]:
        """Whether a bare name is visible at a place, and its meaning there."""
        declared = names.declared[index]
        declaration = declared.declaration
        if declaration.kind == "function":
            local = None if as_type else declaration.locals.get(name)
            if local is not None and not self._is_pending(names.path, index, name):
                entity = self._held_by(names.path, index, name, local)
                is_callable = isinstance(entity, Declared | Overloads)
                if not called or names.language.calls_variables or is_callable:
                    return True, entity
            candidates = names.members(index).get(name)
            if candidates:
                return True, self._choices.one_of(candidates, as_type, called, names.path)
        elif declaration.kind == "class" and names.language.implicit_self:
            found, entity = self._member_within(declared, name, as_type, called, names.path)
            if found:
                return True, entity
        elif innermost or declaration.kind == "namespace":
            entity = self._own_member(
                self._whole.get(declared, declared), name, names.path, as_type
            )
            if entity is not None:
                return True, entity
            if declaration.kind == "namespace" and declaration.fields.get(name) == _UNKNOWN:
                return True, None
        if index in names.imported and name in names.imported[index]:
            return True, self._imported(names, index, name, as_type)
        entity = self._starred(names, index, name, as_type)
        return entity is not None, entity

    def _seen_in_owner(
        self, owner: Declared, names: FileNames, name: str, as_type: bool, called: bool
    ) -> tuple[bool, Entity | None]:
        """The same for a method that is written outside of its class, whose scope it sees."""
        home = self.files[owner.path]
        if home.language.implicit_self:
            found, entity = self._member_within(owner, name, as_type, called, names.path)
            if found:
                return True, entity
            index = owner.declaration.parent
            while index != FILE:
                found, entity = self._seen_in(home, index, name, as_type, called, False)
                if found:
                    return True, entity
                index = home.declaration(index).parent
        return False, None

    def _seen_in_file(
        self, names: FileNames, name: str, as_type: bool, called: bool
    ) -> Entity | None:
        path = names.path
        candidates = names.members().get(name)
        if candidates:
            return self._choices.one_of(candidates, as_type, called, path)
        variable = names.facts.variables.get(name)
        if variable is not None and not self._is_pending(path, FILE, name):
            return self._held_by(path, FILE, name, variable)
        if FILE in names.imported and name in names.imported[FILE]:
            return self._imported(names, FILE, name, as_type)
        entity = self._in_neighbours(names, name, as_type, called)
        if entity is not None:
            return entity
        entity = self._starred(names, FILE, name, as_type)
        if entity is not None:
            return entity
        root = names.language.rules.root(self.project, names.facts, name)
        if root is not None:
            return root if isinstance(root, Outside) else self._entity(root, names.language)
        if name in names.language.builtins:
            return Outside(name)
        if names.language.types_by_star:
            for ordinal in names.wildcards.get(FILE, ()):
                brings_it = as_type or not called or names.facts.imports[ordinal].kind == "static"
                target = self.target(path, ordinal)
                if brings_it and isinstance(target, Outside):
                    return target
        return None

    def _in_neighbours(
        self, names: FileNames, name: str, as_type: bool, called: bool
    ) -> Entity | None:
        paths = self._neighbourhood.nearest_declaring(names, name)
        return self._agreed_in(paths, name, as_type, called) if paths else None

    def _agreed_in(
        self, paths: Sequence[str], name: str, as_type: bool, called: bool
    ) -> Entity | None:
        """The declaration of a name in equally near files, if they agree on one."""
        if len(paths) <= _AGREEING_FILES_FEW:
            return self._choices.agreed(
                [self._declared_in(self.files[path], name, as_type, called) for path in paths]
            )
        key = (id(paths), name, as_type, called)
        if key not in self._agreed:
            found = [self._declared_in(self.files[path], name, as_type, called) for path in paths]
            self._agreed[key] = (paths, self._choices.agreed(found))
        return self._agreed[key][1]

    def _declared_in(
        self, names: FileNames, name: str, as_type: bool, called: bool
    ) -> Entity | None:
        """A declaration of a file that is visible to other files."""
        if names.facts.variables.get(name) == _UNKNOWN:
            return None  # and something else, perhaps
        candidates = names.members().get(name)
        if candidates:
            return self._choices.one_of(candidates, as_type, called, names.path)
        variable = names.facts.variables.get(name)
        if variable is not None and not self._is_pending(names.path, FILE, name):
            return self._held_by(names.path, FILE, name, variable)
        return None

    def _is_pending(self, path: str, index: int, name: str) -> bool:
        return self._held.get((path, index, name), None) is _PENDING

    def _held_by(self, path: str, index: int, name: str, ref: Ref) -> Entity | None:
        """The value of a variable, or the type that an alias stands for."""
        key = (path, index, name)
        if key not in self._held:
            self._held[key] = _PENDING
            self._held[key] = self.evaluate(path, index, ref)
        held = self._held[key]
        return None if held is _PENDING else held

    # Imports

    def target(self, path: str, ordinal: int) -> Entity | None:
        """The target of an import: its ``Inside.item`` if there is one."""
        key = (path, ordinal)
        if key not in self._targets:
            self._targets[key] = None
            names = self.files[path]
            imported = names.facts.imports[ordinal]
            where = names.language.rules.target(self.project, names.facts, imported)
            self._targets_pending += 1
            self._targets[key] = (
                where if isinstance(where, Outside) else self._entity(where, names.language)
            )
            self._targets_pending -= 1
        return self._targets[key]

    def bound(self, path: str, ordinal: int, remote: str, as_type: bool = False) -> Entity | None:
        """The meaning of a name that an import binds."""
        entity = self.target(path, ordinal)
        if entity is None or not remote:
            return entity
        return self.member(entity, remote, as_type, False, path)

    def _imported(self, names: FileNames, index: int, name: str, as_type: bool) -> Entity | None:
        return self._bound_to(names, names.imported[index][name], as_type)

    def _bound_to(
        self, names: FileNames, bound: Iterable[tuple[int, str]], as_type: bool
    ) -> Entity | None:
        found = [self.bound(names.path, ordinal, remote, as_type) for ordinal, remote in bound]
        within = [entity for entity in found if entity and not isinstance(entity, Outside)]
        # An external import and its fallback in the archive: the fallback counts.
        return self._choices.agreed(within) if within else next((one for one in found if one), None)

    def _starred(
        self, names: FileNames, scope: int, name: str, as_type: bool, exported: bool = False
    ) -> Entity | None:
        """The meaning of a name that a wildcard import binds."""
        prefix = names.language.private_prefix
        if scope not in names.wildcards or (prefix and name.startswith(prefix)):
            return None
        is_outermost = self._stars_followed is None
        followed = self._stars_followed or 0
        is_final = not self._targets_pending
        try:
            for ordinal in self._wildcards.bringing(names, scope, name, exported, is_final):
                self._stars_followed = followed = followed + 1
                target = self.target(names.path, ordinal)
                if followed > WILDCARDS_FOLLOWED_MAX or target is None:
                    return None
                entity = self.member(target, name, as_type, False, names.path)
                if entity is not None:
                    return entity
                followed = self._stars_followed
        finally:
            if is_outermost:
                self._stars_followed = None
        return None

    def _entity(self, where: Inside, language: Language) -> Entity | None:
        entity: Entity | None
        if where.package:
            paths = where.paths or self.project.packages.get(where.package, ())
            entity = Package(paths, where.package)
        elif len(where.paths) == 1:
            entity = Module(where.paths[0]) if where.paths[0] in self.files else None
        elif where.paths:
            entity = Package(where.paths)
        else:
            return None
        for name in where.item.split(".") if where.item else ():
            if entity is None:
                return None
            as_type = self.member(entity, name, True, False, "", language)
            entity = as_type or self.member(entity, name, False, True, "", language)
        return entity

    # Members

    def member(
        self,
        of: Entity,
        name: str,
        as_type: bool,
        called: bool,
        asker: str,
        language: Language | None = None,
    ) -> Entity | None:
        """The meaning of ``of.name``. ``asker`` is the file that contains the expression."""
        match of:
            case Outside():
                return of
            case Module():
                return self._member_of_module(of.path, name, as_type)
            case Package():
                return self._member_of_package(of, name, as_type, called, asker, language)
            case Overloads():
                return None
            case Instance():
                entity = self._member_of_class(of.of, name, as_type, called, asker)
                if isinstance(entity, Overloads) and entity.extensions:
                    own = [one for level in entity.levels for one in level]
                    if all(one.declaration.static for one in own):
                        # An object does not have the class methods of its class.
                        return Overloads((), entity.extensions)
                return entity
            case Declared():
                if of.declaration.kind == "type":
                    stands_for = self.instance_of(of)
                    if isinstance(stands_for, Instance):
                        of = stands_for.of
                    elif stands_for is not None:
                        return stands_for
                return self._member_of_class(of, name, as_type, called, asker)

    def _member_of_module(self, path: str, name: str, as_type: bool) -> Entity | None:
        key = (path, name, as_type)
        if key not in self._exported:
            self._exported[key] = None
            if self._depth < _DEPTH_MAX:
                self._depth += 1
                try:
                    self._exported[key] = self._exported_by(self.files[path], name, as_type)
                finally:
                    self._depth -= 1
        return self._exported[key]

    def _exported_by(self, names: FileNames, name: str, as_type: bool) -> Entity | None:
        path = names.path
        if name in names.facts.exports:
            return self._held_by(path, FILE, f"export {name}", names.facts.exports[name])
        outside_members = self._outside_members.get(Module(path))
        if outside_members is not None and name in outside_members:
            return self._choices.one_of(outside_members[name], as_type, True, path)
        if name in names.members() or name in names.facts.variables:
            return self._declared_in(names, name, as_type, called=False)
        imports = names.facts.imports
        bound = [
            (ordinal, remote)
            for ordinal, remote in names.imported.get(FILE, {}).get(name, ())
            if imports[ordinal].exported
        ]
        if bound:
            entity = self._bound_to(names, bound, as_type)
            if entity is not None:
                return entity
        if names.language.submodule is not None:
            inside = names.language.submodule(self.project, Inside((names.path,)), name)
            if inside is not None:
                return self._entity(inside, names.language)
        entity = self._starred(names, FILE, name, as_type, exported=True)
        if entity is not None:
            return entity
        value = self._module_value(Module(names.path))
        if value is not None and value != Module(names.path):
            return value if name == "default" else self.member(value, name, as_type, False, path)
        return self._wildcards.outside(names, exported=True, is_final=not self._targets_pending)

    def _module_value(self, module: Module | Package) -> Entity | None:
        """The value that a file exports as itself, if it does."""
        if isinstance(module, Package):
            return None
        value = self.files[module.path].facts.exports.get("")
        return None if value is None else self._held_by(module.path, FILE, "export ", value)

    def _member_of_package(
        self,
        package: Package,
        name: str,
        as_type: bool,
        called: bool,
        asker: str,
        language: Language | None,
    ) -> Entity | None:
        declaring = self._neighbourhood.declaring_within(name, package.paths)
        if declaring:
            return self._agreed_in(declaring, name, as_type, called)
        for path in package.paths if len(package.paths) < _REEXPORTING_FILES_MAX else ():
            entity = self._member_of_module(path, name, as_type)
            if entity is not None:
                return entity
        below = (*package.names, name)
        if package.names and (below in self.project.packages or below in self._package_prefixes):
            return Package(self.project.packages.get(below, ()), below)
        language = language or (self.files[asker].language if asker else None)
        if language is not None and language.submodule is not None:
            inside = language.submodule(self.project, Inside(package.paths, package.names), name)
            if inside is not None:
                return self._entity(inside, language)
        return None

    # Classes

    def _member_of_class(
        self, of: Declared, name: str, as_type: bool, called: bool, asker: str
    ) -> Entity | None:
        found, entity = self._member_within(of, name, as_type, called, asker)
        of = self._whole.get(of, of)
        extensions = self._extensions_of(of, name) if called else ()
        if not found:
            return Overloads((), extensions) if extensions else self.ancestors.outside_base(of)
        levels = levels_of(entity)
        return Overloads(levels, extensions) if levels and extensions else entity

    def _extensions_of(self, of: Declared, name: str) -> tuple[tuple[Declared, ...], ...]:
        """The extension methods: functions declared outside the class and called as methods."""
        if not self._extensions:
            return ()
        levels: list[tuple[Declared, ...]] = []
        for ancestor in self.ancestors.of(of):
            extensions = self._extensions.get(ancestor, {}).get(name, ())
            if len(extensions) > _OVERLOADS_MAX:
                return (*levels, ())  # of so many, none is certain
            if extensions:
                levels.append(tuple(extensions))
        return tuple(levels)

    def _member_within(
        self, of: Declared, name: str, as_type: bool, called: bool, asker: str
    ) -> tuple[bool, Entity | None]:
        """Whether a class of the archive declares a member of that name itself, and which."""
        of = self._whole.get(of, of)
        holders = self._holders.get(name, _NOBODY)
        ancestors = [one for one in self.ancestors.of(of) if one in holders] if holders else []
        for at, ancestor in enumerate(ancestors):
            if _is_one_of_several(ancestor, name):
                del ancestors[at + 1 :]
                break
        searches: tuple[_Search, ...] = (
            (self._own_member, self._field)
            if called or as_type
            else (self._field, self._own_member)
        )
        language = self.files[of.path].language
        if (called and not language.calls_variables) or (as_type and language.implicit_self):
            # If members need no qualifier, a field may have the name of its type.
            searches = (self._own_member,)
        for search in searches:
            entity = _first(search, ancestors, name, asker, as_type, called)
            if entity is not None:
                return True, None if entity is _OPAQUE else entity
        if called and self._names_constructor(of, name):
            return True, of
        return False, None

    def _own_member(
        self, of: Declared, name: str, asker: str, as_type: bool = False
    ) -> Declared | Overloads | None:
        """The declarations of a class's own members, inside the class or outside of it."""
        candidates = self._own_members(of, name)
        if (as_type and self.files[of.path].language.implicit_self) or (
            name == of.declaration.name and self._names_constructor(of, name)
        ):
            # A class is not hidden by a method or constructor of its name.
            key = (of, name)
            if key not in self._without_functions:
                self._without_functions[key] = [
                    one for one in candidates if one.declaration.kind != "function"
                ]
            candidates = self._without_functions[key]
        return self._choices.one_of(candidates, as_type, True, asker) if candidates else None

    def _own_members(self, of: Declared, name: str) -> list[Declared]:
        members = (
            self._whole_members.of(of, self._parts[of])
            if of in self._parts
            else self.files[of.path].members(of.index)
        )
        inside = members.get(name, [])
        outside = self._outside_members.get(of)
        if outside is None or name not in outside:
            return inside
        # The class has the forward declaration; outside is its definition, or an overload.
        if not any(map(is_overloadable, inside)):
            return outside[name]
        key = (of, name)
        if key not in self._inside_and_outside:
            self._inside_and_outside[key] = [*outside[name], *inside]
        return self._inside_and_outside[key]

    def _field(self, of: Declared, name: str, asker: str, as_type: bool = False) -> Entity | None:
        del asker, as_type
        part: Declared | None = of
        if of in self._parts:
            part = self._whole_members.part_with_field(of, self._parts[of], name)
        ref = None if part is None else part.declaration.fields.get(name)
        if part is None or ref is None:
            return None
        entity = self._held_by(part.path, part.index, name, ref)
        return _OPAQUE if entity is None else entity

    def _inherited(self, of: Declared, name: str, called: bool, asker: str) -> Entity | None:
        above = self.ancestors.of(of)[1:]
        holders = self._holders.get(name, _NOBODY)
        ancestors = [one for one in above if one in holders] if holders else ()
        entity = _first(self._member_or_field, ancestors, name, asker, False, called)
        if entity is not None:
            return None if entity is _OPAQUE else entity
        if above and self._names_constructor(above[0], name):
            return above[0]
        return self.ancestors.outside_base(of)

    def _member_or_field(self, of: Declared, name: str, asker: str, as_type: bool) -> Entity | None:
        return self._own_member(of, name, asker, as_type) or self._field(of, name, asker, as_type)

    def _names_constructor(self, of: Declared, name: str) -> bool:
        patterns = self.files[of.path].language.constructors
        return any(pattern.replace("{}", of.declaration.name) == name for pattern in patterns)

    def _base(self, of: Declared, ref: Ref) -> Entity | None:
        entity = self.evaluate(of.path, of.declaration.parent, ref)
        if isinstance(entity, Module):
            entity = self._module_value(entity)
        if isinstance(entity, Instance):
            entity = entity.of
        if entity is of and len(ref.steps) == 1:
            # `class Name(Name)`: the one that was imported before.
            names = self.files[of.path]
            if ref.steps[0].name in names.imported.get(FILE, {}):
                entity = self._imported(names, FILE, ref.steps[0].name, as_type=True)
        if isinstance(entity, Declared):
            stands_for = self.instance_of(entity)
            entity = stands_for.of if isinstance(stands_for, Instance) else stands_for
        return None if entity is of else entity

    def _self(self, path: str, scope: int) -> Entity | None:
        around = self._class_around(path, scope)
        if not isinstance(around, Declared):
            return around
        index, names = scope, self.files[path]
        while index != FILE and names.declaration(index).kind == "function":
            declaration = names.declaration(index)
            if declaration.static:
                return around
            index = declaration.parent
        return around.instance if scope != index else around

    def _class_around(self, path: str, scope: int) -> Declared | Module | None:
        """The class around this place; for a function that was added to a module, the module."""
        names = self.files[path]
        while scope != FILE:
            declared = names.declared[scope]
            if declared in self._owners:
                return self._owners[declared]
            if declared.declaration.kind == "class":
                return self._whole.get(declared, declared)
            scope = declared.declaration.parent
        return None


_Search = Callable[[Declared, str, str, bool], Entity | None]
"""Finds a member of a class by its name, as seen from a file, as a type or not."""


def _first(
    search: _Search,
    ancestors: Iterable[Declared],
    name: str,
    asker: str,
    as_type: bool,
    called: bool,
) -> Entity | None:
    """The member of the first ancestor that has the name; for called overloads, those of all."""
    levels: list[tuple[Declared, ...]] = []
    gathered = 0
    for ancestor in ancestors:
        entity = search(ancestor, name, asker, as_type)
        own = levels_of(entity) if called else ()
        levels += own
        gathered += sum(map(len, own))
        if entity is not None and not own:
            return Overloads(tuple(levels)) if levels else entity
        if gathered > _OVERLOADS_MAX:
            break
    if len(levels) == 1 and len(levels[0]) == 1:
        return levels[0][0]
    return Overloads(tuple(levels)) if levels else None


_OVERLOADS_MAX: Final = 100
"""The number of overloads in the ancestors of one class; more distant ones are left out."""


def _is_one_of_several(of: Declared, name: str) -> bool:
    """Whether a condition chooses among a class's members of a name (see ``alternatives``)."""
    held = of.declaration.fields.get(name)
    return held is not None and held.base == "opaque" and bool(held.steps)


_REEXPORTING_FILES_MAX: Final = 50
"""In larger packages, re-exports are not searched: every file would have to be."""

_NOBODY: Final[frozenset[Declared]] = frozenset()

_AGREEING_FILES_FEW: Final = 20
"""With fewer files, caching what they agree on is not worth while."""

_PENDING: Final = Package(("<pending>",))
"""The placeholder of an evaluation in progress."""

_UNKNOWN: Final = Ref("opaque", ())
"""The value of a name that exists, but about which nothing else is known."""

_OPAQUE: Final = Package(("<opaque>",))
"""A field that exists, but about which nothing else is known."""
