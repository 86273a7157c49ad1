"""Filters for an organisation's jobs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from coatcheck.client.batch_request import given


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
