"""The payload and the stored result of a graphs job."""

from __future__ import annotations

from typing import Final

import msgspec

from coatcheck.domain.failures import FailureCode


class GraphFailure(FailureCode):
    """Graphs of code"""

    ARCHIVE_REJECTED = "archive_rejected"
    """The archive cannot be used. The message has the reason."""
    ARCHIVE_EXPIRED = "archive_expired"
    """The archive was deleted at the end of its time to live, before it was analysed."""
    ARCHIVE_CORRUPT = "archive_corrupt"
    """The stored archive does not match its hash. Retried."""
    ANALYSIS_TOO_LONG = "analysis_too_long"
    """The analysis took too long."""
    ANALYSIS_ENDED = "analysis_ended"
    """The analysis ended without a result. Retried."""
    GRAPH_TOO_LARGE = "graph_too_large"
    """The graph needs more memory than an analysis may have."""
    DISK_UNAVAILABLE = "disk_unavailable"
    """The worker's disk could not be written. Retried."""
    BLOB_STORE_UNAVAILABLE = "blob_store_unavailable"
    """The blob store could not be read. Retried."""


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


RESULT_ARTIFACT: Final = "result.json"
"""The artifact that holds a result which is too large for the job's row."""
RESULT_INLINE_BYTES_MAX: Final = 1024 * 1024


class StoredGraphResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result in the row of a completed job: the result itself, or the name of its artifact."""

    inline: msgspec.Raw = msgspec.Raw(b"")
    artifact: str = ""
