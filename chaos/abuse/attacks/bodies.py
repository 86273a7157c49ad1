"""Half-sent request bodies, and responses that are large or read slowly."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import httpx2

from chaos.abuse.attack import Attack, Figures, at_least, at_most
from chaos.abuse.target import ATTACKER, MIB, Target

_RESULT_BYTES: Final = 15_000_000
_RESULTS_SECONDS_MAX: Final = 240.0
_LOOK_SECONDS: Final = 0.1
_READ_BYTES: Final = 1_024
_READ_EVERY_SECONDS: Final = 1.0
_RECEIVE_BUFFER_BYTES: Final = 4_096
_BASE: Final = f"/api/v1/orgs/{ATTACKER}/services/abuse"
_HOSTED: Final = f"/api/v1/orgs/{ATTACKER}/workspaces/default/hosted-services/abuse"


async def _batch_status(target: Target) -> Figures:
    """Request all results at once, three times in a row."""
    size, count = (4_000_000, 8) if target.short else (_RESULT_BYTES, 40)
    async with target.client(timeout=_RESULTS_SECONDS_MAX) as client:
        jobs = await _large_results(client, size, count)
        answers: Counter[int] = Counter()
        largest = 0
        for _ in range(3):
            url = f"{_HOSTED}/jobs/batch-status?job_ids={','.join(jobs)}"
            async with client.stream("GET", url) as answer:
                read = 0
                async for piece in answer.aiter_raw():
                    read += len(piece)
            answers[answer.status_code] += 1
            largest = max(largest, read)
    return {"answered_200": answers[200], "answer_bytes": largest}


async def _slow_readers(target: Target) -> Figures:
    """Request one large result many times, and read almost nothing of it."""
    readers, seconds = (16, 2.0) if target.short else (100, 20.0)
    async with target.client(timeout=_RESULTS_SECONDS_MAX) as client:
        (job,) = await _large_results(client, _RESULT_BYTES, 1)
        head = _head(target, "GET", f"{_BASE}/jobs/{job}")
        statuses = await _crowd(target, readers, lambda wire: _read_slowly(wire, head, seconds))
        answer = await client.get(f"{_BASE}/jobs/{job}")
    whole = len(answer.json()["result_summary"]) if answer.is_success else 0
    return {**_counted(statuses), "then_read_bytes": whole}


async def _half_sent_bodies(target: Target) -> Figures:
    """Announce a body of 1 MiB, and send most of it."""
    senders, seconds = (200, 2.0) if target.short else (1_000, 15.0)
    head = _head(target, "POST", f"{_BASE}/async/echo", body_bytes=MIB)
    return await _half_sent(target, head, MIB * 9 // 10, senders, seconds)


async def _half_sent_sign_in(target: Target) -> Figures:
    """The same at the sign-in form, which needs no credential."""
    senders, seconds = (400, 2.0) if target.short else (2_000, 15.0)
    size = 256 * 1024
    head = (
        f"POST /ui/sign-in HTTP/1.1\r\nHost: 127.0.0.1:{target.port}\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {size}\r\n\r\n"
    ).encode()
    return await _half_sent(target, head, size * 9 // 10, senders, seconds)


async def _half_sent(
    target: Target, head: bytes, size: int, senders: int, seconds: float
) -> Figures:
    statuses = await _crowd(target, senders, lambda wire: _send_half(wire, head, size, seconds))
    return _counted(statuses)


async def _large_results(client: httpx2.AsyncClient, size: int, count: int) -> list[str]:
    """The ids of completed jobs with results of this size."""
    jobs = []
    for _ in range(count):
        answer = await client.post(f"{_BASE}/async/large", json={"size": size})
        answer.raise_for_status()
        jobs.append(answer.json()["job_id"])
    ended = 0
    async with asyncio.timeout(_RESULTS_SECONDS_MAX):
        while ended < count:
            page = await client.get(f"{_HOSTED}/jobs?status=completed&limit=100")
            page.raise_for_status()
            ended = len({each["id"] for each in page.json()["items"]}.intersection(jobs))
            await asyncio.sleep(_LOOK_SECONDS)
    return jobs


async def _crowd(target: Target, count: int, act: Callable[[_Wire], Awaitable[int]]) -> list[int]:
    """Do the same on many connections; returns the statuses, 0 without an answer."""

    async def one() -> int:
        try:
            async with _connected(target) as wire:
                return await act(wire)
        except (OSError, TimeoutError):
            return 0

    return await asyncio.gather(*(one() for _ in range(count)))


_Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def _connected(target: Target) -> AsyncIterator[_Wire]:
    """A connection with a very small receive buffer."""
    link = socket.socket()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
    link.setblocking(False)
    await asyncio.get_running_loop().sock_connect(link, ("127.0.0.1", target.port))
    reader, writer = await asyncio.open_connection(sock=link, limit=_READ_BYTES)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def _read_slowly(wire: _Wire, head: bytes, seconds: float) -> int:
    reader, writer = wire
    writer.write(head)
    status = await _status(reader)
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while await reader.read(_READ_BYTES):
                await asyncio.sleep(_READ_EVERY_SECONDS)
    return status


async def _send_half(wire: _Wire, head: bytes, size: int, seconds: float) -> int:
    reader, writer = wire
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            sending = asyncio.create_task(_send(writer, head, size))
            try:
                return await _status(reader)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
    return 0


async def _send(writer: asyncio.StreamWriter, head: bytes, size: int) -> None:
    writer.write(head)
    block = b"x" * 16_384
    for _ in range(size // len(block)):
        writer.write(block)
        await writer.drain()


async def _status(reader: asyncio.StreamReader) -> int:
    """The status of the answer; 0 if there is none."""
    line = await reader.readline()
    return int(line.split()[1]) if line.startswith(b"HTTP/1.1 ") else 0


def _head(target: Target, method: str, path: str, body_bytes: int = 0) -> bytes:
    length = f"Content-Type: application/json\r\nContent-Length: {body_bytes}\r\n"
    return (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{target.port}\r\n"
        f"Authorization: Bearer {target.keys[ATTACKER]}\r\n{length if body_bytes else ''}\r\n"
    ).encode()


def _counted(statuses: list[int]) -> Figures:
    counts = Counter(statuses)
    shown: Figures = {f"answered_{status}": counts[status] for status in sorted(counts) if status}
    return {**shown, "unanswered": counts[0]}


def _batch_status_complaints(figures: Figures) -> list[str]:
    return [
        *at_least(figures, "answered_200", 3),
        *at_most(figures, "answer_bytes", MIB),
        *at_most(figures, "rss_growth_mib", 24),
    ]


def _slow_reader_complaints(figures: Figures) -> list[str]:
    return [
        *at_least(figures, "then_read_bytes", _RESULT_BYTES),
        *at_most(figures, "rss_growth_mib", 128),
    ]


def _half_sent_complaints(figures: Figures) -> list[str]:
    return at_most(figures, "rss_growth_mib", 128)


def _sign_in_complaints(figures: Figures) -> list[str]:
    return at_most(figures, "rss_growth_mib", 96)


ATTACKS: Final = (
    Attack(
        name="batch-status",
        row=5,
        title="batch-status of 40 jobs with results of 15 MB",
        run=_batch_status,
        complaints=_batch_status_complaints,
    ),
    Attack(
        name="slow-readers",
        row=5,
        title="100 readers of one result of 15 MB, each at 1 KiB a second",
        run=_slow_readers,
        complaints=_slow_reader_complaints,
    ),
    Attack(
        name="half-sent-bodies",
        row=7,
        title="1,000 incomplete submits of 1 MiB, by one key",
        run=_half_sent_bodies,
        complaints=_half_sent_complaints,
    ),
    Attack(
        name="half-sent-sign-in",
        row=7,
        title="2,000 incomplete sign-in forms of 256 KiB, without a credential",
        run=_half_sent_sign_in,
        complaints=_sign_in_complaints,
    ),
)
