"""Many misbehaving callers at once (slow, endless, oversized, disconnected), beside normal ones.

Normal callers get answers all the time; the others are refused or disconnected in time.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psutil
import pytest

from tests.budget import chance, times
from tests.contract.things_service import things
from tests.deployment import LOOPBACK, PEPPER, Deployment, bearer
from tests.e2e.conftest import COMMAND, environment, free_port
from tests.waiting import eventually_async

CROWD = 100
SECONDS = 20.0
"""The duration of a crowd in the shortest run: longer than the limit for headers."""
ANSWER_SECONDS_MAX = 10.0
"""Only a blocked server reaches it."""
GROWTH_BYTES_MAX = 400 * 1024 * 1024
SUBMIT = "/api/v1/orgs/default/services/things/async/thing"

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter
Habit = Callable[[Reader, Writer, random.Random, str], Awaitable[None]]


@dataclass(frozen=True)
class Server:
    """A server in another process, so that the crowd does not disturb this one."""

    port: int
    pid: int
    key: str

    def memory(self) -> int:
        bytes_used: int = psutil.Process(self.pid).memory_info().rss
        return bytes_used


@pytest.fixture
async def server(dsn: str, tmp_path: Path) -> AsyncIterator[Server]:
    async with Deployment(dsn, tmp_path) as deployment:
        await deployment.start_worker(things)
        port = free_port()
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            "serve",
            "--port",
            str(port),
            cwd=tmp_path,
            env=environment(
                COATCHECK_DATABASE_URL=dsn,
                COATCHECK_BLOB_URL=deployment.settings.blob_url,
                COATCHECK_KEY_PEPPER=PEPPER,
                COATCHECK_LOG_LEVEL="error",
            ),
        )
        try:
            await eventually_async(lambda: answers(port), "the server answers")
            yield Server(port, process.pid, deployment.key)
        finally:
            process.terminate()
            await process.wait()


async def answers(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(LOOPBACK, port)
    except ConnectionError:
        return False
    writer.close()
    return True


async def say(writer: Writer, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


def head(method: str, path: str, key: str, *lines: str) -> bytes:
    said = [f"{method} {path} HTTP/1.1", "Host: a", f"Authorization: Bearer {key}", *lines, "", ""]
    return "\r\n".join(said).encode()


async def trickle(writer: Writer, rng: random.Random, data: bytes) -> None:
    while True:
        await say(writer, data)
        await asyncio.sleep(rng.uniform(0.05, 0.5))


async def says_nothing(reader: Reader, writer: Writer, rng: random.Random, key: str) -> None:
    await reader.read()


async def trickles_its_headers(
    reader: Reader, writer: Writer, rng: random.Random, key: str
) -> None:
    await say(writer, b"GET / HTTP/1.1\r\n")
    await trickle(writer, rng, b"x: y\r\n")


async def trickles_its_body(reader: Reader, writer: Writer, rng: random.Random, key: str) -> None:
    lines = ["Content-Type: application/json", "Content-Length: 100000"]
    await say(writer, head("POST", SUBMIT, key, *lines) + b"[")
    await trickle(writer, rng, b" ")


async def never_ends_its_chunks(
    reader: Reader, writer: Writer, rng: random.Random, key: str
) -> None:
    lines = ["Content-Type: application/json", "Transfer-Encoding: chunked"]
    await say(writer, head("POST", SUBMIT, key, *lines))
    while True:
        await say(writer, b"2000\r\n" + b" " * 0x2000 + b"\r\n")
        await asyncio.sleep(0.02)


async def says_it_is_huge(reader: Reader, writer: Writer, rng: random.Random, key: str) -> None:
    lines = ["Content-Type: application/json", "Content-Length: 99999999999"]
    await say(writer, head("POST", SUBMIT, key, *lines))
    while True:
        await say(writer, b"x" * 0x4000)
        await asyncio.sleep(0.02)


async def has_huge_headers(reader: Reader, writer: Writer, rng: random.Random, key: str) -> None:
    await say(writer, b"GET / HTTP/1.1\r\n")
    while True:
        await say(writer, b"x: " + b"y" * 0x1000 + b"\r\n")
        await asyncio.sleep(0.02)


async def never_reads(reader: Reader, writer: Writer, rng: random.Random, key: str) -> None:
    """Requests the document repeatedly, and reads nothing."""
    while True:
        await say(writer, head("GET", "/openapi.json", key))
        await asyncio.sleep(0.02)


async def leaves_in_the_middle(
    reader: Reader, writer: Writer, rng: random.Random, key: str
) -> None:
    lines = ["Content-Type: application/json", "Content-Length: 50"]
    await say(writer, head("POST", SUBMIT, key, *lines) + b"{" * rng.randrange(50))
    writer.transport.abort()


async def uploads_without_end(reader: Reader, writer: Writer, rng: random.Random, key: str) -> None:
    lines = ["Content-Type: multipart/form-data; boundary=b", "Transfer-Encoding: chunked",
             f"Idempotency-Key: {rng.random()}"]  # fmt: skip
    await say(writer, head("POST", "/v1/graphs/call", key, *lines))
    part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.zip"\r\n\r\n'
    await say(writer, b"%x\r\n%b\r\n" % (len(part), part))
    await trickle(writer, rng, b"400\r\n" + b"x" * 0x400 + b"\r\n")


HABITS: list[Habit] = [
    says_nothing,
    trickles_its_headers,
    trickles_its_body,
    never_ends_its_chunks,
    says_it_is_huge,
    has_huge_headers,
    never_reads,
    leaves_in_the_middle,
    uploads_without_end,
]


async def test_who_behaves_is_answered_while_a_crowd_does_not(server: Server) -> None:
    rng, ended, until = chance("crowd"), Counter[str](), time.monotonic() + SECONDS * times()

    async def misbehave(habit: Habit) -> None:
        while time.monotonic() < until:
            reader, writer = await asyncio.open_connection(LOOPBACK, server.port)
            try:
                async with asyncio.timeout(max(0.1, until - time.monotonic())):
                    await habit(reader, writer, rng, server.key)
                ended[f"{habit.__name__}: closed"] += 1
            except ConnectionError:
                ended[f"{habit.__name__}: cut off"] += 1
            except TimeoutError:
                ended[f"{habit.__name__}: still there at the end"] += 1
            finally:
                writer.close()
                with suppress(ConnectionError):
                    await writer.wait_closed()
            await asyncio.sleep(rng.uniform(0.05, 0.5))

    async def behave() -> list[float]:
        took = []
        url = f"http://{LOOPBACK}:{server.port}"
        async with httpx2.AsyncClient(
            base_url=url, headers=bearer(server.key), timeout=ANSWER_SECONDS_MAX, trust_env=False
        ) as http:
            while time.monotonic() < until:
                began = time.monotonic()
                answer = await http.post(SUBMIT, headers={"Prefer": "respond-async"})
                assert answer.status_code == 202, answer.text
                took.append(time.monotonic() - began)
                await asyncio.sleep(0.1)
        return took

    before = server.memory()
    async with asyncio.TaskGroup() as group:
        behaving = [group.create_task(behave()) for _ in range(3)]
        for number in range(CROWD):
            group.create_task(misbehave(HABITS[number % len(HABITS)]))
    took = sorted(seconds for task in behaving for seconds in task.result())
    print(f"{len(took)} answered, half within {took[len(took) // 2]:.3f} s, all {took[-1]:.3f} s")
    print(dict(ended))
    print(f"{(server.memory() - before) / 1e6:.0f} MB more")
    assert server.memory() - before < GROWTH_BYTES_MAX
    # Each of these is refused within the crowd's time, by its own limit.
    for habit in (trickles_its_headers, says_it_is_huge, has_huge_headers, never_ends_its_chunks):
        assert ended[f"{habit.__name__}: cut off"] + ended[f"{habit.__name__}: closed"] > 0, habit
