"""Parses the path and query parameters of webhook routes: endpoints, messages, times."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec

from coatcheck.domain import ids
from coatcheck.domain.errors import InvalidParameter, NotFound
from coatcheck.domain.patterns import whole
from coatcheck.domain.webhooks import delivery_of
from coatcheck.http.routing import ULID, Parameter

PATH: Final = "/api/v1/orgs/{org}/webhooks"
TAG: Final = "webhooks"
MESSAGE: Final = {"type": "string", "pattern": whole("msg_[0-7][0-9A-HJKMNP-TV-Z]{25}")}
MOMENT: Final = {"type": "string", "format": "date-time"}

_HEX_CHARACTERS: Final = 32


def endpoint_parameter() -> Parameter:
    return Parameter("id", "path", "The endpoint's id.", ULID)


def message_parameter() -> Parameter:
    return Parameter("id", "path", "The delivery's id: its `webhook-id`.", MESSAGE)


def message_named(text: str) -> UUID:
    """The delivery that a path names. Raises NotFound for an invalid id."""
    try:
        return delivery_of(text)
    except ids.InvalidId:
        raise NotFound from None


def read_subject(query: Mapping[str, str]) -> UUID | None:
    """A job or a group of jobs by its ULID, a job of a group by its 32 hexadecimal digits."""
    given = query.get("job_id")
    if given is None:
        return None
    try:
        return UUID(hex=given) if len(given) == _HEX_CHARACTERS else ids.from_text(given)
    except ValueError:
        raise InvalidParameter("job_id", "must be a job's id") from None


def read_endpoint(query: Mapping[str, str]) -> str | None:
    given = query.get("endpoint_id")
    try:
        return None if given is None else ids.to_text(ids.from_text(given))
    except ids.InvalidId:
        raise InvalidParameter("endpoint_id", "must be an endpoint's id") from None


def read_moment(query: Mapping[str, str], name: str) -> datetime | None:
    """A time in the format of RFC 3339, with a time zone."""
    given = query.get(name)
    if given is None:
        return None
    try:
        moment = msgspec.convert(given, datetime)
    except msgspec.ValidationError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InvalidParameter(name, "must be a time such as 2026-01-31T12:00:00Z")
    return moment
