"""Lists in pages: the query fields ``limit`` and ``cursor``, the field ``next`` of the body, and
the filters that every list of jobs has.

A cursor is the id of the last item of a page, so that a page is found by its key however long the
list is. ``next`` is null on the last page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar, overload
from uuid import UUID

from coatcheck.domain.errors import InvalidParameter
from coatcheck.domain.ids import from_text
from coatcheck.domain.listing import PAGE_ROWS, PAGE_ROWS_MAX, PageQuery
from coatcheck.http.parameters import DATE_TIME, read_time, read_whole_number
from coatcheck.http.request import Request
from coatcheck.http.routing import ULID, Parameter

C = TypeVar("C")

_FILTERS: Final = (
    Parameter("created_after", "query", "Only jobs created then or later.", DATE_TIME),
    Parameter("created_before", "query", "Only jobs created before then.", DATE_TIME),
)
"""The filters of every list of jobs, which are fields of ``PageQuery``."""


def read_page(request: Request) -> PageQuery:
    """The page of a list whose cursors are ids. Raises InvalidParameter."""
    return PageQuery(limit=read_limit(request.query), after=read_cursor(request.query))


def read_job_page(request: Request) -> PageQuery:
    """The page of a list of jobs, with the filters that every such list has. Raises
    InvalidParameter."""
    return replace(
        read_page(request),
        created_after=read_time(request.query, "created_after"),
        created_before=read_time(request.query, "created_before"),
    )


def read_limit(
    query: Mapping[str, str], *, default: int = PAGE_ROWS, most: int = PAGE_ROWS_MAX
) -> int:
    return read_whole_number(query, "limit", 1, most, default=default)


@overload
def read_cursor(query: Mapping[str, str]) -> UUID | None: ...
@overload
def read_cursor(query: Mapping[str, str], parse: Callable[[str], C]) -> C | None: ...
def read_cursor(query: Mapping[str, str], parse: Callable[[str], Any] = from_text) -> Any:
    """The cursor; None for the first page. ``parse`` raises ValueError for text that is none."""
    given = query.get("cursor")
    if given is None:
        return None
    try:
        return parse(given)
    except ValueError:
        raise InvalidParameter("cursor", "must be the `next` of a page") from None


def limit_parameter(*, default: int = PAGE_ROWS, most: int = PAGE_ROWS_MAX) -> Parameter:
    return Parameter(
        "limit",
        "query",
        "The maximum number of items.",
        {"type": "integer", "minimum": 1, "maximum": most, "default": default},
    )


def cursor_parameter(schema: Mapping[str, Any] = ULID) -> Parameter:
    return Parameter("cursor", "query", "`next` of the previous page.", schema)


LIMIT: Final = limit_parameter()
PAGE_PARAMETERS: Final = (cursor_parameter(), LIMIT)
"""The parameters of a list whose cursors are ids."""
JOB_PAGE_PARAMETERS: Final = (*PAGE_PARAMETERS, *_FILTERS)
"""The parameters of a list of jobs."""
