"""The names and units of the HTTP scenario's figures."""

from dataclasses import dataclass
from enum import StrEnum


class HttpFigure(StrEnum):
    ECHO = "echo"
    INSERT = "insert"
    SUBMIT = "submit"
    STATUS = "status"
    PACED_SUBMIT_P50 = "paced_submit_p50"
    PACED_SUBMIT_P99 = "paced_submit_p99"
    PACED_STATUS_P50 = "paced_status_p50"
    PACED_STATUS_P99 = "paced_status_p99"
    PREFER_WAIT_P50 = "prefer_wait_p50"
    LONG_POLL_P50 = "long_poll_p50"


@dataclass(frozen=True)
class Row:
    figure: HttpFigure
    title: str
    unit: str


ROWS = (
    Row(HttpFigure.ECHO, "bare Starlette, JSON echo", "requests/s"),
    Row(HttpFigure.INSERT, "FastAPI, one INSERT a request", "requests/s"),
    Row(HttpFigure.SUBMIT, "Coatcheck, authenticated submit", "requests/s"),
    Row(HttpFigure.STATUS, "Coatcheck, authenticated status read", "requests/s"),
    Row(HttpFigure.PACED_SUBMIT_P50, "Coatcheck, submit at 1,000/s with a worker, p50", "ms"),
    Row(HttpFigure.PACED_SUBMIT_P99, "Coatcheck, submit at 1,000/s with a worker, p99", "ms"),
    Row(HttpFigure.PACED_STATUS_P50, "Coatcheck, status read meanwhile, p50", "ms"),
    Row(HttpFigure.PACED_STATUS_P99, "Coatcheck, status read meanwhile, p99", "ms"),
    Row(HttpFigure.PREFER_WAIT_P50, "from handler to client, Prefer: wait, p50", "ms"),
    Row(HttpFigure.LONG_POLL_P50, "from handler to client, long-poll, p50", "ms"),
)
