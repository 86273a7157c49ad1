"""``/openapi.json``: what this server serves, as a document."""

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
        if body is None:  # few ask, and every start would take longer for it
            body = await asyncio.to_thread(document)
        return shared_response(body, [JSON])

    def document() -> bytes:
        return msgspec.json.encode(build_document(described, version=version))

    this = Route(
        methods=["GET"],
        path="/openapi.json",
        name="openapi",
        summary="This document.",
        handler=openapi,
        responses=[ResponseSpec(HTTPStatus.OK, "OpenAPI 3.1.", schema={"type": "object"})],
        tag="operations",
    )
    described = [*others, this]
    return this
