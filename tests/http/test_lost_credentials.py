"""How an answer ends, on the wire, whose credential stops counting while it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx2
import pytest

from coatcheck.domain.errors import DatabaseUnavailable, Unauthenticated
from coatcheck.domain.tenants import Scope
from coatcheck.http.auth.credential_watch import CredentialWatches
from coatcheck.http.dispatch import Dispatcher
from coatcheck.http.request import Request
from coatcheck.http.response import RawHeaders, StreamResponse
from coatcheck.http.routing import Route
from tests.http.conftest import serving

CREDENTIAL = b"a credential"
LAST_WORDS = b"and that was it"


class Keys:
    """What is known of the credential of these tests."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.looked_up = 0
        self.watches = CredentialWatches(self.check, trusted=lambda: True)

    async def check(self, credential: bytes) -> float | None:
        assert credential == CREDENTIAL
        self.looked_up += 1
        if self.error is not None:
            raise self.error
        return None

    def app(self, response: StreamResponse) -> Dispatcher:
        """An application that answers ``reply`` to the credential."""

        async def admit(request: Request, _: Route) -> RawHeaders:
            request.credential = CREDENTIAL
            return ()

        async def handler(_: Request) -> StreamResponse:
            return response

        route = Route(
            methods=["GET"],
            path="/",
            name="stream",
            summary="",
            handler=handler,
            access=Scope.READ,
            responses=[],
            tag="tests",
        )
        return Dispatcher(
            [route],
            admit,
            lambda request, wake: self.watches.watch(request.credential, 60.0, wake),
        )


async def one_piece(closed: asyncio.Event) -> AsyncIterator[bytes]:
    """Says something, and then nothing for ever."""
    try:
        yield b"begun, "
        await asyncio.get_running_loop().create_future()
    finally:
        closed.set()


async def test_a_stream_ends_with_its_last_words() -> None:
    keys, closed = Keys(), asyncio.Event()
    reply = StreamResponse(200, one_piece(closed), [], LAST_WORDS)
    async with serving(keys.app(reply)) as client, client.stream("GET", "/") as response:
        pieces = response.aiter_raw()
        assert await anext(pieces) == b"begun, "
        keys.error = Unauthenticated()
        keys.watches.on_keys_changed()
        assert b"".join([piece async for piece in pieces]) == LAST_WORDS
    assert closed.is_set()


async def test_a_body_of_a_length_that_was_told_is_broken_off() -> None:
    keys, closed = Keys(), asyncio.Event()
    reply = StreamResponse(200, one_piece(closed), [(b"content-length", b"1000")], LAST_WORDS)
    async with serving(keys.app(reply)) as client, client.stream("GET", "/") as response:
        pieces = response.aiter_raw()
        assert await anext(pieces) == b"begun, "
        keys.error = Unauthenticated()
        keys.watches.on_keys_changed()
        with pytest.raises(httpx2.HTTPError):
            await anext(pieces)
    assert closed.is_set()


async def test_what_was_said_before_the_look_up_is_not_sent_after_it() -> None:
    """A piece that comes while the credential is looked up waits for what is found."""
    keys, closed = Keys(), asyncio.Event()
    go_on = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"begun, "
        await go_on.wait()
        keys.watches.on_keys_changed()
        yield b"a secret"

    async with (
        serving(keys.app(StreamResponse(200, pieces(), [], LAST_WORDS))) as client,
        client.stream("GET", "/") as response,
    ):
        told = response.aiter_raw()
        assert await anext(told) == b"begun, "
        keys.error = Unauthenticated()
        go_on.set()
        assert b"".join([piece async for piece in told]) == LAST_WORDS
    assert not closed.is_set()


async def test_a_database_that_is_away_ends_no_stream() -> None:
    keys = Keys()
    keys.error = DatabaseUnavailable("away")
    go_on = asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"begun, "
        await go_on.wait()
        yield b"ended"

    async with (
        serving(keys.app(StreamResponse(200, pieces(), []))) as client,
        client.stream("GET", "/") as response,
    ):
        told = response.aiter_raw()
        assert await anext(told) == b"begun, "
        keys.watches.on_keys_changed()
        go_on.set()
        assert b"".join([piece async for piece in told]) == b"ended"
    assert keys.looked_up


async def test_one_look_up_serves_all_who_hold_the_same_credential() -> None:
    keys = Keys()
    woken: list[int] = []
    watches = [
        keys.watches.watch(CREDENTIAL, 60.0, lambda at=at: woken.append(at)) for at in (1, 2)
    ]  # type: ignore[misc]
    with watches[0] as first, watches[1] as second:
        keys.error = Unauthenticated()
        keys.watches.on_keys_changed()
        assert [await first.is_valid(), await second.is_valid()] == [False, False]
    assert (sorted(woken), keys.looked_up) == ([1, 2], 1)
    await keys.watches.close()
