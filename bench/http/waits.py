"""The time from a handler's end until a waiting client has the result, by wait and by long-poll."""

import asyncio
import json
import time

from bench.http.connection import Connection
from bench.http.paced import ACCEPTED, OK, NotServedError
from bench.http.servers import ControlPlane
from bench.payload import payload_bytes
from bench.recorder import Progress
from bench.sizes import PACED_INTERVAL_SECONDS

WAIT_SECONDS = 30


async def wait_latencies(
    plane: ControlPlane, progress: Progress, first: int, jobs: int, *, long_poll: bool
) -> list[float]:
    """Milliseconds from the handler (its first and only line) to the complete answer."""
    headers = {"Authorization": f"Bearer {plane.key}", "Content-Type": "application/json"}
    connection = await Connection.open(plane.port)
    arrived: dict[int, int] = {}
    for number in range(first, first + jobs):
        due = time.perf_counter() + PACED_INTERVAL_SECONDS
        wait = {} if long_poll else {"Prefer": f"wait={WAIT_SECONDS}"}
        answer = await connection.request(
            "POST", plane.submit_path, headers | wait, payload_bytes(number)
        )
        if long_poll and answer.status == ACCEPTED:
            poll_url = json.loads(answer.body)["poll_url"]
            answer = await connection.request("GET", f"{poll_url}?wait={WAIT_SECONDS}", headers)
        arrived[number] = time.monotonic_ns()
        if answer.status != OK or json.loads(answer.body)["status"] != "completed":
            raise NotServedError(f"a wait was answered {answer.status}: {answer.body[:200]!r}")
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
    await connection.close()
    started = progress.started_at()
    return [(arrived[number] - started[number]) / 1e6 for number in arrived]
