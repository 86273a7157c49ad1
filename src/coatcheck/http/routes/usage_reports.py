"""The routes and the webhook payload of usage reports, one for each day, week or month."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from http import HTTPStatus
from typing import Final, Literal

import msgspec

from coatcheck.core import Engine
from coatcheck.core.webhook_payloads import SubjectRenderer
from coatcheck.domain.errors import NotFound
from coatcheck.domain.ids import InvalidId, from_text, to_text
from coatcheck.domain.limits import USAGE_REPORTS_KEPT_DAYS
from coatcheck.domain.tenants import Scope
from coatcheck.domain.usage import UsageReport, UsageReportItem, UsageTotals
from coatcheck.domain.webhooks import DeliveryEvent, SubjectKind
from coatcheck.http.parameters import refuse_unknown
from coatcheck.http.request import Request
from coatcheck.http.response import Response, json_response
from coatcheck.http.routes.usage import FORMATS, csv_table, wants_csv
from coatcheck.http.routing import ULID, Parameter, ResponseSpec, Route

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


def routes(engine: Engine) -> list[Route]:
    """``/api/v1/orgs/{org}/usage/reports``."""

    async def show_all(request: Request) -> Response:
        refuse_unknown(request.query, ())
        found = await engine.usage_reports(request.principal.org)
        return json_response(UsageReports([_summary(each) for each in found]))

    async def show(request: Request) -> Response:
        refuse_unknown(request.query, ("format",))
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

    return [
        Route(
            methods=["GET"],
            path=_PATH,
            name="usage_reports",
            summary="List the organisation's usage reports, newest first.",
            description="Each is made once, an hour after its day, week or month (UTC) has ended, "
            f"and kept for {USAGE_REPORTS_KEPT_DAYS} days. COATCHECK_USAGE_REPORTS says which "
            "are made.",
            handler=show_all,
            access=Scope.READ,
            operable=True,
            responses=[
                ResponseSpec(HTTPStatus.OK, "The reports, without their items.", UsageReports)
            ],
            tag="organisations",
        ),
        Route(
            methods=["GET"],
            path=_PATH + "/{id}",
            name="usage_report",
            summary="Show a usage report.",
            description="`Accept: text/csv` or `format=csv` gives a table of its items.",
            handler=show,
            access=Scope.READ,
            operable=True,
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
            tag="organisations",
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
