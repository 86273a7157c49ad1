"""A text that could not be spoken is spoken again: as a new generation, by the same voice."""

from __future__ import annotations

import pytest

from coatcheck.domain.tenants import USER_SCOPES
from examples.tts_remote import Fault
from tests.products.speech.speech_deployment import SpeechDeployment

pytestmark = pytest.mark.asyncio(loop_scope="module")

JOBS = "/api/v1/orgs/default/jobs"


async def test_a_task_that_failed_is_spoken_again_under_one_key_once(
    speech: SpeechDeployment,
) -> None:
    speech.remote.plan(Fault("failed_job", message="Hoarse."))
    old = await speech.ended(await speech.submitted(text="Once more."))
    assert old["status"] == "failed"
    headers = speech.user() | {"Idempotency-Key": "again"}
    shown = await speech.http.get(f"{JOBS}/{old['id']}", headers=speech.user())
    assert (shown.json()["surface"], shown.json()["endpoint"]) == ("speech", "speak")
    given = await speech.http.get(f"{JOBS}/{old['id']}/input", headers=speech.user())
    assert given.json() == {
        "voice_id": old["metadata"]["voice_id"],
        "text": "Once more.",
        "language": "en",
    }
    answers = [
        await speech.http.post(f"{JOBS}/{old['id']}/retry", headers=headers) for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [202, 202], answers[0].text
    (new,) = {answer.json()["id"] for answer in answers}
    assert answers[1].headers["idempotent-replayed"] == "true"
    spoken = await speech.ended(new)
    assert (spoken["status"], spoken["metadata"]["text"]) == ("completed", "Once more.")
    assert spoken["metadata"]["voice_id"] == old["metadata"]["voice_id"]
    assert spoken["generation_id"] != old["generation_id"]
    audio = await speech.http.get(spoken["result"]["audio_url"])
    assert audio.content.startswith(b"RIFF")


async def test_without_its_voice_a_text_is_not_spoken_again_and_only_its_user_may_ask(
    speech: SpeechDeployment,
) -> None:
    speech.remote.plan(Fault("failed_job", message="Hoarse."))
    old = await speech.ended(await speech.submitted(text="Never more."))
    stranger = speech.user("mallory", scope=" ".join(USER_SCOPES))
    unseen = await speech.http.post(f"{JOBS}/{old['id']}/retry", headers=stranger)
    assert unseen.status_code == 404
    voice = f"/voices/{old['metadata']['voice_id']}"
    assert (await speech.http.delete(voice, headers=speech.user())).status_code == 204
    refused = await speech.http.post(f"{JOBS}/{old['id']}/retry", headers=speech.user())
    assert (refused.status_code, refused.json()["code"]) == (409, "not_retryable")
