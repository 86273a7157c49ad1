"""A request, as the handlers see it."""

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
"""A body that has not arrived by then is not waited for."""
UNKNOWN_CALLER_BODY_SECONDS_MAX: Final = 10.0
"""The same for a caller that has shown no credential."""
UPLOAD_SECONDS_MAX: Final = 15 * 60.0
"""The same for an upload, which is taken in piece by piece."""
LIST_SECONDS_MAX: Final = 6 * 3600.0
"""The same for a list of tasks, of which the largest needs half a megabyte a second."""
UPLOAD_PAUSE_SECONDS_MAX: Final = 30.0
"""The longest that an upload may pause, or be waited for until so much more of it has come:"""
UPLOAD_PROGRESS_BYTES_MIN: Final = 64 * 1024
"""one that comes byte by byte would keep others out for as long as uploads may take."""
_QUERY_FIELDS_MAX: Final = 100
_IDENTITY: Final = (b"", b"identity")
_INFLATED_AT_ONCE_BYTES: Final = 16 * 1024
"""Of a gzip body, as it is sent: inflated, that is a megabyte or two, and a few milliseconds."""

ARRIVING: Final = "coatcheck.arriving"
"""Where in the scope our server says how far the request has come."""


FIELDS: Final = "coatcheck.fields"
"""Where in the scope our server puts the headers by their names, which it has looked at."""

PLACE: Final = "coatcheck.place"
"""Where in the scope of a call that a page of ours makes is the place of that page's answer."""

CONNECTION: Final = "coatcheck.connection"
"""Where in the scope our server puts a connection that has shown no valid credential yet."""


class InflatedBody:
    """A gzip body as it was meant, within the bound of what it may amount to."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._gzip = Gzip(strict=True)
        self._sent = self._meant = 0

    def pieces(self, data: bytes, *, last: bool) -> Iterator[bytes]:
        """What the next bytes amount to. Raises BodyTooLarge, BodyInflatesTooMuch, InvalidBody."""
        self._sent += len(data)
        try:
            for piece in self._gzip.pieces(data):
                self._meant += len(piece)
                if self._meant > self._bytes_max:
                    raise BodyTooLarge(self._bytes_max)
                if self._meant > INFLATED_BYTES_FREE and (
                    self._meant > self._sent * INFLATED_RATIO_MAX
                ):
                    raise BodyInflatesTooMuch(
                        f"The body is more than {INFLATED_RATIO_MAX} times its size once it is "
                        "inflated."
                    )
                yield piece
            if last and self._sent:
                self._gzip.end()
        except BodyCorrupt:
            raise InvalidBody("The body is not whole, valid gzip.") from None


class HeldPlace(Protocol):
    """A place among the answers that are held open."""

    def belongs_to(self, principal: Principal | None, org: str, *, operates: bool) -> None: ...

    def leave(self) -> None: ...


class Arriving(Protocol):
    """A request on its way in."""

    more_body: bool


class Request:
    """One request: what was asked, by whom, and under which id."""

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
        "place",
        "problem_format",
        "request_id",
        "response_headers",
        "scope",
    )

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        request_id: str,
        bodies: BodyBudget | None = None,
    ) -> None:
        """``bodies`` has the room for what is still to arrive; None: there is no bound."""
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
        self.place: HeldPlace | None = scope.get(PLACE)
        """Where its answer is held, if it is (``open_responses.py``)."""
        self._query: dict[str, str] | None = None
        self._body: bytes | None = None
        self._principal: Principal | None = None
        self.credential: bytes | None = None
        """What the call was let in with, for as long as which it may be held open."""

    @property
    def raw_path(self) -> str:
        """The path as it came, percent-encoded, without the query."""
        raw = self.scope.get("raw_path")
        return self.path if raw is None else str(raw, "latin-1")

    def header(self, name: bytes) -> str | None:
        """A header's value by its lower-case name; the last one, if it came several times."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1").strip()

    @property
    def principal(self) -> Principal:
        """Who calls. Only where the operation asks for a credential."""
        assert self._principal is not None, "the operation is open to anyone"
        return self._principal

    @principal.setter
    def principal(self, principal: Principal) -> None:
        self._principal = principal

    @property
    def caller(self) -> Principal | None:
        """Who calls, where a credential is not needed; None if none was looked at."""
        return self._principal

    @property
    def address(self) -> str:
        """Where the connection comes from; empty for a call from within this process."""
        client = self.scope.get("client")
        return "" if client is None else str(client[0])

    def _paying_org(self) -> str | None:
        """The organisation whose share of the memory a body takes; None if none is known.

        ``payer`` says it for a caller whose credential is not looked at before its body is.
        """
        principal = self._principal
        if principal is None or principal.kind == "anonymous":
            return self.payer
        return principal.org

    @property
    def query(self) -> Mapping[str, str]:
        """The query's fields. One that comes twice is refused: which one was meant?"""
        if self._query is None:
            self._query = _read_query(self.scope["query_string"])
        return self._query

    @property
    def length_max(self) -> int | None:
        """How many bytes the body may amount to at most, as far as its head tells; None if it does
        not. One that is sent as gzip may be many times as long as it says."""
        length = self.headers.get(b"content-length")
        if length is None:
            return None
        if self.headers.get(b"content-encoding", b"").strip().lower() in _IDENTITY:
            return int(length)
        return max(int(length) * INFLATED_RATIO_MAX, INFLATED_BYTES_FREE)

    async def body(self, bytes_max: int) -> bytes:
        """The whole body. Raises before reading it if it says that it is too large, and if there
        is no room for it."""
        if self._body is None:
            self._check_before_reading(bytes_max)
            self._body = await self._read(bytes_max)
        return self._body

    async def long_body(self, bytes_max: int) -> bytes:
        """The same for one that may take as long as an upload."""
        if self._body is None:
            self._check_before_reading(bytes_max)
            await self._reserve(bytes_max)
            self._body = b"".join([piece async for piece in self.pieces(bytes_max)])
        return self._body

    def forget_body(self) -> None:
        """Let go of the body, once nobody needs it: the answer may take a while."""
        self._body = b""
        if self._reservation is not None:
            self._reservation.end()
            self._reservation = None

    async def pieces(
        self, bytes_max: int, seconds_max: float | None = None
    ) -> AsyncIterator[bytes]:
        """The body as it comes, for an upload that no memory should hold. Raises as ``body``.

        All of it must be there after ``seconds_max``: UPLOAD_SECONDS_MAX, if nothing is said.
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
            # Only what is waited for the caller counts: not what is done with the pieces.
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
                    # What came at once may be a hundred times that: others have their turn.
                    await asyncio.sleep(0)
            elif piece:
                yield piece

    def _inflating(self, bytes_max: int) -> InflatedBody | None:
        """What undoes the body's coding, if it has one. Raises CompressedBody."""
        coding = self.headers.get(b"content-encoding")
        if coding is None or (named := coding.strip().lower()) in _IDENTITY:
            return None
        if named not in (b"gzip", b"x-gzip"):
            raise CompressedBody("The body's Content-Encoding is not taken; send gzip, or none.")
        return InflatedBody(bytes_max)

    def _check_before_reading(self, bytes_max: int) -> None:
        self._inflating(bytes_max)
        length = self.headers.get(b"content-length")
        # The server has refused what is no number.
        if length is not None and int(length) > bytes_max:
            raise BodyTooLarge(bytes_max)

    async def _read(self, bytes_max: int) -> bytes:
        arriving: Arriving | None = self.scope.get(ARRIVING)
        inflating = self._inflating(bytes_max)
        if arriving is not None and not arriving.more_body and inflating is None:
            # It came with its head, as most do: there is nothing to wait for, nor to time.
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
        """Have room for what is to come, before it is read: as much as the head says, or as much
        as it may be."""
        if self._bodies is None or ARRIVING not in self.scope:
            return  # it does not come over a connection of ours
        size = self.length_max
        if size is None or size > bytes_max:
            size = bytes_max
        self._reservation = await self._bodies.reserve(self._paying_org(), self.address, size)

    async def reserve_beginning(self, bytes_max: int) -> None:
        """Have room for as much of a body as is held before the rest is taken in by pieces."""
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
        """What came of the body, and whether there is more."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone("The caller left before its request was whole.")
        return message.get("body", b""), message.get("more_body", False)

    async def disconnected(self) -> None:
        """Return when the caller has gone. Only once the body was read, or is not wanted."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


async def _inflated(inflating: InflatedBody, body: bytes) -> bytes:
    """A whole body; a long one in a thread, so that others need not wait for it."""
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
        raise InvalidParameter(twice, "came more than once")
    return fields
