"""BullMQ on Redis."""

from bench.contenders.contract import Ability, Contender, StoreKind
from bench.contenders.node_program import client_command, settings_environment, worker_command

WORKER_CONCURRENCY = 300
BULK_CHUNK = 200

CONTENDER = Contender(
    name="bullmq",
    label="BullMQ/Redis",
    store=StoreKind.REDIS,
    abilities=frozenset({Ability.BULK, Ability.WAIT}),
    client_command=client_command("bullmq"),
    worker_command=worker_command("bullmq"),
    distribution="bullmq",
    settings=(
        f"ioredis, unix socket; worker: concurrency={WORKER_CONCURRENCY}; finished jobs kept "
        "(its default)",
        f"producer: add() on one connection; bulk: addBulk() of {BULK_CHUNK:,} jobs at a time",
        "waiter: job.waitUntilFinished() on QueueEvents",
    ),
    keeps="the job with payload and result, until removed",
    environment=settings_environment(
        {"workerConcurrency": WORKER_CONCURRENCY, "bulkChunk": BULK_CHUNK}
    ),
    drain_guess_per_second=10_000,
)
