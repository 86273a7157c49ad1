"""What an organisation has used: by day and endpoint, as JSON or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from http import HTTPStatus
from typing import Final

import msgspec

from coatcheck.control.call import Call
from coatcheck.control.operations import Answer, Operation, Parameter
from coatcheck.control.queries import read_choice, refuse_unknown
from coatcheck.control.reply import Reply, json_reply
from coatcheck.domain.errors import InvalidParameter
from coatcheck.domain.identity import Scope
from coatcheck.domain.usage import UsageRow
from coatcheck.engine import Engine

DAYS: Final = 30
DAYS_MAX: Final = 366
_FORMATS: Final = ("json", "csv")


class UsageDay(msgspec.Struct, frozen=True):
    """One endpoint's jobs that ended on one day (UTC); ``flow`` tells http upstreams apart."""

    day: date
    endpoint: str
    flow: str
    jobs: int
    completed: int
    failed: int
    cancelled: int
    attempts: int
    run_seconds: float
    payload_bytes: int
    result_bytes: int


class Usage(msgspec.Struct, frozen=True):
    """An organisation's usage, oldest day first."""

    org_id: str
    first_day: date
    last_day: date
    items: list[UsageDay]


def operations(engine: Engine) -> list[Operation]:
    """``/api/v1/orgs/{org}/usage``."""

    async def show(call: Call) -> Reply:
        query, org = call.query, call.principal.org
        refuse_unknown(query, ("from", "to", "format"))
        last = _day(query.get("to"), "to") or datetime.now(UTC).date()
        first = _day(query.get("from"), "from") or _before(last)
        if not timedelta() <= last - first < timedelta(days=DAYS_MAX):
            raise InvalidParameter("from", f"must lie before `to`, at most {DAYS_MAX} days")
        rows = [_shown(row) for row in await engine.usage(org, first, last)]
        if _wants_csv(call):
            return Reply(HTTPStatus.OK, _csv(rows), [(b"content-type", b"text/csv; charset=utf-8")])
        return json_reply(Usage(org, first, last, rows))

    return [
        Operation(
            methods=["GET"],
            path="/api/v1/orgs/{org}/usage",
            name="usage",
            summary="What the organisation has used, by day and endpoint.",
            description="Exact up to the last job that ended. `Accept: text/csv` or `format=csv` "
            "for a table.",
            handler=show,
            access=Scope.READ,
            operable=True,
            parameters=[
                Parameter("from", "query", "The first day (UTC).", _DATE),
                Parameter("to", "query", "The last day (UTC); today, if it is left out.", _DATE),
                Parameter("format", "query", "How to show it.", {"enum": list(_FORMATS)}),
            ],
            answers=[
                Answer(HTTPStatus.OK, "The usage.", Usage, also={"text/csv": {"type": "string"}})
            ],
            tag="organisations",
        )
    ]


_DATE: Final = {"type": "string", "format": "date"}


def _day(given: str | None, name: str) -> date | None:
    if given is None:
        return None
    try:
        day = date.fromisoformat(given)
    except ValueError:
        day = None
    # Weeks, and days without their hyphens, are ISO 8601 and not RFC 3339.
    if day is None or day.isoformat() != given:
        raise InvalidParameter(name, "must be a day such as 2026-01-31")
    return day


def _before(last: date) -> date:
    """The first day of the time that is shown if none is asked for."""
    if last - date.min < timedelta(days=DAYS):
        raise InvalidParameter("to", "is before the days that there are")
    return last - timedelta(days=DAYS - 1)


def _wants_csv(call: Call) -> bool:
    chosen = read_choice(call.query, "format", _FORMATS)
    if chosen is not None:
        return chosen == "csv"
    return "text/csv" in (call.header(b"accept") or "")


def _shown(row: UsageRow) -> UsageDay:
    return UsageDay(
        day=row.day,
        endpoint=row.endpoint,
        flow=row.flow,
        jobs=row.jobs,
        completed=row.completed,
        failed=row.failed,
        cancelled=row.cancelled,
        attempts=row.attempts,
        run_seconds=round(row.run_seconds, 3),
        payload_bytes=row.payload_bytes,
        result_bytes=row.result_bytes,
    )


def _csv(rows: Sequence[UsageDay]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(UsageDay.__struct_fields__)
    for row in rows:
        writer.writerow(_harmless(value) for value in msgspec.structs.astuple(row))
    return text.getvalue().encode()


def _harmless(value: object) -> object:
    """A name that a spreadsheet would take for a formula is shown as text."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value
