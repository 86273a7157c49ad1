"""An organisation's webhooks, as routes and commands ask for them: its endpoints, their secrets,
the log, sending again, and fetching.

An endpoint of another organisation is as if it were not: NotFound.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache, partial
from http import HTTPStatus
from typing import Any, Final, TypeVar
from uuid import UUID, uuid4

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from standardwebhooks import Webhook

from coatcheck.core.queries import webhook_endpoints as endpoint_store
from coatcheck.core.queries import webhooks as webhook_store
from coatcheck.core.queries.webhooks import Claimed, Mark, Secret
from coatcheck.db.connection import Connection
from coatcheck.db.errors import retried
from coatcheck.domain.errors import (
    InvalidSubmission,
    NotFound,
    TooManyWebhookEndpoints,
    UrlForbidden,
    WebhookEndpointDeleted,
)
from coatcheck.domain.ids import InvalidId, from_text, new_id
from coatcheck.domain.webhooks import (
    DESCRIPTION_CHARACTERS_MAX,
    ENDPOINTS_MAX,
    PEACE_SECONDS_MAX,
    DeliveryEvent,
    DeliveryStatus,
    DeliveryView,
    EndpointView,
    expand_events,
    first_delivery_at,
    message_id,
    retry_seconds,
)
from coatcheck.egress.urls import read_target
from coatcheck.settings import Settings

WITH_PEACE: Final = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
"""The statuses whose Retry-After is obeyed."""


@dataclass(frozen=True, slots=True)
class ReceiverAnswer:
    """What a receiver answered, or why there is no answer. ``error`` is None if all is well.

    ``error`` has no part of the URL, nor of what was answered.
    """

    status: int | None
    error: str | None
    asked_seconds: float | None = None

    @property
    def is_gone(self) -> bool:
        return self.status == HTTPStatus.GONE


def answered(status: int, asked_seconds: float | None = None) -> ReceiverAnswer:
    """What a status means. ``asked_seconds`` is what came with it as Retry-After."""
    if 200 <= status < 300:
        return ReceiverAnswer(status, None)
    if 300 <= status < 400:
        return ReceiverAnswer(status, f"answered {status}; redirects are not followed")
    asked = None
    if status in WITH_PEACE and asked_seconds is not None:
        asked = min(max(asked_seconds, 0.0), PEACE_SECONDS_MAX)
    return ReceiverAnswer(status, f"answered {status}", asked)


def judged(
    org: str,
    delivery: UUID,
    lease: UUID,
    *,
    tries: int,
    answer: ReceiverAnswer,
    luck: float,
    fetched: bool = False,
) -> Mark:
    """What becomes of a delivery that had been tried ``tries`` times before. ``luck`` is in
    [0, 1). One that was ``fetched`` has a schedule of its own."""
    status, delay = DeliveryStatus.PENDING, None
    if answer.error is None:
        status = DeliveryStatus.DELIVERED
    elif answer.is_gone:
        status = DeliveryStatus.DISABLED
    else:
        delay = retry_seconds(tries + 1, luck, answer.asked_seconds, fetched=fetched)
        if delay is None:
            status = DeliveryStatus.EXHAUSTED
    return Mark(
        org, delivery, lease, status, answer.status, answer.error, delay, answer.asked_seconds
    )


_LABEL: Final = b"coatcheck/webhooks/v1\0"
_ENDPOINT_LABEL: Final = b"coatcheck/webhooks/endpoint/v1\0"
_SECRET_BYTES: Final = 32
_PREFIX: Final = "whsec_"


class WebhookSecrets:
    """Every secret of the deployment that has this pepper."""

    def __init__(self, pepper: str) -> None:
        self._pepper = pepper.encode()
        self._of = lru_cache(maxsize=1_000)(self._derive)

    def text(self, org: str, generation: int, endpoint: UUID | None = None) -> str:
        """A secret as receivers configure it, ``whsec_`` and base64: the organisation's, or that of
        one of its endpoints."""
        return _PREFIX + base64.b64encode(self._of(org, generation, endpoint)).decode()

    def headers(self, claimed: Claimed, body: bytes, at: datetime) -> dict[str, str]:
        """What is sent with a message: its type, its id, when it was sent, and its signatures, that
        of the present secret first."""
        event = claimed.event
        endpoint = event.target if claimed.to_endpoint else None
        message = message_id(event.id)
        # The library takes the wall clock's digits for UTC, whatever zone they are of.
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
            info = _LABEL + f"{generation}\0{org}".encode()
        else:
            info = _ENDPOINT_LABEL + f"{generation}\0{endpoint.hex}\0{org}".encode()
        hkdf = HKDF(hashes.SHA256(), _SECRET_BYTES, salt=None, info=info)
        return hkdf.derive(self._pepper)


REPLAYED_MAX: Final = 1_000
"""Deliveries that one call sends again."""
ENDED: Final = (DeliveryStatus.DELIVERED, DeliveryStatus.EXHAUSTED, DeliveryStatus.DISABLED)
FAILED: Final = (DeliveryStatus.PENDING, DeliveryStatus.EXHAUSTED, DeliveryStatus.DISABLED)
"""What a replay sends again unless it is asked for something else. Of what is pending it is what
has failed, and waits for its next try."""
_ERROR_CHARACTERS_MAX: Final = 200
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True)
class SigningSecret:
    """A secret as receivers configure it. After a rotation ``previous`` signs along for a while."""

    secret: str
    generation: int
    previous: str | None
    previous_until: datetime | None


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """How many deliveries are sent again. ``next`` is where to go on, if there may be more."""

    count: int
    next: UUID | None


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a message that was fetched: the status that its receiver answered, or else why
    there was no answer. ``asked_seconds`` is what came as Retry-After."""

    delivery: UUID
    lease: UUID
    status_code: int | None
    error: str | None = None
    asked_seconds: float | None = None


class Webhooks:
    """What an engine does for webhooks. Endpoints are named by their ``id``, a ULID."""

    def __init__(self, settings: Settings, db: Connection, list_line: Connection) -> None:
        self._settings = settings
        self._db = db
        self._list_db = list_line

    @cached_property
    def secrets(self) -> WebhookSecrets:
        """What signs. Raises SettingsInvalid where there is no pepper."""
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
        """Register an endpoint. ``url`` is None for one that is ``pulled``: fetched from with
        ``take``, and removed once nobody does for ten minutes.

        Whether the URL may be called is for the caller to ask its guard; here it is only read.
        """
        if (url is None) != pulled:
            raise InvalidSubmission("url: an endpoint has one, unless it is fetched from")
        insert = partial(
            endpoint_store.create,
            self._db,
            org,
            new_id(),
            url="" if url is None else _read_url(url),
            events=expand_events(events),
            description=_read_description(description),
            pulled=pulled,
        )
        made = await retried(insert)
        if made is None:
            raise TooManyWebhookEndpoints(
                f"The organisation has {ENDPOINTS_MAX} endpoints; delete one first."
            )
        return made

    async def list_endpoints(self, org: str) -> list[EndpointView]:
        """All of them, oldest first."""
        return await retried(partial(endpoint_store.list_all, self._db, org))

    async def get_endpoint(self, org: str, endpoint: str) -> EndpointView:
        return _found(
            await retried(partial(endpoint_store.get, self._db, org, _endpoint(endpoint)))
        )

    async def change_endpoint(
        self,
        org: str,
        endpoint: str,
        *,
        url: str | None = None,
        events: Sequence[str] | None = None,
        description: str | None = None,
    ) -> EndpointView:
        """Change what is given. One that had answered 410 is wanted again by this."""
        if url is not None and (await self.get_endpoint(org, endpoint)).pulled:
            raise InvalidSubmission("url: an endpoint that is fetched from has none")
        change = partial(
            endpoint_store.change,
            self._db,
            org,
            _endpoint(endpoint),
            url=None if url is None else _read_url(url),
            events=None if events is None else expand_events(events),
            description=None if description is None else _read_description(description),
        )
        return _found(await retried(change))

    async def pause(self, org: str, endpoint: str) -> EndpointView:
        """Have it told nothing for now. What there is to tell is noted, and waits."""
        return _found(
            await retried(partial(endpoint_store.pause, self._db, org, _endpoint(endpoint)))
        )

    async def resume(self, org: str, endpoint: str) -> EndpointView:
        """Have it told again, whether it was paused or had answered 410."""
        return _found(
            await retried(partial(endpoint_store.resume, self._db, org, _endpoint(endpoint)))
        )

    async def delete_endpoint(self, org: str, endpoint: str) -> None:
        """Remove it. What waits for it ends as ``disabled``, and stays in the log for a while."""
        delete = partial(endpoint_store.delete, self._db, org, _endpoint(endpoint))
        if not await retried(delete):
            raise NotFound

    async def secret(self, org: str, endpoint: str) -> SigningSecret:
        """What its messages are signed with."""
        named = _endpoint(endpoint)
        read = partial(endpoint_store.secret, self._db, org, named)
        return self._shown(org, named, _found(await retried(read)))

    async def rotate(self, org: str, endpoint: str, generation: int) -> SigningSecret:
        """Give it the secret after this generation's, which signs along for a day. Of two that
        replace the same one, the second changes nothing."""
        named = _endpoint(endpoint)
        rotate = partial(endpoint_store.rotate, self._db, org, named, generation)
        return self._shown(org, named, _found(await retried(rotate)))

    async def send_test(self, org: str, endpoint: str) -> DeliveryView:
        """Have a message sent to it that tells of nothing but that it works."""
        delivery = new_id()
        send = partial(endpoint_store.send_test, self._db, org, _endpoint(endpoint), delivery)
        if not await retried(send):
            raise NotFound
        return await self.delivery(org, delivery)

    # The log

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
        """Deliveries, newest first, older than ``after``: of an endpoint, of a job, task or batch,
        in a state, noted at ``since`` or later and before ``until``."""
        older_than = after
        if until is not None:
            bound = first_delivery_at(until)
            older_than = bound if after is None else min(after, bound)
        read = partial(
            webhook_store.list_page,
            self._list_db,
            org,
            after=older_than,
            subject=job,
            status=status,
            target=None if endpoint is None else (await self.get_endpoint(org, endpoint)).uuid,
            since=None if since is None else first_delivery_at(since),
            limit=limit,
        )
        return await retried(read)

    async def delivery(self, org: str, delivery: UUID) -> DeliveryView:
        return _found(await retried(partial(webhook_store.get, self._db, org, delivery)))

    async def replay(self, org: str, delivery: UUID) -> DeliveryView:
        """Have one sent again, at once and under the same id."""
        shown = _found(await retried(partial(webhook_store.replay, self._db, org, delivery)))
        if shown.status in ENDED and shown.endpoint is not None:
            read = partial(endpoint_store.get, self._db, org, shown.endpoint)
            if await retried(read) is None:
                raise WebhookEndpointDeleted("The endpoint that this was for was deleted.")
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
        """Have those sent again that were noted at ``since`` or later, before ``until``, and that
        have this status: of one endpoint, or all. Of what is pending, those whose last try failed.
        Oldest first; ``after`` goes on where the last call ended. What was for deleted endpoints is
        left out."""
        first = first_delivery_at(since)
        if after is not None:
            first = max(first, UUID(int=after.int + 1))
        replay = partial(
            webhook_store.replay_range,
            self._db,
            org,
            target=None if endpoint is None else (await self.get_endpoint(org, endpoint)).uuid,
            since=first,
            until=None if until is None else first_delivery_at(until),
            statuses=statuses,
            limit=limit,
        )
        again = await retried(replay)
        return ReplayOutcome(len(again), again[-1] if len(again) == limit else None)

    async def told_before(self, event: DeliveryEvent) -> Mapping[str, Any] | None:
        """The facts of the notice before this one, to the same target about the same subject."""
        return await retried(partial(webhook_store.told_before, self._db, event))

    # Fetching

    async def take(
        self, org: str, endpoint: str, limit: int, lease_seconds: float
    ) -> list[Claimed]:
        """Fetch messages that are due, oldest first, from an endpoint that is ``pulled``. What is
        not reported within the lease is given out again."""
        take = partial(
            endpoint_store.take,
            self._db,
            org,
            _endpoint(endpoint),
            uuid4(),
            limit=limit,
            lease_seconds=lease_seconds,
        )
        # Not sent again when its outcome is unknown: the lease would be another's.
        return _found(await take())

    async def report(self, org: str, endpoint: str, reports: Sequence[Report]) -> list[bool]:
        """Say what became of messages that were fetched, by the rules for those that are posted,
        but tried again sooner. For each, whether its lease was still held: if it was not, nothing
        is changed."""
        named = _endpoint(endpoint)
        pairs = [(each.delivery, each.lease) for each in reports]
        tries = await retried(partial(endpoint_store.held, self._db, org, named, pairs))
        marks = [
            judged(
                org,
                each.delivery,
                each.lease,
                tries=tries[each.delivery],
                answer=_answer(each),
                luck=random.random(),
                fetched=True,
            )
            for each in reports
            if each.delivery in tries
        ]
        marked = await retried(partial(webhook_store.mark, self._db, marks)) if marks else set()
        return [each.delivery in marked for each in reports]

    def _shown(self, org: str, endpoint: UUID, secret: Secret) -> SigningSecret:
        previous = None
        if secret.previous_until is not None:
            previous = self.secrets.text(org, secret.generation - 1, endpoint)
        return SigningSecret(
            self.secrets.text(org, secret.generation, endpoint),
            secret.generation,
            previous,
            secret.previous_until,
        )


def _answer(report: Report) -> ReceiverAnswer:
    if report.status_code is not None:
        return answered(report.status_code, report.asked_seconds)
    error = "".join(c for c in report.error or "" if c.isprintable())[:_ERROR_CHARACTERS_MAX]
    return ReceiverAnswer(None, error or "no answer")


def _endpoint(text: str) -> UUID:
    """The endpoint that a text names; whatever else is there names none."""
    try:
        return from_text(text)
    except InvalidId:
        raise NotFound from None


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
