"""The OpenAPI 3.1 document, made from the routes' own declarations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

import msgspec

from coatcheck.domain.tenants import Scope
from coatcheck.http.problem_formats import MEDIA_TYPE, Problem
from coatcheck.http.routing import VERSION_DIGITS_MAX, Access, Parameter, ResponseSpec, Route

_REFERENCE = "#/components/schemas/{name}"


def build_document(routes: Sequence[Route], *, version: str) -> dict[str, Any]:
    """The document for ``routes``, with one schema for each type they take or answer."""
    types = sorted(set(_types(routes)), key=lambda body: (body.__name__, body.__module__))
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    schema_of = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        path = paths.setdefault(route.path.replace(":path}", "}"), {})
        for method in route.methods:
            name = route.name
            if len(route.methods) > 1:
                name = f"{name}_{method.lower()}"
            path[method.lower()] = _describe(route, name, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Coatcheck",
            "version": version,
            "summary": "Hand slow work in, get a ticket, collect the result later.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "headers": _RATE_LIMIT_HEADERS,
            "securitySchemes": _SECURITY_SCHEMES,
        },
    }


def _types(routes: Iterable[Route]) -> Iterable[type[msgspec.Struct]]:
    for route in routes:
        yield route.problem_format.body
        if route.body is not None and route.body.body is not None:
            yield route.body.body
        for answer in route.responses:
            if answer.body is not None:
                yield answer.body


def _describe(route: Route, name: str, schema_of: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    responses = {answer.status: answer for answer in _common_responses(route)}
    responses |= {answer.status: answer for answer in route.responses}
    described: dict[str, Any] = {
        "operationId": name,
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": [*_path_parameters(route), *_parameters(route)],
        "responses": {
            str(int(status)): _describe_answer(
                _in_format(responses[status], route),
                schema_of,
                is_counted=route.access is not Access.OPEN and status not in _UNCOUNTED,
            )
            for status in sorted(responses)
        },
        "security": _security(route),
    }
    if route.description:
        described["description"] = route.description
    if route.body is not None:
        body = route.body
        schema = dict(body.schema or {}) if body.body is None else schema_of[body.body]
        described["requestBody"] = {
            "description": body.description,
            "required": body.required,
            "content": {body.media_type: {"schema": schema}}
            | {media_type: {"schema": dict(other)} for media_type, other in body.also.items()},
        }
    return described


def _security(route: Route) -> list[dict[str, list[str]]]:
    match route.access:
        case Access.OPEN:
            return []
        case Access.HANDLER:
            return [{"bearer": []}, {"apiKey": []}, {}]
        case Scope():
            return [{"bearer": []}, {"apiKey": []}]


def _common_responses(route: Route) -> list[ResponseSpec]:
    """What any operation of the kind may answer, so that none has to repeat it."""
    responses = [
        _problem(HTTPStatus.INTERNAL_SERVER_ERROR, "A fault of ours; see the log."),
        _problem(HTTPStatus.BAD_REQUEST, "The request is wrong; `details` says how."),
        _problem(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            "The path and the headers are too large together.",
        ),
    ]
    if route.body is not None:
        responses += [
            _problem(HTTPStatus.REQUEST_TIMEOUT, "The body did not arrive in time."),
            _problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The body is too large."),
            _problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "The body's type or coding is not taken."),
        ]
    if route.access is not Access.OPEN:
        responses += [
            _problem(
                HTTPStatus.UNAUTHORIZED,
                "No credential that counts.",
                {"WWW-Authenticate": "`Bearer`."},
            ),
            _problem(HTTPStatus.FORBIDDEN, "The credential lacks a scope."),
            _problem(HTTPStatus.NOT_FOUND, "Nothing of that name that the caller may see."),
            _problem(
                HTTPStatus.TOO_MANY_REQUESTS,
                "Over a rate limit (`rate_limited`), or too many jobs waiting (`queue_full`).",
                {"Retry-After": "Seconds to wait before asking again."},
            ),
            _problem(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "The database is away (`database_unavailable`), or its answer was lost "
                "(`outcome_unknown`).",
                {"Retry-After": "Seconds to wait before asking again."},
            ),
        ]
    return responses


def _in_format(answer: ResponseSpec, route: Route) -> ResponseSpec:
    """Problems are declared once, and look as their operation's do."""
    if answer.body is not Problem:
        return answer
    written = route.problem_format
    return replace(answer, body=written.body, media_type=written.media_type)


def _problem(status: HTTPStatus, text: str, headers: dict[str, str] | None = None) -> ResponseSpec:
    return ResponseSpec(status, text, Problem, MEDIA_TYPE, headers or {})


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    declared = {parameter.name for parameter in route.parameters if parameter.place == "path"}
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PATH_PARAMETERS.get(name, ""),
            "schema": _PATH_SCHEMAS.get(name, _NAME),
        }
        for name in route.parameter_names
        if name not in declared
    ]


def _parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {
            "name": parameter.name,
            "in": parameter.place,
            "required": parameter.required or parameter.place == "path",
            "description": parameter.description,
            "schema": dict(parameter.schema),
        }
        for parameter in (_REQUEST_ID, *route.parameters)
    ]


def _describe_answer(
    answer: ResponseSpec, schema_of: dict[Any, dict[str, Any]], *, is_counted: bool
) -> dict[str, Any]:
    """``is_counted``: it is an answer to a request that counts against the caller's limits."""
    headers = {"X-Request-Id": "The request's id, the caller's or a fresh one."} | dict(
        answer.headers
    )
    described: dict[str, Any] = {
        "description": answer.description,
        "headers": {
            name: {"description": text, "schema": {"type": "string"}}
            for name, text in headers.items()
        },
    }
    if is_counted:
        described["headers"] |= {
            name: {"$ref": f"#/components/headers/{name}"} for name in _RATE_LIMIT_HEADERS
        }
    if not answer.empty:
        schema = (
            schema_of[answer.body]
            if answer.body
            else dict(_TEXT if answer.schema is None else answer.schema)
        )
        described["content"] = {answer.media_type: {"schema": schema}} | {
            media_type: {"schema": dict(other)} for media_type, other in answer.also.items()
        }
    return described


_REQUEST_ID: Final = Parameter(
    "X-Request-Id", "header", "An id of the caller's choice, 1 to 128 printable characters; echoed."
)
_TEXT: Final = {"type": "string"}
_NAME: Final = {"type": "string", "minLength": 1}
_PATH_SCHEMAS: Final = {
    "version": {"type": "integer", "minimum": 1, "maximum": 10**VERSION_DIGITS_MAX - 1}
}
_PATH_PARAMETERS: Final = {
    "org": "The organisation's id.",
    "ws": "The workspace's id.",
    "service": "The service's name.",
    "name": "The service's name.",
    "id": "The id: a ULID, 26 characters.",
    "version": "The service's version: a whole number from 1.",
    "path": "The endpoint's path within the service; it may contain slashes.",
}
_RATE_LIMIT_HEADERS: Final = {
    name: {"description": text, "schema": {"type": kind}}
    for name, text, kind in (
        ("RateLimit-Limit", "Requests in a window, by the limit nearest to being met.", "integer"),
        ("RateLimit-Remaining", "How many of them are left.", "integer"),
        ("RateLimit-Reset", "Seconds until the window ends.", "integer"),
        ("RateLimit", "The same, as the IETF's draft spells it.", "string"),
        ("RateLimit-Policy", "The limits of the key and of the organisation.", "string"),
    )
}
"""On answers to callers who have limits."""
_UNCOUNTED: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE})
"""Refused before anybody knows whose limits count."""
_SECURITY_SCHEMES: Final = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key (`cck_...`), a user's JWT or a service token.",
    },
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
}
