"""Decodes the server's answers, and defines those with more than one job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Generic, TypeVar

import httpx2
import msgspec

from coatcheck.client.errors import UnexpectedAnswer

JobT = TypeVar("JobT")
ReadT = TypeVar("ReadT")


@dataclass(frozen=True, slots=True)
class Page(Generic[JobT]):
    """A page of jobs, newest first, and their total number.

    The server stops counting at some point: then ``total_is_exact`` is false, and there are more.
    ``next`` is the cursor of the next page; None at the end.
    """

    items: tuple[JobT, ...]
    total: int
    total_is_exact: bool
    next: str | None


@dataclass(frozen=True, slots=True)
class BatchStatus(Generic[JobT]):
    """The requested jobs, and the ids of those that do not exist (or are not yours)."""

    items: tuple[JobT, ...]
    not_found: tuple[str, ...]


class UsageDay(msgspec.Struct, frozen=True):
    """The usage of one endpoint's jobs that ended on one day (UTC), or in the ``hour`` that begins
    then.

    ``queue_key`` (``flow`` in JSON) distinguishes the endpoints of http upstreams. ``run_seconds``
    is the handlers' run time over all attempts.
    """

    day: date
    endpoint: str
    queue_key: str = msgspec.field(name="flow")
    jobs: int
    completed: int
    failed: int
    cancelled: int
    attempts: int
    run_seconds: float
    payload_bytes: int
    result_bytes: int
    hour: datetime | None = None

    @property
    def flow(self) -> str:
        """The old name of ``queue_key``, removed with 0.1.0."""
        return self.queue_key


class _PageBody(msgspec.Struct, frozen=True):
    items: list[dict[str, Any]]
    total: int
    total_is_exact: bool = True
    next: str | None = None


class _Batch(msgspec.Struct, frozen=True):
    items: list[dict[str, Any]]
    not_found: list[str]


class _Usage(msgspec.Struct, frozen=True):
    items: list[UsageDay]


class KeysetPage(msgspec.Struct, frozen=True):
    """A page of a listing without a total, and the cursor of the next page."""

    items: list[dict[str, Any]]
    next: str | None = None


def read_object(response: httpx2.Response) -> dict[str, Any]:
    """Decode a JSON object."""
    return read(response, dict[str, Any])


def read_page(response: httpx2.Response, job: Callable[[Mapping[str, Any]], JobT]) -> Page[JobT]:
    page = read(response, _PageBody)
    return Page(tuple(map(job, page.items)), page.total, page.total_is_exact, page.next)


def read_batch(
    response: httpx2.Response, job: Callable[[Mapping[str, Any]], JobT]
) -> BatchStatus[JobT]:
    batch = read(response, _Batch)
    return BatchStatus(tuple(map(job, batch.items)), tuple(batch.not_found))


def read_usage(response: httpx2.Response) -> tuple[UsageDay, ...]:
    return tuple(read(response, _Usage).items)


def read_ticket(response: httpx2.Response) -> dict[str, Any] | None:
    """The ticket that a synchronous call answers if it takes too long; None if it is the result.

    An upstream may answer 202, too, even with a ticket of its own. Ours has the same URL in its
    body and its Location.
    """
    if response.status_code != httpx2.codes.ACCEPTED:
        return None
    try:
        ticket = msgspec.json.decode(response.content)
    except ValueError:
        return None
    if not isinstance(ticket, dict) or "poll_url" not in ticket:
        return None
    return ticket if ticket["poll_url"] == response.headers.get("location") else None


def read_result(response: httpx2.Response) -> Any:
    """The result of a synchronous call: JSON as its value, text as str, anything else as bytes.

    None if it is empty.
    """
    if not response.content:
        return None
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == "application/json" or media_type.endswith("+json"):
        return read(response, Any)
    return response.text if media_type.startswith("text/") else response.content


def read(response: httpx2.Response, kind: type[ReadT]) -> ReadT:
    """Decode an answer as ``kind``."""
    try:
        return msgspec.json.decode(response.content, type=kind)
    except ValueError as error:
        raise UnexpectedAnswer(
            f"the answer {response.status_code} does not contain the expected JSON"
        ) from error
