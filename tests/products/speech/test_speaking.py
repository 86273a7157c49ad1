"""From a text to a WAV that plays, and what else becomes of a text."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from datetime import UTC, datetime

import msgspec
import pytest

from coatcheck.db.connection import Connection
from coatcheck.domain.ids import from_text, new_id, to_text
from coatcheck.domain.webhooks import DeliveryEvent, SubjectKind
from coatcheck.maintenance.retention import Pruner
from coatcheck.products.speech.model import SPEECH_ENDPOINTS, SpeechType, generation_of
from tests.all_products import payloads
from tests.db.rows import expire
from tests.products.speech.speech_deployment import SENTENCE, SpeechDeployment, seconds_of

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_text_becomes_a_wav_that_plays(speech: SpeechDeployment) -> None:
    voice = await speech.voice()
    answer = await speech.generate(voice)
    ticket = answer.json()
    assert answer.status_code == 202
    assert ticket["status"] == "processing"
    assert answer.headers["location"] == ticket["urls"]["poll"] == f"/tasks/{ticket['task_id']}"
    assert int(answer.headers["retry-after"]) >= 0

    task = await speech.ended(ticket["task_id"])
    assert task["status"] == "completed", task
    assert task["type"] == "generate"
    assert task["modal_job_id"] in speech.remote.jobs.all()
    assert task["error"] is None
    assert task["cancellation_requested"] is False
    assert task["metadata"] == {
        "generation_id": ticket["generation_id"],
        "voice_id": voice,
        "clone_id": None,
        "description": None,
        "language": "en",
        "text": SENTENCE,
        "text_characters": len(SENTENCE),
    }
    key = f"generations/alice/{ticket['generation_id']}.wav"
    result = task["result"]
    assert result["audio_object_key"] == key

    # A signed URL needs no credential.
    fetched = await speech.http.get(result["audio_url"], headers={"Authorization": ""})
    assert fetched.headers["content-type"] == "audio/wav"
    assert result["duration_seconds"] == pytest.approx(seconds_of(fetched.content), abs=0.01)
    assert seconds_of(fetched.content) > 0.5
    assert fetched.content == await speech.deployment.engine.blobs.get(key)

    shown = await speech.http.get(ticket["urls"]["generation"], headers=speech.user())
    generation = shown.json()
    assert generation["id"] == ticket["generation_id"]
    assert generation["status"] == "completed"
    assert generation["text"] == SENTENCE
    assert generation["sha256"] == hashlib.sha256(fetched.content).hexdigest()
    assert generation["bytes"] == len(fetched.content)
    assert (await speech.http.get(generation["audio_url"])).content == fetched.content


async def test_the_remote_is_given_the_voice_and_where_to_hear_it(speech: SpeechDeployment) -> None:
    task = await speech.ended(await speech.submitted(text="Where is it?"))
    (order,) = [
        each for each in speech.remote.seen.bodies("/submit-job") if b"Where is it?" in each
    ]
    assert task["metadata"]["voice_id"].encode() in order
    assert b"reference_url" not in order  # there is no address of ours that it could ask


async def test_who_polls_at_once_finds_one_finalization(speech: SpeechDeployment) -> None:
    task_id = await speech.submitted(text="Once.")
    before = speech.remote.seen.paths["/job-result"]

    async def polled() -> dict[str, object]:
        while True:
            task: dict[str, object] = await speech.task(task_id)
            if task["terminal"]:
                return task

    tasks = await asyncio.gather(*(polled() for _ in range(4)))
    assert {task["status"] for task in tasks} == {"completed"}
    assert speech.remote.seen.paths["/job-result"] == before + 1


async def test_a_key_that_is_known_speaks_once(speech: SpeechDeployment) -> None:
    voice = await speech.voice()
    made = speech.remote.seen.jobs_made
    key = {"Idempotency-Key": "once"}
    first = await speech.generate(voice, **key)
    again = await speech.generate(voice, **key)
    assert again.json()["task_id"] == first.json()["task_id"]
    assert again.json()["generation_id"] == first.json()["generation_id"]
    assert again.headers["idempotent-replayed"] == "true"
    assert "idempotency-mismatch" not in again.headers
    other = await speech.generate(voice, text="Something else.", **key)
    assert other.json()["task_id"] == first.json()["task_id"]
    assert other.headers["idempotency-mismatch"] == "true"
    strict = await speech.generate(voice, text="Something else.", **key, Prefer="handling=strict")
    assert (strict.status_code, strict.json()["code"]) == (422, "idempotency_mismatch")
    # A key is a user's own.
    bob = speech.user("bob")
    theirs = await speech.generate(await speech.voice(bob), bob, **key)
    assert theirs.json()["task_id"] != first.json()["task_id"]
    await speech.ended(first.json()["task_id"])
    await speech.ended(theirs.json()["task_id"], bob)
    assert speech.remote.seen.jobs_made == made + 2
    # Also after the voice is gone.
    assert (await speech.http.delete(f"/voices/{voice}", headers=speech.user())).status_code == 204
    late = await speech.generate(voice, **key)
    assert (late.status_code, late.json()["status"]) == (202, "completed")
    assert (await speech.generate(voice)).status_code == 404


async def test_tasks_are_listed_newest_first_a_page_at_a_time(speech: SpeechDeployment) -> None:
    carol = speech.user("carol")
    voice = await speech.voice(carol)
    made = []
    for number in range(3):
        answer = await speech.generate(voice, carol, text=f"Number {number}. " + "a" * 300)
        made.append(answer.json()["task_id"])
    for task_id in made:
        await speech.ended(task_id, carol)
    seen: list[str] = []
    query: dict[str, str] = {"limit": "2"}
    while True:
        page = (await speech.http.get("/tasks", headers=carol, params=query)).json()
        seen += [item["id"] for item in page["items"]]
        if page["next"] is None:
            break
        query["cursor"] = page["next"]
    assert sorted(seen) == sorted(made)
    assert seen == sorted(made, key=lambda each: generation_of(from_text(each)).int, reverse=True)
    assert len(page["items"][0]["metadata"]["text"]) == 200
    assert page["items"][0]["metadata"]["text_characters"] == 310

    completed = await speech.http.get("/tasks", headers=carol, params={"status": "completed"})
    assert len(completed.json()["items"]) == 3
    failed = await speech.http.get("/tasks", headers=carol, params={"status": "failed"})
    assert failed.json() == {"items": [], "next": None}
    listed = (await speech.http.get("/generations", headers=carol)).json()["items"]
    assert {item["task_id"] for item in listed} == set(made)
    assert all(item["audio_url"] for item in listed)


async def test_a_task_is_followed_to_its_end(speech: SpeechDeployment) -> None:
    task_id = await speech.submitted(text="Listen.")
    told = await speech.http.get(f"/tasks/{task_id}/events", headers=speech.user())
    assert told.headers["content-type"] == "text/event-stream"
    assert "event: end" in told.text
    assert '"status":"completed"' in told.text


async def test_the_file_is_an_artifact_and_can_be_deleted(speech: SpeechDeployment) -> None:
    task_id = await speech.submitted(text="Forget me.")
    task = await speech.ended(task_id)
    listed = (await speech.http.get(task["urls"]["artifacts"], headers=speech.user())).json()
    (artifact,) = listed["items"]
    name = f"{task['generation_id']}.wav"
    assert (artifact["name"], artifact["media_type"]) == (name, "audio/wav")
    gone = await speech.http.delete(artifact["url"], headers=speech.user())
    assert gone.status_code == 200, gone.text
    after = await speech.task(task_id)
    assert after["status"] == "completed"
    assert after["result"]["audio_url"] is None
    generation = (await speech.http.get(task["urls"]["generation"], headers=speech.user())).json()
    assert generation["audio_url"] is generation["audio_object_key"] is None
    with pytest.raises(FileNotFoundError):
        await speech.deployment.engine.blobs.get(task["result"]["audio_object_key"])


async def test_a_generation_has_the_id_that_its_task_gives_it() -> None:
    task = from_text("01JDZ0T8Q5Y1V9M4K3N2P6R7S8")
    generation = generation_of(task)
    assert generation == generation_of(task) != task
    assert to_text(generation)[:10] == to_text(task)[:10]


async def test_who_is_told_is_told_the_task_or_what_is_left_of_it(speech: SpeechDeployment) -> None:
    answer = await speech.generate(
        await speech.voice(), body={"webhook_url": "http://127.0.0.1:9/told"}
    )
    task_id = answer.json()["task_id"]
    task = await speech.ended(task_id)
    uuid = from_text(task_id)
    facts = {"state": "completed", "endpoint": SPEECH_ENDPOINTS[SpeechType.GENERATE], "attempt": 1}
    notice = DeliveryEvent(
        org="default",
        id=new_id(),
        target=new_id(),
        kind=SubjectKind.JOB,
        subject=uuid,
        run=None,
        event="job.completed",
        facts=facts,
        at=datetime.now(UTC),
    )
    told = msgspec.json.decode(await payloads(speech.deployment.context).body(notice))
    assert told["type"] == "job.completed"
    assert told["data"]["id"] == task_id
    assert told["data"]["result"]["audio_object_key"] == task["result"]["audio_object_key"]
    pruned = dataclasses.replace(notice, subject=new_id())
    left = msgspec.json.decode(await payloads(speech.deployment.context).body(pruned))
    assert (left["data"]["status"], left["data"]["expired"]) == ("completed", True)
    # And it is noted that somebody is to be told.
    assert (
        len(await speech.deployment.engine.webhooks.deliveries("default", job=uuid, limit=2)) == 1
    )


async def test_what_was_spoken_goes_with_its_task(speech: SpeechDeployment) -> None:
    task = await speech.ended(await speech.submitted(text="Not for long."))
    engine, settings = speech.deployment.engine, speech.deployment.settings
    line = Connection(settings.database_url, name="tests")
    uuid = from_text(task["id"])
    await expire(line, uuid)
    await Pruner(line, engine.blobs).tick()
    assert await line.fetch("SELECT FROM generations WHERE job_id = $1", uuid) == []
    await line.close()
    for url in (task["urls"]["poll"], task["urls"]["generation"], task["result"]["audio_url"]):
        assert (await speech.http.get(url, headers=speech.user())).status_code == 404
    with pytest.raises(FileNotFoundError):
        await engine.blobs.get(task["result"]["audio_object_key"])
