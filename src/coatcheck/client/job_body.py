"""The state of a job as the server last reported it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from coatcheck.client.addresses import Addresses
from coatcheck.client.errors import UnexpectedAnswer


@dataclass(frozen=True, slots=True)
class JobError:
    """Why the last attempt did not complete."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress that the handler reported: 0 to 1, and a note."""

    fraction: float | None
    note: str | None


@dataclass(frozen=True, slots=True)
class JobUrls:
    """The URLs to read, follow and cancel the job."""

    poll: str
    events: str
    cancel: str


def job_urls(poll: str) -> JobUrls:
    """The URLs of a job of which only the first is known."""
    return JobUrls(poll, f"{poll}/events", f"{poll}/cancel")


class JobBody:
    """The state of a job when the server was last asked.

    A new ticket has little more than ``id``, ``status`` and ``urls``; unknown fields are None.
    ``is_whole`` is false for a ticket, for a job from a listing, and for one whose result was too
    long for an event or a batch status: their result must still be fetched, even if they have ended
    (``get``, ``wait`` and ``result`` do). ``raw`` is the server's JSON. ``etag`` identifies this
    state. ``replayed``: the idempotency key was known, and this is the job that it created.
    ``mismatch``: the earlier request with the key had another payload.
    """

    __slots__ = ("etag", "is_whole", "mismatch", "raw", "replayed", "urls")

    def __init__(
        self,
        raw: Mapping[str, Any],
        headers: Mapping[str, str],
        addresses: Addresses,
        *,
        is_listed: bool = False,
    ) -> None:
        self.raw: Mapping[str, Any] = {}
        self.etag: str | None = None
        self.is_whole: bool = False
        self.learn(raw, headers.get("etag"))
        self.is_whole = self.is_whole and "id" in raw and not is_listed
        self.urls = self._urls(addresses)
        self.replayed = headers.get("idempotent-replayed") == "true"
        self.mismatch = headers.get("idempotency-mismatch") == "true"

    def learn(self, raw: Mapping[str, Any], etag: str | None) -> None:
        """Update from the server's answer."""
        if not isinstance(raw.get("terminal"), bool):
            raise UnexpectedAnswer("the answer is not a job")
        self.raw = raw
        self.etag = etag
        self.is_whole = not raw.get("result_omitted", False)
        self._text("status")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.status}>"

    @property
    def id(self) -> str:
        """The job's id, a ULID of 26 characters."""
        return self._text("id" if "id" in self.raw else "job_id")

    @property
    def status(self) -> str:
        """The job's status. A newer server may use one that this client does not know."""
        return self._text("status")

    @property
    def terminal(self) -> bool:
        """Whether the job has ended."""
        ended: bool = self.raw["terminal"]
        return ended

    @property
    def result(self) -> Any:
        """What the handler returned; None until the job has completed, or if it was omitted."""
        return self.raw.get("result_summary")

    @property
    def error(self) -> JobError | None:
        """Why the last attempt did not complete."""
        error = self.raw.get("last_error")
        return JobError(error["code"], error["message"]) if error else None

    @property
    def progress(self) -> Progress | None:
        """The latest progress that the handler reported."""
        progress = self.raw.get("progress")
        return Progress(progress["fraction"], progress["note"]) if progress else None

    @property
    def attempt_count(self) -> int | None:
        """The number of attempts, including the current one."""
        return self.raw.get("attempt_count")

    @property
    def lane(self) -> str | None:
        """``urgent``, ``standard`` or ``bulk``."""
        return self.raw.get("lane")

    @property
    def endpoint_key(self) -> str | None:
        """The endpoint, such as ``post__analyze``."""
        return self.raw.get("endpoint_key")

    @property
    def idempotency_key(self) -> str | None:
        """The idempotency key that the job was submitted with."""
        return self.raw.get("idempotency_key")

    @property
    def stalled_reason(self) -> str | None:
        """Why the job waits or runs longer than it should; None if it does not."""
        return self.raw.get("stalled_reason")

    @property
    def created_at(self) -> datetime | None:
        """When the job was submitted."""
        return self._time("created_at")

    @property
    def started_at(self) -> datetime | None:
        """When its handler started."""
        return self._time("started_at")

    @property
    def completed_at(self) -> datetime | None:
        """When it ended in any way."""
        return self._time("completed_at")

    @property
    def expires_at(self) -> datetime | None:
        """When the server deletes it."""
        return self._time("expires_at")

    def _urls(self, addresses: Addresses) -> JobUrls:
        if "poll_url" not in self.raw:
            return job_urls(addresses.job(self._text("service_id"), self.id))
        names = ("poll_url", "events_url", "cancel_url")
        return JobUrls(*(addresses.named(self._text(name)) for name in names))

    def _time(self, name: str) -> datetime | None:
        text = self.raw.get(name)
        return datetime.fromisoformat(text) if text else None

    def _text(self, name: str) -> str:
        value = self.raw.get(name)
        if not isinstance(value, str):
            raise UnexpectedAnswer(f"the answer has a job without {name}")
        return value
