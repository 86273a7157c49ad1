"""A server of the plain protocol: the same token, the same job."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.remotes.fake_service import Call, FakeService, Work


class FakeHttp(FakeService):
    def definition(self) -> dict[str, Any]:
        return {
            "kind": "remote",
            "adapter": "http",
            "url": self.server.url("/tts"),
            "secret": "SERVICE_KEY",
        }

    async def respond(self, call: Call, writer: asyncio.StreamWriter) -> None:
        match call.method, call.path:
            case "POST", "/tts/submit-job":
                body = call.json()
                token = body.pop("token")
                assert call.request.header("idempotency-key") == token
                remote_id = f"job/{token[:8]}"  # ids are whatever a server likes
                callback = body.pop("callback_url", None)
                self.works.setdefault(remote_id, Work(remote_id, body, callback))
                self.answer(writer, "202 Accepted", {"job_id": remote_id})
            case "POST", "/tts/job-cancel":
                remote_id = call.json()["job_id"]
                if remote_id not in self.works:
                    self.answer(writer, "404 Not Found", {"detail": "no such job"})
                    return
                self.cancelled.append(remote_id)
                self.works[remote_id].state = "cancelled"
                self.answer(writer, "200 OK", {"status": "cancelled"})
            case "GET", "/tts/job-status" | "/tts/job-result":
                work = self.works.get(call.query["job_id"])
                if work is None:
                    self.answer(writer, "404 Not Found", {"detail": "no such job"})
                elif call.path.endswith("result"):
                    await self.send_file(work, writer)
                else:
                    self.answer(writer, "200 OK", {"status": work.state, "error": work.error})
            case _:
                self.answer(writer, "404 Not Found", {"detail": "no such route"})
