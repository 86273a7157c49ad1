"""Makes the OpenAPI 3.1 document from the declarations of routes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Any, Final

import msgspec

from coatcheck.domain.tenants import Scope
from coatcheck.http.problem_formats import Problem
from coatcheck.http.routing import VERSION_DIGITS_MAX, Access, Parameter, ResponseSpec, Route

_REFERENCE = "#/components/schemas/{name}"


def build_document(routes: Sequence[Route], *, version: str) -> dict[str, Any]:
    """The document for ``routes``, with one schema for each type of body."""
    types = sorted(set(_types(routes)), key=lambda body: (body.__name__, body.__module__))
    schemas, components = msgspec.json.schema_components(
        map(_without_raw_defaults, types), ref_template=_REFERENCE
    )
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
            "summary": "Submit slow work, get a ticket, collect the result later.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "headers": _RATE_LIMIT_HEADERS,
            "securitySchemes": _SECURITY_SCHEMES,
        },
    }


def _without_raw_defaults(body: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """The type as it is described: msgspec cannot show a default that is ``msgspec.Raw``."""
    raw = [
        (each.name, each.type, msgspec.field(default_factory=msgspec.Raw))
        for each in msgspec.structs.fields(body)
        if isinstance(each.default, msgspec.Raw)
    ]
    if not raw:
        return body
    about = {"__doc__": body.__doc__}
    return msgspec.defstruct(body.__name__, raw, bases=(body,), kw_only=True, namespace=about)


def _types(routes: Iterable[Route]) -> Iterable[type[msgspec.Struct]]:
    for route in routes:
        yield route.problem_format.body
        if route.body is not None and route.body.body is not None:
            yield route.body.body
        for response in route.responses:
            if response.body is not None:
                yield response.body


def _describe(route: Route, name: str, schema_of: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    responses = {response.status: response for response in _common_responses(route)}
    responses |= {response.status: response for response in route.responses}
    described: dict[str, Any] = {
        "operationId": name,
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": [*_path_parameters(route), *_parameters(route)],
        "responses": {
            str(int(status)): _describe_response(
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
    """The responses that every route of its kind may give, so that no route has to repeat them."""
    problem = ResponseSpec.problem
    responses = [
        problem(HTTPStatus.INTERNAL_SERVER_ERROR, "An internal error; see the server's log."),
        problem(HTTPStatus.BAD_REQUEST, "The request is invalid; `details` says why."),
        problem(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            "The path and the headers together are too large.",
        ),
    ]
    if route.body is not None:
        responses += [
            problem(HTTPStatus.REQUEST_TIMEOUT, "The body did not arrive in time."),
            problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The body is too large."),
            problem(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "The body's type or encoding is not supported."
            ),
        ]
    if route.access is not Access.OPEN:
        responses += [
            problem(
                HTTPStatus.UNAUTHORIZED,
                "The credential is missing or invalid.",
                {"WWW-Authenticate": "`Bearer`."},
            ),
            problem(HTTPStatus.FORBIDDEN, "The credential does not have the required scope."),
            problem(HTTPStatus.NOT_FOUND, "It does not exist, or the caller may not see it."),
            problem(
                HTTPStatus.TOO_MANY_REQUESTS,
                "A rate limit is exceeded (`rate_limited`), or too many jobs are waiting "
                "(`queue_full`).",
                {"Retry-After": "Seconds to wait before asking again."},
            ),
            problem(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "The database is unavailable (`database_unavailable`), or its answer was lost "
                "(`outcome_unknown`).",
                {"Retry-After": "Seconds to wait before asking again."},
            ),
        ]
    return responses


def _in_format(response: ResponseSpec, route: Route) -> ResponseSpec:
    """A declared problem in the format of its route."""
    if response.body is not Problem:
        return response
    written = route.problem_format
    return replace(response, body=written.body, media_type=written.media_type)


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    declared = {parameter.name for parameter in route.parameters if parameter.place == "path"}
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": PATH_PARAMETERS.get(name, ""),
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


def _describe_response(
    response: ResponseSpec, schema_of: dict[Any, dict[str, Any]], *, is_counted: bool
) -> dict[str, Any]:
    """``is_counted``: it answers a request that counts against the caller's rate limits."""
    request_id = {"X-Request-Id": "The request's id: the caller's, or a new one."}
    headers = request_id | dict(response.headers)
    described: dict[str, Any] = {
        "description": response.description,
        "headers": {
            name: {"description": text, "schema": {"type": "string"}}
            for name, text in headers.items()
        },
    }
    if is_counted:
        described["headers"] |= {
            name: {"$ref": f"#/components/headers/{name}"} for name in _RATE_LIMIT_HEADERS
        }
    if not response.empty:
        schema = (
            schema_of[response.body]
            if response.body
            else dict(_TEXT if response.schema is None else response.schema)
        )
        described["content"] = {response.media_type: {"schema": schema}} | {
            media_type: {"schema": dict(other)} for media_type, other in response.also.items()
        }
    return described


_REQUEST_ID: Final = Parameter(
    "X-Request-Id", "header", "The caller's id for the request, 1 to 128 printable characters."
)
_TEXT: Final = {"type": "string"}
_NAME: Final = {"type": "string", "minLength": 1}
_PATH_SCHEMAS: Final = {
    "version": {"type": "integer", "minimum": 1, "maximum": 10**VERSION_DIGITS_MAX - 1}
}
PATH_PARAMETERS: Final = {
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
        ("RateLimit-Limit", "Requests in a window, of the limit with fewest left.", "integer"),
        ("RateLimit-Remaining", "How many of them are left.", "integer"),
        ("RateLimit-Reset", "Seconds until the window ends.", "integer"),
        ("RateLimit", "The same in the format of the IETF's draft.", "string"),
        ("RateLimit-Policy", "The limits of the key and of the organisation.", "string"),
    )
}
"""The headers of responses to callers that have rate limits."""
_UNCOUNTED: Final = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE})
"""Statuses of requests that are refused before their caller is known."""
_SECURITY_SCHEMES: Final = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key (`cck_...`), a user's JWT or a service token.",
    },
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
}
