"""A text that could not be spoken is spoken again: as a new generation, by the same voice."""

from __future__ import annotations

import pytest

from coatcheck.domain.tenants import USER_SCOPES
from examples.tts_remote import Fault
from tests.products.speech.studio import Studio

pytestmark = pytest.mark.asyncio(loop_scope="module")

JOBS = "/api/v1/orgs/default/jobs"


async def test_a_task_that_failed_is_spoken_again_under_one_key_once(studio: Studio) -> None:
    studio.remote.plan(Fault("failed_job", message="Hoarse."))
    old = await studio.ended(await studio.submitted(text="Once more."))
    assert old["status"] == "failed"
    headers = studio.user() | {"Idempotency-Key": "again"}
    shown = await studio.http.get(f"{JOBS}/{old['id']}", headers=studio.user())
    assert (shown.json()["surface"], shown.json()["endpoint"]) == ("speech", "speak")
    given = await studio.http.get(f"{JOBS}/{old['id']}/input", headers=studio.user())
    assert given.json() == {
        "voice_id": old["metadata"]["voice_id"],
        "text": "Once more.",
        "language": "en",
    }
    answers = [
        await studio.http.post(f"{JOBS}/{old['id']}/retry", headers=headers) for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [202, 202], answers[0].text
    (new,) = {answer.json()["id"] for answer in answers}
    assert answers[1].headers["idempotent-replayed"] == "true"
    spoken = await studio.ended(new)
    assert (spoken["status"], spoken["metadata"]["text"]) == ("completed", "Once more.")
    assert spoken["metadata"]["voice_id"] == old["metadata"]["voice_id"]
    assert spoken["generation_id"] != old["generation_id"]
    audio = await studio.http.get(spoken["result"]["audio_url"])
    assert audio.content.startswith(b"RIFF")


async def test_without_its_voice_a_text_is_not_spoken_again_and_only_its_user_may_ask(
    studio: Studio,
) -> None:
    studio.remote.plan(Fault("failed_job", message="Hoarse."))
    old = await studio.ended(await studio.submitted(text="Never more."))
    stranger = studio.user("mallory", scope=" ".join(USER_SCOPES))
    unseen = await studio.http.post(f"{JOBS}/{old['id']}/retry", headers=stranger)
    assert unseen.status_code == 404
    voice = f"/voices/{old['metadata']['voice_id']}"
    assert (await studio.http.delete(voice, headers=studio.user())).status_code == 204
    refused = await studio.http.post(f"{JOBS}/{old['id']}/retry", headers=studio.user())
    assert (refused.status_code, refused.json()["code"]) == (409, "not_retryable")
