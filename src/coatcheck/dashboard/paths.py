"""Building URL paths safely from names that people chose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, urlencode

HOME: Final = "/ui/"
SIGN_IN: Final = "/ui/sign-in"


def to(template: str, **names: str) -> str:
    """``template`` with its ``{names}`` filled in, each as one segment: ``to("/a/{b}", b="c/d")``
    is ``/a/c%2Fd``."""
    return template.format_map({name: quote(value, safe="") for name, value in names.items()})


def with_query(path: str, fields: Mapping[str, str | int | None]) -> str:
    """``path`` with the non-empty ``fields`` as its query string."""
    given = {name: value for name, value in fields.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def own_page(path: str | None) -> str:
    """``path`` if it is one of our pages, else the first page. Used for redirects after sign-in.

    It prevents open redirects: a crafted link must not lead from here to another site.
    """
    if path is None or not path.startswith(HOME) or not path.isascii() or not path.isprintable():
        return HOME
    return HOME if "\\" in path or "//" in path or path.startswith(SIGN_IN) else path
