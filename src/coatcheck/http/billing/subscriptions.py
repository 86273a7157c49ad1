"""Whether an organisation's plan allows new work. What it has handed in, it may always read."""

from __future__ import annotations

from typing import Final

from coatcheck.db.connection import Line
from coatcheck.domain.errors import SubscriptionInactive
from coatcheck.domain.subscriptions import ACTIVE
from coatcheck.http.auth.cache import RecentCache
from coatcheck.http.auth.org_lookup import OrgLookUp
from coatcheck.settings import Settings

REMEMBERED_SECONDS: Final = 30.0
_ORG_WORD: Final = "org:"


class Subscriptions:
    """The plans of all organisations. With billing off, every one of them is active."""

    def __init__(self, settings: Settings, line: Line) -> None:
        self._billing = bool(settings.stripe_webhook_secret)
        self._orgs = OrgLookUp(line)
        self._active: RecentCache[str, bool] = RecentCache(REMEMBERED_SECONDS)

    def check_now(self, org: str) -> bool | None:
        """Whether the plan is active, if that is known; None if the database must be asked."""
        return self._active.get(org) if self._billing else True

    async def check(self, org: str) -> None:
        """Raises SubscriptionInactive, or DatabaseUnavailable."""
        active = self.check_now(org)
        if active is None:
            epoch = self._active.epoch
            active = await self._ask(org)
            self._active.put(org, active, epoch=epoch)
        if not active:
            raise SubscriptionInactive(
                "The organisation's subscription is not active; results can still be read."
            )

    def heard(self, payload: str) -> None:
        """Forget what a notification on the channel KEYS is about."""
        if not payload:
            self.forget_all()
            return
        changed = {word.removeprefix(_ORG_WORD) for word in payload.split(",")}
        self._active.drop(lambda org, _: org in changed)

    def forget_all(self) -> None:
        self._active.clear()

    async def _ask(self, org: str) -> bool:
        found = await self._orgs.find(org)
        # An organisation without a row has never had a plan.
        return found is not None and found.subscription in ACTIVE
