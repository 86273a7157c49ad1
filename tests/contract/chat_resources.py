"""What an organisation has of chats: one that is done and has a picture, one that waits."""

from __future__ import annotations

from tests.deployment import Deployment, bearer

CHAT_MODEL = "llama3.2"
PICTURE_MODEL = "x/z-image-turbo"
EMBED_MODEL = "nomic-embed-text"
CHAT = {"model": CHAT_MODEL, "messages": [{"role": "user", "content": "hello"}]}
PICTURE = {"model": PICTURE_MODEL, "prompt": "a coat", "width": 8, "height": 8}
PICTURE_NAME = "image-1.png"


async def ended_chats(deployment: Deployment, *keys: str) -> list[str]:
    """Of whoever has these keys, one each. No worker is left that would take others."""
    worker = await deployment.start_llm_worker()
    chats = [await submitted(deployment, key, PICTURE) for key in keys]
    for chat, key in zip(chats, keys, strict=True):
        answer = await deployment.http.get(
            f"/jobs/{chat}", params={"wait": 60}, headers=bearer(key)
        )
        assert answer.json()["state"] == "done", answer.text
    await deployment.stop_worker(worker)
    return chats


async def waiting_chat(deployment: Deployment, key: str) -> str:
    return await submitted(deployment, key, CHAT)


async def submitted(deployment: Deployment, key: str, body: object) -> str:
    answer = await deployment.http.post("/jobs", json=body, headers=bearer(key))
    assert answer.status_code == 202, answer.text
    return str(answer.json()["job_id"])
