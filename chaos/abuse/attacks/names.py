"""Host names whose look-ups never end: one tenant uses them while another makes calls.

The attack has its own name server, on the loopback. A checkout without COATCHECK_DNS_SERVERS uses
the system's: run it in a mount namespace whose ``/etc/resolv.conf`` names 127.0.0.1, with
ABUSE_NAME_SERVER=127.0.0.1:53.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from contextlib import suppress
from typing import Final

import httpx2

from chaos.abuse.attack import Attack, Figures, at_least, at_most
from chaos.abuse.target import ATTACKER, BYSTANDER, Target
from tests.egress.name_server import Answer, name_server
from tests.egress.upstream_server import Request, UpstreamServer, plain, upstream_server
from tests.ports import free_port

_ADDRESS: Final = os.environ.get("ABUSE_NAME_SERVER") or f"127.0.0.1:{free_port()}"
_SLOW: Final = "slow.example.com"
"""Never answered."""
_ONCE: Final = "once.example.com"
"""Answered when a URL is checked, and never again."""
_FINE: Final = "fine.example.com"
_GIVEN_UP_SECONDS: Final = 20.0
_DELIVERED_SECONDS_MAX: Final = 30.0
_SLOW_UPSTREAMS: Final = 4
_DOCUMENT_SECONDS: Final = 60.0


def _answer(name: str, turn: int) -> Answer:
    if name.endswith(_FINE) or (name.endswith(_ONCE) and turn == 0):
        return ["127.0.0.1"]
    return None if name.endswith((_SLOW, _ONCE)) else []


async def _slow_names(target: Target) -> Figures:
    """A steady rate of slow names, and a bystander that needs a new name for every call."""
    rounds, at_once, pause = (3, 24, 0.0) if target.short else (20, 40, 1.0)
    host, _, port = _ADDRESS.rpartition(":")
    counted: Counter[str] = Counter()
    async with (
        name_server(_answer, host=host, port=int(port)),
        upstream_server(_closing) as upstream,
        target.client(ATTACKER, timeout=_GIVEN_UP_SECONDS) as attacker,
        target.client(BYSTANDER, timeout=_GIVEN_UP_SECONDS) as bystander,
    ):
        # Before the attack: the registration of the attacker's services does not count.
        await _register(attacker, ATTACKER, 0, _ONCE, upstream, _SLOW_UPSTREAMS)
        flood = [
            asyncio.create_task(_flood(attacker, index, upstream, counted))
            for index in range(at_once)
        ]
        try:
            for turn in range(rounds):
                await asyncio.sleep(pause)
                counted["wanted"] += 1
                counted["registered"] += await _register(
                    bystander, BYSTANDER, turn, _FINE, upstream
                )
                counted["called"] += await _calls(bystander, turn)
                counted["submitted"] += await _submits(bystander, turn, upstream)
            await _delivered(upstream, rounds, counted)
        finally:
            for task in flood:
                task.cancel()
            await asyncio.gather(*flood, return_exceptions=True)
    names = ("wanted", "registered", "called", "submitted", "delivered")
    return {name: counted[name] for name in names} | {
        name: count for name, count in sorted(counted.items()) if name.startswith("attacker_")
    }


async def _closing(request: Request, writer: asyncio.StreamWriter) -> None:
    """Every call needs a new connection, and so a new look-up."""
    headers = (("Content-Type", "application/json"), ("Connection", "close"))
    await plain(b"{}", headers=headers)(request, writer)
    await writer.drain()
    writer.close()


async def _flood(
    client: httpx2.AsyncClient, index: int, upstream: UpstreamServer, counted: Counter[str]
) -> None:
    """One of the attacker's clients: submits, with a slow name each, until it is cancelled."""
    if index < _SLOW_UPSTREAMS:
        await _ask(client, f"services/{_service(ATTACKER, 0)}/async/call-{index}", counted)
    turn = 0
    while True:
        turn += 1
        domain = _ONCE if turn % 4 == 0 else _SLOW
        webhook = upstream.url(f"/{ATTACKER}", host=f"hook-{index}-{turn}.{domain}")
        await _ask(client, "services/abuse/echo", counted, webhook)
        await asyncio.sleep(0.25)


async def _ask(
    client: httpx2.AsyncClient, path: str, counted: Counter[str], webhook: str | None = None
) -> None:
    headers = {} if webhook is None else {"X-Webhook-Url": webhook}
    status = "gave_up"
    with suppress(httpx2.HTTPError):
        answer = await client.post(
            f"/api/v1/orgs/{ATTACKER}/{path}", json={"word": "x"}, headers=headers
        )
        status = str(answer.status_code)
    counted[f"attacker_{status}"] += 1


def _service(org: str, turn: int) -> str:
    return f"calls-of-{org}-{turn}"


async def _register(
    client: httpx2.AsyncClient,
    org: str,
    turn: int,
    domain: str,
    upstream: UpstreamServer,
    endpoints: int = 1,
) -> bool:
    document = {
        "versions": {
            "1": {
                "endpoints": [
                    {
                        "method": "POST",
                        "path": f"/call-{index}",
                        "timeout": _DOCUMENT_SECONDS,
                        "sync_timeout": 10,
                        "target": {
                            "type": "http",
                            "url": upstream.url(host=f"up-{org}-{turn}-{index}.{domain}"),
                        },
                    }
                    for index in range(endpoints)
                ]
            }
        }
    }
    path = f"/api/v1/orgs/{org}/workspaces/default/hosted-services/{_service(org, turn)}"
    try:
        return (await client.put(path, json=document)).is_success
    except httpx2.HTTPError:
        return False


async def _calls(client: httpx2.AsyncClient, turn: int) -> bool:
    try:
        answer = await client.post(
            f"/api/v1/orgs/{BYSTANDER}/services/{_service(BYSTANDER, turn)}/call-0", json={}
        )
    except httpx2.HTTPError:
        return False
    return answer.status_code == httpx2.codes.OK


async def _submits(client: httpx2.AsyncClient, turn: int, upstream: UpstreamServer) -> bool:
    hook = upstream.url(f"/{BYSTANDER}/{turn}", host=f"hook-{turn}.{_FINE}")
    try:
        answer = await client.post(
            f"/api/v1/orgs/{BYSTANDER}/services/abuse/echo",
            json={"word": "x"},
            headers={"X-Webhook-Url": hook},
        )
    except httpx2.HTTPError:
        return False
    return answer.is_success


async def _delivered(upstream: UpstreamServer, wanted: int, counted: Counter[str]) -> None:
    """Wait for the bystander's webhooks, while the flood goes on."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _DELIVERED_SECONDS_MAX
    while True:
        told = {r.target for r in upstream.requests if r.target.startswith(f"/{BYSTANDER}/")}
        counted["delivered"] = len(told)
        if len(told) >= wanted or loop.time() > end:
            return
        await asyncio.sleep(0.05)


def _complaints(figures: Figures) -> list[str]:
    wanted = figures["wanted"]
    assert isinstance(wanted, int)
    missing = (
        at_least(figures, name, wanted)
        for name in ("registered", "called", "submitted", "delivered")
    )
    return [*(each for found in missing for each in found), *at_most(figures, "rss_growth_mib", 32)]


ATTACKS: Final = (
    Attack(
        name="slow-dns",
        row=2,
        title="40 clients of one key submit with host names whose name server never answers",
        run=_slow_names,
        complaints=_complaints,
        settings={"DNS_SERVERS": _ADDRESS},
    ),
)
