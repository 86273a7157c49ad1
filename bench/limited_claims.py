"""Times claims that choose: under limits, and for models. ADR 0057 has the figures.

`python -m bench.limited_claims` runs all cases, or those whose names it is given.

Each case fills queues by SQL, then claims and completes in turn. What is timed is the claim alone,
on a connection set up as the worker's is. It prints one line for each case: the jobs claimed per
second of claiming, the median time of a claim, and the CPU time of a claim in PostgreSQL and in
this process, which says more on a machine that is busy with other work.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import asyncpg

from bench.postgres import Postgres
from bench.queueing import queueing
from coatcheck.core.queries import leases
from coatcheck.core.queries.claims import claim_limited
from coatcheck.core.queries.leases import ClaimOrder, FinishedJob
from coatcheck.core.queries.limits import set_run_limits
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.db.migrate import migrate
from coatcheck.domain.claim_choice import ClaimRotation
from coatcheck.domain.job import ClaimedJob
from coatcheck.domain.lanes import DEFAULT_POLICIES, Lane
from coatcheck.products.llm import queries as llm
from coatcheck.products.llm.model import LLM_ENDPOINTS

ENDPOINT = "bench.post__work"
MODEL = "small:1"
RUN = UUID(int=1)
CLAIMS = 60
WARM_UP_CLAIMS = 10
KEEP_SECONDS = 86_400

_QUEUES = """
INSERT INTO jobs (org_id, id, lane, failures_max, endpoint, flow, payload)
SELECT 'org ' || queue % $1::integer, gen_random_uuid(), 'standard', 3, $2,
       $3::text || CASE WHEN $4::integer > 1 THEN '/' || queue / $1::integer ELSE '' END, '{}'
FROM generate_series(0, $1::integer * $4::integer - 1) AS queue, generate_series(1, $5::integer)
"""

Limits = Callable[[asyncpg.Connection], Awaitable[object]]
Claim = Callable[[Connection, ClaimOrder], Awaitable[list[ClaimedJob]]]


async def claim_for_a_target(db: Connection, order: ClaimOrder) -> list[ClaimedJob]:
    """A claim for a target with one permit that has the model loaded."""
    offer = llm.SlotOffer("gpu", 1, None, frozenset({MODEL}))
    return [each.job for each in await llm.claim(db, order, [offer], turn_seconds=30.0)]


@dataclass(frozen=True)
class Case:
    """``queues`` of each of ``orgs``, with ``jobs`` each; claims have ``room``."""

    name: str
    orgs: int
    queues: int
    jobs: int
    room: int
    limits: Limits
    prefix: str = ""
    endpoints: tuple[str, ...] = (ENDPOINT,)
    claim: Claim = claim_limited


def at_once(jobs: int) -> Limits:
    """A limit on the endpoint, for all organisations together."""
    return lambda connection: connection.execute(
        "INSERT INTO concurrency_limits VALUES ('*', 'endpoint', $1, $2)", ENDPOINT, jobs
    )


def rates(per_second: float | None, key_per_second: float | None) -> Limits:
    return lambda connection: set_run_limits(
        connection,
        "org 0",
        RUN,
        concurrency=None,
        per_second=per_second,
        key_per_second=key_per_second,
    )


async def no_limits(_: asyncpg.Connection) -> None: ...


def models(queues: int) -> Case:
    return Case(
        f"models, {queues:,} queues",
        orgs=queues,
        queues=1,
        jobs=200 if queues == 1 else 20,
        room=1,
        limits=no_limits,
        prefix=MODEL,
        endpoints=(*LLM_ENDPOINTS.values(),),
        claim=claim_for_a_target,
    )


CASES = (
    Case("1 queue, limit 100", 1, 1, 20_000, 100, at_once(100)),
    Case("1 queue, limit 1", 1, 1, 2_000, 100, at_once(1)),
    Case("20 queues, limit 100", 20, 1, 1_000, 100, at_once(100)),
    Case("1,000 queues, limit 100", 1_000, 1, 40, 100, at_once(100)),
    Case("1,000 queues of 1 organisation", 1, 1_000, 40, 100, at_once(100)),
    Case("1,000 queues, limit 1", 1_000, 1, 10, 100, at_once(1)),
    Case("run, 50,000 a second", 1, 1, 20_000, 100, rates(50_000, None), RUN.hex),
    Case("run, 10,000 keys", 1, 10_000, 3, 100, rates(None, 0.01), RUN.hex),
    Case("run, 10,000 keys, both rates", 1, 10_000, 3, 100, rates(50_000, 0.01), RUN.hex),
    models(1),
    models(100),
    models(1_000),
)


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="coatcheck-bench-", dir="/tmp") as folder:
        Path(folder).chmod(0o711)
        server = Postgres(Path(folder) / "postgres")
        await server.start()
        try:
            await migrate(await server.create_template("limited"))
            for case in CASES:
                if not sys.argv[1:] or case.name in sys.argv[1:]:
                    await run(server, case)
        finally:
            await server.stop()


async def run(server: Postgres, case: Case) -> None:
    database = await server.create_database("limited")
    connection = await asyncpg.connect(database.address)
    await connection.execute(
        queueing(_QUEUES),
        case.orgs,
        case.endpoints[0],
        case.prefix,
        case.queues,
        case.jobs,
        timeout=120,
    )
    await case.limits(connection)
    await connection.close()
    await database.settle()
    line = Connection(database.address, name="bench claim", server_settings=PINNED_PLANS)
    try:
        claims = await timed_claims(line, case)
    finally:
        await line.close()
    await database.remove()
    rate = sum(each.jobs for each in claims) / sum(each.seconds for each in claims)
    wall, server, client = (
        statistics.median(values) * 1e3
        for values in zip(
            *((it.seconds, it.server_cpu, it.client_cpu) for it in claims), strict=True
        )
    )
    print(
        f"{case.name:32} {rate:8,.0f} jobs/s {wall:7.2f} ms a claim;"
        f" CPU {server:7.2f} ms in PostgreSQL, {client:6.2f} ms here",
        flush=True,
    )


@dataclass(frozen=True)
class Timed:
    """A claim: its jobs, and seconds of the clock, of the backend's CPU and of this process's."""

    jobs: int
    seconds: float
    server_cpu: float
    client_cpu: float


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process, by the kernel's count in nanoseconds."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


async def timed_claims(line: Connection, case: Case) -> list[Timed]:
    boot = await leases.register(line, "bench", "bench", dict(DEFAULT_POLICIES))
    (backend,) = await line.fetch("SELECT pg_backend_pid() AS pid")
    turns: dict[str, ClaimRotation] = {}
    over: list[int] = []
    timed = []
    for number in range(2 * (WARM_UP_CLAIMS + CLAIMS)):
        order = ClaimOrder(
            lanes=[Lane.STANDARD.value],
            room=[case.room if number % 2 == 0 else 0],
            endpoints=[*case.endpoints],
            timeouts=[300.0] * len(case.endpoints),
            lease=boot << 40 | (number + 1),
            turns=turns,
        )
        if number % 2 == 0:
            server, client = cpu_seconds(backend["pid"]), time.process_time()
            start = time.perf_counter()
            claimed = await case.claim(line, order)
            seconds = time.perf_counter() - start
            if number >= 2 * WARM_UP_CLAIMS:
                timed.append(
                    Timed(
                        len(claimed),
                        seconds,
                        cpu_seconds(backend["pid"]) - server,
                        time.process_time() - client,
                    )
                )
        else:
            done = [FinishedJob(job, b"{}", 0.001) for job in claimed]
            await leases.exchange(line, order, done, KEEP_SECONDS, over)
            over = [job.lease for job in claimed[:1]]
    return timed


if __name__ == "__main__":
    asyncio.run(main())
