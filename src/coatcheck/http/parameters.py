"""Parses query fields and request headers, with bounds, and with errors that name the field."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from coatcheck.domain.errors import InvalidParameter, UrlForbidden
from coatcheck.domain.limits import DELAY_SECONDS_MAX, IDEMPOTENCY_KEY_CHARACTERS_MAX
from coatcheck.domain.tenants import Principal
from coatcheck.egress import Guard
from coatcheck.http.request import Request
from coatcheck.http.response import RawHeaders
from coatcheck.http.routing import Parameter

_DIGITS_MAX: Final = 18
_NAMED_MAX: Final = 10
_PLAIN_NAME: Final = re.compile(r"[\w.\-\[\]]{1,64}", re.ASCII)
DATE_TIME: Final = {"type": "string", "format": "date-time"}
_INVALID_TIME: Final = "must be a time with its zone, such as 2026-01-31T12:00:00Z"


def read_whole_number(
    query: Mapping[str, str], name: str, least: int, most: int, *, default: int
) -> int:
    given = query.get(name)
    if given is None:
        return default
    number = int(given) if given.isascii() and given.isdigit() and len(given) <= _DIGITS_MAX else -1
    if not least <= number <= most:
        raise InvalidParameter(name, f"must be a whole number from {least} to {most}")
    return number


def read_choice(query: Mapping[str, str], name: str, choices: Sequence[str]) -> str | None:
    given = query.get(name)
    if given is not None and given not in choices:
        raise InvalidParameter(name, f"must be one of {', '.join(choices)}")
    return given


def read_time(query: Mapping[str, str], name: str) -> datetime | None:
    """A time with its zone, in UTC."""
    given = query.get(name)
    if given is None:
        return None
    try:
        return in_utc(datetime.fromisoformat(given), name, "query")
    except ValueError as error:
        raise InvalidParameter(name, _INVALID_TIME) from error


def in_utc(moment: datetime | None, name: str, place: str) -> datetime | None:
    """Convert a time to UTC. Raises InvalidParameter.

    Python accepts offsets that PostgreSQL does not, and times that cannot be converted to UTC.
    """
    if moment is None:
        return None
    try:
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    except OverflowError:
        pass  # it is refused below
    raise InvalidParameter(name, _INVALID_TIME, place)


def read_list(query: Mapping[str, str], name: str, most: int) -> list[str]:
    """A list separated by commas, with 1 to ``most`` items."""
    words = [word for word in query.get(name, "").split(",") if word]
    if not 1 <= len(words) <= most:
        raise InvalidParameter(name, f"must be a list of 1 to {most}, separated by commas")
    return words


def refuse_unknown(query: Mapping[str, str], known: Collection[str]) -> None:
    """Raise InvalidParameter for an unknown field, which would be silently lost."""
    for name in query:
        if name not in known:
            listed = f"; known fields are {', '.join(known)}" if known else ""
            raise InvalidParameter(name[:64], f"is not a known field{listed}")


def ignored_note(query: Mapping[str, str], known: Collection[str]) -> RawHeaders:
    """A ``Warning`` header that names unknown fields; no header if there are none."""
    unknown = [name for name in query if name not in known]
    if not unknown:
        return ()
    named = [name for name in unknown[:_NAMED_MAX] if _PLAIN_NAME.fullmatch(name)]
    others = len(unknown) - len(named)
    if others:
        named.append("another one" if others == 1 else f"{others} others")
    note = f'299 - "unknown fields of the query were ignored: {", ".join(named)}"'
    return [(b"warning", note.encode("ascii"))]


WAIT_SECONDS_MAX: Final = 60.0
_PREFER: Final = b"prefer"
_WAIT_SECONDS: Final = re.compile(r"[0-9]{1,400}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?")


@dataclass(frozen=True, slots=True)
class Preferences:
    """The parsed ``Prefer`` headers. ``wait`` is None if it is missing; ``applied`` is echoed."""

    wait: float | None = None
    respond_async: bool = False
    strict: bool = False
    applied: tuple[str, ...] = ()

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        if not self.applied:
            return []
        return [(b"preference-applied", ", ".join(self.applied).encode("latin-1"))]


NONE: Final = Preferences()


def read_preferences(request: Request, *, in_query: bool = True) -> Preferences:
    """Parse the ``Prefer`` headers and the query's ``wait``, which takes precedence.

    An unknown preference is ignored, as RFC 7240 requires; an invalid query field is an error.
    ``in_query`` False: the query belongs to an upstream, so it is not read.
    """
    in_query = in_query and bool(request.scope["query_string"]) and "wait" in request.query
    if _PREFER not in request.headers and not in_query:
        return NONE
    wait = _seconds(request.query["wait"]) if in_query else None
    respond_async = strict = False
    applied: list[str] = []
    for name, value in _preferences(request).items():
        if name == "wait" and not in_query and _WAIT_SECONDS.fullmatch(value):
            wait = min(float(value), WAIT_SECONDS_MAX)
            applied.append(f"wait={wait:g}")
        elif name == "respond-async":
            respond_async = True
            applied.append("respond-async")
        elif name == "handling" and value in ("strict", "lenient"):
            strict = value == "strict"
            applied.append(f"handling={value}")
    return Preferences(wait, respond_async, strict, tuple(applied))


def _preferences(request: Request) -> dict[str, str]:
    """The preferences by name, in their order. If one occurs twice, the first one is used."""
    lines = [value.decode("latin-1") for name, value in request.scope["headers"] if name == _PREFER]
    preferences: dict[str, str] = {}
    for part in ",".join(lines).split(","):
        name, _, value = part.partition(";")[0].partition("=")
        preferences.setdefault(name.strip().lower(), value.strip().strip('"').lower())
    return preferences


def _seconds(text: str) -> float:
    if not _WAIT_SECONDS.fullmatch(text):
        raise InvalidParameter("wait", f"must be a number of seconds, at most {WAIT_SECONDS_MAX:g}")
    return min(float(text), WAIT_SECONDS_MAX)


_NAMES: Final = (b"idempotency-key", b"x-idempotency-key")
_ANONYMOUS_PREFIX: Final = "\x1f"
"""Begins the stored keys of callers without a credential."""
_DERIVED_PREFIX: Final = "\x1e"
"""Begins keys that were derived from a caller's key: they mean nothing to a reader."""


def read_idempotency_key(request: Request) -> str | None:
    """The key, or None. Both headers may be present if they are equal."""
    keys = {_bare(request.headers[name]) for name in _NAMES if name in request.headers}
    if not keys:
        return None
    if len(keys) > 1:
        raise _wrong("Idempotency-Key and X-Idempotency-Key differ")
    key = keys.pop()
    if not 1 <= len(key) <= IDEMPOTENCY_KEY_CHARACTERS_MAX:
        raise _wrong(f"must have 1 to {IDEMPOTENCY_KEY_CHARACTERS_MAX} characters")
    if not key.isprintable():
        raise _wrong("must be printable text")
    return key


def anonymous_key(key: str) -> str:
    """The stored form of a key of a caller without a credential of the organisation.

    Anonymous callers have a separate key space: else they could learn of a member's job, or take
    the key that a member is about to use. No member can send the prefix: it is not printable.
    """
    if len(key) == IDEMPOTENCY_KEY_CHARACTERS_MAX:
        raise _wrong(f"must have less than {IDEMPOTENCY_KEY_CHARACTERS_MAX} characters here")
    return _ANONYMOUS_PREFIX + key


def stored_key(
    product: str, principal: Principal, key: str, *, kind: str = "", per_api_key: bool = False
) -> str:
    """The stored form of a caller's key, for a product whose callers have keys of their own.

    Keys are separate for each product and each owner; with ``kind``, for each kind of operation;
    with ``per_api_key``, for each API key. No caller can send a stored form: it is not printable.
    """
    parts = [principal.owner, key]
    if per_api_key:
        parts.insert(1, principal.key_id or "")
    if kind:
        parts.insert(0, kind)
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    return f"{_DERIVED_PREFIX}{product}:{digest}"


def shown_key(stored: str | None) -> str | None:
    """The key as its caller sent it; None if no caller did."""
    if stored is None or stored.startswith(_DERIVED_PREFIX):
        return None
    return stored.removeprefix(_ANONYMOUS_PREFIX)


def _bare(raw: bytes) -> str:
    try:
        text = raw.decode().strip()
    except UnicodeDecodeError as error:
        raise _wrong("must be text in ASCII or UTF-8") from error
    if not text.startswith('"'):
        return text
    if len(text) < 2 or not text.endswith('"'):
        raise _wrong("begins with a quote and does not end with one")
    return _unquoted(text[1:-1])


def _unquoted(inner: str) -> str:
    letters: list[str] = []
    escaped = False
    for letter in inner:
        if escaped:
            if letter not in '"\\':
                raise _wrong('has a backslash before a character other than " or \\')
            letters.append(letter)
            escaped = False
        elif letter == "\\":
            escaped = True
        elif letter == '"':
            raise _wrong("has a quote in its middle without a backslash before it")
        else:
            letters.append(letter)
    if escaped:
        raise _wrong("ends with a lone backslash")
    return "".join(letters)


def _wrong(issue: str) -> InvalidParameter:
    return InvalidParameter("Idempotency-Key", issue, "header")


_HEADER: Final = "X-Coatcheck-Delay"
_DELAY_SECONDS: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?", re.ASCII)

DELAY_PARAMETER: Final = Parameter(
    _HEADER,
    "header",
    "Seconds after which the job may start, by the database's clock; until then it is `staged`. "
    "With a known idempotency key, the delay of the first submission applies.",
    {"type": "number", "minimum": 0, "maximum": DELAY_SECONDS_MAX},
)


def read_delay(request: Request) -> float:
    """The delay in seconds; 0 without the header. Raises InvalidParameter."""
    given = request.header(_HEADER.lower().encode())
    if given is None:
        return 0.0
    if not _DELAY_SECONDS.fullmatch(given) or float(given) > DELAY_SECONDS_MAX:
        issue = f"must be a number of seconds from 0 to {DELAY_SECONDS_MAX}"
        raise InvalidParameter(_HEADER, issue, "header")
    return float(given)


_END: Final = "X-Webhook-Url"
_STATES: Final = "X-State-Webhook-Url"
_URL: Final = {"type": "string", "format": "uri", "maxLength": 2048}


class WebhookUrls(NamedTuple):
    """The webhook URLs of a submission."""

    webhook_url: str | None
    state_webhook_url: str | None


def names_webhooks(request: Request) -> bool:
    """Whether a submission has a webhook URL."""
    return any(request.header(name.lower().encode()) is not None for name in (_END, _STATES))


async def read_webhook_urls(request: Request, guard: Guard, org: str) -> WebhookUrls:
    """The webhook URLs of a submission. Raises UrlForbidden if a URL may not be called now, and
    LookUpRefused if its name is not looked up now. The sender checks the URL again."""
    return WebhookUrls(
        await _read(request, _END, guard, org), await _read(request, _STATES, guard, org)
    )


async def _read(request: Request, header: str, guard: Guard, org: str) -> str | None:
    url = request.header(header.lower().encode())
    if url is not None:
        await check_webhook_url(header, url, guard, org)
    return url


async def check_webhook_url(name: str, url: str, guard: Guard, org: str) -> None:
    """Raises UrlForbidden, with the field's name, if the URL may not be called now."""
    try:
        await guard.check_url(url, org)
    except UrlForbidden as error:
        raise UrlForbidden(f"{name}: {error}") from error


WEBHOOK_PARAMETERS: Final = (
    Parameter(
        _END,
        "header",
        "Gets a signed POST when the job has ended. With a known idempotency key, the URL of the "
        "first submission applies.",
        _URL,
    ),
    Parameter(
        _STATES,
        "header",
        "Gets a signed POST for every change of the job's state, its end included.",
        _URL,
    ),
)
