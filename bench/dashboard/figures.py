"""The pages that the scenario measures."""

from dataclasses import dataclass
from enum import StrEnum


class History(StrEnum):
    FEW = "few"
    MANY = "many"


@dataclass(frozen=True)
class TimedPage:
    key: str
    title: str
    path: str


PAGES = (
    TimedPage("overview", "overview, 1 h", "/ui/"),
    TimedPage("overview_week", "overview, 7 d", "/ui/?minutes=10080"),
    TimedPage("jobs", "jobs, newest", "/ui/jobs"),
    TimedPage("jobs_older", "jobs, a page from the middle of history", "/ui/jobs"),
    TimedPage("jobs_live", "jobs that have not ended", "/ui/jobs?state=live"),
    TimedPage("jobs_failed", "jobs that failed", "/ui/jobs?state=failed"),
    TimedPage("jobs_code", "jobs that failed with a code", "/ui/jobs?state=failed&error_code=oom"),
    TimedPage("job", "a job's page", "/ui/jobs/{job}"),
)


def figure(page: TimedPage, history: History, percent: int) -> str:
    """The name under which a result is kept."""
    return f"{page.key}_{history}_p{percent}"
