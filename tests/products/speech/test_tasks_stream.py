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
from tests.products.speech.speech_deployment import Headers, SpeechDeployment
from tests.server_sent import Sent, sent_by
from tests.waiting import eventually_async

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECONDS_MAX = 60
STREAM = "/tasks/events"


@asynccontextmanager
async def streamed(
    speech: SpeechDeployment, headers: Headers, after: str | None = None
) -> AsyncIterator[AsyncIterator[Sent]]:
    resumed = {} if after is None else {"Last-Event-ID": after}
    async with (
        asyncio.timeout(SECONDS_MAX),
        speech.http.stream("GET", STREAM, headers=headers | resumed) as answer,
    ):
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream"
        yield sent_by(answer)


async def polled(speech: SpeechDeployment, headers: Headers, after: str = "") -> list[Sent]:
    """What there is behind an event, and the last id."""
    answer = await speech.http.get(
        STREAM, headers=headers, params={"wait": 0} | ({"after": after} if after else {})
    )
    assert answer.status_code == 200, answer.text
    return [sent async for sent in sent_by(answer) if sent.name != "reconnect"]


def told(sents: list[Sent]) -> list[tuple[str, str]]:
    return [(sent.data["id"], sent.data["status"]) for sent in sents if sent.data is not None]


async def stuck(speech: SpeechDeployment, headers: Headers) -> str:
    speech.remote.plan(Fault("stuck_job"))
    return await speech.submitted(headers)


async def cancelled(speech: SpeechDeployment, headers: Headers, task: str) -> None:
    await speech.http.post(f"/tasks/{task}/cancel", headers=headers)
    assert (await speech.ended(task, headers))["status"] == "cancelled"


async def test_tasks_are_told_as_they_change_and_only_to_their_user(
    speech: SpeechDeployment,
) -> None:
    ann, ben = speech.user("ann"), speech.user("ben")
    async with streamed(speech, ann) as events:
        first = await anext(events)
        assert first.data is None  # nothing yet, and where to go on
        assert first.id
        theirs = await speech.submitted(ben)
        tasks = {await speech.submitted(ann), await speech.submitted(ann)}
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
    await speech.ended(theirs, ben)


async def test_a_stream_begins_with_what_has_not_ended(speech: SpeechDeployment) -> None:
    headers = speech.user("begin")
    await speech.ended(await speech.submitted(headers), headers)
    going_on = await stuck(speech, headers)
    sents = await polled(speech, headers)
    assert [task for task, _ in told(sents)] == [going_on]
    await cancelled(speech, headers, going_on)


async def test_what_ended_meanwhile_is_told_once(speech: SpeechDeployment) -> None:
    headers = speech.user("away")
    tasks = [await stuck(speech, headers) for _ in range(3)]
    known = (await polled(speech, headers))[-1].id
    assert known is not None
    for task in tasks:
        await cancelled(speech, headers, task)
    sents = await polled(speech, headers, known)
    assert sorted(told(sents)) == sorted((task, "cancelled") for task in tasks)
    last = sents[-1].id
    assert last is not None
    assert told(await polled(speech, headers, last)) == []


async def test_a_reader_cut_off_after_any_event_misses_none_and_gets_none_twice(
    speech: SpeechDeployment,
) -> None:
    headers = speech.user("cut")
    start = (await polled(speech, headers))[-1].id or ""
    tasks = {await speech.submitted(headers) for _ in range(4)}
    for task in tasks:
        await speech.ended(task, headers)
    cursor, seen = start, []
    while True:
        sents = [sent for sent in await polled(speech, headers, cursor) if sent.data is not None]
        if not sents:
            break
        seen.append(sents[0].data["id"])
        assert sents[0].id is not None
        cursor = sents[0].id  # and the rest of the answer is lost
    assert len(seen) == len(set(seen)) == len(tasks)
    assert set(seen) == tasks


async def test_more_changes_than_a_page_are_all_told(speech: SpeechDeployment) -> None:
    headers = speech.user("many")
    voice = await speech.voice(headers)
    start = (await polled(speech, headers))[-1].id or ""
    count = CHANGES_PAGE + 7
    answers = [await speech.generate(voice, headers) for _ in range(count)]
    tasks = [answer.json()["task_id"] for answer in answers]
    ended: set[str] = set()
    async with streamed(speech, headers, start) as events:
        async for sent in events:
            if sent.data is not None and sent.data["terminal"]:
                assert sent.data["id"] not in ended
                ended.add(sent.data["id"])
            if len(ended) == count:
                break
    assert ended == set(tasks)


async def test_a_commit_that_comes_late_is_not_lost(speech: SpeechDeployment) -> None:
    """A change that began before a look, and is committed after a later change was told."""
    headers = speech.user("late")
    slow, quick = await stuck(speech, headers), await stuck(speech, headers)
    for task in (slow, quick):  # so that nothing else writes to them

        async def spawned(task: str = task) -> bool:
            return (await speech.task(task, headers))["modal_job_id"] is not None

        await eventually_async(spawned, "the remote has it")
    start = (await polled(speech, headers))[-1].id or ""
    connection = await asyncpg.connect(speech.deployment.settings.database_url)
    touch = "UPDATE jobs SET progress_note = 'touched', updated_at = now() WHERE id = $1"
    try:
        late = connection.transaction()
        await late.start()
        await connection.execute(touch, from_text(slow))
        other = await asyncpg.connect(speech.deployment.settings.database_url)
        try:
            await other.execute(touch, from_text(quick))
        finally:
            await other.close()
        sents = await polled(speech, headers, start)
        assert [task for task, _ in told(sents)] == [quick]
        await late.commit()
    finally:
        await connection.close()
    after = await polled(speech, headers, sents[-1].id or "")
    assert [task for task, _ in told(after)] == [slow]
    for task in (slow, quick):
        await cancelled(speech, headers, task)


@pytest.mark.parametrize(
    "cursor",
    ["x", "1", "1:2", "2:1:", "5:9:9", "5:9:8,7", "0:0:", "1:2:~", "~~", "5:9:~5:9:~short"],
)
async def test_what_is_no_event_of_the_stream_is_refused(
    speech: SpeechDeployment, cursor: str
) -> None:
    for field in ({"headers": speech.user() | {"Last-Event-ID": cursor}}, {}):
        query = {"wait": 0} | ({} if field else {"after": cursor})
        answer = await speech.http.get(
            STREAM, params=query, **(field or {"headers": speech.user()})
        )
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_parameter")


async def test_the_events_of_a_database_ahead_of_this_one_lose_nothing(
    speech: SpeechDeployment,
) -> None:
    """As after a restore: what the cursor knows of this database is nothing."""
    headers = speech.user("restored")
    task = await speech.submitted(headers)
    await speech.ended(task, headers)
    ahead = f"{10**15}:{10**15}:"
    assert told(await polled(speech, headers, ahead)) == [(task, "completed")]


async def test_a_credential_without_a_user_has_no_stream(speech: SpeechDeployment) -> None:
    answer = await speech.http.get(STREAM, headers=speech.machine())
    assert (answer.status_code, answer.json()["code"]) == (403, "user_required")


async def test_the_policies_hold_for_the_stream(speech: SpeechDeployment) -> None:
    """Were the statement to forget its user, the database would still show no other's task."""
    headers = speech.user("walled")
    task = await stuck(speech, headers)
    connection = await asyncpg.connect(speech.deployment.settings.database_url)
    shows = await connection.fetchval(
        "SELECT pg_get_expr(polqual, polrelid) FROM pg_policy"
        " WHERE polname = 'own_rows' AND polrelid = 'generations'::regclass"
    )
    await connection.execute("ALTER POLICY own_rows ON generations USING (false)")
    try:
        assert told(await polled(speech, headers)) == []
    finally:
        await connection.execute(f"ALTER POLICY own_rows ON generations USING ({shows})")
        await connection.close()
    assert [each for each, _ in told(await polled(speech, headers))] == [task]
    await cancelled(speech, headers, task)
