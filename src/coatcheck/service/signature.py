"""Decodes a function's arguments from JSON, according to its signature.

Every job passes through here, so the preparation happens at declaration: one msgspec Struct and one
decoder per function. The Struct leaves a parameter whose type only pydantic supports undecoded, and
pydantic decodes it. So the other parameters of that function, and functions without such
parameters, keep the same cost and behaviour. Errors take the slow path: the payload is decoded
again field by field, so that every problem is reported and not only the first.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import UUID

import msgspec
from msgspec.structs import asdict

from coatcheck.domain.catalogue import ParameterKind
from coatcheck.domain.errors import FieldIssue, InvalidInput
from coatcheck.job import Job
from coatcheck.service.issues import (
    ISSUES_MAX,
    WHOLE_PAYLOAD,
    Quotable,
    field_issue,
    missing,
    payload_issue,
    shown_name,
    unexpected,
)


def mentions_pydantic(annotation: Any) -> bool:
    """Whether a type contains something that msgspec would accept but ignore.

    That is pydantic's metadata in ``Annotated``, and pydantic dataclasses, whose validators msgspec
    would skip.
    """
    return _mentions_pydantic(annotation, set())


def msgspec_knows(annotation: Any) -> bool:
    """Whether msgspec supports the type by itself. Raises TypeError for an unsupported union."""
    msgspec.json.Decoder(annotation)
    return not any(isinstance(node, msgspec.inspect.CustomType) for node in _type_nodes(annotation))


def msgspec_names(annotation: Any) -> frozenset[str]:
    """The field names of every Struct, dataclass and TypedDict within a type msgspec supports."""
    return frozenset(
        field.encode_name
        for node in _type_nodes(annotation)
        for field in getattr(node, "fields", ())
    )


def declares_fields(annotation: Any) -> bool:
    """Whether the type is a dataclass, a TypedDict or a NamedTuple, which have typed fields."""
    return isinstance(annotation, type) and (
        dataclasses.is_dataclass(annotation)
        or hasattr(annotation, "__total__")
        or hasattr(annotation, "_field_defaults")
    )


def _mentions_pydantic(annotation: Any, seen: set[int]) -> bool:
    if id(annotation) in seen:
        return False
    seen.add(id(annotation))
    for metadata in getattr(annotation, "__metadata__", ()):
        if type(metadata).__module__.partition(".")[0] in {"pydantic", "annotated_types"}:
            return True
    if hasattr(annotation, "__pydantic_validator__"):
        return True
    inner = list(get_args(annotation))
    if declares_fields(annotation):
        inner.extend(get_type_hints(annotation, include_extras=True).values())
    return any(_mentions_pydantic(part, seen) for part in inner)


def _type_nodes(annotation: Any) -> Iterator[msgspec.inspect.Type]:
    """Every type within a type, each once: a Struct may contain itself."""
    seen: set[int] = set()
    pending: list[Any] = [msgspec.inspect.type_info(annotation)]
    while pending:
        node = pending.pop()
        if isinstance(node, tuple):
            pending.extend(node)
        elif isinstance(node, msgspec.inspect.Field):
            pending.append(node.type)
        elif isinstance(node, msgspec.inspect.Type) and id(node) not in seen:
            seen.add(id(node))
            yield node
            pending.extend(getattr(node, name) for name in node.__struct_fields__)


_WRITTEN_AS_TEXT: Final = (str, bytes, UUID, datetime, date, time, timedelta, Decimal)


def parameter_kind(annotation: Any) -> ParameterKind:
    """The kind of value that a type accepts; ``other`` if there are several or it is not a scalar.

    None is ignored: an optional value has the kind of its value.
    """
    kinds = {_kind(part) for part in _alternatives(annotation)}
    if kinds == {"integer", "number"}:
        return "number"
    return kinds.pop() if len(kinds) == 1 else "other"


def _alternatives(annotation: Any) -> list[Any]:
    """The members of a union and the types of a Literal's values, recursively."""
    origin = get_origin(annotation)
    for named in ("__value__", "__supertype__"):  # a type alias, a NewType
        if hasattr(annotation, named):
            return _alternatives(getattr(annotation, named))
    if origin is Annotated:
        return _alternatives(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return [part for inner in get_args(annotation) for part in _alternatives(inner)]
    if origin is Literal:
        return [type(value) for value in get_args(annotation) if value is not None]
    return [] if annotation in (None, NoneType) else [annotation]


def _kind(annotation: Any) -> ParameterKind:
    if not isinstance(annotation, type):
        return "other"
    if issubclass(annotation, Enum):
        values = {_kind(type(member.value)) for member in annotation}
        return values.pop() if len(values) == 1 else "other"
    if issubclass(annotation, bool):
        return "boolean"
    if issubclass(annotation, int):
        return "integer"
    if issubclass(annotation, float):
        return "number"
    return "string" if issubclass(annotation, _WRITTEN_AS_TEXT) else "other"


if TYPE_CHECKING:
    from coatcheck.service.pydantic_types import PydanticReader

_REQUIRED: Final = inspect.Parameter.empty
_BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_UNREADABLE: Final = (ValueError, TypeError, RecursionError)
"""What msgspec raises for an invalid payload; TypeError for a list as a set member."""


@dataclasses.dataclass(frozen=True, slots=True)
class HandlerParameter:
    """One argument that is decoded from the payload."""

    name: str
    annotation: Any
    default: Any
    pydantic: PydanticReader | None

    @property
    def required(self) -> bool:
        return self.default is _REQUIRED


class Signature:
    """The parameters of a function: fields of the payload, and possibly its Job."""

    __slots__ = ("_parameters", "_pydantic", "_read", "job_parameter")

    def __init__(self, function: Callable[..., Any]) -> None:
        """Raises TypeError with the function and parameter that JSON cannot fill."""
        self.job_parameter, self._parameters = _read_parameters(function)
        self._read = _struct_decoder(self._parameters)
        self._pydantic = tuple(
            (parameter.name, parameter.pydantic)
            for parameter in self._parameters.values()
            if parameter.pydantic is not None
        )

    @property
    def names(self) -> frozenset[str]:
        """The names of the arguments in the payload."""
        return frozenset(self._parameters)

    @property
    def kinds(self) -> dict[str, ParameterKind]:
        """The JSON kind of each of those arguments."""
        return {
            parameter.name: parameter_kind(parameter.annotation)
            for parameter in self._parameters.values()
        }

    def decode(self, payload: bytes) -> dict[str, Any]:
        """Decode the arguments in a payload, without the Job.

        An empty payload (no bytes, or null) counts as an empty object. Raises InvalidInput with one
        issue per problem.
        """
        try:
            arguments = asdict(self._read(payload or b"{}"))
        except _UNREADABLE:
            if payload == b"null":
                return self.decode(b"{}")
            raise InvalidInput(self._issues(payload)) from None
        for name, reader in self._pydantic:
            value = arguments[name]
            if type(value) is not msgspec.Raw:
                continue  # the parameter's own default
            try:
                arguments[name] = reader.read(bytes(value))
            except ValueError:
                raise InvalidInput(self._issues(payload)) from None
        return arguments

    def _issues(self, payload: bytes) -> list[FieldIssue]:
        try:
            fields = msgspec.json.decode(payload or b"{}", type=dict[str, msgspec.Raw])
        except _UNREADABLE as error:
            return [payload_issue(error)]
        issues = [unexpected(shown_name(name)) for name in fields if name not in self._parameters]
        for parameter in self._parameters.values():
            raw = fields.get(parameter.name)
            if raw is not None:
                issues.extend(_field_issues(parameter, bytes(raw)))
            elif parameter.required:
                issues.append(missing(parameter.name))
        if len(issues) > ISSUES_MAX:
            more = FieldIssue(WHOLE_PAYLOAD, f"and {len(issues) - ISSUES_MAX} more issues")
            return [*issues[:ISSUES_MAX], more]
        return issues or [FieldIssue(WHOLE_PAYLOAD, "does not fit the endpoint's arguments")]


def _field_issues(parameter: HandlerParameter, json: bytes) -> list[FieldIssue]:
    name, annotation = parameter.name, parameter.annotation
    try:
        value = msgspec.json.decode(json)
    except _UNREADABLE as error:
        return [field_issue(name, Any, error, Quotable(None))]
    if parameter.pydantic is not None:
        return parameter.pydantic.issues(name, json)
    try:
        msgspec.json.decode(json, type=annotation)
    except _UNREADABLE as error:
        return [field_issue(name, annotation, error, Quotable(value, msgspec_names(annotation)))]
    return []


def _read_parameters(
    function: Callable[..., Any],
) -> tuple[str | None, dict[str, HandlerParameter]]:
    described = f"{function.__module__}.{function.__qualname__}"
    hints = _type_hints(function, described)
    job_parameter: str | None = None
    parameters: dict[str, HandlerParameter] = {}
    for name, declared in inspect.signature(function).parameters.items():
        if declared.kind not in _BY_NAME:
            raise TypeError(
                f"{described}: {declared} cannot be filled from named fields; every parameter must"
                " be passable by name"
            )
        annotation = hints.get(name, Any)
        if annotation is Job:
            if job_parameter is not None:
                raise TypeError(f"{described}: only one parameter can be the Job")
            job_parameter = name
        else:
            parameters[name] = _parameter(described, name, annotation, declared.default)
    return job_parameter, parameters


def _type_hints(function: Callable[..., Any], described: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"{described}: the annotation {error.name!r} is not defined where the function is"
            " declared; import or define it before, and not only under TYPE_CHECKING"
        ) from error


def _parameter(described: str, name: str, annotation: Any, default: Any) -> HandlerParameter:
    if type(default).__module__ == "pydantic.fields":
        raise TypeError(
            f"{described}: write {name} as Annotated[type, Field(...)] with a plain default"
        )
    if annotation is object:
        annotation = Any
    refusal: Exception | None = None
    if not mentions_pydantic(annotation):
        try:
            if msgspec_knows(annotation):
                return HandlerParameter(name, annotation, default, None)
        except TypeError as error:
            refusal = error
    from coatcheck.service.pydantic_types import PydanticReader

    try:
        return HandlerParameter(name, annotation, default, PydanticReader(annotation))
    except (RuntimeError, TypeError) as error:
        # pydantic's declaration errors are RuntimeErrors.
        raise TypeError(
            f"{described}: {name} has a type that cannot be decoded from JSON: {annotation!r}"
            f" ({refusal or 'neither msgspec nor pydantic supports it'}). A msgspec Struct cannot"
            " contain a pydantic model, and vice versa."
        ) from error


def _struct_decoder(parameters: dict[str, HandlerParameter]) -> Callable[[bytes], Any]:
    fields = [
        (
            parameter.name,
            parameter.annotation if parameter.pydantic is None else msgspec.Raw,
            _struct_default(parameter.default),
        )
        for parameter in parameters.values()
    ]
    arguments = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
    return msgspec.json.Decoder(arguments).decode


def _struct_default(default: Any) -> Any:
    if default is _REQUIRED:
        return msgspec.field()
    if isinstance(default, (str, int, float, bool, type(None))):
        return msgspec.field(default=default)
    # As in Python, all calls share the same object; msgspec would copy it or refuse it.
    return msgspec.field(default_factory=lambda: default)
