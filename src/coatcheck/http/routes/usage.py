"""An organisation's usage by day or hour and endpoint, as JSON or CSV; and the routes and the
webhook payload of usage reports, one for each day, week or month."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Final, Literal

import msgspec

from coatcheck.core import Engine
from coatcheck.core.webhook_payloads import SubjectRenderer
from coatcheck.domain.errors import InvalidParameter, NotFound
from coatcheck.domain.ids import InvalidId, from_text, to_text
from coatcheck.domain.limits import (
    USAGE_DAYS_MAX,
    USAGE_HOURLY_DAYS_MAX,
    USAGE_HOURS_KEPT_DAYS,
    USAGE_REPORTS_KEPT_DAYS,
)
from coatcheck.domain.tenants import Scope
from coatcheck.domain.usage import Granularity, UsageReport, UsageReportItem, UsageRow, UsageTotals
from coatcheck.domain.webhooks import DeliveryEvent, SubjectKind
from coatcheck.http.parameters import read_choice
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response
from coatcheck.http.routing import ULID, Parameter, ResponseSpec, Route

DAYS: Final = 30
HOURLY_DAYS: Final = 2
"""The days that are shown by default."""
FORMATS: Final = ("json", "csv")


class UsageItem(msgspec.Struct, frozen=True):
    """The jobs of one endpoint that ended on one day (UTC), or in the hour that begins at ``hour``.
    ``flow`` distinguishes HTTP upstreams."""

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
    hour: datetime | msgspec.UnsetType = msgspec.UNSET


class UsageBody(msgspec.Struct, frozen=True):
    """An organisation's usage, the oldest day or hour first."""

    org_id: str
    first_day: date
    last_day: date
    items: list[UsageItem]


def usage_routes(engine: Engine) -> list[Route]:
    """``/api/v1/orgs/{org}/usage``."""

    async def show(request: Request) -> Response:
        query, org = request.query, request.principal.org
        step = Granularity(read_choice(query, "granularity", [*Granularity]) or Granularity.DAY)
        hourly = step is Granularity.HOUR
        last = _day(query.get("to"), "to") or datetime.now(UTC).date()
        first = _day(query.get("from"), "from") or _before(last, HOURLY_DAYS if hourly else DAYS)
        days_max = USAGE_HOURLY_DAYS_MAX if hourly else USAGE_DAYS_MAX
        if not timedelta() <= last - first < timedelta(days=days_max):
            raise InvalidParameter("from", f"must be before `to`, by at most {days_max} days")
        used = await engine.usage(org, first, last, granularity=step)
        rows = [_shown(row) for row in used]
        if wants_csv(request):
            return csv_response(rows, hourly=hourly)
        return json_response(UsageBody(org, first, last, rows))

    return [
        Route(
            methods=["GET"],
            path="/api/v1/orgs/{org}/usage",
            name="usage",
            summary="The organisation's usage, by day or hour and endpoint.",
            description="Exact, including the last job that ended. `Accept: text/csv` or "
            "`format=csv` gives a table. Days are kept for ever, hours for "
            f"{USAGE_HOURS_KEPT_DAYS} days.",
            handler=show,
            access=Scope.READ,
            operable=True,
            parameters=[
                Parameter("from", "query", "The first day (UTC).", _DATE),
                Parameter("to", "query", "The last day (UTC); today by default.", _DATE),
                Parameter(
                    "granularity",
                    "query",
                    "The period of an item: a day (the default), or an hour, for at most "
                    f"{USAGE_HOURLY_DAYS_MAX} days. Items of hours have `hour`.",
                    {"enum": [*Granularity]},
                ),
                Parameter("format", "query", "The format.", {"enum": list(FORMATS)}),
            ],
            responses=[
                ResponseSpec(
                    HTTPStatus.OK, "The usage.", UsageBody, also={"text/csv": {"type": "string"}}
                )
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
    # Weeks, and days without hyphens, are valid in ISO 8601 but not in RFC 3339.
    if day is None or day.isoformat() != given:
        raise InvalidParameter(name, "must be a day such as 2026-01-31")
    return day


def _before(last: date, days: int) -> date:
    """The first day by default."""
    if last - date.min < timedelta(days=days):
        raise InvalidParameter("to", "is too early")
    return last - timedelta(days=days - 1)


def wants_csv(request: Request) -> bool:
    chosen = read_choice(request.query, "format", FORMATS)
    if chosen is not None:
        return chosen == "csv"
    return "text/csv" in (request.header(b"accept") or "")


def _shown(row: UsageRow) -> UsageItem:
    return UsageItem(
        day=row.day,
        endpoint=row.endpoint,
        flow=row.queue_key,
        jobs=row.jobs,
        completed=row.completed,
        failed=row.failed,
        cancelled=row.cancelled,
        attempts=row.attempts,
        run_seconds=round(row.run_seconds, 3),
        payload_bytes=row.payload_bytes,
        result_bytes=row.result_bytes,
        hour=row.hour or msgspec.UNSET,
    )


def csv_response(rows: Sequence[UsageItem], *, hourly: bool) -> Response:
    """The rows as a CSV table, with a column ``hour`` if they are hourly."""
    day, *rest = (name for name in UsageItem.__struct_fields__ if name != "hour")
    names = [day, *(["hour"] if hourly else []), *rest]
    return csv_table(names, [msgspec.to_builtins(row) for row in rows])


def csv_table(names: Sequence[str], rows: Iterable[Mapping[str, object]]) -> Response:
    """A CSV table with a header line, and a line for each row."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(names)
    for row in rows:
        writer.writerow(_harmless(row[name]) for name in names)
    headers = [(b"content-type", b"text/csv; charset=utf-8")]
    return Response(HTTPStatus.OK, text.getvalue().encode(), headers)


def _harmless(value: object) -> object:
    """The value, with a quote before text that a spreadsheet would take for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value


_PATH: Final = "/api/v1/orgs/{org}/usage/reports"


class UsageReportSummary(msgspec.Struct, frozen=True):
    """A report without its items: the usage from ``first_day`` to ``last_day`` (UTC)."""

    id: str
    period: Literal["day", "week", "month"]
    first_day: date
    last_day: date
    created_at: datetime
    totals: UsageTotals


class UsageReportDocument(UsageReportSummary, frozen=True):
    """A report: its totals, and the usage of each endpoint and queue key (``flow``)."""

    org_id: str
    items: list[UsageReportItem]


class UsageReports(msgspec.Struct, frozen=True):
    """An organisation's reports, the newest period first."""

    items: list[UsageReportSummary]


def report_routes(engine: Engine) -> list[Route]:
    """``/api/v1/orgs/{org}/usage/reports``."""

    async def show_all(request: Request) -> Response:
        found = await engine.usage_reports(request.principal.org)
        return json_response(UsageReports([_summary(each) for each in found]))

    async def show(request: Request) -> Response:
        org = request.principal.org
        as_csv = wants_csv(request)
        try:
            report = await engine.usage_report(org, from_text(request.params["id"]))
        except InvalidId:
            report = None
        if report is None:
            raise NotFound("the report does not exist")
        if as_csv:
            rows = [msgspec.to_builtins(item) for item in report.items]
            return csv_table(UsageReportItem.__struct_encode_fields__, rows)
        return json_response(_document(org, report))

    route = partial(Route, access=Scope.READ, operable=True, tag="organisations")
    return [
        route(
            methods=["GET"],
            path=_PATH,
            name="usage_reports",
            summary="List the organisation's usage reports, newest first.",
            description="Each is made once, an hour after its day, week or month (UTC) has ended, "
            f"and kept for {USAGE_REPORTS_KEPT_DAYS} days. COATCHECK_USAGE_REPORTS says which "
            "are made.",
            handler=show_all,
            responses=[
                ResponseSpec(HTTPStatus.OK, "The reports, without their items.", UsageReports)
            ],
        ),
        route(
            methods=["GET"],
            path=_PATH + "/{id}",
            name="usage_report",
            summary="Show a usage report.",
            description="`Accept: text/csv` or `format=csv` gives a table of its items.",
            handler=show,
            parameters=[
                Parameter("id", "path", "The report's id.", ULID),
                Parameter("format", "query", "The format.", {"enum": list(FORMATS)}),
            ],
            responses=[
                ResponseSpec(
                    HTTPStatus.OK,
                    "The report.",
                    UsageReportDocument,
                    also={"text/csv": {"type": "string"}},
                )
            ],
        ),
    ]


class NotifiedUsageReport(msgspec.Struct, frozen=True):
    """The webhook payload of a report. ``totals`` is null once the report was deleted."""

    id: str
    period: str
    first_day: str
    last_day: str
    totals: UsageTotals | None


def renderers(engine: Engine) -> Mapping[SubjectKind, SubjectRenderer]:
    """The renderers of webhook payloads, for ``core/webhook_payloads.py``."""

    async def report(event: DeliveryEvent) -> NotifiedUsageReport:
        found = await engine.usage_report(event.org, event.subject)
        facts = event.facts
        return NotifiedUsageReport(
            to_text(event.subject),
            facts["period"],
            facts["first_day"],
            facts["last_day"],
            None if found is None else found.totals,
        )

    return {SubjectKind.USAGE: report}


def _summary(report: UsageReport) -> UsageReportSummary:
    return UsageReportSummary(
        id=to_text(report.id),
        period=report.period,  # type: ignore[arg-type]
        first_day=report.first_day,
        last_day=report.last_day,
        created_at=report.created_at,
        totals=report.totals,
    )


def _document(org: str, report: UsageReport) -> UsageReportDocument:
    summary = _summary(report)
    return UsageReportDocument(
        **msgspec.structs.asdict(summary), org_id=org, items=list(report.items)
    )
