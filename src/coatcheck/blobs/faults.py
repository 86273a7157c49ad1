"""Which errors of a store may pass, and what is said of those that do not.

obstore has one class for most of what goes wrong, and the rest in its text: the status of an
answer, the number of a system error, and the address that was called, with whatever secret that
carries. So its text is read here, and shown to nobody.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Final, TypeVar

from obstore.exceptions import (
    BaseError,
    GenericError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from coatcheck.domain.errors import BlobChanged, BlobStoreUnavailable
from coatcheck.domain.retry import Backoff

Result = TypeVar("Result")

_STATUS: Final = re.compile(r"status code: (\d{3})")
_SYSTEM_ERROR: Final = re.compile(r"\(os error (\d+)\)")
_PASSING_STATUSES: Final = {
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.TOO_EARLY,
    HTTPStatus.TOO_MANY_REQUESTS,
}
_LASTING_SYSTEM_ERRORS: Final = {
    errno.EACCES,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOSPC,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
}


def may_pass(error: BaseError) -> bool:
    """Whether the same call might succeed in a moment.

    A server that is overloaded or broken, a connection that failed and a passing error of a disk
    might. A refusal stays one, and a full disk full.
    """
    if not isinstance(error, GenericError):
        return False
    if status := _number(_STATUS, error):
        return status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _PASSING_STATUSES
    return _number(_SYSTEM_ERROR, error) not in _LASTING_SYSTEM_ERRORS


def cannot_sign(error: BaseError) -> bool:
    """Whether a URL was not signed because our credential is none to sign with."""
    return "SASforSASNotSupported" in str(error)


def explained(error: BaseError) -> BlobStoreUnavailable:
    """The error for those who asked: no address, no name of a blob, no credential."""
    return BlobStoreUnavailable(f"the blob store failed: {_reason(error)}")


def _reason(error: BaseError) -> str:
    if isinstance(error, PermissionDeniedError):
        return "it denies access"
    if isinstance(error, UnauthenticatedError):
        return "it does not accept the credentials"
    if status := _number(_STATUS, error):
        return f"it answered with the status {status}"
    if number := _number(_SYSTEM_ERROR, error):
        return os.strerror(number)
    if isinstance(error, GenericError):
        return "no usable answer came"
    return type(error).__name__


def _number(pattern: re.Pattern[str], error: BaseError) -> int | None:
    found = pattern.search(str(error))
    return int(found[1]) if found else None


@contextmanager
def explaining() -> Iterator[None]:
    """Raise a store's errors inside as ``BlobStoreUnavailable``; none is told in its own words.

    A FileNotFoundError stays one: it is an answer. So is BlobChanged.
    """
    try:
        yield
    except PreconditionError:
        raise BlobChanged("the blob is no longer the one that was asked for") from None
    except BaseError as error:
        raise explained(error) from None
    except FileNotFoundError as error:
        if error.errno is not None:
            raise  # the system's, about a file of the caller's own
        raise FileNotFoundError("there is no such blob") from None


@contextmanager
def explaining_a_write() -> Iterator[None]:
    """As ``explaining``; but what is not found when something is written is the container."""
    try:
        with explaining():
            yield
    except FileNotFoundError as error:
        if error.errno is not None:
            raise
        raise BlobStoreUnavailable("the blob store failed: it has no such container") from None


async def retried(
    operation: Callable[[], Awaitable[Result]], backoff: Backoff, retries: int
) -> Result:
    """Run something that may safely run twice, again while it fails in ways that may pass."""
    for failures in range(retries):
        try:
            return await operation()
        except BaseError as error:
            if not may_pass(error):
                raise
        await asyncio.sleep(backoff.delay(failures, random.random()))
    return await operation()


async def retried_stream(
    source: Callable[[], AsyncIterator[Result]], backoff: Backoff, retries: int
) -> AsyncIterator[Result]:
    """As ``retried``, for what comes bit by bit: it begins anew, so that some may come twice."""
    for failures in range(retries):
        try:
            async for item in source():
                yield item
        except BaseError as error:
            if not may_pass(error):
                raise
        else:
            return
        await asyncio.sleep(backoff.delay(failures, random.random()))
    async for item in source():
        yield item
