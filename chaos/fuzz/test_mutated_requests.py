"""Randomly mutated requests to every route: answered or disconnected, never with a 5xx."""

from __future__ import annotations

import asyncio
import re
from collections import Counter

import pytest

from chaos.fuzz.mutations import mutated
from coatcheck.http import parameters, server
from coatcheck.http import request as call
from coatcheck.http.protocol import Bounds
from tests.budget import chance, times
from tests.contract.matrix import Target, targets
from tests.contract.tenant_resources import TenantResources
from tests.contract.test_schemathesis import WAIT_SECONDS
from tests.deployment import bearer

ROUNDS = 4
AT_ONCE = 64
SECONDS_MAX = 45.0
"""Only a server that hangs reaches it."""
HURRIED_SECONDS = 2.0
SILENCE_SECONDS = 1.0
"""The wait after an answer on a connection that stays open."""
OTHERS_ARE_AWAY = (b'"code":"target_unreachable"',)
"""Allowed answers if the model's server is slow on a busy machine."""
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")
WORDS = [
    b"\r\n", b"\r\n\r\n", b"\x00", b"\xff\xfe", b"%00", b"%2f", b"%", b"../", b"{", b"}", b"[",
    b'"', b"null", b"-1", b"1e400", b"99999999999999999999", b"\xed\xa0\x80", b"\\ud800", b"\\u0",
    b"Transfer-Encoding: chunked\r\n", b"Content-Length: 0\r\n", b"Content-Encoding: gzip\r\n",
    b"Expect: 100-continue\r\n", b"Prefer: wait=1\r\n", b"Range: bytes=-1,0-\r\n",
    b"If-None-Match: *\r\n", b"traceparent: 00-0-0-0\r\n", b"Last-Event-ID: 0\r\n",
    b"Idempotency-Key: \xf0\x9f\x92\xa5\r\n", b"X-Webhook-Url: https://[::1]/\r\n",
    b"Upgrade: websocket\r\nConnection: upgrade\r\n", b"Accept: text/event-stream\r\n",
]  # fmt: skip


@pytest.fixture(autouse=True)
def nobody_waits_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parameters, "WAIT_SECONDS_MAX", WAIT_SECONDS)
    monkeypatch.setattr(call, "BODY_SECONDS_MAX", HURRIED_SECONDS)
    monkeypatch.setattr(server, "Bounds", lambda: Bounds(head_seconds=HURRIED_SECONDS))


def written(target: Target, key: str) -> bytes:
    """The request as it goes over the wire."""
    request = target.request(bearer(key) | {"Connection": "close"})
    first = b"%b %b HTTP/1.1" % (request.method.encode(), request.url.raw_path)
    lines = [b"%b: %b" % (name, value) for name, value in request.headers.raw]
    return b"\r\n".join([first, *lines, b"", request.read()])


async def heard(resources: TenantResources, request: bytes) -> bytes:
    """The answer, until the server disconnects or is silent."""
    url = resources.deployment.http.base_url
    reader, writer = await asyncio.open_connection(str(url.host), url.port)
    answer = b""
    try:
        writer.write(request)
        while piece := await asyncio.wait_for(
            reader.read(65_536), SILENCE_SECONDS if answer else SECONDS_MAX
        ):
            answer += piece
    except ConnectionError:
        pass  # disconnected while sending: also a valid reaction
    except TimeoutError:
        if not answer:
            raise
        # Requests that keep the connection open, such as event streams.
    finally:
        writer.close()
    return answer


async def test_no_request_is_answered_by_an_error_of_ours(resources: TenantResources) -> None:
    resources.deployment.start_maintenance()
    rng, outcomes, wrong = chance("requests"), Counter[str](), list[str]()
    turns = asyncio.Semaphore(AT_ONCE)

    async def ask(target: Target, request: bytes) -> None:
        async with turns:
            try:
                answer = await heard(resources, request)
            except TimeoutError:
                wrong.append(f"{target}: no answer to {request!r}")
                return
        statuses = STATUS.findall(answer)
        outcomes.update([f"{statuses[0].decode()[0]}xx" if statuses else "hung up on"])
        ours = any(status.startswith(b"5") for status in statuses)
        if ours and not any(code in answer for code in OTHERS_ARE_AWAY):
            wrong.append(f"{target}: {answer[:600]!r} to {request[:2_000]!r}")

    for _ in range(ROUNDS * times()):
        # On a busy machine, a server may report that it is not ready.
        everything = [each for each in targets(resources) if each.route.name != "readyz"]
        requests = [written(target, resources.deployment.key) for target in everything]
        async with asyncio.TaskGroup() as group:
            for target, request in zip(everything, requests, strict=True):
                changed = mutated(rng, request, requests, WORDS)
                group.create_task(ask(target, changed))
    print(dict(outcomes), *wrong, sep="\n")
    assert len(wrong) == 0
    assert outcomes["2xx"] > 0
    assert outcomes["4xx"] > 0
    still = await resources.deployment.http.get("/readyz")
    assert still.status_code == 200
