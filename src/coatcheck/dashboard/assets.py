"""Static files: the stylesheet, the scripts and the vendored libraries.

The address of a file contains a digest of its content. A browser can therefore cache it for ever,
and never mixes a page with files of another version.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from coatcheck.domain.errors import NotFound
from coatcheck.http.request import Request
from coatcheck.http.response import Response, shared_response
from coatcheck.http.routing import ResponseSpec, Route

_MEDIA_TYPES: Final = {
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}
_FOR_GOOD: Final = b"public, max-age=31536000, immutable"
_DIGEST_LENGTH: Final = 16


@dataclass(frozen=True, slots=True)
class Asset:
    digest: str
    media_type: bytes
    plain: bytes
    compressed: bytes


def address(name: str) -> str:
    """The address of the file ``name``. Raises KeyError for a misspelt name."""
    return f"/ui/static/{_assets()[name].digest}/{name}"


def route() -> Route:
    """``/ui/static/{digest}/{file}``."""

    async def serve(request: Request) -> Response:
        asset = _assets().get(request.params["file"])
        if asset is None:
            raise NotFound
        # During a deployment, pages of another version may ask. They get this one, uncached.
        is_current = request.params["digest"] == asset.digest
        headers = [
            (b"content-type", asset.media_type),
            (b"cache-control", _FOR_GOOD if is_current else b"no-store"),
            (b"vary", b"accept-encoding"),
            (b"x-content-type-options", b"nosniff"),
            (b"cross-origin-resource-policy", b"same-origin"),
        ]
        if "gzip" in (request.header(b"accept-encoding") or ""):
            return shared_response(asset.compressed, [*headers, (b"content-encoding", b"gzip")])
        return shared_response(asset.plain, headers)

    return Route(
        methods=["GET"],
        path="/ui/static/{digest}/{file}",
        name="ui_static",
        summary="A static file of the dashboard.",
        handler=serve,
        responses=[ResponseSpec(HTTPStatus.OK, "The file.", media_type="*/*")],
        tag="dashboard",
        serves_code=True,
    )


@cache
def _assets() -> dict[str, Asset]:
    root = resources.files("coatcheck.dashboard").joinpath("static")
    return {file.name: _read(file) for file in _files(root) if _suffix(file.name) in _MEDIA_TYPES}


def _read(file: Traversable) -> Asset:
    plain = file.read_bytes()
    return Asset(
        digest=hashlib.sha256(plain).hexdigest()[:_DIGEST_LENGTH],
        media_type=_MEDIA_TYPES[_suffix(file.name)],
        plain=plain,
        compressed=gzip.compress(plain, mtime=0),
    )


def _files(folder: Traversable) -> Iterable[Traversable]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files(entry)
        else:
            yield entry


def _suffix(name: str) -> str:
    return name[name.rfind(".") :]
