"""Both clients against a whole Coatcheck: control plane, worker and database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from coatcheck import Job, Service
from coatcheck.client import (
    AuthenticationError,
    ConflictError,
    InvalidRequestError,
    JobFailed,
    NotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    UnexpectedAnswer,
    WaitTimeout,
)
from coatcheck.client._async import client as async_client
from coatcheck.client._sync import client as sync_client
from coatcheck.domain.tenants import RateLimit, Scope
from tests.client.conftest import Connect
from tests.client.cutting_proxy import CuttingProxy
from tests.client.flavours import Flavour
from tests.deployment import Deployment

DRAWING = b"<svg/>" * 100_000
CHUNKS = ["one", {"two": [2]}, b"\x00\xff", "four", "five", 6]


class Desk:
    """A service whose handlers wait for the test where it says so."""

    def __init__(self) -> None:
        self.service = Service("desk")
        self.release = asyncio.Event()
        self.started = asyncio.Event()

        @self.service.post("/count")
        async def count(text: str) -> dict[str, int]:
            return {"words": len(text.split())}

        @self.service.put("/items/{item}")
        async def put(item: int, colour: str) -> str:
            return f"{item} is {colour}"

        @self.service.post("/slow", sync_timeout=0.1)
        async def slow() -> str:
            self.started.set()
            await self.release.wait()
            return "at last"

        @self.service.post("/until-cancelled")
        async def until_cancelled(job: Job) -> None:
            self.started.set()
            await job.wait_cancelled()
            job.check_cancelled()

        @self.service.post("/fail")
        async def fail(job: Job) -> None:
            job.fail("there is no such mailbox", code="no_mailbox")

        @self.service.post("/draw")
        async def draw(job: Job) -> None:
            await job.attach("plan.svg", DRAWING, media_type="image/svg+xml")
            await job.attach("empty", b"")

        @self.service.post("/tell")
        async def tell(job: Job) -> int:
            await job.progress(0.5, "half way")
            await job.log("counted", words=3)
            for chunk in CHUNKS:
                await job.emit(chunk)
            return len(CHUNKS)


@pytest.fixture
async def desk(deployment: Deployment) -> AsyncIterator[Desk]:
    desk = Desk()
    await deployment.start_worker(desk.service)
    yield desk
    desk.release.set()


@pytest.fixture
def client(connect: Connect, deployment: Deployment) -> Flavour:
    return connect(str(deployment.http.base_url), deployment.key)


async def test_work_goes_in_and_its_result_comes_out(client: Flavour, desk: Desk) -> None:
    job = await client.submit("desk", "count", {"text": "to be or not"}, lane="urgent")
    assert not job.terminal
    assert await client.result(job, 60) == {"words": 4}
    assert (job.status, job.terminal, job.lane) == ("completed", True, "urgent")
    assert (job.attempt_count, job.endpoint_key, job.error) == (1, "post__count", None)
    assert job.created_at <= job.completed_at <= job.expires_at
    again = await client.get(job.id, service="desk")
    assert (again.result, again.etag) == (job.result, job.etag)
    assert again.urls == job.urls


async def test_the_files_of_a_job_are_listed_and_downloaded(
    client: Flavour, desk: Desk, tmp_path: Path
) -> None:
    job = await client.submit("desk", "draw", wait=60)
    empty, plan = await client.do(job.artifacts)
    assert (plan.name, plan.media_type, plan.bytes) == ("plan.svg", "image/svg+xml", len(DRAWING))
    assert plan.url == f"{urlsplit(job.urls.poll).path}/artifacts/plan.svg"
    assert plan.created_at <= plan.signed_url_expires_at <= plan.expires_at
    assert await client.download(plan, tmp_path / "copy.svg") == tmp_path / "copy.svg"
    assert (tmp_path / "copy.svg").read_bytes() == DRAWING
    assert (await client.download(empty, str(tmp_path / "empty"))).read_bytes() == b""
    by_id = await client.artifacts(job.id, service="desk")
    assert [each.sha256 for each in by_id] == [empty.sha256, plan.sha256]
    wrong = msgspec.structs.replace(plan, sha256=empty.sha256)
    with pytest.raises(UnexpectedAnswer, match="checksum"):
        await client.download(wrong, tmp_path / "wrong")
    assert {path.name for path in tmp_path.iterdir()} >= {"copy.svg", "empty"}
    assert not [path for path in tmp_path.iterdir() if "wrong" in path.name], "nothing is left"


async def test_a_submission_can_wait_for_the_end(client: Flavour, desk: Desk) -> None:
    job = await client.submit("desk", "count", {"text": "a b"}, wait=60)
    assert (job.terminal, job.result) == (True, {"words": 2})


async def test_a_call_is_answered_by_the_endpoint(client: Flavour, desk: Desk) -> None:
    assert await client.call("desk", "count", {"text": "a b c"}) == {"words": 3}
    item = await client.call("desk", "items/7?colour=dark%20red", method="PUT")
    assert item == "7 is dark red"
    put = await client.submit("desk", "/items/8", {"colour": "blue"}, method="PUT", version=1)
    assert await client.result(put) == "8 is blue"


async def test_a_call_that_takes_long_is_waited_for(client: Flavour, desk: Desk) -> None:
    calling = asyncio.create_task(client.call("desk", "slow"))
    await desk.started.wait()
    desk.release.set()
    assert await calling == "at last"


async def test_a_wait_can_be_given_up_and_taken_up_again(client: Flavour, desk: Desk) -> None:
    job = await client.submit("desk", "slow")
    with pytest.raises(WaitTimeout):
        await client.wait(job, 0.05)
    desk.release.set()
    assert (await client.wait(job, 60)).result == "at last"


async def test_a_wait_outlasts_a_server_that_drains(
    client: Flavour, desk: Desk, deployment: Deployment
) -> None:
    job = await client.submit("desk", "slow")
    waiting = asyncio.create_task(client.wait(job, 60))
    await desk.started.wait()
    deployment.context.draining.begin()
    desk.release.set()
    assert (await waiting).result == "at last"


async def test_failures_have_the_servers_code(client: Flavour, desk: Desk) -> None:
    job = await client.submit("desk", "fail")
    with pytest.raises(JobFailed) as late:
        await client.wait(job, 60)
    with pytest.raises(JobFailed) as early:
        await client.call("desk", "fail")
    for raised in (late.value, early.value):
        assert (raised.code, raised.message) == ("no_mailbox", "there is no such mailbox")
        assert raised.job.status == "failed"


async def test_a_stream_tells_the_whole_story(client: Flavour, desk: Desk) -> None:
    job = await client.submit("desk", "tell")
    events = await client.stream(job)
    assert [event.data for event in events if event.name == "chunk"] == CHUNKS
    (line,) = [event.data for event in events if event.name == "log"]
    assert (line["message"], line["fields"]) == ("counted", {"words": 3})
    assert events[-1].name == "end"
    assert events[-1].data["progress"] == {"fraction": 0.5, "note": "half way"}
    assert (job.status, job.result) == ("completed", len(CHUNKS))
    kept = [event.id for event in events if event.name == "chunk"]
    rest = await client.stream(job.id, service="desk", after=kept[3])
    assert [event.data for event in rest if event.name == "chunk"] == CHUNKS[4:]


async def test_a_stream_that_is_cut_again_and_again_loses_nothing_and_repeats_nothing(
    connect: Connect, desk: Desk, deployment: Deployment
) -> None:
    async with CuttingProxy(str(deployment.http.base_url)) as proxy:
        client = connect(proxy.url, deployment.key)
        job = await client.submit("desk", "tell")
        events = await client.stream(job)
        assert [event.data for event in events if event.name == "chunk"] == CHUNKS
        assert len([event for event in events if event.name == "log"]) == 1
        assert proxy.cuts == len(CHUNKS) - 1


async def test_jobs_can_be_cancelled_until_they_end(client: Flavour, desk: Desk) -> None:
    running = await client.submit("desk", "until-cancelled")
    await desk.started.wait()
    # It obeys at once, and may have done so before the answer is made.
    assert (await client.cancel(running)).status in ("cancel_requested", "cancelled")
    with pytest.raises(JobFailed) as raised:
        await client.wait(running, 60)
    assert (raised.value.code, running.status) == ("cancelled", "cancelled")
    assert (await client.cancel(running)).status == "cancelled"
    done = await client.submit("desk", "count", {"text": ""}, wait=60)
    with pytest.raises(ConflictError) as conflict:
        await client.cancel(done.id, service="desk")
    assert conflict.value.code == "job_already_ended"


async def test_one_key_is_one_job(client: Flavour, desk: Desk) -> None:
    first = await client.submit("desk", "count", {"text": "a"}, idempotency_key='"Größe" 1')
    second = await client.submit("desk", "count", {"text": "b"}, idempotency_key='"Größe" 1')
    assert second.id == first.id
    assert (first.replayed, second.replayed, second.mismatch) == (False, True, True)
    assert (await client.wait(second, 60)).idempotency_key == '"Größe" 1'
    third = await client.submit("desk", "count", {"text": "a"}, idempotency_key='"Größe" 1')
    assert (third.terminal, await client.result(third)) == (True, {"words": 1})
    with pytest.raises(InvalidRequestError) as raised:
        await client.submit(
            "desk",
            "count",
            {"text": "b"},
            idempotency_key='"Größe" 1',
            headers={"Prefer": "handling=strict"},
        )
    assert raised.value.code == "idempotency_mismatch"


async def test_jobs_are_listed_and_looked_up_by_the_dozen(
    client: Flavour, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(async_client, "PAGE_JOBS", 2)
    monkeypatch.setattr(sync_client, "PAGE_JOBS", 2)
    jobs = [await client.submit("desk", "count", {"text": "x"}, wait=60) for _ in range(5)]
    ids = [job.id for job in reversed(jobs)]
    page = await client.list("desk", status="completed", limit=2, offset=1)
    assert ([job.id for job in page.items], page.total) == (ids[1:3], 5)
    assert [job.id for job in await client.all_jobs("desk")] == ids
    assert await client.result(page.items[0]) == {"words": 1}
    assert await client.all_jobs("desk", lane="bulk") == []
    absent = "01JAV8M2Q0XW3N5T7R9Y1B3D5F"
    batch = await client.batch_status("desk", [*ids[:2], absent])
    assert [job.id for job in batch.items] == ids[:2]
    assert batch.not_found == (absent,)


async def test_usage_counts_what_has_ended(client: Flavour, desk: Desk) -> None:
    await client.submit("desk", "count", {"text": "x"}, wait=60)
    await client.wait(await client.submit("desk", "fail"), raise_on_failure=False)
    today = datetime.now(UTC).date()
    rows = await client.usage(today - timedelta(days=1), today + timedelta(days=1))
    used = {row.endpoint: (row.jobs, row.completed, row.failed) for row in rows}
    assert used == {"desk.post__count": (1, 1, 0), "desk.post__fail": (1, 0, 1)}


async def test_refusals_are_errors_with_the_servers_code(
    connect: Connect, client: Flavour, desk: Desk, deployment: Deployment
) -> None:
    url = str(deployment.http.base_url)
    job = await client.submit("desk", "count", {"text": "x"}, wait=60)
    stranger = connect(url, await deployment.create_key(user="another"))
    reader = connect(url, await deployment.create_key(scopes=[Scope.READ]))
    revoked = connect(url, key := await deployment.create_key())
    await deployment.revoke_key(key)
    refusals: list[tuple[Any, type[Exception], str]] = [
        (client.submit("nothing", "count"), NotFoundError, "not_found"),
        (client.submit("desk", "count", lane="fast"), InvalidRequestError, "unknown_lane"),
        (client.submit("desk", "count", b"{"), InvalidRequestError, "invalid_body"),
        (client.get("no-id", service="desk"), NotFoundError, "job_not_found"),
        (stranger.get(job.id, service="desk"), NotFoundError, "job_not_found"),
        (reader.submit("desk", "count"), PermissionDeniedError, "missing_scope"),
        (revoked.submit("desk", "count"), AuthenticationError, "unauthenticated"),
        (connect(url, None).usage(), AuthenticationError, "unauthenticated"),
    ]
    for refused, kind, code in refusals:
        with pytest.raises(kind) as raised:
            await refused
        assert raised.value.code == code
        assert raised.value.request_id


async def test_who_asks_too_often_is_told_when_to_come_back(
    connect: Connect, desk: Desk, deployment: Deployment
) -> None:
    key = await deployment.create_key(rate=RateLimit(requests=2, seconds=3600))
    client = connect(str(deployment.http.base_url), key, retries=0)
    await client.list("desk")
    await client.list("desk")
    with pytest.raises(RateLimitedError) as raised:
        await client.list("desk")
    assert raised.value.code == "rate_limited"
    assert 0 < raised.value.retry_after <= 3600
