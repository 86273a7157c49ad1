from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

import asyncpg
import httpx2
import pytest

from coatcheck.db.embedded import EmbeddedPostgres
from coatcheck.db.migrate import installed_packages, migrate
from coatcheck.http.routes import health
from coatcheck.http.routes.health import remembered
from coatcheck.settings import Settings
from tests.http.conftest import control_plane, settings_for
from tests.waiting import eventually_async

NEWEST_STEP = installed_packages()[0].steps[-1].name


async def test_a_living_process_says_so(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/healthz")
    assert answer.status_code == 200
    assert answer.json() == {"status": "alive"}


async def test_a_process_with_all_it_needs_is_ready(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ready",
        "checks": {"database": "reachable", "schema": NEWEST_STEP, "blobs": "writable"},
    }


@pytest.mark.crash
async def test_readiness_goes_with_the_database_and_comes_back_with_it(
    pg_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    await migrate(pg_server.dsn)
    async with control_plane(settings_for(pg_server.dsn, tmp_path)) as client:
        assert (await client.get("/readyz")).status_code == 200

        await asyncio.to_thread(pg_server.stop)
        away = await client.get("/readyz")
        assert away.status_code == 503
        assert int(away.headers["Retry-After"]) > 0
        assert away.headers["Content-Type"] == "application/problem+json"
        assert away.json()["code"] == "not_ready"
        assert {detail["field"] for detail in away.json()["details"]} == {"database", "schema"}
        assert (await client.get("/healthz")).status_code == 200
        scrape = await client.get("/metrics")
        assert scrape.status_code == 200
        assert "coatcheck_database_up 0.0" in scrape.text
        assert "coatcheck_queue_depth" not in scrape.text

        await asyncio.to_thread(pg_server.start)
        back = await client.get("/readyz")
        assert back.status_code == 200, back.text


async def test_a_database_at_another_version_is_not_ready(
    client: httpx2.AsyncClient, dsn: str
) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(
            "INSERT INTO schema_steps (package, step) VALUES ('core', '9999_future')"
        )
    finally:
        await connection.close()
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    [detail] = answer.json()["details"]
    assert detail["field"] == "schema"
    assert "9999_future" in detail["issue"]


async def test_a_blob_store_that_cannot_be_written_is_not_ready(
    settings: Settings, tmp_path: Path
) -> None:
    async with control_plane(settings) as client:
        # A file where the folder should be: nobody can write there, not even root.
        shutil.rmtree(tmp_path / "blobs", ignore_errors=True)
        (tmp_path / "blobs").write_text("in the way")
        answer = await client.get("/readyz")
    assert answer.status_code == 503
    [detail] = answer.json()["details"]
    assert detail["field"] == "blobs"
    assert str(tmp_path) not in answer.text


async def test_metrics_show_the_queue_and_the_answers(client: httpx2.AsyncClient, dsn: str) -> None:
    await client.get("/healthz")
    await client.get("/there/is/no/such/path")

    async def counted() -> str | None:
        text = (await client.get("/metrics")).text
        return text if 'route="none",status="404"' in text else None

    text = await eventually_async(counted, "the 404 is counted")
    assert "coatcheck_database_up 1.0" in text
    assert 'method="GET",route="/healthz",status="200"' in text
    assert "/there/is" not in text


async def test_a_queue_that_takes_too_long_to_count_does_not_hide_all_else(
    client: httpx2.AsyncClient, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "COUNT_SECONDS_MAX", 0.1)
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
            text = (await client.get("/metrics")).text
    finally:
        await connection.close()
    assert "coatcheck_database_up 1.0" in text
    assert "coatcheck_queue_depth" not in text
    assert 'coatcheck_processes{kind="serve"}' in text


async def test_the_queues_depth_counts_live_jobs_by_lane_and_state(
    settings: Settings,
) -> None:
    from coatcheck.core import Engine

    async with control_plane(settings) as client, await Engine.connect(settings) as engine:
        for _ in range(3):
            await engine.submit("some.post__thing", {}, lane="urgent")
        await engine.submit("some.post__thing", {}, delay=3600)
        text = (await client.get("/metrics")).text
    assert 'coatcheck_queue_depth{lane="urgent",state="queued"} 3.0' in text
    assert 'coatcheck_queue_depth{lane="standard",state="staged"} 1.0' in text


async def test_metrics_count_what_postgresql_writes(settings: Settings) -> None:
    from coatcheck.core import Engine

    async with control_plane(settings) as client, await Engine.connect(settings) as engine:

        async def written() -> tuple[float, float]:
            text = (await client.get("/metrics")).text
            counts = dict(re.findall(r"\ncoatcheck_(wal_bytes|commits)_total (\S+)", text))
            return float(counts["wal_bytes"]), float(counts["commits"])

        wal_bytes, commits = await written()
        await engine.submit("some.post__thing", {})

        async def both_grow() -> bool:
            now = await written()
            return now[0] > wal_bytes and now[1] > commits

        # PostgreSQL shows what a session has written within about a second.
        await eventually_async(both_grow, "the submission is counted")


async def test_a_remembered_check_is_asked_again_only_after_a_failure_or_its_time() -> None:
    asked = 0

    async def check() -> str:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise OSError("not yet")
        return "fine"

    seldom = remembered(check, seconds=3600)
    with pytest.raises(OSError, match="not yet"):
        await seldom()
    assert [await seldom(), await seldom()] == ["fine", "fine"]
    assert asked == 2
    always = remembered(check, seconds=-1)
    await always()
    await always()
    assert asked == 4
