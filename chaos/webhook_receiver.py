"""A webhook receiver that verifies and records each webhook, and fails now and then."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter, defaultdict
from typing import Any, Final

from standardwebhooks import Webhook, WebhookVerificationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from chaos.history import History

FAILS: Final = 0.03
IS_BUSY: Final = 0.01
IS_SLOW: Final = 0.03
"""How often it does so when a message comes for the first time. The second time it takes it: what
fails twice is tried again after minutes only, which no run would wait for."""
_BUSY_SECONDS: Final = 1
_SLOW_SECONDS: Final = (0.5, 3.0)


class WebhookReceiver:
    """Takes ``POST /hook/{org}/{surface}/{number}``: each number is a receiver of its own."""

    def __init__(self, history: History, seed: int) -> None:
        self._history = history
        self._rng = random.Random(f"receiver {seed}")
        self._secrets: defaultdict[str, dict[str, Webhook]] = defaultdict(dict)
        self._deliveries: Counter[str] = Counter()
        self.routes = [Route("/hook/{org}/{surface}/{number}", self._take, methods=["POST"])]

    def trust(self, org: str, secret: str) -> None:
        """From now on this secret counts for what is sent on behalf of ``org``."""
        self._secrets[org][secret] = Webhook(secret)

    async def _take(self, request: Request) -> Response:
        body = await request.body()
        org: str = request.path_params["org"]
        message_id = request.headers.get("webhook-id", "")
        told = self._verified(org, body, request)
        self._deliveries[message_id] += 1
        status, seconds = self._mood(self._deliveries[message_id])
        if told is None:
            status, seconds = 400, 0.0
        if seconds:
            await asyncio.sleep(seconds)
        # Before the answer: whoever was told 2xx has been heard.
        self._history.note(
            "received",
            webhook_id=message_id,
            org=org,
            surface=request.path_params["surface"],
            path=request.url.path,
            delivery=self._deliveries[message_id],
            verified=told is not None,
            answered=status,
            body_digest=hashlib.sha256(body).hexdigest(),
            **_subject(told or {}),
        )
        headers = {"Retry-After": str(_BUSY_SECONDS)} if status == 503 else {}
        return Response(status_code=status, headers=headers)

    def _verified(self, org: str, body: bytes, request: Request) -> dict[str, Any] | None:
        """What is told, if one of the organisation's secrets has signed it."""
        for webhook in self._secrets[org].values():
            try:
                told: dict[str, Any] = webhook.verify(body, dict(request.headers))
            except WebhookVerificationError:
                continue  # perhaps with another one
            return told
        return None

    def _mood(self, delivery: int) -> tuple[int, float]:
        """What it answers, and after how long."""
        drawn = self._rng.random()
        if delivery > 1:
            return 204, 0.0
        if drawn < FAILS:
            return 500, 0.0
        if drawn < FAILS + IS_BUSY:
            return 503, 0.0
        if drawn < FAILS + IS_BUSY + IS_SLOW:
            return 204, self._rng.uniform(*_SLOW_SECONDS)
        return 204, 0.0


def _subject(told: dict[str, Any]) -> dict[str, Any]:
    """What a message says happened, and to what, as its surface spells it."""
    data = told.get("data") or told
    return {
        "type": told.get("type"),
        "job": next((data[name] for name in ("id", "jobId", "job_id") if name in data), None),
        "state": told.get("state"),
        "previous_state": told.get("previous_state"),
        "timestamp": told.get("timestamp"),
    }
