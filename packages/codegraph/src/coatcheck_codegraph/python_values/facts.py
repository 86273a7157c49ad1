"""The value flow inside one Python file: which values are read, bound, stored and called where.

These facts explain calls that names alone do not: a function that is passed as an argument, put
into a dict or returned by a decorator. Every value of a file has a number; ``UNKNOWN`` is a value
about which nothing is known. ``python_values.solver`` follows the values across files.

Keys of containers are digests of literals, never the literals."""

from __future__ import annotations

from typing import Final, Literal
from zlib import crc32

import msgspec

UNKNOWN: Final = 0
"""The number of a value of which nothing is known."""

ANY_KEY: Final = 0
"""The key of an element whose place in its container is not known."""

_CONSTANT_CHARACTERS_MAX: Final = 100
"""Of a string that may be a key."""

_NUMBER_MAX: Final = 1_000_000
"""That may be a key."""

_OF_TEXT: Final = 1 << 33
"""Tells the keys that are text from those that are numbers."""

Protocol = Literal["iterate", "aiterate", "enter", "aenter"]
"""What a statement does with an object by methods that it does not name: ``for`` and ``with``, and
their asynchronous twins."""

Access = Literal["plain", "static", "class", "property"]
"""What a function of a class gets when it is read from an object: the object, nothing, the class;
or it is called at once."""


class PythonFunctionFlow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The values of one function: ``index`` is that of its declaration, ``value`` the function.

    ``positional`` and ``keyword_only`` are its parameters, by name. ``rest`` gathers further
    arguments, ``keywords`` those with other names. ``yields`` is not UNKNOWN in a generator.
    ``decorated`` says that a name may stand for what a decorator made of it. ``passes`` are
    parameters, by name, that it returns as they are: what it returns then depends on its caller.
    """

    index: int
    value: int
    positional: tuple[tuple[str, int], ...] = ()
    keyword_only: tuple[tuple[str, int], ...] = ()
    rest: int = UNKNOWN
    keywords: int = UNKNOWN
    returns: int = UNKNOWN
    yields: int = UNKNOWN
    access: Access = "plain"
    decorated: bool = False
    passes: tuple[str, ...] = ()


class PythonCallFlow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A call. ``ordinal`` is its place among the file's calls, -1 if the code does not spell it as
    one (``raise X``, a decorator). ``rest`` and ``keywords`` are what ``*`` and ``**`` spread."""

    line: int
    caller: int
    ordinal: int
    function: int
    result: int = UNKNOWN
    positional: tuple[int, ...] = ()
    named: tuple[tuple[str, int], ...] = ()
    rest: int = UNKNOWN
    keywords: int = UNKNOWN
    constructs_only: bool = False


class PythonProtocolFlow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """``for result in object``, ``with object as result``."""

    line: int
    caller: int
    protocol: Protocol
    object: int
    result: int


class PythonFlow(msgspec.Struct, array_like=True):
    """All of a file. Numbers of values are less than ``values``.

    ``names``: what a name of the file or of a class (its index) holds in the end.
    ``reads``: names that nothing in the file binds. ``imports``: which import binds a value, and by
    which remote name. ``copies``: (to, from). ``loads``: (to, object, attribute); ``stores``:
    (object, attribute, from). ``containers``: (value, whether it has keys of its own).
    ``item_loads``: (to, object, key, value that is the key); ``item_stores``: (object, key, value
    that is the key, from). ``constants``: (value, key). ``supers``: (value, class, object).
    ``decorations``: (value, what is decorated, the decorator), for what a decorator may leave
    unknown.
    """

    values: int = 1
    names: list[tuple[int, str, int]] = []
    reads: list[tuple[int, str]] = []
    imports: list[tuple[int, int, str]] = []
    copies: list[tuple[int, int]] = []
    loads: list[tuple[int, int, str]] = []
    stores: list[tuple[int, str, int]] = []
    containers: list[tuple[int, bool]] = []
    item_loads: list[tuple[int, int, int, int]] = []
    item_stores: list[tuple[int, int, int, int]] = []
    constants: list[tuple[int, int]] = []
    supers: list[tuple[int, int, int]] = []
    decorations: list[tuple[int, int, int]] = []
    functions: list[PythonFunctionFlow] = []
    classes: list[tuple[int, int]] = []
    calls: list[PythonCallFlow] = []
    protocols: list[PythonProtocolFlow] = []


def packed(flow: PythonFlow) -> bytes:
    """A flow as facts hold it: it is long, and looked at once."""
    return msgspec.msgpack.encode(flow)


def unpacked(flow: bytes) -> PythonFlow:
    return _DECODER.decode(flow)


_DECODER: Final = msgspec.msgpack.Decoder(PythonFlow)


def key_of(constant: object) -> int:
    """The key that a literal is, as a number that does not tell it."""
    if type(constant) is str:
        if len(constant) > _CONSTANT_CHARACTERS_MAX:
            return ANY_KEY
        return crc32(constant.encode("utf-8", "surrogatepass")) | _OF_TEXT
    if type(constant) is int and abs(constant) <= _NUMBER_MAX:
        return crc32(b"%d" % constant) + 1
    return ANY_KEY
