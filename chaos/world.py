"""The simulated systems around a deployment, which never die: an LLM, a speech remote, an upstream
and a webhook receiver. All are in this process, over sockets."""

from __future__ import annotations

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Self

from starlette.applications import Starlette

from chaos.handlers import EXECUTIONS_VARIABLE
from chaos.history import History
from chaos.http_upstream import HttpUpstream
from chaos.site import Site
from chaos.speech_remote import SpeechRemote
from chaos.webhook_receiver import WebhookReceiver
from examples.ollama_upstream import OllamaUpstream

MODELS: Final = ("llama3.2:latest", "qwen3:8b")
_LLM_PLACES: Final = 4


class World:
    """A context manager, around the whole of a run.

    ``environment`` has the settings for every process of the deployment; it is complete once the
    context was entered. It listens on ``port`` and the next one; 0 for any.
    """

    def __init__(self, history: History, seed: int, *, port: int = 0) -> None:
        self.history = history
        self.receiver = WebhookReceiver(history, seed)
        self._speech = SpeechRemote(history, seed)
        self._upstream = HttpUpstream(history)
        routes = [*self.receiver.routes, *self._speech.routes, *self._upstream.routes]
        self._site = Site(Starlette(routes=routes), port)
        self._llm = OllamaUpstream(
            port=port + 1 if port else 0,
            tokens_per_second=60.0,
            load_seconds=0.3,
            max_loaded=1,
            parallel=_LLM_PLACES,
        )
        self._closing = AsyncExitStack()
        self.environment: dict[str, str] = {}

    @property
    def receiver_url(self) -> str:
        """The URL before ``/{org}/{surface}/{number}`` of a webhook receiver."""
        return f"{self._site.url}/hook"

    @property
    def upstream_url(self) -> str:
        """The upstream to register as a service: it has ``POST /work``."""
        return f"{self._site.url}/upstream"

    async def __aenter__(self) -> Self:
        await self._closing.enter_async_context(self._site)
        await self._closing.enter_async_context(self._llm)
        self._closing.push_async_callback(self._speech.close)
        self.environment = {
            EXECUTIONS_VARIABLE: str(self.history.executions),
            "COATCHECK_LLM_URL": self._llm.url,
            "COATCHECK_LLM_CONCURRENCY": str(_LLM_PLACES),
            "COATCHECK_LLM_TURN_SECONDS": "3",
            "COATCHECK_SPEECH_REMOTE_URL": f"{self._site.url}/speech",
            "COATCHECK_GRAPHS_RETRY_AFTER_SECONDS": "1",
        }
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._closing.aclose()
