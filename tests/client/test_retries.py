from __future__ import annotations

from typing import Any

import pytest

import coatcheck.client
from coatcheck.client import AsyncClient, ClientError, ConnectionFailed
from coatcheck.domain.ids import from_text
from tests.client.cases import JOB_ID, TICKET, cases, job
from tests.client.conftest import Connect


@cases("retries")
async def test_a_submission_is_sent_again_where_that_can_help(
    connect: Connect, scripted: Any, case: dict[str, Any]
) -> None:
    server = await scripted(*case["answers"])
    client = connect(server.url, retries=4)
    if "error" in case:
        with pytest.raises(ClientError) as raised:
            await client.submit("docs", "analyze", {"text": "x"})
        assert type(raised.value) is getattr(coatcheck.client, case["error"])
        assert raised.value.code == case["code"]
    else:
        handle = await client.submit("docs", "analyze", {"text": "x"})
        assert (handle.id, handle.status, handle.terminal) == (JOB_ID, "queued", False)
    assert client.pauses == pytest.approx(case["pauses"])
    assert len(server.asked) == case["requests"]
    # All tries are one submission: the server can tell by the key.
    assert len({asked.headers["idempotency-key"] for asked in server.asked}) == 1
    assert {asked.body for asked in server.asked} == {b'{"text":"x"}'}


async def test_every_submission_has_a_key_of_its_own(connect: Connect, scripted: Any) -> None:
    ticket = {"status": 202, "json": TICKET}
    server = await scripted(ticket, ticket, {"json": 1}, ticket, ticket)
    client = connect(server.url)
    await client.submit("docs", "analyze")
    await client.submit("docs", "analyze")
    await client.call("docs", "analyze")
    await client.submit("docs", "analyze", idempotency_key="mine")
    await client.submit("docs", "analyze", headers={"X-Idempotency-Key": "theirs"})
    keys = [asked.headers.get("idempotency-key") for asked in server.asked]
    assert len(set(keys[:3])) == 3
    for key in keys[:3]:
        assert from_text(key)
    assert keys[3:] == ["mine", None]
    assert server.asked[4].headers["x-idempotency-key"] == "theirs"


async def test_reads_are_sent_again_too(connect: Connect, scripted: Any) -> None:
    server = await scripted({"drop": True}, {"json": job("queued")})
    read = await connect(server.url).get(JOB_ID, service="docs")
    assert read.status == "queued"


async def test_without_retries_the_first_failure_is_the_last(
    connect: Connect, scripted: Any
) -> None:
    server = await scripted({"drop": True})
    client = connect(server.url, retries=0)
    with pytest.raises(ConnectionFailed, match=r"no answer from 127\.0\.0\.1:"):
        await client.submit("docs", "analyze")
    assert client.pauses == []


async def test_no_try_begins_that_a_deadline_would_cut(connect: Connect, scripted: Any) -> None:
    server = await scripted(
        {"status": 503, "problem": {"code": "away", "message": ""}, "headers": {"Retry-After": "9"}}
    )
    client = connect(server.url)
    with pytest.raises(coatcheck.client.ServerError):
        await client.wait(JOB_ID, 5, service="docs")
    assert client.pauses == []


@pytest.mark.parametrize("option", [{"retries": -1}, {"timeout": 0}, {"timeout": float("nan")}])
def test_numbers_that_make_no_sense_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(option))):
        AsyncClient("http://127.0.0.1", **option)
