"""How many connections to PostgreSQL a process has, with everything on and under load."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import httpx2
import pytest

from coatcheck import Engine, Submission
from coatcheck.core.queries import tenants
from coatcheck.db.connection import Connection
from coatcheck.domain.limits import (
    ENGINE_CONNECTIONS_MAX,
    SERVER_CONNECTIONS_MAX,
    WORKER_CONNECTIONS_MAX,
)
from coatcheck.domain.tenants import ALL_SCOPES, OrgLimits, RateLimit, mint
from examples.ollama_upstream import OllamaUpstream
from examples.tts_remote import TtsRemote
from tests.e2e.conftest import COMMAND, environment
from tests.ports import free_port
from tests.products.gateway.tokens import SECRET, USERS, token
from tests.products.graphs.archives import zipped
from tests.products.speech.speech_deployment import a_wav
from tests.sealed_secrets import SECRET_KEY
from tests.waiting import LIMIT_SECONDS, eventually, eventually_async

HELLO = "/api/v1/orgs/default/services/hello"
ROUNDS = 4
PEPPER = "p" * 32
ROOT = Path(__file__).resolve().parents[2]


class Sampler:
    """Counts the connections of each role, again and again, and keeps the most that it saw."""

    def __init__(self, sql: asyncpg.Connection[asyncpg.Record]) -> None:
        self._sql = sql
        self.most: Counter[str] = Counter()
        """By role."""
        self.names: dict[str, Counter[str]] = {}
        """By role and purpose."""

    async def run(self) -> None:
        while True:
            await self._sample()

    async def _sample(self) -> None:
        rows = await self._sql.fetch(
            "SELECT usename AS role, application_name AS name, count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE 'coatcheck %'"
            " GROUP BY 1, 2"
        )
        now: Counter[str] = Counter()
        for role, name, count in rows:
            now[role] += count
            of_role = self.names.setdefault(role, Counter())
            of_role[name] = max(of_role[name], count)
        self.most |= now
        await self._sql.execute("SELECT pg_sleep(0.005)")

    @asynccontextmanager
    async def sampling(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def roles(dsn: str, *names: str) -> AsyncIterator[list[str]]:
    """The URL of the database for roles of these names: they tell the processes apart."""
    own = [f"{name}_{secrets.token_hex(4)}" for name in names]
    sql = await asyncpg.connect(dsn)
    try:
        for name in own:
            await sql.execute(f"CREATE ROLE {name} SUPERUSER LOGIN")
        parts = urlsplit(dsn)
        host = parts.netloc.rpartition("@")[2]
        yield [urlunsplit(parts._replace(netloc=f"{name}@{host}")) for name in own]
    finally:
        for name in own:
            await sql.execute(f"DROP ROLE {name}")
        await sql.close()


@contextmanager
def program(*arguments: str, log: Path, env: dict[str, str]) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=ROOT,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield
        assert process.poll() is None, log.read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_SECONDS) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


async def new_key(dsn: str) -> str:
    """The key of an organisation that has a rate, so that rates are counted as well."""
    db = Connection(dsn, name="tests")
    try:
        limits = OrgLimits(rate=RateLimit(1_000_000, 60))
        assert await tenants.create_org(db, "default", "default", limits)
        key = mint()
        await tenants.create_key(
            db,
            "default",
            key.key_id,
            user="dev",
            name="test",
            digest=key.digest(PEPPER.encode()),
            scopes=ALL_SCOPES,
        )
        return key.text
    finally:
        await db.close()


class Callers:
    """Everybody who calls a deployment: each kind of call, again and again."""

    def __init__(self, http: httpx2.AsyncClient, receiver: str) -> None:
        self._http = http
        self._receiver = receiver

    async def call(self) -> None:
        kinds: list[Callable[[], Awaitable[None]]] = [
            self.greet,
            self.greet,
            self.look_around,
            self.look_around,
            self.list_jobs,
            self.follow,
            self.register,
            self.chat,
            self.speak,
            self.run_batch,
            self.run_batch,
            self.analyse,
        ]
        await asyncio.gather(*(self._again_and_again(kind) for kind in kinds))

    @staticmethod
    async def _again_and_again(kind: Callable[[], Awaitable[None]]) -> None:
        for _ in range(ROUNDS):
            await kind()

    async def _ask(self, method: str, path: str, **more: Any) -> Any:
        answer = await self._http.request(method, path, **more)
        assert answer.is_success, (method, path, answer.status_code, answer.text)
        return answer.json() if answer.headers["Content-Type"].endswith("json") else None

    async def greet(self) -> None:
        """Many jobs, with webhooks; one is cancelled."""
        headers = {"X-Webhook-Url": self._receiver}
        made = await asyncio.gather(
            *(
                self._ask("POST", f"{HELLO}/async/greet", json={"name": "Ada"}, headers=headers)
                for _ in range(20)
            )
        )
        for job in made:
            await self._ask("GET", f"{HELLO}/jobs/{job['job_id']}", params={"wait": 30})

    async def look_around(self) -> None:
        """What people look at."""
        job = await self._ask("POST", f"{HELLO}/async/greet", json={"name": "Ada"})
        one = f"{HELLO}/jobs/{job['job_id']}"
        org = "/api/v1/orgs/default"
        await asyncio.gather(
            self._ask("GET", one),
            self._ask("GET", f"{one}/explain"),
            self._ask("GET", f"{org}/overview"),
            self._ask("GET", f"{org}/usage"),
            self._ask("GET", f"{org}/jobs/{job['job_id']}"),
            self._ask("GET", f"{org}/webhooks/deliveries"),
            self._ask("GET", "/readyz"),
            self._ask("GET", "/metrics"),
        )

    async def list_jobs(self) -> None:
        await asyncio.gather(
            self._ask("GET", "/api/v1/orgs/default/jobs", params={"limit": 50}),
            self._ask("GET", "/api/v1/orgs/default/workspaces/default/hosted-services/hello/jobs"),
            self._ask("GET", "/v1/jobs"),
        )

    async def follow(self) -> None:
        """The events of a job, to its end."""
        job = await self._ask("POST", f"{HELLO}/async/greet", json={"name": "Ada"})
        path = f"{HELLO}/jobs/{job['job_id']}/events"
        async with self._http.stream("GET", path) as events:
            assert events.is_success
            async for _ in events.aiter_lines():
                pass

    async def register(self) -> None:
        target = {"type": "http", "url": self._receiver, "headers": {"X-Key": "a secret"}}
        endpoints = [{"method": "POST", "path": "/thing", "target": target}]
        path = "/api/v1/orgs/default/workspaces/default/hosted-services/far"
        await self._ask("PUT", path, json={"versions": {"1": {"endpoints": endpoints}}})
        await self._ask("POST", "/api/v1/orgs/default/services/far/async/thing", json={})

    async def chat(self) -> None:
        body = {"model": "llama3.2", "messages": [{"role": "user", "content": "Tell me"}]}
        await asyncio.gather(
            *(self._ask("POST", "/v1/chat/completions", json=body) for _ in range(4))
        )

    async def speak(self) -> None:
        user = token(USERS, sub="alice")
        files = {"file": ("me.wav", a_wav(), "audio/wav")}
        voice = await self._ask("POST", "/voices", files=files, headers=user)
        body = {"voice_id": voice["voice_id"], "text": "The coat is ready.", "language": "en"}
        task = await self._ask("POST", "/generate", json=body, headers=user)
        await self._ask("GET", f"/tasks/{task['task_id']}", params={"wait": 30}, headers=user)

    async def run_batch(self) -> None:
        """A list that is ingested, and its export."""
        tasks = [json.dumps({"name": f"n{number}"}) + "\n" for number in range(500)]
        job = await self._ask(
            "POST",
            "/v1/jobs",
            params={"service": "hello", "endpoint": "/greet"},
            content="".join(tasks).encode(),
            headers={"Content-Type": "application/x-ndjson"},
        )
        await self._ask("POST", job["urls"]["exports"])
        await self._ask("GET", job["urls"]["poll"], params={"wait": 1})

    async def analyse(self) -> None:
        archive = zipped({"pair.py": "def ada():\n    return 1\n"})
        headers = {"Idempotency-Key": secrets.token_hex(8)}
        files = {"file": ("code.zip", archive, "application/zip")}
        await self._ask("POST", "/v1/graphs/parse", files=files, headers=headers)


@pytest.mark.slow
async def test_a_server_and_a_worker_with_everything_on_stay_within_their_connections(
    dsn: str, tmp_path: Path
) -> None:
    port = free_port()
    sql = await asyncpg.connect(dsn)
    key = await new_key(dsn)
    async with (
        roles(dsn, "server", "worker") as (server_dsn, worker_dsn),
        OllamaUpstream(tokens_per_second=0, max_loaded=8, parallel=8) as models,
        TtsRemote(tmp_path / "remote", bearer="the-remotes-token") as speaker,
        httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            headers={"Authorization": f"Bearer {key}"},
            trust_env=False,
            timeout=LIMIT_SECONDS,
        ) as http,
    ):
        common = environment(
            COATCHECK_BLOB_URL=(tmp_path / "blobs").as_uri(),
            COATCHECK_TEMP_DIR=str(tmp_path / "temp"),
            COATCHECK_KEY_PEPPER=PEPPER,
            COATCHECK_SECRET_KEYS=SECRET_KEY,
            COATCHECK_EGRESS_ALLOW="127.0.0.1",
            COATCHECK_LLM_URL=models.url,
            COATCHECK_SPEECH_REMOTE_URL=speaker.url,
            COATCHECK_SPEECH_REMOTE_TOKEN="the-remotes-token",
            COATCHECK_JWT_SECRET=SECRET,
            COATCHECK_JWT_ISSUER=USERS.issuer,
            COATCHECK_JWT_AUDIENCE=USERS.audience,
            COATCHECK_DRAIN_SECONDS="5",
        ) | {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
        server = common | {"COATCHECK_DATABASE_URL": server_dsn}
        worker = common | {"COATCHECK_DATABASE_URL": worker_dsn}
        sampler = Sampler(sql)
        serving, working = tmp_path / "serve.log", tmp_path / "worker.log"
        async with sampler.sampling():
            with (
                program("serve", "--port", str(port), log=serving, env=server),
                program("worker", "examples.hello:hello", log=working, env=worker),
            ):
                await asyncio.to_thread(eventually, lambda: _is_ready(port, working), "both run")
                await Callers(http, f"{models.url}/nowhere").call()

                async def has_renewed() -> bool:
                    return "coatcheck worker heartbeat" in _of(sampler, "worker")[1]

                await eventually_async(has_renewed, "the worker has renewed its leases")
        of_server, of_worker = _of(sampler, "server"), _of(sampler, "worker")
        print(of_server, of_worker, sep="\n")  # shown after a failure
        assert of_server[0] <= SERVER_CONNECTIONS_MAX
        assert of_worker[0] <= WORKER_CONNECTIONS_MAX
        assert of_server[1].keys() == {
            f"coatcheck {name}" for name in ("submit", "read", "listen", "maintenance", "pool")
        }
        assert of_worker[1].keys() == {
            f"coatcheck {name}"
            for name in (
                *("worker exchange", "worker claim", "worker heartbeat"),
                *("listen", "maintenance", "pool"),
            )
        }
    await sql.close()


def _of(sampler: Sampler, role: str) -> tuple[int, Counter[str]]:
    (name,) = [each for each in sampler.most if each.startswith(role)]
    return sampler.most[name], sampler.names[name]


def _is_ready(port: int, working: Path) -> bool:
    with suppress(httpx2.HTTPError):
        ready = httpx2.get(f"http://127.0.0.1:{port}/readyz", trust_env=False)
        return ready.is_success and working.read_text().count("worker ready") >= 5
    return False


async def test_an_engine_stays_within_its_connections(dsn: str) -> None:
    sql = await asyncpg.connect(dsn)
    sampler = Sampler(sql)

    async def use(engine: Engine) -> None:
        for _ in range(5):
            ticket = await engine.submit("docs.post__read", {})
            many = await engine.submit_many([Submission("docs.post__read", {})] * 200)
            view = await engine.get(ticket.id)
            await engine.explainer.explain(view)
            await engine.list()
            await engine.overviews.read("default", 60)
            await engine.events(ticket.id)
            await engine.backlog("default", None, 1_000)
            await engine.health()
            await engine.get_many([each.id for each in many])
            await engine.cancel(ticket.id)

    async with Engine(dsn) as engine, sampler.sampling():
        await asyncio.gather(*(use(engine) for _ in range(20)))
    (most,) = sampler.most.values()
    print(sampler.names)  # shown after a failure
    assert most <= ENGINE_CONNECTIONS_MAX
    await sql.close()
