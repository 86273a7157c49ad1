"""The errors of calls to a remote, the same for all adapters.

RemoteError
├── RemoteUnreachable     no connection could be made: nothing happened; costs no attempt
├── RemoteRefused         it refused, and a retry would be refused as well
└── RemoteFaulty          it failed, hung or sent garbage: worth a retry

Their texts are short and contain no secrets: adapters make them with ``caller.py``.
"""

from __future__ import annotations

from typing import Final

from coatcheck.domain.errors import BadRequest, CoatcheckError

RESULT_TOO_SLOW: Final = "remote_result_too_slow"


class RemoteError(CoatcheckError):
    """The base class. ``perhaps_done``: the remote may have done it all the same, so a spawn must
    be repeated with the same token before anything else."""

    code = "remote_error"

    def __init__(
        self, message: str, *, code: str | None = None, perhaps_done: bool = False
    ) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.perhaps_done = perhaps_done


class RemoteUnreachable(RemoteError):
    """No connection could be made. Retry later, without spending an attempt."""

    code = "remote_unreachable"


class RemoteRefused(RemoteError):
    """The remote, or what we know about it, rules this out permanently."""

    code = "remote_refused"


class RemoteFaulty(RemoteError):
    """The remote failed to answer. ``retry_after``: the seconds it asked for, if any."""

    code = "remote_faulty"

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

    code = "remote_misdefined"
