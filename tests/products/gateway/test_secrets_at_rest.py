"""Secrets that services are registered with: sent with every call, and readable nowhere else.

A canary is registered as a header of an upstream and as the token of a remote. Jobs that wait, run,
failed and are tried again leave it in no table, no dump, no write-ahead log and no log line.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from coatcheck import Settings, State
from coatcheck.core.service_secrets import Resealer
from coatcheck.db.connection import Connection
from coatcheck.db.embedded import EmbeddedPostgres
from coatcheck.db.embedded.cluster import bundled_bin
from coatcheck.db.migrate import migrate
from coatcheck.products.gateway.executor import UpstreamExecutor
from coatcheck.worker.worker import Worker
from tests.deployment import Deployment
from tests.egress.upstream_server import Request, UpstreamServer, plain, upstream_server
from tests.products.gateway import paths
from tests.products.gateway.asking import end_of, problem
from tests.remotes.fake_http import FakeHttp
from tests.sealed_secrets import SECRET_KEY
from tests.waiting import eventually_async

HEADER = "canary-header-5b1d0c6f"
TOKEN = FakeHttp.secret
SEEN = "marker-that-is-seen-93ac"
"""In a payload: whoever does not find it has not looked."""
NEW_KEY = "another-sealing-key-that-tests-rotate-to"
JSON = (("Content-Type", "application/json"),)


class Upstream:
    """Answers by the last part of the path: holds, refuses, asks to be tried again. Each refusal
    repeats the header."""

    def __init__(self) -> None:
        self.held = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self, request: Request, writer: asyncio.StreamWriter) -> None:
        said = b'{"you sent": "%s"}' % (request.header("authorization") or "nothing").encode()
        answer = plain(b'{"done": true}', headers=JSON)
        match request.target.rpartition("/")[2]:
            case "held":
                self.held.set()
                await self.go_on.wait()
            case "bad":
                answer = plain(said, "400 Bad Request", JSON)
            case "busy":
                answer = plain(said, "503 Service Unavailable", (*JSON, ("Retry-After", "3600")))
        await answer(request, writer)


def upstream_service(server: UpstreamServer, secret: str = HEADER) -> dict[str, Any]:
    target = {
        "type": "http",
        "url": server.url("/base"),
        "headers": {"Authorization": f"Bearer {secret}"},
    }
    endpoints = [{"method": "POST", "path": "/{what}", "target": target, "retries": 3}]
    return {"versions": {"1": {"endpoints": endpoints}}}


def remote_service(remote: FakeHttp) -> dict[str, Any]:
    definition = remote.definition()
    del definition["kind"]
    target = {**definition, "type": "remote", "secrets": {"SERVICE_KEY": TOKEN}}
    endpoints = [{"method": "POST", "path": "/speak", "target": target}]
    return {"versions": {"1": {"endpoints": endpoints}}}


async def register(deployment: Deployment, name: str, document: dict[str, Any]) -> None:
    answer = await deployment.http.put(paths.hosted(name), json=document)
    assert answer.status_code == 200, answer.text


async def submit(deployment: Deployment, name: str, path: str) -> dict[str, Any]:
    answer = await deployment.http.post(paths.submit(path, name), json={"text": SEEN})
    assert answer.status_code == 202, answer.text
    ticket: dict[str, Any] = answer.json()
    return ticket


async def until(deployment: Deployment, ticket: dict[str, Any], status: str) -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        job: dict[str, Any] = (await deployment.http.get(ticket["poll_url"])).json()
        return job if job["status"] == status else None

    found: dict[str, Any] = await eventually_async(look, f"the job is {status}")
    return found


def dump(dsn: str) -> bytes:
    """What ``pg_dump`` writes: every table, as text."""
    ran = subprocess.run([bundled_bin() / "pg_dump", dsn], capture_output=True, check=True)
    return ran.stdout


def written_ahead(data_root: Path) -> bytes:
    """The whole write-ahead log of the servers below a folder."""
    segments = (each for folder in data_root.rglob("pg_wal") for each in folder.iterdir())
    return b"".join(segment.read_bytes() for segment in segments if segment.is_file())


def holds(kept: bytes, text: str) -> bool:
    """Whether a text is in there: as it is, or as a bytea is shown."""
    return text.encode() in kept or text.encode().hex().encode() in kept


@pytest.fixture
async def upstream() -> AsyncIterator[tuple[Upstream, UpstreamServer]]:
    answers = Upstream()
    async with upstream_server(answers) as server:
        yield answers, server
        answers.go_on.set()


async def test_a_copy_of_the_database_reveals_no_secret_and_every_call_carries_it(
    pg_server: EmbeddedPostgres,
    data_root: Path,
    tmp_path: Path,
    upstream: tuple[Upstream, UpstreamServer],
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers, server = upstream
    caplog.set_level("DEBUG")
    await migrate(pg_server.dsn)
    async with FakeHttp.running() as remote, Deployment(pg_server.dsn, tmp_path) as deployment:
        await register(deployment, "docs", upstream_service(server))
        await register(deployment, "voice", remote_service(remote))
        signing = (await deployment.http.get("/api/v1/orgs/default/webhooks/secret")).json()
        worker = await deployment.start_remote_worker()
        deployment.start_maintenance()

        done = await submit(deployment, "docs", "/done")
        assert (await end_of(deployment.http, done))["status"] == "completed"
        bad = await submit(deployment, "docs", "/bad")
        failed = await end_of(deployment.http, bad)
        assert failed["status"] == "failed"
        retried = await submit(deployment, "docs", "/busy")
        await until(deployment, retried, "retrying")
        running = await submit(deployment, "docs", "/held")
        await answers.held.wait()
        spoken = await submit(deployment, "voice", "/speak")
        await eventually_async(lambda: _truth(remote.works), "the remote has it")
        again = await deployment.http.post(f"/api/v1/orgs/default/jobs/{bad['job_id']}/retry")
        assert again.status_code in (200, 201, 202), again.text
        shown = await deployment.http.get(f"/api/v1/orgs/default/jobs/{bad['job_id']}/input")
        assert SEEN in shown.text
        assert HEADER not in shown.text + str(failed)

        kept = dump(pg_server.dsn)
        answers.go_on.set()
        await end_of(deployment.http, running)
        (work,) = remote.works
        remote.complete(work, b"sound")
        await end_of(deployment.http, spoken)
        await deployment.stop_worker(worker)
        queued = await submit(deployment, "docs", "/done")
        parted = await submit(deployment, "voice", "/speak")
        kept += dump(pg_server.dsn)
        for ticket in (queued, parted):
            await deployment.http.post(ticket["cancel_url"])

    assert {request.header("authorization") for request in server.requests} == {f"Bearer {HEADER}"}
    assert {call.request.header("authorization") for call in remote.calls} == {f"Bearer {TOKEN}"}
    pg_server.stop()
    log = written_ahead(data_root)
    pg_server.start()
    assert holds(kept, SEEN)
    assert holds(log, SEEN)
    for secret in (HEADER, TOKEN, signing["secret"]):
        assert not holds(kept, secret)
        assert not holds(log, secret)
        assert secret not in caplog.text


async def _truth(value: object) -> bool:
    return bool(value)


class Workers:
    """Workers that call upstreams, each with keys of its own. A context manager."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._closing = AsyncExitStack()

    async def __aenter__(self) -> Workers:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._closing.aclose()

    async def hire(self, *keys: str) -> Worker:
        settings: Settings = replace(self._deployment.settings, secret_keys=keys)
        calls = await self._closing.enter_async_context(
            UpstreamExecutor(settings, self._deployment.database)
        )
        return await self._deployment.start_worker(calls.service)


async def test_a_worker_without_the_key_spends_no_attempts_and_one_with_it_goes_on(
    deployment: Deployment,
    upstream: tuple[Upstream, UpstreamServer],
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, server = upstream
    await register(deployment, "docs", upstream_service(server))
    async with Workers(deployment) as workers:
        wrong = await workers.hire(NEW_KEY)
        ticket = await submit(deployment, "docs", "/done")
        await until(deployment, ticket, "retrying")
        view = await deployment.engine.get(ticket["job_id"])
        assert (view.failures, view.error_code) == (0, "target_unreachable")
        assert view.unreachables > 0
        assert "COATCHECK_SECRET_KEYS" in (view.error_message or "")
        assert "COATCHECK_SECRET_KEYS" in caplog.text
        assert server.requests == []
        await deployment.stop_worker(wrong)
        deployment.start_maintenance()
        await workers.hire(SECRET_KEY)
        assert (await end_of(deployment.http, ticket))["status"] == "completed"
    assert [request.header("authorization") for request in server.requests] == [f"Bearer {HEADER}"]


async def test_keys_are_rotated_while_jobs_run_and_wait(
    deployment: Deployment, upstream: tuple[Upstream, UpstreamServer]
) -> None:
    answers, server = upstream
    await register(deployment, "docs", upstream_service(server))
    line = Connection(deployment.settings.database_url, name="rotation")
    async with Workers(deployment) as workers:
        both = await workers.hire(SECRET_KEY, NEW_KEY)
        running = await submit(deployment, "docs", "/held")
        await answers.held.wait()
        resealer = Resealer(replace(deployment.settings, secret_keys=(NEW_KEY, SECRET_KEY)), line)
        assert await resealer.reseal() == 1
        assert (await resealer.state()).is_done
        await line.close()
        waiting = await submit(deployment, "docs", "/done")
        assert (await end_of(deployment.http, waiting))["status"] == "completed"
        answers.go_on.set()
        assert (await end_of(deployment.http, running))["status"] == "completed"
        await deployment.stop_worker(both)
        await workers.hire(NEW_KEY)
        last = await submit(deployment, "docs", "/done")
        assert (await end_of(deployment.http, last))["status"] == "completed"
    assert [request.header("authorization") for request in server.requests] == (
        [f"Bearer {HEADER}"] * 3
    )


async def test_a_job_that_waited_is_sent_with_the_secrets_of_when_it_runs(
    deployment: Deployment, upstream: tuple[Upstream, UpstreamServer]
) -> None:
    _, server = upstream
    await register(deployment, "docs", upstream_service(server, "first"))
    ticket = await submit(deployment, "docs", "/done")
    await register(deployment, "docs", upstream_service(server, "second"))
    await deployment.start_gateway_worker()
    await end_of(deployment.http, ticket)
    assert [request.header("authorization") for request in server.requests] == ["Bearer second"]


async def test_jobs_of_a_service_that_was_removed_go_on_with_its_secrets(
    deployment: Deployment, upstream: tuple[Upstream, UpstreamServer]
) -> None:
    _, server = upstream
    await register(deployment, "docs", upstream_service(server))
    ticket = await submit(deployment, "docs", "/done")
    assert (await deployment.http.delete(paths.hosted("docs"))).status_code == 204
    await deployment.start_gateway_worker()
    view = await deployment.engine.wait(ticket["job_id"], timeout=60)
    assert view.error_code is None
    assert [request.header("authorization") for request in server.requests] == [f"Bearer {HEADER}"]


async def test_a_job_whose_secrets_are_gone_or_moved_fails_and_says_so(
    deployment: Deployment, upstream: tuple[Upstream, UpstreamServer]
) -> None:
    _, server = upstream
    await register(deployment, "docs", upstream_service(server))
    await deployment.start_gateway_worker()
    for statement in (
        "UPDATE service_secrets SET sealed = left(sealed, -3)",
        "DELETE FROM service_secrets",
    ):
        sql = await asyncpg.connect(deployment.settings.database_url)
        await sql.execute(statement)
        await sql.close()
        ticket = await submit(deployment, "docs", "/done")
        await end_of(deployment.http, ticket)
        view = await deployment.engine.get(ticket["job_id"])
        assert (view.state, view.error_code) == (State.FAILED, "secrets_lost")
    assert server.requests == []


async def test_a_deployment_without_a_key_refuses_secrets_and_takes_all_else(
    dsn: str, tmp_path: Path, upstream: tuple[Upstream, UpstreamServer]
) -> None:
    _, server = upstream
    async with Deployment(dsn, tmp_path, secret_keys=()) as deployment:
        document = upstream_service(server)
        answer = await deployment.http.put(paths.hosted("docs"), json=document)
        problem(answer, 503, "sealing_key_missing")
        del document["versions"]["1"]["endpoints"][0]["target"]["headers"]
        await register(deployment, "docs", document)
        await deployment.start_gateway_worker()
        job = await end_of(deployment.http, await submit(deployment, "docs", "/done"))
        assert job["status"] == "completed"


async def test_a_service_whose_secrets_are_not_sealed_yet_takes_no_jobs_until_they_are(
    deployment: Deployment, upstream: tuple[Upstream, UpstreamServer]
) -> None:
    """A database of before secrets were sealed: no payload may hold them."""
    _, server = upstream
    await register(deployment, "docs", upstream_service(server))
    sql = await asyncpg.connect(deployment.settings.database_url)
    await sql.execute(
        """
        UPDATE services SET definition = jsonb_set(
            definition #- '{versions,1,endpoints,0,target,secrets_id}',
            '{versions,1,endpoints,0,target,headers,Authorization}', to_jsonb($1::text)
        )
        """,
        f"Bearer {HEADER}",
    )
    await sql.execute("DELETE FROM service_secrets")
    await sql.close()
    deployment.context.catalogue.forget_all()
    answer = await deployment.http.post(paths.submit("/done", "docs"), json={})
    problem(answer, 503, "sealing_key_missing")
    deployment.start_maintenance()

    async def taken() -> dict[str, Any] | None:
        answer = await deployment.http.post(paths.submit("/done", "docs"), json={})
        return answer.json() if answer.status_code == 202 else None

    ticket: dict[str, Any] = await eventually_async(taken, "the upkeep has sealed them")
    await deployment.start_gateway_worker()
    assert (await end_of(deployment.http, ticket))["status"] == "completed"
    assert [request.header("authorization") for request in server.requests] == [f"Bearer {HEADER}"]
