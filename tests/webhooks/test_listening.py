"""``coatcheck listen``: what is fetched is forwarded as it is, whatever goes away meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from coatcheck.cli import webhooks
from coatcheck.cli.webhooks import EndpointTakenAway, Forwarder, WebhookForwarder
from coatcheck.client import AsyncClient, ClientError, PermissionDeniedError, WebhookEndpoint
from coatcheck.domain.retry import Backoff
from coatcheck.domain.tenants import USER_SCOPES
from tests.deployment import Deployment, Server
from tests.egress.upstream_server import UpstreamServer, upstream_server
from tests.waiting import eventually_async
from tests.webhooks.webhook_deliveries import ORG, WebhookDeliveries, in_turn, status, verified


class Terminal:
    """A listener, what it says, and the endpoint that it has now."""

    def __init__(self, client: AsyncClient, url: str) -> None:
        self.said: list[str] = []
        self.warned: list[str] = []
        self.endpoint: WebhookEndpoint
        self._forwarder = Forwarder(url)
        self.listener = WebhookForwarder(
            client,
            self._forwarder,
            None,
            description="a test",
            say=self.said.append,
            warn=self.warned.append,
        )

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[asyncio.Task[None]]:
        self.endpoint = await self.listener.begin()
        task = asyncio.create_task(self.listener.forward(self.endpoint))
        try:
            yield task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, ClientError):
                await task
            await self.listener.end()
            await self._forwarder.__aexit__()

    async def until_said(self, words: str, *, warned: bool = False) -> str:
        lines = self.warned if warned else self.said

        async def look() -> str | None:
            return next((line for line in lines if words in line), None)

        found: str = await eventually_async(look, f"{words!r} in {lines}")
        return found


def client_of(replica: Server, deployment: Deployment, key: str | None = None) -> AsyncClient:
    return AsyncClient(str(replica.http.base_url), key or deployment.key, retries=0)


@pytest.fixture
async def terminal(hooks: WebhookDeliveries, receiver: UpstreamServer) -> AsyncIterator[Terminal]:
    async with client_of(hooks.deployment.server, hooks.deployment) as client:
        yield Terminal(client, receiver.url("/hook"))


async def endpoints(hooks: WebhookDeliveries) -> list[str]:
    return [each.id for each in await hooks.deployment.engine.webhooks.list_endpoints(ORG)]


async def test_a_message_is_forwarded_to_the_byte_and_the_endpoint_goes_at_the_end(
    hooks: WebhookDeliveries, terminal: Terminal, receiver: UpstreamServer
) -> None:
    async with terminal.listening():
        assert await endpoints(hooks) == [terminal.endpoint.id]
        job = await hooks.job_ends()
        line = await terminal.until_said(job)
        assert line.split("  ")[1:4] == ["job.cancelled", job, "200"]
        (request,) = receiver.requests
        assert (request.method, request.target) == ("POST", "/hook")
        assert terminal.endpoint.secret is not None
        assert verified(request, terminal.endpoint.secret)["data"]["id"] == job

        async def noted() -> bool:
            (item,) = await hooks.log(job_id=job)
            return bool(item["status"] == "delivered")

        await eventually_async(noted, "the server knows")
    assert await endpoints(hooks) == []
    assert terminal.warned == []


async def test_a_receiver_that_is_down_is_said_and_told_again_by_the_schedule(
    hooks: WebhookDeliveries, terminal: Terminal, receiver: UpstreamServer
) -> None:
    receiver.answer = in_turn(
        status("500 Internal Server Error"),
        status("429 Too Many Requests", retry_after="100"),
        status("204 No Content"),
    )
    async with terminal.listening():
        job = await hooks.job_ends()
        assert (await terminal.until_said("500")).endswith("next attempt in 1 s")

        async def tried(times: int) -> bool:
            (item,) = await hooks.log(job_id=job)
            return bool(item["tries"] >= times)

        await eventually_async(lambda: tried(1), "it is reported")
        await hooks.make_due()
        assert (await terminal.until_said("429")).endswith("next attempt in 100 s")
        await eventually_async(lambda: tried(2), "it is reported")
        await hooks.make_due()
        await terminal.until_said("204")
        assert len({request.header("webhook-id") for request in receiver.requests}) == 1


async def test_a_receiver_that_is_restarted_gets_what_it_missed_within_seconds(
    hooks: WebhookDeliveries, terminal: Terminal, receiver: UpstreamServer
) -> None:
    receiver.answer = in_turn(
        status("500 Internal Server Error"), status("502 Bad Gateway"), status("204 No Content")
    )
    async with terminal.listening():
        await hooks.job_ends()
        await terminal.until_said("502")
        await terminal.until_said("204")  # by the posts' schedule that would take five minutes


async def test_nobody_at_the_receivers_port_is_no_end(hooks: WebhookDeliveries) -> None:
    async with upstream_server() as gone:
        port = gone.port
    async with client_of(hooks.deployment.server, hooks.deployment) as client:
        terminal = Terminal(client, f"http://127.0.0.1:{port}/")
        async with terminal.listening() as task:
            job = await hooks.job_ends()
            line = await terminal.until_said(job)
            assert "the connection failed  next attempt in 1 s" in line
            assert not task.done()


async def test_a_server_that_restarts_is_waited_for(
    hooks: WebhookDeliveries, receiver: UpstreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "BACKOFF", Backoff(0.05, 0.1, 0.0))
    replica = await hooks.deployment.start_server()
    async with client_of(replica, hooks.deployment) as client:
        terminal = Terminal(client, receiver.url())
        async with terminal.listening() as task:
            await replica.stop()
            await terminal.until_said("; retrying", warned=True)
            job = await hooks.job_ends()
            await hooks.deployment.start_server(port=replica.http.base_url.port or 0)
            await terminal.until_said("the server is back")
            await terminal.until_said(job)
            assert not task.done()
            assert len(terminal.warned) == 1
    assert await endpoints(hooks) == []


async def test_an_endpoint_that_was_removed_while_the_server_was_away_is_made_anew(
    hooks: WebhookDeliveries, terminal: Terminal, receiver: UpstreamServer
) -> None:
    async with terminal.listening():
        terminal.listener.failures = 1  # as after an outage
        await hooks.deployment.engine.webhooks.delete_endpoint(ORG, terminal.endpoint.id)
        await hooks.job_ends()  # told to nobody; it ends the wait for a message
        await terminal.until_said("with another secret", warned=True)
        job = await hooks.job_ends()
        await terminal.until_said(job)
        (other,) = await endpoints(hooks)
        assert other != terminal.endpoint.id
    assert await endpoints(hooks) == []


async def test_an_endpoint_that_somebody_deletes_ends_it(
    hooks: WebhookDeliveries, terminal: Terminal
) -> None:
    async with terminal.listening() as task:
        await hooks.deployment.engine.webhooks.delete_endpoint(ORG, terminal.endpoint.id)
        with pytest.raises(EndpointTakenAway):
            await task
    assert terminal.warned == []


async def test_a_key_that_may_not_is_an_error_at_once(hooks: WebhookDeliveries) -> None:
    key = await hooks.deployment.create_key(scopes=USER_SCOPES)
    async with client_of(hooks.deployment.server, hooks.deployment, key) as client:
        listener = Terminal(client, "http://127.0.0.1:9/").listener
        with pytest.raises(PermissionDeniedError):
            await listener.begin()
        await listener.end()


async def test_whoever_stops_it_while_it_registers_leaves_nothing_behind(
    hooks: WebhookDeliveries, terminal: Terminal
) -> None:
    beginning = asyncio.create_task(terminal.listener.begin())
    await asyncio.sleep(0)
    beginning.cancel()
    with suppress(asyncio.CancelledError):
        await beginning
    await terminal.listener.end()
    assert await endpoints(hooks) == []
    assert terminal.warned == []


async def test_what_could_not_be_taken_away_is_said(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    replica = await hooks.deployment.start_server()
    async with client_of(replica, hooks.deployment) as client:
        terminal = Terminal(client, receiver.url())
        await terminal.listener.begin()
        await replica.stop()
        await terminal.listener.end()
    (warning,) = terminal.warned
    assert "the server removes it in 10 minutes" in warning
