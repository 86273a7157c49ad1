"""The RunPod serverless adapter: /run, /status and /cancel of a queue-based endpoint.

RunPod assigns the ids, supports no tokens, lists nothing, and forgets a job half an hour after its
end. A job's output comes with its status; handlers store longer outputs somewhere else and return
the URL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal
from urllib.parse import quote

import msgspec

from coatcheck.remotes.caller import GONE, RemoteCaller, decoded, of_each, sentence
from coatcheck.remotes.files import Files, result_missing
from coatcheck.remotes.payloads import Marks, OutputChoice, check_id, marked, result_of, seconds
from coatcheck.remotes.protocol import (
    Reattach,
    RemoteCompleted,
    RemoteFailed,
    RemoteFailure,
    RemoteRefused,
    RemoteResult,
    RemoteRunning,
    RemoteStatus,
    RemoteUnknown,
    SpawnRequest,
)

URL: Final = "https://api.runpod.ai/v2"
_MILLISECOND: Final = 0.001
_StatusWord = Literal[
    "IN_QUEUE", "IN_PROGRESS", "RUNNING", "COMPLETED", "FAILED", "CANCELLED", "TIMED_OUT"
]


class _RunpodJob(msgspec.Struct):
    id: str


class _RunpodState(msgspec.Struct):
    status: _StatusWord
    error: Any = None


class _Job(msgspec.Struct):
    status: _StatusWord
    output: Any = None
    executionTime: float | None = None  # noqa: N815 - RunPod's name


class RunpodRemote:
    """One RunPod endpoint."""

    reattach = Reattach.NONE

    def __init__(
        self,
        caller: RemoteCaller,
        files: Files,
        *,
        endpoint: str,
        marks: Marks,
        output: OutputChoice,
    ) -> None:
        self._caller = caller
        self._files = files
        self._endpoint = quote(endpoint, safe="")
        self._marks = marks
        self._output = output

    async def spawn(self, request: SpawnRequest) -> str:
        job: dict[str, Any] = {"input": marked(request.body, self._marks.of(request))}
        if request.public_callback_url is not None:
            job["webhook"] = request.public_callback_url
        answer = await self._caller.ask(
            "POST",
            f"/{self._endpoint}/run",
            content=msgspec.json.encode(job),
            hide=() if request.public_callback_url is None else (request.public_callback_url,),
        )
        return check_id(decoded(answer.body, _RunpodJob).id)

    async def find(self, token: str) -> str | None:  # noqa: ARG002 - RunPod lists no jobs
        return None

    async def status(self, ids: Sequence[str]) -> Mapping[str, RemoteStatus]:
        return await of_each(ids, self._status)

    async def result(self, remote_id: str) -> RemoteResult:
        answer = await self._caller.ask("GET", self._of("status", remote_id), accept=GONE)
        if answer.status in GONE:
            raise result_missing()
        job = decoded(answer.body, _Job)
        if job.status != "COMPLETED":
            raise RemoteRefused("The job has no result.", code=RemoteFailure.NOT_COMPLETED)
        took = seconds(job.executionTime, _MILLISECOND)
        return await result_of(job.output, self._output, self._files, took)

    async def cancel(self, remote_id: str) -> None:
        await self._caller.ask("POST", self._of("cancel", remote_id), accept=GONE)

    def _of(self, operation: str, remote_id: str) -> str:
        return f"/{self._endpoint}/{operation}/{quote(remote_id, safe='')}"

    async def _status(self, remote_id: str) -> RemoteStatus:
        answer = await self._caller.ask("GET", self._of("status", remote_id), accept=GONE)
        if answer.status in GONE:
            return RemoteUnknown()
        job = decoded(answer.body, _RunpodState)
        match job.status:
            case "IN_QUEUE" | "IN_PROGRESS" | "RUNNING":
                return RemoteRunning()
            case "COMPLETED":
                return RemoteCompleted()
            case "FAILED":
                reason = sentence(job.error) or "The job failed without a reason."
                return RemoteFailed(RemoteFailure.FAILED, self._caller.shown(reason))
            case "CANCELLED":
                return RemoteFailed(RemoteFailure.CANCELLED, "The job was cancelled at RunPod.")
            case "TIMED_OUT":
                return RemoteFailed(RemoteFailure.TIMED_OUT, "The job timed out at RunPod.")
