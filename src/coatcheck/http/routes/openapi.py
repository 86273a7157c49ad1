"""``/openapi.json``: what this server serves, as a document."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus

import msgspec

from coatcheck.http.openapi import build_document
from coatcheck.http.request import Call
from coatcheck.http.response import JSON, Reply, shared_reply
from coatcheck.http.routing import Answer, Operation


def operation(others: Sequence[Operation], *, version: str) -> Operation:
    """``/openapi.json`` for ``others`` and for itself."""

    body: bytes | None = None

    async def openapi(_: Call) -> Reply:
        nonlocal body
        if body is None:  # few ask, and every start would take longer for it
            body = await asyncio.to_thread(document)
        return shared_reply(body, [JSON])

    def document() -> bytes:
        return msgspec.json.encode(build_document(described, version=version))

    this = Operation(
        methods=["GET"],
        path="/openapi.json",
        name="openapi",
        summary="This document.",
        handler=openapi,
        answers=[Answer(HTTPStatus.OK, "OpenAPI 3.1.", schema={"type": "object"})],
        tag="operations",
    )
    described = [*others, this]
    return this
