"""What an organisation's user has of speech: a voice, a task that was cancelled, one that waits."""

from __future__ import annotations

from tests.deployment import Deployment, bearer
from tests.products.speech.speech_deployment import a_wav

RECORDING = {"file": ("me.wav", a_wav(1.0), "audio/wav")}


async def a_voice(deployment: Deployment, key: str) -> str:
    answer = await deployment.http.post("/voices", files=RECORDING, headers=bearer(key))
    assert answer.status_code == 201, answer.text
    return str(answer.json()["voice_id"])


async def waiting_task(deployment: Deployment, key: str) -> str:
    """A text that no worker has spoken."""
    body = {"voice_id": await a_voice(deployment, key), "text": "Hello.", "language": "en"}
    answer = await deployment.http.post("/generate", json=body, headers=bearer(key))
    assert answer.status_code == 202, answer.text
    return str(answer.json()["task_id"])


async def ended_task(deployment: Deployment, key: str) -> str:
    task = await waiting_task(deployment, key)
    answer = await deployment.http.post(f"/tasks/{task}/cancel", headers=bearer(key))
    assert answer.status_code == 200, answer.text
    return task
