"""Sending again what was made in a span of time, and finding it in the log."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from coatcheck.core import webhooks as engine_webhooks
from coatcheck.core.queries import sql
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.domain.webhooks import message_id
from coatcheck.maintenance.retention import WebhookPruner
from tests.db.blocking import until_blocked
from tests.db.rows import connected
from tests.webhooks.webhook_deliveries import LOG, ORG, WebhookDeliveries

REPLAY = f"/api/v1/orgs/{ORG}/webhooks/replay"
URL = "http://127.0.0.1:9/hook"


async def endpoint(hooks: WebhookDeliveries) -> Any:
    return await hooks.deployment.engine.webhooks.create_endpoint(ORG, URL, ["*"])


async def ended(hooks: WebhookDeliveries, status: str, target: Any = None) -> str:
    """The id of a delivery that has ended so."""
    columns = {} if target is None else {"target_id": target}
    made = await hooks.put(URL, **columns)
    await hooks.sql.execute(
        "UPDATE webhook_deliveries SET status = $2, due_at = NULL, ended_at = now() WHERE id = $1",
        made,
        status,
    )
    return message_id(made)


async def pending(hooks: WebhookDeliveries) -> set[str]:
    return {item["id"] for item in await hooks.log(status="pending")}


async def replayed(hooks: WebhookDeliveries, path: str = REPLAY, **order: Any) -> dict[str, Any]:
    answer = await hooks.deployment.http.post(path, json=order)
    assert answer.status_code == 202, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


def ago(**span: float) -> str:
    return (datetime.now(UTC) - timedelta(**span)).isoformat()


async def test_what_was_not_taken_is_sent_again_unless_something_else_is_asked_for(
    hooks: WebhookDeliveries,
) -> None:
    exhausted, disabled = await ended(hooks, "exhausted"), await ended(hooks, "disabled")
    taken = await ended(hooks, "delivered")
    assert await replayed(hooks, since=ago(hours=1)) == {"replayed": 2, "next": None}
    assert await pending(hooks) == {exhausted, disabled}
    assert await replayed(hooks, since=ago(hours=1)) == {"replayed": 0, "next": None}
    again = await replayed(hooks, since=ago(hours=1), statuses=["delivered"])
    assert again == {"replayed": 1, "next": None}
    assert taken in await pending(hooks)


async def test_what_failed_and_waits_for_its_next_try_is_sent_again_at_once(
    hooks: WebhookDeliveries,
) -> None:
    new = message_id(await hooks.put(URL))
    missed = await hooks.put(URL)
    posted = await hooks.put(URL)
    await hooks.sql.execute(
        "UPDATE webhook_deliveries SET tries = 2, due_at = now() + interval '5 minutes', "
        "lease = CASE WHEN id = $2 THEN gen_random_uuid() END WHERE id = ANY ($1)",
        [missed, posted],
        posted,
    )
    assert await replayed(hooks, since=ago(hours=1)) == {"replayed": 1, "next": None}
    shown = {item["id"]: item for item in await hooks.log()}
    again = shown[message_id(missed)]
    assert (again["status"], again["tries"]) == ("pending", 0)
    assert datetime.fromisoformat(again["next_try_at"]) <= datetime.now(UTC)
    assert shown[message_id(posted)]["tries"] == 2, "somebody posts it right now"
    assert shown[new]["tries"] == 0
    assert await replayed(hooks, since=ago(hours=1)) == {"replayed": 0, "next": None}
    named = await replayed(hooks, since=ago(hours=1), statuses=["pending"])
    assert named == {"replayed": 0, "next": None}


async def test_only_what_was_made_within_the_span_is_sent_again(hooks: WebhookDeliveries) -> None:
    await ended(hooks, "exhausted")
    for since, until in ((ago(hours=2), ago(hours=1)), (ago(hours=-1), ago(hours=-2))):
        assert (await replayed(hooks, since=since, until=until))["replayed"] == 0
    assert (await replayed(hooks, since=ago(hours=1), until=ago(hours=-1)))["replayed"] == 1


async def test_an_endpoint_s_own_are_sent_again_without_those_of_others(
    hooks: WebhookDeliveries,
) -> None:
    first, second = await endpoint(hooks), await endpoint(hooks)
    mine = await ended(hooks, "exhausted", first.uuid)
    await ended(hooks, "exhausted", second.uuid)
    await ended(hooks, "exhausted")
    path = f"/api/v1/orgs/{ORG}/webhooks/endpoints/{first.id}/replay"
    assert (await replayed(hooks, path, since=ago(hours=1)))["replayed"] == 1
    assert await pending(hooks) == {mine}


async def test_more_than_one_order_takes_is_ordered_with_the_cursor(
    hooks: WebhookDeliveries, monkeypatch: Any
) -> None:
    ids = [await ended(hooks, "delivered") for _ in range(5)]
    replay_range = engine_webhooks.Webhooks.replay_range

    async def by_two(*arguments: Any, **options: Any) -> Any:
        return await replay_range(*arguments, **options, limit=2)

    monkeypatch.setattr(engine_webhooks.Webhooks, "replay_range", by_two)
    order: dict[str, Any] = {"since": ago(hours=1), "statuses": ["delivered"]}
    counts = []
    while True:
        answer = await replayed(hooks, **order)
        counts.append(answer["replayed"])
        if answer["next"] is None:
            break
        order["cursor"] = answer["next"]
    assert counts == [2, 2, 1]
    assert await pending(hooks) == set(ids)


async def test_an_order_that_makes_no_sense_is_refused(hooks: WebhookDeliveries) -> None:
    now = ago()
    unfit: list[tuple[Any, int]] = [
        ({}, 422),
        ({"since": "yesterday"}, 422),
        ({"since": "2026-01-01T00:00:00"}, 422),
        ({"since": now, "until": now}, 422),
        ({"since": now, "until": ago(hours=1)}, 422),
        ({"since": now, "statuses": []}, 422),
        ({"since": now, "statuses": ["sent"]}, 422),
        ({"since": now, "cursor": "x"}, 422),
        ({"since": now, "status": ["delivered"]}, 400),
        ([], 422),
    ]
    for order, status in unfit:
        answer = await hooks.deployment.http.post(REPLAY, json=order)
        assert answer.status_code == status, (order, answer.text)
    assert (await hooks.deployment.http.post(REPLAY)).status_code == 400


async def test_one_whose_endpoint_is_deleted_meanwhile_is_not_sent(
    hooks: WebhookDeliveries, dsn: str
) -> None:
    known = await endpoint(hooks)
    message = await ended(hooks, "exhausted", known.uuid)
    async with connected(dsn) as rival:
        async with rival.transaction():
            await sql.fetch(rival, "webhooks/delete_endpoint", org=ORG, endpoint=known.uuid)
            replaying = asyncio.create_task(hooks.deployment.http.post(f"{LOG}/{message}/replay"))
            await until_blocked(hooks.sql, "coatcheck pool")
        assert (await replaying).status_code == 202
    line = Connection(dsn, name="keeping", server_settings=PINNED_PLANS)
    await WebhookPruner(line).tick()
    await line.close()
    (item,) = await hooks.log()
    assert (item["status"], item["last_error"]) == ("disabled", "the endpoint was deleted")


async def test_the_log_is_narrowed_by_endpoint_and_time(hooks: WebhookDeliveries) -> None:
    known = await endpoint(hooks)
    mine = await ended(hooks, "delivered", known.uuid)
    other = await ended(hooks, "delivered")
    assert [item["id"] for item in await hooks.log(endpoint_id=known.id)] == [mine]
    newest_first = [other, mine]
    for query, found in (
        ({"since": ago(hours=1)}, newest_first),
        ({"until": ago(hours=1)}, []),
        ({"since": ago(hours=-1)}, []),
        ({"since": ago(hours=1), "until": ago(hours=-1), "limit": "1"}, [other]),
    ):
        assert [item["id"] for item in await hooks.log(**query)] == found, query
    path = f"/api/v1/orgs/{ORG}/webhooks/endpoints/{known.id}/deliveries"
    page = (await hooks.deployment.http.get(path, params={"status": "delivered"})).json()
    assert [(item["id"], item["endpoint_id"]) for item in page["items"]] == [(mine, known.id)]
    for params in ({"endpoint_id": known.id}, {"since": "2026-01-01"}, {"limit": "0"}):
        assert (await hooks.deployment.http.get(path, params=params)).status_code == 400, params
    for params in ({"endpoint_id": "x"}, {"since": "1"}, {"until": "2026-01-01T00:00:00"}):
        assert (await hooks.deployment.http.get(LOG, params=params)).status_code == 400, params
