"""Replicate's predictions: created, read, listed by pages, cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.remotes.fake_service import Call, FakeService, Work

PAGE = 2
WORDS = {
    "running": "processing",
    "completed": "succeeded",
    "failed": "failed",
    "cancelled": "canceled",
}


class FakeReplicate(FakeService):
    def definition(self) -> dict[str, Any]:
        return {
            "kind": "remote",
            "adapter": "replicate",
            "url": self.server.url("/v1"),
            "secret": "SERVICE_KEY",
            "model": "acme/speaker",
            "marks": {"token": "trace"},
        }

    async def respond(self, call: Call, writer: asyncio.StreamWriter) -> None:
        match call.method, call.path.split("/")[1:]:
            case (
                "POST",
                ["v1", "models", "acme", "speaker", "predictions"]
                | ["v1", "deployments", "acme", "warm", "predictions"]
                | ["v1", "predictions"],
            ):
                body = call.json()
                work = Work(f"p{len(self.works)}abc", body["input"], body.get("webhook"))
                self.works[work.id] = work
                self.answer(writer, "201 Created", self._prediction(work) | {"status": "starting"})
            case "GET", ["v1", "predictions"]:
                self._list(call, writer)
            case _, ["v1", "predictions", remote_id, *_] if remote_id not in self.works:
                self.answer(writer, "404 Not Found", {"detail": "Not found.", "status": 404})
            case "GET", ["v1", "predictions", remote_id]:
                self.answer(writer, "200 OK", self._prediction(self.works[remote_id]))
            case "POST", ["v1", "predictions", remote_id, "cancel"]:
                self.cancelled.append(remote_id)
                self.works[remote_id].state = "cancelled"
                self.answer(writer, "200 OK", self._prediction(self.works[remote_id]))
            case _:
                self.answer(writer, "404 Not Found", {"detail": "no such route"})

    def _list(self, call: Call, writer: asyncio.StreamWriter) -> None:
        start = int(call.query.get("cursor", "0"))
        latest = list(reversed(self.works.values()))
        # The address of the next page is of some other server: only its cursor may be used.
        more = f"https://elsewhere.example.com/v1/predictions?cursor={start + PAGE}"
        self.answer(
            writer,
            "200 OK",
            {
                "previous": None,
                "next": more if start + PAGE < len(latest) else None,
                "results": [self._prediction(work) for work in latest[start : start + PAGE]],
            },
        )

    def _prediction(self, work: Work) -> dict[str, Any]:
        done = work.state == "completed"
        return {
            "id": work.id,
            "model": "acme/speaker",
            "version": "hidden",
            "input": work.body,
            "logs": "",
            "output": self.file_url(work) if done else None,
            "data_removed": False,
            "error": work.error or None,
            "status": WORDS[work.state],
            "created_at": "2026-02-03T10:00:00.000Z",
            "metrics": {"predict_time": 1.5} if done else {},
            "urls": {"get": self.server.url(f"/v1/predictions/{work.id}")},
        }
