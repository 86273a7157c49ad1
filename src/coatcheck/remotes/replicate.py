"""The Replicate adapter: predictions of a version, an official model, or a deployment.

Replicate assigns the ids and supports no tokens. If the model has an input for the token
(``marks.token``), a lost prediction can be found by it among the latest ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal
from urllib.parse import parse_qs, quote, urlsplit

import msgspec

from coatcheck.remotes.caller import GONE, RemoteCaller, decoded, garbage, of_each, sentence
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

URL: Final = "https://api.replicate.com/v1"
FOUND_PAGES_MAX: Final = 10
"""Pages of about 100 predictions each: an id is lost in the last minutes, or not at all."""


class _Metrics(msgspec.Struct):
    predict_time: float | None = None


class _Prediction(msgspec.Struct):
    id: str
    status: Literal["starting", "processing", "succeeded", "failed", "canceled", "aborted"]
    output: Any = None
    error: Any = None
    metrics: _Metrics | None = None
    data_removed: bool = False


class _PredictionState(msgspec.Struct):
    """A prediction without its output, for polling."""

    status: Literal["starting", "processing", "succeeded", "failed", "canceled", "aborted"]
    error: Any = None


class _CreatedPrediction(msgspec.Struct):
    id: str


class _Listed(msgspec.Struct):
    id: str
    input: Any = None


class _PredictionPage(msgspec.Struct):
    results: list[_Listed]
    next: str | None = None


class ReplicateRemote:
    """Predictions of one model. ``path`` is where they are created; ``version`` selects the
    version if the path does not."""

    def __init__(
        self,
        caller: RemoteCaller,
        files: Files,
        *,
        path: str,
        version: str | None,
        marks: Marks,
        output: OutputChoice,
    ) -> None:
        self._caller = caller
        self._files = files
        self._path = path
        self._version = version
        self._marks = marks
        self._output = output

    @property
    def reattach(self) -> Reattach:
        return Reattach.NONE if self._marks.token is None else Reattach.FIND

    async def spawn(self, request: SpawnRequest) -> str:
        prediction: dict[str, Any] = {"input": marked(request.body, self._marks.of(request))}
        if self._version is not None:
            prediction["version"] = self._version
        if request.public_callback_url is not None:
            prediction["webhook"] = request.public_callback_url
            prediction["webhook_events_filter"] = ["completed"]
        answer = await self._caller.ask(
            "POST",
            self._path,
            content=msgspec.json.encode(prediction),
            hide=() if request.public_callback_url is None else (request.public_callback_url,),
        )
        return check_id(decoded(answer.body, _CreatedPrediction).id)

    async def find(self, token: str) -> str | None:
        if self._marks.token is None:
            return None
        query: dict[str, str] | None = None
        for _ in range(FOUND_PAGES_MAX):
            page = decoded(
                (await self._caller.ask("GET", "/predictions", query=query)).body, _PredictionPage
            )
            for listed in page.results:
                if isinstance(listed.input, dict) and listed.input.get(self._marks.token) == token:
                    return check_id(listed.id)
            cursor = _cursor(page.next)
            if cursor is None:
                return None
            query = {"cursor": cursor}
        return None

    async def status(self, ids: Sequence[str]) -> Mapping[str, RemoteStatus]:
        return await of_each(ids, self._status)

    async def result(self, remote_id: str) -> RemoteResult:
        answer = await self._caller.ask("GET", _of(remote_id), accept=GONE)
        if answer.status in GONE:
            raise result_missing()
        prediction = decoded(answer.body, _Prediction)
        if prediction.data_removed:
            raise result_missing()
        if prediction.status != "succeeded":
            raise RemoteRefused("The prediction has no result.", code=RemoteFailure.NOT_COMPLETED)
        took = seconds(prediction.metrics.predict_time if prediction.metrics else None)
        return await result_of(prediction.output, self._output, self._files, took)

    async def cancel(self, remote_id: str) -> None:
        await self._caller.ask("POST", f"{_of(remote_id)}/cancel", accept=GONE)

    async def _status(self, remote_id: str) -> RemoteStatus:
        answer = await self._caller.ask("GET", _of(remote_id), accept=GONE)
        if answer.status in GONE:
            return RemoteUnknown()
        prediction = decoded(answer.body, _PredictionState)
        match prediction.status:
            case "starting" | "processing":
                return RemoteRunning()
            case "succeeded":
                return RemoteCompleted()
            case "failed":
                reason = sentence(prediction.error) or "The prediction failed without a reason."
                return RemoteFailed(RemoteFailure.FAILED, self._caller.shown(reason))
            case "canceled" | "aborted":
                return RemoteFailed(
                    RemoteFailure.CANCELLED, "The prediction was cancelled at Replicate."
                )


def _of(remote_id: str) -> str:
    return f"/predictions/{quote(remote_id, safe='')}"


def _cursor(following: str | None) -> str | None:
    """The cursor of the next page. Its URL is not used: it would receive our credentials."""
    if following is None:
        return None
    try:
        cursors = parse_qs(urlsplit(following).query).get("cursor", [])
    except ValueError as error:
        raise garbage() from error
    return cursors[0] if cursors else None
