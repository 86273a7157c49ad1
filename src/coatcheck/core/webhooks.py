"""An organisation's webhooks: endpoints, their secrets, the delivery log, resending and pulling.

Another organisation's endpoint raises NotFound, like one that does not exist.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from http import HTTPStatus
from typing import Any, Final, TypeVar
from uuid import UUID, uuid4

import msgspec
from standardwebhooks import Webhook

from coatcheck.core.queries import sql
from coatcheck.core.queries import webhooks as webhook_store
from coatcheck.core.queries.webhooks import Claimed, Mark, as_claimed
from coatcheck.db.connection import Connection, RawConnection
from coatcheck.db.queries import Row, in_transaction
from coatcheck.domain.errors import (
    InvalidSubmission,
    NotFound,
    TooManyWebhookEndpoints,
    UrlForbidden,
    WebhookEndpointDeleted,
)
from coatcheck.domain.ids import InvalidId, from_text, new_id, to_text
from coatcheck.domain.webhooks import (
    DESCRIPTION_CHARACTERS_MAX,
    ENDPOINTS_MAX,
    PREVIOUS_SECRET_SECONDS,
    RETRY_AFTER_SECONDS_MAX,
    TEST_EVENT,
    DeliveryEvent,
    DeliveryStatus,
    DeliveryView,
    EndpointView,
    SubjectKind,
    expand_events,
    first_delivery_at,
    message_id,
    retry_seconds,
)
from coatcheck.egress.urls import read_target
from coatcheck.sealing import derived
from coatcheck.settings import Settings

RETRY_AFTER_STATUSES: Final = frozenset(
    {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}
)
"""The statuses whose Retry-After is obeyed."""


@dataclass(frozen=True, slots=True)
class ReceiverAnswer:
    """A receiver's answer, or why there was none. ``error`` is None for a success.

    ``error`` contains no part of the URL or of the response.
    """

    status: int | None
    error: str | None
    asked_seconds: float | None = None

    @property
    def is_gone(self) -> bool:
        return self.status == HTTPStatus.GONE


def answer_of(status: int, asked_seconds: float | None = None) -> ReceiverAnswer:
    """Interpret a receiver's status. ``asked_seconds`` is the Retry-After that came with it."""
    if 200 <= status < 300:
        return ReceiverAnswer(status, None)
    if 300 <= status < 400:
        return ReceiverAnswer(status, f"answered {status}; redirects are not followed")
    asked = None
    if status in RETRY_AFTER_STATUSES and asked_seconds is not None:
        asked = min(max(asked_seconds, 0.0), RETRY_AFTER_SECONDS_MAX)
    return ReceiverAnswer(status, f"answered {status}", asked)


def mark_of(
    org: str,
    delivery: UUID,
    lease: UUID,
    *,
    tries: int,
    answer: ReceiverAnswer,
    luck: float,
    pulled: bool = False,
) -> Mark:
    """The outcome of a delivery that had been tried ``tries`` times before. ``luck`` is in [0, 1).
    A ``pulled`` delivery has its own retry schedule."""
    status, delay = DeliveryStatus.PENDING, None
    if answer.error is None:
        status = DeliveryStatus.DELIVERED
    elif answer.is_gone:
        status = DeliveryStatus.DISABLED
    else:
        delay = retry_seconds(tries + 1, luck, answer.asked_seconds, pulled=pulled)
        if delay is None:
            status = DeliveryStatus.EXHAUSTED
    return Mark(
        org, delivery, lease, status, answer.status, answer.error, delay, answer.asked_seconds
    )


_LABEL: Final = "coatcheck/webhooks/v1\0"
_ENDPOINT_LABEL: Final = "coatcheck/webhooks/endpoint/v1\0"
_SECRET_BYTES: Final = 32
_PREFIX: Final = "whsec_"


class WebhookSecrets:
    """Derives every signing secret of a deployment from its pepper."""

    def __init__(self, pepper: str) -> None:
        self._pepper = pepper
        self._of = lru_cache(maxsize=1_000)(self._derive)

    def text(self, org: str, generation: int, endpoint: UUID | None = None) -> str:
        """A secret as receivers configure it, ``whsec_`` and base64: the organisation's, or one
        endpoint's."""
        return _PREFIX + base64.b64encode(self._of(org, generation, endpoint)).decode()

    def headers(self, claimed: Claimed, body: bytes, at: datetime) -> dict[str, str]:
        """The headers of a message: its type, id and time, and its signatures, that of the current
        secret first."""
        event = claimed.event
        endpoint = event.target if claimed.to_endpoint else None
        message = message_id(event.id)
        # The library reads the local time's digits as UTC, whatever the zone.
        moment, text = at.astimezone(UTC), body.decode()
        signatures = [
            Webhook(self._of(event.org, generation, endpoint)).sign(message, moment, text)
            for generation in claimed.generations
        ]
        return {
            "content-type": "application/json",
            "webhook-id": message,
            "webhook-timestamp": str(int(moment.timestamp())),
            "webhook-signature": " ".join(signatures),
        }

    def _derive(self, org: str, generation: int, endpoint: UUID | None) -> bytes:
        if endpoint is None:
            label = f"{_LABEL}{generation}\0{org}"
        else:
            label = f"{_ENDPOINT_LABEL}{generation}\0{endpoint.hex}\0{org}"
        return derived(self._pepper, label, _SECRET_BYTES)


REPLAYED_MAX: Final = 1_000
"""How many deliveries one call sends again."""
ENDED: Final = (DeliveryStatus.DELIVERED, DeliveryStatus.EXHAUSTED, DeliveryStatus.DISABLED)
FAILED: Final = (DeliveryStatus.PENDING, DeliveryStatus.EXHAUSTED, DeliveryStatus.DISABLED)
"""The default selection of a replay. Of pending deliveries it takes those that have failed and
wait for a retry."""
_ERROR_CHARACTERS_MAX: Final = 200
_CREATE_LOCK: Final = 0x436F_5765  # "CoWe"
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class SigningSecret:
    """A secret as receivers configure it. After a rotation ``previous`` stays valid for a while."""

    secret: str
    generation: int
    previous: str | None
    previous_until: datetime | None


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """How many deliveries are sent again. ``next`` is where to continue, if there may be more."""

    count: int
    next: UUID | None


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a pulled message: the receiver's status, or why there was no answer.
    ``asked_seconds`` is its Retry-After."""

    delivery: UUID
    lease: UUID
    status_code: int | None
    error: str | None = None
    asked_seconds: float | None = None


class Webhooks:
    """Manages an organisation's webhooks. An endpoint's ``id`` is a ULID."""

    def __init__(self, settings: Settings, db: Connection, list_db: Connection) -> None:
        self._settings = settings
        self._db = db
        self._list_db = list_db

    @cached_property
    def secrets(self) -> WebhookSecrets:
        """The signing secrets. Raises SettingsInvalid if no pepper is set."""
        return WebhookSecrets(self._settings.require("key_pepper"))

    # Endpoints

    async def create_endpoint(
        self,
        org: str,
        url: str | None,
        events: Sequence[str],
        description: str = "",
        *,
        pulled: bool = False,
    ) -> EndpointView:
        """Register an endpoint. ``url`` is None for a ``pulled`` one: its messages are fetched with
        ``take``, and it is removed after ten minutes without a fetch.

        The caller checks whether the URL may be called; here only its form is checked.
        """
        if (url is None) != pulled:
            raise InvalidSubmission("url: required, unless the endpoint is pulled")
        new = {
            "endpoint": new_id(),
            "url": "" if url is None else _read_url(url),
            "events": expand_events(events),
            "description": _read_description(description),
            "pulled": pulled,
        }

        async def insert(connection: RawConnection) -> Row | None:
            await sql.fetch(connection, "webhooks/lock_endpoints", lock=_CREATE_LOCK, org=org)
            return await sql.first(
                connection, "webhooks/create_endpoint", org=org, endpoints_max=ENDPOINTS_MAX, **new
            )

        row = await in_transaction(self._db, insert)
        if row is None:
            raise TooManyWebhookEndpoints(
                f"The organisation has {ENDPOINTS_MAX} endpoints; delete one first."
            )
        return _endpoint_view(row)

    async def list_endpoints(self, org: str) -> list[EndpointView]:
        """All endpoints, oldest first."""
        rows = await sql.fetch(self._db, "webhooks/list_endpoints", org=org, endpoint=None)
        return [_endpoint_view(row) for row in rows]

    async def get_endpoint(self, org: str, endpoint: str) -> EndpointView:
        return await self._one("webhooks/list_endpoints", org, endpoint)

    async def _one(self, statement: str, org: str, endpoint: str, **values: Any) -> EndpointView:
        """The endpoint that a statement reads or changes."""
        row = await sql.first(self._db, statement, org=org, endpoint=_endpoint(endpoint), **values)
        return _endpoint_view(_found(row))

    async def change_endpoint(
        self,
        org: str,
        endpoint: str,
        *,
        url: str | None = None,
        events: Sequence[str] | None = None,
        description: str | None = None,
    ) -> EndpointView:
        """Change the given fields. This enables an endpoint again that had answered 410."""
        if url is not None and (await self.get_endpoint(org, endpoint)).pulled:
            raise InvalidSubmission("url: a pulled endpoint has none")
        return await self._one(
            "webhooks/change_endpoint",
            org,
            endpoint,
            url=None if url is None else _read_url(url),
            events=None if events is None else expand_events(events),
            description=None if description is None else _read_description(description),
        )

    async def pause(self, org: str, endpoint: str) -> EndpointView:
        """Stop sending to it for now. Its messages wait."""
        return await self._one("webhooks/pause_endpoint", org, endpoint)

    async def resume(self, org: str, endpoint: str) -> EndpointView:
        """Send to it again, after a pause or a 410."""
        return await self._one("webhooks/resume_endpoint", org, endpoint)

    async def delete_endpoint(self, org: str, endpoint: str) -> None:
        """Remove it. Its pending deliveries end as ``disabled`` and stay in the log for a while."""
        _found(
            await sql.first(
                self._db, "webhooks/delete_endpoint", org=org, endpoint=_endpoint(endpoint)
            )
        )

    async def secret(self, org: str, endpoint: str | None = None) -> SigningSecret:
        """The secret that signs the messages of an endpoint, or those to URLs that the
        organisation's submissions name."""
        seconds = float(PREVIOUS_SECRET_SECONDS)
        if endpoint is None:
            named = None
            row = await sql.first(self._db, "webhooks/secret", org=org, previous_seconds=seconds)
            generation, previous_until, previous_signs = row or (1, None, False)
        else:
            named = _endpoint(endpoint)
            row = await sql.first(
                self._db,
                "webhooks/endpoint_secret",
                org=org,
                endpoint=named,
                previous_seconds=seconds,
            )
            generation, previous_until, previous_signs = _found(row)
        return SigningSecret(
            self.secrets.text(org, generation, named),
            generation,
            self.secrets.text(org, generation - 1, named) if previous_signs else None,
            previous_until if previous_signs else None,
        )

    async def rotate(self, org: str, endpoint: str | None, generation: int) -> SigningSecret:
        """Replace such a secret by the next one; that of ``generation`` stays valid for a day. If
        two calls replace the same secret, the second changes nothing."""
        if endpoint is None:
            await sql.fetch(self._db, "webhooks/rotate", org=org, generation=generation)
        else:
            await sql.fetch(
                self._db,
                "webhooks/rotate_endpoint",
                org=org,
                endpoint=_endpoint(endpoint),
                generation=generation,
            )
        return await self.secret(org, endpoint)

    async def send_test(self, org: str, endpoint: str) -> DeliveryView:
        """Send it a test message."""
        delivery = new_id()
        written = await sql.first(
            self._db,
            "webhooks/test_endpoint",
            org=org,
            endpoint=_endpoint(endpoint),
            delivery=delivery,
            event=TEST_EVENT,
        )
        _found(written)
        return await self.delivery(org, delivery)

    # Deliveries

    async def deliveries(
        self,
        org: str,
        *,
        endpoint: str | None = None,
        job: UUID | None = None,
        status: DeliveryStatus | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        after: UUID | None = None,
        limit: int,
    ) -> list[DeliveryView]:
        """Deliveries, newest first, older than ``after``: of an endpoint; of a job, task or batch;
        with a status; created at ``since`` or later and before ``until``."""
        older_than = after
        if until is not None:
            bound = first_delivery_at(until)
            older_than = bound if after is None else min(after, bound)
        rows = await sql.fetch(
            self._list_db,
            "webhooks/list",
            org=org,
            before=older_than,
            subject=job,
            status=None if status is None else status.value,
            target=None if endpoint is None else (await self.get_endpoint(org, endpoint)).uuid,
            since=None if since is None else first_delivery_at(since),
            limit=limit,
        )
        return [_delivery_view(row) for row in rows]

    async def delivery(self, org: str, delivery: UUID) -> DeliveryView:
        row = await sql.first(self._db, "webhooks/get", org=org, delivery=delivery)
        return _delivery_view(_found(row))

    async def replay(self, org: str, delivery: UUID) -> DeliveryView:
        """Send a delivery again, at once and under the same id."""
        await sql.fetch(self._db, "webhooks/replay", org=org, delivery=delivery)
        shown = await self.delivery(org, delivery)
        if shown.endpoint is not None and shown.status in ENDED:
            try:
                await self.get_endpoint(org, to_text(shown.endpoint))
            except NotFound:
                raise WebhookEndpointDeleted("The endpoint of this delivery was deleted.") from None
        return shown

    async def replay_range(
        self,
        org: str,
        endpoint: str | None,
        since: datetime,
        until: datetime | None,
        statuses: Sequence[DeliveryStatus] = FAILED,
        *,
        after: UUID | None = None,
        limit: int = REPLAYED_MAX,
    ) -> ReplayOutcome:
        """Send deliveries again that were created from ``since`` to ``until`` and have one of
        these statuses: of one endpoint, or of all. Of pending ones, those whose last try failed.
        Oldest first; ``after`` continues where the last call ended. Deliveries of deleted
        endpoints are left out."""
        first = first_delivery_at(since)
        if after is not None:
            first = max(first, UUID(int=after.int + 1))
        again = await sql.fetch(
            self._db,
            "webhooks/replay_range",
            org=org,
            target=None if endpoint is None else (await self.get_endpoint(org, endpoint)).uuid,
            since=first,
            until=None if until is None else first_delivery_at(until),
            statuses=[status.value for status in statuses],
            limit=limit,
        )
        return ReplayOutcome(len(again), again[-1]["id"] if len(again) == limit else None)

    async def previous_facts(self, event: DeliveryEvent) -> Mapping[str, Any] | None:
        """The facts of the previous delivery to the same target about the same subject."""
        facts = await sql.value(
            self._db,
            "webhooks/previous_facts",
            org=event.org,
            subject=event.subject,
            target=event.target,
            delivery=event.id,
        )
        return None if facts is None else msgspec.json.decode(facts, type=dict[str, Any])

    # Pulling

    async def take(
        self, org: str, endpoint: str, limit: int, lease_seconds: float
    ) -> list[Claimed]:
        """Fetch due messages of a ``pulled`` endpoint, oldest first. A message that is not reported
        within the lease is handed out again."""
        lease = uuid4()
        rows = await sql.fetch(
            self._db,
            "webhooks/pull",
            org=org,
            endpoint=_endpoint(endpoint),
            rows_max=limit,
            lease_seconds=lease_seconds,
            lease=lease,
        )
        if not rows:
            raise NotFound
        return [as_claimed(row, lease) for row in rows if row["id"] is not None]

    async def report(self, org: str, endpoint: str, reports: Sequence[Report]) -> list[bool]:
        """Report the outcome of pulled messages. The rules are those of posted ones, with earlier
        retries. Returns for each whether its lease was still held; if not, nothing changes."""
        held = await sql.fetch(
            self._db,
            "webhooks/held",
            org=org,
            endpoint=_endpoint(endpoint),
            deliveries=[each.delivery for each in reports],
            leases=[each.lease for each in reports],
        )
        tries = {row["id"]: row["tries"] for row in held}
        marks = [
            mark_of(
                org,
                each.delivery,
                each.lease,
                tries=tries[each.delivery],
                answer=_answer(each),
                luck=random.random(),
                pulled=True,
            )
            for each in reports
            if each.delivery in tries
        ]
        marked = await webhook_store.mark(self._db, marks) if marks else set()
        return [each.delivery in marked for each in reports]


def _answer(report: Report) -> ReceiverAnswer:
    if report.status_code is not None:
        return answer_of(report.status_code, report.asked_seconds)
    error = "".join(c for c in report.error or "" if c.isprintable())[:_ERROR_CHARACTERS_MAX]
    return ReceiverAnswer(None, error or "no answer")


def _endpoint(text: str) -> UUID:
    """The id of an endpoint. Raises NotFound for any text that is not an id."""
    try:
        return from_text(text)
    except InvalidId:
        raise NotFound from None


def _endpoint_view(row: Row) -> EndpointView:
    org, endpoint, url, events, *rest = row
    return EndpointView(org, endpoint, url, tuple(events), *rest)


def _delivery_view(row: Row) -> DeliveryView:
    org, delivery, kind, subject, run, event, url, endpoint, paused, status, *rest = row
    return DeliveryView(
        org,
        delivery,
        SubjectKind(kind),
        subject,
        run,
        event,
        url,
        endpoint,
        paused or False,
        DeliveryStatus(status),
        *rest,
    )


def _found(value: _Found | None) -> _Found:
    if value is None:
        raise NotFound
    return value


def _read_url(url: str) -> str:
    try:
        read_target(url)
    except UrlForbidden as error:
        raise UrlForbidden(f"url: {error}") from None
    return url


def _read_description(text: str) -> str:
    if len(text) > DESCRIPTION_CHARACTERS_MAX or "\0" in text:
        raise InvalidSubmission(
            f"description: must have at most {DESCRIPTION_CHARACTERS_MAX} characters, no NUL"
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidSubmission("description: has half of a surrogate pair") from None
    return text
