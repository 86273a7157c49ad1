"""A queue-based endpoint of RunPod's: run, status, cancel; the output is in the status."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.remotes.fake_service import Call, FakeService, Work

WORDS = {
    "running": "IN_PROGRESS",
    "completed": "COMPLETED",
    "failed": "FAILED",
    "cancelled": "CANCELLED",
    "timed out": "TIMED_OUT",
}


class FakeRunpod(FakeService):
    def definition(self) -> dict[str, Any]:
        return {
            "kind": "remote",
            "adapter": "runpod",
            "url": self.server.url("/v2"),
            "secret": "SERVICE_KEY",
            "endpoint": "abc123",
            "output": {"path": "audio_url"},
        }

    async def respond(self, call: Call, writer: asyncio.StreamWriter) -> None:
        match call.method, call.path.split("/")[1:]:
            case "POST", ["v2", "abc123", "run"]:
                body = call.json()
                work = Work(f"60902e6c-{len(self.works)}-u1", body["input"], body.get("webhook"))
                self.works[work.id] = work
                self.answer(writer, "200 OK", {"id": work.id, "status": "IN_QUEUE"})
            case _, ["v2", "abc123", _, remote_id] if remote_id not in self.works:
                self.answer(writer, "404 Not Found", {"error": "job not found"})
            case "GET", ["v2", "abc123", "status", remote_id]:
                self.answer(writer, "200 OK", self._job(self.works[remote_id]))
            case "POST", ["v2", "abc123", "cancel", remote_id]:
                self.cancelled.append(remote_id)
                self.works[remote_id].state = "cancelled"
                self.answer(writer, "200 OK", {"id": remote_id, "status": "CANCELLED"})
            case _:
                self.answer(writer, "404 Not Found", {"error": "no such route"})

    def _job(self, work: Work) -> dict[str, Any]:
        job: dict[str, Any] = {"id": work.id, "status": WORDS[work.state], "delayTime": 31}
        if work.state == "completed":
            job |= {"output": {"audio_url": self.file_url(work)}, "executionTime": 1_500}
        if work.error:
            job["error"] = work.error
        return job
