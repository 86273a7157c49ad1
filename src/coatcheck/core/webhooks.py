"""An organisation's webhooks, as routes and commands ask for them: its endpoints, their secrets,
the log, sending again, and fetching.

An endpoint of another organisation is as if it were not: NotFound.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from typing import Any, Final, TypeVar
from uuid import UUID, uuid4

from coatcheck.core.queries import webhook_endpoints as endpoint_store
from coatcheck.core.queries import webhooks as webhook_store
from coatcheck.core.queries.webhooks import Claimed, Secret
from coatcheck.core.webhook_responses import Answer, answered, judged
from coatcheck.core.webhook_secrets import WebhookSecrets
from coatcheck.db.connection import Line
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
    DeliveryView,
    EndpointView,
    Notice,
    Status,
    expand_events,
    first_delivery_at,
)
from coatcheck.egress.urls import read_target
from coatcheck.settings import Settings

REPLAYED_MAX: Final = 1_000
"""Deliveries that one call sends again."""
ENDED: Final = (Status.DELIVERED, Status.EXHAUSTED, Status.DISABLED)
FAILED: Final = (Status.PENDING, Status.EXHAUSTED, Status.DISABLED)
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
class Replayed:
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

    def __init__(self, settings: Settings, line: Line, list_line: Line) -> None:
        self._settings = settings
        self._line = line
        self._list_line = list_line

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
            self._line,
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
        return await retried(partial(endpoint_store.list_all, self._line, org))

    async def get_endpoint(self, org: str, endpoint: str) -> EndpointView:
        return _found(
            await retried(partial(endpoint_store.get, self._line, org, _endpoint(endpoint)))
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
            self._line,
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
            await retried(partial(endpoint_store.pause, self._line, org, _endpoint(endpoint)))
        )

    async def resume(self, org: str, endpoint: str) -> EndpointView:
        """Have it told again, whether it was paused or had answered 410."""
        return _found(
            await retried(partial(endpoint_store.resume, self._line, org, _endpoint(endpoint)))
        )

    async def delete_endpoint(self, org: str, endpoint: str) -> None:
        """Remove it. What waits for it ends as ``disabled``, and stays in the log for a while."""
        delete = partial(endpoint_store.delete, self._line, org, _endpoint(endpoint))
        if not await retried(delete):
            raise NotFound

    async def secret(self, org: str, endpoint: str) -> SigningSecret:
        """What its messages are signed with."""
        named = _endpoint(endpoint)
        read = partial(endpoint_store.secret, self._line, org, named)
        return self._shown(org, named, _found(await retried(read)))

    async def rotate(self, org: str, endpoint: str, generation: int) -> SigningSecret:
        """Give it the secret after this generation's, which signs along for a day. Of two that
        replace the same one, the second changes nothing."""
        named = _endpoint(endpoint)
        rotate = partial(endpoint_store.rotate, self._line, org, named, generation)
        return self._shown(org, named, _found(await retried(rotate)))

    async def send_test(self, org: str, endpoint: str) -> DeliveryView:
        """Have a message sent to it that tells of nothing but that it works."""
        delivery = new_id()
        send = partial(endpoint_store.send_test, self._line, org, _endpoint(endpoint), delivery)
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
        status: Status | None = None,
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
            self._list_line,
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
        return _found(await retried(partial(webhook_store.get, self._line, org, delivery)))

    async def replay(self, org: str, delivery: UUID) -> DeliveryView:
        """Have one sent again, at once and under the same id."""
        shown = _found(await retried(partial(webhook_store.replay, self._line, org, delivery)))
        if shown.status in ENDED and shown.endpoint is not None:
            read = partial(endpoint_store.get, self._line, org, shown.endpoint)
            if await retried(read) is None:
                raise WebhookEndpointDeleted("The endpoint that this was for was deleted.")
        return shown

    async def replay_range(
        self,
        org: str,
        endpoint: str | None,
        since: datetime,
        until: datetime | None,
        statuses: Sequence[Status] = FAILED,
        *,
        after: UUID | None = None,
        limit: int = REPLAYED_MAX,
    ) -> Replayed:
        """Have those sent again that were noted at ``since`` or later, before ``until``, and that
        have this status: of one endpoint, or all. Of what is pending, those whose last try failed.
        Oldest first; ``after`` goes on where the last call ended. What was for deleted endpoints is
        left out."""
        first = first_delivery_at(since)
        if after is not None:
            first = max(first, UUID(int=after.int + 1))
        replay = partial(
            webhook_store.replay_range,
            self._line,
            org,
            target=None if endpoint is None else (await self.get_endpoint(org, endpoint)).uuid,
            since=first,
            until=None if until is None else first_delivery_at(until),
            statuses=statuses,
            limit=limit,
        )
        again = await retried(replay)
        return Replayed(len(again), again[-1] if len(again) == limit else None)

    async def told_before(self, notice: Notice) -> Mapping[str, Any] | None:
        """The facts of the notice before this one, to the same target about the same subject."""
        return await retried(partial(webhook_store.told_before, self._line, notice))

    # Fetching

    async def take(
        self, org: str, endpoint: str, limit: int, lease_seconds: float
    ) -> list[Claimed]:
        """Fetch messages that are due, oldest first, from an endpoint that is ``pulled``. What is
        not reported within the lease is given out again."""
        take = partial(
            endpoint_store.take,
            self._line,
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
        tries = await retried(partial(endpoint_store.held, self._line, org, named, pairs))
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
        marked = await retried(partial(webhook_store.mark, self._line, marks)) if marks else set()
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


def _answer(report: Report) -> Answer:
    if report.status_code is not None:
        return answered(report.status_code, report.asked_seconds)
    error = "".join(c for c in report.error or "" if c.isprintable())[:_ERROR_CHARACTERS_MAX]
    return Answer(None, error or "no answer")


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
