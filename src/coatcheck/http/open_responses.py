"""Limits on open responses: streams, long-polls, and requests that wait for their job.

Each keeps a connection and some memory for as long as its caller likes. So their number is bounded
by key, by organisation and by address. The total is lower than the number of connections, so that
some are left for requests that are answered at once.

A route declares when its response is held open (``Route.held``). The dispatcher then takes a slot
before the handler runs, and releases it when the response was sent. The gate assigns the slot to
its caller, as soon as it knows the caller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from coatcheck.domain.bounds import CountedBound
from coatcheck.domain.errors import TooManyHeldAnswers
from coatcheck.domain.tenants import Principal
from coatcheck.http.connections import CONNECTIONS, CONNECTIONS_OF_ONE_ADDRESS, ClientAddresses
from coatcheck.http.parameters import read_preferences
from coatcheck.http.request import Request
from coatcheck.http.routing import HoldsOpen
from coatcheck.settings.parsers import Network
from coatcheck.telemetry import metrics

HELD_OF_ONE_KEY: Final = 500
HELD_OF_ONE_ORG: Final = 1_000
_HELD_SHARE: Final = 0.8
"""The part of a server's connections that open responses may use."""

_Holder = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class OpenResponseLimits:
    """How many responses may be open on one server; 0 is no limit."""

    of_one_key: int = HELD_OF_ONE_KEY
    of_one_org: int = HELD_OF_ONE_ORG
    of_one_address: int = CONNECTIONS_OF_ONE_ADDRESS
    in_all: int = int(CONNECTIONS * _HELD_SHARE)

    @staticmethod
    def in_all_of(connections: int) -> int:
        """How many of these connections open responses may use."""
        return max(1, int(connections * _HELD_SHARE))


class OpenResponses:
    """Counts the open responses of one server."""

    def __init__(
        self, limits: OpenResponseLimits | None = None, proxies: Sequence[Network] = ()
    ) -> None:
        self._limits = limits or OpenResponseLimits()
        self._addresses = ClientAddresses(proxies)
        self._held: Counter[_Holder] = Counter()
        self._slots = 0

    @property
    def count(self) -> int:
        """How many slots are taken."""
        return self._slots

    def enter(self, request: Request) -> OpenResponseSlot:
        """Take a slot for the response to a request. Raises TooManyHeldAnswers."""
        client = request.scope.get("client")
        address = None if client is None else self._addresses.counted(client[0])
        slot = OpenResponseSlot(self)
        if address is not None:
            slot.take([(("address", "", address), self._limits.of_one_address)])
        self._slots += 1
        return slot

    def holders(self, principal: Principal | None, org: str) -> list[tuple[_Holder, int]]:
        """The limits that a response to this caller counts to.

        Callers without a credential share one limit for each organisation that they call, so that
        they cannot use up the slots of the organisation's members.
        """
        limits = self._limits
        in_all = (("all", "", ""), limits.in_all)
        if principal is None or principal.kind == "anonymous":
            return [(("strangers", org, ""), limits.of_one_key), in_all]
        org = principal.org
        key = f"owner:{principal.owner}" if principal.key_id is None else principal.key_id
        return [
            (("key", org, key), limits.of_one_key),
            (("org", org, ""), limits.of_one_org),
            in_all,
        ]

    def left(self, taken: Sequence[_Holder]) -> None:
        """Release a slot that counted to these limits."""
        self._slots -= 1
        for holder in taken:
            self._held[holder] -= 1
            if not self._held[holder]:
                del self._held[holder]

    def take(self, holder: _Holder, most: int) -> None:
        """Count one more. Raises TooManyHeldAnswers."""
        if most and self._held[holder] >= most:
            bound, whose = _BOUNDS[holder[0]]
            metrics.record_bound_met(bound)
            raise TooManyHeldAnswers(whose, most)
        self._held[holder] += 1


_OPEN: Final = "open responses (streams, long-polls, waiting calls, live pages)"
_REFUSED: Final = "429 `too_many_held_answers`, `Retry-After`"
_BOUNDS: Final[Mapping[str, tuple[CountedBound, str]]] = {
    "key": (
        CountedBound(
            "held_answers_of_key",
            of=f"{_OPEN} for one credential",
            over="server",
            response=_REFUSED,
            settings=["held_answers_per_key"],
        ),
        "of this credential",
    ),
    "org": (
        CountedBound(
            "held_answers_of_org",
            of=f"{_OPEN} for one organisation",
            over="server",
            response=_REFUSED,
            settings=["held_answers_per_org"],
        ),
        "of this organisation",
    ),
    "address": (
        CountedBound(
            "held_answers_of_address",
            of=f"{_OPEN} for one address; listed proxies are exempt",
            over="server",
            response=_REFUSED,
            settings=["connections_per_address", "proxies"],
        ),
        "of this address",
    ),
    "strangers": (
        CountedBound(
            "held_answers_of_strangers",
            of=f"{_OPEN} for all callers without a credential of one organisation's open endpoints",
            over="server",
            response=_REFUSED,
            settings=["held_answers_per_key"],
        ),
        "of callers without a credential",
    ),
    "all": (
        CountedBound(
            "held_answers_of_all",
            of=f"{_OPEN} in total, except those of operators",
            over="server",
            value=f"{_HELD_SHARE:.0%} of the connections",
            response=_REFUSED,
            settings=["connections"],
        ),
        "of this server",
    ),
}
"""The bound of each kind of holder, and whose responses it counts."""


class OpenResponseSlot:
    """The slot of one open response."""

    __slots__ = ("_has_owner", "_responses", "_taken")

    def __init__(self, responses: OpenResponses) -> None:
        self._responses = responses
        self._taken: list[_Holder] = []
        self._has_owner = False

    def assign(self, principal: Principal | None, org: str, *, operates: bool) -> None:
        """Count the slot to its caller, once the caller is known. Raises TooManyHeldAnswers.

        Operators always get a slot.
        """
        if self._has_owner:
            return
        self._has_owner = True
        if not operates:
            self.take(self._responses.holders(principal, org))

    def take(self, holders: Sequence[tuple[_Holder, int]]) -> None:
        for holder, most in holders:
            self._responses.take(holder, most)
            self._taken.append(holder)

    def release(self) -> None:
        """Give the slot back. To be called once."""
        self._responses.left(self._taken)


def asks_to_be_held(request: Request, held: HoldsOpen | None) -> bool:
    """Whether the response to this request is held open."""
    match held:
        case HoldsOpen.NEVER | None:
            return False
        case HoldsOpen.IF_ASKED:
            return read_preferences(request).wait is not None
        case HoldsOpen.UNLESS_ASYNC:
            preferences = read_preferences(request, in_query=False)
            return preferences.wait is not None or not preferences.respond_async
        case HoldsOpen.ALWAYS:
            return True
