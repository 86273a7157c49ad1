"""The value flow inside one JavaScript file: the constraints of a points-to analysis.

A *node* is a place that values flow through: a variable, a parameter, the value of an expression.
It is a number above 0, counted within the file; 0 stands for a value that is of no interest. The
values are functions, classes and objects. Names are numbers, too: indexes into ``names``.

``javascript_values.solver`` solves the constraints of all files together."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

ELEMENT: Final = "[]"
"""The member under a key that is not known."""
ANY: Final = "*"
"""All members."""
REST: Final = ".."
"""What ends the name of all elements from an index on: ``1..``."""
PARENT: Final = "__proto__"
"""The member that an object inherits from."""
PROTOTYPE: Final = "prototype"
CONSTRUCTOR: Final = "constructor"
ITERATOR: Final = "[Symbol.iterator]"
ASYNC_ITERATOR: Final = "[Symbol.asyncIterator]"
GETTER: Final = "get "
SETTER: Final = "set "
"""What begins the names of accessors."""

# What a literal or a built-in makes (``JavaScriptFlow.objects``).
OBJECT: Final = 0
ARRAY: Final = 1
MAP: Final = 2
SET: Final = 3

# How something is called (``JavaScriptCallFlow.kind``).
CALL: Final = 0
METHOD: Final = 1
NEW: Final = 2
SUPER: Final = 3
CALLBACK: Final = 4
"""By what is built in: a timer, a promise."""
BIND: Final = 5
PROMISE: Final = 6
"""``new Promise(executor)``."""

ARROW: Final = 1
GENERATOR: Final = 2
"""Flags of functions."""

ON_PROTOTYPE: Final = 0
ON_CLASS: Final = 1
ON_INSTANCE: Final = 2
"""Whose member it is (``JavaScriptClassFlow.members``)."""


# Constraints, by what flows into their first node (``JavaScriptFlow.constraints``).
STORE: Final = 0
LOAD: Final = 1
ITERATE: Final = 2
COPY: Final = 3
CALLED: Final = 4
RECEIVED: Final = 5
WIDTH: Final = 6
"""Numbers that a constraint has."""


class JavaScriptFunctionFlow(msgspec.Struct, gc=False):
    """A function, the file itself (the first one), or the body of a class.

    ``index`` is its declaration, or -1 for a function that is none (``JavaScriptFlow.unnamed`` says
    what it would be). ``around`` is the function that it is written in. All others are nodes, but
    for ``passed``: the positions of parameters that it returns as they are.
    """

    index: int
    around: int
    flags: int = 0
    value: int = 0
    this: int = 0
    returns: int = 0
    yields: int = 0
    sent: int = 0
    arguments: int = 0
    rest: int = 0
    parameters: tuple[int, ...] = ()
    passed: tuple[int, ...] = ()


class JavaScriptClassFlow(msgspec.Struct, array_like=True, gc=False):
    """A class. ``members`` are triples: whose, name, node."""

    index: int
    value: int
    base: int
    instance: int
    constructor: int
    members: list[int]


class JavaScriptCallFlow(msgspec.Struct, gc=False):
    """A call inside of ``function``. ``ordinal`` is that of the same call in ``FileFacts.calls``,
    or -1. An argument below 0 is an array that is spread. ``quiet``: what is called is written
    right here, and part of the code around."""

    kind: int
    callee: int
    receiver: int
    name: int
    result: int
    line: int
    function: int
    ordinal: int
    quiet: int
    arguments: tuple[int, ...]


class Unnamed(msgspec.Struct, array_like=True, gc=False):
    """What a function that is no declaration would be, if it were one."""

    name: str
    line: int
    end_line: int
    signature: str


class JavaScriptFlow(msgspec.Struct, array_like=True):
    """All constraints of a file. There are many: they are kept as bytes of 32-bit numbers.

    ``constraints``: node by node in order, what follows of what it has: the node (which ``nodes``
    has, too, to find it by), the kind of the constraint, and for a ``STORE`` or a ``LOAD`` name,
    value, line and function; for an ``ITERATE`` value, line and function; for a ``COPY`` the node
    to copy to; for ``CALLED`` and ``RECEIVED`` the number of the call that it is the callee or the
    receiver of.
    ``objects``: node, kind. ``imports``: specifier, name or -1, node. ``exports``: name, node.
    ``wildcards``: specifiers. ``module`` is the node of what the file is to those that import it.
    """

    size: int
    module: int
    names: list[str]
    nodes: bytes
    constraints: bytes
    functions: bytes
    calls: bytes
    classes: list[JavaScriptClassFlow]
    unnamed: dict[int, Unnamed]
    objects: bytes
    imports: bytes
    exports: bytes
    wildcards: bytes


def packed(numbers: Iterable[int]) -> bytes:
    """Numbers as bytes."""
    return array("i", numbers).tobytes()


def numbers_in(content: bytes) -> memoryview:
    """Those that ``packed`` has put there."""
    return memoryview(content).cast("i")


def packed_records(records: Iterable[Sequence[int]]) -> bytes:
    """Records of any length, one by one, after a table of where each begins."""
    starts, numbers = array("i"), array("i")
    for record in records:
        starts.append(len(numbers))
        numbers.extend(record)
    starts.append(len(numbers))
    return array("i", [len(starts)]).tobytes() + starts.tobytes() + numbers.tobytes()


class Records:
    """What ``packed_records`` has put together."""

    __slots__ = ("_first", "_numbers", "_starts")

    def __init__(self, content: bytes) -> None:
        view = numbers_in(content)
        self._first = view[0] + 1
        self._starts = view[1 : self._first]
        self._numbers = view[self._first :]

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, at: int) -> memoryview:
        return self._numbers[self._starts[at] : self._starts[at + 1]]


def record_of_function(of: JavaScriptFunctionFlow) -> Sequence[int]:
    """A function as numbers."""
    return (
        of.index,
        of.around,
        of.flags,
        of.value,
        of.this,
        of.returns,
        of.yields,
        of.sent,
        of.arguments,
        of.rest,
        len(of.parameters),
        *of.parameters,
        *of.passed,
    )


def function_of(record: memoryview) -> JavaScriptFunctionFlow:
    """The function that a record is of."""
    numbers = record.tolist()
    index, around, flags, value, this, returns, yields, sent, arguments, rest = numbers[:10]
    last = 11 + numbers[10]
    return JavaScriptFunctionFlow(
        index,
        around,
        flags,
        value,
        this,
        returns,
        yields,
        sent,
        arguments,
        rest,
        tuple(numbers[11:last]),
        tuple(numbers[last:]),
    )


def record_of_call(of: JavaScriptCallFlow) -> Sequence[int]:
    """A call as numbers."""
    return (
        of.kind,
        of.callee,
        of.receiver,
        of.name,
        of.result,
        of.line,
        of.function,
        of.ordinal,
        of.quiet,
        *of.arguments,
    )


def call_of(record: memoryview) -> JavaScriptCallFlow:
    """The call that a record is of."""
    numbers = record.tolist()
    kind, callee, receiver, name, result, line, function, ordinal, quiet = numbers[:9]
    return JavaScriptCallFlow(
        kind, callee, receiver, name, result, line, function, ordinal, quiet, tuple(numbers[9:])
    )
