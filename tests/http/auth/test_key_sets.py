"""An issuer's keys are fetched when they are needed, and not more often."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from coatcheck.http.auth import tokens
from coatcheck.http.auth.tokens import PublishedKeys
from tests.http.auth.issuers import (
    ANOTHER_RSA,
    P256,
    RSA,
    KeySetServer,
    key_set_server,
    published,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def server() -> AsyncIterator[KeySetServer]:
    async with key_set_server() as serving:
        serving.keys = [published(RSA, "RS256", "first")]
        yield serving


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def keys(server: KeySetServer, clock: Clock) -> AsyncIterator[PublishedKeys]:
    fetched = PublishedKeys(server.url, clock=clock)
    yield fetched
    await fetched.close()


async def test_they_are_fetched_once_for_many_tokens(
    keys: PublishedKeys, server: KeySetServer, clock: Clock
) -> None:
    found = await asyncio.gather(*(keys.find("first", "RS256") for _ in range(20)))
    clock.now += tokens.FRESH_SECONDS
    found.append(await keys.find("first", "RS256"))
    assert {key.public_numbers() for key in found} == {RSA.public_key().public_numbers()}
    assert server.asked == 1


async def test_they_are_fetched_again_when_they_are_old(
    keys: PublishedKeys, server: KeySetServer, clock: Clock
) -> None:
    assert await keys.find("first", "RS256") is not None
    server.keys = [published(ANOTHER_RSA, "RS256", "second")]
    clock.now += tokens.FRESH_SECONDS + 1
    assert await keys.find("first", "RS256") is None
    assert await keys.find("second", "RS256") is not None
    assert server.asked == 2


async def test_a_new_key_is_found_before_that_but_made_up_ids_cost_one_fetch_in_a_while(
    keys: PublishedKeys, server: KeySetServer, clock: Clock
) -> None:
    assert await keys.find("first", "RS256") is not None
    clock.now += tokens.REFETCH_SECONDS
    server.keys.append(published(ANOTHER_RSA, "RS256", "second"))
    assert await keys.find("second", "RS256") is not None
    assert server.asked == 2
    for number in range(50):
        assert await keys.find(f"made up {number}", "RS256") is None
    assert server.asked == 2


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 500},
        {"status": 302},
        {"body": b"<html>"},
        {"body": b'{"keys": 1}'},
        {"body": b'{"keys": [' + b"[" * 10_000},
        {"body": b" " * (tokens.BYTES_MAX + 1)},
    ],
    ids=str,
)
async def test_the_old_keys_are_kept_while_the_issuer_fails(
    keys: PublishedKeys, server: KeySetServer, clock: Clock, fault: dict[str, object]
) -> None:
    assert await keys.find("first", "RS256") is not None
    for name, value in fault.items():
        setattr(server, name, value)
    clock.now += tokens.FRESH_SECONDS + 1
    assert await keys.find("first", "RS256") is not None
    assert server.asked == 2
    assert await keys.find("first", "RS256") is not None
    assert server.asked == 2, "a fetch that failed is not tried for every token"
    clock.now += tokens.RETRY_SECONDS
    server.status, server.body = 200, None
    server.keys = []
    assert await keys.find("first", "RS256") is None


async def test_an_issuer_that_does_not_answer_is_given_up_on(
    keys: PublishedKeys, server: KeySetServer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await keys.find("first", "RS256") is not None
    monkeypatch.setattr(tokens, "FETCH_SECONDS_MAX", 0.1)
    server.slow = asyncio.Event()
    clock.now += tokens.FRESH_SECONDS + 1
    assert await keys.find("first", "RS256") is not None
    server.slow.set()


async def test_an_issuer_that_is_not_there_has_no_keys(clock: Clock) -> None:
    nowhere = PublishedKeys("http://127.0.0.1:1/keys", clock=clock)
    assert await nowhere.find("first", "RS256") is None
    await nowhere.close()


async def test_whoever_leaves_does_not_stop_the_fetch_for_others(
    keys: PublishedKeys, server: KeySetServer
) -> None:
    server.slow = asyncio.Event()
    impatient = asyncio.create_task(keys.find("first", "RS256"))
    patient = asyncio.create_task(keys.find("first", "RS256"))
    await asyncio.sleep(0)
    impatient.cancel()
    server.slow.set()
    assert await patient is not None
    assert server.asked == 1


@pytest.mark.parametrize(
    ("extra", "algorithm"),
    [
        ({"use": "enc"}, "RS256"),
        ({"alg": "RS512"}, "RS256"),
        ({"d": "AQAB"}, "RS256"),
        ({"kty": "oct", "k": "c2VjcmV0"}, "RS256"),
        ({"n": "!!"}, "RS256"),
        ({"n": None}, "RS256"),
        ({}, "ES256"),
        ({}, "EdDSA"),
    ],
)
async def test_a_key_that_is_not_for_this_is_not_used(
    keys: PublishedKeys, server: KeySetServer, extra: dict[str, object], algorithm: str
) -> None:
    server.keys = [published(RSA, "RS256", "first") | extra]
    assert await keys.find("first", algorithm) is None


async def test_a_curve_belongs_to_one_algorithm(keys: PublishedKeys, server: KeySetServer) -> None:
    server.keys = [published(P256, "ES256", "p256")]
    assert await keys.find("p256", "ES384") is None
    assert await keys.find("p256", "ES256") is not None
