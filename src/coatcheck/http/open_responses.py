"""Answers that are held open: streams, long-polls, and calls that wait for their job.

Each keeps a connection and some memory for as long as its caller likes. So there are only so many
of one key, of one organisation and of one address, and in all fewer than there may be connections:
the rest is for callers who are answered at once.

An operation says by its declaration when its answer is held (``Operation.held``). The dispatcher
then takes a place before the handler runs and gives it back when the answer was sent. Whose place
it is, the gate says, as soon as it knows the caller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

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
"""Of a server's connections."""

_Holder = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class OpenResponseLimits:
    """How many answers may be held on one server; 0 is no limit."""

    of_one_key: int = HELD_OF_ONE_KEY
    of_one_org: int = HELD_OF_ONE_ORG
    of_one_address: int = CONNECTIONS_OF_ONE_ADDRESS
    in_all: int = int(CONNECTIONS * _HELD_SHARE)

    @staticmethod
    def in_all_of(connections: int) -> int:
        """How many of so many connections may be used for answers that are held."""
        return max(1, int(connections * _HELD_SHARE))


class OpenResponses:
    """The answers that one server holds open."""

    def __init__(
        self, limits: OpenResponseLimits | None = None, proxies: Sequence[Network] = ()
    ) -> None:
        self._limits = limits or OpenResponseLimits()
        self._addresses = ClientAddresses(proxies)
        self._held: Counter[_Holder] = Counter()
        self._places = 0

    @property
    def count(self) -> int:
        """How many are held just now, or about to be."""
        return self._places

    def enter(self, request: Request) -> OpenResponseSlot:
        """A place for an answer that is about to be held. Raises TooManyHeldAnswers."""
        client = request.scope.get("client")
        address = None if client is None else self._addresses.counted(client[0])
        place = OpenResponseSlot(self)
        if address is not None:
            place.take([(("address", "", address), self._limits.of_one_address)])
        self._places += 1
        return place

    def holders(self, principal: Principal | None, org: str) -> list[tuple[_Holder, int]]:
        """What an answer to this caller counts to, each with its limit.

        Those without a credential share one limit for each organisation that they call, so that
        strangers cannot use up what its own callers have.
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
        """An answer is not held any more, which counted to these."""
        self._places -= 1
        for holder in taken:
            self._held[holder] -= 1
            if not self._held[holder]:
                del self._held[holder]

    def take(self, holder: _Holder, most: int) -> None:
        """Count one more. Raises TooManyHeldAnswers."""
        if most and self._held[holder] >= most:
            kind = holder[0]
            metrics.record_bound_met(f"held_answers_of_{kind}")
            raise TooManyHeldAnswers(_WHOSE[kind], most)
        self._held[holder] += 1


_WHOSE: Final = {
    "address": "of this address",
    "strangers": "of callers without a credential",
    "key": "of this credential",
    "org": "of this organisation",
    "all": "of this server",
}


class OpenResponseSlot:
    """One answer that is held, or is about to be."""

    __slots__ = ("_has_owner", "_responses", "_taken")

    def __init__(self, responses: OpenResponses) -> None:
        self._responses = responses
        self._taken: list[_Holder] = []
        self._has_owner = False

    def belongs_to(self, principal: Principal | None, org: str, *, operates: bool) -> None:
        """Say whose it is, once that is known. Raises TooManyHeldAnswers.

        Operators always find a place.
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

    def leave(self) -> None:
        """The answer was sent, or nobody is there for it. To be called once."""
        self._responses.left(self._taken)


def asks_to_be_held(request: Request, held: HoldsOpen | None) -> bool:
    """Whether the answer to this call is one that is held."""
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
