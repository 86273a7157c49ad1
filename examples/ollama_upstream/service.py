"""Ollama's routes, and their common checks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine

from examples.ollama_upstream import requests
from examples.ollama_upstream.calls import Call, Stopped
from examples.ollama_upstream.catalogue import Shelf, full_name
from examples.ollama_upstream.conversation import Conversation
from examples.ollama_upstream.exchange import Exchange
from examples.ollama_upstream.failures import Refused
from examples.ollama_upstream.faults import Fault, Faults
from examples.ollama_upstream.lookups import Lookups
from examples.ollama_upstream.memory import Memory
from examples.ollama_upstream.records import Seen
from examples.ollama_upstream.sabotage import Saboteur
from examples.ollama_upstream.tuning import Tuning

Route = Callable[[Call], Coroutine[None, None, None]]


class Service:
    """Answers requests. ``cut`` ends one caller's connection, ``go_away`` all of them."""

    def __init__(
        self,
        shelf: Shelf,
        tuning: Tuning,
        *,
        token: str | None,
        remember: int,
        cut: Callable[[Exchange], None],
        go_away: Callable[[Fault], Awaitable[None]],
    ) -> None:
        self.tuning = tuning
        self.seen = Seen(remember)
        self.faults = Faults()
        self.memory = Memory(tuning, self.seen)
        self._token = token
        self._cut = cut
        saboteur = Saboteur(go_away)
        conversation = Conversation(shelf, self.memory, tuning, saboteur)
        lookups = Lookups(shelf, self.memory, saboteur)
        self._routes: dict[str, tuple[str, Route]] = {
            "/api/chat": ("POST", conversation.chat),
            "/api/generate": ("POST", conversation.generate),
            "/api/embed": ("POST", lookups.embed),
            "/api/embeddings": ("POST", lookups.embeddings),
            "/api/show": ("POST", lookups.show),
            "/api/tags": ("GET", lookups.tags),
            "/api/ps": ("GET", lookups.ps),
            "/api/version": ("GET", lookups.version),
        }

    async def serve(self, exchange: Exchange) -> None:
        """Answer one request, or stop when its caller disconnects."""
        if exchange.path == "/" and exchange.method in ("GET", "HEAD"):
            await exchange.answer_text("Ollama is running")
        elif exchange.path not in self._routes:
            await exchange.answer_text("404 page not found", 404)
        elif self._routes[exchange.path][0] != exchange.method:
            await exchange.answer_text("405 method not allowed", 405)
        else:
            request = self.seen.request(exchange.path, exchange.headers, await exchange.body())
            await self._while_there(Call(exchange, request))

    async def _while_there(self, call: Call) -> None:
        """Ollama stops generating when the caller closes the connection, and so does this."""
        answering = asyncio.create_task(self._answer(call))
        gone = asyncio.create_task(call.exchange.gone())
        try:
            await asyncio.wait({answering, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                self.seen.abort(call.request)
        finally:
            answering.cancel()
            gone.cancel()
            ended, _ = await asyncio.gather(answering, gone, return_exceptions=True)
        if isinstance(ended, Exception):
            raise ended

    async def _answer(self, call: Call) -> None:
        exchange, request = call.exchange, call.request
        try:
            if self._token and exchange.headers.get("authorization") != f"Bearer {self._token}":
                raise Refused(401, "unauthorized")
            if exchange.method == "POST":
                call.body = requests.body_object(request.body)
            if isinstance(name := call.body.get("model"), str):
                request.model = full_name(name)
            self._plan_fault(call)
            _, route = self._routes[exchange.path]
            await route(call)
        except Refused as refused:
            if exchange.answering:
                await exchange.line({"error": refused.message})
                await exchange.end()
            else:
                await exchange.answer({"error": refused.message}, refused.status, refused.headers)
        except Stopped:
            self._cut(exchange)

    def _plan_fault(self, call: Call) -> None:
        call.cleared = self.faults.cleared
        fault = call.fault = self.faults.next_for(call.exchange.path, call.request.model)
        if fault is None:
            return
        self.seen.faults[fault.kind] += 1
        if fault.kind == "error":
            raise Refused(fault.status, fault.message, tuple(fault.headers.items()))
