"""Where results come from: files elsewhere, redirects, base64, data URLs, plain JSON."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from coatcheck.egress import Guard
from coatcheck.remotes import RemoteFaulty, RemoteRefused, RemoteResult, Remotes, SpawnRequest
from coatcheck.remotes.caller import RemoteTimeouts
from coatcheck.settings.egress_allow import parse_allow
from tests.egress.upstream_server import Request, UpstreamServer, head, plain, upstream_server
from tests.remotes.fake_fal import FakeFal
from tests.remotes.fake_http import FakeHttp
from tests.remotes.fake_runpod import FakeRunpod
from tests.remotes.fake_service import SECRETS, Call, FakeService, Work

WAV = b"RIFF" + bytes(range(256))


class Endpoint(FakeRunpod):
    """An endpoint that completes at once with an output of the test's."""

    output: Any = None

    def _job(self, work: Work) -> dict[str, Any]:
        return {"id": work.id, "status": "COMPLETED", "output": self.output, "executionTime": 250}


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint.running() as fake:
        yield fake


@pytest.fixture
async def elsewhere() -> AsyncIterator[UpstreamServer]:
    """Another server, which has the file."""
    async with upstream_server(plain(WAV, headers=(("Content-Type", "audio/wav"),))) as server:
        yield server


async def result_of(
    remotes: Remotes, endpoint: FakeService, output: dict[str, str] | None = None
) -> tuple[RemoteResult, bytes]:
    definition = endpoint.definition() | {"output": output or {}}
    remote = remotes.open(definition, secret=SECRETS.get)
    remote_id = await remote.spawn(SpawnRequest("t" * 64, b"{}"))
    async with await remote.result(remote_id) as result:
        return result, b"".join([piece async for piece in result])


async def test_a_file_elsewhere_is_fetched_without_our_credentials(
    remotes: Remotes, endpoint: Endpoint, elsewhere: UpstreamServer
) -> None:
    endpoint.output = [elsewhere.url("/speech.wav?signature=abc")]

    result, content = await result_of(remotes, endpoint)

    assert content == WAV
    assert result.media_type == "audio/wav"
    assert result.metadata == {"compute_seconds": 0.25}
    assert elsewhere.requests[0].target == "/speech.wav?signature=abc"
    assert elsewhere.requests[0].header("authorization") is None


async def test_a_file_where_the_guard_lets_nobody_is_not_fetched(
    endpoint: Endpoint, elsewhere: UpstreamServer
) -> None:
    endpoint.output = elsewhere.url("/secrets")
    async with Remotes(Guard(parse_allow(f"127.0.0.1:{endpoint.server.port}"))) as remotes:
        with pytest.raises(RemoteRefused) as caught:
            await result_of(remotes, endpoint)

    assert caught.value.code == "url_forbidden"
    assert elsewhere.connections == 0


async def test_the_operators_remote_names_no_file_that_the_guard_forbids(
    elsewhere: UpstreamServer,
) -> None:
    async with Endpoint.running() as endpoint, Remotes(Guard()) as remotes:
        endpoint.output = elsewhere.url("/secrets")
        remote = remotes.open(
            endpoint.definition() | {"output": {}}, secret=SECRETS.get, by_operator=True
        )
        remote_id = await remote.spawn(SpawnRequest("t" * 64, b"{}"))
        with pytest.raises(RemoteRefused) as caught:
            await remote.result(remote_id)

    assert caught.value.code == "url_forbidden"
    assert elsewhere.connections == 0


class Redirecting(FakeHttp):
    to = ""

    async def send_file(self, work: Work, writer: asyncio.StreamWriter) -> None:
        location = ("Location", self.to)
        writer.write(head("307 Temporary Redirect", (location, ("Content-Length", "0"))))


async def test_a_result_may_be_redirected_to_a_file_elsewhere(
    remotes: Remotes, elsewhere: UpstreamServer
) -> None:
    async with Redirecting.running() as fake:
        fake.to = elsewhere.url("/bucket/speech.wav?signature=abc")
        remote = remotes.open(fake.definition(), secret=SECRETS.get)
        remote_id = await remote.spawn(SpawnRequest("t" * 64, b"{}"))
        async with await remote.result(remote_id) as result:
            assert b"".join([piece async for piece in result]) == WAV

        assert elsewhere.requests[0].header("authorization") is None


async def test_redirects_come_to_an_end(remotes: Remotes) -> None:
    async with Redirecting.running() as fake:
        fake.to = "/files/round"
        remote = remotes.open(fake.definition(), secret=SECRETS.get)
        fake.works["round"] = Work("round", {})
        remote_id = await remote.spawn(SpawnRequest("t" * 64, b"{}"))
        with pytest.raises(RemoteRefused) as caught:
            await remote.result(remote_id)

    assert caught.value.code == "remote_result_redirects"


@pytest.mark.parametrize("status", ["403 Forbidden", "404 Not Found", "410 Gone"])
async def test_a_file_that_has_expired_is_gone_and_its_url_is_not_shown(
    remotes: Remotes, endpoint: Endpoint, elsewhere: UpstreamServer, status: str
) -> None:
    elsewhere.answer = plain(b"canary expired", status)
    endpoint.output = elsewhere.url("/speech.wav?signature=canary")

    with pytest.raises(RemoteFaulty) as caught:
        await result_of(remotes, endpoint)

    assert caught.value.code == "remote_result_gone"
    assert "canary" not in str(caught.value)


async def test_base64_in_the_output_is_decoded(remotes: Remotes, endpoint: Endpoint) -> None:
    endpoint.output = {"clips": [{"audio": base64.b64encode(WAV * 2_000).decode()}]}

    result, content = await result_of(
        remotes,
        endpoint,
        {"path": "clips.0.audio", "encoding": "base64", "media_type": "audio/wav"},
    )

    assert content == WAV * 2_000
    assert (result.media_type, result.length) == ("audio/wav", len(content))


@pytest.mark.parametrize(
    ("output", "choice", "code"),
    [
        ({"audio": "not base64!"}, {"path": "audio", "encoding": "base64"}, "unreadable"),
        ({"audio": 7}, {"path": "audio", "encoding": "base64"}, "missing"),
        ({"audio": []}, {"path": "audio.0"}, "missing"),
        ({}, {"path": "audio"}, "missing"),
        ("data:audio/wav;base64", {}, "unreadable"),
        ("data:audio/wav;base64,***", {}, "unreadable"),
    ],
)
async def test_an_output_without_the_result_that_was_meant_is_refused(
    remotes: Remotes, endpoint: Endpoint, output: Any, choice: dict[str, str], code: str
) -> None:
    endpoint.output = output

    with pytest.raises(RemoteRefused) as caught:
        await result_of(remotes, endpoint, choice)

    assert caught.value.code == f"remote_result_{code}"


async def test_a_data_url_is_its_own_file(remotes: Remotes, endpoint: Endpoint) -> None:
    endpoint.output = f"data:audio/wav;base64,{base64.b64encode(WAV).decode()}"

    result, content = await result_of(remotes, endpoint)

    assert (result.media_type, content) == ("audio/wav", WAV)


@pytest.mark.parametrize("output", [None, 7, [1, 2.5], {"text": "hello"}, "hello", ["a", "b"]])
async def test_what_is_no_file_stays_json(
    remotes: Remotes, endpoint: Endpoint, output: Any
) -> None:
    endpoint.output = output

    result, content = await result_of(remotes, endpoint)

    assert result.media_type == "application/json"
    assert json.loads(content) == output


async def test_an_answer_that_is_too_large_to_hold_is_refused(
    remotes: Remotes, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coatcheck.remotes.caller.ANSWER_BYTES_MAX", 10_000)
    endpoint.output = "x" * 20_000

    with pytest.raises(RemoteRefused) as caught:
        await result_of(remotes, endpoint)

    assert caught.value.code == "answer_too_large"


async def test_a_file_that_is_too_large_is_refused_before_it_is_read(
    remotes: Remotes, endpoint: Endpoint, elsewhere: UpstreamServer
) -> None:
    async def endless(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head("200 OK", (("Content-Length", str(6 * 1024**4)),)))

    elsewhere.answer = endless
    endpoint.output = elsewhere.url()

    with pytest.raises(RemoteRefused) as caught:
        await result_of(remotes, endpoint)

    assert caught.value.code == "remote_result_too_large"


async def test_a_file_that_does_not_say_its_length_is_refused_where_it_gets_too_large(
    remotes: Remotes,
    endpoint: Endpoint,
    elsewhere: UpstreamServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def unsaid(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head("200 OK", (("Connection", "close"),)) + bytes(5_000))
        await writer.drain()
        writer.close()

    monkeypatch.setattr("coatcheck.remotes.files.ARTIFACT_BYTES_MAX", 4_000)
    elsewhere.answer = unsaid
    endpoint.output = elsewhere.url()

    with pytest.raises(RemoteRefused) as caught:
        await result_of(remotes, endpoint)

    assert caught.value.code == "remote_result_too_large"


async def test_fal_describes_its_files(remotes: Remotes) -> None:
    async with FakeFal.running() as fake:
        remote = remotes.open(fake.definition(), secret=SECRETS.get)
        remote_id = await remote.spawn(SpawnRequest("t" * 64, b"{}"))
        fake.complete(remote_id, WAV, "audio/flac")
        async with await remote.result(remote_id) as result:
            assert result.media_type == "audio/flac"
            assert result.metadata == {"duration_seconds": 2.5}


async def test_a_request_that_fal_completed_in_vain_is_refused_with_its_reason(
    remotes: Remotes,
) -> None:
    async with FakeFal.running() as fake:
        remote = remotes.open(fake.definition(), secret=SECRETS.get)
        remote_id = await remote.spawn(SpawnRequest("t" * 64, b"{}"))
        fake.fail(remote_id, "text is too long")
        with pytest.raises(RemoteRefused, match="text is too long"):
            await remote.result(remote_id)


class Timing(FakeHttp):
    """Says how long its sound is."""

    async def respond(self, call: Call, writer: asyncio.StreamWriter) -> None:
        if not call.path.endswith("/job-result"):
            await super().respond(call, writer)
            return
        lasts = (("X-Duration-Seconds", "1.25"), ("Content-Length", "3"))
        writer.write(head("200 OK", lasts) + b"abc")


async def test_a_plain_server_may_say_how_long_its_sound_is(remotes: Remotes) -> None:
    async with Timing.running() as fake:
        remote = remotes.open(fake.definition(), secret=SECRETS.get)
        remote_id = await remote.spawn(SpawnRequest("t" * 64, b"{}"))
        async with await remote.result(remote_id) as result:
            assert result.metadata == {"duration_seconds": 1.25}
            assert result.media_type == "application/octet-stream"


async def test_a_result_that_only_trickles_is_given_up(endpoint: Endpoint) -> None:
    async def trickle(_: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(head("200 OK", (("Content-Type", "audio/wav"),)))
        while not writer.is_closing():
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(0.01)

    timeouts = RemoteTimeouts(trickle_seconds=0.05)
    guard = Guard(parse_allow("127.0.0.1"))
    async with upstream_server(trickle) as slow, Remotes(guard, timeouts=timeouts) as remotes:
        endpoint.output = slow.url("/long.wav")
        with pytest.raises(RemoteFaulty) as caught:
            await result_of(remotes, endpoint)
    assert caught.value.code == "remote_result_too_slow"
