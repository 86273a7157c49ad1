"""The HTTP adapter: our own protocol of submit-job, job-status, job-result and job-cancel.

Since the protocol is ours, it requires what makes a lost id harmless: a server answers the same
``token`` with the same ``job_id``, even after a restart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from coatcheck.remotes.caller import GONE, RemoteCaller, decoded, of_each, sentence
from coatcheck.remotes.files import Files
from coatcheck.remotes.payloads import Marks, check_id, marked
from coatcheck.remotes.protocol import (
    Reattach,
    RemoteCompleted,
    RemoteFailed,
    RemoteFailure,
    RemoteResult,
    RemoteRunning,
    RemoteStatus,
    RemoteUnknown,
    SpawnRequest,
)

_MARKS = Marks(token="token", callback_url="callback_url")  # noqa: S106 - the field's name
_ENDED = frozenset({*GONE, 409})
"""Statuses that may answer a late cancel."""


class _Submitted(msgspec.Struct):
    job_id: str


class _HttpStatus(msgspec.Struct):
    status: Literal["queued", "pending", "running", "completed", "failed", "cancelled"]
    error: Any = None
    progress: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None


class HttpRemote:
    """A server with this protocol."""

    reattach = Reattach.SAME_TOKEN

    def __init__(self, caller: RemoteCaller, files: Files, media_type: str | None = None) -> None:
        self._caller = caller
        self._files = files
        self._media_type = media_type

    async def spawn(self, request: SpawnRequest) -> str:
        answer = await self._caller.ask(
            "POST",
            "/submit-job",
            content=bytes(marked(request.body, _MARKS.of(request))),
            headers={"idempotency-key": request.token},
            hide=_callback(request),
        )
        return check_id(decoded(answer.body, _Submitted).job_id, in_path=False)

    async def find(self, token: str) -> str | None:  # noqa: ARG002 - spawning again finds it
        return None

    async def status(self, ids: Sequence[str]) -> Mapping[str, RemoteStatus]:
        return await of_each(ids, self._status)

    async def result(self, remote_id: str) -> RemoteResult:
        return await self._files.answer("/job-result", {"job_id": remote_id}, self._media_type)

    async def cancel(self, remote_id: str) -> None:
        await self._caller.ask(
            "POST", "/job-cancel", content=msgspec.json.encode({"job_id": remote_id}), accept=_ENDED
        )

    async def _status(self, remote_id: str) -> RemoteStatus:
        answer = await self._caller.ask(
            "GET", "/job-status", query={"job_id": remote_id}, accept=GONE
        )
        if answer.status in GONE:
            return RemoteUnknown()
        status = decoded(answer.body, _HttpStatus)
        match status.status:
            case "completed":
                return RemoteCompleted()
            case "failed":
                reason = sentence(status.error) or "The remote gives no reason."
                return RemoteFailed(RemoteFailure.FAILED, self._caller.shown(reason))
            case "cancelled":
                return RemoteFailed(RemoteFailure.CANCELLED, "The job was cancelled at the remote.")
            case _:
                return RemoteRunning(status.progress)


def _callback(request: SpawnRequest) -> tuple[str, ...]:
    return () if request.callback_url is None else (request.callback_url,)
