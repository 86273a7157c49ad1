"""What the notification READY says: the endpoints that have work, or the one job that was queued.

The payload is the names of endpoints, separated by commas; or a JSON array that names one job, for
workers that know of nothing else to do; or nothing, which means "check everything".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

import msgspec

from coatcheck.domain.job import NewJob


class NamedJob(msgspec.Struct, array_like=True, frozen=True):
    """A job that was just queued, as a notification names it. Whether it waits, its row decides."""

    org: str
    id: UUID
    lane: str
    endpoint: str


_encode: Final = msgspec.json.Encoder(uuid_format="hex").encode
_decode: Final = msgspec.json.Decoder(NamedJob).decode
_OPENING: Final = "["


def naming(job: NewJob) -> str:
    """The payload that names one job; empty if it has a name that cannot be sent."""
    return _ascii(_encode(NamedJob(job.org, job.uuid, job.lane, job.endpoint)).decode())


def listing(endpoints: Iterable[str]) -> str:
    """The payload that names endpoints; empty if one has a name that cannot be sent."""
    return _ascii(",".join({*endpoints}))


def named_job(payload: str) -> NamedJob | None:
    """The job that a payload names; None if it names endpoints."""
    if not payload.startswith(_OPENING):
        return None
    try:
        return _decode(payload)
    except msgspec.DecodeError:  # an endpoint whose name begins like that
        return None


def _ascii(payload: str) -> str:
    """The payload, unless the server's encoding may not have all of its characters."""
    return payload if payload.isascii() else ""
