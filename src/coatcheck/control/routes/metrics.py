"""``/metrics``, for Prometheus."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from coatcheck.control.call import Call
from coatcheck.control.operations import Answer, Operation
from coatcheck.control.reply import Reply, raw_header
from coatcheck.domain.errors import CoatcheckError
from coatcheck.telemetry import metrics

_log = logging.getLogger(__name__)

DEPTH_SECONDS_MAX: Final = 5.0


def operations(read_depth: Callable[[], Awaitable[metrics.QueueDepth]]) -> list[Operation]:
    """``/metrics``, with the queue's depth as ``read_depth`` finds it."""

    async def expose(_: Call) -> Reply:
        body = metrics.exposition(await _depth_or_none())
        return Reply(HTTPStatus.OK, body, [raw_header("content-type", CONTENT_TYPE_PLAIN_0_0_4)])

    async def _depth_or_none() -> metrics.QueueDepth | None:
        try:
            async with asyncio.timeout(DEPTH_SECONDS_MAX):
                return await read_depth()
        except (CoatcheckError, TimeoutError) as error:
            # A scrape must not fail with the database: that is when its numbers are wanted.
            _log.warning("metrics without the queue's depth: %s", type(error).__name__)
            return None

    return [
        Operation(
            methods=["GET"],
            path="/metrics",
            name="metrics",
            summary="The metrics of this process and of the queue, as Prometheus text.",
            handler=expose,
            answers=[
                Answer(
                    HTTPStatus.OK,
                    "The metrics. `coatcheck_database_up` is 0 while the database is away, and "
                    "the queue's depth is then missing.",
                    media_type="text/plain",
                )
            ],
            tag="operations",
        )
    ]
