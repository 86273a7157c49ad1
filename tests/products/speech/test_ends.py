"""How a task ends that is not simply spoken: cancelled, failed, refused, given up."""

from __future__ import annotations

import pytest

from examples.tts_remote import Fault
from tests.products.speech.speech_deployment import SpeechDeployment
from tests.waiting import eventually_async

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def parked(speech: SpeechDeployment, text: str) -> str:
    """A task that is being spoken, and is not done."""
    speech.remote.plan(Fault("stuck_job"))
    task_id = await speech.submitted(text=text)

    async def spawned() -> bool:
        return (await speech.task(task_id))["modal_job_id"] is not None

    await eventually_async(spawned, "the remote has it")
    return task_id


async def test_a_task_that_is_spoken_is_cancelled_here_and_there(speech: SpeechDeployment) -> None:
    task_id = await parked(speech, "Stop me.")
    running = await speech.task(task_id)
    assert (running["status"], running["result"], running["terminal"]) == (
        "processing",
        None,
        False,
    )
    before = speech.remote.seen.jobs_ended["cancelled"]
    answer = await speech.http.post(f"/tasks/{task_id}/cancel", headers=speech.user())
    assert answer.status_code in (200, 202), answer.text
    task = await speech.ended(task_id)
    assert (task["status"], task["cancellation_requested"]) == ("cancelled", True)
    assert task["error"] is None
    assert speech.remote.seen.jobs_ended["cancelled"] == before + 1
    again = await speech.http.post(f"/tasks/{task_id}/cancel", headers=speech.user())
    assert again.status_code == 200
    assert again.json()["status"] == "cancelled"
    generation = await speech.http.get(task["urls"]["generation"], headers=speech.user())
    assert (generation.json()["status"], generation.json()["audio_url"]) == ("cancelled", None)


async def test_what_the_remote_cannot_speak_fails_once_and_for_good(
    speech: SpeechDeployment,
) -> None:
    made = speech.remote.seen.jobs_made
    speech.remote.plan(Fault("failed_job", message="No such larynx."))
    task = await speech.ended(await speech.submitted(text="Fail."))
    assert (task["status"], task["error_code"]) == ("failed", "remote_failed")
    assert "No such larynx." in task["error"]
    assert task["result"] is None
    assert speech.remote.seen.jobs_made == made + 1


async def test_what_is_no_wav_never_becomes_the_users_audio(speech: SpeechDeployment) -> None:
    speech.remote.plan(Fault("garbage", path="/job-result", times=1))
    task = await speech.ended(await speech.submitted(text="Twice."))
    # Once was a fault of the moment: it was fetched again, and is what was spoken.
    assert task["status"] == "completed", task
    assert (await speech.http.get(task["result"]["audio_url"])).content.startswith(b"RIFF")
