"""``/control``: controls the remote from outside, and reads its records.

GET    /control/seen        counts and the latest requests      DELETE  count from nothing
GET    /control/jobs        all jobs in the folder, and their states
POST   /control/faults      plan a fault: the fields of Fault   DELETE  forget them all
PATCH  /control/tuning      change fields of Tuning
POST   /control/go_away     {"seconds": n}: refuse connections for that time
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, fields
from typing import Any

import msgspec

from examples.tts_remote.callbacks import status_of
from examples.tts_remote.exchange import Answer, Exchange
from examples.tts_remote.failures import Refused, Stopped
from examples.tts_remote.faults import Fault, Faults
from examples.tts_remote.job_folders import JobFolders
from examples.tts_remote.records import Seen
from examples.tts_remote.tuning import Tuning

PREFIX = "/control/"


class Control:
    def __init__(
        self,
        folders: JobFolders,
        *,
        tuning: Tuning,
        faults: Faults,
        seen: Seen,
        go_away: Callable[[Fault], Awaitable[None]],
    ) -> None:
        self._folders = folders
        self._tuning = tuning
        self._faults = faults
        self._seen = seen
        self._go_away = go_away

    async def serve(self, exchange: Exchange) -> None:
        try:
            body = await exchange.body()
            if (exchange.method, exchange.path) == ("POST", "/control/go_away"):
                fault = _fault({"kind": "go_away"} | _object(body))
                await exchange.answer(Answer({}, status=202))
                await self._go_away(fault)
            else:
                await exchange.answer(Answer(self._done(exchange.method, exchange.path, body)))
        except Refused as refused:
            await exchange.answer(Answer({"error": refused.message}, status=refused.status))
        except Stopped:
            return  # the caller has disconnected

    def _done(self, method: str, path: str, body: bytes) -> dict[str, Any]:
        match method, path.removeprefix(PREFIX):
            case "GET", "seen":
                return self._seen.as_json()
            case "DELETE", "seen":
                self._seen.reset()
            case "GET", "jobs":
                folders = self._folders
                return {"jobs": [status_of(each, folders.end(each)) for each in folders.all()]}
            case "POST", "faults":
                self._faults.plan(_fault(_object(body)))
            case "DELETE", "faults":
                self._faults.clear()
            case "PATCH", "tuning":
                return self._tune(_object(body))
            case _:
                raise Refused(404, f"no such route: {method} {path[:200]}")
        return {}

    def _tune(self, changes: dict[str, Any]) -> dict[str, Any]:
        if "voices" in changes:
            raise Refused(400, "voices cannot be changed while the remote runs")
        try:
            tuned = msgspec.convert(asdict(self._tuning) | changes, Tuning)
        except msgspec.ValidationError as error:
            raise Refused(400, str(error)) from None
        for each in fields(Tuning):
            setattr(self._tuning, each.name, getattr(tuned, each.name))
        return asdict(self._tuning)


def _fault(given: dict[str, Any]) -> Fault:
    try:
        return msgspec.convert(given, Fault)
    except msgspec.ValidationError as error:
        raise Refused(400, str(error)) from None


def _object(body: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(body or b"{}", type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise Refused(400, str(error)) from None
