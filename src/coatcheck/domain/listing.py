"""Lists of jobs: which jobs a list shows, and which page of it a caller asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar
from uuid import UUID

from coatcheck.domain.catalogue import UPSTREAM_ENDPOINT
from coatcheck.domain.ids import at_moment, newest_possible
from coatcheck.domain.lanes import Lane
from coatcheck.domain.states import State

PAGE_ROWS: Final = 50
PAGE_ROWS_MAX: Final = 200

_OLDEST: Final = UUID(int=1 << 120)
"""Before the id of any job; ids of tasks are spread over all values (``lists/page_filter``)."""
_CLOCKS_DIFFER_BY: Final = timedelta(hours=1)
"""An id begins with the time of its creation, by the creator's clock."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery:
    """The page that a caller asks for: at most ``limit`` items after the one with the id
    ``after``, newest first; and the filters that every list of jobs has.

    It goes whole from the request to the statement, so that no product names a filter: a filter
    is a field here, its query parameter in ``http/pages.py``, and its condition in the fragment
    ``every_list`` of ``core/queries/lists.sql``.
    """

    limit: int = PAGE_ROWS
    after: UUID | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None

    def arguments(self) -> dict[str, Any]:
        """The parameters that the statement of every list has: the ids between which it looks, and
        the filters. Times narrow the ids, too, so that a list reads little else."""
        before, above = self.after or newest_possible(), _OLDEST
        if self.created_before is not None:
            before = min(before, at_moment(_later(self.created_before)))
        if self.created_after is not None:
            above = max(above, at_moment(_earlier(self.created_after)))
        return {
            "before": before,
            "above": above,
            "created_after": self.created_after,
            "created_before": self.created_before,
        }

    def from_start(self) -> PageQuery:
        """The first page of the same list."""
        return replace(self, after=None)

    def following(self, items: Sequence[T], id_of: Callable[[T], str]) -> str | None:
        """``next``: the id of the last item, unless the page shows that there is no more."""
        return id_of(items[-1]) if len(items) == self.limit else None


FIRST_PAGE: Final = PageQuery()


def _later(moment: datetime) -> datetime:
    latest = datetime.max.replace(tzinfo=UTC) - _CLOCKS_DIFFER_BY
    return min(moment, latest) + _CLOCKS_DIFFER_BY


def _earlier(moment: datetime) -> datetime:
    earliest = datetime.min.replace(tzinfo=UTC) + _CLOCKS_DIFFER_BY
    return max(moment, earliest) - _CLOCKS_DIFFER_BY


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which of an organisation's jobs a product lists. ``None`` does not narrow it. An owner sees
    their own jobs and those that anyone may read."""

    org: str
    endpoints: Sequence[str] | None = None
    queue_key_prefix: str | None = None
    states: Sequence[State] | None = None
    lane: Lane | None = None
    owner: str | None = None

    def arguments(self) -> dict[str, Any]:
        """The parameters of ``lists/page_filter``, besides those of ``PageQuery``."""
        return {
            "org": self.org,
            "endpoints": self.endpoints,
            "queue_key_prefix": self.queue_key_prefix,
            "states": None if self.states is None else [state.value for state in self.states],
            "lane": None if self.lane is None else self.lane.value,
            "owner": self.owner,
        }

    @property
    def services(self) -> list[str] | None:
        """The services of these jobs, if the filter implies them: there is an index by service."""
        if self.endpoints is None:
            return None
        service_of_key, dot, _ = (self.queue_key_prefix or "").partition(".")
        services = {endpoint.partition(".")[0] for endpoint in self.endpoints}
        if UPSTREAM_ENDPOINT in self.endpoints:
            if not dot:
                return None
            services.add(service_of_key)
        return sorted(services)
