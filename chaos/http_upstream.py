"""The upstream of a service registered over HTTP. It never dies, and records each call."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from chaos.history import History


class HttpUpstream:
    """Answers ``POST /upstream/work`` as the body asks: succeed, fail once, or refuse."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._calls: Counter[str] = Counter()
        self.routes = [Route("/upstream/work", self._work, methods=["POST"])]

    async def _work(self, request: Request) -> Response:
        body: dict[str, Any] = await request.json()
        job = request.headers.get("x-coatcheck-job-id", "")
        attempt = int(request.headers.get("x-coatcheck-attempt", "0"))
        self._calls[job] += 1
        self._history.note(
            "upstream",
            surface="gateway",
            event="called",
            job=job,
            attempt=attempt,
            call_number=self._calls[job],
            key=request.headers.get("idempotency-key"),
        )
        await asyncio.sleep(body["seconds"])
        match body["end"]:
            case "refuse":
                return JSONResponse({"detail": "no"}, status_code=404)
            case "stumble" if self._calls[job] == 1:
                return JSONResponse({"detail": "not yet"}, status_code=500)
            case _:
                answer = {"job": job, "attempt": attempt, "word": body["word"]}
                return JSONResponse(answer | {"call": self._calls[job]})
