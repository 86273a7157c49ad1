"""Lists in pages: the query fields ``limit`` and ``cursor``, and the field ``next`` of the body.

A cursor is the id of the last item of a page, so that a page is found by its key however long the
list is. ``next`` is null on the last page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar, overload
from uuid import UUID

from coatcheck.domain.errors import InvalidParameter
from coatcheck.domain.ids import from_text, to_text
from coatcheck.http.parameters import read_whole_number
from coatcheck.http.request import Request
from coatcheck.http.routing import ULID, Parameter

PAGE_ROWS: Final = 50
PAGE_ROWS_MAX: Final = 200

C = TypeVar("C")
T = TypeVar("T")


class PageQuery(NamedTuple):
    """The page that a caller asks for: at most ``limit`` items after the one with the id
    ``after``."""

    limit: int
    after: UUID | None

    @property
    def after_id(self) -> str | None:
        """``after`` as text."""
        return None if self.after is None else to_text(self.after)

    def following(self, items: Sequence[T], id_of: Callable[[T], str]) -> str | None:
        """``next``: the id of the last item, unless the page shows that there is no more."""
        return id_of(items[-1]) if len(items) == self.limit else None


def read_page(request: Request) -> PageQuery:
    """The page of a list whose cursors are ids. Raises InvalidParameter."""
    return PageQuery(read_limit(request.query), read_cursor(request.query))


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
