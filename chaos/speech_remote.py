"""A simulated speech remote with the plain HTTP protocol. It never dies.

The text says what happens to it, so that the load knows what to expect: ``[fail]``, ``[lose]`` (its
first execution is forgotten), ``[slow]``, ``[late]`` (it starts at once, and the answer is late).
The audio contains the text, so that audio kept beyond its retention can be found.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import random
import time
import wave
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from chaos.history import History
from coatcheck.tls import trusted_authorities

FAIL: Final = "[fail]"
LOSE: Final = "[lose]"
SLOW: Final = "[slow]"
LATE: Final = "[late]"

IS_CONFUSED: Final = 0.02
"""The share of requests answered with 500."""
_SECONDS: Final = (0.05, 2.0)
_SLOW_SECONDS: Final = (4.0, 9.0)
LATE_SECONDS: Final = (1.0, 4.0)
_SAMPLE_RATE: Final = 8_000
_CALLBACK_TRIES: Final = 3


@dataclass
class Work:
    """One execution."""

    id: str
    token: str
    text: str
    ends_at: float
    callback_url: str | None
    cancelled: bool = False
    lost: bool = False
    fetched: bool = False
    spawned_at: float = field(default_factory=time.monotonic)

    @property
    def live(self) -> bool:
        return not (self.cancelled or self.lost or time.monotonic() >= self.ends_at)

    @property
    def status(self) -> str:
        if self.cancelled:
            return "cancelled"
        if time.monotonic() < self.ends_at:
            return "running"
        return "failed" if FAIL in self.text else "completed"

    @property
    def standing(self) -> str:
        """Its outcome, for every reader."""
        return "lost" if self.lost else self.status


class SpeechRemote:
    """Serves ``/speech``. The same token gets the same work, as the protocol requires."""

    def __init__(self, history: History, seed: int) -> None:
        self._history = history
        self._rng = random.Random(f"speech {seed}")
        self._works: dict[str, Work] = {}
        self._by_token: dict[str, Work] = {}
        self._by_text: defaultdict[str, list[Work]] = defaultdict(list)
        self._lost_once: set[str] = set()
        self._callbacks: set[asyncio.Task[None]] = set()
        self.routes = [
            Route("/speech/submit-job", self._submit, methods=["POST"]),
            Route("/speech/job-status", self._status),
            Route("/speech/job-result", self._result),
            Route("/speech/job-cancel", self._cancel, methods=["POST"]),
        ]

    async def close(self) -> None:
        for task in list(self._callbacks):
            task.cancel()
        await asyncio.gather(*self._callbacks, return_exceptions=True)

    async def _submit(self, request: Request) -> Response:
        body: dict[str, Any] = await request.json()
        token: str = body["token"]
        known = self._by_token.get(token)
        before = [each.standing for each in self._by_text[body["text"]]]
        work = known or self._begin(token, body["text"], body.get("callback_url"))
        self._note("spawned", work, fresh=known is None, before=before)
        if known is None and LATE in work.text:
            # The caller may be dead by then, and another one asks again.
            await asyncio.sleep(self._rng.uniform(*LATE_SECONDS))
        return JSONResponse({"job_id": work.id}, status_code=202)

    def _begin(self, token: str, text: str, callback_url: str | None) -> Work:
        seconds = self._rng.uniform(*(_SLOW_SECONDS if SLOW in text else _SECONDS))
        work = Work(
            id=f"work-{len(self._works) + 1}",
            token=token,
            text=text,
            ends_at=time.monotonic() + seconds,
            callback_url=callback_url,
        )
        if LOSE in text and text not in self._lost_once:
            self._lost_once.add(text)
            work.lost = True
        self._works[work.id] = self._by_token[token] = work
        self._by_text[text].append(work)
        asyncio.get_running_loop().call_later(seconds, self._over, work)
        # Some callbacks are never sent: polling finds the end as well.
        if callback_url is not None and not work.lost and self._rng.random() < 0.8:
            task = asyncio.create_task(self._call_back(callback_url, seconds))
            self._callbacks.add(task)
            task.add_done_callback(self._callbacks.discard)
        return work

    def _over(self, work: Work) -> None:
        if not work.cancelled:
            self._note("ended", work, state=work.standing)

    async def _call_back(self, url: str, seconds: float) -> None:
        authorities = trusted_authorities(trust_env=False)
        async with httpx2.AsyncClient(trust_env=False, verify=authorities, timeout=5) as client:
            for _ in range(_CALLBACK_TRIES):
                await asyncio.sleep(seconds)
                try:
                    if (await client.post(url)).is_success:
                        return
                except httpx2.HTTPError:
                    seconds = 1.0  # the server or its connection is down

    async def _status(self, request: Request) -> Response:
        work = self._found(request.query_params["job_id"])
        if work is None:
            return JSONResponse({"detail": "no such job"}, status_code=404)
        if self._rng.random() < IS_CONFUSED:
            return JSONResponse({"detail": "one moment"}, status_code=500)
        error = "it was told to fail" if work.status == "failed" else None
        return JSONResponse({"status": work.status, "error": error})

    async def _result(self, request: Request) -> Response:
        work = self._found(request.query_params["job_id"])
        if work is None or work.status != "completed":
            return JSONResponse({"detail": "no such result"}, status_code=404)
        if self._rng.random() < IS_CONFUSED:
            return JSONResponse({"detail": "one moment"}, status_code=500)
        if not work.fetched:
            work.fetched = True
            self._note("fetched", work)
        return Response(spoken(work.text), media_type="audio/wav")

    async def _cancel(self, request: Request) -> Response:
        work = self._found((await request.json())["job_id"])
        if work is None:
            return JSONResponse({"detail": "no such job"}, status_code=404)
        if not work.live and not work.cancelled:
            return JSONResponse({"detail": "too late"}, status_code=409)
        if not work.cancelled:
            work.cancelled = True
            self._note("ended", work, state="cancelled")
        return JSONResponse({"status": "cancelled"})

    def _found(self, work_id: str) -> Work | None:
        work = self._works.get(work_id)
        return None if work is None or work.lost else work

    def _note(self, event: str, work: Work, **fields: object) -> None:
        live = sum(each.live for each in self._by_text[work.text])
        self._history.note(
            "upstream",
            surface="speech",
            event=event,
            token=work.token,
            id=work.id,
            text_digest=hashlib.sha256(work.text.encode()).hexdigest()[:16],
            live=live,
            **fields,
        )


def spoken(text: str) -> bytes:
    """A WAV file of at least a second whose samples are the text, repeated."""
    data = text.encode()
    samples = (data * (2 * _SAMPLE_RATE // len(data) + 1))[: 2 * _SAMPLE_RATE]
    file = io.BytesIO()
    with wave.open(file, "wb") as audio:
        audio.setnchannels(1)
        audio.setsampwidth(2)
        audio.setframerate(_SAMPLE_RATE)
        audio.writeframes(samples)
    return file.getvalue()
