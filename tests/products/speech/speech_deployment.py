"""A deployment that speaks: a remote with espeak-ng, a worker that hands texts to it, and users.

The remote is the example's, in this process's event loop; everything goes over sockets.
"""

from __future__ import annotations

import io
import math
import struct
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from coatcheck.domain.tenants import Scope
from examples.tts_remote import TtsRemote
from tests.deployment import Deployment
from tests.products.gateway.tokens import MACHINES, USERS, token

SENTENCE = "The coat is ready."
REMOTE_TOKEN = "the-remotes-own-token"
Headers = dict[str, str]


class SpeechDeployment:
    """One remote, and a deployment that has texts spoken by it."""

    def __init__(self, deployment: Deployment, remote: TtsRemote) -> None:
        self.deployment = deployment
        self.remote = remote
        self.http = deployment.http

    def user(self, name: str = "alice", org: str = "default", **claims: Any) -> Headers:
        """The credential of a user: what a token's claims say, and nothing else."""
        return token(USERS, sub=name, org=org, **claims)

    def machine(self) -> Headers:
        """The credential of a service, which is no user."""
        return token(MACHINES, robot="1", scope=" ".join(Scope))

    async def upload(self, audio: bytes, headers: Headers | None = None) -> httpx2.Response:
        files = {"file": ("me.wav", audio, "audio/wav")}
        return await self.http.post("/voices", files=files, headers=headers or self.user())

    async def voice(self, headers: Headers | None = None) -> str:
        """The id of a new voice."""
        answer = await self.upload(a_wav(), headers)
        assert answer.status_code == 201, answer.text
        voice_id: str = answer.json()["voice_id"]
        return voice_id

    async def generate(
        self, voice: str, headers: Headers | None = None, text: str = SENTENCE, **more: Any
    ) -> httpx2.Response:
        body = {"voice_id": voice, "text": text, "language": "en"} | more.pop("body", {})
        return await self.http.post("/generate", json=body, headers=(headers or self.user()) | more)

    async def submitted(self, headers: Headers | None = None, text: str = SENTENCE) -> str:
        """The id of a new task, by a voice of its own."""
        answer = await self.generate(await self.voice(headers), headers, text)
        assert answer.status_code == 202, answer.text
        task_id: str = answer.json()["task_id"]
        return task_id

    async def task(self, task_id: str, headers: Headers | None = None, **query: Any) -> Any:
        answer = await self.http.get(
            f"/tasks/{task_id}", headers=headers or self.user(), params=query
        )
        assert answer.is_success, answer.text
        return answer.json()

    async def ended(self, task_id: str, headers: Headers | None = None) -> Any:
        """The task, once it has ended."""
        task = await self.task(task_id, headers, wait=60)
        assert task["terminal"], task
        return task


@asynccontextmanager
async def speech_deployment(
    dsn: str, folder: Path, **settings: Any
) -> AsyncIterator[SpeechDeployment]:
    """Without a worker: ``deployment.start_remote_worker()`` hires one."""
    async with (
        TtsRemote(folder / "remote", bearer=REMOTE_TOKEN) as remote,
        Deployment(
            dsn,
            folder,
            **{
                "speech_remote_url": remote.url,
                "speech_remote_token": REMOTE_TOKEN,
                "jwt_issuers": (USERS, MACHINES),
                **settings,
            },
        ) as deployment,
    ):
        yield SpeechDeployment(deployment, remote)


def a_wav(seconds: float = 1.5, *, rate: int = 8_000) -> bytes:
    """Silence."""
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(bytes(2 * int(seconds * rate)))
    return made.getvalue()


def a_hum(hertz: float, seconds: float = 1.5, *, rate: int = 16_000) -> bytes:
    """A tone of this pitch with its overtones, as a throat makes it."""
    made = io.BytesIO()
    turn = 2 * math.pi * hertz / rate
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(
            b"".join(
                struct.pack(
                    "<h",
                    int(sum(6_000 / n * math.sin(n * turn * at) for n in (1, 2, 3))),
                )
                for at in range(int(seconds * rate))
            )
        )
    return made.getvalue()


def seconds_of(wav: bytes) -> float:
    with wave.open(io.BytesIO(wav), "rb") as file:
        return file.getnframes() / file.getframerate()
