"""What every remote can be asked, whoever runs it: spawn, find, status, result, cancel.

An adapter knows of no job. It is given a token and a body, and gives back the id under which the
remote keeps the work; with that id, which outlives every process of ours, all else is asked.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Protocol, Self

from coatcheck.remotes.errors import RemoteError


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """Work for a remote. ``body`` is JSON, a customer's; ``callback_url`` is signed: neither is
    shown. The same ``token`` means the same work."""

    token: str
    body: bytes = field(repr=False)
    callback_url: str | None = field(default=None, repr=False)

    @property
    def public_callback_url(self) -> str | None:
        """The URL for services on the internet: they call back over TLS, or refuse the work."""
        url = self.callback_url
        return url if url is not None and url.startswith("https://") else None


@dataclass(frozen=True, slots=True)
class Running:
    """Waiting over there, or being worked on. ``progress`` is 0 to 1 where the remote says it."""

    progress: float | None = None


@dataclass(frozen=True, slots=True)
class Completed:
    """Done: ``result`` has it."""


@dataclass(frozen=True, slots=True)
class Failed:
    """It ended without a result, for the reason that the remote gives."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """The remote has no such id: it never had, or has forgotten."""


@dataclass(frozen=True, slots=True)
class Unclear:
    """This one could not be found out about; the others of the same question may have been."""

    error: RemoteError


RemoteStatus = Running | Completed | Failed | Unknown | Unclear

FAILED_THERE = "remote_failed"
CANCELLED_THERE = "remote_cancelled"
TIMED_OUT_THERE = "remote_timed_out"


class Reattach(Enum):
    """How work is found again whose id was lost before it was saved."""

    SAME_TOKEN = "same_token"  # noqa: S105 - a way, not a token
    """Spawn again: the same token is answered with the same id."""
    FIND = "find"
    """``find`` it by its token before spawning again."""
    NONE = "none"
    """Not at all: to spawn again is to have it done twice."""


class RemoteResult:
    """A result on its way: its bytes come as they are read, and are held nowhere.

    >>> async with await remote.result(remote_id) as result:
    ...     async for piece in result: ...

    Reading raises RemoteError if it breaks off. ``length`` is None where it is not known before.
    ``metadata`` may have ``duration_seconds`` (of what was made) and ``compute_seconds`` (of the
    making).
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
        """Let go of the connection, whether or not everything was read."""
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
    """A place where functions run. Every method but ``status`` raises RemoteError."""

    @property
    def reattach(self) -> Reattach: ...

    async def spawn(self, request: SpawnRequest) -> str:
        """Have it done, and give the id under which it is kept over there."""
        ...

    async def find(self, token: str) -> str | None:
        """The id of what was spawned with ``token``; None if there is none, or it cannot be told
        (see ``reattach``)."""
        ...

    async def status(self, ids: Sequence[str]) -> Mapping[str, RemoteStatus]:
        """How each of them stands. Has every one of ``ids``; what went wrong with one is Unclear,
        and no reason to lose the others."""
        ...

    async def result(self, remote_id: str) -> RemoteResult:
        """What came of a completed one."""
        ...

    async def cancel(self, remote_id: str) -> None:
        """Ask for it to be stopped. What has ended, or is not known, is left at that."""
        ...
