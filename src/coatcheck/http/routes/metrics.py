"""``/metrics``: the metrics of the deployment, for Prometheus."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from coatcheck.core.process_metrics import ProcessMetrics
from coatcheck.domain.errors import CoatcheckError
from coatcheck.http.parameters import read_choice
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.request import Request
from coatcheck.http.response import Response, raw_header
from coatcheck.http.routing import Parameter, ResponseSpec, Route
from coatcheck.telemetry import metrics
from coatcheck.telemetry.queue_metrics import Queue, queue_snapshot
from coatcheck.telemetry.snapshots import render

_log = logging.getLogger(__name__)

SECONDS_MAX: Final = 4.0
COUNT_SECONDS_MAX: Final = 4.0
"""The time to count the queue. Both together are less than the 10 s that Prometheus waits."""
_SCOPES: Final = ("deployment", "process")


def routes(read_queue: Callable[[], Awaitable[Queue]], processes: ProcessMetrics) -> list[Route]:
    """``/metrics``: the queue as read by ``read_queue``, and the sum of all processes."""

    async def expose(request: Request) -> Response:
        if read_choice(request.query, "scope", _SCOPES) == "process":
            body = metrics.exposition()
        else:
            body = await _deployment_metrics()
        return Response(HTTPStatus.OK, body, [raw_header("content-type", CONTENT_TYPE_PLAIN_0_0_4)])

    async def _deployment_metrics() -> bytes:
        try:
            async with asyncio.timeout(SECONDS_MAX):
                whole = await processes.of_all()
            queue = await _count_queue()
        except (CoatcheckError, TimeoutError) as error:
            # Metrics matter most when the database is unavailable, so this must not fail with it.
            # But the counts of this process must not replace those of all: counters would seem to
            # restart.
            _log.warning("serving metrics without the database: %s", type(error).__name__)
            return render(queue_snapshot(None))
        return await asyncio.to_thread(render, queue_snapshot(queue), whole)

    async def _count_queue() -> Queue:
        try:
            async with asyncio.timeout(COUNT_SECONDS_MAX):
                return await read_queue()
        except TimeoutError:
            # The database is available: it has just answered. So all other metrics are valid.
            _log.warning("counting the queue took longer than %g s", COUNT_SECONDS_MAX)
            return Queue(is_counted=False)

    return [
        Route(
            methods=["GET"],
            path="/metrics",
            name="metrics",
            summary="The metrics of all processes and of the queue, as Prometheus text.",
            description=(
                "Every server reports all servers and workers of the deployment, so read one "
                "address only."
            ),
            handler=expose,
            parameters=[
                Parameter(
                    "scope",
                    "query",
                    "`process` shows only the server that answers, without the queue; it needs no "
                    "database.",
                    {"type": "string", "enum": list(_SCOPES), "default": _SCOPES[0]},
                )
            ],
            responses=[
                ResponseSpec(
                    HTTPStatus.OK,
                    "The metrics. While the database is unavailable, `coatcheck_database_up` is 0 "
                    "and all others are missing. The queue's are missing if it is too long to be "
                    "counted in time.",
                    media_type="text/plain",
                ),
                ResponseSpec(
                    HTTPStatus.BAD_REQUEST,
                    "The scope is unknown.",
                    Problem,
                    MEDIA_TYPE,
                ),
            ],
            tag="operations",
        )
    ]
