"""The fal adapter: requests in the queue of a model.

fal assigns the ids and supports no tokens. A failed request also ends as completed: its status has
an ``error``, or its result is answered with the error's own status.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal
from urllib.parse import quote

import msgspec

from coatcheck.remotes.caller import GONE, RemoteCaller, decoded, of_each, sentence
from coatcheck.remotes.files import Files, result_missing
from coatcheck.remotes.payloads import Marks, OutputChoice, check_id, marked, result_of
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

URL: Final = "https://queue.fal.run"
_NAMESPACES: Final = frozenset({"comfy", "workflows"})
"""Prefixes before the owner of such models."""
_ALREADY_ENDED: Final = frozenset({*GONE, 400})
"""fal answers a late cancel with 400, ALREADY_COMPLETED."""


class _FalRequest(msgspec.Struct):
    request_id: str


class _FalStatus(msgspec.Struct):
    status: Literal["IN_QUEUE", "IN_PROGRESS", "COMPLETED"]
    error: Any = None


class FalRemote:
    """The queue of one model. Status URLs omit everything after the app's name."""

    reattach = Reattach.NONE

    def __init__(
        self, caller: RemoteCaller, files: Files, *, model: str, marks: Marks, output: OutputChoice
    ) -> None:
        self._caller = caller
        self._files = files
        parts = [quote(part, safe="") for part in model.split("/")]
        self._model = "/" + "/".join(parts)
        self._app = "/" + "/".join(parts[: 3 if parts[0] in _NAMESPACES else 2])
        self._marks = marks
        self._output = output

    async def spawn(self, request: SpawnRequest) -> str:
        url = request.public_callback_url
        called = {} if url is None else {"fal_webhook": url}
        answer = await self._caller.ask(
            "POST",
            self._model,
            query=called or None,
            content=bytes(marked(request.body, self._marks.of(request))),
            hide=tuple(called.values()),
        )
        return check_id(decoded(answer.body, _FalRequest).request_id)

    async def find(self, token: str) -> str | None:  # noqa: ARG002 - fal knows no tokens
        return None

    async def status(self, ids: Sequence[str]) -> Mapping[str, RemoteStatus]:
        return await of_each(ids, self._status)

    async def result(self, remote_id: str) -> RemoteResult:
        answer = await self._caller.ask("GET", self._of(remote_id), accept=GONE)
        if answer.status in GONE:
            raise result_missing()
        return await result_of(decoded(answer.body, object), self._output, self._files, {})

    async def cancel(self, remote_id: str) -> None:
        await self._caller.ask("PUT", f"{self._of(remote_id)}/cancel", accept=_ALREADY_ENDED)

    def _of(self, remote_id: str) -> str:
        return f"{self._app}/requests/{quote(remote_id, safe='')}"

    async def _status(self, remote_id: str) -> RemoteStatus:
        answer = await self._caller.ask("GET", f"{self._of(remote_id)}/status", accept=GONE)
        if answer.status in GONE:
            return RemoteUnknown()
        status = decoded(answer.body, _FalStatus)
        if status.status != "COMPLETED":
            return RemoteRunning()
        if status.error:
            reason = sentence(status.error) or "The request failed without a reason."
            return RemoteFailed(RemoteFailure.FAILED, self._caller.shown(reason))
        return RemoteCompleted()
