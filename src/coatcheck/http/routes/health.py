"""What operators watch: the health checks ``/healthz`` and ``/readyz``, and ``/metrics``,
the metrics of the deployment for Prometheus."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final, Literal

import msgspec
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from coatcheck.core.process_metrics import ProcessMetrics
from coatcheck.domain.errors import CoatcheckError
from coatcheck.http.parameters import read_choice
from coatcheck.http.problems import RETRY_AFTER_SECONDS, Detail, Refusal, problem
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response, raw_header
from coatcheck.http.routing import Parameter, ResponseSpec, Route
from coatcheck.telemetry import metrics
from coatcheck.telemetry.queue_metrics import QueueStatus, queue_snapshot
from coatcheck.telemetry.snapshots import render

_log = logging.getLogger(__name__)

CHECK_SECONDS_MAX: Final = 2.0

Check = Callable[[], Awaitable[str]]
"""A readiness check. Returns its result as text; raises if the process is not ready."""


class Alive(msgspec.Struct, frozen=True):
    """The process answers."""

    status: Literal["alive"] = "alive"


class Ready(msgspec.Struct, frozen=True):
    """The process is ready; ``checks`` has the result of each check."""

    checks: dict[str, str]
    status: Literal["ready"] = "ready"


def health_routes(checks: Mapping[str, Check]) -> list[Route]:
    """``/healthz`` and ``/readyz``, the latter over these checks."""

    async def healthz(_: Request) -> Response:
        return json_response(Alive())

    async def readyz(request: Request) -> Response:
        found = await asyncio.gather(*(_run(name, check) for name, check in checks.items()))
        failed = [result for result in found if isinstance(result, Detail)]
        if failed:
            names = " and ".join(detail.field for detail in failed)
            return problem(
                request,
                *Refusal.NOT_READY.value,
                f"Not ready: {names}.",
                details=failed,
                headers=[(b"retry-after", b"%d" % RETRY_AFTER_SECONDS)],
            )
        notes = [result for result in found if isinstance(result, str)]
        ready = Ready(checks=dict(zip(checks, notes, strict=True)))
        return json_response(ready)

    return [
        Route(
            methods=["GET"],
            path="/healthz",
            name="healthz",
            summary="Check that the process is alive.",
            description="Always 200 while the process answers. For liveness probes.",
            handler=healthz,
            responses=[ResponseSpec(HTTPStatus.OK, "It is alive.", Alive)],
            tag="operations",
        ),
        Route(
            methods=["GET"],
            path="/readyz",
            name="readyz",
            summary="Check that the process is ready.",
            description="Checks the database and the blob store. For readiness probes.",
            handler=readyz,
            responses=[
                ResponseSpec(HTTPStatus.OK, "It is ready.", Ready),
                ResponseSpec.problem(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    "It is not ready; `details` names each check that failed, and why.",
                    headers={"Retry-After": "Seconds to wait before asking again."},
                ),
            ],
            tag="operations",
        ),
    ]


def remembered(check: Check, seconds: float) -> Check:
    """``check``, run again only when its last success is ``seconds`` old.

    For a check that costs money or a write: probes come every few seconds, from every balancer.
    """
    last: tuple[float, str] | None = None

    async def cached() -> str:
        nonlocal last
        if last is None or time.monotonic() - last[0] > seconds:
            last = None
            found = await check()
            last = (time.monotonic(), found)
        return last[1]

    return cached


async def _run(name: str, check: Check) -> str | Detail:
    try:
        async with asyncio.timeout(CHECK_SECONDS_MAX):
            return await check()
    except TimeoutError:
        issue = f"no answer within {CHECK_SECONDS_MAX:g} s"
    except CoatcheckError as error:
        issue = str(error)
    except Exception as error:  # noqa: BLE001 - a check may fail in any way: it is not ready then
        # The error's text may name paths or hosts: it belongs into the log, not the response.
        _log.warning("the readiness check %s failed", name, exc_info=error)
        issue = type(error).__name__
    return Detail(field=name, issue=issue, location="check")


SECONDS_MAX: Final = 4.0
COUNT_SECONDS_MAX: Final = 4.0
"""The time to count the queue. Both together are less than the 10 s that Prometheus waits."""
_SCOPES: Final = ("deployment", "process")


def metrics_routes(
    read_queue: Callable[[], Awaitable[QueueStatus]], processes: ProcessMetrics
) -> list[Route]:
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

    async def _count_queue() -> QueueStatus:
        try:
            async with asyncio.timeout(COUNT_SECONDS_MAX):
                return await read_queue()
        except TimeoutError:
            # The database is available: it has just answered. So all other metrics are valid.
            _log.warning("counting the queue took longer than %g s", COUNT_SECONDS_MAX)
            return QueueStatus(is_counted=False)

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
                    "`process` shows only the process that answers, without the queue; it needs no "
                    "database. If a server has several, the label `process` has its number.",
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
                ResponseSpec.problem(HTTPStatus.BAD_REQUEST, "The scope is unknown."),
            ],
            tag="operations",
        )
    ]
