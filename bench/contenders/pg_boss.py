"""pg-boss, woken by LISTEN/NOTIFY and fetching in batches."""

from bench.contenders.contract import Ability, Contender, StoreKind
from bench.contenders.node_program import (
    client_command,
    described,
    settings_environment,
    worker_command,
)

WORK = {
    "batchSize": 1_000,
    "localConcurrency": 2,
    "burstWhenBatchFull": True,
    "perJobResults": True,
    "pollingIntervalSeconds": 0.5,
}
QUEUE = {"notify": True}
CLIENT_CONNECTIONS = 20
WORKER_CONNECTIONS = 10
BULK_CHUNK = 5_000

CONTENDER = Contender(
    name="pg_boss",
    label="pg-boss",
    store=StoreKind.POSTGRES,
    abilities=frozenset({Ability.BULK}),
    client_command=client_command("pg_boss"),
    worker_command=worker_command("pg_boss"),
    distribution="pg-boss",
    settings=(
        f"worker: {described(WORK)}, {WORKER_CONNECTIONS} connections",
        f"useListenNotify with a queue of {described(QUEUE)}: each send() pays for a NOTIFY; "
        "without it a job would wait for the next poll",
        f"producer: send() on a pool of {CLIENT_CONNECTIONS} connections; "
        f"bulk: insert() of {BULK_CHUNK:,} jobs at a time",
    ),
    keeps="the job row with payload and result, until its retention deletes it",
    environment=settings_environment(
        {
            "work": WORK,
            "queue": QUEUE,
            "clientConnections": CLIENT_CONNECTIONS,
            "workerConnections": WORKER_CONNECTIONS,
            "bulkChunk": BULK_CHUNK,
        }
    ),
    drain_guess_per_second=20_000,
)
