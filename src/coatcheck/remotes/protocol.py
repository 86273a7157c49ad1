"""The interface of every remote: spawn, find, status, result, cancel.

An adapter knows nothing about jobs. It gets a token and a body, and returns the remote's id of the
work. All other calls use that id, which outlives our processes.

The errors are the same for all adapters:

RemoteError
├── RemoteUnreachable     no connection could be made: nothing happened; costs no attempt
├── RemoteRefused         it refused, and a retry would be refused as well
└── RemoteFaulty          it failed, hung or sent garbage: worth a retry

Their texts are short and contain no secrets: adapters make them with ``caller.py``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Protocol, Self

from coatcheck.domain.errors import BadRequest, CoatcheckError
from coatcheck.domain.failures import FailureCode


class RemoteFailure(FailureCode):
    """Work of a remote"""

    FAILED = "remote_failed"
    """The remote reports a failure. Final, unless the endpoint or the batch has `retries`."""
    CANCELLED = "remote_cancelled"
    """The work was cancelled at the remote."""
    TIMED_OUT = "remote_timed_out"
    """The work timed out at the remote."""
    LOST = "remote_lost"
    """The remote no longer knows the work. Retried."""
    HTTP_STATUS = "remote_http_{status}"
    """The remote answered with this status. 408, 425, 429 and 5xx are retried."""
    ERROR = "remote_error"
    """The call to the remote failed."""
    REFUSED = "remote_refused"
    """The remote refused the call."""
    FAULTY = "remote_faulty"
    """The remote did not answer as it should. Retried."""
    GARBAGE = "remote_garbage"
    """The remote's response is not one of its API. Retried."""
    HANGS = "remote_hangs"
    """The remote did not answer in time, or stopped in the middle of a response. Retried."""
    BROKE_OFF = "remote_broke_off"
    """The connection broke before the remote's response was complete. Retried."""
    UNREACHABLE = "remote_unreachable"
    """No connection to the remote can be made. A job waits as `target_unreachable`."""
    MISDEFINED = "remote_misdefined"
    """The target's definition is invalid, or the operator's remote is no longer configured."""
    SECRETS_LOST = "secrets_lost"
    """The secrets of the target are no longer stored."""
    ID_MISSING = "remote_id_missing"
    """The remote may have accepted the work, but its id was lost."""
    INPUT_INVALID = "remote_input_invalid"
    """The input is not what the target needs."""
    NOT_COMPLETED = "remote_not_completed"
    """The result was requested of work that has none."""
    REQUEST_INVALID = "request_invalid"
    """The call to the remote would not be valid HTTP."""
    ANSWER_TOO_LARGE = "answer_too_large"
    """The remote's response is too large."""
    URL_FORBIDDEN = "url_forbidden"
    """The egress guard refuses the address."""
    RESULT_MISSING = "remote_result_missing"
    """The remote's output has nothing at `output.path`."""
    RESULT_GONE = "remote_result_gone"
    """The remote no longer has the result. Retried."""
    RESULT_UNREADABLE = "remote_result_unreadable"
    """The result has another encoding than it should."""
    RESULT_REDIRECTS = "remote_result_redirects"
    """The result was redirected too often, or to an invalid URL."""
    RESULT_TOO_LARGE = "remote_result_too_large"
    """The result is larger than a file of a job may be."""
    RESULT_TOO_SLOW = "remote_result_too_slow"
    """The result took too long to fetch. Retried."""


class RemoteError(CoatcheckError):
    """The base class. ``perhaps_done``: the remote may have done it all the same, so a spawn must
    be repeated with the same token before anything else."""

    code: str = RemoteFailure.ERROR

    def __init__(
        self, message: str, *, code: str | None = None, perhaps_done: bool = False
    ) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.perhaps_done = perhaps_done


class RemoteUnreachable(RemoteError):
    """No connection could be made. Retry later, without spending an attempt."""

    code = RemoteFailure.UNREACHABLE


class RemoteRefused(RemoteError):
    """The remote, or what we know about it, rules this out permanently."""

    code = RemoteFailure.REFUSED


class RemoteFaulty(RemoteError):
    """The remote failed to answer. ``retry_after``: the seconds it asked for, if any."""

    code = RemoteFailure.FAULTY

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        perhaps_done: bool = True,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, code=code, perhaps_done=perhaps_done)
        self.retry_after = retry_after


class RemoteMisdefined(BadRequest):
    """A target's definition is invalid. The text says what to change."""

    code = RemoteFailure.MISDEFINED


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """Work for a remote. ``body`` is a customer's JSON and ``callback_url`` is signed, so neither
    is shown. The same ``token`` means the same work."""

    token: str
    body: bytes = field(repr=False)
    callback_url: str | None = field(default=None, repr=False)

    @property
    def public_callback_url(self) -> str | None:
        """The URL for services on the internet, which call back only over TLS."""
        url = self.callback_url
        return url if url is not None and url.startswith("https://") else None


@dataclass(frozen=True, slots=True)
class RemoteRunning:
    """Queued at the remote or running. ``progress`` is 0 to 1 if the remote reports it."""

    progress: float | None = None


@dataclass(frozen=True, slots=True)
class RemoteCompleted:
    """Finished: ``result`` returns the result."""


@dataclass(frozen=True, slots=True)
class RemoteFailed:
    """It ended without a result, for the remote's reason."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class RemoteUnknown:
    """The remote does not know the id: it never did, or has forgotten it."""


@dataclass(frozen=True, slots=True)
class RemoteUnclear:
    """The status of this id could not be determined; that of others in the same call may be."""

    error: RemoteError


RemoteStatus = RemoteRunning | RemoteCompleted | RemoteFailed | RemoteUnknown | RemoteUnclear


class Reattach(Enum):
    """How to find work again if its id was lost before it was saved."""

    SAME_TOKEN = "same_token"  # noqa: S105 - a method, not a token
    """Spawn again: the remote answers the same token with the same id."""
    FIND = "find"
    """Call ``find`` with its token before spawning again."""
    NONE = "none"
    """Impossible: spawning again runs the work twice."""


class RemoteResult:
    """A result being downloaded: its bytes are streamed and not held in memory.

    >>> async with await remote.result(remote_id) as result:
    ...     async for piece in result: ...

    Reading raises RemoteError if the download breaks off. ``length`` is None if unknown.
    ``metadata`` may have ``duration_seconds`` (of the media) and ``compute_seconds`` (of the
    computation).
    """

    def __init__(
        self,
        pieces: AsyncGenerator[bytes, None],
        *,
        media_type: str,
        length: int | None,
        metadata: Mapping[str, float] | None = None,
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.media_type = media_type
        self.length = length
        self.metadata = dict(metadata or {})
        self._pieces = pieces
        self._close = close

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._pieces

    async def aclose(self) -> None:
        """Release the connection, whether or not everything was read."""
        await self._pieces.aclose()
        if self._close is not None:
            await self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


class Remote(Protocol):
    """A service that runs functions. Every method except ``status`` raises RemoteError."""

    @property
    def reattach(self) -> Reattach: ...

    async def spawn(self, request: SpawnRequest) -> str:
        """Start the work, and return the remote's id for it."""
        ...

    async def find(self, token: str) -> str | None:
        """The id of what was spawned with ``token``; None if there is none or it cannot be known
        (see ``reattach``)."""
        ...

    async def status(self, ids: Sequence[str]) -> Mapping[str, RemoteStatus]:
        """The status of every one of ``ids``; a failure for one id makes that one Unclear and does
        not affect the others."""
        ...

    async def result(self, remote_id: str) -> RemoteResult:
        """The result of completed work."""
        ...

    async def cancel(self, remote_id: str) -> None:
        """Request cancellation. Work that has ended or is unknown is ignored."""
        ...
