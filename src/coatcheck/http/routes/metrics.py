"""``/metrics``, for Prometheus."""

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
from coatcheck.telemetry.snapshots import shown

_log = logging.getLogger(__name__)

SECONDS_MAX: Final = 4.0
COUNT_SECONDS_MAX: Final = 4.0
"""To count the queue. Both together are less than the 10 s that Prometheus waits."""
_SCOPES: Final = ("deployment", "process")


def routes(read_queue: Callable[[], Awaitable[Queue]], processes: ProcessMetrics) -> list[Route]:
    """``/metrics``: the queue as ``read_queue`` finds it, and the sum of all processes."""

    async def expose(request: Request) -> Response:
        if read_choice(request.query, "scope", _SCOPES) == "process":
            body = metrics.exposition()
        else:
            body = await _of_the_deployment()
        return Response(HTTPStatus.OK, body, [raw_header("content-type", CONTENT_TYPE_PLAIN_0_0_4)])

    async def _of_the_deployment() -> bytes:
        try:
            async with asyncio.timeout(SECONDS_MAX):
                whole = await processes.of_all()
            queue = await _counted()
        except (CoatcheckError, TimeoutError) as error:
            # Metrics are wanted most when the database is away: this must not fail with it. But
            # it must not show this process's counts for those of all: they would seem to restart.
            _log.warning("metrics without the database: %s", type(error).__name__)
            return shown(queue_snapshot(None))
        return await asyncio.to_thread(shown, queue_snapshot(queue), whole)

    async def _counted() -> Queue:
        try:
            async with asyncio.timeout(COUNT_SECONDS_MAX):
                return await read_queue()
        except TimeoutError:
            # The database is there: it has just answered. All else is as true as ever.
            _log.warning("the queue is too long to be counted in %g s", COUNT_SECONDS_MAX)
            return Queue(is_counted=False)

    return [
        Route(
            methods=["GET"],
            path="/metrics",
            name="metrics",
            summary="The metrics of all processes and of the queue, as Prometheus text.",
            description=(
                "Every server and every worker of the deployment is in it, whichever server is "
                "asked, so read one address, and not each of them."
            ),
            handler=expose,
            parameters=[
                Parameter(
                    "scope",
                    "query",
                    "`process` shows the server that answers, and nothing of the others or of the "
                    "queue; it needs no database.",
                    {"type": "string", "enum": list(_SCOPES), "default": _SCOPES[0]},
                )
            ],
            responses=[
                ResponseSpec(
                    HTTPStatus.OK,
                    "The metrics. While the database is away, `coatcheck_database_up` is 0 and all "
                    "else is missing; the queue's are if it is too long to be counted in time.",
                    media_type="text/plain",
                ),
                ResponseSpec(
                    HTTPStatus.BAD_REQUEST,
                    "There is no such scope.",
                    Problem,
                    MEDIA_TYPE,
                ),
            ],
            tag="operations",
        )
    ]
