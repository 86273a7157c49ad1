"""One round of the llm scenario, with the real processes.

The upstream is called directly and through ``coatcheck serve`` and a worker, alternately: first one
chat at a time, for the time to the first token; then several streams at once, for their rate.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from bench.http.paced import NotServedError
from bench.http.servers import ControlPlane, answering, control_plane, free_port, worker
from bench.llm.amounts import MODEL, STREAMS, TOKENS_PER_SECOND, Amounts
from bench.llm.figures import LlmFigure
from bench.llm.ndjson import ChatConnection, Heard
from bench.measure import percentile
from bench.postgres import Postgres
from bench.processes import Child, Processes

_IDLE_SERVICE = "bench.batches.idle_service:idle"
_READY_SECONDS_MAX = 30.0
_WARM_UP_CHATS = 5
Add = Callable[[LlmFigure, float], None]


@dataclass(frozen=True)
class Way:
    """One way to the upstream, with a kept-alive connection."""

    port: int
    headers: Mapping[str, str]
    kept: ChatConnection

    async def one(self, question: str, tokens: int) -> Heard:
        return await self.kept.chat(MODEL, question, tokens)

    async def all_at_once(self, question: str, tokens: int) -> list[Heard]:
        connections = [await ChatConnection.open(self.port, self.headers) for _ in range(STREAMS)]
        try:
            return await asyncio.gather(
                *(
                    connection.chat(MODEL, f"{question} {number}", tokens)
                    for number, connection in enumerate(connections)
                )
            )
        finally:
            for connection in connections:
                connection.close()


@asynccontextmanager
async def _way(port: int, headers: Mapping[str, str]) -> AsyncIterator[Way]:
    kept = await ChatConnection.open(port, headers)
    try:
        yield Way(port, headers, kept)
    finally:
        kept.close()


class LlmRound:
    """Measures each figure and passes it to ``add``."""

    def __init__(
        self, postgres: Postgres, processes: Processes, amounts: Amounts, add: Add
    ) -> None:
        self._postgres = postgres
        self._processes = processes
        self._amounts = amounts
        self._add = add

    async def run(self) -> None:
        async with self._ways() as (direct, through):
            for number in range(_WARM_UP_CHATS):
                await direct.one(f"warm up {number}", self._amounts.chat_tokens)
                await through.one(f"warm up {number}", self._amounts.chat_tokens)
            await self._first_tokens(direct, through)
            await self._rates(direct, through)

    async def _first_tokens(self, direct: Way, through: Way) -> None:
        firsts: dict[str, list[float]] = {"direct": [], "through": []}
        for number in range(self._amounts.chats):
            question = f"first {number}"
            heard = [
                await way.one(question, self._amounts.chat_tokens) for way in (direct, through)
            ]
            _check_same(heard[0], heard[1])
            firsts["direct"].append(heard[0].first_ms)
            firsts["through"].append(heard[1].first_ms)
        later = [
            theirs - ours for ours, theirs in zip(firsts["direct"], firsts["through"], strict=True)
        ]
        self._add(LlmFigure.DIRECT_FIRST_P50, percentile(firsts["direct"], 50))
        self._add(LlmFigure.DIRECT_FIRST_P95, percentile(firsts["direct"], 95))
        self._add(LlmFigure.THROUGH_FIRST_P50, percentile(firsts["through"], 50))
        self._add(LlmFigure.THROUGH_FIRST_P95, percentile(firsts["through"], 95))
        self._add(LlmFigure.LATER_P50, percentile(later, 50))
        self._add(LlmFigure.LATER_P95, percentile(later, 95))

    async def _rates(self, direct: Way, through: Way) -> None:
        for run in range(self._amounts.runs):
            heard = [
                await way.all_at_once(f"rate {run}", self._amounts.stream_tokens)
                for way in (direct, through)
            ]
            for ours, theirs in zip(*heard, strict=True):
                _check_same(ours, theirs)
            self._add(LlmFigure.DIRECT_RATE, _rate(heard[0]))
            self._add(LlmFigure.THROUGH_RATE, _rate(heard[1]))
            self._add(LlmFigure.DIRECT_GAP_P99, _gap(heard[0]))
            self._add(LlmFigure.THROUGH_GAP_P99, _gap(heard[1]))

    @asynccontextmanager
    async def _ways(self) -> AsyncIterator[tuple[Way, Way]]:
        """The upstream, and Coatcheck before it, with connections to both."""
        database = await self._postgres.create_database("coatcheck")
        try:
            async with self._upstream() as port:
                settings = {
                    "COATCHECK_LLM_URL": f"http://127.0.0.1:{port}",
                    "COATCHECK_LLM_CONCURRENCY": str(STREAMS),
                }
                async with (
                    control_plane(database.address, self._processes, settings) as plane,
                    worker(plane, self._processes, {}, service=_IDLE_SERVICE) as child,
                ):
                    await _until_served(plane, child)
                    bearer = {"Authorization": f"Bearer {plane.key}"}
                    async with _way(port, {}) as direct, _way(plane.port, bearer) as through:
                        yield direct, through
        finally:
            await database.remove()

    @asynccontextmanager
    async def _upstream(self) -> AsyncIterator[int]:
        """``examples/ollama_upstream`` in its own process; returns its port."""
        port = free_port()
        child = await self._processes.start(
            "ollama-upstream",
            [
                *(sys.executable, "-m", "examples.ollama_upstream", "--port", str(port)),
                *("--tokens-per-second", str(TOKENS_PER_SECOND)),
                *("--answer-tokens", str(self._amounts.stream_tokens), "--parallel", str(STREAMS)),
            ],
            {},
        )
        try:
            await answering(port, child)
            yield port
        finally:
            await self._processes.stop(child)


async def _until_served(plane: ControlPlane, child: Child) -> None:
    """Wait until a chat succeeds: it waits for the worker's start."""
    connection = await ChatConnection.open(plane.port, {"Authorization": f"Bearer {plane.key}"})
    try:
        async with asyncio.timeout(_READY_SECONDS_MAX):
            await connection.chat(MODEL, "ready?", 1)
    except TimeoutError:
        child.raise_if_ended()
        raise NotServedError(f"no answer within {_READY_SECONDS_MAX:g} s") from None
    finally:
        connection.close()


def _check_same(direct: Heard, through: Heard) -> None:
    if direct.text != through.text:
        raise NotServedError(f"{through.text[:200]!r} came through for {direct.text[:200]!r}")


def _rate(heard: Sequence[Heard]) -> float:
    """Tokens a second of all streams together, from each one's request to its last token."""
    return sum(len(each.token_times) / (each.token_times[-1] - each.asked_at) for each in heard)


def _gap(heard: Sequence[Heard]) -> float:
    return percentile([gap for each in heard for gap in each.gaps_ms], 99)
