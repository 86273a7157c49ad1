"""Kills the server in the middle of a stream: the client goes on at another, and misses nothing."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from examples.ollama_upstream import Fault
from tests.crash_points import VICTIM, Victim
from tests.deployment import bearer
from tests.e2e.faults.roles import start_role
from tests.products.llm.talking import MODEL, TOKEN, talking

STREAM_POINTS = {"llm.stream_sent": 3}
"""Each point, and at which passing of it the server dies."""
COMPLETIONS = "/v1/chat/completions"
CHAT: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Tell me"}],
    "stream": True,
}


class Heard:
    """What one client has heard of an answer, over all of its connections."""

    def __init__(self) -> None:
        self.last_id = ""
        self.text = ""
        self.is_done = False

    async def listen(self, client: httpx2.AsyncClient, headers: dict[str, str]) -> str:
        """Go on after what was heard, to the end of the stream; the id of the job."""
        if self.last_id:
            headers = headers | {"Last-Event-ID": self.last_id}
        async with client.stream("POST", COMPLETIONS, json=CHAT, headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            job: str = response.headers["X-Job-Id"]
            async for line in response.aiter_lines():
                self._take(line)
        return job

    def _take(self, line: str) -> None:
        name, _, value = line.partition(": ")
        if name == "id":
            self.last_id = value
        elif value == "[DONE]":
            self.is_done = True
        elif name == "data":
            self.text += json.loads(value)["choices"][0]["delta"].get("content", "")


@pytest.mark.crash
@pytest.mark.parametrize("point", sorted(STREAM_POINTS))
async def test_a_client_goes_on_at_another_server_after_a_crash_at(
    dsn: str, tmp_path: Path, point: str
) -> None:
    if VICTIM is Victim.PAUSE:
        pytest.skip("who follows a stream holds no lease, and its client waits")
    async with talking(dsn, tmp_path) as talk:
        talk.upstream.plan(Fault("hang", path="/api/chat", after_tokens=STREAM_POINTS[point] + 2))
        process = start_role(
            talk.deployment,
            "serve",
            crash_at=f"{point}:{STREAM_POINTS[point]}",
            llm_url=talk.upstream.url,
            llm_token=TOKEN,
        )
        port = (await process.says("ready"))["port"]
        heard = Heard()
        key = {"Idempotency-Key": "one answer"}
        async with httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            headers=bearer(talk.deployment.key),
            trust_env=False,
        ) as client:
            listening = asyncio.create_task(heard.listen(client, key))
            await talk.deployment.strike(process)
            if VICTIM.is_exact:
                with pytest.raises(httpx2.HTTPError):
                    await listening
            assert not heard.is_done
            assert heard.text, "it died in the middle"
            talk.upstream.clear_faults()
            with suppress(httpx2.HTTPError):
                await listening

        job = await heard.listen(talk.deployment.http, key)
        assert heard.is_done
        shown = (await talk.deployment.http.get(f"/jobs/{job}", params={"wait": "60"})).json()
        assert (shown["state"], shown["attempt"]) == ("done", 1)
        assert heard.text == shown["result"]["message"]["content"]
        assert talk.upstream.seen.paths["/api/chat"] == 1
    print(f"{point}: {VICTIM.value} struck there, resumed elsewhere, one answer")
