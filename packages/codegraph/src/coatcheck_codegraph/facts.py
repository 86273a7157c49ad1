"""The facts of one file: its declarations, imports and calls, as the parsing process returns them.

Facts are names, positions and types as written, never the text around them: no body, no comment,
no literal, no default value. Languages differ in how they express these facts, not in their kinds.
What a name means is found across files, by ``resolve.py`` and the language's ``Rules``.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from coatcheck_codegraph.javascript_values.facts import JavaScriptFlow

Kind = Literal["class", "function", "type", "namespace"]
"""The kind of a declaration.

``class``: anything that has instances and methods (classes, structs, traits, interfaces, enums,
modules of Ruby). ``function``: functions and methods. ``type``: aliases and other named types.
``namespace``: a name around declarations and nothing else; code inside sees its members by their
bare names (``mod`` of Rust, ``namespace`` of C++). It is not a node of the graph."""

Base = Literal["name", "self", "super", "opaque"]
"""The beginning of a reference: a name, the object whose method this is, a base of its class, or
something that has no name (the value of a subscript, a literal)."""

FILE: Final = -1
"""The index that stands for the file itself, in place of a declaration's index."""

IMPLIED: Final = "implied"
"""The kind of an import that another one implies and that binds a name, as ``import a.b`` binds
``a``. It is not a relationship in the graph."""


class Step(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A name in a reference. ``called`` says that it is called there; ``of_type`` that the syntax
    marks it as the name of a type: ``Foo`` in ``new Foo().bar()`` cannot be a method."""

    name: str
    called: bool = False
    of_type: bool = False


class Ref(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An expression or a type, as far as it consists of names.

    ``a.b().c`` is ``Ref("name", (Step("a"), Step("b", True), Step("c")))``. So are ``a::b``,
    ``a->b`` and ``A\\B``: the separators of languages are not recorded. A construction is a call of
    the class: ``new Foo()`` and ``Foo()`` are both ``Step("Foo", True)``.
    ``is_type`` distinguishes a type from a value: the type ``Foo`` means an instance of Foo, the
    value ``Foo`` the class itself.
    Without a step, ``self`` is the object (in a static function, the class), and ``super`` is an
    object of a base; if called, they are constructors: ``this(...)``, ``super(...)``.
    """

    base: Base
    steps: tuple[Step, ...]
    is_type: bool = False


class Declaration(msgspec.Struct, array_like=True):
    """A declaration: a name and a range of lines.

    ``qualified`` is the name with those of the declarations around it: ``Parser.parse``. ``parent``
    is the index of the innermost of them, or FILE. ``signature`` has only the names and types of
    parameters and the result. ``bases`` are the types that a class extends or implements.
    ``receiver`` is the class of a function that is declared outside of it (a Go receiver, a Rust
    impl, ``X::f`` in C++). ``static`` functions have no object, only a class; at the top of a file
    of C, they are visible only in it and in files that include it. ``returns`` is the type of a
    function's value, or the type that an alias (a ``type``) stands for. ``locals`` are a function's
    variables and parameters whose type is evident, by name, ``fields`` the same for the attributes
    of a class; an ``opaque`` one is known to exist, and hides outer variables of its name.
    ``forward`` says that it is declared here and defined in another place (a prototype in C, a
    method without a body in a C++ class). ``partial`` declarations of one qualified name in one
    package are one thing, in any files (C#, Ruby, the namespaces of C++). ``parameters`` are the
    minimum and maximum numbers of arguments of a function (-1: any number), without the receiver of
    an extension method; for a class, those of its implicit constructor. None, where a name stands
    for one function with any arguments.
    """

    kind: Kind
    name: str
    qualified: str
    line: int
    end_line: int
    parent: int = FILE
    signature: str = ""
    bases: tuple[Ref, ...] = ()
    receiver: Ref | None = None
    returns: Ref | None = None
    locals: dict[str, Ref] = {}
    fields: dict[str, Ref] = {}
    static: bool = False
    forward: bool = False
    partial: bool = False
    parameters: tuple[int, int] | None = None


class Binding(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A name that an import brings into the file. ``remote`` is its name in the imported module.

    An empty ``remote`` is the module itself; ``*`` is everything in it (then ``local`` is ``*``,
    too).
    """

    local: str
    remote: str = ""


class Import(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An import. ``module`` is as written in the language; only the language's rules read ``kind``.

    ``exported`` says that other files can import the bindings from this file. ``scope`` is the
    index of the declaration around the import, or FILE.
    """

    line: int
    module: str
    bindings: tuple[Binding, ...] = ()
    kind: str = ""
    exported: bool = False
    scope: int = FILE


class Call(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A call on ``line``, inside the function or class with the index ``caller``, or FILE.

    The last step of ``callee`` is called. ``arguments`` is the number of arguments: -1 if it is
    known only at run time (``f(*all)``), or if the language has no overloads.
    """

    line: int
    caller: int
    callee: Ref
    arguments: int = -1


class FileFacts(msgspec.Struct, array_like=True):
    """The facts of a file. ``package`` is its declared namespace (Java, Go, C#, PHP), split.

    ``variables`` are those of the file itself whose type is evident. ``properties`` belongs to
    files of the language ``manifest`` (``go.mod``, ``package.json``), which say how other files are
    found. ``broken`` says that the parser met a syntax error, and continued after it. ``exports``
    has names that other files can import although no declaration here has them
    (``export { a as b }``); the empty name stands for the file itself (``module.exports = f``).
    ``python_values`` is the value flow of a Python file (``python_values.facts``), encoded; empty
    if it was not extracted. ``javascript_values`` is the same for a JavaScript or TypeScript file
    (``javascript_values.facts``).
    """

    path: str
    language: str
    lines: int
    declarations: list[Declaration] = []
    imports: list[Import] = []
    calls: list[Call] = []
    package: tuple[str, ...] = ()
    variables: dict[str, Ref] = {}
    properties: dict[str, str] = {}
    broken: bool = False
    exports: dict[str, Ref] = {}
    python_values: bytes = b""
    javascript_values: JavaScriptFlow | None = None
