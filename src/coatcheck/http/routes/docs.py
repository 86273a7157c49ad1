"""The API reference: ``/openapi.json``, and ``/docs`` as Swagger UI, without other hosts.

The files of the page come from the package swagger-ui-py. None of that package's code is run.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Sequence
from functools import cache
from http import HTTPStatus
from importlib import resources
from typing import Final

import msgspec

from coatcheck.domain.errors import NotFound
from coatcheck.http.openapi import build_document
from coatcheck.http.request import Request
from coatcheck.http.response import JSON, Response, shared_response
from coatcheck.http.routing import Parameter, ResponseSpec, Route

_FILES: Final = {
    "swagger-ui.css": b"text/css; charset=utf-8",
    "swagger-ui-bundle.js": b"text/javascript; charset=utf-8",
    "start.js": b"text/javascript; charset=utf-8",
}
_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Coatcheck API</title>
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="api"></div>
<script nonce="{nonce}" src="docs/swagger-ui-bundle.js"></script>
<script nonce="{nonce}" src="docs/start.js"></script>
</body>
</html>
"""
_START: Final = b"""SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#api",
  deepLinking: true,
  persistAuthorization: true,
  tryItOutEnabled: true,
  validatorUrl: null,
});
"""
_NONCE_BYTES: Final = 16
_POLICY: Final = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Scripts are allowed by a nonce, not by origin: tenants' content has the same origin."""


def docs_routes() -> list[Route]:
    """The page, and the files that it needs."""

    async def page(_: Request) -> Response:
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        headers = [
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-security-policy", _POLICY.format(nonce=nonce).encode()),
            (b"cache-control", b"no-store"),
        ]
        return Response(HTTPStatus.OK, _PAGE.format(nonce=nonce).encode(), headers)

    async def file(request: Request) -> Response:
        name = request.params["file"]
        media_type = _FILES.get(name)
        if media_type is None:
            raise NotFound
        body, tag = _file(name)
        headers = [(b"etag", tag), (b"cache-control", b"no-cache")]
        if request.headers.get(b"if-none-match") == tag:
            return Response(HTTPStatus.NOT_MODIFIED, b"", headers)
        return shared_response(body, [(b"content-type", media_type), *headers])

    return [
        Route(
            methods=["GET"],
            path="/docs",
            name="docs",
            summary="The API reference for a browser, where requests can be tried.",
            handler=page,
            responses=[ResponseSpec(HTTPStatus.OK, "The page.", media_type="text/html")],
            tag="operations",
        ),
        Route(
            methods=["GET"],
            path="/docs/{file}",
            name="docs_file",
            summary="A file of the page `/docs`.",
            handler=file,
            parameters=[Parameter("file", "path", "The file's name.", {"enum": list(_FILES)})],
            responses=[
                ResponseSpec(HTTPStatus.OK, "The file.", media_type="*/*"),
                ResponseSpec(HTTPStatus.NOT_MODIFIED, "The caller has it.", empty=True),
                ResponseSpec.problem(HTTPStatus.NOT_FOUND, "The file does not exist."),
            ],
            tag="operations",
            serves_code=True,
        ),
    ]


@cache
def _file(name: str) -> tuple[bytes, bytes]:
    body = _START if name == "start.js" else _packaged(name)
    return body, b'"' + hashlib.sha256(body).hexdigest()[:32].encode() + b'"'


def _packaged(name: str) -> bytes:
    return resources.files("swagger_ui").joinpath("static", name).read_bytes()


def openapi_route(others: Sequence[Route], *, version: str) -> Route:
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
