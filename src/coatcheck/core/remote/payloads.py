"""Payloads of jobs that a remote target of the service catalogue runs."""

from __future__ import annotations

from typing import Final

from coatcheck.core.upstream_calls import check_sealed
from coatcheck.domain.catalogue import EndpointSpec
from coatcheck.domain.remote_work import Destination, encode_work

OPERATORS_PREFIX: Final = "remotes."
"""In a destination: the prefix of the name of a remote in COATCHECK_REMOTES."""
RETRY_FAILED: Final = "retry_failed"
"""In a destination's note: work that the remote reports as failed is retried, as new work."""
_ANY_BODY: Final = b"null"


def remote_payload(spec: EndpointSpec, given: bytes) -> bytes:
    """The payload of a job. It refers to the target's secrets and holds none: the worker opens
    those that are valid at the call."""
    to = _destination(spec, retry_failed=spec.retries is not None)
    return encode_work(to, given)


def remote_fingerprint(spec: EndpointSpec, given: bytes) -> bytes:
    """The fingerprint of a request. Not of the target, which may have been registered anew."""
    return f"{spec.queue_key}\0".encode() + given


def work_frame(spec: EndpointSpec, retries: int | None = None) -> tuple[bytes, bytes]:
    """The parts of such a payload before and after the input. ``retries`` are those of the batch,
    if it sets some."""
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
