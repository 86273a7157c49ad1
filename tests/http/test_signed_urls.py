"""Blobs by URLs of the control plane: all that a caller has is the URL."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx2
import pytest

from coatcheck.blobs.keys import upload_key
from coatcheck.blobs.signing import BLOBS_PATH, Grant, Grants
from coatcheck.core import Engine
from coatcheck.core.queries import uploads
from coatcheck.db.connection import Connection
from coatcheck.domain.errors import SettingsInvalid
from coatcheck.domain.ids import new_id
from coatcheck.domain.inputs import StagedUpload
from coatcheck.domain.job import Artifact
from coatcheck.http import request, upload_limits
from coatcheck.http.app import create_app
from coatcheck.http.context import open_server_context
from coatcheck.products.batches.model import export_key
from coatcheck.settings import Settings
from tests.blobs.stores import BlobStore
from tests.http.conftest import PEPPER, serving
from tests.http.limits.wire import RouteServer, Wire, assert_problem, connected
from tests.waiting import eventually_async

MIB = 1024 * 1024
LARGE = os.urandom(5 * MIB + 11)
PAGE = b"<script>alert(document.domain)</script>"
GRANTS = Grants(PEPPER)
HOUR = 3600


@dataclass
class Served:
    """A control plane, what it is made of, and a client that has no credential."""

    engine: Engine
    line: Connection
    http: httpx2.AsyncClient
    blobs_folder: Path

    @property
    def route_server(self) -> RouteServer:
        port = self.http.base_url.port
        assert port is not None
        return RouteServer(port=port)

    async def staged(self, life_seconds: float = HOUR) -> StagedUpload:
        upload_id = new_id()
        key = upload_key(await self.engine.deployment(), upload_id)
        return await uploads.create(
            self.line,
            org="acme",
            upload_id=upload_id,
            owner="user:ann",
            blob_key=key,
            life_seconds=life_seconds,
        )

    async def put_url(self, upload: StagedUpload, bytes_max: int = 100 * MIB) -> str:
        signer = self.engine.signer
        return (
            await signer.signed_put(upload.blob_key, HOUR, "text/plain", bytes_max=bytes_max)
        ).url

    async def export(self, content: bytes) -> str:
        """The key of a blob to be fetched."""
        key = export_key(await self.engine.deployment(), new_id(), new_id())
        await self.engine.blobs.put(key, content)
        return key

    def files(self) -> list[Path]:
        """All that lies in the folder, finished or not."""
        return [path for path in self.blobs_folder.rglob("*") if path.is_file()]


@asynccontextmanager
async def served_by(settings: Settings, folder: Path) -> AsyncIterator[Served]:
    async with (
        await Engine.connect(settings) as engine,
        open_server_context(settings, engine) as parts,
        serving(create_app(parts), parts.draining) as client,
    ):
        yield Served(engine, parts.tenants, client, folder)


@pytest.fixture
async def served(settings: Settings, tmp_path: Path) -> AsyncIterator[Served]:
    async with served_by(settings, tmp_path / "blobs") as running:
        yield running


# Fetching


@pytest.mark.parametrize("content", [b"", b"x", LARGE], ids=["empty", "small", "large"])
async def test_a_blob_is_fetched_by_its_url_alone(served: Served, content: bytes) -> None:
    signed = await served.engine.signer.signed_get(
        await served.export(content), HOUR, file_name="ä.zip", media_type="application/zip"
    )
    answer = await served.http.get(signed.url)
    assert (answer.status_code, answer.content) == (200, content)
    assert answer.headers["Content-Length"] == str(len(content))
    assert answer.headers["Content-Type"] == "application/zip"
    assert answer.headers["Content-Disposition"].endswith("filename*=UTF-8''%C3%A4.zip")
    assert answer.headers["Accept-Ranges"] == "bytes"
    head = await served.http.head(signed.url)
    assert (head.status_code, head.content) == (200, b"")
    for name in ("Content-Length", "ETag", "Content-Type", "Content-Disposition"):
        assert head.headers[name] == answer.headers[name]


async def test_a_url_serves_any_store_that_cannot_sign(
    dsn: str, tmp_path: Path, blob_store: BlobStore
) -> None:
    """As with an Azure SAS token: then the control plane stands between."""
    settings = Settings(database_url=dsn, blob_url=blob_store.url, key_pepper=PEPPER)
    async with served_by(settings, tmp_path) as served:
        upload = await served.staged()
        expires = int(time.time()) + HOUR
        put = BLOBS_PATH + GRANTS.token(Grant("PUT", upload.blob_key, expires))
        get = BLOBS_PATH + GRANTS.token(Grant("GET", upload.blob_key, expires))
        stored = await served.http.put(put, content=LARGE)
        assert stored.json() == {
            "bytes": len(LARGE),
            "sha256": hashlib.sha256(LARGE).hexdigest(),
        }
        answer = await served.http.get(get, headers={"Range": f"bytes={MIB}-{2 * MIB}"})
        assert (answer.status_code, answer.content) == (206, LARGE[MIB : 2 * MIB + 1])
        same = await served.http.get(get, headers={"If-None-Match": answer.headers["ETag"]})
        assert same.status_code == 304


@pytest.mark.parametrize(
    ("asked", "start", "stop"),
    [
        ("bytes=0-0", 0, 1),
        (f"bytes={MIB - 1}-{3 * MIB}", MIB - 1, 3 * MIB + 1),
        (f"bytes={len(LARGE) - 1}-", len(LARGE) - 1, len(LARGE)),
        ("bytes=-7", len(LARGE) - 7, len(LARGE)),
        ("bytes=1-", 1, len(LARGE)),
    ],
)
async def test_a_part_of_a_blob_can_be_asked_for(
    served: Served, asked: str, start: int, stop: int
) -> None:
    signed = await served.engine.signer.signed_get(await served.export(LARGE), HOUR)
    answer = await served.http.get(signed.url, headers={"Range": asked})
    assert (answer.status_code, answer.content) == (206, LARGE[start:stop])
    assert answer.headers["Content-Range"] == f"bytes {start}-{stop - 1}/{len(LARGE)}"
    assert answer.headers["Content-Length"] == str(stop - start)


async def test_a_download_that_broke_off_goes_on_where_it_was_but_not_in_another_blob(
    served: Served,
) -> None:
    key = await served.export(b"first blob")
    url = (await served.engine.signer.signed_get(key, HOUR)).url
    etag = (await served.http.get(url)).headers["ETag"]
    resume = {"Range": "bytes=6-", "If-Range": etag}
    assert (await served.http.get(url, headers=resume)).content == b"blob"
    await served.engine.blobs.put(key, b"another one altogether")
    answer = await served.http.get(url, headers=resume)
    assert (answer.status_code, answer.content) == (200, b"another one altogether")


async def test_a_range_after_the_end_is_told_how_much_there_is(served: Served) -> None:
    url = (await served.engine.signer.signed_get(await served.export(b"1234"), HOUR)).url
    answer = await served.http.get(url, headers={"Range": "bytes=4-"})
    assert (answer.status_code, answer.json()["code"]) == (416, "range_not_satisfiable")
    assert answer.headers["Content-Range"] == "bytes */4"


async def test_what_is_known_already_is_not_sent_again(served: Served) -> None:
    url = (await served.engine.signer.signed_get(await served.export(b"1234"), HOUR)).url
    etag = (await served.http.head(url)).headers["ETag"]
    known = await served.http.get(url, headers={"If-None-Match": f'"x", {etag}'})
    assert (known.status_code, known.content, known.headers["ETag"]) == (304, b"", etag)
    other = await served.http.get(url, headers={"If-None-Match": '"x"'})
    assert other.content == b"1234"


@pytest.mark.parametrize("media_type", ["text/html", "image/svg+xml", "a\r\nb: c", "ä/ö", "", None])
async def test_a_stored_page_is_never_a_page_of_ours(
    served: Served, media_type: str | None
) -> None:
    signed = await served.engine.signer.signed_get(
        await served.export(PAGE), HOUR, file_name="a.html", media_type=media_type
    )
    answer = await served.http.get(signed.url)
    assert answer.content == PAGE
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "sandbox" in answer.headers["Content-Security-Policy"]
    assert answer.headers["Content-Disposition"] == 'attachment; filename="a.html"'
    assert "b" not in answer.headers
    if media_type in ("text/html", "image/svg+xml"):
        assert answer.headers["Content-Type"] == media_type
    else:
        assert answer.headers["Content-Type"] == "application/octet-stream"


async def test_an_artifact_has_a_url(served: Served) -> None:
    key = await served.export(b"what a job made")
    row = await served.line.fetch(
        "INSERT INTO artifacts (org_id, job_id, name, blob_key, media_type, bytes, sha256)"
        " VALUES ('acme', $1, 'graph.svg', $2, 'image/svg+xml', 15, '') RETURNING created_at",
        new_id(),
        key,
    )
    artifact = Artifact("graph.svg", key, "image/svg+xml", 15, b"", row[0]["created_at"])
    answer = await served.http.get((await served.engine.sign_artifact(artifact)).url)
    assert answer.content == b"what a job made"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="graph.svg"'


async def test_without_a_pepper_no_url_of_ours_is_signed(settings: Settings) -> None:
    async with await Engine.connect(replace(settings, key_pepper="")) as engine:
        with pytest.raises(SettingsInvalid, match="COATCHECK_KEY_PEPPER"):
            _ = engine.signer


# Refusals


def same_but_for_the_time(answer: httpx2.Response) -> tuple[int, dict[str, object]]:
    problem = answer.json()
    return answer.status_code, {
        name: value for name, value in problem.items() if name != "timestamp"
    }


async def test_a_forged_url_and_a_blob_that_is_gone_are_answered_alike(served: Served) -> None:
    key = await served.export(b"x")
    good = (await served.engine.signer.signed_get(key, HOUR)).url
    gone = (await served.engine.signer.signed_get(f"{key}x", HOUR)).url
    strangers = BLOBS_PATH + Grants("another pepper, just as long as it").token(
        Grant("GET", key, int(time.time()) + HOUR)
    )
    put = await served.put_url(await served.staged())
    answers = [
        await served.http.get(url, headers={"X-Request-Id": "mine"})
        for url in (gone, strangers, good[:-2] + "AA", BLOBS_PATH + "x", BLOBS_PATH + "%2F", put)
    ]
    assert answers[0].status_code == 404
    for answer in answers:
        assert same_but_for_the_time(answer) == same_but_for_the_time(answers[0])
    assert (await served.http.get(good)).status_code == 200


async def test_a_url_whose_time_is_up_says_so(served: Served) -> None:
    key = await served.export(b"x")
    for method in ("GET", "PUT"):
        grant = Grant(method, key, int(time.time()))  # type: ignore[arg-type]
        answer = await served.http.request(method, BLOBS_PATH + GRANTS.token(grant))
        assert (answer.status_code, answer.json()["code"]) == (410, "url_expired")


async def test_only_an_upload_is_put_to(served: Served) -> None:
    key = await served.export(b"as it was")
    url = BLOBS_PATH + GRANTS.token(Grant("PUT", key, int(time.time()) + HOUR))
    assert (await served.http.put(url, content=b"x")).status_code == 404
    assert await served.engine.blobs.get(key) == b"as it was"


# Putting


@pytest.mark.parametrize("content", [b"", b'{"a": 1}\n', LARGE], ids=["empty", "small", "large"])
async def test_a_list_is_put_whole_and_may_be_put_again(served: Served, content: bytes) -> None:
    upload = await served.staged()
    url = await served.put_url(upload)
    for body in (b"the wrong file", content):
        answer = await served.http.put(url, content=body)
        assert (answer.status_code, answer.json()) == (
            201,
            {"bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()},
        )
    assert await served.engine.blobs.get(upload.blob_key) == content


async def test_a_list_may_come_in_chunks(served: Served) -> None:
    upload = await served.staged()

    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(LARGE), 300_000):
            yield LARGE[at : at + 300_000]

    answer = await served.http.put(await served.put_url(upload), content=chunks())
    assert answer.status_code == 201
    assert await served.engine.blobs.get(upload.blob_key) == LARGE


async def test_a_list_that_is_too_large_is_refused_and_nothing_of_it_is_kept(
    served: Served,
) -> None:
    upload = await served.staged()
    url = await served.put_url(upload, bytes_max=MIB)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield bytes(100_000)

    answer = await served.http.put(url, content=bytes(MIB + 1))
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    answer = await served.http.put(url, content=chunks())
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert served.files() == []
    assert (await served.http.put(url, content=bytes(MIB))).status_code == 201


def head(url: str, length: int) -> bytes:
    return b"PUT %s HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % (url.encode(), length)


async def test_nothing_is_seen_of_a_list_before_it_is_whole(served: Served) -> None:
    upload = await served.staged()
    url = await served.put_url(upload)
    async with connected(served.route_server) as wire:
        await wire.say(head(url, len(LARGE)) + LARGE[: -MIB // 2])

        async def begun() -> bool:
            return bool(served.files())

        await eventually_async(begun, "some of it is on the disk")
        with pytest.raises(FileNotFoundError):
            await served.engine.blobs.head(upload.blob_key)
        await wire.say(LARGE[-MIB // 2 :])
        assert (await wire.answer()).status == 201
    assert await served.engine.blobs.get(upload.blob_key) == LARGE


async def test_a_list_whose_sender_goes_leaves_nothing_and_replaces_nothing(
    served: Served,
) -> None:
    upload = await served.staged()
    url = await served.put_url(upload)
    assert (await served.http.put(url, content=b"whole")).status_code == 201
    async with connected(served.route_server) as wire:
        await wire.say(head(url, len(LARGE)) + LARGE[:-1])

        async def begun() -> bool:
            return len(served.files()) == 2

        await eventually_async(begun, "some of it is on the disk")

    async def cleared() -> bool:
        return len(served.files()) == 1

    await eventually_async(cleared, "what was on the disk is gone")
    assert await served.engine.blobs.get(upload.blob_key) == b"whole"


async def test_only_so_many_lists_of_one_organisation_are_put_at_a_time(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_limits, "UPLOADS_OF_ONE_ORG_MAX", 1)
    monkeypatch.setattr(upload_limits, "WAIT_SECONDS_MAX", 0.3)
    first, second = [await served.put_url(await served.staged()) for _ in range(2)]
    async with connected(served.route_server) as wire:
        await wire.say(head(first, len(LARGE)) + LARGE[:-1])

        async def begun() -> bool:
            return bool(served.files())

        await eventually_async(begun, "some of the first is on the disk")
        refused = await served.http.put(second, content=b"x")
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
        assert int(refused.headers["Retry-After"]) > 0
        await wire.say(LARGE[-1:])
        assert (await wire.answer()).status == 201
    assert (await served.http.put(second, content=b"x")).status_code == 201


async def test_a_list_that_pauses_is_not_waited_for(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request, "UPLOAD_PAUSE_SECONDS_MAX", 0.3)
    url = await served.put_url(await served.staged())
    async with connected(served.route_server) as wire:
        await wire.say(head(url, 1000) + b"x")
        assert_problem(await wire.answer(), 408, "body_too_slow")
    assert served.files() == []


async def test_a_list_has_more_time_than_other_uploads(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request, "UPLOAD_SECONDS_MAX", 0.0)
    upload = await served.staged()
    async with connected(served.route_server) as wire:
        await wire.say(head(await served.put_url(upload), 4) + b"12")
        await wire.say(b"34")
        assert (await wire.answer()).status == 201


async def used(served: Served, upload: StagedUpload) -> None:
    key = await uploads.use(
        served.line, org="acme", upload_id=upload.uuid, owner="user:ann", used_by=new_id()
    )
    assert key == upload.blob_key


async def forgotten(served: Served, upload: StagedUpload) -> None:
    await served.line.fetch("DELETE FROM uploads WHERE id = $1", upload.uuid)


async def expired(served: Served, upload: StagedUpload) -> None:
    await served.line.fetch("UPDATE uploads SET expires_at = now()")


Change = Callable[[Served, StagedUpload], Awaitable[None]]
CHANGES = [
    (used, 409, "upload_already_used"),
    (forgotten, 404, "not_found"),
    (expired, 410, "url_expired"),
]


@pytest.mark.parametrize(("change", "status", "code"), CHANGES)
async def test_a_list_is_not_put_once_its_upload_was_used_or_is_no_more(
    served: Served, change: Change, status: int, code: str
) -> None:
    upload = await served.staged()
    url = await served.put_url(upload)
    assert (await served.http.put(url, content=b"what the run reads")).status_code == 201
    await change(served, upload)
    answer = await served.http.put(url, content=b"something else")
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert await served.engine.blobs.get(upload.blob_key) == b"what the run reads"


@pytest.mark.parametrize(("change", "status", "code"), CHANGES)
async def test_a_put_that_was_under_way_when_its_upload_was_used_changes_nothing(
    served: Served, change: Change, status: int, code: str
) -> None:
    upload = await served.staged()
    url = await served.put_url(upload)
    assert (await served.http.put(url, content=b"what the run reads")).status_code == 201
    async with connected(served.route_server) as wire:
        await half_way(served, wire, url)
        await change(served, upload)
        await wire.say(LARGE[-1:])
        heard = await wire.answer()
        assert (heard.status, heard.json()["code"]) == (status, code)
    assert await served.engine.blobs.get(upload.blob_key) == b"what the run reads"
    assert len(served.files()) == 1


async def half_way(served: Served, wire: Wire, url: str) -> None:
    await wire.say(head(url, len(LARGE)) + LARGE[:-1])

    async def begun() -> bool:
        return len(served.files()) == 2

    await eventually_async(begun, "some of it is on the disk")
