"""The speech load: texts for a remote, started once, polled, cancelled, with the audio compared."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from chaos.load.calls import Answer, Request
from chaos.load.following import Sight, Ticket
from chaos.load.product_load import ProductLoad
from chaos.speech_remote import FAIL, LATE, LOSE, SLOW, spoken

_MARKS: Final[Mapping[str, int]] = {"": 40, LATE: 35, SLOW: 12, LOSE: 8, FAIL: 5}


class Speech(ProductLoad):
    name = "speech"

    async def prepare(self) -> None:
        """Upload a voice for each organisation's user."""
        self._voices: dict[str, str] = {}
        reference = spoken(f"This is how I sound, says {self.context.word()}.")
        for org in self.context.orgs:
            answer = await self.calls.settled(
                Request(
                    operation="upload_voice",
                    method="POST",
                    path="/voices",
                    org=org,
                    files={"file": ("me.wav", reference, "audio/wav")},
                )
            )
            assert answer.ok, answer.body
            self._voices[org] = answer.json["voice_id"]

    async def scenario(self) -> None:
        org, cancelled = self.org(), self.chance(0.12)
        (mark,) = self.rng.choices(list(_MARKS), weights=list(_MARKS.values()))
        text = f"Say {self.context.word()} {mark}".rstrip()
        end = "failed" if mark == FAIL else "completed"
        body = {"voice_id": self._voices[org], "text": text, "language": "en"}
        if self.chance(0.3):
            body["webhook_url"] = self.receiver(org)
        if self.chance(0.15):
            body["state_webhook_url"] = self.receiver(org)
        request = Request(
            operation="submit",
            method="POST",
            path="/generate",
            org=org,
            key=self.context.key(),
            expect="any" if cancelled else end,
            json=body,
            job_of=_job_of,
        )
        answer = await self.calls.settled(request)
        if not answer.ok:
            what = f"{answer.status} {answer.body[:200]!r}"
            self.calls.violation("a valid submission is accepted", what)
            return
        self.handed_in()
        job = _job_of(answer)
        ticket = Ticket(org, job, f"/tasks/{job}", _show)
        if cancelled:
            await self._cancel(ticket)
        task = await self.reader.follow(ticket)
        if task["status"] == "completed":
            await self._check_audio(ticket, task, text)
        self.has_ended(ticket)

    async def _cancel(self, ticket: Ticket) -> None:
        await asyncio.sleep(self.rng.uniform(0, 3.0))
        await self.calls.settled(
            Request(
                operation="cancel",
                method="POST",
                path=f"{ticket.poll}/cancel",
                org=ticket.org,
                job=ticket.job,
                seconds=20.0,
            )
        )

    async def _check_audio(self, ticket: Ticket, task: Any, text: str) -> None:
        answer = await self.calls.surely_read(ticket.org, task["result"]["audio_url"])
        self.same("the audio is stored", answer.body, spoken(text), ticket.job)


def _job_of(answer: Answer) -> str:
    job: str = answer.json["task_id"]
    return job


def _show(body: Any) -> Sight:
    """Show a task. URLs are signed anew each time, so compare the key instead."""
    result = body.get("result") or {}
    outcome = [result.get("audio_object_key"), result.get("duration_seconds"), body.get("error")]
    return Sight(body["status"], body["terminal"], outcome)
