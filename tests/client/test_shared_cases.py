"""Cases that the TypeScript client passes, too: submissions, waits, cancellations, webhooks."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, tzinfo
from typing import Any, Self

import pytest
import standardwebhooks.webhooks

import coatcheck.client
from coatcheck.client import ClientError, verify_webhook
from tests.client.cases import JOB_ID, JOB_URL, TICKET, cases
from tests.client.conftest import Connect


@cases("submissions")
async def test_a_submission_says_this_of_itself(
    connect: Connect, scripted: Any, case: dict[str, Any]
) -> None:
    server = await scripted({"status": 202, "json": TICKET})
    client = connect(server.url)
    await client.submit("docs", "analyze", case.get("payload"), **case["options"])
    (asked,) = server.asked
    assert (asked.target, asked.body.decode() or None) == (case["target"], case["body"])
    assert {name: asked.headers.get(name) for name in case["headers"]} == case["headers"]


@cases("waits")
async def test_a_wait_lasts_until_the_end(
    connect: Connect, scripted: Any, case: dict[str, Any]
) -> None:
    server = await scripted(*case["answers"])
    client = connect(server.url, retries=4)
    if "error" in case:
        with pytest.raises(ClientError) as raised:
            await client.wait(JOB_ID, service="docs")
        assert type(raised.value) is getattr(coatcheck.client, case["error"])
        assert raised.value.code == case["code"]
    else:
        assert (await client.wait(JOB_ID, service="docs")).result == case["result"]
    assert client.pauses == pytest.approx(case["pauses"])
    assert {asked.target for asked in server.asked} == {f"{JOB_URL}?wait=30"}


@cases("cancellations")
async def test_a_cancellation_is_done_once(
    connect: Connect, scripted: Any, case: dict[str, Any]
) -> None:
    server = await scripted(*case["answers"])
    client = connect(server.url)
    if "error" in case:
        with pytest.raises(ClientError) as raised:
            await client.cancel(JOB_ID, service="docs")
        assert type(raised.value) is getattr(coatcheck.client, case["error"])
        assert raised.value.code == case["code"]
    else:
        assert (await client.cancel(JOB_ID, service="docs")).status == case["status"]
    requests = [f"{asked.method} {asked.target.removeprefix(JOB_URL)}" for asked in server.asked]
    assert requests == case["requests"]


@cases("webhooks")
def test_a_webhook_is_genuine_or_refused(
    monkeypatch: pytest.MonkeyPatch, case: dict[str, Any]
) -> None:
    class Frozen(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(case["now"], tz)

    monkeypatch.setattr(standardwebhooks.webhooks, "datetime", Frozen)
    body = case["body"].encode() if "body" in case else base64.b64decode(case["body_base64"])
    if "error" in case:
        errors = {"ValueError": ValueError, "InvalidWebhook": coatcheck.client.InvalidWebhook}
        with pytest.raises(errors[case["error"]]):
            verify_webhook(body, case["headers"], case["secret"])
        return
    event, expected = verify_webhook(body, case["headers"], case["secret"]), case["event"]
    assert event.timestamp.astimezone(UTC) == datetime.fromisoformat(expected["timestamp"])
    for name in ("id", "type", "data", "state", "previous_state"):
        assert getattr(event, name) == expected[name], name
