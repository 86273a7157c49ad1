"""graphile-worker, with the settings of its own performance page."""

from bench.contenders.contract import Ability, Contender, StoreKind
from bench.contenders.node_program import (
    client_command,
    described,
    settings_environment,
    worker_command,
)

WORKER = {
    "concurrentJobs": 24,
    "maxPoolSize": 25,
    "localQueue": {"size": 500},
    "completeJobBatchDelay": 0,
    "failJobBatchDelay": 0,
}
CLIENT_CONNECTIONS = 20
BULK_CHUNK = 10_000

CONTENDER = Contender(
    name="graphile_worker",
    label="graphile-worker",
    store=StoreKind.POSTGRES,
    abilities=frozenset({Ability.BULK}),
    client_command=client_command("graphile_worker"),
    worker_command=worker_command("graphile_worker"),
    distribution="graphile-worker",
    settings=(
        f"worker: {described(WORKER)} (as on its performance page)",
        f"producer: addJob() on a pool of {CLIENT_CONNECTIONS} connections; "
        f"bulk: add_jobs() in SQL, {BULK_CHUNK:,} jobs at a time",
    ),
    keeps="nothing: a finished job's row is deleted",
    environment=settings_environment(
        {"worker": WORKER, "clientConnections": CLIENT_CONNECTIONS, "bulkChunk": BULK_CHUNK}
    ),
    drain_guess_per_second=25_000,
)
