"""A control plane that is told to stop: whoever waits is answered, what was accepted is safe."""

from __future__ import annotations

import asyncio

import asyncpg
import httpx2
import pytest

from tests.db.blocking import until_blocked
from tests.deployment import Deployment, Server
from tests.products.gateway import paths
from tests.products.gateway.asking import hand_in, know_docs
from tests.products.gateway.docs_service import gates
from tests.products.gateway.sse import following
from tests.waiting import eventually_async


async def test_an_open_long_poll_is_answered_202_at_once(deployment: Deployment) -> None:
    await know_docs(deployment)
    ticket = await hand_in(deployment.http, "/process")
    second = await deployment.start_server()
    polls = [
        asyncio.create_task(second.http.get(ticket["poll_url"], params={"wait": "60"})),
        asyncio.create_task(
            second.http.post(paths.submit("/process"), json={}, headers={"Prefer": "wait=60"})
        ),
        asyncio.create_task(second.http.post(paths.call("/process"), json={})),
    ]
    await until_asked(second, 3)
    await second.stop()
    for answer in await asyncio.gather(*polls):
        assert (answer.status_code, answer.json()["status"]) == (202, "queued")
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.headers["connection"] == "close"


async def test_a_long_poll_for_a_change_is_answered_304(deployment: Deployment) -> None:
    await know_docs(deployment)
    ticket = await hand_in(deployment.http, "/process")
    tag = (await deployment.http.get(ticket["poll_url"])).headers["etag"]
    second = await deployment.start_server()
    poll = asyncio.create_task(
        second.http.get(ticket["poll_url"], params={"wait": "60"}, headers={"If-None-Match": tag})
    )
    await until_asked(second, 1)
    await second.stop()
    assert (await poll).status_code == 304


async def test_an_open_stream_ends_with_the_hint_to_reconnect(
    staffed: Deployment, gate: str
) -> None:
    ticket = await hand_in(staffed.http, "/recite", {"gate": gate, "lines": 2})
    second = await staffed.start_server()
    async with following(second.http, ticket["events_url"]) as stream:
        seen = await stream.until("chunk") + await stream.until("chunk")
        await second.stop()
        rest = await stream.rest()
    assert rest[-1].name == "reconnect"
    seen += rest
    gates.opened[gate].set()
    last = [event.id for event in seen if event.id is not None][-1]
    async with following(staffed.http, f"{ticket['events_url']}?after={last}") as stream:
        seen += await stream.rest()
    assert [event.data["data"] for event in seen if event.id is not None] == [0, 1, 2, 3]


async def test_a_submit_in_flight_is_committed_and_answered(
    deployment: Deployment, dsn: str
) -> None:
    await know_docs(deployment)
    second = await deployment.start_server()
    rival = await asyncpg.connect(dsn)
    try:
        async with rival.transaction():
            await rival.execute("LOCK TABLE jobs IN EXCLUSIVE MODE")
            submit = asyncio.create_task(second.http.post(paths.submit("/process"), json={}))
            await until_blocked(rival, "coatcheck submit")
            draining = asyncio.create_task(second.stop())
            await until_refused(second.http)
        answer = await submit
        await draining
    finally:
        await rival.close()
    assert answer.status_code == 202
    kept = await deployment.http.get(answer.json()["poll_url"])
    assert (kept.status_code, kept.json()["status"]) == (200, "queued")


async def test_a_drained_server_takes_no_more_connections(deployment: Deployment) -> None:
    second = await deployment.start_server()
    await second.stop()
    with pytest.raises(httpx2.ConnectError):
        await second.http.get("/healthz")


async def until_asked(replica: Server, requests: int) -> None:
    """Wait until so many requests are under way."""

    async def look() -> bool:
        return len(replica.server.server_state.tasks) == requests

    await eventually_async(look, f"{requests} requests are under way")


async def until_refused(http: httpx2.AsyncClient) -> None:
    """Wait until the server listens no more."""

    async def look() -> bool:
        try:
            _, writer = await asyncio.open_connection(http.base_url.host, http.base_url.port)
        except ConnectionError:
            return True
        writer.close()
        return False

    await eventually_async(look, "connections are refused")
