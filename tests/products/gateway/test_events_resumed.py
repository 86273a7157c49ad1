"""A stream that broke, taken up again: nothing is lost and nothing comes twice."""

from __future__ import annotations

import pytest

from tests.deployment import Deployment
from tests.products.gateway.asking import end_of, hand_in
from tests.products.gateway.docs_service import gates
from tests.products.gateway.sse import Event, EventReader, following

pytestmark = pytest.mark.asyncio(loop_scope="module")

LINES = 60


@pytest.mark.parametrize("by", ["header", "query"])
@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_broken_stream_goes_on_where_it_was(
    shared: Deployment, gate: str, by: str, elsewhere: bool
) -> None:
    ticket = await hand_in(shared.http, "/recite", {"gate": gate, "lines": LINES})
    broken = await EventReader.open(shared.http, ticket["events_url"])
    seen: list[Event] = []
    while len(seen) < LINES // 2:
        seen += [event for event in await broken.until("chunk") if event.id is not None]
    broken.break_off()
    gates.opened[gate].set()
    http = (await shared.start_server()).http if elsewhere else shared.http
    last = seen[-1].id
    assert last is not None
    path = ticket["events_url"] + (f"?after={last}" if by == "query" else "")
    headers = {"Last-Event-ID": last} if by == "header" else {}
    async with following(http, path, headers) as stream:
        rest = await stream.rest()
    seen += [event for event in rest if event.id is not None]
    assert [event.data["data"] for event in seen] == [*range(2 * LINES)]
    assert rest[-1].name == "end"


async def test_a_stream_cut_again_and_again_tells_everything_once(
    shared: Deployment, gate: str
) -> None:
    gates.opened[gate].set()
    ticket = await hand_in(shared.http, "/recite", {"gate": gate, "lines": 10})
    told: list[object] = []
    last = "0"
    ended = False
    while not ended:
        async with following(shared.http, ticket["events_url"], {"Last-Event-ID": last}) as stream:
            while (event := await stream.next()) is not None:
                ended = event.name == "end"
                if event.id is not None:
                    told.append(event.data["data"])
                    last = event.id
                    break
    assert told == [*range(20)]


async def test_a_browser_that_reconnects_goes_on_after_its_header_not_its_query(
    shared: Deployment,
) -> None:
    ticket = await hand_in(shared.http, "/talk", {"lines": 2})
    await end_of(shared.http, ticket)
    async with following(shared.http, ticket["events_url"]) as stream:
        ids = [event.id for event in await stream.rest() if event.id is not None]
    async with following(
        shared.http, f"{ticket['events_url']}?after={ids[0]}", {"Last-Event-ID": ids[2]}
    ) as stream:
        assert [event.id for event in await stream.rest() if event.id is not None] == ids[3:]
    async with following(
        shared.http, f"{ticket['events_url']}?after={ids[0]}", {"Last-Event-ID": ""}
    ) as stream:
        assert [event.id for event in await stream.rest() if event.id is not None] == ids[1:]


async def test_after_the_last_event_there_is_only_the_end(shared: Deployment) -> None:
    ticket = await hand_in(shared.http, "/talk", {"lines": 1})
    await end_of(shared.http, ticket)
    async with following(shared.http, ticket["events_url"]) as stream:
        ids = [event.id for event in await stream.rest() if event.id is not None]
    async with following(shared.http, f"{ticket['events_url']}?after={ids[-1]}") as stream:
        assert [event.name for event in await stream.rest()] == ["progress", "end"]
