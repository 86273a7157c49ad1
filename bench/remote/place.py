"""A remote that finishes its work after a while: ``python -m bench.remote.place PORT``.

It implements the HTTP protocol of remote jobs with little CPU, because it shares our cores. Its
record is at ``/record``.
"""

import json
import random
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import parse_qs

import uvicorn

from bench.remote.amounts import RESULT_BYTES, SECONDS

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

_RESULT = bytes(RESULT_BYTES)


@dataclass
class Work:
    taken_at: float
    done_at: float
    polls: int = 0


class Place:
    """The application. A token has one execution."""

    def __init__(self) -> None:
        self._works: dict[str, Work] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["path"]:
            case "/submit-job":
                token: str = json.loads(await _body(receive))["token"]
                await _answer(send, {"job_id": self._take(token)})
            case "/job-status":
                work = self._works[_job_id(scope)]
                work.polls += 1
                is_done = time.time() >= work.done_at
                await _answer(send, {"status": "completed" if is_done else "running"})
            case "/job-result":
                await _send(send, _RESULT, b"application/octet-stream")
            case "/record":
                await _answer(send, {name: asdict(work) for name, work in self._works.items()})

    def _take(self, token: str) -> str:
        now = time.time()
        taken = Work(now, now + random.Random(token).uniform(*SECONDS))
        self._works.setdefault(token, taken)
        return token


async def _body(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


def _job_id(scope: Scope) -> str:
    query: bytes = scope["query_string"]
    return parse_qs(query.decode())["job_id"][0]


async def _answer(send: Send, document: Any) -> None:
    await _send(send, json.dumps(document).encode(), b"application/json")


async def _send(send: Send, body: bytes, media_type: bytes) -> None:
    headers = [(b"content-type", media_type), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def main() -> None:
    uvicorn.run(
        Place(),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        access_log=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
