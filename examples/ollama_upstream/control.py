"""``/control``: controls the upstream from outside, and reads its records.

GET    /control/seen        counts and the latest requests      DELETE  count from nothing
POST   /control/faults      plan a fault: the fields of Fault   DELETE  forget them all
PATCH  /control/tuning      change fields of Tuning
POST   /control/go_away     {"seconds": n}: refuse connections for that time
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, fields
from typing import Any

import msgspec

from examples.ollama_upstream.exchange import Exchange
from examples.ollama_upstream.failures import Refused
from examples.ollama_upstream.faults import Fault
from examples.ollama_upstream.requests import body_object
from examples.ollama_upstream.service import Service
from examples.ollama_upstream.tuning import Tuning

PREFIX = "/control/"


class Control:
    def __init__(self, service: Service, go_away: Callable[[Fault], Awaitable[None]]) -> None:
        self._service = service
        self._go_away = go_away

    async def serve(self, exchange: Exchange) -> None:
        try:
            body = await exchange.body()
            if (exchange.method, exchange.path) == ("POST", "/control/go_away"):
                seconds = _fault({"kind": "go_away"} | body_object(body))
                await exchange.answer({}, 202)
                await self._go_away(seconds)
            else:
                await exchange.answer(self._done(exchange.method, exchange.path, body))
        except Refused as refused:
            await exchange.answer({"error": refused.message}, refused.status)

    def _done(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        service = self._service
        match method, path.removeprefix(PREFIX):
            case "GET", "seen":
                return service.seen.as_json() | {"resident": service.memory.resident()}
            case "DELETE", "seen":
                service.seen.reset()
            case "POST", "faults":
                service.faults.plan(_fault(body_object(body)))
            case "DELETE", "faults":
                service.faults.clear()
            case "PATCH", "tuning":
                return _tune(service.tuning, body_object(body))
            case _:
                raise Refused(404, f"no such route: {method} {path}")
        return {}


def _fault(given: dict[str, Any]) -> Fault:
    try:
        return msgspec.convert(given, Fault)
    except msgspec.ValidationError as error:
        raise Refused(400, str(error)) from None


def _tune(tuning: Tuning, changes: dict[str, Any]) -> dict[str, Any]:
    try:
        tuned = msgspec.convert(asdict(tuning) | changes, Tuning)
    except msgspec.ValidationError as error:
        raise Refused(400, str(error)) from None
    for each in fields(Tuning):
        setattr(tuning, each.name, getattr(tuned, each.name))
    return asdict(tuning)
