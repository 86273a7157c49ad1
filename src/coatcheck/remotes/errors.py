"""What can go wrong between us and a remote, in one vocabulary for all adapters.

RemoteError
├── RemoteUnreachable     no connection could be made: nothing happened; costs no attempt
├── RemoteRefused         it says no, and will say no again
└── RemoteFaulty          it broke, hung or talked nonsense: worth another try

Their texts are short, and hold nothing that is secret: adapters make them with ``texts.py``.
"""

from __future__ import annotations

from typing import Final

from coatcheck.domain.errors import BadRequest, CoatcheckError

RESULT_TOO_SLOW: Final = "remote_result_too_slow"


class RemoteError(CoatcheckError):
    """The root. ``perhaps_done``: the remote may have done what it was asked all the same, so
    whoever spawned asks again with the same token before anything else."""

    code = "remote_error"

    def __init__(
        self, message: str, *, code: str | None = None, perhaps_done: bool = False
    ) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        self.perhaps_done = perhaps_done


class RemoteUnreachable(RemoteError):
    """Nobody could be connected to. Try later, without spending an attempt."""

    code = "remote_unreachable"


class RemoteRefused(RemoteError):
    """The remote, or what is known of it, rules this out for good."""

    code = "remote_refused"


class RemoteFaulty(RemoteError):
    """The remote failed at answering. ``retry_after``: the seconds it asked for, if it did."""

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
    """A target's definition cannot be used. Its text says what to change."""

    code = "remote_misdefined"
