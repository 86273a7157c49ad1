"""``/openapi.json``: what this server serves, as a document."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

import msgspec

from coatcheck.control.call import Call
from coatcheck.control.openapi import build_document
from coatcheck.control.operations import Answer, Operation
from coatcheck.control.reply import JSON, Reply


def operation(others: Sequence[Operation], *, version: str) -> Operation:
    """``/openapi.json`` for ``others`` and for itself."""

    async def openapi(_: Call) -> Reply:
        return Reply(HTTPStatus.OK, body, [JSON])

    this = Operation(
        methods=["GET"],
        path="/openapi.json",
        name="openapi",
        summary="This document.",
        handler=openapi,
        answers=[Answer(HTTPStatus.OK, "OpenAPI 3.1.", schema={"type": "object"})],
        tag="operations",
    )
    body = msgspec.json.encode(build_document([*others, this], version=version))
    return this
