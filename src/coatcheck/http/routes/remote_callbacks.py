"""The callback route of remotes: a remote calls it when its work for a job is done.

The URL is signed for one job, and is the only credential. The content of a callback is not trusted:
the remote is polled. So a callback only makes the poll happen sooner, and delivers the id of the
remote's work if that was lost.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import msgspec

from coatcheck.core.remote.calls import RemoteCalls
from coatcheck.domain.errors import NotFound
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response
from coatcheck.http.routing import Parameter, RequestBody, ResponseSpec, Route

CALLBACK_BYTES_MAX: Final = 1024 * 1024
_ANY_TYPE: Final = "*/*"


class CalledBack(msgspec.Struct, frozen=True):
    """The callback was received; it need not be sent again."""


def routes(remote_calls: RemoteCalls) -> list[Route]:
    """``/v1/remote-callbacks/{callback}``."""

    async def receive(request: Request) -> Response:
        callback = request.params["callback"]
        if not await remote_calls.signed(callback):
            raise NotFound  # before the body is read
        await remote_calls.called_back(callback, await request.body(CALLBACK_BYTES_MAX))
        return json_response(CalledBack(), HTTPStatus.ACCEPTED)

    return [
        Route(
            methods=["POST"],
            path="/v1/remote-callbacks/{callback}",
            name="remote_callback",
            summary="Callback for remotes: the work of a job is done.",
            description="The server then polls the remote at once. Calling back again, or after "
            "the job has ended, has no effect.",
            handler=receive,
            parameters=[
                Parameter("callback", "path", "The signed part of the URL that the remote got.")
            ],
            body=RequestBody(
                f"Any content of any type, at most {CALLBACK_BYTES_MAX} bytes.",
                schema={},
                media_type=_ANY_TYPE,
                required=False,
            ),
            responses=[
                ResponseSpec(HTTPStatus.ACCEPTED, "The callback was received.", CalledBack),
                ResponseSpec.problem(HTTPStatus.NOT_FOUND, "The signature is not valid."),
                ResponseSpec.problem(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    "The database is unavailable; call again.",
                    {"Retry-After": "Seconds to wait before calling again."},
                ),
            ],
            tag="remotes",
        )
    ]
