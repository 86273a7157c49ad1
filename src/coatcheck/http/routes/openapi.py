"""``/openapi.json``: the OpenAPI document of this server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus

import msgspec

from coatcheck.http.openapi import build_document
from coatcheck.http.request import Request
from coatcheck.http.response import JSON, Response, shared_response
from coatcheck.http.routing import ResponseSpec, Route


def route(others: Sequence[Route], *, version: str) -> Route:
    """``/openapi.json`` for ``others`` and for itself."""

    body: bytes | None = None

    async def openapi(_: Request) -> Response:
        nonlocal body
        if body is None:  # made at the first request, so that it does not slow down every start
            body = await asyncio.to_thread(document)
        return shared_response(body, [JSON])

    def document() -> bytes:
        return msgspec.json.encode(build_document(described, version=version))

    this = Route(
        methods=["GET"],
        path="/openapi.json",
        name="openapi",
        summary="The OpenAPI document of this server.",
        handler=openapi,
        responses=[ResponseSpec(HTTPStatus.OK, "OpenAPI 3.1.", schema={"type": "object"})],
        tag="operations",
    )
    described = [*others, this]
    return this
