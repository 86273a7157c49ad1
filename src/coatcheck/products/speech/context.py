"""What every route of the speech surface needs, and for whom it reads."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from coatcheck.core import Engine
from coatcheck.core.remote.calls import RemoteCalls
from coatcheck.domain.errors import InvalidParameter, JobNotFound, UserRequired
from coatcheck.domain.ids import InvalidId, from_text
from coatcheck.domain.job import JobView
from coatcheck.domain.tenants import Principal
from coatcheck.egress import Guard
from coatcheck.http.gate import Gate
from coatcheck.http.job_responses import JobResponses
from coatcheck.http.request import Request
from coatcheck.http.upload_limits import UploadRoom
from coatcheck.products.speech.errors import SpeechNotConfigured
from coatcheck.products.speech.model import SPEECH_TYPES, SpeechReader, SpeechType, StoredSpeechTask
from coatcheck.products.speech.presenter import SpeechPresenter
from coatcheck.products.speech.repository import SpeechRepository
from coatcheck.settings import Settings

_MARK: Final = "\x1espeech:"
"""Before the keys of this surface. No caller can spell it: it is not printable."""

PAGE_ROWS: Final = 50
PAGE_ROWS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class SpeechContext:
    """The parts that the routes of this surface work with."""

    settings: Settings
    engine: Engine
    gate: Gate
    responses: JobResponses
    remote_calls: RemoteCalls
    guard: Guard
    """Of webhooks."""
    room: UploadRoom = field(default_factory=UploadRoom)
    """For the audio of voices."""

    def check_configured(self) -> None:
        """Raises SpeechNotConfigured if there is nobody to speak."""
        if self.settings.speech_target is None:
            raise SpeechNotConfigured(
                "Nothing is spoken here: set COATCHECK_SPEECH_REMOTE_URL to the base URL of a "
                "remote that speaks, or COATCHECK_SPEECH_REMOTE to another kind of one, for "
                "servers and workers alike."
            )

    def reader(self, request: Request) -> SpeechReader:
        """Who asks. Raises UserRequired if that is no user."""
        principal = request.principal
        if principal.user is None:
            raise UserRequired(
                "Voices and what they say are each user's own, and this credential names no user: "
                "send a user's token (a JWT whose `sub` is the user), or an API key, which has one."
            )
        return SpeechReader(principal.org, principal.user)

    def presenter(
        self, request: Request, kind: SpeechType = SpeechType.GENERATE
    ) -> SpeechPresenter:
        """What tasks look like to whoever asks. ``kind`` is that of the task for which a ticket is
        to be made."""
        return SpeechPresenter(self.engine, self.reader(request), kind)

    async def task(self, request: Request) -> StoredSpeechTask:
        """The task that the path names, if it is the caller's."""
        task = await self.engine.extension(SpeechRepository).task(
            self.reader(request), request.params["id"]
        )
        view, principal = task.view, request.principal
        # The first wall. The read above was behind the second.
        if view.endpoint not in SPEECH_TYPES or view.owner != principal.owner:
            raise JobNotFound("there is no such task")
        return task

    async def job(self, request: Request) -> JobView:
        """The job of the task that the path names."""
        return (await self.task(request)).view


def stored_key(principal: Principal, key: str) -> str:
    """An idempotency key as it is stored: one for each user that says it."""
    said = "\0".join([principal.owner, key])
    return _MARK + hashlib.sha256(said.encode()).hexdigest()


def read_cursor(given: str | None) -> UUID | None:
    """The ``next`` of the page before."""
    if given is None:
        return None
    try:
        return from_text(given)
    except InvalidId as error:
        raise InvalidParameter("cursor", "must be the `next` of a page") from error
