"""CSRF protection: checks that one of our own pages sent a form.

There are two checks, and each would be enough. The browser says which site a request comes from,
and every form carries a token that only pages of this session contain.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from coatcheck.dashboard.fields import Fields
from coatcheck.dashboard.sealing import Seal
from coatcheck.domain.errors import CoatcheckError
from coatcheck.http.request import Call

FIELD: Final = "csrf"
HEADER: Final = b"x-csrf-token"
_OWN_SITE: Final = "same-origin"


class ForgedForm(CoatcheckError):
    """A form from another site, or from a page of an earlier session."""

    code = "csrf_refused"


def check(call: Call, form: Fields, seal: Seal, session_id: bytes, public_url: str) -> None:
    """Check where a form comes from. Raises ForgedForm."""
    if not _is_from_here(call, public_url):
        raise ForgedForm("The form was sent from another site. Nothing was changed.")
    given = call.header(HEADER) or form.get(FIELD)
    if not seal.is_token(session_id, given):
        raise ForgedForm("This page has expired. Nothing was changed; reload it and try again.")


def is_of_other_pages(call: Call, seal: Seal, session_id: bytes) -> bool:
    """Whether an htmx request comes from a page of another session or organisation."""
    given = call.header(HEADER)
    return given is not None and not seal.is_token(session_id, given)


def _is_from_here(call: Call, public_url: str) -> bool:
    site = call.header(b"sec-fetch-site")
    if site is not None:
        return site == _OWN_SITE
    origin = call.header(b"origin")
    if origin is None:
        return True  # no current browser; the token decides
    hosts = {call.header(b"host"), urlsplit(public_url).netloc or None}
    return urlsplit(origin).netloc in hosts
