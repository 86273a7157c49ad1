"""`coatcheck worker` makes the calls of http upstreams: one way out, and no way in."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import psutil

from coatcheck import Engine, Settings, State
from coatcheck.core.upstream_calls import encode_call, upstream_call
from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT, HttpTarget
from tests.e2e.programs import environment, worker
from tests.egress.upstream_server import Request, plain, upstream_server
from tests.sealed_secrets import SECRET_KEY, store_secrets
from tests.waiting import LIMIT_SECONDS

SERVICE = """
from coatcheck import Service

docs = Service("docs")


@docs.post("/echo")
async def echo(text: str) -> str:
    return text
"""


def listening(process: psutil.Process) -> list[object]:
    family = [process, *process.children(recursive=True)]
    connections = [each for one in family for each in one.net_connections("all")]
    return [each.laddr for each in connections if each.status == psutil.CONN_LISTEN]


async def test_a_worker_calls_upstreams_without_listening_and_logs_nothing_of_the_call(
    dsn: str, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(SERVICE)
    called, go_on = asyncio.Event(), asyncio.Event()

    async def hold(request: Request, writer: asyncio.StreamWriter) -> None:
        called.set()
        await go_on.wait()
        await plain(b"done", headers=(("Content-Type", "text/plain"),))(request, writer)

    async with upstream_server(hold) as upstream:
        env = environment(dsn, tmp_path) | {
            "COATCHECK_EGRESS_ALLOW": f"127.0.0.1:{upstream.port}",
            "COATCHECK_LOG_LEVEL": "debug",
            "COATCHECK_SECRET_KEYS": SECRET_KEY,
        }
        log = tmp_path / "worker.log"
        settings = Settings.from_environment(env)
        own = {"Authorization": "Bearer canary-secret"}
        target = HttpTarget(upstream.url(""), own, LIMIT_SECONDS)
        stored_as = await store_secrets(settings, target.address, own)
        call = upstream_call(
            url=upstream.url("/canary-path?token=canary-token&q=canary-query"),
            method="POST",
            headers=[(b"x-note", b"canary-header")],
            body=b"canary-body",
            target=replace(target, secrets_id=stored_as),
        )
        # It blocks while the process starts and stops; nobody calls the server meanwhile.
        with worker(["app:docs"], cwd=tmp_path, env=env, log=log) as pid:
            await _check(settings, encode_call(call), called, go_on, log, pid)


async def _check(
    settings: Settings,
    payload: bytes,
    called: asyncio.Event,
    go_on: asyncio.Event,
    log: Path,
    pid: int,
) -> None:
    engine = await Engine.connect(settings)
    try:
        ticket = await engine.submit(UPSTREAM_ENDPOINT, payload)
        async with asyncio.timeout(LIMIT_SECONDS):
            await called.wait()
        assert listening(psutil.Process(pid)) == []
        go_on.set()
        view = await engine.wait(ticket.id, timeout=LIMIT_SECONDS)
    finally:
        await engine.close()
    assert view.state is State.COMPLETED
    assert "worker ready" in log.read_text()
    assert "canary" not in log.read_text()
    assert b"canary-secret" not in payload
