"""What tells one use of an idempotency key from another: the options of a request, and its list.

The two are told apart, so that a request whose key is known can be compared by its options alone:
a list of gigabytes is read only for a caller who is strict.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from coatcheck.domain.errors import IdempotencyMismatch
from coatcheck.domain.limits import LIST_BYTES_MAX, PAYLOAD_BYTES_MAX
from coatcheck.http.prefer_header import Preferences
from coatcheck.http.request import LIST_SECONDS_MAX, Call
from coatcheck.http.response import RawHeaders
from coatcheck.products.batches import task_lists as lists
from coatcheck.products.batches.model import Known
from coatcheck.products.batches.task_lists import Taken


def comes_as_list(call: Call) -> bool:
    """Whether the body is the list itself."""
    given = call.header(b"content-type") or ""
    return given.partition(";")[0].strip().lower() == lists.MEDIA_TYPE


async def fingerprint(call: Call, taken: Taken | None) -> bytes:
    """Of a request whose list, if its body is one, was taken."""
    if comes_as_list(call):
        assert taken is not None, "its body was a list"
        return _options(call) + taken.sha256
    body = await call.body(PAYLOAD_BYTES_MAX)
    return _options(call) + hashlib.sha256(body).digest()


async def marked(call: Call, taken: Taken, key: str | None) -> Taken:
    """What was taken, with the key that it came with."""
    if key is None:
        return taken
    part = replace(taken.part, idempotency_key=key, fingerprint=await fingerprint(call, taken))
    return replace(taken, part=part)


async def is_same(call: Call, known: Known, preferences: Preferences, *, is_list: bool) -> bool:
    """Whether a request is the one that its key first came with, as far as it is read."""
    before = known.fingerprint or b""
    if not before.startswith(_options(call)):
        return False
    if not is_list:
        body = await call.body(PAYLOAD_BYTES_MAX)
        return before.endswith(hashlib.sha256(body).digest())
    if not preferences.strict:
        return True
    digest = hashlib.sha256()
    async for piece in call.pieces(LIST_BYTES_MAX, LIST_SECONDS_MAX):
        digest.update(piece)
    return before.endswith(digest.digest())


def replayed(*, same: bool, preferences: Preferences) -> RawHeaders:
    """What tells a caller that the idempotency key was known. Raises IdempotencyMismatch."""
    if same:
        return [(b"idempotent-replayed", b"true")]
    if preferences.strict:
        raise IdempotencyMismatch(
            "The idempotency key is known, and came with another payload then."
        )
    return [(b"idempotent-replayed", b"true"), (b"idempotency-mismatch", b"true")]


def _options(call: Call) -> bytes:
    said = sorted((name, text) for name, text in call.query.items() if name != "wait")
    return hashlib.sha256(repr((comes_as_list(call), said)).encode()).digest()
