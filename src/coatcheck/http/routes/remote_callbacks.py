"""Where remotes tell that they are done. Who has the URL may: it was signed for one job alone.

What a remote says is not believed; it is asked. So all that a callback does is make that happen
sooner, and tell what the work is called there, if that was lost.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import msgspec

from coatcheck.core.remote.calls import RemoteCalls
from coatcheck.domain.errors import NotFound
from coatcheck.http.problems import MEDIA_TYPE, Problem
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response
from coatcheck.http.routing import Parameter, RequestBody, ResponseSpec, Route

CALLBACK_BYTES_MAX: Final = 1024 * 1024
_ANY_TYPE: Final = "*/*"


class CalledBack(msgspec.Struct, frozen=True):
    """It arrived; it need not be sent again."""


def routes(remote_calls: RemoteCalls) -> list[Route]:
    """``/v1/remote-callbacks/{callback}``."""

    async def receive(request: Request) -> Response:
        callback = request.params["callback"]
        if not await remote_calls.signed(callback):
            raise NotFound  # before its body is read
        await remote_calls.called_back(callback, await request.body(CALLBACK_BYTES_MAX))
        return json_response(CalledBack(), HTTPStatus.ACCEPTED)

    return [
        Route(
            methods=["POST"],
            path="/v1/remote-callbacks/{callback}",
            name="remote_callback",
            summary="For remotes: the work of a job is done.",
            description="The remote is asked at once how the work stands. Calling back again, or "
            "after the job has ended, changes nothing.",
            handler=receive,
            parameters=[
                Parameter(
                    "callback",
                    "path",
                    "What was signed: part of the URL that the remote was given.",
                )
            ],
            body=RequestBody(
                f"Anything, of any type: {CALLBACK_BYTES_MAX} bytes at most.",
                schema={},
                media_type=_ANY_TYPE,
                required=False,
            ),
            responses=[
                ResponseSpec(HTTPStatus.ACCEPTED, "It arrived.", CalledBack),
                ResponseSpec(HTTPStatus.NOT_FOUND, "Nobody here signed this.", Problem, MEDIA_TYPE),
                ResponseSpec(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    "The database is away; call again.",
                    Problem,
                    MEDIA_TYPE,
                    {"Retry-After": "Seconds to wait before calling again."},
                ),
            ],
            tag="remotes",
        )
    ]
