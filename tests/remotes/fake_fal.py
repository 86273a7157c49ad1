"""fal's queue: a request is asked about below its app, whatever path it was submitted to."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.remotes.fake_service import Call, FakeService, Work


class FakeFal(FakeService):
    authorization = f"Key {FakeService.secret}"

    def definition(self) -> dict[str, Any]:
        return {
            "kind": "remote",
            "adapter": "fal",
            "url": self.server.url("").rstrip("/"),
            "secret": "SERVICE_KEY",
            "model": "acme/speaker/turbo",
            "output": {"path": "audio"},
        }

    async def respond(self, call: Call, writer: asyncio.StreamWriter) -> None:
        match call.method, call.path.split("/")[1:]:
            case "POST", ["acme", "speaker", "turbo"]:
                work = Work(
                    f"764cabcf-b745-4b3e-{len(self.works)}",
                    call.json(),
                    call.query.get("fal_webhook"),
                )
                self.works[work.id] = work
                queued = {"request_id": work.id, "status": "IN_QUEUE", **self._urls(work)}
                self.answer(writer, "200 OK", queued)
            case _, ["acme", "speaker", "requests", remote_id, *_] if remote_id not in self.works:
                self.answer(writer, "404 Not Found", {"status": "NOT_FOUND"})
            case "GET", ["acme", "speaker", "requests", remote_id, "status"]:
                self._status(self.works[remote_id], writer)
            case "GET", ["acme", "speaker", "requests", remote_id]:
                self._response(self.works[remote_id], writer)
            case "PUT", ["acme", "speaker", "requests", remote_id, "cancel"]:
                self._cancel(self.works[remote_id], writer)
            case _:
                self.answer(writer, "404 Not Found", {"detail": "no such route"})

    def _status(self, work: Work, writer: asyncio.StreamWriter) -> None:
        if work.state == "running":
            document = {"status": "IN_QUEUE", "queue_position": 3, **self._urls(work)}
            self.answer(writer, "202 Accepted", document)
            return
        document = {"status": "COMPLETED", "logs": None, **self._urls(work)}
        if work.error:
            document |= {"error": work.error, "error_type": "runner_error"}
        self.answer(writer, "200 OK", document)

    def _response(self, work: Work, writer: asyncio.StreamWriter) -> None:
        if work.state == "failed":
            detail = [{"loc": ["body", "text"], "msg": work.error, "type": "value_error"}]
            self.answer(writer, "422 Unprocessable Entity", {"detail": detail})
            return
        audio = {"url": self.file_url(work), "content_type": work.media_type, "duration": 2.5}
        self.answer(writer, "200 OK", {"audio": audio, "seed": 7})

    def _cancel(self, work: Work, writer: asyncio.StreamWriter) -> None:
        if work.state != "running":
            self.answer(writer, "400 Bad Request", {"status": "ALREADY_COMPLETED"})
            return
        self.cancelled.append(work.id)
        work.state, work.error = "cancelled", "Request was cancelled"
        self.answer(writer, "202 Accepted", {"status": "CANCELLATION_REQUESTED"})

    def _urls(self, work: Work) -> dict[str, str]:
        request = self.server.url(f"/acme/speaker/requests/{work.id}")
        return {
            "response_url": request,
            "status_url": f"{request}/status",
            "cancel_url": f"{request}/cancel",
        }
