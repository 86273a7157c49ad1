"""Payloads of jobs that a remote target of the service catalogue runs."""

from __future__ import annotations

from typing import Final

from coatcheck.core.upstream_calls import check_sealed
from coatcheck.domain.catalogue import EndpointSpec
from coatcheck.domain.remote_work import Destination, encode_work

OPERATORS_PREFIX: Final = "remotes."
"""Before the name of a remote in COATCHECK_REMOTES, in a destination."""
RETRY_FAILED: Final = "retry_failed"
"""In a destination's note: what the remote says has failed is tried again, as new work."""
_ANY_BODY: Final = b"null"


def remote_payload(spec: EndpointSpec, given: bytes) -> bytes:
    """The job's payload. It names the target's secrets, and holds none: the worker opens those that
    are valid when it makes the call."""
    to = _destination(spec, retry_failed=spec.retries is not None)
    return encode_work(to, given)


def remote_fingerprint(spec: EndpointSpec, given: bytes) -> bytes:
    """What makes two requests the same: not the target, which may have been registered anew."""
    return f"{spec.queue_key}\0".encode() + given


def work_frame(spec: EndpointSpec, retries: int | None = None) -> tuple[bytes, bytes]:
    """What stands before and after the input in the payload of such a job; ``retries`` are those
    that its batch asks for, if it does."""
    asked_for = spec.retries if retries is None else retries
    to = _destination(spec, retry_failed=asked_for is not None)
    before, _, after = encode_work(to, _ANY_BODY).rpartition(_ANY_BODY)
    return before, after


def _destination(spec: EndpointSpec, *, retry_failed: bool) -> Destination:
    assert spec.remote is not None
    definition = spec.remote.definition
    note = {RETRY_FAILED: True} if retry_failed else {}
    if definition["adapter"] == "operator":
        name = OPERATORS_PREFIX + definition["name"]
        return Destination(operator=name, note=note, run_seconds=spec.timeout_seconds)
    check_sealed(spec.remote)
    return Destination(
        target=dict(definition),
        secrets_id=spec.remote.secrets_id,
        note=note,
        run_seconds=spec.timeout_seconds,
    )
