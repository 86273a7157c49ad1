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
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, get_type_hints

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
from coatcheck.service.parameter_kinds import parameter_kind
from coatcheck.service.type_tree import mentions_pydantic, msgspec_knows, msgspec_names

if TYPE_CHECKING:
    from coatcheck.service.pydantic_types import PydanticReader

_REQUIRED: Final = inspect.Parameter.empty
_BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_UNREADABLE: Final = (ValueError, TypeError, RecursionError)
"""What msgspec raises for an invalid payload; TypeError for a list as a set member."""


@dataclasses.dataclass(frozen=True, slots=True)
class Parameter:
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


def _field_issues(parameter: Parameter, json: bytes) -> list[FieldIssue]:
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


def _read_parameters(function: Callable[..., Any]) -> tuple[str | None, dict[str, Parameter]]:
    described = f"{function.__module__}.{function.__qualname__}"
    hints = _type_hints(function, described)
    job_parameter: str | None = None
    parameters: dict[str, Parameter] = {}
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


def _parameter(described: str, name: str, annotation: Any, default: Any) -> Parameter:
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
                return Parameter(name, annotation, default, None)
        except TypeError as error:
            refusal = error
    from coatcheck.service.pydantic_types import PydanticReader

    try:
        return Parameter(name, annotation, default, PydanticReader(annotation))
    except (RuntimeError, TypeError) as error:
        # pydantic's declaration errors are RuntimeErrors.
        raise TypeError(
            f"{described}: {name} has a type that cannot be decoded from JSON: {annotation!r}"
            f" ({refusal or 'neither msgspec nor pydantic supports it'}). A msgspec Struct cannot"
            " contain a pydantic model, and vice versa."
        ) from error


def _struct_decoder(parameters: dict[str, Parameter]) -> Callable[[bytes], Any]:
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
