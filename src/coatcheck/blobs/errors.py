"""Classifies errors of blob stores: which are transient, and what callers see of the others.

obstore raises one class for most failures and puts the rest into the text: the response's status,
the system error number, and the URL that was called, with any secret it carries. So this module
parses that text, and never shows it.
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
    """Whether the same call might succeed a moment later.

    Overloaded or broken servers, failed connections and transient disk errors might recover. A
    denial stays a denial, and a full disk stays full.
    """
    if not isinstance(error, GenericError):
        return False
    if status := _number(_STATUS, error):
        return status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in _PASSING_STATUSES
    return _number(_SYSTEM_ERROR, error) not in _LASTING_SYSTEM_ERRORS


def cannot_sign(error: BaseError) -> bool:
    """Whether signing failed because our credential cannot sign URLs."""
    return "SASforSASNotSupported" in str(error)


def explained(error: BaseError) -> BlobStoreUnavailable:
    """The error that callers see: no address, no blob name, no credential."""
    return BlobStoreUnavailable(f"the blob store failed: {_reason(error)}")


def _reason(error: BaseError) -> str:
    if isinstance(error, PermissionDeniedError):
        return "access denied"
    if isinstance(error, UnauthenticatedError):
        return "it rejected the credentials"
    if status := _number(_STATUS, error):
        return f"it answered with status {status}"
    if number := _number(_SYSTEM_ERROR, error):
        return os.strerror(number)
    if isinstance(error, GenericError):
        return "it sent no usable response"
    return type(error).__name__


def _number(pattern: re.Pattern[str], error: BaseError) -> int | None:
    found = pattern.search(str(error))
    return int(found[1]) if found else None


@contextmanager
def explaining() -> Iterator[None]:
    """Convert a store's errors to ``BlobStoreUnavailable``, without the store's own text.

    FileNotFoundError and BlobChanged are answers, and stay as they are.
    """
    try:
        yield
    except PreconditionError:
        raise BlobChanged("the blob was replaced") from None
    except BaseError as error:
        raise explained(error) from None
    except FileNotFoundError as error:
        if error.errno is not None:
            raise  # from the system, about a file of the caller's
        raise FileNotFoundError("no such blob") from None


@contextmanager
def explaining_a_write() -> Iterator[None]:
    """Like ``explaining``, for writes: there "not found" means that the container is missing."""
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
    """Run an idempotent operation, and retry it on transient errors."""
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
    """Like ``retried``, for a stream. A retry starts over, so items may repeat."""
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
