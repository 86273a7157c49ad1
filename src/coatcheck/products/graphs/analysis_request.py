"""The payload of a graphs job: where the server stored the archive, and its hash."""

from __future__ import annotations

from typing import Final

import msgspec


class AnalysisRequest(msgspec.Struct, frozen=True):
    """The archive of a job, in pieces in the blob store. ``sha256`` is in hex.

    ``external_calls``: the graph includes calls to code that is not in the archive.
    """

    blob_key: str
    pieces: int
    size: int
    sha256: str
    external_calls: bool = False


class _AnalysisPayload(msgspec.Struct, frozen=True):
    request: AnalysisRequest


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(_AnalysisPayload).decode


def encode_request(request: AnalysisRequest) -> bytes:
    """The payload of a job, whose handler has a parameter ``request``."""
    return _encode(_AnalysisPayload(request))


def decode_request(payload: bytes) -> AnalysisRequest:
    """The request in a payload."""
    return _decode(payload).request
