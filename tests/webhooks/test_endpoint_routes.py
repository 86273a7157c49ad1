"""Registered endpoints over HTTP: made, changed, paused, tried, taken away; and what is refused."""

from __future__ import annotations

from typing import Any

import httpx2

from coatcheck.core.queries import webhooks
from coatcheck.domain import ids
from coatcheck.domain.tenants import ALL_SCOPES, Scope
from coatcheck.domain.webhooks import ENDPOINTS_MAX, EVENTS, JOB_EVENTS
from tests.deployment import bearer
from tests.egress.upstream_server import UpstreamServer
from tests.webhooks.webhook_deliveries import ORG, WebhookDeliveries, in_turn, status, verified

SOMEWHERE = "http://127.0.0.1:9/hook"
ENDPOINTS = f"/api/v1/orgs/{ORG}/webhooks/endpoints"


async def created(hooks: WebhookDeliveries, url: str, **fields: Any) -> dict[str, Any]:
    answer = await hooks.deployment.http.post(ENDPOINTS, json={"url": url, **fields})
    assert answer.status_code == 201, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def delivered(hooks: WebhookDeliveries) -> None:
    async with hooks.deliverer() as deliverer:
        await hooks.deliver_due(deliverer)


async def test_an_endpoint_is_told_of_every_end_and_verifies_with_its_own_secret(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    made = await created(hooks, receiver.url("/hook"), description="the shop")
    answer = await hooks.deployment.http.get(f"{ENDPOINTS}/{made['id']}")
    assert answer.json() == {name: value for name, value in made.items() if name != "secret"}
    assert made["events"] == sorted(
        ["batch.cancelled", "batch.completed", "job.cancelled", "job.completed", "job.failed"]
    )
    assert (made["status"], made["description"], made["pulled"]) == ("active", "the shop", False)
    job = await hooks.job_ends()
    await delivered(hooks)
    (request,) = receiver.requests
    assert verified(request, made["secret"])["data"]["id"] == job
    (item,) = await hooks.log(job_id=job)
    assert (item["endpoint_id"], item["status"], item["paused"]) == (made["id"], "delivered", False)


async def test_what_was_made_is_listed_oldest_first_and_names_where_it_is(
    hooks: WebhookDeliveries,
) -> None:
    first = await created(hooks, SOMEWHERE, events=["job.failed"])
    answer = await hooks.deployment.http.post(
        ENDPOINTS, json={"url": SOMEWHERE, "events": ["task.failed", "batch.*"]}
    )
    second = answer.json()
    assert answer.headers["Location"] == f"{ENDPOINTS}/{second['id']}"
    assert answer.headers["Cache-Control"] == "no-store"
    listed = (await hooks.deployment.http.get(ENDPOINTS)).json()["items"]
    assert [item["id"] for item in listed] == [first["id"], second["id"]]
    assert [item["events"] for item in listed] == [
        ["job.failed"],
        ["batch.cancelled", "batch.completed", "task.failed"],
    ]
    assert all("secret" not in item for item in listed)


async def test_every_state_of_a_job_is_one_word(hooks: WebhookDeliveries) -> None:
    made = await created(hooks, SOMEWHERE, events=["job.*"])
    assert made["events"] == sorted(JOB_EVENTS)


async def test_what_is_changed_is_changed_and_the_rest_stays(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    made = await created(hooks, SOMEWHERE, description="old")
    job = await hooks.job_ends()
    path = f"{ENDPOINTS}/{made['id']}"
    for change in ({"url": receiver.url()}, {"events": ["job.failed"]}, {"description": "new"}):
        answer = await hooks.deployment.http.patch(path, json=change)
        assert answer.status_code == 200, answer.text
    shown = answer.json()
    assert (shown["url"], shown["events"], shown["description"]) == (
        receiver.url(),
        ["job.failed"],
        "new",
    )
    await delivered(hooks)
    assert len(receiver.requests) == 1, "what waited goes to the new URL"
    (item,) = await hooks.log(job_id=job)
    assert item["status"] == "delivered"
    assert (await hooks.deployment.http.patch(path, json={})).json() == shown


async def test_while_it_is_paused_what_there_is_to_tell_is_kept(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    made = await created(hooks, receiver.url())
    path = f"{ENDPOINTS}/{made['id']}"
    for _ in range(2):
        paused = await hooks.deployment.http.post(f"{path}/pause")
        assert (paused.status_code, paused.json()["status"]) == (200, "paused")
    job = await hooks.job_ends()
    await delivered(hooks)
    assert receiver.requests == []
    (item,) = await hooks.log(job_id=job)
    assert (item["status"], item["paused"], item["tries"]) == ("pending", True, 0)
    resumed = (await hooks.deployment.http.post(f"{path}/resume")).json()
    assert (resumed["status"], resumed["paused_at"]) == ("active", None)
    await delivered(hooks)
    assert len(receiver.requests) == 1


async def test_one_that_answered_410_is_disabled_until_it_is_resumed(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    made = await created(hooks, receiver.url())
    receiver.answer = in_turn(status("410 Gone"), status("200 OK"))
    await hooks.job_ends()
    await delivered(hooks)
    path = f"{ENDPOINTS}/{made['id']}"
    shown = (await hooks.deployment.http.get(path)).json()
    assert shown["status"] == "disabled"
    assert shown["disabled_at"] is not None
    await hooks.deployment.http.post(f"{path}/resume")
    await hooks.job_ends()
    await delivered(hooks)
    assert len(receiver.requests) == 2
    assert (await hooks.deployment.http.get(path)).json()["status"] == "active"


async def test_a_test_is_signed_and_logged_whatever_the_events_are(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    made = await created(hooks, receiver.url(), events=["task.failed"])
    answer = await hooks.deployment.http.post(f"{ENDPOINTS}/{made['id']}/test")
    assert answer.status_code == 202, answer.text
    sent = answer.json()
    assert (sent["event"], sent["subject"], sent["job_id"]) == ("webhook.test", "test", None)
    await delivered(hooks)
    (request,) = receiver.requests
    told = verified(request, made["secret"])
    assert told["type"] == "webhook.test"
    (item,) = (await hooks.deployment.http.get(f"{ENDPOINTS}/{made['id']}/deliveries")).json()[
        "items"
    ]
    assert (item["id"], item["status"]) == (sent["id"], "delivered")


async def test_a_rotation_is_made_once_however_often_it_is_sent(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    made = await created(hooks, receiver.url())
    path = f"{ENDPOINTS}/{made['id']}/secret"
    before = (await hooks.deployment.http.get(path)).json()
    assert (before["secret"], before["generation"], before["previous"]) == (
        made["secret"],
        1,
        None,
    )
    for _ in range(2):
        answer = await hooks.deployment.http.post(f"{path}/rotate", json={"generation": 1})
        assert answer.status_code == 200, answer.text
        assert answer.headers["Cache-Control"] == "no-store"
    after = answer.json()
    assert (after["generation"], after["previous"]) == (2, made["secret"])
    await hooks.job_ends()
    await delivered(hooks)
    (request,) = receiver.requests
    assert verified(request, after["secret"]) == verified(request, made["secret"])
    third = (await hooks.deployment.http.post(f"{path}/rotate")).json()
    assert (third["generation"], third["previous"]) == (3, after["secret"])
    org_secret = (await hooks.secret())["secret"]
    assert org_secret not in (made["secret"], after["secret"], third["secret"])


async def test_what_was_for_a_deleted_endpoint_is_not_sent_and_not_sent_again(
    hooks: WebhookDeliveries, receiver: UpstreamServer
) -> None:
    made = await created(hooks, receiver.url())
    job = await hooks.job_ends()
    path = f"{ENDPOINTS}/{made['id']}"
    assert (await hooks.deployment.http.delete(path)).status_code == 204
    await delivered(hooks)
    await webhooks.end_disabled(hooks.deployment.context.tenants, 100)  # as the keeper does
    assert receiver.requests == []
    (item,) = await hooks.log(job_id=job)
    assert item["status"] == "disabled"
    again = await hooks.deployment.http.post(
        f"/api/v1/orgs/{ORG}/webhooks/deliveries/{item['id']}/replay"
    )
    assert (again.status_code, again.json()["code"]) == (409, "endpoint_deleted")
    for method, suffix in EVERYTHING:
        answer = await asked(hooks, method, f"{path}{suffix}")
        assert answer.status_code == 404, (method, suffix, answer.text)


EVERYTHING = [
    ("GET", ""),
    ("PATCH", ""),
    ("DELETE", ""),
    ("POST", "/pause"),
    ("POST", "/resume"),
    ("POST", "/test"),
    ("GET", "/secret"),
    ("POST", "/secret/rotate"),
    ("GET", "/deliveries"),
    ("POST", "/replay"),
    ("POST", "/messages/take"),
    ("POST", "/messages/report"),
]
BODIES = {
    "": {"description": "x"},
    "/replay": {"since": "2026-01-01T00:00:00Z"},
    "/messages/report": {
        "reports": [{"id": f"msg_{'0' * 26}", "lease": "0" * 32, "status_code": 200}]
    },
}


async def asked(
    hooks: WebhookDeliveries, method: str, path: str, headers: dict[str, str] | None = None
) -> httpx2.Response:
    suffix = "/".join(["", *path.split("/")[8:]]) if len(path.split("/")) > 8 else ""
    body = BODIES.get(suffix) if method in ("POST", "PATCH") else None
    return await hooks.deployment.http.request(method, path, json=body, headers=headers)


async def test_another_organisation_s_endpoint_is_as_if_it_were_not(
    hooks: WebhookDeliveries,
) -> None:
    mine = await created(hooks, SOMEWHERE)
    await hooks.deployment.create_org("other")
    stranger = bearer(await hooks.deployment.create_key("other"))
    for method, suffix in EVERYTHING:
        for org in ("other", ORG):
            path = f"/api/v1/orgs/{org}/webhooks/endpoints/{mine['id']}{suffix}"
            answer = await asked(hooks, method, path, stranger)
            assert answer.status_code == 404, (method, path, answer.text)
    assert (await hooks.deployment.http.get(f"{ENDPOINTS}/{mine['id']}")).json()[
        "status"
    ] == "active"


async def test_only_admins_see_and_change_endpoints(hooks: WebhookDeliveries) -> None:
    made = await created(hooks, SOMEWHERE)
    member = bearer(await hooks.deployment.create_key(scopes=ALL_SCOPES - {Scope.ADMIN}))
    for method, suffix in EVERYTHING:
        answer = await asked(hooks, method, f"{ENDPOINTS}/{made['id']}{suffix}", member)
        assert answer.status_code == 403, (method, suffix)
    assert (await hooks.deployment.http.get(ENDPOINTS, headers=member)).status_code == 403
    refused = await hooks.deployment.http.post(ENDPOINTS, json={"url": SOMEWHERE}, headers=member)
    assert refused.status_code == 403


UNFIT: list[tuple[dict[str, Any], str]] = [
    ({}, "url"),
    ({"url": SOMEWHERE, "pulled": True}, "url"),
    ({"url": ""}, "url"),
    ({"url": None}, "url"),
    ({"url": 7}, "url"),
    ({"url": SOMEWHERE + "x" * 2_048}, "url"),
    ({"url": SOMEWHERE, "events": []}, "events"),
    ({"url": SOMEWHERE, "events": ["job.failed", "job.gone"]}, "events[1]"),
    ({"url": SOMEWHERE, "events": "job.failed"}, "events"),
    ({"url": SOMEWHERE, "events": [None]}, "events["),
    ({"url": SOMEWHERE, "description": "x" * 501}, "description"),
]


async def test_a_body_that_does_not_fit_is_refused_by_the_name_of_the_field(
    hooks: WebhookDeliveries,
) -> None:
    for body, field in UNFIT:
        answer = await hooks.deployment.http.post(ENDPOINTS, json=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input"), body
        assert answer.json()["details"][0]["field"].startswith(field), answer.text
    assert (await hooks.deployment.http.get(ENDPOINTS)).json() == {"items": []}


async def test_an_unknown_field_is_not_silently_lost(hooks: WebhookDeliveries) -> None:
    made = await created(hooks, SOMEWHERE)
    for method, path in (("POST", ENDPOINTS), ("PATCH", f"{ENDPOINTS}/{made['id']}")):
        answer = await hooks.deployment.http.request(
            method, path, json={"url": SOMEWHERE, "event": ["job.failed"]}
        )
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_parameter")
        assert answer.json()["details"][0]["field"] == "event"


FORBIDDEN = [
    "http://93.184.216.34/",
    "https://10.0.0.1/",
    "https://user:secret@127.0.0.1/",
    "https://metadata.google.internal/",
    "ftp://127.0.0.1/",
    "https://[::ffff:10.0.0.1]/",
]


async def test_a_url_that_may_not_be_called_is_refused_when_it_is_registered(
    hooks: WebhookDeliveries,
) -> None:
    made = await created(hooks, SOMEWHERE)
    for method, path in (("POST", ENDPOINTS), ("PATCH", f"{ENDPOINTS}/{made['id']}")):
        for url in FORBIDDEN:
            answer = await hooks.deployment.http.request(method, path, json={"url": url})
            assert (answer.status_code, answer.json()["code"]) == (422, "url_forbidden"), url
            assert answer.json()["detail"].startswith("url: ")
    (item,) = (await hooks.deployment.http.get(ENDPOINTS)).json()["items"]
    assert item["url"] == SOMEWHERE


async def test_an_organisation_has_at_most_so_many(hooks: WebhookDeliveries) -> None:
    for _ in range(ENDPOINTS_MAX):
        await hooks.deployment.engine.webhooks.create_endpoint(ORG, SOMEWHERE, ["*"])
    answer = await hooks.deployment.http.post(ENDPOINTS, json={"url": SOMEWHERE})
    assert (answer.status_code, answer.json()["code"]) == (409, "too_many_endpoints")


async def test_the_document_lists_every_event(hooks: WebhookDeliveries) -> None:
    document = (await hooks.deployment.http.get("/openapi.json")).json()
    fields = document["components"]["schemas"]["NewWebhookEndpoint"]["properties"]
    (events,) = [each for each in fields["events"]["anyOf"] if each.get("type") == "array"]
    assert set(events["items"]["enum"]) == {"*", "job.*", "batch.*", *EVENTS}


async def test_an_id_that_is_none_names_no_endpoint(hooks: WebhookDeliveries) -> None:
    for name in ("x", ids.to_text(ids.new_id())):
        assert (await hooks.deployment.http.get(f"{ENDPOINTS}/{name}")).status_code == 404
