"""Tools of OpenAI's API: functions that a model may call, and forced calls.

Ollama's API has no ``tool_choice``: targets offer functions to a model, and the model decides
whether it calls one. But targets can constrain an answer to a JSON schema. So a model that must
call is offered no function. An instruction describes the functions to choose from, the answer is
constrained to the schema of a call, and the call is parsed from the answer's text.

If there is one function to choose from, the text is its arguments. Otherwise it is
``{"name": ..., "arguments": ...}``, in this order, which is the schema's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import msgspec

from coatcheck.domain.errors import InvalidParameter

_encode: Final = msgspec.json.Encoder().encode
_DEFINITIONS: Final = "$defs"
_REFERENCE: Final = "$ref"
_BEGINNING: Final = re.compile(
    r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*', re.DOTALL
)


class OfferedFunction(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function that a model may call."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, frozen=True):
    """A function, as ``/v1/chat/completions`` and Ollama write it."""

    type: Literal["function"]
    function: OfferedFunction


@dataclass(frozen=True, slots=True)
class ForcedCall:
    """The functions of which a model must call one."""

    functions: Sequence[OfferedFunction]

    @property
    def only(self) -> str | None:
        """The name of the one function to call; None if the answer says which."""
        return self.functions[0].name if len(self.functions) == 1 else None

    @property
    def names(self) -> frozenset[str]:
        return frozenset(each.name for each in self.functions)

    def format(self) -> dict[str, Any]:
        """The schema of the answer."""
        if self.only is not None:
            return _parameters(self.functions[0])
        # References start at the root of a schema, so each schema moves to its own definition.
        places = [f"function_{at}" for at in range(len(self.functions))]
        definitions = {
            place: _moved(_parameters(each), f"#/{_DEFINITIONS}/{place}")
            for place, each in zip(places, self.functions, strict=True)
        }
        calls = [
            {
                "type": "object",
                "properties": {
                    "name": {"const": each.name},
                    "arguments": {_REFERENCE: f"#/{_DEFINITIONS}/{place}"},
                },
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
            for place, each in zip(places, self.functions, strict=True)
        ]
        return {"anyOf": calls, _DEFINITIONS: definitions}

    def instruction(self) -> str:
        """The instruction for the model, which is offered no function."""
        if self.only is not None:
            text = f"Answer by calling the function {self.only}: with a JSON object of its "
            text += "arguments, and with nothing else."
        else:
            text = "Answer by calling one of these functions: with a JSON object that has its "
            text += "name and its arguments, and with nothing else."
        described = "\n".join(_encode(_described(each)).decode() for each in self.functions)
        return f"{text}\n{described}"


class ToolOffer(NamedTuple):
    """The functions that a model may call, or one call that it must make."""

    functions: Sequence[OfferedFunction]
    forced: ForcedCall | None


class _NamedFunction(msgspec.Struct):
    name: str


class _ToolChoice(msgspec.Struct):
    """A ``tool_choice`` object, of either API."""

    type: str
    function: _NamedFunction | None = None
    name: str | None = None
    allowed_tools: _Allowed | None = None
    mode: str | None = None
    tools: list[_ToolChoice] | None = None


class _Allowed(msgspec.Struct):
    mode: str
    tools: list[_ToolChoice]


def offer(functions: Sequence[OfferedFunction], choice: object) -> ToolOffer:
    """Apply ``tool_choice`` to the functions. Raises InvalidParameter."""
    match choice:
        case None | "auto":
            return ToolOffer(functions, None)
        case "none":
            return ToolOffer((), None)
        case "required":
            return ToolOffer((), _forced(functions))
        case dict():
            return _chosen(functions, choice)
        case _:
            raise _invalid("must be none, auto, required, or name a function")


def _chosen(functions: Sequence[OfferedFunction], choice: Mapping[str, Any]) -> ToolOffer:
    try:
        read = msgspec.convert(choice, _ToolChoice)
    except msgspec.ValidationError:
        raise _invalid("must be none, auto, required, or name a function") from None
    if read.type == "allowed_tools":
        mode, tools = read.mode, read.tools or []
        if read.allowed_tools is not None:
            mode, tools = read.allowed_tools.mode, read.allowed_tools.tools
        allowed = [_named(functions, each) for each in tools]
        if mode not in ("auto", "required"):
            raise _invalid("must have the mode auto or required")
        return ToolOffer((), _forced(allowed)) if mode == "required" else ToolOffer(allowed, None)
    return ToolOffer((), _forced([_named(functions, read)]))


def _named(functions: Sequence[OfferedFunction], choice: _ToolChoice) -> OfferedFunction:
    if choice.type != "function":
        raise _invalid(f"cannot be {choice.type}: only function tools are supported")
    name = choice.name if choice.function is None else choice.function.name
    for each in functions:
        if each.name == name:
            return each
    raise _invalid(f"names {name}, which is not among the tools")


def _forced(functions: Sequence[OfferedFunction]) -> ForcedCall:
    if not functions:
        raise _invalid("requires a call, but there are no tools")
    return ForcedCall(functions)


def _parameters(function: OfferedFunction) -> dict[str, Any]:
    return function.parameters or {"type": "object", "properties": {}}


def _described(function: OfferedFunction) -> dict[str, Any]:
    described: dict[str, Any] = {"name": function.name}
    if function.description:
        described["description"] = function.description
    return described | {"parameters": _parameters(function)}


def _moved(schema: Any, place: str) -> Any:
    """The schema with its references changed for its new position, ``place``."""
    if isinstance(schema, list):
        return [_moved(each, place) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: (
            place + value[1:]
            if name == _REFERENCE and isinstance(value, str) and value.startswith("#")
            else _moved(value, place)
        )
        for name, value in schema.items()
    }


def _invalid(issue: str) -> InvalidParameter:
    return InvalidParameter("tool_choice", issue, "body")


class CallReader:
    """Parses a forced call from the text of an answer, as it comes."""

    def __init__(self, forced: ForcedCall) -> None:
        self._forced = forced
        self._text = ""
        self._arguments = _ObjectScanner()
        self._begun = forced.only is not None
        self.name: str | None = forced.only
        """The name of the called function, once it is known."""

    def read(self, text: str) -> str:
        """The new part of the arguments."""
        self._text += text
        if not self._begun:
            beginning = _BEGINNING.match(self._text)
            if beginning is None:
                return ""
            self.name, self._begun = _name(beginning[1]), True
            text = self._text[beginning.end() :]
        return self._arguments.read(text)

    def end(self) -> str | None:
        """The rest of the arguments, once the answer is whole; None if it is not a call."""
        if self._begun:
            return "" if self._arguments.is_whole and self.name in self._forced.names else None
        try:
            call = json.loads(self._text)  # for a target that ignores the schema's order
            name, arguments = call["name"], call["arguments"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        if name not in self._forced.names or not isinstance(arguments, dict):
            return None
        self.name = name
        return json.dumps(arguments, ensure_ascii=False)


def _name(text: str) -> str | None:
    try:
        return str(json.loads(text))
    except ValueError:
        return None


class _ObjectScanner:
    """Finds where a JSON object ends in a text that comes in pieces."""

    def __init__(self) -> None:
        self._begun = False
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self.is_whole = False

    def read(self, text: str) -> str:
        """The part of ``text`` that belongs to the object."""
        if not self._begun:
            text = text.lstrip()
            self._begun = bool(text)
        for at, character in enumerate(text):
            if self.is_whole:
                return text[:at]
            if self._in_string:
                self._read_in_string(character)
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                self.is_whole = self._depth <= 0
        return text

    def _read_in_string(self, character: str) -> None:
        if self._escaped:
            self._escaped = False
        elif character == "\\":
            self._escaped = True
        elif character == '"':
            self._in_string = False
