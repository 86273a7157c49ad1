"""The files that jobs leave, on every surface: listed, fetched, deleted, and receipted for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from coatcheck.db.connection import Connection
from coatcheck.db.notifications import Notifier
from coatcheck.domain.ids import to_text
from coatcheck.domain.states import State
from coatcheck.domain.tenants import ANYONE, USER_SCOPES
from coatcheck.maintenance.retention import ArtifactCleanup, Pruner
from coatcheck.products.batches.maintenance import BatchRemover
from coatcheck.receipts import ArtifactReceipt
from coatcheck.receipts.signature import read_public_keys, verify
from tests.contract.things_service import things
from tests.db.edge_guard import AsyncpgConnection
from tests.db.rows import connected, expire, put_job
from tests.deployment import Deployment, bearer
from tests.products.artifact_places import (
    CONTENT,
    MEDIA_TYPE,
    NAME,
    ORG,
    SURFACES,
    Place,
    attach,
    ended_with_a_file,
)

ETAG = hashlib.sha256(CONTENT).hexdigest()
QUOTED = quote(NAME, safe="")
ROUTES = (
    ("GET", "/artifacts"),
    ("GET", f"/artifacts/{QUOTED}"),
    ("DELETE", f"/artifacts/{QUOTED}"),
    ("GET", f"/artifacts/{QUOTED}/receipt"),
)

every_surface = pytest.mark.parametrize("surface", SURFACES)


@pytest.fixture
async def connection(dsn: str) -> AsyncIterator[AsyncpgConnection]:
    async with connected(dsn) as opened:
        yield opened


@pytest.fixture
async def line(dsn: str) -> AsyncIterator[Connection]:
    opened = Connection(dsn, name="test")
    yield opened
    await opened.close()


def files(folder: Path) -> list[Path]:
    return [path for path in (folder / "blobs").rglob("*") if path.is_file()]


async def told(answer: httpx2.Response, status: int = 200) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def verified(deployment: Deployment, answer: httpx2.Response) -> ArtifactReceipt:
    """The receipt of an answer, checked with the key that is given out."""
    assert answer.status_code == 200, answer.text
    keys = await deployment.http.get("/v1/graphs/receipt-keys")
    receipt = verify(answer.content, read_public_keys(keys.content))
    assert isinstance(receipt, ArtifactReceipt)
    return receipt


async def let_it_go(
    deployment: Deployment, connection: AsyncpgConnection, line: Connection, place: Place
) -> None:
    """The job's retention ends, or its batch is removed."""
    if place.batch is None:
        await expire(connection, place.job)
        await Pruner(line, deployment.engine.blobs).tick()
        return
    job_url = place.url.partition("/tasks/")[0]
    assert (await deployment.http.delete(job_url, headers=place.caller)).status_code == 204
    notifier = Notifier(line)
    remover = BatchRemover(line, notifier, deployment.engine.blobs)
    while await connection.fetchval("SELECT count(*) FROM batches"):
        await remover.tick()
    await notifier.drain()


@every_surface
async def test_a_file_is_listed_fetched_and_deleted_for_a_receipt(
    deployment: Deployment, connection: AsyncpgConnection, tmp_path: Path, surface: str
) -> None:
    place = await ended_with_a_file(deployment, connection, surface)
    deployment.http.headers.update(place.caller)
    [item] = (await told(await deployment.http.get(f"{place.url}/artifacts")))["items"]
    assert (item["name"], item["media_type"]) == (NAME, MEDIA_TYPE)
    assert (item["bytes"], item["sha256"]) == (len(CONTENT), ETAG)
    assert item["url"] == f"{place.url}/artifacts/{QUOTED}"
    assert item["created_at"] <= item["signed_url_expires_at"]
    if surface != "batches":  # whose files go with the batch
        assert item["signed_url_expires_at"] <= item["expires_at"]

    whole = await deployment.http.get(item["url"])
    assert (whole.status_code, whole.content) == (200, CONTENT)
    assert (whole.headers["content-type"], whole.headers["etag"]) == (MEDIA_TYPE, f'"{ETAG}"')
    assert "sandbox" in whole.headers["content-security-policy"]
    part = await deployment.http.get(item["url"], headers={"Range": "bytes=5-7"})
    assert (part.status_code, part.content) == (206, CONTENT[5:8])
    async with httpx2.AsyncClient(base_url=deployment.http.base_url, trust_env=False) as stranger:
        signed = await stranger.get(item["signed_url"])
    assert (signed.status_code, signed.content) == (200, CONTENT)
    assert signed.headers["content-type"] == MEDIA_TYPE

    before = await verified(deployment, await deployment.http.get(f"{item['url']}/receipt"))
    assert (before.complete, before.layers[0].deleted_at) == (False, None)
    after = await verified(deployment, await deployment.http.delete(item["url"]))
    assert (after.job_id, after.org_id, after.name) == (place.shown_id, ORG, NAME)
    assert (after.endpoint, after.media_type) == (place.endpoint, MEDIA_TYPE)
    assert (after.content_hash, after.bytes) == (f"sha256:{ETAG}", len(CONTENT))
    [layer] = after.layers
    assert (layer.layer, layer.place, layer.mechanism) == ("blob", "blob store", "owner")
    assert after.complete
    assert files(tmp_path) == []

    assert (await told(await deployment.http.get(f"{place.url}/artifacts")))["items"] == []
    await told(await deployment.http.get(item["url"]), 404)
    again = await verified(deployment, await deployment.http.delete(item["url"]))
    assert again.layers == after.layers, "deleting what is deleted changes nothing"
    assert (await deployment.http.get(place.url)).status_code == 200, "the job stays"


@every_surface
async def test_the_receipt_is_there_when_the_job_is_not(
    deployment: Deployment,
    connection: AsyncpgConnection,
    line: Connection,
    tmp_path: Path,
    surface: str,
) -> None:
    place = await ended_with_a_file(deployment, connection, surface)
    receipt_url = f"{place.url}/artifacts/{QUOTED}/receipt"
    await let_it_go(deployment, connection, line, place)
    assert files(tmp_path) == []
    await told(await deployment.http.get(place.url, headers=place.caller), 404)
    receipt = await verified(
        deployment, await deployment.http.get(receipt_url, headers=place.caller)
    )
    mechanism = "batch_removed" if surface == "batches" else "retention"
    assert [layer.mechanism for layer in receipt.layers] == [mechanism]
    assert receipt.complete
    stranger = bearer(await deployment.create_key(user="bob", scopes=USER_SCOPES))
    await told(await deployment.http.get(receipt_url, headers=stranger), 404)


@every_surface
async def test_the_files_of_others_are_as_those_of_a_job_that_never_was(
    deployment: Deployment, connection: AsyncpgConnection, tmp_path: Path, surface: str
) -> None:
    place = await ended_with_a_file(deployment, connection, surface)
    await deployment.create_org("other")
    for stranger in (
        await deployment.create_key(user="bob", scopes=USER_SCOPES),
        await deployment.create_key("other", user="ann"),
    ):
        for method, path in ROUTES:
            foreign, absent = [
                await deployment.http.request(
                    method, f"{url}{path}", headers=bearer(stranger) | {"X-Request-Id": "same"}
                )
                for url in (place.url, place.absent_url)
            ]
            told_foreign, told_absent = await told(foreign, 404), await told(absent, 404)
            for body in (told_foreign, told_absent):
                del body["timestamp"], body["instance"]
            assert told_foreign == told_absent
    assert len(files(tmp_path)) == 1


async def test_what_was_never_attached_is_not_there(
    deployment: Deployment, connection: AsyncpgConnection
) -> None:
    place = await ended_with_a_file(deployment, connection, "gateway")
    for name in ("another", "%01", "a%2Fb"):
        for method, ending in (("GET", ""), ("DELETE", ""), ("GET", "/receipt")):
            url = f"{place.url}/artifacts/{name}{ending}"
            answer = await deployment.http.request(method, url, headers=place.caller)
            assert answer.status_code == 404, f"{method} {url}"


async def test_files_of_a_job_that_goes_on_can_be_read_and_not_deleted(
    deployment: Deployment, connection: AsyncpgConnection
) -> None:
    job = await put_job(
        connection, State.PROCESSING, org_id=ORG, endpoint="lab.post__draw", owner="user:dev"
    )
    await attach(deployment, connection, job.uuid, "plan.svg")
    base = f"/api/v1/orgs/default/services/lab/jobs/{to_text(job.uuid)}/artifacts"
    [item] = (await told(await deployment.http.get(base)))["items"]
    assert item["expires_at"] is None
    answer = await told(await deployment.http.delete(item["url"]), 409)
    assert answer["code"] == "job_not_ended"
    assert (await deployment.http.get(item["url"])).content == CONTENT


async def test_files_of_a_job_that_is_anyones_need_no_credential(
    deployment: Deployment, connection: AsyncpgConnection, line: Connection
) -> None:
    place = await ended_with_a_file(deployment, connection, "gateway", owner=ANYONE)
    private = await ended_with_a_file(deployment, connection, "gateway")
    async with httpx2.AsyncClient(base_url=deployment.http.base_url, trust_env=False) as stranger:
        [item] = (await told(await stranger.get(f"{place.url}/artifacts")))["items"]
        assert (await stranger.get(item["url"])).content == CONTENT
        for method, path in ROUTES:
            answer = await stranger.request(method, f"{private.url}{path}")
            assert answer.status_code == 401, path
        await let_it_go(deployment, connection, line, place)
        assert (await verified(deployment, await stranger.get(f"{item['url']}/receipt"))).complete
        gone = await stranger.get(f"{place.absent_url}/artifacts/{QUOTED}/receipt")
        assert gone.status_code == 401


async def test_a_file_that_the_store_cannot_delete_is_gone_for_readers_and_receipted_for_later(
    deployment: Deployment,
    connection: AsyncpgConnection,
    line: Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = await ended_with_a_file(deployment, connection, "gateway")
    url = f"{place.url}/artifacts/{QUOTED}"
    with monkeypatch.context() as away:

        async def refuse(keys: list[str]) -> None:
            raise OSError

        away.setattr(deployment.engine.blobs, "delete", refuse)
        receipt = await verified(
            deployment, await deployment.http.delete(url, headers=place.caller)
        )
    assert not receipt.complete
    await told(await deployment.http.get(url, headers=place.caller), 404)
    assert len(files(tmp_path)) == 1
    await ArtifactCleanup(line, deployment.engine.blobs, grace_seconds=0.0).tick()
    assert files(tmp_path) == []
    answer = await deployment.http.get(f"{url}/receipt", headers=place.caller)
    assert (await verified(deployment, answer)).complete


@pytest.mark.parametrize("surface", ["graphs", "llm"])
async def test_a_job_whose_result_was_deleted_is_shown_without_it(
    deployment: Deployment, connection: AsyncpgConnection, surface: str
) -> None:
    stored = b'{"artifact":"result.json"}'
    place = await ended_with_a_file(
        deployment, connection, surface, name="result.json", result=stored
    )
    await told(
        await deployment.http.delete(f"{place.url}/artifacts/result.json", headers=place.caller)
    )
    job = await told(await deployment.http.get(place.url, headers=place.caller))
    assert job["terminal"]
    assert job.get("result") is None


async def test_a_ticket_says_where_the_files_will_be(deployment: Deployment) -> None:
    await deployment.start_worker(things)
    answer = await deployment.http.post(
        "/api/v1/orgs/default/services/things/async/thing",
        json={},
        headers={"Prefer": "respond-async"},
    )
    ticket = await told(answer, 202)
    assert json.loads((await deployment.http.get(ticket["artifacts_url"])).content) == {"items": []}
