"""Calls Stripe's API: sends meter events, and asks what it has counted.

The key is in a header and nowhere else: no error here carries it, nor what Stripe says in words,
which may quote it. No ``Idempotency-Key`` is sent: Stripe would answer a retry with the stored
answer of the first try, even where that was a 500. The identifier is what makes a retry harmless.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any, Final, TypeVar

import httpx2
import msgspec

from coatcheck.egress.authorities import trusted_authorities
from coatcheck.egress.retry_after import asked_seconds

API_URL: Final = "https://api.stripe.com"
_VERSION: Final = "2024-06-20"
"""The version of the API that this was written for, whatever the account's default is."""
_CALL_SECONDS_MAX: Final = 15.0
_ANSWER_BYTES_MAX: Final = 1024 * 1024
_RETRY_AFTER_SECONDS_MAX: Final = 3_600.0
_PAGES_MAX: Final = 20
_HOUR: Final = timedelta(hours=1)
_DUPLICATE_CODE: Final = "duplicate_meter_event"
_DUPLICATE_TEXT: Final = "event already exists with identifier"


class StripeUnavailable(Exception):
    """Stripe cannot be used now. ``retry_after`` is how many seconds it asked to be left alone."""

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class NotSent(StripeUnavailable):
    """Stripe did not take the request, certainly: it could not be reached, or it answered 429."""


class AnswerUnknown(StripeUnavailable):
    """The request was sent, and nobody knows what came of it: no answer, or a 5xx."""


class StripeRefused(Exception):
    """Stripe refused the request: it will again, until somebody changes something."""


class _Error(msgspec.Struct):
    type: str = ""
    code: str | None = None
    message: str = ""


class _ErrorBody(msgspec.Struct):
    error: _Error = msgspec.field(default_factory=_Error)


class _Meter(msgspec.Struct):
    id: str
    event_name: str


class _Meters(msgspec.Struct):
    data: list[_Meter]
    has_more: bool = False


class _Summary(msgspec.Struct):
    aggregated_value: float


class _Summaries(msgspec.Struct):
    data: list[_Summary]


class StripeClient:
    """The account that ``key`` is of."""

    def __init__(self, key: str, *, base_url: str = API_URL) -> None:
        self._client = httpx2.AsyncClient(
            base_url=base_url,
            headers={"authorization": f"Bearer {key}", "stripe-version": _VERSION},
            verify=trusted_authorities(trust_env=False),
            trust_env=False,
            follow_redirects=False,
            timeout=_CALL_SECONDS_MAX,
        )
        self._meters: dict[str, str] = {}

    async def close(self) -> None:
        await self._client.aclose()

    async def send_meter_event(
        self, *, event_name: str, identifier: str, customer: str, value: int, at: datetime
    ) -> None:
        """Send an event; one that Stripe has already is as good as sent.

        Raises NotSent, AnswerUnknown, StripeRefused.
        """
        form = {
            "event_name": event_name,
            "identifier": identifier,
            "timestamp": f"{at.timestamp():.0f}",
            "payload[stripe_customer_id]": customer,
            "payload[value]": str(value),
        }
        answer = await self._call("POST", "/v1/billing/meter_events", data=form)
        if not answer.is_success and not _is_duplicate(answer):
            raise _refusal(answer)

    async def counted(self, *, event_name: str, customer: str, hour: datetime) -> float:
        """What Stripe has counted of a meter for a customer in an hour.

        Raises NotSent, AnswerUnknown, StripeRefused.
        """
        meter = self._meters.get(event_name) or await self._find_meter(event_name)
        span = {"start_time": int(hour.timestamp()), "end_time": int((hour + _HOUR).timestamp())}
        answer = await self._call(
            "GET",
            f"/v1/billing/meters/{meter}/event_summaries",
            params={"customer": customer, **span},
        )
        summaries = _decoded(answer, _Summaries)
        return sum(each.aggregated_value for each in summaries.data)

    async def _find_meter(self, event_name: str) -> str:
        after: dict[str, Any] = {}
        for _ in range(_PAGES_MAX):
            params = {"status": "active", "limit": 100, **after}
            page = _decoded(await self._call("GET", "/v1/billing/meters", params=params), _Meters)
            for meter in page.data:
                if meter.event_name == event_name:
                    self._meters[event_name] = meter.id
                    return meter.id
            if not page.has_more or not page.data:
                break
            after = {"starting_after": page.data[-1].id}
        raise StripeRefused("no active meter has this event name")

    async def _call(self, method: str, path: str, **given: Any) -> httpx2.Response:
        try:
            async with (
                asyncio.timeout(_CALL_SECONDS_MAX),
                self._client.stream(method, path, **given) as answer,
            ):
                body = bytearray()
                async for piece in answer.aiter_bytes():
                    body += piece
                    if len(body) > _ANSWER_BYTES_MAX:
                        raise AnswerUnknown("an answer without end")
                whole = httpx2.Response(
                    answer.status_code, headers=_plain(answer), content=bytes(body)
                )
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise NotSent(type(error).__name__) from error
        except (httpx2.HTTPError, TimeoutError) as error:
            raise AnswerUnknown(type(error).__name__) from error
        if whole.status_code == HTTPStatus.TOO_MANY_REQUESTS:
            raise NotSent("429", _retry_after(whole))
        if whole.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise AnswerUnknown(str(whole.status_code), _retry_after(whole))
        return whole


def _plain(answer: httpx2.Response) -> dict[str, str]:
    """The headers that still hold of a body that was decoded."""
    wanted = ("retry-after", "date", "content-type")
    return {name: answer.headers[name] for name in wanted if name in answer.headers}


def _retry_after(answer: httpx2.Response) -> float | None:
    return asked_seconds(answer.headers, datetime.now(UTC), _RETRY_AFTER_SECONDS_MAX)


def _error_of(answer: httpx2.Response) -> _Error:
    try:
        return msgspec.json.decode(answer.content, type=_ErrorBody).error
    except msgspec.MsgspecError:
        return _Error()  # no answer of Stripe's own; its status says enough


def _is_duplicate(answer: httpx2.Response) -> bool:
    error = _error_of(answer)
    is_known = error.code == _DUPLICATE_CODE or _DUPLICATE_TEXT in error.message
    return answer.status_code in (400, 409) and is_known


def _refusal(answer: httpx2.Response) -> StripeRefused:
    error = _error_of(answer)
    words = [str(answer.status_code), error.type, error.code or ""]
    return StripeRefused(" ".join(word for word in words if word.isprintable() and word)[:200])


_Body = TypeVar("_Body")


def _decoded(answer: httpx2.Response, kind: type[_Body]) -> _Body:
    if not answer.is_success:
        raise _refusal(answer)
    try:
        return msgspec.json.decode(answer.content, type=kind)
    except msgspec.MsgspecError as error:
        raise StripeRefused("an answer that is none of Stripe's") from error
