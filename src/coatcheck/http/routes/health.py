"""The health checks ``/healthz`` and ``/readyz``."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final, Literal

import msgspec

from coatcheck.domain.errors import CoatcheckError
from coatcheck.http.problems import (
    MEDIA_TYPE,
    RETRY_AFTER_SECONDS,
    Detail,
    Problem,
    Refusal,
    problem,
)
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response
from coatcheck.http.routing import ResponseSpec, Route

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


def routes(checks: Mapping[str, Check]) -> list[Route]:
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
                ResponseSpec(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    "It is not ready; `details` names each check that failed, and why.",
                    Problem,
                    MEDIA_TYPE,
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
