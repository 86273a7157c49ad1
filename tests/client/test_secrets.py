"""The token goes to the server, and nowhere else."""

from __future__ import annotations

import logging
import traceback
from typing import Any

import httpx2
import pytest

from coatcheck.client import AsyncClient, Client, ClientError
from coatcheck.client.request_headers import Bearer
from tests.client.cases import JOB_ID, TICKET
from tests.client.conftest import Connect

SECRET = "cck_0123_open-sesame"


async def test_no_log_line_and_no_error_shows_the_token(
    connect: Connect, scripted: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = await scripted(
        {"drop": True},
        {"status": 202, "json": TICKET},
        {"status": 401, "problem": {"code": "unauthenticated", "message": "no"}},
    )
    client = connect(server.url, SECRET, retries=1)
    await client.submit("docs", "analyze", {"password": "payload-sesame"})
    with pytest.raises(ClientError) as raised:
        await client.get(JOB_ID, service="docs")
    assert server.asked[1].headers["authorization"] == f"Bearer {SECRET}"
    shown = "".join(traceback.format_exception(raised.value)) + repr(raised.value) + caplog.text
    assert "sesame" not in shown
    assert caplog.records, "something was logged, so that this test can fail"


@pytest.mark.parametrize("kind", [AsyncClient, Client])
def test_no_repr_shows_the_token(kind: Any) -> None:
    client = kind("http://127.0.0.1:9", SECRET)
    assert repr(client) == f"{kind.__name__}('http://127.0.0.1:9', org='default')"
    for part in vars(client).values():
        for shown in (part, *getattr(part, "__dict__", {}).values()):
            assert "sesame" not in repr(shown)
    assert repr(Bearer(SECRET)) == "Bearer(***)"


@pytest.mark.parametrize("token", ["open\nsesame", "open sesame", "sésame", "sesame\x7f"])
def test_a_token_that_no_header_can_hold_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(ValueError, match="token") as refused:
        Client("http://127.0.0.1:9", token)
    assert "same" not in str(refused.value)


async def test_the_environment_names_server_and_token(
    monkeypatch: pytest.MonkeyPatch, scripted: Any
) -> None:
    server = await scripted({"status": 202, "json": TICKET}, {"status": 202, "json": TICKET})
    monkeypatch.setenv("COATCHECK_URL", server.url)
    monkeypatch.setenv("COATCHECK_API_KEY", SECRET)
    async with AsyncClient() as client:
        await client.submit("docs", "analyze")
    async with AsyncClient(token="") as client:
        await client.submit("docs", "analyze")
    credentials = [asked.headers.get("authorization") for asked in server.asked]
    assert credentials == [f"Bearer {SECRET}", None]
    monkeypatch.delenv("COATCHECK_URL")
    assert repr(Client()) == "Client('http://127.0.0.1:8080', org='default')"


async def test_an_http_client_of_the_callers_own_is_used_and_stays_open(scripted: Any) -> None:
    server = await scripted(*[{"status": 202, "json": TICKET}] * 2)
    async with httpx2.AsyncClient(headers={"X-Mine": "yes"}, trust_env=False) as http:
        async with AsyncClient(server.url, SECRET, http=http) as client:
            await client.submit("docs", "analyze")
        assert not http.is_closed
        assert "authorization" not in http.headers
    with httpx2.Client(trust_env=False) as own:
        Client(server.url, SECRET, http=own).close()
        assert not own.is_closed
    async with AsyncClient(server.url, SECRET) as client:
        await client.submit("docs", "analyze")
    with pytest.raises(RuntimeError, match="closed"):
        await client.submit("docs", "analyze")
    assert server.asked[0].headers["x-mine"] == "yes"
