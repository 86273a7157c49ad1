"""Times Coatcheck's claim by the statement its worker uses, with and without a long history.

The history is written by SQL: a million jobs run for real would take minutes and leave the same
rows. What is timed is `leases.exchange`, on a connection set up as the worker's is, asking for full
batches out of a loaded queue and completing nothing.
"""

import statistics
import time

import asyncpg

from bench.payload import payload_object
from coatcheck import Engine, Lane, Submission
from coatcheck.core.queries import leases
from coatcheck.core.queries.leases import ClaimOrder
from coatcheck.db.connection import PINNED_PLANS, Connection
from coatcheck.domain.lanes import DEFAULT_POLICIES
from coatcheck.domain.limits import CLAIM_ROWS_MAX

WARM_UP_CLAIMS = 4
TIMED_CLAIMS = 80
KEEP_SECONDS = 86_400

# Spread over fifty organisations, as finished jobs of a shared installation are.
_HISTORY = """
INSERT INTO jobs (org_id, id, lane, state, failures_max, endpoint, flow, result,
                  dispatched_at, started_at, finished_at, expires_at)
SELECT 'org-' || n % 50, gen_random_uuid(), 'standard', 'completed', 3, $2, '', '{"n":1}',
       now(), now(), now(), now() + interval '1 day'
FROM generate_series(1, $1::integer) AS n
"""


async def write_history(connection: asyncpg.Connection, endpoint: str, rows: int) -> None:
    await connection.execute(_HISTORY, rows, endpoint)
    await connection.execute("VACUUM ANALYZE jobs")


async def claim_cost(address: str, engine: Engine, endpoint: str) -> float:
    """Microseconds per claimed job: the median over full batches."""
    jobs = (WARM_UP_CLAIMS + TIMED_CLAIMS) * CLAIM_ROWS_MAX
    await engine.submit_many(
        [Submission(endpoint, payload_object(number)) for number in range(jobs)]
    )
    # As a worker claims: see docs/adr/0009.
    settings = {**PINNED_PLANS, "synchronous_commit": "off"}
    line = Connection(address, name="bench claim", server_settings=settings)
    try:
        seconds = await _timed_claims(line, endpoint)
    finally:
        await line.close()
    return statistics.median(seconds[WARM_UP_CLAIMS:]) / CLAIM_ROWS_MAX * 1e6


async def _timed_claims(line: Connection, endpoint: str) -> list[float]:
    boot = await leases.register(line, "bench", "bench", dict(DEFAULT_POLICIES))
    seconds = []
    for number in range(WARM_UP_CLAIMS + TIMED_CLAIMS):
        order = ClaimOrder(
            lanes=[Lane.STANDARD.value],
            room=[CLAIM_ROWS_MAX],
            endpoints=[endpoint],
            timeouts=[300.0],
            lease=boot << 40 | (number + 1),
        )
        start = time.perf_counter()
        claimed, _ = await leases.exchange(line, order, [], KEEP_SECONDS)
        seconds.append(time.perf_counter() - start)
        if len(claimed) != CLAIM_ROWS_MAX:
            raise RuntimeError(f"a claim of {CLAIM_ROWS_MAX} gave {len(claimed)} jobs")
    return seconds
