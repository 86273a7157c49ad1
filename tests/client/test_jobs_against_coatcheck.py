"""All jobs of an organisation by both clients, against a whole Coatcheck."""

from __future__ import annotations

import json
import zipfile
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from coatcheck import Job, Service
from coatcheck.client import ConflictError, JobFailed, NotFoundError, WaitTimeout
from coatcheck.domain.tenants import USER_SCOPES
from tests.client.conftest import Connect
from tests.client.flavours import Flavour
from tests.deployment import Deployment

desk = Service("desk")


@desk.post("/echo")
async def echo(message: str) -> str:
    return message


@desk.post("/break", retries=0)
async def break_(job: Job, how: str) -> None:
    await job.log("about to break", tool="hammer")
    job.fail(how, code="broken")


@desk.post("/hold", retries=0)
async def hold(job: Job) -> None:
    await job.progress(0.5, "held")
    await job.wait_cancelled()
    job.check_cancelled()


@pytest.fixture
async def deployment(dsn: str, tmp_path: Path) -> AsyncIterator[Deployment]:
    async with Deployment(dsn, tmp_path) as opened:
        await opened.start_worker(desk)
        yield opened


@pytest.fixture
def client(connect: Connect, deployment: Deployment) -> Flavour:
    return connect(str(deployment.http.base_url), deployment.key)


async def test_jobs_are_listed_found_and_read(
    client: Flavour, connect: Connect, deployment: Deployment
) -> None:
    started = datetime.now(UTC) - timedelta(minutes=5)
    ids = [
        (await client.submit("desk", "echo", {"message": f"{n}"}, idempotency_key=f"key {n}")).id
        for n in range(3)
    ]
    done = await client.jobs.wait(ids[0])
    assert (done.state, done.status, done.result, done.service) == (
        *("completed", "completed", "0", "desk"),
    )
    assert done.raw["result"] == "0"
    for job_id in ids:
        await client.jobs.wait(job_id)

    first = await client.jobs.list(service="desk", state=["completed", "failed"], limit=2)
    assert [job.id for job in first.items] == [ids[2], ids[1]]
    rest = await client.jobs.list(service="desk", cursor=first.next, limit=2)
    assert [job.id for job in rest.items] == [ids[0]]
    assert first.items[0].result is None
    found = await client.jobs.list(q="key 1")
    assert [job.id for job in found.items] == [ids[1]]
    everything = await client.jobs.all("list_all", created_after=started)
    assert [job.id for job in everything] == ids[::-1]
    assert await client.jobs.all("list_all", created_before=started) == []
    with pytest.raises(ValueError, match="time zone"):
        await client.jobs.list(created_after=datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(NotFoundError):
        await client.jobs.get("01ARZ3NDEKTSV4RRFFQ69G5FAV")

    other = connect(
        str(deployment.http.base_url), await deployment.create_key(user="other", scopes=USER_SCOPES)
    )
    assert (await other.jobs.list()).items == ()
    with pytest.raises(NotFoundError):
        await other.jobs.get(ids[0])
    overview = await client.overview(5)
    assert overview.org_id == "default"
    assert {lane.lane for lane in overview.lanes} == {"urgent", "standard", "bulk"}


async def test_a_failed_job_is_explained_and_handed_in_again(client: Flavour) -> None:
    job = await client.submit("desk", "break", {"how": "badly"})
    with pytest.raises(JobFailed) as raised:
        await client.jobs.wait(job.id)
    assert (raised.value.code, raised.value.message) == ("broken", "badly")
    failed = await client.jobs.wait(job.id, raise_on_failure=False)
    assert (failed.state, failed.input_kept, failed.failures) == ("failed", True, 1)
    lines = await client.jobs.all("log", failed)
    assert [line.kind for line in lines] == ["log", "attempt"]
    assert lines[0].message == "about to break"
    assert await client.jobs.all("log", failed, after=lines[0].seq) == lines[1:]
    kinds = [entry.kind for entry in await client.jobs.timeline(failed)]
    assert (kinds[0], kinds[-1]) == ("created", "finished")
    assert json.loads(await client.jobs.input(failed)) == {"how": "badly"}

    again = await client.jobs.retry(failed, idempotency_key="again")
    assert again.retry_of == failed.id
    assert (await client.jobs.retry(failed, idempotency_key="again")).id == again.id
    assert (await client.jobs.get(failed)).retried_as == again.id
    await client.jobs.wait(again, raise_on_failure=False)
    many = await client.jobs.bulk("retry", [again.id, "01ARZ3NDEKTSV4RRFFQ69G5FAV"])
    assert [item.ok for item in many.items] == [True, False]
    assert many.items[0].new_id is not None
    assert many.items[1].code is not None
    done = await client.submit("desk", "echo", {"message": "x"}, wait=30)
    with pytest.raises(ConflictError):
        await client.jobs.retry(done.id)
    with pytest.raises(ConflictError):
        await client.jobs.input(done.id)


async def test_a_running_job_is_followed_and_cancelled(client: Flavour) -> None:
    job = await client.submit("desk", "hold", {})
    with pytest.raises(WaitTimeout):
        await client.jobs.wait(job.id, timeout=0.2)
    explained = await client.jobs.explain(job.id)
    assert (explained.job_id, explained.terminal) == (job.id, False)
    assert explained.summary
    stopped = await client.jobs.cancel(job.id)
    assert stopped.id == job.id
    ended = await client.jobs.wait(job.id, raise_on_failure=False)
    assert ended.state == "cancelled"
    assert (await client.jobs.cancel(ended)).state == "cancelled"
    events = await client.jobs.all("stream", job.id)
    assert [event.name for event in events][-1] == "end"
    assert events[-1].data["state"] == "cancelled"

    more = [(await client.submit("desk", "hold", {})).id for _ in range(2)]
    outcome = await client.jobs.bulk("cancel", service="desk", state="live", limit=10)
    assert sorted(item.id for item in outcome.items) == sorted(more)
    with pytest.raises(ValueError, match="give either ids, or a filter"):
        await client.jobs.bulk("cancel", ["x"], lane="bulk")


async def test_code_becomes_a_graph(
    client: Flavour, deployment: Deployment, tmp_path: Path
) -> None:
    await deployment.start_graphs_worker()
    archive = tmp_path / "code.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("a.py", "def f():\n    return g()\n\n\ndef g(): ...\n")
    seen: list[str] = []
    job = await client.graphs.submit("call", archive, idempotency_key="once")
    again = await client.graphs.submit("call", archive, idempotency_key="once")
    assert again.id == job.id
    done = await client.graphs.wait(job, on_progress=lambda job: seen.append(job.status))
    assert done.result["stats"]["functions"] == 2
    assert seen[-1] == "completed"
    assert (await client.graphs.get(job.id)).result == done.result
    broken = tmp_path / "broken.zip"
    content = archive.read_bytes()
    broken.write_bytes(content.replace(b"def f", b"def x", 1))  # does not match its checksum now
    with pytest.raises(JobFailed) as raised:
        await client.graphs.generate("parse", broken)
    assert raised.value.code == "archive_rejected"
