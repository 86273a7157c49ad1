"""The llm load: chats of two models, queued, waited for, streamed and cancelled."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Mapping
from typing import Any, Final

import httpx2

from chaos.load.calls import CONNECT_SECONDS, Answer, Request
from chaos.load.event_stream import events_of
from chaos.load.following import Sight, Ticket
from chaos.load.product_load import ProductLoad
from chaos.world import MODELS

_KINDS: Final[Mapping[str, int]] = {"queued": 50, "whole": 12, "ndjson": 20, "openai": 18}
_SILENCE_SECONDS: Final = 20.0


class Llm(ProductLoad):
    name = "llm"

    async def scenario(self) -> None:
        (kind,) = self.rng.choices(list(_KINDS), weights=list(_KINDS.values()))
        match kind:
            case "ndjson":
                await self._streamed("/api/chat", _Ndjson())
            case "openai":
                await self._streamed("/v1/chat/completions", _OpenAi())
            case "whole":
                await self._whole()
            case _:
                await self._queued()

    async def _queued(self) -> None:
        org, cancelled = self.org(), self.chance(0.2)
        chat = self._chat()
        if self.chance(0.4):
            chat["state_webhook_url"] = self.receiver(org)
        if self.chance(0.2):
            chat["webhook_url"] = self.receiver(org)
        request = self._request("/jobs", org, chat, expect="any" if cancelled else "completed")
        ticket = self._ticket(org, await self.calls.settled(request))
        if ticket is None:
            return
        if cancelled:
            await self._cancel(ticket)
        await self.reader.follow(ticket)
        self.has_ended(ticket)

    async def _whole(self) -> None:
        """A caller that waits for the complete answer."""
        org = self.org()
        request = self._request("/api/chat", org, self._chat() | {"stream": False}, seconds=60.0)
        answer = await self.calls.settled(request)
        ticket = self._ticket(org, answer)
        if ticket is None:
            return
        job = await self.reader.poll(ticket)
        if job["state"] == "done":
            self.same("the answer equals the stored result", answer.json, job["result"], ticket.job)
        self.has_ended(ticket)

    async def _streamed(self, path: str, stream: _Stream) -> None:
        """A caller that streams; after a broken connection it resumes with the same key."""
        org = self.org()
        request = self._request(path, org, self._chat() | {"stream": True})
        ticket, repeats = None, None
        for tried in itertools.count():
            number = self.calls.invoked(request, repeats)
            repeats = number if repeats is None else repeats
            answer = await self._listen(request, number, stream)
            if answer is not None and ticket is None:
                ticket = self._ticket(org, answer)
            elif answer is not None and ticket is not None:
                self.same("one key, one job", ticket.job, _job_of(answer), ticket.job)
            if stream.is_whole or (answer is not None and answer.status != 200):
                break
            await asyncio.sleep(self.calls.pause(min(tried, 3)))
        if ticket is None:
            return
        job = await self.reader.poll(ticket)
        if job["state"] == "done" and stream.is_whole:
            said = job["result"]["message"]["content"]
            self.same("the stream equals the stored result", "".join(stream.said), said, ticket.job)
        self.has_ended(ticket)

    async def _listen(self, request: Request, number: int, stream: _Stream) -> Answer | None:
        """Read one connection to its end. None if nothing arrived."""
        client = self.calls.servers.client(self.rng.randrange(1_000))
        answer = None
        asked = self.context.history.now()
        try:
            async with client.stream(
                request.method,
                request.path,
                headers=self.calls.headers(request) | stream.resuming(),
                json=request.json,
                timeout=httpx2.Timeout(_SILENCE_SECONDS, connect=CONNECT_SECONDS),
            ) as got:
                body = b"" if got.status_code == 200 else await got.aread()
                answer = Answer(asked, got.status_code, got.headers, body)
                self.calls.answered(request, number, answer)
                if answer.status == 200:
                    await stream.hear(got)
        except httpx2.HTTPError as error:
            if answer is None:
                self.calls.unknown(request, number, type(error).__name__)
        return None if answer is None or answer.unclear or answer.status == 429 else answer

    async def _cancel(self, ticket: Ticket) -> None:
        await asyncio.sleep(self.rng.uniform(0, 2.0))
        await self.calls.settled(
            Request(
                operation="cancel",
                method="POST",
                path=f"{ticket.poll}/cancel",
                org=ticket.org,
                job=ticket.job,
            )
        )

    def _chat(self) -> dict[str, Any]:
        question = f"What do you know of {self.context.word()}?"
        return {
            "model": self.rng.choice(MODELS),
            "messages": [{"role": "user", "content": question}],
        }

    def _request(
        self,
        path: str,
        org: str,
        chat: dict[str, Any],
        *,
        expect: str = "completed",
        seconds: float = 10.0,
    ) -> Request:
        return Request(
            operation="submit",
            method="POST",
            path=path,
            org=org,
            key=self.context.key(),
            expect=expect,
            json=chat,
            job_of=_job_of,
            seconds=seconds,
        )

    def _ticket(self, org: str, answer: Answer) -> Ticket | None:
        if not answer.ok:
            what = f"{answer.status} {answer.body[:200]!r}"
            self.calls.violation("a valid submission is accepted", what)
            return None
        self.handed_in()
        job = _job_of(answer)
        return Ticket(org, job, f"/jobs/{job}", _show)


class _Stream:
    """The received part of an answer, over all connections."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.is_whole = False

    def resuming(self) -> dict[str, str]:
        """The headers to resume. Without a way to resume, everything is read again."""
        self.said.clear()
        return {}

    async def hear(self, answer: httpx2.Response) -> None:
        raise NotImplementedError


class _Ndjson(_Stream):
    """Ollama's format: an object per line, the last one ``done`` or an error."""

    async def hear(self, answer: httpx2.Response) -> None:
        async for line in answer.aiter_lines():
            if not line.strip():
                continue
            told = json.loads(line)
            if "error" in told:
                return  # such as: restarted, and the earlier output is void
            self.said.append(told["message"]["content"])
            self.is_whole = told["done"]


class _OpenAi(_Stream):
    """OpenAI's format: events with ids to resume after; the last one is ``[DONE]``."""

    def __init__(self) -> None:
        super().__init__()
        self._last_id: str | None = None

    def resuming(self) -> dict[str, str]:
        if self._last_id is None:
            return super().resuming()
        return {"Last-Event-ID": self._last_id}

    async def hear(self, answer: httpx2.Response) -> None:
        async for event in events_of(answer):
            if event.data == "[DONE]":
                self.is_whole = True
                return
            if "error" in event.data:
                self._last_id = None
                return
            if event.id is not None:
                self._last_id = event.id
            for choice in event.data["choices"]:
                self.said.append(choice["delta"].get("content") or "")


def _job_of(answer: Answer) -> str:
    found = answer.headers.get("x-job-id")
    if found is None:
        found = answer.json["job_id"]
    return str(found)


def _show(body: Any) -> Sight:
    return Sight(body["state"], body["terminal"], [body.get("result"), body.get("error")])
