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
"""The share of messages that fail at the first try. The second try succeeds: after two failures the
next try comes minutes later, longer than a run waits."""
_BUSY_SECONDS: Final = 1
_SLOW_SECONDS: Final = (0.5, 3.0)


class WebhookReceiver:
    """Receives ``POST /hook/{org}/{surface}/{number}``: each number is another receiver."""

    def __init__(self, history: History, seed: int) -> None:
        self._history = history
        self._rng = random.Random(f"receiver {seed}")
        self._secrets: defaultdict[str, dict[str, Webhook]] = defaultdict(dict)
        self._deliveries: Counter[str] = Counter()
        self.routes = [Route("/hook/{org}/{surface}/{number}", self._take, methods=["POST"])]

    def trust(self, org: str, secret: str) -> None:
        """Accept this secret for webhooks of ``org`` from now on."""
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
        # Before the answer, so that every 2xx is recorded.
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
        """The event, if it was signed with one of the organisation's secrets."""
        for webhook in self._secrets[org].values():
            try:
                told: dict[str, Any] = webhook.verify(body, dict(request.headers))
            except WebhookVerificationError:
                continue  # try another secret
            return told
        return None

    def _mood(self, delivery: int) -> tuple[int, float]:
        """The status to answer, and the delay."""
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
    """The type and the subject of a message."""
    data = told.get("data") or told
    return {
        "type": told.get("type"),
        "job": next((data[name] for name in ("id", "jobId", "job_id") if name in data), None),
        "state": told.get("state"),
        "previous_state": told.get("previous_state"),
        "timestamp": told.get("timestamp"),
    }
