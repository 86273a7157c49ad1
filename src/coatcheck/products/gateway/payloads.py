"""The input of a call to a Python function or a remote: fields of the body, path and query."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from coatcheck.domain.catalogue import EndpointSpec
from coatcheck.domain.errors import InvalidBody, InvalidParameter
from coatcheck.encoding import encode
from coatcheck.http.json_bodies import read_json

_TYPES: Final[Mapping[str, type]] = {"integer": int, "number": float, "boolean": bool}


def python_payload(
    spec: EndpointSpec, body: bytes, params: Mapping[str, str], query: Mapping[str, str]
) -> bytes:
    """The job's payload. Raises InvalidBody or InvalidParameter."""
    value = read_json(body) if body else {}
    if not params and not query:
        return body or b"{}"
    if not isinstance(value, dict):
        raise InvalidBody(
            "The body must be an object, because the path or the query has fields of it."
        )
    for place, fields in (("path", params), ("query", query)):
        for name, text in fields.items():
            if name in value:
                raise InvalidParameter(
                    name, "came twice: in the body, the path or the query", place
                )
            value[name] = _typed(spec, name, text, place)
    return encode(value)


def remote_input(
    spec: EndpointSpec, body: bytes, params: Mapping[str, str], query: Mapping[str, str]
) -> bytes:
    """What a remote is given: JSON, made as for a Python function.

    Raises InvalidBody or InvalidParameter.
    """
    given = python_payload(spec, body, params, query)
    if _takes_objects_only(spec) and not given.lstrip().startswith(b"{"):
        raise InvalidBody("The body must be an object, because the remote is sent more fields.")
    return given


def _takes_objects_only(spec: EndpointSpec) -> bool:
    """Whether something is put among the input's fields: see ``remotes/inputs.py``."""
    assert spec.remote is not None
    definition = spec.remote.definition
    return definition["adapter"] == "http" or bool(definition.get("marks"))


def _typed(spec: EndpointSpec, name: str, text: str, place: str) -> Any:
    """A field of the path or the query, as the endpoint's argument wants it."""
    kind = spec.parameters.get(name, "string")
    wanted = _TYPES.get(kind)
    if "\0" in text:
        raise InvalidParameter(name, "contains NUL", place)
    if wanted is None:
        return text
    try:
        value: Any = msgspec.convert(text, wanted, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidParameter(name, f"must be {kind}", place) from error
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidParameter(name, "must be a number that JSON has", place)
    return value
