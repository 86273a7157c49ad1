"""Whatever is held open ends with the credential that opened it, while its job goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from coatcheck.domain.tenants import RateLimit
from tests.deployment import Deployment, bearer
from tests.products.batches.asking import JOBS, know_sums
from tests.products.batches.asking import submit as submit_batch
from tests.products.gateway import paths
from tests.products.gateway.asking import hand_in, know_docs, problem
from tests.products.gateway.sse import following
from tests.products.gateway.tokens import USERS, token
from tests.waiting import eventually_async

WAITING = {"Prefer": "wait=60"}
BATCH = {"service": "sums", "endpoint": "/add", "tasks": [{"a": 1, "b": 2}]}


@pytest.fixture
async def idle(dsn: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    """A deployment in which services are known and nobody works: jobs wait for ever."""
    async with Deployment(dsn, tmp_path, jwt_issuers=(USERS,)) as deployment:
        await know_docs(deployment)
        await know_sums(deployment)
        yield deployment


async def held_open(deployment: Deployment, count: int = 1) -> None:
    """Return when so many wait for a job."""

    async def are_held() -> bool:
        return deployment.engine.waits >= count

    await eventually_async(are_held, f"{count} wait for a job")


async def asked(deployment: Deployment, what: str, credential: dict[str, str]) -> httpx2.Response:
    """An answer that is held for as long as it may."""
    http = deployment.http
    match what:
        case "submit":
            return await http.post(paths.submit("/process"), json={}, headers=WAITING | credential)
        case "synchronous call":
            return await http.post(paths.call("/process"), json={}, headers=credential)
        case "status":
            ticket = await hand_in(http, "/process")
            return await http.get(ticket["poll_url"], params={"wait": 60}, headers=credential)
        case "conditional read":
            ticket = await hand_in(http, "/process")
            etag = (await http.get(ticket["poll_url"])).headers["etag"]
            known = {"If-None-Match": etag}
            return await http.get(
                ticket["poll_url"], params={"wait": 60}, headers=known | credential
            )
        case "batch":
            return await http.post(JOBS, json=BATCH, headers=WAITING | credential)
        case "status of a batch":
            batch = await submit_batch(http, [{"a": 1, "b": 2}])
            return await http.get(batch["urls"]["poll"], params={"wait": 60}, headers=credential)
        case _:
            raise AssertionError(what)


HELD = ["submit", "synchronous call", "status", "conditional read", "batch", "status of a batch"]


@pytest.mark.parametrize("what", HELD)
async def test_a_held_answer_is_401_once_its_key_is_revoked(idle: Deployment, what: str) -> None:
    key = await idle.create_key()
    holding = asyncio.create_task(asked(idle, what, bearer(key)))
    await held_open(idle)
    await idle.revoke_key(key)
    problem(await holding, 401, "unauthenticated")


async def test_a_webhook_that_is_waited_for_is_not_given_to_a_revoked_key(idle: Deployment) -> None:
    key = await idle.create_key()
    endpoints = "/api/v1/orgs/default/webhooks/endpoints"
    made = await idle.http.post(endpoints, json={"pulled": True})
    assert made.status_code == 201, made.text
    take = f"{endpoints}/{made.json()['id']}/messages/take"
    holding = asyncio.create_task(idle.http.post(take, json={"wait": 60}, headers=bearer(key)))
    other = await idle.http.post(take, json={"wait": 0}, headers=bearer(key))
    assert other.status_code == 200
    await idle.revoke_key(key)
    problem(await holding, 401, "unauthenticated")


async def test_a_held_answer_is_401_once_its_key_has_expired(idle: Deployment) -> None:
    key = await idle.create_key(seconds_to_live=2)
    problem(await asked(idle, "submit", bearer(key)), 401, "unauthenticated")


async def test_a_held_answer_is_401_once_its_token_has_expired(idle: Deployment) -> None:
    leeway = 30  # how far an issuer's clock may be off
    soon = token(USERS, sub="dev", exp=time.time() - leeway + 3)
    problem(await asked(idle, "submit", soon), 401, "unauthenticated")


async def streams(deployment: Deployment, of: str) -> str:
    if of == "job":
        return str((await hand_in(deployment.http, "/process"))["events_url"])
    return str((await submit_batch(deployment.http, [{"a": 1, "b": 2}]))["urls"]["events"])


@pytest.mark.parametrize("of", ["job", "batch"])
async def test_a_stream_ends_with_the_hint_to_reconnect_once_its_key_is_revoked(
    idle: Deployment, of: str
) -> None:
    key = await idle.create_key()
    url = await streams(idle, of)
    async with following(idle.http, url, bearer(key)) as stream:
        await stream.until("state")
        await idle.revoke_key(key)
        rest = await stream.rest()
    assert rest[-1].name == "reconnect"
    problem(await idle.http.get(url, headers=bearer(key)), 401, "unauthenticated")


async def test_whoever_has_another_key_is_held_on(idle: Deployment) -> None:
    """One of a user's two keys is revoked: what the other one holds open goes on."""
    key, other = await idle.create_key(), await idle.create_key()
    ticket = await hand_in(idle.http, "/process")
    async with (
        following(idle.http, ticket["events_url"], bearer(other)) as stream,
        following(idle.http, ticket["events_url"], bearer(key)) as revoked,
    ):
        for each in (stream, revoked):
            await each.until("state")
        holding = asyncio.create_task(
            idle.http.get(ticket["poll_url"], params={"wait": 60}, headers=bearer(other))
        )
        await held_open(idle, 3)
        await idle.revoke_key(key)
        await revoked.rest()
        cancelled = await idle.http.post(ticket["cancel_url"])
        assert cancelled.status_code == 200
        assert (await stream.rest())[-1].name == "end"
        answer: dict[str, Any] = (await holding).json()
        assert answer["status"] == "cancelled"


async def test_new_limits_of_an_organisation_end_nothing(idle: Deployment) -> None:
    """They are pushed as revocations are, and have credentials looked up again."""
    ticket = await hand_in(idle.http, "/process")
    async with following(idle.http, ticket["events_url"]) as stream:
        await stream.until("state")
        await idle.limit_org("default", rate=RateLimit(1_000, 3_600))

        async def is_known() -> bool:
            return "ratelimit-limit" in (await idle.http.get(ticket["poll_url"])).headers

        await eventually_async(is_known, "the server knows the new limits")
        await idle.http.post(ticket["cancel_url"])
        assert (await stream.rest())[-1].name == "end"
