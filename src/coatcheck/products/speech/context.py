"""The services that every speech route uses, and the access checks that they share."""

from __future__ import annotations

from dataclasses import dataclass, field

from coatcheck.core import Engine
from coatcheck.core.remote.calls import RemoteCalls
from coatcheck.domain.errors import JobNotFound, UserRequired
from coatcheck.domain.job import JobView
from coatcheck.domain.tenants import Principal
from coatcheck.egress import Guard
from coatcheck.http import parameters
from coatcheck.http.gate import Gate
from coatcheck.http.job_responses import JobResponses
from coatcheck.http.request import Request
from coatcheck.http.upload_limits import UploadSlots
from coatcheck.products.speech.errors import SpeechNotConfigured
from coatcheck.products.speech.model import SPEECH_TYPES, SpeechReader, SpeechType, StoredSpeechTask
from coatcheck.products.speech.presenter import SpeechPresenter
from coatcheck.products.speech.repository import SpeechRepository
from coatcheck.settings import Settings


@dataclass(frozen=True, slots=True)
class SpeechContext:
    """The server's services that the speech routes use."""

    settings: Settings
    engine: Engine
    gate: Gate
    responses: JobResponses
    remote_calls: RemoteCalls
    guard: Guard
    """Checks webhook URLs."""
    room: UploadSlots = field(default_factory=UploadSlots)
    """Limits concurrent uploads of voices."""

    def check_configured(self) -> None:
        """Raises SpeechNotConfigured if no remote for speech is set."""
        if self.settings.speech_target is None:
            raise SpeechNotConfigured(
                "Speech is not configured: set COATCHECK_SPEECH_REMOTE_URL to the base URL of an "
                "HTTP remote, or COATCHECK_SPEECH_REMOTE for another kind of remote, on servers "
                "and workers."
            )

    def reader(self, request: Request) -> SpeechReader:
        """The user who calls. Raises UserRequired if the credential names none."""
        principal = request.principal
        if principal.user is None:
            raise UserRequired(
                "Voices and generations belong to a user, and this credential names no user: send "
                "a user's token (a JWT whose `sub` is the user), or an API key, which has a user."
            )
        return SpeechReader(principal.org, principal.user)

    def presenter(
        self, request: Request, kind: SpeechType = SpeechType.GENERATE
    ) -> SpeechPresenter:
        """The presenter for the caller. ``kind`` is the type of a task that gets a ticket."""
        return SpeechPresenter(self.engine, self.reader(request), kind)

    async def task(self, request: Request) -> StoredSpeechTask:
        """The task that the path names, if it is the caller's."""
        task = await self.engine.extension(SpeechRepository).task(
            self.reader(request), request.params["id"]
        )
        view, principal = task.view, request.principal
        # Checked twice: here, and by row security in the read above.
        if view.endpoint not in SPEECH_TYPES or view.owner != principal.owner:
            raise JobNotFound("there is no such task")
        return task

    async def job(self, request: Request) -> JobView:
        """The job of the task that the path names."""
        return (await self.task(request)).view


def stored_key(principal: Principal, key: str) -> str:
    """An idempotency key as it is stored: every user has their own keys."""
    return parameters.stored_key("speech", principal, key)
