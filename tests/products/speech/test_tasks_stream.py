"""All of a user's tasks as they change: followed, cut off anywhere, and gone on with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from coatcheck.domain.ids import from_text
from coatcheck.http.event_stream import CHANGES_PAGE
from examples.tts_remote import Fault
from tests.products.speech.studio import Headers, Studio
from tests.server_sent import Sent, sent_by
from tests.waiting import eventually_async

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECONDS_MAX = 60
STREAM = "/tasks/events"


@asynccontextmanager
async def streamed(
    studio: Studio, headers: Headers, after: str | None = None
) -> AsyncIterator[AsyncIterator[Sent]]:
    resumed = {} if after is None else {"Last-Event-ID": after}
    async with (
        asyncio.timeout(SECONDS_MAX),
        studio.http.stream("GET", STREAM, headers=headers | resumed) as answer,
    ):
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream"
        yield sent_by(answer)


async def polled(studio: Studio, headers: Headers, after: str = "") -> list[Sent]:
    """What there is behind an event, and the last id."""
    answer = await studio.http.get(
        STREAM, headers=headers, params={"wait": 0} | ({"after": after} if after else {})
    )
    assert answer.status_code == 200, answer.text
    return [sent async for sent in sent_by(answer) if sent.name != "reconnect"]


def told(sents: list[Sent]) -> list[tuple[str, str]]:
    return [(sent.data["id"], sent.data["status"]) for sent in sents if sent.data is not None]


async def stuck(studio: Studio, headers: Headers) -> str:
    studio.remote.plan(Fault("stuck_job"))
    return await studio.submitted(headers)


async def cancelled(studio: Studio, headers: Headers, task: str) -> None:
    await studio.http.post(f"/tasks/{task}/cancel", headers=headers)
    assert (await studio.ended(task, headers))["status"] == "cancelled"


async def test_tasks_are_told_as_they_change_and_only_to_their_user(studio: Studio) -> None:
    ann, ben = studio.user("ann"), studio.user("ben")
    async with streamed(studio, ann) as events:
        first = await anext(events)
        assert first.data is None  # nothing yet, and where to go on
        assert first.id
        theirs = await studio.submitted(ben)
        tasks = {await studio.submitted(ann), await studio.submitted(ann)}
        ended: dict[str, Any] = {}
        async for sent in events:
            assert sent.name == "task"
            assert sent.data["id"] in tasks
            assert sent.data["user_id"] == "ann"
            if sent.data["terminal"]:
                ended[sent.data["id"]] = sent.data
            if ended.keys() == tasks:
                break
    assert all(task["result"]["audio_url"] for task in ended.values())
    await studio.ended(theirs, ben)


async def test_a_stream_begins_with_what_has_not_ended(studio: Studio) -> None:
    headers = studio.user("begin")
    await studio.ended(await studio.submitted(headers), headers)
    going_on = await stuck(studio, headers)
    sents = await polled(studio, headers)
    assert [task for task, _ in told(sents)] == [going_on]
    await cancelled(studio, headers, going_on)


async def test_what_ended_meanwhile_is_told_once(studio: Studio) -> None:
    headers = studio.user("away")
    tasks = [await stuck(studio, headers) for _ in range(3)]
    known = (await polled(studio, headers))[-1].id
    assert known is not None
    for task in tasks:
        await cancelled(studio, headers, task)
    sents = await polled(studio, headers, known)
    assert sorted(told(sents)) == sorted((task, "cancelled") for task in tasks)
    last = sents[-1].id
    assert last is not None
    assert told(await polled(studio, headers, last)) == []


async def test_a_reader_cut_off_after_any_event_misses_none_and_gets_none_twice(
    studio: Studio,
) -> None:
    headers = studio.user("cut")
    start = (await polled(studio, headers))[-1].id or ""
    tasks = {await studio.submitted(headers) for _ in range(4)}
    for task in tasks:
        await studio.ended(task, headers)
    cursor, seen = start, []
    while True:
        sents = [sent for sent in await polled(studio, headers, cursor) if sent.data is not None]
        if not sents:
            break
        seen.append(sents[0].data["id"])
        assert sents[0].id is not None
        cursor = sents[0].id  # and the rest of the answer is lost
    assert len(seen) == len(set(seen)) == len(tasks)
    assert set(seen) == tasks


async def test_more_changes_than_a_page_are_all_told(studio: Studio) -> None:
    headers = studio.user("many")
    voice = await studio.voice(headers)
    start = (await polled(studio, headers))[-1].id or ""
    count = CHANGES_PAGE + 7
    answers = [await studio.generate(voice, headers) for _ in range(count)]
    tasks = [answer.json()["task_id"] for answer in answers]
    ended: set[str] = set()
    async with streamed(studio, headers, start) as events:
        async for sent in events:
            if sent.data is not None and sent.data["terminal"]:
                assert sent.data["id"] not in ended
                ended.add(sent.data["id"])
            if len(ended) == count:
                break
    assert ended == set(tasks)


async def test_a_commit_that_comes_late_is_not_lost(studio: Studio) -> None:
    """A change that began before a look, and is committed after a later change was told."""
    headers = studio.user("late")
    slow, quick = await stuck(studio, headers), await stuck(studio, headers)
    for task in (slow, quick):  # so that nothing else writes to them

        async def spawned(task: str = task) -> bool:
            return (await studio.task(task, headers))["modal_job_id"] is not None

        await eventually_async(spawned, "the remote has it")
    start = (await polled(studio, headers))[-1].id or ""
    connection = await asyncpg.connect(studio.deployment.settings.database_url)
    touch = "UPDATE jobs SET progress_note = 'touched', updated_at = now() WHERE id = $1"
    try:
        late = connection.transaction()
        await late.start()
        await connection.execute(touch, from_text(slow))
        other = await asyncpg.connect(studio.deployment.settings.database_url)
        try:
            await other.execute(touch, from_text(quick))
        finally:
            await other.close()
        sents = await polled(studio, headers, start)
        assert [task for task, _ in told(sents)] == [quick]
        await late.commit()
    finally:
        await connection.close()
    after = await polled(studio, headers, sents[-1].id or "")
    assert [task for task, _ in told(after)] == [slow]
    for task in (slow, quick):
        await cancelled(studio, headers, task)


@pytest.mark.parametrize(
    "cursor",
    ["x", "1", "1:2", "2:1:", "5:9:9", "5:9:8,7", "0:0:", "1:2:~", "~~", "5:9:~5:9:~short"],
)
async def test_what_is_no_event_of_the_stream_is_refused(studio: Studio, cursor: str) -> None:
    for field in ({"headers": studio.user() | {"Last-Event-ID": cursor}}, {}):
        query = {"wait": 0} | ({} if field else {"after": cursor})
        answer = await studio.http.get(
            STREAM, params=query, **(field or {"headers": studio.user()})
        )
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_parameter")


async def test_the_events_of_a_database_ahead_of_this_one_lose_nothing(studio: Studio) -> None:
    """As after a restore: what the cursor knows of this database is nothing."""
    headers = studio.user("restored")
    task = await studio.submitted(headers)
    await studio.ended(task, headers)
    ahead = f"{10**15}:{10**15}:"
    assert told(await polled(studio, headers, ahead)) == [(task, "completed")]


async def test_a_credential_without_a_user_has_no_stream(studio: Studio) -> None:
    answer = await studio.http.get(STREAM, headers=studio.machine())
    assert (answer.status_code, answer.json()["code"]) == (403, "user_required")


async def test_the_policies_hold_for_the_stream(studio: Studio) -> None:
    """Were the statement to forget its user, the database would still show no other's task."""
    headers = studio.user("walled")
    task = await stuck(studio, headers)
    connection = await asyncpg.connect(studio.deployment.settings.database_url)
    shows = await connection.fetchval(
        "SELECT pg_get_expr(polqual, polrelid) FROM pg_policy"
        " WHERE polname = 'own_rows' AND polrelid = 'generations'::regclass"
    )
    await connection.execute("ALTER POLICY own_rows ON generations USING (false)")
    try:
        assert told(await polled(studio, headers)) == []
    finally:
        await connection.execute(f"ALTER POLICY own_rows ON generations USING ({shows})")
        await connection.close()
    assert [each for each, _ in told(await polled(studio, headers))] == [task]
    await cancelled(studio, headers, task)
