"""The HTTP request that handlers get: headers, query, caller, and the body within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import parse_qsl

from coatcheck.compression import BodyCorrupt, Gzip
from coatcheck.domain.errors import (
    BodyInflatesTooMuch,
    BodyTooLarge,
    BodyTooSlow,
    ClientGone,
    CompressedBody,
    InvalidBody,
    InvalidParameter,
)
from coatcheck.domain.limits import INFLATED_BYTES_FREE, INFLATED_RATIO_MAX
from coatcheck.domain.tenants import Principal
from coatcheck.http.problem_formats import PROBLEM_DOCUMENT, ProblemFormat
from coatcheck.http.response import RawHeaders, Receive, Scope

if TYPE_CHECKING:
    from coatcheck.http.memory_budget import BodyBudget, Reservation

BODY_SECONDS_MAX: Final = 30.0
"""The longest time for a body to arrive."""
UNKNOWN_CALLER_BODY_SECONDS_MAX: Final = 10.0
"""The same for a caller that has shown no credential."""
UPLOAD_SECONDS_MAX: Final = 15 * 60.0
"""The same for an upload, which is read piece by piece."""
LIST_SECONDS_MAX: Final = 6 * 3600.0
"""The same for a list of tasks. The largest list needs half a megabyte a second."""
UPLOAD_PAUSE_SECONDS_MAX: Final = 30.0
"""The longest time of waiting for the next ``UPLOAD_PROGRESS_BYTES_MIN`` of an upload."""
UPLOAD_PROGRESS_BYTES_MIN: Final = 64 * 1024
"""An upload that arrives byte by byte would otherwise take a slot for as long as uploads may
last."""
_QUERY_FIELDS_MAX: Final = 100
_IDENTITY: Final = (b"", b"identity")
_INFLATED_AT_ONCE_BYTES: Final = 16 * 1024
"""A gzip body up to this compressed size is inflated on the event loop: it becomes a megabyte or
two, in a few milliseconds."""

# Keys of the ASGI scope that our server and our pages add.
ARRIVING: Final = "coatcheck.arriving"
"""The request's ``Arriving``: whether more of its body is to come."""
FIELDS: Final = "coatcheck.fields"
"""The headers by name, which the server has parsed already."""
RESPONSE_SLOT: Final = "coatcheck.response_slot"
"""The ``ResponseSlot`` of a dashboard page, for the API requests that the page makes."""
CONNECTION: Final = "coatcheck.connection"
"""The connection, if it has shown no valid credential yet."""


class InflatedBody:
    """Inflates a gzip body within bounds on its size and its compression ratio."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._gzip = Gzip(strict=True)
        self._compressed = self._inflated = 0

    def pieces(self, data: bytes, *, last: bool) -> Iterator[bytes]:
        """The next bytes, inflated. Raises BodyTooLarge, BodyInflatesTooMuch, InvalidBody."""
        self._compressed += len(data)
        try:
            for piece in self._gzip.pieces(data):
                self._inflated += len(piece)
                if self._inflated > self._bytes_max:
                    raise BodyTooLarge(self._bytes_max)
                if self._inflated > INFLATED_BYTES_FREE and (
                    self._inflated > self._compressed * INFLATED_RATIO_MAX
                ):
                    raise BodyInflatesTooMuch(
                        f"The body is more than {INFLATED_RATIO_MAX} times its size once it is "
                        "inflated."
                    )
                yield piece
            if last and self._compressed:
                self._gzip.end()
        except BodyCorrupt:
            raise InvalidBody("The body is not complete, valid gzip.") from None


class ResponseSlot(Protocol):
    """One of the limited number of open responses (``open_responses.py``)."""

    def assign(self, principal: Principal | None, org: str, *, operates: bool) -> None: ...

    def release(self) -> None: ...


class Arriving(Protocol):
    """A request that is being received."""

    more_body: bool


class Request:
    """One HTTP request, with its id and its caller."""

    __slots__ = (
        "_bodies",
        "_body",
        "_principal",
        "_query",
        "_receive",
        "_reservation",
        "credential",
        "cross_origin_headers",
        "headers",
        "method",
        "params",
        "path",
        "payer",
        "problem_format",
        "request_id",
        "response_headers",
        "response_slot",
        "scope",
    )

    def __init__(
        self, scope: Scope, receive: Receive, request_id: str, bodies: BodyBudget | None = None
    ) -> None:
        """``bodies`` is the memory budget for the body; None: there is no bound."""
        self.scope = scope
        self._bodies = bodies
        self._reservation: Reservation | None = None
        self.payer: str | None = None
        self._receive = receive
        self.request_id = request_id
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers: Mapping[bytes, bytes] = scope.get(FIELDS) or dict(scope["headers"])
        self.params: Mapping[str, str] = {}
        self.response_headers: RawHeaders = ()
        self.cross_origin_headers: RawHeaders = ()
        self.problem_format: ProblemFormat = PROBLEM_DOCUMENT
        self.response_slot: ResponseSlot | None = scope.get(RESPONSE_SLOT)
        """Set if its response is held open (``open_responses.py``)."""
        self._query: dict[str, str] | None = None
        self._body: bytes | None = None
        self._principal: Principal | None = None
        self.credential: bytes | None = None
        """What admitted the request. A response may stay open only while this is valid."""

    @property
    def raw_path(self) -> str:
        """The path as it was sent, percent-encoded, without the query."""
        raw = self.scope.get("raw_path")
        return self.path if raw is None else str(raw, "latin-1")

    def header(self, name: bytes) -> str | None:
        """A header's value by its lower-case name; the last one, if there are several."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1").strip()

    @property
    def principal(self) -> Principal:
        """The caller, on routes that require a credential."""
        assert self._principal is not None, "the route is open to anyone"
        return self._principal

    @principal.setter
    def principal(self, principal: Principal) -> None:
        self._principal = principal

    @property
    def caller(self) -> Principal | None:
        """The caller, on routes that do not require a credential; None if none was checked."""
        return self._principal

    @property
    def address(self) -> str:
        """The client's address; empty for a request from within this process."""
        client = self.scope.get("client")
        return "" if client is None else str(client[0])

    def _paying_org(self) -> str | None:
        """The organisation whose memory budget the body uses; None if it is not known.

        ``payer`` names it for a caller whose credential is checked after its body.
        """
        principal = self._principal
        if principal is None or principal.kind == "anonymous":
            return self.payer
        return principal.org

    @property
    def query(self) -> Mapping[str, str]:
        """The query's fields. A field that occurs twice is refused as ambiguous."""
        if self._query is None:
            self._query = _read_query(self.scope["query_string"])
        return self._query

    @property
    def length_max(self) -> int | None:
        """The largest size of the body that its headers allow; None if they do not state a length.
        A gzip body may be many times as long as its Content-Length."""
        length = self.headers.get(b"content-length")
        if length is None:
            return None
        if self.headers.get(b"content-encoding", b"").strip().lower() in _IDENTITY:
            return int(length)
        return max(int(length) * INFLATED_RATIO_MAX, INFLATED_BYTES_FREE)

    async def body(self, bytes_max: int) -> bytes:
        """The whole body. Raises before reading it if its Content-Length is too large, or there is
        no room for it in memory."""
        if self._body is None:
            self._check_before_reading(bytes_max)
            self._body = await self._read(bytes_max)
        return self._body

    async def long_body(self, bytes_max: int) -> bytes:
        """The whole body, which may take as long as an upload."""
        if self._body is None:
            self._check_before_reading(bytes_max)
            await self._reserve(bytes_max)
            self._body = b"".join([piece async for piece in self.pieces(bytes_max)])
        return self._body

    def forget_body(self) -> None:
        """Free the body once nobody needs it: the response may take a while."""
        self._body = b""
        if self._reservation is not None:
            self._reservation.end()
            self._reservation = None

    async def pieces(
        self, bytes_max: int, seconds_max: float | None = None
    ) -> AsyncIterator[bytes]:
        """The body as it arrives, for an upload that must not be held in memory. Raises as
        ``body``.

        It must be complete within ``seconds_max``, by default UPLOAD_SECONDS_MAX.
        """
        self._check_before_reading(bytes_max)
        if seconds_max is None:
            seconds_max = UPLOAD_SECONDS_MAX
        inflating = self._inflating(bytes_max)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds_max
        size = progress = 0
        waited = 0.0
        more = True
        while more:
            # Only the time of waiting for the caller counts, not the time of using the pieces.
            limit = asyncio.timeout(UPLOAD_PAUSE_SECONDS_MAX - waited)
            began = loop.time()
            try:
                async with asyncio.timeout_at(deadline), limit:
                    piece, more = await self._receive_piece()
            except TimeoutError:
                paused = limit.expired()
                raise BodyTooSlow(UPLOAD_PAUSE_SECONDS_MAX if paused else seconds_max) from None
            waited += loop.time() - began
            size += len(piece)
            progress += len(piece)
            if progress >= UPLOAD_PROGRESS_BYTES_MIN:
                progress, waited = 0, 0.0
            if size > bytes_max:
                raise BodyTooLarge(bytes_max)
            if inflating is not None:
                for inflated in inflating.pieces(piece, last=not more):
                    yield inflated
                    # One piece may inflate to a hundred times its size: let other tasks run.
                    await asyncio.sleep(0)
            elif piece:
                yield piece

    def _inflating(self, bytes_max: int) -> InflatedBody | None:
        """The decompressor for the body's Content-Encoding, if it has one. Raises
        CompressedBody."""
        coding = self.headers.get(b"content-encoding")
        if coding is None or (named := coding.strip().lower()) in _IDENTITY:
            return None
        if named not in (b"gzip", b"x-gzip"):
            raise CompressedBody(
                "The body's Content-Encoding is not supported; send gzip, or none."
            )
        return InflatedBody(bytes_max)

    def _check_before_reading(self, bytes_max: int) -> None:
        self._inflating(bytes_max)
        length = self.headers.get(b"content-length")
        # The parser has refused a length that is not a number.
        if length is not None and int(length) > bytes_max:
            raise BodyTooLarge(bytes_max)

    async def _read(self, bytes_max: int) -> bytes:
        arriving: Arriving | None = self.scope.get(ARRIVING)
        inflating = self._inflating(bytes_max)
        if arriving is not None and not arriving.more_body and inflating is None:
            # It arrived with its head, as most bodies do, so it needs no timeout.
            return await self._receive_all(bytes_max)
        await self._reserve(bytes_max)
        known = arriving is None or self._paying_org() is not None
        seconds = BODY_SECONDS_MAX
        if not known:
            seconds = min(seconds, UNKNOWN_CALLER_BODY_SECONDS_MAX)
        try:
            async with asyncio.timeout(seconds):
                body = await self._receive_all(bytes_max)
        except TimeoutError:
            raise BodyTooSlow(seconds) from None
        if inflating is not None:
            body = await _inflated(inflating, body)
        if self._reservation is not None:
            self._reservation.resize(len(body))
        return body

    async def _reserve(self, bytes_max: int) -> None:
        """Reserve memory before reading: the stated length, or the largest allowed."""
        if self._bodies is None or ARRIVING not in self.scope:
            return  # a request from within this process
        size = self.length_max
        if size is None or size > bytes_max:
            size = bytes_max
        self._reservation = await self._bodies.reserve(self._paying_org(), self.address, size)

    async def reserve_beginning(self, bytes_max: int) -> None:
        """Reserve memory for the beginning of a body whose rest is read piece by piece."""
        await self._reserve(bytes_max)

    async def _receive_all(self, bytes_max: int) -> bytes:
        pieces: list[bytes] = []
        size = 0
        more = True
        while more:
            piece, more = await self._receive_piece()
            size += len(piece)
            if size > bytes_max:
                raise BodyTooLarge(bytes_max)
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _receive_piece(self) -> tuple[bytes, bool]:
        """The next piece of the body, and whether there is more."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone("The caller disconnected before its request was complete.")
        return message.get("body", b""), message.get("more_body", False)

    async def disconnected(self) -> None:
        """Return when the caller has disconnected. Call it only after the body was read, or if
        nobody needs the body."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


async def _inflated(inflating: InflatedBody, body: bytes) -> bytes:
    """A whole body, inflated; a long one in a thread, so that other tasks can run."""
    if len(body) <= _INFLATED_AT_ONCE_BYTES:
        return b"".join(inflating.pieces(body, last=True))
    return await asyncio.to_thread(lambda: b"".join(inflating.pieces(body, last=True)))


def _read_query(raw: bytes) -> dict[str, str]:
    if not raw:
        return {}
    try:
        pairs = parse_qsl(
            raw.decode("ascii"),
            keep_blank_values=True,
            max_num_fields=_QUERY_FIELDS_MAX,
            errors="strict",
        )
    except ValueError as error:
        raise InvalidParameter(
            "query", "is not a query of UTF-8 text, or has too many fields"
        ) from error
    fields = dict(pairs)
    if len(fields) < len(pairs):
        twice = next(name for at, (name, _) in enumerate(pairs) if name in dict(pairs[:at]))
        raise InvalidParameter(twice, "occurs more than once")
    return fields
