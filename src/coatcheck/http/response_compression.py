"""Answers sent as gzip, where the caller takes it and it is safe.

Only JSON and CSV of the API. A page of the dashboard is authorised by a cookie, which a browser
sends along whoever asks, so that its size, compressed, could be made to tell what it holds
(BREACH); and an answer that is not to be stored holds a secret. Neither is compressed
(docs/adr/0054).
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

from coatcheck.compression import gzipped, gzipped_pieces
from coatcheck.http.response import RawHeaders, Reply, StreamReply

BYTES_MIN: Final = 4 * 1024
"""A shorter answer is as good as it is: it fits a packet or two."""
_AT_ONCE_BYTES: Final = 64 * 1024
"""A longer one is compressed in a thread."""
_TYPES: Final = (b"application/json", b"application/problem+json", b"text/csv")
_NEVER: Final = frozenset({b"content-encoding", b"content-range", b"set-cookie"})
_WEIGHT: Final = rb"\s*(?:;\s*q\s*=\s*([0-9.]+))?\s*(?:,|$)"
_GZIP: Final = re.compile(rb"(?:^|[,\s])(?:gzip|x-gzip)" + _WEIGHT)
_ANY: Final = re.compile(rb"(?:^|[,\s])\*" + _WEIGHT)
_VARY: Final = (b"vary", b"accept-encoding")
_CODING: Final = (b"content-encoding", b"gzip")


def accepts_gzip(accepted: bytes | None) -> bool:
    """Whether an ``Accept-Encoding`` takes gzip."""
    if accepted is None:
        return False
    accepted = accepted.lower()
    # What is said of gzip itself counts before what is said of all others.
    found = _GZIP.search(accepted) or _ANY.search(accepted)
    return found is not None and (found[1] is None or found[1].strip(b"0.") != b"")


def is_compressible(headers: RawHeaders) -> bool:
    """Whether what these headers go with may be compressed at all."""
    fits = False
    for name, value in headers:
        if name in _NEVER or (name == b"cache-control" and b"no-store" in value):
            return False
        if name == b"content-type":
            fits = value.startswith(_TYPES)
    return fits


async def compressed(reply: Reply, accepted: bytes | None) -> Reply:
    """The answer as gzip, if the caller takes that; else as it is, with what caches need."""
    if not accepts_gzip(accepted):
        reply.headers = [*reply.headers, _VARY]
        return reply
    body = reply.body
    if len(body) <= _AT_ONCE_BYTES:
        reply.body = gzipped(body)
    else:
        reply.body = await asyncio.to_thread(gzipped, body)
    reply.headers = [*reply.headers, _VARY, _CODING]
    return reply


def compressed_stream(reply: StreamReply, accepted: bytes | None) -> StreamReply:
    """The same of an answer that is sent in pieces. Its length is then not known before."""
    if not accepts_gzip(accepted):
        reply.headers = [*reply.headers, _VARY]
        return reply
    reply.pieces = gzipped_pieces(reply.pieces)
    headers = [each for each in reply.headers if each[0] != b"content-length"]
    reply.headers = [*headers, _VARY, _CODING]
    return reply
