"""What one file says of its structure: all that leaves the process that parsed it.

Names, places and types as they are written, never the text around them: no body, no comment, no
literal, no default value. Languages differ in how they spell these facts, not in what they are;
what a name means is found out across files, by ``resolve.py`` and the language's ``Rules``.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from coatcheck_codegraph.javascript_values.facts import JavaScriptFlow

Kind = Literal["class", "function", "type", "namespace"]
"""``class``: what can be made and has methods (classes, structs, traits, interfaces, enums, modules
of Ruby). ``function``: functions and methods. ``type``: aliases and other named types.
``namespace``: a name around declarations and nothing else; what is inside sees its members by their
bare names (``mod`` of Rust, ``namespace`` of C++). It is no node of the graph."""

Base = Literal["name", "self", "super", "opaque"]
"""Where a reference begins: at a name, at the object whose method this is, at what its class
extends, or at something that has no name (the value of a subscript, a literal)."""

FILE: Final = -1
"""The index that stands for the file itself, where one of a declaration is expected."""

IMPLIED: Final = "implied"
"""The kind of an import that is made on the way to another one and binds a name, as ``import a.b``
does with ``a``. It is no relationship of its own."""


class Step(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A name in a reference, whether it is called there, and whether it is (of) the name of a type
    where the syntax says so: that of ``new Foo().bar()``, which no method ``Foo`` can be."""

    name: str
    called: bool = False
    of_type: bool = False


class Ref(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An expression or a type as far as it is made of names.

    ``a.b().c`` is ``Ref("name", (Step("a"), Step("b", True), Step("c")))``. So are ``a::b``,
    ``a->b`` and ``A\\B``: the separator is the language's own affair. To construct is to call the
    class: ``new Foo()`` and ``Foo()`` are both ``Step("Foo", True)``.
    ``is_type`` tells a type from a value: the type ``Foo`` means an instance of Foo, the value
    ``Foo`` the class itself.
    Without a step, ``self`` is the object (in a static function, the class), and ``super`` is one
    of what it extends; called so, they are constructors: ``this(...)``, ``super(...)``.
    """

    base: Base
    steps: tuple[Step, ...]
    is_type: bool = False


class Declaration(msgspec.Struct, array_like=True):
    """Something that has a name and a range of lines.

    ``qualified`` is the name with those of the declarations around it: ``Parser.parse``. ``parent``
    is the index of the innermost of them, or FILE. ``signature`` shows names and types of
    parameters and the result, and nothing else. ``bases`` is what a class extends or implements.
    ``receiver`` is the class of a function that is declared outside of it (a Go receiver, a Rust
    impl, ``X::f`` in C++). ``static`` functions have no object, only a class; at the top of a file
    of C, they are seen in it and what includes it alone. ``returns`` is the type of a function's
    value, and what a ``type`` stands for. ``locals`` are a function's variables and parameters
    whose type is evident, by name, ``fields`` the same for the attributes of a class; an ``opaque``
    one is known to exist, and hides what has its name further out. ``forward`` says that it is
    declared here and defined elsewhere (a prototype in C, a method without a body in a C++ class).
    ``partial`` declarations of one qualified name in one package are one thing, in whatever files
    (C#, Ruby, the namespaces of C++). ``parameters`` is how many arguments a function takes, at
    least and at most (-1: any number), the receiver of an extension method not counted; of a
    class, what the constructor takes that it has without declaring one. None, where a name stands
    for one function whatever it is given.
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
    """A name that an import brings into the file. ``remote`` is its name over there.

    An empty ``remote`` is the module itself; ``*`` is everything it has (then ``local`` is ``*``,
    too).
    """

    local: str
    remote: str = ""


class Import(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """``module`` is as written, in the language's own spelling; ``kind`` is for its rules to read.

    ``exported`` says that the bindings can be imported from this file in turn. ``scope`` is the
    index of the declaration that the import is inside of, or FILE.
    """

    line: int
    module: str
    bindings: tuple[Binding, ...] = ()
    kind: str = ""
    exported: bool = False
    scope: int = FILE


class Call(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A call on ``line``, inside the function or class with the index ``caller``, or FILE.

    The last step of ``callee`` is what is called, with so many ``arguments``: -1 if only running
    tells (``f(*all)``), or if no function of the language is told from another by them.
    """

    line: int
    caller: int
    callee: Ref
    arguments: int = -1


class FileFacts(msgspec.Struct, array_like=True):
    """A file. ``package`` is the namespace it says it belongs to (Java, Go, C#, PHP), split.

    ``variables`` are those of the file itself whose type is evident. ``properties`` is for files
    that say how others are found (``go.mod``, ``package.json``), whose language is ``manifest``.
    ``broken`` says that the parser found text that is not of the language, and went on after it.
    ``exports`` is what other files get by a name that no declaration here has
    (``export { a as b }``); under the empty name, what they get for the file itself
    (``module.exports = f``). ``python_values`` is how values move in a file of Python
    (``python_values.facts``), packed; empty, where that is not read. ``javascript_values`` is the
    same of a file of JavaScript or TypeScript (``javascript_values.facts``).
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
