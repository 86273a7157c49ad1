"""The OpenAPI 3.1 document, made from the routes' own declarations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from coatcheck.control.operations import Answer, Operation

_REFERENCE = "#/components/schemas/{name}"


def build_document(operations: Sequence[Operation], *, version: str) -> dict[str, Any]:
    """The document for ``operations``, with one schema for each type their answers use."""
    bodies = sorted(
        {answer.body for operation in operations for answer in operation.answers if answer.body},
        key=lambda body: body.__name__,
    )
    schemas, components = msgspec.json.schema_components(bodies, ref_template=_REFERENCE)
    schema_of = dict(zip(bodies, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe(
            operation, schema_of
        )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Coatcheck",
            "version": version,
            "summary": "Hand slow work in, get a ticket, collect the result later.",
        },
        "paths": paths,
        "components": {"schemas": components},
    }


def _describe(operation: Operation, schema_of: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    described = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.tag],
        "parameters": [_REQUEST_ID_PARAMETER],
        "responses": {
            str(int(answer.status)): _describe_answer(answer, schema_of)
            for answer in operation.answers
        },
    }
    return described | ({"description": operation.description} if operation.description else {})


def _describe_answer(answer: Answer, schema_of: dict[Any, dict[str, Any]]) -> dict[str, Any]:
    schema = schema_of[answer.body] if answer.body else dict(answer.schema or {"type": "string"})
    headers = {"X-Request-Id": "The request's id, the caller's or a fresh one."} | dict(
        answer.headers
    )
    return {
        "description": answer.description,
        "content": {answer.media_type: {"schema": schema}},
        "headers": {
            name: {"description": text, "schema": {"type": "string"}}
            for name, text in headers.items()
        },
    }


_REQUEST_ID_PARAMETER = {
    "name": "X-Request-Id",
    "in": "header",
    "required": False,
    "description": "An id of the caller's choice, 1 to 128 printable characters; echoed.",
    "schema": {"type": "string"},
}
