"""What the tests of odd requests share: how one is sent, and how its answer is judged."""

from __future__ import annotations

import json
from typing import Any

from coatcheck.domain.limits import JSON_DEPTH_MAX, PAYLOAD_BYTES_MAX
from tests.contract.matrix import Target
from tests.contract.raw import RawAnswer, send
from tests.contract.tenant_resources import TenantResources

SECRET = b"swordfish"


def nested(levels: int) -> bytes:
    return b'{"value":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


ODD_BODIES: dict[str, tuple[bytes, int]] = {
    "nothing but a brace": (b"{", 400),
    "two values": (b"{} {}", 400),
    "not a number": (b'{"value": NaN}', 400),
    "infinity": (b'{"value": -Infinity}', 400),
    "a number that no float holds": (b'{"value": 1e999}', 400),
    "a number without end": (b'{"value": ' + b"9" * 5_000 + b"}", 400),
    "a NUL in a value": (b'{"value": "' + SECRET + b'\\u0000"}', 400),
    "a NUL in a name": (b'{"\\u0000": 1}', 400),
    "a NUL as it is": (b'{"value": "\x00"}', 400),
    "half of a pair": (b'{"value": "\\ud800"}', 400),
    "not UTF-8": (b'{"value": "' + SECRET + b'\xff"}', 400),
    "UTF-16": ('{"value": 1}'.encode("utf-16"), 400),
    "too deep": (nested(JSON_DEPTH_MAX + 1), 400),
    "far too deep": (b"[" * 100_000, 400),
    "too large": (b'{"value": "' + SECRET * PAYLOAD_BYTES_MAX + b'"}', 413),
}


class Documented:
    """The statuses that the OpenAPI document has for each route."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._paths = document["paths"]

    @classmethod
    async def of(cls, resources: TenantResources) -> Documented:
        return cls((await resources.deployment.http.get("/openapi.json")).json())

    def statuses(self, target: Target) -> set[int]:
        path = target.route.path.replace(":path}", "}")
        return {int(status) for status in self._paths[path][target.method.lower()]["responses"]}


class Tally:
    """Counts the requests and keeps those whose answers are not in the document, or are a fault."""

    def __init__(self, documented: Documented) -> None:
        self._documented = documented
        self.requests = 0
        self.wrong: list[str] = []

    def judge(self, what: str, target: Target, answer: RawAnswer) -> None:
        self.requests += 1
        fits = answer.status in self._documented.statuses(target) and answer.status < 500
        if not fits or answer.header("x-injected") is not None:
            self.wrong.append(f"{target}, {what[:80]!r}: {answer.status} {answer.body[:300]!r}")
        assert answer.header("x-request-id")
        if answer.status >= 400:
            assert answer.problem()["status"] == answer.status

    def close(self) -> None:
        print(f"{self.requests} requests")
        assert self.requests > 0
        assert self.wrong == []


async def send_to(target: Target, path: str | bytes, *headers: bytes) -> RawAnswer:
    """A request of the target's own, but for its path and these headers."""
    value = target.entry.json(target.resources)
    body = None if value is None else json.dumps(value).encode()
    headers = (b"Prefer: respond-async", *headers)
    if body is not None:
        headers = (b"Content-Type: application/json", *headers)
    return await send(target.resources.deployment, target.method, path, *headers, body=body)
