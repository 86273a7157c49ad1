"""A deployment that delivers webhooks, receivers on sockets, and what they were told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

from standardwebhooks import Webhook

from coatcheck import Ticket
from coatcheck.core.queries import maintenance, webhooks
from coatcheck.core.webhooks import WebhookSecrets
from coatcheck.domain.webhooks import target_id
from coatcheck.egress import Guard
from coatcheck.maintenance.webhooks import LEASE_SECONDS, WebhookDeliverer
from tests.all_products import payloads
from tests.db.rows import expire
from tests.deployment import PEPPER, Deployment
from tests.egress.upstream_server import Answer, Request, UpstreamServer, plain
from tests.waiting import eventually_async

ORG = "default"
LOG = f"/api/v1/orgs/{ORG}/webhooks/deliveries"


class WebhookDeliveries:
    """What a test does with webhooks. The deliverers of a test are stopped at its end."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.sql = deployment.sql

    # Delivering

    @asynccontextmanager
    async def deliverer(
        self,
        *,
        guard: Guard | None = None,
        post_seconds_max: float = 15.0,
        lease_seconds: float = LEASE_SECONDS,
    ) -> AsyncIterator[WebhookDeliverer]:
        """One that ticks when the test says so."""
        deliverer = WebhookDeliverer(
            self.deployment.settings,
            payloads(self.deployment.context).body,
            self.deployment.engine.database,
            guard=guard,
            post_seconds_max=post_seconds_max,
            lease_seconds=lease_seconds,
        )
        try:
            yield deliverer
        finally:
            await deliverer.stop()

    async def deliver_due(self, deliverer: WebhookDeliverer) -> None:
        """Post what is due now, and wait until it is marked."""
        await deliverer.tick()
        await deliverer.idle()

    @asynccontextmanager
    async def delivering(self, **options: Any) -> AsyncIterator[WebhookDeliverer]:
        """One that runs by itself, as that of a server does."""
        async with self.deliverer(**options) as deliverer:
            await deliverer.begin()
            yield deliverer

    async def make_due(self) -> None:
        """Let the time come for every try that is waiting, and for every lease to end."""
        await self.sql.execute("UPDATE webhook_deliveries SET due_at = now() WHERE due_at > now()")
        await self.sql.execute("UPDATE webhook_targets SET not_before = NULL")

    # Jobs and what is told of them

    async def submit(
        self, url: str, endpoint: str = "things.post__thing", **options: Any
    ) -> Ticket:
        return await self.deployment.engine.submit(endpoint, {}, webhook_url=url, **options)

    async def ended(self, url: str, **options: Any) -> Ticket:
        """A job that has ended, whose webhook waits."""
        ticket = await self.submit(url, delay=3_600, **options)
        await self.deployment.engine.cancel(ticket.id, org=options.get("org", ORG))
        return ticket

    async def job_ends(self) -> str:
        """The id of a job that has ended, and named nobody to be told."""
        ticket = await self.deployment.engine.submit("things.post__thing", {}, delay=3_600)
        await self.deployment.engine.cancel(ticket.id)
        return ticket.id

    async def forget_jobs(self) -> None:
        """Let the retention of every job end."""
        ended = await self.sql.fetch("SELECT id FROM jobs")
        await expire(self.sql, *(job["id"] for job in ended))
        await maintenance.prune(self.deployment.connection, 500)
        assert await self.sql.fetchval("SELECT count(*) FROM jobs") == 0

    async def delivery_of(self, ticket: Ticket) -> dict[str, Any]:
        """The one entry of the log about a job."""
        (item,) = await self.log(job_id=ticket.id)
        return item

    async def log(self, **query: str) -> list[dict[str, Any]]:
        answer = await self.deployment.http.get(LOG, params=query)
        assert answer.status_code == 200, answer.text
        items: list[dict[str, Any]] = answer.json()["items"]
        return items

    async def until(self, ticket: Ticket, status: str) -> dict[str, Any]:
        """The log's entry once it is so."""

        async def look() -> dict[str, Any] | None:
            items = await self.log(job_id=ticket.id)
            return items[0] if items and items[0]["status"] == status else None

        found: dict[str, Any] = await eventually_async(look, f"the delivery is {status}")
        return found

    async def replay(self, message: str) -> dict[str, Any]:
        answer = await self.deployment.http.post(f"{LOG}/{message}/replay")
        assert answer.status_code == 202, answer.text
        shown: dict[str, Any] = answer.json()
        return shown

    async def secret(self) -> dict[str, str]:
        answer = await self.deployment.http.get(f"/api/v1/orgs/{ORG}/webhooks/secret")
        assert answer.status_code == 200, answer.text
        shown: dict[str, str] = answer.json()
        return shown

    # Rows of the outbox that no job wrote

    async def put(self, url: str, *, org: str = ORG, **columns: Any) -> UUID:
        target = target_id(org, url)
        await webhooks.upsert_targets(self.sql, [(org, target, url)])
        row: dict[str, Any] = {
            "org_id": org,
            "target_id": target,
            "subject_kind": "job",
            "subject_id": uuid4(),
            "event": "job.completed",
            "facts": '{"state": "completed", "attempt": 1, "endpoint": "things.post__thing"}',
            **columns,
        }
        names, numbers = ", ".join(row), ", ".join(f"${at}" for at in range(1, len(row) + 1))
        made: UUID = await self.sql.fetchval(
            f"INSERT INTO webhook_deliveries ({names}) VALUES ({numbers}) RETURNING id",
            *row.values(),
        )
        return made

    async def status_of(self, delivery: UUID) -> str:
        status: str = await self.sql.fetchval(
            "SELECT status FROM webhook_deliveries WHERE id = $1", delivery
        )
        return status


def verified(request: Request, secret: str) -> Any:
    """What was told, as the specification's own library takes it."""
    return Webhook(secret).verify(request.body, dict(request.headers))


def first_secret(org: str = ORG) -> str:
    return WebhookSecrets(PEPPER).text(org, 1)


def ids_of(receiver: UpstreamServer) -> list[str | None]:
    return [request.header("webhook-id") for request in receiver.requests]


def in_turn(*answers: Answer) -> Answer:
    """One answer after the other; the last one from then on."""
    left = list(answers)

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(request, writer)

    return answer


def status(line: str, **headers: str) -> Answer:
    return plain(status=line, headers=tuple((k.replace("_", "-"), v) for k, v in headers.items()))


def held(until: asyncio.Event) -> Answer:
    """An answer that waits for the test."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        await until.wait()
        await plain()(request, writer)

    return answer


async def until_called(receiver: UpstreamServer, times: int = 1) -> None:
    async def look() -> bool:
        return len(receiver.requests) >= times

    await eventually_async(look, f"the receiver was called {times} times")
