"""Whether the remote targets of a document are such as their adapters can use."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from typing import Final

import msgspec

from coatcheck.domain.catalogue import (
    EndpointDefinition,
    RemoteTargetDefinition,
    ServiceDefinition,
)
from coatcheck.domain.errors import FieldIssue, InvalidInput
from coatcheck.domain.registration import remote_definition
from coatcheck.domain.service_definition import ADAPTERS
from coatcheck.remotes.definitions import read_definition
from coatcheck.remotes.errors import RemoteMisdefined

_OPERATORS: Final = "operator"
_OF_OPERATORS: Final = frozenset({"kind", "adapter", "name"})
_PLACE: Final = re.compile(r"^(.*?)(?: - at `\$(.*)`)?$", re.DOTALL)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`")
_MISSING: Final = re.compile(r"Object missing required field `(.*)`")


def check_remotes(definition: ServiceDefinition, of_operator: Container[str]) -> None:
    """Raises InvalidInput, with the issues of each target that its adapter cannot use.

    ``of_operator`` are the names of the remotes that the operator has set up.
    """
    issues = [
        issue
        for place, endpoint in endpoints_of(definition)
        if isinstance(endpoint.target, RemoteTargetDefinition)
        for issue in _issues(f"{place}.target", endpoint.target, of_operator)
    ]
    if issues:
        raise InvalidInput(issues)


def endpoints_of(definition: ServiceDefinition) -> Iterator[tuple[str, EndpointDefinition]]:
    """The endpoints of all versions, each with its place in the document."""
    for number, version in definition.versions.items():
        for at, endpoint in enumerate(version.endpoints):
            yield f"versions.{number}.endpoints[{at}]", endpoint


def _issues(
    field: str, target: RemoteTargetDefinition, of_operator: Container[str]
) -> Iterator[FieldIssue]:
    if target.adapter not in ADAPTERS:
        return  # refused with its reason, whatever its fields are: see ``domain/registration.py``
    definition = remote_definition(target)
    if target.adapter == _OPERATORS:
        for name in definition.keys() - _OF_OPERATORS:
            yield _no_field(field, name, target.adapter)
        if target.name not in of_operator:
            yield FieldIssue(f"{field}.name", "names no remote that the operator has set up")
        return
    try:
        read_definition(definition)
    except RemoteMisdefined as error:
        yield _issue(field, target.adapter, error)


def _issue(field: str, adapter: str, error: RemoteMisdefined) -> FieldIssue:
    if not isinstance(error.__cause__, msgspec.DecodeError):
        return FieldIssue(field, str(error))
    found = _PLACE.match(str(error.__cause__))
    assert found is not None, "the pattern takes any text"
    text, within = found.groups()
    if unknown := _UNKNOWN.fullmatch(text):
        return _no_field(f"{field}{within or ''}", unknown[1], adapter)
    if missing := _MISSING.fullmatch(text):
        return FieldIssue(f"{field}.{missing[1]}", f"is needed by the adapter {adapter}")
    return FieldIssue(f"{field}{within or ''}", text[:1].lower() + text[1:])


def _no_field(field: str, name: str, adapter: str) -> FieldIssue:
    return FieldIssue(f"{field}.{name}", f"is no field of the adapter {adapter}")
