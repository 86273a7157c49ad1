"""A minimal and cheap client of the batches API, for the scenario only."""

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

import httpx2

from bench.http.connection import Answer, Connection
from bench.http.paced import NotServedError
from bench.http.servers import ControlPlane

_PIECE_BYTES = 1024 * 1024
_FILE_SECONDS_MAX = 300.0
_IDLE_SECONDS_MAX = 2.0
Json = dict[str, Any]


class BatchClient:
    """One kept-alive connection for JSON; files use other connections."""

    def __init__(self, plane: ControlPlane, connection: Connection) -> None:
        self._plane = plane
        self._connection = connection
        self._used = time.monotonic()
        self._headers = {
            "Authorization": f"Bearer {plane.key}",
            "Content-Type": "application/json",
        }

    @classmethod
    async def open(cls, plane: ControlPlane) -> Self:
        return cls(plane, await Connection.open(plane.port))

    async def close(self) -> None:
        await self._connection.close()

    async def stage(self, path: Path) -> str:
        """Uploads a list to a signed URL; returns the upload's id."""
        upload = await self._json("POST", "/v1/uploads", HTTPStatus.CREATED)
        async with httpx2.AsyncClient(timeout=_FILE_SECONDS_MAX) as files:
            stored = await files.request(
                upload["method"],
                self._absolute(upload["url"]),
                headers=upload["headers"] | {"Content-Length": str(path.stat().st_size)},
                content=_pieces(path),
            )
        if stored.is_error:
            raise NotServedError(f"staging was answered {stored.status_code}: {stored.text[:200]}")
        return str(upload["upload_id"])

    async def hand_in(self, order: Json, expected: HTTPStatus, wait: int | None = None) -> Json:
        path = "/v1/jobs" if wait is None else f"/v1/jobs?wait={wait}"
        return await self._json("POST", path, expected, order)

    async def timed_hand_in(self, order: Json) -> tuple[Json, float]:
        """Submits a batch that a worker ingests; returns the milliseconds until its 202."""
        body = json.dumps(order).encode()
        await self._refresh()
        begun = time.perf_counter()
        answer = await self._request("POST", "/v1/jobs", body)
        milliseconds = (time.perf_counter() - begun) * 1_000
        return _read(answer, HTTPStatus.ACCEPTED), milliseconds

    async def get(self, job: Json) -> Json:
        return await self._json("GET", job["urls"]["poll"], HTTPStatus.OK)

    async def held(self, job: Json, wait: int) -> Json:
        """The job when it is terminal, or after the timeout."""
        path = f"{job['urls']['poll']}?wait={wait}"
        answer = await self._request("GET", path)
        return _read(answer, HTTPStatus.OK, HTTPStatus.ACCEPTED)

    async def delete(self, job: Json) -> None:
        path = job["urls"]["poll"]
        answer = await self._request("DELETE", path)
        if answer.status != HTTPStatus.NO_CONTENT:
            raise NotServedError(f"DELETE {path} was answered {answer.status}")

    async def export(self, job: Json) -> Json:
        return await self._json("POST", job["urls"]["exports"], HTTPStatus.ACCEPTED)

    async def download(self, url: str, target: Path) -> str:
        """Downloads a signed URL to a file; returns its SHA-256."""
        digest = hashlib.sha256()
        async with (
            httpx2.AsyncClient(timeout=_FILE_SECONDS_MAX) as files,
            files.stream("GET", self._absolute(url)) as answer,
        ):
            answer.raise_for_status()
            with target.open("wb") as file:
                async for piece in answer.aiter_bytes():
                    digest.update(piece)
                    file.write(piece)
        return digest.hexdigest()

    def _absolute(self, url: str) -> str:
        return self._plane.url + url if url.startswith("/") else url

    async def _request(self, method: str, path: str, body: bytes = b"") -> Answer:
        await self._refresh()
        try:
            return await self._connection.request(method, path, self._headers, body)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise NotServedError(f"{method} {path} was not answered: {error}") from error
        finally:
            self._used = time.monotonic()

    async def _refresh(self) -> None:
        """The server closes idle connections."""
        if time.monotonic() - self._used > _IDLE_SECONDS_MAX:
            await self._connection.close()
            self._connection = await Connection.open(self._plane.port)
            self._used = time.monotonic()

    async def _json(
        self, method: str, path: str, expected: HTTPStatus, body: Json | None = None
    ) -> Json:
        sent = b"" if body is None else json.dumps(body).encode()
        return _read(await self._request(method, path, sent), expected)


def _read(answer: Answer, *expected: HTTPStatus) -> Json:
    if answer.status not in expected:
        raise NotServedError(f"answered {answer.status}: {answer.body[:300]!r}")
    read: Json = json.loads(answer.body)
    return read


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece
