"""What all who deal with remote work share: a line to the database, the remotes, the keepers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import UUID

from coatcheck.blobs import BlobContainer
from coatcheck.core.queries import remote_calls as store
from coatcheck.core.queries.remote_calls import IdleCall, TakenCall
from coatcheck.core.remote.destinations import Destinations
from coatcheck.core.remote.result_store import Keeper, KeptFor
from coatcheck.core.remote.tokens import Tokens
from coatcheck.core.service_secrets import ServiceSecrets
from coatcheck.db.channels import CHANGED
from coatcheck.db.connection import PINNED_PLANS, Line
from coatcheck.db.errors import retried
from coatcheck.db.notify import Notifier
from coatcheck.domain.ids import to_text
from coatcheck.domain.remote_work import Destination, OperatorRemote, decode_destination
from coatcheck.remotes import Remote, Remotes
from coatcheck.remotes.errors import RemoteError
from coatcheck.settings import Settings
from coatcheck.telemetry.job_stats import tally_of

_log = logging.getLogger(__name__)
_CANCEL_SECONDS_MAX: Final = 5.0
_AWAY_MAX: Final = 1_000


class RemoteOffice:
    """Opened and closed by ``RemoteCalls``."""

    def __init__(
        self,
        settings: Settings,
        keepers: Mapping[str, Keeper],
        remotes: Remotes,
        operators: Mapping[str, OperatorRemote],
        blobs: Callable[[], BlobContainer],
    ) -> None:
        self.settings = settings
        self.keepers = keepers
        self.blobs = blobs
        self.line = Line(settings.database_url, name="remote calls", server_settings=PINNED_PLANS)
        self._secrets = ServiceSecrets(settings, self.line)
        self.destinations = Destinations(remotes, operators, self._secrets)
        self.tally = tally_of(settings.database_url)
        self._remotes = remotes
        self._notify_line = Line(settings.database_url, name="remote calls notify")
        self._notifier = Notifier(self._notify_line)
        self._known_tokens: tuple[UUID, Tokens] | None = None
        self._away: set[str] = set()
        self._mistakes: set[tuple[str, str]] = set()

    async def close(self) -> None:
        await self._notifier.drain()
        await self._remotes.__aexit__(None, None, None)
        await self._secrets.close()
        await self.line.close()
        await self._notify_line.close()

    def tell(self, jobs: Sequence[UUID]) -> None:
        """Whoever waits for these may look again."""
        self._notifier.say(CHANGED, [job.hex for job in jobs])

    async def tokens(self) -> Tokens:
        _, tokens = await self._deployment()
        return tokens

    def note_away(self, to: Destination) -> None:
        """Say that a remote cannot be reached, once until it can."""
        place = self.destinations.pace_key(to)
        if place not in self._away:
            if len(self._away) >= _AWAY_MAX:
                self._away.clear()  # it is said once more then
            self._away.add(place)
            _log.warning(
                "a remote cannot be reached; its jobs wait, which costs no attempt",
                extra={"remote": to.shown},
            )

    def note_mistake(self, to: Destination, code: str, message: str) -> None:
        """Say that a remote of the operator's is not set up as it has to be, once for each kind of
        error until something was spawned there. A tenant's own is theirs to set up."""
        if to.operator and (to.operator, code) not in self._mistakes:
            self._mistakes.add((to.operator, code))
            _log.warning(
                "a remote of the operator's cannot be used; its jobs fail: %s",
                message,
                extra={"remote": to.shown, "code": code},
            )

    def note_spawned(self, to: Destination) -> None:
        """A remote has taken work."""
        self._mistakes = {each for each in self._mistakes if each[0] != to.operator}
        self.note_there(to)

    def note_there(self, to: Destination) -> None:
        """A remote has answered."""
        if self._away and (place := self.destinations.pace_key(to)) in self._away:
            self._away.discard(place)
            _log.info("a remote can be reached again", extra={"remote": to.shown})

    async def cancel_there(self, remote: Remote, remote_id: str, job: UUID) -> None:
        """Ask a remote to stop, as far as it can be asked."""
        try:
            async with asyncio.timeout(_CANCEL_SECONDS_MAX):
                await remote.cancel(remote_id)
        except (RemoteError, TimeoutError) as error:
            _log.info(
                "a remote was not told to stop: %s",
                type(error).__name__,
                extra={"job_id": to_text(job)},
            )

    async def kept_for(self, call: TakenCall | IdleCall) -> KeptFor:
        """What a keeper is told of a call."""
        deployment, _ = await self._deployment()
        note = decode_destination(call.destination).note
        return KeptFor(call.org, call.job, call.endpoint, call.owner, deployment, note)

    async def delete_stored(self, call: TakenCall | IdleCall) -> None:
        """Delete what may have been stored for a job that did not complete."""
        keeper = self.keepers.get(call.endpoint)
        key = None if keeper is None else keeper.blob_key(await self.kept_for(call))
        if key is not None:
            await self.blobs().delete([key])

    async def _deployment(self) -> tuple[UUID, Tokens]:
        if self._known_tokens is None:
            deployment, key = await retried(lambda: store.callback_key(self.line))
            self._known_tokens = deployment, Tokens(deployment, key)
        return self._known_tokens
