"""The graphs load: archives, posted until the graph is ready, or polled by job."""

from __future__ import annotations

import asyncio
import io
import itertools
import zipfile
from typing import Any, Final

from chaos.load.calls import Answer, Request
from chaos.load.following import Sight, Ticket
from chaos.load.product_load import ProductLoad

_OPERATIONS: Final = ("dependency", "call", "parse", "domain", "supermodel")
_PYTHON: Final = '''"""{word}"""
# {word}
from .other import g

def f(text: str = "{word}") -> str:
    return g(text) + "{word}"

class C:
    def m(self) -> str:
        return f("{word}")
'''
_SCRIPT: Final = """// {word}
import { f } from './lib.js'
export function run(a = '{word}') { return f(a + `{word}`) }
"""


class Graphs(ProductLoad):
    name = "graphs"

    async def scenario(self) -> None:
        org, word = self.org(), self.context.word()
        cancelled = self.chance(0.1)
        headers = {"X-Webhook-Url": self.receiver(org)} if self.chance(0.4) else {}
        request = Request(
            operation="submit",
            method="POST",
            path=f"/v1/graphs/{self.rng.choice(_OPERATIONS)}",
            org=org,
            key=self.context.key(),
            expect="any" if cancelled else "completed",
            files={"file": ("code.zip", _archive(word, self.rng.randint(1, 6)), "application/zip")},
            headers=headers,
            job_of=_job_of,
            seconds=30.0,
        )
        answer = await self.calls.settled(request)
        if not answer.ok:
            self.calls.violation(
                "a valid submission is accepted", f"{answer.status} {answer.body[:200]!r}"
            )
            return
        self.handed_in()
        job = _job_of(answer)
        ticket = Ticket(org, job, f"/v1/graphs/jobs/{job}", _show)
        if cancelled:
            await self._cancel(ticket)
        if self.chance(0.4):
            await self._send_again(request, ticket)
        else:
            await self.reader.follow(ticket)
        self.has_ended(ticket)
        await self._check_receipt(ticket)

    async def _cancel(self, ticket: Ticket) -> None:
        await asyncio.sleep(self.rng.uniform(0, 1.0))
        await self.calls.settled(
            Request(
                operation="cancel",
                method="POST",
                path=f"{ticket.poll}/cancel",
                org=ticket.org,
                job=ticket.job,
            )
        )

    async def _send_again(self, request: Request, ticket: Ticket) -> None:
        """Poll by repeating the whole request, as callers of graphs do."""
        while True:
            answer = await self.calls.settled(request)
            if not answer.ok:
                self.calls.violation("one key, one job", f"{answer.status}", ticket.job)
                return
            self.same("one key, one job", ticket.job, _job_of(answer), ticket.job)
            self.reader.note(ticket, _show(answer.json), asked=answer.asked)
            if answer.json["terminal"]:
                return
            await asyncio.sleep(1.0)

    async def _check_receipt(self, ticket: Ticket) -> None:
        """Wait for the receipt of the archive's deletion."""
        for tried in itertools.count():
            answer = await self.calls.surely_read(ticket.org, f"{ticket.poll}/receipt")
            if answer.status == 404:
                self.calls.violation("a deleted archive has a receipt", "404", ticket.job)
                return
            if answer.status == 200 and answer.json["receipt"]["complete"]:
                return
            await asyncio.sleep(self.calls.pause(tried))


def _archive(word: str, size: int) -> bytes:
    """A few files with the canary in all their texts and names."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(size):
            archive.writestr(f"app/{word}-{number}.py", _PYTHON.replace("{word}", word))
        archive.writestr("app/other.py", f"def g(text):\n    return text  # {word}\n")
        archive.writestr("web/index.js", _SCRIPT.replace("{word}", word))
        archive.writestr("web/lib.js", "export function f(a) { return a }\n")
    return file.getvalue()


def _job_of(answer: Answer) -> str:
    job: str = answer.json["jobId"]
    return job


def _show(body: Any) -> Sight:
    return Sight(body["status"], body["terminal"], [body.get("result"), body.get("error")])
