"""Responses that a browser saves as files instead of showing them."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

from coatcheck.http.response import SANDBOXED, RawHeaders, Response, raw_header

HARMLESS: Final[RawHeaders] = (
    *SANDBOXED,
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"private, no-store"),
)
"""For content that is not our own page: nothing in it runs, even if a browser shows it."""

_NOT_PLAIN: Final = re.compile(r"[^A-Za-z0-9._-]+")


def download(body: bytes, name: str, media_type: str) -> Response:
    """``body`` as an attachment called ``name``; unusual characters become underscores."""
    headers = [
        raw_header("content-type", media_type),
        raw_header("content-disposition", f'attachment; filename="{_NOT_PLAIN.sub("_", name)}"'),
        *HARMLESS,
    ]
    return Response(HTTPStatus.OK, body, headers)
