"""Builds the requests for batches and for lists of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from coatcheck.client.request_headers import Headers, submission_headers
from coatcheck.encoding import encode

_KEY_HEADERS: Final = frozenset({"idempotency-key", "x-idempotency-key"})
_SPELT_OUT: Final = frozenset({"rate", "webhook_events", "metadata"})


def batch_options(
    *,
    service: str,
    endpoint: str,
    version: int | None,
    is_open: bool,
    asynchronous: bool,
    lane: str | None,
    concurrency: int | None,
    rate: float | None,
    rate_key: str | None,
    key_rate: float | None,
    retries: int | None,
    keep_seconds: int | None,
    webhook_url: str | None,
    webhook_events: Iterable[str] | None,
    metadata: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """All options except the tasks. The server chooses defaults for those not given."""
    rates = given(per_second=rate, key=rate_key, key_per_second=key_rate)
    return {
        "service": service,
        "endpoint": endpoint,
        **({"type": "open"} if is_open else {}),
        **({"async": True} if asynchronous else {}),
        **given(
            version=version,
            lane=lane,
            concurrency=concurrency,
            rate=rates or None,
            retries=retries,
            keep_seconds=keep_seconds,
            webhook_url=webhook_url,
            webhook_events=None if webhook_events is None else list(webhook_events),
            metadata=metadata,
        ),
    }


def query_options(options: Mapping[str, Any]) -> dict[str, str]:
    """The same options as a query, for a request whose body is the list itself."""
    query = {name: _text(value) for name, value in options.items() if name not in _SPELT_OUT}
    for name, value in options.get("rate", {}).items():
        query[f"rate_{name}"] = _text(value)
    if "webhook_events" in options:
        query["webhook_events"] = ",".join(options["webhook_events"])
    if "metadata" in options:
        query["metadata"] = encode(options["metadata"]).decode()
    return query


def _text(value: Any) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def given(**fields: Any) -> dict[str, Any]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """A request with tasks: its URL, its other options, and its key if it has one."""

    url: str
    options: Mapping[str, Any]
    idempotency_key: str | None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_own_key(self) -> bool:
        """Whether the caller chose a key, and may repeat the request with it."""
        names = {name.lower() for name in self.headers}
        return self.idempotency_key is not None or not names.isdisjoint(_KEY_HEADERS)

    def sent_headers(self, media_type: str = "application/json") -> Headers:
        """Its headers. Without a key from the caller, a new one is used."""
        return keyed_headers(self.idempotency_key, {**self.headers, "Content-Type": media_type})


def keyed_headers(idempotency_key: str | None, headers: Mapping[str, str] | None = None) -> Headers:
    """The headers of a request that creates something; without a key, a new one is used."""
    return submission_headers(
        method="POST",
        lane=None,
        idempotency_key=idempotency_key,
        wait=None,
        given=headers,
        has_body=True,
    )


def rerun_body(
    status: str | Iterable[str] | None, error_code: str | Iterable[str] | None, run: str | None
) -> bytes:
    """The body of a rerun; without arguments, of the whole batch."""
    chosen = given(status=_plain(status), error_code=_plain(error_code))
    return encode(given(filter=chosen or None, run=run))


def _plain(texts: str | Iterable[str] | None) -> str | list[str] | None:
    return texts if texts is None or isinstance(texts, str) else list(texts)


def job_filter(
    *,
    state: str | Iterable[str] | None = None,
    lane: str | None = None,
    surface: str | None = None,
    service: str | None = None,
    endpoint: str | None = None,
    error_code: str | None = None,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
    **others: Any,
) -> dict[str, Any]:
    """The filter as request fields; those not given are omitted."""
    return given(
        state=state if state is None or isinstance(state, str) else ",".join(state),
        lane=lane,
        surface=surface,
        service=service,
        endpoint=endpoint,
        error_code=error_code,
        created_after=_moment(created_after),
        created_before=_moment(created_before),
        **others,
    )


def _moment(moment: datetime | None) -> str | None:
    if moment is not None and moment.tzinfo is None:
        raise ValueError("the time needs a time zone, such as datetime.now(UTC)")
    return None if moment is None else moment.isoformat()
