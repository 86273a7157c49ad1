"""A Stripe on loopback, as far as meters go: takes meter events, each identifier once, counts them
by hour, and fails as a test wants it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.egress.upstream_server import Request, UpstreamServer, head, upstream_server

KEY = "sk_test_fake0123456789"
METERS = {"jobs_completed": "mtr_completed", "job_seconds": "mtr_seconds"}
_DAYS_MAX = 35
_FUTURE_SECONDS_MAX = 300


@dataclass(frozen=True)
class Failure:
    """How one request fails. ``takes_it``: the event is counted all the same. ``drops``: there is
    no answer at all."""

    status: int = 500
    retry_after: str | None = None
    takes_it: bool = False
    drops: bool = False


@dataclass
class FakeStripe:
    """``events`` are those that were counted, in the order in which they came."""

    server: UpstreamServer
    events: list[dict[str, str]] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    """What the next requests meet, one each."""
    answers: list[int] = field(default_factory=list)
    identifiers: set[str] = field(default_factory=set)
    """Those that are remembered: a test may have them forgotten, as a day would."""
    meters: dict[str, str] = field(default_factory=lambda: dict(METERS))

    @property
    def url(self) -> str:
        return self.server.url("")

    def sum_of(self, event_name: str, customer: str = "cus_1") -> int:
        """What a bill would say."""
        return sum(
            int(event["payload[value]"])
            for event in self.events
            if (event["event_name"], event["payload[stripe_customer_id]"]) == (event_name, customer)
        )

    async def answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None and not failure.takes_it:
            status, body = failure.status, {"error": {"type": "api_error"}}
        else:
            status, body = self._answer_to(request)
            if failure is not None:
                status = failure.status
        if failure is not None and failure.drops:
            writer.transport.abort()
            return
        self.answers.append(status)
        headers = [("Content-Type", "application/json")]
        if failure is not None and failure.retry_after is not None:
            headers.append(("Retry-After", failure.retry_after))
        encoded = json.dumps(body).encode()
        headers.append(("Content-Length", str(len(encoded))))
        writer.write(head(f"{status} Said", tuple(headers)) + encoded)

    def _answer_to(self, request: Request) -> tuple[int, dict[str, Any]]:
        if request.header("authorization") != f"Bearer {KEY}":
            return _refused(401, "invalid_request_error", f"Invalid API Key provided: {KEY}")
        target = urlsplit(request.target)
        match request.method, target.path.split("/")[3:]:
            case "POST", ["meter_events"]:
                return self._take(request)
            case "GET", ["meters"]:
                listed = [{"id": i, "event_name": name} for name, i in self.meters.items()]
                return 200, {"object": "list", "data": listed, "has_more": False}
            case "GET", ["meters", meter, "event_summaries"]:
                return 200, self._summaries(meter, dict(parse_qsl(target.query)))
        return _refused(404, "invalid_request_error", "Unrecognized request URL")

    def _take(self, request: Request) -> tuple[int, dict[str, Any]]:
        assert request.header("content-type") == "application/x-www-form-urlencoded"
        assert request.header("idempotency-key") is None
        event = dict(parse_qsl(request.body.decode(), strict_parsing=True))
        assert set(event) == {
            *("event_name", "identifier", "timestamp"),
            *("payload[stripe_customer_id]", "payload[value]"),
        }
        assert len(event["identifier"]) <= 100
        assert int(event["payload[value]"]) > 0
        if event["event_name"] not in self.meters:
            return _refused(400, "invalid_request_error", "No active meter found")
        age = time.time() - int(event["timestamp"])
        if not -_FUTURE_SECONDS_MAX <= age <= _DAYS_MAX * 86_400:
            return _refused(400, "invalid_request_error", "timestamp_too_far_in_past")
        if event["identifier"] in self.identifiers:
            text = f"An event already exists with identifier {event['identifier']}."
            return _refused(400, "invalid_request_error", text)
        self.identifiers.add(event["identifier"])
        self.events.append(event)
        return 200, {"object": "billing.meter_event", "identifier": event["identifier"]}

    def _summaries(self, meter: str, asked: dict[str, str]) -> dict[str, Any]:
        (name,) = [name for name, known in self.meters.items() if known == meter]
        start, end = int(asked["start_time"]), int(asked["end_time"])
        assert start % 3600 == 0, "not at a boundary"
        values = [
            int(event["payload[value]"])
            for event in self.events
            if event["event_name"] == name
            and event["payload[stripe_customer_id]"] == asked["customer"]
            and start <= int(event["timestamp"]) < end
        ]
        return {"data": [{"aggregated_value": float(sum(values))}] if values else []}


def _refused(status: int, kind: str, message: str) -> tuple[int, dict[str, Any]]:
    return status, {"error": {"type": kind, "message": message}}


@contextlib.asynccontextmanager
async def fake_stripe() -> AsyncIterator[FakeStripe]:
    """A Stripe on a port of its own, until the block ends."""
    async with upstream_server() as server:
        stripe = FakeStripe(server)
        server.answer = stripe.answer
        yield stripe
