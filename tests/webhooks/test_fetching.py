"""Webhooks that are fetched: taken under a lease, reported, and judged as those that are posted."""

from __future__ import annotations

import asyncio
from typing import Any

from standardwebhooks import Webhook

from coatcheck.domain.tenants import ALL_SCOPES, Scope
from coatcheck.products.gateway.jobs import GatewayJobs
from tests.deployment import bearer
from tests.waiting import eventually_async
from tests.webhooks.webhook_deliveries import ORG, WebhookDeliveries

ENDPOINTS = f"/api/v1/orgs/{ORG}/webhooks/endpoints"


class Pulled:
    """An endpoint that is fetched from."""

    def __init__(self, hooks: WebhookDeliveries, shown: dict[str, Any]) -> None:
        self.hooks = hooks
        self.id: str = shown["id"]
        self.secret: str = shown["secret"]
        self.path = f"{ENDPOINTS}/{self.id}"

    @classmethod
    async def made(cls, hooks: WebhookDeliveries, **fields: Any) -> Pulled:
        answer = await hooks.deployment.http.post(ENDPOINTS, json={"pulled": True, **fields})
        assert answer.status_code == 201, answer.text
        assert answer.json()["url"] is None
        return cls(hooks, answer.json())

    async def take(self, **order: Any) -> list[dict[str, Any]]:
        answer = await self.hooks.deployment.http.post(f"{self.path}/messages/take", json=order)
        assert answer.status_code == 200, answer.text
        assert answer.headers["Cache-Control"] == "no-store"
        messages: list[dict[str, Any]] = answer.json()["messages"]
        return messages

    async def report(self, message: dict[str, Any], **came: Any) -> list[str]:
        report = {"id": message["id"], "lease": message["lease"], **came}
        answer = await self.hooks.deployment.http.post(
            f"{self.path}/messages/report", json={"reports": [report]}
        )
        assert answer.status_code == 200, answer.text
        noted: list[str] = answer.json()["noted"]
        return noted

    async def delivery(self, message: dict[str, Any]) -> dict[str, Any]:
        (item,) = [each for each in await self.hooks.log() if each["id"] == message["id"]]
        return item


async def test_what_is_taken_is_signed_leased_and_delivered_by_its_report(
    hooks: WebhookDeliveries,
) -> None:
    pulled = await Pulled.made(hooks)
    job = await hooks.job_ends()
    (message,) = await pulled.take()
    assert (message["event"], message["job_id"], message["tries"]) == ("job.cancelled", job, 0)
    told = Webhook(pulled.secret).verify(message["body"], message["headers"])
    assert told["data"]["id"] == job
    assert message["headers"]["webhook-id"] == message["id"]
    assert message["headers"]["content-type"] == "application/json"
    assert await pulled.take() == [], "it is leased"
    assert await pulled.report(message, status_code=204) == [message["id"]]
    item = await pulled.delivery(message)
    assert (item["status"], item["last_status_code"], item["url"]) == ("delivered", 204, None)
    assert await pulled.report(message, status_code=204) == [], "it was noted before"


async def test_nothing_is_posted_for_it(hooks: WebhookDeliveries) -> None:
    pulled = await Pulled.made(hooks)
    await hooks.job_ends()
    async with hooks.deliverer() as deliverer:
        await hooks.deliver_due(deliverer)
    (message,) = await pulled.take()
    assert message["tries"] == 0


async def test_what_failed_comes_again_by_the_schedule(hooks: WebhookDeliveries) -> None:
    pulled = await Pulled.made(hooks)
    await hooks.job_ends()
    (first,) = await pulled.take()
    await pulled.report(first, error="the connection failed")
    item = await pulled.delivery(first)
    assert (item["status"], item["tries"], item["last_error"]) == (
        "pending",
        1,
        "the connection failed",
    )
    assert await pulled.take() == []
    await hooks.make_due()
    (second,) = await pulled.take()
    assert (second["id"], second["tries"]) == (first["id"], 1)
    assert second["lease"] != first["lease"]
    await pulled.report(second, status_code=500)
    assert (await pulled.delivery(first))["last_status_code"] == 500


async def test_a_lease_that_has_ended_is_another_s_and_a_late_report_changes_nothing(
    hooks: WebhookDeliveries,
) -> None:
    pulled = await Pulled.made(hooks)
    await hooks.job_ends()
    (lost,) = await pulled.take()
    await hooks.make_due()
    (taken,) = await pulled.take()
    assert await pulled.report(lost, status_code=500) == []
    assert await pulled.report(taken, status_code=200) == [taken["id"]]
    assert (await pulled.delivery(taken))["status"] == "delivered"


async def test_a_410_disables_it_and_retry_after_gives_peace(hooks: WebhookDeliveries) -> None:
    pulled = await Pulled.made(hooks)
    await hooks.job_ends()
    (message,) = await pulled.take()
    await pulled.report(message, status_code=429, retry_after=3_600)
    await hooks.job_ends()
    assert await pulled.take() == [], "all of them wait"
    await hooks.make_due()
    for each in await pulled.take():
        await pulled.report(each, status_code=410)
    shown = (await hooks.deployment.http.get(pulled.path)).json()
    assert shown["status"] == "disabled"


async def test_asking_again_for_nothing_writes_nothing(hooks: WebhookDeliveries) -> None:
    """Whoever waits asks twice a second, and many may."""
    pulled = await Pulled.made(hooks)
    assert await pulled.take() == []
    pulled_at = "SELECT pulled_at FROM webhook_targets WHERE pulled"
    first = await hooks.sql.fetchval(pulled_at)
    assert first is not None
    assert await pulled.take() == []
    assert await hooks.sql.fetchval(pulled_at) == first
    await hooks.sql.execute("UPDATE webhook_targets SET pulled_at = now() - interval '1 minute'")
    assert await pulled.take() == []
    assert await hooks.sql.fetchval(pulled_at) >= first


async def test_who_waits_is_answered_when_there_is_something(hooks: WebhookDeliveries) -> None:
    pulled = await Pulled.made(hooks)
    taking = asyncio.create_task(pulled.take(wait=60))
    job = await hooks.job_ends()
    (message,) = await taking
    assert message["job_id"] == job


async def test_what_comes_after_its_caller_has_left_is_there_for_the_next(
    hooks: WebhookDeliveries,
) -> None:
    pulled = await Pulled.made(hooks)
    taking = asyncio.create_task(pulled.take(wait=60))
    pulled_at = "SELECT pulled_at IS NOT NULL FROM webhook_targets WHERE pulled"

    async def asked() -> bool:
        return bool(await hooks.sql.fetchval(pulled_at))

    await eventually_async(asked, "the server waits")
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    await asyncio.sleep(0)
    job = await hooks.job_ends()

    async def taken() -> list[dict[str, Any]]:
        return await pulled.take()

    (message,) = await eventually_async(taken, "it can be taken")
    assert message["job_id"] == job


async def test_a_server_that_drains_answers_who_waits(hooks: WebhookDeliveries) -> None:
    pulled = await Pulled.made(hooks)
    replica = await hooks.deployment.start_server()
    waiting = asyncio.create_task(
        replica.http.post(f"{pulled.path}/messages/take", json={"wait": 60})
    )

    async def asked() -> bool:
        return bool(await hooks.sql.fetchval("SELECT pulled_at IS NOT NULL FROM webhook_targets"))

    await eventually_async(asked, "the server waits")
    await replica.stop()
    answer = await waiting
    assert (answer.status_code, answer.json()["messages"]) == (200, [])


async def test_one_that_cannot_be_made_holds_up_no_other(
    hooks: WebhookDeliveries, monkeypatch: Any
) -> None:
    pulled = await Pulled.made(hooks)
    broken, fine = await hooks.job_ends(), await hooks.job_ends()
    whole = GatewayJobs.payload

    async def sometimes(jobs: GatewayJobs, event: Any, view: Any) -> Any:
        if view is not None and view.id == broken:
            raise RuntimeError("a secret of the customer's")
        return await whole(jobs, event, view)

    monkeypatch.setattr(GatewayJobs, "payload", sometimes)
    replica = await hooks.deployment.start_server()
    answer = await replica.http.post(f"{pulled.path}/messages/take")
    (message,) = answer.json()["messages"]
    assert message["job_id"] == fine
    (item,) = await hooks.log(job_id=broken)
    assert (item["status"], item["tries"]) == ("pending", 1)
    assert "secret" not in item["last_error"]


async def test_what_makes_no_sense_is_refused(hooks: WebhookDeliveries) -> None:
    pulled = await Pulled.made(hooks)
    good = {"id": f"msg_{'0' * 26}", "lease": "0" * 32, "status_code": 200}
    report, take = f"{pulled.path}/messages/report", f"{pulled.path}/messages/take"
    unfit: list[tuple[str, Any, int]] = [
        (take, {"limit": 0}, 422),
        (take, {"limit": 51}, 422),
        (take, {"wait": 61}, 422),
        (take, {"wait": -1}, 422),
        (take, {"lease": 1}, 400),
        (report, {}, 422),
        (report, {"reports": []}, 422),
        (report, {"reports": [good] * 51}, 422),
        (report, {"reports": [good | {"id": "x"}]}, 422),
        (report, {"reports": [good | {"lease": "x"}]}, 422),
        (report, {"reports": [good | {"status_code": 600}]}, 422),
        (report, {"reports": [good | {"error": "x" * 201}]}, 422),
        (report, {"reports": [{"id": good["id"], "lease": good["lease"]}]}, 422),
    ]
    for path, body, status in unfit:
        answer = await hooks.deployment.http.post(path, json=body)
        assert answer.status_code == status, (path, body, answer.text)
    unknown = await hooks.deployment.http.post(report, json={"reports": [good]})
    assert unknown.json() == {"noted": []}
    patched = await hooks.deployment.http.patch(pulled.path, json={"url": "http://127.0.0.1:9/"})
    assert patched.status_code == 422


async def test_one_that_is_posted_to_is_not_fetched_from(hooks: WebhookDeliveries) -> None:
    made = await hooks.deployment.http.post(ENDPOINTS, json={"url": "http://127.0.0.1:9/"})
    answer = await hooks.deployment.http.post(f"{ENDPOINTS}/{made.json()['id']}/messages/take")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")


async def test_only_admins_fetch(hooks: WebhookDeliveries) -> None:
    pulled = await Pulled.made(hooks)
    await hooks.job_ends()
    member = bearer(await hooks.deployment.create_key(scopes=ALL_SCOPES - {Scope.ADMIN}))
    answer = await hooks.deployment.http.post(f"{pulled.path}/messages/take", headers=member)
    assert answer.status_code == 403
    assert len(await pulled.take()) == 1
