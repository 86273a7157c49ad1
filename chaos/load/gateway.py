"""The gateway load: jobs in all lanes, quick, slow, cancelled, repeated, raced and retried."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, Final

from chaos.handlers import artifact_of
from chaos.load import gateway_work
from chaos.load.calls import Answer, Request
from chaos.load.event_stream import Event
from chaos.load.following import Sight, Ticket
from chaos.load.gateway_work import SERVICE, UPSTREAM_SERVICE, Work
from chaos.load.product_load import LoadContext, ProductLoad

_LANES: Final = ("urgent", "standard", "bulk")
_STATUS_IDS_MAX: Final = 50
_LOOK_SECONDS: Final = 2.0


class Gateway(ProductLoad):
    name = "gateway"

    def __init__(self, context: LoadContext) -> None:
        super().__init__(context)
        self._waiting: dict[str, Ticket] = {}
        """Unfinished jobs of our own service."""

    async def prepare(self) -> None:
        """Register the HTTP upstream as a service."""
        endpoint = {
            "method": "POST",
            "path": "/work",
            "timeout": 60,
            "retries": 20,
            "target": {"type": "http", "url": self.context.world.upstream_url},
        }
        for org in self.context.orgs:
            answer = await self.calls.settled(
                Request(
                    operation="register",
                    method="PUT",
                    path=f"/api/v1/orgs/{org}/workspaces/default/hosted-services/{UPSTREAM_SERVICE}",
                    org=org,
                    json={"versions": {"1": {"endpoints": [endpoint]}}},
                )
            )
            assert answer.ok, answer.body

    async def scenario(self) -> None:
        work = gateway_work.drawn(self.rng, self.context.word(), self.context.log)
        org, cancelled = self.org(), work.kind != "synchronous" and self.chance(0.1)
        request = Request(
            operation="submit",
            method="POST",
            path=f"/api/v1/orgs/{org}/services/{work.service}{work.path}",
            org=org,
            key=self.context.key(),
            expect="any" if cancelled else work.end,
            json=work.body,
            headers=self._headers(org),
            seconds=45.0 if work.kind == "synchronous" else 10.0,
            job_of=_job_of,
        )
        ticket = await self._submitted(request, work)
        if ticket is None:
            return
        job = await self._seen_to_end(ticket, work, cancelled=cancelled)
        if self.chance(0.1):
            await self._submitted(request, work, known=ticket)
        if job["status"] == "failed" and self.chance(0.2):
            await self._retry(ticket, work)

    def _headers(self, org: str) -> dict[str, str]:
        headers = {"X-HSL-Lane": self.rng.choice(_LANES)}
        if self.chance(0.3):
            headers["X-Webhook-Url"] = self.receiver(org)
        if self.chance(0.15):
            headers["X-State-Webhook-Url"] = self.receiver(org)
        return headers

    async def _submitted(
        self, request: Request, work: Work, known: Ticket | None = None
    ) -> Ticket | None:
        """Submit a job; now and then twice at once, and both must get the same job.

        ``known`` is the earlier answer for the key. Returns None if it was refused.
        """
        racers = 2 if self.chance(0.08) else 1
        answers = await asyncio.gather(*(self.calls.settled(request) for _ in range(racers)))
        for answer in answers:
            if not answer.ok:
                what = f"{answer.status} {answer.code}"
                self.calls.violation("a valid submission is accepted", what)
        jobs = [job for answer in answers if answer.ok and (job := _job_of(answer)) is not None]
        if not jobs:
            return None
        first = jobs[0] if known is None else known.job
        for job in jobs:
            self.same("one key, one job", first, job, first)
        if known is None:
            self.handed_in()
        poll = f"/api/v1/orgs/{request.org}/services/{work.service}/jobs/{first}"
        return Ticket(request.org, first, poll, _show)

    async def _seen_to_end(self, ticket: Ticket, work: Work, *, cancelled: bool) -> Any:
        """The finished job."""
        if work.service == SERVICE:
            self._waiting[ticket.job] = ticket
        try:
            if cancelled:
                await self._cancel(ticket)
            if work.kind == "reporting" and not cancelled:
                job = await self._heard_to_end(ticket, work)
            else:
                job = await self.reader.follow(ticket)
        finally:
            self._waiting.pop(ticket.job, None)
        self.has_ended(ticket)
        return job

    async def _cancel(self, ticket: Ticket) -> None:
        await asyncio.sleep(self.rng.uniform(0, 2.0) * self.chance(0.7))
        await self.calls.settled(
            Request(
                operation="cancel",
                method="POST",
                path=f"{ticket.poll}/cancel",
                org=ticket.org,
                job=ticket.job,
            )
        )

    async def _retry(self, ticket: Ticket, work: Work) -> None:
        """Retry a failed job as a new job, which fails as well."""
        request = Request(
            operation="retry",
            method="POST",
            path=f"/api/v1/orgs/{ticket.org}/jobs/{ticket.job}/retry",
            org=ticket.org,
            key=self.context.key(),
            expect=work.end,
            job_of=_job_of,
        )
        again = await self._submitted(request, work)
        if again is not None:
            await self._seen_to_end(again, work, cancelled=False)

    # Reports and artifacts of a job

    async def _heard_to_end(self, ticket: Ticket, work: Work) -> Any:
        events = await self.reader.listen(ticket)
        job = await self.reader.poll(ticket)
        if job["status"] == "completed":
            self._check_output(ticket, events, job["result_summary"], work.body["lines"])
            await self._check_artifact(ticket, work.body["word"])
        return job

    def _check_output(
        self, ticket: Ticket, events: list[Event], result: dict[str, Any], lines: int
    ) -> None:
        """Check that each line of the accepted execution arrived once and in order."""
        chunks = [event.data["data"] for event in events if event.name == "chunk"]
        heard = [each["number"] for each in chunks if each["execution"] == result["execution"]]
        self.same("output is heard whole", heard, list(range(lines)), ticket.job)

    async def _check_artifact(self, ticket: Ticket, word: str) -> None:
        path = f"{ticket.poll}/artifacts/made.txt"
        answer = await self.calls.surely_read(ticket.org, path)
        self.same("artifacts are whole", answer.body, artifact_of(word), ticket.job)
        if self.chance(0.3):
            await self._delete_artifact(ticket, path)

    async def _delete_artifact(self, ticket: Ticket, path: str) -> None:
        """Delete an artifact: it can no longer be read, and soon a receipt confirms that."""
        answer = await self.calls.settled(
            Request(
                operation="delete_artifact",
                method="DELETE",
                path=path,
                org=ticket.org,
                job=ticket.job,
            )
        )
        self.same("artifacts can be deleted", answer.ok, True, ticket.job)
        read = await self.calls.surely_read(ticket.org, path)
        self.same("a deleted artifact cannot be read", read.status, 404, ticket.job)
        for tried in itertools.count():
            receipt = await self.calls.surely_read(ticket.org, f"{path}/receipt")
            if receipt.status != 200:
                self.calls.violation(
                    "deleted artifacts have receipts", f"{receipt.status}", ticket.job
                )
                return
            if receipt.json["receipt"]["complete"]:
                return
            await asyncio.sleep(self.calls.pause(tried))

    # In the background

    async def watch(self) -> None:
        """Read many jobs at once, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for org in self.context.orgs:
                tickets = [each for each in self._waiting.values() if each.org == org]
                if tickets:
                    await self._look_at(org, tickets[:_STATUS_IDS_MAX])

    async def _look_at(self, org: str, tickets: list[Ticket]) -> None:
        by_job = {ticket.job: ticket for ticket in tickets}
        answer = await self.calls.read(
            org,
            f"/api/v1/orgs/{org}/workspaces/default/hosted-services/{SERVICE}/jobs/batch-status"
            f"?job_ids={','.join(by_job)}",
        )
        if answer is None:
            return
        assert answer.status == 200, answer.body
        for job in answer.json["items"]:
            self.reader.note(by_job[job["id"]], _show(job), asked=answer.asked)
        for missing in answer.json["not_found"]:
            what = "not found by batch-status"
            self.calls.violation("an acknowledged job can be read", what, missing)


def _job_of(answer: Answer) -> str | None:
    """The job of an answer: of a ticket, a result, or a failed call."""
    if "location" in answer.headers:
        return answer.headers["location"].rpartition("/")[2]
    told = answer.json
    found: str | None = told.get("job_id") or told.get("job")
    return found


def _show(body: Any) -> Sight:
    return Sight(
        body["status"], body["terminal"], [body.get("result_summary"), body.get("last_error")]
    )
