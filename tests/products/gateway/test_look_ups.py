"""An organisation whose names do not answer is told to wait; another is served meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from coatcheck.egress import resolver
from tests.contract.things_service import things
from tests.deployment import Deployment, bearer
from tests.egress.name_server import Answer, NameServer, name_server
from tests.products.gateway import paths
from tests.waiting import eventually_async


def answer(name: str, turn: int) -> Answer:
    return None if name.endswith(".slow.example.com") else ["127.0.0.1"]


@pytest.fixture
async def names() -> AsyncIterator[NameServer]:
    async with name_server(answer) as server:
        yield server


@pytest.fixture
async def deployment(dsn: str, tmp_path: Path, names: NameServer) -> AsyncIterator[Deployment]:
    async with Deployment(dsn, tmp_path, dns_servers=(names.address,)) as opened:
        await opened.start_worker(things)
        yield opened


async def test_who_has_met_the_limit_is_told_when_to_come_back_and_nobody_else_is(
    deployment: Deployment, names: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolver, "LOOK_UPS_PER_ORG_MAX", 1)
    monkeypatch.setattr(resolver, "TURN_SECONDS_MAX", 0.01)
    slow = asyncio.create_task(submit(deployment.http, "https://a.slow.example.com/"))

    async def asked() -> bool:
        return names.asked["a.slow.example.com"] > 0

    await eventually_async(asked, "the slow name was asked for")
    refusals = [
        await submit(deployment.http, "https://b.slow.example.com/"),
        await deployment.http.put(
            paths.hosted("slow"), json=document("https://c.slow.example.com/")
        ),
        await deployment.http.post(
            "/api/v1/orgs/default/webhooks/endpoints",
            json={"url": "https://d.slow.example.com/", "events": ["*"]},
        ),
        await deployment.http.post(
            "/v1/jobs",
            headers={"Idempotency-Key": "k"},
            json={
                "type": "open",
                "service": "things",
                "endpoint": "/thing",
                "webhook_url": "https://e.slow.example.com/",
            },
        ),
    ]
    for refused in refusals:
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_look_ups")
        assert refused.headers["retry-after"] == "5"

    await deployment.create_org("neighbour")
    theirs = bearer(await deployment.create_key("neighbour"))
    async with httpx2.AsyncClient(
        base_url=deployment.http.base_url, headers=theirs, trust_env=False
    ) as neighbour:
        path = paths.submit("/thing", "things", org="neighbour")
        fine = await neighbour.post(
            path, json={}, headers={"X-Webhook-Url": "http://fine.example.com/"}
        )
        assert fine.status_code == 202, fine.text
    assert not slow.done()
    slow.cancel()
    await asyncio.gather(slow, return_exceptions=True)


async def submit(http: httpx2.AsyncClient, url: str) -> httpx2.Response:
    return await http.post(paths.submit("/thing", "things"), headers={"X-Webhook-Url": url})


def document(url: str) -> dict[str, Any]:
    endpoint = {"method": "POST", "path": "/ask", "target": {"type": "http", "url": url}}
    return {"versions": {"1": {"endpoints": [endpoint]}}}
