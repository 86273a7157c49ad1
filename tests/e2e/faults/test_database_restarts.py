"""PostgreSQL is restarted and killed under load: nothing is lost, and all recover by themselves."""

from __future__ import annotations

import asyncio
from collections import Counter

from coatcheck import Engine, State, Ticket
from coatcheck.db.embedded import EmbeddedPostgres
from coatcheck.domain.errors import DatabaseUnavailable, OutcomeUnknown
from coatcheck.domain.ids import from_text
from tests.deployment import Deployment
from tests.e2e.faults import history
from tests.e2e.faults.roles import executions, payload, start_worker_process
from tests.waiting import eventually_async

SUBMITTERS = 4


class Submitter:
    """Submits one job after another, each under its own key, until told to stop.

    What a caller would do: when the answer is that the database is away or that the outcome is
    unknown, ask again with the same key.
    """

    def __init__(self, engine: Engine, name: str, payload: dict[str, str]) -> None:
        self._engine = engine
        self._name = name
        self._payload = payload
        self.acknowledged: dict[str, Ticket] = {}

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            key = f"{self._name}-{len(self.acknowledged)}"
            self.acknowledged[key] = await self._submit(key)
            await asyncio.sleep(0.005)  # a load, not a flood

    async def _submit(self, key: str) -> Ticket:
        while True:
            try:
                return await self._engine.submit(
                    "lab.post__note", self._payload, idempotency_key=key
                )
            except (DatabaseUnavailable, OutcomeUnknown):
                continue  # the engine has waited and tried a few times by now


async def test_three_restarts_under_load_lose_nothing(
    deployment_on_own_server: Deployment, pg_server: EmbeddedPostgres
) -> None:
    deployment = deployment_on_own_server
    await history.keep(deployment.sql)
    deployment.start_maintenance()
    await start_worker_process(deployment)
    submitters = [
        Submitter(deployment.engine, f"submitter-{number}", payload(deployment))
        for number in range(SUBMITTERS)
    ]
    stop = asyncio.Event()
    running = [asyncio.create_task(submitter.run(stop)) for submitter in submitters]

    for end_server in (pg_server.stop, pg_server.kill, pg_server.kill):
        await _executed_more(deployment)
        await asyncio.to_thread(end_server)
        await asyncio.to_thread(pg_server.start)
        await _acknowledged_more(submitters)
    await _executed_more(deployment)
    stop.set()
    await asyncio.gather(*running)
    await deployment.reconnect()

    acknowledged = {k: t for each in submitters for k, t in each.acknowledged.items()}
    views = await deployment.wait_for_ends(list(acknowledged.values()))
    transitions = await history.read(deployment.sql)
    counted = Counter(job_id for job_id, _, _ in executions(deployment))

    assert {view.state for view in views} == {State.COMPLETED}
    assert len({view.id for view in views}) == len(acknowledged), "one key, one job"
    # Every row there is was acknowledged: none came into being twice or behind a caller's back.
    assert await deployment.sql.fetchval("SELECT count(*) FROM jobs") == len(acknowledged)
    for view in views:
        assert counted[view.id] >= 1
        assert history.completions(transitions, from_text(view.id)) == 1
        assert view.result is not None
        assert view.failures == 0


async def _executed_more(deployment: Deployment) -> None:
    seen = len(executions(deployment))

    async def look() -> bool:
        return len(executions(deployment)) >= seen + 20

    await eventually_async(look, "the worker runs jobs")


async def _acknowledged_more(submitters: list[Submitter]) -> None:
    seen = [len(submitter.acknowledged) for submitter in submitters]

    async def look() -> bool:
        return all(
            len(submitter.acknowledged) > before
            for submitter, before in zip(submitters, seen, strict=True)
        )

    await eventually_async(look, "every submitter is answered again")
