"""``/openapi.json``: what this server serves, as a document."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from coatcheck.control.openapi import build_document
from coatcheck.control.operations import Answer, Operation


def operation(others: Sequence[Operation], *, version: str) -> Operation:
    """``/openapi.json`` for ``others`` and for itself."""

    async def openapi(_: Request) -> Response:
        return Response(body, media_type="application/json")

    this = Operation(
        method="GET",
        path="/openapi.json",
        name="openapi",
        summary="This document.",
        handler=openapi,
        answers=[Answer(HTTPStatus.OK, "OpenAPI 3.1.", schema={"type": "object"})],
        tag="operations",
    )
    body = msgspec.json.encode(build_document([*others, this], version=version))
    return this
