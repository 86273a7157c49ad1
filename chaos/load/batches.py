"""The batches load: inline, uploaded, streamed and open lists; reruns, cancellations, exports."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import math
import zipfile
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from chaos.load.calls import Answer, Request
from chaos.load.following import Sight, Ticket
from chaos.load.product_load import ProductLoad

_KINDS: Final[Mapping[str, int]] = {"body": 60, "open": 22, "staged": 10, "streamed": 8}
_TASKS_MAX: Final = 300
_LIST_LINES: Final = (20, 2_000)
_BAD_LINE: Final = b'{"word": "cut off'
_ENDS: Final = ("succeed", "fail", "stumble")
_LANES: Final = ("standard", "bulk")

Tasks = list[dict[str, Any]]


class Batches(ProductLoad):
    name = "batches"

    async def scenario(self) -> None:
        (kind,) = self.rng.choices(list(_KINDS), weights=list(_KINDS.values()))
        org = self.org()
        cancelled = self.chance(0.12)
        match kind:
            case "open":
                ticket, size = await self._open(org, cancelled=cancelled)
            case "staged":
                ticket, size = await self._staged(org, cancelled=cancelled)
            case "streamed":
                ticket, size = await self._streamed(org, cancelled=cancelled)
            case _:
                ticket, size = await self._in_one_body(org, cancelled=cancelled)
        if ticket is None:
            return
        self.context.tasks_waiting += size
        try:
            await self._see_it_end(ticket, size, cancelled=cancelled)
        finally:
            self.context.tasks_waiting -= size
        self.has_ended(ticket)

    async def _see_it_end(self, ticket: Ticket, size: int, *, cancelled: bool) -> None:
        if cancelled:
            await asyncio.sleep(self.rng.uniform(0, 1.5))
            await self._order(ticket, "cancel")
        batch = await self.reader.follow(ticket)
        if batch["status"] == "completed":
            self.same("every task is there", batch["counts"]["total"], size, ticket.job)
        if batch["status"] == "completed" and batch["counts"]["failed"] and self.chance(0.4):
            batch = await self._rerun(ticket, batch)
        if batch["status"] in {"completed", "cancelled"} and self.chance(0.3):
            await self._export(ticket, batch)

    # Submitting

    async def _in_one_body(self, org: str, *, cancelled: bool) -> tuple[Ticket | None, int]:
        tasks = self._tasks(round(math.exp(self.rng.uniform(0, math.log(_TASKS_MAX)))))
        body = self._options(org) | {"tasks": tasks}
        if self.chance(0.2):
            body["async"] = True
        return await self._created(org, len(tasks), cancelled, json=body), len(tasks)

    async def _open(self, org: str, *, cancelled: bool) -> tuple[Ticket | None, int]:
        """Submit an open job, add tasks in several calls, then close it."""
        body = self._options(org) | {"type": "open"}
        ticket = await self._created(org, 0, cancelled, json=body)
        if ticket is None:
            return None, 0
        size = 0
        for _ in range(self.rng.randint(1, 4)):
            tasks = self._tasks(self.rng.randint(1, 60))
            answer = await self.calls.settled(
                Request(
                    operation="add_tasks",
                    method="POST",
                    path=f"{ticket.poll}/tasks",
                    org=org,
                    key=self.context.key(),
                    job=ticket.job,
                    tasks=len(tasks),
                    json={"tasks": tasks},
                )
            )
            self._taken(answer, ticket.job)
            size += len(tasks)
            await asyncio.sleep(self.rng.uniform(0, 0.5))
        await self._order(ticket, "close")
        return ticket, size

    async def _staged(self, org: str, *, cancelled: bool) -> tuple[Ticket | None, int]:
        """Upload a list to a signed URL, then submit it by its id."""
        content, size = self._list()
        made = await self.calls.settled(
            Request(operation="upload", method="POST", path="/v1/uploads", org=org)
        )
        self._taken(made)
        upload = made.json
        put = await self.calls.settled(
            Request(
                operation="put",
                method=upload["method"],
                path=upload["url"],
                org=org,
                content=content,
                headers=upload["headers"],
                anonymous=True,
                seconds=30.0,
            )
        )
        self._taken(put)
        body = self._options(org) | {"source": {"upload_id": upload["upload_id"]}}
        return await self._created(org, size, cancelled, json=body), size

    async def _streamed(self, org: str, *, cancelled: bool) -> tuple[Ticket | None, int]:
        """Send a list as the body, with its options in the query."""
        content, size = self._list()
        options = self._options(org)
        query = urlencode({name: _text(value) for name, value in options.items()})
        made = await self._created(
            org,
            size,
            cancelled,
            query=f"?{query}",
            content=content,
            headers={"Content-Type": "application/x-ndjson"},
        )
        return made, size

    async def _created(
        self, org: str, size: int, cancelled: bool, *, query: str = "", **body: Any
    ) -> Ticket | None:
        request = Request(
            operation="create_batch",
            method="POST",
            path=f"/v1/jobs{query}",
            org=org,
            key=self.context.key(),
            expect="any" if cancelled else "completed",
            tasks=size,
            job_of=_job_of,
            seconds=30.0,
            **body,
        )
        racers = 2 if self.chance(0.08) else 1
        answers = await asyncio.gather(*(self.calls.settled(request) for _ in range(racers)))
        for answer in answers:
            self._taken(answer)
        jobs = [_job_of(answer) for answer in answers if answer.ok]
        if not jobs:
            return None
        for job in jobs:
            self.same("one key, one job", jobs[0], job, jobs[0])
        self.handed_in()
        return Ticket(org, jobs[0], f"/v1/jobs/{jobs[0]}", _show)

    def _tasks(self, size: int) -> Tasks:
        return [self._task(number) for number in range(size)]

    def _task(self, number: int) -> dict[str, Any]:
        (end,) = self.rng.choices(_ENDS, weights=[92, 4, 4])
        seconds = self.rng.choices([0.0, 0.05, 1.0], weights=[92, 7.5, 0.5])[0]
        given = {
            "word": self.context.word(),
            "log": self.context.log,
            "end": end,
            "seconds": seconds,
        }
        return {"custom_id": f"task-{number}", "input": given} if self.chance(0.5) else given

    def _list(self) -> tuple[bytes, int]:
        """A list as NDJSON, and the number of its valid lines."""
        least, most = _LIST_LINES
        size = round(math.exp(self.rng.uniform(math.log(least), math.log(most))))
        lines = [json.dumps(task).encode() for task in self._tasks(size)]
        if self.chance(0.3):
            lines.insert(self.rng.randrange(size), _BAD_LINE)
        return b"\n".join(lines) + b"\n", size

    def _options(self, org: str) -> dict[str, Any]:
        options: dict[str, Any] = {"service": "chaos", "endpoint": "/task"}
        options["lane"] = self.rng.choice(_LANES)
        if self.chance(0.15):
            options["concurrency"] = self.rng.randint(2, 10)
        if self.chance(0.5):
            options["webhook_url"] = self.receiver(org)
            options["webhook_events"] = ["completed", "task.failed"]
        return options

    # Operations on a batch

    async def _order(self, ticket: Ticket, operation: str, body: Any = None) -> Answer:
        return await self.calls.settled(
            Request(
                operation=operation if operation != "close" else "close_batch",
                method="POST",
                path=f"{ticket.poll}/{operation}",
                org=ticket.org,
                job=ticket.job,
                json=body,
            )
        )

    async def _rerun(self, ticket: Ticket, batch: Any) -> Any:
        """Rerun the failed tasks, and return the batch after the rerun."""
        failed, runs = batch["counts"]["failed"], len(batch["runs"])
        answer = await self._order(ticket, "rerun", {"filter": {"status": ["failed"]}})
        if not answer.ok and answer.code != "batch_still_runs":
            self.calls.violation("a finished run can be rerun", f"{answer.code}", ticket.job)
            return batch
        while len(batch["runs"]) <= runs:
            await asyncio.sleep(0.2)
            batch = await self.reader.poll(ticket)
        if batch["status"] == "completed" and answer.ok:
            run = batch["runs"][runs]
            self.same("failed tasks are rerun", run["counts"]["total"], failed, ticket.job)
        return batch

    async def _export(self, ticket: Ticket, batch: Any) -> None:
        """Export the batch as a zip, and check that it is complete."""
        answer = await self._order(ticket, "exports", {})
        if not answer.ok:
            self.calls.violation("a batch can be exported", f"{answer.code}", ticket.job)
            return
        poll = answer.json["urls"]["poll"]
        export = answer.json
        while not export["terminal"]:
            await asyncio.sleep(0.5)
            export = (await self.calls.surely_read(ticket.org, poll)).json
        if export["status"] != "completed":
            self.calls.violation("an export is written", f"{export['error']}", ticket.job)
            return
        content = (await self.calls.surely_read(ticket.org, export["url"])).body
        lines = self._check_export(ticket, batch, export, content)
        run = batch["runs"][-1]["number"]
        self.context.history.note(
            "exported", surface=self.name, job=ticket.job, run=run, lines=lines
        )

    def _check_export(self, ticket: Ticket, batch: Any, export: Any, content: bytes) -> int:
        digest = hashlib.sha256(content).hexdigest()
        self.same("an export is whole", digest, export["sha256"], ticket.job)
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            manifest = json.loads(archive.read("manifest.json"))
            results = archive.read("results.ndjson").splitlines()
            errors = archive.read("errors.ndjson").splitlines()
        self.same("an export is complete", manifest["complete"], True, ticket.job)
        self.same(
            "an export has every task", len(results), batch["counts"]["succeeded"], ticket.job
        )
        return len(results) + len(errors)

    def _taken(self, answer: Answer, job: str | None = None) -> None:
        if not answer.ok:
            what = f"{answer.status} {answer.code} {answer.body[:200]!r}"
            self.calls.violation("a valid submission is accepted", what, job)


def _job_of(answer: Answer) -> str:
    job: str = answer.json["id"]
    return job


def _show(body: Any) -> Sight:
    """Show a batch. Its result is the counts of its first run, which no rerun changes."""
    first = body["runs"][0]
    return Sight(body["status"], body["terminal"], [first["id"], first["status"], first["counts"]])


def _text(value: Any) -> str:
    return ",".join(value) if isinstance(value, list) else str(value)
