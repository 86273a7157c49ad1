"""Endpoints whose work a remote does: how they are registered, and what may be handed in."""

from __future__ import annotations

from typing import Any

import pytest

from coatcheck.core.service_secrets import ServiceSecrets
from tests.deployment import Deployment
from tests.products.gateway import paths
from tests.products.gateway.asking import problem

pytestmark = pytest.mark.asyncio(loop_scope="module")

SPEAK: dict[str, Any] = {
    "type": "remote",
    "adapter": "http",
    "url": "http://127.0.0.1:9/tts",
    "secret": "key",
    "secrets": {"key": "hush-hush"},
}
RUNPOD: dict[str, Any] = {
    "type": "remote",
    "adapter": "runpod",
    "endpoint": "abc123",
    "secret": "key",
    "secrets": {"key": "hush-hush"},
}


def service(target: dict[str, Any], **changes: Any) -> dict[str, Any]:
    endpoint = {"method": "POST", "path": "/speak", "target": target, **changes}
    return {"versions": {"1": {"endpoints": [endpoint]}}}


async def register(deployment: Deployment, name: str, document: dict[str, Any]) -> dict[str, Any]:
    answer = await deployment.http.put(paths.hosted(name), json=document)
    assert answer.status_code == 200, answer.text
    assert "hush-hush" not in answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def stored_secrets(deployment: Deployment, name: str) -> dict[str, str]:
    found = await deployment.context.catalogue.find("default", name)
    assert found is not None
    (spec,) = found.endpoints
    assert spec.remote is not None
    assert spec.remote.secrets == {"key": "***"}
    secrets = ServiceSecrets(deployment.settings, deployment.connection)
    try:
        return (await secrets.find("default", spec.remote.secrets_id)).values
    finally:
        await secrets.close()


@pytest.mark.parametrize(
    "target",
    [
        SPEAK,
        RUNPOD | {"marks": {"token": "seed"}, "output": {"path": "audio", "encoding": "base64"}},
        RUNPOD | {"adapter": "replicate", "version": "v1", "endpoint": None},
        RUNPOD | {"adapter": "fal", "model": "acme/speak/fast", "endpoint": None},
    ],
)
async def test_a_remote_is_registered_and_shown_without_its_secrets(
    shared: Deployment, target: dict[str, Any]
) -> None:
    given = {name: value for name, value in target.items() if value is not None}
    shown = await register(shared, "shown", service(given))
    (endpoint,) = shown["definition"]["versions"]["1"]["endpoints"]
    assert endpoint["target"] == given | {"secrets": {"key": "***"}}
    assert (await shared.http.get(paths.hosted("shown"))).json() == shown


async def test_a_remote_has_an_hour_unless_the_document_says_otherwise(shared: Deployment) -> None:
    for given, seconds in (({}, 3600), ({"timeout": 5}, 5)):
        shown = await register(shared, "patient", service(SPEAK, **given))
        (endpoint,) = shown["definition"]["versions"]["1"]["endpoints"]
        assert endpoint["timeout"] == seconds
    upstream = service({"type": "http", "url": "http://127.0.0.1:9/"})
    shown = await register(shared, "upstream", upstream)
    assert shown["definition"]["versions"]["1"]["endpoints"][0]["timeout"] == 300


async def test_an_adapter_that_is_none_is_told_which_there_are(shared: Deployment) -> None:
    document = service(SPEAK | {"adapter": "azure"})
    found = problem(
        await shared.http.put(paths.hosted("mistyped"), json=document), 422, "invalid_input"
    )
    assert [each["issue"] for each in found["details"]] == [
        "must be one of http, replicate, runpod, fal, operator"
    ]


async def test_secrets_are_kept_for_the_address_they_were_given_for(shared: Deployment) -> None:
    shown = (await register(shared, "kept", service(SPEAK)))["definition"]
    await register(shared, "kept", shown)
    assert await stored_secrets(shared, "kept") == {"key": "hush-hush"}
    target = shown["versions"]["1"]["endpoints"][0]["target"]
    target["url"] = "http://127.0.0.1:9/theirs"
    found = problem(await shared.http.put(paths.hosted("kept"), json=shown), 422, "invalid_input")
    assert [(each["field"], each["issue"]) for each in found["details"]] == [
        ("kept.v1.post__speak.target.secrets", "the hidden value is unknown")
    ]
    assert await stored_secrets(shared, "kept") == {"key": "hush-hush"}


@pytest.mark.parametrize(
    ("target", "field"),
    [
        ({"type": "remote"}, "target"),
        (SPEAK | {"adapter": "azure"}, "target.adapter"),
        (SPEAK | {"url": None}, "target.url"),
        (SPEAK | {"model": "a/b"}, "target.model"),
        (SPEAK | {"media_type": "wave"}, "target.media_type"),
        (SPEAK | {"url": "http://127.0.0.1/?a=b"}, "target.url"),
        (SPEAK | {"secret": "another"}, "target.secret"),
        (SPEAK | {"secret": None}, "target.secrets"),
        (SPEAK | {"secrets": {"key": "with blanks"}}, "target.secrets"),
        (SPEAK | {"adapter": "replicate"}, "target"),
        (RUNPOD | {"endpoint": "../v1"}, "target.endpoint"),
        (RUNPOD | {"secret": None, "secrets": {}}, "target.secret"),
        ({"type": "remote", "adapter": "modal", "app": "a", "function": "f"}, "target.adapter"),
        ({"type": "remote", "adapter": "operator", "name": "nobodys"}, "target.name"),
        ({"type": "remote", "adapter": "operator"}, "target.name"),
        ({"type": "remote", "adapter": "operator", "url": "http://127.0.0.1/"}, "target.url"),
    ],
)
async def test_a_remote_that_cannot_be_used_says_where(
    shared: Deployment, target: dict[str, Any], field: str
) -> None:
    given = {name: value for name, value in target.items() if value is not None}
    answer = await shared.http.put(paths.hosted("crooked"), json=service(given))
    details = problem(answer, 422, "invalid_input")["details"]
    assert any(field in each["field"] for each in details), details


@pytest.mark.parametrize("target", [SPEAK, RUNPOD])
async def test_a_remote_that_may_not_be_called_is_refused(
    shared: Deployment, target: dict[str, Any]
) -> None:
    document = service(target | {"url": "http://10.0.0.1/"})
    answer = await shared.http.put(paths.hosted("forbidden"), json=document)
    found = problem(answer, 422, "url_forbidden")
    assert "versions.1.endpoints[0].target.url" in found["detail"]


async def test_a_job_of_a_remote_is_persistent_before_it_was_spawned(shared: Deployment) -> None:
    await register(shared, "waiting", service(SPEAK))
    answer = await shared.http.post(paths.submit("/speak", "waiting"), json={"text": "hello"})
    assert answer.status_code == 202, answer.text
    ticket = answer.json()
    job = (await shared.http.get(ticket["poll_url"])).json()
    assert (job["status"], job["execution_mode"], job["execution_id"]) == (
        "queued",
        "persistent",
        None,
    )
    assert (job["service_id"], job["endpoint_key"]) == ("waiting", "post__speak")
    listed = (await shared.http.get(paths.jobs("waiting"))).json()
    assert [each["execution_mode"] for each in listed["items"]] == ["persistent"]
    cancelled = await shared.http.post(ticket["cancel_url"])
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    problem(await shared.http.post(ticket["cancel_url"]), 409, "job_already_ended")


async def test_a_key_knows_its_job_when_the_target_was_registered_anew(
    shared: Deployment, key: str
) -> None:
    tickets = []
    for secret in ("hush-hush", "changed"):
        target = SPEAK | {"secrets": {"key": secret}}
        await register(shared, "rotated", service(target, path="/speak/{language}"))
        answer = await shared.http.post(
            paths.submit("/speak/en", "rotated"),
            json={"text": "hello"},
            headers={"Idempotency-Key": key},
        )
        assert "Idempotency-Mismatch" not in answer.headers
        tickets.append(answer.json()["job_id"])
    assert len(set(tickets)) == 1
    other = await shared.http.post(
        paths.submit("/speak/fr", "rotated"),
        json={"text": "hello"},
        headers={"Idempotency-Key": key},
    )
    assert other.headers["Idempotency-Mismatch"] == "true"
    assert other.json()["job_id"] == tickets[0]


@pytest.mark.parametrize(
    ("content", "media_type", "status", "code"),
    [
        (b"hello", "text/plain", 415, "unsupported_media_type"),
        (b"hello", "application/json", 400, "invalid_body"),
        (b'["hello"]', "application/json", 400, "invalid_body"),
        (b'{"text": "hello", "text2": NaN}', "application/json", 400, "invalid_body"),
    ],
)
async def test_what_a_remote_cannot_be_given_is_refused(
    shared: Deployment, content: bytes, media_type: str, status: int, code: str
) -> None:
    await register(shared, "fussy", service(SPEAK))
    answer = await shared.http.post(
        paths.submit("/speak", "fussy"), content=content, headers={"Content-Type": media_type}
    )
    problem(answer, status, code)
