"""The kinds of work besides speaking a text: previews of voices that are designed, and clones."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import msgspec
import pytest
import pytest_asyncio

from coatcheck.domain.ids import new_id, to_text
from examples.tts_remote import Fault
from examples.tts_remote.characters import median_pitch
from tests.databases import Databases
from tests.products.speech.speech_deployment import (
    Headers,
    SpeechDeployment,
    a_hum,
    speech_deployment,
)
from tests.waiting import eventually_async

pytestmark = pytest.mark.asyncio(loop_scope="module")

PREVIEW = {"description": "A deep, slow voice.", "text": "Your coat is ready.", "language": "en"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reachable(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SpeechDeployment]:
    """A deployment whose remote can fetch what it signs URLs for."""
    folder = tmp_path_factory.mktemp("reachable")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    async with (
        databases.fresh() as dsn,
        speech_deployment(dsn, folder, public_url=url) as opened,
    ):
        await opened.deployment.start_remote_worker()
        await opened.deployment.start_server(port)
        yield opened


async def preview(
    speech: SpeechDeployment, headers: Headers | None = None, **fields: Any
) -> httpx2.Response:
    return await speech.http.post(
        "/voices/design-preview", json=PREVIEW | fields, headers=headers or speech.user()
    )


async def clone(
    speech: SpeechDeployment, voice: str, headers: Headers | None = None, **fields: Any
) -> httpx2.Response:
    return await speech.http.post(
        f"/voices/{voice}/clone",
        json={"language": "en", "transcript": "Hum."} | fields,
        headers=headers or speech.user(),
    )


async def a_clone(speech: SpeechDeployment, hertz: float) -> tuple[str, dict[str, Any]]:
    """A voice that hums so high, and the completed task that cloned it."""
    voice: str = (await speech.upload(a_hum(hertz))).json()["voice_id"]
    ticket = await clone(speech, voice)
    assert ticket.status_code == 202, ticket.text
    task = await speech.ended(ticket.json()["task_id"])
    assert task["status"] == "completed", task
    return voice, task


async def heard(speech: SpeechDeployment, task: dict[str, Any]) -> bytes:
    answer = await speech.http.get(task["result"]["audio_url"])
    assert answer.status_code == 200
    return answer.content


async def test_a_task_names_its_user(speech: SpeechDeployment) -> None:
    task = await speech.ended(await speech.submitted())
    assert (task["type"], task["user_id"]) == ("generate", "alice")


async def test_a_design_is_previewed_by_a_job_of_the_remote(speech: SpeechDeployment) -> None:
    answer = await preview(speech)
    assert answer.status_code == 202, answer.text
    ticket = answer.json()
    assert (ticket["type"], ticket["status"]) == ("design_preview", "processing")
    task = await speech.ended(ticket["task_id"])
    assert (task["type"], task["status"]) == ("design_preview", "completed")
    assert task["user_id"] == "alice"
    assert task["metadata"] == {
        "generation_id": ticket["generation_id"],
        "voice_id": None,
        "clone_id": None,
        "description": PREVIEW["description"],
        "language": "en",
        "text": PREVIEW["text"],
        "text_characters": len(PREVIEW["text"]),
    }
    told = msgspec.json.decode(speech.remote.seen.bodies("/submit-job")[-1])
    assert told["type"] == "design_preview"
    assert told["description"] == PREVIEW["description"]
    assert "voice_id" not in told
    assert (await heard(speech, task)).startswith(b"RIFF")
    generation = await speech.http.get(task["urls"]["generation"], headers=speech.user())
    assert (generation.json()["type"], generation.json()["voice_id"]) == ("design_preview", None)


async def test_what_is_described_is_what_is_heard(speech: SpeechDeployment) -> None:
    tasks = [
        await speech.ended((await preview(speech, description=words)).json()["task_id"])
        for words in ("A deep man, speaking slowly.", "A bright girl, speaking fast.")
    ]
    deep, bright = [await heard(speech, task) for task in tasks]
    assert (median_pitch(bright) or 0) > 1.3 * (median_pitch(deep) or 1_000)
    assert tasks[0]["result"]["duration_seconds"] > tasks[1]["result"]["duration_seconds"]


async def test_a_preview_is_cancelled_like_any_task(speech: SpeechDeployment) -> None:
    speech.remote.plan(Fault("stuck_job"))
    task_id = (await preview(speech)).json()["task_id"]

    async def spawned() -> bool:
        return (await speech.task(task_id))["modal_job_id"] is not None

    await eventually_async(spawned, "the remote has it")
    before = speech.remote.seen.jobs_ended["cancelled"]
    await speech.http.post(f"/tasks/{task_id}/cancel", headers=speech.user())
    assert (await speech.ended(task_id))["status"] == "cancelled"
    assert speech.remote.seen.jobs_ended["cancelled"] == before + 1


async def test_a_repeated_preview_is_one_task(speech: SpeechDeployment) -> None:
    headers = speech.user() | {"Idempotency-Key": "preview-1"}
    first, again = await preview(speech, headers), await preview(speech, headers)
    assert first.json()["task_id"] == again.json()["task_id"]
    assert again.headers["idempotent-replayed"] == "true"
    other = await preview(speech, headers, description="Another one.")
    assert other.headers["idempotency-mismatch"] == "true"


@pytest.mark.parametrize(
    "fields",
    [{"description": " "}, {"description": "x" * 2_001}, {"text": ""}, {"language": "no tag"}],
)
async def test_a_preview_that_cannot_be_made_is_refused(
    speech: SpeechDeployment, fields: dict[str, str]
) -> None:
    answer = await preview(speech, **fields)
    assert answer.status_code == 422, answer.text


async def test_tasks_are_listed_by_their_type(speech: SpeechDeployment) -> None:
    headers = speech.user("lister")
    spoken = await speech.submitted(headers)
    previewed = (await preview(speech, headers)).json()["task_id"]

    async def listed(**query: str) -> list[str]:
        answer = await speech.http.get("/tasks", headers=headers, params=query)
        return [each["id"] for each in answer.json()["items"]]

    assert await listed() == [previewed, spoken]
    assert await listed(type="design_preview") == [previewed]
    assert await listed(type="generate") == [spoken]
    assert await listed(type="clone") == []


async def test_a_clone_needs_an_address_where_the_remote_hears_the_voice(
    speech: SpeechDeployment,
) -> None:
    answer = await clone(speech, await speech.voice())
    assert (answer.status_code, answer.json()["code"]) == (404, "speech_not_configured")
    assert "COATCHECK_PUBLIC_URL" in answer.json()["detail"]


async def test_a_clone_is_a_file_that_the_voice_is_spoken_with(reachable: SpeechDeployment) -> None:
    low_voice, low = await a_clone(reachable, 95.0)
    high_voice, high = await a_clone(reachable, 260.0)
    assert (low["type"], low["user_id"], low["generation_id"]) == ("clone", "alice", None)
    assert low["metadata"]["voice_id"] == low_voice
    assert low["metadata"]["text"] == "Hum."
    assert "audio_url" not in low["result"]
    prompt = await reachable.http.get(low["result"]["prompt_url"])
    assert len(prompt.content) == low["result"]["prompt_bytes"]
    spoken = []
    for voice, cloned in ((low_voice, low), (high_voice, high)):
        answer = await reachable.generate(voice, body={"clone_id": cloned["id"]})
        assert answer.status_code == 202, answer.text
        task = await reachable.ended(answer.json()["task_id"])
        assert task["status"] == "completed", task
        assert task["metadata"]["clone_id"] == cloned["id"]
        spoken.append(median_pitch(await heard(reachable, task)) or 0)
    assert spoken[1] > 1.5 * spoken[0] > 0


async def test_a_recording_without_a_voice_cannot_be_cloned(reachable: SpeechDeployment) -> None:
    ticket = await clone(reachable, await reachable.voice())
    task = await reachable.ended(ticket.json()["task_id"])
    assert (task["status"], task["error_code"], task["result"]) == ("failed", "remote_failed", None)
    assert "no voice" in task["error"]


async def test_only_a_completed_clone_of_the_voice_is_spoken_with(
    reachable: SpeechDeployment,
) -> None:
    voice, cloned = await a_clone(reachable, 120.0)
    other_voice = await reachable.voice()
    spoken = await reachable.ended(await reachable.submitted())
    refusals = []
    for used_voice, used_clone in [
        (other_voice, cloned["id"]),
        (voice, to_text(new_id())),
        (voice, "no id at all"),
        (voice, spoken["id"]),
    ]:
        answer = await reachable.generate(used_voice, body={"clone_id": used_clone})
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
        refusals.append(answer.json()["details"])
    assert all(each == refusals[0] for each in refusals)
    mallory = reachable.user("mallory")
    foreign = await reachable.generate(
        await reachable.voice(mallory), mallory, body={"clone_id": cloned["id"]}
    )
    assert (foreign.status_code, foreign.json()["details"]) == (422, refusals[0])
    # A voice that is gone takes its clones with it.
    await reachable.http.delete(f"/voices/{voice}", headers=reachable.user())
    gone = await reachable.generate(voice, body={"clone_id": cloned["id"]})
    assert (gone.status_code, gone.json()["code"]) == (404, "voice_not_found")


async def test_a_clone_is_no_generation(reachable: SpeechDeployment) -> None:
    _, cloned = await a_clone(reachable, 150.0)
    listed = await reachable.http.get("/generations", headers=reachable.user())
    assert cloned["id"] not in {each["task_id"] for each in listed.json()["items"]}
    assert cloned["urls"]["generation"] is None


async def test_another_users_voice_cannot_be_cloned(reachable: SpeechDeployment) -> None:
    voice = await reachable.voice()
    foreign = await clone(reachable, voice, reachable.user("mallory"))
    never = await clone(reachable, to_text(new_id()), reachable.user("mallory"))
    assert foreign.status_code == never.status_code == 404
    assert foreign.json()["code"] == never.json()["code"] == "voice_not_found"


async def test_failed_work_of_each_kind_is_retried_as_it_was(reachable: SpeechDeployment) -> None:
    voice, cloned = await a_clone(reachable, 110.0)
    speech = reachable
    submissions = [
        lambda: preview(speech),
        lambda: clone(speech, voice),
        lambda: speech.generate(voice, body={"clone_id": cloned["id"]}),
    ]
    for submit in submissions:
        speech.remote.plan(Fault("failed_job", message="Not now."))
        failed = await speech.ended((await submit()).json()["task_id"])
        assert failed["status"] == "failed"
        path = f"/api/v1/orgs/default/jobs/{failed['id']}"
        shown = (await speech.http.get(path, headers=speech.user())).json()
        assert shown["surface"] == "speech"
        given = await speech.http.get(f"{path}/input", headers=speech.user())
        assert given.status_code == 200, given.text
        again = await speech.http.post(f"{path}/retry", headers=speech.user())
        assert again.status_code in (200, 201, 202), again.text
        job = again.json().get("id") or again.json().get("job_id")
        task = await speech.ended(job)
        assert (task["status"], task["type"]) == ("completed", failed["type"])
        assert {**task["metadata"], "generation_id": 0} == {
            **failed["metadata"],
            "generation_id": 0,
        }
