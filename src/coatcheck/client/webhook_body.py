"""Data types for webhooks: endpoints, deliveries, secrets, and pulled messages."""

from __future__ import annotations

from datetime import datetime

import msgspec


class WebhookEndpoint(msgspec.Struct, frozen=True):
    """A receiver and its events. ``status`` is ``active``, ``paused``, or ``disabled`` after a 410.

    ``url`` is None if it is ``pulled``: then nothing is posted, and ``webhooks.take`` fetches the
    messages. Only the answer to ``webhooks.create`` has the ``secret``.
    """

    id: str
    url: str | None
    events: tuple[str, ...]
    status: str
    description: str = ""
    pulled: bool = False
    created_at: datetime | None = None
    paused_at: datetime | None = None
    disabled_at: datetime | None = None
    secret: str | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.status}>"


class WebhookSecret(msgspec.Struct, frozen=True):
    """A signing secret. After a rotation ``previous`` stays valid until ``previous_expires_at``."""

    secret: str
    previous: str | None = None
    previous_expires_at: datetime | None = None
    generation: int | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of generation {self.generation}>"


class WebhookDelivery(msgspec.Struct, frozen=True):
    """One message to one receiver. ``id`` is its ``webhook-id``.

    ``status`` is ``pending``, ``delivered``, ``exhausted`` or ``disabled``. ``paused``: it waits
    for its endpoint to be resumed.
    """

    id: str
    event: str
    status: str
    subject: str = "job"
    job_id: str | None = None
    endpoint_id: str | None = None
    url: str | None = None
    paused: bool = False
    tries: int = 0
    last_status_code: int | None = None
    last_error: str | None = None
    last_try_at: datetime | None = None
    next_try_at: datetime | None = None
    created_at: datetime | None = None
    ended_at: datetime | None = None


class WebhookMessage(msgspec.Struct, frozen=True):
    """A pulled message, to be posted with its ``headers`` and ``body`` unchanged.

    Pass it to ``webhooks.report`` with the outcome before its lease expires.
    """

    id: str
    event: str
    headers: dict[str, str]
    body: str
    lease: str
    job_id: str | None = None
    tries: int = 0


class WebhookEndpointList(msgspec.Struct, frozen=True):
    """All endpoints."""

    items: tuple[WebhookEndpoint, ...]


class TakenMessages(msgspec.Struct, frozen=True):
    """The messages fetched."""

    messages: tuple[WebhookMessage, ...]


class NotedReports(msgspec.Struct, frozen=True):
    """The messages whose lease still held."""

    noted: tuple[str, ...]


class ReplayedDeliveries(msgspec.Struct, frozen=True):
    """How many are sent again, and the cursor if there are more."""

    replayed: int
    next: str | None = None
