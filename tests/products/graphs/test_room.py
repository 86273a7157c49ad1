"""How many uploads are taken in at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from coatcheck.blobs import BlobContainer
from coatcheck.blobs.pieces import store_pieces
from coatcheck.domain.errors import RateLimited
from coatcheck.http import upload_limits
from coatcheck.http.upload_limits import UPLOADS_MAX, UPLOADS_OF_ONE_ORG_MAX, UploadSlots
from coatcheck.products.graphs import submit_routes
from tests.deployment import Deployment, bearer
from tests.products.graphs.archives import MIB, PROGRAM, post, zipped
from tests.products.graphs.gated import post_through
from tests.waiting import eventually

LARGE = zipped({"noise.bin": bytes(10 * MIB)}, method=0)


class Uploads:
    """Uploads that have begun and go on until they are told to end."""

    def __init__(self, places: UploadSlots) -> None:
        self._places = places
        self._end = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.entered = 0

    async def begin(self, *orgs: str) -> None:
        self._tasks += [asyncio.create_task(self._one(org)) for org in orgs]
        for _ in range(3):
            await asyncio.sleep(0)  # each comes as far as it can

    async def end(self) -> None:
        self._end.set()
        await asyncio.gather(*self._tasks)

    async def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _one(self, org: str) -> None:
        async with self._places.slot(org):
            self.entered += 1
            await self._end.wait()


async def test_one_organisation_does_not_fill_the_room() -> None:
    places = UploadSlots()
    uploads = Uploads(places)
    await uploads.begin(*["greedy"] * 50)
    assert uploads.entered == UPLOADS_OF_ONE_ORG_MAX
    await uploads.begin("modest")
    assert uploads.entered == UPLOADS_OF_ONE_ORG_MAX + 1
    await uploads.end()
    assert uploads.entered == 51  # each had its turn


async def test_there_is_room_for_so_many_in_all() -> None:
    uploads = Uploads(UploadSlots())
    await uploads.begin(*(f"org-{number}" for number in range(50)))
    assert uploads.entered == UPLOADS_MAX
    await uploads.end()
    assert uploads.entered == 50


async def test_who_gives_up_or_waits_in_vain_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    places = UploadSlots()
    uploads = Uploads(places)
    await uploads.begin(*(f"org-{number}" for number in range(UPLOADS_MAX)))
    with monkeypatch.context() as impatient:
        impatient.setattr(upload_limits, "WAIT_SECONDS_MAX", 0.05)
        with pytest.raises(RateLimited):
            async with places.slot("late"):
                raise AssertionError("there is no room")
    waiting = Uploads(places)
    await waiting.begin("late", "later")
    await waiting.cancel()
    await uploads.cancel()
    again = Uploads(places)
    await again.begin(*(f"org-{number}" for number in range(UPLOADS_MAX)))
    assert again.entered == UPLOADS_MAX
    await again.end()
    assert places.in_use == 0  # nothing is kept of those who left


async def test_uploads_that_stand_still_do_not_keep_another_organisation_out(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_limits, "WAIT_SECONDS_MAX", 0.5)
    await deployment.create_org("other")
    other = bearer(await deployment.create_key(org="other"))
    go = asyncio.Event()

    async def gate() -> None:
        await go.wait()

    slow = [
        asyncio.create_task(post_through(gate, deployment.http, LARGE, f"slow-{number}"))
        for number in range(UPLOADS_OF_ONE_ORG_MAX)
    ]

    def begun() -> bool:
        pieces = [path for path in (tmp_path / "blobs").rglob("*") if path.is_file()]
        return len(pieces) >= UPLOADS_OF_ONE_ORG_MAX

    await asyncio.to_thread(eventually, begun, "every upload has begun")
    refused = await post(deployment.http, zipped(PROGRAM), "k")
    assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
    assert int(refused.headers["Retry-After"]) > 0
    assert (await post(deployment.http, zipped(PROGRAM), "k", **other)).status_code == 202
    go.set()
    assert {answer.status_code for answer in await asyncio.gather(*slow)} == {202}
    assert (await post(deployment.http, zipped(PROGRAM), "k")).status_code == 202


async def test_who_waited_for_room_uploads_nothing_if_its_key_has_a_job_by_then(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_limits, "UPLOADS_OF_ONE_ORG_MAX", 1)
    rooms: list[upload_limits.OrgRoom] = []

    class Watched(upload_limits.OrgRoom):
        def __init__(self, places: int) -> None:
            super().__init__(places)
            rooms.append(self)

    monkeypatch.setattr(upload_limits, "OrgRoom", Watched)
    uploads: list[str] = []

    async def counted(container: BlobContainer, key: str, source: AsyncIterator[bytes]) -> Any:
        uploads.append(key)
        return await store_pieces(container, key, source)

    monkeypatch.setattr(submit_routes, "store_pieces", counted)
    go = asyncio.Event()

    async def gate() -> None:
        await go.wait()

    first = asyncio.create_task(post_through(gate, deployment.http, LARGE, "k"))
    await asyncio.to_thread(eventually, lambda: uploads, "the first upload has begun")
    second = asyncio.create_task(post(deployment.http, zipped(PROGRAM), "k"))
    await asyncio.to_thread(
        eventually, lambda: any(each.users == 2 for each in rooms), "the second waits"
    )
    go.set()
    one, other = await asyncio.gather(first, second)
    assert one.json()["jobId"] == other.json()["jobId"]
    assert other.headers["Idempotent-Replayed"] == "true"
    assert len(uploads) == 1
