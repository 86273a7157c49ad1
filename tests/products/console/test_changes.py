"""An organisation's jobs as they change, for those who may see them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coatcheck.client import AsyncClient
from coatcheck.domain.tenants import USER_SCOPES
from tests.deployment import Deployment, bearer
from tests.products.console.callers import Caller
from tests.server_sent import Sent, sent_by

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECONDS_MAX = 60


async def polled(caller: Caller, after: str = "") -> list[Sent]:
    query: dict[str, Any] = {"wait": 0} | ({"after": after} if after else {})
    answer = await caller.ask("GET", "jobs/events", params=query)
    assert answer.status_code == 200, answer.text
    return [sent async for sent in sent_by(answer) if sent.name != "reconnect"]


def told(sents: list[Sent]) -> list[tuple[str, str]]:
    return [(sent.data["id"], sent.data["state"]) for sent in sents if sent.data is not None]


async def test_an_admin_is_told_of_all_jobs_and_a_user_of_their_own(
    shared: Deployment, user: Caller, admin: Caller, org: str
) -> None:
    other = Caller(shared, org, await shared.create_key(org, "eve", USER_SCOPES))
    callers = (user, other, admin)
    start = [(await polled(caller))[-1].id or "" for caller in callers]
    theirs = (await user.ended("say", words="nook"))["id"]
    seen = [told(await polled(caller, at)) for caller, at in zip(callers, start, strict=True)]
    assert seen == [[(theirs, "completed")], [], [(theirs, "completed")]]


async def test_another_organisation_is_told_nothing(
    shared: Deployment, user: Caller, operator: Caller
) -> None:
    await shared.create_org("strangers")
    stranger = Caller(shared, "strangers", await shared.create_key("strangers", "sam"))
    start = (await polled(stranger))[-1].id or ""
    job = (await user.ended("say", words="hall"))["id"]
    assert told(await polled(stranger, start)) == []
    # Not by the name of the organisation either, unless they operate all.
    foreign = await shared.http.get(
        f"/api/v1/orgs/{user.org}/jobs/events", headers=bearer(stranger.key)
    )
    assert foreign.status_code == 404
    assert (job, "completed") in told(await polled(operator, start))


async def test_a_reader_cut_off_within_a_look_is_told_of_what_changed_after_it(
    shared: Deployment, admin: Caller
) -> None:
    start = (await polled(admin))[-1].id or ""
    first, second = [
        await shared.engine.submit("say.post__nothing", {}, org=admin.org, delay=3_600)
        for _ in range(2)
    ]
    within = next(sent for sent in await polled(admin, start) if sent.data["id"] == first.id)
    for ticket in (first, second):
        await shared.engine.cancel(ticket.id, org=admin.org)
    changed = told(await polled(admin, within.id or ""))
    assert changed == [(first.id, "cancelled"), (second.id, "cancelled")]


async def test_the_stream_tells_states_as_they_come_and_goes_on_behind_any(
    shared: Deployment, admin: Caller, org: str
) -> None:
    async with (
        asyncio.timeout(SECONDS_MAX),
        shared.http.stream(
            "GET", f"/api/v1/orgs/{org}/jobs/events", headers=bearer(admin.key)
        ) as answer,
    ):
        events = sent_by(answer)
        start = await anext(events)
        jobs = {await admin.hand_in("say", words=str(number)) for number in range(5)}
        ended: set[str] = set()
        cursors = {str(start.id): set(jobs)}
        async for sent in events:
            assert sent.name == "job"
            if sent.data["terminal"]:
                assert sent.data["id"] not in ended
                ended.add(sent.data["id"])
            cursors[str(sent.id)] = jobs - ended
            if ended == jobs:
                break
    for cursor, left in cursors.items():
        again = [job for job, state in told(await polled(admin, cursor)) if state == "completed"]
        assert len(again) == len(set(again))
        assert set(again) == left


async def test_jobs_that_wait_are_told_to_who_begins(admin: Caller, shared: Deployment) -> None:
    waiting = (await shared.engine.submit("chores.post__idle", org=admin.org, lane="bulk")).id
    ended = (await admin.ended("say", words="attic"))["id"]
    begun = told(await polled(admin))
    assert (waiting, "queued") in begun
    assert ended not in [job for job, _ in begun]
    await admin.post(f"jobs/{waiting}/cancel")


async def test_the_client_follows_all_jobs(shared: Deployment, admin: Caller, org: str) -> None:
    async with AsyncClient(str(shared.http.base_url), admin.key, org=org) as client:
        events = client.jobs.changes((await polled(admin))[-1].id)
        job = await admin.hand_in("say", words="den")
        async with asyncio.timeout(SECONDS_MAX):
            async for event in events:
                if event.data["id"] == job and event.data["terminal"]:
                    break
        await events.aclose()
        assert (event.name, event.data["state"]) == ("job", "completed")
