"""Which definitions of remote targets are taken, and what is said of the others."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from coatcheck.egress import Guard
from coatcheck.remotes import (
    RemoteMisdefined,
    RemoteRefused,
    Remotes,
    RemoteUnreachable,
    SpawnRequest,
)
from coatcheck.settings.egress_allow import parse_allow
from tests.egress.names import Busy
from tests.remotes.fake_http import FakeHttp
from tests.remotes.fake_replicate import FakeReplicate
from tests.remotes.fake_service import SECRETS

HTTP = {"kind": "remote", "adapter": "http", "url": "https://tts.example.com"}
REPLICATE = {"kind": "remote", "adapter": "replicate", "secret": "SERVICE_KEY"}
RUNPOD = {"kind": "remote", "adapter": "runpod", "secret": "SERVICE_KEY", "endpoint": "abc123"}
FAL = {"kind": "remote", "adapter": "fal", "secret": "SERVICE_KEY", "model": "acme/speaker"}
MODAL = {"kind": "remote", "adapter": "modal", "app": "speech", "function": "speak"}


@pytest.mark.parametrize(
    "definition",
    [
        HTTP,
        HTTP | {"secret": "SERVICE_KEY", "media_type": "audio/wav"},
        REPLICATE | {"version": "5c7d5dc6dd8bf75c1acaa8565735e7986bc5b66206b55cca93cb72c9bf15ccaa"},
        REPLICATE | {"model": "acme/speaker-2.1"},
        REPLICATE | {"deployment": "acme/warm", "marks": {"token": "trace"}},
        RUNPOD | {"output": {"path": "audio", "encoding": "base64", "media_type": "audio/wav"}},
        FAL,
        FAL | {"model": "workflows/acme/speaker/turbo"},
    ],
)
async def test_a_definition_is_opened(remotes: Remotes, definition: dict[str, Any]) -> None:
    remotes.open(definition, secret=SECRETS.get)


@pytest.mark.parametrize(
    ("definition", "says"),
    [
        (b"{", "not valid"),
        ({}, "adapter"),
        (HTTP | {"adapter": "carrier-pigeon"}, "carrier-pigeon"),
        (HTTP | {"kind": "http"}, "kind"),
        (HTTP | {"colour": "red"}, "colour"),
        (HTTP | {"url": "ftp://tts.example.com"}, "https://"),
        (HTTP | {"url": "https://a:b@tts.example.com"}, "password"),
        (HTTP | {"url": "https://tts.example.com/?key=1"}, "query"),
        (HTTP | {"secret": "ANOTHER"}, "'ANOTHER'"),
        (HTTP | {"secret": "two words"}, "secret"),
        (REPLICATE, "one of version, model, deployment"),
        (REPLICATE | {"model": "a/b", "deployment": "a/b"}, "one of"),
        (REPLICATE | {"model": "../b"}, "model"),
        (REPLICATE | {"model": "a/b/../c"}, "model"),
        (RUNPOD | {"endpoint": "a/b"}, "endpoint"),
        (FAL | {"model": "acme"}, "model"),
        (FAL | {"model": "acme/../other"}, "model"),
        (FAL | {"output": {"encoding": "rot13"}}, "encoding"),
        (MODAL | {"token_id_secret": "TOKEN_ID"}, "both"),
    ],
)
async def test_a_definition_that_cannot_be_used_says_what_to_change(
    remotes: Remotes, definition: dict[str, Any] | bytes, says: str
) -> None:
    with pytest.raises(RemoteMisdefined, match=says):
        remotes.open(definition, secret=SECRETS.get)


async def test_a_secret_that_no_header_can_carry_is_not_shown(remotes: Remotes) -> None:
    with pytest.raises(RemoteMisdefined) as caught:
        remotes.open(HTTP | {"secret": "KEY"}, secret={"KEY": "canary\r\nX: y"}.get)

    assert "canary" not in str(caught.value)


async def test_modal_says_what_to_install_when_it_is_missing(
    remotes: Remotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "modal", None)

    with pytest.raises(RemoteMisdefined, match="pip install modal"):
        remotes.open(MODAL, secret=SECRETS.get, by_operator=True)


async def test_a_tenants_remote_is_called_where_the_guard_lets_it_and_nowhere_else() -> None:
    async with FakeHttp.running() as fake, Remotes(Guard()) as remotes:
        remote = remotes.open(fake.definition(), secret=SECRETS.get)
        with pytest.raises(RemoteRefused) as caught:
            await remote.spawn(SpawnRequest("t" * 64, b"{}"))

        assert caught.value.code == "url_forbidden"
        assert fake.server.connections == 0


async def test_an_operators_remote_is_called_wherever_it_is() -> None:
    async with FakeHttp.running() as fake, Remotes(Guard()) as remotes:
        remote = remotes.open(fake.definition(), secret=SECRETS.get, by_operator=True)
        remote_id = await remote.spawn(SpawnRequest("t" * 64, b"{}"))
        fake.complete(remote_id, b"spoken")
        async with await remote.result(remote_id) as result:
            assert [piece async for piece in result] == [b"spoken"]


@pytest.mark.parametrize(
    ("choice", "path", "version"),
    [
        ({"version": "acme/speaker:5c7d"}, "/v1/predictions", "acme/speaker:5c7d"),
        ({"model": "acme/speaker"}, "/v1/models/acme/speaker/predictions", None),
        ({"deployment": "acme/warm"}, "/v1/deployments/acme/warm/predictions", None),
    ],
)
async def test_replicate_is_asked_for_a_version_a_model_or_a_deployment(
    choice: dict[str, str], path: str, version: str | None
) -> None:
    async with (
        FakeReplicate.running() as fake,
        Remotes(Guard(parse_allow("127.0.0.1"))) as remotes,
    ):
        definition = REPLICATE | {"url": fake.server.url("/v1")} | choice
        await remotes.open(definition, secret=SECRETS.get).spawn(SpawnRequest("t" * 64, b"{}"))

        assert fake.calls[0].path == path
        assert fake.calls[0].json().get("version") == version


async def test_a_name_that_is_not_looked_up_now_is_a_remote_that_cannot_be_reached() -> None:
    busy = Busy()
    async with Remotes(Guard(resolver=busy)) as remotes:
        remote = remotes.open(HTTP, secret=SECRETS.get, org="acme")
        with pytest.raises(RemoteUnreachable):
            await remote.spawn(SpawnRequest("t" * 64, b"{}"))
    assert busy.orgs == ["acme"]
